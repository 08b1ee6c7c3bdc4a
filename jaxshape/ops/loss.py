"""Losses of a classification.

Invariant: the score of the right class is picked by comparing all classes with the target, not by a
gather: a target that is ignored may be out of range, and the gradient stays elementwise. Sums are
those of float32 at least.
"""

from __future__ import annotations

from typing import Any

from .._error import ShapeError
from .._host import namespace
from .._op import op
from .._symbol import hostdims, to_export
from ._agree import ranked, reshape, shaped, wide
from ._numeric import below_top

_REDUCTIONS = ("none", "sum", "mean")


def _loss(
    x: Any, target: Any, weight: Any, ignore_index: int | None, reduction: str, name: str
) -> Any:
    """The negative of log-probabilities x (N, C, *D) at target (N, *D), times weight (C,)."""
    if reduction not in _REDUCTIONS:
        raise ShapeError(f"reduction is {reduction!r}, wants one of {', '.join(_REDUCTIONS)}")
    shape = hostdims(x.shape)
    ranked(name, shape, least=2)
    n, c, *space = shape
    xp, dtype = namespace(x, target, weight), wide(x.dtype)
    target = shaped("target", target, (n, *space))
    column = (1, c, *(1,) * len(space))
    classes = reshape(xp.arange(to_export(c)).astype(target.dtype), column)
    right = classes == xp.expand_dims(target, 1)
    loss = -xp.where(right, x.astype(dtype), 0).sum(1)
    if weight is not None:
        weight = reshape(shaped("weight", weight, (c,)), column).astype(dtype)
        weight = xp.where(right, weight, 0).sum(1)
    if ignore_index is not None:
        kept = target != ignore_index
        loss = xp.where(kept, loss, 0)
        weight = kept.astype(dtype) if weight is None else xp.where(kept, weight, 0)
    loss = loss if weight is None else loss * weight
    if reduction != "none":
        mean = reduction == "mean"
        loss = loss.mean() if mean and weight is None else loss.sum()
        loss = loss / weight.sum() if mean and weight is not None else loss
    return loss.astype(x.dtype)


@op("NegativeLogLikelihoodLoss", since=12, host=True)
def nll_loss(input, target, weight=None, /, *, ignore_index=None, reduction="mean"):
    """Take the negative of input (N, C, *D) at target (N, *D), times weight (C,) -> (N, *D) or ().

    The mean is one over the weights; what is ignored has none.
    """
    return _loss(input, target, weight, ignore_index, reduction, "input")


@op("SoftmaxCrossEntropyLoss", since=12, host=True)
def softmax_cross_entropy_loss(
    scores, labels, weights=None, /, *, ignore_index=None, reduction="mean"
):
    """Take the negative log softmax of scores (N, C, *D) at labels (N, *D) -> (N, *D) or ().

    A second result has it for all classes (N, C, *D). Weights and mean are as above.
    """
    ranked("scores", hostdims(scores.shape), least=2)
    xp = namespace(scores)
    x = scores.astype(wide(scores.dtype))
    x = below_top(x, 1)
    x = x - xp.log(xp.sum(xp.exp(x), axis=1, keepdims=True))
    loss = _loss(x, labels, weights, ignore_index, reduction, "scores")
    return loss.astype(scores.dtype), x.astype(scores.dtype)
