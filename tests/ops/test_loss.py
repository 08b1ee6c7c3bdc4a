"""Losses of a classification: what the official cases leave out."""

import ml_dtypes
import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import layer, refused
from slopes import slopes

F = np.float32
RNG = np.random.default_rng(0)
NLL, CE = "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"
WEIGHT = RNG.uniform(0.5, 2, 5).astype(F)


def by_loops(x, target, weight=None, ignore_index=None, reduction="mean"):
    """The loss of log-probabilities x (N, C, *D) at target (N, *D), by the definition."""
    loss, shares = np.zeros(target.shape), np.zeros(target.shape)
    for at in np.ndindex(target.shape):
        c = target[at]
        if c != ignore_index:
            shares[at] = 1 if weight is None else weight[c]
            loss[at] = -x[at[0], c, *at[1:]] * shares[at]
    if reduction == "mean":
        return np.asarray(loss.sum() / shares.sum(), F)
    return np.asarray(loss.sum() if reduction == "sum" else loss, F)


@pytest.mark.parametrize(
    ("space", "weight", "ignore_index"),
    [
        ((), None, None),
        ((), WEIGHT, 2),
        ((3,), None, -1),
        ((3,), WEIGHT, None),
        ((2, 3), None, 99),
        ((2, 3), WEIGHT, -1),
    ],
    ids=lambda v: "weight" if isinstance(v, np.ndarray) else str(v),
)
def test_losses(space, weight, ignore_index):
    x, target = RNG.normal(size=(4, 5, *space)).astype(F), RNG.integers(0, 5, (4, *space))
    if ignore_index is not None:
        target.flat[::3] = ignore_index
    shifted = x - x.max(1, keepdims=True)
    log_prob = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    for reduction in ("none", "mean", "sum"):
        attributes = {"ignore_index": ignore_index, "reduction": reduction}
        wanted = by_loops(x, target, weight, **attributes)
        layer(NLL, x, target, weight, wanted=wanted, opset=13, **attributes)
        wanted = [by_loops(log_prob, target, weight, **attributes), log_prob]
        layer(CE, x, target, weight, wanted=wanted, outputs=2, opset=13, **attributes)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float64"])
def test_sums_of_half_types_do_not_stall(dtype):
    x, target = np.full((4096, 2), -1).astype(dtype), np.zeros(4096, np.int32)
    wanted = np.asarray(4096, dtype)
    layer(NLL, x, target, wanted=wanted, rtol=0, opset=22, reduction="sum")
    layer(NLL, x, target, wanted=np.asarray(1, dtype), rtol=0, opset=22)


def test_infinite_scores():
    x = np.array([[0, -np.inf], [1e4, -1e4]], F)
    wanted = [np.array([0, 20000], F), np.array([[0, -np.inf], [0, -20000]], F)]
    attributes = {"reduction": "none", "opset": 13}
    layer(CE, x, np.array([0, 1]), wanted=wanted, outputs=2, **attributes)


def test_nothing_to_average():
    x, target = np.zeros((2, 3), F), np.array([7, 7])
    (y,) = layer(NLL, x, target, opset=13, ignore_index=7)
    assert np.isnan(y)
    layer(NLL, x[:0], target[:0], wanted=np.zeros(0, F), opset=13, reduction="none")


def test_gradient():
    x, target = RNG.normal(size=(3, 4)).astype(F), np.array([0, 3, 1])
    ahead, along = slopes(node(CE, "float32[3, 4]", target, opset=13, reduction="none"), x)
    np.testing.assert_allclose(along, ahead, 1e-2, 1e-6)


@pytest.mark.parametrize("op", [NLL, CE])
def test_types(op):
    inputs = "float32[N, C, h]", "int64[R, k]", "float32[c]"
    assert types(op, *inputs, opset=13) == ["float32[]"]
    assert types(op, *inputs, opset=13, reduction="none") == ["float32[N, h]"]
    assert demands(op, *inputs, opset=13) == ["N == R", "h == k", "C == c"]
    wanted = ["float16[]", "float16[N, C, h]"]
    assert types(CE, "float16[N, C, h]", "int64[N, h]", outputs=2, opset=13) == wanted


@pytest.mark.parametrize("op", [NLL, CE])
@pytest.mark.parametrize(
    ("inputs", "attributes", "text"),
    [
        (["float32[3]", "int64[3]"], {}, "has rank 1, wants at least 2"),
        (["float32[3, 4]", "int64[3, 1]"], {}, "target (3, 1) has rank 2, wants 1"),
        (["float32[3, 4]", "int64[4]"], {}, "target (4)"),
        (["float32[3, 4]", "int64[3]", "float32[3]"], {}, "weight (3)"),
        (
            ["float32[3, 4]", "int64[3]"],
            {"reduction": "max"},
            "reduction is 'max', wants one of none",
        ),
    ],
)
def test_errors(op, inputs, attributes, text):
    assert text in refused(op, *inputs, opset=13, **attributes)
