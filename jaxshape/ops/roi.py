"""Pools over regions of interest: MaxRoiPool by whole pixels, RoiAlign by interpolation.

RoiAlign adds up samples, as many for a bin as its region is large. Under JAX that number may depend
on data: then the samples are a loop of unknown length, whose gradient is the sum of theirs.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._error import ShapeError
from .._facts import count, same
from .._host import is_host, namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked, wide


@op("MaxRoiPool", since=1, host=True)
def max_roi_pool(x, rois, /, *, pooled_shape, spatial_scale=1.0):
    """Take the greatest of x (N, C, H, W) in bins of rois (R, 5) -> (R, C, *pooled_shape).

    A region is a batch index and the pixels x1, y1, x2, y2, both ends in it; an empty bin is 0.
    """
    shape = _pooled(x, rois, pooled_shape)
    xp, real = namespace(x, rois), wide(x.dtype)
    x = xp.asarray(x)
    corners = rois[:, 1:].astype(real) * np.array(spatial_scale, real)
    corners = xp.sign(corners) * xp.floor(abs(corners) + np.array(0.5, real))  # halves away from 0
    low = np.array(-np.inf, x.dtype)
    inside = []  # (R, bins, pixels) for each axis
    for axis, (start, end) in ((2, (1, 3)), (3, (0, 2))):
        first, bins = corners[:, start, None], pooled_shape[axis - 2]
        each = xp.maximum(corners[:, end, None] - first + 1, 1) / np.array(bins, real)
        step = xp.arange(bins, dtype=real)
        begins, ends = xp.floor(step * each) + first, xp.ceil((step + 1) * each) + first
        pixels = xp.arange(x.shape[axis], dtype=real)
        inside.append((pixels >= begins[..., None]) & (pixels < ends[..., None]))

    def one(batch: Any, rows: Any, columns: Any) -> Any:
        y = xp.where(rows[:, :, None], x[batch][:, None], low).max(2)
        y = xp.where(columns, y[:, :, None], low).max(3)
        some = rows.any(1)[:, None] & columns.any(1)
        return xp.where(some, y, xp.zeros_like(y))

    each = (rois[:, 0].astype(np.int32), *inside)
    if xp is not np:
        return lax.map(lambda region: one(*region), each)
    return np.array([one(*region) for region in zip(*each, strict=True)], x.dtype).reshape(shape)


@max_roi_pool.shape_rule(rankless=True)  # because one input's rank may be unknown
def _(x, rois, /, *, pooled_shape, spatial_scale=1.0):
    return TensorType(x.dtype, _pooled(x, rois, pooled_shape))


def _pooled(x: Any, rois: Any, pooled_shape: Any) -> tuple[Any, ...]:
    """The shape (R, C, *pooled_shape)."""
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        raise ShapeError(f"pooled_shape is {tuple(pooled_shape)}, wants two positive sizes")
    channels, regions = _regions(x, rois, 5)
    return regions, channels, *pooled_shape


def _regions(x: Any, rois: Any, width: int) -> tuple[Any, Any]:
    """The number of channels of x and of regions in rois."""
    channels: Any = None
    regions: Any = None
    if x.shape is not None:
        ranked("x", x.shape, 4)
        channels = hostdims(x.shape)[1]
    if rois.shape is not None:
        ranked("rois", rois.shape, 2)
        regions, found = hostdims(rois.shape)
        same(found, width, "the values of a region")
    channels = count("Roi_channels") if channels is None else channels
    return channels, count("Roi_count") if regions is None else regions


@op("RoiAlign", since=16, host=True)
def roi_align_16(
    x, rois, batch_indices, /, *,
    coordinate_transformation_mode="half_pixel", mode="avg", output_height=1, output_width=1,
    sampling_ratio=0, spatial_scale=1.0,
):  # fmt: skip
    """Sample x (N, C, H, W) in bins of rois (R, 4) -> (R, C, output_height, output_width).

    A region is x1, y1, x2, y2 in the image of that batch index (R,). A bin is the average of
    sampling_ratio**2 points, 0: of about one a pixel; with mode max their greatest weighted corner.
    """
    bins = _aligned(
        x, rois, batch_indices, coordinate_transformation_mode, mode, output_height, output_width,
        sampling_ratio, spatial_scale,
    )[2:]  # fmt: skip
    xp, real = namespace(x, rois, batch_indices), wide(x.dtype)
    half = coordinate_transformation_mode.lower() == "half_pixel"
    corners = rois.astype(real) * np.array(spatial_scale, real) - np.array(0.5 * half, real)
    axes, most = [], []
    for start, n in ((1, bins[0]), (0, bins[1])):
        length = corners[:, start + 2] - corners[:, start]
        step = (length if half else xp.maximum(length, np.ones((), real))) / np.array(n, real)
        grid = xp.ceil(xp.maximum(step, np.zeros((), real)))
        largest = xp.max(grid, initial=0).astype(np.int32)
        most.append(sampling_ratio or (int(largest) if is_host(largest) else largest))
        grid = xp.full_like(grid, sampling_ratio) if sampling_ratio else grid
        axes.append((corners[:, start], step, grid))
    image = xp.moveaxis(x.astype(real), 1, 3)
    if mode.lower() == "max":
        y = _greatest(bins, most, batch_indices, image, axes)
    else:
        total = _total if isinstance(most[0], int) else _open_total
        size = axes[0][2] * axes[1][2]
        y = total(bins, most, batch_indices, image, axes) / xp.maximum(size, 1).reshape(-1, 1, 1, 1)
    return xp.moveaxis(y, 3, 1).astype(x.dtype)


@op("RoiAlign", since=10, host=True)
def roi_align_10(
    x, rois, batch_indices, /, *,
    mode="avg", output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0,
):  # fmt: skip
    """Sample x (N, C, H, W) in bins of rois (R, 4), without a shift by half a pixel."""
    return roi_align_16(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


# because what one input does not say, not even by its rank, another may
@roi_align_10.shape_rule(rankless=True)
@roi_align_16.shape_rule(rankless=True)
def _(x, rois, batch_indices, /, **attributes):
    return TensorType(x.dtype, _aligned(x, rois, batch_indices, **attributes))


def _aligned(
    x: Any, rois: Any, batch_indices: Any, coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg", output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> tuple[Any, ...]:  # fmt: skip
    """The shape (R, C, output_height, output_width)."""
    shift = coordinate_transformation_mode
    if mode.lower() not in ("avg", "max"):
        raise ShapeError(f"mode is {mode!r}, wants avg or max")
    if shift.lower() not in ("half_pixel", "output_half_pixel"):
        wanted = "half_pixel or output_half_pixel"
        raise ShapeError(f"coordinate_transformation_mode is {shift!r}, wants {wanted}")
    for name, value in (("output_height", output_height), ("output_width", output_width)):
        if value < 1:
            raise ShapeError(f"{name} is {value}, wants at least 1")
    if sampling_ratio < 0:
        raise ShapeError(f"sampling_ratio is {sampling_ratio}, wants at least 0")
    channels, regions = _regions(x, rois, 4)
    if batch_indices.shape is not None:
        ranked("batch_indices", batch_indices.shape, 1)
        found = hostdims(batch_indices.shape)[0]
        known = rois.shape is not None
        regions = same(regions, found, "the regions of rois and batch_indices") if known else found
    return regions, channels, output_height, output_width


def _weighted(bins: Any, batch: Any, image: Any, axes: Any, i: Any, j: Any) -> list[Any]:
    """The four weighted pixels around point (i, j) of every bin, each (R, *bins, C), 0 outside.

    i and j are one point for all, or one for each element of the result.
    """
    xp, single = namespace(image, batch), np.ndim(i) == 0
    ones = (1, 1) if single else (1, 1, 1)
    pixels = []
    for axis, point in ((0, i), (1, j)):
        start, step, grid = [v.reshape(-1, *ones) for v in axes[axis]]
        index = xp.arange(bins[axis], dtype=image.dtype).reshape(-1, *ones[axis + 1 :])
        size = xp.asarray(image.shape[axis + 1], dtype=image.dtype)
        point = xp.asarray(point, dtype=image.dtype) + np.array(0.5, image.dtype)
        at = start + index * step + point * step / xp.maximum(grid, 1)
        inside = (at >= -1) & (at <= size)
        at = xp.clip(at, 0, size - 1)
        low = at.astype(np.int32)
        share = at - low.astype(at.dtype)
        high = xp.minimum(low + 1, (size - 1).astype(np.int32))
        zero = xp.zeros_like(at)
        pixels.append(
            ((low, xp.where(inside, 1 - share, zero)), (high, xp.where(inside, share, zero)))
        )
    batch = batch.reshape(-1, *ones)
    result = []
    for (y, down), (x, right) in itertools.product(*pixels):
        weight = down * right
        if single:
            result.append(image[batch, y, x] * weight[..., None])
        else:
            result.append(image[batch, y, x, xp.arange(image.shape[3])] * weight)
    return result


def _counted(axes: Any, i: Any, j: Any) -> Any:
    """Whether a region has a point (i, j) at all, (R, 1, 1, 1)."""
    inside = [
        point < grid.astype(np.int32) for point, (_, _, grid) in zip((i, j), axes, strict=True)
    ]
    return (inside[0] & inside[1]).reshape(-1, 1, 1, 1)


def _loop(xp: Any, most: Any, body: Any, start: Any) -> Any:
    """Go through the points (i, j) of the largest grid."""
    rows, columns = most
    if xp is not np:
        return lax.fori_loop(
            0, rows * columns, lambda k, y: body(k // columns, k % columns, y), start
        )
    for i, j in itertools.product(range(rows), range(columns)):
        start = body(i, j, start)
    return start


def _point(bins: Any, batch: Any, image: Any, axes: Any, i: Any, j: Any) -> Any:
    """What point (i, j) adds to every bin."""
    total = sum(_weighted(bins, batch, image, axes, i, j))
    return namespace(image, batch).where(_counted(axes, i, j), total, 0)


def _total(bins: Any, most: Any, batch: Any, image: Any, axes: Any) -> Any:
    """The sum of all points of every bin (R, *bins, C)."""
    xp = namespace(image, batch)
    start = xp.zeros((batch.shape[0], *bins, image.shape[3]), image.dtype)
    return _loop(xp, most, lambda i, j, y: y + _point(bins, batch, image, axes, i, j), start)


# a loop of unknown length has no gradient in JAX
_open_total = jax.custom_vjp(_total, nondiff_argnums=(0,))


def _forward(bins: Any, most: Any, batch: Any, image: Any, axes: Any) -> Any:
    return _total(bins, most, batch, image, axes), (most, batch, image, axes)


def _backward(bins: Any, saved: Any, cotangent: Any) -> Any:
    most, batch, image, axes = saved

    def add(i: Any, j: Any, sums: Any) -> Any:
        point = functools.partial(_point, bins, batch, i=i, j=j)
        _, pull = jax.vjp(lambda image, axes: point(image=image, axes=axes), image, axes)
        return jax.tree.map(jnp.add, sums, pull(cotangent))

    zeros = jax.tree.map(jnp.zeros_like, (image, axes))
    return None, None, *_loop(jnp, most, add, zeros)


_open_total.defvjp(_forward, _backward)


def _greatest(bins: Any, most: Any, batch: Any, image: Any, axes: Any) -> Any:
    """The greatest weighted pixel of all points of every bin (R, *bins, C), 0 where there is none.

    First which point has it, without gradient; then its value, with one.
    """
    xp = namespace(image, batch)
    fixed = (image, axes) if xp is np else lax.stop_gradient((image, axes))
    shape = (batch.shape[0], *bins, image.shape[3])

    def body(i: Any, j: Any, best: Any) -> Any:
        value, rows, columns = best
        found = functools.reduce(xp.maximum, _weighted(bins, batch, *fixed, i, j))
        better = _counted(fixed[1], i, j) & ((found > value) | (value == -np.inf))
        return [
            xp.where(better, new, old) for new, old in ((found, value), (i, rows), (j, columns))
        ]

    start = [
        xp.full(shape, -np.inf, image.dtype),
        xp.zeros(shape, np.int32),
        xp.zeros(shape, np.int32),
    ]
    _, i, j = _loop(xp, most, body, start)
    y = functools.reduce(xp.maximum, _weighted(bins, batch, image, axes, i, j))
    return xp.where(_counted(axes, 0, 0), y, xp.zeros_like(y))
