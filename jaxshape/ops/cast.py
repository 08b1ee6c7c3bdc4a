"""Conversions between element types.

Invariant: numbers convert as the standard's tables say, alike in NumPy and in JAX, so that a
constant folded on the host is what the device would compute: integers drop high bits, floats round
to nearest even, an 8-bit float saturates or overflows as `saturate` says. What the standard leaves
undefined (a float beyond an integer's range) is each library's own. Text exists on the host only.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.core import Tracer

from .._device import canonical
from .._error import ShapeError
from .._host import DimArray, is_host, namespace
from .._op import op
from .._value import STRING, TensorType, as_dtype
from ._numeric import FLOAT32, is_float, is_integer
from ._static import dtype_of

_FLOAT8 = {
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
}
_BOOL = np.dtype(np.bool_)
_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_WIDTHS = {
    "float4_e2m1fn": 4,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
_FLOATS = {"float16", "bfloat16", "float32", "float64"}
_PLAIN = {"bool", *_FLOATS, *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))}


def convert(x: Any, to: np.dtype, saturate: int = 1, round_mode: str = "up") -> Any:
    """x (*D) in another dtype -> (*D)."""
    _check_mode(round_mode)
    if STRING in (to, x.dtype):
        return _text(x, to, saturate, round_mode)
    if x.dtype == to and to not in _FLOAT8:  # an infinite one of these saturates too
        return x
    if isinstance(x, DimArray):
        return x.astype(to)
    if to == _E8M0:
        return _to_e8m0(x, saturate, round_mode)
    if not is_host(x):
        to = canonical(to)
    if to in _FLOAT8:
        x = x if x.dtype.name in _FLOATS else x.astype(FLOAT32)
        return (_saturated(x, to) if saturate else x).astype(to)
    if x.dtype.name not in _PLAIN and (is_float(x.dtype) or to.name not in _PLAIN):
        # holds every narrow type; made an integer, the largest float4 is an overflow to XLA
        x = x.astype(FLOAT32)
    if is_integer(to) and is_float(x.dtype) and to.name not in ("int32", "int64", "uint64"):
        x = x.astype(canonical("int64", x))  # drop high bits as from an integer, do not saturate
    return x.astype(to)


def _check_mode(round_mode: str) -> None:
    if round_mode not in ("up", "down", "nearest"):
        raise ShapeError(f"round_mode is {round_mode!r}, wants up, down or nearest")


def _saturated(x: Any, to: np.dtype) -> Any:
    most = float(ml_dtypes.finfo(to).max)
    xp = namespace(x)
    return xp.clip(x, xp.asarray(-most, x.dtype), xp.asarray(most, x.dtype))


def _to_e8m0(x: Any, saturate: int, round_mode: str) -> Any:
    """The exponent of |x|, from the bits of a float32; code 0 is 2**-127, code 254 is 2**127."""
    xp = namespace(x)
    x = x.astype(FLOAT32)
    bits = x.view(np.uint32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    # below 2**-126 the fraction alone counts, and its top bit stands for 2**-127
    tiny = exponent == 0
    below, above = xp.where(tiny, 0x400000, 0), xp.where(tiny, 0x5FFFFF, 0x3FFFFF)
    up = {"up": fraction > below, "nearest": fraction > above, "down": xp.zeros_like(tiny)}
    code = exponent + up[round_mode].astype(np.uint32)
    least, most = (0, 254) if saturate else (255, 255)  # 255 is NaN
    code = xp.where(tiny & (fraction < 0x400000), xp.full_like(code, least), code)
    code = xp.where(code > 254, xp.full_like(code, most), code)
    code = xp.where(xp.isnan(x), xp.full_like(code, 255), code)
    return _viewed(code.astype(np.uint8), _E8M0)


def _text(x: Any, to: np.dtype, saturate: int, round_mode: str) -> Any:
    """From or to strings, on the host; None under a transformation of JAX, which holds no text."""
    if isinstance(x, Tracer):
        return None
    x = np.asarray(x)
    if x.dtype == to:
        return x
    flat = x.ravel()
    if to == STRING:
        return _objects(flat.astype(str).tolist()).reshape(x.shape)
    texts = [t.decode() if isinstance(t, bytes) else str(t) for t in flat.tolist()]
    if to.kind in "iu":
        return np.array([_integer(t) for t in texts], dtype=to).reshape(x.shape)
    numbers = np.array([float(t) for t in texts], dtype=np.float64).reshape(x.shape)
    return convert(numbers, to, saturate, round_mode)


def _objects(values: list[Any]) -> np.ndarray:
    return np.array([*values, None], dtype=object)[:-1]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _viewed(x: Any, to: np.dtype) -> Any:
    return x.view(to) if namespace(x) is np else jax.lax.bitcast_convert_type(x, to)


# operators ----------------------------------------------------------------------------------------


@op("Cast", since=1, host=True, dtypes=("to",))
def cast_1(x, /, *, to):
    """Convert x (*D) to the dtype whose name in the standard is `to` -> (*D)."""
    return convert(x, _named(to))


def _named(name: str) -> np.dtype:
    try:
        return as_dtype(name.lower())
    except TypeError:
        raise ShapeError(f"to is {name!r}, which is no element type") from None


@op("Cast", since=6, host=True, dtypes=("to",))
def cast_6(x, /, *, to):
    """Convert x (*D) to the dtype `to` -> (*D)."""
    return convert(x, dtype_of(to))


@op("Cast", since=19, host=True, dtypes=("to",))
def cast_19(x, /, *, to, saturate=1):
    """Convert x (*D) to the dtype `to` -> (*D); an 8-bit float saturates or overflows."""
    return convert(x, dtype_of(to), saturate)


@op("Cast", since=24, host=True, dtypes=("to",))
def cast_24(x, /, *, to, saturate=1, round_mode="up"):
    """Convert x (*D) to the dtype `to` -> (*D); `round_mode` is for powers of two (float8e8m0)."""
    return convert(x, dtype_of(to), saturate, round_mode)


# Rules, because text is no type of JAX, and the new dtype is known even where that of x is not.


@cast_1.shape_rule(rankless=True)
def _(x, /, *, to):
    return TensorType(_named(to), x.shape)


def _cast_type(x, /, *, to, saturate=1, round_mode="up"):
    _check_mode(round_mode)
    return TensorType(dtype_of(to), x.shape)


for _version in (cast_6, cast_19, cast_24):
    _version.shape_rule(_cast_type, rankless=True)


@op("CastLike", since=15, host=True)
def castlike_15(x, target_type, /):
    """Convert x (*D) to the dtype of target_type -> (*D)."""
    return convert(x, target_type.dtype)


@op("CastLike", since=19, host=True)
def castlike_19(x, target_type, /, *, saturate=1):
    """Convert x (*D) to the dtype of target_type -> (*D); an 8-bit float saturates or overflows."""
    return convert(x, target_type.dtype, saturate)


@op("CastLike", since=24, host=True)
def castlike_24(x, target_type, /, *, saturate=1, round_mode="up"):
    """Convert x (*D) to the dtype of target_type -> (*D); `round_mode` is for float8e8m0."""
    return convert(x, target_type.dtype, saturate, round_mode)


def _like_type(x, target_type, /, *, saturate=1, round_mode="up"):
    _check_mode(round_mode)
    return TensorType(target_type.dtype, x.shape)


for _version in (castlike_15, castlike_19, castlike_24):
    _version.shape_rule(_like_type, rankless=True)


@op("BitCast", since=26, host=True)
def bitcast(x, /, *, to):
    """Read the bits of x (*D) as a dtype `to` of the same width -> (*D)."""
    target = dtype_of(to)
    if is_host(x):
        _check_width(x.dtype, target)
        return np.ascontiguousarray(x).view(target).reshape(x.shape)
    target = canonical(target)
    _check_width(x.dtype, target)
    return _bits(x, target)


@bitcast.shape_rule(rankless=True)  # because the new dtype is known even where that of x is not
def _(x, /, *, to):
    target = dtype_of(to)
    if x.dtype is not None:
        _check_width(x.dtype, target)
    return TensorType(target, x.shape)


def _check_width(source: np.dtype, target: np.dtype) -> None:
    if STRING in (source, target):
        raise ShapeError("strings have no bits to read as another type")
    a, b = (_WIDTHS.get(t.name, t.itemsize * 8) for t in (source, target))
    if a != b:
        raise ShapeError(f"x is {source} of {a} bits, {target} has {b}")


def _bits(x: Any, to: np.dtype) -> Any:
    """`bitcast_convert_type`, which knows neither bool nor complex numbers, for these as well."""
    if x.dtype == to:
        return x
    cast = jax.lax.bitcast_convert_type
    if x.dtype == _BOOL:
        x = x.astype(np.uint8)
    if jnp.iscomplexobj(x):
        x = jnp.stack([x.real, x.imag], -1)  # the real part is stored first
    if to == _BOOL:
        return cast(x, np.uint8) != 0
    if to.kind == "c":
        parts = cast(x, np.float32)
        return jax.lax.complex(parts[..., 0], parts[..., 1])
    return cast(x, to)
