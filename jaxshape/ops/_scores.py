"""Scores and labels: what the models of ai.onnx.ml have in common.

The standard is brief here, so that onnxruntime decides: a single score is transformed by PROBIT
alone, and probits are an approximation. Labels that are text exist on the host only; under a
transformation of JAX, which holds no text, they are None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._device import to_device
from .._error import ShapeError
from .._facts import count, same
from .._host import namespace
from .._symbol import hostdims
from .._value import STRING, TensorType
from ._agree import ranked
from ._numeric import below_top

_WINITZKI = 0.147  # of his approximation of erf
_NEARLY = 1e-7  # SOFTMAX_ZERO leaves scores this close to 0 out


def constant(like: Any, values: Any, dtype: Any) -> Any:
    """Values of an attribute where `like` is: on the host, or on the device."""
    made = np.asarray(values, dtype)
    return made if namespace(like) is np else to_device(made)


def rows(x: Any) -> Any:
    """x (N, F) or (F,) as (N, F)."""
    ranked("X", hostdims(x.shape), 1, 2)
    return x if x.ndim == 2 else x.reshape(1, -1)


def rows_of(shape: Sequence[Any] | None) -> tuple[Any, Any]:
    """N and F of a shape (N, F) or (F,); a fresh N and None of an unknown one."""
    if shape is None:
        return count("rows"), None
    ranked("X", shape, 1, 2)
    return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])


def floats(x: Any) -> Any:
    """x to compute with: float64 as it is, everything else as float32."""
    return x if x.dtype == np.float64 else x.astype(np.float32)


def logistic(x: Any) -> Any:
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))
    return xp.where(x < 0, e, xp.ones_like(e)) / (1 + e)


def _softmax(x: Any) -> Any:
    xp = namespace(x)
    e = xp.exp(below_top(x, -1))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _softmax_zero(x: Any) -> Any:
    """The softmax of the scores that are not 0; the others stay as they are."""
    xp = namespace(x)
    top, counted = xp.max(x, axis=-1, keepdims=True), xp.abs(x) > _NEARLY
    e = xp.where(counted, xp.exp(x - top), x * xp.exp(-top))
    return e / xp.sum(xp.where(counted, e, 0), axis=-1, keepdims=True)


def _probit(x: Any) -> Any:
    """The quantile of the normal distribution, by Winitzki's approximation of erf's inverse."""
    xp = namespace(x)
    y = 2 * x - 1
    log = xp.log((1 - y) * (1 + y))
    v = 2 / (np.pi * _WINITZKI) + 0.5 * log
    inner = xp.sqrt(v * v - log / _WINITZKI) - v
    return math.sqrt(2) * xp.where(y < 0, -1, 1).astype(x.dtype) * xp.sqrt(inner)


TRANSFORMS = {
    "NONE": lambda x: x,
    "SOFTMAX": _softmax,
    "LOGISTIC": logistic,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def transformed(scores: Any, transform: str) -> Any:
    """Scores (N, E) after a post_transform."""
    check_transform(transform)
    alone = scores.shape[-1] == 1 and transform != "PROBIT"
    return scores if alone else TRANSFORMS[transform](scores)


def second_class(score: Any, transform: str, whole: bool) -> Any:
    """Both classes' scores (N, 2) from the positive one's (N, 1): they add up to 1, or to 0."""
    xp = namespace(score)
    check_transform(transform)
    if transform == "PROBIT":
        return _probit(xp.concatenate([1 - score, score], 1))
    if transform == "LOGISTIC":
        return logistic(xp.concatenate([-score, score], 1))
    return xp.concatenate([1 - score if whole else -score, score], 1)


def check_transform(transform: str) -> None:
    if transform not in TRANSFORMS:
        raise ShapeError(f"post_transform is {transform!r}, wants {', '.join(TRANSFORMS)}")


def labels_of(ints: Any, strings: Any) -> Any:
    """The class labels that are given, as a host array."""
    if not ints and not strings:
        raise ShapeError("class labels are wanted, as integers or as strings")
    return np.array(strings, object) if strings else np.array(ints, np.int64)


def either_of(labels: np.ndarray) -> np.ndarray:
    """The labels that one score decides between: the two there are, else no and yes."""
    text = labels.dtype == STRING
    return labels if len(labels) == 2 else np.array(["0", "1"] if text else [0, 1], labels.dtype)


def picked(labels: np.ndarray, indices: Any) -> Any:
    """The labels at indices; None for text where the indices are not known on the host."""
    if labels.dtype != STRING:
        return constant(indices, labels, np.int64)[indices]
    return labels[indices] if namespace(indices) is np else None


def classified(n: Any, labels: np.ndarray, scores: Any) -> tuple[TensorType, TensorType]:
    """The types of labels (N,) and scores (N, E)."""
    return TensorType(labels.dtype, (n,)), TensorType("float32", (n, scores))


def features(size: Any, wanted: int) -> Any:
    """The number of features, of which the model's is demanded."""
    return wanted if size is None else same(size, wanted, f"{wanted} features")
