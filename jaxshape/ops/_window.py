"""Sliding windows over spatial axes: the size formulas that convolutions and pools share.

Invariant: a `Window` is checked when made: as many sizes, strides and dilations as there are
spatial axes, all positive, and a pair of pads for each axis. Sizes are in our dims (ints where they
are numbers), so tracing and running compute with the same lines; what must hold is demanded there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .. import _facts
from .._dim import ceildiv, maximum, minimum
from .._error import ShapeError
from .._symbol import to_export
from ._agree import ranked

Dims = Sequence[Any]  # of int and Dim
Pads = list[tuple[Any, Any]]  # before and after each axis

_AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


class Window(NamedTuple):
    """A window on n spatial axes: its sizes, and how it moves."""

    kernel: tuple[Any, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    auto_pad: str
    ceil: bool

    @property
    def spans(self) -> tuple[Any, ...]:
        """How far the dilated window reaches on each axis."""
        return tuple([d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)])

    @property
    def taps(self) -> int:
        """How many elements a window has."""
        return math.prod(self.kernel)

    @property
    def same(self) -> bool:
        """Whether the pads follow from the input's sizes."""
        return self.auto_pad.startswith("SAME")


def window(
    kernel: Dims,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Window:
    """The window that these attributes describe; None and () stand for their defaults."""
    n = len(kernel)
    auto_pad = auto_pad or "NOTSET"  # some exporters write ""
    if auto_pad not in _AUTO:
        raise ShapeError(f"auto_pad is {auto_pad!r}, wants one of {', '.join(_AUTO)}")
    for k in kernel:
        if isinstance(k, int) and k < 1:
            raise ShapeError(f"kernel_shape {tuple(kernel)} must be positive")
    strides = per_axis("strides", strides, n, 1)
    dilations = per_axis("dilations", dilations, n, 1)
    pads = tuple(pads or (0,) * 2 * n)
    if len(pads) != 2 * n:
        raise ShapeError(
            f"pads {pads} has {len(pads)} values, wants {2 * n}: before and after {n} spatial axes"
        )
    if auto_pad != "NOTSET":
        pads = (0,) * 2 * n  # the standard forbids both; runtimes follow auto_pad
    return Window(
        tuple(kernel),
        strides,
        dilations,
        tuple(zip(pads[:n], pads[n:], strict=True)),
        auto_pad,
        bool(ceil_mode),
    )


def per_axis(name: str, values: Any, n: int, least: int) -> tuple[int, ...]:
    """An attribute with one value for each spatial axis; `least` is its default and lower bound."""
    values = tuple(values or (least,) * n)
    if len(values) != n:
        raise ShapeError(
            f"{name} {values} has {len(values)} values, wants {n}: one for each spatial axis"
        )
    if min(values, default=least) < least:
        raise ShapeError(f"{name} {values} must be {'positive' if least else 'non-negative'}")
    return values


def spatial(name: str, shape: Dims, n: int | None = None) -> Dims:
    """The spatial sizes *D of a shape (N, C, *D), where n of them are wanted."""
    ranked(name, shape, *([] if n is None else [n + 2]), least=3)
    return shape[2:]


def sizes(w: Window, space: Dims) -> tuple[Any, ...]:
    """How many windows fit along each axis of *D."""
    return tuple([_size(w, i, d) for i, d in enumerate(space)])


def _size(w: Window, i: int, d: Any) -> Any:
    stride, span, (before, after) = w.strides[i], w.spans[i], w.pads[i]
    if w.same:
        return ceildiv(d, stride)
    why = f"axis {i + 2} padded by {before} and {after} must hold a window of {span}"
    if not w.ceil:
        _facts.least(d + before + after, span, why)
        return (d + before + after - span) // stride + 1
    _facts.least(d + before + after, span - stride + 1, why)  # or a part of one
    # one window more for what is left over, unless it starts past the data and its left pad
    return ceildiv(d + before + maximum(after - span, minimum(after - span + stride, 0)), stride)


def padding(w: Window, space: Dims, out: Dims) -> Pads:
    """The pads under which exactly `out` windows fit: as given, for SAME, or for ceil_mode."""
    return [_pads(w, i, d, o) for i, (d, o) in enumerate(zip(space, out, strict=True))]


def _pads(w: Window, i: int, d: Any, out: Any) -> tuple[Any, Any]:
    before, after = w.pads[i]
    if not (w.same or w.ceil):
        return before, after
    missing = maximum((out - 1) * w.strides[i] + w.spans[i] - d - before, 0)
    if not w.same:
        return before, missing
    half = missing // 2
    return (half, missing - half) if w.auto_pad == "SAME_UPPER" else (missing - half, half)


def exported_pads(pads: Pads) -> Pads:
    """The pads as JAX takes them."""
    return [(to_export(before), to_export(after)) for before, after in pads]


def slices(w: Window, out: Dims) -> Iterator[tuple[slice, ...]]:
    """For each element of the window, in order, the part of a padded (..., *D) that it sees."""
    for flat in range(w.taps):
        cut = []
        axes = (reversed(xs) for xs in (w.kernel, w.strides, w.dilations, out))
        for k, s, d, o in zip(*axes, strict=True):
            flat, tap = divmod(flat, k)
            cut.append(slice(tap * d, tap * d + (to_export(o) - 1) * s + 1, s))
        yield (..., *reversed(cut))  # type: ignore[misc]
