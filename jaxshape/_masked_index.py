"""Rules for gather and scatter, where sizes are counts.

An index is in range where it is below the count, not below the bound; what an index row beyond a
count would read or write is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ._device import canonical
from ._dim import Dim
from ._masked import Equation, rule
from ._masked_reduce import greatest, least
from ._masked_shape import places, take
from ._symbol import from_export

Mode = lax.GatherScatterMode


def _bounded_indices(
    e: Equation, indices: Any, axes: Sequence[int], windows: Sequence[Any], clip: bool
) -> Any:
    """Indices (*I, k) into axes of the operand: those beyond the counts clamped, or put where
    nothing is.
    """
    own = e.ins[0]
    columns = []
    for column, axis in enumerate(axes):
        index, n, size = indices[..., column], own[axis], windows[axis]
        if isinstance(n, Dim) and n is not size:
            last = (e.counts.size(n) - e.counts.size(size)).astype(index.dtype)
            if clip:
                index = jnp.clip(index, 0, jnp.maximum(last, 0))
            else:
                index = jnp.where(index > last, jnp.asarray(_nowhere(index.dtype)), index)
        columns.append(index)
    return jnp.stack(columns, -1) if columns else indices


def _nowhere(dtype: Any) -> Any:
    """An index that is out of range for any axis."""
    return np.asarray(np.iinfo(dtype).max, dtype)


@rule("gather")
def _gather(e: Equation, x: Any, indices: Any) -> Any:
    p = e.params
    numbers, mode = p["dimension_numbers"], Mode.from_any(p["mode"])
    windows = [from_export(s) for s in p["slice_sizes"]]
    own = e.ins[0]
    if any(isinstance(s, Dim) and s is not n for n, s in zip(own, windows, strict=True)):
        return _window(e, x, indices, windows)
    indices = _bounded_indices(e, indices, numbers.start_index_map, windows, mode == Mode.CLIP)
    sizes = e.counts.tops_of(windows)
    if any(n < s for n, s in zip(x.shape, sizes, strict=True)):  # an axis of bound 0
        pads = [(0, max(0, s - n)) for n, s in zip(x.shape, sizes, strict=True)]
        indices, x = jnp.full_like(indices, _nowhere(indices.dtype)), jnp.pad(x, pads)
    if mode == Mode.PROMISE_IN_BOUNDS:  # what lies beyond the counts promises nothing
        mode = Mode.CLIP
    return lax.gather(
        x,
        indices,
        numbers,
        sizes,
        unique_indices=False,
        indices_are_sorted=False,
        mode=mode,
        fill_value=p["fill_value"],
    )


def _window(e: Equation, x: Any, index: Any, windows: Sequence[Any]) -> Any:
    """One window, whose size is a count: along each axis its entries are looked up."""
    p, counts = e.params, e.counts
    numbers, mode = p["dimension_numbers"], Mode.from_any(p["mode"])
    if index.ndim > 1 or numbers.operand_batching_dims:
        e.refuse("takes several windows of such a size")
    inside: Any = True
    for axis, (n, size) in enumerate(zip(e.ins[0], windows, strict=True)):
        if axis not in numbers.start_index_map:
            continue
        start = index[numbers.start_index_map.index(axis)].astype(canonical("int64"))
        last = counts.size(n) - counts.size(size)
        inside = inside & (start >= 0) & (start <= last)
        if mode == Mode.CLIP:
            start = jnp.clip(start, 0, jnp.maximum(last, 0))
        x = take(x, start + places(counts, size), axis)
    found = jnp.squeeze(x, numbers.collapsed_slice_dims)
    if mode != Mode.FILL_OR_DROP:
        return found
    fill = p["fill_value"]
    if fill is None:
        fill = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else least(x.dtype)
        fill = greatest(x.dtype) if x.dtype.kind == "u" else fill
    return jnp.where(inside, found, jnp.full_like(found, fill))


_SCATTERS: dict[str, tuple[Any, Any]] = {
    "scatter": (lax.scatter, None),
    "scatter-add": (lax.scatter_add, lambda dtype: 0),
    "scatter-sub": (getattr(lax, "scatter_sub", None), lambda dtype: 0),
    "scatter-mul": (lax.scatter_mul, lambda dtype: 1),
    "scatter-min": (lax.scatter_min, greatest),
    "scatter-max": (lax.scatter_max, least),
}


@rule(*_SCATTERS, *[name.replace("-", "_") for name in _SCATTERS])
def _scatter(e: Equation, x: Any, indices: Any, updates: Any) -> Any:
    p = e.params
    numbers, mode = p["dimension_numbers"], Mode.from_any(p["mode"])
    function, neutral = _SCATTERS[e.name.replace("_", "-")]
    windows = _windows(e, numbers)
    indices = _bounded_indices(
        e, indices, numbers.scatter_dims_to_operand_dims, windows, mode == Mode.CLIP
    )
    if mode == Mode.CLIP:
        indices = _clipped(indices, numbers.scatter_dims_to_operand_dims, x.shape, windows, e)
    written = e.counts.valid(e.ins[1][:-1])  # the rows of indices that are meant
    if written is not None:
        indices = jnp.where(written[..., None], indices, jnp.asarray(_nowhere(indices.dtype)))
    counted = [i for i in numbers.update_window_dims if isinstance(e.ins[2][i], Dim)]
    if counted:
        axes = _window_axes(numbers, len(e.ins[0]))
        for i in counted:
            axis = axes[numbers.update_window_dims.index(i)]
            if neutral is None and e.ins[0][axis] is not e.ins[2][i]:
                e.refuse("writes windows of such a size")
        if neutral is not None:
            updates = e.counts.masked(updates, e.ins[2], neutral(updates.dtype))
    unique = p["unique_indices"] and written is None
    return function(
        x,
        indices,
        updates,
        numbers,
        unique_indices=unique,
        indices_are_sorted=False,
        mode=Mode.FILL_OR_DROP,
    )


def _window_axes(numbers: Any, rank: int) -> list[int]:
    """The axes of the operand that the window axes of the updates lie along."""
    gone = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    return [axis for axis in range(rank) if axis not in gone]


def _windows(e: Equation, numbers: Any) -> list[Any]:
    """How much of each axis of the operand one update covers."""
    sizes: list[Any] = [1] * len(e.ins[0])
    axes = _window_axes(numbers, len(sizes))
    for axis, i in zip(axes, numbers.update_window_dims, strict=True):
        sizes[axis] = e.ins[2][i]
    return sizes


def _clipped(
    indices: Any, axes: Sequence[int], shape: Sequence[int], windows: Sequence[Any], e: Equation
) -> Any:
    """Indices as clamping makes them, so that what is not meant can be dropped afterwards."""
    last = [max(shape[a] - e.counts.top(windows[a]), 0) for a in axes]
    return jnp.clip(indices, 0, jnp.asarray(last, indices.dtype))
