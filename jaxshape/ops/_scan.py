"""Carrying a state along the first axis of arrays: `lax.scan` on the device, a loop in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from .._host import namespace


def scan(
    step: Callable[[Any, tuple[Any, ...]], tuple[Any, Any]],
    state: tuple[Any, ...],
    xs: Sequence[Any],
    reverse: bool = False,
) -> tuple[tuple[Any, ...], Any]:
    """The last state, and the results of the steps stacked, also where they run in reverse."""
    xs = tuple(xs)
    if namespace(*xs, *state) is not np:
        return lax.scan(step, tuple(state), xs, reverse=reverse)
    length = len(xs[0])
    if not length:  # one step on zeros tells what a result looks like
        shape = step(state, tuple(np.zeros(x.shape[1:], x.dtype) for x in xs))[1]
        return state, np.zeros((0, *shape.shape), shape.dtype)
    results: list[Any] = [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        state, results[i] = step(state, tuple(x[i] for x in xs))
    return state, np.stack(results)
