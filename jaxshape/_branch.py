"""What holds only for a while: trials, branches, and the sizes minted meanwhile."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from . import _facts
from ._dim import Dim, maximum, minimum
from ._error import ShapeError
from ._rational import denominator
from ._relation import Relation, negate


class Trial:
    """A stretch of tracing whose demands are dropped at its end, unless it is kept."""

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        self.kept = True


def _here() -> _facts.Facts:
    return _facts.current() or _facts.Facts()


@contextlib.contextmanager
def tentative() -> Iterator[Trial]:
    """Drop what is demanded and minted inside, unless `keep()` is called on what this gives."""
    facts, trial = _here(), Trial()
    before, minted, walks = facts.snapshot(), facts.minted, len(facts.walks)
    try:
        yield trial
    finally:
        if not trial.kept:
            facts.restore(before)
            facts.minted = minted
            del facts.walks[walks:]


@contextlib.contextmanager
def branch(condition: Relation | bool | None = None) -> Iterator[None]:
    """What is demanded inside holds only there, under the condition; raises `ShapeError` where that
    cannot be.

    Sizes minted inside may leave it.
    """
    facts = _here()
    before = facts.snapshot()
    try:
        assume(condition)
        yield
    finally:
        minted = facts.fresh()
        facts.restore(before)
        facts.adopt(minted)


def assume(condition: Any) -> None:
    """Take a relation as true, as far as it is an equality or an inequality."""
    if not isinstance(condition, Relation):
        return
    facts, inner = _here(), condition.left
    if condition.kind == "and":
        assume(condition.left)
        assume(condition.right)
    elif condition.kind == "==":
        facts.same(condition.left, condition.right, "the condition of the branch")
    elif condition.kind == ">=":
        facts.least(condition.left, condition.right, "the condition of the branch")
    elif condition.kind == "not" and inner.kind == "==":
        for low, high in ((inner.left, inner.right), (inner.right, inner.left)):
            if facts.at_least(high, low):  # unequal and not below is above
                _above(facts, high, low)
                break
    elif condition.kind == "not" and inner.kind == ">=":
        _above(facts, inner.right, inner.left)


def _above(facts: _facts.Facts, high: Any, low: Any) -> None:
    """Take high > low as true: by 1 at least where both are whole, as they are times a number."""
    whole = math.lcm(denominator(high), denominator(low))
    facts.least(whole * high - 1, whole * low, "the condition of the branch")


def chosen(condition: Any, a: Any, b: Any) -> Any:
    """What `a if condition else b` is where that is a formula, else None.

    It is one of the two where they are equal whenever the other is chosen, and the lesser of them
    where each is chosen only if it is the lesser: `512 if n > 512 else n`.
    """
    if not isinstance(condition, Relation):
        return None
    picked = condition.choose(a, b)
    if picked is not None:
        return picked
    answers = []
    for holds in (condition, negate(condition)):
        try:
            with branch(holds):
                answers.append((_facts.equal(a, b), _facts.at_least(b, a), _facts.at_least(a, b)))
        except ShapeError:  # this one is never chosen, or never while the sizes are what they must
            return None
    (same, below, above), (otherwise_same, otherwise_below, otherwise_above) = answers
    if same or otherwise_same:
        return b if same else a
    if below and otherwise_above:
        return minimum(a, b)
    return maximum(a, b) if above and otherwise_below else None


def mark() -> frozenset[Dim]:
    """A moment in the trace, for `minted_since`."""
    return frozenset(_here().fresh())


def minted_since(before: frozenset[Dim]) -> set[Dim]:
    """The sizes minted since a mark."""
    return set(_here().fresh()) - before
