"""Writing inferred types back into an ONNX model; the one place that makes protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx

from ._dim import Dim
from ._host import type_of
from ._model import Graph, Model, onnx_dtype
from ._value import MapType, OptionalType, SequenceType, TensorType


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

    def __init__(self, resolve: Callable[[Any], Any]):
        self.resolve = resolve
        self._protos: dict[Any, onnx.TypeProto | None] = {}

    def proto(self, value: Any) -> onnx.TypeProto | None:
        value = self.resolve(value)
        t = type_of(value)
        if not isinstance(t, TensorType):
            return type_proto(t)
        if t not in self._protos:
            self._protos[t] = type_proto(t)
        return self._protos[t]

    def graph(self, graph: Graph, proto: onnx.GraphProto, values: Mapping[str, Any]) -> None:
        """Fill value_info and the outputs of one graph."""
        outputs = {o.name for o in proto.output}
        inferred: dict[str, onnx.TypeProto] = {}
        for node in graph.nodes:
            for name in node.outputs:
                if name and name not in outputs and name in values:
                    made = self.proto(values[name])
                    if made is not None:
                        inferred[name] = made
        kept = [v for v in proto.value_info if v.name not in inferred]
        if len(kept) != len(proto.value_info):
            kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
            proto.ClearField("value_info")
            proto.value_info.extend(kept)
        add = proto.value_info.add
        for name, made in inferred.items():
            add(name=name).type.CopyFrom(made)
        for output in proto.output:
            made = self.proto(values[output.name]) if output.name in values else None
            if made is not None:
                output.type.CopyFrom(made)


def annotated(
    model: Model, values: Mapping[str, Any], inner: Mapping[int, Any], resolve: Callable[[Any], Any]
) -> onnx.ModelProto:
    """A copy of the model's protobuf with the traced types in value_info and outputs, subgraphs
    included.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    writer = Writer(resolve)
    writer.graph(model.graph, proto.graph, values)
    _subgraphs(model.graph, proto.graph, inner, writer)
    return proto


def _subgraphs(
    graph: Graph, proto: onnx.GraphProto, inner: Mapping[int, Any], writer: Writer
) -> None:
    with_graphs = {node.outputs: node for node in graph.nodes if any(True for _ in node.graphs)}
    if not with_graphs:
        return
    for node_proto in proto.node:
        node = with_graphs.get(tuple(node_proto.output))
        if node is None:
            continue
        for attribute in node_proto.attribute:
            value = node.attrs.get(attribute.name)
            for sub, sub_proto in zip(
                value if isinstance(value, tuple) else (value,),
                attribute.graphs if attribute.graphs else (attribute.g,),
                strict=False,
            ):
                if isinstance(sub, Graph) and id(sub) in inner:
                    writer.graph(sub, sub_proto, inner[id(sub)][1].values)
                    _subgraphs(sub, sub_proto, inner, writer)
