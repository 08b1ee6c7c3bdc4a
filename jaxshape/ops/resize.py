"""Resize and Upsample: resampling along each axis in turn.

Invariant: one function, `resized`, says which size each axis gets; the lowerings compute with it
and the shape rules answer by it. A size is the one asked for, or the old one times a float32
factor, rounded down from what float32 gives.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .._dim import Dim, maximum, minimum
from .._error import ShapeError
from .._facts import at_least, count, same
from .._host import is_host, namespace
from .._op import Static, op
from .._rational import CHECKED, Float
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked
from ._axes import axes_in, counted, exported
from ._numeric import FLOAT32
from ._resample import (
    COORDINATES,
    MODES,
    NEAREST,
    Axis,
    Filter,
    among,
    coordinates,
    number,
    resample,
    working,
)

_PICKS = {"stretch": None, "not_larger": minimum, "not_smaller": maximum}


# sizes --------------------------------------------------------------------------------------------


def resized(
    shape: Any, axes: Sequence[int], scales: Any, sizes: Any, policy: str = "stretch"
) -> dict[int, Any]:
    """The new size of each of these axes, by scales or sizes for them; None is an unknown one."""
    if sizes is None:
        return {i: _scaled(i, shape[i], s) for i, s in zip(axes, scales, strict=True)}
    pick = _PICKS[policy]
    if None in sizes:
        return {
            i: count(f"Resize_size{i}") if s is None or pick else s
            for i, s in zip(axes, sizes, strict=True)
        }
    sizes = {i: counted(s, "sizes") for i, s in zip(axes, sizes, strict=True)}
    if pick is None:
        return sizes
    # round(n * pick(size/n)), exactly: rounding keeps the order, so that it may come first
    return {i: pick(*[_rounded(shape[i], s, shape[j]) for j, s in sizes.items()]) for i in axes}


def _rounded(n: Any, numerator: Any, denominator: Any) -> Any:
    """The integer nearest to n * numerator / denominator, halves up."""
    if isinstance(denominator, int) and denominator == 0:
        raise ShapeError("an empty axis has no aspect ratio to keep")
    return numerator if n is denominator else (2 * n * numerator + denominator) // (2 * denominator)


def _scaled(i: int, n: Any, scale: Any) -> Any:
    """floor(n * scale) as float32 computes it."""
    stem = f"Resize_size{i}"
    if scale is None or isinstance(scale, (Dim, Float)):
        return count(stem)
    scale = FLOAT32.type(scale)
    if not 0 < scale < np.inf:
        raise ShapeError(f"the scale {scale} of axis {i} must be positive")
    if isinstance(n, int):
        return int(np.floor(FLOAT32.type(n) * scale))
    simple = _simple(float(scale))
    if simple is not None:
        return n * simple.numerator // simple.denominator
    grows = scale >= 1
    return count(stem, least=int(grows and bool(at_least(n, 1))), most=None if grows else n)


@functools.cache
def _simple(scale: float) -> Fraction | None:
    """The simple fraction whose products round down as the float32 scale's, at every size."""
    sizes = np.arange(CHECKED + 1)
    products = np.floor(sizes.astype(FLOAT32) * FLOAT32.type(scale))
    for limit in (100, 4096):
        simple = Fraction(scale).limit_denominator(limit)
        if simple and FLOAT32.type(float(simple)) == scale and simple.numerator < CHECKED:
            exact = sizes * simple.numerator // simple.denominator
            return simple if np.array_equal(products, exact) else None
    return None


def _listed(name: str, operand: Any, n: int) -> list[Any] | None:
    """The elements of an operand with one for each of n axes; None where it is absent or empty."""
    if operand is None or operand.shape == (0,):
        return None
    if operand.shape is not None:
        ranked(name, operand.shape, 1)
        same(operand.shape[0], n, f"the elements of {name}, one for each axis")
    return operand.tolist() if is_host(operand) else [None] * n


def _operands(rank: int, axes: Any, scales: Any, sizes: Any) -> tuple[Any, Any, Any]:
    """The axes to change, and the scales or the sizes for them."""
    axes = tuple(range(rank)) if axes is None else axes_in(axes, rank)
    scales, sizes = (_listed(n, o, len(axes)) for n, o in (("scales", scales), ("sizes", sizes)))
    if (scales is None) == (sizes is None):
        came = "none" if sizes is None else "both"
        raise ShapeError(f"wants one of scales and sizes, {came} are given")
    return axes, scales, sizes


def _check(how: Filter, mode: str, policy: str = "stretch") -> None:
    among("mode", how.mode, MODES)
    among("nearest_mode", how.nearest_mode, NEAREST)
    among("coordinate_transformation_mode", mode, COORDINATES)
    among("keep_aspect_ratio_policy", policy, _PICKS)


def _type(x: Any, axes: Any, scales: Any, sizes: Any, policy: str = "stretch") -> TensorType:
    """The type of x (*D) resized."""
    shape = x.shape
    if shape is None:
        given = [o.shape for o in (scales, sizes) if o is not None and o.shape not in (None, (0,))]
        if axes is not None or not given or not isinstance(given[0][0], int):
            return TensorType(x.dtype, None)
        shape = tuple([count(f"Resize_from{i}") for i in range(given[0][0])])
    axes, scales, sizes = _operands(len(shape), axes, scales, sizes)
    new = resized(shape, axes, scales, sizes, policy)
    return TensorType(x.dtype, tuple([new.get(i, d) for i, d in enumerate(shape)]))


# values -------------------------------------------------------------------------------------------


def _resize(
    x, axes, scales, sizes, how: Filter, mode, roi=None, policy="stretch", extrapolation_value=0.0
):
    """x (*D) resampled along axes."""
    _check(how, mode, policy)
    xp, dtype, shape = namespace(x), x.dtype, hostdims(x.shape)
    axes, scales, sizes = _operands(len(shape), axes, scales, sizes)
    new = resized(shape, axes, scales, sizes, policy)
    if any(isinstance(d, int) and d == 0 for d in (*shape, *new.values())):
        return _empty(x, [new.get(i, d) for i, d in enumerate(shape)])
    if how.mode != "nearest":
        x = x.astype(working(dtype))
    roi = _region(roi, axes) if mode == "tf_crop_and_resize" else {}
    for axis, a in _steps(shape, axes, new, scales, sizes, policy, roi):
        if _unchanged(a):
            continue
        where = coordinates(a, mode)
        x = resample(x, axis, a, where, how)
        if mode == "tf_crop_and_resize":
            outside = (where < 0) | (where > number(a.n) - 1)
            outside = outside.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
            x = xp.where(outside, xp.asarray(extrapolation_value, x.dtype), x)
    return _narrowed(x, dtype)


def _unchanged(a: Axis) -> bool:
    kept = a.n is a.out or isinstance(a.n, int) and a.n == a.out
    whole = a.width is a.out or isinstance(a.scale, np.generic) and a.scale == 1
    return kept and whole and (a.start, a.end) == (0, 1)


def _steps(shape, axes, new, scales, sizes, policy, roi):
    """Each axis with what is to be done to it."""
    for k, i in enumerate(axes):
        n, out = shape[i], new[i]
        if sizes is None:
            scale = number(scales[k])
        elif policy == "stretch":
            scale = number(out) / number(n)
        else:
            ratios = [number(s) / number(shape[j]) for j, s in zip(axes, sizes, strict=True)]
            xp = namespace(*ratios)
            scale = functools.reduce(xp.minimum if policy == "not_larger" else xp.maximum, ratios)
        exact = sizes is not None and policy == "stretch"
        yield i, Axis(n, out, scale, out if exact else scale * number(n), *roi.get(i, (0.0, 1.0)))


def _region(roi: Any, axes: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Start and end of the region of each axis, from (2 * axes,) in that order."""
    if roi is None or tuple(roi.shape) != (2 * len(axes),):
        came = "nothing" if roi is None else f"shape {tuple(roi.shape)}"
        raise ShapeError(f"roi has {came}, wants ({2 * len(axes)},): the starts, then the ends")
    starts, ends = roi.reshape(2, -1).tolist()
    return {i: (start, end) for i, start, end in zip(axes, starts, ends, strict=True)}


def _empty(x, shape):
    if any(d == 0 for d in x.shape) and not any(isinstance(d, int) and d == 0 for d in shape):
        raise ShapeError(f"x {tuple(x.shape)} is empty and cannot be resized to {tuple(shape)}")
    return namespace(x).zeros(exported(shape), x.dtype)


def _narrowed(x, dtype):
    """x back in its dtype; integers are rounded and saturate."""
    if x.dtype == dtype:
        return x
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = namespace(x).clip(namespace(x).round(x), limits.min, limits.max)
    return x.astype(dtype)


# operators ----------------------------------------------------------------------------------------


def _upsampling(mode: str, nearest_mode: str = "floor") -> Filter:
    return Filter("linear" if mode in ("bilinear", "trilinear") else mode, nearest_mode)


@op("Upsample", since=1, host=True)
def upsample_1(x, /, *, height_scale, width_scale, mode="nearest"):
    """Enlarge x (N, C, H, W) -> (N, C, H', W')."""
    ranked("X", x.shape, 4)
    scales = np.array([1, 1, height_scale, width_scale], np.float32)
    return _resize(x, None, scales, None, _upsampling(mode), "asymmetric")


@op("Upsample", since=7, host=True)
def upsample_7(x, /, *, scales, mode="nearest"):
    """Enlarge x (*D) by a factor for each axis -> (*D')."""
    scales = np.array(scales, np.float32)
    return _resize(x, None, scales, None, _upsampling(mode), "asymmetric")


@op("Upsample", since=9, host=True)
def upsample_9(x, scales: Static, /, *, mode="nearest"):
    """Enlarge x (*D) by scales (rank,) -> (*D')."""
    return _resize(x, None, scales, None, _upsampling(mode), "asymmetric")


@op("Resize", since=10, host=True)
def resize_10(x, scales: Static, /, *, mode="nearest"):
    """Resample x (*D) by scales (rank,) -> (*D'); where an axis shrinks, nearest is next."""
    return _resize(x, None, scales, None, _upsampling(mode, "simple"), "asymmetric")


@op("Resize", since=11, host=True)
def resize_11(
    x, roi: Static, scales: Static, sizes: Static = None, /, *,
    coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0,
    extrapolation_value=0.0, mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Resample x (*D) by scales or to sizes (rank,) -> (*D'); the other one is empty."""
    how = Filter(mode, nearest_mode, cubic_coeff_a, exclude_outside)
    return _resize(
        x, None, scales, sizes, how, coordinate_transformation_mode, roi,
        extrapolation_value=extrapolation_value,
    )  # fmt: skip


@op("Resize", since=13, host=True)
def resize_13(
    x, roi: Static = None, scales: Static = None, sizes: Static = None, /, *,
    coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0,
    extrapolation_value=0.0, mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Resample x (*D) by scales or to sizes (rank,) -> (*D')."""
    how = Filter(mode, nearest_mode, cubic_coeff_a, exclude_outside)
    return _resize(
        x, None, scales, sizes, how, coordinate_transformation_mode, roi,
        extrapolation_value=extrapolation_value,
    )  # fmt: skip


@op("Resize", since=18, host=True)
def resize_18(
    x, roi: Static = None, scales: Static = None, sizes: Static = None, /, *,
    antialias=0, axes=None, coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75,
    exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch", mode="nearest",
    nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Resample the given axes of x (*D) by scales or to sizes (axes,) -> (*D')."""
    how = Filter(mode, nearest_mode, cubic_coeff_a, exclude_outside, antialias)
    return _resize(
        x, axes, scales, sizes, how, coordinate_transformation_mode, roi,
        keep_aspect_ratio_policy, extrapolation_value,
    )  # fmt: skip


# Rules, because the contents of scales and sizes decide the shape, and floor(size * scale) is that
# of float32 arithmetic.


@upsample_1.shape_rule(rankless=True)
def _(x, /, *, height_scale, width_scale, mode="nearest"):
    ranked("X", x.shape, 4)
    return _upsampled(x, np.array([1, 1, height_scale, width_scale], np.float32), mode=mode)


@upsample_7.shape_rule(rankless=True)
def _(x, /, *, scales, mode="nearest"):
    return _upsampled(x, np.array(scales, np.float32), mode=mode)


def _upsampled(x, scales, /, *, mode="nearest"):
    _check(_upsampling(mode), "asymmetric")
    return _type(x, None, scales, None)


for _op in (upsample_9, resize_10):
    _op.shape_rule(_upsampled, rankless=True)


def _resize_type(
    x, roi=None, scales=None, sizes=None, /, *,
    axes=None, coordinate_transformation_mode="half_pixel", keep_aspect_ratio_policy="stretch",
    mode="nearest", nearest_mode="floor", **_,
):  # fmt: skip
    _check(Filter(mode, nearest_mode), coordinate_transformation_mode, keep_aspect_ratio_policy)
    return _type(x, axes, scales, sizes, keep_aspect_ratio_policy)


for _op in (resize_11, resize_13, resize_18):
    _op.shape_rule(_resize_type, rankless=True)
