"""Relations between dims that no binding is needed to write down, but one may be needed to decide.

`related(kind, a, b)` answers with a bool where every admissible size agrees, else with a
`Relation`, which Not, And, Or, Where, Cast and If understand. Normal form: only `==` and `>=` are
kept, the others are their mirror or negation.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from . import _facts
from ._dim import Dim, Undecided, maximum, minimum


@dataclasses.dataclass(frozen=True)
class Relation:
    """An undecided truth value: `==` or `>=` of two dims, or `and`, `or`, `not` of relations."""

    kind: str
    left: Any
    right: Any = None

    def __bool__(self) -> bool:
        raise Undecided(f"whether {self} depends on the sizes")

    def __str__(self) -> str:
        if self.kind == "not":
            return f"not ({self.left})"
        return f"{self.left} {self.kind} {self.right}"

    @property
    def symbols(self) -> frozenset[Dim]:
        """The symbols that its sides mention."""
        sides = [s.symbols for s in (self.left, self.right) if isinstance(s, (Dim, Relation))]
        return frozenset[Dim]().union(*sides)

    def choose(self, a: Any, b: Any) -> Any:
        """What `a if self else b` is where that is a formula, else None."""
        if self.kind == "not":
            return self.left.choose(b, a)
        pair = (self.left, self.right)
        if self.kind == ">=" and pair == (a, b):
            return maximum(a, b)
        if self.kind == ">=" and pair == (b, a):
            return minimum(a, b)
        if self.kind == "==" and pair in ((a, b), (b, a)):
            return b
        return None


def related(kind: str, a: Any, b: Any) -> bool | Relation:
    """`a kind b` for a kind of `== != < <= > >=`, decided where the sizes allow it."""
    if isinstance(a, (bool, Relation)) or isinstance(b, (bool, Relation)):
        if kind not in ("==", "!="):
            raise Undecided("an order of truth values")
        same = either(both(a, b), both(negate(a), negate(b)))
        return same if kind == "==" else negate(same)
    if kind == "!=":
        return negate(related("==", a, b))
    if kind == "<":
        return negate(related(">=", a, b))
    if kind == ">":
        return negate(related(">=", b, a))
    if kind == "<=":
        a, b, kind = b, a, ">="
    known = _facts.equal(a, b) if kind == "==" else _facts.at_least(a, b)
    return Relation(kind, a, b) if known is None else known


def decided(x: Any) -> bool | None:
    """True or False where that is sure by now, else None."""
    if not isinstance(x, Relation):
        return bool(x)
    if x.kind in ("and", "or"):
        left, right = decided(x.left), decided(x.right)
        final = x.kind == "or"
        if left is final or right is final:
            return final
        return (not final) if left is right is (not final) else None
    if x.kind == "not":
        inner = decided(x.left)
        return None if inner is None else not inner
    return _facts.equal(x.left, x.right) if x.kind == "==" else _facts.at_least(x.left, x.right)


def negate(x: Any) -> Any:
    if not isinstance(x, Relation):
        return not x
    return x.left if x.kind == "not" else Relation("not", x)


def both(a: Any, b: Any) -> Any:
    for x, y in ((a, b), (b, a)):
        if not isinstance(x, Relation):
            return y if x else False
    return a if a == b else Relation("and", a, b)


def either(a: Any, b: Any) -> Any:
    return negate(both(negate(a), negate(b)))
