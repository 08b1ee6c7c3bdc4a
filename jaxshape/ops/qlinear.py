"""Products of quantized tensors, exact in 32-bit integers.

Invariant: the sum is that of the integers less their zero points, modulo 2**32, whatever computes
it: signed bytes on the device, where hardware multiplies them fast, and float64 in NumPy, which has
no fast integer product. Scales come in once, at the end, as float32.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._facts import same
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims
from .._value import TensorType
from ._agree import demand_onto, reshape, written
from ._numeric import FLOAT32, is_integer
from .conv import agreed, convolve_integers
from .linear import matmul_shape
from .quant import divided, quantized

_INT32, _INT8 = np.dtype(np.int32), np.dtype(np.int8)
_ROW, _COLUMN = -2, -1


# scales and zero points ---------------------------------------------------------------------------


def _met(name: str, own: Any, dims: Any, axis: int) -> tuple[Any, ...]:
    """The shape wanted of a scale or zero point: one for all, each row or column of (*N, m, n)."""
    if own in ((), (1,)) or len(dims) < 2:
        return own
    if len(own) == 1:
        return (
            same(own[0], dims[axis], f"{name} {written(own)} and axis {axis} of {written(dims)}"),
        )
    return demand_onto(
        name, own, [1 if i == len(dims) - 3 - axis else d for i, d in enumerate(dims)]
    )


def _spread(name: str, v: Any, x: Any, axis: int, dtype: Any) -> Any:
    """A scale or zero point in the shape in which it meets the product of x; None is none."""
    if v is None:
        return None
    own, v = hostdims(v.shape), v.astype(dtype)
    if own in ((), (1,)):
        return v.reshape(())
    wanted = _met(name, own, hostdims(x.shape), axis)
    v = fit(v, wanted)
    return reshape(v, (*wanted, 1)) if len(wanted) == 1 and axis == _ROW else v


def _demand(a: Any, b: Any, **parts: Any) -> tuple[Any, ...]:
    """The shape of a @ b, after the demands on scales and zero points, named a_... and b_..."""
    for name, part in parts.items():
        if part is not None:
            first = name[0] == "a"
            _met(name, part.shape, (a if first else b).shape, _ROW if first else _COLUMN)
    return matmul_shape(a.shape, b.shape)


# products -----------------------------------------------------------------------------------------


def _product(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    """(a - a_zero) @ (b - b_zero) in int32, for bytes a and b."""
    matmul_shape(hostdims(a.shape), hostdims(b.shape))
    rank = a.ndim, b.ndim
    a, b = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    a_zero = _spread("a_zero_point", a_zero, a, _ROW, _INT32)
    b_zero = _spread("b_zero_point", b_zero, b, _COLUMN, _INT32)
    y = (_host_product if namespace(a, b) is np else _device_product)(a, a_zero, b, b_zero)
    return y[(..., *(0 if n == 1 else slice(None) for n in rank))] if 1 in rank else y


def _host_product(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    a, b = a.astype(np.float64), b.astype(np.float64)
    a = a if a_zero is None else a - a_zero
    b = b if b_zero is None else b - b_zero
    return np.matmul(a, b).astype(np.int64).astype(_INT32)


def _device_product(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    (a, a_zero), (b, b_zero) = _signed(a, a_zero), _signed(b, b_zero)
    y = jnp.matmul(a, b, preferred_element_type=_INT32)
    a, b = a.astype(_INT32), b.astype(_INT32)
    if a_zero is not None:
        y = y - a_zero * b.sum(-2, keepdims=True, dtype=_INT32)
        a = a - a_zero
    return y if b_zero is None else y - a.sum(-1, keepdims=True, dtype=_INT32) * b_zero


def _signed(x: Any, zero: Any) -> tuple[Any, Any]:
    """Bytes as signed ones: 128 less, and so is their zero point."""
    if x.dtype == _INT8:
        return x, zero
    x = lax.bitcast_convert_type(x ^ np.uint8(128), _INT8)
    return x, np.int32(-128) if zero is None else zero - np.int32(128)


@op("MatMulInteger", since=10, host=True)
def matmul_integer(a, b, a_zero_point=None, b_zero_point=None, /):
    """Multiply bytes a (*N, m, k) by b (*N, k, n), less their zero points -> int32 (*N, m, n).

    Zero points are (); or (m,) or (*N, m, 1), one for each row of a; or (n,) or (*N, 1, n) for b.
    """
    return _product(a, a_zero_point, b, b_zero_point)


@matmul_integer.shape_rule  # because JAX cannot broadcast batch sizes that it cannot compare
def _(a, b, a_zero_point=None, b_zero_point=None, /):
    parts = {"a_zero_point": a_zero_point, "b_zero_point": b_zero_point}
    return TensorType("int32", _demand(a, b, **parts))


@op("QLinearMatMul", since=10, host=True)
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, /):
    """Multiply quantized a (*N, m, k) by b (*N, k, n) and quantize the product -> (*N, m, n).

    Scales and zero points are one for all, or one for each row of a and column of b.
    """
    if is_integer(a.dtype) and is_integer(b.dtype):
        y = _product(a, a_zero_point, b, b_zero_point)
    else:
        a, a_zero_point, b, b_zero_point = (
            v.astype(FLOAT32) for v in (a, a_zero_point, b, b_zero_point)
        )
        left = a - _spread("a_zero_point", a_zero_point, a, _ROW, FLOAT32)
        right = b - _spread("b_zero_point", b_zero_point, b, _COLUMN, FLOAT32)
        exact = {} if namespace(a, b) is np else {"precision": "highest"}
        y = namespace(a, b).matmul(left, right, **exact)
    a_scale = _spread("a_scale", a_scale, a, _ROW, FLOAT32)
    b_scale = _spread("b_scale", b_scale, b, _COLUMN, FLOAT32)
    return _requantized(y, a_scale * b_scale, y_scale, y_zero_point)


@qlinear_matmul.shape_rule  # because JAX cannot broadcast batch sizes that it cannot compare
def _(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, /):
    shape = _demand(
        a, b, a_scale=a_scale, a_zero_point=a_zero_point, b_scale=b_scale, b_zero_point=b_zero_point
    )
    return TensorType(y_zero_point.dtype, shape)


def _requantized(y: Any, scale: Any, y_scale: Any, y_zero: Any) -> Any:
    """A product in units of `scale`, in units of y_scale and of the zero point's dtype."""
    y_scale, zero = (v.reshape(()) if v.shape == (1,) else v for v in (y_scale, y_zero))
    factor = divided(scale, y_scale.astype(FLOAT32))
    return quantized(y.astype(FLOAT32) * factor, zero, y_zero.dtype)


@op("QLinearConv", since=10)
def qlinear_conv(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b=None, /, *,
    auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Convolve quantized x (N, C, *D) with w (M, C/group, *K), add b (M,) -> (N, M, *D').

    Scale and zero point of w are () or (M,), the others (); b is in units of x_scale * w_scale.
    """
    window, out = agreed(x, w, b, group, kernel_shape, strides, pads, dilations, auto_pad)
    channel = (-1, *(1,) * (w.ndim - 1))
    x = x.astype(_INT32) - x_zero_point.reshape(()).astype(_INT32)
    w = w.astype(_INT32) - w_zero_point.reshape(channel).astype(_INT32)
    y = convolve_integers(x, w, window, group, out)
    if b is not None:
        y = y + b.astype(_INT32).reshape(channel[:-1] if b.ndim else ())
    scale = (x_scale.reshape(()) * w_scale.reshape(-1)).reshape(channel[:-1])
    return _requantized(y, scale, y_scale, y_zero_point)


@qlinear_conv.shape_rule(rankless=True)  # because JAX cannot decide whether a window fits
def _(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    b=None,
    /,
    **attributes,
):
    _, out = agreed(x, w, b, **attributes)
    for name, part in (("w_scale", w_scale), ("w_zero_point", w_zero_point)):
        if out is not None and part.shape is not None and part.shape not in ((), (1,)):
            same(part.shape[0], out[1], f"{name} {written(part.shape)} and the channels")
    return TensorType(y_zero_point.dtype, out)
