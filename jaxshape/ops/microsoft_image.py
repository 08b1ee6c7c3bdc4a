"""What onnxruntime's optimiser makes of image models (com.microsoft): channels last, fused sums.

Most of it has a kernel for GPUs only, and is computed as its parts are.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._error import ShapeError
from .._facts import count, divisible, same
from .._host import namespace
from .._op import Static, op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import onto, ranked, reshape, shaped, wide
from .activation import gelu, sigmoid
from .conv import agreed, conv, conv_transpose
from .microsoft import DOMAIN, fast_gelu, fused_conv
from .norm import moments

# sums ---------------------------------------------------------------------------------------------


@op("BiasAdd", DOMAIN, host=True)
def bias_add(X, bias, skip, /):
    """Add bias (C,) and skip to X (N, S, C) -> as X."""
    dims = hostdims(X.shape)
    ranked("X", dims, least=1)
    return X + shaped("bias", bias, dims[-1:]) + shaped("skip", skip, dims)


def _halves(x: Any, bias: Any) -> Any:
    ranked("X", x, least=1)
    ranked("bias", bias, 1)
    size = same(x[-1], bias[0], "bias along the last axis")
    divisible(size, 2, "two halves of the last axis")
    return size


@op("BiasSplitGelu", DOMAIN, host=True)
def bias_split_gelu(X, bias, /):
    """Multiply the first half of X (N, S, D) + bias (D,) by Gelu of the second -> (N, S, D/2)."""
    size = _halves(hostdims(X.shape), hostdims(bias.shape))
    x, half = X + bias, to_export(size // 2)
    return x[..., :half] * gelu.function(x[..., half:])


@bias_split_gelu.shape_rule  # because JAX cannot halve an axis of symbolic size
def _(X, bias, /):
    return TensorType(X.dtype, (*X.shape[:-1], _halves(X.shape, bias.shape) // 2))


@op("GemmFastGelu", DOMAIN, host=True)
def gemm_fast_gelu(X, W, bias=None, /):
    """Take FastGelu of X (*N, m, k) @ W (k, n) plus bias (n,) -> (*N, m, n)."""
    ranked("W", hostdims(W.shape), 2)
    k = same(hostdims(X.shape)[-1], hostdims(W.shape)[0], "columns of X and rows of W")
    x = shaped("X", X, (*hostdims(X.shape)[:-1], k))
    dtype = wide(X.dtype)
    w = shaped("W", W, (k, hostdims(W.shape)[1]))
    y = namespace(X, W).matmul(x.astype(dtype), w.astype(dtype)).astype(X.dtype)
    return fast_gelu.function(y, bias)


# normalisation ------------------------------------------------------------------------------------


def _grouped(x: Any, groups: int, last: int, activation: int) -> tuple[Any, ...]:
    """The shape (N, G, C/G, ...) or (N, ..., G, C/G)."""
    ranked("X", x, least=3)
    if activation not in (0, 1):
        raise ShapeError(f"activation is {activation}, wants 0 or 1")
    if groups < 1:
        raise ShapeError(f"groups is {groups}, wants at least 1")
    channels = x[-1] if last else x[1]
    divisible(channels, groups, f"{channels} channels in {groups} groups")
    parts = (groups, channels // groups)
    return (*x[:-1], *parts) if last else (x[0], *parts, *x[2:])


def _along(x: Any, v: Any, name: str, last: int) -> Any:
    """One number for each channel, as it broadcasts with x."""
    dims = hostdims(x.shape)
    v = shaped(name, v, dims[-1:] if last else dims[1:2])
    return v if last else v.reshape((-1, *(1,) * (x.ndim - 2)))


@op("GroupNorm", DOMAIN, host=True)
def group_norm(
    X, gamma, beta, /, *, activation, channels_last=1, epsilon=9.999999747378752e-06, groups
):
    """Normalise groups of channels of X (N, *D, C) or (N, C, *D), times gamma (C,) plus beta (C,),
    then SiLU where activation is 1 -> as X."""
    shape = _grouped(hostdims(X.shape), groups, channels_last, activation)
    dtype = wide(X.dtype)
    x = reshape(X, shape).astype(dtype)
    middle = range(1, x.ndim - 2) if channels_last else range(3, x.ndim)
    mean, var = moments(x, (*middle, x.ndim - 1) if channels_last else (2, *middle))
    y = ((x - mean) / namespace(x).sqrt(var + epsilon)).reshape(X.shape)
    y = y * _along(X, gamma, "gamma", channels_last).astype(dtype)
    y = y + _along(X, beta, "beta", channels_last).astype(dtype)
    return (y * sigmoid.function(y) if activation else y).astype(X.dtype)


@op("SkipGroupNorm", DOMAIN, host=True)
def skip_group_norm(
    X, gamma, beta, skip, bias=None, /, *, activation, channels_last=1,
    epsilon=9.999999747378752e-06, groups,
):  # fmt: skip
    """GroupNorm of X + skip (as X, (N, 1, 1, C) or (N, C)) + bias (C,) -> as X, and the sum."""
    dims = hostdims(X.shape)
    if skip.ndim == 2:
        n, c = dims[0], dims[-1] if channels_last else dims[1]
        skip, ones = shaped("skip", skip, (n, c)), (1,) * (len(dims) - 2)
        shape = (n, *ones, c) if channels_last else (n, c, *ones)
        skip = reshape(skip, shape)
    total = X + onto("skip", skip, dims)
    total = total if bias is None else total + _along(X, bias, "bias", channels_last)
    y = group_norm.function(
        total, gamma, beta, activation=activation, channels_last=channels_last, epsilon=epsilon,
        groups=groups,
    )  # fmt: skip
    return y, total


@group_norm.shape_rule  # because JAX cannot part a symbolic number of channels
@skip_group_norm.shape_rule
def _(X, gamma, beta, skip=None, bias=None, /, *, activation, channels_last=1, groups, **_):
    _grouped(X.shape, groups, channels_last, activation)
    channels = X.shape[-1] if channels_last else X.shape[1]
    for name, v in (("gamma", gamma), ("beta", beta), ("bias", bias)):
        if v is not None:
            ranked(name, v.shape, 1)
            same(v.shape[0], channels, name)
    return X, X


# convolutions -------------------------------------------------------------------------------------


def _first(x: Any) -> Any:
    return x if x is None else jnp.moveaxis(x, -1, 1)


def _turned(t: Any) -> Any:
    """The type with its channels moved to the front."""
    if t is None or t.shape is None:
        return t
    return TensorType(t.dtype, (t.shape[0], t.shape[-1], *t.shape[1:-1]))


@op("NhwcConv", DOMAIN)
def nhwc_conv(
    X, W, B=None, /, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    """Convolve X (N, *D, C) with W (M, C/group, *K), add B (M,) -> (N, *D', M)."""
    y = conv.function(
        _first(X), W, B, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return jnp.moveaxis(y, 1, -1)


@op("NhwcFusedConv", DOMAIN)
def nhwc_fused_conv(
    X, W, B=None, Z=None, /, *, activation=None, activation_params=None, auto_pad="NOTSET",
    dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    """FusedConv of X (N, *D, C) and Z (N, *D', M) -> (N, *D', M)."""
    y = fused_conv.function(
        _first(X), W, B, _first(Z), activation=activation, activation_params=activation_params,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
        strides=strides,
    )  # fmt: skip
    return jnp.moveaxis(y, 1, -1)


@nhwc_conv.shape_rule  # because JAX cannot decide whether a window fits
@nhwc_fused_conv.shape_rule
def _(X, W, B=None, Z=None, /, *, activation=None, activation_params=None, **attributes):
    shape = agreed(_turned(X), W, B, **attributes)[1]
    return TensorType(X.dtype, (shape[0], *shape[2:], shape[1]))


@op("ConvTransposeWithDynamicPads", DOMAIN)
def conv_transpose_with_pads(
    X, W, Pads: Static = None, B=None, /, *, auto_pad="NOTSET", dilations=None, group=1,
    kernel_shape=None, output_padding=None, strides=None,
):  # fmt: skip
    """ConvTranspose of X (N, C, *D), W and B, less Pads (2r,) in front and behind
    -> (N, M, *D')."""
    return conv_transpose.function(
        X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, pads=_margins(Pads, X.ndim - 2), strides=strides,
    )  # fmt: skip


def _margins(pads: Any, rank: int) -> list[int]:
    if pads is None:
        raise ShapeError("needs input Pads")
    found = np.asarray(pads).reshape(-1).tolist()
    if len(found) != 2 * rank:
        raise ShapeError(f"Pads has {len(found)} elements, wants 2 for each of {rank} axes")
    return found


@conv_transpose_with_pads.shape_rule  # because JAX cannot divide by strides
def _(X, W, Pads=None, B=None, /, *, group=1, **attributes):
    ranked("X", X.shape, least=3)
    ranked("W", W.shape, len(X.shape))
    if Pads is not None and not isinstance(Pads, np.ndarray):  # their content is not known
        space = [count("size") for _ in X.shape[2:]]
        return TensorType(X.dtype, (X.shape[0], W.shape[1] * group, *space))
    pads = _margins(Pads, len(X.shape) - 2)
    return conv_transpose.rule(X, W, B, group=group, pads=pads, **attributes)  # type: ignore[misc]
