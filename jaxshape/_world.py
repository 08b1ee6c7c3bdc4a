"""The substitution that turns what is known about symbols into plain arithmetic.

Each symbol of the model, as it appears in shapes, stands for a formula over *world* symbols, whose
least and greatest values are part of them:

    demanded                    h becomes
    h >= 4                      a symbol of its name with least value 4
    h % 8 == 0                  8*k, with a new symbol k
    h == 2*w                    2*w

So after `forward` no fact about single symbols is left to be remembered: simplification and
decisions on world formulas need nothing else. `back` returns to the symbols of the model: k is h/8,
and what has a name of its own (`total`, where total == past + seq) is shown by it. Formulas equal
under what is known have one `forward` form, up to what the polynomial normal form cannot see.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ._dim import (
    Atom,
    Dim,
    Monomial,
    Scalar,
    Undecided,
    floordiv,
    make,
    mod,
    number,
    size_of,
    symbol,
    text,
)
from ._divide import without
from ._evaluate import construct, rebuild
from ._fit import fit


class Memo:
    """Answers that hold for one state of the world."""

    def __init__(self) -> None:
        self.forward: dict[Any, Any] = {}
        self.back: dict[Scalar, Scalar] = {}
        self.simple: dict[Scalar, Scalar] = {}
        self.decided: dict[Any, bool | None] = {}
        self.short: list[tuple[Dim, Dim, Monomial]] | None = None
        self.facts: Any = (None, None, [])


class World:
    """What symbols stand for. All state is in small dicts, so that `copy` is cheap."""

    def __init__(self) -> None:
        self.map: dict[Atom, Scalar] = {}  # symbol of the model -> world formula
        self.origin: dict[Atom, Any] = {}  # world symbol -> formula of the model, where they differ
        self.home: dict[Atom, Atom] = {}  # world symbol -> the symbol of the model it is about
        # world symbol -> its least and greatest value where named sizes may be 0
        self.edges: dict[Atom, tuple[int | None, int | None]] = {}
        self.rules: dict[Atom, Scalar] = {}  # compound atoms known to equal something simpler
        self.soft = False  # whether anything here holds for named sizes >= 1 alone
        self.fresh: set[Atom] = set()  # symbols minted while tracing; shared by copies
        self.authored: set[Atom] = set()  # those of them that bear a name from the file; shared
        self.memo = Memo()

    def copy(self) -> World:
        new = World()
        new.map, new.origin, new.home = self.map.copy(), self.origin.copy(), self.home.copy()
        new.edges, new.rules = self.edges.copy(), self.rules.copy()
        new.fresh, new.authored = self.fresh, self.authored
        new.memo, new.soft = self.memo, self.soft
        return new

    # there and back -------------------------------------------------------------------------------

    def forward(self, d: Scalar) -> Any:
        """The world formula of a formula of the model."""
        if type(d) is not Dim or not self.map and not self.rules:
            return d
        memo = self.memo.forward
        if "atoms" not in memo:
            memo["atoms"] = {**self.map, **self.rules}
        atoms = memo["atoms"]
        found: Scalar = d
        for _ in range(4 if self.rules else 1):  # a rule may apply to what another has made
            again = _rebuilt(found, atoms, memo)
            if again is found:
                break
            found = again
        return found

    def solved(self, d: Scalar) -> Any:
        """The same without rules: what an equation that made one says besides."""
        return d if type(d) is not Dim else _rebuilt(d, self.map, {})

    def hard(self, d: Scalar) -> Any:
        """The same where named sizes may be 0: a clash is proved only if it is one then too.

        Once something was inferred that holds for sizes >= 1 alone, the map is not to be trusted.
        """
        if type(d) is not Dim:
            return d
        atoms: dict[Atom, Scalar] = {}
        for s in d.symbols:
            t = s._symbol()
            e: Any = t.dim if self.soft else self.map.get(t, t.dim)
            low: dict[Atom, Scalar] = {
                w: symbol(w.args[0], *self.hard_edges(w)) for w in _symbols(e)
            }
            atoms[t] = _rebuilt(e, low, {})
        return _rebuilt(d, atoms, {})

    def home_of(self, w: Atom) -> Atom:
        """The symbol of the model that a world symbol is about."""
        return self.home.get(w) or w

    def hard_edges(self, w: Atom) -> tuple[int | None, int | None]:
        """The least and greatest value of a world symbol where named sizes may be 0."""
        if w in self.edges:
            return self.edges[w]
        _, least, most = w.args
        return (0 if least == 1 and w not in self.fresh else least), most

    def simplify(self, d: Scalar) -> Scalar:
        """The shortest formula of the model that is known to equal d."""
        if type(d) is not Dim:
            return d
        found = self.memo.simple.get(d)
        if found is None:
            found = self.back(fit(self.forward(d)))
            if d.denominator == 1:
                found = self._integral(found)
            self.memo.simple[d] = found
        return found

    def back(self, d: Scalar, named: bool = True) -> Scalar:
        """The formula of the model of a world formula; `named` says whether symbols that equal a
        part may show it.
        """
        if type(d) is not Dim:
            return d
        found = self.memo.back.get(d) if named else None
        if found is None:
            found = self._back(d, named)
            if named:
                self.memo.back[d] = found
        return found

    def _back(self, d: Dim, named: bool) -> Scalar:
        for t, e, lead in self._short() if named else ():
            if d is e:
                return t
            whole = make(
                {
                    rest: number(Fraction(k) / e.terms[lead])
                    for m, k in d.terms.items()
                    if (rest := without(m, lead)) is not None
                }
            )
            if whole == 0 or whole.denominator != 1 or not t.symbols.isdisjoint(d.symbols):
                continue
            left = d - whole * e
            if size_of(whole) + size_of(left) * (left != 0) < d.size:
                return self.back(whole) * t + self.back(left)
        total: Any = 0
        values: dict[Atom, Any] = {}
        for atom in d.atoms():
            if atom.kind == "symbol":
                values[atom] = self.origin.get(atom, atom.dim)
            else:
                args = [self._integral(self.back(x, named)) for x in atom.args]
                same = all(a is b or a == b for a, b in zip(args, atom.args, strict=True))
                values[atom] = atom.dim if same else construct(atom.kind, args)
        if all(type(v) is Dim and v.atom is a for a, v in values.items()):
            return d
        for mono, k in d.terms.items():
            total = total + math.prod([values[a] for a in mono], start=k)
        return total if type(total) is Dim else number(total)

    def _short(self) -> list[tuple[Dim, Dim, Monomial]]:
        """Named symbols that equal a compound formula, with that formula and a term to look for."""
        if self.memo.short is None:
            found = []
            for t, e in self.map.items():
                if t not in self.fresh and self.own(t) is None and type(e) is Dim:
                    e = fit(e)
                    if type(e) is Dim and not e.is_symbol:
                        lead = max(
                            (m for m in e.terms if m), key=lambda m: (len(m), [a.serial for a in m])
                        )
                        found.append((t.dim, e, lead))
            self.memo.short = found
        return self.memo.short

    def own(self, t: Atom) -> tuple[Atom, int, int] | None:
        """(k, m, r) where a symbol of the model stands for m*k + r with a k of its own: nothing but
        itself.
        """
        e = self.map.get(t, t.dim)
        atoms = e.atoms() if type(e) is Dim else set()
        if len(atoms) != 1 or type(e) is not Dim or e.denominator != 1:
            return None
        (k,) = atoms
        m = e.terms.get((k,))
        if (
            m is None
            or len(e.terms) > 2
            or e.constant == 0
            and len(e.terms) == 2
            or self.home_of(k) is not t
        ):
            return None
        return k, int(m), int(e.constant)

    def _integral(self, d: Scalar) -> Scalar:
        """A formula known to be an integer, without fractions: 3*h/4 is 3*(h//4) if h % 4 == 0."""
        if type(d) is not Dim or d.denominator == 1:
            return d
        whole: Any = 0
        rest: Any = 0
        for mono, k in d.terms.items():
            left, factors = k.denominator, []
            for atom in mono:
                own = self.own(atom) if atom.kind == "symbol" and left > 1 else None
                g = math.gcd(left, own[1]) if own is not None and own[2] == 0 else 1
                factors.append(floordiv(atom.dim, g))
                left //= g
            if left == 1:
                whole = whole + math.prod(factors, start=k.numerator)
            else:
                rest = rest + make({mono: k})
        return whole + floordiv(rest, 1)

    # what becomes known ---------------------------------------------------------------------------

    def assign(self, w: Atom, value: Scalar) -> None:
        """Let a world symbol stand for a formula from now on."""
        memo: dict[Any, Any] = {}
        for t, e in self.map.items():
            self.map[t] = _rebuilt(e, {w: value}, memo)
        if w not in self.origin and w not in self.home:
            self.map[w] = value
        self.origin.pop(w, None)
        self.home.pop(w, None)
        self.memo = Memo()

    def narrow(self, w: Atom, least: int | None, most: int | None, *edges: int | None) -> None:
        """Give a world symbol other bounds; `edges` are those where named sizes may be 0."""
        new = symbol(w.args[0], least, most)
        self._follow(w, new._symbol(), self.origin.get(w, w.dim), new, edges)

    def divide(self, w: Atom, m: int, r: int) -> None:
        """Let a world symbol be r modulo m."""

        def over(least: int | None, most: int | None) -> tuple[int | None, int | None]:
            low = None if least is None else -((r - least) // m)
            return low, None if most is None else (most - r) // m

        k = symbol(f"{w.args[0]}\0{m}.{r}", *over(*w.args[1:]))
        origin = (self.origin.get(w, w.dim) - r) * Fraction(1, m)
        self._follow(w, k._symbol(), origin, m * k + r, over(*self.hard_edges(w)))

    def _follow(self, w: Atom, new: Atom, origin: Any, value: Scalar, edges: Any) -> None:
        home = self.home_of(w)
        self.assign(w, value)
        self.origin[new], self.home[new], self.edges[new] = origin, home, edges

    def rule(self, d: Dim) -> bool:
        """Use d == 0, which cannot be solved, to replace its largest atom by something simpler."""
        best: Any = None
        for atom in d.atoms():
            k = d.terms.get((atom,))
            if atom.kind == "symbol" or k not in (1, -1):
                continue
            value = atom.dim - d * int(k)
            if type(value) is Dim and (_holds(value, atom) or _rank(value) >= _rank(atom.dim)):
                continue
            if best is None or _rank(best[0].dim) < _rank(atom.dim):
                best = atom, value
        if best is None:
            return False
        atom, value = best
        self.rules[atom] = value
        a, m = atom.args[:2]
        if (
            atom.kind == "%"
            and type(value) is int
            and type(m) is int
            and type(q := floordiv(a, m)) is Dim
        ):
            # then the quotient is exact
            quotient = [x for x in q.atoms() if x.kind == "//" and q.terms.get((x,)) in (1, -1)]
            if len(quotient) == 1:
                k = int(q.terms[(quotient[0],)])
                exact = ((a - value) * Fraction(1, m) - (q - k * quotient[0].dim)) * k
                self.rules[quotient[0]] = exact
        self.memo = Memo()
        return True


def _symbols(e: Scalar) -> list[Atom]:
    return [s._symbol() for s in e.symbols] if type(e) is Dim else []


def _rebuilt(d: Scalar, atoms: dict[Atom, Scalar], memo: dict[Any, Any]) -> Any:
    """`rebuild`, or d as it is where that has no value or is too large: which is true too, if less
    is known of it.
    """
    try:
        return rebuild(d, atoms, memo)
    except (Undecided, ZeroDivisionError):
        return d


def _rank(d: Scalar) -> tuple[int, str]:
    return (d.size if type(d) is Dim else 0, text(d))


def _holds(d: Dim, atom: Atom) -> bool:
    """Whether an atom occurs in d at any depth."""
    return any(
        a is atom or any(type(x) is Dim and _holds(x, atom) for x in a.args) for a in d.atoms()
    )


def residue(a: Dim, m: int) -> tuple[Atom, int] | None:
    """(s, r) where a % m == 0 says s % m == r, for a in one symbol s to the first power."""
    if len(a.atoms()) != 1 or len(a.terms) > 2:
        return None
    (s,) = a.atoms()
    k = a.terms.get((s,))
    if (
        s.kind != "symbol"
        or k is None
        or a.denominator != 1
        or len(a.terms) == 2
        and () not in a.terms
        or math.gcd(int(k), m) != 1
    ):
        return None
    return s, mod(-int(a.constant) * pow(int(k), -1, m), m)
