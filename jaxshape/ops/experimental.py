"""Operators that the standard tried out and dropped, and that onnxruntime still runs: converters
of old wrote them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._error import ShapeError
from .._facts import least, same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked


@op("Affine", elementwise=True)
def affine(x, /, *, alpha=1.0, beta=0.0):
    """Map x to alpha * x + beta."""
    return x * np.asarray(alpha, x.dtype) + np.asarray(beta, x.dtype)


@op("ScaledTanh", elementwise=True)
def scaled_tanh(x, /, *, alpha=1.0, beta=1.0):
    """Map x to alpha * tanh(beta * x)."""
    return namespace(x).tanh(x * np.asarray(beta, x.dtype)) * np.asarray(alpha, x.dtype)


@op("ParametricSoftplus", elementwise=True)
def parametric_softplus(x, /, *, alpha=1.0, beta=1.0):
    """Map x to alpha * log(1 + exp(beta * x))."""
    xp = namespace(x)
    soft = xp.logaddexp(x * np.asarray(beta, x.dtype), xp.zeros_like(x))
    return soft * np.asarray(alpha, x.dtype)


@op("ImageScaler")
def image_scaler(x, /, *, scale=1.0, bias=()):
    """Scale images x (N, C, H, W) and add the bias of their channel."""
    ranked("x", x.shape, 4)
    same(hostdims(x.shape)[1], len(bias), "channels and the numbers of bias")
    shift = np.asarray(bias, x.dtype).reshape(-1, 1, 1)
    return x * np.asarray(scale, x.dtype) + shift


@op("Crop")
def crop(x, /, *, border, scale=None):
    """Cut borders (left, top, right, bottom) off images x (N, C, H, W), or keep scale (H', W')."""
    (top, bottom), (left, right) = _edges(x.shape, border, scale)
    return x[:, :, top:bottom, left:right]


@crop.shape_rule  # because what is left of a symbolic size must be demanded
def _(x, /, *, border, scale=None):
    edges = _edges(x.shape, border, scale)
    for (start, end), size in zip(edges, x.shape[2:], strict=True):
        least(end, start, "what the border leaves")
        least(size, end, "what is kept")
    return TensorType(x.dtype, (*x.shape[:2], *(end - start for start, end in edges)))


def _edges(shape: Any, border: Any, scale: Any) -> Any:
    """Where to begin and where to end, in height and in width."""
    ranked("x", shape, 4)
    if len(border) != 4 or scale is not None and len(scale) != 2:
        raise ShapeError(f"border {border} and scale {scale} want 4 and 2 numbers")
    left, top, right, bottom = border
    if scale is not None:
        return (top, top + scale[0]), (left, left + scale[1])
    return (top, shape[2] - bottom), (left, shape[3] - right)
