"""A part of a model: the nodes that lie between some of its values, as a model of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ._declared import Declared
from ._error import UnknownValueError, similar
from ._model import Graph, Input, Model, Node


def sliced(model: Model, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Model:
    """The model that computes `outputs` from `inputs`, values of the graph outside of subgraphs.

    None stands for the model's own. Only what is needed is kept, of nodes and of stored tensors.

    Raises UnknownValueError where the graph has no such value, or where an output needs an input of
    the model that is not among `inputs`.
    """
    if inputs is None and outputs is None:
        return model
    graph = model.graph
    own = {i.name: i for i in (*graph.inputs, *graph.optional_inputs)}
    wanted = [o.name for o in graph.outputs] if outputs is None else _names(outputs)
    given = None if inputs is None else _names(inputs)
    values = {*own, *graph.initializers, *(n for node in graph.nodes for n in node.outputs if n)}
    for name in (*wanted, *(given or ())):
        if name not in values:
            close = similar(name, values) or " outside of subgraphs"
            raise UnknownValueError(f"the model has no value {name!r}{close}")
    cut = frozenset(given or ())
    nodes, names = needed(graph.nodes, wanted, cut)
    if given is None:
        given = [n for n in own if n in names]
    elif missing := [i.name for i in graph.inputs if i.name in names - cut]:
        raise UnknownValueError(
            f"{', '.join(wanted)} cannot be computed from {', '.join(given) or 'nothing'} alone: "
            f"inputs are missing: {', '.join(missing)}"
        )
    types = _types(graph)
    stored = {
        n: s for n, s in graph.initializers.items() if n in names and (n in own or n not in cut)
    }
    taken = [Input(n, types.get(n, Declared())) for n in given]
    part = Graph(
        graph.name,
        tuple(i for i in taken if i.name not in stored),
        tuple(Input(n, types.get(n, Declared())) for n in wanted),
        nodes,
        stored,
        tuple(i for i in taken if i.name in stored),
        {n: t for n, t in graph.declared.items() if n in names},
    )
    return dataclasses.replace(model, graph=part)


def _names(given: Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))


def needed(
    nodes: Sequence[Node], wanted: Iterable[str], cut: frozenset[str] = frozenset()
) -> tuple[tuple[Node, ...], set[str]]:
    """The nodes that `wanted` is computed by, and every name that is read; what is cut is given."""
    names, kept = {*wanted}, []
    for node in reversed(nodes):
        if names.isdisjoint(n for n in node.outputs if n and n not in cut):
            continue
        names.update(n for n in (*node.inputs, *node.captures) if n)
        if not cut.isdisjoint(node.outputs):  # what is given is not computed over
            outputs = tuple("" if n in cut else n for n in node.outputs)
            node = dataclasses.replace(node, name=node.label, outputs=outputs)
        kept.append(node)
    return tuple(reversed(kept)), names


def _types(graph: Graph) -> Mapping[str, Declared]:
    """What the file says of the graph's values."""
    ends = (*graph.inputs, *graph.optional_inputs, *graph.outputs)
    return {**graph.declared, **{i.name: i.type for i in ends}}
