"""Gradients against differences: both slopes of a model along one random step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

import jaxshape as js


def slopes(model: onnx.ModelProto, *args: np.ndarray, size: float = 1e-3) -> tuple[Any, Any]:
    """How the first output, weighted at random, changes along a step; what its gradient says."""
    f = js.to_jax(model)
    rng = np.random.default_rng(0)
    steps = [np.float32(rng.standard_normal(a.shape) * size) for a in args]
    weight = np.float32(rng.standard_normal(jax.tree.leaves(jax.eval_shape(f, *args))[0].shape))

    def total(*xs: Any) -> Any:
        return (jax.tree.leaves(f(*xs))[0] * weight).sum()

    @jax.jit
    def both(*xs: Any) -> Any:
        ahead, back = ([x + s * t for x, t in zip(xs, steps, strict=True)] for s in (0.5, -0.5))
        grads = jax.grad(total, range(len(xs)))(*xs)
        return total(*ahead) - total(*back), sum(map(jnp.vdot, grads, steps))

    return both(*args)
