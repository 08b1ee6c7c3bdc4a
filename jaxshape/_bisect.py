"""Which node goes wrong: every node at once, each fed with the reference's own inputs.

The nodes run together, unconnected, in as few jits as a run needs: what each gives is renamed, so
that the names keep the reference's values. A value that the reference could not give is taken from
our own node, whose verdict then includes it.

A result that differs is looked at twice more before its node is blamed. Rounding: an element is
right if it lies between what the node gives on inputs that differ by a few units in their last
place; so a tie that falls the other way (a quantized value off by one, an order of two equal
scores, a comparison at its threshold) is no fault, and a node that amplifies its inputs' rounding
is not held to more than it can give. The standard: where onnxruntime is the reference and the
standard's own reference gives what we give, onnxruntime departs from the standard there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._checks import Check
from ._compare import difference, nearest
from ._error import JaxshapeError
from ._interpret import Scope
from ._lower import Lowerer
from ._model import Model, Node, Stored
from ._plan import names_used
from ._random import draws
from ._reference import second_opinion
from ._run import Runner
from ._tracer import looked_into

ULPS = 4  # units in the last place by which inputs are moved to see what rounding may do
MOVES = 8  # times: all up, all down, and at random
AMPLE = 4  # an output may be off by as much as this times what rounding moves it

BRIEF = {"xla_backend_optimization_level": 0}  # halves the time and leaves the numbers alone
MUCH = 0.05  # of an output's size: rounding that moves it by more leaves little to compare

ROUNDING = "within what rounding of its inputs makes"
DEPARTS = "onnxruntime departs from the standard, whose reference gives what ours gives"
CHANCE = "left to chance: only dtype and shape compared"


class Watching(Lowerer):
    """A `Lowerer` that notes the nodes whose results are left to chance."""

    def __init__(self, drew: set[Node]):
        super().__init__()
        self.drew = drew

    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        before = draws()
        outputs = super().apply(node, inputs, scope)
        if draws() != before:
            self.drew.add(node)
        return outputs


class Watcher(Watching, Runner):
    """A `Runner` that notes the nodes whose results are left to chance.

    `brief`: for one run of many small kernels, whose compilation takes longer than they do.
    """

    def __init__(self, brief: bool = False) -> None:
        Runner.__init__(self)
        self.options = BRIEF if brief else {}
        self.drew: set[Node] = set()
        self.copies: dict[Any, list[Node]] = {}  # the same ones again meet their compiled plans

    def lowerer(self) -> Lowerer:
        return Watching(self.drew)


def chained(
    model: Model, feed: Mapping[str, Any], names: Sequence[str], runner: Watcher
) -> dict[str, Any]:
    """Our own values of these names, as they flow through the whole graph."""
    scope = Scope(model, model.opsets)
    scope.values.update(model.graph.initializers)
    scope.values.update(feed)
    runner.walk(model.graph.nodes, scope, names)
    return {n: runner.on_host(scope[n]) for n in names}


def apart(
    model: Model,
    nodes: Sequence[Node],
    values: Mapping[str, Any],
    runner: Watcher,
    failed: dict[Node, str],
) -> dict[str, Any]:
    """What each of the nodes gives on these values of its inputs, by name; in one walk, in halves
    where a node fails. `failed` takes up those.
    """
    renamed = [tuple([_ours(o) if o in values else o for o in n.outputs]) for n in nodes]
    key = (*nodes, *renamed)
    copies = runner.copies.get(key)
    if copies is None:
        pairs = zip(nodes, renamed, strict=True)
        copies = runner.copies[key] = [dataclasses.replace(n, outputs=o) for n, o in pairs]
    scope = Scope(model, model.opsets)
    scope.values.update(values)
    names = [o for c in copies for o in c.outputs if o]
    before = set(runner.drew)
    try:
        runner.walk(copies, scope, names)
    except JaxshapeError as e:
        if len(nodes) == 1:
            failed[nodes[0]] = str(e)
            return {}
        half = len(nodes) // 2
        first = apart(model, nodes[:half], values, runner, failed)
        # what the reference lacks, the second half takes from the first
        missing = {n: v for n, v in first.items() if n not in values}
        return first | apart(model, nodes[half:], {**values, **missing}, runner, failed)
    original = dict(zip(copies, nodes, strict=True))
    runner.drew |= {original[n] for n in runner.drew - before if n in original}
    asked = [o for n in nodes for o in n.outputs if o]
    return {o: runner.on_host(scope[name]) for o, name in zip(asked, names, strict=True)}


def _ours(name: str) -> str:
    return f"{name}\0ours" if name else ""


def node_checks(
    model: Model, values: Mapping[str, Any], runner: Watcher, standard: bool, platform: str
) -> list[Check]:
    """Every node on the reference's inputs, in the order of the graph.

    Args:
      values: the feed and the reference's values, by name.
      standard: whether the standard's own reference may overrule this one.
    """
    nodes = model.graph.nodes
    values = {**model.graph.initializers, **values}
    failed: dict[Node, str] = {}
    got = apart(model, nodes, values, runner, failed)
    got = {o: v for o, v in got.items() if o in values}
    found = {(n, o): _check(n, o, got, values, platform) for n in nodes for o in _compared(n, got)}
    suspects = [n for n in nodes if any(not found[n, o].ok for o in _compared(n, got))]
    chance = [n for n in suspects if n in runner.drew]
    for n in chance:
        for o in _compared(n, got):
            found[n, o] = by_chance(found[n, o], got[o], values[o])
    suspects = [n for n in suspects if n not in chance]
    _forgive(found, model, suspects, got, values, runner, platform)
    if standard:
        _overrule(found, model, suspects, got, values, platform)
    for node, text in failed.items():
        name = next(filter(None, node.outputs), "")
        found[node, name] = Check(name, node.label, node.op_type, "node", np.inf, text)
    for key, c in found.items():
        unseen = [] if c.ok else _unseen(model, key[0], values)
        if unseen:
            text = f"{c.problem or 'differs'}, or {' or '.join(unseen)} does, which is not compared"
            found[key] = dataclasses.replace(c, problem=text)
    order = {n: i for i, n in enumerate(nodes)}
    return [found[key] for key in sorted(found, key=lambda k: order[k[0]])]


def _unseen(model: Model, node: Node, values: Mapping[str, Any]) -> list[str]:
    """The nodes before this one whose results the reference does not give."""
    wanted = {n for n in names_used(node) if n not in values}
    found = []
    for before in reversed(model.graph.nodes):
        if not wanted.isdisjoint(before.outputs):
            wanted.update(n for n in names_used(before) if n not in values)
            found.append(before.label)
    return found[::-1]


def _compared(node: Node, got: Mapping[str, Any]) -> list[str]:
    return [o for o in node.outputs if o and o in got]


def _check(
    node: Node, name: str, got: Mapping[str, Any], values: Mapping[str, Any], platform: str
) -> Check:
    share, problem = difference(got[name], values[name], platform)
    return Check(name, node.label, node.op_type, "node", share, problem)


def by_chance(check: Check, got: Any, want: Any) -> Check:
    """A random value's check: its numbers may differ, its dtype and shape may not."""
    both = isinstance(got, np.ndarray) and isinstance(want, np.ndarray)
    if check.agrees or not both or (got.dtype, got.shape) != (want.dtype, want.shape):
        return check
    return dataclasses.replace(check, note=CHANCE)


def moved(values: Mapping[str, Any], names: Iterable[str], turn: int) -> dict[str, Any]:
    """The floats among these values, each element moved by a few units in its last place."""
    rng = np.random.default_rng(turn)
    found = {}
    for n in names:
        v = values.get(n)
        v = v.array() if isinstance(v, Stored) else v
        if not isinstance(v, np.ndarray) or v.dtype.name not in _EPS:
            continue
        sign = {0: 1.0, 1: -1.0}.get(turn, rng.choice([-1.0, 1.0], v.shape))
        with np.errstate(all="ignore"):
            shifted = (v * (1 + sign * ULPS * _EPS[v.dtype.name])).astype(v.dtype)
        found[n] = np.where(np.isfinite(shifted), shifted, v)
    return found


# a half of the distance between 1 and the next number
_EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def _forgive(
    found: dict[Any, Check],
    model: Model,
    suspects: Sequence[Node],
    got: Mapping[str, Any],
    values: Mapping[str, Any],
    runner: Watcher,
    platform: str,
) -> None:
    """Note the differences that rounding explains."""
    if not suspects:
        return
    names = {n for node in suspects for n in names_used(node)}
    outcomes = [
        apart(model, suspects, {**values, **moved(values, names, turn)}, runner, {})
        for turn in range(MOVES)
    ]
    for node in suspects:
        for o in _compared(node, got):
            check, want = found[node, o], values[o]
            if check.ok:
                continue
            near = nearest([got[o], *[m[o] for m in outcomes if o in m]], want)
            if difference(near, want, platform)[0] <= 1:
                found[node, o] = dataclasses.replace(check, note=ROUNDING)


def _overrule(
    found: dict[Any, Check],
    model: Model,
    suspects: Sequence[Node],
    got: Mapping[str, Any],
    values: Mapping[str, Any],
    platform: str,
) -> None:
    """Note where the reference departs from the standard, up to the first node that we have
    wrong.
    """
    for node in suspects:
        wrong = [o for o in _compared(node, got) if not found[node, o].ok]
        right = second_opinion(model, node, values) if wrong else {}
        if right is None:
            return
        for o in wrong:
            if difference(got[o], right[o], platform)[0] > 1:
                return
            found[node, o] = dataclasses.replace(found[node, o], note=DEPARTS)


class Rough(Watcher):
    """A `Runner` all of whose results are off in their last place, up or down as their own bits
    say.
    """

    def lowerer(self) -> Lowerer:
        return _Rough()


class _Rough(Lowerer):
    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        return [_roughly(v) for v in super().apply(node, inputs, scope)]


def _roughly(value: Any) -> Any:
    if not isinstance(value, jax.Array) or value.dtype.name not in _EPS:
        return value
    bits = jax.lax.bitcast_convert_type(value, jnp.dtype(f"uint{8 * value.dtype.itemsize}"))
    odd = jax.lax.population_count(bits) & jnp.ones((), bits.dtype)  # as good as chance
    step = jnp.asarray(ULPS * _EPS[value.dtype.name], value.dtype)
    shifted = jnp.where(odd == 1, value + value * step, value - value * step)
    return jnp.where(jnp.isfinite(shifted), shifted, value)  # the largest number stays finite


def rounding_moves(
    model: Model, feed: Mapping[str, Any], names: Sequence[str], brief: bool
) -> dict[str, list[Any]]:
    """The values of these names where inputs, large weights and every result are moved by
    rounding: what the model makes of the last place of its numbers.
    """
    runner = Rough(brief)
    found: dict[str, list[Any]] = {n: [] for n in names}
    large = {n: w for n, w in model.graph.initializers.items() if not looked_into(w)}
    for turn in range(2, 2 + MOVES // 2):
        for n, v in moved(large, large, turn).items():
            runner.weights[id(large[n])] = jax.device_put(v)
        for n, v in chained(model, {**feed, **moved(feed, feed, turn)}, names, runner).items():
            found[n].append(v)
    return found


def amplified(got: Any, moves: Sequence[Any], want: Any, checked: bool) -> bool:
    """Whether an output is off by no more than a few times what rounding moves it.

    `checked`: whether the nodes were found right one by one. Where they were not, a model that
    makes much of rounding, as one does that quantizes by what it computed, proves nothing by it.
    """
    values = [got, *moves, want]
    if any(not isinstance(v, np.ndarray) or v.dtype.kind not in "fc" for v in values):
        return difference(nearest([got, *moves], want), want)[0] <= 1
    if any(v.shape != want.shape or v.dtype != want.dtype for v in values):
        return False
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    ours, wanted = got.astype(wide), want.astype(wide)
    kept = np.isfinite(wanted)
    if any((np.isfinite(v.astype(wide)) != kept).any() for v in (got, *moves)):
        return False
    room = max(np.max(np.abs(m.astype(wide) - ours)[kept], initial=0.0) for m in moves)
    size = np.sqrt(np.mean(np.abs(wanted[kept]) ** 2)) if kept.any() else 0.0
    if not checked and room > MUCH * size:
        return False
    return bool(np.max(np.abs(ours - wanted)[kept], initial=0.0) <= AMPLE * room)
