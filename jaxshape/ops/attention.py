"""Attention: softmax(q kᵀ + what may be attended) v, for many heads at once.

Everything is computed on four axes (N, H, S, E); inputs of three axes (N, S, H*E) are unpacked and
the result packed again. Query heads share key heads in groups of neighbours, so q is seen as (N,
Hkv, group, S, E) and k, v are never repeated. A query that may attend nothing gives 0.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._facts import divisible, least
from .._host import namespace
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import agree, demand_onto, matmul, ranked, reshape, wide, written
from ._numeric import below_top
from ._static import dtype_of
from ._versions import declare


class Sizes(NamedTuple):
    batch: Any
    q_heads: Any
    kv_heads: Any
    queries: Any
    keys: Any  # all of them, those of the past first
    past: Any
    head: Any
    v_head: Any
    packed: bool  # whether q, k and v have three axes


def _unpacked(name, shape, heads, heads_name, rank):
    """The shape of q, k or v as (N, H, S, E); None where a size is unknown."""
    if shape is None:
        return (None, heads if rank == 3 else None, None, None)
    if len(shape) != rank:
        raise ShapeError(
            f"{name} {written(shape)} has rank {len(shape)}, Q, K and V want the same rank"
        )
    if rank == 4:
        return shape
    if not heads or heads < 1:
        raise ShapeError(f"{name} {written(shape)} of rank 3 wants {heads_name}, at least 1")
    n, s, hidden = shape
    divisible(hidden, heads, f"{name} {written(shape)} in {heads_name} = {heads}")
    return n, heads, s, hidden // heads


def attention_sizes(shapes, q_num_heads, kv_num_heads, pads=False):
    """The sizes on which all shapes agree (None: unknown); None where q, k, v have no known rank.

    With `pads` a mask may cover the first keys only.
    """
    q, k, v, mask, past_key, past_value, lens = (*shapes, *(None,) * 4)[:7]
    rank = next((len(s) for s in (q, k, v) if s is not None), None)
    for name, shape in zip("QKV", (q, k, v), strict=True):
        ranked(name, shape, 3, 4)
    for name, shape in (("past_key", past_key), ("past_value", past_value)):
        ranked(name, shape, 4)
    ranked("nonpad_kv_seqlen", lens, 1)
    if rank is None:
        return None
    q = _unpacked("Q", q, q_num_heads, "q_num_heads", rank)
    k = _unpacked("K", k, kv_num_heads, "kv_num_heads", rank)
    v = _unpacked("V", v, kv_num_heads, "kv_num_heads", rank)
    pk, pv = (s or (None,) * 4 for s in (past_key, past_value))
    batch = agree("Attention_batch", q[0], k[0], v[0], pk[0], pv[0], (lens or (None,))[0])
    q_heads = agree("Attention_q_heads", q[1], q_num_heads)
    kv_heads = agree("Attention_kv_heads", k[1], v[1], pk[1], pv[1], kv_num_heads)
    divisible(q_heads, kv_heads, f"{q_heads} query heads share {kv_heads} key heads")
    new = agree("Attention_keys", k[2], v[2])
    past = 0 if past_key is past_value is None else agree("Attention_past", pk[2], pv[2])
    head = agree("Attention_head_size", q[3], k[3], pk[3])
    v_head = agree("Attention_v_head_size", v[3], pv[3])
    sizes = Sizes(
        batch,
        q_heads,
        kv_heads,
        agree("Attention_queries", q[2]),
        past + new,
        past,
        head,
        v_head,
        rank == 3,
    )
    if mask is not None:
        _demand_mask(mask, sizes, pads)
    return sizes


def _demand_mask(mask, sizes, pads):
    """Demand that a mask broadcasts one way to (N, H, S, K), its last axis perhaps shorter."""
    full = (sizes.batch, sizes.q_heads, sizes.queries, sizes.keys)
    if not pads or not mask:
        demand_onto("attn_mask", mask, full)
        return
    demand_onto("attn_mask", mask[:-1], full[:-1])
    least(sizes.keys, mask[-1], f"attn_mask {written(mask)} over {sizes.keys} keys")


def _check(past_key, past_value, lens, mode, windows):
    if (past_key is None) != (past_value is None):
        raise ShapeError("past_key and past_value are both given or neither")
    if lens is not None and past_key is not None:
        raise ShapeError(
            "nonpad_kv_seqlen tells of a cache kept outside, past_key of one kept inside: not both"
        )
    if mode not in (0, 1, 2, 3):
        raise ShapeError(f"qk_matmul_output_mode is {mode}, wants 0, 1, 2 or 3")
    for name, window in zip(("left_window_size", "right_window_size"), windows, strict=True):
        if window < -1:
            raise ShapeError(f"{name} is {window}, wants -1 (no bound) or more")


def _heads(x, n, heads, size):
    """x (N, S, H*E) as (N, H, S, E); x of four axes as it is."""
    if x.ndim == 4:
        return x
    return namespace(x).swapaxes(reshape(x, (n, hostdims(x.shape)[1], heads, size)), 1, 2)


def _attend(
    q, k, v, mask, past_key, past_value, lens=None, *, is_causal, kv_num_heads, q_num_heads, scale,
    softcap, softmax_precision, qk_matmul_output_mode, left_window_size=-1,
    right_window_size=-1, pads=True,
):  # fmt: skip
    """y as q, keys and values (N, Hkv, K, E) with the past, scores (N, H, S, K) at one stage."""
    windows = left_window_size, 0 if is_causal else right_window_size
    _check(past_key, past_value, lens, qk_matmul_output_mode, windows)
    given = [
        None if x is None else hostdims(x.shape)
        for x in (q, k, v, mask, past_key, past_value, lens)
    ]
    sizes = attention_sizes(given, q_num_heads, kv_num_heads, pads)
    assert sizes is not None
    xp, stored = namespace(q, k, v, mask, past_key, past_value, lens), q.dtype
    q = _heads(q, sizes.batch, sizes.q_heads, sizes.head)
    k = _heads(k, sizes.batch, sizes.kv_heads, sizes.head)
    v = _heads(v, sizes.batch, sizes.kv_heads, sizes.v_head)
    if past_key is not None:
        k, v = xp.concatenate([past_key, k], 2), xp.concatenate([past_value, v], 2)
    stages = [raw := scores(q, k, scale, sizes).astype(stored).astype(wide(stored))]
    stages.append(softcap * xp.tanh(raw / softcap) if softcap > 0 else raw)
    bias, allowed = _mask(xp, mask, raw.dtype, sizes, pads), _frontier(xp, sizes, lens, *windows)
    if mask is not None and mask.dtype == bool:
        bias, allowed = None, bias if allowed is None else bias & allowed
    biased = stages[-1] if bias is None else stages[-1] + bias
    stages.append(biased if allowed is None else xp.where(allowed, biased, -np.inf))
    precision = None if softmax_precision is None else canonical(dtype_of(softmax_precision))
    p = softmax(stages[-1], precision).astype(raw.dtype)
    if bias is not None or allowed is not None:
        some = bias > -np.inf if bias is not None else allowed
        some = some if bias is None or allowed is None else some & allowed
        p = xp.where(xp.any(some, axis=-1, keepdims=True), p, 0)
    stages.append(p)
    y = weighted(p, v, sizes).astype(stored)
    if sizes.packed:
        packed = (sizes.batch, sizes.queries, sizes.q_heads * sizes.v_head)
        y = reshape(xp.swapaxes(y, 1, 2), packed)
    return y, k, v, stages[qk_matmul_output_mode].astype(stored)


def scores(q, k, scale, sizes):
    """The products of q (N, H, S, E) and its group's k (N, Hkv, K, E), scaled: (N, H, S, K)."""
    xp = namespace(q, k)
    if scale is None:  # the size may be one of JAX's symbols
        root = xp.asarray(to_export(sizes.head)).astype(wide(q.dtype)) ** -0.25
        left, right = root.astype(q.dtype), root.astype(k.dtype)
    else:  # by halves, lest the products overflow
        left = np.sqrt(abs(scale)).astype(q.dtype)
        right = (np.sign(scale) * np.sqrt(abs(scale))).astype(k.dtype)
    grouped = (
        sizes.batch,
        sizes.kv_heads,
        sizes.q_heads // sizes.kv_heads,
        sizes.queries,
        sizes.head,
    )
    product = matmul(reshape(q * left, grouped), xp.swapaxes(k * right, 2, 3)[:, :, None])
    return reshape(product, (sizes.batch, sizes.q_heads, sizes.queries, sizes.keys))


def weighted(p, v, sizes):
    """The means of v (N, Hkv, K, F) by the weights p (N, H, S, K) of its group: (N, H, S, F)."""
    grouped = (
        sizes.batch,
        sizes.kv_heads,
        sizes.q_heads // sizes.kv_heads,
        sizes.queries,
        sizes.keys,
    )
    y = matmul(reshape(p, grouped), v[:, :, None])
    return reshape(y, (sizes.batch, sizes.q_heads, sizes.queries, sizes.v_head))


def softmax(s, precision=None):
    """The softmax of the last axis, of values rounded to `precision`; 0 where all are -inf."""
    xp = namespace(s)
    s = s if precision is None else s.astype(precision).astype(wide(precision))
    top = xp.max(s, axis=-1, keepdims=True, initial=-np.inf)
    e = xp.exp(below_top(s, -1, xp.where(top == -np.inf, 0, top)))
    total = xp.sum(e, axis=-1, keepdims=True)
    p = e / xp.where(total == 0, 1, total)
    return p if precision is None else p.astype(precision)


def _mask(xp, mask, dtype, sizes, pads):
    """The mask over all keys: where it ends nothing may be attended."""
    if mask is None:
        return None
    mask = mask if mask.dtype == bool else mask.astype(dtype)
    if not pads or not mask.ndim or hostdims(mask.shape)[-1] == sizes.keys:
        return mask
    missing = to_export(sizes.keys - hostdims(mask.shape)[-1])
    gap = False if mask.dtype == bool else -np.inf
    return xp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=gap)


def _frontier(xp, sizes, lens, left, right):
    """Which keys each query may attend by their places, onto (N, H, S, K); None: all."""
    keys = xp.arange(to_export(sizes.keys))
    queries = xp.arange(to_export(sizes.queries))[:, None]
    if lens is not None:
        lens = lens.astype(keys.dtype).reshape((-1, 1, 1, 1))
        at = queries + (lens - xp.asarray(to_export(sizes.queries)).astype(keys.dtype))
    else:
        at = queries + xp.asarray(to_export(sizes.past)).astype(keys.dtype)
    rules = [keys <= at + right] * (right >= 0) + [keys >= at - left] * (left >= 0)
    rules += [] if lens is None else [keys < lens]
    return functools.reduce(operator.and_, rules) if rules else None


def _types(
    q, k, v, mask, past_key, past_value, lens=None, *, kv_num_heads, q_num_heads,
    qk_matmul_output_mode, left_window_size=-1, right_window_size=-1, pads=True, **_,
):  # fmt: skip
    """The types of the four outputs."""
    _check(past_key, past_value, lens, qk_matmul_output_mode, (left_window_size, right_window_size))
    shapes = [None if t is None else t.shape for t in (q, k, v)]
    rest = [None if t is None else t.shape for t in (mask, past_key, past_value, lens)]
    # a past of unknown rank is still a past
    rest[1:3] = [
        s if t is None or s is not None else (None,) * 4
        for t, s in zip((past_key, past_value), rest[1:3], strict=True)
    ]
    sizes = attention_sizes((*shapes, *rest), q_num_heads, kv_num_heads, pads)
    dtypes = q.dtype, k.dtype, v.dtype, q.dtype
    if sizes is None:
        return tuple(TensorType(d, None) for d in dtypes)
    n, h, kv, s, keys, _, e, f, packed = sizes
    y = (n, s, h * f) if packed else (n, h, s, f)
    return tuple(map(TensorType, dtypes, (y, (n, kv, keys, e), (n, kv, keys, f), (n, h, s, keys))))


_INPUTS = "q k v attn_mask? past_key? past_value?"
_ATTRIBUTES = {
    "is_causal": 0,
    "kv_num_heads": None,
    "q_num_heads": None,
    "qk_matmul_output_mode": 0,
    "scale": None,
    "softcap": 0.0,
    "softmax_precision": None,
}
_DTYPES = ("softmax_precision",)
_DOC = """Mix v (N, Hkv, K, F) by softmax of q (N, H, S, E) by k (N, Hkv, K, E) -> y (N, H, S, F).

    Then k and v with the past in front, and scores (N, H, S, K) as qk_matmul_output_mode says.
    """
# a rule, because JAX can neither part hidden sizes into heads nor compare masks of symbolic sizes
# a mask shorter than the keys is filled up from opset 24 on; before, it can only broadcast
declare(
    "Attention",
    23,
    functools.partial(_attend, pads=False),
    functools.partial(_types, pads=False),
    _INPUTS,
    _ATTRIBUTES,
    _DOC,
    dtypes=_DTYPES,
)
_INPUTS += " nonpad_kv_seqlen?"
declare("Attention", 24, _attend, _types, _INPUTS, _ATTRIBUTES, _DOC, dtypes=_DTYPES)
_ATTRIBUTES |= {"left_window_size": -1, "right_window_size": -1}
declare("Attention", 25, _attend, _types, _INPUTS, _ATTRIBUTES, _DOC, dtypes=_DTYPES)
