"""The text of a formula, and back.

Text is Python: `+ - * // % **`, `max(a, b)`, `min(a, b)`, `h/2` for a rational coefficient, and
parentheses where a reader might bind a minus differently: `-(h % 2)`. Reading is done by a parser
of its own, bounded in depth and length, that also takes the forms of JAX (`floordiv(a, b)`, `s0^2`)
and of sympy (`Max(a, b)`, `floor(h/2)`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from ._dim import Atom, Dim, Monomial, Number, Scalar, Undecided, scalar
from ._divide import ceildiv, divide, floordiv, maximum, minimum, mod

_LONG = 20_000  # nodes; nobody reads more, and text repeats what the formula shares


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """For each name an identifier of its own: the name itself where it is one, else with `_` for
    what is not allowed.
    """
    names = sorted(set(names))
    found = {name: name for name in names if name.isidentifier()}
    taken = set(found)
    for name in names:
        if name not in found:
            stem = mangled(name)
            free = next(
                s
                for s in itertools.chain([stem], (f"{stem}_{i}" for i in itertools.count(1)))
                if s not in taken
            )
            found[name] = free
            taken.add(free)
    return found


def mangled(name: str) -> str:
    stem = re.sub(r"\W", "_", name)
    return stem if stem.isidentifier() else f"_{stem}"


def text(d: Scalar, names: Mapping[str, str] | None = None) -> str:
    """A formula as Python text; `names` gives the identifiers to use for its symbols inside
    compound expressions.
    """
    if type(d) is not Dim:
        return str(d)
    if names is not None and not d.is_symbol:
        return _sum(d, names)
    if d._text is None:
        if d.is_symbol:
            d._text = d.name
        elif d.size > _LONG:
            d._text = f"a formula of {d.size} parts"
        else:
            d._text = _sum(d, identifiers(s.name for s in d.symbols))
    return d._text


def _sum(d: Scalar, names: Mapping[str, str]) -> str:
    if type(d) is not Dim:
        return str(d)
    below = d.denominator
    if below > 1 and _whole(d, below):
        return _quotient(_grouped(d * below, names), str(below))
    terms = sorted(_shifted(d).items(), key=lambda t: (t[1] < 0, -len(t[0]), _factors(t[0], names)))
    first = all(k < 0 for mono, k in terms if mono)  # `5 - h`, but `h - w + 5`
    terms.sort(key=lambda t: not t[0] and not (first and t[1] > 0))
    if first:
        terms.sort(key=lambda t: t[1] < 0)
    out = ""
    for mono, k in terms:
        body = _term(mono, abs(k), names)
        if out:
            out += f" - {body}" if k < 0 else f" + {body}"
        elif k < 0:
            bare = k == -1 and len(mono) == 1 and mono[0].kind in ("//", "%")
            out = f"-({body})" if bare else f"-{body}"
        else:
            out = body
    return out


def _whole(d: Dim, below: int) -> bool:
    """Whether a polynomial with coefficients over `below` is an integer at all integers, as n*(n -
    1)/2 is.
    """
    atoms = sorted(d.atoms(), key=lambda a: a.serial)
    if below ** len(atoms) > 256:
        return False
    scaled = [(mono, int(k * below)) for mono, k in d.terms.items()]
    for point in itertools.product(range(below), repeat=len(atoms)):
        at = dict(zip(atoms, point, strict=True))
        if sum(k * math.prod(at[a] for a in mono) for mono, k in scaled) % below:
            return False
    return True


def _shifted(d: Dim) -> dict[Monomial, Number]:
    """The terms, with `(x + m - 1)//m` as `(x - 1)//m + 1`: how a count of windows is commonly
    written.

    A printed quotient whose constant is lowered by its divisor is marked by a stand-in atom, never
    interned.
    """
    terms = dict(d.terms)
    for mono in sorted(d.terms, key=lambda m: [a.serial for a in m]):
        if len(mono) != 1 or mono[0].kind != "//" or type(m := mono[0].args[1]) is not int:
            continue
        x, k, c = mono[0].args[0], terms[mono], terms.get((), 0)
        if k > 0 and x.constant and (x.constant == m - 1 and c >= 0 or c == -k):
            stand_in = Atom()
            stand_in.kind, stand_in.args, stand_in.serial = "//", (x - m, m), -1
            del terms[mono]
            terms[(stand_in,)] = k
            terms[()] = c + k
            if not terms[()]:
                del terms[()]
    return terms


def _term(mono: Monomial, k: Number, names: Mapping[str, str]) -> str:
    if not mono:
        return str(k)
    if len(mono) == 1 and k == 1:
        return _atom(mono[0], names)
    body = _factors(mono, names)
    if k.numerator != 1:
        body = f"{k.numerator}*{body}"
    return body if k.denominator == 1 else f"{body}/{k.denominator}"


def _factors(mono: Monomial, names: Mapping[str, str]) -> str:
    parts = []
    for atom in dict.fromkeys(mono):
        body = _atom(atom, names)
        if atom.kind in ("//", "%"):
            body = f"({body})"
        n = mono.count(atom)
        parts.append((atom.kind != "symbol", body if n == 1 else f"{body}**{n}"))
    return "*".join(body for _, body in sorted(parts))


def _atom(atom: Atom, names: Mapping[str, str]) -> str:
    if atom.kind == "symbol":
        return names[atom.args[0]]
    if atom.kind in ("//", "%"):
        a, b = atom.args
        below = _sum(b, names)
        simple = type(b) is not Dim or b.atom is not None and b.atom.kind not in ("//", "%")
        return _quotient(_grouped(a, names), below if simple else f"({below})", atom.kind)
    numbers = [str(x) for x in atom.args if type(x) is not Dim]
    formulas = sorted([_sum(x, names) for x in atom.args if type(x) is Dim])
    return f"{atom.kind}({', '.join(formulas + numbers)})"


def _quotient(above: str, below: str, sign: str = "//") -> str:
    return f"{above}//{below}" if sign == "//" else f"{above} % {below}"


def _grouped(x: Scalar, names: Mapping[str, str]) -> str:
    """A formula as the left operand of `//` or `%`."""
    body = _sum(x, names)
    plain = type(x) is not Dim or len(x.terms) == 1 and not set("-/%").intersection(body)
    return body if plain and not body.startswith("-") else f"({body})"


def too_long(dim: Any, limit: int = 200) -> bool:
    """Whether the text of a dim is too long to be read, or to be computed with quickly."""
    if type(dim) is not Dim or dim.is_symbol:
        return False
    return dim.size > limit or digits(dim) > limit or len(text(dim)) > limit


def digits(dim: Dim) -> int:
    """The number of binary digits of the longest number in the terms of a formula."""
    pairs = [(k.numerator, k.denominator) for k in dim.terms.values()]
    return max([n.bit_length() for pair in pairs for n in pair])


# reading ------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:(\d+\.\d+|\d+)|([^\W\d][\w.]*)|(\*\*|//|[-+*/%^(),]))")
_LENGTH, _NESTED, _DIGITS = 4000, 60, 24
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": maximum,
    "Max": maximum,
    "min": minimum,
    "Min": minimum,
    "mod": mod,
    "Mod": mod,
    "PythonMod": mod,
    "floordiv": floordiv,
    "FloorDiv": floordiv,
    "ceildiv": ceildiv,
    "CeilDiv": ceildiv,
    "floor": lambda x: floordiv(x, 1),
    "ceil": lambda x: ceildiv(x, 1),
    "ceiling": lambda x: ceildiv(x, 1),
    "abs": abs,
}


class _NoFormula(Exception):
    pass


def parse(text: str, lookup: Callable[[str], Any]) -> Any:
    """The formula that a text is, with `lookup` giving the dim of each name; None where it is no
    formula.

    A name that `lookup` does not know (it returns None, or raises KeyError) makes it no formula
    either.
    """
    try:
        return _Reader(text, lookup).read()
    except (_NoFormula, Undecided, KeyError, ZeroDivisionError, TypeError, RecursionError):
        return None


class _Reader:
    """Recursive descent, with the precedence of Python."""

    def __init__(self, text: str, lookup: Callable[[str], Any]):
        self.lookup, self.depth, self.at = lookup, 0, 0
        self.tokens: list[str] = []
        position, end = 0, len(text.rstrip())
        if end > _LENGTH:
            raise _NoFormula
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None or len(found[1] or "") > _DIGITS:
                raise _NoFormula
            self.tokens.append(found[found.lastindex or 0])
            position = found.end()

    def read(self) -> Any:
        value = self.sum()
        if self.at != len(self.tokens):
            raise _NoFormula
        return scalar(value)

    def take(self, *signs: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in signs:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def expect(self, sign: str) -> None:
        if self.take(sign) is None:
            raise _NoFormula

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > _NESTED:
            raise _NoFormula
        value = self.term()
        while (sign := self.take("+", "-")) is not None:
            other = self.term()
            value = value + other if sign == "+" else value - other
        self.depth -= 1
        return value

    def term(self) -> Any:
        value = self.signed()
        while (sign := self.take("*", "//", "/", "%")) is not None:
            other = self.signed()
            if sign == "*":
                value = value * other
            elif sign == "/":
                value = _ratio(value, other)
            else:
                value = floordiv(value, other) if sign == "//" else mod(value, other)
        return value

    def signed(self) -> Any:
        minus = False
        while (sign := self.take("+", "-")) is not None:
            minus ^= sign == "-"
        value = self.power()
        return -value if minus else value

    def power(self) -> Any:
        base = self.primary()
        if self.take("**", "^") is None:
            return base
        exponent = self.signed()
        if type(exponent) is not int or not 0 <= exponent <= 64:
            raise _NoFormula
        if (
            type(base) is not Dim
            and exponent * max(base.numerator, base.denominator).bit_length() > 256
        ):
            raise _NoFormula
        return base**exponent

    def primary(self) -> Any:
        if self.take("(") is not None:
            value = self.sum()
            self.expect(")")
            return value
        if self.at == len(self.tokens):
            raise _NoFormula
        token = self.tokens[self.at]
        self.at += 1
        if token[0].isdecimal():
            return Fraction(token) if "." in token else int(token)
        if not (token[0] == "_" or token[0].isalpha()):
            raise _NoFormula
        if token in _FUNCTIONS and self.take("(") is not None:
            args = [self.sum()]
            while self.take(",") is not None:
                args.append(self.sum())
            self.expect(")")
            return _FUNCTIONS[token](*args)
        found = self.lookup(token)
        if found is None:
            raise _NoFormula
        return found


def _ratio(a: Any, b: Any) -> Any:
    quotient = divide(scalar(a), scalar(b))
    if quotient is None:
        raise _NoFormula
    return quotient
