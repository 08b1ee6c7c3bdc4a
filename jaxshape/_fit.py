"""Shorter forms of a formula, found by looking at its values and proved before they are used.

`h + (-h) % 7` takes the values of `7*((h + 6)//7)`, and `(h - 1)//2 - h//2` those of `h % 2 - 1`...
A part in one symbol whose increments are all alike is a line; one with a second increment at every
m-th step is a line plus `k*((s + a)//m)`. Only what `_decide` proves equal, and what is shorter,
replaces the original.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ._decide import Periods, axis, equal
from ._dim import (
    CACHE,
    Atom,
    Dim,
    Monomial,
    Number,
    Scalar,
    Undecided,
    floordiv,
    make,
    number,
    size_of,
)
from ._evaluate import at, rebuild

_SIZE = 400  # a formula with more nodes is left as it is
_PERIOD = 2048


@lru_cache(maxsize=CACHE)
def fit(d: Scalar) -> Scalar:
    """An equal formula, shorter where one is found."""
    if type(d) is not Dim or d.size > _SIZE or all(a.kind == "symbol" for a in d.atoms()):
        return d
    try:
        d = _operands(d)
        if type(d) is Dim:
            for s in sorted({s._symbol() for s in d.symbols}, key=lambda a: a.serial):
                if type(d) is Dim:
                    d = _by_symbol(d, s)
    except (Undecided, ZeroDivisionError):
        pass
    return d


def _operands(d: Dim) -> Scalar:
    """d with the operands of its atoms fitted."""
    memo: dict[Any, Any] = {}
    for atom in d.atoms():
        if atom.kind != "symbol":
            for x in atom.args:
                if type(x) is Dim:
                    memo[x] = fit(x)
    return rebuild(d, {}, memo)


def _by_symbol(d: Dim, s: Atom) -> Scalar:
    """Fit the parts of d that depend on s alone, each the factor of terms in other symbols."""
    alone = frozenset((s.dim,))
    parts: dict[Monomial, dict[Monomial, Number]] = {}
    for mono, k in d.terms.items():
        own = tuple([a for a in mono if a is s or a.symbols == alone])
        rest = tuple([a for a in mono if a not in own])
        parts.setdefault(rest, {})[own] = k
    total: Scalar = 0
    for rest, terms in parts.items():
        part = make(terms)
        total = total + (_line(part, s) if _worth(part) else part) * make({rest: 1})
    return total


def _worth(part: Scalar) -> bool:
    """Whether there is something to shorten: several quotients, or any remainder or maximum."""
    if type(part) is not Dim:
        return False
    atoms = [a for a in part.atoms() if a.kind != "symbol"]
    return len(atoms) > 1 or any(
        a.kind != "//" or type(a.args[0]) is Dim and _worth_inside(a.args[0]) for a in atoms
    )


def _worth_inside(x: Dim) -> bool:
    return any(a.kind != "symbol" for a in x.atoms())


def _line(part: Any, s: Atom) -> Scalar:
    """The shortest equal of a formula in one symbol that has the form `j*s + c` or `k*((s + a)//m)
    + j*s + c`.
    """
    for candidate in _candidates(part, s):
        if size_of(candidate) < part.size and equal(part, candidate) is True:
            return candidate
    return part


def _candidates(part: Dim, s: Atom) -> list[Scalar]:
    below = part.denominator
    whole: Any = part * below
    periods = Periods(whole)
    if periods.free or set(periods.kinds) != {s}:
        return []
    period, degree, _ = periods.kinds[s]
    ax = axis(periods, s)
    if degree > 1 or period > _PERIOD or not ax.period:
        return []
    start = int(ax.points[ax.single])
    values = np.asarray(at(whole, {s: start + np.arange(period + 1)}))
    values = np.broadcast_to(values, period + 1)
    first = number(Fraction(int(values[0]), below))
    steps = np.diff(values)
    kinds, counts = np.unique(steps, return_counts=True)
    scaled = [number(Fraction(int(k), below)) for k in kinds]
    if len(kinds) == 1:
        return [scaled[0] * s.dim + (first - scaled[0] * start)]
    if len(kinds) != 2:
        return []
    found: list[Scalar] = []
    for rare in sorted((0, 1), key=lambda i: (counts[i], -abs(scaled[i]))):
        jumps = np.flatnonzero(steps == kinds[rare])
        m = period // len(jumps)
        if m * len(jumps) == period and (np.diff(jumps) == m).all():
            j, k = scaled[1 - rare], scaled[rare] - scaled[1 - rare]
            shape = floordiv(s.dim - (start + int(jumps[0]) + 1), m) * k + j * s.dim
            found.append(shape + (first - at(shape, {s: start})))
    return found
