"""BatchNormalization in its six versions: one act, of which each version hands out other results.

Up to opset 9 the results are Y alone (test) or five (training), told apart by is_test and then by
their number. From opset 14 they are Y alone or three, and the attribute training_mode decides.
"""

from __future__ import annotations

from .._error import ShapeError
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from ._agree import ranked, reshape, shaped, wide
from .norm import moments


def _outputs(n_outputs, training):
    """Refuse a number of outputs that a version does not have in use (1) or in training."""
    if n_outputs not in (1, training):
        raise ShapeError(f"gives 1 or {training} outputs, {n_outputs} are wanted")


def _batchnorm(x, scale, b, mean, var, epsilon, momentum, training, spatial=1):
    """y as x; then (C,), or (C, *D) if not spatial: mean and var, running and of this batch."""
    xp = namespace(x, scale, b, mean, var)
    ranked("X", hostdims(x.shape), least=1)
    sizes = hostdims(x.shape)[1:] or (1,)  # a vector is one channel
    feature = sizes[:1] if spatial else sizes
    view = (*feature, *(1,) * (len(sizes) - len(feature)))
    dtype, kept = wide(x.dtype, mean.dtype), (mean.dtype, var.dtype)

    def parameter(name, value):
        return reshape(shaped(name, value, feature).astype(dtype), view)

    scale, b = parameter("scale", scale), parameter("B", b)
    mean, var = parameter("mean", mean), parameter("var", var)
    data, now, spread = x.astype(dtype), mean, var
    if training:
        axes = [a for a in range(x.ndim) if a != 1] if spatial else [0]
        now, spread = (reshape(m, view) for m in moments(data, axes))
        mean = mean * momentum + now * (1 - momentum)
        var = var * momentum + spread * (1 - momentum)
    y = (data - now) / xp.sqrt(spread + epsilon) * scale + b
    stats = zip((mean, var, now, spread), kept * 2, strict=True)
    return y.astype(x.dtype), *(reshape(s, feature).astype(d) for s, d in stats)


@op("BatchNormalization", since=1, host=True)
def batchnorm_1(
    x, scale, b, mean, var, /, *, consumed_inputs, epsilon=1e-5, is_test=0, momentum=0.9, spatial=1,
    n_outputs=1,
):  # fmt: skip
    """Normalise x (N, C, *D) over all but C -> y, running mean, var (C,), batch mean, var (C,)."""
    _outputs(n_outputs, 5)
    return _batchnorm(x, scale, b, mean, var, epsilon, momentum, not is_test, spatial)


@op("BatchNormalization", since=6, host=True)
def batchnorm_6(
    x, scale, b, mean, var, /, *, epsilon=1e-5, is_test=0, momentum=0.9, spatial=1, n_outputs=1
):
    """Normalise x (N, C, *D) over all but C -> y, running mean, var (C,), batch mean, var (C,)."""
    _outputs(n_outputs, 5)
    return _batchnorm(x, scale, b, mean, var, epsilon, momentum, not is_test, spatial)


@op("BatchNormalization", since=7, host=True)
def batchnorm_7(x, scale, b, mean, var, /, *, epsilon=1e-5, momentum=0.9, spatial=1, n_outputs=1):
    """Normalise x (N, C, *D) by mean, var (C,) -> y; by the batch's where five are wanted."""
    _outputs(n_outputs, 5)
    return _batchnorm(x, scale, b, mean, var, epsilon, momentum, n_outputs > 1, spatial)


@op("BatchNormalization", since=9, host=True)
def batchnorm_9(x, scale, b, mean, var, /, *, epsilon=1e-5, momentum=0.9, n_outputs=1):
    """Normalise x (N, C, *D) by mean, var (C,) -> y; by the batch's where five are wanted."""
    _outputs(n_outputs, 5)
    return _batchnorm(x, scale, b, mean, var, epsilon, momentum, n_outputs > 1)


@op("BatchNormalization", since=14, host=True)
def batchnorm_14(
    x, scale, b, mean, var, /, *, epsilon=1e-5, momentum=0.9, training_mode=0, n_outputs=1
):
    """Normalise x (N, C, *D) by mean, var (C,) -> y; in training by the batch's -> y, mean, var."""
    if n_outputs > 1 and not training_mode:
        raise ShapeError(f"gives 1 output where training_mode is 0, {n_outputs} are wanted")
    _outputs(n_outputs, 3)
    return _batchnorm(x, scale, b, mean, var, epsilon, momentum, training_mode)[:3]
