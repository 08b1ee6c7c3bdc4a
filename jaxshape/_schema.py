"""What the ONNX standard says of its own operators; the one place that reads `onnx.defs`.

Used where no lowering answers: the element types that results must have, and the function bodies
that the standard gives for many operators. Also the source of truth that the registered signatures
are tested against.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs

from ._model import Function, Graph, Node, Stored, function_of, onnx_dtype
from ._value import MapType, OptionalType, SequenceType, TensorType, as_dtype


@functools.cache
def schema(domain: str, name: str, opset: int) -> Any:
    """The `onnx.defs.OpSchema` of an operator at an opset, or None where the standard has none."""
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def output_types(node: Node, opsets: Mapping[str, int], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The types of a node's outputs as far as the standard's type constraints tell: no shapes."""
    found = schema(node.domain, node.op_type, opsets.get(node.domain, 1))
    if found is None:
        return tuple(TensorType(None, None) for _ in node.outputs)
    bound: dict[str, Any] = {}
    for i, value in enumerate(inputs):
        if found.inputs and value is not None:
            bound.setdefault(found.inputs[min(i, len(found.inputs) - 1)].type_str, value)
    allowed = {c.type_param_str: list(c.allowed_type_strs) for c in found.type_constraints}

    def output(position: int) -> Any:
        formal = found.outputs[min(position, len(found.outputs) - 1)].type_str
        given = bound.get(formal)
        if given is not None:
            return _shapeless(given)
        kinds = allowed.get(formal, [formal])
        made = [type_named(k) for k in kinds]
        return made[0] if len(made) == 1 else _common(made)

    return tuple(output(i) for i in range(len(node.outputs))) if found.outputs else ()


def gives_optional(node: Node, opsets: Mapping[str, int]) -> bool:
    """Whether the standard has nothing but optionals for what a node gives."""
    return _gives_optional(node.domain, node.op_type, opsets.get(node.domain, 1))


@functools.cache
def _gives_optional(domain: str, name: str, opset: int) -> bool:
    found = schema(domain, name, opset)
    kinds = [t for o in found.outputs for t in o.types] if found is not None else []
    return bool(kinds) and all(t.startswith("optional(") for t in kinds)


def _shapeless(t: Any) -> Any:
    if isinstance(t, TensorType):
        return TensorType(t.dtype, None)
    if isinstance(t, list):
        return SequenceType(None, None)
    if isinstance(t, SequenceType):
        return SequenceType(t.elem and _shapeless(t.elem), None)
    if isinstance(t, OptionalType):
        return OptionalType(t.elem and _shapeless(t.elem))
    return t


def _common(types: Sequence[Any]) -> Any:
    """What several allowed types have in common."""
    kinds = {type(t) for t in types}
    if kinds == {SequenceType}:
        return SequenceType(None, None)
    if kinds == {OptionalType}:
        return OptionalType(None)
    return TensorType(None, None)


def type_named(text: str) -> Any:
    """The type that a text of the standard names: `tensor(float)`, `seq(tensor(int64))`, ..."""
    head, _, rest = text.partition("(")
    inner = rest[:-1]
    if head == "tensor":
        return TensorType(as_dtype(inner), None)
    if head == "seq":
        return SequenceType(type_named(inner), None)
    if head == "optional":
        return OptionalType(type_named(inner))
    if head == "map":
        key, _, value = inner.partition(",")
        return MapType(as_dtype(key.strip()), type_named(value.strip()))
    return TensorType(None, None)


def body_of(node: Node, opsets: Mapping[str, int], inputs: Sequence[Any]) -> Function | None:
    """The function body that the standard gives for a node's operator, or None.

    `inputs` are the types of the node's inputs: some bodies depend on their dtypes.
    """
    version = opsets.get(node.domain, 1)
    found = schema(node.domain, node.op_type, version)
    if found is None:
        return None
    if found.has_function:
        proto = found.function_body
    elif found.has_context_dependent_function:
        protos = [p for t in inputs if (p := _type_proto(t)) is not None]
        if len(protos) < len(inputs):
            return None
        raw = found.get_context_dependent_function(
            _node_proto(node).SerializeToString(), [p.SerializeToString() for p in protos]
        )
        proto = onnx.FunctionProto.FromString(raw)
    else:
        return None
    made = function_of(proto)
    made.opsets = {d: (version if d == node.domain else v) for d, v in made.opsets.items()}
    return made


def _node_proto(node: Node) -> onnx.NodeProto:
    made = onnx.helper.make_node(
        node.op_type, list(node.inputs), list(node.outputs), domain=node.domain
    )
    for name, value in node.attrs.items():
        if isinstance(value, (int, float, str, bytes, tuple)):
            made.attribute.append(
                onnx.helper.make_attribute(name, list(value) if isinstance(value, tuple) else value)
            )
    return made


def _type_proto(t: Any) -> onnx.TypeProto | None:
    if t is None:
        return onnx.TypeProto()
    if not isinstance(t, TensorType) or t.dtype is None:
        return None
    code = (
        onnx.TensorProto.STRING
        if t.dtype == np.dtype(object)
        else onnx.helper.np_dtype_to_tensor_dtype(t.dtype)
    )
    shape = None if t.shape is None else [d if isinstance(d, int) else None for d in t.shape]
    return onnx.helper.make_tensor_type_proto(code, shape)


def mismatch(node: Node, opsets: Mapping[str, int], types: Sequence[Any]) -> str:
    """What is wrong with the types that a node takes, by the standard; empty where nothing is."""
    found = schema(node.domain, node.op_type, opsets.get(node.domain, 1))
    if found is None or not found.inputs:
        return ""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in found.type_constraints}
    bound: dict[str, str] = {}
    for i, t in enumerate(types):
        formal = found.inputs[min(i, len(found.inputs) - 1)]
        given = _type_text(t)
        if given is None:
            continue
        if given not in allowed.get(formal.type_str, {formal.type_str}):
            return f"input {formal.name} is {given}, which {node.op_type} does not take there"
        if formal.is_homogeneous and bound.setdefault(formal.type_str, given) != given:
            return f"input {formal.name} is {given}, another is {bound[formal.type_str]}"
    return ""


_KINDS: dict[Any, tuple[str, Any, bool]] = {  # of attributes: in words, in Python, several of it
    onnx.defs.OpSchema.AttrType.INT: ("an int", int, False),
    onnx.defs.OpSchema.AttrType.INTS: ("ints", int, True),
    onnx.defs.OpSchema.AttrType.FLOAT: ("a float", (int, float), False),
    onnx.defs.OpSchema.AttrType.FLOATS: ("floats", (int, float), True),
    onnx.defs.OpSchema.AttrType.STRING: ("a string", (str, bytes), False),
    onnx.defs.OpSchema.AttrType.STRINGS: ("strings", (str, bytes), True),
    onnx.defs.OpSchema.AttrType.TENSOR: ("a tensor", Stored, False),
    onnx.defs.OpSchema.AttrType.GRAPH: ("a graph", Graph, False),
}


def misfit(node: Node, opsets: Mapping[str, int]) -> str:
    """Which attribute is of another kind than the standard has it; empty where none is."""
    found = schema(node.domain, node.op_type, opsets.get(node.domain, 1)) if node.attrs else None
    if found is None:
        return ""
    for name, value in node.attrs.items():
        wanted = _KINDS.get(found.attributes[name].type) if name in found.attributes else None
        if wanted is not None:
            text, kind, several = wanted
            items = value if isinstance(value, tuple) else (value,)
            if isinstance(value, tuple) != several or not all(isinstance(v, kind) for v in items):
                given = value if isinstance(value, (int, float, str, tuple)) else type(value)
                return f"attribute {name} is {given!r}, wants {text}"
    return ""


def _type_text(t: Any) -> str | None:
    """The standard's text for a type, None where it is not known."""
    if isinstance(t, TensorType):
        if t.dtype is None:
            return None
        return f"tensor({onnx.TensorProto.DataType.Name(onnx_dtype(t.dtype)).lower()})"
    if isinstance(t, (SequenceType, OptionalType)):
        inner = _type_text(t.elem)
        head = "seq" if isinstance(t, SequenceType) else "optional"
        return None if inner is None else f"{head}({inner})"
    return None
