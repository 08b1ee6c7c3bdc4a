"""Tensors out of nothing: Constant, ConstantOfShape, EyeLike, Range, windows.

What is small and of known size is made on the host, where it takes part in shape arithmetic; the
rest on the device.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._device import canonical
from .._dim import Undecided, ceildiv, maximum
from .._error import ShapeError
from .._facts import at_least
from .._host import DimArray, namespace
from .._op import Static, op
from .._rational import Float
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import ranked
from ._static import bounded, dtype_of, on_device, place, scalar, size_of


@op("Constant", since=12, host=True)
def constant(
    *,
    value=None,
    sparse_value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
):
    """Give the one attribute that is set as a host array; a sparse one unfolds."""
    plain = (
        (value_float, "float32"),
        (value_floats, "float32"),
        (value_int, "int64"),
        (value_ints, "int64"),
        (value_string, object),
        (value_strings, object),
    )
    given = [] if value is None else [value]
    given += [] if sparse_value is None else [sparse_value.array()]
    given += [np.array(v, dtype) for v, dtype in plain if v is not None]
    if len(given) != 1:
        raise ShapeError(f"has {len(given)} values, wants exactly one attribute that gives one")
    return given[0]


@op("Constant", since=11, host=True)
def constant_11(*, value=None, sparse_value=None):
    """Give the one attribute that is set as a host array."""
    return constant(value=value, sparse_value=sparse_value)


@op("Constant", since=1, host=True)
def constant_1(*, value):
    """Give value (*D) as a host array."""
    return value


@op("ConstantOfShape", since=9, host=True)
def constant_of_shape(input: Static, /, *, value=None):
    """Fill a tensor with value (1,), float32 0 unless said -> (*input)."""
    value = fill_value(value)
    shape = [size_of(d, "input", "ConstantOfShape_size") for d in input]
    xp = place(shape)
    return xp.full(
        [to_export(d) for d in shape], value[0], value.dtype if xp is np else canonical(value.dtype)
    )


def fill_value(value: Any) -> np.ndarray:
    value = np.zeros(1, np.float32) if value is None else value
    if value.size != 1:
        raise ShapeError(f"value has shape {value.shape}, wants one element")
    return value.reshape(1)


@constant_of_shape.shape_rule(
    rankless=True
)  # because a shape that is not known yet may have a known length
def _(input, /, *, value=None):
    dtype = fill_value(value).dtype
    ranked("input", input.shape, 1)
    if not isinstance(input, TensorType):
        return TensorType(dtype, [size_of(d, "input", "ConstantOfShape_size") for d in input])
    rank = input.shape[0] if input.shape else None
    return TensorType(
        dtype,
        [bounded("ConstantOfShape_size") for _ in range(rank)] if isinstance(rank, int) else None,
    )


@op("EyeLike", since=9, host=True, dtypes=("dtype",))
def eye_like(input, /, *, dtype=None, k=0):
    """Put ones on the k-th diagonal of zeros -> the shape of input (N, M)."""
    ranked("input", hostdims(input.shape), 2)
    dtype = dtype_of(dtype, input.dtype)
    k = min(max(k, -(2**31)), 2**31 - 1)  # beyond any size
    if namespace(input) is np:
        return np.eye(*input.shape, k=k, dtype=dtype)
    row, column = (lax.broadcasted_iota(np.int32, input.shape, d) for d in range(2))
    return (column - row == k).astype(canonical(dtype))


@eye_like.shape_rule(rankless=True)  # because the rank is 2 even where it is not known yet
def _(input, /, *, dtype=None, k=0):
    ranked("input", input.shape, 2)
    return TensorType(dtype_of(dtype, input.dtype), input.shape or (None, None))


def range_length(start: Any, limit: Any, delta: Any) -> Any:
    """The number of steps from start to before limit, or `Undecided`.

    As in onnxruntime, a difference of floats is rounded as they are, the quotient is of doubles.
    """
    a, b, step = (
        scalar(x, name) for x, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    if not isinstance(delta, DimArray) and step == 0:
        raise ShapeError("delta is 0")
    if start.dtype.kind in "iu":
        if at_least(step, 1):
            steps = ceildiv(b - a, step)
        elif at_least(-1, step):
            steps = ceildiv(a - b, -step)
        else:
            raise Undecided("the sign of delta")
    else:
        span = (np.reshape(limit, ()) - np.reshape(start, ())).astype("float64")
        steps = np.ceil(span / np.reshape(delta, ()).astype("float64")).item()
        if isinstance(steps, Float):
            raise Undecided("a quotient of sizes, as floats round it")
        if isinstance(steps, float):
            if not math.isfinite(steps):
                raise ShapeError(f"from {a} to {b} by {step} there are {steps} steps")
            steps = int(steps)
    return steps if at_least(steps, 0) else maximum(steps, 0)


def count_up(start: Any, limit: Any, delta: Any) -> Any:
    length = range_length(start, limit, delta)
    start, delta = np.reshape(start, ()), np.reshape(delta, ())
    if place((length,)) is np:
        return start + np.arange(length).astype(start.dtype) * delta
    dtype = canonical(start.dtype)
    start, delta = (jnp.asarray(on_device(x), dtype) for x in (start, delta))
    return start + lax.broadcasted_iota(dtype, (to_export(length),), 0) * delta


@op("Range", since=11, host=True)
def range_11(start: Static, limit: Static, delta: Static, /):
    """Count from start () to before limit () by delta () -> (ceil((limit - start)/delta),)."""
    return count_up(start, limit, delta)


@op("Range", since=27, host=True, dtypes=("stash_type",))
def range_27(start: Static, limit: Static, delta: Static, /, *, stash_type=1):
    """Count from start () to limit () by delta (); 16-bit floats are computed in stash_type."""
    values = count_up(*stashed(start, limit, delta, stash_type))
    return values.astype(canonical(start.dtype, values))


def stashed(start: Any, limit: Any, delta: Any, stash_type: int) -> tuple[Any, ...]:
    if start.dtype.name not in ("float16", "bfloat16"):
        return start, limit, delta
    return tuple(x.astype(dtype_of(stash_type)) for x in (start, limit, delta))


@range_11.shape_rule(rankless=True)  # because the length is a formula in what the inputs hold
@range_27.shape_rule(rankless=True)
def _(start, limit, delta, /, *, stash_type=1):
    length = None
    if not any(isinstance(x, TensorType) for x in (start, limit, delta)):
        with contextlib.suppress(Undecided):
            length = range_length(*stashed(start, limit, delta, stash_type))
    return TensorType(start.dtype, (bounded("Range_length") if length is None else length,))


def _window(name: str, a: float, b: float, c: float) -> None:
    @op(name, since=17, host=True, dtypes=("output_datatype",))
    def window(size: Static, /, *, output_datatype=1, periodic=1):
        """Sample a - b cos(t) + c cos(2 t) on size () points of a turn -> (size,).

        Periodic: the turn has `size` steps; else size - 1, so that both ends are in.
        """
        length = size_of(size, "size", "size")
        steps = length if periodic else length - 1
        if place((length,)) is np:
            i, turn = np.arange(length, dtype=np.float64), np.float64(steps)
        else:
            wide = canonical("float64")
            i = lax.broadcasted_iota(wide, (to_export(length),), 0)
            turn = jnp.asarray(to_export(steps)).astype(wide)
        xp = namespace(i)
        t = i * (2 * math.pi) / turn
        dtype = dtype_of(output_datatype)
        samples = c * xp.cos(2 * t) - b * xp.cos(t) + a  # in this order the peak is exactly 1
        return samples.astype(canonical(dtype, i))

    @window.shape_rule(rankless=True)  # because a size that is not known yet is a size all the same
    def _(size, /, *, output_datatype=1, periodic=1):
        return TensorType(dtype_of(output_datatype), (size_of(size, "size", f"{name}_size"),))


_window("HannWindow", 0.5, 0.5, 0.0)
_window("HammingWindow", 25 / 46, 21 / 46, 0.0)
_window("BlackmanWindow", 0.42, 0.5, 0.08)
