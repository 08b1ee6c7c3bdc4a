"""Resampling along one axis: where an output sample lies in the input, and what it takes there.

Invariant: coordinates are float32 and follow the formulas of the runtimes step by step; where the
sizes are numbers they are computed in NumPy, since a compiler that turns a division into a
multiplication moves a coordinate over the edge of a pixel. Interpolation is a weighted sum of a few
gathered copies, or one matrix product where the filter widens with the scale: both differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._device import canonical
from .._dim import Dim, ceildiv
from .._error import ShapeError
from .._host import namespace
from .._symbol import to_export
from ._numeric import FLOAT32, HALF, is_float


class Axis(NamedTuple):
    """One axis: its size, the size wanted, the factor between them, and the part of it to look at.

    `width` is the size wanted before it was rounded down; start and end are fractions of the axis.
    """

    n: Any
    out: Any
    scale: Any
    width: Any
    start: Any = 0.0
    end: Any = 1.0


class Filter(NamedTuple):
    """How a sample is made: it is the nearest pixel, or weighs those around it by distance."""

    mode: str = "nearest"
    nearest_mode: str = "floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    antialias: int = 0

    @property
    def support(self) -> int:
        """From this distance on a pixel has no weight."""
        return 2 if self.mode == "cubic" else 1

    def weight(self, distance: Any) -> Any:
        """The weight of a pixel by its distance: a triangle, or the cubic of Keys (1981)."""
        xp, a = namespace(distance), self.cubic_coeff_a
        if self.mode == "linear":  # its slope at a distance of 1 is that of the side inside
            return xp.where(distance <= 1, 1 - distance, 0)
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return xp.where(distance <= 1, near, xp.where(distance < 2, far, 0))


def among(name: str, value: str, known: Iterable[str]) -> None:
    """Demand an attribute to be one of the words known."""
    if value not in known:
        raise ShapeError(f"{name} is {value!r}, wants one of {', '.join(known)}")


def working(dtype: Any) -> np.dtype:
    """The dtype in which samples are weighed."""
    if dtype in HALF or not (is_float(dtype) or dtype.kind == "c"):
        return canonical("float64") if dtype.itemsize >= 4 else FLOAT32
    return dtype


def number(size: Any) -> Any:
    """A size or a factor as a float32 scalar, of JAX where it is symbolic."""
    if isinstance(size, Dim):
        return jnp.asarray(to_export(size)).astype(FLOAT32)
    return size if hasattr(size, "dtype") else FLOAT32.type(size)


def _either(condition: Any, a: Any, b: Any) -> Any:
    return namespace(condition, a, b).where(condition, a, b)


def _half_pixel(x: Any, a: Axis) -> Any:
    return (x + 0.5) / a.scale - 0.5


def _half_pixel_symmetric(x: Any, a: Axis) -> Any:
    """The centre of the input stays the centre where the size was rounded."""
    return a.n / 2 * (1 - a.out / a.width) + (x + 0.5) / a.scale - 0.5


def _last(size: Any) -> Any:
    """The last of so many output coordinates; 1 where there is but one, which is 0."""
    return _either(size == 1, size, size - 1)


def _crop(x: Any, a: Axis) -> Any:
    spread = a.start * (a.n - 1) + x * (a.end - a.start) * (a.n - 1) / _last(a.out)
    return _either(a.out == 1, 0.5 * (a.start + a.end) * (a.n - 1) + x, spread)


COORDINATES: dict[str, Callable[[Any, Axis], Any]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda x, a: _either(a.out > 1, _half_pixel(x, a), x),
    "align_corners": lambda x, a: x * (a.n - 1) / _last(a.width),
    "asymmetric": lambda x, a: x / a.scale,
    "tf_half_pixel_for_nn": lambda x, a: (x + 0.5) / a.scale,
    "tf_crop_and_resize": _crop,
}
# whether the pixel above is taken, by how far the sample lies above the one below
NEAREST: dict[str, Callable[[Any, Any], Any]] = {
    "round_prefer_floor": lambda rest, scale: rest > 0.5,
    "round_prefer_ceil": lambda rest, scale: rest >= 0.5,
    "floor": lambda rest, scale: rest < 0,
    "ceil": lambda rest, scale: rest > 0,
    # what runtimes do before opset 11
    "simple": lambda rest, scale: (rest > 0) & (scale < 1),
}
MODES = ("nearest", "linear", "cubic")


def coordinates(a: Axis, mode: str) -> Any:
    """Where the output samples (out,) lie, the centres of the pixels being at 0, 1, ..."""
    arange = jnp.arange(to_export(a.out)) if isinstance(a.out, Dim) else np.arange(a.out)
    return COORDINATES[mode](arange.astype(FLOAT32), Axis(*map(number, a)))


def resample(x: Any, axis: int, a: Axis, where: Any, how: Filter) -> Any:
    """Take from x (..., n, ...) the samples at `where` (out,) -> (..., out, ...)."""
    if how.mode == "nearest":
        return _nearest(x, axis, a, where, how)
    if how.antialias and not (isinstance(a.scale, np.floating) and a.scale >= 1):
        return _blurred(x, axis, a, where, how)
    xp, last = namespace(where), number(a.n) - 1
    low = xp.floor(where)
    taps = [low + i for i in range(1 - how.support, 1 + how.support)]
    weights = [how.weight(xp.abs(tap - where)) for tap in taps]
    if how.exclude_outside:
        weights = [
            xp.where((tap >= 0) & (tap <= last), w, 0) for tap, w in zip(taps, weights, strict=True)
        ]
        total = sum(weights)
        weights = [w / xp.where(total == 0, 1, total) for w in weights]
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    return sum(
        _take(x, axis, tap, last) * w.astype(x.dtype).reshape(shape)
        for tap, w in zip(taps, weights, strict=True)
    )


def _take(x: Any, axis: int, index: Any, last: Any) -> Any:
    """x (..., n, ...) at whole coordinates; the edge goes on outside."""
    xp = namespace(index)
    index = xp.minimum(xp.maximum(index, 0), last).astype(np.int32)
    return namespace(x).take(x, index, axis=axis, mode="clip")


def _nearest(x: Any, axis: int, a: Axis, where: Any, how: Filter) -> Any:
    xp = namespace(where, a.scale)
    low = xp.floor(where)
    index = xp.where(NEAREST[how.nearest_mode](where - low, a.scale), low + 1, low)
    if isinstance(index, np.ndarray) and isinstance(a.n, int) and a.out % max(a.n, 1) == 0:
        times = a.out // max(a.n, 1)
        if np.array_equal(np.clip(index, 0, a.n - 1), np.arange(a.out) // times):
            return namespace(x).repeat(x, times, axis=axis)  # the gradient of a gather is slower
    return _take(x, axis, index, number(a.n) - 1)


def _blurred(x: Any, axis: int, a: Axis, where: Any, how: Filter) -> Any:
    """Downsample by a filter as wide as 1/scale: each output sample weighs many pixels."""
    xp = namespace(x, where)
    scale = namespace(a.scale).minimum(a.scale, 1)
    widest = (
        int(np.ceil(1 / float(scale))) if isinstance(scale, np.generic) else ceildiv(a.n, a.out)
    )
    reach = how.support * widest + 1
    before, n = to_export(reach), to_export(a.n)
    pixels = xp.arange(n + 2 * before).astype(FLOAT32) - number(reach)
    weights = how.weight(xp.abs(pixels - where[:, None]) * scale)
    inside, ends = weights[:, before : before + n], (weights[:, :before], weights[:, before + n :])
    if not how.exclude_outside:  # the edge goes on outside
        first, final = (e.sum(1, keepdims=True) for e in ends)
        index, last = pixels[before : before + n], number(a.n) - 1
        inside = inside + xp.where(index == 0, first, 0) + xp.where(index == last, final, 0)
    weights = (inside / inside.sum(1, keepdims=True)).astype(x.dtype)
    if xp is np:
        y = np.tensordot(x, weights, (axis, 1))
    else:
        y = jnp.tensordot(x, weights, (axis, 1), precision="highest")
    return xp.moveaxis(y, -1, axis)
