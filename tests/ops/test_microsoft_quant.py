"""Quantized operators of com.microsoft, held against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from builders import node
from forms import typed_as
from twin import check, twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype=F):
    return rng.normal(size=shape).astype(dtype)


def nearly(op, *inputs, **attributes):
    """As onnxruntime, but for the last bit: it multiplies by reciprocals."""
    (wanted,) = twin(op, *inputs, **MS, **attributes)
    model = node(op, *map(typed_as, map(np.asarray, inputs)), **MS, **attributes)
    (got,) = js.run(model, list(inputs)).values()
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert np.abs(got.astype(int) - wanted.astype(int)).max(initial=0) <= 1


def bytes_of(*shape, dtype: Any = np.uint8, most=256):
    return rng.integers(0, most, shape).astype(np.uint8).view(dtype)


def per(dtype, *values):
    """Scales and zero points in turn."""
    return [F(v) if i % 2 == 0 else dtype(v) for i, v in enumerate(values)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_elementwise(dtype):
    a, b = bytes_of(2, 3, dtype=dtype), bytes_of(3, dtype=dtype)
    (sa, za), (sb, zb), (sc, zc) = (per(dtype, *p) for p in ((0.02, 3), (0.03, 7), (0.05, 9)))
    for op in ("QLinearAdd", "QLinearMul"):
        nearly(op, a, sa, za, b, sb, zb, sc, zc)
    nearly("QLinearLeakyRelu", a, sa, dtype(100), sc, zc, alpha=0.25)
    nearly("QLinearSigmoid", a, sa, dtype(100), F(0.004), dtype(0))
    nearly("QLinearConcat", sc, zc, a, sa, za, a[:, :1], sb, zb, axis=1)
    nearly("QLinearWhere", np.array([[True], [False]]), a, sa, za, b, sb, zb, sc, zc)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_quantized_pools_and_convolutions(channels_last):
    shape = (2, 6, 5, 3) if channels_last else (2, 3, 6, 5)
    x, (sx, zx), (sy, zy) = bytes_of(*shape), per(np.uint8, 0.02, 1), per(np.uint8, 0.03, 5)
    nearly("QLinearGlobalAveragePool", x, sx, zx, sy, zy, channels_last=channels_last)
    how = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "channels_last": channels_last}
    nearly("QLinearAveragePool", x, sx, zx, sy, zy, count_include_pad=channels_last, **how)
    w, b = bytes_of(4, 3, 3, 3, dtype=np.int8, most=60), np.arange(4, dtype=np.int32)
    scales = np.array([0.01, 0.02, 0.03, 0.04], F)
    inputs = x[:1], sx, zx, w, scales, np.zeros(4, np.int8), F(0.3), zy, b
    nearly("QLinearConv", *inputs, channels_last=channels_last)


def test_quantized_products():
    a, b = bytes_of(2, 3, 4), bytes_of(4, 5, dtype=np.int8, most=60)
    scales, zeros, bias = (
        np.linspace(0.01, 0.05, 5, dtype=F),
        np.arange(5, dtype=np.int8),
        numbers(5),
    )
    check("MatMulIntegerToFloat", a, b, F(0.02), scales, np.uint8(3), zeros, bias)
    check("DynamicQuantizeMatMul", numbers(2, 3, 4), b, scales, zeros, bias)
    c = np.arange(5, dtype=np.int32)
    first = a[0], F(0.02), np.uint8(3), b, F(0.03), np.int8(5), c
    check("QGemm", *first, alpha=0.5)
    nearly("QGemm", *first, F(0.05), np.uint8(9))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_matmul_nbits(bits):
    k, n, block = 40, 6, 16
    a, b = numbers(3, k), bytes_of(n, 3, block * bits // 8)
    scales, zeros = np.abs(numbers(n * 3)), bytes_of(n * -(-3 * bits // 8))
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    check("MatMulNBits", a, b, scales, rtol=1e-3, **attributes)
    check("MatMulNBits", a, b, scales, zeros, None, numbers(n), rtol=1e-3, **attributes)


def test_linear_quantization():
    x, scales, zeros = numbers(2, 3), np.array([0.01, 0.02, 0.03], F), np.arange(3, dtype=np.int8)
    nearly("QuantizeLinear", x, scales, zeros, axis=1)
    check("DequantizeLinear", bytes_of(2, 3, dtype=np.int8), scales, zeros, axis=1)
