"""What our own jits tell the compiler, where they may say it, and what a caller's settings do."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import model

import jaxshape as js
from jaxshape import _conversion, _device
from jaxshape._device import compiler_options, tracing


def test_options_are_taken_or_left_out():
    options = compiler_options()
    double = jax.jit(lambda x: x @ x, compiler_options=options)
    np.testing.assert_array_equal(double(2 * jnp.eye(2)), 4 * np.eye(2))


def test_a_compiler_without_them(monkeypatch):
    monkeypatch.setattr(_device, "OPTION", "xla_cpu_no_such_option")
    compiler_options.cache_clear()
    try:
        assert compiler_options() == {}
    finally:
        compiler_options.cache_clear()


X = np.ones((2, 3), np.float32)
UNDER = {  # how a function is called, and whether what it computes by itself is part of a trace
    "itself": (lambda f, x: f(x), False),
    "jit": (lambda f, x: jax.jit(f)(x), True),
    "eval_shape": (lambda f, x: jax.eval_shape(f, x), True),
    "scan": (lambda f, x: jax.lax.scan(lambda c, row: (c, f(row)), 0, x), True),
    "grad": (lambda f, x: jax.grad(lambda x: f(x).sum())(x), False),
    "vmap": (lambda f, x: jax.vmap(f)(x), False),
}


@pytest.mark.parametrize("how", UNDER)
def test_tracing(how):
    call, ambient = UNDER[how]
    seen = []

    def f(x):
        seen.append((tracing([x]), tracing([])))
        return x + 1

    call(f, X)
    assert seen == [(how != "itself", ambient)]


@pytest.mark.parametrize("how", UNDER)
@pytest.mark.parametrize("of", ["its argument", "a constant"])
def test_a_conversion_has_the_options_where_jax_takes_them(how, of, monkeypatch):
    """On the outermost jit alone; here they are such that the compiler refuses them there."""
    monkeypatch.setattr(_conversion, "compiler_options", lambda: {"xla_no_such_option": ""})
    f = js.to_jax(model("g (float x) => (float y) { y = Neg (x) }"))
    call, ambient = UNDER[how]
    outermost = how == "itself" if of == "its argument" else not ambient
    expected = pytest.raises(jax.errors.JaxRuntimeError) if outermost else contextlib.nullcontext()
    with expected:
        call(lambda x: f(x) if of == "its argument" else f(X) + x, X)


SETTINGS = {  # of JAX, by a caller who means other code than ours
    "ranks": functools.partial(jax.numpy_rank_promotion, "raise"),
    "dtypes": functools.partial(jax.numpy_dtype_promotion, "strict"),
    "leaks": jax.checking_leaks,
    "no jit": jax.disable_jit,
    "nans": functools.partial(jax.debug_nans, True),
    "wide": functools.partial(jax.enable_x64, True),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_under_a_callers_settings(setting):
    net = model("""g (float[N, 3] x, int64[K] i) => (float[K, 3] y, float[1, 3] s)
    <float[3] w = {1, 2, 3}, int64[1] zero = {0}> {
        h = Mul (x, w)  b = Greater (h, w)  t = Where (b, h, w)  s = ReduceSum (t, zero)
        g = Gather (h, i)  y = Softmax (g)
    }""")
    inputs = X, np.array([1, 0, 1])
    want = list(js.run(net, inputs).values())
    f = js.to_jax(net)
    with SETTINGS[setting]():
        slope = jax.grad(lambda f: f(*inputs)[1].sum())(f).params["w"]
        for found in (list(js.run(net, inputs).values()), f(*inputs), jax.jit(f)(*inputs)):
            for a, b in zip(found, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_array_equal(slope, [2, 2, 2])
