"""Writing types and parameters back into an ONNX model; the one place that makes protobuf."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from ._dim import Dim
from ._host import type_of
from ._join import elem_join, elem_type
from ._model import Graph, Model, Node, Stored, onnx_dtype, read
from ._schema import gives_optional
from ._value import MapType, OptionalType, SequenceType, TensorType
from ._values import Values


def type_proto(value: Any) -> onnx.TypeProto | None:
    """The TypeProto of a type or value; sizes as dim_value or dim_param. None where nothing is
    known.
    """
    t = type_of(value)
    made = onnx.TypeProto()
    if isinstance(t, list):
        elem = type_proto(t[0]) if t else None
        if elem is None:
            return None
        for v in t[1:]:
            if type_proto(v) != elem and elem.HasField("tensor_type"):
                elem.tensor_type.ClearField("shape")
        made.sequence_type.elem_type.CopyFrom(elem)
    elif isinstance(t, TensorType):
        if t.dtype is None and t.shape is None:
            return None
        tensor = made.tensor_type
        tensor.elem_type = 0 if t.dtype is None else onnx_dtype(t.dtype)
        if t.shape is not None:
            tensor.shape.SetInParent()
            for d in t.shape:
                dim = tensor.shape.dim.add()
                if type(d) is int:
                    dim.dim_value = d
                elif isinstance(d, Dim):
                    dim.dim_param = str(d)
    elif isinstance(t, SequenceType):
        elem = type_proto(t.elem) if t.elem is not None else None
        if elem is None:
            return None
        made.sequence_type.elem_type.CopyFrom(elem)
    elif isinstance(t, OptionalType):
        elem = type_proto(t.elem) if t.elem is not None else None
        if elem is None:
            return None
        made.optional_type.elem_type.CopyFrom(elem)
    elif isinstance(t, MapType):
        elem = type_proto(t.elem)
        if t.key is None or elem is None:
            return None
        made.map_type.key_type = onnx_dtype(t.key)
        made.map_type.value_type.CopyFrom(elem)
    else:
        return None
    return made


class Writer:
    """Writes types into a copy of a model's protobuf, each distinct type made once."""

    def __init__(self, model: Model, walks: Iterable[Values]):
        self._protos: dict[Any, onnx.TypeProto | None] = {}
        self._functions, self._opsets = model.functions, model.opsets
        self._walks: dict[int, list[Values]] = {}
        for values in walks:
            self._walks.setdefault(id(values.graph), []).append(values)

    def _proto(self, name: str, walks: Sequence[Mapping[str, Any]]) -> onnx.TypeProto | None:
        """What holds of a value in all walks of its graph."""
        types = [values[name] for values in walks if name in values]
        t = functools.reduce(elem_join, map(elem_type, types)) if len(types) > 1 else types[0]
        if not isinstance(t, TensorType):
            return type_proto(t)
        if t not in self._protos:
            self._protos[t] = type_proto(t)
        return self._protos[t]

    def graph(
        self, graph: Graph, proto: onnx.GraphProto, walks: Sequence[Mapping[str, Any]]
    ) -> None:
        """Fill value_info and the outputs of one graph, and of those inside of it."""
        if walks:
            outputs = {o.name for o in proto.output}
            names = {name for node in graph.nodes for name in node.outputs} - outputs
            optional = self._optionals(graph.nodes)
            self._info(proto.value_info, [n for n in walks[0] if n in names], walks, optional)
            for output in proto.output:
                made = self._proto(output.name, walks) if output.name in walks[0] else None
                if made is not None:
                    _replace(output.type, _wrapped(made) if output.name in optional else made)
        self._subgraphs(graph.nodes, proto.node)

    def function(self, proto: onnx.FunctionProto) -> None:
        """Fill in what holds in every call of a function; of one that is never called, nothing."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        function = self._functions[domain, proto.name, proto.overload]
        walks = self._walks.get(id(function))
        if walks:
            optional = self._optionals(function.nodes)
            self._info(proto.value_info, list(walks[0]), walks, optional)
            self._subgraphs(function.nodes, proto.node)

    def _optionals(self, nodes: Sequence[Node]) -> set[str]:
        """The values that are optionals by the standard: one that is there is traced as what it
        holds.
        """
        return {n for node in nodes if gives_optional(node, self._opsets) for n in node.outputs}

    def _info(
        self,
        infos: Any,
        names: Iterable[str],
        walks: Sequence[Mapping[str, Any]],
        optional: set[str],
    ) -> None:
        """Give the named values their types; what else is declared stays."""
        made = {n: p for n in names if n and (p := self._proto(n, walks)) is not None}
        made |= {n: _wrapped(made[n]) for n in optional & made.keys()}
        for info in infos:
            if info.name in made:
                _replace(info.type, made.pop(info.name))
        for name, proto in made.items():
            infos.add(name=name).type.CopyFrom(proto)

    def _subgraphs(self, nodes: Sequence[Node], protos: Sequence[onnx.NodeProto]) -> None:
        for graph, inside in _subgraphs(nodes, protos):
            self.graph(graph, inside, self._walks.get(id(graph), []))


def _subgraphs(
    nodes: Sequence[Node], protos: Sequence[onnx.NodeProto]
) -> Iterator[tuple[Graph, onnx.GraphProto]]:
    """Each subgraph of these nodes with the protobuf that it was read from."""
    with_graphs = {node.outputs: node for node in nodes if any(True for _ in node.graphs)}
    for proto in protos if with_graphs else ():
        node = with_graphs.get(tuple(proto.output))
        attrs = node.attrs if node is not None else {}
        for attribute in proto.attribute:
            value = attrs.get(attribute.name)
            several = attribute.graphs or (attribute.g,)
            graphs = value if isinstance(value, tuple) else (value,)
            for graph, inside in zip(graphs, several, strict=False):
                if isinstance(graph, Graph):
                    yield graph, inside


def _wrapped(made: onnx.TypeProto) -> onnx.TypeProto:
    """The type of an optional that holds this."""
    if made.HasField("optional_type"):
        return made
    optional = onnx.TypeProto()
    optional.optional_type.elem_type.CopyFrom(made)
    return optional


def _replace(old: onnx.TypeProto, made: onnx.TypeProto) -> None:
    """Put a type in the place of another, whose denotations are kept; an optional stays one."""
    if old.HasField("optional_type"):
        made = _wrapped(made)
    denotation = old.denotation
    dims = [d.denotation for d in old.tensor_type.shape.dim]
    old.CopyFrom(made)
    if denotation:
        old.denotation = denotation
    if any(dims) and len(dims) == len(old.tensor_type.shape.dim):
        for d, meaning in zip(old.tensor_type.shape.dim, dims, strict=True):
            d.denotation = meaning


def annotated(model: Model, values: Values, inner: Iterable[Values]) -> onnx.ModelProto:
    """A copy of the model's protobuf with the traced types in value_info and outputs, those inside
    of subgraphs and functions included.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    writer = Writer(model, inner)
    writer.graph(model.graph, proto.graph, [values])
    for function in proto.functions:
        writer.function(function)
    return proto


# parameters ---------------------------------------------------------------------------------------


def with_arrays(model: Model, arrays: Mapping[int, np.ndarray]) -> onnx.ModelProto:
    """A copy of the model's protobuf with other arrays in place of stored tensors, by id of the
    `Stored`; they are converted to its dtype.

    Where the model is a part of what its protobuf says, so is the copy.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _cut(proto.graph, model)
    _store(proto.graph, model.graph, arrays)
    return proto


def _cut(proto: onnx.GraphProto, model: Model) -> None:
    """Leave of a graph's protobuf what the model's graph has."""
    graph = model.graph
    inputs = [i.name for i in (*graph.inputs, *graph.optional_inputs)]
    outputs = [o.name for o in graph.outputs]
    if {v.name for v in proto.input} == {*inputs} and [v.name for v in proto.output] == outputs:
        return
    known = {v.name: v for v in (*proto.value_info, *proto.output, *proto.input)}
    if not known.keys() >= {*inputs, *outputs}:  # a standalone model declares its ends
        from ._trace import trace

        whole = trace(read(model.proto, model.folder, model.name)).to_onnx()
        known |= {v.name: v for v in (*whole.graph.value_info, *whole.graph.output)}
    for field, names in ((proto.input, inputs), (proto.output, outputs)):
        ends = [known.get(n, onnx.ValueInfoProto(name=n)) for n in names]
        made = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in ends]
        del field[:]
        field.extend(made)
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    _keep(proto.node, lambda p: bool(makers.keys() & set(p.output)))
    for kept in proto.node:  # of a node kept for one result, another may be given
        kept.output[:] = makers[next(n for n in kept.output if n in makers)].outputs
    _keep(proto.initializer, lambda t: t.name in graph.initializers)
    _keep(proto.sparse_initializer, lambda t: t.values.name in graph.initializers)
    inner = (makers.keys() | graph.initializers.keys()) - {*inputs, *outputs}
    _keep(proto.value_info, lambda v: v.name in inner)


def _keep(field: Any, wanted: Callable[[Any], bool]) -> None:
    for i in reversed(range(len(field))):
        if not wanted(field[i]):
            del field[i]


def _store(proto: onnx.GraphProto, graph: Graph, arrays: Mapping[int, np.ndarray]) -> None:
    for tensor in proto.initializer:
        _fill(tensor, graph.initializers[tensor.name], arrays)
    for i in reversed(range(len(proto.sparse_initializer))):
        stored = graph.initializers[proto.sparse_initializer[i].values.name]
        if id(stored) in arrays:
            _fill(proto.initializer.add(name=stored.name), stored, arrays)
            del proto.sparse_initializer[i]
    constants = {node.outputs: node for node in graph.nodes if not node.inputs}
    for made in proto.node:
        node = constants.get(tuple(made.output))
        attrs = {} if node is None else node.attrs
        for attribute in made.attribute:
            stored = attrs.get(attribute.name)
            if isinstance(stored, Stored):
                _fill(attribute.t, stored, arrays)
    for sub, inside in _subgraphs(graph.nodes, proto.node):
        _store(inside, sub, arrays)


def _fill(tensor: onnx.TensorProto, stored: Stored, arrays: Mapping[int, np.ndarray]) -> None:
    if id(stored) in arrays:
        array = arrays[id(stored)].astype(stored.dtype)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
