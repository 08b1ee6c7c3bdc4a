"""Gates, streams and norms of newer decoders, as onnxruntime fuses them (com.microsoft).

Computed in float32 at least, rounded where the text of the operator says so. Streams of a layer
(hyper-connections) are an axis of their own, (*N, C, H), or lie in the last one, (*N, C*H).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._error import ShapeError, UnsupportedError
from .._facts import divisible, equal, same
from .._host import namespace
from .._op import op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import ranked, reshape, shaped, wide
from .activation import sigmoid, softplus
from .microsoft import DOMAIN


def _rms(x: Any, epsilon: float) -> Any:
    """x over the root of its mean square along the last axis."""
    xp = namespace(x)
    return x / xp.sqrt(xp.mean(xp.square(x), axis=-1, keepdims=True) + epsilon)


# norms and activations ----------------------------------------------------------------------------

_GATES = ("silu", "swish", "sigmoid")


def _gate_check(activation: str, x: Any, scale: Any, gate: Any) -> Any:
    """The shape of x with its last axis in groups."""
    if activation not in _GATES:
        raise ShapeError(f"activation is {activation!r}, wants one of {', '.join(_GATES)}")
    ranked("X", x, least=1)
    ranked("scale", scale, 1)
    ranked("gate", gate, len(x))
    for a, b in zip(x, gate, strict=True):
        same(a, b, "shapes of X and gate")
    divisible(x[-1], scale[0], "last axis of X in groups of scale's length")
    return (*x[:-1], x[-1] // scale[0], scale[0])


@op("GatedRMSNorm", DOMAIN, host=True)
def gated_rms_norm(X, scale, gate, /, *, activation="silu", epsilon=9.999999747378752e-06):
    """Divide groups of C in X (*N, G*C) by their root mean square, times scale (C,) and the
    activation of gate -> as X."""
    shapes = [hostdims(v.shape) for v in (X, scale, gate)]
    grouped = _gate_check(activation, *shapes)  # type: ignore[misc]
    dtype = wide(X.dtype)
    y = _rms(reshape(X, grouped).astype(dtype), epsilon) * scale.astype(dtype)
    z = gate.astype(dtype)
    s = sigmoid.function(z)
    return (y.reshape(X.shape) * (s if activation == "sigmoid" else z * s)).astype(X.dtype)


@gated_rms_norm.shape_rule  # because JAX cannot part an axis of symbolic size
def _(X, scale, gate, /, *, activation="silu", epsilon=0.0):
    _gate_check(activation, X.shape, scale.shape, gate.shape)
    return X


@op("ScaledSiLU", DOMAIN, host=True)
def scaled_silu(X, scale=None, /, *, alpha=1.0):
    """Multiply z = scale () * X (*D) by Sigmoid of z; scale is alpha unless given -> as X."""
    stored, dtype = X.dtype, wide(X.dtype)
    factor = alpha if scale is None else shaped("scale", scale, ()).astype(dtype)
    z = (X.astype(dtype) * factor).astype(stored)
    s = sigmoid.function(z.astype(dtype)).astype(stored)
    return (z.astype(dtype) * s.astype(dtype)).astype(stored)


@op("GatedAdd", DOMAIN, host=True)
def gated_add(X, Y, gate, gate_weight=None, /):
    """Add to X (*N, C) Y times gate (*N, 1) -> as X."""
    if gate_weight is not None:
        raise UnsupportedError("gate_weight is not handled")
    dims, dtype = hostdims(X.shape), wide(X.dtype)
    ranked("X", dims, least=1)
    y, gate = shaped("Y", Y, dims), shaped("gate", gate, (*dims[:-1], 1))
    product = (y.astype(dtype) * gate.astype(dtype)).astype(X.dtype)
    return (X.astype(dtype) + product.astype(dtype)).astype(X.dtype)


@op("LinearAttentionGate", DOMAIN, host=True)
def linear_attention_gate(a, dt_bias, decay_scale, b=None, /):
    """Give decay_scale (H,) * Softplus(a (N, T, H) + dt_bias (H,)), and Sigmoid of b (N, T, H)."""
    dims = hostdims(a.shape)
    ranked("a", dims, least=1)
    x = a.astype(np.float32) + shaped("dt_bias", dt_bias, dims[-1:])
    decay = shaped("decay_scale", decay_scale, dims[-1:]) * softplus.function(x)
    if b is None:
        return decay.astype(a.dtype), None
    beta = sigmoid.function(shaped("b", b, dims).astype(np.float32))
    return decay.astype(a.dtype), beta.astype(b.dtype)


# streams ------------------------------------------------------------------------------------------


def _streams(x: Any, branches: int) -> tuple[Any, ...]:
    """The shape of streams with an axis of their own, (*N, C, H)."""
    if not branches:
        ranked("streams", x, least=2)
        return tuple(x)
    ranked("streams", x, least=1)
    if branches < 0:
        raise ShapeError(f"num_branches is {branches}, wants at least 0")
    divisible(x[-1], branches, f"{x[-1]} in {branches} streams")
    return (*x[:-1], branches, x[-1] // branches)


def _gates_of(name: str, own: Any, shape: Any, flat: bool) -> Any:
    """What gates for streams are demanded to be: (*N, C), (*N, C, 1), (*N, C, H), or (*N, C*H).

    None where it depends on sizes that are not known which of the forms it is.
    """
    if len(own) == len(shape) - 1:
        c, whole = shape[-2], shape[-2] * shape[-1]
        one = equal(own[-1], c)
        if not flat or one:
            return shape[:-1]
        return (*shape[:-2], whole) if one is False else None
    ranked(name, own, len(shape))
    one = equal(own[-1], 1)
    return None if one is None else (*shape[:-1], 1) if one else shape


def _per_stream(name: str, v: Any, shape: Any, flat: bool) -> Any:
    """Gates as (*N, C, 1) or (*N, C, H)."""
    wanted = _gates_of(name, hostdims(v.shape), shape, flat)
    if wanted is None:
        raise UnsupportedError(f"what {name} holds depends on its size: {hostdims(v.shape)}")
    v = shaped(name, v, wanted)
    if len(wanted) == len(shape):
        return v
    return namespace(v).expand_dims(v, -1) if wanted == shape[:-1] else reshape(v, shape)


def _demand(name: str, own: Any, wanted: Any) -> None:
    if wanted is not None:
        ranked(name, own, len(wanted))
        for a, b in zip(own, wanted, strict=True):
            same(a, b, name)


def _scale_of(own: Any, c: Any, h: Any) -> Any:
    """What the scale of streams is demanded to be; None where that depends."""
    ranked("scale", own, 1, 2)
    if len(own) == 2:
        return (c, h)
    one = equal(own[0], h)
    return (h,) if one else None if one is None else (c * h,)


@op("BranchwiseRMSNorm", DOMAIN, host=True)
def branchwise_rms_norm(X, scale=None, /, *, epsilon=9.999999747378752e-06, num_branches=0):
    """Divide each stream of X (*N, C, H) or (*N, C*H) by its root mean square, times scale (C*H,),
    (C, H) or (H,) -> as X."""
    shape, dtype = _streams(hostdims(X.shape), num_branches), wide(X.dtype)
    y = _rms(reshape(X, shape).astype(dtype), epsilon)
    if scale is not None:
        wanted = _scale_of(hostdims(scale.shape), *shape[-2:])
        if wanted is None:
            raise UnsupportedError("what scale holds depends on its size")
        scale = shaped("scale", scale, wanted).astype(dtype)
        y = y * (scale if wanted == shape[-1:] else reshape(scale, shape[-2:]))
    return y.reshape(X.shape).astype(X.dtype)


@branchwise_rms_norm.shape_rule  # because JAX cannot part an axis of symbolic size
def _(X, scale=None, /, *, num_branches=0, **_):
    *_, c, h = _streams(X.shape, num_branches)
    if scale is not None:
        _demand("scale", scale.shape, _scale_of(scale.shape, c, h))
    return X


@op("HyperConnectionPreMix", DOMAIN, host=True)
def hyper_connection_pre_mix(streams, pre_mix, /, *, num_branches=0, reduction_scale=1.0):
    """Sum streams (*N, C, H) or (*N, C*H) times their gates, for each or for all elements
    -> (*N, H)."""
    shape, dtype = _streams(hostdims(streams.shape), num_branches), wide(streams.dtype)
    gates = _per_stream("pre_mix", pre_mix, shape, bool(num_branches)).astype(dtype)
    y = namespace(streams).sum(reshape(streams, shape).astype(dtype) * gates, axis=-2)
    return (reduction_scale * y).astype(streams.dtype)


@hyper_connection_pre_mix.shape_rule  # because JAX cannot part an axis of symbolic size
def _(streams, pre_mix, /, *, num_branches=0, **_):
    shape = _streams(streams.shape, num_branches)
    wanted = _gates_of("pre_mix", pre_mix.shape, shape, bool(num_branches))
    _demand("pre_mix", pre_mix.shape, wanted)
    return TensorType(streams.dtype, (*shape[:-2], shape[-1]))


@op("HyperConnectionPostMix", DOMAIN, host=True)
def hyper_connection_post_mix(
    streams, block_output, post_mix, stream_mix=None, /, *, num_branches=0
):
    """Mix streams (*N, C, H) by stream_mix (*N, C, C), add block_output (*N, H) times the gates of
    each -> as streams."""
    shape, dtype = _streams(hostdims(streams.shape), num_branches), wide(streams.dtype)
    xp, (*lead, c, h) = namespace(streams), shape
    x = reshape(streams, shape).astype(dtype)
    if stream_mix is not None:
        mix = shaped("stream_mix", stream_mix, (*lead, c, c)).astype(dtype)
        x = xp.sum(mix[..., None] * x[..., :, None, :], axis=-3)
    block = shaped("block_output", block_output, (*lead, h)).astype(dtype)
    gates = _per_stream("post_mix", post_mix, shape, False).astype(dtype)
    return (x + gates * block[..., None, :]).reshape(streams.shape).astype(streams.dtype)


@hyper_connection_post_mix.shape_rule  # because JAX cannot part an axis of symbolic size
def _(streams, block_output, post_mix, stream_mix=None, /, *, num_branches=0):
    shape = _streams(streams.shape, num_branches)
    _demand("post_mix", post_mix.shape, _gates_of("post_mix", post_mix.shape, shape, False))
    _demand("block_output", block_output.shape, (*shape[:-2], shape[-1]))
    if stream_mix is not None:
        _demand("stream_mix", stream_mix.shape, (*shape[:-1], shape[-2]))
    return streams


@op("EngramGate", DOMAIN, host=True)
def engram_gate(
    key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, /, *,
    epsilon=9.999999747378752e-06,
):  # fmt: skip
    """Gate value (N, S, H) by how key and query (N, S, C, H), normed, agree -> (N, S, C, H), and
    the same normed by conv_norm_scale (C, H)."""
    dims, dtype = hostdims(key.shape), wide(key.dtype)
    ranked("key", dims, 4)
    xp, (n, s, c, h) = namespace(key, query, value), dims
    scales = [
        None if v is None else shaped(name, v, (c, h)).astype(dtype)
        for name, v in (
            ("key_norm_scale", key_norm_scale),
            ("query_norm_scale", query_norm_scale),
            ("conv_norm_scale", conv_norm_scale),
        )
    ]
    k = _rms(key.astype(dtype), epsilon) * scales[0]
    q = _rms(shaped("query", query, dims).astype(dtype), epsilon) * scales[1]
    root = xp.sqrt(xp.asarray(to_export(h)).astype(dtype))
    dot = xp.sum(k * q, axis=-1, keepdims=True) / root
    gate = sigmoid.function(xp.sign(dot) * xp.sqrt(xp.maximum(xp.abs(dot), 1e-6)))
    y = gate * shaped("value", value, (n, s, h)).astype(dtype)[:, :, None]
    normed = None if scales[2] is None else (_rms(y, epsilon) * scales[2]).astype(key.dtype)
    return y.astype(key.dtype), normed
