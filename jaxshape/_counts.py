"""Sizes that are data: symbols while a lowering is traced, traced integers when it is evaluated.

Each count of one call is a placeholder of `_symbol.py`; here is what stands behind it: its value on
the device and its greatest value, the bound, at which arrays are made. An array of counted sizes
(`Counted`) holds zeros beyond them. So a formula in counts has three readings: a dim (to decide
what can be decided), a traced integer (`size`), and a number (`top`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from . import _facts
from ._device import canonical
from ._dim import Dim, Undecided, interval, symbol
from ._error import UnsupportedError
from ._facts import Facts
from ._symbol import _placeholder as placeholder
from ._symbol import from_export, hostdims, to_export


class SizeIsData(UnsupportedError):
    """The size of a result depends on values that are not known while tracing."""


class Counted:
    """An array of which some sizes are formulas in counts: at their bounds, zeros beyond them."""

    __slots__ = ("array", "dims")

    def __init__(self, array: Any, dims: tuple[Any, ...]):
        self.array, self.dims = array, dims

    dtype = property(lambda self: self.array.dtype)
    shape = property(lambda self: self.dims)
    ndim = property(lambda self: len(self.dims))


class Counts(Facts):
    """The counts of one call, and what the model demands of them.

    `bounds` are the caller's, by name of value; `results` the names of what is being computed.
    """

    def __init__(self, bounds: Mapping[str, int]):
        super().__init__()
        self.bounds, self.used = dict(bounds), set[str]()
        self.results: tuple[str, ...] = ()
        self.values: dict[str, Any] = {}  # by name of placeholder
        self.tops: dict[str, int] = {}
        self.flags: list[Any] = []  # traced: a count passed its bound
        self.tracing = False
        self._index = 0
        self._top_of: dict[Dim, int] = {}
        self._found: dict[Any, Any] = {}  # sizes and masks, traced

    @contextlib.contextmanager
    def apart(self) -> Iterator[list[Any]]:
        """A trace of its own, as of a loop's body: what is found in it does not outlive it.

        Gives the flags raised in it.
        """
        before = self.values, self.flags, self._found
        self.values, self.flags, self._found = dict(self.values), [], dict(self._found)
        try:
            yield self.flags
        finally:
            self.values, self.flags, self._found = before

    # counts -------------------------------------------------------------------------------------

    def mint(self, most: int, value: Any = None, least: int = 0) -> Dim:
        """A new count up to a bound; its value may come later (`give`)."""
        made = placeholder(self._index, least)[0]
        self._index += 1
        self.tops[made.name] = most
        self._world.fresh.add(made._symbol())
        if value is not None:
            self.give(made, value)
        return made

    def give(self, count: Dim, value: Any) -> None:
        """The value of a count. One beyond the bound is clamped, and noted."""
        value = jnp.asarray(value).astype(canonical("int64"))
        most = self.tops[count.name]
        if isinstance(most, int):
            self.values[count.name] = jnp.minimum(value, most)

    def positive(self, count: Dim) -> Dim:
        """A stand-in for a count that is taken to be at least 1."""
        made = placeholder(int(count.name[1:]), 1)[0]
        self.tops[made.name] = self.tops[count.name]
        self.values[made.name] = self.values[count.name]
        return made

    def limit(self, most: int) -> int:
        """The bound of what is being computed: the caller's, where that is less."""
        given = [name for name in self.results if name in self.bounds]
        self.used.update(given)
        return min([most, *[self.bounds[name] for name in given]])

    def top(self, d: Any) -> int:
        """The greatest value of a size: the bound, at which arrays are made."""
        if not isinstance(d, Dim):
            return int(d)
        if d not in self._top_of:
            try:
                limits = {s: symbol(f"b{s.name}", 0, self.tops[s.name]) for s in d.symbols}
            except KeyError:
                raise UnsupportedError(f"no bound is known for the size {d}") from None
            high = interval(d.substitute(limits))[1] if limits else d
            if high == math.inf:
                raise UnsupportedError(f"no bound is known for the size {d}")
            self._top_of[d] = max(0, math.floor(high))
        return self._top_of[d]

    def tops_of(self, dims: Iterable[Any]) -> tuple[int, ...]:
        return tuple([self.top(d) for d in dims])

    def size(self, d: Any) -> Any:
        """The size as a traced integer, a number where it is one; never below 0."""
        if not isinstance(d, Dim):
            return int(d)
        if d not in self._found:
            number = self.number(d)
            self._found[d] = number if d.is_symbol else jnp.maximum(number, 0)
        return self._found[d]

    def number(self, d: Any) -> Any:
        """The value of a formula, which may be negative."""
        if not isinstance(d, Dim):
            return int(d)
        if missing := [s.name for s in d.symbols if s.name not in self.values]:
            raise UnsupportedError(f"nothing tells how large {missing[0]} is")
        return d.evaluate(self.values, jnp.maximum, jnp.minimum)

    # arrays -------------------------------------------------------------------------------------

    def valid(self, dims: Sequence[Any]) -> Any:
        """Which entries of an array of these sizes are meant, at the bounds; None: all."""
        if not any(isinstance(d, Dim) for d in dims):
            return None
        key = tuple(dims)
        if key not in self._found:
            self._found[key] = self._valid(key)
        return self._found[key]

    def _valid(self, dims: Sequence[Any]) -> Any:
        shape, found = self.tops_of(dims), None
        for axis, d in enumerate(dims):
            if isinstance(d, Dim):
                place = lax.broadcasted_iota(canonical("int64"), shape, axis)
                inside = place < self.size(d)
                found = inside if found is None else found & inside
        return found

    def masked(self, array: Any, dims: Sequence[Any], fill: Any = None) -> Any:
        """The array with zeros, or something else, beyond the counts.

        By `where`: what a gradient would carry back from there is cut off, NaN or not.
        """
        valid = self.valid(dims)
        if valid is None:
            return array
        if fill is None:
            return jnp.where(valid, array, jnp.zeros_like(array))
        return jnp.where(valid, array, jnp.full_like(array, fill))

    def conform(self, array: Any, dims: Sequence[Any]) -> Any:
        """The array cut, or filled up with zeros, to the bounds of these sizes."""
        want = self.tops_of(dims)
        if array.shape == want:
            return array
        array = array[tuple([slice(0, n) for n in want])]
        pads = [(0, n - m) for n, m in zip(want, array.shape, strict=True)]
        return jnp.pad(array, pads) if any(p for _, p in pads) else array

    def element(self, stem: str) -> Dim:
        raise Undecided("an integer that only the data tells")

    def count(self, stem: str, least: Any = 0, most: Any = None) -> Any:
        raise Undecided("a size that only the data tells")

    def broadcast(self, *dims: Any, why: str = "") -> Any:
        """As ever; where either of two counts may be 1, the result is a count of its own."""
        try:
            return super().broadcast(*dims, why=why)
        except Undecided:
            most, value = 1, jnp.asarray(1)
            for d in dims:
                most, value = max(most, self.top(d)), jnp.where(value == 1, self.size(d), value)
            return self.mint(most, value)

    # what a lowering asks for under `make_jaxpr` ------------------------------------------------

    def refit(self, x: Any, shape: Sequence[Any]) -> Any:
        """x under the sizes that it was agreed to have."""
        return refit_p.bind(x, shape=tuple([to_export(d) for d in shape]))

    def nonzero(self, mask: Any, least: int = 0) -> list[Any]:
        """Where mask (*D) is true, in row-major order: for each axis the indices (count,)."""
        most = self.limit(math.prod(self.top(d) for d in hostdims(mask.shape)))
        return nonzero_p.bind(mask, size=to_export(self.mint(most, least=least)))


def counting() -> Counts | None:
    """The counts of the call under way, if there is one that is bounded."""
    facts = _facts.current()
    return facts if isinstance(facts, Counts) else None


@contextlib.contextmanager
def under_way() -> Iterator[None]:
    """While a lowering is traced: what makes a count may leave its value to be found later."""
    counts = counting()
    before = counts.tracing if counts else False
    try:
        if counts:
            counts.tracing = True
        yield
    finally:
        if counts:
            counts.tracing = before


refit_p = Primitive("refit")
refit_p.def_abstract_eval(lambda x, *, shape: ShapedArray(shape, x.dtype))
nonzero_p = Primitive("nonzero")
nonzero_p.multiple_results = True


@nonzero_p.def_abstract_eval
def _(mask: Any, *, size: Any) -> list[Any]:
    return [ShapedArray((size,), canonical("int64"))] * mask.ndim


def find(counts: Counts, mask: Any, size: Any) -> list[Any]:
    """What `nonzero_p` means: the indices at the bound, and the count, which is given its value."""
    count = from_export(size)
    most = counts.tops[count.name]
    found = jnp.sum(mask, dtype=canonical("int64"))
    counts.give(count, found)
    if most < math.prod(mask.shape):
        counts.flags.append(found > most)
    indices = jnp.nonzero(mask, size=most, fill_value=0)
    return [i.astype(canonical("int64")) for i in indices]


def zeros_like_of(counts: Counts, dims: Sequence[Any], dtype: Any) -> Any:
    """Zeros at the bounds of these sizes."""
    return jnp.zeros(counts.tops_of(dims), np.dtype(dtype))
