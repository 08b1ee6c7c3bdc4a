"""com.microsoft: what the optimiser makes of image models, held against onnxruntime.

Where its CPU has no kernel, against the parts, which it has.
"""

from typing import Any

import numpy as np
import pytest
from forms import demands, types
from layers import layer, refused
from twin import check, twin

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def silu(x):
    return x / (1 + np.exp(-x))


def first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def test_sums():
    x, bias, skip = numbers(2, 3, 8), numbers(8), numbers(2, 3, 8)
    layer("BiasAdd", x, bias, skip, wanted=x + bias + skip, **MS)
    right = np.ascontiguousarray((x + bias)[..., 4:])
    (gelu,) = twin("Gelu", right, **MS)
    layer("BiasSplitGelu", x, bias, wanted=(x + bias)[..., :4] * gelu, **MS)
    w, more = numbers(8, 5), numbers(5)
    for given in ((), (more,)):
        (wanted,) = twin("FastGelu", x @ w, *given, **MS)
        layer("GemmFastGelu", x, w, *given, wanted=wanted, **MS)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(channels_last, activation):
    x, gamma, beta, bias = numbers(2, 6, 4, 3), numbers(6), numbers(6), numbers(6)
    how = {"groups": 2, "activation": activation, "channels_last": channels_last, "epsilon": 0.1}
    turned = last if channels_last else np.asarray

    def wanted(x):
        (y,) = twin("GroupNormalization", x, gamma, beta, opset=21, num_groups=2, epsilon=0.1)
        return turned(silu(y) if activation else y)

    layer("GroupNorm", turned(x), gamma, beta, wanted=wanted(x), **how, **MS)
    for shape in ((2, 6, 4, 3), (2, 6, 1, 1)):
        skip = numbers(*shape)
        total = x + skip + bias[:, None, None]
        both = [wanted(total), turned(total)]
        inputs = turned(x), gamma, beta, turned(skip), bias
        layer("SkipGroupNorm", *inputs, wanted=both, outputs=2, **how, **MS)
    inputs = turned(x), gamma, beta, skip[:, :, 0, 0]
    both = [wanted(x + skip), turned(x + skip)]
    layer("SkipGroupNorm", *inputs, wanted=both, outputs=2, **how, **MS)


@pytest.mark.parametrize(
    "attributes", [{}, {"strides": [2, 1], "pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"}]
)
def test_convolutions(attributes):
    x, w, b = numbers(1, 6, 5, 3), numbers(4, 3, 3, 2), numbers(4)
    (wanted,) = twin("Conv", first(x), w, b, **attributes)
    layer("NhwcConv", x, w, b, wanted=last(wanted), rtol=1e-4, **attributes, **MS)
    z = numbers(*last(wanted).shape)
    wanted = np.maximum(last(wanted) + z, 0)
    how = {"activation": "Relu", "rtol": 1e-4, **attributes}
    layer("NhwcFusedConv", x, w, b, z, wanted=wanted, **how, **MS)


@pytest.mark.parametrize(
    ("pads", "attributes"),
    [
        ([1, 1, 1, 1], {}),
        ([0, 1, 1, 0], {"strides": [2, 2]}),
        ([0, 0, 0, 0], {"strides": [2, 1], "output_padding": [1, 0]}),
        ([1, 0, 0, 1], {"group": 2, "dilations": [2, 1]}),
    ],
)
def test_transposed_convolutions(pads, attributes):
    inputs = numbers(1, 2, 4, 4), numbers(2, 3, 3, 3), np.array(pads)
    more = numbers(3 * attributes.get("group", 1))
    check("ConvTransposeWithDynamicPads", *inputs, more, **attributes)
    check("ConvTransposeWithDynamicPads", *inputs, **attributes)


def floats(*shapes):
    return [None if s is None else f"float32[{s}]" for s in shapes]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted", "requires"),
    [
        ("BiasAdd", floats("N, S, C", "C", "N, S, C"), {}, "[N, S, C]", []),
        ("BiasSplitGelu", floats("N, S, D", "D"), {}, "[N, S, D//2]", ["D % 2 == 0"]),
        ("GemmFastGelu", floats("N, M, K", "L, P"), {}, "[N, M, P]", ["K == L"]),
        (
            "GroupNorm",
            floats("N, H, W, C", "C", "C"),
            {"groups": 4, "activation": 1},
            "[N, H, W, C]",
            ["C % 4 == 0"],
        ),
        ("NhwcConv", floats("N, H, W, C", "8, C, 3, 3"), {}, "[N, H - 2, W - 2, 8]",
         ["H >= 3", "W >= 3"]),
        (
            "ConvTransposeWithDynamicPads",
            [*floats("N, C, H, W", "C, 8, 2, 2"), np.zeros(4, np.int64)],
            {"strides": [2, 2]},
            "[N, 8, 2*H, 2*W]",
            [],
        ),
        (
            "ConvTransposeWithDynamicPads",
            [*floats("N, C, H, W", "C, 8, 2, 2"), "int64[4]"],
            {"group": 2},
            "[N, 16, size, size_1]",
            [],
        ),
    ],
)  # fmt: skip
def test_sizes(op, inputs, attributes, wanted, requires):
    assert types(op, *inputs, **attributes, **MS) == [f"float32{wanted}"]
    assert demands(op, *inputs, **attributes, **MS) == requires


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("BiasSplitGelu", floats("1, 2, 5", "5"), {}, "5 is no multiple of 2"),
        ("GroupNorm", floats("1, 2, 2, 6", "6", "6"), {"groups": 4, "activation": 0}, "6 channels"),
        (
            "GroupNorm",
            floats("1, 2, 2, 6", "6", "6"),
            {"groups": 2, "activation": 2},
            "is 2, wants",
        ),
        (
            "ConvTransposeWithDynamicPads",
            [*floats("1, 2, 4, 4", "2, 3, 2, 2"), np.zeros(3, np.int64)],
            {},
            "Pads has 3 elements",
        ),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)
