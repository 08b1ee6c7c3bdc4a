"""What the operators of ONNX's nn family refuse, and how they say it."""

import re
from typing import Any

import numpy as np
import pytest
from nn_rows import C1, S3, X1, X, computed, q4

from jaxshape import ShapeError


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
    bad("LinearAttention", 27, T3, T3, T3, says="outputs", q_num_heads=2,
        kv_num_heads=2, update_rule="linear"),
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
    bad("Col2Im", 18, "float32[N, 30, 12]", np.array([5]), BL, says="image.shape|block.shape"),
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
