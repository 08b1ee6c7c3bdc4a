"""com.microsoft: what onnxruntime's optimiser and quantizer emit, held against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import layer, refused
from twin import check

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype=F):
    return rng.normal(size=shape).astype(dtype)


# activations and products -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "bias", "attributes"),
    [
        ("Gelu", [], {}),
        ("QuickGelu", [], {}),
        ("QuickGelu", [], {"alpha": 0.5}),
        ("BiasGelu", [numbers(4)], {}),
        ("FastGelu", [], {}),
        ("FastGelu", [numbers(4)], {}),
    ],
)
def test_activations(op, bias, attributes):
    check(op, numbers(2, 3, 4), *bias, **attributes)


def stored(x, trans, trans_batch):
    x = x.swapaxes(-1, -2) if trans else x
    return np.ascontiguousarray(np.moveaxis(x, -2, 0) if trans_batch else x)


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
@pytest.mark.parametrize(
    "how", [(0, 0, 0, 0), (1, 1, 0, 0), (0, 1, 1, 0), (1, 0, 0, 1), (1, 1, 1, 1)]
)
def test_fused_matmul(batch, how):
    ta, tb, ba, bb = how if len(batch) else (*how[:2], 0, 0)
    a, b = numbers(*batch, 3, 4), numbers(*batch, 4, 5)
    names = {"transA": ta, "transB": tb, "transBatchA": ba, "transBatchB": bb, "alpha": 0.5}
    wanted = F(0.5) * np.matmul(a, b)
    layer("FusedMatMul", stored(a, ta, ba), stored(b, tb, bb), wanted=wanted, **MS, **names)


def test_fused_matmul_with_a_vector():
    check("FusedMatMul", numbers(4), numbers(4, 5), transA=1)
    check("TransposeMatMul", numbers(4, 3), numbers(4, 5), transA=1, alpha=2.0)


@pytest.mark.parametrize(
    ("activation", "params"),
    [
        ("Relu", {}),
        ("Tanh", {}),
        ("LeakyRelu", {"activation_alpha": 0.25}),
        ("HardSigmoid", {"activation_alpha": 0.25, "activation_beta": 0.75}),
    ],
)
def test_fused_gemm(activation, params):
    inputs = numbers(3, 4), numbers(5, 4), numbers(5)
    check("FusedGemm", *inputs, activation=activation, transB=1, alpha=0.5, **params)


@pytest.mark.parametrize(
    ("activation", "params"),
    [("Relu", None), ("LeakyRelu", [0.25]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.25, 0.75])],
)
def test_fused_conv(activation, params):
    inputs = numbers(1, 3, 6, 6), numbers(4, 3, 3, 3), numbers(4), numbers(1, 4, 3, 3)
    attributes = {"activation": activation, "activation_params": params, "strides": [2, 2]}
    check("FusedConv", *inputs, pads=[1, 1, 1, 1], **attributes)


def test_odds_and_ends():
    check("Inverse", numbers(2, 3, 3) + 3 * np.eye(3, dtype=F))
    check("Trilu", numbers(3, 4), np.array(1), upper=0)
    check("CDist", numbers(3, 4), numbers(5, 4))
    check("CDist", numbers(3, 4), numbers(5, 4), metric="euclidean")


@pytest.mark.parametrize(("axis", "wanted"), [(0, (1, 3, 4)), (-1, (3, 4, 1)), (-2, (3, 1, 4))])
def test_expand_dims(axis, wanted):
    x = numbers(3, 4)
    y = js.run(node("ExpandDims", "float32[3,4]", np.array(axis, np.int32), **MS), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, x.reshape(wanted))


# normalisation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_skip_layer_norm(dtype):
    rtol = 1e-4 if dtype is np.float32 else 4e-3
    x, skip, gamma, beta, bias = (numbers(*s, dtype=dtype) for s in [(2, 3, 8)] * 2 + [(8,)] * 3)
    for inputs in (
        (x, skip, gamma, beta, bias),
        (x, skip[0], gamma),
        (x[0], skip[0], gamma, None, bias),
    ):
        check("SkipLayerNormalization", *inputs, rtol=rtol, epsilon=0.01)
    for op, inputs in (
        ("SkipLayerNormalization", (x, skip[:1], gamma, beta, bias)),
        ("SkipSimplifiedLayerNormalization", (x, skip, gamma, bias)),
    ):
        check(op, *inputs, rtol=rtol, outputs=("y", "", "", "sum"))


def test_layer_norm_of_the_default_domain():
    x, scale, b = numbers(2, 3, 8), numbers(8), numbers(8)
    check("LayerNormalization", x, scale, b, domain="", opset=14, outputs=3)
    check("SimplifiedLayerNormalization", x, scale, domain="", outputs=2, epsilon=0.01)


def test_embed_layer_norm():
    ids, segments = rng.integers(0, 10, (2, 4), np.int32), rng.integers(0, 2, (2, 4), np.int32)
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.int32)
    word, place, segment, gamma, beta = (numbers(*s) for s in ((10, 8), (6, 8), (2, 8), (8,), (8,)))
    full = ids, segments, word, place, segment, gamma, beta, mask
    check("EmbedLayerNormalization", *full, outputs=3)
    check("EmbedLayerNormalization", *full, segments, outputs=3)
    check("EmbedLayerNormalization", ids, None, word, place, None, gamma, beta, outputs=2)


# attention ----------------------------------------------------------------------------------------

N, S, H, E = 2, 3, 2, 4
D = H * E


def mask(*shape):
    """A mask that lets every query attend the first key."""
    made = rng.integers(0, 2, shape, np.int32)
    made[..., 0] = 1
    return made


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize(
    ("past", "masked"),
    [
        (0, None),
        (0, mask(N, S)),
        (0, np.array([3, 1], np.int32)),
        (2, mask(N, S, S + 2)),
        (2, None),
    ],
)
def test_multi_head_attention(unidirectional, past, masked):
    old = [numbers(N, H, past, E)] * 2 if past else []
    inputs = [numbers(N, S, D) for _ in range(3)] + [
        numbers(3 * D),
        masked,
        numbers(1, H, S, S + past),
    ]
    outputs = ("y", "keys", "values") if past else 1
    attributes = {"num_heads": H, "unidirectional": unidirectional}
    check("MultiHeadAttention", *inputs, *old, outputs=outputs, **attributes)


def test_multi_head_attention_of_other_sizes():
    q, k, v = numbers(N, S, D), numbers(N, 5, D), numbers(N, 5, H * 3)
    check("MultiHeadAttention", q, k, v, numbers(2 * D + H * 3), num_heads=H, scale=0.3)
    check("MultiHeadAttention", q, numbers(N, H, 5, E), numbers(N, H, 5, E), num_heads=H)


@pytest.mark.parametrize(
    ("past", "masked"),
    [
        (0, None),
        (0, mask(N, S)),
        (0, np.array([3, 1], np.int32)),
        (0, np.array([3, 2, 1, 0], np.int32)),
        (2, mask(N, S, S + 2)),
    ],
)
def test_attention(past, masked):
    inputs = [numbers(N, S, 6), numbers(6, 3 * D), numbers(3 * D), masked]
    inputs += [numbers(2, N, H, past, E)] if past else []
    for unidirectional in (0, 1):
        attributes = {"num_heads": H, "unidirectional": unidirectional}
        check("Attention", *inputs, outputs=2, **attributes)


def test_attention_of_other_sizes():
    inputs = numbers(N, S, 6), numbers(6, 2 * D + 6), numbers(2 * D + 6)
    check("Attention", *inputs, num_heads=H, qkv_hidden_sizes=[D, D, 6], scale=0.3)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved):
    cos, sin, ids = numbers(10, 4), numbers(10, 4), np.array([[2, 3, 4], [5, 6, 7]])
    for x, places in ((numbers(2, 3, 16), ids), (numbers(2, 2, 3, 8), ids[:1, 0])):
        check("RotaryEmbedding", x, places, cos, sin, interleaved=interleaved)
    attributes = {"num_heads": 2, "rotary_embedding_dim": 8, "interleaved": interleaved}
    check("RotaryEmbedding", numbers(2, 3, 24), ids, cos, sin, **attributes)
    check("RotaryEmbedding", numbers(2, 3, 24), ids, cos, sin, is_packed_batching=1, **attributes)


# sizes and errors ---------------------------------------------------------------------------------


def floats(*shapes):
    return [None if s is None else f"float32[{s}]" for s in shapes]


def quants(*shapes):
    """Types of byte tensors, each with its scale and zero point."""
    return [t for s in shapes for t in (f"uint8[{s}]", "float32[]", "uint8[]")]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("BiasGelu", floats("N, S, K", "K"), {}, ["[N, S, K]"]),
        (
            "FusedMatMul",
            floats("S, B, H, E", "T, B, H, E"),
            {"transBatchA": 1, "transBatchB": 1, "transB": 1},
            ["[B, H, S, T]"],
        ),
        ("FusedGemm", floats("K, M", "N, K"), {"transA": 1, "transB": 1}, ["[M, N]"]),
        ("Inverse", floats("N, M, M"), {}, ["[N, M, M]"]),
        ("CDist", floats("M, K", "N, K"), {}, ["[M, N]"]),
        ("SkipLayerNormalization", floats("N, S, K", "S, K", "K"), {}, ["[N, S, K]"]),
        (
            "MultiHeadAttention",
            floats("N, S, 8", "N, L, 8", "N, L, 8", None, None, None, "N, 2, P, 4", "N, 2, P, 4"),
            {"num_heads": 2},
            ["[N, S, 8]", "[N, 2, L + P, 4]", "[N, 2, L + P, 4]", "[N, 2, S, L + P]"],
        ),
        (
            "Attention",
            floats("N, S, D", "D, 24"),
            {"num_heads": 2},
            ["[N, S, 8]", "[2, N, 2, S, 4]"],
        ),
        ("QLinearAdd", [*quants("N, C", "C"), "float32[]", "uint8[]"], {}, ["[N, C]"]),
        (
            "QLinearConcat",
            ["float32[]", "uint8[]", *quants("N, 2", "N, C")],
            {"axis": 1},
            ["[N, C + 2]"],
        ),
        (
            "QLinearAveragePool",
            [*quants("N, H, W, C"), "float32[]", "uint8[]"],
            {"kernel_shape": [2, 2], "channels_last": 1},
            ["[N, H - 1, W - 1, C]"],
        ),
        (
            "MatMulNBits",
            ["float32[B, S, K]", "uint8[6, 2, 16]", "float32[12]"],
            {"K": 64, "N": 6, "block_size": 32},
            ["[B, S, 6]"],
        ),
        (
            "DynamicQuantizeMatMul",
            ["float32[B, M, K]", "int8[K, N]", "float32[N]"],
            {},
            ["[B, M, N]"],
        ),
    ],
)
def test_sizes(op, inputs, attributes, wanted):
    found = types(op, *inputs, outputs=len(wanted), **attributes, **MS)
    assert [f"[{t.split('[')[1]}" for t in found] == wanted


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("BiasGelu", floats("N, K", "M"), {}, ["K == M"]),
        ("CDist", floats("M, K", "N, L"), {}, ["K == L"]),
        ("Attention", floats("N, S, D", "E, W"), {"num_heads": 2}, ["D == E", "W % 6 == 0"]),
        (
            "MultiHeadAttention",
            floats("N, S, D", *["N, S, D"] * 2),
            {"num_heads": 4},
            ["D % 4 == 0"],
        ),
        (
            "MatMulNBits",
            ["float32[M, K]", "uint8[6, 2, 16]", "float32[12]"],
            {"K": 64, "N": 6, "block_size": 32},
            ["K == 64"],
        ),
    ],
)
def test_demands(op, inputs, attributes, wanted):
    assert demands(op, *inputs, **attributes, **MS) == wanted


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("BiasGelu", floats("2, 3", "4"), {}, "B (4) must be (3)"),
        ("FusedGemm", floats("2, 3", "3, 4"), {"activation": "Add"}, "no activation of one input"),
        ("FusedMatMul", floats("2, 3", "4, 5"), {}, "A (2, 3) times B (4, 5)"),
        ("CDist", floats("2, 3", "4, 3"), {"metric": "cosine"}, "metric is 'cosine'"),
        ("EmbedLayerNormalization", ["int32[1, 2]"], {}, "needs word_embedding"),
        ("QLinearAdd", ["uint8[2]", "float32[]"], {}, "needs input B"),
        ("QLinearConcat", ["float32[]", "uint8[]", "uint8[2]"], {"axis": 0}, "1 inputs, wants"),
        (
            "MatMulNBits",
            ["float32[1, 64]", "uint8[6, 2, 16]", "float32[12]"],
            {"K": 64, "N": 6, "block_size": 24},
            "block_size 24",
        ),
        ("MultiHeadAttention", floats(*["1, 2, 6"] * 3), {"num_heads": 4}, "6 is no multiple of 4"),
        ("Attention", floats("1, 2, 6", "6, 10"), {"num_heads": 2}, "10 is no multiple of 3"),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)


def test_what_is_not_handled():
    for op, inputs, attributes, says in (
        ("MultiHeadAttention", floats("1, 2, 2, 3, 4"), {"num_heads": 2}, "packed query"),
        ("Attention", floats("1, 2, 6", "6, 24"), {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
    ):
        with pytest.raises(js.UnsupportedError, match=says):
            js.trace(node(op, *inputs, **attributes, **MS))
