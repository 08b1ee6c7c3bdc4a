"""What an equation between sizes says about single symbols.

`step(world, d, bound)` uses d == 0, a world formula, to change the world by one thing that follows
from it: a symbol that equals the rest, a residue, a least or greatest value. Sound: only what every
solution has. It returns False where nothing is left to be said that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ._decide import Periods, axis, newton, sample, verdict
from ._dim import (
    Atom,
    Dim,
    Monomial,
    Scalar,
    Undecided,
    interval,
    make,
    mod,
    number,
    size_of,
    symbol,
)
from ._evaluate import at, construct, rebuild
from ._world import World, residue

_FAR = 1 << 40  # sizes are below this


def step(
    world: World, d: Dim, narrow: Callable[[Dim], bool], eliminated: Callable[[Atom, Any], None]
) -> bool:
    """Change the world by one consequence of d == 0.

    `narrow(e)` demands e >= 0 of a formula in one symbol; `eliminated(w, formula)` is told which
    symbol is gone, with the formula it had in the model.
    """
    d, factors = primitive(d)
    if any(world.hard_edges(s)[0] != s.args[1] for s in factors):
        world.soft = True  # a factor was left out that is 0 where a named size is
    found = linear(world, d)
    if found is not None:
        w, value = found
        origin = world.origin.get(w, w.dim)
        world.assign(w, value)
        eliminated(w, origin)
        return True
    exact, needed = _exact(d)
    if any(world.hard_edges(s)[0] != s.args[1] for s in needed):
        world.soft = True
    for s, m, r in (*_residues(d), *exact):
        if s.args[1] is None or -(-(s.args[1] - r) // m) * m + r < _FAR:
            world.divide(s, m, r)
            return True
    if len(d.symbols) == 1:
        (one,) = d.symbols
        s = one._symbol()
        hit = _classes(d, s)
        if hit is not None:
            low = world.hard_edges(s)[0]
            if (
                low != s.args[1]
                and low is not None
                and low % hit[0] != hit[1]
                and at(d, {s: low}) == 0
            ):
                world.soft = True
            world.divide(s, *hit)
            return True
        return narrow(d) or narrow(-d)
    return False


def primitive(d: Dim) -> tuple[Dim, set[Atom]]:
    """What is 0 where d is, without factors that cannot be 0; and the symbols in such factors."""
    d = d * d.denominator  # type: ignore[assignment]
    g = math.gcd(*[int(k) for k in d.terms.values()])
    common: Monomial = ()
    monos = list(d.terms)
    for atom in dict.fromkeys(monos[0]):
        low, high = interval(atom.dim)
        if low > 0 or high < 0:
            common += (atom,) * min(m.count(atom) for m in monos)
    terms = {}
    for mono, k in d.terms.items():
        left = list(mono)
        for atom in common:
            left.remove(atom)
        terms[tuple(left)] = int(k) // g
    smaller = make(terms)
    if type(smaller) is not Dim:
        return d, set()
    return smaller, {s._symbol() for atom in common for s in atom.dim.symbols}


def linear(world: World, d: Dim) -> tuple[Atom, Scalar] | None:
    """A symbol that d == 0 gives as a formula without it, the best one to do without."""
    best: Any = None
    for mono, k in d.terms.items():
        if len(mono) != 1 or mono[0].kind != "symbol" or k not in (1, -1):
            continue
        w = mono[0]
        if not _once(d, mono):
            continue
        value = w.dim - d * int(k)
        named = world.home_of(w) not in world.fresh
        minus = type(value) is Dim and any(c < 0 for c in value.terms.values())
        compound = type(value) is Dim and not value.is_symbol
        key = (
            type(value) is Dim,
            named,
            world.home_of(w) in world.authored,
            minus,
            compound and w in world.home,
            -size_of(value) if named else 0,
            -len(w.args[0]),
            [-ord(c) for c in w.args[0]],
        )
        if best is None or key < best[0]:
            best = key, w, value
    return None if best is None else best[1:]


def _once(d: Dim, mono: Monomial) -> bool:
    """Whether the symbol that is a term of d occurs nowhere else in d, at no depth."""
    (w,) = mono
    return not any(w in m for m in d.terms if m != mono) and not any(
        w.dim in a.symbols for a in d.atoms()
    )


def _residues(d: Dim) -> list[tuple[Atom, int, int]]:
    """(s, m, r) where d == 0 says s % m == r: because m divides all terms but that of s, or by a
    remainder.
    """
    found = []
    for mono, k in d.terms.items():
        if len(mono) != 1:
            continue
        (s,) = mono
        others = [int(c) for m, c in d.terms.items() if m and m != mono]
        g = abs(math.gcd(*others)) if others else abs(int(d.constant)) if k not in (1, -1) else 0
        if s.kind == "symbol" and g > 1 and math.gcd(int(k), g) == 1 and others and _once(d, mono):
            found.append((s, g, -int(d.constant) * pow(int(k), -1, g) % g))
        if (
            s.kind == "%"
            and len([m for m in d.terms if m]) == 1
            and type(s.args[1]) is int
            and abs(k) == 1
        ):
            r = -int(d.constant) * int(k)
            hit = residue(s.args[0] - r, s.args[1]) if type(s.args[0]) is Dim else None
            if hit is not None:
                found.append((hit[0], s.args[1], hit[1]))
    return found


def _exact(d: Dim) -> tuple[list[tuple[Atom, int, int]], set[Atom]]:
    """(s, m, 0) where d == 0 says s % m == 0, as every term is at least 0 once s is written as
    m*(s//m) + s % m; and the symbols that must be large enough for it.

    So h*w == 16*(h//4)*(w//4), from cutting an image into windows, says that both divide by 4.
    """
    parts: dict[Atom, Any] = {}
    for atom in d.atoms():
        x, m = atom.args[:2]
        if atom.kind == "//" and type(m) is int and type(x) is Dim and x.is_symbol:
            parts.setdefault(x._symbol(), m * atom.dim + mod(x, m))
    if not parts:
        return [], set()
    total: Any = 0
    for mono, k in d.terms.items():
        total = total + k * math.prod([parts.get(a, a.dim) for a in mono])
    if type(total) is not Dim or min(total.terms.values()) < 0 < max(total.terms.values()):
        return [], set()
    if any(interval(a.dim)[0] < 0 for a in total.atoms()):
        return [], set()
    found, needed = [], set()
    for mono in total.terms:
        unsure = {a for a in mono if interval(a.dim)[0] <= 0}
        rest = unsure.pop() if len(unsure) == 1 else None
        if rest and rest.kind == "%" and rest.args[0].is_symbol and type(rest.args[1]) is int:
            found.append((rest.args[0]._symbol(), rest.args[1], 0))
            needed |= {s._symbol() for a in mono if a is not rest for s in a.dim.symbols}
    return found, needed


def _classes(d: Dim, s: Atom) -> tuple[int, int] | None:
    """(m, r) where d is 0 at s % m == r and nowhere else."""
    try:
        periods = Periods(d)
        if periods.free or set(periods.kinds) != {s}:
            return None
        ax = axis(periods, s)
        if not ax.period:
            return None
        values = newton(sample(d, {s: ax}), ax)
    except (Undecided, ZeroDivisionError):
        return None
    zero: Any = ~values.any(axis=1)
    first, rest = values[:, 0], values[:, 1:]
    down = (first < 0) & (rest <= 0).all(axis=1)
    up = (first > 0) & (rest >= 0).all(axis=1)
    never = (first != 0) & ~rest.any(axis=1) if ax.both else up | down
    if rest.shape[1]:
        common = np.gcd.reduce(rest, axis=1)
        never |= (common != 0) & (first % np.where(common == 0, 1, common) != 0)
    hits = np.flatnonzero(zero[ax.single :])
    if not (zero | never).all() or not len(hits) or ax.period % len(hits):
        return None
    m = ax.period // len(hits)
    if m == 1 or not (np.diff(hits) == m).all():
        return None
    r = (int(ax.points[ax.single]) + int(hits[0])) % m
    alike = (ax.points[: ax.single] % m == r) == zero[: ax.single]
    return (m, r) if alike.all() else None


def threshold(d: Dim, least: int | None, most: int | None) -> tuple[str, int] | None:
    """What d >= 0 in one symbol says where d only rises or only falls: ("least" or "most", k)."""
    (own,) = d.symbols
    s = own._symbol()
    if (
        len(d.terms) <= 2
        and (k := d.terms.get((s,))) is not None
        and (len(d.terms) == 1 or d.constant)
    ):
        edge = Fraction(-d.constant) / k
        return ("least", math.ceil(edge)) if k > 0 else ("most", math.floor(edge))
    if least is None:
        return None
    low = own if s.args[1] == least else symbol(s.args[0], least, s.args[2])
    there = rebuild(d, {s: low}, {})
    steps = rebuild(d, {s: low + 1}, {}) - there
    sign = 1 if verdict(steps).sign else -1 if verdict(-steps).sign else 0
    if not sign:
        return None

    def holds(x: int) -> bool:
        return at(d, {s: x}) >= 0

    first = holds(least)
    if first == (sign > 0):  # everywhere, or nowhere
        return None
    end = least + 1
    limit = _FAR if most is None else most
    while holds(end) == first:
        if end >= limit:
            return None
        end = min(2 * end + 1 - least, limit)
    start = least  # first at start, the other answer at end
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if holds(middle) == first else (start, middle)
    return ("least", end) if sign > 0 else ("most", start)


def bare(d: Dim) -> Scalar:
    """What d >= 0 demands, without the numbers in its greatest (least) of several that cannot be
    it: max(n, 0) - 1 >= 0 where n - 1 >= 0.
    """
    if len(d.terms) > 2 or (len(d.terms) == 2 and not d.constant):
        return d
    ((mono, k),) = [(mono, k) for mono, k in d.terms.items() if mono]
    if len(mono) != 1 or mono[0].kind != ("max" if k > 0 else "min"):
        return d
    args = [x for x in mono[0].args if type(x) is Dim or k * x + d.constant >= 0]
    if not args or len(args) == len(mono[0].args):
        return d
    return construct(mono[0].kind, args) * k + d.constant


def tighter(
    edges: tuple[int | None, int | None], kind: str, k: int
) -> tuple[int | None, int | None]:
    """The least and the greatest value, one of them replaced where k says more."""
    low, high = edges
    if kind == "least":
        return (k if low is None else max(low, k)), high
    return low, (k if high is None else min(high, k))


def numeric(x: Any) -> int | None:
    """A bound as an int, None where it is infinite."""
    return None if x in (math.inf, -math.inf) else number(x)  # type: ignore[return-value]
