"""Unique in JAX, where how many there are may be a symbol."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .._device import canonical
from .._facts import at_least
from .._symbol import hostdims
from ._nonzero import nonzero


def unique_in_jax(x: Any, axis: int, ascending: bool) -> tuple[Any, Any, Any, Any]:
    """The different slices of x (*A, n, *B) on axis -> (*A, count, *B), the first place of each
    (count,), which one each is (n,), how often each occurs (count,); in order of places unless
    `ascending`.
    """
    int64 = canonical("int64")
    rows = jnp.moveaxis(x, axis, 0)
    rows = rows if x.ndim == 1 else rows.reshape(rows.shape[0], -1)
    order = _order(rows).astype(int64)
    arranged = jnp.take(rows, order, 0, mode="clip")
    before = jnp.roll(arranged, 1, 0)
    differs = (arranged != before) & ~((arranged != arranged) & (before != before))
    differs = differs if x.ndim == 1 else jnp.any(differs, 1)
    place = lax.iota(int64, rows.shape[0])
    begins = differs | (place == 0)
    some = at_least(hostdims(rows.shape[:1])[0], 1)
    (starts,) = nonzero(begins, least=int(bool(some)))
    number = jnp.cumsum(begins, dtype=int64) - 1  # of the group, in the order of values
    which = jnp.zeros_like(place).at[order].set(number)
    first = jnp.take(order, starts, mode="clip")
    if not ascending:
        by_place = jnp.argsort(first).astype(int64)
        rank = jnp.zeros_like(by_place).at[by_place].set(lax.iota(int64, by_place.shape[0]))
        first, which = jnp.take(first, by_place, mode="clip"), jnp.take(rank, which, mode="clip")
    counts = jnp.zeros_like(first).at[which].add(1)
    return jnp.take(x, first, axis, mode="clip"), first, which, counts


def _order(rows: Any) -> Any:
    """The order in which rows (n,) or (n, m) ascend, the first column counting most."""
    if rows.ndim == 1:
        return jnp.argsort(rows, stable=True)
    start = lax.iota(canonical("int64"), rows.shape[0])

    def by_column(order: Any, column: Any) -> Any:
        again = jnp.argsort(jnp.take(column, order, mode="clip"), stable=True)
        return jnp.take(order, again, mode="clip"), None

    return lax.scan(by_column, start, rows.T, reverse=True)[0]
