"""Operators that cut windows out of a tensor: Slice, Split.

A window along an axis is where it begins, how many elements it takes, and the step. A slice clamps,
so its size is a formula of max and min; they are drawn outward until one max(0, min(...)) is left,
which is short, and exact at every size. Only where a bound may count from either end is the size a
count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._dim import Dim, Undecided, ceildiv, maximum, minimum
from .._error import ShapeError
from .._facts import at_least, count, divisible, element, equal, same
from .._facts import bound as limits
from .._host import is_host, namespace
from .._op import Static, op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._axes import axes_in, counted, integers, numbers
from ._static import axis_of, replaced

FEW = 32  # sizes tried one by one
FAR = 10**9  # sizes stay below: a bound from there on is an end of the axis


class Window(NamedTuple):
    """A part of one axis; `begin` is None where no formula tells it."""

    begin: Any
    size: Any
    step: int = 1


def cut(data: Any, windows: Mapping[int, Window]) -> Any:
    """The part of an array that lies in a window along each of some axes."""
    index: list[Any] = [slice(None)] * data.ndim
    symbolic: list[int] = []
    for axis, (begin, size, step) in windows.items():
        if isinstance(data.shape[axis], int) and numbers(begin, size) and begin is not None:
            stop = begin + size * step
            index[axis] = slice(begin, None if stop < 0 else stop, step) if size else slice(0, 0)
        else:
            symbolic.append(axis)
    data = data[tuple(index)]
    for axis in symbolic:
        data = _taken(data, axis, windows[axis])
    return data


def _taken(data: Any, axis: int, window: Window) -> Any:
    """A window whose bounds are symbols to JAX, which could not prove that they fit."""
    xp = namespace(data)
    if window.begin is None or xp.__name__ == "numpy":
        raise Undecided("where a slice begins")
    place = to_export(window.begin) + window.step * xp.arange(to_export(window.size))
    return xp.take(data, place, axis, mode="clip")


# Slice ------------------------------------------------------------------------------------------


def slice_window(n: Any, start: Any, end: Any, step: Any) -> Window:
    """The window that ONNX's start, end and step mean on an axis of size n."""
    if isinstance(step, Dim):
        return Window(None, count("Slice_size", 0, n))
    if step == 0:
        raise ShapeError("a step is 0")
    window = _window(n, start, end, step)
    if window is not None:
        return window
    most = n
    if step > 0 and at_least(end - start, 0):  # whichever end they count from
        most = minimum(n, end - start)
    return Window(None, count("Slice_size", 0, ceildiv(most, abs(step))), step)


def _window(n: Any, start: Any, end: Any, step: int) -> Window | None:
    """The window where it is known, or does not matter, from which end the bounds count."""
    from_front, to_front = at_least(start, 0), at_least(end, 0)
    if from_front is not None and to_front is not None:
        begin, length = (_forward if step > 0 else _backward)(n, start, from_front, end, to_front)
        return Window(begin, ceildiv(length, abs(step)), step)
    undecided = [v for v, front in ((start, from_front), (end, to_front)) if front is None]
    exceptions = [case for v in undecided for case in _negative(v)]
    if step < 0 or None in exceptions:
        return None
    # a bound such as S - 2 is negative at a few sizes: does what holds elsewhere hold there too?
    begin, length = _forward(n, start, from_front is not False, end, to_front is not False)
    length = length if at_least(n, length) else minimum(length, n)
    guess = Window(maximum(begin, 0), ceildiv(length, step), step)
    for case in exceptions:
        window = _window(_at(n, case), _at(start, case), _at(end, case), step)
        if window is None or not equal(_at(guess.size, case), window.size):
            return None
        if not equal(_at(guess.begin, case), window.begin):
            return None
    return guess


def _negative(bound: Dim) -> list[tuple[Dim, int] | None]:
    """The sizes of its one symbol at which a bound is negative; [None] unless they are few."""
    symbol = next(iter(bound.symbols))
    least = limits(symbol)[0]
    for k in range(FEW if least is not None and len(bound.symbols) == 1 else 0):
        if at_least(bound.substitute({symbol: symbol + k}), 0):
            return [(symbol, least + i) for i in range(k)]  # type: ignore[operator]
    return [None]


def _at(x: Any, case: tuple[Dim, int] | None) -> Any:
    return x.substitute(dict([case])) if isinstance(x, Dim) and case else x


def _forward(n: Any, start: Any, from_front: bool, end: Any, to_front: bool) -> tuple[Any, Any]:
    # with the end in [.., n], clamping the start to n or the end to 0 changes no size that is not 0
    if _far(start):
        begins = [n] if from_front else [0]
    else:
        begins = [start] if from_front else [n + start, 0]
    if _far(end):
        ends = [n] if to_front else [0]
    else:
        ends = [end, n] if to_front else [n + end]
    return minimum(maximum(*begins), n), _positive([e - b for e in ends for b in begins])


def _backward(n: Any, start: Any, from_front: bool, end: Any, to_front: bool) -> tuple[Any, Any]:
    # the start is clamped to [0, n - 1], the end to [-1, n - 1], which changes nothing at the top
    if from_front:
        begins = [n - 1] if _far(start) else [start, n - 1]
    else:
        begins = [maximum(0 if _far(start) else n + start, 0)]
        if not at_least(n, 1):
            begins.append(n - 1)
        elif not (to_front or _far(start) or _far(end)) and at_least(start - end, 1):
            return begins[0], minimum(start - end, maximum(n + start + 1, 1))
    if to_front:
        ends = [end]
    else:
        ends = [-1] if _far(end) else [n + end, -1]
    return minimum(*begins), _positive([b - e for b in begins for e in ends])


def _far(bound: Any) -> bool:
    return not isinstance(bound, Dim) and abs(bound) >= FAR


def _positive(lengths: Sequence[Any]) -> Any:
    """max(0, min(lengths))."""
    return maximum(0, minimum(*lengths))


def slice_windows(
    shape: Sequence[Any],
    starts: Sequence[Any],
    ends: Sequence[Any],
    axes: Sequence[Any] | None,
    steps: Sequence[Any] | None,
) -> dict[int, Window]:
    """The window of each axis from which something is cut off."""
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        lengths = f"{len(starts)}, {len(ends)}, {len(axes)} and {len(steps)}"
        raise ShapeError(f"starts, ends, axes and steps have {lengths} elements, want as many each")
    rows = zip(axes_in(axes, len(shape)), starts, ends, steps, strict=True)
    windows = {axis: slice_window(shape[axis], start, end, step) for axis, start, end, step in rows}
    return {axis: w for axis, w in windows.items() if w != Window(0, shape[axis])}


@op("Slice", since=1, host=True)
def slice_1(data, /, *, starts, ends, axes=None):
    """Take from data (*D) the elements from starts to ends along axes."""
    return slice_10(data, starts, ends, axes)


@op("Slice", since=10, host=True)
def slice_10(data, starts: Static, ends: Static, axes: Static = None, steps: Static = None, /):
    """Take of data (*D) each steps-th element from starts to ends along axes; all (n,), clamped."""
    starts, ends, axes, steps = _operands(starts, ends, axes, steps)
    return cut(data, slice_windows(hostdims(data.shape), starts, ends, axes, steps))


def _operands(starts: Any, ends: Any, axes: Any, steps: Any) -> list[Any]:
    given = {"start": starts, "end": ends, "axis": axes, "step": steps}
    return [integers(operand, stem) for stem, operand in given.items()]


@slice_10.shape_rule  # because JAX cannot clamp symbolic sizes, and bounds may be unknown
def _slice_type(data, starts, ends, axes=None, steps=None, /):
    given = starts, ends, axes, steps
    lists = _operands(*given)
    length = next((len(x) for x in lists if x is not None), None)
    if length is None or (axes is not None and (lists[2] is None or not numbers(*lists[2]))):
        return TensorType(data.dtype, tuple([count("Slice_size", 0, d) for d in data.shape]))
    for i, operand in enumerate(given):
        if operand is not None and lists[i] is None:
            lists[i] = [element("bound") for _ in range(length)]
    shape = list(data.shape)
    for axis, window in slice_windows(shape, *lists).items():  # type: ignore[arg-type]
        shape[axis] = window.size
    return TensorType(data.dtype, tuple(shape))


@slice_1.shape_rule  # because JAX cannot clamp symbolic sizes
def _(data, /, *, starts, ends, axes=None):
    return _slice_type(data, starts, ends, axes)


# Split ------------------------------------------------------------------------------------------


def part_sizes(n: Any, sizes: Sequence[Any] | None, parts: int, uneven: bool) -> list[Any]:
    """The sizes into which n is split: those given, or equal ones, the last smaller if `uneven`."""
    if sizes is not None:
        if len(sizes) != parts:
            raise ShapeError(f"split has {len(sizes)} sizes for {parts} outputs")
        same(sum(counted(s, "a size in split") for s in sizes), n, "the sum of split and the axis")
        return list(sizes)
    if not uneven:
        divisible(n, parts, f"the axis and {parts} equal parts")
        return [n // parts] * parts
    size = ceildiv(n, parts)
    last = n // 2 if parts == 2 else n - size * (parts - 1)
    return [size] * (parts - 1) + [counted(last, f"the last of {parts} parts of {size}")]


def _parts(
    x: Any, split: Any, axis: int, n_outputs: int, num_outputs: int | None, uneven: bool
) -> Any:
    """The parts of a type or an array."""
    if num_outputs is not None and (split is not None or num_outputs != n_outputs):
        wrong = "split is given too" if split is not None else f"there are {n_outputs} outputs"
        raise ShapeError(f"num_outputs is {num_outputs}, but {wrong}")
    typed = isinstance(x, TensorType)
    shape: Any = x.shape if typed else hostdims(x.shape)
    axis = axis_of(axis, len(shape))
    sizes = integers(split, "split")
    if split is not None and sizes is None:
        sizes = [count("Split_size", 0, shape[axis]) for _ in range(n_outputs)]
    sizes = part_sizes(shape[axis], sizes, n_outputs, uneven)
    if typed:
        return tuple([TensorType(x.dtype, replaced(shape, axis, size)) for size in sizes])
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple([cut(x, {axis: Window(b, s)}) for b, s in zip(begins, sizes, strict=True)])


@op("Split", since=1, host=True)
def split_1(input, sizes: Static = None, /, *, axis=None, split=None, n_outputs=1):
    """Split input (*D) along axis into parts of the sizes given (n,), or equal ones."""
    if sizes is not None and is_host(sizes):
        sizes = sizes.astype("int64")  # they are of the dtype of input, floats as a rule
    return _parts(input, split if sizes is None else sizes, axis or 0, n_outputs, None, False)


@op("Split", since=2, host=True)
def split_2(input, /, *, axis=0, split=None, n_outputs=1):
    """Split input (*D) along axis into parts of the sizes in split, or equal ones."""
    return _parts(input, split, axis, n_outputs, None, False)


@op("Split", since=13, host=True)
def split_13(input, split: Static = None, /, *, axis=0, n_outputs=1):
    """Split input (*D) along axis into parts of the sizes in split (n,), or equal ones."""
    return _parts(input, split, axis, n_outputs, None, False)


@op("Split", since=18, host=True)
def split_18(input, split: Static = None, /, *, axis=0, num_outputs=None, n_outputs=1):
    """Split input (*D) along axis by split (n,), or into num_outputs, the last of them smaller."""
    return _parts(input, split, axis, n_outputs, num_outputs, True)


for _split in (split_1, split_2, split_13, split_18):
    _split.shape_rule(_split.function)  # because JAX cannot divide sizes, and split may be unknown
