"""Attention that carries a state along the sequence, and the causal convolution before it.

The state of LinearAttention is a matrix for each key head, (N, H, dk, dv): it decays, takes up the
outer product of key and value, and is read by the queries. It is kept in float32 whatever the
inputs are.
"""

from __future__ import annotations

import functools
import operator

import numpy as np
from jax import lax

from .._error import ShapeError
from .._facts import divisible, equal, least
from .._host import namespace
from .._op import op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import agree, ranked, reshape, wide, written
from ._scan import scan

RULES = {  # which of decay and beta a rule takes
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


def _sizes(shapes, q_num_heads, kv_num_heads):
    """Batch, length, dk and dv, on which the inputs' shapes agree; None is an unknown shape."""
    q, k, v, past, decay, beta = shapes
    if q_num_heads < 1 or kv_num_heads < 1 or q_num_heads % kv_num_heads:
        raise ShapeError(
            f"q_num_heads {q_num_heads} is no positive multiple of kv_num_heads {kv_num_heads}"
        )
    for name, shape in (("query", q), ("key", k), ("value", v), ("decay", decay), ("beta", beta)):
        ranked(name, shape, 3)
    ranked("past_state", past, 4)
    none = (None,) * 4
    ours = [s or none for s in (q, k, v, decay, beta)]
    past = past or none
    batch = agree("LinearAttention_batch", *(s[0] for s in ours), past[0])
    length = agree("LinearAttention_length", *(s[1] for s in ours))
    agree("heads of past_state and kv_num_heads", past[1], kv_num_heads)
    heads = zip(
        ("query", "key", "value"), (q, k, v), (q_num_heads, kv_num_heads, kv_num_heads), strict=True
    )
    for name, shape, n in heads:
        if shape is not None:
            divisible(shape[2], n, f"{name} {written(shape)} in {n} heads")
    dk = [s and s[2] // n for s, n in ((q, q_num_heads), (k, kv_num_heads))]
    dk = agree("LinearAttention_key_size", *dk, past[2])
    dv = agree("LinearAttention_value_size", v and v[2] // kv_num_heads, past[3])
    for name, shape, allowed in (
        ("decay", decay, (kv_num_heads, kv_num_heads * dk)),
        ("beta", beta, (kv_num_heads, 1)),
    ):
        if shape is not None and all(equal(shape[2], d) is False for d in allowed):
            wanted = " or ".join(map(str, allowed))
            raise ShapeError(f"{name} {written(shape)} has last size {shape[2]}, wants {wanted}")
    return batch, length, dk, dv


def _check(update_rule, decay, beta):
    if update_rule not in RULES:
        raise ShapeError(f"update_rule is {update_rule!r}, wants one of {', '.join(RULES)}")
    for name, value, wanted in zip(
        ("decay", "beta"), (decay, beta), RULES[update_rule], strict=True
    ):
        if (value is not None) != wanted:
            raise ShapeError(
                f"update_rule {update_rule} {'wants' if wanted else 'takes no'} {name}"
            )


@op("LinearAttention", since=27, host=True)
def linear_attention(
    query, key, value, past_state=None, decay=None, beta=None, /, *, chunk_size=64, kv_num_heads,
    q_num_heads, scale=0.0, update_rule="gated_delta",
):  # fmt: skip
    """Write key, value (N, T, G*d) to a state, read by query (N, T, H*d) -> (N, T, H*d), state."""
    _check(update_rule, decay, beta)
    inputs = (query, key, value, past_state, decay, beta)
    shapes = [None if x is None else hostdims(x.shape) for x in inputs]
    n, t, dk, dv = _sizes(shapes, q_num_heads, kv_num_heads)
    xp, float32 = namespace(*inputs), np.dtype(np.float32)
    groups = q_num_heads // kv_num_heads

    def steps(x, *dims):
        """x (N, T, ...) in float32 with T first and the rest seen as dims."""
        return reshape(xp.swapaxes(x, 0, 1).astype(float32), (t, n, *dims))

    xs = [
        steps(query, kv_num_heads, groups, dk),
        steps(key, kv_num_heads, dk),
        steps(value, kv_num_heads, dv),
    ]
    if decay is not None:  # one for each head, or for each of its dk rows
        each = 1 if equal(hostdims(decay.shape)[2], kv_num_heads) else dk
        xs.append(xp.exp(steps(decay, kv_num_heads, each, 1)))
    if beta is not None:
        xs.append(steps(beta, hostdims(beta.shape)[2], 1))
    if past_state is None:
        state = xp.zeros([to_export(d) for d in (n, kv_num_heads, dk, dv)], float32)
    else:
        state = past_state.astype(float32)
    factor = scale or 1 / xp.sqrt(xp.asarray(to_export(dk)).astype(float32))

    def step(carry, x):
        (s,), (q, k, v, *rest) = carry, x
        s = s * rest[0] if decay is not None else s
        if beta is not None:
            v = rest[-1] * (v - xp.einsum("nhkv,nhk->nhv", s, k))
        s = s + k[..., :, None] * v[..., None, :]
        return (s,), factor * xp.einsum("nhgk,nhkv->nhgv", q, s)

    (state,), y = scan(step, (state,), xs)
    y = reshape(xp.swapaxes(y, 0, 1), (n, t, q_num_heads * dv)).astype(query.dtype)
    return y, state.astype(query.dtype if past_state is None else past_state.dtype)


@linear_attention.shape_rule(rankless=True)  # because JAX cannot part hidden sizes into heads
def _(
    query, key, value, past_state=None, decay=None, beta=None, /, *, kv_num_heads, q_num_heads,
    update_rule="gated_delta", **_,
):  # fmt: skip
    _check(update_rule, decay, beta)
    shapes = [None if t is None else t.shape for t in (query, key, value, past_state, decay, beta)]
    n, t, dk, dv = _sizes(shapes, q_num_heads, kv_num_heads)
    stored = query if past_state is None else past_state
    return (
        TensorType(query.dtype, (n, t, q_num_heads * dv)),
        TensorType(stored.dtype, (n, kv_num_heads, dk, dv)),
    )


def _conv_sizes(x, w, b, past):
    """Batch, channels, length and kernel on which the shapes agree; None is an unknown shape."""
    for name, shape, rank in (
        ("input", x, 3),
        ("weight", w, 3),
        ("bias", b, 1),
        ("past_state", past, 3),
    ):
        ranked(name, shape, rank)
    none = (None,) * 3
    (xn, xc, xl), (wc, one, k), (pn, pc, pk) = x or none, w or none, past or none
    n = agree("CausalConv_batch", xn, pn)
    c = agree("CausalConv_channels", xc, wc, pc, (b or none)[0])
    agree("channels of weight in one group", one, 1)
    k = agree("CausalConv_kernel", k, None if pk is None else pk + 1)
    least(k, 1, "size of the kernel")
    return n, c, agree("CausalConv_length", xl), k


@op("CausalConvWithState", since=27, host=True)
def causal_conv(x, weight, bias=None, past_state=None, /, *, activation="none"):
    """Convolve x (N, C, L) with weight (C, 1, k), looking back only -> as x, state (N, C, k-1)."""
    inputs = (x, weight, bias, past_state)
    n, c, length, k = _conv_sizes(*(None if v is None else hostdims(v.shape) for v in inputs))
    _check_activation(activation)
    xp, dtype = namespace(*inputs), wide(x.dtype)
    past = (
        xp.zeros([to_export(d) for d in (n, c, k - 1)], x.dtype)
        if past_state is None
        else past_state
    )
    whole = xp.concatenate([past, x], axis=2)
    y = _along(whole.astype(dtype), weight.astype(dtype), to_export(length), k)
    y = y if bias is None else y + bias.astype(dtype)[:, None]
    y = y if activation == "none" else y * (0.5 * xp.tanh(0.5 * y) + 0.5)
    return y.astype(x.dtype), whole[:, :, to_export(length) :]


def _along(x, w, length, k):
    """Sums over k neighbours of x (N, C, L+k-1) times w (C, 1, k): (N, C, L)."""
    if isinstance(k, int) and k <= 16:  # multiply and add, which XLA fuses, is faster by far
        parts = [x[:, :, i : i + length] * w[:, :, i] for i in range(k)]
        return functools.reduce(operator.add, parts)
    if namespace(x) is np:
        return np.einsum("nclk,ck->ncl", np.lib.stride_tricks.sliding_window_view(x, k, 2), w[:, 0])
    return lax.conv_general_dilated(
        x,
        w,
        (1,),
        [(0, 0)],
        feature_group_count=x.shape[1],
        dimension_numbers=("NCH", "OIH", "NCH"),
    )


def _check_activation(activation):
    if activation not in ("none", "silu", "swish"):
        raise ShapeError(f"activation is {activation!r}, wants none, silu or swish")


@causal_conv.shape_rule(
    rankless=True
)  # because JAX parts no symbolic number of channels into groups
def _(x, weight, bias=None, past_state=None, /, *, activation="none"):
    _check_activation(activation)
    shapes = [None if t is None else t.shape for t in (x, weight, bias, past_state)]
    n, c, length, k = _conv_sizes(*shapes)
    return TensorType(x.dtype, (n, c, length)), TensorType(x.dtype, (n, c, k - 1))
