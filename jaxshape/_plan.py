"""Deciding what runs together: segments under jit, and steps on the host between them.

A segment is the largest set of nodes that can run from what is known, in dataflow order. A node
stays out of it while a value it uses statically is not known yet, and for good where its result's
size depends on data (it would be compiled anew for every count) or is text; such a node is a step
of its own on the host, after the segment, and planning goes on with its results. Planning is
tracing with the real types, so what folds on the host is found here, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from ._facts import Facts, using
from ._host import is_host
from ._interpret import Scope, lowering
from ._model import Node, Stored
from ._op import Op
from ._slice import needed
from ._tracer import Missing, Tracer
from ._value import STRING, MapType, TensorType


@dataclasses.dataclass
class Plan:
    """What to do next: a segment, then host steps; then plan again for the rest.

    `known` are values folded on the host; `wanted` are names whose content the rest waits for.
    """

    segment: tuple[Node, ...]
    inputs: tuple[str, ...]  # names the segment takes from before
    outputs: tuple[str, ...]  # names it gives
    steps: tuple[Node, ...]
    rest: tuple[Node, ...]
    known: dict[str, Any]
    wanted: tuple[str, ...]
    call: Any = None  # the compiled segment, made on first use
    following: Any = None  # the stage that plans the rest


class Planner(Tracer):
    """A tracer that follows real types, gives unknown integers no names, and notes what keeps a
    node out of jit.
    """

    def __init__(self) -> None:
        super().__init__(Facts())
        self.obstacle = False

    def named(self, value: Any, name: str) -> Any:
        return value

    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        outputs = super().apply(node, inputs, scope)
        found = lowering(node, scope)
        if isinstance(found, Op) and not found.traced and any(unknown_statics(found, inputs)):
            self.obstacle = True
        used = [v for v, name in zip(outputs, node.outputs, strict=False) if name]
        if not all(map(_plain, used)) or any(map(_text, inputs)):
            self.obstacle = True
        return outputs


def unknown_statics(op: Op, inputs: Sequence[Any]) -> Iterable[bool]:
    """For each input whether its value must be known and is not."""
    return [op.is_static(i) and isinstance(x, (TensorType, Missing)) for i, x in enumerate(inputs)]


def _plain(value: Any) -> bool:
    """Whether a value can be an output of a jitted function: every size a number, no text."""
    if isinstance(value, TensorType):
        return value.dtype is not None and value.dtype != STRING and _numbers(value.shape)
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or is_host(value)


def _numbers(shape: Any) -> bool:
    return shape is not None and all(isinstance(d, int) for d in shape)


def _text(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_text, value))
    return isinstance(value, MapType) or isinstance(value, TensorType) and value.dtype == STRING


def names_used(node: Node) -> list[str]:
    """Every name that a node reads, in its subgraphs too."""
    return [n for n in (*node.inputs, *sorted(node.captures)) if n]


def make_plan(
    nodes: Sequence[Node], scope: Scope, given: dict[str, Any], outputs: Sequence[str]
) -> Plan:
    """Plan the nodes from `given`: types, or host arrays where the content may be used.

    `outputs` are the names that are wanted in the end.
    """
    planner = Planner()
    with using(planner.facts):
        return _planned(planner, nodes, scope, given, outputs)


def _planned(
    planner: Planner,
    nodes: Sequence[Node],
    scope: Scope,
    given: dict[str, Any],
    outputs: Sequence[str],
) -> Plan:
    local = Scope(scope.model, scope.opsets, None, scope.path)
    local.depth = scope.depth
    local.values.update(
        {n: planner.constant(v) if isinstance(v, Stored) else v for n, v in given.items()}
    )
    values = local.values
    blocked: set[str] = set()
    segment: list[Node] = []
    steps: list[Node] = []
    rest: list[Node] = []
    # a content that was planned with is a number in the segment, not an argument
    known = {n: v for n, v in given.items() if is_host(v)}
    wanted: dict[str, None] = {}
    for node in nodes:
        if not blocked.isdisjoint(names_used(node)):
            blocked.update(node.outputs)
            rest.append(node)
            continue
        planner.obstacle = False
        inputs = [values[n] if n else None for n in node.inputs]
        results = planner.apply(node, inputs, local)
        if planner.obstacle:
            waits = _waits_for(node, inputs, local)
            blocked.update(node.outputs)
            wanted.update(dict.fromkeys(waits))
            (rest if waits else steps).append(node)
            continue
        named = {n: v for n, v in zip(node.outputs, results, strict=False) if n}
        values.update(named)
        if all(v is None or is_host(v) for v in named.values()):
            known.update(named)
        else:
            segment.append(node)
    return _plan(segment, steps, rest, known, wanted, outputs)


def _waits_for(node: Node, inputs: Sequence[Any], scope: Scope) -> list[str]:
    found = lowering(node, scope)
    if not isinstance(found, Op):
        return []
    return [
        n for n, missing in zip(node.inputs, unknown_statics(found, inputs), strict=True) if missing
    ]


def _plan(
    segment: list[Node],
    steps: list[Node],
    rest: list[Node],
    known: dict[str, Any],
    wanted: dict[str, None],
    outputs: Sequence[str],
) -> Plan:
    later = {*outputs, *wanted, *(n for node in (*rest, *steps) for n in names_used(node))}
    kept, _ = needed(segment, later)  # what nobody uses is not run
    made = {n for node in kept for n in node.outputs if n}
    used = dict.fromkeys(n for node in kept for n in names_used(node))
    return Plan(
        segment=kept,
        inputs=tuple(n for n in used if n not in made and n not in known),
        outputs=tuple(n for node in kept for n in node.outputs if n in later),
        steps=tuple(steps),
        rest=tuple(rest),
        known={n: v for n, v in known.items() if n in later or n in used},
        wanted=tuple(wanted),
    )
