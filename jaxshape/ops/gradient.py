"""Gradient (ai.onnx.preview.training): what JAX makes of the part of the graph it names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._error import ShapeError, UnsupportedError
from .._op import op
from ._numeric import is_float


@op("Gradient", domain="ai.onnx.preview.training")
def gradient(*inputs, xs, y, zs=None, part: Any = ()):
    """Differentiate y, or the sum of its elements, by xs, where xs and zs are inputs -> as xs.

    The engine gives `part`, the graph from xs and zs to y, as a function.
    """
    _check(inputs, xs, zs)
    if part == ():
        raise UnsupportedError("differentiates a graph: run the model that this node is part of")
    n = len(xs)
    for name, x in zip(xs, inputs[:n], strict=True):
        if not is_float(x.dtype):
            raise UnsupportedError(f"{name} is {x.dtype}, by which nothing is differentiated")
    value, pull = jax.vjp(lambda *points: part(*points, *inputs[n:])[0], *inputs[:n])
    return pull(jnp.ones_like(value))


def _check(inputs: Any, xs: Any, zs: Any) -> None:
    names = (*xs, *(zs or ()))
    if len(names) != len(inputs):
        raise ShapeError(f"takes {len(inputs)} inputs for {len(names)} names: {', '.join(names)}")


@gradient.shape_rule(rankless=True)  # because the part need not be walked to know the sizes
def _(*inputs, xs, y, zs=None, **_):
    _check(inputs, xs, zs)
    return tuple(inputs[: len(xs)])
