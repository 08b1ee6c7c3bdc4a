"""Exact answers about formulas, by evaluating them on finitely many points.

A formula of `+ - *` and of `//` and `%` by numbers is a quasi-polynomial: for each of its symbols
there is a period P such that on every residue class modulo P it is a polynomial. So it is sampled
on each class, (degree + 1) times for each symbol, and Newton's differences of the samples say what
it does on the whole class: all 0, it is 0; none negative, it never falls below the first sample;
the first not divisible by what divides the others, it is never 0. The maximum of lines in one
symbol is a line past the last crossing: points before it are classes of their own. Any other atom
counts as a free variable of its range, which can only make an answer less known, never wrong.

Least and greatest values are part of a symbol, so an answer depends on the formula alone, and is
kept.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from ._dim import CACHE, Atom, Dim, Scalar, Undecided, interval, lower
from ._evaluate import at, magnitude, rebuild

LIMIT = 40_000  # points
_SAFE = 1 << 62
FEW = 16  # values of a variable that are always tried one by one
_SPLITS = 6  # maxima taken apart in one formula


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """About a formula at all sizes: is it 0, is it at least 0? None where it depends, or, unless
    `exact`, unknown.
    """

    zero: bool | None
    sign: bool | None  # True: nowhere negative; False: everywhere negative
    exact: bool = True


def equal(a: Scalar, b: Scalar) -> bool | None:
    """Whether a == b at all sizes (True), at none (False), or neither is known."""
    return a == b if type(a) is not Dim and type(b) is not Dim else a is b or verdict(a - b).zero


def at_least(a: Scalar, b: Scalar) -> bool | None:
    """Whether a >= b at all sizes (True), at none (False), or neither is known."""
    # type: ignore
    return a >= b if type(a) is not Dim and type(b) is not Dim else a is b or verdict(a - b).sign


@lru_cache(maxsize=CACHE)
def verdict(d: Any) -> Verdict:
    """What is known about a formula and 0."""
    if type(d) is not Dim:
        return Verdict(d == 0, d >= 0)
    d = d * d.denominator
    low, high = lower(d), -lower(-d)
    sign = True if low >= 0 else False if high < 0 else None
    zero = False if low > 0 or high < 0 else True if low == high == 0 else None
    if zero is not None and sign is not None:
        return Verdict(zero, sign)
    if all(len(mono) <= 1 for mono in d.terms) and all(a.kind == "symbol" for a in d.atoms()):
        common = math.gcd(*[int(k) for mono, k in d.terms.items() if mono])
        return Verdict(False if d.constant % common else zero, sign)
    try:
        found = _sampled(d)
    except (Undecided, ZeroDivisionError):
        found = Verdict(None, None, False)
    zero = found.zero if zero is None else zero
    sign = found.sign if sign is None else sign
    if (zero is None or sign is None) and not found.exact:
        split = _split(d)
        zero = split.zero if zero is None else zero
        sign = split.sign if sign is None else sign
        if sign is False or zero is None and _split(-d).sign is False:
            zero = False
    return Verdict(zero, sign, found.exact)


def _split(d: Dim) -> Verdict:
    """Take a maximum or minimum apart: it is one of its members."""
    extremes = [a for a in d.atoms() if a.kind in ("max", "min")]
    if not extremes or len(extremes) > _SPLITS or d.size > 200:
        return Verdict(None, None, False)
    atom = min(extremes, key=lambda a: a.serial)
    try:
        found = [verdict(rebuild(d, {atom: member}, {})) for member in atom.args]
    except (Undecided, ZeroDivisionError):
        return Verdict(None, None, False)
    zeros, signs = {v.zero for v in found}, {v.sign for v in found}
    zero = zeros.pop() if len(zeros) == 1 else None
    if len(signs) == 1:
        return Verdict(zero, signs.pop(), False)
    # where d rises with the atom, a maximum makes it at least what any member makes it
    factor: Any = 0
    for mono, k in d.terms.items():
        if mono.count(atom) > 1:
            return Verdict(zero, None, False)
        if atom in mono:
            rest = list(mono)
            rest.remove(atom)
            factor = factor + k * math.prod([a.dim for a in rest])
    if any(atom in _deep(a) for a in d.atoms() if a is not atom):
        return Verdict(zero, None, False)
    rises = lower(factor) >= 0 if atom.kind == "max" else lower(-factor) >= 0
    falls = lower(-factor) >= 0 if atom.kind == "max" else lower(factor) >= 0
    sign = True if rises and True in signs else False if falls and False in signs else None
    return Verdict(zero, sign, False)


def _deep(atom: Atom) -> set[Atom]:
    """The atoms inside an atom, at any depth."""
    found: set[Atom] = set()
    for x in atom.args if atom.kind != "symbol" else ():
        for inner in x.atoms() if type(x) is Dim else ():
            found |= {inner} | _deep(inner)
    return found


# periods ------------------------------------------------------------------------------------------

# period, degree, and content: on a class, all coefficients that involve the variable are divisible
# by the content
_Kind = tuple[int, int, int]
_Kinds = dict[Atom, _Kind]


class Periods:
    """For each variable of a formula its period and degree; `starts` is where classes begin."""

    def __init__(self, d: Scalar):
        self.starts: dict[Atom, int] = {}
        self.free = False
        self.memo: dict[Atom, _Kinds] = {}
        self.kinds = self.of(d)

    def of(self, d: Scalar) -> _Kinds:
        out: _Kinds = {}
        if type(d) is Dim:
            for mono, k in d.terms.items():
                kinds: _Kinds = {}
                for atom in mono:
                    kinds = _joined(kinds, self.atom(atom), True)
                out = _joined(
                    out, {v: (p, n, g * abs(int(k))) for v, (p, n, g) in kinds.items()}, False
                )
        return out

    def atom(self, atom: Atom) -> _Kinds:
        if atom not in self.memo:
            self.memo[atom] = self._atom(atom)
        return self.memo[atom]

    def _atom(self, atom: Atom) -> _Kinds:
        if atom.kind in ("//", "%") and type(m := atom.args[1]) is int:
            out: _Kinds = {}
            for v, (p, n, g) in self.of(atom.args[0]).items():
                k = m // math.gcd(m, g)
                if p * k > LIMIT:
                    raise Undecided("too long a period")
                out[v] = (p * k, n, g * k // m) if atom.kind == "//" else (p * k, 0, 0)
            return out
        if atom.kind in ("max", "min"):
            kinds = [self.of(a) for a in atom.args]
            variables = set().union(*kinds)
            if len(variables) == 1:
                (v,) = variables
                ones = [k.get(v, (1, 0, 0)) for k in kinds]
                period = math.lcm(*[p for p, _, _ in ones])
                if max(n for _, n, _ in ones) <= 1 and self._order(atom, v, period):
                    content = math.gcd(*[g * (period // p) for p, _, g in ones])
                    return {v: (period, 1, content)}
        if atom.kind != "symbol":
            self.free = True
        return {atom: (1, 1, 1)}

    def _order(self, atom: Atom, v: Atom, period: int) -> bool:
        """Move the start of the classes of v past the last crossing of the operands; False where
        there is no such.
        """
        least = interval(v.dim)[0]
        if least == -math.inf or period > LIMIT:
            return False
        start = max(self.starts.get(v, least), least)
        points = start + np.arange(2 * period).reshape(2, period)
        values = [np.broadcast_to(np.asarray(at(a, {v: points})), points.shape) for a in atom.args]
        last = 0
        for x, y in itertools.combinations(values, 2):
            gap, slope = x[0] - y[0], (x[1] - x[0]) - (y[1] - y[0])
            crossing = (gap * slope) < 0
            if crossing.any():
                last = max(last, int((-(-abs(gap[crossing]) // abs(slope[crossing]))).max()))
        if (last + 2) * period > LIMIT:
            return False
        self.starts[v] = start + period * last
        return True


def _joined(s: _Kinds, t: _Kinds, times: bool) -> _Kinds:
    """The kinds of a product or sum."""
    if not s or not t:
        return s or t
    out = dict(s)
    for v, (p, n, g) in t.items():
        if v in out:
            q, m, h = out[v]
            period = math.lcm(p, q)
            if period > LIMIT:
                raise Undecided("too long a period")
            p, n, g = (
                period,
                n + m if times else max(n, m),
                math.gcd(g * (period // p), h * (period // q)),
            )
        out[v] = (p, n, g)
    return out


# samples ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Axis:
    """The points of one variable: `single` ones, each a class, then `degree + 1` rows of the
    `period` classes.
    """

    points: np.ndarray
    single: int
    period: int
    degree: int
    both: bool  # unbounded below as well


def axis(periods: Periods, v: Atom) -> Axis:
    period, degree, _ = periods.kinds[v]
    low, high = interval(v.dim)
    both = low == -math.inf
    first = 0 if both else int(low)
    if abs(first) > _SAFE:
        raise Undecided("points too far away")
    start = first if both else max(periods.starts.get(v, first), first)
    rows = period * (degree + 1)
    if not both and high - first + 1 <= max(start - first + rows, FEW):
        n = max(int(high) - first + 1, 0)
        return Axis(first + np.arange(n), n, 0, degree, both)
    if start - first + rows > LIMIT:
        raise Undecided("too many points")
    return Axis(first + np.arange(start - first + rows), start - first, period, degree, both)


def newton(values: np.ndarray, ax: Axis) -> np.ndarray:
    """The samples along the first dimension -> Newton's coefficients (class, order, ...)."""
    rest = values.shape[1:]
    single = np.zeros((ax.single, ax.degree + 1, *rest), values.dtype)
    single[:, 0] = values[: ax.single]
    tail = values[ax.single :].reshape(-1, ax.period, *rest).copy() if ax.period else values[:0]
    for i in range(1, len(tail)):
        tail[i:] = tail[i:] - tail[i - 1 : -1]
    return single if not ax.period else np.concatenate([single, np.moveaxis(tail, 0, 1)])


def sample(d: Dim, axes: dict[Atom, Axis]) -> np.ndarray:
    """d on the grid of all axes, in the order of `axes`."""
    shape = tuple(len(ax.points) for ax in axes.values())
    if math.prod(shape) > LIMIT:
        raise Undecided("too many points")
    peaks = {
        v: max([abs(int(x)) for x in (ax.points[0], ax.points[-1])]) if len(ax.points) else 0
        for v, ax in axes.items()
    }
    growth = 1 << sum(ax.degree for ax in axes.values())
    big = magnitude(d, peaks, {}) * growth >= _SAFE
    mesh = np.meshgrid(
        *[ax.points.astype(object) if big else ax.points for ax in axes.values()],
        indexing="ij",
        sparse=True,
    )
    return np.broadcast_to(np.asarray(at(d, dict(zip(axes, mesh, strict=True)))), shape)


def _sampled(d: Dim) -> Verdict:
    periods = Periods(d)
    exact = not periods.free
    axes = {v: axis(periods, v) for v in periods.kinds}
    values = sample(d, axes)
    if not values.size:
        return Verdict(None, None, False)
    for i, ax in enumerate(
        axes.values()
    ):  # dimension i becomes class and order: (c0, o0, c1, o1, ...)
        values = np.moveaxis(values, 2 * i, 0)
        values = np.moveaxis(newton(values, ax), (0, 1), (2 * i, 2 * i + 1))
    n = len(axes)
    values = values.transpose(*range(0, 2 * n, 2), *range(1, 2 * n, 2))
    orders = values.shape[n:]
    values = values.reshape(-1, math.prod(orders))
    # differences along a variable that is unbounded below must be 0, or the sign is not known
    steady = np.zeros(orders, bool)
    for i, ax in enumerate(axes.values()):
        if ax.both:
            steady[(slice(None),) * i + (slice(1, None),)] = True
    both = (values[:, steady.ravel()] != 0).any(axis=1)
    first, rest = values[:, 0], values[:, 1:]
    up = (rest >= 0).all(axis=1) & ~both
    down = (rest <= 0).all(axis=1) & ~both
    sign = True if (up & (first >= 0)).all() else False if (down & (first < 0)).all() else None
    if not values.any():
        return Verdict(True, True, exact)
    never = (up & (first > 0)) | (down & (first < 0))
    if rest.shape[1]:
        common = np.gcd.reduce(rest, axis=1)
        never |= (common != 0) & (first % np.where(common == 0, 1, common) != 0)
    return Verdict(False if never.all() else None, sign, exact)
