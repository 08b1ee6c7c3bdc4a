"""The part of a graph that a node names by its attributes, as a graph of its own.

Gradient differentiates what lies between the values `xs`, `zs` and the value `y` of the graph it
stands in. When a model is read, such a node is given that part as an attribute, `part`; so it is a
node with a subgraph like any other, whose outer names are captured, and no interpreter knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ._declared import Declared
from ._graph import Graph, Input, Node


def with_parts(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, each with the part of them that its attributes name, where they do."""
    made = list(nodes)
    for i, node in enumerate(made):  # in order: a part may hold nodes that have parts
        attrs = node.attrs
        if "xs" in attrs and isinstance(attrs.get("y"), str):
            part = between(made, (*attrs["xs"], *(attrs.get("zs") or ())), attrs["y"])
            attrs = {**attrs, "part": part}
            made[i] = replace(node, attrs=attrs, key=None, captures=part.captures)
    return tuple(made)


def between(nodes: Sequence[Node], inputs: Sequence[str], output: str) -> Graph:
    """The nodes that compute `output` from `inputs`; what else they use is captured."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    kept: set[int] = set()
    free: set[str] = set()
    wanted = [output]
    while wanted:
        name = wanted.pop()
        if not name or name in inputs:
            continue
        node = makers.get(name)
        if node is None:
            free.add(name)
        elif id(node) not in kept:
            kept.add(id(node))
            wanted += [*node.inputs, *node.captures]
    return Graph(
        f"from {', '.join(inputs)} to {output}",
        tuple(Input(name, Declared()) for name in inputs),
        (Input(output, Declared()),),
        tuple(node for node in nodes if id(node) in kept),
        {},
        captures=frozenset(free),
    )
