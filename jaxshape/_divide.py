"""Quotients, remainders, maxima and minima, simplified when made.

Only identities that hold for all integers, or for all values the symbols may have, are used: with
integer polynomials and positive k, m
    (k*m*a + r)//m == k*a + r//m          (g*a + c)//(g*m) == (a + c//g)//m
    (a//k + c)//m == (a + k*c)//(k*m)     -a//m == -((a + m - 1)//m)
and the like for remainders. A divisor that may be 0 is not cancelled.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ._dim import (
    CACHE,
    MAX_TERMS,
    Atom,
    Dim,
    Monomial,
    Number,
    Scalar,
    Undecided,
    make,
    make_atom,
    number,
    scalar,
)
from ._interval import INF, interval, lower


def floordiv(a: Any, b: Any) -> Any:
    """a // b, rounded down."""
    if type(a) is int and type(b) is int:
        return a // b
    return _floordiv(scalar(a), scalar(b))


def ceildiv(a: Any, b: Any) -> Any:
    """a / b, rounded up."""
    return -floordiv(-a, b)


def mod(a: Any, b: Any) -> Any:
    """a - b * (a // b); its sign is that of b."""
    if type(a) is int and type(b) is int:
        return a % b
    return _mod(scalar(a), scalar(b))


def maximum(*xs: Any) -> Any:
    """The greatest of sizes."""
    return max(xs) if all(type(x) is int for x in xs) else _extreme("max", tuple(map(scalar, xs)))


def minimum(*xs: Any) -> Any:
    """The smallest of sizes."""
    return min(xs) if all(type(x) is int for x in xs) else _extreme("min", tuple(map(scalar, xs)))


@lru_cache(maxsize=CACHE)
def _floordiv(a: Scalar, b: Scalar) -> Scalar:
    if type(b) is Dim:
        return _floor_symbolic(a, b)
    if type(a) is not Dim:
        return a // b
    if b == 0:
        raise ZeroDivisionError(f"({a})//0")
    scale = a.denominator
    m: Fraction = Fraction(b) * scale  # type: ignore[arg-type]
    a = a * (scale * m.denominator)
    return _floor(a, m.numerator) if m > 0 else _floor(-a, -m.numerator)  # type: ignore[arg-type]


def _floor(a: Scalar, m: int) -> Scalar:
    """a // m for a of integer coefficients and m > 0."""
    if type(a) is not Dim:
        return a // m
    g = _content(a, m)
    if g > 1:
        a, m = _less(a, g), m // g
    if type(a) is not Dim:
        return a // m
    if m == 1:
        return a
    whole, rest = _split(a, m)
    if whole != 0:
        return whole + _floor(rest, m)
    if _flips(a):
        return -_floor(-a + (m - 1), m)
    low, high = interval(a)
    if low != -INF and high != INF and low // m == high // m:
        return low // m
    if (inner := _inner(a, "//")) is not None:
        x, k = inner
        return _floor(x + k * a.constant, k * m)
    return make_atom("//", (a, m)).dim


def _content(a: Dim, m: int) -> int:
    """The greatest common divisor of m and all coefficients but the constant."""
    return math.gcd(m, *[int(k) for mono, k in a.terms.items() if mono])


def _less(a: Dim, g: int) -> Scalar:
    """a // g where g divides all coefficients but the constant."""
    return make({mono: q for mono, k in a.terms.items() if (q := int(k) // g)})


def _split(a: Dim, m: int) -> tuple[Scalar, Scalar]:
    """a == whole * m + rest: the constant of rest is in [0, m), other terms keep their sign."""
    whole: dict[Monomial, Number] = {}
    rest: dict[Monomial, Number] = {}
    for mono, k in a.terms.items():
        k = int(k)
        q = k // m if not mono or k > 0 else -(-k // m)
        if q:
            whole[mono] = q
        if k != q * m:
            rest[mono] = k - q * m
    return make(whole), make(rest)


def _flips(a: Dim) -> bool:
    """Whether -a has fewer minus signs; one of a and -a is taken where there are as many."""
    signs = [k < 0 for mono, k in a.terms.items() if mono]
    if 2 * sum(signs) != len(signs):
        return 2 * sum(signs) > len(signs)
    return a.terms[min((m for m in a.terms if m), key=_order)] < 0


def _order(mono: Monomial) -> tuple[int, ...]:
    return len(mono), *[atom.serial for atom in mono]


def _inner(a: Dim, kind: str) -> tuple[Any, int] | None:
    """The operands of a where it is `x // k` or `x % k` plus a constant, with a number k."""
    monos = [mono for mono in a.terms if mono]
    if len(monos) != 1 or len(monos[0]) != 1 or a.terms[monos[0]] != 1:
        return None
    atom = monos[0][0]
    # type: ignore[return-value]
    return atom.args if atom.kind == kind and type(atom.args[1]) is int else None


def _nonzero(b: Scalar) -> bool:
    low, high = interval(b)
    return low > 0 or high < 0


def _floor_symbolic(a: Scalar, b: Dim) -> Scalar:
    scale = math.lcm(b.denominator, a.denominator)
    a, b = a * scale, b * scale  # type: ignore[assignment]
    if not _nonzero(b):
        return make_atom("//", (a, b)).dim
    if interval(b)[1] < 0:
        a, b = -a, -b
    if (quotient := divide(a, b)) is not None:
        return _floordiv(quotient, 1)
    whole, rest = _split_symbolic(a, b)
    if whole != 0:
        return whole + _floordiv(rest, b)
    a, b, changed = _reduced(a, b)
    if changed:
        return _floordiv(a, b)
    if lower(a) >= 0 and lower(b - a - 1) >= 0:
        return 0
    return make_atom("//", (a, b)).dim


def _split_symbolic(a: Scalar, b: Dim) -> tuple[Scalar, Scalar]:
    """a == whole * b + rest, as far as whole is found term by term."""
    if len(b.terms) > 1:
        constant = a.constant if type(a) is Dim else 0
        whole = divide(a - constant, b) if constant else None
        integral = whole is not None and whole.denominator == 1
        return (whole, constant) if integral else (0, a)  # type: ignore[return-value]
    ((mono, k),) = b.terms.items()
    found: dict[Monomial, Number] = {}
    for m, c in a.terms.items() if type(a) is Dim else ():
        rest = without(m, mono)
        q = abs(int(c)) // int(k) * (1 if c > 0 else -1)
        if rest is not None and q:
            found[rest] = q
    whole = make(found)
    return whole, a - whole * b


def without(m: Monomial, n: Monomial) -> Monomial | None:
    """m / n, or None where n does not divide m."""
    left = list(m)
    for atom in n:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _reduced(a: Scalar, b: Scalar) -> tuple[Scalar, Any, bool]:
    """a and b without the factors that both have and that are never 0."""
    if type(a) is not Dim or type(b) is not Dim:
        g = math.gcd(
            *[int(k) for x in (a, b) for k in (x.terms.values() if type(x) is Dim else (x,))]
        )
        return _over(a, g), _over(b, g), g > 1
    g = math.gcd(*[int(k) for x in (a, b) for k in x.terms.values()])
    changed = g > 1
    a, b = _over(a, g), _over(b, g)
    monos = [*a.terms, *b.terms]  # type: ignore[union-attr]
    for atom in set(monos[0]):
        while all(atom in m for m in monos) and _nonzero(atom.dim):
            a, b = _drop(a, atom), _drop(b, atom)
            changed = True
            if type(a) is not Dim or type(b) is not Dim:
                return a, b, changed
            monos = [*a.terms, *b.terms]
    return a, b, changed


def _drop(x: Any, atom: Atom) -> Scalar:
    """x / atom, where all terms have it."""
    return make({m[: (i := m.index(atom))] + m[i + 1 :]: k for m, k in x.terms.items()})


def _over(x: Any, g: int) -> Scalar:
    return x if g <= 1 else x * Fraction(1, g) if type(x) is Dim else number(Fraction(x, g))


def divide(a: Any, b: Scalar) -> Scalar | None:
    """The polynomial q with a == q * b, or None where there is none."""
    if type(b) is not Dim:
        return a / b if type(a) is Dim else number(Fraction(a) / b)
    if type(a) is not Dim:
        return 0 if a == 0 else None
    lead = max(b.terms, key=_order)
    quotient: Scalar = 0
    for _ in range(min(MAX_TERMS, 4 * len(a.terms) + 16)):
        top = max(a.terms, key=_order)
        rest = without(top, lead)
        if rest is None:
            return None
        part = make({rest: number(Fraction(a.terms[top]) / b.terms[lead])})
        quotient = quotient + part
        a = a - part * b
        if type(a) is not Dim:
            return quotient if a == 0 else None
    return None


def exactly(a: Scalar, b: Scalar) -> Scalar:
    """a / b, where that is a polynomial."""
    quotient = divide(a, b)
    if quotient is None:
        raise Undecided(f"({a})/({b})")
    return quotient


@lru_cache(maxsize=CACHE)
def _mod(a: Scalar, b: Scalar) -> Scalar:
    if type(b) is Dim:
        return _mod_symbolic(a, b)
    if type(a) is not Dim:
        return number(a % b)
    if type(b) is not int or b == 0 or a.denominator != 1:
        return a - b * _floordiv(a, b)
    return _remainder(a, b) if b > 0 else -_remainder(-a, -b)


def _remainder(a: Scalar, m: int) -> Scalar:
    """a % m for a of integer coefficients and m > 0."""
    if m == 1 or type(a) is not Dim:
        return a % m if type(a) is not Dim else 0
    for mono, k in a.terms.items():
        for i, atom in enumerate(mono):
            if atom.kind == "%" and type(atom.args[1]) is int and int(k) * atom.args[1] % m == 0:
                rest = make({mono[:i] + mono[i + 1 :]: k})
                return _remainder(a - make({mono: k}) + rest * atom.args[0], m)
    terms: dict[Monomial, Number] = {}
    for mono, k in a.terms.items():
        r = int(k) % m
        r -= m if mono and 2 * r > m else 0
        if r:
            terms[mono] = r
    a = make(terms)
    if type(a) is not Dim:
        return a
    g = _content(a, m)
    if g > 1:
        return g * _remainder(_less(a, g), m // g) + a.constant % g
    low, high = interval(a)
    if low != -INF and high != INF and low // m == high // m:
        return a - low // m * m
    return make_atom("%", (a, m)).dim


def _mod_symbolic(a: Scalar, b: Dim) -> Scalar:
    if a.denominator != 1 or b.denominator != 1:
        return a - b * _floordiv(a, b)
    if not _nonzero(b):
        return make_atom("%", (a, b)).dim
    if interval(b)[1] < 0:
        return -_mod(-a, -b)
    quotient = divide(a, b)
    if quotient is not None and quotient.denominator == 1:
        return 0
    a = _split_symbolic(a, b)[1]
    if type(a) is not Dim and a == 0 or lower(a) >= 0 and lower(b - a - 1) >= 0:
        return a
    return make_atom("%", (a, b)).dim


@lru_cache(maxsize=CACHE)
def _extreme(kind: str, xs: tuple[Scalar, ...]) -> Scalar:
    scale = math.lcm(*[x.denominator for x in xs])
    if scale > 1:  # atoms are integers
        return _extreme(kind, tuple([x * scale for x in xs])) * Fraction(1, scale)
    members: dict[Scalar, None] = {}
    for x in xs:
        atom: Atom | None = x.atom if type(x) is Dim else None
        members.update(dict.fromkeys(atom.args if atom is not None and atom.kind == kind else (x,)))
    kept: list[Scalar] = []
    for x in members:
        if any(_beats(kind, y, x) for y in kept):
            continue
        kept = [y for y in kept if not _beats(kind, x, y)] + [x]
    if len(kept) == 1:
        return kept[0]
    if len(kept) > 32:
        raise Undecided(f"the {kind} of too many sizes")
    return make_atom(kind, tuple(kept)).dim


def _beats(kind: str, x: Scalar, y: Scalar) -> bool:
    """Whether y adds nothing beside x."""
    return lower(x - y if kind == "max" else y - x) >= 0
