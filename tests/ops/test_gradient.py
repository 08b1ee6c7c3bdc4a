"""Gradient: what lies between two values of a graph, differentiated."""

import jax
import numpy as np
import pytest
from builders import model

import jaxshape as js

HEADER = '<ir_version: 10, opset_import: ["": 20, "ai.onnx.preview.training": 1]>\n'
BODY = """g (float[N, 3] X, float[3, 2] W) => (float[] Y, dX, dW, dH, ddW)
<float[2] b = {1, 2}> {
  H = MatMul (X, W)
  A = Add (H, b)
  S = Mul (A, A)
  axes = Constant <value_ints = [0, 1]> ()
  Y = ReduceSum <keepdims = 0> (S, axes)
  dX, dW = ai.onnx.preview.training.Gradient <xs = ["X", "W"], y = "Y"> (X, W)
  dH = ai.onnx.preview.training.Gradient <xs = ["H"], y = "Y"> (H)
  ddW = ai.onnx.preview.training.Gradient <xs = ["W"], zs = ["X"], y = "dX"> (W, X)
}"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.full((3, 2), 0.5, np.float32)


def loss(x, w):
    return ((x @ w + np.array([1, 2], np.float32)) ** 2).sum()


def one(line, taken="float[N, 3] X", made="float[] D"):
    return model(
        f"{HEADER}g ({taken}) => ({made}) {{ Y = Relu (X)\n"
        f"D = ai.onnx.preview.training.Gradient {line} }}"
    )


def wanted():
    second = jax.grad(lambda w: jax.grad(loss)(X, w).sum())(W)
    return (loss(X, W), *jax.grad(loss, (0, 1))(X, W), 2 * (X @ W + np.array([1, 2])), second)


def test_first_and_second_order():
    found = js.run(model(HEADER + BODY), {"X": X, "W": W})
    for got, want in zip(found.values(), wanted(), strict=True):
        np.testing.assert_allclose(got, want, 1e-6)


def test_under_transformations():
    f = js.to_jax(model(HEADER + BODY))
    found = jax.jit(jax.vmap(lambda x: f(x, W)[1]))(np.stack([X, X]))
    np.testing.assert_allclose(found[1], wanted()[1], 1e-6)
    third = jax.grad(lambda w: f(X, w)[4].sum())(W)
    assert third.shape == W.shape


def test_sizes_are_those_of_what_is_differentiated_by():
    trace = js.trace(model(HEADER + BODY))
    found = [str(trace[n]) for n in ("dX", "dW", "dH", "ddW")]
    assert found == ["float32[N, 3]", "float32[3, 2]", "float32[N, 2]", "float32[3, 2]"]


def test_other_points_than_the_graph_has():
    two = one('<xs = ["X"], y = "Y"> (P)', "float[2] X, float[2] P")
    found = js.run(two, {"X": np.zeros(2, np.float32), "P": np.array([-1, 1], np.float32)})
    np.testing.assert_array_equal(found["D"], [0, 1])


@pytest.mark.parametrize(
    ("line", "taken", "error", "says"),
    [
        (
            '<xs = ["X", "Z"], y = "Y"> (X)',
            "float[2] X",
            js.ShapeError,
            "1 inputs for 2 names: X, Z",
        ),
        ('<xs = ["X"], y = "Q"> (X)', "float[2] X", js.ModelError, "'Q' is used before"),
        ('<xs = ["X"], y = "Y"> (X)', "int64[2] X", js.UnsupportedError, "X is int64, by which"),
    ],
)
def test_refusals(line, taken, error, says):
    with pytest.raises(error, match=says):
        js.run(one(line, taken, "D"), {"X": np.zeros(2, "int64" if "int" in taken else "f")})
