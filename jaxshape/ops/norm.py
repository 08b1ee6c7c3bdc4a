"""Layers that bring a tensor's elements to a common scale.

Every one of them keeps the shape of its input. Statistics of half types are taken in float32; a
variance is the mean of squared differences, not a difference of squares, which would cancel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import lax

from .._error import ShapeError
from .._facts import divisible
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims
from ._agree import onto, ranked, reshape, shaped, wide
from ._axes import axes_in, axis_in
from ._legacy import first_version
from ._static import dtype_of


def moments(x, axes: Sequence[int]):
    """Mean and population variance of x along axes, which stay with size 1."""
    xp, axes = namespace(x), tuple(axes)
    mean = xp.mean(x, axis=axes, keepdims=True)
    return mean, xp.mean(xp.square(x - mean), axis=axes, keepdims=True)


def _standard(x, axes, epsilon):
    """x with mean 0 and variance 1 along axes."""
    mean, var = moments(x, axes)
    return (x - mean) / namespace(x).sqrt(var + epsilon)


def _affine(y, scale, b=None):
    y = y * scale.astype(y.dtype)
    return y if b is None else y + b.astype(y.dtype)


def _per_channel(name, v, x):
    """v (C,) as it meets x (N, C, *D)."""
    c = hostdims(x.shape)[1]
    return reshape(shaped(name, v, (c,)), (c, *(1,) * (x.ndim - 2)))


def _stash(stash_type, x):
    """The dtype asked for the first stage, and that to compute in: never narrower than the data."""
    if stash_type not in (1, 10, 11, 16):
        raise ShapeError(f"stash_type is {stash_type}, wants 1, 10, 11 or 16, a float type")
    asked = dtype_of(stash_type)
    return asked, wide(asked, x.dtype)


@op("InstanceNormalization", since=6, host=True)
def instance_norm(x, scale, b, /, *, epsilon=1e-5):
    """Normalise x (N, C, *D) over D, times scale (C,), plus b (C,) -> as x."""
    ranked("input", hostdims(x.shape), least=2)
    y = _standard(x.astype(wide(x.dtype)), range(2, x.ndim), epsilon)
    return _affine(y, _per_channel("scale", scale, x), _per_channel("B", b, x)).astype(x.dtype)


first_version(instance_norm)


def _grouped(x, num_groups, epsilon, dtype):
    """x (N, C, *D) as (N, G, C/G, *D), normalised over all but N and G."""
    ranked("X", hostdims(x.shape), least=2)
    if num_groups < 1:
        raise ShapeError(f"num_groups is {num_groups}, wants at least 1")
    n, c, *space = hostdims(x.shape)
    divisible(c, num_groups, f"{c} channels in num_groups = {num_groups}")
    each = c // num_groups
    data = reshape(fit(x, (n, num_groups * each, *space)), (n, num_groups, each, *space))
    return _standard(data.astype(dtype), range(2, data.ndim), epsilon)


def _ungrouped(y, x):
    n, groups, each, *space = hostdims(y.shape)
    return fit(reshape(y, (n, groups * each, *space)), hostdims(x.shape))


@op("GroupNormalization", since=18, host=True)
def group_norm_18(x, scale, bias, /, *, epsilon=1e-5, num_groups):
    """Normalise x (N, C, *D) by groups of channels, times scale (G,), plus bias (G,) -> as x."""
    y = _grouped(x, num_groups, epsilon, wide(x.dtype))
    view = (num_groups, *(1,) * (y.ndim - 2))
    scale, bias = (
        shaped(name, v, (num_groups,)).reshape(view)
        for name, v in (("scale", scale), ("bias", bias))
    )
    return _ungrouped(_affine(y, scale, bias), x).astype(x.dtype)


@op("GroupNormalization", since=21, host=True, dtypes=("stash_type",))
def group_norm_21(x, scale, bias, /, *, epsilon=1e-5, num_groups, stash_type=1):
    """Normalise x (N, C, *D) by groups of channels, times scale (C,), plus bias (C,) -> as x."""
    y = _ungrouped(_grouped(x, num_groups, epsilon, _stash(stash_type, x)[1]), x)
    scale, bias = _per_channel("scale", scale, x), _per_channel("bias", bias, x)
    return _affine(y, scale, bias).astype(x.dtype)


@op("LayerNormalization", since=17, host=True, dtypes=("stash_type",))
def layer_norm(x, scale, b=None, /, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Normalise x (*A, *B) over B, from `axis` on -> as x, mean and 1/deviation (*A, 1, ...)."""
    start, (asked, dtype) = axis_in(axis, x.ndim), _stash(stash_type, x)
    data = x.astype(dtype)
    mean, var = moments(data, range(start, x.ndim))
    inverse = 1 / namespace(data).sqrt(var + epsilon)
    scale = onto("Scale", scale, x.shape)
    b = None if b is None else onto("B", b, x.shape)
    y = _affine((data - mean) * inverse, scale, b)
    return y.astype(x.dtype), mean.astype(asked), inverse.astype(asked)


@op("RMSNormalization", since=23, host=True, dtypes=("stash_type",))
def rms_norm(x, scale, /, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Divide x (*A, *B) by its root mean square over B, from `axis` on -> as x, scale's dtype."""
    start, dtype = axis_in(axis, x.ndim), _stash(stash_type, x)[1]
    xp, data = namespace(x, scale), x.astype(dtype)
    square = xp.mean(xp.square(data), axis=tuple(range(start, x.ndim)), keepdims=True)
    y = data / xp.sqrt(square + epsilon)
    return _affine(y, onto("scale", scale, x.shape)).astype(scale.dtype)


@op("LpNormalization", since=1, host=True)
def lp_norm(x, /, *, axis=-1, p=2):
    """Divide x by its 1- or 2-norm along axis -> as x; 0 where the norm is 0."""
    if p not in (1, 2):
        raise ShapeError(f"p is {p}, wants 1 or 2")
    axis = axis_in(axis, x.ndim)
    xp, data = namespace(x), x.astype(wide(x.dtype))
    norm = xp.sum(xp.abs(data) if p == 1 else xp.square(data), axis=axis, keepdims=True)
    none = norm == 0
    norm = xp.where(none, 1, norm)  # inside the root: its slope at 0 has no bound
    return xp.where(none, 0, data / (norm if p == 1 else xp.sqrt(norm))).astype(x.dtype)


@op("MeanVarianceNormalization", since=9, host=True)
def mvn_9(x, /, *, axes=(0, 2, 3)):
    """Bring x to mean 0 and deviation 1 along axes -> as x."""
    data = x.astype(wide(x.dtype))
    mean, var = moments(data, axes_in(axes, x.ndim))
    return ((data - mean) / (namespace(data).sqrt(var) + 1e-9)).astype(x.dtype)


@op("MeanVarianceNormalization", since=1, host=True)
def mvn_1(x, /, *, across_channels=0, normalize_variance=1):
    """Bring x (N, C, *D) to mean 0, and deviation 1 on request, over D and maybe C -> as x."""
    # experimental before opset 9; each sample by itself
    ranked("X", hostdims(x.shape), least=2)
    data = x.astype(wide(x.dtype))
    mean, var = moments(data, range(1 if across_channels else 2, x.ndim))
    y = data - mean
    return (y / (namespace(y).sqrt(var) + 1e-9) if normalize_variance else y).astype(x.dtype)


@op("LRN", since=1, host=True)
def lrn(x, /, *, alpha=1e-4, beta=0.75, bias=1.0, size):
    """Divide x (N, C, *D) by (bias + alpha/size * squares of channels around) ** beta -> as x."""
    ranked("X", hostdims(x.shape), least=2)
    if size < 1:
        raise ShapeError(f"size is {size}, wants at least 1")
    data = x.astype(wide(x.dtype))
    around = _window_sum(namespace(x).square(data), (size - 1) // 2, size // 2)
    return (data / (bias + (alpha / size) * around) ** beta).astype(x.dtype)


def _window_sum(x, before, after):
    """Sums over axis 1 from `before` in front of each element to `after` behind; outside is 0."""
    c = x.shape[1]
    if isinstance(c, int):  # no window is longer than what there is
        before, after = min(before, c), min(after, c)
    if c == 0:
        return x
    if namespace(x) is np:
        padded = np.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, before + after + 1, axis=1)
        return windows.sum(-1)
    rest = (1,) * (x.ndim - 2)
    window, pads = (1, before + after + 1, *rest), ((0, 0), (before, after), *[(0, 0)] * len(rest))
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, window, (1,) * x.ndim, pads)
