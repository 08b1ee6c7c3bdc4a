"""What operators ask of their attributes and static inputs.

An axis lies in range, a size is no less than 0, a dtype is one of ONNX's. Each helper answers in
our dims or raises a `ShapeError` that names what came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._error import ShapeError
from .._facts import count, least
from .._host import SMALL, DimArray
from .._symbol import to_export
from .._tensor import DTYPES
from .._value import TensorType


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{name} {axis} is out of range for rank {rank}")
    return axis % rank


def replaced(shape: Sequence[Any], axis: int, *sizes: Any) -> tuple[Any, ...]:
    """The shape with one axis replaced by any number of sizes."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def scalar(value: Any, name: str) -> Any:
    """The one element of a host array: a number, or a formula."""
    if value.size != 1:
        raise ShapeError(f"{name} has shape {tuple(value.shape)}, wants one element")
    return value.item()


def size_of(value: Any, name: str, stem: str, most: Any = None) -> Any:
    """The size that a static input holds; a count up to `most` where its content is unknown."""
    if isinstance(value, TensorType):
        return bounded(stem, most)
    size = scalar(value, name)
    least(size, 0, name)
    return size


def bounded(stem: str, most: Any = None, least: int = 0) -> Any:
    """A count between two bounds, or the size itself where they meet."""
    return most if isinstance(most, int) and most <= least else count(stem, least=least, most=most)


def dtype_of(code: int | None, default: Any = None) -> np.dtype:
    """The dtype that an attribute names by its number in TensorProto; the default where absent."""
    if code is None and default is not None:
        return np.dtype(default)
    if code not in DTYPES:
        raise ShapeError(f"{code} is not a data type of ONNX")
    return DTYPES[code]


def place(shape: Sequence[Any]) -> Any:
    """Where to make an array: NumPy where it is small, for shape arithmetic; else the device."""
    known = all(isinstance(d, int) for d in shape)
    return np if known and math.prod(shape) <= SMALL else jnp


def on_device(x: Any) -> Any:
    """A scalar host array, perhaps a formula in sizes that JAX holds as symbols, as a JAX array."""
    if isinstance(x, DimArray):
        return jnp.asarray(to_export(x.item())).astype(x.dtype)
    return x
