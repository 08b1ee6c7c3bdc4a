"""Windows put back: MaxUnpool writes values where a pool found them, Col2Im adds up blocks."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._dim import product
from .._facts import count, divisible, least, same
from .._host import is_host
from .._op import Static, op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import agree, ranked, written
from ._window import sizes
from ._window import window as make_window


@op("MaxUnpool", since=9)
def max_unpool(x, i, output_shape: Static = None, /, *, kernel_shape, pads=None, strides=None):
    """Write x (N, C, *D) at flat places i (N, C, *D) of zeros (N, C, *D'), by 0 to output_shape.

    D' is the smallest size that pools to D; places count through (N, C, *D'), not output_shape.
    """
    shape, inner, out = _unpooled(x, i, output_shape, kernel_shape, strides, pads)
    x, i = fit(x, shape), fit(i, shape)
    size = [to_export(d) for d in inner]
    # axis by axis: JAX cannot see that a product of sizes such as 2*d - 1 is no less than 0
    places = []
    for d in reversed(size[1:]):
        i, place = jnp.divmod(i, jnp.asarray(d, i.dtype))
        places.append(place)
    y = jnp.zeros(size, x.dtype).at[i, *reversed(places)].set(x, mode="drop")
    if out is inner:
        return y
    grow = [(0, to_export(o) - n, 0) for o, n in zip(out, size, strict=True)]
    return lax.pad(y, np.zeros((), x.dtype), grow)


@max_unpool.shape_rule(rankless=True)  # because output_shape may be unknown
def _(x, i, output_shape=None, /, **attributes):
    return TensorType(x.dtype, _unpooled(x, i, output_shape, **attributes)[2])


def _unpooled(
    x: Any, i: Any, output_shape: Any, kernel_shape: Any, strides: Any = None, pads: Any = None
) -> tuple[Any, Any, Any]:
    """The shape of x and i, the smallest (N, C, *D') that pools to it, and the result's shape."""
    window = make_window(kernel_shape, strides, pads)
    n = len(window.kernel)
    xs, places = [None if t.shape is None else hostdims(t.shape) for t in (x, i)]
    for name, dims in (("x", xs), ("i", places)):
        ranked(name, dims, n + 2)
    shape = xs or places or tuple([count("MaxUnpool_size") for _ in range(n + 2)])
    if xs and places:
        why = f"x {written(xs)} and i {written(places)}"
        shape = tuple([same(a, b, why) for a, b in zip(xs, places, strict=True)])
    axes = zip(shape[2:], window.kernel, window.strides, window.pads, strict=True)
    inner = (*shape[:2], *[(d - 1) * s + k - before - after for d, k, s, (before, after) in axes])
    for axis, d in enumerate(inner[2:], 2):
        least(d, 0, f"axis {axis} of the result")
    if output_shape is None:
        return shape, inner, inner
    ranked("output_shape", output_shape.shape, 1)
    if output_shape.shape is not None:
        same(output_shape.shape[0], n + 2, "the length of output_shape and the rank of x")
    if not is_host(output_shape):
        return shape, inner, tuple([count("MaxUnpool_size") for _ in inner])
    out = tuple(output_shape.tolist())
    for axis, (o, d) in enumerate(zip(out, inner, strict=True)):
        least(o, d, f"axis {axis} of output_shape {written(out)} must hold what is unpooled")
    return shape, inner, out


@op("Col2Im", since=18)
def col2im(
    input, image_shape: Static, block_shape: Static, /, *, dilations=None, pads=None, strides=None
):
    """Add up the blocks in input (N, C*|B|, L) -> (N, C, *image_shape); L counts through places."""
    out, window, counts = _image(input, image_shape, block_shape, strides, pads, dilations)
    y = input.reshape([to_export(d) for d in (*out[:2], *window.kernel, *counts)])
    for i, (k, s, d, (before, _)) in enumerate(
        zip(window.kernel, window.strides, window.dilations, window.pads, strict=True)
    ):  # one axis at a time, its blocks side by side in axis 2
        axis = len(window.kernel) + 1 - i
        size, reach = to_export(out[2 + i]), (to_export(counts[i]) - 1) * s + 1
        parts = []
        for j in range(k):
            low = j * d - before
            around = [(0, 0, 0)] * (y.ndim - 1)
            around[axis] = (low, size - reach - low, s - 1)
            parts.append(lax.pad(y[:, :, j], np.zeros((), y.dtype), around))
        y = jnp.moveaxis(functools.reduce(jnp.add, parts), axis, -1)
    return y


@col2im.shape_rule(rankless=True)  # because image_shape and block_shape may be unknown
def _(input, image_shape, block_shape, /, **attributes):
    return TensorType(input.dtype, _image(input, image_shape, block_shape, **attributes)[0])


def _image(
    x: Any, image_shape: Any, block_shape: Any, strides: Any = None, pads: Any = None,
    dilations: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The shape (N, C, *image), the window, the numbers of blocks; None as far as unknown."""
    lengths = []
    for name, t in (("image_shape", image_shape), ("block_shape", block_shape)):
        ranked(name, t.shape, 1)
        lengths.append(None if t.shape is None else t.shape[0])
    n = agree("the lengths of image_shape and block_shape", *lengths)
    for values, each in ((strides, 1), (dilations, 1), (pads, 2)):
        n = len(values) // each if values and not isinstance(n, int) else n
    xs = None if x.shape is None else hostdims(x.shape)
    ranked("input", xs, 3)
    if not isinstance(n, int):
        return None, None, None
    batch, rows, length = xs or (count("Col2Im_batch"), None, None)
    image, block = _listed(image_shape, "image_shape"), _listed(block_shape, "block_shape")
    make_window((1,) * n, strides, pads, dilations)
    window = make_window(block, strides, pads, dilations) if block else None
    if window is None or rows is None:
        channels = count("Col2Im_channels", most=rows)
    else:
        divisible(rows, product(block), f"axis 1 of input by the block {written(block)}")
        channels = rows // product(block)
    counts = sizes(window, image) if window and image else None
    if counts and xs:
        why = f"axis 2 of input {written(xs)} and blocks {written(block)} in image {written(image)}"
        same(length, product(counts), why)
    return (batch, channels, *(image or [count("Col2Im_size") for _ in range(n)])), window, counts


def _listed(t: Any, name: str) -> Any:
    """The sizes that a host array holds, None where its content is unknown."""
    if not is_host(t):
        return None
    values = tuple(t.tolist())
    for v in values:
        least(v, 1, f"{name} {written(values)}")
    return values
