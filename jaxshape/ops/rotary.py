"""What stands beside attention: rotary positions, a cache written to, the gated activation."""

from __future__ import annotations

import numpy as np

from .._error import ShapeError
from .._facts import divisible, least, same
from .._host import is_host, namespace
from .._op import op
from .._symbol import hostdims, to_export
from ._agree import ranked, reshape, shaped, wide, written
from ._axes import axis_in


def _rotary_sizes(shapes, num_heads, rotary_embedding_dim):
    """x's shape as (N, S, H, E), and half the number of elements that turn."""
    x, cos, sin, ids = shapes
    ranked("X", x, 3, 4)
    if len(x) == 3:
        if not num_heads or num_heads < 1:
            raise ShapeError(f"X {written(x)} of rank 3 wants num_heads, at least 1")
        n, s, hidden = x
        divisible(hidden, num_heads, f"X {written(x)} in {num_heads} heads")
        heads, size = num_heads, hidden // num_heads
    else:
        n, heads, s, size = x
    if rotary_embedding_dim < 0:
        raise ShapeError(f"rotary_embedding_dim is {rotary_embedding_dim}, wants at least 0")
    turning = rotary_embedding_dim or size
    least(size, turning, "rotary_embedding_dim against the head size")
    divisible(turning, 2, f"{turning} elements turn in pairs")
    half = turning // 2
    for name, cache in (("cos_cache", cos), ("sin_cache", sin)):
        ranked(name, cache, 3 if ids is None else 2)
        if cache is None:
            continue
        same(
            cache[-1],
            half,
            f"{name} {written(cache)} holds half of the {turning} elements that turn",
        )
        if ids is None:
            same(cache[0], n, f"batch of {name}")
            same(cache[1], s, f"length of {name}")
    if cos is not None and sin is not None:
        same(cos[0], sin[0], "positions of cos_cache and sin_cache")
    if ids:
        ranked("position_ids", ids, 2)
        same(ids[0], n, "batch of position_ids")
        same(ids[1], s, "length of position_ids")
    return (n, s, heads, size), half


@op("RotaryEmbedding", since=23, host=True)
def rotary(
    x,
    cos_cache,
    sin_cache,
    position_ids=None,
    /,
    *,
    interleaved=0,
    num_heads=None,
    rotary_embedding_dim=0,
):
    """Turn pairs of x (N, H, S, E) or (N, S, H*E) by the angles of their positions -> as x."""
    inputs = (x, cos_cache, sin_cache, position_ids)
    shapes = [None if v is None else hostdims(v.shape) for v in inputs]
    (n, s, heads, size), half = _rotary_sizes(shapes, num_heads, rotary_embedding_dim)
    xp, dtype, half = namespace(*inputs), wide(x.dtype), to_export(half)
    cos, sin = (
        xp.expand_dims(_at(xp, cache, position_ids).astype(dtype), 2)
        for cache in (cos_cache, sin_cache)
    )
    data = xp.swapaxes(x, 1, 2) if x.ndim == 4 else reshape(x, (n, s, heads, size))
    data, rest = data[..., : 2 * half].astype(dtype), data[..., 2 * half :]
    if interleaved:
        pairs = data.reshape((*data.shape[:3], half, 2))
        a, b = pairs[..., 0], pairs[..., 1]
    else:
        a, b = data[..., :half], data[..., half:]
    a, b = cos * a - sin * b, sin * a + cos * b
    turned = xp.stack([a, b], -1).reshape(data.shape) if interleaved else xp.concatenate([a, b], -1)
    y = xp.concatenate([turned.astype(x.dtype), rest], axis=-1)
    return xp.swapaxes(y, 1, 2) if x.ndim == 4 else reshape(y, hostdims(x.shape))


def _at(xp, cache, ids):
    """The rows of a cache (P, F) at ids (N, S); NaN where there is none: nothing is clamped."""
    if ids is None:
        return cache
    if is_host(ids) and ids.size and not -1 < ids.min() <= ids.max() < cache.shape[0]:
        raise ShapeError(
            f"position_ids go from {ids.min()} to {ids.max()}, of {cache.shape[0]} positions"
        )
    return cache[ids] if xp is np else cache.at[ids].get(mode="fill", fill_value=np.nan)


@rotary.shape_rule  # because JAX can neither part a hidden size into heads nor halve a head
def _(
    x, cos_cache, sin_cache, position_ids=None, /, *, num_heads=None, rotary_embedding_dim=0, **_
):
    shapes = [None if t is None else t.shape for t in (x, cos_cache, sin_cache, position_ids)]
    _rotary_sizes(shapes, num_heads, rotary_embedding_dim)
    return x


@op("TensorScatter", since=24, host=True)
def tensor_scatter(past_cache, update, write_indices=None, /, *, axis=-2, mode="linear"):
    """Write update (N, *, L, *) into past_cache (N, *, M, *) from write_indices (N,) on."""
    if mode not in ("linear", "circular"):
        raise ShapeError(f"mode is {mode!r}, wants linear or circular")
    dims, new = hostdims(past_cache.shape), hostdims(update.shape)
    ranked("past_cache", dims, least=2)
    axis = axis_in(axis, len(dims))
    if not axis:
        raise ShapeError("axis is that of the batch, 0: wants another")
    ranked("update", new, len(dims))
    longest, length = dims[axis], new[axis]
    least(longest, length, f"update {written(new)} in past_cache {written(dims)} on axis {axis}")
    update = shaped("update", update, (*dims[:axis], length, *dims[axis + 1 :]))
    xp = namespace(past_cache, update, write_indices)
    places = xp.arange(to_export(longest))
    if write_indices is None:
        source = places[None]
    else:
        start = shaped("write_indices", write_indices, dims[:1]).astype(places.dtype)
        if mode == "linear" and isinstance(length, int) and is_host(start) and start.size:
            if start.min() < 0 or start.max() + length > longest:
                raise ShapeError(
                    f"write_indices go from {start.min()} to {start.max()}, "
                    f"from where {length} do not fit in {longest}"
                )
        source = places - start[:, None]  # (N, M): which element of the update comes to each place
        source = (
            source % xp.asarray(to_export(longest)).astype(places.dtype)
            if mode == "circular"
            else source
        )
    size = xp.asarray(to_export(length)).astype(places.dtype)
    written_here = (source >= 0) & (source < size)
    if length == 0:
        return past_cache
    shape = [1] * len(dims)
    shape[0], shape[axis] = source.shape
    index = xp.clip(source, 0, size - 1).reshape(shape)
    taken = xp.take_along_axis(update, index, axis)
    return xp.where(written_here.reshape(shape), taken, past_cache)


@op("SwiGLU", since=28, host=True)
def swiglu(a, b, /, *, alpha=1.0):
    """Multiply b by a * sigmoid(alpha * a), all of one shape -> as a."""
    gate = a.astype(wide(a.dtype))
    b = shaped("B", b, hostdims(a.shape))
    gate = gate * (0.5 * namespace(a).tanh(0.5 * alpha * gate) + 0.5)
    return (gate * b.astype(gate.dtype)).astype(a.dtype)
