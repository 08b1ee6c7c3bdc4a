"""Activations and the softmax family: what the official cases leave out."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from builders import model, node
from close import check
from forms import demands, types

import jaxshape as js

F, BF16 = np.float32, ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
X = np.array([-300.0, -3.5, -1.0, -0.25, 0.0, 0.25, 1.0, 3.5, 300.0])


def erf(x):
    return np.vectorize(math.erf)(x)


def softplus(x):
    return np.logaddexp(x, 0)


ALPHA = float(F(0.3))
FORMULAS = [
    ("Relu", {}, lambda x: np.maximum(x, 0)),
    ("LeakyRelu", {"alpha": 0.3}, lambda x: np.where(x < 0, ALPHA * x, x)),
    ("ThresholdedRelu", {}, lambda x: np.where(x > 1, x, 0)),
    ("Elu", {"alpha": 0.3}, lambda x: np.where(x < 0, ALPHA * np.expm1(x), x)),
    (
        "Celu",
        {"alpha": 0.3},
        lambda x: np.maximum(x, 0) + np.minimum(0, ALPHA * np.expm1(x / ALPHA)),
    ),
    ("Gelu", {}, lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))),
    ("Sigmoid", {}, lambda x: 1 / (1 + np.exp(-x))),
    ("HardSigmoid", {"alpha": 0.3}, lambda x: np.clip(ALPHA * x + 0.5, 0, 1)),
    ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("Softplus", {}, softplus),
    ("Softsign", {}, lambda x: x / (1 + abs(x))),
    ("Mish", {}, lambda x: x * np.tanh(softplus(x))),
    ("Swish", {"alpha": 0.3}, lambda x: x / (1 + np.exp(-ALPHA * x))),
    (
        "Shrink",
        {"lambd": 1.0, "bias": 0.5},
        lambda x: np.where(x < -1, x + 0.5, np.where(x > 1, x - 0.5, 0)),
    ),
]


@pytest.mark.parametrize(("op", "attributes", "formula"), FORMULAS, ids=[f[0] for f in FORMULAS])
@pytest.mark.parametrize("dtype", ["float64", BF16])
def test_formula(op, attributes, formula, dtype):
    x = X.astype(dtype)
    with np.errstate(over="ignore"):
        check(op, [x], formula(x.astype("float64")).astype(dtype), **attributes)


@pytest.mark.parametrize("op", [f[0] for f in FORMULAS])
def test_no_branch_spoils_the_gradient(op):
    f = js.to_jax(node(op, "float32[]"))
    slopes = jax.vmap(jax.grad(lambda x: f(x)))(jnp.array([-1e4, -50.0, -1.5, 1.5, 50.0, 1e4], F))
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("op", [f[0] for f in FORMULAS])
def test_the_gradient_at_a_bend_is_between_the_slopes_beside_it(op):
    """And the slope itself where it is smooth there, as Celu is at 0."""
    f = jax.jit(js.to_jax(node(op, "float64[N]")))
    x, size = np.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]), 1e-6
    with jax.enable_x64(True):
        before, at, after = (np.asarray(f(x + s)) for s in (-size, 0, size))
        slope = np.asarray(jax.grad(lambda x: f(x).sum())(x))
    sides = np.sort([(at - before) / size, (after - at) / size], axis=0)
    smooth = sides[1] - sides[0] < 1e3  # else it jumps
    assert (sides[0] - 1e-4 <= slope)[smooth].all() and (slope <= sides[1] + 1e-4)[smooth].all()


def test_nan_stays():
    for op in ("Relu", "LeakyRelu", "Elu", "HardSigmoid", "Selu"):
        check(op, [np.array([NAN], F)], np.array([NAN], F))


@pytest.mark.parametrize(
    ("opset", "alpha", "gamma"), [(1, 1.6732, 1.0507), (6, 1.6732631921768188, 1.0507010221481323)]
)
def test_selu_changed_its_constants(opset, alpha, gamma):
    wanted = float(F(gamma)) * np.where(X <= 0, float(F(alpha)) * np.expm1(np.minimum(X, 0)), X)
    check("Selu", [X], wanted, opset=opset)


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_integers(dtype):
    x = np.array([-3, -1, 0, 1, 3], dtype)
    check("Relu", [x], np.maximum(x, 0))
    check("Shrink", [x], np.array([-1, 0, 0, 0, 1], dtype), lambd=1.0, bias=1.5)


@pytest.mark.parametrize(
    ("opset", "slope", "laid_out"),
    [(6, (1,), ()), (6, (3,), (3, 1)), (7, (4,), (4,)), (16, (3, 1), (3, 1)), (16, (), ())],
)
def test_prelu(opset, slope, laid_out):
    x = np.linspace(-2, 2, 24, dtype=F).reshape(2, 3, 4)
    a = np.arange(1, 1 + math.prod(slope), dtype=F).reshape(slope)
    check("PRelu", [x, a], np.where(x < 0, a.reshape(laid_out) * x, x), opset=opset)


def test_prelu_sizes():
    assert types("PRelu", "float32[N, c, h]", "float32[3, 1]") == ["float32[N, 3, h]"]
    assert demands("PRelu", "float32[N, c, h]", "float32[3]", opset=6) == ["c == 3"]
    assert types("PRelu", "float32[N, c, h]", "float32[k, 1]") == ["float32[N, c, h]"]


# along axes ---------------------------------------------------------------------------------------


def softmax(x, axes):
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("opset", [1, 11, 13])
def test_softmax(opset, axis):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)) * 50
    axes = axis if opset == 13 else tuple(range(axis % 3, 3))
    check("Softmax", [x], softmax(x, axes), opset=opset, axis=axis)
    if opset != 1:
        check("LogSoftmax", [x], np.log(softmax(x, axes)), opset=opset, axis=axis)


def test_softmax_in_half_precision_sums_in_single():
    x = np.zeros(3000, np.float16)
    check("Softmax", [x], np.full(3000, 1 / 3000, np.float16))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_empty(op, shape):
    for opset in (11, 13):
        check(op, [np.zeros(shape, F)], np.zeros(shape, F), opset=opset, axis=0)


def test_hardmax_marks_the_first_greatest():
    x = np.array([[[1, 5], [5, 5]], [[0, 0], [0, 0]]], F)
    check("Hardmax", [x], np.array([[[0, 1], [1, 0]], [[1, 0], [1, 0]]], F))
    check("Hardmax", [x], np.array([[[0, 1], [0, 0]], [[1, 0], [0, 0]]], F), opset=11)
    check("Hardmax", [x], np.array([[[0, 1], [1, 0]], [[1, 1], [0, 0]]], F), axis=1)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [1, 13])
def test_the_softmax_family_keeps_its_shape(op, opset):
    assert types(op, "float16[N, c, h]", opset=opset, axis=1) == ["float16[N, c, h]"]
    with pytest.raises(js.ShapeError, match="axis 3 is out of range for rank 3"):
        types(op, "float16[N, c, h]", opset=opset, axis=3)
    with pytest.raises(js.ShapeError, match="out of range for rank 0"):
        types(op, "float16[]", opset=opset)


# errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "match"),
    [
        ("Gelu", ["float32[N]"], {"approximate": "fast"}, "'fast', wants none or tanh"),
        (
            "PRelu",
            ["float32[N]", "float32[2, 3]"],
            {},
            r"slope \(2, 3\) has more axes than x \(N\)",
        ),
        ("PRelu", ["float32[N, 2]", "float32[3]"], {}, r"x \(N, 2\) and slope \(3\)"),
        ("PRelu", ["float32[N, 2, h]", "float32[3]"], {"opset": 6}, "slope"),
    ],
)
def test_errors(op, inputs, attributes, match):
    with pytest.raises(js.ShapeError, match=match):
        js.trace(node(op, *inputs, **attributes))


def test_softmax_of_huge_sums_is_finite():
    """A bit of 1e10 is 1024: computing the scores twice must not give an infinite exponential."""
    m = model("""g (float[1, 64, 9, 9] x, float[50, 64, 3, 3] w) => (float[1, 50, 1, 1] y) {
        h = Conv (x, w)
        a = GlobalAveragePool (h)
        y = Softmax <axis = 1> (a)
    }""")
    x, w = np.full((1, 64, 9, 9), 1e4, "f"), np.full((50, 64, 3, 3), 2e3, "f")
    (y,) = js.run(m, {"x": x, "w": w}).values()
    np.testing.assert_allclose(y.sum(), 1, rtol=1e-5)
