"""What elementwise lowerings share: types of numbers, and the precision in which they are computed.

Invariant: a result has the dtype that ONNX gives it, never the one to which NumPy or JAX would
promote. Float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from .._device import canonical
from .._host import namespace

HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
FLOAT32 = np.dtype(np.float32)


def is_float(dtype: Any) -> bool:
    """Whether this is a floating-point dtype, of any width."""
    return jnp.issubdtype(dtype, jnp.floating)


def is_integer(dtype: Any) -> bool:
    """Whether this is an integer dtype, of any width; bool is none."""
    return jnp.issubdtype(dtype, jnp.integer)


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute 16-bit floats in float32, so that the steps inside do not round."""

    @functools.wraps(function)
    def wide(*xs: Any, **attributes: Any) -> Any:
        dtype = xs[0].dtype if xs else None
        if dtype not in HALF:
            return function(*xs, **attributes)
        wider = [x.astype(FLOAT32) if hasattr(x, "dtype") else x for x in xs]
        return function(*wider, **attributes).astype(dtype)

    return wide


def in_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute integers in float64 and 16-bit floats in float32; the result has the dtype of x."""

    @functools.wraps(function)
    def wide(x: Any, *rest: Any, **attributes: Any) -> Any:
        if x.dtype in HALF:
            return function(x.astype(FLOAT32), *rest, **attributes).astype(x.dtype)
        if is_integer(x.dtype):
            return function(x.astype(canonical("float64", x)), *rest, **attributes).astype(x.dtype)
        return function(x, *rest, **attributes)

    return wide


def one_dtype(*xs: Any) -> None:
    """Refuse operands of several dtypes, which NumPy would promote and ONNX forbids."""
    if any(x.dtype != xs[0].dtype for x in xs):
        raise TypeError(
            f"one dtype is wanted, not {', '.join(str(x.dtype) for x in xs)}; where parameters or "
            "inputs have another than the model: to_jax(..., dtype=...) computes in it"
        )


def is_empty(x: Any) -> bool:
    """Whether x is sure to have no elements."""
    return any(isinstance(d, int) and d == 0 for d in x.shape)


def size_along(x: Any, axes: Sequence[int]) -> Any:
    """The number of elements along the axes, a scalar of x's dtype; sizes may be JAX's symbols."""
    n = math.prod(x.shape[a] for a in axes)
    xp = namespace(x)
    return xp.asarray(n).astype(x.dtype)


def below_top(x: Any, axes: Any, top: Any = None) -> Any:
    """x less its greatest along the axes (`top`, where it is at hand): 0 at the greatest itself.

    XLA may fuse the step that made x into the difference, without rounding x first (FMA): of
    scores near 1e10 the greatest would then be off by hundreds, and its exponential infinite or 0.
    """
    xp = namespace(x)
    if top is None:
        top = xp.max(x, axis=axes, keepdims=True, initial=-np.inf)
    top = top if xp is np else lax.stop_gradient(top)
    d = x - top
    off = xp.where((x == top) & xp.isfinite(top), d, xp.zeros_like(d))
    return d - (off if xp is np else lax.stop_gradient(off))
