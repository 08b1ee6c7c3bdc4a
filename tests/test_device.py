"""What our own jits tell the compiler: what the installed one takes, and where it may be said."""

import contextlib

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
