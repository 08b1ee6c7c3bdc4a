"""FlexAttention: attention whose scores and probabilities pass through graphs of the model."""

from __future__ import annotations

import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._facts import same
from .._host import namespace
from .._op import op
from .._precision import placed, rounded
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked, wide, written
from ._static import dtype_of
from .attention import attention_sizes, scores, softmax, weighted


def _precision(softmax_precision, dtype):
    """The dtype that the graphs see: float32 at least, unless another is asked for."""
    if softmax_precision is None:
        return wide(dtype)
    if softmax_precision not in (1, 10, 11, 16):
        raise ShapeError(
            f"softmax_precision is {softmax_precision}, wants 1, 10, 11 or 16, a float type"
        )
    return canonical(dtype_of(softmax_precision))


def _sizes(q, k, v):
    for name, shape in zip("QKV", (q, k, v), strict=True):
        ranked(name, shape, 4)
    return attention_sizes((q, k, v), None, None)


def _modified(graph, x, name):
    """What a graph makes of x, whose type it must keep."""
    if graph is None:
        return x
    results = graph(x)
    if len(results) != 1:
        raise ShapeError(f"{name} gives {len(results)} results, wants 1")
    y = results[0]
    if y.shape is None or y.dtype is None:
        return x
    if len(y.shape) != len(x.shape) or y.dtype != x.dtype:
        raise ShapeError(
            f"{name} gives {y.dtype} {written(y.shape)}, wants {x.dtype} {written(x.shape)}"
        )
    for own, wanted in zip(hostdims(y.shape), hostdims(x.shape), strict=True):
        same(own, wanted, f"the result of {name}")
    return y


@op("FlexAttention", domain="ai.onnx.preview", since=1, host=True, dtypes=("softmax_precision",))
def flex_attention(
    q, k, v, /, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None
):
    """Mix v (N, Hkv, K, F) by softmax of q (N, H, S, E) times k (N, Hkv, K, E) -> (N, H, S, F)."""
    sizes = _sizes(*(hostdims(x.shape) for x in (q, k, v)))
    dtype = _precision(softmax_precision, q.dtype)
    place = (lambda x: x) if namespace(q, k, v) is np else placed
    s = rounded(scores(q, k, scale, sizes).astype(dtype))  # as the graphs have all floats
    s = place(_modified(score_mod, s, "score_mod"))
    p = place(_modified(prob_mod, rounded(softmax(s, dtype)), "prob_mod"))
    return weighted(p, v.astype(p.dtype), sizes).astype(v.dtype)


@flex_attention.shape_rule(
    rankless=True
)  # because its graphs are traced, and heads of symbolic number shared
def _(q, k, v, /, *, prob_mod=None, score_mod=None, softmax_precision=None, **_):
    sizes = _sizes(q.shape, k.shape, v.shape)
    if sizes is None:
        return TensorType(v.dtype, None)
    dtype = None if q.dtype is None else _precision(softmax_precision, q.dtype)
    x = TensorType(dtype, (sizes.batch, sizes.q_heads, sizes.queries, sizes.keys))
    for name, graph in (("score_mod", score_mod), ("prob_mod", prob_mod)):
        _modified(graph, x, name)
    return TensorType(v.dtype, (sizes.batch, sizes.q_heads, sizes.queries, sizes.v_head))
