"""com.microsoft: gates, streams and norms of newer decoders, held against onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import layer, refused
from twin import check, twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


STREAMS, FLAT = numbers(2, 3, 4, 8), numbers(2, 3, 32)
X, GATE = numbers(2, 3, 8), numbers(2, 3, 8)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("GatedRMSNorm", (X, numbers(4), GATE), {}),
        ("GatedRMSNorm", (X, numbers(8), GATE), {"activation": "sigmoid", "epsilon": 0.1}),
        ("GatedRMSNorm", (X[0, 0], numbers(2), GATE[0, 0]), {"activation": "swish"}),
        ("ScaledSiLU", (X,), {"alpha": 2.0}),
        ("ScaledSiLU", (X, F(-0.5)), {"alpha": 2.0}),
        ("GatedAdd", (X, GATE, numbers(2, 3, 1)), {}),
        ("LinearAttentionGate", (X, numbers(8), numbers(8)), {}),
        ("LinearAttentionGate", (X, numbers(8), numbers(8), GATE), {"outputs": 2}),
        ("BranchwiseRMSNorm", (STREAMS,), {}),
        ("BranchwiseRMSNorm", (STREAMS, numbers(4, 8)), {"epsilon": 0.1}),
        ("BranchwiseRMSNorm", (STREAMS, numbers(32)), {}),
        ("BranchwiseRMSNorm", (STREAMS, numbers(8)), {}),
        ("BranchwiseRMSNorm", (FLAT, numbers(4, 8)), {"num_branches": 4}),
        ("BranchwiseRMSNorm", (FLAT, numbers(8)), {"num_branches": 4}),
        ("HyperConnectionPreMix", (STREAMS, numbers(2, 3, 4)), {"reduction_scale": 0.5}),
        ("HyperConnectionPreMix", (STREAMS, numbers(2, 3, 4, 1)), {}),
        ("HyperConnectionPreMix", (STREAMS, numbers(2, 3, 4, 8)), {}),
        ("HyperConnectionPreMix", (FLAT, numbers(2, 3, 4)), {"num_branches": 4}),
        ("HyperConnectionPreMix", (FLAT, numbers(2, 3, 32)), {"num_branches": 4}),
        ("HyperConnectionPostMix", (STREAMS, X, numbers(2, 3, 4), numbers(2, 3, 4, 4)), {}),
        ("HyperConnectionPostMix", (STREAMS, X, numbers(2, 3, 4, 8)), {}),
        ("HyperConnectionPostMix", (FLAT, X, numbers(2, 3, 4, 1)), {"num_branches": 4}),
        (
            "EngramGate",
            (STREAMS, numbers(2, 3, 4, 8), X, numbers(4, 8), numbers(4, 8), numbers(4, 8)),
            {"outputs": 2},
        ),
        (
            "EngramGate",
            (STREAMS, numbers(2, 3, 4, 8), X, numbers(4, 8), numbers(4, 8)),
            {"epsilon": 0.1},
        ),
    ],
)
def test_numbers(op, inputs, attributes):
    check(op, *inputs, **attributes)
    half = tuple(v.astype(np.float16) for v in inputs)
    try:
        twin(op, *half, **MS, **attributes)
    except Exception:  # onnxruntime has no kernel for it
        return
    check(op, *half, rtol=4e-3, **attributes)


def test_bfloat16():
    """Not in onnxruntime's Python: each step rounded as the operator's text says."""
    bf16 = ml_dtypes.bfloat16
    x, y, gate = (numbers(2, 3, n, dtype=bf16) for n in (8, 8, 1))
    product = (y.astype(F) * gate.astype(F)).astype(bf16)
    wanted = (x.astype(F) + product.astype(F)).astype(bf16)
    layer("GatedAdd", x, y, gate, wanted=wanted, rtol=0.0, **MS)


def floats(*shapes):
    return [f"float32[{s}]" for s in shapes]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted", "requires"),
    [
        ("GatedRMSNorm", floats("N, S, K", "C", "N, S, K"), {}, "[N, S, K]", ["K % C == 0"]),
        ("ScaledSiLU", floats("N, S"), {}, "[N, S]", []),
        ("GatedAdd", floats("N, K", "N, K", "M, 1"), {}, "[M, K]", ["M == N"]),
        ("BranchwiseRMSNorm", floats("N, K", "8"), {"num_branches": 4}, "[N, K]", ["K % 4 == 0"]),
        ("HyperConnectionPreMix", floats("N, C, H", "N, C"), {}, "[N, H]", []),
        ("HyperConnectionPreMix", floats("N, K", "N, 4"), {"num_branches": 4}, "[N, K//4]",
         ["K % 4 == 0"]),
        ("HyperConnectionPostMix", floats("N, C, H", "N, K", "N, C"), {}, "[N, C, H]", ["H == K"]),
        ("LinearAttentionGate", floats("N, T, H", "H", "K"), {}, "[N, T, H]", ["H == K"]),
        ("EngramGate", floats("N, S, C, H", "N, S, C, H", "N, S, H", "C, H", "C, H"), {},
         "[N, S, C, H]", []),
    ],
)  # fmt: skip
def test_sizes(op, inputs, attributes, wanted, requires):
    assert types(op, *inputs, **attributes, **MS) == [f"float32{wanted}"]
    assert sorted(demands(op, *inputs, **attributes, **MS)) == sorted(requires)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("GatedRMSNorm", floats("2, 6", "4", "2, 6"), {}, "6 is no multiple of 4"),
        ("GatedRMSNorm", floats("2, 6", "3", "2, 6"), {"activation": "relu"}, "is 'relu'"),
        ("BranchwiseRMSNorm", floats("2, 6", "3, 3"), {"num_branches": 2}, "3 is not 2"),
        ("HyperConnectionPreMix", floats("2, 3, 4", "2, 5"), {}, "5 is not 3"),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)


def test_what_is_not_handled():
    with pytest.raises(js.UnsupportedError, match="gate_weight"):
        js.trace(node("GatedAdd", *floats("2, 3", "2, 3", "2, 4", "4, 1"), **MS))
