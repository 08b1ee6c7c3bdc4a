"""Normalisation as onnxruntime's optimiser fuses it: with a skip connection, after embeddings.

Statistics are float32 at least. LayerNormalization before opset 17 and SimplifiedLayerNormalization
are its additions to the default domain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._error import ShapeError
from .._facts import least, same
from .._host import is_host, namespace
from .._op import op
from .._symbol import fit, hostdims
from ._agree import agree, onto, ranked, shaped, wide
from ._axes import axis_in
from .norm import layer_norm, moments, rms_norm

DOMAIN = "com.microsoft"
_EPSILON = 9.999999960041972e-13

op("LayerNormalization", since=1, host=True, dtypes=("stash_type",))(layer_norm.function)


@op("SimplifiedLayerNormalization", since=1, host=True, dtypes=("stash_type",))
def simplified_layer_norm(x, scale, /, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Divide x (*A, *B) by its root mean square over B -> as x, 1/root (*A, 1, ...)."""
    y = rms_norm.function(x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)
    axes = range(axis_in(axis, x.ndim), x.ndim)
    return y, _inverse_root(x.astype(wide(x.dtype, np.float32)), axes, epsilon).astype(np.float32)


def _inverse_root(x: Any, axes: Any, epsilon: float) -> Any:
    xp = namespace(x)
    return 1 / xp.sqrt(xp.mean(x * x, axis=tuple(axes), keepdims=True) + epsilon)


def _skipped(x: Any, skip: Any, bias: Any) -> Any:
    """x (N, S, H) or (T, H) plus skip, which lacks N or has 1 of it, plus bias (H,): float32."""
    ranked("input", hostdims(x.shape), 2, 3)
    ranked("skip", hostdims(skip.shape), 2, 3)
    last = [
        same(a, b, "the last axes of input and skip")
        for a, b in zip(hostdims(x.shape)[-2:], hostdims(skip.shape)[-2:], strict=True)
    ]
    x, skip = (fit(v, (*hostdims(v.shape)[:-2], *last)) for v in (x, skip))
    total = x.astype(wide(x.dtype)) + onto("skip", skip, x.shape).astype(wide(x.dtype))
    return total if bias is None else total + _row("bias", bias, x).astype(total.dtype)


def _row(name: str, v: Any, x: Any) -> Any:
    return shaped(name, v, hostdims(x.shape)[-1:])


@op("SkipLayerNormalization", DOMAIN, host=True)
def skip_layer_norm(input, skip, gamma, beta=None, bias=None, /, *, epsilon=_EPSILON):
    """Normalise the last axis of input (N, S, H) + skip + bias -> as input, its mean,
    1/deviation and the sum."""
    total = _skipped(input, skip, bias)
    mean, var = moments(total, (-1,))
    inverse = 1 / namespace(total).sqrt(var + epsilon)
    y = (total - mean) * inverse * _row("gamma", gamma, total).astype(total.dtype)
    y = y if beta is None else y + _row("beta", beta, total).astype(total.dtype)
    stored = input.dtype
    return y.astype(stored), *(v.astype(np.float32) for v in (mean, inverse)), total.astype(stored)


@op("SkipSimplifiedLayerNormalization", DOMAIN, host=True)
def skip_simplified_layer_norm(input, skip, gamma, bias=None, /, *, epsilon=_EPSILON):
    """Divide the last axis of input (N, S, H) + skip + bias by its root mean square -> as input,
    nothing, 1/root and the sum."""
    total = _skipped(input, skip, bias)
    inverse = _inverse_root(total, (-1,), epsilon)
    y = total * inverse * _row("gamma", gamma, total).astype(total.dtype)
    nothing = namespace(total).zeros_like(inverse)
    stored = input.dtype
    return y.astype(stored), nothing, inverse.astype(np.float32), total.astype(stored)


@op("EmbedLayerNormalization", DOMAIN, host=True)
def embed_layer_norm(
    input_ids, segment_ids=None, word_embedding=None, position_embedding=None,
    segment_embedding=None, gamma=None, beta=None, mask=None, position_ids=None, /, *,
    epsilon=_EPSILON, mask_index_type=None,
):  # fmt: skip
    """Embed input_ids (N, S), their places and segments, normalise the sum -> (N, S, H),
    how many are not masked (N,), and the sum."""
    if word_embedding is None or position_embedding is None or gamma is None or beta is None:
        raise ShapeError("needs word_embedding, position_embedding, gamma and beta")
    if (segment_ids is None) != (segment_embedding is None):
        raise ShapeError("segment_ids and segment_embedding are both given or neither")
    ranked("input_ids", hostdims(input_ids.shape), 2)
    n, s = hostdims(input_ids.shape)
    tables = [t for t in (word_embedding, position_embedding, segment_embedding) if t is not None]
    for name, table in zip(("word", "position", "segment"), tables, strict=False):
        ranked(f"{name}_embedding", hostdims(table.shape), 2)
    h = agree("hidden size", *[hostdims(t.shape)[1] for t in tables])
    xp = namespace(input_ids, word_embedding, position_embedding, segment_ids, position_ids)
    if position_ids is None:
        least(hostdims(position_embedding.shape)[0], s, "positions for the sequence")
        position_ids = xp.arange(input_ids.shape[1], dtype=np.int32)[None]
    else:
        position_ids = onto("position_ids", position_ids, (n, s))
    total = _embedded(word_embedding, input_ids, h)
    total = total + _embedded(position_embedding, position_ids, h)
    if segment_ids is not None:
        total = total + _embedded(segment_embedding, shaped("segment_ids", segment_ids, (n, s)), h)
    mean, var = moments(total, (-1,))
    y = (total - mean) / xp.sqrt(var + epsilon)
    y = y * _row("gamma", gamma, total).astype(y.dtype) + _row("beta", beta, total).astype(y.dtype)
    stored, mask = word_embedding.dtype, None if mask is None else shaped("mask", mask, (n, s))
    if mask is None:
        counted = xp.zeros(input_ids.shape[0], np.int32)
    else:
        counted = xp.sum(mask == 1, axis=1).astype(np.int32)
    return y.astype(stored), counted, total.astype(stored)


def _embedded(table: Any, ids: Any, h: Any) -> Any:
    """The rows of a table (*, h) at ids; NaN where there is none."""
    table = fit(table, (hostdims(table.shape)[0], h)).astype(wide(table.dtype))
    xp = namespace(table, ids)
    if is_host(ids) and ids.size and not -1 < ids.min() <= ids.max() < table.shape[0]:
        raise ShapeError(f"ids go from {ids.min()} to {ids.max()}, of {table.shape[0]} rows")
    return table[ids] if xp is np else table.at[ids].get(mode="fill", fill_value=np.nan)
