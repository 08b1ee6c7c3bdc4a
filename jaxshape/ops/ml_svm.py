"""Support vector machines of ai.onnx.ml: kernels against the support vectors, then one product.

A classifier decides between each two classes; every decision is one column of a matrix over the
support vectors, put together on the host.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from jax import lax

from .._error import ShapeError
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims
from ._scores import (
    check_transform,
    classified,
    constant,
    features,
    labels_of,
    logistic,
    picked,
    rows,
    rows_of,
    second_class,
    transformed,
)

DOMAIN = "ai.onnx.ml"
_ROUNDS = 100  # of the fit of probabilities
_SURE = 1e-7  # the least probability of either of two classes


def _inputs(x: Any, wanted: int) -> Any:
    n, f = rows_of(hostdims(x.shape))
    return fit(rows(x), (n, features(f, wanted))).astype(np.float32)


def _vectors(values: Any, count: int) -> np.ndarray:
    """The support vectors (V, F)."""
    if count < 1 or not values or len(values) % count:
        raise ShapeError(f"{len(values or ())} elements for {count} support vectors")
    return np.array(values, np.float32).reshape(count, -1)


def _kernel(x: Any, vectors: np.ndarray, kind: str, params: Any) -> Any:
    """The kernel of each row of x (N, F) with each vector (V, F) -> (N, V)."""
    xp, v = namespace(x), constant(x, vectors, np.float32)
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    if kind == "LINEAR":
        return x @ v.T
    if kind == "POLY":
        return (gamma * (x @ v.T) + coef0) ** int(degree)
    if kind == "SIGMOID":
        return xp.tanh(gamma * (x @ v.T) + coef0)
    if kind != "RBF":
        raise ShapeError(f"kernel_type is {kind!r}, wants LINEAR, POLY, RBF, SIGMOID")
    if xp is np:  # one feature after the other, which needs no (N, V, F)
        squares = sum((x[:, [i]] - v[:, i]) ** 2 for i in range(v.shape[1]))
    else:
        squares = xp.sum((x[:, None] - v) ** 2, axis=-1)
    return xp.exp(-gamma * squares)


@op("SVMRegressor", domain=DOMAIN, host=True)
def svm_regressor(
    x, /, *, coefficients=None, kernel_params=None, kernel_type="LINEAR", n_supports=0,
    one_class=0, post_transform="NONE", rho=None, support_vectors=None,
):  # fmt: skip
    """Sum the kernels of x (N, F) with the support vectors, weighted -> (N, 1); or its sign."""
    check_transform(post_transform)  # which onnxruntime applies to no single score of this operator
    if not coefficients or not rho:
        raise ShapeError("coefficients and rho are wanted")
    if n_supports:
        vectors = _vectors(support_vectors, n_supports)
        kernels = _kernel(_inputs(x, vectors.shape[1]), vectors, kernel_type, kernel_params)
    else:
        kernels = _inputs(x, len(coefficients))
    if kernels.shape[1] != len(coefficients):
        raise ShapeError(f"{len(coefficients)} coefficients for {n_supports} support vectors")
    y = kernels @ constant(kernels, coefficients, np.float32)[:, None] + rho[0]
    if one_class:
        return namespace(y).where(y > 0, 1, -1).astype(np.float32)
    return y


def _decisions(coefficients: Any, counts: Any) -> np.ndarray:
    """The weight of each support vector in the decision between each two classes (V, pairs)."""
    ends = np.cumsum(counts)
    places = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
    rest, total = len(counts) - 1, int(ends[-1])
    if len(coefficients) < rest * total:
        raise ShapeError(f"{len(coefficients)} coefficients for {rest} rows of {total} vectors")
    table = np.array(coefficients[: rest * total], np.float32).reshape(rest, total)
    columns = np.zeros((total, len(counts) * rest // 2), np.float32)
    for column, (i, j) in zip(
        columns.T, itertools.combinations(range(len(counts)), 2), strict=True
    ):
        column[places[i]], column[places[j]] = table[j - 1, places[i]], table[i, places[j]]
    return columns


@op("SVMClassifier", domain=DOMAIN, host=True)
def svm_classifier(
    x, /, *, classlabels_ints=None, classlabels_strings=None, coefficients=None,
    kernel_params=None, kernel_type="LINEAR", post_transform="NONE", prob_a=None, prob_b=None,
    rho=None, support_vectors=None, vectors_per_class=None,
):  # fmt: skip
    """Classify x (N, F) -> labels (N,), scores: of E classes, or of each two where not sure."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    coefficients, rho = _check(labels, coefficients, rho, prob_a, prob_b, vectors_per_class)
    classes, total = len(labels), sum(vectors_per_class or ())
    if not total:
        weights = np.array(coefficients, np.float32).reshape(classes, -1)
        x = _inputs(x, weights.shape[1])
        scores = x @ constant(x, weights.T, np.float32) + rho[0]
        best = _best(scores, classes, min(coefficients) >= 0)
        return picked(labels, best), transformed(scores, post_transform)
    vectors = _vectors(support_vectors, total)
    x = _inputs(x, vectors.shape[1])
    kernels = _kernel(x, vectors, kernel_type, kernel_params)
    columns = _decisions(coefficients, vectors_per_class)
    rho = constant(x, rho[: columns.shape[1]], np.float32)
    scores = kernels @ constant(x, columns, np.float32) + rho
    best = namespace(x).argmax(_votes(scores, classes), 1)
    if prob_a:
        scores = _probabilities(scores, classes, prob_a, prob_b)
        return picked(labels, best), transformed(scores, post_transform)
    if classes > 2:
        return picked(labels, best), transformed(scores, post_transform)
    whole = post_transform != "NONE"
    return picked(labels, best), second_class(scores, post_transform, whole)


def _best(scores: Any, classes: int, positive: bool) -> Any:
    """The class of each row of a linear machine; of two the second where any score says so."""
    xp = namespace(scores)
    best = xp.argmax(scores, 1)
    if classes != 2:
        return best
    top = xp.max(scores, 1)
    return xp.where(top >= 0.5 if positive else top > 0, 1, best)


def _votes(scores: Any, classes: int) -> Any:
    """How many decisions (N, pairs) each class wins (N, E)."""
    pairs = list(itertools.combinations(range(classes), 2))
    wins = np.zeros((2, len(pairs), classes), np.float32)
    for p, (i, j) in enumerate(pairs):
        wins[0, p, j] = wins[1, p, i] = 1
    first = (scores > 0).astype(np.float32)
    lose, win = constant(scores, wins, np.float32)
    return (1 - first) @ lose + first @ win


def _probabilities(scores: Any, classes: int, prob_a: Any, prob_b: Any) -> Any:
    """Probabilities of classes (N, E) that fit those of each two best.

    By the second method of Wu, Lin and Weng, "Probability estimates for multi-class classification
    by pairwise coupling" (2004): rounds of updates, each row until it is settled.
    """
    xp, n = namespace(scores), scores.shape[1]
    a, b = (constant(scores, p[:n], np.float32) for p in (prob_a, prob_b))
    first = xp.clip(1 - logistic(scores * a + b), _SURE, 1 - _SURE)
    pairs = list(itertools.combinations(range(classes), 2))
    columns: dict[tuple[int, int], Any] = {}
    for p, (i, j) in enumerate(pairs):
        columns[i, j], columns[j, i] = first[:, p], 1 - first[:, p]
    zero = xp.zeros_like(first[:, 0])
    r = xp.stack(
        [xp.stack([columns.get((i, j), zero) for j in range(classes)], 1) for i in range(classes)],
        1,
    )
    # q[t, t] is the sum of r[j, t] ** 2, q[t, j] is -r[j, t] * r[t, j]
    diagonal = xp.sum(r * r, axis=1)
    q = xp.eye(classes, dtype=r.dtype) * diagonal[:, None] - r * xp.swapaxes(r, 1, 2)

    def settle(_: Any, p: Any) -> Any:
        qp = xp.einsum("nij,nj->ni", q, p)
        pqp = xp.sum(p * qp, axis=1)
        error = xp.max(xp.abs(qp - pqp[:, None]), axis=1)
        new = p
        for t in range(classes):
            diff = (pqp - qp[:, t]) / q[:, t, t]
            grown = (1 + diff)[:, None]
            pqp = (pqp + diff * (diff * q[:, t, t] + 2 * qp[:, t])) / (1 + diff) ** 2
            qp = (qp + diff[:, None] * q[:, t]) / grown
            moved = [new[:, i] + diff if i == t else new[:, i] for i in range(classes)]
            new = xp.stack(moved, 1) / grown
        return xp.where((error < np.float32(0.005 / classes))[:, None], p, new)

    p = xp.zeros_like(diagonal) + np.float32(1 / classes)
    if xp is np:
        for i in range(_ROUNDS):
            p, before = settle(i, p), p
            if np.array_equal(p, before):
                break
        return p
    return lax.fori_loop(0, _ROUNDS, settle, p)


def _check(
    labels: Any, coefficients: Any, rho: Any, prob_a: Any, prob_b: Any, counts: Any
) -> tuple[Any, Any]:
    """The coefficients and rho, after the demands on how long all lists are."""
    classes = len(labels)
    if not coefficients or not rho:
        raise ShapeError("coefficients and rho are wanted")
    if not sum(counts or ()):
        if len(coefficients) % classes:
            raise ShapeError(f"{len(coefficients)} coefficients for {classes} classes")
        return coefficients, rho
    pairs = classes * (classes - 1) // 2
    if len(counts) != classes or min(counts) < 0:
        raise ShapeError(f"vectors_per_class {list(counts)} for {classes} class labels")
    given = {"rho": rho} | ({"prob_a": prob_a, "prob_b": prob_b} if prob_a or prob_b else {})
    for name, values in given.items():
        if len(values or ()) < pairs:
            raise ShapeError(f"{name} has {len(values or ())} elements for {pairs} pairs")
    return coefficients, rho


@svm_classifier.shape_rule(rankless=True)  # because labels may be text, which JAX does not hold
def _(
    x, /, *, classlabels_ints=None, classlabels_strings=None, coefficients=None,
    kernel_params=None, kernel_type="LINEAR", post_transform="NONE", prob_a=None, prob_b=None,
    rho=None, support_vectors=None, vectors_per_class=None,
):  # fmt: skip
    check_transform(post_transform)
    labels = labels_of(classlabels_ints, classlabels_strings)
    coefficients, _ = _check(labels, coefficients, rho, prob_a, prob_b, vectors_per_class)
    classes, total = len(labels), sum(vectors_per_class or ())
    n, f = rows_of(x.shape)
    wanted = _vectors(support_vectors, total).shape[1] if total else len(coefficients) // classes
    features(f, wanted)
    alone = total and not prob_a and classes > 2
    return classified(n, labels, classes * (classes - 1) // 2 if alone else classes)
