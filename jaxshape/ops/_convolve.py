"""How convolutions are computed, on each platform as it does them best.

XLA's CPU backend convolves every channel by itself (depthwise) tens of times slower than it adds up
shifted copies, and a window of one element slower than it multiplies matrices. Which form is taken
is decided where the function is lowered, so that it holds under `jit`, `grad`, `vmap` and export.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._counts import counting
from ._window import Pads, exported_pads

TAPS = 64  # elements of a window: up to here each becomes a step of its own


def convolve(
    x: Any,
    w: Any,
    pads: Pads,
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    spacing: Sequence[int] | None = None,
) -> Any:
    """Convolve x (N, C, *D), its elements set apart by `spacing` and padded, with
    w (M, C/group, *K) -> (N, M, *D').
    """
    pads = exported_pads(pads)
    numbers = all(isinstance(n, int) for sizes in (*pads, x.shape, w.shape) for n in sizes)
    if spacing or not numbers or counting() is not None or x.dtype not in (np.float32, np.float64):
        return _general(x, w, pads, group, strides, dilations, spacing)
    kernel = w.shape[2:]
    how = functools.partial(_general, pads=pads, group=group, strides=strides, dilations=dilations)
    if group == x.shape[1] > 1 and 1 < math.prod(kernel) <= TAPS:
        cpu = functools.partial(_depthwise, pads=pads, strides=strides, dilations=dilations)
    elif group == 1 and math.prod(kernel) == 1:
        cpu = functools.partial(_pointwise, pads=pads, strides=strides)
    else:
        return how(x, w)
    try:
        return lax.platform_dependent(x, w, cpu=cpu, default=how)
    except TypeError:  # on an explicit mesh, where the two forms are sharded in different ways
        return how(x, w)


def _general(
    x: Any, w: Any, pads: Any, group: int, strides: Any, dilations: Any, spacing: Any = None
) -> Any:
    if not all(isinstance(n, int) and n >= 0 for pair in pads for n in pair):
        # JAX wants numbers here, and XLA's CPU backend errs where one is negative; lax.pad does not
        x = _padded(x, pads, spacing)
        pads, spacing = [(0, 0)] * len(pads), None
    return lax.conv_general_dilated(
        x,
        w,
        strides,
        pads,
        lhs_dilation=spacing,
        rhs_dilation=dilations,
        feature_group_count=group,
    )


def _padded(x: Any, pads: Any, spacing: Any = None) -> Any:
    gaps = [s - 1 for s in spacing or (1,) * len(pads)]
    around = [(*pair, gap) for pair, gap in zip(pads, gaps, strict=True)]
    return lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *around])


def _seen(x: Any, taps: Sequence[int], sizes: Sequence[int], strides: Any, dilations: Any) -> Any:
    """What one element of the window sees of a padded x (N, C, *D) -> (N, C, *D')."""
    starts = [t * d for t, d in zip(taps, dilations, strict=True)]
    limits = [a + s * (n - 1) + 1 for a, s, n in zip(starts, strides, sizes, strict=True)]
    n, c, *_ = x.shape
    return lax.slice(x, (0, 0, *starts), (n, c, *limits), (1, 1, *strides))


def _depthwise(x: Any, w: Any, pads: Any, strides: Any, dilations: Any) -> Any:
    """The sum of shifted copies of x (N, C, *D), each times its element of w (C*m, 1, *K)."""
    x = _padded(x, pads)
    n, c, *space = x.shape
    kernel = w.shape[2:]
    sizes = [
        (d - (k - 1) * apart - 1) // s + 1
        for d, k, s, apart in zip(space, kernel, strides, dilations, strict=True)
    ]
    factor = w.shape[0] // c
    w = w.reshape(c, factor, *kernel)
    terms = [
        _seen(x, taps, sizes, strides, dilations)[:, :, None]
        * w[(..., *taps)].reshape(c, factor, *(1,) * len(space))
        for taps in itertools.product(*map(range, kernel))
    ]
    return functools.reduce(operator.add, terms).reshape(n, c * factor, *sizes)


def _pointwise(x: Any, w: Any, pads: Any, strides: Any) -> Any:
    """A window of one element is a matrix for each place."""
    x = _padded(x, pads)
    x = lax.slice(x, (0,) * x.ndim, x.shape, (1, 1, *strides))
    n, c, *space = x.shape
    y = jnp.einsum("oc,ncp->nop", w.reshape(-1, c), x.reshape(n, c, math.prod(space)))
    return y.reshape(n, w.shape[0], *space)
