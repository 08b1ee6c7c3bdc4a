"""Every shape of a model at many sizes at once.

The sizes of a sweep are axes of a grid (one axis in all, where they go together), and a formula is
evaluated once, along no more axes than it mentions.  The bytes of all values together are a sum
over the distinct products of sizes, which are few: so a million bindings of a thousand tensors
take about a second.  Numbers are exact; where int64 would overflow they are Python's.

A binding at which the model cannot run is masked, and so is what depends on data or on a size that
was not given: nothing is computed silently from what does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._dim import Dim, Scalar, Undecided, symbol
from ._error import ShapeError, UnknownValueError, UnsupportedError
from ._grid import Block, Term, dims_of, masked, part_of, places, symbols_of, terms_of
from ._require import Requirement
from ._value import STRING, TensorType, dtype_name

if TYPE_CHECKING:
    from ._trace import Trace

_KEPT = 1 << 28  # bytes of results that are kept for values that are alike


class Sweep(Mapping[str, np.ma.MaskedArray]):
    """The shapes of a model at many bindings: a mapping from values to arrays (bindings, rank).

    Made by `Trace.sweep`.  Results are int64 arrays, one row for each binding, in the order of
    `itertools.product`.  Masked in them is what cannot be told: where the binding breaks a
    requirement or has a size below 1, and what depends on data.  The values are the tensors of
    known rank.  Arrays may be shared between values, so that they cannot be written to.

    Attributes:
      shape: how many of each size were given; of all together, where they go together.
    """

    def __init__(self, trace: Trace, sizes: Mapping[str, Any], together: bool = False):
        given = {name: _integers(name, values) for name, values in sizes.items()}
        bounds = trace.bounds
        known = [*trace.symbols, *bounds]
        for name in given:
            if name not in known:
                raise UnknownValueError(
                    f"no size is called {name!r}; there are {', '.join(known) or 'none'}"
                )
        self.shape, self._given = _grid(given, together)
        types = ((name, trace[name]) for name in trace)
        self._types: dict[str, TensorType] = {
            name: t for name, t in types if isinstance(t, TensorType) and t.shape is not None
        }
        self._others = [name for name in trace if name not in self._types]
        self._requirements = trace.requirements
        facts = trace._facts
        self._derived = _derived(self._given, self._requirements, facts.definitions)
        self._names = self._given.keys() | self._derived.keys()
        self._demands = [
            *_naturals(self._names - {d.name for d in facts.definitions}, bounds),
            *self._requirements,
            *(
                Requirement(">=", d, 0, why="no size is negative")
                for d in {d: None for t in self._types.values() for d in dims_of(t)}
                if not facts.at_least(d, 0)
            ),
        ]
        self._all = Block(self._given, self._derived)
        self._broken: dict[Requirement, np.ndarray] | None = None
        self._valid: np.ndarray | None = None
        self._kept: dict[Any, np.ma.MaskedArray] = {}

    # which bindings hold --------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of bindings."""
        return math.prod(self.shape)

    @property
    def sizes(self) -> dict[str, np.ndarray]:
        """What was given: the value of each size at each binding."""
        return {name: self._flat(v) for name, v in self._given.items()}

    @property
    def valid(self) -> np.ndarray:
        """Whether the model can run at each binding, for all that the trace knows: (bindings,)."""
        if self._valid is None:
            held = np.ones(self.shape, bool)
            for mask in self._breaks().values():
                held &= ~mask
            self._valid = held.reshape(-1)
            self._valid.flags.writeable = False
        return self._valid

    @property
    def broken(self) -> dict[Requirement, int]:
        """The requirements that bindings break, with the number of these."""
        return {r: int(self._flat(mask).sum()) for r, mask in self._breaks().items()}

    def why(self, binding: int) -> list[Requirement]:
        """The requirements that one binding breaks, by its row."""
        at = np.unravel_index(binding, self.shape)
        masks = self._breaks().items()
        return [r for r, mask in masks if np.broadcast_to(mask, self.shape)[at]]

    @property
    def unchecked(self) -> list[Requirement]:
        """The requirements about sizes that were not given."""
        return [r for r in self._requirements if not self._told(r.symbols)]

    def _breaks(self) -> dict[Requirement, np.ndarray]:
        if self._broken is None:
            checked = [(r, self._all.holds(r)) for r in self._demands if self._told(r.symbols)]
            self._broken = {r: ~held for r, held in checked if not held.all()}
        return self._broken

    def _told(self, symbols: Iterable[Dim]) -> bool:
        return all(s.name in self._names for s in symbols)

    # what they give -------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> np.ma.MaskedArray:
        """The shape of a value at each binding: (bindings, rank).

        Raises:
          UnknownValueError: the graph has no such value.
          UnsupportedError: it is no tensor, or its rank depends on data.
        """
        shape: Any = self._type(name).shape
        return self._once(shape, lambda: self._rows(shape))

    def _rows(self, shape: tuple[Any, ...]) -> np.ma.MaskedArray:
        columns = [self._column(d) for d in shape]
        wide = any(c.dtype == object for c in columns)
        found = np.empty((self.count, len(shape)), object if wide else np.int64, order="F")
        for i, column in enumerate(columns):
            self._spread(np.ma.getdata(column), found[:, i])
        bad = ~self.valid
        if not bad.any() and not any(np.ma.is_masked(c) for c in columns):
            return masked(found)
        mask = np.empty(found.shape, bool, order="F")
        for i, column in enumerate(columns):
            self._spread(np.ma.getmaskarray(column), mask[:, i])
            mask[:, i] |= bad
        return masked(found, mask)

    def _column(self, d: Scalar) -> np.ma.MaskedArray:
        told = type(d) is not Dim or self._told(d.symbols)
        return np.ma.array(self._all(d)) if told else np.ma.array(-1, mask=True)

    def elements(self, name: str) -> np.ma.MaskedArray:
        """The number of elements of a value at each binding: (bindings,)."""
        return self._sum(terms_of([self._type(name)], bits=8))

    def bytes(self, name: str) -> np.ma.MaskedArray:
        """The bytes of a value at each binding, packed as ONNX packs 4-bit types: (bindings,)."""
        return self._sum(terms_of([self._type(name)]))

    @property
    def total_bytes(self) -> np.ma.MaskedArray:
        """The bytes of all values of the graph together at each binding: inputs, weights, results.

        Each counts once, those in `unknown` do not.
        """
        unknown = set(self.unknown)
        return self._sum(terms_of(t for n, t in self._types.items() if n not in unknown))

    @property
    def unknown(self) -> list[str]:
        """The values whose bytes are known at no binding: data decides, or they are text."""
        types = self._types.items()
        return self._others + [name for name, t in types if not self._told_bytes(t)]

    def _told_bytes(self, t: TensorType) -> bool:
        return t.dtype not in (None, STRING) and all(self._told(d.symbols) for d in dims_of(t))

    def _sum(self, terms: Mapping[Term, int] | None) -> np.ma.MaskedArray:
        """The terms, each as often as it says, added up block by block."""
        told = terms is not None and all(self._told(d.symbols) for dims, *_ in terms for d in dims)
        known: Mapping[Term, int] = terms if terms is not None and told else {}
        key = frozenset(known.items()), told
        return self._once(key, lambda: self._added(known, told))

    def _added(self, terms: Mapping[Term, int], told: bool) -> np.ma.MaskedArray:
        out = np.zeros(self.shape, np.int64)
        bad = ~self.valid.reshape(self.shape) if told else np.ones(self.shape, bool)
        for place in places(self.shape) if told else ():
            block = Block({n: part_of(v, place) for n, v in self._given.items()}, self._derived)
            found = block.total(terms)
            if found.dtype == object and out.dtype != object:
                out = out.astype(object)
            out[place] = np.ma.getdata(found)
            bad[place] |= np.ma.getmaskarray(found)
        return masked(out.reshape(-1), bad.reshape(-1))

    def _flat(self, array: Any) -> np.ndarray:
        return np.broadcast_to(array, self.shape).reshape(-1)

    def _spread(self, array: np.ndarray, column: np.ndarray) -> None:
        column.reshape(self.shape)[...] = array  # one copy, where `_flat` would make two

    def _once(self, key: Any, make: Callable[[], np.ma.MaskedArray]) -> np.ma.MaskedArray:
        """What was made before for this key; else make it, and forget the oldest for it."""
        if key not in self._kept:
            made = self._kept[key] = make()
            while len(self._kept) > 1 and sum(v.nbytes for v in self._kept.values()) > _KEPT:
                del self._kept[next(iter(self._kept))]
            return made
        return self._kept[key]

    def _type(self, name: str) -> TensorType:
        if name in self._others:
            raise UnsupportedError(f"{name!r} is no tensor whose rank is known")
        if name not in self._types:
            raise UnknownValueError(f"the model has no value {name!r}")
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __contains__(self, name: object) -> bool:
        return name in self._types

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def at(self, binding: int) -> dict[str, tuple[int | None, ...]]:
        """The shape of every value at one binding, by its row; None for what is masked."""
        one = self._one(binding)
        return {name: tuple(one[name][0].tolist()) for name in one}

    def _one(self, binding: int) -> Sweep:
        one = object.__new__(Sweep)
        one.__dict__.update(self.__dict__)
        place = tuple([slice(i, i + 1) for i in np.unravel_index(binding, self.shape)])
        one.shape = (1,) * len(self.shape)
        one._given = {name: part_of(v, place) for name, v in self._given.items()}
        one._all = Block(one._given, self._derived)
        one._broken, one._valid, one._kept = None, None, {}
        return one

    def to_dict(self, values: Sequence[str] | None = None) -> dict[str, Any]:
        """Plain data of all or some values, one item for each binding; None where it is masked."""
        names = list(self) if values is None else values
        return {
            "sizes": {name: v.tolist() for name, v in self.sizes.items()},
            "valid": self.valid.tolist(),
            "broken": {str(r): n for r, n in self.broken.items()},
            "total_bytes": self.total_bytes.tolist(),
            "values": {
                name: {
                    "dtype": dtype_name(self._types[name].dtype),
                    "shape": self[name].tolist(),
                    "bytes": self.bytes(name).tolist(),
                }
                for name in names
            },
        }

    def __str__(self) -> str:
        from .show.sweep import sweep_text

        return sweep_text(self)

    def __repr__(self) -> str:
        from .show.text import plural

        sizes = ", ".join(f"{name}: {v.size}" for name, v in self._given.items())
        many = plural(len(self), "value"), plural(self.count, "binding")
        return f"<Sweep of {many[0]} at {many[1]} ({sizes})>"

    def _repr_html_(self) -> str:
        from .show.sweep import sweep_html

        return sweep_html(self)


def _integers(name: str, values: Any) -> np.ndarray:
    array = np.atleast_1d(np.asarray(values if hasattr(values, "dtype") else _listed(values)))
    if array.ndim != 1 or array.size and array.dtype.kind not in "iu":
        raise ShapeError(f"the values of {name} are to be integers that int64 holds, in one row")
    if array.size and array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise ShapeError(f"the values of {name} are beyond int64")
    return array.astype(np.int64)


def _listed(values: Any) -> Any:
    return list(values) if isinstance(values, Iterable) else values


def _grid(
    given: dict[str, np.ndarray], together: bool
) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """The shape of the grid, and the sizes as arrays that broadcast to it."""
    if together:
        lengths = {v.size for v in given.values()} - {1}
        if len(lengths) > 1:
            listed = ", ".join(f"{v.size} of {name}" for name, v in given.items())
            raise ShapeError(f"sizes that go together are of one number; there are {listed}")
        return (max(lengths, default=1) if lengths else 1,), given
    if not given:
        return (1,), given
    axes = range(len(given))
    shaped = {
        name: v.reshape([-1 if i == axis else 1 for i in axes])
        for axis, (name, v) in enumerate(given.items())
    }
    return tuple([v.size for v in given.values()]), shaped


def _naturals(names: Iterable[str], bounds: Mapping[str, Any]) -> Iterator[Requirement]:
    """What sizes are by themselves: named ones at least 1, others within their bounds."""
    for name in sorted(names):
        least, most = bounds.get(name, (1, None))
        if least is not None:
            yield Requirement(">=", symbol(name), least, why="a size")
        if most is not None:
            yield Requirement(">=", most, symbol(name), why="the most that it can be")


def _derived(
    given: Iterable[str], requirements: Sequence[Requirement], definitions: Mapping[Dim, Dim]
) -> dict[str, Scalar]:
    """Formulas for sizes that were not given and follow from those that were, in order."""
    known, found = set(given), {}
    equations = [(r.left, r.right) for r in requirements if r.kind == "=="]
    before = -1
    while before != len(found):
        before = len(found)
        for left, right in (*equations, *definitions.items()):
            formula = _solved(left, right, known)
            if formula is not None:
                found[formula[0]] = formula[1]
                known.add(formula[0])
    return found


def _solved(left: Scalar, right: Scalar, known: set[str]) -> tuple[str, Scalar] | None:
    """left == right as a formula for its one symbol that is not known."""
    missing = {s for s in symbols_of(left) | symbols_of(right) if s.name not in known}
    if len(missing) != 1:
        return None
    (s,) = missing
    if left is s and s not in symbols_of(right):
        return s.name, right
    try:
        difference = right - left
        slope = difference.terms.get((s._symbol(),)) if type(difference) is Dim else None
        formula = s - difference * slope if slope in (1, -1) else s
    except Undecided:
        return None
    return None if s in symbols_of(formula) else (s.name, formula)
