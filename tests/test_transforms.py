"""A converted model under JAX's transformations, in 32 and 64 bits; how often it is compiled."""

import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import model
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxshape as js

MODEL = """g (float[N, 3] x) => (float[N, 3] y, int64[2] s)
<float[3, 3] w = {1, 2, 0, -1, 0.5, 1, 0, 1, -2}, float[3] b = {0.5, -1, 2}> {
    h = MatMul (x, w)
    k = Add (h, b)
    t = Tanh (k)
    s = Shape (t)
    r = Slice (t, zero, far)
    two = Cast <to = 1> (s)
    n = ReduceProd <keepdims = 0> (two)
    y = Div (r, n)
    zero = Constant <value_ints = [0]> ()
    far = Constant <value_ints = [9223372036854775807]> ()
}"""
W = np.array([[1, 2, 0], [-1, 0.5, 1], [0, 1, -2]])
B = np.array([0.5, -1, 2])
X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def f():
    return js.to_jax(model(MODEL))


def expected(x, w=W, b=B):
    t = np.tanh(x.astype(np.float64) @ w + b)
    return t / t.size


def slope(x, w=W, b=B):
    """Of the sum of y: by x, by w, by b."""
    t = np.tanh(x.astype(np.float64) @ w + b)
    d = (1 - t**2) / t.size
    return d @ w.T, x.T @ d, d.sum(0)


def by_jit(f):
    return jax.jit(f)(X)[0], expected(X)


def by_grad(f):
    return jax.grad(lambda x: f(x)[0].sum())(jnp.asarray(X)), slope(X)[0]


def by_value_and_grad(f):
    """With respect to the model itself, as an optimizer has it; one step down."""
    value, g = jax.jit(jax.value_and_grad(lambda f, x: f(x)[0].sum()))(f, X)
    np.testing.assert_allclose(value, expected(X).sum(), rtol=1e-5)
    np.testing.assert_allclose(g.params["w"], slope(X)[1], rtol=1e-4, atol=1e-6)
    stepped = jax.tree.map(lambda p, d: p - 0.1 * d, f, g)
    return stepped(X)[0], expected(X, W - 0.1 * slope(X)[1], B - 0.1 * slope(X)[2])


def by_vmap(f):
    xs = jnp.stack([X, 2 * X, -X])
    return jax.vmap(lambda x: f(x)[0])(xs), np.stack([expected(x) for x in (X, 2 * X, -X)])


def by_vmap_of_parameters(f):
    many = jax.tree.map(lambda p: jnp.stack([p, -p]), f)
    ys = jax.vmap(lambda f: f(X)[0])(many)
    return ys, np.stack([expected(X), expected(X, -W, -B)])


def by_scan(f):
    y, ys = jax.lax.scan(lambda c, _: (f(c)[0], f(c)[0].sum()), jnp.asarray(X), length=3)
    return y, expected(expected(expected(X)))


def by_checkpoint(f):
    g = jax.checkpoint(lambda f, x: f(x)[0].sum())
    return jax.jit(jax.grad(g))(f, X).params["w"], slope(X)[1]


def by_shard_map(f):
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
    g = jax.shard_map(lambda x: f(x)[0], mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    return jax.jit(g)(X), expected(X)


def by_jvp(f):
    _, tangent = jax.jvp(lambda x: f(x)[0].sum(), (jnp.asarray(X),), (jnp.ones_like(X),))
    return tangent, slope(X)[0].sum()


def by_hessian(f):
    h = jax.hessian(lambda b: f.apply({**f.params, "b": b}, X)[0].sum())(f.params["b"])
    t = np.tanh(X.astype(np.float64) @ W + B)
    return h, np.diag((-2 * t * (1 - t**2) / t.size).sum(0))


def by_eval_shape(f):
    y, s = jax.eval_shape(f, jax.ShapeDtypeStruct((7, 3), np.float32))
    assert s.shape == (2,)
    return np.zeros(y.shape), np.zeros((7, 3))


WAYS = [
    by_jit, by_grad, by_value_and_grad, by_vmap, by_vmap_of_parameters, by_scan, by_checkpoint,
    by_shard_map, by_jvp, by_hessian, by_eval_shape,
]  # fmt: skip


@pytest.mark.parametrize("order", [(False, True), (True, False)], ids=["32-64", "64-32"])
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_under(way, order, f):
    for wide in order:
        with jax.enable_x64(wide):
            got, want = way(f)
        assert got.dtype in (np.float32, np.float64)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wide", [False, True])
def test_integers_follow_the_caller(wide, f):
    with jax.enable_x64(wide):
        assert jax.jit(f)(X)[1].dtype == (np.int64 if wide else np.int32)
        assert f(X)[1].dtype == (np.int64 if wide else np.int32)


# compilation --------------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    """Counts what XLA compiles."""
    seen = []

    def listen(event, duration_secs, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield lambda: len(seen)
    jax.monitoring.clear_event_listeners()


def fresh(n):
    return np.ones((n, 3), np.float32)


CALLS = {  # how a call is made, with a model of its own
    "itself": lambda f: f,
    "jit": jax.jit,
    "jit of it as an argument": lambda f: functools.partial(jax.jit(lambda f, x: f(x)), f),
    "grad": lambda f: functools.partial(jax.jit(jax.grad(lambda f, x: f(x)[0].sum())), f),
}


@pytest.mark.parametrize("how", CALLS)
def test_compiled_once_for_each_size(how, compiled):
    call = CALLS[how](js.to_jax(model(MODEL)))
    xs = [fresh(n) for n in (2, 2, 5, 2, 5, 6)]
    jax.block_until_ready(call(fresh(3)))
    counts = []
    for x in xs:
        before = compiled()
        jax.block_until_ready(call(x))
        counts.append(compiled() - before)
    assert counts == [1, 0, 1, 0, 0, 1]


def test_new_parameters_do_not_compile_anew(compiled, f):
    other = jax.tree.map(lambda p: p + 1, f)
    step = jax.jit(lambda f, x: f(x))
    jax.block_until_ready((f(X), step(f, X)))
    before = compiled()
    jax.block_until_ready((other(X), f.replace(other.params)(X), step(other, X)))
    assert compiled() == before


def test_jit_twice_of_one_model_compiles_once(compiled):
    g = js.to_jax(model(MODEL))
    jax.block_until_ready(jax.jit(g)(X))
    before = compiled()
    jax.block_until_ready(jax.jit(g)(X))
    assert compiled() == before


# chance -------------------------------------------------------------------------------------------


def test_a_key_decides_what_is_drawn():
    f = js.to_jax(
        model("""g (float[N] x) => (float[N] y, float[N] z) {
        y = RandomNormalLike (x)
        z = RandomNormalLike (x)
    }""")
    )
    x = np.zeros(4, np.float32)
    keys = jax.random.split(jax.random.key(3), 2)
    y, z = f(x, key=keys[0])
    assert not np.array_equal(y, z)
    np.testing.assert_array_equal(f(x, key=keys[0])[0], y)
    np.testing.assert_array_equal(jax.jit(lambda k: f(x, key=k))(keys[0])[0], y)
    assert not np.array_equal(f(x, key=keys[1])[0], y)
    np.testing.assert_array_equal(jax.vmap(lambda k: f(x, key=k)[0])(keys)[0], y)
    np.testing.assert_array_equal(f(x)[0], f(x)[0])


def test_a_copy_is_a_pytree_of_the_same_kind(f):
    """With parameters of its own, sharing what is compiled; it is not pickled."""
    copied = copy.deepcopy(f)
    total = jax.tree.map(jnp.add, f, copied)
    np.testing.assert_array_equal(total.params["b"], 2 * B)
    jax.jit(lambda g: jax.tree.map(jnp.negative, g), donate_argnums=0)(copied)
    np.testing.assert_allclose(f(X)[0], expected(X), rtol=1e-5)
    with pytest.raises(js.UnsupportedError, match="cannot be pickled: save its parameters"):
        pickle.dumps(f)
