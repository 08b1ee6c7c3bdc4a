"""Formulas at many sizes at once: what a sweep computes with.

A grid has one axis for each size (or one in all), sizes are arrays that broadcast to it, and so is
what formulas give: no formula is evaluated along an axis that it does not mention.  Numbers are
int64 where all that is met on the way provably fits, Python's otherwise.  Where a formula divides
by 0 or gives no integer, its value is masked.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._dim import Dim, Scalar
from ._evaluate import Evaluator, peak
from ._require import Requirement
from ._tensor import bits_of
from ._value import STRING, TensorType

_BLOCK = 1 << 17  # bindings at a time, where the bytes of everything are wanted
_KEPT = 1 << 28  # bytes of evaluated formulas that are kept for later questions
_EXACT = 1 << 62  # int64 holds what stays below

# a product of sizes: formulas, a number, and the bits of one element
Term = tuple[tuple[Dim, ...], int, int]


class Block:
    """Formulas at the bindings of a part of the grid, as arrays that broadcast to its shape."""

    def __init__(self, given: Mapping[str, np.ndarray], derived: dict[str, Scalar]):
        self._given, self._derived = given, derived
        self._shape = np.broadcast_shapes(*[v.shape for v in given.values()])
        self._values: dict[str, Any] = dict(given)
        self._plain = Evaluator(given)

    def __call__(self, d: Scalar) -> Any:
        if type(d) is not Dim:
            return np.asarray(d)
        self._provide(d.symbols)
        if self._plain.nbytes > _KEPT:
            self._plain = Evaluator(self._values)
        try:
            found = self._plain(d)
        except ZeroDivisionError:
            with np.errstate(all="ignore"):
                found = Evaluator(self._maskable())(d)
        return _whole(np.ma.array(found)) if found.dtype == object else found

    def holds(self, requirement: Requirement) -> np.ndarray:
        """Whether a requirement holds; a formula that divides by 0 holds nowhere."""
        self._provide(requirement.symbols)
        try:
            found = requirement.holds(self._values)
        except ZeroDivisionError:
            with np.errstate(all="ignore"):
                found = requirement.holds(self._maskable())
        return np.asarray(np.ma.filled(found, False), bool)

    def total(self, terms: Mapping[Term, int]) -> np.ma.MaskedArray:
        """The sum of the terms at each binding of the block."""
        columns = {d: np.ma.array(self(d)) for dims, *_ in terms for d in dims}
        peaks = {d: max(peak(np.ma.getdata(v)), 1) for d, v in columns.items()}
        most = sum(
            n * k * bits * math.prod([peaks[d] for d in dims])
            for (dims, k, bits), n in terms.items()
        )
        kind: Any = np.int64 if most < _EXACT else object
        mask = np.zeros(self._shape, bool)
        for v in columns.values():
            mask |= np.ma.getmaskarray(v)
        plain = {d: np.ma.getdata(v).astype(kind) for d, v in columns.items()}
        parts: dict[tuple[int, ...], Any] = {}  # by shape: what has few axes is added up first
        for (dims, k, bits), n in terms.items():
            sizes = sorted([plain[d] for d in dims], key=lambda v: v.size)
            product = math.prod(sizes, start=np.asarray(k if bits != 8 else n, kind))
            if bits != 8:
                product = -(-product * bits // 8) * n
            axes = np.shape(product)
            parts[axes] = parts.get(axes, 0) + product
        total = np.zeros(self._shape, kind)
        for product in parts.values():
            total = total + product
        return np.ma.array(total, mask=mask)

    def _provide(self, symbols: Iterable[Dim]) -> None:
        """Give derived symbols their values, where these are wanted."""
        wanted = {s.name for s in symbols} - self._values.keys()
        if not wanted:
            return
        for name, formula in reversed(self._derived.items()):
            if name in wanted:
                wanted |= {s.name for s in symbols_of(formula)}
        for name, formula in self._derived.items():
            if name in wanted and name not in self._values:
                self._values[name] = self(formula)
                self._plain.set(name, self._values[name])

    def _maskable(self) -> dict[str, Any]:
        return {name: np.ma.array(v) for name, v in self._values.items()}


def symbols_of(d: Scalar) -> frozenset[Dim]:
    return d.symbols if type(d) is Dim else frozenset()


def dims_of(t: TensorType) -> list[Dim]:
    return [d for d in t.shape or () if type(d) is Dim]


def terms_of(types: Iterable[TensorType], bits: int | None = None) -> Counter[Term] | None:
    """The products of sizes whose sum is the bytes of these types; None where that is not known."""
    found: Counter[Term] = Counter()
    for t in types:
        if bits is None and t.dtype in (None, STRING):
            return None
        each = bits or bits_of(t.dtype)  # type: ignore[arg-type]
        dims = tuple(sorted(dims_of(t), key=str))
        k = math.prod([d for d in t.shape or () if type(d) is int])
        if each % 8:
            found[dims, k, each] += 1  # the last byte may be shared: not simply a multiple
        else:
            found[dims, 1, 8] += k * each // 8
    return found


def places(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The grid in parts of bearable size."""
    left, steps = _BLOCK, []
    for n in reversed(shape):
        steps.append(max(1, min(n, left)))
        left //= steps[-1]
    starts = [range(0, n, step) for n, step in zip(shape, reversed(steps), strict=True)]
    for corner in itertools.product(*starts):
        ends = map(operator.add, corner, reversed(steps))
        yield tuple([slice(a, b) for a, b in zip(corner, ends, strict=True)])


def part_of(array: np.ndarray, place: tuple[slice, ...]) -> np.ndarray:
    """The part of an array that broadcasts to the grid."""
    axes = zip(place, array.shape, strict=True)
    return array[tuple([slice(None) if n == 1 else s for s, n in axes])]


def _whole(array: np.ma.MaskedArray) -> np.ma.MaskedArray:
    """Python numbers as int64 where it holds them; what is no integer (no size) masked."""
    flat = np.ma.getdata(array).reshape(-1)
    odd = np.array([not isinstance(v, int) for v in flat], bool)
    mask = np.ma.getmaskarray(array) | odd.reshape(array.shape)
    flat = np.where(odd | np.ma.getmaskarray(array).reshape(-1), 0, flat)
    small = all(abs(v) < _EXACT for v in flat)
    return np.ma.array(flat.astype(np.int64 if small else object).reshape(array.shape), mask=mask)


def masked(data: np.ndarray, mask: np.ndarray | None = None) -> np.ma.MaskedArray:
    """An array to be given out; what is masked holds -1, in case someone looks."""
    if mask is None or not mask.any():
        data.flags.writeable = False
        return np.ma.array(data, fill_value=-1)
    data[mask] = -1
    data.flags.writeable = False
    return np.ma.array(data, mask=mask, fill_value=-1)
