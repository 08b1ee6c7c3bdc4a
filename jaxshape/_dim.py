"""Sizes as formulas.

Invariant: a `Dim` is a polynomial with rational coefficients over integer atoms (symbols, floor
quotients, remainders, maxima and minima), canonical when made and interned. So two dims are the
same object if and only if their canonical forms agree; `==` and `hash` are identity, and `dim == 3`
is False. Constants are never dims: arithmetic that ends in a number returns an `int` (a `Fraction`
where it is no integer). What a formula cannot know raises `Undecided`.

Every rewriting done here holds for all values of the symbols at or above their least value. What
holds only for one model is the business of `_facts`. This module is the gate: `_divide` (quotients,
remainders, maxima), `_evaluate`, `_interval` and `_dimtext` are reached through it.
"""

from __future__ import annotations

import itertools
import math
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from numbers import Integral
from typing import Any, TypeAlias

Number: TypeAlias = int | Fraction
Monomial: TypeAlias = (
    "tuple[Atom, ...]"  # sorted by serial number, repeated for powers; () is the constant
)

MAX_TERMS = 4096  # of a product, before like terms are collected
MAX_DEGREE = 64
MAX_DEPTH = 64  # of quotients, remainders, maxima in each other
CACHE = 1 << 15


class Undecided(Exception):
    """The answer depends on sizes that are symbols, or the formula for it would be too large."""


class Atom:
    """What a dim is a polynomial in; interned. `kind` is one of `symbol // % max min`.

    `args` is (name, least, most) of a symbol (None where unbounded), else the operands.
    """

    __slots__ = ("__weakref__", "args", "depth", "kind", "serial", "symbols")

    kind: str
    args: tuple[Any, ...]
    serial: int
    depth: int
    symbols: frozenset[Dim]  # of the operands; empty for a symbol, which would hold itself alive

    def __reduce__(self) -> tuple[Any, ...]:
        return make_atom, (self.kind, self.args)

    @property
    def dim(self) -> Dim:
        """The dim that is this atom alone."""
        return make({(self,): 1})  # type: ignore[return-value]


class Dim:
    """An immutable, interned, non-constant size. Make one with `symbol`, then use arithmetic."""

    __slots__ = ("__weakref__", "_bounds", "_size", "_symbols", "_text", "terms")

    terms: dict[Monomial, Number]  # never mutated
    _bounds: tuple[Any, Any] | None
    _size: int
    _symbols: frozenset[Dim] | None
    _text: str | None

    def __add__(self, other: Any) -> Any:
        if (
            type(other) is not int
            and type(other) is not Dim
            and (other := _operand(other)) is NotImplemented
        ):
            return other
        return _add(self, other)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return _multiply(self, -1)

    def __sub__(self, other: Any) -> Any:
        if (
            type(other) is not int
            and type(other) is not Dim
            and (other := _operand(other)) is NotImplemented
        ):
            return other
        return _subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        other = _operand(other)
        return other if other is NotImplemented else _add(_multiply(self, -1), other)

    def __mul__(self, other: Any) -> Any:
        if (
            type(other) is not int
            and type(other) is not Dim
            and (other := _operand(other)) is NotImplemented
        ):
            return other
        return _multiply(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        other = _operand(other)
        if other is NotImplemented:
            return other
        if type(other) is not Dim:
            return _multiply(self, number(Fraction(1) / other))
        return exactly(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        other = _operand(other)
        return other if other is NotImplemented else 0 if other == 0 else exactly(other, self)

    def __floordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return other if other is NotImplemented else floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return other if other is NotImplemented else floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        other = _operand(other)
        return other if other is NotImplemented else mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        other = _operand(other)
        return other if other is NotImplemented else mod(other, self)

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, Integral) or not 0 <= int(exponent) <= MAX_DEGREE:
            raise Undecided(f"({self}) to the power {exponent}")
        return product([self] * int(exponent))

    def __abs__(self) -> Any:
        if lower(self) >= 0:
            return self
        if lower(-self) >= 0:
            return -self
        raise Undecided(f"the sign of {self}")

    def __floor__(self) -> Any:
        return floordiv(self, 1)

    def __ceil__(self) -> Any:
        return ceildiv(self, 1)

    def _undecided(self, *_: Any) -> Any:
        raise Undecided(f"the value of {self}")

    __bool__ = __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided

    def __repr__(self) -> str:
        return text(self)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (list(self.terms.items()),)

    @property
    def atom(self) -> Atom | None:
        """The atom that this dim is, or None where it is more than one atom."""
        if len(self.terms) == 1:
            ((mono, k),) = self.terms.items()
            if k == 1 and len(mono) == 1:
                return mono[0]
        return None

    @property
    def is_symbol(self) -> bool:
        atom = self.atom
        return atom is not None and atom.kind == "symbol"

    @property
    def name(self) -> str:
        """The name of a symbol."""
        return self._symbol().args[0]

    @property
    def least(self) -> int | None:
        """The least value of a symbol, None where any integer is possible."""
        return self._symbol().args[1]

    def _symbol(self) -> Atom:
        atom = self.atom
        if atom is None or atom.kind != "symbol":
            raise AttributeError(f"{self} is no symbol")
        return atom

    @property
    def symbols(self) -> frozenset[Dim]:
        """The symbols in it, at any depth."""
        if self._symbols is None:
            if self.is_symbol:
                return frozenset((self,))
            found: set[Dim] = set()
            for atom in self.atoms():
                found.update((atom.dim,) if atom.kind == "symbol" else atom.symbols)
            self._symbols = frozenset(found)
        return self._symbols

    def atoms(self) -> set[Atom]:
        """The atoms of its terms; not those inside atoms."""
        return set(itertools.chain.from_iterable(self.terms))

    @property
    def constant(self) -> Number:
        """Its constant term."""
        return self.terms.get((), 0)

    @property
    def denominator(self) -> int:
        """The least positive integer that makes all coefficients integers when multiplied."""
        return math.lcm(*[k.denominator for k in self.terms.values()])

    @property
    def size(self) -> int:
        """The number of nodes of the formula, operands included."""
        if not self._size:
            n = len(self.terms)
            for mono, k in self.terms.items():
                n += k != 1 and mono != ()
                for atom in mono:
                    n += 1 if atom.kind == "symbol" else 1 + sum(size_of(x) for x in atom.args)
            self._size = n
        return self._size

    def substitute(self, mapping: Mapping[Dim, Scalar]) -> Scalar:
        """The formula with symbols (or other single atoms) replaced, all at once, and made
        canonical again.
        """
        return rebuild(self, {key._key(): value for key, value in mapping.items()}, {})

    def _key(self) -> Atom:
        atom = self.atom
        if atom is None:
            raise ValueError(f"{self} is no single symbol")
        return atom

    def evaluate(self, env: Mapping[str, Any], greatest: Any = None, smallest: Any = None) -> Any:
        """Its value where each symbol has the value given for its name.

        Integers give an exact int (a Fraction where it is none); int64 arrays are broadcast and
        give an array, of Python ints where int64 would overflow. Anything else with `+ - * // %` is
        combined by those, and by `greatest` and `smallest`, functions of two, instead of `max` and
        `min`.
        """
        return evaluate(self, env, greatest, smallest)


Scalar: TypeAlias = int | Fraction | Dim

_dims: weakref.WeakValueDictionary[Any, Dim] = weakref.WeakValueDictionary()
_atoms: weakref.WeakValueDictionary[Any, Atom] = weakref.WeakValueDictionary()
_lock = threading.RLock()
_serial = itertools.count()


def number(x: Number) -> Number:
    """The number as an int where it is one."""
    # type: ignore[union-attr]
    return x if type(x) is int else x.numerator if x.denominator == 1 else x


def scalar(x: Any) -> Scalar:
    """An operand as an int, Fraction or Dim; raises TypeError for what is no exact number."""
    found = _operand(x)
    if found is NotImplemented:
        raise TypeError(f"{x!r} is no exact size")
    return found


def _operand(x: Any) -> Any:
    kind = type(x)
    if kind is int or kind is Dim:
        return x
    if kind is Fraction:
        return number(x)
    if isinstance(x, Integral):  # NumPy's integers and bool are registered as such
        return operator.index(x)
    return NotImplemented


def make(terms: dict[Monomial, Number]) -> Scalar:
    """The number or interned dim with these terms, whose coefficients are normal and not 0."""
    if len(terms) <= 1:
        if not terms:
            return 0
        if () in terms:
            return terms[()]
    key = frozenset(terms.items())
    dim = _dims.get(key)
    if dim is None:
        with _lock:
            dim = _dims.get(key)
            if dim is None:
                dim = Dim()
                dim.terms = terms
                dim._bounds = dim._symbols = dim._text = None
                dim._size = 0
                _dims[key] = dim
    return dim


def make_atom(kind: str, args: tuple[Any, ...]) -> Atom:
    """The interned atom, taken as it is; `floordiv`, `mod`, `maximum`, `minimum` simplify first."""
    key = (kind, frozenset(args) if kind in ("max", "min") else args)
    with _lock:
        atom = _atoms.get(key)
        if atom is None:
            dims = [x for x in args if type(x) is Dim]
            depth = 1 + max([a.depth for d in dims for a in d.atoms()], default=0)
            if depth > MAX_DEPTH:
                raise Undecided("a formula nested too deeply")
            atom = Atom()
            atom.kind, atom.args, atom.depth = kind, args, depth
            atom.serial = next(_serial)
            atom.symbols = frozenset[Dim]().union(*[d.symbols for d in dims])
            _atoms[key] = atom
    return atom


def symbol(name: str, least: int | None = 1, most: int | None = None) -> Dim:
    """The symbol with this name and least value: 1 for named sizes, 0 for counts, None for any
    integer.
    """
    return make_atom("symbol", (name, least, most)).dim


def _unpickle(terms: list[tuple[Monomial, Number]]) -> Scalar:
    return make({tuple(sorted(mono, key=_by_serial)): k for mono, k in terms})


_by_serial: Callable[[Atom], int] = operator.attrgetter("serial")


@lru_cache(maxsize=CACHE)
def _add(a: Dim, b: Scalar) -> Scalar:
    terms = a.terms.copy()
    for mono, k in b.terms.items() if type(b) is Dim else (((), b),):
        total = number(terms.get(mono, 0) + k)  # type: ignore[operator]
        if total:
            terms[mono] = total
        else:
            terms.pop(mono, None)
    return make(terms)


@lru_cache(maxsize=CACHE)
def _subtract(a: Dim, b: Scalar) -> Scalar:
    return 0 if a is b else _add(a, -b)


@lru_cache(maxsize=CACHE)
def _multiply(a: Dim, b: Scalar) -> Scalar:
    if type(b) is not Dim:
        # type: ignore[operator]
        return make({mono: number(k * b) for mono, k in a.terms.items()}) if b else 0
    if len(a.terms) * len(b.terms) > MAX_TERMS:
        raise Undecided("a product of too many terms")
    terms: dict[Monomial, Number] = {}
    for m, k in a.terms.items():
        for n, j in b.terms.items():
            mono = tuple(sorted(m + n, key=_by_serial)) if m and n else m or n
            if len(mono) > MAX_DEGREE:
                raise Undecided("a product of too high degree")
            terms[mono] = terms.get(mono, 0) + k * j
    return make({mono: number(k) for mono, k in terms.items() if k})


def product(dims: Iterable[Any]) -> Any:
    """The product of sizes; 1 for none."""
    return scalar(math.prod(dims))


def size_of(x: Any) -> int:
    return x.size if type(x) is Dim else 1


from ._dimtext import digits, identifiers, mangled, parse, text, too_long  # noqa: E402, F401
from ._divide import ceildiv, divide, exactly, floordiv, maximum, minimum, mod  # noqa: E402, F401
from ._evaluate import evaluate, rebuild  # noqa: E402
from ._interval import interval, lower  # noqa: E402, F401
