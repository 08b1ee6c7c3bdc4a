"""Conditions on sizes whose branches differ in rank: which of them can the model run with at all?

Nothing is known after an If whose branches give different ranks. But where the rest of the model
clashes under one outcome at every size, the other outcome is a requirement, and everything is known
again. So such a condition is tried both ways, each as a trace of its own; a few of them, one after
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import _facts
from ._branch import assume
from ._error import ShapeError
from ._relation import Relation, negate
from ._require import Requirement

FORKS = 4  # conditions tried in one trace, so 2 * FORKS more walks at the most
T = TypeVar("T")
Fork = tuple[str, Relation]  # the node that asks, and its condition


def note(condition: Any) -> None:
    """Remember an undecided condition on named sizes whose branches differ in rank."""
    facts = _facts.current()
    if facts is None or not isinstance(condition, Relation):
        return
    fork = (facts.node, condition)
    if fork not in facts.forks and not any(map(facts.is_fresh, condition.symbols)):
        facts.forks.append(fork)


def take(assumed: Sequence[Fork], known: Sequence[Requirement]) -> None:
    """Demand what a trace before found to be demanded anyway, then these conditions."""
    facts = _facts.current()
    if facts is None:
        return
    for r in known:
        facts.node = r.node
        if r.kind == "==":
            facts.same(r.left, r.right, r.why)
        elif r.kind == ">=":
            facts.least(r.left, r.right, r.why)
    for node, condition in assumed:
        facts.node = node
        assume(condition)


def settled(
    once: Callable[[Sequence[Fork], T | None], T],
    forks_of: Callable[[T], Sequence[Fork]],
    merge: Callable[[T, Sequence[T]], None],
) -> T:
    """The trace `once([], None)`, with each fork of which one outcome alone is possible taken so.

    Where several are, `merge(trace, outcomes)` takes over what they agree on.
    """
    found, assumed, tried = once([], None), [], set[Fork]()
    while len(tried) < FORKS and (left := [f for f in forks_of(found) if f not in tried]):
        node, condition = left[0]
        tried.add(left[0])
        outcomes: list[tuple[Fork, T]] = []
        clash = ShapeError(str(condition))
        for outcome in (condition, *opposites(condition)):
            try:
                outcomes.append(((node, outcome), once([*assumed, (node, outcome)], found)))
            except ShapeError as e:
                clash = e
        if not outcomes:
            raise clash
        if len(outcomes) == 1:
            assumed.append(outcomes[0][0])
            found = outcomes[0][1]
        else:
            merge(found, [t for _, t in outcomes])
    return found


def opposites(condition: Relation) -> list[Relation]:
    """The ways in which a condition may not hold: unequal is above or below."""
    if condition.kind != "==":
        return [negate(condition)]
    a, b = condition.left, condition.right
    return [Relation(">=", a, b + 1), Relation(">=", b, a + 1)]
