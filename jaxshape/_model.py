"""From an ONNX file to a Model: the one place where a model's protobuf is read.

Loading establishes what everything after it relies on: each name of a graph is defined once and
before its use, each free name of a subgraph is found outside of it, the default domain is '' and
its opset is a known one, functions do not call themselves, and no nesting is deep enough to
exhaust the stack.  Whatever breaks one of these is a ModelError.

Each field of the protobuf is touched once, since touching is what loading costs: attributes and
types that were met before are recognised by their serialised bytes, and weights are left alone
(see `_tensor.py`).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from google.protobuf.message import EncodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    ValueInfoProto,
)

from ._declared import Declared as Declared
from ._declared import declared
from ._error import ModelError, warn
from ._graph import AttrRef as AttrRef
from ._graph import Function as Function
from ._graph import Graph as Graph
from ._graph import Input as Input
from ._graph import Key as Key
from ._graph import Model as Model
from ._graph import Node as Node
from ._graph import check_calls, in_order
from ._mapped import Mapped
from ._opsets import check_text, domain_of, opsets_of
from ._part import with_parts
from ._source import map_source, open_source
from ._tensor import DTYPES as DTYPES
from ._tensor import Folder, densified, sparse, stored, strings, text
from ._tensor import Sparse as Sparse
from ._tensor import Stored as Stored
from ._tensor import onnx_dtype as onnx_dtype

_DEEPEST = 64  # subgraphs in one another; what protobuf parses from a file has 33 at most
_SMALL = 1024  # elements: a tensor attribute up to here is recognised when it is met again
_NONE: frozenset[str] = frozenset()


def load(source: Any) -> Model:
    """Load an ONNX model, from a path, bytes, a ModelProto or an onnx_ir.Model.

    Weights are not read, and data beside the model's file is not looked for, before they are
    needed.  External data of a model that was not given as a path is looked for in the current
    folder.  A Model is given back as it is.

    Raises ModelError where it is not an ONNX model or not a well-formed one.

    >>> import onnx
    >>> import jaxshape as js
    >>> proto = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 22]>
    ...     small (float[batch, 3] x) => (float[batch, 3] y) { y = Relu(x) }''')
    >>> model = js.load(proto)
    >>> model
    Model('small', 1 node, opset 22)
    >>> model.graph.inputs[0].type.dims
    ('batch', 3)
    """
    if isinstance(source, Model):
        return source
    if mapped := map_source(source):
        return read(mapped.proto, mapped.folder, mapped.path, mapped)
    return read(*open_source(source))


def read(proto: ModelProto, folder: str, origin: str, mapped: Mapped | None = None) -> Model:
    """Read a model whose external data lies in `folder`, some of it in its own `mapped` file;
    `origin` is what errors call it.
    """
    try:
        return _model(proto, folder, mapped)
    except ModelError as e:
        raise ModelError(f"{origin}: {e}") from e.__cause__
    except UnicodeDecodeError as e:
        raise ModelError(f"{origin}: a name in it is not UTF-8: {e}") from e
    except (RecursionError, EncodeError) as e:
        raise ModelError(f"{origin}: graphs or types lie too deep in one another: {e}") from e


def _model(proto: ModelProto, path: str, mapped: Mapped | None) -> Model:
    if not proto.HasField("graph"):
        raise ModelError("this is no ONNX model: it has no graph")
    if proto.ir_version > onnx.IR_VERSION:
        warn(
            f"the model is of IR version {proto.ir_version}, the installed onnx package of "
            f"{onnx.IR_VERSION}: what is new in it goes unseen"
        )
    opsets = opsets_of(proto.opset_import, {})
    if not opsets:
        if proto.ir_version >= 3:
            raise ModelError("it does not say which opset it is written in (opset_import)")
        opsets = {"": 1}
    folder = Folder(path, {mapped.name: mapped.array} if mapped else None)
    reader = _Reader(folder, opsets)
    functions: dict[tuple[str, str, str], Function] = {}
    for f in proto.functions:
        function = reader.function(f)
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise ModelError(
                f"function {function.name} of domain {function.domain!r} is there twice"
            )
        functions[key] = function
    graph = reader.graph(proto.graph)
    check_calls(functions, graph)
    for name in sorted(graph.captures):
        user = next((n.label for n in graph.nodes if name in n.inputs or name in n.captures), None)
        raise ModelError(
            f"{f'node {user!r} takes' if user else 'the graph gives out'} {name!r}, which is "
            "no input, no initializer and no node's output"
        )
    return Model(graph, opsets, functions, proto.ir_version, graph.name, proto, folder.path, mapped)


def function_of(proto: FunctionProto) -> Function:
    """Read a function that stands on its own, such as the one in an operator's schema."""
    return _Reader(Folder(os.getcwd()), {}).function(proto)


class _Reader:
    """Reads graphs within one scope of opsets; keeps the types and attributes that it met."""

    def __init__(self, folder: Folder, opsets: Mapping[str, int]) -> None:
        self._folder = folder
        self._opsets = opsets
        self._types: dict[bytes, Declared] = {}
        self._attrs: dict[tuple, tuple[Mapping[str, Any], Key | None]] = {}

    def function(self, p: FunctionProto) -> Function:
        domain, name = domain_of(p.domain), p.name
        check_text([domain, name, p.overload], p.attribute)
        outer, self._opsets = self._opsets, opsets_of(p.opset_import, self._opsets)
        try:
            inputs, outputs = tuple(p.input), tuple(p.output)
            defined = set(inputs)
            if len(defined) != len(inputs):
                raise ModelError("two inputs have the same name")
            nodes, free = self.nodes(p.node, defined, outputs, 0)
            if free:
                raise ModelError(f"{min(free)!r} is no input and no node's output")
            defaults, _ = self._attributes(p.attribute_proto, ("", "", ""), 0)
            types = {v.name: self.type(v.type) for v in p.value_info}
            opsets = dict(self._opsets)
        except ModelError as e:
            raise ModelError(f"function {name!r} of domain {domain!r}: {e}") from e.__cause__
        finally:
            self._opsets = outer
        required = tuple(a for a in p.attribute if a not in defaults)
        return Function(
            domain,
            name,
            p.overload,
            inputs,
            outputs,
            required,
            dict(defaults),
            nodes,
            opsets,
            types,
        )

    def graph(self, p: GraphProto, depth: int = 0) -> Graph:
        if depth > _DEEPEST:
            raise ModelError(f"subgraphs lie more than {_DEEPEST} deep in one another")
        weights = [stored(t, self._folder) for t in p.initializer]
        weights += [densified(sparse(t, self._folder)) for t in p.sparse_initializer]
        initializers = {w.name: w for w in weights}
        if len(initializers) != len(weights):
            raise ModelError(f"two initializers are called {_repeated(w.name for w in weights)!r}")
        inputs, outputs = self._inputs(p.input), self._inputs(p.output)
        defined = {i.name for i in inputs}
        if len(defined) != len(inputs):
            raise ModelError(f"two inputs are called {_repeated(i.name for i in inputs)!r}")
        defined.update(initializers)
        if "" in defined:
            raise ModelError("an input or initializer has no name")
        nodes, captures = self.nodes(p.node, defined, [o.name for o in outputs], depth)
        return Graph(
            str(p.name),
            tuple(i for i in inputs if i.name not in initializers),
            outputs,
            nodes,
            initializers,
            tuple(i for i in inputs if i.name in initializers),
            {v.name: self.type(v.type) for v in p.value_info},
            captures,
        )

    def _inputs(self, protos: Iterable[ValueInfoProto]) -> tuple[Input, ...]:
        return tuple(Input(v.name, self.type(v.type)) for v in protos)

    def nodes(
        self, protos: Iterable[NodeProto], defined: set[str], outputs: Sequence[str], depth: int
    ) -> tuple[tuple[Node, ...], frozenset[str]]:
        """Read nodes into an order that can run; also give the names that are free in them.

        `defined` holds what is there before the first node, and is added to.
        """
        nodes: list[Node] = []
        early: set[str] = set()  # used before this graph defines them, if it ever does
        defined.add("")  # an absent input
        for p in protos:
            node = self._node(p, depth)
            nodes.append(node)
            if node.captures or not defined.issuperset(node.inputs):
                early.update(node.captures.union(node.inputs) - defined)
            for name in node.outputs:
                if name not in defined:
                    defined.add(name)
                elif name:
                    raise ModelError(
                        f"node {node.label!r} defines {name!r}, which is there already"
                    )
        check_text(defined, early, outputs, (n.name for n in nodes))
        if not early.isdisjoint(defined):
            nodes = in_order(nodes)
        return with_parts(nodes), frozenset(early.union(outputs) - defined)

    def _node(self, p: NodeProto, depth: int) -> Node:
        op_type, domain, overload = p.op_type, domain_of(p.domain), p.overload
        name, inputs, outputs = p.name, tuple(p.input), tuple(p.output)
        if not op_type:
            raise ModelError(f"node {name!r} -> {list(outputs)} does not say its op_type")
        op = domain, op_type, overload
        try:
            if not domain and "" not in self._opsets:
                raise ModelError("no opset is imported for the default domain")
            attrs, key = self._attributes(p.attribute, op, depth)
        except ModelError as e:
            label = Node(op_type, domain, overload, name, inputs, outputs, {}, None).label
            raise ModelError(f"node {label!r}: {e}") from e.__cause__
        node = Node(op_type, domain, overload, name, inputs, outputs, attrs, key)
        if key is None:
            node.captures = _NONE.union(*(g.captures for g in node.graphs))
        return node

    def _attributes(
        self, protos: Sequence[AttributeProto], op: tuple[str, str, str], depth: int
    ) -> tuple[Mapping[str, Any], Key | None]:
        seen = None
        if all(map(_is_small, protos)):
            seen = (op, *(a.SerializeToString() for a in protos))
            if seen in self._attrs:
                return self._attrs[seen]
        attrs = {a.name: self._value(a, depth) for a in protos}
        if len(attrs) != len(protos):
            raise ModelError(f"attribute {_repeated(a.name for a in protos)!r} is there twice")
        check_text(op, attrs)
        result = attrs, Key.of(*op, attrs)
        if seen:
            self._attrs[seen] = result
        return result

    def _value(self, a: AttributeProto, depth: int) -> Any:
        if a.ref_attr_name:
            return AttrRef(a.ref_attr_name)
        what = f"attribute {a.name!r}"
        match a.type or _kind(a):
            case AttributeProto.FLOAT:
                return a.f
            case AttributeProto.INT:
                return a.i
            case AttributeProto.STRING:
                return text(a.s)
            case AttributeProto.FLOATS:
                return tuple(a.floats)
            case AttributeProto.INTS:
                return tuple(a.ints)
            case AttributeProto.STRINGS:
                return strings(a.strings)
            case AttributeProto.TENSOR:
                return stored(a.t, self._folder, what)
            case AttributeProto.TENSORS:
                return tuple(stored(t, self._folder, what) for t in a.tensors)
            case AttributeProto.SPARSE_TENSOR:
                return sparse(a.sparse_tensor, self._folder, what)
            case AttributeProto.SPARSE_TENSORS:
                return tuple(sparse(t, self._folder, what) for t in a.sparse_tensors)
            case AttributeProto.GRAPH if a.HasField("g"):
                return self.graph(a.g, depth + 1)
            case AttributeProto.GRAPHS:
                return tuple(self.graph(g, depth + 1) for g in a.graphs)
            case AttributeProto.TYPE_PROTO:
                return self.type(a.tp)
            case AttributeProto.TYPE_PROTOS:
                return tuple(map(self.type, a.type_protos))
            case kind:
                raise ModelError(f"{what} holds nothing that attributes of type {kind} hold")

    def type(self, p: TypeProto) -> Declared:
        """Read a type; equal ones are the same object."""
        seen = p.SerializeToString()
        found = self._types.get(seen)
        if found is None:
            found = self._types[seen] = declared(p)
        return found


def _is_small(a: AttributeProto) -> bool:
    """Whether an attribute's bytes are a cheap way to recognise it."""
    return a.type in _PLAIN or (a.type == AttributeProto.TENSOR and math.prod(a.t.dims) <= _SMALL)


_PLAIN = {
    AttributeProto.FLOAT,
    AttributeProto.INT,
    AttributeProto.STRING,
    AttributeProto.FLOATS,
    AttributeProto.INTS,
    AttributeProto.STRINGS,
}


def _kind(a: AttributeProto) -> int:
    """Tell the type of an attribute from what it holds: files of IR version 1 do not say it."""
    for descriptor, _ in a.ListFields():
        kind = _KINDS.get(descriptor.name)
        if kind is not None:
            return kind
    return AttributeProto.UNDEFINED


_KINDS = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
    "tensors": AttributeProto.TENSORS,
    "graphs": AttributeProto.GRAPHS,
}


def _repeated(names: Iterable[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)


def node_of(proto: NodeProto, opsets: Mapping[str, int]) -> Node:
    """Read a node that stands on its own; what it takes, its subgraphs too, need not be defined."""
    try:
        return _Reader(Folder(os.getcwd()), opsets).nodes([proto], set(), (), 0)[0][0]
    except UnicodeDecodeError as e:
        raise ModelError(f"a name in a node is not UTF-8: {e}") from e
    except (RecursionError, EncodeError) as e:
        raise ModelError(f"a node's graphs or types lie too deep in one another: {e}") from e
