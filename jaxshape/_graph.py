"""A loaded model as plain, frozen Python, which knows nothing of protobuf.

    Model   graph, functions, opsets
    Graph   inputs, nodes in an order they can run in, initializers, declared types
    Node    operator, names in and out, attributes; subgraphs are Graphs with free names, `captures`

Nothing here is changed once it is made, so equal nodes share one `key` and one dict of attributes,
and types that are declared often are one object.  What holds of every loaded model is said in
`_model.py`, which makes these.
"""

from __future__ import annotations

import graphlib
import heapq
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ._declared import Declared
from ._error import ModelError
from ._tensor import Stored

if TYPE_CHECKING:
    from onnx import ModelProto

    from ._mapped import Mapped

_SMALL = 1024  # elements: tensors up to here are compared by content in a node's key
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AttrRef:
    """Stands for the caller's attribute `name`, inside of a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Input:
    """A name that a graph takes in or gives out, with its declared type."""

    name: str
    type: Declared


class Key:
    """What a node does, apart from its names: equal operators and attributes have the same Key.

    It says neither which opset is meant nor, for a call of a model's own function, which model's.
    """

    __slots__ = ("what", "__weakref__")
    _known: weakref.WeakValueDictionary[Hashable, Key] = weakref.WeakValueDictionary()
    _lock = threading.Lock()

    def __init__(self, what: Hashable) -> None:
        self.what = what

    @classmethod
    def of(
        cls, domain: str, op_type: str, overload: str, attrs: Mapping[str, object]
    ) -> Key | None:
        """Give the one Key there is; None if an attribute holds a graph or refers to a caller's."""
        if not all(map(_freezable, attrs.values())):
            return None
        frozen = tuple((name, _frozen(attrs[name])) for name in sorted(attrs))
        what = (domain, op_type, overload, frozen)
        with cls._lock:
            key = cls._known.get(what)
            if key is None:
                key = cls._known[what] = cls(what)
            return key

    def __repr__(self) -> str:
        return f"Key{self.what}"


def _freezable(value: object) -> bool:
    return not isinstance(
        value[0] if isinstance(value, tuple) and value else value, (Graph, AttrRef)
    )


def _frozen(value: object) -> Hashable:
    """Make an attribute comparable by what it means: 1 is not 1.0, -0.0 is not 0.0, NaN is NaN."""
    if isinstance(value, tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, float):
        return value.hex(), float
    if isinstance(value, Stored) and value.size <= _SMALL and not value.external:
        array = value.array()
        content = tuple(array.flat) if array.dtype == object else array.tobytes()
        return value.dtype, value.shape, content
    return value


# Not frozen=True: that makes the creation of ten thousand nodes three times as slow.
@dataclass(eq=False, slots=True)
class Node:
    """One application of an operator or function; an input or output of name '' is absent."""

    op_type: str
    domain: str  # '' for ai.onnx
    overload: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]  # shared among nodes of equal key
    key: Key | None  # None: holds graphs, or refers to attributes of the function it is in
    captures: frozenset[str] = _NONE  # names that its subgraphs take from outside

    @property
    def label(self) -> str:
        """What messages call the node."""
        return self.name or f"{self.op_type} -> {next(filter(None, self.outputs), '')}"

    @property
    def graphs(self) -> Iterator[Graph]:
        """The subgraphs among the attributes."""
        for value in self.attrs.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Graph):
                    yield item

    def bound(self, values: Mapping[str, Any]) -> Node:
        """Give the node as it is in one call of its function: attribute values for each AttrRef.

        An attribute that refers to one without a value is left out.  Subgraphs are bound as well,
        and what does not change is not copied.
        """

        def bind(value: Any) -> Any:
            if isinstance(value, AttrRef):
                return values.get(value.name)
            if isinstance(value, tuple) and value and isinstance(value[0], Graph):
                return tuple(map(bind, value))
            if isinstance(value, Graph):
                nodes = tuple(n.bound(values) for n in value.nodes)
                # Nodes compare by identity.
                return value if nodes == value.nodes else replace(value, nodes=nodes)
            return value

        if self.key is not None:
            return self
        attrs = {n: b for n, v in self.attrs.items() if (b := bind(v)) is not None}
        if attrs == self.attrs:
            return self
        key = Key.of(self.domain, self.op_type, self.overload, attrs)
        return replace(self, attrs=attrs, key=key)


@dataclass(eq=False, slots=True)
class Graph:
    """Nodes in an order they can run in, between named inputs and outputs."""

    name: str
    inputs: tuple[Input, ...]  # those that must be given
    outputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    initializers: dict[str, Stored]
    optional_inputs: tuple[Input, ...] = ()  # those that an initializer is the default of
    declared: dict[str, Declared] = field(default_factory=dict)  # value_info
    captures: frozenset[str] = _NONE  # free names, to be found in the graphs around this one


@dataclass(eq=False, slots=True)
class Function:
    """An operator that the model defines by nodes of its own."""

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]  # those without a default
    defaults: dict[str, Any]
    nodes: tuple[Node, ...]
    opsets: dict[str, int]
    declared: dict[str, Declared]
    captures: frozenset[str] = _NONE


@dataclass(eq=False, slots=True, repr=False)
class Model:
    """A loaded ONNX model. It reads on demand from its file, or from the `proto` that was given,
    which must not be changed meanwhile.
    """

    graph: Graph
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], Function]  # by domain, name, overload
    ir_version: int
    name: str
    outline: ModelProto  # as protobuf; the large weights of a mapped file are external data of it
    folder: str  # where its external data lies
    mapped: Mapped | None = None

    @property
    def proto(self) -> ModelProto:
        """The model as protobuf; read with all weights that its file holds where it was mapped."""
        return self.mapped.whole if self.mapped else self.outline

    def __str__(self) -> str:
        from .show.text import model_text

        return model_text(self)

    def _repr_html_(self) -> str:
        from .show.html import model_html

        return model_html(self)

    def __repr__(self) -> str:
        opsets = [f"{domain} {v}".strip() for domain, v in sorted(self.opsets.items())]
        count = len(self.graph.nodes)
        nodes = f"{count} node" + "s" * (count != 1)
        return f"Model({self.name!r}, {nodes}, opset {', '.join(opsets)})"


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """Sort by dependence: at each step the first in the file that can run."""
    maker = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    sorter = graphlib.TopologicalSorter(
        {
            i: [maker[name] for name in (*node.inputs, *node.captures) if name in maker]
            for i, node in enumerate(nodes)
        }
    )
    try:
        sorter.prepare()
    except graphlib.CycleError as e:
        labels = " -> ".join(repr(nodes[i].label) for i in e.args[1][:8])
        raise ModelError(f"nodes need one another in a circle: {labels}") from None
    ready, order = list(sorter.get_ready()), []
    heapq.heapify(ready)
    while ready:
        i = heapq.heappop(ready)
        order.append(nodes[i])
        sorter.done(i)
        for unlocked in sorter.get_ready():
            heapq.heappush(ready, unlocked)
    return order


UNFOLDED = 1_000_000  # nodes, each call of a function taken as the nodes it stands for


def check_calls(functions: Mapping[tuple[str, str, str], Function], graph: Graph) -> None:
    """Refuse functions that call themselves, which would never end, or each other so often that it
    would take for ever.
    """

    def called(nodes: Iterable[Node]) -> Iterable[tuple[str, str, str]]:
        for node in nodes:
            yield node.domain, node.op_type, node.overload
            if node.key is None:
                for inner in node.graphs:
                    yield from called(inner.nodes)

    calls = {key: list(called(f.nodes)) for key, f in functions.items()}
    sorter = graphlib.TopologicalSorter({k: functions.keys() & v for k, v in calls.items()})
    try:
        order = list(sorter.static_order())
    except graphlib.CycleError as e:
        names = " -> ".join(name for _, name, _ in reversed(e.args[1]))
        raise ModelError(f"functions call themselves: {names}") from None
    sizes: dict[tuple[str, str, str], int] = {}
    for key in order:
        sizes[key] = sum([1 + sizes.get(k, 0) for k in calls[key]])
    if functions and sum([1 + sizes.get(k, 0) for k in called(graph.nodes)]) > UNFOLDED:
        raise ModelError(f"its functions unfold to more than {UNFOLDED} nodes")
