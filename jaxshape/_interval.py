"""Cheap bounds of a formula, from the least and greatest values of its symbols.

`interval` takes each term by itself. `lower` also replaces each quotient by the line below it, so
that what cancels is seen: `h - h//2` is at least `h - h/2`. Both bounds are sound, neither is
always the best.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ._dim import CACHE, Atom, Dim, Monomial, Scalar, Undecided, make, number

INF = math.inf
Bounds = tuple[Any, Any]  # numbers, or infinities


def interval(x: Scalar) -> Bounds:
    """Numbers between which x lies; infinite where nothing is known."""
    if type(x) is not Dim:
        return x, x
    bounds = x._bounds
    if bounds is None:
        low: Any = 0
        high: Any = 0
        for mono, k in x.terms.items():
            a, b = _term(mono)
            if k < 0:
                a, b = b, a
            low, high = _plus(low, _times(a, k)), _plus(high, _times(b, k))
        bounds = x._bounds = (low, high)
    return bounds


def _times(a: Any, b: Any) -> Any:
    """a * b, where 0 times infinity is 0; an int may be too large to become a float."""
    if not a or not b:
        return 0
    if abs(a) == INF or abs(b) == INF:
        return INF if (a > 0) == (b > 0) else -INF
    return a * b


def _plus(a: Any, b: Any) -> Any:
    return a if abs(a) == INF else b if abs(b) == INF else a + b


def _term(mono: Monomial) -> Bounds:
    low: Any = 1
    high: Any = 1
    for atom, group in itertools.groupby(mono):
        n = len(list(group))
        a, b = _atom(atom)
        if n > 1:
            powers = (a**n, b**n)
            a, b = (0 if a < 0 < b and n % 2 == 0 else min(powers)), max(powers)
        corners = (_times(low, a), _times(low, b), _times(high, a), _times(high, b))
        low, high = min(corners), max(corners)
    return low, high


def bottomless(mono: Monomial) -> bool:
    """Whether nothing is known that a product of atoms is at least."""
    return _term(mono)[0] == -INF


def _floor(a: Any, b: Any) -> Any:
    if abs(b) == INF:
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    return a // b if abs(a) != INF else a if b > 0 else -a


def _atom(atom: Atom) -> Bounds:
    if atom.kind == "symbol":
        _, least, most = atom.args
        return (-INF if least is None else least), (INF if most is None else most)
    if atom.kind in ("max", "min"):
        pick = max if atom.kind == "max" else min
        lows, highs = zip(*map(interval, atom.args), strict=True)
        return pick(lows), pick(highs)
    (a, b), (c, d) = interval(atom.args[0]), interval(atom.args[1])
    if c < 0:
        return -INF, INF
    c = max(c, 1)  # where it is 0 there is no value
    if d < c:
        return -INF, INF
    if atom.kind == "//":
        return _floor(a, c if a < 0 else d), _floor(b, d if b < 0 else c)
    return 0, min(d - 1, b) if a >= 0 else d - 1


@lru_cache(maxsize=CACHE)
def lower(x: Scalar) -> Any:
    """A number that x is never below; minus infinity where nothing is known."""
    low = interval(x)[0]
    if type(x) is not Dim or low != -INF:
        return low
    try:
        for _ in range(8):
            relaxed = _relaxed(x)
            if relaxed is x:
                return -INF
            low = interval(relaxed)[0]
            if low != -INF or type(relaxed) is not Dim:
                return math.ceil(low) if low != -INF and x.denominator == 1 else low
            x = relaxed
    except Undecided:
        pass
    return -INF


def _relaxed(x: Dim) -> Scalar:
    """A formula that is nowhere above x, with one layer of quotients fewer."""
    kept: Scalar = x
    for mono, k in x.terms.items():
        for i, atom in enumerate(mono):
            if atom.kind != "//" or type(m := atom.args[1]) is not int:
                continue
            rest = make({mono[:i] + mono[i + 1 :]: k})
            low, high = interval(rest)
            if low >= 0 or high <= 0:
                line = (atom.args[0] - (m - 1 if low >= 0 else 0)) * number(Fraction(1, m))
                kept = kept - make({mono: k}) + rest * line
                break
    return kept
