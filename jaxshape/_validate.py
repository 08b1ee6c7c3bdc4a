"""Validation: a model's numbers here against a reference, and which node first goes wrong.

First the values are compared as they flow (chained), so a difference upstream shows in all that
follows. Where outputs differ, or `bisect` asks for it, each node is then fed the reference's own
inputs: that verdict is local, so rounding and discrete choices that flip (TopK, ArgMax) are not
blamed on the nodes after them. See `_bisect.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._bisect import (
    DEPARTS,
    Watcher,
    amplified,
    by_chance,
    chained,
    node_checks,
    rounding_moves,
)
from ._checks import Check as Check
from ._checks import Report as Report
from ._compare import denies, difference
from ._draw import draw_inputs, draw_sizes
from ._error import ExecutionError, JaxshapeError, UnknownValueError
from ._feed import checked_feed
from ._host import type_of
from ._model import Model, Node, load
from ._plan import names_used
from ._reference import ENGINES, inlined, reference_outputs
from ._run import find_device, placed
from ._trace import Trace, trace

TRACED = "traced as"
AMPLIFIED = "no more than the model itself amplifies rounding"
FOLLOWS = "follows a node where onnxruntime departs from the standard"
REDRAWS = 5  # times to draw inputs anew where the reference refuses what was drawn


def validate(
    model: Any,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    reference: Any = "onnxruntime",
    device: Any = None,
    bisect: bool = False,
    bindings: int = 2,
    seed: int = 0,
) -> Report:
    """Compare a model's outputs on a device with a reference's: dtype, traced shape and values.

    An element may differ by `atol + rtol * max(|wanted|, rms(wanted))`: rtol is 2e-4 for float32
    and complex64, 1e-6 for float64 and complex128, 2e-2 for float16, 5e-2 for bfloat16; all other
    dtypes are exact. Matmuls run in full precision on every device. Where an output differs, the
    nodes are compared one by one, each on the reference's own inputs; it still counts as equal
    where that shows why: values left to chance, rounding that the model itself amplifies, or
    onnxruntime departing from the standard. The report says so.

    Args:
      model: what `load` takes.
      inputs: as for `run`; None: drawn at random, at sizes that meet the traced requirements and
        with contents that the operators take (indices inside of their tables).
      reference: `"onnxruntime"` (without its optimisations), `"onnx"` (the standard's reference),
        expected outputs by name, or another model (a path, a ModelProto or a Model) that runs here
        too and whose values are compared by name.
      device: where to run, as for `run`.
      bisect: compare every value and every node, also where the outputs agree.
      bindings: at how many different sizes to draw inputs.
      seed: of what is drawn.

    Returns:
      A `Report`; `report.ok` says whether all agree, `report.culprit` which node is wrong.

    Raises:
      ModelError, UnsupportedError: the model cannot be loaded, or the reference is missing.
      ExecutionError: the reference itself fails on the model.
      ShapeError, UnknownValueError: inputs that do not fit the model, or no sizes can be drawn.

    Example:
      >>> import onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N, 2] y) { y = Softmax (x) }''')
      >>> js.validate(m, reference="onnx").ok
      True
    """
    loaded = load(model)
    traced = trace(loaded)
    reference, name = _named(reference)
    platform = jax.default_backend() if device is None else find_device(device).platform
    run = _Run(loaded, traced, reference, device, platform, bisect)
    report = Report(loaded.name, name, [], [])
    try:
        if inputs is not None:
            run.on(checked_feed(loaded, inputs), report)
        else:
            _drawn(run, bindings, np.random.default_rng(seed), report)
    except JaxshapeError as e:
        if not hasattr(e, "node"):
            raise
        report.error = str(e)
    return report


def _named(reference: Any) -> tuple[Any, str]:
    """The reference, loaded where it is a model, and what the report calls it."""
    if isinstance(reference, Mapping):
        return reference, "stored outputs"
    if isinstance(reference, str) and (reference in ENGINES or not os.path.exists(reference)):
        return reference, reference
    other = load(reference)
    return other, os.fspath(reference) if isinstance(reference, (str, os.PathLike)) else other.name


def _drawn(run: _Run, bindings: int, rng: np.random.Generator, report: Report) -> None:
    """Validate on drawn inputs; drawn anew where the reference cannot run with them."""
    left, refused = REDRAWS, None
    for sizes in draw_sizes(run.traced, bindings + REDRAWS, rng):
        if len(report.sizes) == bindings:
            break
        feed = draw_inputs(run.traced, sizes, rng)
        try:
            run.on(feed, report)
        except ExecutionError as e:
            left -= 1
            if hasattr(e, "node") or not left:
                raise
            refused = e
        else:
            report.sizes.append(sizes)
    if not report.sizes and refused:
        raise refused


@dataclasses.dataclass
class _Run:
    """One validation: what stays the same from one set of inputs to the next."""

    model: Model
    traced: Trace
    reference: Any
    device: Any
    platform: str
    bisect: bool

    def on(self, feed: dict[str, Any], report: Report) -> None:
        """Compare on one set of inputs; node by node where that is asked for or outputs differ."""
        outputs = [o.name for o in self.model.graph.outputs]
        if not self.bisect:
            wanted = self.wanted(feed, outputs, self.model, ())
            self.comparable(outputs, wanted)
            checks = self.flow(self.model, feed, wanted, outputs).checks
            if all(c.ok for c in checks):
                report.checks += checks
                return
        model = inlined(self.model)
        inner = [n for n in _makers(model) if n not in outputs]
        wanted = self.wanted(feed, outputs, model, inner)
        self.comparable(outputs, wanted)
        inner = [n for n in inner if n in wanted]
        flow = self.flow(model, feed, wanted, [*outputs, *inner])
        local = []
        if inner:
            values = {**feed, **wanted}
            standard = self.reference == "onnxruntime"
            with self.placed():
                local = node_checks(model, values, flow.runner, standard, self.platform)
        report.skipped += sum(n not in wanted for n in _makers(model))
        report.checks += [*self.explained(flow, local), *local]

    def comparable(self, names: Sequence[str], wanted: Mapping[str, Any]) -> None:
        """Raise where the reference has none of these outputs: what agrees would say nothing."""
        if names and not any(n in wanted for n in names):
            if isinstance(self.reference, Model):
                wanted = dict.fromkeys(o.name for o in self.reference.graph.outputs)
            raise UnknownValueError(
                f"values are compared by name: the model gives {', '.join(names[:5])}, the "
                f"reference gives {', '.join(list(wanted)[:5]) or 'none'}"
            )

    def placed(self) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(placed(self.device))
        stack.enter_context(jax.default_matmul_precision("highest"))
        return stack

    def wanted(
        self, feed: dict[str, Any], outputs: Sequence[str], model: Model, inner: Sequence[str]
    ) -> dict[str, Any]:
        """The reference's outputs, and those of the inner values that it has."""
        if isinstance(self.reference, Mapping):
            return dict(self.reference)
        if isinstance(self.reference, str):
            return reference_outputs(model, feed, self.reference, inner)
        other = inlined(self.reference) if inner else self.reference
        names = {*_makers(other), *other.graph.initializers, *feed}
        taken = {i.name for i in (*other.graph.inputs, *other.graph.optional_inputs)}
        brief = self.platform == "cpu"
        own = checked_feed(other, {n: v for n, v in feed.items() if n in taken})
        with self.placed():
            return chained(
                other, own, [n for n in (*outputs, *inner) if n in names], Watcher(brief)
            )

    def flow(
        self, model: Model, feed: dict[str, Any], wanted: dict[str, Any], names: Sequence[str]
    ) -> _Flow:
        """Our own values of these names, each compared as it flows."""
        outputs = {o.name for o in model.graph.outputs}
        brief = self.platform == "cpu" and len(names) > len(outputs)
        runner, nodes = Watcher(brief), _makers(model)
        with self.placed():
            got = chained(model, feed, names, runner)
        checks = []
        for n in names:
            if n not in wanted:
                continue
            label, op = (nodes[n].label, nodes[n].op_type) if n in nodes else ("", "")
            share, problem = difference(got[n], wanted[n], self.platform)
            if not problem and n in self.traced and denies(self.traced[n], got[n]):
                was = type_of(got[n]) if isinstance(got[n], np.ndarray) else type(got[n]).__name__
                problem = f"{TRACED} {self.traced[n]}, but it is {was}"
            stage = "output" if n in outputs else "value"
            checks.append(Check(n, label, op, stage, share, problem))
        return _Flow(model, feed, wanted, got, checks, runner, brief)

    def explained(self, flow: _Flow, local: Sequence[Check]) -> list[Check]:
        """The checks of the values as they flow, with why they differ where that is no fault."""
        chance = _after(flow.model, {o for n in flow.runner.drew for o in n.outputs})
        departed = {c.value for c in local if c.note == DEPARTS}
        departed = _after(flow.model, departed)
        blamed = any(not c.ok for c in local)
        found, moves = [], None
        for c in flow.checks:
            if c.ok or c.problem.startswith(TRACED):
                found.append(c)
                continue
            got, want = flow.got[c.value], flow.wanted[c.value]
            if c.value in chance:
                c = by_chance(c, got, want)
            if not c.ok and not blamed and c.value in departed:
                c = dataclasses.replace(c, note=FOLLOWS)
            if not c.ok and not blamed and c.stage == "output":
                if moves is None:
                    with self.placed():
                        outputs = [o.name for o in self.model.graph.outputs]
                        moves = rounding_moves(flow.model, flow.feed, outputs, flow.brief)
                if amplified(got, moves[c.value], want, bool(local)):
                    c = dataclasses.replace(c, note=AMPLIFIED)
            found.append(c)
        return found


@dataclasses.dataclass
class _Flow:
    """A model's values as they flow from one set of inputs, compared."""

    model: Model
    feed: dict[str, Any]
    wanted: dict[str, Any]
    got: dict[str, Any]
    checks: list[Check]
    runner: Watcher
    brief: bool


def _makers(model: Model) -> dict[str, Node]:
    """The node that makes each value of the graph."""
    return {o: node for node in model.graph.nodes for o in node.outputs if o}


def _after(model: Model, names: set[str]) -> set[str]:
    """These values and all that follow from them."""
    found = set(names)
    for node in model.graph.nodes:
        if not found.isdisjoint(names_used(node)):
            found.update(o for o in node.outputs if o)
    return found
