"""Indexing by data: Gather and its kin, OneHot, TopK.

An index counts from the end where it is negative. One that is out of range and known on the host is
an error; on the device it reads as NaN, or as the extreme integer, never as a neighbour.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._device import canonical
from .._dim import Dim
from .._error import ShapeError
from .._facts import least, same
from .._host import DimArray, is_host, namespace
from .._op import Known, Static, op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import ranked
from ._static import axis_of, replaced, size_of
from .slicing import Window, cut


def check_range(indices: Any, data: Any, axis: int) -> None:
    """Refuse indices known on the host that lie outside an axis of a shape; demand that a symbolic
    one holds them.
    """
    size = data[axis]
    if isinstance(indices, np.ndarray) and indices.size:
        low, high = int(indices.min()), int(indices.max())
        needed = max(-low, high + 1)
        if isinstance(size, int) and size < needed:
            bad = low if low < -size else high
            raise ShapeError(f"index {bad} is out of range for axis {axis} of size {size}")
        if isinstance(size, Dim):
            least(size, needed, f"axis {axis} holds what is taken")


def check_tuples(indices: Any, data: Any, batch: int = 0) -> None:
    """The same of index tuples (*I, k) into a shape, after its batch axes; those that take slices
    without elements are never looked up.
    """
    if isinstance(indices, np.ndarray):
        k = indices.shape[-1]
        if any(isinstance(d, int) and d == 0 for d in data[batch + k :]):
            return
        for i in range(k):
            check_range(indices[..., i], data, batch + i)


def grid(x: Any) -> list[Any]:
    """For each axis of x the place of every entry on it, as arrays that broadcast to its shape."""
    if is_host(x):
        return list(np.indices(x.shape, sparse=True))
    return [lax.broadcasted_iota(x.dtype, x.shape, d) for d in range(x.ndim)]


def places(indices: Any, axis: int) -> tuple[Any, ...]:
    """Where each entry of indices points: the index on axis, its own place on the others."""
    own = grid(indices)
    own[axis] = indices
    return tuple(own)


def check_elements(data: Any, indices: Any, axis: int) -> int:
    """State what GatherElements and ScatterElements ask of two shapes; the axis from the front."""
    if len(data) != len(indices):
        raise ShapeError(f"indices have rank {len(indices)}, want the rank of data, {len(data)}")
    axis = axis_of(axis, len(data))
    for d, (size, entries) in enumerate(zip(data, indices, strict=True)):
        if d != axis:
            least(size, entries, f"axis {d} of indices within that of data")
    return axis


@op("Gather", since=1, host=True)
def gather(data, indices: Known, /, *, axis=0):
    """Take from data (*A, n, *B) at indices (*I) -> (*A, *I, *B)."""
    axis = axis_of(axis, data.ndim)
    check_range(indices, data.shape, axis)
    if namespace(data, indices) is np:
        taken = np.take(data, indices, axis)
        # for one element of text NumPy gives a bare str
        return taken if isinstance(taken, DimArray) else np.asarray(taken, data.dtype)
    return jnp.take(data, indices, axis=axis, mode="fill")


@gather.shape_rule(rankless=True)  # because JAX takes nothing from an axis that may be empty
def _(data, indices, /, *, axis=0):
    if data.shape is None:
        return TensorType(data.dtype, None)
    axis = axis_of(axis, len(data.shape))
    if indices.shape is None:
        return TensorType(data.dtype, None)
    check_range(indices, data.shape, axis)
    return TensorType(data.dtype, replaced(data.shape, axis, *indices.shape))


@op("GatherElements", since=11, host=True)
def gather_elements(data, indices: Known, /, *, axis=0):
    """Take from data (*D) at indices (*I) on axis, at the entry's own place elsewhere -> (*I)."""
    axis = check_elements(hostdims(data.shape), hostdims(indices.shape), axis)
    check_range(indices, data.shape, axis)
    if namespace(data, indices) is np:
        return data[places(indices, axis)]
    if replaced(data.shape, axis) == replaced(indices.shape, axis):
        return jnp.take_along_axis(data, indices, axis, mode="fill")
    return data.at[places(indices, axis)].get(mode="fill")


# because the result has the shape of indices even where that of data is unknown
@gather_elements.shape_rule(rankless=True)
def _(data, indices, /, *, axis=0):
    if data.shape is not None and indices.shape is not None:
        axis = check_elements(data.shape, indices.shape, axis)
        check_range(indices, data.shape, axis)
    elif data.shape is not None:
        return TensorType(data.dtype, (None,) * len(data.shape))
    return TensorType(data.dtype, indices.shape)


def gather_nd_shape(data: Any, indices: Any, batch: int) -> tuple[Any, ...] | None:
    """The shape of GatherND's result; None where the length of an index tuple is unknown."""
    if not 0 <= batch < min(len(data), len(indices)):
        raise ShapeError(
            f"batch_dims is {batch}, wants at least 0 and less than the ranks "
            f"of data, {len(data)}, and of indices, {len(indices)}"
        )
    agreed = [same(a, b, "batch axes") for a, b in zip(data[:batch], indices[:batch], strict=True)]
    k = indices[-1]
    if not isinstance(k, int):
        return None
    if not 1 <= k <= len(data) - batch:
        raise ShapeError(
            f"an index tuple has {k} elements, wants 1 to {len(data) - batch}: "
            f"data has rank {len(data)}, batch_dims is {batch}"
        )
    return (*agreed, *indices[batch:-1], *data[batch + k :])


@op("GatherND", since=12, host=True)
def gather_nd(data, indices: Known, /, *, batch_dims=0):
    """Take slices of data (*B, *D, *S) at index tuples (*B, *I, k), k axes in D -> (*B, *I, *S)."""
    gather_nd_shape(hostdims(data.shape), hostdims(indices.shape), batch_dims)
    check_tuples(indices, data.shape, batch_dims)
    columns = [indices[..., i] for i in range(indices.shape[-1])]
    index = (*grid(columns[0])[:batch_dims], *columns)
    if namespace(data, indices) is np:
        return data[index]
    return data.at[index].get(mode="fill")


@gather_nd.shape_rule  # because the last size of indices decides the rank, and may be symbolic
def _(data, indices, /, *, batch_dims=0):
    shape = gather_nd_shape(data.shape, indices.shape, batch_dims)
    check_tuples(indices, data.shape, batch_dims)
    return TensorType(data.dtype, shape)


@op("GatherND", since=11, host=True)
def gather_nd_11(data, indices: Known, /):
    """Take slices of data (*D, *S) at index tuples (*I, k), k axes in D -> (*I, *S)."""
    return gather_nd(data, indices)


@gather_nd_11.shape_rule  # as that of GatherND-12
def _(data, indices, /):
    shape = gather_nd_shape(data.shape, indices.shape, 0)
    check_tuples(indices, data.shape)
    return TensorType(data.dtype, shape)


def one_hot_shape(indices: Any, depth: Any, values: Any, axis: int) -> tuple[Any, ...]:
    axis = axis_of(axis, len(indices) + 1)
    if values is not None:
        ranked("values", values, 1)
        same(values[0], 2, "values hold [off, on], so their number")
    if not isinstance(depth, TensorType) and depth.dtype.kind not in "iu":
        depth = depth.astype("int64")
    return (*indices[:axis], size_of(depth, "depth", "OneHot_depth"), *indices[axis:])


def one_hot(indices: Any, depth: Any, values: Any, axis: int, wrap: bool) -> Any:
    """Mark each index along a new axis; with `wrap` negative ones count from the end."""
    shape = one_hot_shape(hostdims(indices.shape), depth, hostdims(values.shape), axis)
    axis %= len(shape)
    xp = namespace(indices, values)
    if indices.dtype != np.uint64:  # whose upper half is no int64
        indices = indices.astype(canonical("int64", indices))
    indices = xp.expand_dims(indices, axis)
    size = shape[axis] if xp is np else to_export(shape[axis])
    classes = xp.arange(size, dtype=indices.dtype)
    classes = xp.reshape(classes, (-1, *(1,) * (len(shape) - 1 - axis)))
    if wrap and indices.dtype.kind == "i":
        indices = xp.where(indices < 0, indices + xp.asarray(size, indices.dtype), indices)
    return xp.where(indices == classes, values[1:], values[:1])


@op("OneHot", since=11, host=True)
def one_hot_11(indices, depth: Static, values, /, *, axis=-1):
    """Spread indices (*A, *B) over a new axis: values (2,) off or on -> (*A, depth, *B)."""
    return one_hot(indices, depth, values, axis, wrap=True)


@op("OneHot", since=9, host=True)
def one_hot_9(indices, depth: Static, values, /, *, axis=-1):
    """Spread indices (*A, *B) over a new axis -> (*A, depth, *B); negative ones are all off."""
    return one_hot(indices, depth, values, axis, wrap=False)


# because a depth that is not known yet is a size all the same
@one_hot_9.shape_rule(rankless=True)
@one_hot_11.shape_rule(rankless=True)
def _(indices, depth, values, /, *, axis=-1):
    if indices.shape is None:
        return TensorType(values.dtype, None)
    return TensorType(values.dtype, one_hot_shape(indices.shape, depth, values.shape, axis))


def top_k_shape(x: Any, k: Any, axis: int) -> tuple[Any, ...]:
    axis = axis_of(axis, len(x))
    k = size_of(k, "k", "TopK_k", most=x[axis])
    least(x[axis], k, f"k within axis {axis}")
    return replaced(x, axis, k)


@op("TopK", since=11, host=True)
def top_k(x, k: Static, /, *, axis=-1, largest=1, sorted=1):
    """Take from x (*A, n, *B) the k (1,) extreme -> values, indices (*A, k, *B).

    Ties go to the lower index, NaN counts as the greatest, the order is sorted in any case.
    """
    shape = top_k_shape(hostdims(x.shape), k, axis)
    axis %= len(shape)
    if namespace(x) is np:
        order = np.take(_argsort(x, axis, bool(largest)), range(shape[axis]), axis)
        return np.take_along_axis(x, order, axis), order
    size = to_export(shape[axis])
    if isinstance(size, int) and (largest or jnp.issubdtype(x.dtype, jnp.integer)):
        order = lax.top_k(_canonical(x if largest else ~x), size, axis=axis)[1]
    else:
        order = jnp.argsort(x, axis, stable=True, descending=bool(largest))
        order = cut(order, {axis: Window(0, shape[axis])})
    order = order.astype(canonical("int64"))
    return jnp.take_along_axis(x, order, axis), order


def _argsort(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """A stable argsort in either direction: equal elements keep their order."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backward = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backward, axis)


def _canonical(x: Any) -> Any:
    """x with one zero and one NaN, since `lax.top_k` puts -0 below 0 and -NaN last."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    x = jnp.where(x == 0, jnp.zeros_like(x), x)
    return jnp.where(jnp.isnan(x), jnp.full_like(x, jnp.nan), x)


@op("TopK", since=10, host=True)
def top_k_10(x, k: Static, /, *, axis=-1):
    """Take from x (*A, n, *B) the k (1,) largest -> values, indices (*A, k, *B)."""
    return top_k(x, k, axis=axis)


@op("TopK", since=1, host=True)
def top_k_1(x, /, *, axis=-1, k):
    """Take from x (*A, n, *B) the k largest -> values, indices (*A, k, *B)."""
    return top_k(x, np.asarray([k]), axis=axis)


@top_k.shape_rule(rankless=True)  # because JAX cannot decide k <= n where either is symbolic
@top_k_10.shape_rule(rankless=True)
def _(x, k, /, *, axis=-1, **_):
    shape = None if x.shape is None else top_k_shape(x.shape, k, axis)
    return TensorType(x.dtype, shape), TensorType("int64", shape)


@top_k_1.shape_rule  # as that of TopK-10
def _(x, /, *, axis=-1, k):
    shape = top_k_shape(x.shape, np.asarray([k]), axis)
    return TensorType(x.dtype, shape), TensorType("int64", shape)
