"""Convolutions.

One function says on what shapes a convolution agrees: `agreed`, `spread` for the transposed one,
`deformed`. Lowerings call it to check numbers, shape rules to derive dims. The rules exist because
JAX cannot decide whether a window fits into a symbolic size, and because a rank known from one
operand is the rank of all.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._device import canonical
from .._dim import maximum, product
from .._error import ShapeError
from .._facts import count, divisible, least, same
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import wide, written
from ._convolve import convolve
from ._window import Dims, Window, exported_pads, padding, per_axis, sizes, slices, spatial
from ._window import window as make_window


@op("Conv", since=1)
def conv(
    x, w, b=None, /, *,
    auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Convolve x (N, C, *D) with w (M, C/group, *K), add b (M,) -> (N, M, *D')."""
    window, out = agreed(x, w, b, group, kernel_shape, strides, pads, dilations, auto_pad)
    pads = padding(window, hostdims(x.shape)[2:], out[2:])
    return _biased(convolve(x, w, pads, group, window.strides, window.dilations), b)


@conv.shape_rule(rankless=True)  # because JAX cannot decide whether a window fits
def _(x, w, b=None, /, **attributes):
    return TensorType(x.dtype, agreed(x, w, b, **attributes)[1])


@op("ConvInteger", since=10)
def conv_integer(
    x, w, x_zero_point=None, w_zero_point=None, /, *,
    auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Convolve integers x (N, C, *D) with w (M, C/group, *K) -> int32 (N, M, *D').

    Zero points, () for x and () or (M,) for w, are taken off first.
    """
    window, out = agreed(x, w, None, group, kernel_shape, strides, pads, dilations, auto_pad)
    _check_zeros(x_zero_point, w_zero_point, out)
    x, w = x.astype(np.int32), w.astype(np.int32)
    if x_zero_point is not None:
        x = x - x_zero_point.reshape(()).astype(np.int32)
    if w_zero_point is not None:
        w = w - w_zero_point.reshape(-1, *(1,) * (w.ndim - 1)).astype(np.int32)
    return convolve_integers(x, w, window, group, out)


@conv_integer.shape_rule(rankless=True)  # because JAX cannot decide whether a window fits
def _(x, w, x_zero_point=None, w_zero_point=None, /, **attributes):
    _, out = agreed(x, w, **attributes)
    _check_zeros(x_zero_point, w_zero_point, out)
    return TensorType("int32", out)


def convolve_integers(x: Any, w: Any, window: Window, group: int, out: Dims) -> Any:
    """Convolve int32 x (N, C, *D) with int32 w (M, C/group, *K) exactly -> (N, M, *D') = out.

    As a product with what each element of the window sees: GPUs have no integer convolution.
    """
    pads = exported_pads(padding(window, hostdims(x.shape)[2:], out[2:]))
    x = jnp.pad(x, [(0, 0), (0, 0), *pads])
    m, c, *_ = w.shape
    x = x.reshape(x.shape[0], group, c, *x.shape[2:])
    seen = jnp.stack([x[part] for part in slices(window, out[2:])])
    y = jnp.einsum("kngc...,gmck->ngm...", seen, w.reshape(group, m // group, c, -1))
    return y.reshape(x.shape[0], m, *y.shape[3:])


def _check_zeros(x_zero_point: Any, w_zero_point: Any, out: Any) -> None:
    channels = 1 if out is None else out[1]
    for name, zero, wanted in (("x", x_zero_point, 1), ("w", w_zero_point, channels)):
        if zero is None or not zero.shape:
            continue
        if len(zero.shape) != 1:
            raise ShapeError(f"{name}_zero_point has rank {len(zero.shape)}, wants at most 1")
        if zero.shape[0] != 1 and out is not None:
            same(hostdims(zero.shape)[0], wanted, f"the size of {name}_zero_point")


def agreed(
    x: Any, w: Any, b: Any = None, group: int = 1, kernel_shape: Any = None, strides: Any = None,
    pads: Any = None, dilations: Any = None, auto_pad: str = "NOTSET",
) -> tuple[Any, Any]:  # fmt: skip
    """The window of a convolution and its result's shape (N, M, *D').

    Both are None where nothing says their rank.
    """
    xs, ws, bs, kernel = _operands(x, w, b, group, kernel_shape)
    if xs is not None and ws is not None:
        why = f"channels of x {written(xs)} and w {written(ws)} in group {group}"
        same(xs[1], ws[1] * group, why)
    channels = _channels(ws and ws[0], bs)
    divisible(channels, group, "output channels by group")
    if kernel is None:
        return None, None
    window = make_window(kernel, strides, pads, dilations, auto_pad)
    space = sizes(window, xs[2:]) if xs is not None else _unknown(kernel)
    return window, (_batch(xs), channels, *space)


def _operands(x: Any, w: Any, b: Any, group: int, kernel_shape: Any) -> tuple[Any, ...]:
    """The shapes of x, w and bias and the kernel's sizes, None where unknown or absent."""
    if group < 1:
        raise ShapeError(f"group is {group}, wants at least 1")
    xs, ws, bs = [
        hostdims(t.shape) if t is not None and t.shape is not None else None for t in (x, w, b)
    ]
    kernel = tuple(kernel_shape or ()) or None
    n = len(kernel) if kernel else None
    for name, shape in (("x", xs), ("w", ws)):
        if shape is not None:
            n = len(spatial(name, shape, n))
    if bs is not None and len(bs) != 1:
        raise ShapeError(f"the bias {written(bs)} has rank {len(bs)}, wants 1")
    if ws is not None:
        why = f"kernel of w {written(ws)} and kernel_shape {kernel}"
        kernel = tuple([same(d, k, why) for d, k in zip(ws[2:], kernel or ws[2:], strict=True)])
    if kernel is None and n is not None:
        kernel = tuple([count("Conv_kernel", least=1) for _ in range(n)])
    return xs, ws, bs, kernel


def _unknown(kernel: Any) -> Any:
    return [count(f"Conv_size{i}") for i in range(2, len(kernel) + 2)]


def _batch(xs: Any) -> Any:
    return count("Conv_batch") if xs is None else xs[0]


def _channels(channels: Any, bs: Any) -> Any:
    """The channels of the result, by weight and bias, as far as these are known."""
    known = [d for d in (channels, bs and bs[0]) if d is not None]
    if not known:
        return count("Conv_channels")
    return same(known[0], known[-1], f"output channels {channels} and those of the bias")


def _biased(y: Any, b: Any) -> Any:
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))


# transposed ----------------------------------------------------------------------


@op("ConvTranspose", since=1)
def conv_transpose(
    x, w, b=None, /, *,
    auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None,
    output_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Spread x (N, C, *D) by w (C, M/group, *K), add b (M,) -> (N, M, *D'), Conv's transpose."""
    window, out, begins = spread(
        x, w, b, group, kernel_shape, strides, pads, dilations, auto_pad, output_padding,
        output_shape,
    )  # fmt: skip
    space = hostdims(x.shape)[2:]
    around = [
        (span - 1 - begin, size - 1 - (d - 1) * stride + begin)
        for span, stride, begin, size, d in zip(
            window.spans, window.strides, begins, out[2:], space, strict=True
        )
    ]
    c, m, *kernel = w.shape
    w = w.reshape(group, c // group, m, *kernel).swapaxes(1, 2)
    w = jnp.flip(w.reshape(group * m, c // group, *kernel), range(2, len(kernel) + 2))
    ones = (1,) * len(kernel)
    return _biased(convolve(x, w, around, group, ones, window.dilations, window.strides), b)


@conv_transpose.shape_rule(rankless=True)  # because JAX cannot decide whether sizes are positive
def _(x, w, b=None, /, **attributes):
    return TensorType(x.dtype, spread(x, w, b, **attributes)[1])


def spread(
    x: Any, w: Any, b: Any = None, group: int = 1, kernel_shape: Any = None, strides: Any = None,
    pads: Any = None, dilations: Any = None, auto_pad: str = "NOTSET", output_padding: Any = None,
    output_shape: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The window of a transposed convolution, its result's shape, what is cut before each axis."""
    xs, ws, bs, kernel = _operands(x, w, b, group, kernel_shape)
    if xs is not None and ws is not None:
        same(xs[1], ws[0], f"channels of x {written(xs)} and w {written(ws)}")
    for shape, axis in ((xs, 1), (ws, 0)):
        if shape is not None:
            divisible(shape[axis], group, "input channels by group")
    channels = _channels(ws and ws[1] * group, bs)
    if kernel is None:
        return None, None, None
    n = len(kernel)
    window = make_window(kernel, strides, pads, dilations, auto_pad)
    extra = per_axis("output_padding", output_padding, n, 0)
    _check_extra(extra, window)
    wanted = tuple(output_shape or ())
    if wanted:  # with batch and channels is not the standard, but runtimes take it
        wanted = per_axis("output_shape", wanted[2:] if len(wanted) == n + 2 else wanted, n, 1)
    if xs is None:
        return window, (_batch(xs), channels, *(wanted or _unknown(kernel))), None
    if window.same and not wanted:
        wanted = [d * s for d, s in zip(xs[2:], window.strides, strict=True)]
    pairs = [
        _spread_axis(window, i, d, extra[i], wanted[i] if wanted else None)
        for i, d in enumerate(xs[2:])
    ]
    return window, (_batch(xs), channels, *[size for size, _ in pairs]), [cut for _, cut in pairs]


def _check_extra(extra: Any, window: Window) -> None:
    for e, s, d in zip(extra, window.strides, window.dilations, strict=True):
        if e >= max(s, d):
            why = f"must be less than the stride {s} or dilation {d}"
            raise ShapeError(f"output_padding {extra} {why}")


def _spread_axis(window: Window, i: int, d: Any, extra: int, wanted: Any) -> tuple[Any, Any]:
    """The size of one axis and the cut before it, which follows from the size where `wanted`."""
    full = window.strides[i] * (d - 1) + extra + window.spans[i]
    if wanted is None:
        before, after = window.pads[i]
        least(full - before - after, 1, f"axis {i + 2} of the result")
        return full - before - after, before
    total = maximum(full - wanted, 0)
    half = total // 2
    return wanted, half if window.auto_pad == "SAME_UPPER" else total - half


# deformed ----------------------------------------------------------------------


@op("DeformConv", since=19)
def deform_conv(
    x, w, offset, b=None, mask=None, /, *,
    dilations=None, group=1, kernel_shape=None, offset_group=1, pads=None, strides=None,
):  # fmt: skip
    """Convolve x (N, C, *D) with w (M, C/group, *K) at moved places -> (N, M, *D').

    A place is moved by its n values in offset (N, offset_group*|K|*n, *D'), interpolated linearly,
    0 outside, and scaled by mask (N, offset_group*|K|, *D').
    """
    window, _ = deformed(
        x, w, offset, b, mask, group, kernel_shape, strides, pads, dilations, offset_group
    )
    dtype, real, index = x.dtype, wide(x.dtype), canonical("int64")
    n, taps, batch, (channels, *space) = len(window.kernel), window.taps, x.shape[0], x.shape[1:]
    places, points = offset.shape[2:], taps * math.prod(offset.shape[2:])
    moved = offset.astype(real).reshape(batch, offset_group, taps, n, *places)
    starts = np.indices(window.kernel).reshape(n, taps, *(1,) * n)
    lows, shares = [], []
    for i in range(n):
        grid = lax.broadcasted_iota(real, (taps, *places), i + 1) * window.strides[i]
        first = (starts[i] * window.dilations[i] - window.pads[i][0]).astype(real)
        at = moved[:, :, :, i] + (grid + first)
        lows.append(jnp.floor(at))
        shares.append(at - lows[i])
    image = x.astype(real).reshape(batch, offset_group, channels // offset_group, math.prod(space))
    sampled: Any = 0
    for corner in itertools.product((0, 1), repeat=n):
        flat: Any = 0
        weight: Any = 1
        for i, up in enumerate(corner):
            at = lows[i].astype(index) + up
            inside = (at >= 0) & (at < space[i])
            weight = weight * jnp.where(inside, shares[i] if up else 1 - shares[i], 0)
            flat = flat * space[i] + jnp.clip(at, 0, space[i] - 1)
        flat = flat.reshape(batch, offset_group, 1, points)
        sampled = sampled + jnp.take_along_axis(image, flat, 3) * weight.reshape(flat.shape)
    if mask is not None:
        sampled = sampled * mask.astype(real).reshape(batch, offset_group, 1, points)
    sampled = sampled.reshape(batch, group, channels // group, taps, *places)
    kernel = w.astype(real).reshape(group, w.shape[0] // group, channels // group, taps)
    y = jnp.einsum("ngck...,gmck->ngm...", sampled, kernel)
    return _biased(y.reshape(batch, w.shape[0], *places).astype(dtype), b)


@deform_conv.shape_rule(rankless=True)  # because JAX cannot decide whether a window fits
def _(x, w, offset, b=None, mask=None, /, **attributes):
    return TensorType(x.dtype, deformed(x, w, offset, b, mask, **attributes)[1])


def deformed(
    x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, group: int = 1,
    kernel_shape: Any = None, strides: Any = None, pads: Any = None, dilations: Any = None,
    offset_group: int = 1,
) -> tuple[Any, Any]:  # fmt: skip
    """The window and the shape (N, M, *D') on which a convolution, offsets and mask agree."""
    if offset_group < 1:
        raise ShapeError(f"offset_group is {offset_group}, wants at least 1")
    window, out = agreed(x, w, b, group, kernel_shape, strides, pads, dilations)
    if x.shape is not None:
        divisible(hostdims(x.shape)[1], offset_group, "channels of x by offset_group")
    for name, t in (("offset", offset), ("mask", mask)):
        if t is None or t.shape is None:
            continue
        shape = hostdims(t.shape)
        spatial(name, shape, None if out is None else len(out) - 2)
        if out is None:
            out = (shape[0], _channels(None, None if b is None else b.shape), *shape[2:])
        if window is not None:
            each = product(window.kernel) * (len(window.kernel) if name == "offset" else 1)
            why = f"channels of {name} {written(shape)} for the kernel {written(window.kernel)}"
            same(shape[1], each * offset_group, why)
        why = f"{name} {written(shape)} and the result {written(out)}"
        pairs = enumerate(zip(out, shape, strict=True))
        out = tuple([o if axis == 1 else same(o, d, why) for axis, (o, d) in pairs])
    return window, out
