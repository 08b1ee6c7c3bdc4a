"""Activations: functions of one element, and the softmax family along axes.

Each formula is written so that no branch overflows: JAX differentiates both sides of a `where`, and
NumPy warns. 16-bit floats are computed in float32 throughout. Defaults are float32 numbers, as all
attributes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._facts import same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import written
from ._legacy import first_version
from ._numeric import below_top, is_empty, is_float, one_dtype, widened
from ._static import axis_of
from .elementwise import erf

# of one element -----------------------------------------------------------------------------------


@op("Relu", since=6, host=True, elementwise=True)
def relu(x, /):
    """Set negative elements to 0; x (*D) -> (*D)."""
    return np.maximum(x, x.dtype.type(0)) if namespace(x) is np else jax.nn.relu(x)


@op("LeakyRelu", since=6, host=True, elementwise=True)
@widened
def leaky_relu(x, /, *, alpha=0.009999999776482582):
    """Scale negative elements by alpha; x (*D) -> (*D)."""
    return namespace(x).where(x < 0, alpha * x, x)


@op("ThresholdedRelu", since=10, host=True, elementwise=True)
@widened
def thresholded_relu(x, /, *, alpha=1.0):
    """Keep elements above alpha, set the others to 0; x (*D) -> (*D)."""
    xp = namespace(x)
    return xp.where(x > alpha, x, xp.zeros_like(x))


@op("PRelu", since=7, host=True)
def prelu_7(x, slope, /):
    """Scale negative elements by slope, which broadcasts to x; x (*D) -> (*D)."""
    _check_slope(hostdims(x.shape), hostdims(slope.shape))
    one_dtype(x, slope)
    return namespace(x, slope).where(x < 0, slope * x, x)


@op("PRelu", since=6, host=True)
def prelu_6(x, slope, /):
    """Scale negative elements by slope () or (C,); x (N, C, *D) -> (N, C, *D)."""
    if slope.ndim == 1 and x.ndim > 1:
        slope = namespace(slope).expand_dims(slope, tuple(range(1, x.ndim - 1)))
    return prelu_7(x, slope)


def _check_slope(x: Sequence[Any], slope: Sequence[Any]) -> None:
    """Slope fits into x, one way: where it is not 1 it has the size of x."""
    if len(slope) > len(x):
        raise ShapeError(f"slope {written(slope)} has more axes than x {written(x)}")
    for d, s in zip(reversed(x), reversed(slope), strict=False):
        if isinstance(s, int) and s != 1:  # a size that may be 1 demands nothing
            same(d, s, f"x {written(x)} and slope {written(slope)}")


@prelu_7.shape_rule  # because slope broadcasts to x but not x to slope, whatever its sizes are
def _(x, slope, /):
    _check_slope(x.shape, slope.shape)
    return TensorType(x.dtype, x.shape)


@prelu_6.shape_rule  # as in opset 7
def _(x, slope, /):
    if len(slope.shape) == 1 and len(x.shape) > 1:
        _check_slope(x.shape[:2], slope.shape)
    else:
        _check_slope(x.shape, slope.shape)
    return TensorType(x.dtype, x.shape)


@op("Elu", since=6, host=True, elementwise=True)
@widened
def elu(x, /, *, alpha=1.0):
    """Bend negative elements to alpha (exp x - 1); x (*D) -> (*D)."""
    xp = namespace(x)
    return xp.where(x < 0, alpha * xp.expm1(xp.minimum(x, 0)), x)


@op("Selu", since=6, host=True, elementwise=True)
@widened
def selu(x, /, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    """Scale Elu by gamma; x (*D) -> (*D)."""
    return gamma * elu(x, alpha=alpha)


@op("Selu", since=1, host=True, elementwise=True)
def selu_1(x, /, *, alpha=1.673200011253357, gamma=1.0506999492645264, consumed_inputs=None):
    """Scale Elu by gamma; x (*D) -> (*D)."""
    return selu(x, alpha=alpha, gamma=gamma)


@op("Celu", since=12, host=True, elementwise=True)
@widened
def celu(x, /, *, alpha=1.0):
    """Bend negative elements to alpha (exp(x / alpha) - 1); x (*D) -> (*D)."""
    xp = namespace(x)
    return xp.where(x < 0, alpha * xp.expm1(xp.minimum(x, 0) / alpha), x)


@op("Gelu", since=20, host=True, elementwise=True)
@widened
def gelu(x, /, *, approximate="none"):
    """Multiply x by the normal distribution at x, or by its tanh approximation; x (*D) -> (*D)."""
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"approximate is {approximate!r}, wants none or tanh")
    if approximate == "none":
        return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + namespace(x).tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


@op("Sigmoid", since=6, host=True, elementwise=True)
@widened
def sigmoid(x, /):
    """Compute 1 / (1 + exp(-x)); x (*D) -> (*D)."""
    if namespace(x) is not np:
        return jax.nn.sigmoid(x)
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@op("HardSigmoid", since=6, host=True, elementwise=True)
@widened
def hard_sigmoid(x, /, *, alpha=0.20000000298023224, beta=0.5):
    """Clip alpha x + beta to [0, 1]; x (*D) -> (*D)."""
    return namespace(x).clip(alpha * x + beta, 0, 1)


@op("HardSwish", since=14, host=True, elementwise=True)
@widened
def hard_swish(x, /):
    """Multiply x by HardSigmoid of slope 1/6; x (*D) -> (*D)."""
    return x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@op("Softplus", since=1, host=True, elementwise=True)
@widened
def softplus(x, /):
    """Compute log(1 + exp x); x (*D) -> (*D)."""
    xp = namespace(x)
    return xp.logaddexp(x, xp.zeros_like(x))


@op("Softsign", since=1, host=True, elementwise=True)
@widened
def softsign(x, /):
    """Compute x / (1 + |x|); x (*D) -> (*D)."""
    return x / (1 + abs(x))


@op("Mish", since=18, host=True, elementwise=True)
@widened
def mish(x, /):
    """Multiply x by tanh of Softplus; x (*D) -> (*D)."""
    return x * namespace(x).tanh(softplus(x))


@op("Swish", since=24, host=True, elementwise=True)
@widened
def swish(x, /, *, alpha=1.0):
    """Multiply x by Sigmoid of alpha x; x (*D) -> (*D)."""
    return x * sigmoid(alpha * x)


@op("Shrink", since=9, host=True, elementwise=True)
@widened
def shrink(x, /, *, bias=0.0, lambd=0.5):
    """Move elements beyond lambd toward 0 by bias, set the others to 0; x (*D) -> (*D)."""
    xp = namespace(x)
    y = x if is_float(x.dtype) else x.astype(canonical("float64", x))
    y = xp.where(y < -lambd, y + bias, xp.where(y > lambd, y - bias, xp.zeros_like(y)))
    return y.astype(x.dtype)


for _newer in (relu, leaky_relu, prelu_6, elu, sigmoid, hard_sigmoid):
    first_version(_newer)

# along axes ---------------------------------------------------------------------------------------


@widened
def _softmax(x: Any, axes: tuple[int, ...]) -> Any:
    xp = namespace(x)
    e = xp.exp(below_top(x, axes))
    return e / xp.sum(e, axes, keepdims=True)


@widened
def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    xp = namespace(x)
    x = below_top(x, axes)
    return x - xp.log(xp.sum(xp.exp(x), axes, keepdims=True))


def _hardmax(x: Any, axes: tuple[int, ...]) -> Any:
    """1 at the first greatest element along the axes, which are neighbours, else 0."""
    if is_empty(x):
        return x
    xp, shape = namespace(x), x.shape
    x = x.reshape(*shape[: axes[0]], math.prod(shape[a] for a in axes), *shape[axes[-1] + 1 :])
    after = (1,) * (len(shape) - 1 - axes[-1])
    place = xp.arange(x.shape[axes[0]]).reshape(-1, *after)
    first = xp.expand_dims(xp.argmax(x, axes[0]), axes[0])
    return (place == first).astype(x.dtype).reshape(shape)


_ALONG = {
    "Softmax": (_softmax, "Scale exp x to sum to 1"),
    "LogSoftmax": (_log_softmax, "Compute the logarithm of Softmax"),
    "Hardmax": (_hardmax, "Mark the first greatest element by 1, the others by 0"),
}


def _along_axis(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    def apply(x, /, *, axis=-1):
        return function(x, (axis_of(axis, x.ndim),))

    apply.__doc__ = f"{text} along one axis; x (*D) -> (*D)."
    return apply


def _from_axis(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    def apply(x, /, *, axis=1):
        return function(x, tuple(range(axis_of(axis, x.ndim), x.ndim)))

    apply.__doc__ = f"{text} along all axes from one on, taken together; x (*D) -> (*D)."
    return apply


def _same_type(x, /, *, axis=-1):
    axis_of(axis, x.ndim)
    return TensorType(x.dtype, x.shape)


def _same_type_1(x, /, *, axis=1):
    return _same_type(x, axis=axis)


for _name, (_function, _doc) in _ALONG.items():
    # rules, because JAX does not take a maximum along an axis that may be empty
    op(_name, since=13, host=True)(_along_axis(_function, _doc)).shape_rule(_same_type)
    op(_name, since=1, host=True)(_from_axis(_function, _doc)).shape_rule(_same_type_1)
