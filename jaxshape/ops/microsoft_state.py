"""Layers that carry a state along a sequence, as onnxruntime has them (com.microsoft).

Tokens of several requests may lie one after the other in one axis, `cu_seqlens` (N+1,) telling
where each begins. A matrix that a head carries is kept in float32; what a request's tokens did to
its state may be written down for the first few of them, to be done again after a draft is rejected.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax.numpy as jnp

from .._error import ShapeError, UnsupportedError
from .._facts import divisible, same
from .._op import op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import agree, ranked, reshape, wide
from .activation import sigmoid
from .linear_attention import linear_attention
from .microsoft import DOMAIN

# LinearAttention ----------------------------------------------------------------------------------


def _shared(state_window: int, q_num_heads: int, kv_num_heads: int) -> int:
    """How many heads of the state read one head of the query."""
    if state_window:
        raise UnsupportedError("state_window is not handled")
    if q_num_heads < 1 or kv_num_heads <= q_num_heads:
        return 1
    if kv_num_heads % q_num_heads:
        raise ShapeError(f"q_num_heads is {q_num_heads}, kv_num_heads {kv_num_heads}")
    return kv_num_heads // q_num_heads


@op("LinearAttention", DOMAIN, host=False)
def linear_attention_1(
    query, key, value, past_state=None, decay=None, beta=None, /, *, chunk_size=64, kv_num_heads,
    q_num_heads, scale=0.0, state_window=0, update_rule="gated_delta",
):  # fmt: skip
    """Write key, value (N, T, G*d) to a state, read by query (N, T, H*d) -> (N, T, max(H, G)*d),
    state."""
    shared = _shared(state_window, q_num_heads, kv_num_heads)
    if shared > 1:
        n, t, hidden = hostdims(query.shape)
        divisible(hidden, q_num_heads, f"query of {hidden} in {q_num_heads} heads")
        heads = reshape(query, (n, t, q_num_heads, hidden // q_num_heads))
        query = reshape(jnp.repeat(heads, shared, axis=2), (n, t, hidden * shared))
    return linear_attention.function(
        query, key, value, past_state, decay, beta, kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads * shared, scale=scale, update_rule=update_rule,
    )  # fmt: skip


@linear_attention_1.shape_rule  # because JAX cannot part hidden sizes into heads
def _(
    query, key, value, past_state=None, decay=None, beta=None, /, *, kv_num_heads, q_num_heads,
    state_window=0, update_rule="gated_delta", **_,
):  # fmt: skip
    shared = _shared(state_window, q_num_heads, kv_num_heads)
    ranked("query", query.shape, 3)
    divisible(query.shape[2], q_num_heads, f"query of {query.shape[2]} in {q_num_heads} heads")
    wider = TensorType(query.dtype, (*query.shape[:2], query.shape[2] * shared))
    return linear_attention.rule(  # type: ignore[misc]
        wider, key, value, past_state, decay, beta, kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads * shared, update_rule=update_rule,
    )  # fmt: skip


# convolutions -------------------------------------------------------------------------------------


def _activated(y: Any, activation: str) -> Any:
    return y if activation == "none" else y * sigmoid.function(y)


def _check_conv(activation: str, dilation: int) -> None:
    if activation not in ("none", "silu", "swish"):
        raise ShapeError(f"activation is {activation!r}, wants none, silu or swish")
    if dilation < 1:
        raise ShapeError(f"dilation is {dilation}, wants at least 1")


def _conv_shapes(x: Any, w: Any, b: Any, past: Any, dilation: int, last: int) -> tuple[Any, ...]:
    """The shape of the state, on which all agree; channels may be several axes where they are
    last."""
    ranked("input", x, *(() if last else (3,)), least=3)
    ranked("weight", w, 3)
    ranked("bias", b, 1)
    ranked("past_state", past, len(x))
    channels = functools.reduce(operator.mul, x[2:]) if last else x[1]
    agree("channels", channels, w[0], b and b[0])
    same(w[1], 1, "channels of weight in one group")
    behind = (w[2] - 1) * dilation
    state = (x[0], behind, *x[2:]) if last else (x[0], x[1], behind)
    for a, d in zip(past or state, state, strict=True):
        same(a, d, "past_state")
    return state


def _taps(weight: Any) -> list[Any]:
    w = weight[:, 0].astype(wide(weight.dtype))
    return [w[:, j] for j in range(w.shape[1])]


@op("CausalConvWithState", DOMAIN)
def causal_conv_1(
    input, weight, bias=None, past_state=None, /, *, activation="none", channels_last=0,
    dilation=1, input_channel_offset=0, input_channels=0, ndim=1, state_channels_last=-1,
    state_length=0, state_update_capacity=0, state_window=0,
):  # fmt: skip
    """Convolve input (N, C, L) or (N, L, *C) with weight (C, 1, k), looking back only -> as input,
    state (N, C, (k-1)*dilation) or (N, (k-1)*dilation, *C)."""
    _check_conv(activation, dilation)
    extended = input_channel_offset, input_channels, state_length, state_update_capacity
    _check_extended(ndim, state_window, extended, state_channels_last, channels_last)
    shapes = [None if v is None else hostdims(v.shape) for v in (input, weight, bias, past_state)]
    state = _conv_shapes(*shapes, dilation, channels_last)  # type: ignore[misc]
    dtype, shape, k = wide(input.dtype), input.shape, weight.shape[2]

    def turned(x: Any) -> Any:
        """x as (N, L, C)."""
        return x.reshape((*x.shape[:2], -1)) if channels_last else jnp.swapaxes(x, 1, 2)

    zeros = jnp.zeros([to_export(d) for d in state], input.dtype)
    whole = jnp.concatenate([turned(zeros if past_state is None else past_state), turned(input)], 1)
    length = turned(input).shape[1]
    rows = whole.astype(dtype)
    parts = [rows[:, j * dilation : j * dilation + length] * w for j, w in enumerate(_taps(weight))]
    y = functools.reduce(operator.add, parts) + (0 if bias is None else bias.astype(dtype))
    y = _activated(y, activation).astype(input.dtype)
    present = whole[:, whole.shape[1] - (k - 1) * dilation :]
    if channels_last:
        return y.reshape(shape), present.reshape(zeros.shape)
    return jnp.swapaxes(y, 1, 2), jnp.swapaxes(present, 1, 2)


def _check_extended(ndim: int, window: int, extended: Any, state_last: int, last: int) -> None:
    if ndim != 1 or window or any(extended) or state_last not in (-1, last):
        raise UnsupportedError(
            "ndim other than 1, state_window, and slices of channels or states are not handled"
        )


@causal_conv_1.shape_rule  # because JAX cannot compare the sizes of a state
def _(
    input, weight, bias=None, past_state=None, /, *, activation="none", channels_last=0,
    dilation=1, input_channel_offset=0, input_channels=0, ndim=1, state_channels_last=-1,
    state_length=0, state_update_capacity=0, state_window=0,
):  # fmt: skip
    _check_conv(activation, dilation)
    extended = input_channel_offset, input_channels, state_length, state_update_capacity
    _check_extended(ndim, state_window, extended, state_channels_last, channels_last)
    shapes = [None if v is None else v.shape for v in (input, weight, bias, past_state)]
    state = _conv_shapes(*shapes, dilation, channels_last)  # type: ignore[misc]
    return input, TensorType(input.dtype, state)


def _varlen_shapes(
    x: Any, w: Any, ends: Any, b: Any, state: Any, captured: Any, dilation: int, capacity: int,
    dynamic: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """The number of requests, and of channels."""
    if dynamic:
        raise UnsupportedError("kernel_delta and previous_mask are not handled")
    if state is None:
        raise ShapeError("needs input initial_state")
    if (captured is None) != (capacity == 0):
        raise ShapeError("capture_count and state_update_capacity are both given or neither")
    for name, shape, rank in (
        ("input", x, 2), ("weight", w, 3), ("cumulative_sequence_length", ends, 1), ("bias", b, 1),
        ("initial_state", state, 3), ("capture_count", captured, 1),
    ):  # fmt: skip
        ranked(name, shape, rank)
    c = agree("channels", x[1], w[0], state[1], b and b[0])
    same(w[1], 1, "channels of weight in one group")
    same(state[2], (w[2] - 1) * dilation, "length of initial_state")
    n = agree("number of requests", state[0], captured and captured[0])
    same(ends[0], n + 1, "cumulative_sequence_length of all requests and one more")
    return n, c


@op("VarlenCausalConvWithState", DOMAIN)
def varlen_causal_conv(
    input, weight, cumulative_sequence_length, bias=None, initial_state=None, capture_count=None,
    kernel_delta=None, previous_mask=None, /, *, activation="none", delta_offset=0, dilation=1,
    group_size=1, state_update_capacity=0,
):  # fmt: skip
    """Convolve each request in input (T, C) with weight (C, 1, k), looking back only -> as input,
    states (N, C, (k-1)*dilation), the first tokens of each (N, capacity, C)."""
    _check_conv(activation, dilation)
    given = input, weight, cumulative_sequence_length, bias, initial_state, capture_count
    shapes = [None if v is None else hostdims(v.shape) for v in given]
    dynamic = kernel_delta is not None or previous_mask is not None
    _varlen_shapes(*shapes, dilation, state_update_capacity, dynamic)  # type: ignore[misc]
    assert initial_state is not None
    tokens, dtype = input.shape[0], wide(input.dtype)
    starts, request, place = packed(cumulative_sequence_length, tokens)
    lengths = cumulative_sequence_length[1:] - starts
    old = jnp.swapaxes(initial_state, 1, 2)  # (N, behind, C)
    behind = old.shape[1]

    def read(request: Any, place: Any) -> Any:
        """The token at a place of a request, of the state where it is below 0."""
        new = jnp.take(input, jnp.take(starts, request) + jnp.maximum(place, 0), 0, mode="clip")
        if isinstance(behind, int) and behind == 0:
            return new
        before = old[request, jnp.clip(place + behind, 0, behind - 1)]
        return jnp.where((place < 0)[..., None], before, new)

    taps = _taps(weight)
    back = [(len(taps) - 1 - j) * dilation for j in range(len(taps))]
    parts = [read(request, place - d).astype(dtype) * w for d, w in zip(back, taps, strict=True)]
    y = functools.reduce(operator.add, parts) + (0 if bias is None else bias.astype(dtype))
    y = _activated(y, activation).astype(input.dtype)
    each = jnp.arange(old.shape[0])[:, None]
    slots = jnp.arange(behind, dtype=lengths.dtype)
    final = read(each, lengths[:, None] - behind + slots)
    if capture_count is None:
        return y, jnp.swapaxes(final, 1, 2), None
    slots = jnp.arange(state_update_capacity, dtype=lengths.dtype)
    counted = slots < jnp.minimum(capture_count, lengths)[:, None]
    update = jnp.where(counted[..., None], read(each, jnp.broadcast_to(slots, counted.shape)), 0)
    return y, jnp.swapaxes(final, 1, 2), update


def packed(ends: Any, tokens: Any) -> tuple[Any, Any, Any]:
    """Where requests start (N,), to which each token belongs and its place there, both (T,)."""
    at = jnp.arange(tokens, dtype=ends.dtype)
    request = jnp.searchsorted(ends[1:], at, side="right")
    request = jnp.minimum(request, ends.shape[0] - 2)
    return ends[:-1], request, at - jnp.take(ends, request)


@varlen_causal_conv.shape_rule  # because JAX cannot compare the sizes of a state
def _(
    input, weight, cumulative_sequence_length, bias=None, initial_state=None, capture_count=None,
    kernel_delta=None, previous_mask=None, /, *, activation="none", dilation=1,
    state_update_capacity=0, **_,
):  # fmt: skip
    _check_conv(activation, dilation)
    given = input, weight, cumulative_sequence_length, bias, initial_state, capture_count
    shapes = [None if v is None else v.shape for v in given]
    dynamic = kernel_delta is not None or previous_mask is not None
    n, c = _varlen_shapes(*shapes, dilation, state_update_capacity, dynamic)  # type: ignore[misc]
    final = TensorType(input.dtype, (n, c, (weight.shape[2] - 1) * dilation))
    return input, final, TensorType(input.dtype, (n, state_update_capacity, c))
