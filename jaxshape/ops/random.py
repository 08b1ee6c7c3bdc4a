"""Random tensors: normal, uniform, Bernoulli, multinomial.

Reproducible: a `seed` gives the same stream at each run, on every device. A node without one takes
the next key of the stream under way (`_random.py`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._op import op
from .._random import next_key, note_draw
from .._value import TensorType
from ._agree import ranked, wide
from ._static import dtype_of


def key_of(seed: float | None) -> Any:
    """The key of a node: from its seed, bit by bit, or the next one of the stream."""
    if seed is not None:
        note_draw()
        return jax.random.key(int(np.float32(seed).view(np.uint32)))
    return next_key()


def floating(code: int | None, default: Any = None) -> np.dtype:
    dtype = canonical(dtype_of(code, default))
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ShapeError(f"dtype is {dtype}, wants a floating-point type")
    return dtype


def checked(shape: tuple[int, ...]) -> tuple[int, ...]:
    if any(d < 0 for d in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative size")
    return shape


def normal(shape: Any, dtype: np.dtype, mean: float, scale: float, seed: float | None) -> Any:
    return jax.random.normal(key_of(seed), shape, dtype) * scale + mean


def uniform(shape: Any, dtype: np.dtype, low: float, high: float, seed: float | None) -> Any:
    return jax.random.uniform(key_of(seed), shape, dtype) * (high - low) + low


@op("RandomNormal", since=1, random=True, dtypes=("dtype",))
def random_normal(*, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    """Draw from the normal distribution of a mean and a standard deviation -> (*shape)."""
    return normal(checked(shape), floating(dtype), mean, scale, seed)


@op("RandomUniform", since=1, random=True, dtypes=("dtype",))
def random_uniform(*, dtype=1, high=1.0, low=0.0, seed=None, shape):
    """Draw uniformly from low to high -> (*shape)."""
    return uniform(checked(shape), floating(dtype), low, high, seed)


@op("RandomNormalLike", since=1, elementwise=True, random=True, dtypes=("dtype",))
def random_normal_like(input, /, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    """Draw from the normal distribution -> the shape of input (*D), its dtype unless said."""
    return normal(input.shape, floating(dtype, input.dtype), mean, scale, seed)


@op("RandomUniformLike", since=1, elementwise=True, random=True, dtypes=("dtype",))
def random_uniform_like(input, /, *, dtype=None, high=1.0, low=0.0, seed=None):
    """Draw uniformly from low to high -> the shape of input (*D), its dtype unless said."""
    return uniform(input.shape, floating(dtype, input.dtype), low, high, seed)


@op("Bernoulli", since=15, elementwise=True, random=True, dtypes=("dtype",))
def bernoulli(input, /, *, dtype=None, seed=None):
    """Draw 1 with the probabilities input (*D), else 0 -> (*D)."""
    p = input.astype(wide(input.dtype))  # 16 bits would round the draws
    draws = jax.random.uniform(key_of(seed), input.shape, p.dtype)
    return (draws < p).astype(canonical(dtype_of(dtype, input.dtype)))


@op("Multinomial", since=7, random=True, dtypes=("dtype",))
def multinomial(input, /, *, dtype=6, sample_size=1, seed=None):
    """Draw classes by unnormalised log-probabilities input (N, C) -> (N, sample_size)."""
    ranked("input", input.shape, 2)
    logits = input.astype(wide(input.dtype))[:, None]
    draws = jax.random.categorical(
        key_of(seed), logits, shape=(input.shape[0], *checked((sample_size,)))
    )
    return draws.astype(canonical(dtype_of(dtype)))


# because the rank is 2 even where it is not known yet
@multinomial.shape_rule(rankless=True)
def _(input, /, *, dtype=6, sample_size=1, seed=None):
    ranked("input", input.shape, 2)
    rows = None if input.shape is None else input.shape[0]
    return TensorType(dtype_of(dtype), (rows, *checked((sample_size,))))
