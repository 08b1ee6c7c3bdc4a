"""Writing at indices: Scatter, ScatterElements, ScatterND.

The result is the data with the updates written, or combined with what is there. Entries that share
a place are all combined; where nothing combines them ONNX leaves open which one stays.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._error import ShapeError
from .._facts import same
from .._host import DimArray, namespace, wrap
from .._op import Known, op
from .._precision import FLOATS
from .._symbol import fit, hostdims
from .._value import TensorType
from .index import check_elements, check_range, check_tuples, places

# ONNX's word: the ufunc on the host, the method of `x.at[...]` in JAX, and that for booleans
_REDUCTIONS: dict[str, tuple[Any, str, str]] = {
    "none": (None, "set", "set"),
    "add": (np.add, "add", "max"),
    "mul": (np.multiply, "multiply", "min"),
    "max": (np.maximum, "max", "max"),
    "min": (np.minimum, "min", "min"),
}
# "max" and "min" are words of 18, but PyTorch writes them in 16 too, and onnxruntime takes them
SINCE_16 = tuple(_REDUCTIONS)


def write(data: Any, index: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    """A copy of data with the updates at the index."""
    ufunc, method, of_bool = _REDUCTIONS[reduction]
    if namespace(data, *index, updates) is not np:
        if reduction == "mul" and data.dtype in FLOATS:
            return _multiplied(data, updates, *index)
        method = of_bool if data.dtype == bool else method
        return getattr(data.at[index], method)(updates, mode="drop")
    formulas = isinstance(data, DimArray) or isinstance(updates, DimArray)
    out = np.array(_objects(data)) if formulas else np.array(data)
    updates = _objects(updates) if formulas else updates
    if ufunc is None:
        out[index] = updates
    else:
        ufunc.at(out, index, updates)
    return wrap(out, data.dtype) if formulas else out


@jax.custom_jvp
def _multiplied(data: Any, updates: Any, *index: Any) -> Any:
    """data (*D) times the updates at the index; JAX differentiates it for places that differ."""
    return data.at[index].multiply(updates, mode="drop")


@_multiplied.defjvp
def _(primals: Any, tangents: Any) -> Any:
    data, updates, *places = primals
    index, dtype = tuple(places), data.dtype
    # of each place the product of what is not 0, and how many are 0: what a factor is multiplied
    # by is then known without a division by 0 (a second derivative at such a factor is not)
    zero = (updates == 0).astype(np.int32)
    factors = jnp.where(zero > 0, jnp.ones_like(updates), updates)
    rest = _multiplied(jnp.ones_like(data), factors, *index)
    zeros = jnp.zeros(data.shape, np.int32).at[index].add(zero, mode="drop")
    before, rest_here, zeros_here = (
        x.at[index].get(mode="fill", fill_value=0) for x in (data, rest, zeros)
    )
    others = jnp.where(zeros_here == zero, before * rest_here / factors, jnp.zeros((), dtype))
    every = jnp.where(zeros == 0, rest, jnp.zeros((), dtype))
    by_data, by_updates = tangents[0] * every, tangents[1] * others
    return _multiplied(*primals), by_data.at[index].add(by_updates, mode="drop")


def _objects(x: Any) -> np.ndarray:
    return x.elements if isinstance(x, DimArray) else x.astype(object)


def check_reduction(reduction: str, *known: str) -> None:
    if reduction not in known:
        raise ShapeError(f"reduction {reduction!r} is none of {', '.join(known)}")


def scatter_elements(data: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    axis, agreed = scatter_check(axis, *map(hostdims, (data.shape, indices.shape, updates.shape)))
    check_range(indices, data.shape, axis)
    indices, updates = fit(indices, agreed), fit(updates, agreed)
    return write(data, places(indices, axis), updates, reduction)


def scatter_check(axis: int, data: Any, indices: Any, updates: Any) -> tuple[int, tuple[Any, ...]]:
    """State what ScatterElements asks; its axis from the front, the shape of indices."""
    axis = check_elements(data, indices, axis)
    if len(updates) != len(indices):
        raise ShapeError(f"updates have rank {len(updates)}, want that of indices, {len(indices)}")
    pairs = zip(indices, updates, strict=True)
    return axis, tuple(same(a, b, "indices and updates") for a, b in pairs)


@op("ScatterElements", since=18, host=True)
def scatter_elements_18(data, indices: Known, updates, /, *, axis=0, reduction="none"):
    """Write updates (*I) into data (*D) at indices (*I) on axis, at their own place elsewhere."""
    check_reduction(reduction, *SINCE_16)
    return scatter_elements(data, indices, updates, axis, reduction)


@op("ScatterElements", since=16, host=True)
def scatter_elements_16(data, indices: Known, updates, /, *, axis=0, reduction="none"):
    """Write or combine updates (*I) into data (*D) at indices (*I) on axis -> (*D)."""
    check_reduction(reduction, *SINCE_16)
    return scatter_elements(data, indices, updates, axis, reduction)


@op("Scatter", since=9, host=True)
def scatter_9(data, indices: Known, updates, /, *, axis=0):
    """Write updates (*I) into data (*D) at indices (*I) on axis -> (*D)."""
    return scatter_elements(data, indices, updates, axis, "none")


@op("ScatterElements", since=11, host=True)
def scatter_elements_11(data, indices: Known, updates, /, *, axis=0):
    """Write updates (*I) into data (*D) at indices (*I) on axis -> (*D)."""
    return scatter_elements(data, indices, updates, axis, "none")


def scatter_nd_check(data: Any, indices: Any, updates: Any) -> tuple[Any, ...] | None:
    """State what ScatterND asks of three shapes; the agreed shape of updates where it is known."""
    if not data or not indices:
        raise ShapeError(
            f"data and indices have ranks {len(data)} and {len(indices)}, want at least 1"
        )
    k = indices[-1]
    if not isinstance(k, int):
        return None
    if k > len(data):
        raise ShapeError(f"an index tuple has {k} elements, data has rank {len(data)}")
    want = (*indices[:-1], *data[k:])
    if len(updates) != len(want):
        raise ShapeError(
            f"updates have rank {len(updates)}, want {len(want)}: "
            f"indices of rank {len(indices)} hold tuples of {k} into data of rank {len(data)}"
        )
    return tuple(same(a, b, "updates") for a, b in zip(updates, want, strict=True))


def scatter_nd(data: Any, indices: Any, updates: Any, reduction: str) -> Any:
    agreed = scatter_nd_check(
        hostdims(data.shape), hostdims(indices.shape), hostdims(updates.shape)
    )
    if agreed is not None:
        indices = fit(indices, (*agreed[: indices.ndim - 1], indices.shape[-1]))
    check_tuples(indices, data.shape)
    columns = [indices[..., i] for i in range(indices.shape[-1])]
    if columns:
        return write(data, tuple(columns), fit(updates, agreed or ()), reduction)
    # tuples of no element: each update is as large as data
    first = namespace(indices).zeros(indices.shape[:-1], indices.dtype)
    return write(data[None], (first,), updates, reduction)[0]


@op("ScatterND", since=18, host=True)
def scatter_nd_18(data, indices: Known, updates, /, *, reduction="none"):
    """Write updates (*I, *S) into data (*D, *S) at index tuples (*I, k), k axes in D."""
    check_reduction(reduction, *SINCE_16)
    return scatter_nd(data, indices, updates, reduction)


@op("ScatterND", since=16, host=True)
def scatter_nd_16(data, indices: Known, updates, /, *, reduction="none"):
    """Write or combine updates (*I, *S) into data (*D, *S) at index tuples (*I, k) -> (*D, *S)."""
    check_reduction(reduction, *SINCE_16)
    return scatter_nd(data, indices, updates, reduction)


@op("ScatterND", since=11, host=True)
def scatter_nd_11(data, indices: Known, updates, /):
    """Write updates (*I, *S) into data (*D, *S) at index tuples (*I, k) -> (*D, *S)."""
    return scatter_nd(data, indices, updates, "none")


def elements_rule(known, data, indices, updates, /, *, axis=0, reduction="none"):
    check_reduction(reduction, *known)
    if None not in (data.shape, indices.shape, updates.shape):
        axis, _ = scatter_check(axis, data.shape, indices.shape, updates.shape)
        check_range(indices, data.shape, axis)
    rank = next((len(t.shape) for t in (indices, updates) if t.shape is not None), None)
    unknown = rank if rank is None else (None,) * rank
    return TensorType(data.dtype, unknown if data.shape is None else data.shape)


def nd_rule(known, data, indices, updates, /, *, reduction="none"):
    check_reduction(reduction, *known)
    if None not in (data.shape, indices.shape, updates.shape):
        scatter_nd_check(data.shape, indices.shape, updates.shape)
        check_tuples(indices, data.shape)
    return data


# because the result has the shape of data even where ranks or the length of a tuple are unknown
for _version, _rule, _known in (
    (scatter_9, elements_rule, ("none",)),
    (scatter_elements_11, elements_rule, ("none",)),
    (scatter_elements_16, elements_rule, SINCE_16),
    (scatter_elements_18, elements_rule, SINCE_16),
    (scatter_nd_11, nd_rule, ("none",)),
    (scatter_nd_16, nd_rule, SINCE_16),
    (scatter_nd_18, nd_rule, SINCE_16),
):
    _version.shape_rule(functools.partial(_rule, _known), rankless=True)
