"""Rules for primitives that move entries about, where sizes are counts.

Where a size or a place is a count, the result's entry i is looked up at the place it comes from, by
`take`; so the parts of a concatenation, the rows of a view stand next to each other whatever the
bounds are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ._counts import Counts
from ._device import canonical
from ._dim import Dim, product
from ._masked import Equation, rule
from ._symbol import from_export


def places(counts: Counts, size: Any) -> Any:
    """0, 1, ... up to the bound of a size."""
    return lax.iota(canonical("int64"), counts.top(size))


def take(x: Any, index: Any, axis: int) -> Any:
    """The entries of x at some places along an axis, those outside clamped."""
    if x.shape[axis] == 0:  # nothing is meant then
        return jnp.zeros((*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]), x.dtype)
    return jnp.take(x, index, axis, mode="clip")


@rule("transpose")
def _transpose(e: Equation, x: Any) -> Any:
    return e.bind(x)


@rule("squeeze")
def _squeeze(e: Equation, x: Any) -> Any:
    return lax.squeeze(x, e.params["dimensions"])


@rule("broadcast_in_dim")
def _broadcast_in_dim(e: Equation, x: Any, *_: Any) -> Any:
    where = e.params["broadcast_dimensions"]
    out = e.outs[0]
    own = [
        d if isinstance(d, int) and d == 1 else out[i] for d, i in zip(e.ins[0], where, strict=True)
    ]
    return lax.broadcast_in_dim(e.counts.conform(x, own), e.counts.tops_of(out), where)


# views ------------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(e: Equation, x: Any, *_: Any) -> Any:
    if e.params.get("dimensions") is not None:
        e.refuse("is in an order of axes")
    return view(e.counts, x, e.ins[0], e.outs[0])


def view(counts: Counts, x: Any, own: Sequence[Any], dims: Sequence[Any]) -> Any:
    """An array of sizes `own` under other sizes of the same product, in row-major order."""
    if _contiguous(counts, own, dims):
        return jnp.reshape(x, counts.tops_of(dims))
    if 0 in x.shape:
        return jnp.zeros(counts.tops_of(dims), x.dtype)
    place: Any = 0  # of each entry of the result, in row-major order
    for axis, d in enumerate(dims):
        along = lax.broadcasted_iota(canonical("int64"), counts.tops_of(dims), axis)
        place = place * counts.size(d) + along
    flat: Any = 0  # where it lies in the memory of x
    for axis in reversed(range(len(own))):
        size = jnp.maximum(counts.size(own[axis]), 1)
        flat = flat + place % size * int(np.prod(x.shape[axis + 1 :]))
        place = place // size
    flat = jnp.broadcast_to(flat, counts.tops_of(dims))
    return jnp.take(jnp.reshape(x, -1), flat, mode="clip")


def _contiguous(counts: Counts, own: Sequence[Any], dims: Sequence[Any]) -> bool:
    """Whether the meant entries keep their order at the bounds: axes regroup, and in each group
    only the first is a count.
    """
    left, right = [d for d in own if d != 1], [d for d in dims if d != 1]
    while left or right:
        a, b = [left.pop(0)] if left else [], [right.pop(0)] if right else []
        while product(a) is not product(b) and product(a) != product(b):
            more = left if len(a) <= len(b) and left or not right else right
            if not more:
                return False
            (a if more is left else b).append(more.pop(0))
        if any(isinstance(d, Dim) for d in (*a[1:], *b[1:])):
            return False
        if np.prod(counts.tops_of(a)) != np.prod(counts.tops_of(b)):
            return False
    return True


# windows ----------------------------------------------------------------------------------------


@rule("slice")
def _slice(e: Equation, x: Any, *_: Any) -> Any:
    starts = e.params["start_indices"]
    strides = e.params["strides"] or (1,) * len(starts)
    for axis, (start, step) in enumerate(zip(starts, strides, strict=True)):
        x = window(e.counts, x, axis, from_export(start), e.outs[0][axis], step)
    return x


def window(counts: Counts, x: Any, axis: int, start: Any, size: Any, step: Any = 1) -> Any:
    """Along an axis the `size` entries from `start` on."""
    most = counts.top(size)
    if isinstance(start, int) and isinstance(step, int):
        stop = start + (most - 1) * step + 1 if most else start
        if stop <= x.shape[axis]:
            return lax.slice_in_dim(x, start, stop, step, axis)
    begin = counts.number(start) if isinstance(start, Dim) else start
    return take(x, begin + places(counts, size) * step, axis)


@rule("split")
def _split(e: Equation, x: Any) -> list[Any]:
    axis, parts, start = e.params["axis"], [], 0
    for dims in e.outs:
        parts.append(window(e.counts, x, axis, start, dims[axis]))
        start = start + dims[axis]
    return parts


@rule("dynamic_slice")
def _dynamic_slice(e: Equation, x: Any, *starts: Any) -> Any:
    for axis, (n, size) in enumerate(zip(e.ins[0], e.outs[0], strict=True)):
        if n is not size and n != size:
            start = _within(e, starts[axis], n, size)
            x = take(x, start + places(e.counts, size), axis)
    return x


@rule("dynamic_update_slice")
def _dynamic_update_slice(e: Equation, x: Any, update: Any, *starts: Any) -> Any:
    inside: Any = True
    for axis, (n, size) in enumerate(zip(e.ins[0], e.ins[1], strict=True)):
        place = places(e.counts, n) - _within(e, starts[axis], n, size)
        update = take(update, place, axis)
        here = (place >= 0) & (place < e.counts.size(size))
        inside = inside & jnp.reshape(here, [-1 if i == axis else 1 for i in range(x.ndim)])
    return jnp.where(inside, update, x)


def _within(e: Equation, start: Any, n: Any, size: Any) -> Any:
    """Where a window begins that has to lie inside of an axis."""
    start = jnp.asarray(start).astype(canonical("int64"))
    return jnp.clip(start, 0, jnp.maximum(e.counts.size(n) - e.counts.size(size), 0))


@rule("rev")
def _rev(e: Equation, x: Any) -> Any:
    for axis in e.params["dimensions"]:
        n = e.ins[0][axis]
        x = take(x, e.counts.size(n) - 1 - places(e.counts, n), axis)
    return x


@rule("concatenate")
def _concatenate(e: Equation, *parts: Any) -> Any:
    axis, out = e.params["dimension"], e.outs[0]
    own = [dims[axis] for dims in e.ins]
    parts = tuple(
        e.counts.conform(x, (*out[:axis], d, *out[axis + 1 :]))
        for x, d in zip(parts, own, strict=True)
    )
    joined = jnp.concatenate(parts, axis)
    if any(isinstance(d, Dim) for d in own[:-1]):
        joined, start = jnp.zeros_like(joined), 0  # with room for all at their bounds
        for x, d in zip(parts, own, strict=True):  # each part over the zeros after the one before
            joined = lax.dynamic_update_slice_in_dim(joined, x, e.counts.size(start), axis)
            start = start + d
    return e.counts.conform(joined, out)


@rule("stack")
def _stack(e: Equation, *parts: Any) -> Any:
    dims = [d for i, d in enumerate(e.outs[0]) if i != e.params["axis"]]
    return jnp.stack([e.counts.conform(x, dims) for x in parts], e.params["axis"])


@rule("unstack")
def _unstack(e: Equation, x: Any) -> Any:
    return e.bind(x)


@rule("tile")
def _tile(e: Equation, x: Any) -> Any:
    for axis, (n, out) in enumerate(zip(e.ins[0], e.outs[0], strict=True)):
        if n is not out and n != out:
            x = take(x, places(e.counts, out) % jnp.maximum(e.counts.size(n), 1), axis)
    return x


@rule("pad")
def _pad(e: Equation, x: Any, value: Any) -> Any:
    out, inside = e.outs[0], None
    for axis, (low, _, inner) in enumerate(e.params["padding_config"]):
        n = e.ins[0][axis]
        if n is out[axis] or n == out[axis]:
            continue
        place = places(e.counts, out[axis]) - e.counts.number(from_export(low))
        step = e.counts.number(from_export(inner)) + 1
        here = (place >= 0) & (place % step == 0) & (place // step < e.counts.size(n))
        x = take(x, place // step, axis)
        here = jnp.reshape(here, [-1 if i == axis else 1 for i in range(x.ndim)])
        inside = here if inside is None else inside & here
    if inside is None:
        return x
    spread = e.counts.masked(jnp.broadcast_to(value, e.counts.tops_of(out)), out)
    return jnp.where(inside, x, spread)
