"""Computing a model in another floating-point type than it was written in.

Invariant: while a precision is asked for, every float on the device has it; those on the host keep
their own. So the arithmetic of shapes and scales, which is done on the host, stays exact, and what
it gives is rounded once, where it meets the data. Finite numbers stay finite: a mask built from the
smallest float32 would be -inf in bfloat16, and a softmax over it NaN.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np

from ._device import canonical, to_device
from ._error import UnsupportedError
from ._host import DimArray, namespace
from ._op import Op
from ._tensor import DTYPES, onnx_dtype
from ._value import as_dtype

FLOATS = frozenset(as_dtype(n) for n in ("float16", "bfloat16", "float32", "float64"))
_NARROW = 2  # bytes: bounds of another type are no numbers of a type as short as this

_asked: ContextVar[np.dtype | None] = ContextVar("asked", default=None)


def float_type(dtype: Any) -> np.dtype:
    """The dtype that a user names, one that a model can be computed in."""
    try:
        found = as_dtype(dtype)
    except TypeError:
        found = None
    if found is None or found not in FLOATS:
        raise UnsupportedError(
            f"dtype is {dtype!r}, wants one of {', '.join(sorted(d.name for d in FLOATS))}"
        )
    return found


@contextlib.contextmanager
def using_precision(dtype: np.dtype | None) -> Iterator[None]:
    """Compute in this type as far as the caller's setting has it; None: as the model says."""
    token = _asked.set(None if dtype is None else canonical(dtype))
    try:
        yield
    finally:
        _asked.reset(token)


def saturated(x: Any, to: np.dtype) -> Any:
    """The floats x (*D) in another type; what is finite stays so, infinities stay what they are."""
    if x.dtype == to:
        return x
    if largest(to) < largest(x.dtype):
        if x.dtype.itemsize <= _NARROW:
            x = x.astype(np.float32)
        xp, most = namespace(x), np.asarray(largest(to), x.dtype)
        x = xp.where(xp.isinf(x), x, xp.clip(x, -most, most))
    return x.astype(to)


def largest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max)


def rounded(value: Any) -> Any:
    """A value on the device in the precision that is asked for, if it is a float; others as they
    are.
    """
    to = _asked.get()
    if to is None or value is None:
        return value
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic, DimArray)):
        return value
    return saturated(value, to) if getattr(value, "dtype", None) in FLOATS else value


def placed(value: Any) -> Any:
    """A value on the device, floats in the precision that is asked for."""
    if isinstance(value, list):
        return [placed(v) for v in value]
    to = _asked.get()
    if to is not None and isinstance(value, (np.ndarray, np.generic)) and value.dtype in FLOATS:
        value = saturated(value, to)
    return rounded(to_device(value))


def adapted(op: Op, attributes: dict[str, Any]) -> dict[str, Any]:
    """An op's attributes, those that name a type of floats naming the precision asked for.

    A type of a wider range is left: the result is narrowed after, where it can be kept finite.
    """
    to = _asked.get()
    if to is None:
        return attributes
    changed: dict[str, Any] = {}
    for name in op.dtypes:
        code = attributes.get(name)
        named = as_dtype(code.lower()) if isinstance(code, str) else DTYPES.get(code or 0)
        if named is not None and named in FLOATS and largest(named) <= largest(to):
            changed[name] = to.name if isinstance(code, str) else onnx_dtype(to)
    return {**attributes, **changed}
