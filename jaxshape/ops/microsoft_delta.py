"""GatedDeltaNet (com.microsoft): linear attention over tokens of several requests.

The state (N, H, dv, dk) of a head forgets, takes up the outer product of key and value, less what
it holds for the key already, and is read by the query; it and the gates are float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._error import ShapeError
from .._facts import divisible, same
from .._op import op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import agree, ranked, reshape, shaped
from .activation import sigmoid, softplus
from .linear_attention import RULES
from .microsoft import DOMAIN
from .microsoft_state import packed

_GATES = ("none", "softplus", "qwen", "sigmoid", "kda")


class Sizes(NamedTuple):
    lead: tuple[Any, ...]  # of the tokens: (T,), or (N, S)
    batch: Any
    q_heads: Any
    v_heads: Any
    key: Any
    value: Any


def _sizes(shapes: Any, rule: str, gate: str, capacity: int) -> Sizes:
    q, k, v, ends, decay, beta, state, captured = shapes
    if rule not in RULES:
        raise ShapeError(f"update_rule is {rule!r}, wants one of {', '.join(RULES)}")
    if gate not in _GATES:
        raise ShapeError(f"gate_activation is {gate!r}, wants one of {', '.join(_GATES)}")
    for name, given, wanted in zip(("decay", "beta"), (decay, beta), RULES[rule], strict=True):
        if wanted and given is None:
            raise ShapeError(f"update_rule {rule} wants {name}")
    if (k is None) != (v is None):
        raise ShapeError("key and value are both given or neither")
    if (captured is None) != (capacity == 0):
        raise ShapeError("capture_count and state_update_capacity are both given or neither")
    ranked("initial_state", state, 4)
    ranked("cu_seqlens", ends, 1)
    if k is None:
        return _unpacked(q, ends, state)
    ranked("query", q, *((3,) if ends is not None else (3, 4)))
    ranked("key", k, len(q))
    ranked("value", v, len(q))
    lead = tuple(agree("tokens", *ds) for ds in zip(q[:-2], k[:-2], v[:-2], strict=True))
    heads, dk = same(q[-2], k[-2], "heads of key"), same(q[-1], k[-1], "head size of key")
    h, dv = v[-2:]
    if state is not None:
        h, dv, dk = (
            same(a, b, "initial_state") for a, b in zip((h, dv, dk), state[1:], strict=True)
        )
    divisible(h, heads, f"{h} heads of value share {heads} heads of key")
    return Sizes(lead, _batch(lead, ends, state), heads, h, dk, dv)


def _unpacked(q: Any, ends: Any, state: Any) -> Sizes:
    """The sizes where queries, keys and values are one tensor."""
    if state is None:
        raise ShapeError("a packed query wants initial_state, which tells its heads")
    ranked("query", q, 2, 3)
    _, h, dv, dk = state
    rest = q[-1] - h * dv
    divisible(rest, 2 * dk, "packed query without the values, in heads of query and key")
    return Sizes(tuple(q[:-1]), _batch(q[:-1], ends, state), rest // (2 * dk), h, dk, dv)


def _batch(lead: Any, ends: Any, state: Any) -> Any:
    if ends is not None:
        return agree("requests", ends[0] - 1, state and state[0])
    if len(lead) == 2:
        return agree("requests", lead[0], state and state[0])
    if state is None:
        raise ShapeError("needs cu_seqlens or initial_state, which tell the number of requests")
    divisible(lead[0], state[0], "tokens of all requests alike")
    return state[0]


def _gate(x: Any, a_log: Any, bias: Any, kind: str, bound: float, sizes: Sizes) -> Any:
    """The logarithm of what is kept, of decay (T, H) or (T, H, dk)."""
    if kind == "none":
        return x
    if a_log is None or bias is None:
        raise ShapeError(f"gate_activation {kind} wants a_log and dt_bias")
    scale = jnp.exp(shaped("a_log", a_log, (sizes.v_heads,)))
    scale = scale if x.ndim == 2 else scale[:, None]
    bias = reshape(bias, hostdims(x.shape)[1:]) if bias.size != sizes.v_heads else bias
    bias = bias[:, None] if bias.ndim < x.ndim - 1 else bias
    if kind in ("softplus", "qwen"):
        return -scale * softplus.function(x + bias)
    return bound * sigmoid.function(scale * (x + bias))


def _normed(x: Any) -> Any:
    return x / jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)


@op("GatedDeltaNet", DOMAIN)
def gated_delta_net(
    query, key=None, value=None, cu_seqlens=None, decay=None, beta=None, initial_state=None,
    a_log=None, dt_bias=None, capture_count=None, state_update_active=None, /, *,
    beta_activation="none", chunk_size=64, gate_activation="none", gate_lower_bound=-5.0,
    qk_l2_norm=0, scale=0.0, state_update_capacity=0, update_rule="gated_delta",
):  # fmt: skip
    """Write key (T, G, dk), value (T, H, dv) to states, read by query (T, G, dk) -> (T, H, dv),
    states (N, H, dv, dk), what the first tokens did to them."""
    given = query, key, value, cu_seqlens, decay, beta, initial_state, capture_count
    shapes = [None if v is None else hostdims(v.shape) for v in given]
    sizes = _sizes(shapes, update_rule, gate_activation, state_update_capacity)
    q, k, v = _parts(query, key, value, sizes)
    q, k = (_normed(x) if qk_l2_norm else x for x in (q, k))
    factor = scale or 1 / jnp.sqrt(jnp.asarray(to_export(sizes.key)).astype(np.float32))
    groups = to_export(sizes.v_heads // sizes.q_heads)
    tokens = q.shape[0]
    kept = beta_ = None
    if decay is not None and RULES[update_rule][0]:
        flat = decay.reshape((tokens, *decay.shape[len(sizes.lead) :])).astype(np.float32)
        flat = _gate(flat, a_log, dt_bias, gate_activation, gate_lower_bound, sizes)
        kept = jnp.exp(flat if flat.ndim == 3 else flat[:, :, None])
    if beta is not None and RULES[update_rule][1]:
        beta_ = beta.reshape((tokens, -1)).astype(np.float32)
        beta_ = sigmoid.function(beta_) if beta_activation == "sigmoid" else beta_
    wide_q, wide_k = (jnp.repeat(x, groups, axis=1) for x in (q, k))
    shape = [to_export(d) for d in (sizes.batch, sizes.v_heads, sizes.value, sizes.key)]
    state = jnp.zeros(shape, np.float32) if initial_state is None else initial_state

    def step(s: Any, xs: Any) -> Any:
        """States (*N, H, dv, dk) after one token each, what is read, and the change."""
        q, k, v, kept, beta = xs
        s = s if kept is None else s * kept[..., None, :]
        if beta is not None:
            v = beta[..., None] * (v - jnp.sum(s * k[..., None, :], axis=-1))
        s = s + v[..., :, None] * k[..., None, :]
        return s, (factor * jnp.sum(s * q[..., None, :], axis=-1), v)

    xs = wide_q, wide_k, v, kept, beta_
    if cu_seqlens is None:
        batch = shape[0]

        def by_step(x: Any) -> Any:
            """x (T, ...) as (S, N, ...)."""
            return jnp.swapaxes(x.reshape((batch, -1, *x.shape[1:])), 0, 1)

        state, outs = lax.scan(step, state, tuple(v if v is None else by_step(v) for v in xs))
        y, change = (jnp.swapaxes(x, 0, 1).reshape((tokens, *x.shape[2:])) for x in outs)
        length = tokens // max(batch, 1) if isinstance(batch, int) else tokens // batch
        starts = jnp.arange(batch, dtype=np.int32) * length
        lengths = jnp.full((batch,), length, np.int32)
    else:
        starts, request, _ = packed(cu_seqlens, tokens)
        lengths = cu_seqlens[1:] - starts

        def one(states: Any, xs: Any) -> Any:
            b, token = xs
            s, outs = step(states[b], token)
            return states.at[b].set(s), outs

        state, (y, change) = lax.scan(one, state, (request, xs))
    y = y.reshape(query.shape[: len(sizes.lead)] + y.shape[1:]).astype(query.dtype)
    if capture_count is None:
        return y, state, None
    counted = jnp.minimum(capture_count, lengths)
    if state_update_active is not None:
        counted = jnp.where(state_update_active.reshape(()) == 0, 0, counted)
    # where nothing decays 1 is kept
    kept = jnp.ones((*change.shape[:2], 1), np.float32) if kept is None else kept
    parts = [_first(x, starts, counted, state_update_capacity) for x in (kept, k, change)]
    return y, state, jnp.concatenate(parts, axis=1)


def _first(x: Any, starts: Any, counted: Any, capacity: int) -> Any:
    """The rows of the first tokens of each request, of x (T, ...): (N, capacity * ...)."""
    slots = jnp.arange(capacity, dtype=starts.dtype)
    rows = jnp.take(x, starts[:, None] + slots, axis=0, mode="clip").reshape(
        (starts.shape[0], capacity, -1)
    )
    rows = jnp.where((slots < counted[:, None])[:, :, None], rows, 0)
    return rows.reshape((starts.shape[0], -1))


def _parts(query: Any, key: Any, value: Any, sizes: Sizes) -> list[Any]:
    """Query, key and value in float32 as (T, heads, size)."""
    lead, _, g, h, dk, dv = sizes
    if key is not None:
        flat = len(lead)
        return [
            x.astype(np.float32).reshape((-1, *x.shape[flat:]))
            if flat == 2
            else x.astype(np.float32)
            for x in (query, key, value)
        ]
    x = query.astype(np.float32).reshape((-1, query.shape[-1]))
    tokens = hostdims(x.shape)[0]
    ends = [to_export(i) for i in (0, g * dk, 2 * g * dk, 2 * g * dk + h * dv)]
    cut = [x[:, ends[i] : ends[i + 1]] for i in range(3)]
    each = ((g, dk), (g, dk), (h, dv))
    return [reshape(x, (tokens, *dims)) for x, dims in zip(cut, each, strict=True)]


@gated_delta_net.shape_rule  # because JAX cannot part hidden sizes into heads
def _(
    query, key=None, value=None, cu_seqlens=None, decay=None, beta=None, initial_state=None,
    a_log=None, dt_bias=None, capture_count=None, state_update_active=None, /, *,
    gate_activation="none", state_update_capacity=0, update_rule="gated_delta", **_,
):  # fmt: skip
    given = query, key, value, cu_seqlens, decay, beta, initial_state, capture_count
    shapes = [None if v is None else v.shape for v in given]
    sizes = _sizes(shapes, update_rule, gate_activation, state_update_capacity)
    lead, n, g, h, dk, dv = sizes
    each = h
    if decay is not None and len(decay.shape) > len(lead) + 1:
        each = h * dk
    update = (n, state_update_capacity * (each + g * dk + h * dv))
    return (
        TensorType(query.dtype, (*lead, h, dv)),
        TensorType("float32", (n, h, dv, dk)),
        TensorType("float32", update),
    )
