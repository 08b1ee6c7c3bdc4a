"""Steps of optimisers (ai.onnx.preview.training).

Invariant: the inputs after the learning rate and the step are groups of equal length: the tensors,
their gradients, then what the optimiser remembers of each; the outputs are the new groups without
the gradients. A step moves each tensor by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._error import ShapeError
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from ._agree import shaped

_DOMAIN = "ai.onnx.preview.training"


def _step(rate: Any, count: Any, tensors: Sequence[Any], groups: int, move: Callable[..., Any]):
    """The outputs of move(rate, count, x, gradient, *memories) of each tensor, group by group."""
    n, left = divmod(len(tensors), groups)
    if left:
        raise ShapeError(f"has {len(tensors)} tensors, wants {groups} groups of equal length")
    moved = []
    for i in range(n):
        x, *rest = tensors[i::n]
        dims = hostdims(x.shape)
        rest = [shaped(f"tensor {i + n * (j + 1)}", v, dims) for j, v in enumerate(rest)]
        moved.append(move(*(v.reshape(()).astype(x.dtype) for v in (rate, count)), x, *rest))
    return tuple(v for group in zip(*moved, strict=True) for v in group)


@op("Adagrad", _DOMAIN, host=True)
def adagrad(
    rate, count, /, *tensors, decay_factor=0.0, epsilon=9.999999974752427e-07, norm_coefficient=0.0
):
    """Move each x (*D) against its gradient, scaled by the sum of its squares so far -> x, sum.

    Duchi, Hazan and Singer, 2011.
    """

    def move(rate, count, x, g, h):
        g = norm_coefficient * x + g
        h = h + g * g
        rate = rate / (1 + count * decay_factor)
        return x - rate * g / (namespace(h).sqrt(h) + epsilon), h

    return _step(rate, count, tensors, 3, move)


@op("Adam", _DOMAIN, host=True)
def adam(
    rate, count, /, *tensors,
    alpha=0.8999999761581421, beta=0.9990000128746033, epsilon=9.999999974752427e-07,
    norm_coefficient=0.0, norm_coefficient_post=0.0,
):  # fmt: skip
    """Move each x (*D) by the running means of its gradient and its square -> x, both means.

    Kingma and Ba, 2015.
    """

    def move(rate, count, x, g, v, h):
        xp = namespace(x, count)
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * (g * g)
        later = xp.maximum(count, 1)
        debiased = rate * xp.sqrt(1 - beta**later) / (1 - alpha**later)
        rate = xp.where(count > 0, debiased, rate)
        x = x - rate * (v / (xp.sqrt(h) + epsilon))
        return (1 - norm_coefficient_post) * x, v, h

    return _step(rate, count, tensors, 4, move)


@op("Momentum", _DOMAIN, host=True)
def momentum(rate, count, /, *tensors, alpha, beta, mode, norm_coefficient):
    """Move each x (*D) by a decaying sum of its gradients -> x, sum; or, Nesterov, a step ahead."""
    if mode not in ("standard", "nesterov"):
        raise ShapeError(f"mode is {mode!r}, wants standard or nesterov")

    def move(rate, count, x, g, v):
        g = norm_coefficient * x + g
        v = alpha * v + namespace(count).where(count > 0, g * beta, g)
        return x - rate * (v if mode == "standard" else g + alpha * v), v

    return _step(rate, count, tensors, 3, move)
