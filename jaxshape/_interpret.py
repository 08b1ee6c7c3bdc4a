"""One walk over a graph; what changes is the interpreter.

A graph is walked once, in order. For each node an interpreter's `apply` turns input values into
output values: types (tracing), arrays (running) or tracers (conversion). Subgraphs reach an
operator as `Body` closures over the same walk, so that If, Loop and Scan are operators like any
other, and function bodies are walked where no lowering exists.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

from ._error import JaxshapeError, ModelError, ShapeError
from ._model import Declared, Function, Graph, Model, Node, Stored
from ._op import Op, earliest, select
from ._schema import misfit

DEPTH = 100  # nested calls and subgraphs: deeper ones are refused, not left to the stack


class Interpreter(Protocol):
    """What a walk asks for: the values of stored tensors (initializers, attributes) and the outputs
    of one node.
    """

    def constant(self, stored: Stored) -> Any: ...

    def tensor(self, stored: Stored) -> Any: ...

    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]: ...

    def argument(self, value: Any, name: str) -> Any: ...

    def walk(self, nodes: Sequence[Node], scope: Scope, outputs: Sequence[str]) -> None: ...

    def leave(self, graph: Graph | Function, scope: Scope) -> None: ...


class Scope:
    """The values of one graph under way; names not found here are looked up outside."""

    __slots__ = ("declared", "depth", "model", "opsets", "outer", "path", "values")

    def __init__(
        self, model: Model, opsets: dict[str, int], outer: Scope | None = None, path: str = ""
    ):
        self.model, self.opsets, self.outer, self.path = model, opsets, outer, path
        self.depth = outer.depth + 1 if outer else 0
        self.declared: dict[str, Declared] = {}  # what the file says of the values here
        self.values: dict[str, Any] = {}
        if self.depth > DEPTH:
            raise ModelError(f"graphs nested more than {DEPTH} deep")

    def __getitem__(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise ModelError(f"value {name!r} is used before it is defined")


def walk(nodes: Sequence[Node], scope: Scope, interpreter: Interpreter) -> None:
    """Apply the interpreter to each node in order, binding its outputs in the scope."""
    values = scope.values
    for node in nodes:
        inputs = [None if not n else values[n] if n in values else scope[n] for n in node.inputs]
        for name, value in zip(node.outputs, interpreter.apply(node, inputs, scope), strict=False):
            if name:
                values[name] = value


def enter(
    graph: Graph, arguments: dict[str, Any], scope: Scope, interpreter: Interpreter
) -> list[Any]:
    """Walk a graph with its inputs bound to the arguments; the values of its outputs."""
    for name, stored in graph.initializers.items():
        scope.values[name] = interpreter.constant(stored)
    scope.values.update(arguments)
    scope.declared = graph.declared
    names = [o.name for o in graph.outputs]
    interpreter.walk(graph.nodes, scope, names)
    interpreter.leave(graph, scope)
    return [scope[n] for n in names]


class Body:
    """A subgraph as an operator sees it: a function of its inputs, closed over the outer values."""

    __slots__ = ("graph", "interpreter", "label", "outer")

    def __init__(self, graph: Graph, outer: Scope, interpreter: Interpreter, label: str):
        self.graph, self.outer, self.interpreter, self.label = graph, outer, interpreter, label

    @property
    def n_inputs(self) -> int:
        return len(self.graph.inputs)

    @property
    def n_outputs(self) -> int:
        return len(self.graph.outputs)

    def __call__(self, *arguments: Any) -> list[Any]:
        scope = Scope(
            self.outer.model, self.outer.opsets, self.outer, f"{self.outer.path}{self.label}/"
        )
        names = [i.name for i in (*self.graph.inputs, *self.graph.optional_inputs)]
        if len(arguments) != len(names):
            raise ModelError(
                f"the graph {self.graph.name!r} takes {len(names)} inputs, it gets {len(arguments)}"
            )
        bound = {n: self.interpreter.argument(v, n) for n, v in zip(names, arguments, strict=True)}
        return enter(self.graph, bound, scope, self.interpreter)


def call(
    function: Function, node: Node, inputs: list[Any], scope: Scope, interpreter: Interpreter
) -> list[Any]:
    """Walk a function's body for a node that calls it: a fresh scope, its own opsets, attributes
    bound.
    """
    inner = Scope(scope.model, scope.opsets | function.opsets, None, f"{scope.path}{node.label}/")
    inner.depth = scope.depth + 1
    if inner.depth > DEPTH:
        raise ModelError(f"{node.label}: functions nested more than {DEPTH} deep")
    given = [*inputs, *[None] * (len(function.inputs) - len(inputs))]
    inner.values.update(zip(function.inputs, given, strict=False))
    interpreter.walk(bind(function, node), inner, function.outputs)
    interpreter.leave(function, inner)
    return [inner[name] for name in function.outputs]


@functools.lru_cache(maxsize=4096)
def bind(function: Function, node: Node) -> tuple[Node, ...]:
    """A function's nodes with the caller's attributes in the place of references to them.

    Kept, so that plans and memos that know nodes by identity meet the same ones again.
    """
    if all(n.key is not None for n in function.nodes):
        return function.nodes
    values = {**function.defaults, **node.attrs}
    return tuple([n.bound(values) for n in function.nodes])


def keywords(
    op: Op, node: Node, inputs: Sequence[Any], scope: Scope, interpreter: Interpreter
) -> dict[str, Any]:
    """A node's attributes as an op's keyword arguments: tensors as arrays, graphs as `Body`
    closures.
    """
    if wrong := misfit(node, scope.opsets):
        raise ShapeError(wrong)
    attributes = {
        name: attribute(name, value, node, scope, interpreter) for name, value in node.attrs.items()
    }
    checked = op.check(len(inputs), [x is not None for x in inputs], attributes)
    return {**checked, "n_outputs": len(node.outputs)} if op.wants_outputs else checked


def attribute(name: str, value: Any, node: Node, scope: Scope, interpreter: Interpreter) -> Any:
    if isinstance(value, Stored):
        return interpreter.tensor(value)
    if isinstance(value, Graph):
        return Body(value, scope, interpreter, f"{node.label}/{name}")
    if isinstance(value, tuple) and value and isinstance(value[0], (Stored, Graph)):
        return tuple(attribute(name, v, node, scope, interpreter) for v in value)
    return value


def complete(node: Node, results: Sequence[Any]) -> Sequence[Any]:
    """The results of a node, one at least for each output that has a name."""
    if any(node.outputs[len(results) :]):
        raise ModelError(f"names {len(node.outputs)} outputs, but gives {len(results)}")
    return results


@functools.cache
def load_ops() -> None:
    import jaxshape.ops  # noqa: F401  (registers every operator; here, so that `import jaxshape` stays light)


def lowering(node: Node, scope: Scope) -> Op | Function | None:
    """What computes a node: a model's own function first, then a registered op.

    An operator that is younger than the opset the model imports is taken in its first version:
    onnxruntime's optimizer writes such models.
    """
    function = scope.model.functions.get((node.domain, node.op_type, node.overload))
    if function is not None:
        return function
    load_ops()
    opset = scope.opsets.get(node.domain, 1)
    return select(node.domain, node.op_type, opset) or earliest(node.domain, node.op_type)


def describe(node: Node, scope: Scope) -> str:
    """How errors name a node: `conv_7 (Conv, opset 22)`, with the path of the graphs around it."""
    domain = f"{node.domain}::" if node.domain else ""
    version = scope.opsets.get(node.domain)
    opset = f", opset {version}" if version else ""
    if node.label == f"{domain}{node.op_type} (opset {version})":  # an operator by itself
        return node.label
    return f"{scope.path}{node.label} ({domain}{node.op_type}{opset})"


def annotate(error: Exception, node: Node, scope: Scope) -> JaxshapeError:
    """The same error with the node named in front, once."""
    kind = type(error) if isinstance(error, JaxshapeError) else JaxshapeError
    made = kind(f"{describe(node, scope)}: {error}")
    made.node = node.label  # type: ignore[attr-defined]
    return made
