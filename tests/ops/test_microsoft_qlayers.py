"""com.microsoft: layers with quantized weights, held against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import layer, refused
from twin import check, twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
N, S, D, H, E = 2, 3, 6, 2, 4
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def codes(*shape, dtype: Any = np.uint8):
    """Bytes; signed ones are small, as onnxruntime may add pairs of products in 16 bits."""
    return rng.integers(0, 256 if dtype is np.uint8 else 60, shape).astype(dtype)


def mask(*shape):
    made = rng.integers(0, 2, shape, np.int32)
    made[..., 0] = 1
    return made


@pytest.mark.parametrize(
    ("past", "masked", "dtype", "attributes"),
    [
        (0, None, np.uint8, {}),
        (0, mask(N, S), np.int8, {"unidirectional": 1}),
        (0, np.array([3, 1], np.int32), np.uint8, {"scale": 0.3}),
        (2, mask(N, S + 2), np.uint8, {}),
        (2, None, np.int8, {"unidirectional": 1}),
    ],
)
def test_attention(past, masked, dtype, attributes):
    old = numbers(2, N, H, past, E) if past else None
    for each in ((), (3 * H * E,)):
        inputs = [codes(N, S, D), codes(D, 3 * H * E, dtype=dtype), numbers(3 * H * E), F(0.01)]
        inputs += [np.full(each, 0.02, F), masked, np.uint8(120), np.full(each, 7, dtype), old]
        inputs = inputs if past else inputs[:-1]
        check("QAttention", *inputs, outputs=2, num_heads=H, **attributes)


def test_embeddings():
    ids, segments = rng.integers(0, 10, (2, 4), np.int32), rng.integers(0, 2, (2, 4), np.int32)
    counts = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.int32)
    for dtype in (np.uint8, np.int8):
        tables = [codes(*s, dtype=dtype) for s in ((10, 8), (6, 8), (2, 8), (8,), (8,))]
        scales = [F(v) for v in (0.01, 0.02, 0.03, 0.04, 0.05)]
        zeros = [dtype(v) for v in (100, 90, 80, 70, 60)]
        inputs = ids, segments, *tables, counts, *scales, *zeros
        check("QEmbedLayerNormalization", *inputs, outputs=2)
        less: list[Any] = list(inputs)
        for i in (1, 4, 7, 10, 15):
            less[i] = None
        check("QEmbedLayerNormalization", *less, outputs=2, epsilon=0.01)


@pytest.mark.parametrize(
    ("directions", "optional", "dtype", "attributes"),
    [
        (1, False, np.uint8, {}),
        (1, True, np.int8, {"direction": "reverse", "clip": 0.7}),
        (2, True, np.uint8, {"direction": "bidirectional"}),
        (1, True, np.int8, {"input_forget": 1, "activations": ["HardSigmoid", "Relu", "Softsign"]}),
    ],
)
def test_lstm(directions, optional, dtype, attributes):
    length, batch, entry, hidden, d = 4, 3, 5, 4, directions
    inputs: list[Any] = [numbers(length, batch, entry)]
    inputs += [codes(d, entry, 4 * hidden, dtype=dtype), codes(d, hidden, 4 * hidden, dtype=dtype)]
    if optional:
        inputs += [numbers(d, 8 * hidden), np.array([4, 1, 3], np.int32)]
        inputs += [numbers(d, batch, hidden), numbers(d, batch, hidden), numbers(d, 3 * hidden)]
    else:
        inputs += [None] * 5
    for each in ((d,), (d, 4 * hidden)):
        scale = np.full(each, 0.01, F), np.full(each, 0 if dtype is np.int8 else 128, dtype)
        check(
            "DynamicQuantizeLSTM", *inputs, *scale, *scale, outputs=3, hidden_size=hidden,
            **attributes,
        )  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("k", "n"), [(32, 6), (20, 5), (7, 3), (16, 16)])
def test_codes_of_four_bits(kind, k, n):
    b, scales = codes((k * n + 1) // 2), np.abs(numbers(-(-k * n // 16)))
    attributes = {"K": k, "N": n, "block_size": 16, "quant_type": kind}
    check("MatMulBnb4", numbers(2, 3, k), b, scales, **attributes)
    check("MatMulBnb4", numbers(k), b, scales, **attributes)


def test_products_of_sixteen_bits():
    for a, b in (((2, 3), (3, 4)), ((3,), (3,)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 3), (3, 2))):
        x, y = (rng.integers(-30000, 30000, s).astype(np.int16) for s in (a, b))
        check("MatMulInteger16", x, y)


def test_pools_of_bytes():
    x = codes(1, 6, 5, 3)
    for dtype in (np.int8, np.uint8):
        how = {"strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1}
        check("NhwcMaxPool", (x >> 1).astype(dtype), kernel_shape=[2, 2], **how)
        check("NhwcMaxPool", (x >> 1).astype(dtype), kernel_shape=[2, 3], dilations=[2, 1])
        check("NhwcMaxPool", (x >> 1).astype(dtype), kernel_shape=[2, 3], auto_pad="SAME_UPPER")


@pytest.mark.parametrize(("axes", "keepdims"), [([1], 1), ([0, -1], 0), ([0, 1, 2], 0)])
def test_reductions_of_bytes(axes, keepdims):
    """Not on onnxruntime's CPU, but for their parts."""
    how, scales = (
        {"axes": axes, "keepdims": keepdims},
        (F(1 / 64), np.uint8(7), F(1 / 128), np.uint8(9)),
    )
    x = codes(3, 4, 5)
    (real,) = twin("DequantizeLinear", x, *scales[:2])
    mean = np.mean(real, tuple(axes), keepdims=bool(keepdims))
    (wanted,) = twin("QuantizeLinear", mean, *scales[2:])
    layer("QLinearReduceMean", x, *scales, wanted=wanted, **how, **MS)
    for dtype, wide in ((np.uint8, np.uint32), (np.int8, np.int32)):
        total = np.sum(x.view(dtype).astype(wide), tuple(axes), wide, keepdims=bool(keepdims))
        layer("ReduceSumInteger", x.view(dtype), wanted=total, **how, **MS)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("ReduceSumInteger", ["int8[N, S, K]"], {"axes": [1], "keepdims": 0}, ["int32[N, K]"]),
        (
            "QLinearReduceMean",
            ["uint8[N, S, K]", "float32[]", "uint8[]", "float32[]", "uint8[]"],
            {"axes": [-1], "keepdims": 1},
            ["uint8[N, S, 1]"],
        ),
        (
            "QAttention",
            ["uint8[N, S, D]", "int8[D, 24]", "float32[24]", "float32[]", "float32[]"],
            {"num_heads": 2},
            ["float32[N, S, 8]", "float32[2, N, 2, S, 4]"],
        ),
        (
            "DynamicQuantizeLSTM",
            ["float32[S, N, I]", "int8[1, I, W]", "int8[1, K, W]", *[None] * 5]
            + ["float32[1]", "int8[1]"] * 2,
            {},
            ["float32[S, 1, N, K]", "float32[1, N, K]", "float32[1, N, K]"],
        ),
        (
            "MatMulBnb4",
            ["float16[B, S, K]", "uint8[40]", "float16[5]"],
            {"K": 16, "N": 5, "block_size": 16, "quant_type": 1},
            ["float16[B, S, 5]"],
        ),
        ("MatMulInteger16", ["int16[B, M, K]", "int16[K, N]"], {}, ["int32[B, M, N]"]),
        (
            "NhwcMaxPool",
            ["int8[N, H, W, C]"],
            {"kernel_shape": [2, 2]},
            ["int8[N, H - 1, W - 1, C]"],
        ),
    ],
)
def test_sizes(op, inputs: Any, attributes, wanted):
    assert types(op, *inputs, outputs=len(wanted), **attributes, **MS) == wanted


def test_demands():
    attributes = {"K": 16, "N": 5, "block_size": 16, "quant_type": 1}
    inputs = "float32[B, K]", "uint8[40]", "float32[5]"
    assert demands("MatMulBnb4", *inputs, **attributes, **MS) == ["K == 16"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        (
            "MatMulBnb4",
            ["float32[1, 16]", "uint8[40]", "float32[5]"],
            {"K": 16, "N": 5, "block_size": 16, "quant_type": 2},
            "quant_type is 2",
        ),
        (
            "DynamicQuantizeLSTM",
            ["float32[2, 1, 3]", "int8[1, 3, 8]", "int8[1, 2, 9]", *[None] * 5]
            + ["float32[1]", "int8[1]"] * 2,
            {},
            "axis 1 of R",
        ),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        (
            "QAttention",
            ["uint8[1, 2, 6]", "int8[6, 24]", "float32[24]", "float32[]", "float32[]"],
            {"num_heads": 2, "do_rotary": 1},
            "do_rotary",
        ),
        (
            "MatMulBnb4",
            ["float32[1, 16]", "uint8[128]", "float32[16]"],
            {"K": 16, "N": 16, "block_size": 16, "quant_type": 1, "transB": 0},
            "transB = 0",
        ),
    ],
)
def test_what_is_not_handled(op, inputs, attributes, says):
    with pytest.raises(js.UnsupportedError, match=says):
        js.trace(node(op, *inputs, **attributes, **MS))
