"""GroupQueryAttention (com.microsoft): decoder attention with a cache of keys and values.

Every position is absolute. Entry b of the batch has T = seqlens_k[b] + 1 tokens after the step, of
which P were in the cache before it and the first Q of the new ones are no padding: row s of the
query stands at P + s. What is padding is computed, too, but no valid row depends on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._dim import maximum
from .._error import ShapeError
from .._facts import at_least, count, divisible, equal, least, same
from .._op import Static, op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import agree, matmul, onto, ranked, reshape, shaped, wide
from ._static import scalar
from .attention import softmax
from .microsoft import DOMAIN
from .microsoft_cache import (
    Step,
    appended,
    coded,
    decoded,
    kept,
    placed,
    staged,
    stored_size,
    width,
)
from .rotary import rotary


class Sizes(NamedTuple):
    batch: Any
    heads: int
    kv_heads: int
    queries: Any
    keys: Any  # the new ones, as many as queries or none
    past: Any
    head: Any
    stored: Any  # the elements that a head takes in the cache


def sizes_of(shapes: Any, heads: int, kv_heads: int, bits: int) -> Sizes:
    """The sizes on which query, key, value and the past agree."""
    q, k, v, past_key, past_value, seqlens = shapes
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ShapeError(
            f"num_heads is {heads}, kv_num_heads {kv_heads}: the first wants to be a multiple"
        )
    if (k is None) != (v is None) or (past_key is None) != (past_value is None):
        raise ShapeError("key and value, past_key and past_value are both given or neither")
    for name, x, rank in (
        ("query", q, 3), ("key", k, 3), ("value", v, 3), ("past_key", past_key, 4),
        ("past_value", past_value, 4), ("seqlens_k", seqlens, 1),
    ):  # fmt: skip
        ranked(name, x, rank)
    n, s, hidden = q
    n = n if seqlens is None else same(n, seqlens[0], "batch of seqlens_k")
    parts = heads if k is not None else heads + 2 * kv_heads
    divisible(hidden, parts, f"query of {hidden} in {parts} heads")
    head, keys, past = hidden // parts, s, 0
    if k is not None:
        n, keys = agree("batch of key and value", n, k[0], v[0]), same(k[1], v[1], "value")
        if keys != 0 or past_key is None:  # without new ones the past alone is attended
            keys = same(keys, s, "length of key")
        for d, name in ((k[2], "hidden size of key"), (v[2], "hidden size of value")):
            same(d, kv_heads * head, name)
    stored = stored_size(head, bits)
    if past_key is not None:
        for x, name in ((past_key, "past_key"), (past_value, "past_value")):
            for d, wanted in zip((*x[:2], x[3]), (n, kv_heads, stored), strict=True):
                same(d, wanted, name)
        past = same(past_key[2], past_value[2], "length of the past")
    return Sizes(n, heads, kv_heads, s, keys, past, head, stored)


def _present(total: Any, sizes: Sizes, given: bool, window: int, sliding: int) -> Any:
    """The length of the cache after the step: a buffer's own, or that of past and new together."""
    past, grown = sizes.past, sizes.past + sizes.keys
    if sliding:
        if window < 1 or not given:
            raise ShapeError("sliding_window_cache wants local_window_size and a past")
        least(past, window, "a cache of local_window_size")
        return past
    if not given:
        return sizes.keys if total is None else same(total, sizes.keys, "total_sequence_length")
    if total is None:
        return count("present", past, grown)
    least(total, sizes.keys, "total_sequence_length")
    if equal(total, grown):
        return grown
    return past if at_least(past, total) else maximum(past, total)


def _step(sizes: Sizes, seqlens: Any, query_seqlens: Any, total: Any) -> Step:
    after = shaped("seqlens_k", seqlens, (sizes.batch,)).astype(np.int32) + np.int32(1)
    new = jnp.asarray(to_export(sizes.queries)).astype(np.int32)
    if query_seqlens is not None:
        valid = shaped("query_seqlens", query_seqlens, (sizes.batch,)).astype(np.int32)
        return Step(after, after - valid, valid, False)
    first = jnp.asarray(to_export(total)).astype(np.int32) == new  # all is new: a prompt
    before = jnp.where(first, 0, jnp.maximum(after - new, 0))
    return Step(after, before, jnp.broadcast_to(new, after.shape), first)


def turned(
    x: Any, cos: Any, sin: Any, position_ids: Any, step: Step, interleaved: int
) -> Any:  # fmt: skip
    """x (N, H, S, E), each row by the angle of its place."""
    if cos is None or sin is None:
        raise ShapeError("do_rotary wants cos_cache and sin_cache")
    ranked("cos_cache", hostdims(cos.shape), 2)
    rows = jnp.arange(x.shape[2], dtype=np.int32)
    if position_ids is None:
        at = jnp.where(rows < step.valid[:, None], step.before[:, None] + rows, 0)
    else:
        at = shaped("position_ids", position_ids, (x.shape[0], x.shape[2]))
        if at.size:  # of a prompt only the first place counts, for all of the batch
            at = jnp.where(step.first, at[:1, :1] + rows.astype(at.dtype), at)
    turning = 2 * hostdims(cos.shape)[1]
    return rotary.function(
        x, cos, sin, at, interleaved=interleaved, rotary_embedding_dim=to_export(turning)
    )


def _normed(x: Any, weight: Any, epsilon: float) -> Any:
    """x (N, H, S, E) over the root of its mean square along E, times weight (E,)."""
    w = x.astype(wide(x.dtype))
    w = w / jnp.sqrt(jnp.mean(w * w, axis=-1, keepdims=True) + epsilon)
    weight = shaped("weight of the norm", weight, hostdims(x.shape)[-1:])
    return (w * weight.astype(w.dtype)).astype(x.dtype)


def parted(query: Any, key: Any, value: Any, sizes: Sizes) -> list[Any]:
    """Query, key and value as (N, H, S, E), of one packed tensor or of three."""

    def heads(x: Any, n: int, length: Any) -> Any:
        shape = (sizes.batch, length, n, sizes.head)
        return jnp.swapaxes(reshape(fit(x, (*shape[:2], n * sizes.head)), shape), 1, 2)

    h, kv = sizes.heads, sizes.kv_heads
    if key is not None:
        counts = ((query, h, sizes.queries), (key, kv, sizes.keys), (value, kv, sizes.keys))
        return [heads(*c) for c in counts]
    x = heads(query, h + 2 * kv, sizes.queries)
    return [x[:, :h], x[:, h : h + kv], x[:, h + kv :]]


@op("GroupQueryAttention", DOMAIN)
def group_query_attention(
    query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None,
    total_sequence_length: Static = None, cos_cache=None, sin_cache=None, position_ids=None,
    attention_bias=None, head_sink=None, k_scale=None, v_scale=None, q_norm_weight=None,
    k_norm_weight=None, query_seqlens=None, /, *, causal=1, do_rotary=None, k_norm_epsilon=None,
    k_quant_type="NONE", kv_cache_bit_width=None, kv_num_heads, local_window_size=-1, num_heads,
    q_norm_epsilon=None, qk_norm_epsilon=9.999999974752427e-07, qk_output=0,
    rotary_interleaved=None, scale=None, sliding_window_cache=0, smooth_softmax=-1, softcap=None,
    v_quant_type="NONE",
):  # fmt: skip
    """Mix value (N, L, Hkv*E) by softmax of query (N, S, H*E) by key (N, L, Hkv*E) and those of the
    past (N, Hkv, C, E) -> (N, S, H*E), keys and values with the new ones, weights (N, H, S, T)."""
    _given(seqlens_k, total_sequence_length, causal, local_window_size, qk_output)
    shapes = [
        None if x is None else hostdims(x.shape)
        for x in (query, key, value, past_key, past_value, seqlens_k)
    ]
    bits = width((k_quant_type, v_quant_type), kv_cache_bit_width)
    sizes = sizes_of(shapes, num_heads, kv_num_heads, bits)
    total = scalar(total_sequence_length, "total_sequence_length")
    given, window = past_key is not None, local_window_size
    length = _present(total, sizes, given, window, sliding_window_cache)
    step = _step(sizes, seqlens_k, query_seqlens, total)
    q, k, v = parted(query, key, value, sizes)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = _normed(q, q_norm_weight, q_norm_epsilon or qk_norm_epsilon)
        k = _normed(k, k_norm_weight, k_norm_epsilon or qk_norm_epsilon)
    if do_rotary:
        turn = cos_cache, sin_cache, position_ids, step, rotary_interleaved or 0
        q, k = turned(q, *turn), turned(k, *turn)
    scales: tuple[Any, Any] = (k_scale, v_scale)
    past: tuple[Any, Any] = (past_key, past_value)
    new = [coded(x, s, bits) for x, s in zip((k, v), scales, strict=True)]
    if sliding_window_cache:
        rows = [jnp.concatenate(pair, 2) for pair in zip(past, new, strict=True)]
        at = staged(step, sizes.keys, length, window)
        present = [kept(x, step, length, window) for x in rows]
    else:
        present = [appended(*pair, step, length) for pair in zip(past, new, strict=True)]
        rows = [x[:, :, : to_export(total)] for x in present]
        at = placed(step.total, total)
    k, v = (decoded(x, s, bits, q.dtype) for x, s in zip(rows, scales, strict=True))
    if attention_bias is not None:
        wanted = (sizes.batch, sizes.heads, sizes.queries, total)
        attention_bias = onto("attention_bias", attention_bias, wanted)
        if sliding_window_cache:
            index = jnp.maximum(at, 0)[:, None, None]
            attention_bias = jnp.take_along_axis(attention_bias, index, 3)
    sink = head_sink
    if sink is not None:
        sink = shaped("head_sink", sink, (sizes.heads,))
    elif smooth_softmax == 1:
        sink = jnp.zeros(sizes.heads, query.dtype)
    y, weights = attended(
        q, k, v, sizes, at, step, attention_bias, sink, softcap or 0.0, scale or 0.0, window,
        causal,
    )  # fmt: skip
    return y, *present, weights[max(qk_output - 1, 0)]


def attended(
    q: Any, k: Any, v: Any, sizes: Sizes, at: Any, step: Step, bias: Any, sink: Any,
    softcap: float, scale: float, window: int, causal: int,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """The result (N, S, H*E), and scores and weights (N, H, S, K); key j stands at at[:, j]."""
    n, h, kv, s, *_ = sizes
    dtype, group = wide(q.dtype), h // kv
    used = (at >= 0)[:, None, :, None]  # what is behind the tokens may be anything, NaN too
    k, v = (jnp.where(used, x, jnp.zeros((), x.dtype)) for x in (k, v))
    size = jnp.asarray(to_export(sizes.head)).astype(dtype)
    factor = jnp.asarray(scale, dtype) if scale else 1 / jnp.sqrt(size)
    grouped = (n, kv, group, s, sizes.head)
    product = matmul(reshape(q, grouped), jnp.swapaxes(k, 2, 3)[:, :, None]) * factor
    keys = hostdims(k.shape)[2]
    scores = reshape(product, (n, h, s, keys))
    scores = softcap * jnp.tanh(scores / softcap) if softcap > 0 else scores
    scores = scores if bias is None else scores + bias.astype(dtype)
    place = (step.before[:, None] + jnp.arange(q.shape[2], dtype=np.int32))[:, None, :, None]
    allowed = (at >= 0)[:, None, None]
    if causal:
        allowed = allowed & (at[:, None, None] <= place)
        if window > 0:
            allowed = allowed & (at[:, None, None] > place - window)
    allowed = jnp.broadcast_to(allowed, scores.shape)
    taken = jnp.where(allowed, scores, -np.inf)
    if sink is not None:
        column = jnp.broadcast_to(sink.astype(dtype)[:, None, None], (*scores.shape[:3], 1))
        p = softmax(jnp.concatenate([taken, column], 3))[..., :-1]
    else:
        p = softmax(taken)
    y = matmul(reshape(p, (n, kv, group, s, keys)), v.astype(dtype)[:, :, None])
    y = jnp.swapaxes(reshape(y, (n, h, s, sizes.head)), 1, 2)
    weights = [jnp.where(allowed, scores, 0).astype(q.dtype), p.astype(q.dtype)]
    return reshape(y, (n, s, h * sizes.head)).astype(q.dtype), weights


def _given(seqlens: Any, total: Any, causal: int, window: int, qk_output: int) -> None:
    if seqlens is None or total is None:
        raise ShapeError("needs seqlens_k and total_sequence_length")
    if qk_output not in (0, 1, 2):
        raise ShapeError(f"qk_output is {qk_output}, wants 0, 1 or 2")
    if not causal and window != -1:
        raise ShapeError(f"local_window_size is {window} where causal is 0, wants -1")


@group_query_attention.shape_rule  # because data tell how long the cache becomes
def _(
    query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None,
    total_sequence_length=None, cos_cache=None, sin_cache=None, position_ids=None,
    attention_bias=None, head_sink=None, k_scale=None, v_scale=None, q_norm_weight=None,
    k_norm_weight=None, query_seqlens=None, /, *, causal=1, k_quant_type="NONE",
    kv_cache_bit_width=None, kv_num_heads, local_window_size=-1, num_heads, qk_output=0,
    sliding_window_cache=0, v_quant_type="NONE", **_,
):  # fmt: skip
    _given(seqlens_k, total_sequence_length, causal, local_window_size, qk_output)
    inputs = query, key, value, past_key, past_value, seqlens_k
    bits = width((k_quant_type, v_quant_type), kv_cache_bit_width)
    shapes = [None if x is None else x.shape for x in inputs]
    sizes = sizes_of(shapes, num_heads, kv_num_heads, bits)
    known = not isinstance(total_sequence_length, TensorType)
    total = scalar(total_sequence_length, "total_sequence_length") if known else None
    given = past_key is not None
    length = _present(total, sizes, given, local_window_size, sliding_window_cache)
    n, h, kv, s, _, _, e, stored = sizes
    cache = query.dtype if not bits else np.dtype("int8" if bits == 8 else "uint8")
    present = TensorType(past_key.dtype if given else cache, (n, kv, length, stored))
    weights = (n, h, s, count("total") if total is None else total)
    result = TensorType(query.dtype, (n, s, h * e))
    return result, present, present, TensorType(query.dtype, weights)
