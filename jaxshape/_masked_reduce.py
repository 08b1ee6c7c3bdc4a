"""Rules for primitives that combine entries along axes, where sizes are counts.

What lies beyond a count is set to what changes nothing: 0 in a sum, the least value in a maximum;
in a sort it comes last.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ._dim import Dim
from ._masked import Equation, rule


def least(dtype: Any) -> Any:
    """The least value of a dtype."""
    if jnp.issubdtype(dtype, jnp.floating):
        return -np.inf
    return False if dtype.kind == "b" else jnp.iinfo(dtype).min


def greatest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.inf
    return True if dtype.kind == "b" else jnp.iinfo(dtype).max


NEUTRAL: dict[str, Any] = {
    "reduce_sum": lambda dtype: 0,
    "reduce_prod": lambda dtype: 1,
    "reduce_max": least,
    "reduce_min": greatest,
    "reduce_and": lambda dtype: True if dtype.kind == "b" else -1,
    "reduce_or": lambda dtype: 0,
    "reduce_xor": lambda dtype: 0,
    "argmax": least,
    "argmin": greatest,
    "cumsum": lambda dtype: 0,
    "cumprod": lambda dtype: 1,
    "cummax": least,
    "cummin": greatest,
    "cumlogsumexp": least,
}


@rule(*NEUTRAL)
def _reduce(e: Equation, x: Any) -> Any:
    """The extremes first of all stand before what lies beyond, so that it is never found."""
    return e.bind(e.counts.masked(x, e.ins[0], NEUTRAL[e.name](x.dtype)))


@rule("sort")
def _sort(e: Equation, *operands: Any) -> list[Any]:
    """Whether an entry is meant is the first key."""
    axis, dims = e.params["dimension"], e.ins[0]
    if not isinstance(dims[axis], Dim):
        return e.bind(*operands)
    beyond = ~jnp.broadcast_to(
        e.counts.valid([d if i == axis else e.counts.top(d) for i, d in enumerate(dims)]),
        operands[0].shape,
    )
    keys = e.params["num_keys"] + 1
    return list(
        lax.sort(
            (beyond, *operands), dimension=axis, is_stable=e.params["is_stable"], num_keys=keys
        )[1:]
    )


@rule("top_k")
def _top_k(e: Equation, x: Any) -> list[Any]:
    axis = e.params.get("axis", -1) % x.ndim
    k = e.counts.top(e.outs[0][axis])
    x = e.counts.masked(x, e.ins[0], least(x.dtype))
    if k > x.shape[axis]:
        pads = [(0, k - x.shape[axis] if i == axis else 0) for i in range(x.ndim)]
        x = jnp.pad(x, pads, constant_values=least(x.dtype))
    return list(lax.top_k(x, k, axis=axis))


@rule("dot_general")
def _dot_general(e: Equation, a: Any, b: Any) -> Any:
    """The products of what lies beyond are 0 * 0; axes in common get one bound."""
    (contract_a, contract_b), (batch_a, batch_b) = e.params["dimension_numbers"]
    for i, j in zip((*contract_a, *batch_a), (*contract_b, *batch_b), strict=True):
        n = min(a.shape[i], b.shape[j])
        a, b = lax.slice_in_dim(a, 0, n, axis=i), lax.slice_in_dim(b, 0, n, axis=j)
    return e.bind(a, b)


# along other axes than the counted ----------------------------------------------------------------


@rule("conv_general_dilated")
def _convolve(e: Equation, x: Any, w: Any) -> Any:
    numbers = e.params["dimension_numbers"]
    if set(e.counted(0)) - {numbers.lhs_spec[0]} or e.counted(1):
        e.refuse("is along them")
    return e.bind(x, w)


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min", "reduce_window")
def _pool(e: Equation, *args: Any) -> Any:
    for i in e.counted(0):
        p = e.params
        if p["window_dimensions"][i] != 1 or p["window_strides"][i] != 1 or any(p["padding"][i]):
            e.refuse("is along them")
    return e.bind(*args)


@rule("cholesky", "triangular_solve", "lu", "lu_pivots_to_permutation", "eigh", "qr", "svd")
def _matrices(e: Equation, *args: Any) -> Any:
    """Each matrix by itself."""
    if any(i >= len(e.ins[k]) - 2 for k in range(len(args)) for i in e.counted(k)):
        e.refuse("is along them")
    return e.bind(*args)


@rule("fft")
def _fft(e: Equation, x: Any) -> Any:
    if any(i >= len(e.ins[0]) - len(e.params["fft_lengths"]) for i in e.counted(0)):
        e.refuse("is along them")
    return e.bind(x)
