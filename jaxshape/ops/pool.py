"""Pools: a window, or the whole of space, becomes one value.

Sizes come from `_window`. All are sums and maxima over `lax.reduce_window`, whose gradients JAX
knows; only a dilated maximum is taken axis by axis, since there JAX has none.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._device import canonical
from .._error import ShapeError
from .._facts import count
from .._host import namespace
from .._op import op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import wide
from ._window import Dims, Pads, Window, exported_pads, padding, sizes, spatial
from ._window import window as make_window


@op("AveragePool", since=19)
def average_pool_19(
    x, /, *,
    auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None,
    strides=None,
):  # fmt: skip
    """Average windows of x (N, C, *D) -> (N, C, *D'); pads count as zeros or not at all."""
    window, out = pooled(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    around = padding(window, hostdims(x.shape)[2:], out[2:])
    total = _sums(x.astype(wide(x.dtype)), window, around)
    number = _counts(window, hostdims(x.shape)[2:], total.shape[2:], around, count_include_pad)
    return (total / number.astype(total.dtype)).astype(x.dtype)


@op("AveragePool", since=1)
def average_pool_1(x, /, *, auto_pad="NOTSET", kernel_shape, pads=None, strides=None):
    """Average windows of x (N, C, *D) -> (N, C, *D'); pads do not count."""
    return average_pool_19(
        x, auto_pad=auto_pad, kernel_shape=kernel_shape, pads=pads, strides=strides
    )


@op("AveragePool", since=7)
def average_pool_7(
    x, /, *, auto_pad="NOTSET", count_include_pad=0, kernel_shape, pads=None, strides=None
):
    """Average windows of x (N, C, *D) -> (N, C, *D'); pads count as zeros or not at all."""
    return average_pool_10(
        x,
        auto_pad=auto_pad,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@op("AveragePool", since=10)
def average_pool_10(
    x, /, *,
    auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, kernel_shape, pads=None, strides=None,
):  # fmt: skip
    """Average windows of x (N, C, *D) -> (N, C, *D'); pads count as zeros or not at all."""
    return average_pool_19(
        x,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@op("LpPool", since=18)
def lp_pool_18(
    x, /, *,
    auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None,
):  # fmt: skip
    """Take the p-norm of windows of x (N, C, *D) -> (N, C, *D')."""
    window, out = pooled(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    around = padding(window, hostdims(x.shape)[2:], out[2:])
    return _root(_sums(_powers(x, p), window, around), p).astype(x.dtype)


@op("LpPool", since=1)
def lp_pool_1(x, /, *, auto_pad="NOTSET", kernel_shape=None, p=2.0, pads=None, strides=None):
    """Take the p-norm of windows of x (N, C, *D) -> (N, C, *D')."""
    return lp_pool_18(
        x, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides
    )


@op("LpPool", since=2)
def lp_pool_2(x, /, *, auto_pad="NOTSET", kernel_shape, p=2, pads=None, strides=None):
    """Take the p-norm of windows of x (N, C, *D) -> (N, C, *D')."""
    return lp_pool_18(
        x, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides
    )


@op("MaxPool", since=10)
def max_pool_10(
    x, /, *,
    auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, storage_order=0,
    strides=None, n_outputs=1,
):  # fmt: skip
    """Take the greatest of windows of x (N, C, *D) -> (N, C, *D'), and where in all of x it is.

    A place counts through (N, C, *D), with storage_order 1 the last axis slowest; first of equals.
    """
    window, out = pooled(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    around = exported_pads(padding(window, hostdims(x.shape)[2:], out[2:]))
    if all(d == 1 for d in window.dilations):
        y = _reduce(x, _lowest(x.dtype), lax.max, window, around)
    else:
        y = _dilated_max(x, window, around, out[2:])
    return y if n_outputs < 2 else (y, _places(x, window, around, storage_order))


@op("MaxPool", since=1)
def max_pool_1(x, /, *, auto_pad="NOTSET", kernel_shape, pads=None, strides=None):
    """Take the greatest of windows of x (N, C, *D) -> (N, C, *D')."""
    return max_pool_10(x, auto_pad=auto_pad, kernel_shape=kernel_shape, pads=pads, strides=strides)


@op("MaxPool", since=8)
def max_pool_8(
    x, /, *,
    auto_pad="NOTSET", kernel_shape, pads=None, storage_order=0, strides=None, n_outputs=1,
):  # fmt: skip
    """Take the greatest of windows of x (N, C, *D) -> (N, C, *D'), and where in all of x it is."""
    return max_pool_10(
        x,
        auto_pad=auto_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
        n_outputs=n_outputs,
    )


def pooled(
    x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, dilations: Any = None,
    auto_pad: str = "NOTSET", ceil_mode: int = 0,
) -> tuple[Window, Any]:  # fmt: skip
    """The window of a pool and its result's shape (N, C, *D')."""
    if not kernel_shape:
        raise ShapeError("needs attribute kernel_shape")
    window = make_window(kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    if x.shape is None:
        space = [count(f"Pool_size{i + 2}") for i in range(len(kernel_shape))]
        return window, (count("Pool_batch"), count("Pool_channels"), *space)
    shape = hostdims(x.shape)
    return window, (*shape[:2], *sizes(window, spatial("x", shape, len(window.kernel))))


def _pool_rule(
    x, /, *, p=2, count_include_pad=0, storage_order=0, n_outputs=1, kernel_shape=None, **how
):
    _positive(p)
    shape = pooled(x, kernel_shape, **how)[1]
    return TensorType(x.dtype, shape), *[TensorType("int64", shape)] * (n_outputs - 1)


for _pool in (
    average_pool_1, average_pool_7, average_pool_10, average_pool_19,
    lp_pool_1, lp_pool_2, lp_pool_18, max_pool_1, max_pool_8, max_pool_10,
):  # fmt: skip
    # because JAX cannot decide whether a window fits into a symbolic size
    _pool.shape_rule(_pool_rule, rankless=True)


def _reduce(x: Any, init: Any, function: Any, window: Window, around: Pads) -> Any:
    """Fold the windows of x (N, C, *D), padded with `init`."""
    return lax.reduce_window(
        x,
        init,
        function,
        (1, 1, *window.kernel),
        (1, 1, *window.strides),
        [(0, 0), (0, 0), *around],
        window_dilation=(1, 1, *window.dilations),
    )


def _sums(x: Any, window: Window, around: Pads) -> Any:
    return _reduce(x, np.zeros((), x.dtype), lax.add, window, exported_pads(around))


def _lowest(dtype: Any) -> np.ndarray:
    """What is below every value: -inf, or the least integer."""
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def _counts(window: Window, space: Dims, out: Dims, around: Pads, with_pads: int) -> Any:
    """How many elements count in each window (*D'), at least 1: pads alone average to 0."""
    given = around if window.same else window.pads  # what ceil_mode adds to these never counts
    number: Any = np.ones((), np.int32)
    for i, (d, o, (before, _)) in enumerate(zip(space, out, around, strict=True)):
        steps = np.arange(window.kernel[i], dtype=np.int32) * window.dilations[i]
        at = lax.iota(np.int32, o)[:, None] * window.strides[i] + steps
        first, last = (0, before + d + given[i][1]) if with_pads else (before, before + d)
        inside = (at >= to_export(first)) & (at < to_export(last))
        along = inside.sum(1, dtype=np.int32)
        number = number * along.reshape(-1, *(1,) * (len(space) - 1 - i))
    return jnp.maximum(number, 1)


def _dilated_max(x: Any, window: Window, around: Pads, out: Dims) -> Any:
    """The greatest of dilated windows, axis by axis as shifted maxima: these have a gradient."""
    x = lax.pad(x, _lowest(x.dtype), [(0, 0, 0), (0, 0, 0), *((a, b, 0) for a, b in around)])
    for i, (k, s, d) in enumerate(
        zip(window.kernel, window.strides, window.dilations, strict=True)
    ):
        reach = (to_export(out[i]) - 1) * s + 1
        parts = [lax.slice_in_dim(x, j * d, j * d + reach, s, i + 2) for j in range(k)]
        x = functools.reduce(jnp.maximum, parts)
    return x


def _places(x: Any, window: Window, around: Pads, storage_order: int) -> Any:
    """The flat index in x of the first greatest element of each window."""
    index = canonical("int64")
    order = (0, 1, *reversed(range(2, x.ndim))) if storage_order else tuple(range(x.ndim))
    flat = lax.iota(index, math.prod(x.shape)).reshape([x.shape[i] for i in order]).transpose(order)

    def first(a: Any, b: Any) -> Any:
        (u, i), (v, j) = a, b
        mine = (u > v) | (u != u) | ((u == v) & (i < j))
        return lax.select(mine, u, v), lax.select(mine, i, j)  # no jnp: XLA wants it closed

    last = np.array(jnp.iinfo(index).max, index)  # of a pad: it loses against every element
    return _reduce((lax.stop_gradient(x), flat), (_lowest(x.dtype), last), first, window, around)[1]


# norms ----------------------------------------------------------------------


def _positive(p: Any) -> None:
    if not p > 0:
        raise ShapeError(f"p is {p}, wants a positive number")


def _powers(x: Any, p: Any) -> Any:
    """|x|**p in a dtype wide enough to add up."""
    _positive(p)
    x = x.astype(wide(x.dtype))
    return x * x if p == 2 else abs(x) if p == 1 else abs(x) ** p


def _root(total: Any, p: Any) -> Any:
    """total**(1/p), whose gradient at 0 is 0 and not infinite."""
    if p == 1:
        return total
    xp = namespace(total)
    zero = total == 0
    return xp.where(
        zero, xp.zeros_like(total), xp.where(zero, xp.ones_like(total), total) ** (1 / p)
    )


# the whole of space -----------------------------------------------------------


def _space(x: Any) -> tuple[int, ...]:
    if x.ndim < 2:
        raise ShapeError(f"x has rank {x.ndim}, wants at least 2")
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool", since=1, host=True)
def global_average_pool(x, /):
    """Average x (N, C, *D) over space -> (N, C, 1, ...)."""
    xp = namespace(x)
    return xp.mean(x.astype(wide(x.dtype)), _space(x), keepdims=True).astype(x.dtype)


@op("GlobalMaxPool", since=1, host=True)
def global_max_pool(x, /):
    """Take the greatest of x (N, C, *D) over space -> (N, C, 1, ...)."""
    return namespace(x).max(x, _space(x), keepdims=True)


@global_max_pool.shape_rule  # because JAX finds no greatest element where space may be empty
def _(x, /):
    return TensorType(x.dtype, (*x.shape[:2], *[1] * len(_space(x))))


@op("GlobalLpPool", since=2, host=True)
def global_lp_pool_2(x, /, *, p=2):
    """Take the p-norm of x (N, C, *D) over space -> (N, C, 1, ...)."""
    total = namespace(x).sum(_powers(x, p), _space(x), keepdims=True)
    return _root(total, p).astype(x.dtype)


@op("GlobalLpPool", since=1, host=True)
def global_lp_pool_1(x, /, *, p=2.0):
    """Take the p-norm of x (N, C, *D) over space -> (N, C, 1, ...)."""
    return global_lp_pool_2(x, p=p)
