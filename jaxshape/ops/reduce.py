"""Reductions, positions of extremes, and running totals.

Invariant: the result has the dtype of the data (an int32 sum stays int32), 16-bit floats are summed
in float32, and a reduction over nothing gives what the standard says: 0, 1, or the least or
greatest value of the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from .._device import canonical
from .._dim import maximum
from .._error import ShapeError
from .._facts import at_least
from .._host import DimArray, namespace, truncate_divide
from .._op import Static, op
from .._value import TensorType
from ._axes import axes_in
from ._numeric import below_top, in_floats, is_integer, size_along, widened
from ._static import axis_of, bounded, scalar

# Each reducer takes x, a tuple of axes and whether they are kept.


@widened
def _sum(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Add the elements"""
    return namespace(x).sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


@widened
def _prod(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Multiply the elements"""
    return namespace(x).prod(x, axis=axes, keepdims=keep, dtype=x.dtype)


@widened
def _mean(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Average the elements (integers toward zero)"""
    total, n = _sum(x, axes, keep), size_along(x, axes)
    if not is_integer(x.dtype):
        return total / n
    return truncate_divide(total, namespace(n).maximum(n, 1))  # of nothing 0: XLA would not do


def _max(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Take the greatest element"""
    if isinstance(x, DimArray):
        return np.max(x, axis=axes, keepdims=keep)
    return namespace(x).max(x, axis=axes, keepdims=keep, initial=_extreme(x.dtype, "min", -np.inf))


def _min(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Take the least element"""
    if isinstance(x, DimArray):
        return np.min(x, axis=axes, keepdims=keep)
    return namespace(x).min(x, axis=axes, keepdims=keep, initial=_extreme(x.dtype, "max", np.inf))


def _extreme(dtype: np.dtype, end: str, infinite: float) -> Any:
    """The least or greatest value of a dtype."""
    if dtype.kind == "b":
        return end == "max"
    return dtype.type(getattr(ml_dtypes.iinfo(dtype), end) if is_integer(dtype) else infinite)


@widened
def _l1(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Add the magnitudes"""
    return _sum(abs(x), axes, keep)


@in_floats
def _l2(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Take the root of the sum of squares"""
    return namespace(x).sqrt(_sum(x * x, axes, keep))


@in_floats
def _log_sum(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Take the logarithm of the sum"""
    return namespace(x).log(_sum(x, axes, keep))


@in_floats
def _log_sum_exp(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Take the logarithm of the sum of exponentials"""
    xp = namespace(x)
    most = _max(x, axes, True)
    most = xp.where(xp.isfinite(most), most, xp.zeros_like(most))
    if xp is not np:
        most = jax.lax.stop_gradient(most)
    result = xp.log(_sum(xp.exp(below_top(x, axes, most)), axes, True)) + most
    return result if keep else xp.squeeze(result, axes)


@widened
def _sum_square(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """Add the squares"""
    return _sum(x * x, axes, keep)


_REDUCERS: dict[str, Callable[..., Any]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceProd": _prod,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": _sum_square,
}


def _axes(axes: Any, rank: int, noop: int = 0) -> tuple[int, ...]:
    """The axes to reduce: without any, all of them, or none under `noop_with_empty_axes`."""
    listed = () if axes is None else np.ravel(axes).tolist()
    return axes_in(listed, rank) if listed else () if noop else tuple(range(rank))


def _by_attribute(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x, /, *, axes=None, keepdims=1):
        return reduce(x, _axes(axes, x.ndim), bool(keepdims))

    apply.__doc__ = f"{reduce.__doc__} along axes; x (*D) -> (*D), the axes 1 or gone."
    return apply


def _by_input(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x, axes: Static = None, /, *, keepdims=1, noop_with_empty_axes=0):
        return reduce(x, _axes(axes, x.ndim, noop_with_empty_axes), bool(keepdims))

    apply.__doc__ = f"{reduce.__doc__} along axes (k,); x (*D) -> (*D), the axes 1 or gone."
    return apply


def _reduced(x, axes=None, /, *, keepdims=1, noop_with_empty_axes=0):
    """The type of a reduction, with counts where no more than the number of axes is known."""
    many = 0 if axes is None else _number(axes)
    if many != 0 and isinstance(axes, (TensorType, DimArray)):
        return TensorType(x.dtype, _some_reduced(x.shape, many, keepdims, noop_with_empty_axes))
    gone = _axes(None if many == 0 else axes, x.ndim, noop_with_empty_axes)
    return TensorType(x.dtype, _without(x.shape, gone, keepdims))


def _without(shape: Sequence[Any], gone: Sequence[int], keepdims: int) -> tuple[Any, ...]:
    if keepdims:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def _number(axes: Any) -> int | None:
    """How many axes are listed, None where that is unknown."""
    shape = axes.shape
    n = None if shape is None else shape[0] if shape else 1
    return n if isinstance(n, int) else None


def _some_reduced(shape: Sequence[Any], many: int | None, keepdims: int, noop: int) -> Any:
    """The shape after a reduction of `many` axes that are not known."""
    rank = len(shape)
    if many is not None and many > rank:
        raise ShapeError(f"{many} axes to reduce of rank {rank}")
    if many == rank or rank == 0 or (many is None and rank == 1 and not noop):
        return _without(shape, range(rank), keepdims)
    if keepdims:
        return tuple(bounded("reduced", maximum(d, 1), int(bool(at_least(d, 1)))) for d in shape)
    if many is None:
        return None
    greatest = maximum(*shape)
    least = int(all(at_least(d, 1) for d in shape))
    return tuple(bounded("reduced", greatest, least) for _ in range(rank - many))


for _name, _reduce in _REDUCERS.items():
    op(_name, since=1, host=True)(_by_attribute(_reduce))
    _newer = op(_name, since=13 if _name == "ReduceSum" else 18, host=True)(_by_input(_reduce))
    _newer.shape_rule(_reduced)  # because axes that are not known still leave a rank

# positions ----------------------------------------------------------------------------------------


def _position(x: Any, axis: int, keepdims: int, last: int, name: str) -> Any:
    """Where the extreme along an axis is: the first, or the last of several."""
    xp, axis = namespace(x), axis_of(axis, x.ndim)
    found = getattr(xp, name)(xp.flip(x, axis) if last else x, axis)
    found = found.astype(canonical("int64", x))
    if last:
        found = size_along(x.astype(found.dtype), (axis,)) - 1 - found
    return xp.expand_dims(found, axis) if keepdims else found


def _arg_1(name: str) -> Callable[..., Any]:
    def apply(x, /, *, axis=0, keepdims=1):
        return _position(x, axis, keepdims, 0, name)

    apply.__doc__ = f"Find `{name}` along an axis of x (*D) -> int64 (*D), the axis 1 or gone."
    return apply


def _arg_12(name: str) -> Callable[..., Any]:
    def apply(x, /, *, axis=0, keepdims=1, select_last_index=0):
        return _position(x, axis, keepdims, select_last_index, name)

    apply.__doc__ = f"Find `{name}` along an axis of x (*D) -> int64 (*D), the axis 1 or gone."
    return apply


def _position_type(x, /, *, axis=0, keepdims=1, select_last_index=0):
    return TensorType("int64", _without(x.shape, (axis_of(axis, x.ndim),), keepdims))


for _name, _function in (("ArgMax", "argmax"), ("ArgMin", "argmin")):
    # rules, because JAX looks for no extreme along an axis that may be empty
    op(_name, since=1, host=True)(_arg_1(_function)).shape_rule(_position_type)
    op(_name, since=12, host=True)(_arg_12(_function)).shape_rule(_position_type)

# running totals -----------------------------------------------------------------------------------


@widened
def _running(x: Any, axis: int, exclusive: int, reverse: int, name: str, start: int) -> Any:
    xp = namespace(x)
    n = x.shape[axis]
    x = xp.flip(x, axis) if reverse else x
    if exclusive:  # one place later, the last element dropped: an empty axis stays empty
        first = xp.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), start, x.dtype)
        x = xp.concatenate([first, x], axis)[(slice(None),) * axis + (slice(0, n),)]
    x = getattr(xp, name)(x, axis=axis, dtype=x.dtype)
    return xp.flip(x, axis) if reverse else x


@op("CumSum", since=11, host=True)
def cumsum(x, axis: Static, /, *, exclusive=0, reverse=0):
    """Add up x (*D) along axis () -> (*D)."""
    return _running(x, _scan_axis(axis, x.ndim), exclusive, reverse, "cumsum", 0)


@op("CumProd", since=26, host=True)
def cumprod(x, axis: Static, /, *, exclusive=0, reverse=0):
    """Multiply up x (*D) along axis () -> (*D)."""
    return _running(x, _scan_axis(axis, x.ndim), exclusive, reverse, "cumprod", 1)


def _scan_axis(axis: Any, rank: int) -> int:
    return axis_of(int(scalar(axis, "axis")), rank)


@cumsum.shape_rule(rankless=True)  # because the shape is that of x, whichever axis it is
@cumprod.shape_rule(rankless=True)
def _(x, axis, /, *, exclusive=0, reverse=0):
    if isinstance(axis, np.ndarray) and x.shape is not None:
        _scan_axis(axis, x.ndim)
    return TensorType(x.dtype, x.shape)
