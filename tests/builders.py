"""Small models for tests: `node` makes one of a single node, `model` reads ONNX's own text form."""

import re
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

TYPES = {
    str(helper.tensor_dtype_to_np_dtype(t)): t
    for t in onnx.TensorProto.DataType.values()
    if t not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
} | {"string": onnx.TensorProto.STRING}


def value_info(name: str, text: str) -> onnx.ValueInfoProto:
    """The type that `text` writes: float32[N, 3, ?]; without brackets the rank is unknown."""
    found = re.fullmatch(r"(\w+)(?:\[(.*)\])?", text)
    assert found, f"{text!r} is not written as dtype[dim, dim]"
    dtype, dims = found.groups()
    if dims is None:
        return helper.make_tensor_value_info(name, TYPES[dtype], None)
    shape = [d.strip() for d in dims.split(",")] if dims.strip() else []
    shape = [None if d == "?" else int(d) if d.lstrip("-").isdigit() else d for d in shape]
    return helper.make_tensor_value_info(name, TYPES[dtype], shape)


def node(
    op: str,
    *inputs: str | np.ndarray | None,
    opset: int | None = None,
    outputs: int | tuple[str, ...] = 1,
    domain: str = "",
    **attrs: Any,
) -> onnx.ModelProto:
    """A ModelProto of one node, its inputs named x0, x1, ... and its outputs y0, y1, ...

    An input is a type as text ("float32[N, 3, H, W]", an input of the model), an array (an
    initializer) or None (absent). `outputs` counts them, or names them ("" leaves one out).
    An attribute that is None is left out, one that is an array becomes a tensor.

    >>> model = node("Conv", "float32[N, 3, H, W]", np.ones((8, 3, 3, 3), "f"), pads=[1] * 4)
    >>> [i.name for i in model.graph.input], [i.name for i in model.graph.initializer]
    (['x0'], ['x1'])
    """
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = [(n, x) for n, x in zip(names, inputs, strict=True) if x is not None]
    results = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    attrs = {
        k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for k, v in attrs.items()
        if v is not None
    }
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attrs)],
        "one_node",
        [value_info(n, x) for n, x in given if isinstance(x, str)],
        [onnx.ValueInfoProto(name=n) for n in results if n],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in given if not isinstance(x, str)],
    )
    default = onnx.defs.onnx_opset_version()
    opsets = (
        [helper.make_opsetid("", opset or default)]
        if not domain
        else [helper.make_opsetid("", default), helper.make_opsetid(domain, opset or 1)]
    )
    ir = helper.find_min_ir_version_for(opsets[:1])
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def model(text: str) -> onnx.ModelProto:
    """The model that `text` writes in ONNX's text form; a header is put before a bare graph.

    >>> model("g (float[N] x) => (float[N] y) { y = Relu(x) }").graph.node[0].op_type
    'Relu'
    """
    if not text.lstrip().startswith("<"):
        text = f'<ir_version: 10, opset_import: ["" : {onnx.defs.onnx_opset_version()}]>\n{text}'
    return onnx.parser.parse_model(text)
