"""Hashes of numbers, text and n-grams of tokens (com.microsoft).

Text is hashed in NumPy. An n-gram's hash looks back at the tokens before, of earlier calls too, and
at others in their place where a sequence began between.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._error import ShapeError
from .._facts import same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import agree, ranked, shaped
from .microsoft import DOMAIN
from .microsoft_state import packed
from .text import words


def _rotated(x: Any, n: int) -> Any:
    return (x << np.uint32(n)) | (x >> np.uint32(32 - n))


def _stirred(k: Any) -> Any:
    return _rotated(k * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _murmur(blocks: list[Any], tail: Any, size: int, h: Any) -> Any:
    """MurmurHash3_x86_32 of `size` bytes: blocks of four, and what is left of the last."""
    for k in blocks:
        h = _rotated(h ^ _stirred(k), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h = h if tail is None else h ^ _stirred(tail)
    h = h ^ np.uint32(size)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    return h ^ (h >> np.uint32(16))


def _of_text(text: str, seed: np.ndarray) -> np.ndarray:
    data = text.encode()
    whole = len(data) // 4
    blocks = list(np.frombuffer(data[: 4 * whole], "<u4").reshape(-1, 1))
    rest = data[4 * whole :]
    tail = np.frombuffer(rest.ljust(4, b"\0"), "<u4") if rest else None
    return _murmur(blocks, tail, len(data), seed)


@op("MurmurHash3", DOMAIN, host=True)
def murmur_hash(X, /, *, positive=1, seed=0):
    """Hash each element of X (*D) by MurmurHash3_x86_32 -> (*D) of uint32, or of int32.

    Under jit 64-bit numbers want jax.enable_x64, for what is hashed is their bytes.
    """
    dtype = np.dtype(np.uint32 if positive else np.int32)
    start = np.array([seed & 0xFFFFFFFF], np.uint32)
    if X.dtype == object:
        hashes = [_of_text(text, start)[0] for text in words(X)]
        return np.array(hashes, np.uint32).reshape(X.shape).view(dtype)
    size = X.dtype.itemsize
    if namespace(X) is np:
        parts = np.ascontiguousarray(X).reshape((*X.shape, 1)).view(np.uint32)
        parts = np.moveaxis(parts, -1, 0)
    elif size == 4:
        parts = lax.bitcast_convert_type(X, np.uint32)[None]
    else:
        parts = jnp.moveaxis(lax.bitcast_convert_type(X, np.uint32), -1, 0)
    with np.errstate(over="ignore"):
        y = _murmur(list(parts), None, size, start.reshape((1,) * X.ndim or ())[()])
    return y.view(dtype) if namespace(y) is np else lax.bitcast_convert_type(y, dtype)


@murmur_hash.shape_rule  # because JAX holds no text
def _(X, /, *, positive=1, seed=0):
    return TensorType("uint32" if positive else "int32", X.shape)


def _ngram_check(size: int, heads: int) -> int:
    if size < 2 or heads < 1:
        raise ShapeError(f"max_ngram_size is {size}, n_head_per_ngram {heads}: wants 2 and 1")
    return size - 1


def _hashed(shifted: list[Any], multipliers: Any, sizes: Any, offsets: Any, heads: int) -> Any:
    """The hashes (*N, heads of all orders) of tokens (*N,) and those before them."""
    mix, found = shifted[0] * multipliers[0], []
    for n, x in enumerate(shifted[1:]):
        mix = mix ^ (x * multipliers[n + 1])
        found.append(mix[..., None] % sizes[n * heads : (n + 1) * heads])
    y = jnp.concatenate(found, axis=-1)
    return y if offsets is None else y + offsets


def _shifted(read: Any, segment: Any, past: int, eos: Any, fill: Any, reset: int) -> list[Any]:
    """Tokens, and those that stand 1, 2, ... before them; others where a sequence began between."""
    found, gone = [read(0)], None
    for j in range(1, past + 1):
        token, new = read(j), None
        if eos is not None and reset:
            new = token == eos
        if segment is not None:
            parted = segment(j) != segment(j - 1)
            new = parted if new is None else new | parted
        if new is not None:
            gone = new if gone is None else gone | new
        found.append(token if gone is None else jnp.where(gone, fill, token))
    return found


def _ngram_types(sizes: Any, heads: int, past: int) -> None:
    ranked("vocab_sizes", sizes, 1)
    same(sizes[0], past * heads, "vocab_sizes of all heads")


@op("NGramHashMapping", DOMAIN)
def ngram_hash_mapping(
    input_ids, multipliers, vocab_sizes, past_ids=None, head_offsets=None, eos_token_id=None,
    segment_ids=None, /, *, max_ngram_size, n_head_per_ngram, pad_id, reset_on_eos=0,
):  # fmt: skip
    """Hash the n-grams that end at each of input_ids (N, S), of sizes 2 and up -> (N, S, heads),
    the last ids (N, max_ngram_size - 1)."""
    past = _ngram_check(max_ngram_size, n_head_per_ngram)
    ranked("input_ids", hostdims(input_ids.shape), 2)
    n, length = input_ids.shape
    eos = None if eos_token_id is None else eos_token_id.reshape(())
    fill = jnp.asarray(pad_id, input_ids.dtype) if eos is None else eos
    if past_ids is None:
        past_ids = jnp.full((n, past), fill)
    whole = jnp.concatenate([shaped("past_ids", past_ids, (n, past)), input_ids], 1)
    segment: Any = None
    if segment_ids is not None:
        own = shaped("segment_ids", segment_ids, (n, length))
        own = jnp.concatenate([jnp.repeat(own[:, :1], past, axis=1), own], 1)

        segment = lambda j: own[:, past - j : past - j + length]  # noqa: E731
    shifted = _shifted(
        lambda j: whole[:, past - j : past - j + length], segment, past, eos, fill, reset_on_eos
    )
    y = _hashed(shifted, multipliers, vocab_sizes, head_offsets, n_head_per_ngram)
    return y, whole[:, length:]


@ngram_hash_mapping.shape_rule  # because JAX cannot cut a sequence of symbolic size
def _(
    input_ids, multipliers, vocab_sizes, past_ids=None, head_offsets=None, eos_token_id=None,
    segment_ids=None, /, *, max_ngram_size, n_head_per_ngram, pad_id, reset_on_eos=0,
):  # fmt: skip
    past = _ngram_check(max_ngram_size, n_head_per_ngram)
    ranked("input_ids", input_ids.shape, 2)
    ranked("past_ids", None if past_ids is None else past_ids.shape, 2)
    _ngram_types(vocab_sizes.shape, n_head_per_ngram, past)
    n = agree("batch", input_ids.shape[0], past_ids and past_ids.shape[0])
    hashes = (n, input_ids.shape[1], past * n_head_per_ngram)
    return TensorType(input_ids.dtype, hashes), TensorType(input_ids.dtype, (n, past))


@op("VarlenNGramHashMapping", DOMAIN)
def varlen_ngram_hash_mapping(
    input_ids, multipliers, vocab_sizes, cumulative_sequence_length, past_ids=None,
    head_offsets=None, eos_token_id=None, segment_ids=None, past_segment_ids=None,
    capture_count=None, /, *, max_ngram_size, n_head_per_ngram, pad_id, reset_on_eos=0,
    state_update_capacity=0,
):  # fmt: skip
    """NGramHashMapping of requests one after the other (T,) -> (T, heads), the last ids and
    segments of each (N, max_ngram_size - 1), and ids as they were after its first tokens."""
    past, ends = (
        _ngram_check(max_ngram_size, n_head_per_ngram),
        cumulative_sequence_length,
    )
    starts, request, place = packed(ends, input_ids.shape[0])
    lengths, n = ends[1:] - starts, ends.shape[0] - 1
    eos = None if eos_token_id is None else eos_token_id.reshape(())
    fill = jnp.asarray(pad_id, input_ids.dtype) if eos is None else eos
    old = jnp.full((n, past), fill) if past_ids is None else shaped("past_ids", past_ids, (n, past))

    def at(values: Any, before: Any, request: Any, place: Any) -> Any:
        """What stands at a place of a request, before its start too."""
        new = jnp.take(values, jnp.take(starts, request) + jnp.maximum(place, 0), mode="clip")
        return jnp.where(place < 0, before[request, jnp.clip(place + past, 0, past - 1)], new)

    segment: Any = None
    begun: Any = None
    if segment_ids is not None:
        # without those of the past a request begins in one segment
        first = jnp.take(segment_ids, starts, mode="clip")[:, None]
        begun = jnp.repeat(first, past, 1) if past_segment_ids is None else past_segment_ids

        segment = lambda j: at(segment_ids, begun, request, place - j)  # noqa: E731
    shifted = _shifted(
        lambda j: at(input_ids, old, request, place - j), segment, past, eos, fill, reset_on_eos
    )
    y = _hashed(shifted, multipliers, vocab_sizes, head_offsets, n_head_per_ngram)
    each, slots = jnp.arange(n)[:, None], jnp.arange(past, dtype=lengths.dtype)
    last = lengths[:, None] - past + slots
    present = at(input_ids, old, each, last)
    parts = None if segment_ids is None else at(segment_ids, begun, each, last)
    if capture_count is None:
        return y, present, parts, None
    steps = jnp.arange(state_update_capacity, dtype=lengths.dtype)
    states = at(input_ids, old, each[:, :, None], (steps + 1)[:, None] - past + slots)
    kept = (steps < jnp.minimum(capture_count, lengths)[:, None])[:, :, None]
    return y, present, parts, jnp.where(kept, states, jnp.asarray(pad_id, states.dtype))


@varlen_ngram_hash_mapping.shape_rule  # because JAX cannot count requests from their ends
def _(
    input_ids, multipliers, vocab_sizes, cumulative_sequence_length, past_ids=None,
    head_offsets=None, eos_token_id=None, segment_ids=None, past_segment_ids=None,
    capture_count=None, /, *, max_ngram_size, n_head_per_ngram, pad_id, reset_on_eos=0,
    state_update_capacity=0,
):  # fmt: skip
    past = _ngram_check(max_ngram_size, n_head_per_ngram)
    ranked("input_ids", input_ids.shape, 1)
    ranked("cumulative_sequence_length", cumulative_sequence_length.shape, 1)
    ranked("past_ids", None if past_ids is None else past_ids.shape, 2)
    _ngram_types(vocab_sizes.shape, n_head_per_ngram, past)
    n = cumulative_sequence_length.shape[0] - 1
    n = agree("number of requests", n, past_ids and past_ids.shape[0])
    return (
        TensorType(input_ids.dtype, (input_ids.shape[0], past * n_head_per_ngram)),
        TensorType(input_ids.dtype, (n, past)),
        TensorType("int32", (n, past)),
        TensorType(input_ids.dtype, (n, state_update_capacity, past)),
    )
