"""From JAX to ONNX and back: what jax2onnx writes gives the numbers and slopes of the function."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxshape as js

pytestmark = pytest.mark.slow  # jax2onnx takes long to import, and to write a model

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(max(shape[-1:] or (1,)))).astype(np.float32)


W1, B1, W2 = array(6, 16), array(16), array(16, 4)
KERNEL, SCALE = array(3, 3, 3, 8), 1 + array(8)
QKV, OUT = array(8, 24), array(8, 8)
TABLE = array(10, 8)


def mlp(x):
    return jax.nn.gelu(x @ W1 + B1) @ W2


def conv(x):
    y = jax.lax.conv_general_dilated(
        x, jnp.asarray(KERNEL), (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = jax.lax.reduce_window(
        jax.nn.relu(y), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )
    return jnp.mean(y * SCALE, (1, 2))


def attention(x):
    q, k, v = jnp.split(x @ QKV, 3, -1)
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / np.sqrt(8).astype(np.float32)
    mask = jnp.tril(jnp.ones((5, 5), bool))
    return jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ v @ OUT


def norm(x):
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * SCALE


def recurrent(x):
    def step(h, row):
        h = jnp.tanh(h @ OUT + row)
        return h, h.sum()

    h, sums = jax.lax.scan(step, jnp.zeros(8, jnp.float32), x)
    return h, sums


def repeated(x):
    return jax.lax.fori_loop(0, 4, lambda i, v: jnp.sin(v) * 1.5 + v, x)


def either(x):
    return jax.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v**3, x)


def moved(x):
    y = jnp.concatenate([x[:, ::-1], jnp.roll(x, 1, 1)], 1)
    return jnp.cumsum(jnp.transpose(y.reshape(2, 3, 4), (2, 0, 1)), axis=0)


def embedded(x):
    rows = jnp.take(TABLE, jnp.array([1, 3, 3]), axis=0)
    return jnp.max(x[:, None] - rows, -1)


# (function, shape of x as jax2onnx takes it, shape of x)
FUNCTIONS = [
    (mlp, ("B", 6), (3, 6)),
    (conv, ("B", 16, 16, 3), (2, 16, 16, 3)),
    (attention, ("B", 5, 8), (2, 5, 8)),
    (norm, ("B", 8), (4, 8)),
    (recurrent, (7, 8), (7, 8)),
    (repeated, (5,), (5,)),
    (either, (6,), (6,)),
    (moved, (2, 6), (2, 6)),
    (embedded, ("B", 8), (3, 8)),
]


@pytest.fixture(scope="module")
def to_onnx():
    return importlib.import_module("jax2onnx").to_onnx


@pytest.mark.parametrize(("function", "declared", "shape"), FUNCTIONS)
def test_numbers_and_slopes(to_onnx, function, declared, shape):
    proto = to_onnx(function, inputs=[declared])
    f, x = js.to_jax(proto), array(*shape)
    want, got = jax.tree.leaves(function(x)), jax.tree.leaves(f(x))
    assert [tuple(y.shape) for y in got] == [tuple(y.shape) for y in want]
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

    def total(function):
        return lambda x: sum(jnp.sum(jnp.cos(y)) for y in jax.tree.leaves(function(x)))

    slope, wanted = jax.grad(total(f))(x), jax.grad(total(function))(x)
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("function", "declared", "shape"), FUNCTIONS)
def test_traced_type_is_the_type_of_the_result(to_onnx, function, declared, shape):
    traced = js.trace(to_onnx(function, inputs=[declared]))
    numbers = traced.at(**{"B": shape[0]}) if "B" in declared else traced
    want = jax.tree.leaves(jax.eval_shape(function, jax.ShapeDtypeStruct(shape, np.float32)))
    assert [numbers[n].shape for n in numbers.outputs] == [y.shape for y in want]


def test_slopes_of_the_parameters(to_onnx):
    """The weights that jax2onnx wrote are leaves, and have the slopes of those it read."""
    f, x = js.to_jax(to_onnx(mlp, inputs=[("B", 6)])), array(3, 6)
    slopes = jax.grad(lambda f: jnp.sum(f(x) ** 2))(f).params
    wanted = jax.grad(lambda p: jnp.sum((jax.nn.gelu(x @ p[0] + p[1]) @ p[2]) ** 2))((W1, B1, W2))
    for weight, slope in zip((W1, B1, W2), wanted, strict=True):
        (name,) = [n for n, p in f.params.items() if np.array_equal(np.squeeze(p), weight)]
        np.testing.assert_allclose(np.squeeze(slopes[name]), slope, rtol=1e-4, atol=1e-5)
