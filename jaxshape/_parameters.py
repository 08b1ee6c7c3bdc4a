"""Which stored tensors of a model are parameters, which are buffers, and what they are called.

Parameters are floats of more than one element. What some node must know beforehand (a shape, an
axis, a scale) is neither: it stays on the host. So is what such a value is computed from, as far as
it is computed from stored tensors and sizes alone; with data in it, it could not be known anyway.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TypeAlias

import numpy as np

from ._error import UnknownValueError
from ._interpret import DEPTH, Scope, bind, lowering
from ._model import Function, Graph, Input, Model, Node, Stored
from ._op import Op
from ._precision import FLOATS
from ._value import STRING

LARGE = 1024  # elements: integer arrays above this are arguments of jit, not constants in it

Freeze: TypeAlias = str | Sequence[str] | Callable[[str], bool]


class _Value:
    """A value that can be known beforehand: a stored tensor by its id, an input of the model by its
    name, or what is computed from such values.
    """

    __slots__ = ("parents", "source")

    def __init__(self, parents: Iterable[_Value] = (), source: int | str | None = None):
        self.parents, self.source = tuple(parents), source


_Known: TypeAlias = MutableMapping[str, _Value]  # by name; values that depend on data are absent


def sorted_out(model: Model, freeze: Freeze) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """A model's parameters and its buffers by name: the frozen ones, and large integer arrays.

    Raises UnknownValueError where a pattern of `freeze` names no parameter.
    """
    parameters: dict[str, Stored] = {}
    buffers: dict[str, Stored] = {}
    static = used_statically(model)
    for name, stored in tensors(model.graph):
        if stored.dtype == STRING or id(stored) in static:
            continue
        if is_parameter(stored):
            parameters[name] = stored
        elif stored.size > LARGE:
            buffers[name] = stored
    frozen = {n: parameters.pop(n) for n in _matching(list(parameters), freeze)}
    return parameters, {**frozen, **buffers}


def is_parameter(stored: Stored) -> bool:
    """Whether a stored tensor is trainable: floating point, of more than one element."""
    return stored.size > 1 and (stored.dtype in FLOATS or stored.dtype.kind == "c")


def _matching(names: Sequence[str], freeze: Freeze) -> list[str]:
    """The names that a predicate or one of the patterns picks."""
    if callable(freeze):
        return [n for n in names if freeze(n)]
    picked: dict[str, None] = {}
    for pattern in [freeze] if isinstance(freeze, str) else freeze:
        found = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
        if not found:
            raise UnknownValueError(
                f"freeze={pattern!r} matches no parameter; there are {', '.join(names[:8])}"
                f"{', ...' if len(names) > 8 else ''}"
            )
        picked.update(dict.fromkeys(found))
    return list(picked)


# names --------------------------------------------------------------------------------------------


def tensors(graph: Graph) -> Iterator[tuple[str, Stored]]:
    """Every stored tensor of a graph and its subgraphs, once, with a name of its own.

    It is the name in the file, with the node in front inside of subgraphs, then the attribute, then
    a number, as far as it takes to be unique.
    """
    taken: set[str] = set()
    for node, attribute, name, stored in _tensors(graph, "", ""):
        made = next(n for n in _names(node, attribute, name) if n not in taken)
        taken.add(made)
        yield made, stored


def _names(node: str, attribute: str, name: str) -> Iterator[str]:
    yield f"{node}{name}"
    yield f"{node}{attribute}{name}"
    number = 2
    while True:
        yield f"{node}{attribute}{name}_{number}"
        number += 1


def _tensors(graph: Graph, path: str, attribute: str) -> Iterator[tuple[str, str, str, Stored]]:
    for name, stored in graph.initializers.items():
        yield path, attribute, name, stored
    for node in graph.nodes:
        for stored in _constants(node):
            yield path, attribute, node.outputs[0], stored
        for name, value in node.attrs.items():
            for sub in value if isinstance(value, tuple) else (value,):
                if isinstance(sub, Graph):
                    yield from _tensors(sub, f"{path}{node.label}/", f"{name}/")


def _constants(node: Node) -> list[Stored]:
    """The tensors that a node without inputs gives."""
    return [] if node.inputs else [v for v in node.attrs.values() if isinstance(v, Stored)]


# what is used statically --------------------------------------------------------------------------


def used_statically(model: Model) -> set[int]:
    """The ids of stored tensors that decide what some node must know: shapes, axes, scales."""
    scope, found = Scope(model, model.opsets), _Found()
    _enter(model.graph, {}, scope, found)
    return {i for i in _sources([*found.under_jit, *found.by_data]) if isinstance(i, int)}


def sizing_inputs(model: Model) -> frozenset[str]:
    """The names of inputs that decide sizes: used statically themselves, or integers from which
    such a value is computed by nothing but stored tensors and sizes; or which branch is taken, and
    so what sizes there are: single bools, such as a decoder's "there is a cache".
    """
    inputs = {i.name: i for i in (*model.graph.inputs, *model.graph.optional_inputs)}
    scope, found = Scope(model, model.opsets), _Found()
    known: _Known = {n: _Value() for n in model.graph.initializers}
    known |= {n: _Value(source=n) for n in inputs}
    _follow(model.graph.nodes, known, scope, found)
    direct = {v.source for v in found.under_jit}
    decide = direct | {
        n
        for n in _sources(found.under_jit)
        if n in inputs and (t := inputs[str(n)].type.dtype) is not None and t.kind in "iu"
    }
    decide |= {n for n in _sources(found.by_data) if n in inputs and _flag(inputs[str(n)])}
    return frozenset(inputs.keys() & decide)


def _flag(given: Input) -> bool:
    declared = given.type
    return declared.dtype == np.bool_ and declared.dims is not None and {*declared.dims} <= {1}


class _Found:
    """Values that some node must know: under jit too, or where they are not data (control flow)."""

    def __init__(self) -> None:
        self.under_jit: list[_Value] = []
        self.by_data: list[_Value] = []


def _sources(values: Iterable[_Value]) -> set[int | str]:
    """What these values are computed from in the end."""
    seen: set[_Value] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            todo += value.parents
    return {v.source for v in seen if v.source is not None}


def _enter(graph: Graph, outer: Mapping[str, _Value], scope: Scope, found: _Found) -> None:
    """Follow a graph's values; those of the graph around it stay visible, its inputs do not."""
    own: _Known = {name: _Value(source=id(s)) for name, s in graph.initializers.items()}
    inputs = {i.name for i in (*graph.inputs, *graph.optional_inputs)} - own.keys()
    visible = {n: outer[n] for n in graph.captures if n in outer and n not in inputs}
    _follow(graph.nodes, {**visible, **own}, scope, found)


def _follow(nodes: Sequence[Node], known: _Known, scope: Scope, found: _Found) -> None:
    for node in nodes:
        names = [n for n in (*node.inputs, *node.captures) if n]
        op = lowering(node, scope)
        for sub in node.graphs:
            _enter(sub, known, scope, found)
        if isinstance(op, Function):
            _call(op, node, known, scope, found)
            continue
        sure = all(n in known for n in names)
        if isinstance(op, Op):
            used = [n for i, n in enumerate(node.inputs) if n in known and op.is_static(i)]
            (found.by_data if op.traced else found.under_jit).extend(known[n] for n in used)
            sure = op.sizes or sure and not op.random
        if sure:
            names = [] if isinstance(op, Op) and op.sizes else names
            stored = [_Value(source=id(c)) for c in _constants(node)]
            value = _Value([*(known[n] for n in names), *stored])
            known.update({n: value for n in node.outputs if n})


def _call(function: Function, node: Node, known: _Known, scope: Scope, found: _Found) -> None:
    inner = Scope(scope.model, scope.opsets | function.opsets)
    inner.depth = scope.depth + 1
    if inner.depth > DEPTH:
        return
    own: _Known = {
        name: known[given]
        for name, given in zip(function.inputs, node.inputs, strict=False)
        if given in known
    }
    _follow(bind(function, node), own, inner, found)
    for given, name in zip(node.outputs, function.outputs, strict=False):
        if given and name in own:
            known[given] = own[name]
