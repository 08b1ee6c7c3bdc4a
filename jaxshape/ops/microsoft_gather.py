"""Tensors taken apart and looked up in (com.microsoft): rows of quantized tables, windows, crops.

Several are older forms of what the standard has, and are its functions.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._dim import ceildiv
from .._error import ShapeError
from .._facts import broadcast, count, least, same
from .._host import namespace
from .._op import Static, op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import ranked, shaped, wide
from ._numeric import is_float
from ._static import axis_of, replaced
from .create import count_up, range_11
from .image import grid_sample_16
from .index import gather_nd_11
from .microsoft import DOMAIN
from .pad import pad_18
from .select import unique

# as the standard has them -------------------------------------------------------------------------

op("GatherND", DOMAIN, host=True)(gather_nd_11.function).shape_rule(gather_nd_11.rule)


@op("GridSample", DOMAIN, host=True)
def grid_sample(X, Grid, /, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    """Sample X (N, C, H, W) at Grid (N, *O, 2) of x and y in -1..1 -> (N, C, *O)."""
    if mode == "bicubic" and padding_mode == "border" and Grid.ndim == X.ndim == 4:
        X, Grid = _bordered(X, Grid, align_corners)
        align_corners, padding_mode = 1, "zeros"
    return grid_sample_16.function(
        X, Grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode
    )


def _bordered(x: Any, grid: Any, align_corners: int) -> tuple[Any, Any]:
    """An image with a border of repeated pixels, and the places in it, its corners' centres at -1
    and 1.

    The standard's `border` moves a place that lies outside, here its pixels are moved.
    """
    xp, more = namespace(x, grid), 4  # pixels on each side, of which a cubic reads two
    places = []
    for i in (0, 1):
        n = xp.asarray(x.shape[3 - i]).astype(grid.dtype)
        place = grid[..., i] + 1
        place = place / 2 * (n - 1) if align_corners else (place * n - 1) / 2
        place = xp.clip(place, -2, n + 1) + more
        places.append(place / (n - 1 + 2 * more) * 2 - 1)
    image = xp.pad(x, [(0, 0), (0, 0), (more, more), (more, more)], mode="edge")
    return image, xp.stack(places, axis=-1)


grid_sample.shape_rule(grid_sample_16.rule)  # for the reasons of the standard's


@op("Pad", DOMAIN, host=True)
def pad(data, pads: Static, value=None, /, *, mode="constant"):
    """Pad data (*D) by pads (2r,) or (1, 2r), all fronts and then all backs; negative ones cut."""
    value = None if value is None else value.reshape(())
    return pad_18.function(data, pads.reshape(-1), value, mode=mode)


@pad.shape_rule(rankless=True)  # for the reason of the standard's
def _(data, pads, value=None, /, *, mode="constant"):
    if not isinstance(pads, TensorType):
        pads = pads.reshape(-1)
    elif pads.shape is not None:
        pads = TensorType(pads.dtype, pads.shape[-1:])
    return pad_18.rule(data, pads, None, mode=mode)  # type: ignore[misc]


def _by_one(start: Any) -> Any:
    return np.ones((), start.dtype)


@op("Range", DOMAIN, host=True)
def range_1(start: Static, limit: Static, delta: Static = None, /):
    """Count from start () to before limit () by delta (), 1 unless told -> (length,)."""
    return count_up(start, limit, _by_one(start) if delta is None else delta)


@range_1.shape_rule(rankless=True)  # for the reason of the standard's
def _(start, limit, delta=None, /):
    return range_11.rule(start, limit, _by_one(start) if delta is None else delta)  # type: ignore[misc]


@op("Unique", DOMAIN, host=True)
def unique_1(x, /):
    """Find the different elements of x (n,) in their order -> (count,), which one each of the n is
    (n,), how often each occurs (count,)."""
    ranked("x", hostdims(x.shape), 1)
    y, _, which, counts = unique.function(x, sorted=0)
    return y, which, counts


@unique_1.shape_rule  # because the count is data
def _(x, /):
    ranked("x", x.shape, 1)
    y, _, which, counts = unique.rule(x, sorted=0)  # type: ignore[misc]
    return y, which, counts


# windows ------------------------------------------------------------------------------------------


def _unfolded(shape: Any, dim: int, size: int, step: int) -> tuple[Any, ...]:
    axis = axis_of(dim, len(shape), "dim")
    if size < 1 or step < 1:
        raise ShapeError(f"size is {size}, step {step}, wants at least 1")
    least(shape[axis], size, f"slices of {size} along axis {axis}")
    return (*replaced(shape, axis, (shape[axis] - size) // step + 1), size)


@op("UnfoldTensor", DOMAIN, host=True)
def unfold(input, /, *, dim=-1, size, step=1):
    """Cut input (*A, n, *B) into slices of size, step apart: all (n - size)//step + 1 of them
    -> (*A, slices, *B, size)."""
    shape = _unfolded(hostdims(input.shape), dim, size, step)
    xp, axis = namespace(input), axis_of(dim, input.ndim, "dim")
    starts = xp.arange(to_export(shape[axis])) * step
    taken = xp.take(input, starts[:, None] + xp.arange(size), axis)
    return xp.moveaxis(taken, axis + 1, -1)


@unfold.shape_rule  # because JAX cannot decide the sign of the number of slices
def _(input, /, *, dim=-1, size, step=1):
    return TensorType(input.dtype, _unfolded(input.shape, dim, size, step))


# quantized tables ---------------------------------------------------------------------------------


def _per_byte(dtype: Any, bits: int) -> int:
    """How many numbers an element of a table holds."""
    if dtype != np.uint8:
        return 1
    if bits not in (2, 4, 8):
        raise ShapeError(f"bits is {bits}, wants 2, 4 or 8")
    return 8 // bits


def _spread(x: Any, per: int) -> Any:
    """The numbers in bytes x (*A, B), the lowest bits first -> (*A, per * B)."""
    if per == 1:
        return x
    bits = 8 // per
    shifts = np.arange(0, 8, bits).astype(np.uint8)
    parts = (x[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape((*x.shape[:-1], per * x.shape[-1]))


def _table(
    data: Any, scales: Any, zeros: Any, per: int, block: int, axes: tuple[int, int], sparse: bool
) -> tuple[Any, ...]:
    """The shape of the table in numbers; demands that its scales fit. `sparse` ones may be 1."""
    ranked("data", data, least=1)
    ranked("scales", scales, len(data))
    quantize = axes[1]
    shape = (*data[:-1], per * data[-1])
    blocks = ceildiv(shape[quantize], block) if block else 1
    for i, (d, s) in enumerate(zip(shape, scales, strict=True)):
        wanted = blocks if i == quantize else d
        if sparse and i != quantize:
            same(broadcast(s, wanted, why="scales"), wanted, "scales")
        else:
            same(s, wanted, f"axis {i} of scales")
    if zeros is not None:
        wanted = (*scales[:-1], ceildiv(scales[-1], per))
        for i, (z, s) in enumerate(zip(zeros, wanted, strict=True)):
            same(z, s, f"axis {i} of zero_points")
    return shape


def _lookup_axes(
    rank: int, per: int, block: int, gather: int, quantize: int, real: bool
) -> tuple[int, int]:
    axes = axis_of(gather, rank, "gather_axis"), axis_of(quantize, rank, "quantize_axis")
    if block & (block - 1) or block < 16 and not (block == 0 and real):
        raise ShapeError(f"block_size is {block}, wants a power of 2 from 16 on")
    if per > 1 and (axes[0] == axes[1] or axes[1] != rank - 1):
        raise ShapeError(
            f"gather_axis {gather}, quantize_axis {quantize}: several numbers in a byte want the "
            "last axis quantized, and another gathered"
        )
    return axes


@op("GatherBlockQuantized", DOMAIN)
def gather_block_quantized(
    data, indices, scales, zero_points=None, /, *, bits=4, block_size=128, gather_axis=0,
    quantize_axis=1,
):  # fmt: skip
    """Look up indices (*I) along gather_axis of data (*A, n, *B), quantized by blocks along another
    -> (*A, *I, *B) of scales' type, zeros where an index is out of range."""
    real, per = is_float(data.dtype), _per_byte(data.dtype, bits)
    axes = _lookup_axes(data.ndim, per, block_size, gather_axis, quantize_axis, real)
    gather, quantize = axes
    given = [None if x is None else hostdims(x.shape) for x in (data, scales, zero_points)]
    shape = _table(*given, per, block_size, axes, real)  # type: ignore[misc]
    n = jnp.asarray(to_export(shape[gather])).astype(indices.dtype)
    at = jnp.where(indices < 0, indices + n, indices)
    known, at = (at >= 0) & (at < n), jnp.clip(at, 0, jnp.maximum(n - 1, 0))

    def taken(x: Any) -> Any:
        """The rows of scales or zero points that belong to those of data."""
        if hostdims(x.shape)[gather] == 1 and gather != quantize:
            where = jnp.zeros_like(at)
        else:
            where = at // block_size if gather == quantize and block_size else at
        return jnp.take(x, where, axis=gather, mode="clip")

    # an axis behind the gathered one has moved by as many as the indices have, less their own
    behind = quantize + (indices.ndim - 1) * (quantize > gather)

    def along(x: Any) -> Any:
        """Each block's number for every element of the block."""
        if gather == quantize or not block_size:
            return x
        each = jnp.arange(to_export(shape[quantize])) // block_size
        return jnp.take(x, each, axis=behind, mode="clip")

    rows = _spread(jnp.take(data, at, axis=gather, mode="clip"), per)
    dtype = wide(scales.dtype)
    if zero_points is not None:
        zeros = _spread(zero_points, per)
        zeros = lax.slice_in_dim(zeros, 0, scales.shape[-1], axis=-1) if per > 1 else zeros
        rows = rows.astype(dtype) - along(taken(zeros)).astype(dtype)
    else:
        middle = 1 << (bits - 1) if data.dtype == np.uint8 else 0
        rows = rows.astype(dtype) - dtype.type(middle)
    y = rows * along(taken(scales)).astype(dtype)
    known = known.reshape((*(1,) * gather, *at.shape, *(1,) * (data.ndim - gather - 1)))
    return jnp.where(known, y, 0).astype(scales.dtype)


@gather_block_quantized.shape_rule  # because JAX cannot compare the number of blocks
def _(
    data, indices, scales, zero_points=None, /, *, bits=4, block_size=128, gather_axis=0,
    quantize_axis=1,
):  # fmt: skip
    real, per = is_float(data.dtype), _per_byte(data.dtype, bits)
    axes = _lookup_axes(len(data.shape), per, block_size, gather_axis, quantize_axis, real)
    given = [None if x is None else x.shape for x in (data, scales, zero_points)]
    shape = _table(*given, per, block_size, axes, real)  # type: ignore[misc]
    return TensorType(scales.dtype, replaced(shape, axes[0], *indices.shape))


# crops --------------------------------------------------------------------------------------------


def _crop_shape(x: Any, rois: Any, batch: Any, size: Any) -> tuple[Any, ...]:
    ranked("X", x, 4)
    ranked("rois", rois, 2)
    ranked("batch_indices", batch, 1)
    same(rois[1], 4, "coordinates of rois")
    n = same(rois[0], batch[0], "rois and batch_indices")
    return (n, x[1], *size)


@op("CropAndResize", DOMAIN)
def crop_and_resize(
    X, rois, batch_indices, crop_size: Static, /, *, extrapolation_value=0.0, mode="bilinear"
):
    """Cut rois (R, 4) of y1, x1, y2, x2 in 0..1 out of X (N, C, H, W), in crop_size (2,) each
    -> (R, C, *crop_size)."""
    if mode not in ("bilinear", "nearest"):
        raise ShapeError(f"mode is {mode!r}, wants bilinear or nearest")
    shapes = [hostdims(v.shape) for v in (X, rois, batch_indices)]
    n, c, *size = _crop_shape(*shapes, _two(crop_size))  # type: ignore[misc]
    rois = fit(rois, (n, 4)).astype(wide(rois.dtype))
    places, inside = [], []
    for i, (space, wanted) in enumerate(zip(X.shape[2:], size, strict=True)):
        low, high = rois[:, i : i + 1], rois[:, i + 2 : i + 3]
        last = jnp.asarray(space).astype(rois.dtype) - 1
        if wanted == 1:
            at = (low + high) * last / 2
        else:
            steps = jnp.arange(to_export(wanted)).astype(rois.dtype)
            at = low * last + steps * ((high * last - low * last) / (to_export(wanted) - 1))
        places.append(at)
        inside.append((at >= 0) & (at <= last))
    image = jnp.moveaxis(X, 1, -1)
    batch = shaped("batch_indices", batch_indices, (n,))[:, None, None]

    def pixels(rows: Any, columns: Any) -> Any:
        rows, columns = (
            jnp.clip(v.astype(np.int32), 0, s - 1)
            for v, s in zip((rows, columns), X.shape[2:], strict=True)
        )
        return image[batch, rows[:, :, None], columns[:, None, :]]

    ys, xs = places
    if mode == "nearest":  # halves away from 0, as places are none below it
        y = pixels(jnp.floor(ys + 0.5), jnp.floor(xs + 0.5))
    else:
        top, left = jnp.floor(ys), jnp.floor(xs)
        bottom, right = jnp.ceil(ys), jnp.ceil(xs)
        down, over = (ys - top)[:, :, None, None], (xs - left)[:, None, :, None]
        upper = pixels(top, left) * (1 - over) + pixels(top, right) * over
        lower = pixels(bottom, left) * (1 - over) + pixels(bottom, right) * over
        y = upper * (1 - down) + lower * down
    valid = inside[0][:, :, None, None] & inside[1][:, None, :, None]
    return jnp.moveaxis(jnp.where(valid, y, extrapolation_value), -1, 1).astype(X.dtype)


def _two(size: Any) -> tuple[Any, Any]:
    if isinstance(size, TensorType):
        return count("crop"), count("crop")
    if math.prod(size.shape) != 2:
        raise ShapeError(f"crop_size has shape {tuple(size.shape)}, wants two elements")
    high, wide_ = size.reshape(-1).tolist()
    for d in (high, wide_):
        least(d, 1, "crop_size")
    return high, wide_


@crop_and_resize.shape_rule  # because crop_size may be unknown
def _(X, rois, batch_indices, crop_size, /, *, extrapolation_value=0.0, mode="bilinear"):
    shapes = [v.shape for v in (X, rois, batch_indices)]
    return TensorType(X.dtype, _crop_shape(*shapes, _two(crop_size)))  # type: ignore[misc]
