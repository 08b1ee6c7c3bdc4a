"""Quantized operators of com.microsoft: what onnxruntime's quantizer and optimiser emit.

Elementwise ones compute in float32 between dequantizing and quantizing; products are exact in
integers, as in `qlinear.py`. A scale or zero point for the whole tensor is () or (1,). Inputs that
may be absent stand before some that must not, so that all after the first have a default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._dim import ceildiv
from .._error import ShapeError
from .._facts import same
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims
from .._value import TensorType
from ._agree import matmul, onto, ranked, shaped, wide
from ._numeric import FLOAT32, below_top, is_float
from ._static import axis_of
from .layout import concat_4, joined
from .linear import matmul_shape
from .microsoft import DOMAIN
from .pool import average_pool_10, global_average_pool
from .qlinear import matmul_integer, qlinear_conv
from .quant import dequantize_13, divided, dynamic_quantize, quantize_13, quantized


def _whole(v: Any) -> Any:
    """A scale or zero point of a whole tensor, as a scalar."""
    return None if v is None else v.reshape(())


def _given(**inputs: Any) -> None:
    for name, value in inputs.items():
        if value is None:
            raise ShapeError(f"needs input {name}")


def _real(x: Any, scale: Any, zero: Any) -> Any:
    return dequantize_13.function(x, _whole(scale), _whole(zero))


def _stored(y: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    return quantized(divided(y, _whole(scale)), _whole(zero), dtype)


# elementwise --------------------------------------------------------------------------------------


def _binary(name: str, function: Callable[[Any, Any], Any], doc: str) -> None:
    def lowering(
        A, A_scale, A_zero_point=None, B=None, B_scale=None, B_zero_point=None, C_scale=None,
        C_zero_point=None, /,
    ):  # fmt: skip
        _given(B=B, B_scale=B_scale, C_scale=C_scale)
        y = function(_real(A, A_scale, A_zero_point), _real(B, B_scale, B_zero_point))
        return _stored(y, C_scale, C_zero_point, A.dtype)

    lowering.__doc__ = doc
    op(name, DOMAIN, host=True, elementwise=True)(lowering)


_binary("QLinearAdd", lambda a, b: a + b, "Add quantized A and B, which broadcast, and quantize.")
_binary("QLinearMul", lambda a, b: a * b, "Multiply quantized A and B, which broadcast.")


def _unary(y: Any, x: Any, Y_scale: Any, Y_zero_point: Any) -> Any:
    _given(Y_scale=Y_scale)
    return _stored(y, Y_scale, Y_zero_point, x.dtype)


@op("QLinearLeakyRelu", DOMAIN, host=True, elementwise=True)
def qlinear_leaky_relu(
    X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None, /, *, alpha=0.009999999776482582
):
    """Scale negative elements of quantized X (*D) by alpha -> (*D)."""
    x = _real(X, X_scale, X_zero_point)
    return _unary(namespace(x).where(x < 0, alpha * x, x), X, Y_scale, Y_zero_point)


@op("QLinearSigmoid", DOMAIN, host=True, elementwise=True)
def qlinear_sigmoid(X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None, /):
    """Compute 1 / (1 + exp(-X)) of quantized X (*D) -> (*D)."""
    x = _real(X, X_scale, X_zero_point)
    return _unary(1 / (1 + namespace(x).exp(-x)), X, Y_scale, Y_zero_point)


@op("QLinearSoftmax", DOMAIN, host=True)
def qlinear_softmax(
    X, X_scale, x_zero_point=None, y_scale=None, y_zero_point=None, /, *, axis=-1, opset
):
    """Take the softmax of quantized X (*D) along axis; from axis on, before opset 13 -> (*D)."""
    axis, xp = axis_of(axis, X.ndim), namespace(X)
    x = _real(X, X_scale, x_zero_point)
    axes = (axis,) if opset >= 13 else tuple(range(axis, X.ndim))
    e = xp.exp(below_top(x, axes))
    return _unary(e / xp.sum(e, axis=axes, keepdims=True), X, y_scale, y_zero_point)


@op("QLinearWhere", DOMAIN, host=True, elementwise=True)
def qlinear_where(
    condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point, /
):
    """Take quantized X where condition holds, else Y; all broadcast."""
    x, y = _real(X, x_scale, x_zero_point), _real(Y, y_scale, y_zero_point)
    return _stored(
        namespace(condition, x, y).where(condition, x, y), z_scale, z_zero_point, X.dtype
    )


def _triples(inputs: Any) -> list[tuple[Any, Any, Any]]:
    if not inputs or len(inputs) % 3:
        raise ShapeError(f"{len(inputs)} inputs, wants a tensor, a scale and a zero point of each")
    return [tuple(inputs[i : i + 3]) for i in range(0, len(inputs), 3)]


@op("QLinearConcat", DOMAIN, host=True)
def qlinear_concat(Y_scale, Y_zero_point, /, *inputs, axis):
    """Join quantized tensors along axis, each with its scale and zero point -> of Y's."""
    y = concat_4.function(*[_real(*triple) for triple in _triples(inputs)], axis=axis)
    return _stored(y, Y_scale, Y_zero_point, Y_zero_point.dtype)


@qlinear_concat.shape_rule  # because the rule of Concat is there for its reasons
def _(Y_scale, Y_zero_point, /, *inputs, axis):
    shapes = [x.shape for x, _, _ in _triples(inputs)]
    return TensorType(Y_zero_point.dtype, joined(shapes, axis))


# pools and convolutions ---------------------------------------------------------------------------


def _channels_first(x: Any) -> Any:
    return namespace(x).moveaxis(x, -1, 1)


def _channels_last(y: Any, channels_last: int) -> Any:
    return namespace(y).moveaxis(y, 1, -1) if channels_last else y


@op("QLinearGlobalAveragePool", DOMAIN, host=True)
def qlinear_global_average_pool(
    X, x_scale, x_zero_point, y_scale, y_zero_point, /, *, channels_last=0
):
    """Average quantized X (N, C, *D) over D -> (N, C, 1, ...); C is last on request."""
    X = _channels_first(X) if channels_last else X
    y = global_average_pool.function(_real(X, x_scale, x_zero_point))
    return _channels_last(_stored(y, y_scale, y_zero_point, X.dtype), channels_last)


@op("QLinearAveragePool", DOMAIN)
def qlinear_average_pool(
    X, x_scale, x_zero_point=None, y_scale=None, y_zero_point=None, /, *, auto_pad="NOTSET",
    ceil_mode=0, channels_last=0, count_include_pad=0, kernel_shape, pads=None, strides=None,
):  # fmt: skip
    """Average windows of quantized X (N, C, *D) -> (N, C, *D'); C is last on request."""
    X = _channels_first(X) if channels_last else X
    y = average_pool_10.function(
        _real(X, x_scale, x_zero_point), auto_pad=auto_pad, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return _channels_last(_unary(y, X, y_scale, y_zero_point), channels_last)


def _turned(shape: Any, channels_last: int) -> Any:
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last else shape


def _back(shape: Any, channels_last: int) -> Any:
    return (shape[0], *shape[2:], shape[1]) if channels_last else shape


@qlinear_average_pool.shape_rule  # because JAX cannot decide whether a window fits
def _(X, *_, channels_last=0, **attributes):
    first = TensorType(FLOAT32, _turned(X.shape, channels_last))
    made, *_ = average_pool_10.rule(first, **attributes)  # type: ignore[misc]
    return TensorType(X.dtype, _back(made.shape, channels_last))


@op("QLinearConv", DOMAIN)
def qlinear_conv_1(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b=None, /, *,
    auto_pad="NOTSET", channels_last=0, dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    """Convolve quantized x (N, C, *D) with w (M, C/group, *K), add b (M,); C is last on request."""
    x = _channels_first(x) if channels_last else x
    y = qlinear_conv.function(
        x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
        strides=strides,
    )  # fmt: skip
    return _channels_last(y, channels_last)


@qlinear_conv_1.shape_rule  # because JAX cannot decide whether a window fits
def _(x, *rest, channels_last=0, **attributes):
    first = TensorType(x.dtype, _turned(x.shape, channels_last))
    defaults = {name: v for name, v in qlinear_conv.attributes.items()}
    made = qlinear_conv.rule(first, *rest, **defaults | attributes)  # type: ignore[misc]
    return TensorType(made.dtype, _back(made.shape, channels_last))


# products -----------------------------------------------------------------------------------------


@op("MatMulIntegerToFloat", DOMAIN, host=True)
def matmul_integer_to_float(
    a, b, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None, /
):
    """Multiply bytes a (*N, m, k) by b (*N, k, n), less their zero points, times their scales,
    plus bias (n,) -> (*N, m, n)."""
    y = matmul_integer.function(a, b, _one(a_zero_point), _one(b_zero_point))
    scale = _one(a_scale).astype(FLOAT32) * _one(b_scale).astype(FLOAT32)
    y = y.astype(FLOAT32) * scale
    y = y if bias is None else y + shaped("bias", bias, hostdims(y.shape)[-1:]).astype(FLOAT32)
    return y.astype(a_scale.dtype)


def _one(v: Any) -> Any:
    """A scalar where there is one element, else as it is."""
    return v if v is None or v.shape != (1,) else v.reshape(())


# because JAX cannot broadcast batch sizes that it cannot compare
@matmul_integer_to_float.shape_rule
def _(a, b, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None, /):
    return TensorType(a_scale.dtype, _biased(matmul_shape(a.shape, b.shape), bias))


def _biased(shape: Any, bias: Any) -> Any:
    if bias is not None and shape:
        same(hostdims(bias.shape)[0], hostdims(shape)[-1], "bias along the columns")
    return shape


@op("DynamicQuantizeMatMul", DOMAIN, host=True)
def dynamic_quantize_matmul(a, b, b_scale, b_zero_point=None, bias=None, /):
    """Quantize a (*N, m, k) over its range, multiply by bytes b (k, n), plus bias -> (*N, m, n)."""
    q, scale, zero = dynamic_quantize.function(a)
    return matmul_integer_to_float.function(q, b, scale, b_scale, zero, b_zero_point, bias)


@dynamic_quantize_matmul.shape_rule  # for the same reason
def _(a, b, b_scale, b_zero_point=None, bias=None, /):
    return TensorType(a.dtype, _biased(matmul_shape(a.shape, b.shape), bias))


@op("QGemm", DOMAIN, host=True)
def qgemm(
    a, a_scale, a_zero_point, b, b_scale, b_zero_point, c=None, y_scale=None, y_zero_point=None,
    /, *, alpha=1.0, transA=0, transB=0,
):  # fmt: skip
    """Multiply bytes a (m, k) by b (k, n), maybe stored transposed, plus c in units of the product
    -> (m, n), quantized where y_zero_point is given."""
    ranked("A", hostdims(a.shape), 2)
    ranked("B", hostdims(b.shape), 2)
    a, b = a.T if transA else a, b.T if transB else b
    y = matmul_integer.function(a, b, _one(a_zero_point), _one(b_zero_point))
    y = y if c is None else y + onto("C", c, hostdims(y.shape))
    y = y.astype(FLOAT32) * (_one(a_scale) * _one(b_scale) * np.float32(alpha))
    return y if y_zero_point is None else _unary(y, y_zero_point, y_scale, y_zero_point)


@op("MatMulNBits", DOMAIN, host=True)
def matmul_nbits(
    a, b, scales, zero_points=None, g_idx=None, bias=None, /, *, K, N, accuracy_level=0, bits=4,
    block_size, weight_prepacked=0,
):  # fmt: skip
    """Multiply a (*, K) by weights (N, K) of few bits, scaled by blocks, plus bias -> (*, N)."""
    blocks = _blocks(K, bits, block_size, weight_prepacked)
    ranked("A", hostdims(a.shape), least=1)
    *rest, k = hostdims(a.shape)
    a = fit(a, (*rest, same(k, K, "columns of A")))
    xp, dtype = namespace(a, b, scales, zero_points, g_idx), wide(a.dtype)
    codes = _unpacked(xp, b.reshape(N, -1), bits)[:, : blocks * block_size][:, :K]
    scales = scales.reshape(N, blocks).astype(dtype)
    zeros = xp.full((N, blocks), 1 << (bits - 1), dtype)
    if zero_points is not None:
        zeros = zero_points.reshape(N, -1)
        zeros = zeros if is_float(zeros.dtype) else _unpacked(xp, zeros, bits)
        zeros = zeros[:, :blocks].astype(dtype)
    group = xp.arange(K) // block_size if g_idx is None else g_idx.reshape(-1)[:K]
    weights = (codes.astype(dtype) - zeros[:, group]) * scales[:, group]
    y = matmul(a, weights.T.astype(a.dtype))
    y = y if bias is None else y + bias.astype(y.dtype)
    return y.astype(a.dtype)


def _blocks(K: int, bits: int, block_size: int, prepacked: int) -> int:
    """The number of blocks along K."""
    if bits not in (2, 4, 8) or block_size < 16 or block_size & (block_size - 1) or prepacked:
        raise ShapeError(
            f"bits {bits}, block_size {block_size}, weight_prepacked {prepacked}: wants 2, 4 or 8, "
            "a power of 2 from 16 on, and 0"
        )
    return int(ceildiv(K, block_size))


def _unpacked(xp: Any, x: Any, bits: int) -> Any:
    """The numbers in bytes x (N, B), the lowest bits first -> (N, B * 8 / bits)."""
    shifts = xp.arange(0, 8, bits).astype(np.uint8)
    parts = (x[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(x.shape[0], -1)


@matmul_nbits.shape_rule(rankless=True)  # because K and N alone tell the sizes, known or not
def _(a, b, scales, *_, K, N, bits=4, block_size, weight_prepacked=0, **__):
    _blocks(K, bits, block_size, weight_prepacked)
    if a.shape is None:
        return TensorType(a.dtype, None)
    ranked("A", a.shape, least=1)
    same(hostdims(a.shape)[-1], K, "columns of A")
    return TensorType(a.dtype, (*a.shape[:-1], N))


@op("QuantizeLinear", DOMAIN, host=True)
def quantize(x, y_scale, y_zero_point=None, /, *, axis=1):
    """Round x (*D) / y_scale + y_zero_point, both () or (D[axis],) -> (*D)."""
    return quantize_13.function(x, y_scale, y_zero_point, axis=axis)


@op("DequantizeLinear", DOMAIN, host=True)
def dequantize(x, x_scale, x_zero_point=None, /, *, axis=1):
    """Give (x (*D) - x_zero_point) * x_scale, both () or (D[axis],) -> (*D)."""
    return dequantize_13.function(x, x_scale, x_zero_point, axis=axis)


# for the reasons of the standard's
quantize.shape_rule(quantize_13.rule, rankless=True)
dequantize.shape_rule(dequantize_13.rule, rankless=True)
