"""The operators of ONNX's nn family, one node at a time: types in sizes, types in numbers, errors.

A row is an operator at an opset, its inputs and attributes, and the types of its outputs.  Three
things must hold of each: the types as formulas are as written; the same node with numbers gives
what the formulas give; and onnx's own shape inference does not say otherwise.
"""

import itertools
import re
from typing import Any

import numpy as np
import onnx
import pytest
from builders import value_info
from onnx import TensorProto, TypeProto, helper

from jaxshape import ShapeError, TensorType, UnknownValueError
from jaxshape._context import ShapesContext
from jaxshape._operator import operator

SIZES = {"N": 2, "C": 6, "H": 11, "W": 13, "D": 7, "M": 4, "G": 3, "S": 5, "P": 2, "R": 9, "B": 8}


def tensor(text: str, sizes: dict[str, int] | None = None) -> TensorType:
    """The type that `float32[N, 3]` writes, with numbers for its sizes if given."""
    dtype, dims = re.fullmatch(r"(\w+)(?:\[(.*)\])?", text).groups()  # type: ignore[union-attr]
    if dims is None:
        return TensorType(dtype, None)
    shape = [d.strip() for d in dims.split(",")] if dims else []
    known = sizes or {}
    return TensorType(
        dtype, [int(d) if d.isdigit() else None if d == "?" else known.get(d, d) for d in shape]
    )


def computed(
    op: str,
    opset: int,
    inputs: tuple,
    attrs: dict,
    outputs: tuple[str, ...],
    sizes: dict[str, int] | None = None,
) -> ShapesContext:
    """A context with the inputs x0, x1, ... in which the node was computed."""
    given = {
        f"x{i}": tensor(x, sizes) if isinstance(x, str) else x
        for i, x in enumerate(inputs)
        if x is not None
    }
    ctx = ShapesContext(given, opset)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    ctx.compute(helper.make_node(op, names, list(outputs), name="n", **attrs))
    return ctx


def like(pattern: str) -> Any:
    """A type whose text matches, where sizes have names of their own."""
    return re.compile(pattern)


def row(op: str, opset: int, *inputs: Any, to: Any, requires: tuple | None = None,
        wrong: str = "", **attrs: Any):  # fmt: skip
    """One row; `to` gives a type for each output, "" for one that is not asked for.

    `wrong` says why onnx's own inference is.
    """
    outputs = to if isinstance(to, tuple) else (to,)
    text = ", ".join(x if isinstance(x, str) else "-" if x is None else "array" for x in inputs)
    extra = ", ".join(f"{k}={v}" for k, v in attrs.items())
    name = f"{op}-{opset}({text}; {extra})"
    return pytest.param(op, opset, inputs, attrs, outputs, requires, wrong, id=name)


X, X1, X3 = "float32[N, C, H, W]", "float32[N, C, D]", "float32[N, C, D, H, W]"

POOLS = [
    row("AveragePool", 22, X, to="float32[N, C, H - 2, W - 2]", kernel_shape=[3, 3],
        requires=("H >= 3", "W >= 3")),
    row("AveragePool", 22, X, to="float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    row("AveragePool", 22, X, to="float32[N, C, H//2, W//2]",
        kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    row("AveragePool", 19, X, to="float32[N, C, H - 4, W - 6]",
        kernel_shape=[3, 3], dilations=[2, 3]),
    row("AveragePool", 1, X1, to="float32[N, C, D - 1]", kernel_shape=[2]),
    row("AveragePool", 7, X3, to="float32[N, C, D, H - 1, W - 2]", kernel_shape=[1, 2, 3],
        count_include_pad=1),
    row("AveragePool", 10, X, to="float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    row("AveragePool", 11, X, to="float32[N, C, (H - 1)//3 + 1, (W - 1)//2 + 1]",
        kernel_shape=[2, 2], strides=[3, 2], auto_pad="SAME_LOWER"),
    row("AveragePool", 11, X, to="float32[N, C, H//2, W//2]",
        kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"),
    row("AveragePool", 22, "bfloat16[N, C, H]", to="bfloat16[N, C, H - 1]", kernel_shape=[2]),
    row("AveragePool", 22, "float32", to=like(r"float32\[\w+, \w+, \w+\]"), kernel_shape=[2]),
    row("LpPool", 1, X, to="float32[N, C, H//2, W//2]", kernel_shape=[2, 2], strides=[2, 2], p=3.0),
    row("LpPool", 2, X, to="float32[N, C, H//2, W//2]", kernel_shape=[2, 2], strides=[2, 2], p=3),
    row("LpPool", 11, X, to="float32[N, C, H, W]", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    row("LpPool", 18, X, to="float32[N, C, H - 2, W - 2]", kernel_shape=[2, 2], dilations=[2, 2]),
    row("LpPool", 22, X, to="float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    row("LpPool", 22, X, to="float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
    row("MaxPool", 1, X, to="float32[N, C, H - 1, W - 1]", kernel_shape=[2, 2]),
    row("MaxPool", 8, X, to=("float32[N, C, H//2, W//2]", "int64[N, C, H//2, W//2]"),
        kernel_shape=[2, 2], strides=[2, 2]),
    row("MaxPool", 8, X1, to=("", "int64[N, C, D - 2]"), kernel_shape=[3], storage_order=1),
    row("MaxPool", 10, X, to="float32[N, C, H - 2, W - 2]", kernel_shape=[2, 2], dilations=[2, 2]),
    row("MaxPool", 11, X, to="float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    row("MaxPool", 12, "uint8[N, C, H, W]", to=("uint8[N, C, H//2, W//2]", "int64[N, C, H//2, W//2]"),
        kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    row("MaxPool", 22, "bfloat16[N, C, H]", to=("bfloat16[N, C, H - 1]", "int64[N, C, H - 1]"),
        kernel_shape=[2]),
    *[
        row(op, opset, x, to=to)
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
        for opset in (2, 22)
        for x, to in (
            (X, "float32[N, C, 1, 1]"),
            (X3, "float32[N, C, 1, 1, 1]"),
            ("float16[N, C, D]", "float16[N, C, 1]"),
        )
    ],
    row("GlobalAveragePool", 1, "float32[N, C]", to="float32[N, C]"),
    row("GlobalLpPool", 1, X, to="float32[N, C, 1, 1]", p=2.0),
    row("MaxUnpool", 9, X, "int64[N, C, H, W]", to="float32[N, C, 2*H, 2*W]",
        kernel_shape=[2, 2], strides=[2, 2]),
    row("MaxUnpool", 11, X1, "int64[N, C, D]", to="float32[N, C, 2*D - 1]",
        kernel_shape=[3], strides=[2], pads=[1, 1]),
    row("MaxUnpool", 22, "float32[N, 3, 4, 4]", "int64[N, 3, 4, 4]", np.array([2, 3, 9, 10]),
        to="float32[2, 3, 9, 10]", kernel_shape=[2, 2], strides=[2, 2]),
    row("MaxUnpool", 22, "float32[2, 3, 4, 4]", "int64[2, 3, 4, 4]", "int64[4]",
        to=like(r"float32\[2, 3, \w+, \w+\]|float32\[\w+, \w+, \w+, \w+\]"),
        kernel_shape=[2, 2], strides=[2, 2]),
    row("MaxRoiPool", 1, X, "float32[R, 5]", to="float32[R, C, 2, 3]", pooled_shape=[2, 3]),
    row("MaxRoiPool", 22, "float16[N, C, H, W]", "float16[R, 5]", to="float16[R, C, 2, 3]",
        pooled_shape=[2, 3]),
    *[
        row("RoiAlign", opset, X, "float32[R, 4]", "int64[R]", to="float32[R, C, 7, 5]",
            output_height=7, output_width=5)
        for opset in (10, 16, 22)
    ],
    row("RoiAlign", 16, X, "float32[R, 4]", "int64[R]", to="float32[R, C, 1, 1]"),
    row("RoiAlign", 16, X, "float32[R, 4]", "int64[9]", to="float32[9, C, 1, 1]",
        requires=("R == 9",)),
]  # fmt: skip

SHAPES = [
    row("Flatten", 1, X, to="float32[N, C*H*W]"),
    row("Flatten", 9, "int8[N, C, H, W]", to="int8[1, C*H*N*W]", axis=0),
    row("Flatten", 11, X, to="float32[C*H*N, W]", axis=-1),
    row("Flatten", 13, "string[N, C]", to="string[C*N, 1]", axis=2),
    row("Flatten", 13, "bfloat16[N, C]", to="bfloat16[1, C*N]", axis=-2),
    row("Flatten", 21, "int4[N, 3, 5]", to="int4[N, 15]"),
    row("Flatten", 25, "int2[N, 4, 5]", to="int2[4*N, 5]", axis=2),
    row("Flatten", 13, "float32[]", to="float32[1, 1]", axis=0),
    *[row("Shape", o, "complex64[N, 3, H]", to="int64[3]") for o in (1, 13, 15, 25)],
    row("Shape", 15, "string[N, 3, H]", to="int64[2]", start=1),
    row("Shape", 15, X, to="int64[1]", start=-1),
    row("Shape", 15, X, to="int64[3]", end=-1),
    row("Shape", 15, X, to="int64[1]", start=1, end=2),
    row("Shape", 15, X, to="int64[4]", start=-9, end=9),
    row("Shape", 15, X, to="int64[0]", start=3, end=1),
    row("Shape", 15, "float32[]", to="int64[0]"),
]  # fmt: skip

C1 = "float32[C]"
NORMS = [
    row("LRN", 1, X, to=X, size=3),
    row("LRN", 13, "bfloat16[N, C]", to="bfloat16[N, C]", size=3),
    row("LpNormalization", 1, X, to=X, axis=-1, p=1),
    row("LpNormalization", 22, "bfloat16[N]", to="bfloat16[N]"),
    row("MeanVarianceNormalization", 9, X, to=X),
    row("MeanVarianceNormalization", 13, X1, to=X1, axes=[0, 2]),
    row("InstanceNormalization", 1, X, C1, C1, to=X),
    row("InstanceNormalization", 6, X1, C1, C1, to=X1, epsilon=1e-3),
    row("InstanceNormalization", 22, "bfloat16[N, 3, D]", "bfloat16[3]", "bfloat16[3]",
        to="bfloat16[N, 3, D]"),
    row("GroupNormalization", 18, X, "float32[2]", "float32[2]", to=X, num_groups=2),
    row("GroupNormalization", 21, X, C1, C1, to=X, num_groups=2, requires=("C % 2 == 0",)),
    row("RMSNormalization", 23, "float32[N, S, D]", "float32[D]", to="float32[N, S, D]"),
    row("RMSNormalization", 23, "float16[N, S, D]", "float32[S, D]", to="float32[N, S, D]", axis=1,
        wrong="its schema gives Y the type of scale"),
    *[
        row("LayerNormalization", 17, f"{t}[N, S, D]", f"{t}[D]", f"{t}[D]",
            to=(f"{t}[N, S, D]", "float32[N, S, 1]", "float32[N, S, 1]"))
        for t in ("float16", "bfloat16", "float32", "float64")
    ],
    row("LayerNormalization", 17, "float32[N, S, D]", "float32[S, D]",
        to=("float32[N, S, D]", "", "bfloat16[N, 1, 1]"), axis=1, stash_type=16),
    row("LayerNormalization", 17, "float32[N, S, D]", "float32[D]", to="float32[N, S, D]", axis=-1),
    row("BatchNormalization", 1, X, C1, C1, C1, C1, to=X, consumed_inputs=[0, 0, 0, 1, 1]),
    row("BatchNormalization", 6, X, C1, C1, C1, C1, to=(X, C1, C1, C1, C1)),
    row("BatchNormalization", 7, X, C1, C1, C1, C1, to=(X, C1, C1, C1, C1)),
    row("BatchNormalization", 9, X1, C1, C1, C1, C1, to=(X1, C1, C1, C1, C1)),
    row("BatchNormalization", 9, "float16[N, 3, D]", *["float16[3]"] * 4, to="float16[N, 3, D]"),
    row("BatchNormalization", 9, "float32[N]", *["float32[1]"] * 4,
        to=("float32[N]", *["float32[1]"] * 4)),
    row("BatchNormalization", 14, X, C1, C1, C1, C1, to=X),
    row("BatchNormalization", 14, "float16[N, C, H]", "float16[C]", "float16[C]", C1, C1,
        to=("float16[N, C, H]", C1, C1), training_mode=1),
    row("BatchNormalization", 15, "float16[N, C, H]", "bfloat16[C]", "bfloat16[C]", C1, C1,
        to=("float16[N, C, H]", C1, C1), training_mode=1),
    row("BatchNormalization", 15, "float32[N]", *["float32[1]"] * 4,
        to=("float32[N]", "float32[1]", "float32[1]"), training_mode=1),
    row("Dropout", 1, X, to=(X, X)),
    row("Dropout", 6, X, to=(X, X), ratio=0.1),
    row("Dropout", 7, "float16[N, C]", to=("float16[N, C]", "float16[N, C]")),
    row("Dropout", 10, X, to=(X, "bool[N, C, H, W]"), ratio=0.3),
    row("Dropout", 12, X, "float32[]", "bool[]", to=(X, "bool[N, C, H, W]"), seed=1),
    row("Dropout", 13, "bfloat16[N]", to=("", "bool[N]")),
    row("Dropout", 22, "float8e5m2[N]", None, np.array(True), to="float8_e5m2[N]"),
]  # fmt: skip

CONVS = [
    row("Conv", 1, X, "float32[M, C, 3, 3]", to="float32[N, M, H - 2, W - 2]"),
    row("Conv", 11, X, "float32[M, 3, 3, 3]", "float32[M]",
        to="float32[N, M, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        strides=[2, 2], pads=[1, 1, 1, 1], group=2, requires=("C == 6", "M % 2 == 0")),
    row("Conv", 22, "bfloat16[N, 4, D]", "bfloat16[8, 1, 3]", to="bfloat16[N, 8, D - 4]",
        group=4, dilations=[2]),
    row("Conv", 22, X, "float32[M, C, 3, 3]", to="float32[N, M, (H - 1)//2 + 1, (W - 1)//2 + 1]",
        strides=[2, 2], auto_pad="SAME_UPPER"),
    row("Conv", 22, X, "float32[M, C, 3, 3]", to="float32[N, M, (H - 1)//2, (W - 1)//2]",
        strides=[2, 2], auto_pad="VALID"),
    row("Conv", 22, X, "float32[M, C, S, S]", to="float32[N, M, H - S + 1, W - S + 1]"),
    row("ConvInteger", 10, "uint8[N, C, H, W]", "int8[M, C, 3, 3]",
        to="int32[N, M, H - 2, W - 2]"),
    row("ConvInteger", 10, "int8[N, C, D]", "uint8[M, C, 3]", "int8[]", "uint8[M]",
        to="int32[N, M, D]", pads=[1, 1]),
    row("ConvTranspose", 1, X, "float32[C, M, 3, 3]", to="float32[N, M, H + 2, W + 2]"),
    row("ConvTranspose", 11, X, "float32[C, M, 3, 3]", "float32[M]",
        to="float32[N, M, 2*H, 2*W]",
        strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    row("ConvTranspose", 22, X, "float32[C, 4, 3, 3]", to="float32[N, 8, 2*H - 1, 2*W - 1]",
        strides=[2, 2], pads=[1, 1, 1, 1], group=2, requires=("C % 2 == 0",)),
    row("ConvTranspose", 22, X, "float32[C, M, 3, 3]", to="float32[N, M, 30, 31]",
        strides=[2, 2], output_shape=[30, 31]),
    row("ConvTranspose", 11, X, "float32[C, M, 3, 3]", to="float32[N, M, 2*H, 2*W]",
        strides=[2, 2], auto_pad="SAME_UPPER"),
    row("ConvTranspose", 11, X1, "float32[C, M, 3]", to="float32[N, M, D + 4]", dilations=[2]),
    row("DeformConv", 19, X, "float32[M, C, 3, 3]", "float32[N, 18, 9, 11]",
        to="float32[N, M, 9, 11]", requires=("H == 11", "W == 13")),
    row("DeformConv", 22, X, "float32[M, 3, 2, 2]", "float32[N, 16, H, W]", "float32[M]",
        "float32[N, 8, H, W]", to="float32[N, M, H, W]",
        pads=[0, 0, 1, 1], group=2, offset_group=2),
    row("Col2Im", 18, "float32[N, 30, 4]", np.array([5, 5]), np.array([2, 3]),
        to="float32[N, 5, 5, 5]", strides=[2, 2]),
    row("Col2Im", 18, "float32[N, C, 12]", np.array([5, 5]), np.array([2, 3]),
        to="float32[N, C//6, 5, 5]", requires=("C % 6 == 0",)),
    row("Col2Im", 18, "float32[N, 30, R]", "int64[2]", np.array([1, 5]),
        to=like(r"float32\[N, 6, \w+, \w+\]")),
    row("Col2Im", 18, "float32[N, 30, R]", np.array([5, 5]), "int64[2]",
        to=like(r"float32\[N, [^,]+, 5, 5\]")),
    row("CausalConvWithState", 27, "float32[N, C, S]", "float32[C, 1, 4]",
        to=("float32[N, C, S]", "float32[N, C, 3]")),
    row("CausalConvWithState", 27, "float16[N, C, S]", "float16[C, 1, D]", "float16[C]",
        "float16[N, C, D - 1]", to=("float16[N, C, S]", "float16[N, C, D - 1]")),
]  # fmt: skip

S3 = "float32[S, N, C]"
RECURRENT = [
    *[
        row(op, 14, S3, f"float32[1, {k}*B, C]", f"float32[1, {k}*B, B]",
            to=("float32[S, 1, N, B]", *["float32[1, N, B]"] * (outputs - 1)))
        for op, k, outputs in (("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3))
    ],
    *[
        row(op, opset, S3, f"float32[2, {k}, C]", f"float32[2, {k}, 8]", f"float32[2, {2 * k}]",
            "int32[N]", "float32[2, N, 8]",
            to=("", "float32[2, N, 8]"), direction="bidirectional", hidden_size=8)
        for op, k in (("RNN", 8), ("GRU", 24), ("LSTM", 32))
        for opset in (7, 22)
    ],
    row("LSTM", 14, "float64[N, S, C]", "float64[1, 32, C]", "float64[1, 32, 8]",
        to=("float64[N, S, 1, 8]", "float64[N, 1, 8]", "float64[N, 1, 8]"),
        layout=1, hidden_size=8, direction="reverse"),
    row("GRU", 22, "float32[N, S, C]", "float32[2, 24, C]", "float32[2, 24, 8]",
        to=("float32[N, S, 2, 8]", "float32[N, 2, 8]"), layout=1, direction="bidirectional"),
    row("LSTM", 7, S3, "float32[1, 32, C]", "float32[1, 32, 8]", None, None, "float32[1, N, 8]",
        "float32[1, N, 8]", "float32[1, 24]", to=("", "", "float32[1, N, 8]"), hidden_size=8),
    row("RNN", 1, S3, "float32[1, 8, C]", "float32[1, 8, 8]", to="float32[S, 1, N, 8]"),
]  # fmt: skip


def q4(heads: object, length: object, size: object, dtype: str = "float32") -> str:
    return f"{dtype}[N, {heads}, {length}, {size}]"


ATTENTION = [
    row("Attention", 23, q4("B", "S", "D"), q4("B", "R", "D"), q4("B", "R", "M"),
        to=(q4("B", "S", "M"), q4("B", "R", "D"), q4("B", "R", "M"), q4("B", "S", "R"))),
    row("Attention", 23, q4(8, "S", 64), q4(2, "R", 64), q4(2, "R", 32), "bool[S, R + P]",
        q4(2, "P", 64), q4(2, "P", 32),
        to=(q4(8, "S", 32), q4(2, "P + R", 64), q4(2, "P + R", 32), q4(8, "S", "P + R"))),
    row("Attention", 24, "float32[N, S, 512]", "float32[N, R, 128]", "float32[N, R, 64]",
        to=("float32[N, S, 256]", q4(2, "R", 64), q4(2, "R", 32), q4(8, "S", "R")),
        q_num_heads=8, kv_num_heads=2),
    row("Attention", 23, "float16[N, S, 64]", "float16[N, R, 64]", "float16[N, R, 64]", None,
        q4(4, "P", 16, "float16"), q4(4, "P", 16, "float16"),
        to=("float16[N, S, 64]", q4(4, "P + R", 16, "float16"), "",
            q4(4, "S", "P + R", "float16")),
        q_num_heads=4, kv_num_heads=4, is_causal=1, qk_matmul_output_mode=3,
        wrong="it forgets the past in the scores of packed inputs"),
    row("Attention", 24, q4(8, "S", 64), q4(8, "R", 64), q4(8, "R", 64), None, None, None,
        "int64[N]", to=q4(8, "S", 64), is_causal=1),
    row("Attention", 25, q4(8, "S", 64, "bfloat16"), q4(8, "R", 64, "bfloat16"),
        q4(8, "R", 64, "float32"),
        to=(q4(8, "S", 64, "bfloat16"), "", q4(8, "R", 64, "float32"))),
    row("LinearAttention", 27, "float32[N, S, 512]", "float32[N, S, 128]", "float32[N, S, 64]",
        to=("float32[N, S, 256]", q4(2, 64, 32)), q_num_heads=8, kv_num_heads=2,
        update_rule="linear"),
    row("LinearAttention", 27, "float16[N, S, 512]", "float16[N, S, 128]", "float16[N, S, 64]",
        q4(2, 64, 32), to=("float16[N, S, 256]", q4(2, 64, 32)), q_num_heads=8, kv_num_heads=2,
        update_rule="linear"),
    row("LinearAttention", 27, "float32[N, S, 8*D]", "float32[N, S, 2*D]", "float32[N, S, 2*M]",
        to=("float32[N, S, 8*M]", q4(2, "D", "M")), q_num_heads=8, kv_num_heads=2,
        update_rule="linear"),
    row("RotaryEmbedding", 23, q4("B", "S", 64), "float32[R, 32]", "float32[R, 32]", "int64[N, S]",
        to=q4("B", "S", 64)),
    row("RotaryEmbedding", 23, "float16[N, S, 512]", "float16[N, S, 32]", "float16[N, S, 32]",
        to="float16[N, S, 512]", num_heads=8),
    row("NonMaxSuppression", 10, "float32[N, R, 4]", "float32[N, C, R]", "int64[1]",
        to=like(r"int64\[\w+, 3\]")),
    row("NonMaxSuppression", 11, "float32[1, R, 4]", "float32[1, C, R]", np.array([3]),
        np.array([0.5], np.float32), "float32[]", to=like(r"int64\[\w+, 3\]")),
]  # fmt: skip

ROWS = [*POOLS, *SHAPES, *NORMS, *CONVS, *RECURRENT, *ATTENTION]
TABLE = "op, opset, inputs, attrs, outputs, requires, wrong"


def names(outputs: tuple) -> tuple[str, ...]:
    return tuple(f"y{i}" if want else "" for i, want in enumerate(outputs))


@pytest.mark.parametrize(TABLE, ROWS)
def test_types_are_formulas(op, opset, inputs, attrs, outputs, requires, wrong):
    ctx = computed(op, opset, inputs, attrs, names(outputs))
    for i, want in enumerate(outputs):
        if isinstance(want, str) and want:
            assert str(ctx[f"y{i}"]) == str(tensor(want))
        elif want:
            assert want.fullmatch(str(ctx[f"y{i}"])), ctx[f"y{i}"]
    if requires is not None:
        assert sorted(map(str, ctx.requirements)) == sorted(requires)


@pytest.mark.parametrize(TABLE, ROWS)
def test_numbers_agree_with_formulas(op, opset, inputs, attrs, outputs, requires, wrong):
    formulas = computed(op, opset, inputs, attrs, names(outputs))
    numbers = computed(op, opset, tuple(map(at_sizes, inputs)), attrs, names(outputs))
    for name in filter(None, names(outputs)):
        formula, number = formulas[name], numbers[name]
        assert number.dtype == formula.dtype
        if formula.shape is None:
            continue
        fresh = set(formulas.bounds)
        for d, n in zip(formula.shape, number.shape, strict=True):
            symbols = {s.name: s for s in getattr(d, "symbols", ())}
            if not fresh.intersection(symbols):
                env = {k: SIZES[k] for k in symbols}
                assert (d.evaluate(env) if symbols else d) == n, (name, formula, number)


def at_sizes(given: Any) -> Any:
    """A type with its formulas worked out at SIZES."""
    if not isinstance(given, str) or "[" not in given:
        return given
    t = tensor(given)
    dims = [d if isinstance(d, int) or d is None else d.evaluate(SIZES) for d in t.shape or ()]
    return f"{given.partition('[')[0]}[{', '.join(map(str, dims))}]"


@pytest.mark.parametrize(TABLE, ROWS)
def test_onnx_does_not_say_otherwise(op, opset, inputs, attrs, outputs, requires, wrong):
    fixed = tuple(map(at_sizes, inputs))
    ctx = computed(op, opset, fixed, attrs, names(outputs))
    given = [(f"x{i}", x) for i, x in enumerate(fixed) if x is not None]
    node = helper.make_node(
        op, ["" if x is None else f"x{i}" for i, x in enumerate(inputs)], names(outputs), **attrs
    )
    graph = helper.make_graph(
        [node],
        "g",
        [value_info(n, _onnx_text(x)) for n, x in given if isinstance(x, str)],
        [onnx.ValueInfoProto(name=n) for n in names(outputs) if n],
        [onnx.numpy_helper.from_array(x, n) for n, x in given if not isinstance(x, str)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    agree = all(agrees(o.type.tensor_type, ctx[o.name]) for o in inferred)
    assert agree != bool(wrong), wrong or [(o, ctx[o.name]) for o in inferred]


def agrees(theirs: TypeProto.Tensor, ours: TensorType) -> bool:
    """Whether two types contradict each other nowhere."""
    if theirs.elem_type != TensorProto.UNDEFINED and theirs.elem_type != _code(ours.dtype):
        return False
    if not theirs.HasField("shape") or ours.shape is None:
        return True
    pairs = list(itertools.zip_longest(theirs.shape.dim, ours.shape))
    return all(
        d is not None
        and n is not None
        and (not d.HasField("dim_value") or not isinstance(n, int) or d.dim_value == n)
        for d, n in pairs
    )


def _code(dtype: Any) -> int:
    return TensorProto.STRING if dtype == object else helper.np_dtype_to_tensor_dtype(dtype)


def _onnx_text(text: str) -> str:
    return text.replace("float8e5m2", "float8_e5m2")


# Errors


def bad(op: str, opset: int, *inputs: Any, says: str, outputs: int = 1, **attrs: Any):
    text = ", ".join(x if isinstance(x, str) else "-" if x is None else "array" for x in inputs)
    return pytest.param(
        op, opset, inputs, attrs, outputs, says, id=f"{op}-{opset}({text}; {attrs})"
    )


Q, K = q4(8, "S", 64), q4(8, "R", 64)
T3 = "float32[N, S, 128]"
ROI = ("float32[R, 4]", "int64[R]")
W4 = "float32[M, C, 3, 3]"
IM, BL = np.array([5, 5]), np.array([2, 3])

ERRORS = [
    *[
        row
        for op in ("AveragePool", "LpPool", "MaxPool")
        for row in (
            bad(op, 22, X, says="kernel_shape"),
            bad(op, 22, X1, says="kernel_shape|rank", kernel_shape=[2, 2]),
            bad(op, 22, X, says="kernel_shape|rank", kernel_shape=[2]),
            bad(op, 22, "float32[N, C]", says="kernel_shape|rank", kernel_shape=[2]),
            bad(op, 22, X, says="strides", kernel_shape=[2, 2], strides=[1]),
            bad(op, 22, X, says="strides", kernel_shape=[2, 2], strides=[0, 1]),
            bad(op, 22, X, says="pads", kernel_shape=[2, 2], pads=[1, 1]),
            bad(op, 22, X, says="dilations", kernel_shape=[2, 2], dilations=[1]),
            bad(op, 22, X, says="auto_pad", kernel_shape=[2, 2], auto_pad="SOME"),
            bad(op, 22, X, says="kernel_shape", kernel_shape=[2, 0]),
            bad(op, 22, X, says="INTS", kernel_shape="two"),
            bad(op, 22, X, says="no attribute", kernel_shape=[2, 2], strange=1),
            bad(op, 22, "float32[N, C, 2, 2]", says="3", kernel_shape=[3, 3]),
        )
    ],
    bad("MaxPool", 1, X, says="outputs", outputs=2, kernel_shape=[2, 2]),
    bad("AveragePool", 22, X, says="outputs", outputs=2, kernel_shape=[2, 2]),
    *[
        bad(op, 22, "float32[N]", says="rank|axes|dim")
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    ],
    bad("Flatten", 13, X, says="axis", axis=5),
    bad("Flatten", 13, X, says="axis", axis=-5),
    bad("Flatten", 9, X, says="axis", axis=-1),
    bad("Flatten", 13, X, says="INT", axis=1.5),
    bad("LRN", 13, "float32[N]", says="rank|axes|dim", size=3),
    bad("LRN", 13, X, says="size"),
    bad("LRN", 13, X, says="size", size=0),
    bad("LpNormalization", 22, "float32[]", says="axis|rank|scalar"),
    bad("LpNormalization", 22, X, says="axis", axis=4),
    bad("LpNormalization", 22, X, says="p", p=3),
    bad("BatchNormalization", 9, X, C1, C1, C1, C1, says="outputs", outputs=3),
    bad("BatchNormalization", 6, X, C1, C1, C1, C1, says="outputs", outputs=2),
    bad("BatchNormalization", 14, X, C1, C1, C1, C1, says="training_mode", outputs=3),
    bad("BatchNormalization", 15, X, C1, C1, C1, C1, says="output", outputs=2, training_mode=1),
    bad("BatchNormalization", 15, X, C1, C1, C1, C1, says="outputs", outputs=5, training_mode=1),
    bad("BatchNormalization", 15, "float32[N, 3, H]", *["float32[4]"] * 4, says="3.*4|4.*3"),
    bad("BatchNormalization", 15, X, C1, C1, C1, says="input"),
    bad("BatchNormalization", 15, X, "float32[C, 1]", C1, C1, C1, says="rank|scale|axes"),
    bad("InstanceNormalization", 22, "float32[N, 3, H]", "float32[4]", "float32[4]", says="3|4"),
    bad("InstanceNormalization", 22, X, C1, says="input"),
    bad("GroupNormalization", 21, X, C1, C1, says="num_groups"),
    bad("GroupNormalization", 21, "float32[N, 5, H]", *["float32[5]"] * 2, says="5", num_groups=2),
    bad("GroupNormalization", 21, X, C1, C1, says="num_groups", num_groups=0),
    bad("MeanVarianceNormalization", 13, X1, says="ax", axes=[0, 4]),
    bad("RMSNormalization", 23, "float32[N, S]", "float32[S]", says="axis", axis=2),
    bad("RMSNormalization", 23, "float32[N, 4]", "float32[5]", says="4|5"),
    bad("LayerNormalization", 17, "float32[N, S]", "float32[S]", says="axis", axis=2),
    bad("LayerNormalization", 17, "float32[N, 4]", "float32[5]", says="4|5"),
    bad("LayerNormalization", 17, "float32[N, S]", "float32[S]", says="stash_type", stash_type=7),
    bad("LayerNormalization", 17, "float32[N, S]", "float32[S]", says="outputs", outputs=4),
    bad("Dropout", 13, X, "float32[2]", says="ratio|scalar|rank"),
    bad("Dropout", 13, X, "float32[]", "bool[2]", says="training_mode|scalar|rank"),
    bad("RoiAlign", 16, X1, *ROI, says="rank|axes|dim"),
    bad("RoiAlign", 16, X, "float32[R]", "int64[R]", says="rois|rank"),
    bad("RoiAlign", 16, X, "float32[R, 5]", "int64[R]", says="4|5"),
    bad("RoiAlign", 16, X, "float32[R, 4]", "int64[R, 1]", says="batch_indices|rank"),
    bad("RoiAlign", 16, X, "float32[3, 4]", "int64[4]", says="3|4"),
    bad("RoiAlign", 16, X, *ROI, says="output_height", output_height=0),
    bad("RoiAlign", 16, X, *ROI, says="output_width", output_width=-1),
    bad("RoiAlign", 16, X, *ROI, says="mode", mode="median"),
    bad("NonMaxSuppression", 11, "float32[N, R]", "float32[N, C, R]", says="boxes|rank"),
    bad("NonMaxSuppression", 11, "float32[N, R, 5]", "float32[N, C, R]", says="4|5"),
    bad("NonMaxSuppression", 11, "float32[N, R, 4]", "float32[N, R]", says="scores|rank"),
    bad("NonMaxSuppression", 11, "float32[2, R, 4]", "float32[3, C, R]", says="2|3"),
    bad("NonMaxSuppression", 11, "float32[N, 5, 4]", "float32[N, C, 6]", says="5|6"),
    bad("NonMaxSuppression", 11, "float32[N, R, 4]", says="input"),
    *[
        row
        for op, k in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
        for row in (
            bad(op, 22, "float32[S, C]", f"float32[1, {8 * k}, C]", f"float32[1, {8 * k}, 8]",
                says="rank|axes|dim"),
            bad(op, 22, S3, f"float32[1, {8 * k}, C]", f"float32[1, {8 * k}, 8]",
                says="direction", direction="sideways"),
            bad(op, 22, S3, f"float32[1, {8 * k}, C]", f"float32[1, {8 * k}, 8]",
                says="layout", layout=2),
            bad(op, 22, S3, f"float32[1, {8 * k}, C]", f"float32[1, {8 * k}, 8]",
                says="7|8", hidden_size=7),
            bad(op, 22, S3, f"float32[1, {8 * k}, C]", f"float32[1, {8 * k}, 8]",
                says="1|2", direction="bidirectional"),
            bad(op, 22, S3, f"float32[1, {8 * k}, C]", f"float32[1, {8 * k}, 8]",
                says="outputs", outputs=4),
            bad(op, 22, S3, f"float32[1, {8 * k}, C]", says="input"),
        )
    ],
    bad("Attention", 23, "float32[N, S]", "float32[N, S]", "float32[N, S]", says="rank|axes|dim"),
    bad("Attention", 23, Q, T3, T3, says="rank|axes|dim"),
    bad("Attention", 23, T3, T3, T3, says="num_heads"),
    bad("Attention", 23, T3, T3, T3, says="128|3", q_num_heads=3, kv_num_heads=3),
    bad("Attention", 23, q4(8, "S", 64), q4(3, "R", 64), q4(3, "R", 64), says="8|3"),
    bad("Attention", 23, q4(8, "S", 64), q4(8, "R", 32), q4(8, "R", 64), says="64|32"),
    bad("Attention", 23, q4(8, "S", 64), q4(8, 5, 64), q4(8, 6, 64), says="5|6"),
    bad("Attention", 23, "float32[2, 8, S, 64]", "float32[3, 8, R, 64]", "float32[3, 8, R, 64]",
        says="2|3"),
    bad("Attention", 23, Q, K, K, None, q4(8, "P", 32), q4(8, "P", 64), says="64|32"),
    bad("Attention", 23, Q, K, K, None, q4(8, "P", 64), says="past"),
    bad("Attention", 23, Q, K, says="input"),
    bad("Attention", 23, Q, K, K, says="outputs", outputs=5),
    bad("LinearAttention", 27, T3, T3, T3, says="num_heads", outputs=2),
    bad("LinearAttention", 27, T3, T3, T3, says="outputs", q_num_heads=2, kv_num_heads=2, update_rule="linear"),
    bad("LinearAttention", 27, T3, T3, T3, says="heads|2|4", outputs=2, q_num_heads=2,
        kv_num_heads=4, update_rule="linear"),
    bad("LinearAttention", 27, T3, T3, T3, says="heads", outputs=2, q_num_heads=0, kv_num_heads=0,
        update_rule="linear"),
    bad("LinearAttention", 27, Q, K, K, says="rank|axes|dim", outputs=2, q_num_heads=2,
        kv_num_heads=2, update_rule="linear"),
    bad("LinearAttention", 27, "float32[N, 4, 128]", "float32[N, 5, 128]", "float32[N, 5, 128]",
        says="4|5", outputs=2, q_num_heads=2, kv_num_heads=2, update_rule="linear"),
    bad("LinearAttention", 27, T3, T3, T3, q4(2, 64, 63), says="63|64", outputs=2, q_num_heads=2,
        kv_num_heads=2, update_rule="linear"),
    bad("RotaryEmbedding", 23, "float32[N, S]", "float32[R, 32]", "float32[R, 32]", "int64[N, S]",
        says="rank|axes|dim"),
    bad("RotaryEmbedding", 23, T3, "float32[R, 32]", "float32[R, 32]", "int64[N, S]",
        says="num_heads"),
    bad("CausalConvWithState", 27, "float32[N, C, S]", "float32[C, 1, 4]", says="outputs"),
    bad("CausalConvWithState", 27, X, "float32[C, 1, 4]", says="rank|axes|dim", outputs=2),
    bad("CausalConvWithState", 27, "float32[N, C, S]", "float32[C, 4]", says="rank|axes|dim",
        outputs=2),
    bad("CausalConvWithState", 27, "float32[N, 3, S]", "float32[4, 1, 4]", says="3|4", outputs=2),
    bad("DeformConv", 22, X, "float32[M, C, 3]", "float32[N, 18, 9, 11]", says="rank|axes|dim"),
    bad("DeformConv", 22, "float32[N, C]", "float32[M, C]", "float32[N, 18]", says="rank|axes|dim"),
    bad("DeformConv", 22, X, W4, "float32[N, 18, 9, 11]", says="strides", strides=[1]),
    bad("DeformConv", 22, X, W4, "float32[N, 17, 9, 11]", says="17|18"),
    bad("DeformConv", 22, X, W4, says="input"),
    bad("Col2Im", 18, "float32[N, 31, 12]", IM, BL, says="31|6"),
    bad("Col2Im", 18, "float32[N, 30, 13]", IM, BL, says="13|12"),
    bad("Col2Im", 18, "float32[N, 30, 3, 4]", IM, BL, says="rank|axes|dim"),
    bad("Col2Im", 18, "float32[N, 30, 12]", np.array([5]), BL, says="image_shape|block_shape"),
    bad("Col2Im", 18, "float32[N, 30, 12]", IM, BL, says="strides", strides=[1]),
    *[
        row
        for op, opset, w, x in (
            ("Conv", 22, W4, X),
            ("ConvInteger", 10, "uint8[M, C, 3, 3]", "uint8[N, C, H, W]"),
            ("ConvTranspose", 22, "float32[C, M, 3, 3]", X),
        )
        for row in (
            bad(op, opset, x.replace(", W", ""), w, says="rank|axes|dim"),
            bad(op, opset, x, w, says="kernel_shape", kernel_shape=[2, 2]),
            bad(op, opset, x, w, says="kernel_shape|rank", kernel_shape=[3]),
            bad(op, opset, x, w, says="strides", strides=[1]),
            bad(op, opset, x, w, says="pads", pads=[1, 1]),
            bad(op, opset, x, w, says="dilations", dilations=[1, 1, 1]),
            bad(op, opset, x, w, says="auto_pad", auto_pad="SOME"),
            bad(op, opset, x, w, says="group", group=0),
            bad(op, opset, x.replace("C", "4"), w.replace("C", "5"), says="4|5"),
            bad(op, opset, x, says="input"),
        )
    ],
    bad("Conv", 22, X, "float32[3, C, 3, 3]", says="3|2", group=2),
    bad("Conv", 22, X, "float32[8, C, 3, 3]", "float32[9]", says="8|9"),
    bad("ConvTranspose", 22, X, "float32[C, M, 3, 3]", says="output_padding", output_padding=[1]),
    bad("ConvTranspose", 22, X, "float32[C, M, 3, 3]", says="output_shape", output_shape=[9]),
    bad("MaxUnpool", 11, X, "int64[N, C, H, W]", says="kernel_shape"),
    bad("MaxUnpool", 11, X, "int64[N, C, H, W]", says="kernel_shape|rank", kernel_shape=[2]),
    bad("MaxUnpool", 11, X, "int64[N, C, H]", says="rank|axes|I", kernel_shape=[2, 2]),
    bad("MaxUnpool", 11, X, "int64[N, C, H, W]", np.array([1, 2]), says="output_shape",
        kernel_shape=[2, 2]),
    bad("MaxRoiPool", 22, X, "float32[R, 5]", says="pooled_shape"),
    bad("MaxRoiPool", 22, X, "float32[R, 5]", says="pooled_shape", pooled_shape=[2]),
    bad("MaxRoiPool", 22, X, "float32[R, 5]", says="pooled_shape", pooled_shape=[2, 0]),
    bad("MaxRoiPool", 22, X1, "float32[R, 5]", says="rank|axes|dim", pooled_shape=[2, 2]),
    bad("MaxRoiPool", 22, X, "float32[R, 4]", says="5|4", pooled_shape=[2, 2]),
    bad("MaxRoiPool", 22, X, "float32[R]", says="rois|rank", pooled_shape=[2, 2]),
    bad("Shape", 15, X, says="INT", start="one"),
    bad("Shape", 13, X, says="no attribute", start=1),
]  # fmt: skip


@pytest.mark.parametrize("op, opset, inputs, attrs, outputs, says", ERRORS)
def test_what_cannot_run_is_an_error(op, opset, inputs, attrs, outputs, says):
    with pytest.raises(ShapeError) as error:
        computed(op, opset, inputs, attrs, tuple(f"y{i}" for i in range(outputs)))
    head = f"n ({op}, opset {opset}): "
    assert isinstance(error.value, ValueError)
    assert str(error.value).startswith(head)
    assert re.search(says, str(error.value).removeprefix(head)), error.value


def once() -> list:
    """One row for each operator, the newest."""
    found: dict[str, Any] = {}
    for r in ROWS:
        op, opset = r.values[0], r.values[1]
        if op not in found or found[op].values[1] <= opset:
            found[op] = r
    return list(found.values())


@pytest.mark.parametrize(TABLE, once())
def test_misuse(op, opset, inputs, attrs, outputs, requires, wrong):
    given = {f"x{i}": tensor(x) if isinstance(x, str) else x for i, x in enumerate(inputs)}
    ctx = ShapesContext({n: v for n, v in given.items() if v is not None}, opset)
    used = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    before = dict(ctx)
    with pytest.raises(ShapeError, match="has no output"):
        ctx.compute(helper.make_node(op, used, [], **attrs))
    for i in range(len(used)):
        names_ = [*used[:i], "nowhere", *used[i + 1 :]]
        with pytest.raises(UnknownValueError, match="takes 'nowhere'") as error:
            ctx.compute(helper.make_node(op, names_, ["y"], name="n", **attrs))
        assert str(error.value).startswith(f"n ({op}, opset {opset}): ")
        assert isinstance(error.value, KeyError)
    other = helper.make_node("Relu", ["x0"], ["y"])
    with pytest.raises(ShapeError, match=f"{op} .*another operator, Relu"):
        operator(op, opset=opset).compute(ctx, other)
    assert dict(ctx) == before and not ctx.requirements
    node = helper.make_node(op, used, names(outputs), **attrs)
    operator(op, opset=opset).compute(ctx, node)
    assert all(n in ctx for n in names(outputs) if n)


def test_selected_boxes_are_bounded():
    ctx = computed(
        "NonMaxSuppression",
        11,
        ("float32[N, R, 4]", "float32[N, C, R]", np.array([3])),
        {},
        ("y0",),
    )
    (bound,) = ctx.bounds.values()
    assert bound[0] == 0 and str(bound[1]) in ("C*N*min(R, 3)", "min(3*C*N, C*N*R)")


def test_a_limit_of_none_selects_none():
    ctx = computed("NonMaxSuppression", 11, ("float32[1, R, 4]", "float32[1, C, R]"), {}, ("y0",))
    assert str(ctx["y0"]) == "int64[0, 3]"


def test_shape_is_known_by_content():
    ctx = computed("Shape", 15, (X,), {"start": 1}, ("y0",))
    assert [str(d) for d in ctx.content("y0").tolist()] == ["C", "H", "W"]
