"""What our own jits tell the compiler is what the installed one takes."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxshape import _device
from jaxshape._device import compiler_options


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
