"""Dropout in its seven versions.

Up to opset 6 the attribute is_test tells training from use, from 12 on the input training_mode;
between them nothing is ever dropped. With a seed the mask is the one that the standard's reference
draws, without one it comes from JAX; the same each time in both cases.
"""

from __future__ import annotations

import math

import jax
import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._facts import same
from .._host import is_host, namespace
from .._op import op
from .._random import next_key, note_draw
from .._value import TensorType
from ._agree import ranked, wide


def _drop(x, ratio, seed):
    """x with elements dropped by the chance ratio, the others scaled up; which were kept."""
    xp = namespace(x, ratio)
    kept = _uniform(xp, x.shape, seed) >= ratio
    dtype = wide(x.dtype)
    scale = 1 / (1 - ratio)
    scale = scale.astype(dtype) if hasattr(scale, "astype") else scale
    return xp.where(kept, x.astype(dtype) * scale, 0).astype(x.dtype), kept


def _uniform(xp, shape, seed):
    """Numbers in [0, 1) of float64, as the device has it."""
    if seed is None or not all(isinstance(d, int) for d in shape):
        drawn = jax.random.uniform(next_key(), shape)
        return xp.asarray(drawn).astype(canonical("float64"))
    note_draw()
    drawn = np.random.RandomState(seed % 2**32).uniform(size=shape)
    return drawn if xp is np else xp.asarray(drawn, canonical("float64"))


def _within(ratio):
    if not 0 <= ratio < 1:
        raise ShapeError(f"ratio is {ratio}, wants at least 0 and less than 1")
    return ratio


def _all(x, dtype):
    """What is kept where nothing is dropped: a mask of ones."""
    return namespace(x).ones(x.shape, dtype)


@op("Dropout", since=1, host=True)
def dropout_1(x, /, *, consumed_inputs=None, is_test=0, ratio=0.5):
    """Drop elements of x unless is_test -> as x, mask of x's shape and dtype."""
    return dropout_6(x, is_test=is_test, ratio=ratio)


@op("Dropout", since=6, host=True)
def dropout_6(x, /, *, is_test=0, ratio=0.5):
    """Drop elements of x unless is_test -> as x, mask of x's shape and dtype."""
    if is_test:
        return x, _all(x, x.dtype)
    y, kept = _drop(x, _within(ratio), None)
    return y, kept.astype(x.dtype)


@op("Dropout", since=7, host=True)
def dropout_7(x, /, *, ratio=0.5):
    """Give x back -> x, mask of ones of x's shape and dtype."""
    return x, _all(x, x.dtype)


@op("Dropout", since=10, host=True)
def dropout_10(x, /, *, ratio=0.5):
    """Give x back -> x, mask of True of x's shape."""
    return x, _all(x, bool)


@op("Dropout", since=12, host=True)
def dropout_12(x, ratio=None, training_mode=None, /, *, seed=None):
    """Drop elements of x by the chance ratio () where training_mode () -> as x, mask (bool)."""
    if training_mode is None or (is_host(training_mode) and not training_mode.item()):
        return x, _all(x, bool)
    if ratio is None:
        ratio = 0.5
    elif is_host(ratio):
        ratio = _within(float(ratio.item()))
    else:
        ratio = ratio.reshape(()).astype(canonical("float64"))
    y, kept = _drop(x, ratio, seed)
    if is_host(training_mode):
        return y, kept
    training, xp = training_mode.reshape(()), namespace(training_mode)
    return xp.where(training, y, x), ~training | kept


def _kept(dtype=None):
    """The rule of all versions: the mask has the data's shape, and this dtype or the data's."""

    def rule(x, ratio=None, training_mode=None, /, **_):
        for name, v in (("ratio", ratio), ("training_mode", training_mode)):
            if v is not None and v.shape is not None:
                ranked(name, v.shape, 0, 1)
                same(math.prod(v.shape), 1, f"{name} is one element")
        return x, TensorType(dtype or x.dtype, x.shape)

    return rule


# because a mask is drawn for sizes that are numbers, and nothing depends on the rank
for _version in (dropout_1, dropout_6, dropout_7):
    _version.shape_rule(_kept(), rankless=True)
for _version in (dropout_10, dropout_12):
    _version.shape_rule(_kept("bool"), rankless=True)
