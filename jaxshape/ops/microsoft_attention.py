"""Attention as onnxruntime's optimiser fuses it (com.microsoft).

Everything is computed on four axes (N, H, S, E), sums and softmax in float32 at least. What a mask
forbids gets `mask_filter_value` added, -10000 unless told, so that a query that may attend nothing
attends all alike. What the CPU of onnxruntime does not know either is refused: packed queries, and
buffers in Attention.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._error import ShapeError, UnsupportedError
from .._facts import divisible, equal, same
from .._host import namespace
from .._op import Static, op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import matmul, onto, ranked, reshape, shaped, wide
from .attention import softmax
from .microsoft import DOMAIN
from .microsoft_decoder import decoder_masked_attention
from .rotary import rotary

_FORBIDDEN = -10000.0


class Sizes(NamedTuple):
    batch: Any
    heads: int
    queries: Any
    keys: Any  # the new ones
    past: Any
    head: Any
    v_head: Any

    @property
    def total(self) -> Any:
        return self.past + self.keys

    @property
    def types(self) -> tuple[tuple[Any, ...], ...]:
        """The shapes of the result, of keys and values with the past, and of the scores."""
        n, h, s, _, _, e, f = self
        return (n, s, h * f), (n, h, self.total, e), (n, h, self.total, f), (n, h, s, self.total)


def _heads_of(size: Any, heads: int, name: str) -> Any:
    if heads < 1:
        raise ShapeError(f"num_heads is {heads}, wants at least 1")
    divisible(size, heads, f"{name} of {size} in {heads} heads")
    return size // heads


def split_heads(x: Any, sizes: Sizes, length: Any, size: Any) -> Any:
    """x (N, S, H*E) as (N, H, S, E); x of four axes as it is."""
    shape = (sizes.batch, length, sizes.heads, size)
    if x.ndim == 4:
        return fit(x, (sizes.batch, sizes.heads, length, size))
    return namespace(x).swapaxes(reshape(fit(x, (*shape[:2], shape[2] * shape[3])), shape), 1, 2)


def attended(
    q: Any, k: Any, v: Any, sizes: Sizes, mask: Any, bias: Any, unidirectional: int, scale: Any,
    filled: float,
) -> tuple[Any, Any]:  # fmt: skip
    """The result (N, S, H*F) and the scores (N, H, S, T) that softmax takes."""
    xp, stored = namespace(q, k, v), q.dtype
    if scale is None:
        root = xp.sqrt(xp.asarray(to_export(sizes.head)).astype(wide(stored)))
    else:
        root = 1 / np.asarray(scale, wide(stored))
    scores = matmul(q, xp.swapaxes(k, 2, 3)) / root
    if mask is not None:
        allowed = _allowed(mask, sizes, xp)
        scores = scores + xp.where(allowed, 0, filled).astype(scores.dtype)
    if unidirectional:
        ahead = _ahead(sizes, xp)
        scores = xp.where(ahead, np.finfo(scores.dtype).min, scores)
    if bias is not None:
        scores = scores + onto("attention_bias", bias, sizes.types[3]).astype(scores.dtype)
    y = xp.swapaxes(matmul(softmax(scores).astype(stored), v), 1, 2)
    return reshape(y, sizes.types[0]).astype(stored), scores.astype(stored)


def _ahead(sizes: Sizes, xp: Any) -> Any:
    """Which keys lie after each query (S, T), of which the first is behind the past."""
    queries = xp.arange(to_export(sizes.queries))[:, None] + to_export(sizes.past)
    return xp.arange(to_export(sizes.total)) > queries


def _allowed(mask: Any, sizes: Sizes, xp: Any) -> Any:
    """Which keys a mask lets be attended, onto (N, H, S, T)."""
    n, s, total = sizes.batch, sizes.queries, sizes.total
    if mask.ndim == 1:  # how many keys there are; or where they end, then where they begin
        keys = xp.arange(to_export(total)).astype(mask.dtype)
        if _by_ends(hostdims(mask.shape)[0], n) is not False:
            ends = shaped("mask", mask, (n,)).reshape((-1, 1, 1, 1))
            return keys < ends
        both = reshape(mask, (2, n))
        return (keys < both[0][:, None, None, None]) & (keys >= both[1][:, None, None, None])
    if mask.ndim == 2:
        return shaped("mask", mask, (n, total))[:, None, None] > 0
    return shaped("mask", mask, (n, s, total))[:, None] > 0


def check_mask(mask: Any, sizes: Sizes, ends: bool) -> None:
    """Demand a shape that a mask may have."""
    ranked("mask", mask, 1, 2, 3)
    if mask is None:
        return
    n, s, total = sizes.batch, sizes.queries, sizes.total
    if len(mask) > 1:
        for d, wanted in zip(mask, (n, total) if len(mask) == 2 else (n, s, total), strict=True):
            same(d, wanted, "mask")
    elif not ends or _by_ends(mask[0], n) is None and isinstance(mask[0], int):
        same(mask[0], n, "mask by lengths")


def _by_ends(size: Any, batch: Any) -> bool | None:
    """Whether a mask of one axis has one element for each of the batch, or two; None: not known."""
    if equal(size, batch):
        return True
    return False if equal(size, 2 * batch) else None


def joined(past: Any, new: Any) -> Any:
    return new if past is None else namespace(past, new).concatenate([past, new], 2)


# MultiHeadAttention -------------------------------------------------------------------------------


def _mha_sizes(shapes: Any, old: Any, heads: int) -> Sizes:
    """The sizes on which query, key and value agree, and keys and values of the past (or None)."""
    (q, k, v), (past_key, past_value) = shapes, old
    ranked("query", q, 3)
    ranked("key", k, 3, 4)
    ranked("value", v, len(k))
    n, s, hidden = q
    head = _heads_of(hidden, heads, "query")
    n = same(same(n, k[0], "batch of key"), v[0], "batch of value")
    if len(k) == 4:
        same(k[1], heads, "heads of key")
        same(v[1], heads, "heads of value")
        head, v_head = same(head, k[3], "head size of key"), v[3]
    else:
        same(hidden, k[2], "hidden size of key")
        v_head = _heads_of(v[2], heads, "value")
    keys, past = same(k[-2], v[-2], "length of value"), 0
    if past_key is not None:
        ranked("past_key", past_key, 4)
        ranked("past_value", past_value, 4)
        for x, size, name in ((past_key, head, "past_key"), (past_value, v_head, "past_value")):
            for d, wanted in zip((*x[:2], x[3]), (n, heads, size), strict=True):
                same(d, wanted, name)
        past = same(past_key[2], past_value[2], "length of the past")
    return Sizes(n, heads, s, keys, past, head, v_head)


def _mha_given(key: Any, value: Any, past_key: Any, past_value: Any, beams: Any) -> tuple[Any, Any]:
    """Key and value, which are there."""
    if key is None or value is None:
        raise UnsupportedError("a packed query is not handled: give query, key and value")
    if (past_key is None) != (past_value is None):
        raise ShapeError("past_key and past_value are both given or neither")
    if beams is not None:
        raise ShapeError("cache_indirection wants past_sequence_length")
    return key, value


@op("MultiHeadAttention", DOMAIN, host=True)
def multi_head_attention(
    query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None,
    past_key=None, past_value=None, past_sequence_length: Static = None, cache_indirection=None, /,
    *, mask_filter_value=_FORBIDDEN, num_heads, scale=None, unidirectional=0,
):  # fmt: skip
    """Mix value (N, L, H*F) by softmax of query (N, S, H*E) by key (N, L, H*E) -> (N, S, H*F).

    Then keys and values with the past (N, H, T, E), and the scores (N, H, S, T). With
    past_sequence_length the past is a buffer, into which one token is written.
    """
    if past_sequence_length is not None:
        return decoder_masked_attention.function(
            query, key, value, key_padding_mask, attention_bias, past_key, past_value,
            past_sequence_length, None, cache_indirection, bias, num_heads=num_heads, scale=scale,
            mask_filter_value=mask_filter_value, past_present_share_buffer=1,
        )  # fmt: skip
    key, value = _mha_given(key, value, past_key, past_value, cache_indirection)
    shapes = [hostdims(x.shape) for x in (query, key, value)]
    old = [None if x is None else hostdims(x.shape) for x in (past_key, past_value)]
    sizes = _mha_sizes(shapes, old, num_heads)
    if key_padding_mask is not None:
        check_mask(hostdims(key_padding_mask.shape), sizes, False)
    parts, three = [query, key, value], key.ndim == 3
    if bias is not None:
        parts = with_bias(parts if three else parts[:1], bias, sizes) + parts[3 if three else 1 :]
    lengths = (sizes.queries, sizes.keys, sizes.keys)
    heads = (sizes.head, sizes.head, sizes.v_head)
    q, k, v = (split_heads(*p) for p in zip(parts, [sizes] * 3, lengths, heads, strict=True))
    k, v = joined(past_key, k), joined(past_value, v)
    y, scores = attended(
        q, k, v, sizes, key_padding_mask, attention_bias, unidirectional, scale, mask_filter_value
    )
    return y, k, v, scores


def with_bias(parts: Any, bias: Any, sizes: Sizes) -> Any:
    """Query, key and value with the part of bias (H*E + H*E + H*F,) that is for each."""
    d, f = sizes.heads * sizes.head, sizes.heads * sizes.v_head
    bias = shaped("bias", bias, (d + d + f,))
    starts = [to_export(i) for i in (0, d, d + d, d + d + f)]
    return [x + bias[starts[i] : starts[i + 1]] for i, x in enumerate(parts)]


@multi_head_attention.shape_rule  # because JAX can neither part a hidden size nor compare masks
def _(
    query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None,
    past_key=None, past_value=None, past_sequence_length=None, cache_indirection=None, /, *,
    num_heads, **_,
):  # fmt: skip
    if past_sequence_length is not None:
        return decoder_masked_attention.rule(  # type: ignore[misc]
            query, key, value, key_padding_mask, attention_bias, past_key, past_value,
            past_sequence_length, num_heads=num_heads, past_present_share_buffer=1,
        )  # fmt: skip
    key, value = _mha_given(key, value, past_key, past_value, cache_indirection)
    old = [None if x is None else x.shape for x in (past_key, past_value)]
    sizes = _mha_sizes([x.shape for x in (query, key, value)], old, num_heads)
    if bias is not None:
        d, f = sizes.heads * sizes.head, sizes.heads * sizes.v_head
        same(hostdims(bias.shape)[0], d + d + f, "bias")
    if key_padding_mask is not None:
        check_mask(key_padding_mask.shape, sizes, False)
    return tuple(TensorType(query.dtype, shape) for shape in sizes.types)


# Attention ----------------------------------------------------------------------------------------


def attention_sizes(x: Any, weights: Any, past: Any, heads: int, hidden: Any) -> Sizes:
    ranked("input", x, 3)
    ranked("weights", weights, 2)
    ranked("past", past, 5)
    n, s, inner = x
    same(inner, weights[0], "input and weights")
    if hidden is None:
        divisible(weights[1], 3, "columns of weights for query, key and value")
        hidden = (weights[1] // 3,) * 3
    if len(hidden) != 3 or hidden[0] != hidden[1]:
        raise ShapeError(f"qkv_hidden_sizes is {list(hidden)}, wants three, of which two are equal")
    same(weights[1], sum(hidden[1:], hidden[0]), "columns of weights and qkv_hidden_sizes")
    head, _, v_head = (_heads_of(d, heads, "hidden size") for d in hidden)
    before = 0
    if past is not None:
        same(head, v_head, "head sizes where there is a past")
        for d, wanted in zip((*past[:3], past[4]), (2, n, heads, head), strict=True):
            same(d, wanted, "past")
        before = past[3]
    return Sizes(n, heads, s, s, before, head, v_head)


def attention_check(past_sequence_length: Any, do_rotary: Any, shared: Any) -> None:
    if past_sequence_length is not None or do_rotary or shared:
        raise UnsupportedError(
            "past_sequence_length, do_rotary and past_present_share_buffer are not handled"
        )


@op("Attention", DOMAIN, host=True)
def attention(
    input, weights, bias=None, mask_index=None, past=None, attention_bias=None,
    past_sequence_length=None, /, *, do_rotary=None, mask_filter_value=_FORBIDDEN, num_heads,
    past_present_share_buffer=None, qkv_hidden_sizes=None, rotary_embedding_dim=None, scale=None,
    unidirectional=0,
):  # fmt: skip
    """Attend input (N, S, D) to itself after one product with weights (D, 3*H*E) -> (N, S, H*E),
    keys and values with the past (2, N, H, T, E)."""
    attention_check(past_sequence_length, do_rotary, past_present_share_buffer)
    shapes = hostdims(input.shape), hostdims(weights.shape)
    old = None if past is None else hostdims(past.shape)
    sizes = attention_sizes(*shapes, old, num_heads, qkv_hidden_sizes)
    if mask_index is not None:
        check_mask(hostdims(mask_index.shape), sizes, True)
    d, f = sizes.heads * sizes.head, sizes.heads * sizes.v_head
    inner = same(shapes[0][2], shapes[1][0], "input and weights")
    x = fit(input, (sizes.batch, sizes.queries, inner))
    y = matmul(x, fit(weights, (inner, d + d + f)))
    y = y if bias is None else y + shaped("bias", bias, (d + d + f,)).astype(y.dtype)
    y = y.astype(input.dtype)
    return projected(
        y, sizes, mask_index, past, attention_bias, unidirectional, scale, mask_filter_value
    )


def projected(
    y: Any, sizes: Sizes, mask: Any, past: Any, bias: Any, unidirectional: int, scale: Any,
    filled: float,
) -> tuple[Any, Any]:  # fmt: skip
    """What queries, keys and values y (N, S, H*E + H*E + H*F) attend, and the cache."""
    xp = namespace(y, past)
    d, f = sizes.heads * sizes.head, sizes.heads * sizes.v_head
    starts = [to_export(i) for i in (0, d, d + d, d + d + f)]
    parts = [y[..., starts[i] : starts[i + 1]] for i in range(3)]
    heads = (sizes.head, sizes.head, sizes.v_head)
    q, k, v = (split_heads(p, sizes, sizes.queries, e) for p, e in zip(parts, heads, strict=True))
    if past is not None:
        k, v = joined(past[0], k), joined(past[1], v)
    y, _ = attended(q, k, v, sizes, mask, bias, unidirectional, scale, filled)
    return y, xp.stack([k, v]) if sizes.head is sizes.v_head or sizes.head == sizes.v_head else None


@attention.shape_rule  # because JAX can neither part a hidden size nor compare masks
def _(
    input, weights, bias=None, mask_index=None, past=None, attention_bias=None,
    past_sequence_length=None, /, *, do_rotary=None, num_heads, past_present_share_buffer=None,
    qkv_hidden_sizes=None, **_,
):  # fmt: skip
    attention_check(past_sequence_length, do_rotary, past_present_share_buffer)
    old = None if past is None else past.shape
    sizes = attention_sizes(input.shape, weights.shape, old, num_heads, qkv_hidden_sizes)
    if bias is not None:
        ranked("bias", bias.shape, 1)
        same(hostdims(bias.shape)[0], hostdims(weights.shape)[1], "bias and columns of weights")
    if mask_index is not None:
        check_mask(mask_index.shape, sizes, True)
    y, k, *_ = sizes.types
    return TensorType(input.dtype, y), TensorType(input.dtype, (2, *k))


# RotaryEmbedding ----------------------------------------------------------------------------------


def _rotary_heads(x: Any, cos: Any, num_heads: int | None, dim: int | None) -> Any:
    """The number of heads of x with three axes; the caches tell it where the attribute does not."""
    ranked("input", x, 3, 4)
    if len(x) == 4 or num_heads or dim:
        return num_heads or None
    divisible(x[2], 2 * cos[1], "hidden size in heads of twice the caches' width")
    return x[2] // (2 * cos[1])


@op("RotaryEmbedding", DOMAIN, host=True)
def rotary_embedding(
    input, position_ids, cos_cache, sin_cache, /, *, interleaved=None, is_packed_batching=None,
    num_heads=None, rotary_embedding_dim=None, scale=None,
):  # fmt: skip
    """Turn pairs of input (N, H, S, E) or (N, S, H*E) by the angles of their positions -> as input.

    position_ids are (N, S), or (1,), the first position of all; that rows are ragged
    (is_packed_batching) they tell alone.
    """
    shape = hostdims(input.shape)
    heads = _rotary_heads(shape, hostdims(cos_cache.shape), num_heads, rotary_embedding_dim)
    if position_ids.ndim == 1:
        xp, s = namespace(input, position_ids), to_export(shape[-2])
        first = shaped("position_ids", position_ids, (1,))
        ids = xp.arange(s).astype(first.dtype) + first
        position_ids = xp.broadcast_to(ids, (input.shape[0], s))
    return rotary.function(
        input, cos_cache, sin_cache, position_ids, interleaved=interleaved or 0, num_heads=heads,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )  # fmt: skip


@rotary_embedding.shape_rule  # because JAX can neither part a hidden size nor halve a head
def _(
    input, position_ids, cos_cache, sin_cache, /, *, num_heads=None, rotary_embedding_dim=None, **_
):  # fmt: skip
    shape = input.shape
    heads = _rotary_heads(shape, cos_cache.shape, num_heads, rotary_embedding_dim)
    ranked("position_ids", position_ids.shape, 1, 2)
    n, s = shape[0], shape[-2]
    if len(position_ids.shape) == 1:
        same(position_ids.shape[0], 1, "position_ids of one axis")
        position_ids = TensorType(position_ids.dtype, (n, s))
    return rotary.rule(  # type: ignore[misc]
        input, cos_cache, sin_cache, position_ids, num_heads=heads,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )  # fmt: skip
