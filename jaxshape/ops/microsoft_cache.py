"""Caches of keys and values that decoders write to (com.microsoft).

A cache (N, H, C, E) holds in row i what stands at place i of the sequence, zeros behind the last
token. In a window of C rows only the latest places are kept, in order from row 0 on; which ones
depends on how many tokens there were, and on nothing else. A cache may hold numbers of 8 or 4 bits,
two of the latter in a byte, the first in its low half.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._error import ShapeError
from .._facts import divisible
from .._symbol import hostdims, to_export
from ._agree import onto, wide


class Step(NamedTuple):
    """Where one step of the batch stands."""

    total: Any  # (N,): tokens after it
    before: Any  # (N,): tokens before it
    valid: Any  # (N,): new tokens that are no padding
    first: Any  # (): whether nothing was before it


def appended(past: Any, new: Any, step: Step, length: Any) -> Any:
    """The cache (N, H, C, E) with new rows (N, H, L, E), if any, behind the old ones."""
    places = jnp.arange(to_export(length), dtype=np.int32)
    if past is not None:
        past = jnp.pad(past, [(0, 0), (0, 0), (0, to_export(length) - past.shape[2]), (0, 0)])
    nothing = jnp.zeros((), new.dtype)
    if past is not None and hostdims(new.shape)[2] == 0:
        return jnp.where((places < step.total[:, None])[:, None, :, None], past, nothing)
    source = places - step.before[:, None]  # (N, C): which new row comes to each place
    index = jnp.clip(source, 0, new.shape[2] - 1)[:, None, :, None]
    fresh = (source >= 0) & (source < step.valid[:, None])
    made = jnp.where(fresh[:, None, :, None], jnp.take_along_axis(new, index, 2), nothing)
    return made if past is None else jnp.where((source < 0)[:, None, :, None], past, made)


def placed(total: Any, length: Any) -> Any:
    """At which places of the sequence the rows of a cache are (N, C); -1 where there is none."""
    at = jnp.arange(to_export(length), dtype=np.int32)[None]
    return jnp.where(at < total[:, None], at, -1)


# windows ------------------------------------------------------------------------------------------


def _resident(total: Any, capacity: Any, window: int) -> Any:
    """Of how many of the tokens a window still holds the keys, (N,).

    Room is made for several at once: capacity - window + 1.
    """
    capacity = jnp.asarray(to_export(capacity)).astype(np.int32)
    step = capacity - np.int32(window - 1)
    left_out = jnp.maximum(total - capacity, 0)
    return total - step * ((left_out + step - 1) // step)


def staged(step: Step, length: Any, capacity: Any, window: int) -> Any:
    """The places of a window's old rows and of the new ones, (N, C + L); -1 where there is none."""
    held = _resident(step.before, capacity, window)[:, None]
    old = jnp.arange(to_export(capacity), dtype=np.int32)[None]
    old = jnp.where(old < held, old + step.before[:, None] - held, -1)
    new = jnp.arange(to_export(length), dtype=np.int32)[None]
    new = jnp.where(new < step.valid[:, None], new + step.before[:, None], -1)
    return jnp.concatenate([old, new], 1)


def kept(rows: Any, step: Step, capacity: Any, window: int) -> Any:
    """The window after a step, of its old rows with the new ones (N, H, C + L, E) behind."""
    size = to_export(capacity)
    held = _resident(step.total, capacity, window)[:, None]
    row = jnp.arange(size, dtype=np.int32)[None]
    place = row + step.total[:, None] - held
    first = (step.before - _resident(step.before, capacity, window))[:, None]
    behind = jnp.asarray(size).astype(np.int32) - step.before[:, None]
    index = jnp.where(place < step.before[:, None], place - first, place + behind)
    index = jnp.clip(index, 0, rows.shape[2] - 1)[:, None, :, None]
    taken = jnp.take_along_axis(rows, index, 2)
    return jnp.where((row < held)[:, None, :, None], taken, jnp.zeros((), rows.dtype))


# numbers of few bits ------------------------------------------------------------------------------


def width(kinds: tuple[str, str], bits: int | None) -> int:
    """The bits of a number in the cache; 0 where it is no quantized one."""
    for kind in kinds:
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
            raise ShapeError(f"quantization is {kind!r}, wants NONE, PER_TENSOR or PER_CHANNEL")
    if (kinds[0] == "NONE") != (kinds[1] == "NONE"):
        raise ShapeError(f"k_quant_type is {kinds[0]}, v_quant_type {kinds[1]}: both or neither")
    if kinds[0] == "NONE":
        return 0
    if bits not in (4, 8):
        raise ShapeError(f"kv_cache_bit_width is {bits}, wants 4 or 8")
    return bits


def stored_size(head: Any, bits: int) -> Any:
    """How many elements a head takes in the cache."""
    if bits != 4:
        return head
    divisible(head, 2, "two numbers of 4 bits in a byte")
    return head // 2


def _scale(scale: Any, x: Any) -> Any:
    if scale is None:
        raise ShapeError("a quantized cache wants k_scale and v_scale")
    dims = (*hostdims(x.shape)[:2], 1, hostdims(x.shape)[3])
    return onto("scale of the cache", scale, dims)


def coded(x: Any, scale: Any, bits: int) -> Any:
    """x (N, H, L, E) as numbers of that many bits; as it is for 0."""
    if not bits:
        return x
    x = x.astype(np.float32)
    most = 1 << (bits - 1)
    q = jnp.clip(jnp.round(x / _scale(scale, x)), -most, most - 1).astype(np.int8)
    if bits == 8:
        return q
    codes = (q + np.int8(most)).astype(np.uint8)
    return codes[..., ::2] | (codes[..., 1::2] << np.uint8(4))


def decoded(x: Any, scale: Any, bits: int, dtype: Any) -> Any:
    """The floats that rows of a cache (N, H, C, E) stand for."""
    if not bits:
        return x
    if bits == 4:
        pair = jnp.stack([x & np.uint8(15), x >> np.uint8(4)], -1).astype(np.int8) - np.int8(8)
        x = pair.reshape((*x.shape[:3], 2 * x.shape[3]))
    return (x.astype(np.float32) * _scale(scale, x)).astype(wide(dtype))
