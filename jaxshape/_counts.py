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

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive, get_opaque_trace_state

from . import _facts
from ._device import canonical
from ._dim import Dim, Undecided, interval, symbol
from ._error import UnsupportedError
from ._facts import Facts
from ._host import DimArray
from ._relation import Relation
from ._symbol import _placeholder as placeholder
from ._symbol import from_export, hostdims, to_export


class SizeIsData(UnsupportedError):
    """The size of a result depends on values that are not known while tracing."""


@jax.tree_util.register_pytree_node_class
class Counted:
    """An array of which some sizes are formulas in counts: at their bounds, zeros beyond them."""

    __slots__ = ("array", "dims")

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Any, ...]]:
        return (self.array,), self.dims

    @classmethod
    def tree_unflatten(cls, dims: tuple[Any, ...], arrays: Sequence[Any]) -> Counted:
        return cls(arrays[0], dims)

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
        self.demands: dict[tuple[Any, ...], None] = {}
        self.tracing = False
        self.place = get_opaque_trace_state()  # the trace in which values are found
        self._index = 0
        self._top_of: dict[Dim, int] = {}
        self._found: dict[Any, Any] = {}  # sizes and masks, traced

    @contextlib.contextmanager
    def apart(self) -> Iterator[list[Any]]:
        """A trace of its own, as of a loop's body: what is found in it does not outlive it.

        Gives the flags raised in it.
        """
        before = self.values, self.flags, self._found, self.place
        demands = self.snapshot()
        self.values, self.flags, self._found = dict(self.values), [], dict(self._found)
        self.place = get_opaque_trace_state()
        try:
            yield self.flags
        finally:
            self.values, self.flags, self._found, self.place = before
            self.restore(demands)

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

    def positive(self, count: Dim) -> tuple[Any, Dim, Any]:
        """A formula for a count that is taken to be at least 1, or what else is demanded of it; the
        symbol in it, and that as a formula in the count.
        """
        low = max(self.bound(count)[0] or 0, 1)
        made = placeholder(int(count.name[1:]), 1)[0]
        self.tops[made.name] = max(self.tops[count.name] - (low - 1), 0)
        self.values[made.name] = self.values[count.name] - (low - 1)
        return made + (low - 1), made, count - (low - 1)

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

    # what the model demands of counts ------------------------------------------------------------

    def same(self, a: Any, b: Any, why: str = "") -> Any:
        if a is not b and self.equal(a, b) is None:
            self.demands[("==", a, b)] = None
        return super().same(a, b, why)

    def least(self, d: Any, k: Any, why: str = "") -> None:
        if self.at_least(d, k) is None:
            self.demands[(">=", d, k)] = None
        return super().least(d, k, why)

    def divisible(self, d: Any, k: Any, why: str = "") -> None:
        self.demands[("%", d, k)] = None
        return super().divisible(d, k, why)

    def broadcast(self, *dims: Any, why: str = "") -> Any:
        """As ever; where either of two counts may be 1, the result is a count of its own."""
        sizes = {d for d in dims if isinstance(d, Dim) or d != 1}
        if len(sizes) > 1:
            self.demands[("broadcast", *dims)] = None
        try:
            return super().broadcast(*dims, why=why)
        except Undecided:
            return self.mint(max(map(self.top, sizes)), self._broadcast(dims))

    def _broadcast(self, dims: Iterable[Any]) -> Any:
        result = jnp.asarray(1)
        for d in dims:
            result = jnp.where(result == 1, self.size(d), result)
        return result

    def snapshot(self) -> Any:
        state = super().snapshot()
        state.wanted = dict(self.demands)
        return state

    def restore(self, before: Any) -> None:
        self.demands = dict(before.wanted)
        super().restore(before)

    def violated(self) -> list[Any]:
        """For each demand on counts whether it does not hold, traced."""
        return [~self._satisfied(*demand) for demand in self.demands]

    def _satisfied(self, kind: str, *dims: Any) -> Any:
        """Whether a demand holds."""
        if kind == "broadcast":
            result = self._broadcast(dims)
            sizes = jnp.stack([jnp.asarray(self.size(d)) for d in dims])
            return jnp.all((sizes == 1) | (sizes == result))
        left, right = [jnp.asarray(self.number(d)) for d in dims]
        if kind == "%":
            return left % jnp.maximum(right, 1) == 0
        return left == right if kind == "==" else left >= right

    # values --------------------------------------------------------------------------------------

    def truth(self, x: Any) -> Any:
        """The value of a relation between formulas."""
        if not isinstance(x, Relation):
            return self.number(x)
        if x.kind == "not":
            return ~jnp.asarray(self.truth(x.left))
        left, right = self.truth(x.left), self.truth(x.right)
        if x.kind in ("and", "or"):
            return left & right if x.kind == "and" else left | right
        return left == right if x.kind == "==" else left >= right

    def on_device(self, x: DimArray) -> Any:
        """A host array of formulas as numbers on the device."""
        dtype = canonical(x.dtype)
        found = [jnp.asarray(self.truth(e)).astype(dtype) for e in x.elements.ravel()]
        return jnp.reshape(jnp.stack(found), x.shape)

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
