"""Quantization: a tensor as small integers or floats times a scale, and back.

Invariant: a quotient is divided out and rounded in the precision that the standard names, since a
last bit decides which way a tie goes. Scale and zero point stand for the whole tensor, for each
slice along an axis, or for each block of an axis; `spread` gives them the shape that meets x.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from .._device import canonical
from .._dim import ceildiv
from .._error import ShapeError
from .._facts import same
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import demand_onto, ranked, reshape, written
from ._numeric import FLOAT32, HALF, is_float, is_integer
from ._static import axis_of, dtype_of, replaced
from .cast import convert

_BYTE = np.dtype(np.uint8)


# scales and zero points ---------------------------------------------------------------------------


def _met(name: str, own: Any, dims: Any, axis: int | None, block_size: int) -> tuple[Any, ...]:
    """The shape demanded of a scale or zero point of x (*D): (), (D[axis],), or as its blocks."""
    if own in ((), (1,)):
        return own
    if axis is None:
        raise ShapeError(f"{name} has shape {written(own)}, wants a scalar")
    if block_size < 0:
        raise ShapeError(f"block_size is {block_size}, wants a positive one, or 0 for no blocks")
    if not block_size:
        ranked(name, own, 0, 1)
        if len(dims) < 2 and axis == 1:  # the default, which a vector lacks
            return demand_onto(name, own, (1,))
        return demand_onto(name, own, (dims[axis_of(axis, len(dims))],))
    axis = axis_of(axis, len(dims))
    ranked(name, own, len(dims))
    wanted = replaced(dims, axis, ceildiv(dims[axis], block_size))
    why = f"{name} {written(own)} for blocks of {block_size} along axis {axis} of {written(dims)}"
    return tuple([same(d, w, why) for d, w in zip(own, wanted, strict=True)])


def spread(name: str, v: Any, x: Any, axis: int | None, block_size: int = 0) -> Any:
    """A scale or zero point in the shape in which it meets x (*D)."""
    dims = hostdims(x.shape)
    shape = _met(name, hostdims(v.shape), dims, axis, block_size)
    v = fit(v, shape)
    if shape in ((), (1,)) or axis is None:
        return v.reshape(())
    axis = axis_of(axis, len(dims))
    if not block_size:
        return reshape(v, [d if i == axis else 1 for i, d in enumerate(dims)])
    block = namespace(v).arange(to_export(dims[axis])) // block_size
    return namespace(v).take(v, block, axis=axis, mode="clip")


def _kept(x: Any, dtype: Any, axis: int | None, block_size: int, **parts: Any) -> TensorType:
    """The type of x (*D) in another dtype, after the demands on what must meet it."""
    for name, part in parts.items():
        if x.shape is not None and part is not None and part.shape is not None:
            _met(name, part.shape, x.shape, axis, block_size)
    return TensorType(dtype, x.shape)


# arithmetic ---------------------------------------------------------------------------------------


def divided(x: Any, scale: Any) -> Any:
    """x / scale to the last bit; `x * (1 / scale)`, which XLA prefers, rounds differently."""
    if namespace(x, scale) is np:
        return x / scale
    return x / jnp.where(jnp.isnan(x), jnp.ones((), x.dtype), scale)  # a select is not rewritten


def _quotient(x: Any, scale: Any, dtype: np.dtype) -> Any:
    """x / scale as `dtype` has it, in float32 at least."""
    wide = FLOAT32 if dtype in HALF else dtype
    q = divided(x.astype(dtype).astype(wide), scale.astype(dtype).astype(wide))
    if wide == dtype:
        return q
    if namespace(q) is np:
        return q.astype(dtype).astype(wide)
    # a cast there and back is dropped by XLA, where excess precision is allowed
    info = jnp.finfo(dtype)
    return lax.reduce_precision(q, info.nexp, info.nmant)


def quantized(q: Any, zero: Any, dtype: np.dtype, saturate: int = 1) -> Any:
    """A quotient rounded to nearest even, plus a zero point, within the range of `dtype`."""
    if is_integer(dtype):
        xp, info = namespace(q), ml_dtypes.iinfo(dtype)
        q = xp.round(q)
        q = q if zero is None else q + zero.astype(q.dtype)
        q = xp.where(xp.isnan(q), xp.full_like(q, info.min), q)  # as onnxruntime and the reference
        return xp.clip(q, info.min, info.max).astype(np.int32).astype(dtype)
    if zero is not None and dtype.name.startswith(("float4", "float6")):
        q = q + zero.astype(q.dtype)  # that of 8-bit floats is 0
    return convert(q, dtype, saturate)


def _target(zero: Any, output_dtype: int) -> Any:
    """The dtype to quantize to: the one asked for, the zero point's, or uint8."""
    asked = dtype_of(output_dtype) if output_dtype else zero.dtype if zero is not None else _BYTE
    if zero is not None and zero.dtype not in (None, asked):
        raise ShapeError(f"output_dtype is {asked}, y_zero_point is {zero.dtype}")
    if asked is not None and asked.itemsize > 1 and asked.name not in ("int16", "uint16"):
        raise ShapeError(f"{asked} is no type to quantize to")
    return asked


def _precision(x: Any, scale: Any, precision: int) -> np.dtype:
    """The dtype in which x is divided by its scale."""
    if precision:
        return dtype_of(precision)
    if is_integer(scale.dtype):
        return canonical("float64")
    return scale.dtype if scale.dtype.itemsize > 1 else x.dtype if is_float(x.dtype) else FLOAT32


def _quantize(x, scale, zero, axis, saturate=1, block_size=0, output_dtype=0, precision=0):
    target = _target(zero, output_dtype)
    scale = spread("y_scale", scale, x, axis, block_size)
    zero = None if zero is None else spread("y_zero_point", zero, x, axis, block_size)
    return quantized(_quotient(x, scale, _precision(x, scale, precision)), zero, target, saturate)


def _dequantize(x, scale, zero, axis, block_size=0, output_dtype=0):
    target = dtype_of(output_dtype) if output_dtype else scale.dtype
    scale = spread("x_scale", scale, x, axis, block_size)
    wide = np.int32 if is_integer(x.dtype) else FLOAT32
    y = x.astype(wide)
    if zero is not None:
        y = y - spread("x_zero_point", zero, x, axis, block_size).astype(wide)
    return (y.astype(FLOAT32) * scale.astype(FLOAT32)).astype(target)


# operators ----------------------------------------------------------------------------------------


@op("QuantizeLinear", since=10, host=True)
def quantize_10(x, y_scale, y_zero_point=None, /):
    """Round x (*D) / y_scale () + y_zero_point () -> (*D) of the zero point's dtype."""
    return _quantize(x, y_scale, y_zero_point, None)


@op("QuantizeLinear", since=13, host=True)
def quantize_13(x, y_scale, y_zero_point=None, /, *, axis=1):
    """Round x (*D) / y_scale + y_zero_point, both () or (D[axis],) -> (*D)."""
    return _quantize(x, y_scale, y_zero_point, axis)


@op("QuantizeLinear", since=19, host=True)
def quantize_19(x, y_scale, y_zero_point=None, /, *, axis=1, saturate=1):
    """Round x (*D) / y_scale + y_zero_point, both () or (D[axis],) -> (*D)."""
    return _quantize(x, y_scale, y_zero_point, axis, saturate)


@op("QuantizeLinear", since=21, host=True, dtypes=("output_dtype",))
def quantize_21(
    x, y_scale, y_zero_point=None, /, *, axis=1, block_size=0, output_dtype=0, saturate=1
):
    """Round x (*D) / y_scale + y_zero_point, both (), (D[axis],) or one for each block -> (*D)."""
    return _quantize(x, y_scale, y_zero_point, axis, saturate, block_size, output_dtype)


@op("QuantizeLinear", since=23, host=True, dtypes=("output_dtype", "precision"))
def quantize_23(
    x, y_scale, y_zero_point=None, /, *,
    axis=1, block_size=0, output_dtype=0, precision=0, saturate=1,
):  # fmt: skip
    """Round x (*D) / y_scale + y_zero_point, both (), (D[axis],) or one for each block -> (*D)."""
    return _quantize(x, y_scale, y_zero_point, axis, saturate, block_size, output_dtype, precision)


@quantize_10.shape_rule(rankless=True)
def _(x, scale, zero=None, /):
    return _kept(x, _target(zero, 0), None, 0, y_scale=scale, y_zero_point=zero)


def _quantize_type(x, scale, zero=None, /, *, axis=1, block_size=0, output_dtype=0, **_):
    dtype = _target(zero, output_dtype)
    return _kept(x, dtype, axis, block_size, y_scale=scale, y_zero_point=zero)


# because an attribute gives the dtype, also where a rank is unknown; and JAX has no 6-bit float
for _op in (quantize_13, quantize_19, quantize_21, quantize_23):
    _op.shape_rule(_quantize_type, rankless=True)


@op("DequantizeLinear", since=10, host=True)
def dequantize_10(x, x_scale, x_zero_point=None, /):
    """Give (x (*D) - x_zero_point ()) * x_scale () -> (*D) of the scale's dtype."""
    return _dequantize(x, x_scale, x_zero_point, None)


@op("DequantizeLinear", since=13, host=True)
def dequantize_13(x, x_scale, x_zero_point=None, /, *, axis=1):
    """Give (x (*D) - x_zero_point) * x_scale, both () or (D[axis],) -> (*D)."""
    return _dequantize(x, x_scale, x_zero_point, axis)


@op("DequantizeLinear", since=21, host=True)
def dequantize_21(x, x_scale, x_zero_point=None, /, *, axis=1, block_size=0):
    """Give (x (*D) - x_zero_point) * x_scale, both (), (D[axis],) or one for each block -> (*D)."""
    return _dequantize(x, x_scale, x_zero_point, axis, block_size)


@op("DequantizeLinear", since=23, host=True, dtypes=("output_dtype",))
def dequantize_23(x, x_scale, x_zero_point=None, /, *, axis=1, block_size=0, output_dtype=0):
    """Give (x (*D) - x_zero_point) * x_scale, both (), (D[axis],) or one for each block -> (*D)."""
    return _dequantize(x, x_scale, x_zero_point, axis, block_size, output_dtype)


@dequantize_10.shape_rule(rankless=True)
def _(x, scale, zero=None, /):
    return _kept(x, scale.dtype, None, 0, x_scale=scale, x_zero_point=zero)


def _dequantize_type(x, scale, zero=None, /, *, axis=1, block_size=0, output_dtype=0):
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    return _kept(x, dtype, axis, block_size, x_scale=scale, x_zero_point=zero)


for _op in (dequantize_13, dequantize_21, dequantize_23):  # for the reasons above
    _op.shape_rule(_dequantize_type, rankless=True)


@op("DynamicQuantizeLinear", since=11, host=True)
def dynamic_quantize(x, /):
    """Quantize x (*D) over its range with 0 -> uint8 y (*D), scale (), uint8 zero point ()."""
    xp = namespace(x)
    low, high = xp.min(x, initial=0).astype(x.dtype), xp.max(x, initial=0).astype(x.dtype)
    span = xp.where(high == low, xp.ones_like(low), high - low)
    # a barrier, because XLA would multiply by 1 / 255
    levels = np.full((), 255, x.dtype)
    scale = span / (levels if xp is np else lax.optimization_barrier(jnp.asarray(levels)))
    zero = xp.clip(xp.round(-low / scale), 0, 255)
    y = quantized(divided(x, scale), zero, _BYTE)
    return y, scale, zero.astype(np.int32).astype(_BYTE)
