"""Selecting by content: NonZero, Unique, Compress.

How many are selected is known only from the data: the rules bound that count, the bodies run in
NumPy, or in JAX where a count may be a symbol (see `_nonzero.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._device import canonical
from .._dim import minimum
from .._facts import at_least, equal
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked
from ._nonzero import concrete, nonzero, symbolic
from ._static import axis_of, bounded, replaced
from ._unique import unique_in_jax
from .slicing import Window, cut

NOTHING = np.zeros(0, np.int64)


@op("NonZero", since=9, host=True)
def non_zero(x, /):
    """Find the non-zero elements of x (*D) in row-major order -> (rank, count) indices."""
    if x.ndim == 0:  # an index into no axis: nothing but how many there are
        (found,) = nonzero(x.reshape(1).astype(bool))
        return namespace(found).zeros((0, *found.shape), found.dtype)
    if any(isinstance(d, int) and d == 0 for d in x.shape):
        return np.zeros((x.ndim, 0), np.int64)
    found = nonzero(x.astype(bool))
    return namespace(*found).stack(found).astype(canonical("int64", *found))


@non_zero.shape_rule(rankless=True)  # because the count is data
def _(x, /):
    if x.shape is None:
        return TensorType("int64", (bounded("NonZero_rank"), bounded("NonZero_count")))
    return TensorType("int64", (len(x.shape), bounded("NonZero_count", most=x.size)))


@op("Compress", since=9, host=True)
def compress(input, condition, /, *, axis=None):
    """Keep of input (*A, n, *B) what condition (m,) marks on axis -> (*A, count, *B).

    Without an axis of all elements, in row-major order. What lies beyond the condition is dropped.
    """
    ranked("condition", condition.shape, 1)
    if axis is None:
        input, axis = input.reshape(-1), 0
    axis = axis_of(axis, input.ndim)
    n, given = hostdims((input.shape[axis], *condition.shape))
    if given is not n and given != n:
        condition = cut(condition, {0: Window(0, minimum(n, given))})
    (kept,) = nonzero(condition) if equal(condition.shape[0], 0) is not True else (NOTHING,)
    return namespace(input, kept).take(input, kept, axis)


@compress.shape_rule(rankless=True)  # because the count is data
def _(input, condition, /, *, axis=None):
    shape: Any = input.shape
    ranked("condition", condition.shape, 1)
    if axis is None:
        shape, axis = (None if shape is None else input.size,), 0
    elif shape is None:
        return TensorType(input.dtype, None)
    axis = axis_of(axis, len(shape))
    limits = [n for n in (shape[axis], *(condition.shape or ())) if n is not None]
    most = minimum(*limits) if limits else None
    return TensorType(input.dtype, replaced(shape, axis, bounded("Compress_count", most)))


@op("Unique", since=11, host=True)
def unique(x, /, *, axis=None, sorted=1):
    """Find the different elements of x (*D) -> (count,), or slices on axis -> (*A, count, *B).

    Also the first place of each (count,), which one each of the n is (n,), how often each occurs
    (count,). NaNs are equal.
    """
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis_of(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(n, int) and n <= 1:  # known without the data
        zero = np.zeros(n, np.int64)
        return x, zero, zero, zero + 1
    if symbolic(x):
        return unique_in_jax(x, axis, bool(sorted))
    x = concrete(x)
    first, which, counts = _unique_slices(x, axis)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        first, which, counts = first[order], rank[which], counts[order]
    indices = (first, which, counts)
    return np.take(x, first, axis), *[i.astype(np.int64) for i in indices]


def _unique_slices(x: np.ndarray, axis: int) -> Any:
    """As `np.unique` on an axis, for every type: elements are numbered in their order first."""
    keys = x.astype(np.float32) if x.dtype.name == "bfloat16" else x  # NumPy cannot sort it
    _, first, which, counts = np.unique(keys, True, True, True)
    which = which.reshape(x.shape)
    if x.ndim == 1:
        return first, which, counts
    _, first, which, counts = np.unique(which, True, True, True, axis=axis)
    return first, which.reshape(-1), counts


@unique.shape_rule(rankless=True)  # because the count is data
def _(x, /, *, axis=None, sorted=1):
    shape = x.shape
    if axis is None:
        shape, axis = (None if shape is None else x.size,), 0
    axis = axis if shape is None else axis_of(axis, len(shape))
    n = None if shape is None else shape[axis]
    some = x.shape is not None and at_least(x.size, 1)
    found = bounded("Unique_count", most=n, least=int(bool(some)))
    each = TensorType("int64", (found,))
    unlike = TensorType(x.dtype, None if shape is None else replaced(shape, axis, found))
    return unlike, each, TensorType("int64", (n,)), each
