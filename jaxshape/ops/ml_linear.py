"""Linear models of ai.onnx.ml: one matrix product, then labels and transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._error import ShapeError
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims
from ._scores import (
    check_transform,
    classified,
    constant,
    either_of,
    features,
    floats,
    labels_of,
    picked,
    rows,
    rows_of,
    second_class,
    transformed,
)

DOMAIN = "ai.onnx.ml"


def _product(x: Any, coefficients: Any, intercepts: Any, targets: int) -> Any:
    """x (N, F) times the coefficients (targets, F), plus intercepts -> (N, targets)."""
    n, f = rows_of(hostdims(x.shape))
    x = floats(fit(rows(x), (n, features(f, _features(coefficients, intercepts, targets)))))
    weights = constant(x, coefficients, x.dtype).reshape(targets, -1)
    y = x @ weights.T
    return y + constant(x, intercepts, x.dtype) if intercepts else y


def _features(coefficients: Any, intercepts: Any, targets: int) -> int:
    if targets < 1 or not coefficients or len(coefficients) % targets:
        raise ShapeError(f"{len(coefficients or ())} coefficients for {targets} targets")
    if intercepts and len(intercepts) != targets:
        raise ShapeError(f"{len(intercepts)} intercepts for {targets} targets")
    return len(coefficients) // targets


@op("LinearRegressor", domain=DOMAIN, host=True)
def linear_regressor(x, /, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    """Multiply x (N, F) by coefficients (targets, F), add intercepts -> (N, targets)."""
    scores = _product(x, coefficients, intercepts, targets).astype(np.float32)
    return transformed(scores, post_transform)


def _scores(coefficients: Any, intercepts: Any, labels: Any, f: Any) -> int:
    """How many scores a classifier computes: one for each intercept, else for each label."""
    if intercepts:
        return len(intercepts)
    if len(labels) == 2 and isinstance(f, int) and f == len(coefficients):
        return 1
    return len(labels)


@op("LinearClassifier", domain=DOMAIN, host=True)
def linear_classifier(
    x, /, *, classlabels_ints=None, classlabels_strings=None, coefficients, intercepts=None,
    multi_class=0, post_transform="NONE",
):  # fmt: skip
    """Score x (N, F) by coefficients (E, F) -> the best label (N,), scores (N, E)."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    count = _scores(coefficients, intercepts, labels, rows_of(hostdims(x.shape))[1])
    scores = _product(x, coefficients, intercepts, count).astype(np.float32)
    xp = namespace(scores)
    if count > 1:
        _labelled(count, labels)
        return picked(labels, xp.argmax(scores, 1)), transformed(scores, post_transform)
    best = picked(either_of(labels), (scores[:, 0] > 0).astype(np.int32))
    if len(labels) != 2:
        return best, transformed(scores, post_transform)
    return best, second_class(scores, post_transform, whole=True)


def _labelled(count: int, labels: Any) -> None:
    if len(labels) < count:
        raise ShapeError(f"{len(labels)} class labels for {count} scores")


@linear_classifier.shape_rule(rankless=True)  # because labels may be text, which JAX does not hold
def _(
    x, /, *, classlabels_ints=None, classlabels_strings=None, coefficients, intercepts=None,
    multi_class=0, post_transform="NONE",
):  # fmt: skip
    check_transform(post_transform)
    labels = labels_of(classlabels_ints, classlabels_strings)
    n, f = rows_of(x.shape)
    count = _scores(coefficients, intercepts, labels, f)
    if intercepts or isinstance(f, int) or len(labels) != 2:
        features(f, _features(coefficients, intercepts, count))
    if count > 1:
        _labelled(count, labels)
    return classified(n, labels, 2 if count == 1 and len(labels) == 2 else count)
