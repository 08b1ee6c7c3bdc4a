"""Whole small models: traced with symbols, run, converted; and the skip connections of a U-Net."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from builders import model
from onnx import helper, numpy_helper

import jaxshape as js


def unet(depth: int = 2, width: int = 4) -> onnx.ModelProto:
    """Convolutions and 2 x 2 max-pools down, transposed convolutions up, each level joined to the
    one it left.
    """
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def weight(*shape: int) -> str:
        name = f"w{len(weights)}"
        array = rng.normal(0, 0.1, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv(x: str, c: int, m: int) -> str:
        return add("Relu", add("Conv", x, weight(m, c, 3, 3), pads=[1, 1, 1, 1]))

    x, skips = conv("x", 3, width), []
    for level in range(depth):
        skips.append(x)
        down = add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = conv(down, width << level, width << (level + 1))
    for level in reversed(range(depth)):
        c = width << level
        up = add("ConvTranspose", x, weight(2 * c, c, 2, 2), strides=[2, 2])
        x = conv(add("Concat", skips[level], up, axis=1), 2 * c, c)
    nodes.append(helper.make_node("Conv", [x, weight(2, width, 1, 1)], ["y"], name="head"))
    graph = helper.make_graph(
        nodes,
        "unet",
        [helper.make_tensor_value_info("x", 1, ["batch", 3, "h", "w"])],
        [onnx.ValueInfoProto(name="y")],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(("depth", "factor"), [(1, 2), (2, 4), (4, 16)])
def test_unet_says_what_its_sizes_must_be_divisible_by(depth, factor):
    traced = js.trace(unet(depth))
    assert str(traced["y"]) == "float32[batch, 2, h, w]"
    assert sorted(map(str, traced.requirements)) == [f"h % {factor} == 0", f"w % {factor} == 0"]
    assert (
        str(traced.at(batch=1, h=3 * factor, w=factor)["y"])
        == f"float32[1, 2, {3 * factor}, {factor}]"
    )
    with pytest.raises(js.ShapeError, match=f"h % {factor} == 0"):
        traced.at(batch=1, h=factor + 1, w=factor)


def test_unet_runs_where_its_requirements_hold():
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 12)).astype(np.float32)
    assert js.run(unet(), {"x": x})["y"].shape == (2, 2, 8, 12)
    with pytest.raises(js.JaxshapeError, match="Concat"):
        js.run(unet(), {"x": x[:, :, :7]})


def test_converted_unet_differentiates_and_maps():
    f = js.to_jax(unet())
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    y = f(x)
    np.testing.assert_allclose(y, js.run(unet(), {"x": x})["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda f, x: f(x))(f, x), y, rtol=1e-5, atol=1e-6)
    mapped = jax.vmap(lambda x: f(x[None])[0])(x)
    np.testing.assert_allclose(mapped, y, rtol=1e-5, atol=1e-6)
    gradient = jax.grad(lambda f: jnp.square(f(x)).sum())(f)
    assert gradient.params.keys() == f.params.keys()
    assert all(bool(jnp.isfinite(g).all()) and bool(g.any()) for g in gradient.params.values())
    at, epsilon = (0, 0, 1, 1), 1e-2
    name = "w0"

    def loss(value: float) -> float:
        moved = f.params | {name: f.params[name].at[at].set(value)}
        return float(jnp.square(f.apply(moved, x)).sum())

    w = float(f.params[name][at])
    slope = (loss(w + epsilon) - loss(w - epsilon)) / (2 * epsilon)
    assert gradient.params[name][at] == pytest.approx(slope, rel=2e-2, abs=1e-3)


def test_mixture_of_experts_runs_with_sizes_that_depend_on_data():
    """Rows picked by a mask, transformed, put back: nothing is lost at counts 0, some and all."""
    m = model("""g (float[N, 4] x, float[4, 4] w, bool[N] chosen) => (float[a, b] y) {
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64[1] {1}> ()
        found = NonZero (chosen)
        rows = Transpose <perm = [1, 0]> (found)
        picked = GatherND (x, rows)
        moved = MatMul (picked, w)
        y = ScatterND (x, rows, moved)
    }""")
    x, w = np.ones((3, 4), np.float32), 2 * np.eye(4, dtype=np.float32)
    session = js.InferenceSession(m)
    for chosen in ([False] * 3, [True, False, True], [True] * 3):
        (y,) = session.run(None, {"x": x, "w": w, "chosen": np.array(chosen)})
        np.testing.assert_array_equal(y, np.where(np.array(chosen)[:, None], 2 * x, x))


def test_attention_with_a_cache_states_its_total_length():
    m = model("""g (float[b, s, 8] q, float[b, past, 8] k, float[b, s, 8] new, float[b, s, total]
    mask)
            => (float[i, j, l] y) {
        keys = Concat <axis = 1> (k, new)
        t = Transpose <perm = [0, 2, 1]> (keys)
        scores = MatMul (q, t)
        masked = Add (scores, mask)
        p = Softmax <axis = -1> (masked)
        y = MatMul (p, keys)
    }""")
    traced = js.trace(m)
    assert str(traced["scores"]) == "float32[b, s, past + s]"
    assert [str(r) for r in traced.requirements] == ["past + s == total or total == 1"]
    exact = js.trace(m, requirements=["total >= 2"])
    assert [str(r) for r in exact.requirements] == ["total == past + s"]
