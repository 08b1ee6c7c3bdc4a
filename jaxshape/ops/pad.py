"""Operators that lay a border around a tensor or cut one off: Pad, CenterCropPad.

A margin is how much an axis grows at its front and at its back; a negative one cuts. Every mode but
`constant` is a rule that says which element stands at a place outside, applied after the cutting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._dim import maximum, minimum
from .._error import ShapeError
from .._facts import count, element, least
from .._host import namespace
from .._op import Static, op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import written
from ._axes import axes_in, counted, exported, integers, nothing, numbers
from ._static import replaced
from .slicing import Window, cut

Margin = tuple[Any, Any]


def margins(pads: Sequence[Any], axes: Sequence[int] | None, rank: int) -> list[Margin]:
    """The margin of each axis, from all the fronts followed by all the backs."""
    axes = axes_in(range(rank) if axes is None else axes, rank)
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"pads has {len(pads)} elements, wants 2 for each of {len(axes)} axes")
    found: list[Margin] = [(0, 0)] * rank
    for axis, front, back in zip(axes, pads, pads[len(axes) :], strict=False):
        found[axis] = front, back
    return found


def padded(shape: Sequence[Any], around: Sequence[Margin], mode: str) -> tuple[Any, ...]:
    """The sizes with their margins."""
    if mode not in ("constant", *_SOURCES):
        raise ShapeError(f"mode {mode!r} is none of constant, {', '.join(_SOURCES)}")
    for axis, (d, (front, back)) in enumerate(zip(shape, around, strict=True)):
        why = f"axis {axis} of {written(shape)} with pads {front} and {back}"
        if mode == "constant" or not numbers(front, back):
            least(d + front + back, 0, why)
        else:  # what is repeated must be there after the cutting
            least(d, -min(front, 0) - min(back, 0) + (front > 0 or back > 0), f"{why}, mode {mode}")
    return tuple([d + front + back for d, (front, back) in zip(shape, around, strict=True)])


# the place in [0, n) of what stands at place i outside; top: n - 1, turn: max(2 n - 2, 1)
_SOURCES = {
    "reflect": lambda xp, i, n, top, turn: xp.minimum(i % turn, turn - i % turn),
    "edge": lambda xp, i, n, top, turn: xp.clip(i, 0, top),
    "wrap": lambda xp, i, n, top, turn: i % n,
}


def _repeat(x: Any, axis: int, margin: Margin, mode: str) -> Any:
    """x with one axis padded by its own elements."""
    xp, d = namespace(x), hostdims(x.shape)[axis]
    begin, n = maximum(-margin[0], 0), d + minimum(margin[0], 0) + minimum(margin[1], 0)
    front, back = [maximum(m, 0) for m in margin]
    xi = np if numbers(n, front, back) else xp
    place = xi.arange(to_export(n + front + back)) - to_export(front)
    sizes = [_as_number(xi, size, place) for size in (n, n - 1, maximum(2 * n - 2, 1))]
    return xp.take(x, to_export(begin) + _SOURCES[mode](xi, place, *sizes), axis, mode="clip")


def _as_number(xp: Any, size: Any, like: Any) -> Any:
    """A size as an operand of arithmetic on arrays."""
    return size if isinstance(size, int) else xp.asarray(to_export(size)).astype(like.dtype)


def _surround(x: Any, around: Sequence[Margin], fill: Any) -> Any:
    """x with margins filled with one value."""
    if namespace(x, fill) is not np:
        import jax.numpy as jnp
        from jax import lax

        config = [(*exported(margin), 0) for margin in around]
        return lax.pad(x, jnp.reshape(jnp.asarray(fill, x.dtype), ()), config)
    for axis, (front, back) in enumerate(around):
        if (front, back) == (0, 0):
            continue
        d = x.shape[axis]
        begin, end = max(0, -front), min(d, d + back)
        inside = cut(x, {axis: Window(begin, max(end - begin, 0))})
        before = d + front + back if begin >= end else max(front, 0)
        after = d + front + back - before - inside.shape[axis]
        gaps = [np.full(replaced(x.shape, axis, n), fill, x.dtype) for n in (before, after)]
        x = np.concatenate([gaps[0], inside, gaps[1]], axis)
    return x


def _pad(x: Any, around: Sequence[Margin], mode: str, value: Any) -> Any:
    padded(hostdims(x.shape), around, mode)
    if mode == "constant":
        fill = nothing(x.dtype) if value is None else value
        if getattr(fill, "size", 1) != 1:
            raise ShapeError(f"constant_value has shape {written(fill.shape)}, wants one element")
        fill = fill.item() if isinstance(fill, np.ndarray) and fill.dtype == object else fill
        return _surround(x, around, fill)
    for axis, margin in enumerate(around):
        if margin != (0, 0):
            x = _repeat(x, axis, margin, mode)
    return x


@op("Pad", since=1, host=True)
def pad_1(data, /, *, paddings, mode="constant", value=0.0):
    """Pad data (*D) by paddings, all fronts and then all backs."""
    return pad_2(data, pads=paddings, mode=mode, value=value)


@op("Pad", since=2, host=True)
def pad_2(data, /, *, pads, mode="constant", value=0.0):
    """Pad data (*D) by pads, all fronts and then all backs; negative ones cut."""
    return _pad(data, margins(pads, None, data.ndim), mode, np.asarray(value).astype(data.dtype))


@op("Pad", since=11, host=True)
def pad_11(data, pads: Static, constant_value=None, /, *, mode="constant"):
    """Pad data (*D) by pads (2r,), all fronts and then all backs; negative ones cut."""
    return pad_18(data, pads, constant_value, mode=mode)


@op("Pad", since=18, host=True)
def pad_18(data, pads: Static, constant_value=None, axes: Static = None, /, *, mode="constant"):
    """Pad data (*D) along axes (n,) by pads (2n,), fronts and then backs; negative ones cut."""
    around = margins(integers(pads, "pads"), integers(axes, "axes"), data.ndim)  # type: ignore[arg-type]
    return _pad(data, around, mode, constant_value)


@pad_18.shape_rule(rankless=True)  # because pads may be unknown; their number tells the rank
def _pad_type(data, pads, constant_value=None, axes=None, /, *, mode="constant"):
    shape, values, where = data.shape, integers(pads, "pad"), integers(axes, "axes")
    if shape is None:
        if values is None or axes is not None:
            return TensorType(data.dtype, None)
        shape = [count("Pad_size") for _ in range(len(values) // 2)]
    if axes is not None and (where is None or not numbers(*where)):
        return TensorType(data.dtype, tuple([count("Pad_size") for _ in shape]))
    if values is None:
        values = [element("pad") for _ in range(2 * len(shape if where is None else where))]
    return TensorType(data.dtype, padded(shape, margins(values, where, len(shape)), mode))


@pad_1.shape_rule  # because JAX cannot tell whether a symbolic size is large enough
def _(data, /, *, paddings, mode="constant", value=0.0):
    return _pad_type(data, paddings, mode=mode)


@pad_2.shape_rule  # because JAX cannot tell whether a symbolic size is large enough
def _(data, /, *, pads, mode="constant", value=0.0):
    return _pad_type(data, pads, mode=mode)


@pad_11.shape_rule(rankless=True)  # because pads may be unknown; their number tells the rank
def _(data, pads, constant_value=None, /, *, mode="constant"):
    return _pad_type(data, pads, constant_value, mode=mode)


# CenterCropPad ----------------------------------------------------------------------------------


def centred(
    shape: Sequence[Any], target: Sequence[Any], axes: Sequence[int] | None
) -> dict[int, Any]:
    """The new size of each axis that is cropped or padded."""
    found = axes_in(range(len(shape)) if axes is None else axes, len(shape))
    if len(target) != len(found):
        raise ShapeError(f"shape has {len(target)} elements for {len(found)} axes")
    return {axis: counted(n, "a size in shape") for axis, n in zip(found, target, strict=True)}


@op("CenterCropPad", since=18, host=True)
def center_crop_pad(input_data, shape: Static, /, *, axes=None):
    """Cut input_data (*D) at its centre, or pad it with 0, to sizes shape (n,) along axes."""
    own = hostdims(input_data.shape)
    windows, around = {}, [(0, 0)] * len(own)
    for axis, n in centred(own, integers(shape, "shape"), axes).items():  # type: ignore[arg-type]
        d, kept = own[axis], minimum(n, own[axis])
        windows[axis] = Window((d - kept) // 2, kept)
        around[axis] = (front := (n - kept) // 2), n - kept - front
    return _surround(cut(input_data, windows), around, nothing(input_data.dtype))


@center_crop_pad.shape_rule(rankless=True)  # because shape may hold symbols or be unknown
def _(input_data, shape, /, *, axes=None):
    own, target = input_data.shape, integers(shape, "shape")
    if own is None and axes is None and target is not None:
        own = target
    if own is None:
        return TensorType(input_data.dtype, None)
    if target is None:
        target = [count("CenterCropPad_size") for _ in (own if axes is None else axes)]
    new = centred(own, target, axes)
    return TensorType(input_data.dtype, tuple([new.get(i, d) for i, d in enumerate(own)]))
