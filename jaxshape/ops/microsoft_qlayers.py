"""Layers of com.microsoft with quantized weights: attention, embeddings, LSTM, products.

What the quantizer makes of their float forms, whose functions they call once numbers are floats
again. Products of bytes are exact in integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._dim import ceildiv
from .._error import ShapeError, UnsupportedError
from .._facts import same
from .._host import namespace
from .._op import op, select
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import matmul, ranked, shaped
from ._axes import axes_in
from ._numeric import FLOAT32
from ._scan import scan
from .linear import matmul_shape
from .microsoft import DOMAIN
from .microsoft_attention import attention, attention_sizes, check_mask, projected
from .microsoft_norm import embed_layer_norm
from .microsoft_quant import matmul_integer_to_float
from .pool import max_pool_10
from .quant import divided, dynamic_quantize, quantized
from .recurrent import ACTIVATIONS, DIRECTIONS, LSTM

# attention and embeddings -------------------------------------------------------------------------


def _qattention_check(do_rotary: Any, shared: Any) -> None:
    if do_rotary or shared:
        raise UnsupportedError("do_rotary and past_present_share_buffer are not handled")


@op("QAttention", DOMAIN, host=True)
def qattention(
    input, weight, bias, input_scale, weight_scale, mask_index=None, input_zero_point=None,
    weight_zero_point=None, past=None, /, *, do_rotary=None, mask_filter_value=-10000.0, num_heads,
    past_present_share_buffer=None, scale=None, unidirectional=0,
):  # fmt: skip
    """Attend bytes input (N, S, D) to itself after one product with bytes weight (D, 3*H*E)
    -> (N, S, H*E), keys and values with the past (2, N, H, T, E)."""
    _qattention_check(do_rotary, past_present_share_buffer)
    shapes = hostdims(input.shape), hostdims(weight.shape)
    old = None if past is None else hostdims(past.shape)
    sizes = attention_sizes(*shapes, old, num_heads, None)
    if mask_index is not None:
        check_mask(hostdims(mask_index.shape), sizes, True)
    y = matmul_integer_to_float.function(
        input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias
    )
    y = y.astype(bias.dtype)
    return projected(y, sizes, mask_index, past, None, unidirectional, scale, mask_filter_value)


@qattention.shape_rule  # for the reasons of Attention's
def _(
    input, weight, bias, input_scale, weight_scale, mask_index=None, input_zero_point=None,
    weight_zero_point=None, past=None, /, *, do_rotary=None, num_heads,
    past_present_share_buffer=None, **_,
):  # fmt: skip
    _qattention_check(do_rotary, past_present_share_buffer)
    x = TensorType(bias.dtype, input.shape)
    return attention.rule(x, weight, bias, mask_index, past, num_heads=num_heads)  # type: ignore[misc]


@op("QEmbedLayerNormalization", DOMAIN, host=True)
def qembed_layer_norm(
    input_ids, segment_ids=None, word_embedding_quant=None, position_embedding_quant=None,
    segment_embedding=None, gamma_quant=None, beta_quant=None, mask=None,
    word_embedding_scale=None, position_embedding_scale=None, segment_embedding_scale=None,
    gamma_scale=None, beta_scale=None, word_embedding_zero_point=None,
    position_embedding_zero_point=None, segment_embedding_zero_point=None, gamma_zero_point=None,
    beta_zero_point=None, /, *, epsilon=9.999999960041972e-13,
):  # fmt: skip
    """Embed input_ids (N, S), their places and segments, by tables of bytes, normalise the sum
    -> (N, S, H), how many are not masked (N,)."""
    real = [
        None if x is None else _real(x, scale, zero)
        for x, scale, zero in (
            (word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
            (position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
            (segment_embedding, segment_embedding_scale, segment_embedding_zero_point),
            (gamma_quant, gamma_scale, gamma_zero_point),
            (beta_quant, beta_scale, beta_zero_point),
        )
    ]
    y, counted, _ = embed_layer_norm.function(input_ids, segment_ids, *real, mask, epsilon=epsilon)
    return y, counted


def _real(x: Any, scale: Any, zero: Any) -> Any:
    """The floats of bytes x with one scale and zero point for all."""
    if scale is None:
        raise ShapeError("needs a scale for each table, gamma and beta")
    scale = scale.reshape(())
    x = x.astype(np.int32)
    x = x if zero is None else x - zero.reshape(()).astype(np.int32)
    return x.astype(scale.dtype) * scale


# LSTM ---------------------------------------------------------------------------------------------


class _Weights:
    """Bytes (k, n) of one direction; `x @` them quantizes x over its range first."""

    def __init__(self, weights: Any, scale: Any, zero: Any):
        self.weights, self.scale, self.zero = weights, scale, zero

    def __rmatmul__(self, x: Any) -> Any:
        q, scale, zero = dynamic_quantize.function(x)
        return matmul_integer_to_float.function(q, self.weights, scale, self.scale, zero, self.zero)


def _activations(names: Any, alphas: Any, betas: Any, clip: Any, directions: int) -> list[Any]:
    """Three functions for each direction; what goes into gates is clipped first."""
    names = names or LSTM.activations * directions
    if len(names) < 3 * directions:
        raise ShapeError(f"activations are {', '.join(names)}, {3 * directions} are wanted")
    alphas, betas = iter(alphas or ()), iter(betas or ())
    found = []
    for i, name in enumerate(names[: 3 * directions]):
        if name.lower() not in ACTIVATIONS:
            raise ShapeError(f"no activation {name!r} is known, only {', '.join(ACTIVATIONS)}")
        function, alpha, beta = ACTIVATIONS[name.lower()]
        alpha = None if alpha is None else next(alphas, alpha)
        beta = None if beta is None else next(betas, beta)
        found.append(_activation(function, alpha, beta, clip if i % 3 < 2 else None))
    return found


def _activation(function: Callable[..., Any], alpha: Any, beta: Any, clip: Any) -> Any:
    def apply(x: Any) -> Any:
        return function(jnp, x if clip is None else jnp.clip(x, -clip, clip), alpha, beta)

    return apply


def _along(step: Any, gates: Any, state: Any, lens: Any, reverse: bool) -> tuple[Any, Any]:
    """The last state and the outputs (S, N, H) of one direction.

    A state is quantized over the range of all rows, so that it matters when a row is where: in
    reverse each begins with its own end at the first step, and one that has ended counts as 0.
    """
    if lens is None:
        return scan(lambda s, xs: ((after := step(s, xs[0])), after[0]), state, [gates], reverse)
    i = jnp.arange(gates.shape[0], dtype=lens.dtype)[:, None]
    mirrored = jnp.where(i < lens, lens - 1 - i, i)[:, :, None]
    gates = jnp.take_along_axis(gates, mirrored, 0) if reverse else gates

    def advance(state: Any, xs: Any) -> Any:
        (h, c), (gates, i) = state, xs
        alive, before = (i < lens)[:, None], (i <= lens)[:, None]
        after = step((jnp.where(before, h, 0), c), gates)
        after = tuple(jnp.where(alive, new, old) for new, old in zip(after, state, strict=True))
        return after, jnp.where(alive, after[0], 0)

    last, y = scan(advance, state, [gates, i[:, 0]])
    return last, jnp.take_along_axis(y, mirrored, 0) if reverse else y


@op("DynamicQuantizeLSTM", DOMAIN)
def dynamic_quantize_lstm(
    X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, W_scale=None,
    W_zero_point=None, R_scale=None, R_zero_point=None, /, *, activation_alpha=None,
    activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None,
    input_forget=None,
):  # fmt: skip
    """Walk along X (S, N, I) by gates i, o, f, c of bytes W (D, I, 4*H) and R (D, H, 4*H)
    -> y (S, D, N, H), last h, c (D, N, H)."""
    if W_scale is None or R_scale is None:
        raise ShapeError("needs W_scale and R_scale")
    batch = hostdims(X.shape)[1]
    directions, hidden = DIRECTIONS.get(direction, ()), hostdims(R.shape)[1]
    chosen = _activations(activations, activation_alpha, activation_beta, clip, len(directions))
    n, ys, lasts = len(directions), [], []
    zeros = jnp.zeros([to_export(d) for d in (n, batch, hidden)], X.dtype)
    h, c = (zeros if v is None else v for v in (initial_h, initial_c))
    b = jnp.zeros((n, to_export(8 * hidden)), X.dtype) if B is None else B
    for d, reverse in enumerate(directions):
        w, r = (
            _Weights(v[d], scale[d], None if zero is None else zero[d])
            for v, scale, zero in ((W, W_scale, W_zero_point), (R, R_scale, R_zero_point))
        )
        wb, rb = jnp.split(b[d], 2)
        peephole = None if P is None else P[d]
        functions = chosen[3 * d : 3 * d + 3]
        step = LSTM.build(jnp, r, rb, peephole, functions, input_forget=input_forget or 0)
        last, y = _along(step, X @ w + wb, (h[d], c[d]), sequence_lens, reverse)
        ys.append(y)
        lasts.append(last)
    return jnp.stack(ys, axis=1), *(jnp.stack(s) for s in zip(*lasts, strict=True))


@dynamic_quantize_lstm.shape_rule  # for the reasons of LSTM's
def _(X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *_, **given):
    ranked("W", W.shape, 3)
    ranked("R", R.shape, 3)
    turned = [TensorType(X.dtype, (s[0], s[2], s[1])) for s in (W.shape, R.shape)]
    lstm = select("", "LSTM", 7)
    assert lstm is not None and lstm.rule is not None
    given["input_forget"] = given.get("input_forget") or 0
    return lstm.rule(X, *turned, B, sequence_lens, initial_h, initial_c, P, **given)


# products and pools -------------------------------------------------------------------------------

# the values of the codes 0 to 15 (bitsandbytes); of NF4 they cut the normal distribution evenly
_HALF = (0.0, 0.0052083334885537624, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_FP4 = (*_HALF, *(-v for v in _HALF))
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def _bnb4_check(block_size: int, quant_type: int, trans: int) -> None:
    if quant_type not in (0, 1):
        raise ShapeError(f"quant_type is {quant_type}, wants 0 (FP4) or 1 (NF4)")
    if block_size < 16 or block_size & (block_size - 1):
        raise ShapeError(f"block_size is {block_size}, wants a power of 2 from 16 on")
    if not trans:  # onnxruntime's CPU has other numbers than its text, from beyond the weights
        raise UnsupportedError("transB = 0 is not handled: transpose the weights")


@op("MatMulBnb4", DOMAIN, host=True)
def matmul_bnb4(
    A, B, absmax, /, *, K, N, block_size, quant_type, training_mode=0, transB=1
):  # fmt: skip
    """Multiply A (*, K) by weights (N, K) of 4-bit codes, two in a byte, scaled by blocks
    -> (*, N)."""
    _bnb4_check(block_size, quant_type, transB)
    ranked("A", hostdims(A.shape), least=1)
    a = shaped("A", A, (*hostdims(A.shape)[:-1], K))
    xp = namespace(A, B, absmax)
    codes = shaped("B", B.reshape(-1), ((N * K + 1) // 2,))
    scales = shaped("absmax", absmax, (int(ceildiv(N * K, block_size)),))
    codes = xp.stack([codes >> np.uint8(4), codes & np.uint8(15)], -1).reshape(-1)[: N * K]
    values = xp.asarray(np.array(_NF4 if quant_type else _FP4, FLOAT32))[codes]
    weights = values * scales[np.arange(N * K) // block_size].astype(FLOAT32)
    return matmul(a, weights.reshape(N, K).T.astype(A.dtype)).astype(A.dtype)


@matmul_bnb4.shape_rule(rankless=True)  # because K and N alone tell the sizes, known or not
def _(A, B, absmax, /, *, K, N, block_size, quant_type, training_mode=0, transB=1):
    _bnb4_check(block_size, quant_type, transB)
    if A.shape is None:
        return TensorType(A.dtype, None)
    ranked("A", A.shape, least=1)
    same(A.shape[-1], K, "columns of A")
    return TensorType(A.dtype, (*A.shape[:-1], N))


@op("MatMulInteger16", DOMAIN, host=True)
def matmul_integer16(A, B, /):
    """Multiply A (*N, m, k) by B (*N, k, n) of 16 bits in 32, which wrap -> (*N, m, n)."""
    matmul_shape(hostdims(A.shape), hostdims(B.shape))
    dtype = _product_type(A, B)
    return namespace(A, B).matmul(A.astype(dtype), B.astype(dtype))


def _product_type(a: Any, b: Any) -> np.dtype:
    return np.dtype(np.uint32 if a.dtype == b.dtype == np.uint16 else np.int32)


@matmul_integer16.shape_rule  # because JAX cannot broadcast batch sizes that it cannot compare
def _(A, B, /):
    return TensorType(_product_type(A, B), matmul_shape(A.shape, B.shape))


@op("QLinearReduceMean", DOMAIN, host=True)
def qlinear_reduce_mean(
    data, data_scale, data_zero_point=None, reduced_scale=None, reduced_zero_point=None, /, *,
    axes, keepdims,
):  # fmt: skip
    """Average quantized data (*D) along axes, and quantize -> (*D), the axes 1 or gone."""
    if reduced_scale is None:
        raise ShapeError("needs input reduced_scale")
    mean = select("", "ReduceMean", 13)  # of which axes are an attribute
    assert mean is not None
    y = mean.function(_real(data, data_scale, data_zero_point), axes=axes, keepdims=keepdims)
    zero = None if reduced_zero_point is None else reduced_zero_point.reshape(())
    return quantized(divided(y, reduced_scale.reshape(())), zero, data.dtype)


@op("ReduceSumInteger", DOMAIN, host=True)
def reduce_sum_integer(data, /, *, axes, keepdims):
    """Sum bytes data (*D) along axes in 32 bits -> (*D), the axes 1 or gone."""
    dtype = np.dtype(np.uint32 if data.dtype == np.uint8 else np.int32)
    xp, at = namespace(data), axes_in(axes, data.ndim)
    return xp.sum(data.astype(dtype), axis=tuple(at), keepdims=bool(keepdims), dtype=dtype)


@op("NhwcMaxPool", DOMAIN)
def nhwc_max_pool(
    x, /, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, strides=None
):
    """Take the greatest in windows of bytes x (N, *D, C) -> (N, *D', C)."""
    y = max_pool_10.function(
        jnp.moveaxis(x, -1, 1), auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return jnp.moveaxis(y, 1, -1)


@nhwc_max_pool.shape_rule  # because JAX cannot decide whether a window fits
def _(x, /, **attributes):
    ranked("x", x.shape, least=3)
    first = TensorType(x.dtype, (x.shape[0], x.shape[-1], *x.shape[1:-1]))
    made, *_ = max_pool_10.rule(first, **attributes)  # type: ignore[misc]
    return TensorType(x.dtype, (made.shape[0], *made.shape[2:], made.shape[1]))
