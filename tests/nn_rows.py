"""A table of single nodes of ONNX's nn family: inputs, attributes, and the types of the outputs."""

import re
from typing import Any

import numpy as np
import pytest
from onnx import helper

from jaxshape import ShapesContext, TensorType

SIZES = {"N": 2, "C": 6, "H": 11, "W": 13, "D": 8, "M": 4, "G": 3, "S": 5, "P": 2, "R": 9, "B": 8}
SIZES |= {f"{name}{i}": n for name, n in SIZES.items() for i in (2, 3)}  # C2: as C, not known to be
SIZES |= {"P4": 4, "P5": 5, "M": 4}


def tensor(text: str) -> TensorType:
    """The type that `float32[N, 3]` writes; without brackets the rank is unknown."""
    dtype, dims = re.fullmatch(r"(\w+)(?:\[(.*)\])?", text).groups()  # type: ignore[union-attr]
    if dims is None:
        return TensorType(dtype, None)
    shape = [d.strip() for d in dims.split(",")] if dims else []
    return TensorType(dtype, [int(d) if d.isdigit() else d for d in shape])


def computed(op: str, opset: int, inputs: tuple, attrs: dict, outputs: tuple) -> ShapesContext:
    """A context with the inputs x0, x1, ... in which the node was computed."""
    given = {
        f"x{i}": tensor(x) if isinstance(x, str) else x
        for i, x in enumerate(inputs)
        if x is not None
    }
    ctx = ShapesContext(given, opset)
    used = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    ctx.compute(helper.make_node(op, used, list(outputs), name="n", **attrs))
    return ctx


def like(pattern: str) -> Any:
    """A type whose text matches, where sizes have names of their own."""
    return re.compile(pattern)


def names(outputs: tuple) -> tuple[str, ...]:
    """Names for the outputs that are asked for."""
    return tuple(f"y{i}" if want else "" for i, want in enumerate(outputs))


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
    row("MaxPool", 12, "uint8[N, C, H, W]",
        to=("uint8[N, C, H//2, W//2]", "int64[N, C, H//2, W//2]"),
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

OTHER_NAMES = [
    row("MaxUnpool", 22, X1, "int64[N2, C2, D2]", to="float32[N, C, D + 1]", kernel_shape=[2],
        requires=("N == N2", "C == C2", "D == D2")),
    row("RoiAlign", 16, X, "float32[R, P4]", "int64[R2]", to="float32[R, C, 1, 1]",
        requires=("R == R2", "P4 == 4")),
    row("MaxRoiPool", 22, X, "float32[R, P5]", to="float32[R, C, 2, 2]", pooled_shape=[2, 2],
        requires=("P5 == 5",)),
    row("InstanceNormalization", 22, X, "float32[C2]", "float32[C3]", to=X,
        requires=("C == C2", "C == C3")),
    row("GroupNormalization", 21, X, "float32[C2]", "float32[C3]", to=X, num_groups=1,
        requires=("C == C2", "C == C3")),
    row("BatchNormalization", 15, X1, "float32[C2]", "float32[C3]", "float32[C]", "float32[C]",
        to=(X1, "float32[C]", "float32[C]"), training_mode=1,
        requires=("C == C2", "C == C3")),
    row("BatchNormalization", 9, X1, "float32[C]", "float32[C]", "float32[C2]", "float32[C3]",
        to=(X1, *["float32[C]"] * 4), requires=("C == C2", "C == C3")),
    row("Conv", 22, X, "float32[M, C2, 3, 1]", "float32[M2]", to="float32[N, M, H - 2, W]",
        requires=("C == C2", "M == M2", "H >= 3")),
    row("ConvTranspose", 22, X, "float32[C2, M, 3, 1]", "float32[M2]", to="float32[N, M, H + 2, W]",
        requires=("C == C2", "M == M2")),
    row("Col2Im", 18, "float32[N, C, R]", np.array([4, 3]), np.array([2, 1]),
        to="float32[N, C//2, 4, 3]", requires=("C % 2 == 0", "R == 9")),
    row("CausalConvWithState", 27, "float32[N, C, S]", "float32[C2, 1, D]", "float32[C3]",
        "float32[N2, C, D2 - 1]", to=("float32[N, C, S]", "float32[N, C, D - 1]")),
    row("LSTM", 22, S3, "float32[1, 4*B, C2]", "float32[1, 4*B2, B3]", "float32[1, 8*B]",
        "int32[N2]", "float32[1, N3, B]", "float32[1, N, B]", "float32[1, 3*B]",
        to=("float32[S, 1, N, B]", "float32[1, N, B]", "float32[1, N, B]")),
    row("Attention", 23, q4("B", "S", "D"), "float32[N2, B2, R, D2]", "float32[N3, B3, R2, M]",
        to=q4("B", "S", "M")),
    row("Attention", 23, "float32[N, S, D]", "float32[N2, R, D2]", "float32[N, R2, M]",
        to="float32[N, S, M]", q_num_heads=2, kv_num_heads=2),
    row("LinearAttention", 27, "float32[N, S, C]", "float32[N2, S2, C2]", "float32[N, S, M]",
        to=("float32[N, S, M]", q4(2, "C//2", "M//2")), q_num_heads=2, kv_num_heads=2,
        update_rule="linear"),
    row("NonMaxSuppression", 11, "float32[N, R, P4]", "float32[N2, C, R2]", np.array([1]),
        to=like(r"int64\[\w+, 3\]"), requires=("N == N2", "R == R2", "P4 == 4")),
]  # fmt: skip

ROWS = [*POOLS, *SHAPES, *NORMS, *CONVS, *RECURRENT, *ATTENTION, *OTHER_NAMES]
TABLE = "op, opset, inputs, attrs, outputs, requires, wrong"
