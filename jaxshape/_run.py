"""Running a model: segments under jit, host steps between them.

The walk is that of tracing; its values are arrays. A `Stage` is a list of nodes still to run; for
each combination of input types (and of the contents that are used statically) it keeps one `Plan`
with its compiled segment. So a call on known types is: look up the plan, call the segment; and the
same again after each host step.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._device import compiler_options
from ._error import ExecutionError, JaxshapeError, UnsupportedError
from ._facts import Facts, using
from ._feed import checked_feed
from ._host import content_key
from ._interpret import Scope, annotate, enter, walk
from ._lower import Lowerer
from ._mapped import release
from ._model import Model, Node, Stored, load
from ._plan import Plan, make_plan, names_used
from ._random import using_key
from ._slice import sliced
from ._tracer import looked_into
from ._value import STRING, MapType, TensorType

KEPT = 256  # plans of a stage, the last ones used: what serves all sizes must not grow for ever


class Stage:
    """Nodes still to run, and the plans made for them so far."""

    def __init__(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        folded: Mapping[str, Any] | None = None,
    ):
        self.nodes, self.outputs = tuple(nodes), tuple(outputs)
        self.folded = dict(folded or {})  # what the plans before computed on the host: it is fixed
        made = {n for node in nodes for n in node.outputs}
        names = dict.fromkeys([n for node in nodes for n in names_used(node)])
        self.names = tuple(n for n in names if n not in made and n not in self.folded)
        self.static: dict[str, None] = {}  # names whose content some plan uses
        self.plans: collections.OrderedDict[Any, Plan] = collections.OrderedDict()

    def plan(self, scope: Scope, values: Mapping[str, Any]) -> Plan:
        """The plan for these values, made on first use; contents are looked at only where they are
        used.
        """
        while True:
            key = (
                *[_type_key(values[n]) for n in self.names],
                *[_content(values[n]) for n in self.static],
            )
            plan = self.plans.get(key)
            if plan is not None:
                with contextlib.suppress(KeyError):  # another thread has let go of it
                    self.plans.move_to_end(key)
            else:
                given = {
                    n: np.asarray(values[n]) if n in self.static else _typed(values[n])
                    for n in self.names
                }
                given |= self.folded
                plan = self.plans[key] = make_plan(self.nodes, scope, given, self.outputs)
                if len(self.plans) > KEPT:
                    self.plans.popitem(last=False)
            ready = [n for n in plan.wanted if n in values and n not in self.static]
            if not ready:
                return plan
            self.static.update(dict.fromkeys(ready))


class Runner(Lowerer):
    """The interpreter behind `run` and `InferenceSession`: walks by stages, keeps plans and
    weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stages: dict[Any, Stage] = {}
        self.weights: dict[int, Any] = {}
        self.options: dict[str, Any] = {}  # of the compiler, beside those that all our jits have

    def lowerer(self) -> Lowerer:
        """What computes the nodes of a segment under jit."""
        return Lowerer()

    def constant(self, stored: Stored) -> Any:
        return stored  # stays at rest until a segment or a step takes it

    def walk(self, nodes: Sequence[Node], scope: Scope, outputs: Sequence[str]) -> None:
        key = (tuple(map(id, nodes)), tuple(outputs))
        stage = self.stages.get(key)
        if stage is None:
            stage = self.stages[key] = Stage(nodes, outputs)
        while stage is not None:
            plan = stage.plan(scope, {n: scope[n] for n in stage.names})
            scope.values.update(plan.known)
            if plan.segment:
                scope.values.update(self._segment(plan, scope))
            for node in plan.steps:
                self._step(node, scope)
            if plan.rest and plan.following is None:
                plan.following = Stage(plan.rest, outputs, stage.folded | plan.known)
            stage = plan.following

    def _segment(self, plan: Plan, scope: Scope) -> dict[str, Any]:
        given = {n: scope[n] for n in plan.inputs}
        small = {n: v for n, v in given.items() if isinstance(v, Stored) and looked_into(v)}
        arguments = {n: self.on_device(v) for n, v in given.items() if n not in small}
        if plan.call is None:
            constants = {n: v.array() for n, v in small.items()} | plan.known
            segment = _segment(plan, scope, constants, self.lowerer())
            plan.call = jax.jit(segment, compiler_options=compiler_options() | self.options)
        try:
            # JAX ends the process where an array is looked at of which there is no memory
            return jax.block_until_ready(plan.call(arguments))
        except jax.errors.JaxRuntimeError as e:
            raise ExecutionError(str(e)) from e

    def _step(self, node: Node, scope: Scope) -> None:
        """One node by itself, with everything on the host."""
        inputs = [self.on_host(scope[n]) if n else None for n in node.inputs]
        try:
            outputs = self.apply(node, inputs, scope)
        except JaxshapeError as e:
            raise e if hasattr(e, "node") else annotate(e, node, scope) from e
        scope.values.update({n: v for n, v in zip(node.outputs, outputs, strict=False) if n})

    def on_device(self, value: Any) -> Any:
        """A stored tensor as an array on the device, put there once; other values as they are."""
        if not isinstance(value, Stored):
            return value
        if id(value) not in self.weights:
            array = value.array()
            self.weights[id(value)] = (
                array if array.dtype == STRING else release(array, jax.device_put(array))
            )
        return self.weights[id(value)]

    def on_host(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.on_host(v) for v in value]
        if isinstance(value, Stored):
            return value.array()
        return value if value is None or isinstance(value, dict) else np.asarray(value)


def _segment(
    plan: Plan, scope: Scope, constants: Mapping[str, Any], lowerer: Lowerer
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The nodes of a plan as one function of arrays by name.

    It holds nothing of the run that it was made for, whose values would live as long as it does.
    """
    model, opsets, path, depth = scope.model, scope.opsets, scope.path, scope.depth
    nodes, outputs = plan.segment, plan.outputs

    def segment(arrays: dict[str, Any]) -> dict[str, Any]:
        inner = Scope(model, opsets, None, path)
        inner.depth = depth
        inner.values.update(constants)
        inner.values.update(arrays)
        walk(nodes, inner, lowerer)
        return {n: inner.values[n] for n in outputs}

    return segment


def _type_key(value: Any) -> Any:
    if isinstance(value, Stored):
        return None  # constant: the same at every call
    if isinstance(value, list):
        return tuple(map(_type_key, value))
    if isinstance(value, dict):
        return _typed(value)
    return None if value is None else (value.shape, value.dtype)


def _content(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_content, value))
    return None if value is None or isinstance(value, Stored) else content_key(np.asarray(value))


def _typed(value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(v) for v in value]
    if value is None or isinstance(value, Stored):
        return value
    if isinstance(value, dict):
        return _map_type(value)
    return TensorType(np.dtype(value.dtype), tuple(value.shape))


def _map_type(value: Mapping[Any, Any]) -> MapType:
    """The type of a map, as its first entry tells."""
    for key, v in value.items():
        elem = STRING if isinstance(v, str) else np.asarray(v).dtype
        return MapType(STRING if isinstance(key, str) else np.int64, TensorType(elem, ()))
    return MapType(None, None)


@contextlib.contextmanager
def placed(device: Any) -> Iterator[None]:
    """JAX's settings for our own jit: 64-bit types, strict promotion of dtypes, promotion of ranks,
    and the chosen device.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        stack.enter_context(jax.numpy_dtype_promotion("strict"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        stack.enter_context(using(Facts()))
        stack.enter_context(using_key())
        if device is not None:
            stack.enter_context(jax.default_device(find_device(device)))
        yield


def find_device(device: Any) -> Any:
    """A `jax.Device` from a device, or a name as `"cpu"`, `"gpu"`, `"cuda:1"`."""
    if not isinstance(device, str):
        return device
    kind, _, index = device.lower().partition(":")
    try:
        return jax.devices(kind)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError) as e:
        known = ", ".join(sorted({d.platform for d in jax.devices()}))
        raise UnsupportedError(f"no device {device!r} here; JAX sees {known}") from e


def execute(model: Model, feed: Mapping[str, Any], runner: Runner) -> dict[str, Any]:
    """Run a model's graph on a checked feed; the outputs as NumPy arrays by name."""
    scope = Scope(model, model.opsets)
    outputs = enter(model.graph, dict(feed), scope, runner)
    return {o.name: runner.on_host(v) for o, v in zip(model.graph.outputs, outputs, strict=True)}


def run(
    model: Any,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    outputs: Sequence[str] | None = None,
    device: Any = None,
) -> dict[str, Any]:
    """Run an ONNX model, on CPU or GPU.

    Args:
      model: what `load` takes: a path, bytes, a ModelProto or a Model.
      inputs: arrays by input name, or in the order of the model's inputs. A sequence is a list of
        arrays, an empty optional is None. Inputs that have a default in the model may be left out,
        and those that `outputs` do not need.
      outputs: names of values to compute instead of the model's outputs, intermediate ones too.
      device: a `jax.Device` or its name (`"cpu"`, `"gpu"`, `"cuda:1"`); None: JAX's default.

    Returns:
      The outputs as NumPy arrays (lists for sequences) by name.

    Raises:
      ModelError: the file is not a proper model, or external data is missing.
      UnknownValueError: an input or a value that the model does not have, or a missing input.
      ShapeError: an input of the wrong dtype, rank or size, or sizes that contradict each other.
      UnsupportedError: an operator that nobody has registered, or a device that is not there.

    Example:
      >>> import numpy as np, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N] y) { y = ReduceSum <keepdims=0> (x, axes) }''')
      >>> _ = m.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
      >>> js.run(m, {"x": np.ones((3, 2), np.float32)})
      {'y': array([2., 2., 2.], dtype=float32)}
    """
    loaded = load(model)
    part = sliced(loaded, None, outputs)
    feed = checked_feed(loaded, inputs, {i.name for i in part.graph.inputs})
    taken = {i.name for i in (*part.graph.inputs, *part.graph.optional_inputs)}
    with placed(device):
        return execute(part, {n: v for n, v in feed.items() if n in taken}, Runner())
