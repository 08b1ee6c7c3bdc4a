"""Mixtures of experts (com.microsoft): each token goes through the k experts that its router takes.

Few tokens read the weights of their own experts alone, as in decoding; many go through all experts
one after the other, with weights of 0 where they were not sent. Of equal routers the later expert
is taken first, as onnxruntime does.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from .._dim import ceildiv
from .._error import ShapeError, UnsupportedError
from .._facts import at_least, divisible, least, same
from .._op import op
from .._symbol import fit, hostdims
from .._value import TensorType
from ._agree import agree, ranked, reshape, shaped, wide
from .activation import gelu
from .microsoft import DOMAIN


class Expert(NamedTuple):
    """The activation between the two products of an expert."""

    kind: str
    fusion: int  # how gate and linear part lie in the first product: 0 apart, 1 in turn, 2 in a row
    alpha: float
    beta: float
    limit: float | None


_PLAIN = {
    "relu": lambda x: jnp.maximum(x, 0),
    "gelu": lambda x: gelu.function(x, approximate="tanh"),
    "silu": lambda x: x * nn.sigmoid(x),
    "identity": lambda x: x,
}


def _check(expert: Expert, third: Any, after: int) -> int:
    """How many parts the first product has."""
    if expert.kind not in (*_PLAIN, "swiglu"):
        known = ", ".join(_PLAIN)
        raise ShapeError(f"activation_type is {expert.kind!r}, wants swiglu, {known}")
    if expert.fusion not in (0, 1, 2):
        raise ShapeError(f"swiglu_fusion is {expert.fusion}, wants 0, 1 or 2")
    if after:
        raise UnsupportedError("swiglu_limit_after_activation is not handled")
    if expert.kind != "swiglu":
        if third is not None:
            raise UnsupportedError("fc3_experts_weights is handled for swiglu alone")
        return 1
    if (third is None) == (expert.fusion == 0):
        raise ShapeError("swiglu wants fc3_experts_weights where swiglu_fusion is 0, only there")
    return 1 if expert.fusion == 0 else 2


def _activated(x: Any, linear: Any, expert: Expert) -> Any:
    """Between the products (*, n); `linear` is the other part where the two lie apart."""
    if expert.kind != "swiglu":
        return _PLAIN[expert.kind](x)
    gate = x
    if expert.fusion == 1:
        gate, linear = x[..., ::2], x[..., 1::2]
    elif expert.fusion == 2:
        gate, linear = jnp.split(x, 2, axis=-1)
    if expert.limit is not None:
        gate = jnp.minimum(gate, expert.limit)
        linear = jnp.clip(linear, -expert.limit, expert.limit)
    return gate * nn.sigmoid(expert.alpha * gate) * (linear + expert.beta)


def _top(x: Any, k: int) -> Any:
    """The indices (T, k) of the k greatest of x (T, E); of equal ones the last first."""
    count = x.shape[1]
    return count - 1 - lax.top_k(jnp.flip(x, 1), k)[1]


def _sizes(x: Any, router: Any, first: Any, second: Any, parts: int, k: int) -> tuple[Any, ...]:
    """Tokens, experts, hidden and inner size, on which the shapes agree."""
    ranked("input", x, 2, 3)
    ranked("router_probs", router, 2)
    ranked("fc1_experts_weights", first, 3)
    ranked("fc2_experts_weights", second, 3)
    tokens = same(router[0], math.prod(x[:-1]), "rows of router_probs and tokens of input")
    experts = agree("number of experts", router[1], first[0], second[0])
    hidden = agree("hidden size", x[-1], first[2], second[1])
    divisible(first[1], parts, f"fc1_experts_weights of {first[1]} rows in {parts} parts")
    inner = same(first[1] // parts, second[2], "inner size")
    if k < 1:
        raise ShapeError(f"k is {k}, wants at least 1")
    least(experts, k, "experts for each token")
    return tokens, experts, hidden, inner


def _through(x: Any, taken: Any, weights: Any, layers: Any, expert: Expert) -> Any:
    """x (T, H) through the experts `taken` (T, k), summed by `weights` (T, k)."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        """x (*R, in) times w (*R, out, in) or (out, in), plus b."""
        y = jnp.einsum("...i,...oi->...o", x, w, precision=lax.Precision.HIGHEST)
        return y if b is None else y + b

    def sent(x: Any, layers: Any) -> Any:
        first, second, third = layers
        linear = None if third[0] is None else layer(x, *third)
        return layer(_activated(layer(x, *first), linear, expert), *second)

    experts, (tokens, k) = layers[0][0].shape[0], hostdims(taken.shape)
    if at_least(experts, tokens * k):
        own = [[v if v is None else jnp.take(v, taken, axis=0) for v in pair] for pair in layers]
        return jnp.sum(sent(x[:, None], own) * weights[:, :, None], axis=1)

    def add(total: Any, xs: Any) -> Any:
        e, layers = xs
        share = jnp.sum(jnp.where(taken == e, weights, 0), axis=1, keepdims=True)
        return total + share * sent(x, layers), None

    numbers = jnp.arange(experts, dtype=taken.dtype)
    return lax.scan(add, jnp.zeros_like(x), (numbers, layers))[0]


def _layers(dtype: Any, *pairs: Any) -> list[Any]:
    """Weights and biases of the layers in the type to compute in."""
    return [[None if v is None else v.astype(dtype) for v in pair] for pair in pairs]


@op("MoE", DOMAIN)
def moe(
    input, router_probs, fc1_experts_weights, fc1_experts_bias=None, fc2_experts_weights=None,
    fc2_experts_bias=None, fc3_experts_weights=None, fc3_experts_bias=None, /, *,
    activation_alpha=1.0, activation_beta=0.0, activation_type="relu", k=1,
    normalize_routing_weights=0, swiglu_fusion=0, swiglu_limit=None,
    swiglu_limit_after_activation=0, use_sparse_mixer=0,
):  # fmt: skip
    """Send each token of input (T, H) or (N, S, H) through k experts by router_probs (T, E), of two
    products each, fc1 (E, I, H) and fc2 (E, H, I) -> as input."""
    expert = Expert(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    parts = _check(expert, fc3_experts_weights, swiglu_limit_after_activation)
    if fc2_experts_weights is None:
        raise ShapeError("needs input fc2_experts_weights")
    inputs = input, router_probs, fc1_experts_weights, fc2_experts_weights
    tokens, experts, hidden, _ = _sizes(*(hostdims(v.shape) for v in inputs), parts, k)  # type: ignore[misc]
    dtype = wide(input.dtype)
    p = nn.softmax(fit(router_probs, (tokens, experts)).astype(dtype), axis=-1)
    taken = _top(p, k)
    weights = jnp.take_along_axis(p, taken, 1)
    if normalize_routing_weights:
        weights = weights / jnp.sum(weights, axis=1, keepdims=True)
    layers = _layers(
        dtype, (fc1_experts_weights, fc1_experts_bias), (fc2_experts_weights, fc2_experts_bias),
        (fc3_experts_weights, fc3_experts_bias),
    )  # fmt: skip
    x = reshape(input, (tokens, hidden)).astype(dtype)
    y = _through(x, taken, weights, layers, expert)
    return y.reshape(input.shape).astype(input.dtype)


@moe.shape_rule  # because JAX cannot compare a number of tokens with a product of sizes
def _(
    input, router_probs, fc1_experts_weights, fc1_experts_bias=None, fc2_experts_weights=None,
    fc2_experts_bias=None, fc3_experts_weights=None, fc3_experts_bias=None, /, *,
    activation_alpha=1.0, activation_beta=0.0, activation_type="relu", k=1, swiglu_fusion=0,
    swiglu_limit=None, swiglu_limit_after_activation=0, **_,
):  # fmt: skip
    expert = Expert(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    parts = _check(expert, fc3_experts_weights, swiglu_limit_after_activation)
    if fc2_experts_weights is None:
        raise ShapeError("needs input fc2_experts_weights")
    inputs = input, router_probs, fc1_experts_weights, fc2_experts_weights
    _sizes(*(v.shape for v in inputs), parts, k)  # type: ignore[misc]
    return TensorType(input.dtype, input.shape)


# quantized experts --------------------------------------------------------------------------------


class Width(NamedTuple):
    bits: int
    block: int


def _unpacked(x: Any, bits: int) -> Any:
    """The numbers in bytes x (*A, B), the lowest bits first -> (*A, B * 8 / bits)."""
    shifts = np.arange(0, 8, bits).astype(np.uint8)
    parts = (x[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape((*x.shape[:-1], x.shape[-1] * (8 // bits)))


def _real(w: Any, scales: Any, zeros: Any, width: Width, dtype: Any) -> Any:
    """The floats of weights (E, n, k), of which rows or blocks of rows have a scale."""
    if w is None:
        return None
    if scales is None:
        raise ShapeError("integer weights want their scales")
    bits, block = width
    q = _unpacked(w, bits).astype(dtype)
    experts, n, k = q.shape
    if not block:
        scales = shaped("scales", scales, (experts, n)).astype(dtype)[:, :, None]
        zeros = None if zeros is None else _unpacked(zeros, bits)[:, :n, None]
    else:
        blocks = int(ceildiv(k, block))
        scales = shaped("scales", scales, (experts, n, blocks)).astype(dtype)
        scales = jnp.repeat(scales, block, axis=2)[:, :, :k]
        if zeros is not None:
            zeros = jnp.repeat(_unpacked(zeros, bits)[:, :, :blocks], block, axis=2)[:, :, :k]
    middle = jnp.asarray(1 << (bits - 1), dtype) if zeros is None else zeros.astype(dtype)
    return (q - middle) * scales


def _widths(bits: int, each: Any, block: Any, kind: str, prepacked: int, rest: Any) -> list[Width]:
    if kind != "int" or any(v is not None for v in rest):
        raise UnsupportedError(f"quant_type {kind!r} and scales of activations are not handled")
    if prepacked == 1:
        raise UnsupportedError("weights_prepacked 1 is a layout of onnxruntime's own")
    block = block or 0
    if block and (block < 16 or block & (block - 1)):
        raise ShapeError(f"block_size is {block}, wants a power of 2 from 16 on")
    found = [Width(bits if b is None else b, block) for b in each]
    for width in found:
        if width.bits not in (2, 4, 8):
            raise ShapeError(f"expert weights have {width.bits} bits, wants 2, 4 or 8")
    return found


@op("QMoE", DOMAIN)
def qmoe(
    input, router_probs, fc1_experts_weights, fc1_scales=None, fc1_experts_bias=None,
    fc2_experts_weights=None, fc2_scales=None, fc2_experts_bias=None, fc3_experts_weights=None,
    fc3_scales=None, fc3_experts_bias=None, fc1_zero_points=None, fc2_zero_points=None,
    fc3_zero_points=None, router_weights=None, fc1_global_scale=None, fc2_global_scale=None,
    fc1_act_scale=None, fc2_act_scale=None, fc1_act_block_scale=None, fc2_act_block_scale=None, /,
    *, accuracy_level=0, activation_alpha=1.0, activation_beta=0.0, activation_type="relu",
    block_size=None, expert_weight_bits=4, fc1_expert_weight_bits=None,
    fc2_expert_weight_bits=None, fc3_expert_weight_bits=None, k=1, normalize_routing_weights=0,
    quant_type="int", swiglu_fusion=0, swiglu_limit=None, swiglu_limit_after_activation=0,
    use_sparse_mixer=0, weights_prepacked=-1,
):  # fmt: skip
    """MoE with weights of few bits, several in a byte, scaled by rows (E, n) or blocks of them.

    The weights of a token's experts are their softmax, or what router_weights (T, E) hold.
    """
    expert = Expert(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    parts = _check(expert, fc3_experts_weights, swiglu_limit_after_activation)
    each = fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits
    rest = fc1_global_scale, fc2_global_scale, fc1_act_scale, fc2_act_scale
    widths = _widths(
        expert_weight_bits, each, block_size, quant_type, weights_prepacked,
        (*rest, fc1_act_block_scale, fc2_act_block_scale),
    )  # fmt: skip
    dtype = wide(input.dtype)
    w1, w2, w3 = (
        _real(w, scales, zeros, width, dtype)
        for w, scales, zeros, width in zip(
            (fc1_experts_weights, fc2_experts_weights, fc3_experts_weights),
            (fc1_scales, fc2_scales, fc3_scales),
            (fc1_zero_points, fc2_zero_points, fc3_zero_points),
            widths,
            strict=True,
        )
    )
    if w2 is None:
        raise ShapeError("needs input fc2_experts_weights")
    shapes = [hostdims(v.shape) for v in (input, router_probs, w1, w2)]
    tokens, experts, hidden, _ = _sizes(*shapes, parts, k)  # type: ignore[misc]
    scores = fit(router_probs, (tokens, experts)).astype(dtype)
    taken = _top(scores, k)
    if router_weights is None:
        weights = nn.softmax(jnp.take_along_axis(scores, taken, 1), axis=1)
    else:
        given = shaped("router_weights", router_weights, (tokens, experts)).astype(dtype)
        weights = jnp.take_along_axis(given, taken, 1)
        if normalize_routing_weights:
            weights = weights / jnp.sum(weights, axis=1, keepdims=True)
    biases = fc1_experts_bias, fc2_experts_bias, fc3_experts_bias
    layers = _layers(dtype, *zip((w1, w2, w3), biases, strict=True))
    x = reshape(input, (tokens, hidden)).astype(dtype)
    y = _through(x, taken, weights, layers, expert)
    return y.reshape(input.shape).astype(input.dtype)


@qmoe.shape_rule  # for the reason of MoE's
def _(
    input, router_probs, fc1_experts_weights, fc1_scales=None, fc1_experts_bias=None,
    fc2_experts_weights=None, fc2_scales=None, fc2_experts_bias=None, fc3_experts_weights=None,
    *rest, activation_alpha=1.0, activation_beta=0.0, activation_type="relu", block_size=None,
    expert_weight_bits=4, fc1_expert_weight_bits=None, fc2_expert_weight_bits=None,
    fc3_expert_weight_bits=None, k=1, quant_type="int", swiglu_fusion=0, swiglu_limit=None,
    swiglu_limit_after_activation=0, weights_prepacked=-1, **_,
):  # fmt: skip
    expert = Expert(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    parts = _check(expert, fc3_experts_weights, swiglu_limit_after_activation)
    each = fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits
    widths = _widths(
        expert_weight_bits, each, block_size, quant_type, weights_prepacked, rest[6:]
    )  # fmt: skip
    if fc2_experts_weights is None:
        raise ShapeError("needs input fc2_experts_weights")
    shapes = []
    for name, w, width in zip(
        ("fc1", "fc2"), (fc1_experts_weights, fc2_experts_weights), widths, strict=False
    ):
        ranked(f"{name}_experts_weights", w.shape, 3)
        shapes.append((*w.shape[:2], w.shape[2] * (8 // width.bits)))
    _sizes(input.shape, router_probs.shape, *shapes, parts, k)  # type: ignore[misc]
    return TensorType(input.dtype, input.shape)


# the router ---------------------------------------------------------------------------------------


def _groups(experts: Any, n_group: int, topk_group: int, top_k: int) -> None:
    if n_group < 1 or not 1 <= topk_group <= n_group or top_k < 1:
        raise ShapeError(
            f"n_group is {n_group}, topk_group {topk_group}, top_k {top_k}: wants at least 1 each, "
            "and no more groups than there are"
        )
    divisible(experts, n_group, f"{experts} experts in {n_group} groups")
    least(experts // n_group * topk_group, top_k, "experts in the groups taken")


@op("MoEGroupRouter", DOMAIN)
def moe_group_router(
    logits, expert_bias, projection_weight=None, /, *, group_topk=2, n_group=1,
    router_sentinel=-10000.0, top_k, topk_group=1,
):  # fmt: skip
    """Take top_k experts out of topk_group groups by Sigmoid of logits (*, E) plus expert_bias (E,)
    -> its logarithm at those and a sentinel at the others (T, E), the sum and Sigmoid itself."""
    x = logits.astype(wide(logits.dtype))
    if projection_weight is not None:
        x = jnp.matmul(x, projection_weight.astype(x.dtype).T, precision=lax.Precision.HIGHEST)
    (experts,) = hostdims(expert_bias.shape)
    _groups(experts, n_group, topk_group, top_k)
    s = nn.sigmoid(x.reshape((-1, x.shape[-1])))
    scores = s + shaped("expert_bias", expert_bias, hostdims(s.shape)[1:]).astype(s.dtype)
    grouped = scores.reshape((s.shape[0], n_group, -1))
    best = lax.top_k(grouped, min(max(group_topk, 1), grouped.shape[2]))[0]
    _, groups = lax.top_k(jnp.sum(best, axis=2), topk_group)
    open_ = jnp.any(groups[:, :, None] == jnp.arange(n_group, dtype=groups.dtype), axis=1)
    possible = jnp.where(open_[:, :, None], grouped, -np.inf).reshape(s.shape)
    _, taken = lax.top_k(possible, top_k)
    chosen = jnp.any(taken[:, :, None] == jnp.arange(s.shape[1], dtype=taken.dtype), axis=1)
    routed = jnp.where(chosen, jnp.log(jnp.maximum(s, 1e-20)), router_sentinel)
    return routed.astype(logits.dtype), scores.astype(np.float32), s.astype(np.float32)


@moe_group_router.shape_rule  # because JAX can neither divide a number of experts nor compare it
def _(logits, expert_bias, projection_weight=None, /, *, n_group=1, top_k, topk_group=1, **_):
    ranked("logits", logits.shape, least=1)
    ranked("expert_bias", expert_bias.shape, 1)
    last = logits.shape[-1]
    if projection_weight is not None:
        ranked("projection_weight", projection_weight.shape, 2)
        same(last, projection_weight.shape[1], "width of projection_weight")
        last = projection_weight.shape[0]
    experts = same(last, expert_bias.shape[0], "experts of expert_bias")
    _groups(experts, n_group, topk_group, top_k)
    shape = (math.prod(logits.shape[:-1]), experts)
    return TensorType(logits.dtype, shape), *[TensorType("float32", shape)] * 2
