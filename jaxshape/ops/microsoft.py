"""What onnxruntime's optimiser makes of several nodes (com.microsoft): products and activations.

Each is its parts in a row, with the sums and the last rounding where the parts have them. Layers of
normalisation, attention and quantized operators have files of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._error import ShapeError
from .._host import namespace
from .._op import Static, op, select
from .._symbol import fit, hostdims
from .._value import TensorType
from ._agree import matmul, ranked, shaped, wide
from ._numeric import widened
from .activation import gelu, sigmoid
from .conv import agreed, conv
from .layout import transpose, trilu
from .linear import gemm_11, matmul_shape

DOMAIN = "com.microsoft"


# activations --------------------------------------------------------------------------------------


@op("Gelu", DOMAIN, host=True, elementwise=True)
def gelu_1(x, /):
    """Multiply x by the normal distribution at x; x (*D) -> (*D)."""
    return gelu.function(x)


@op("BiasGelu", DOMAIN, host=True)
def bias_gelu(a, b, /):
    """Take Gelu of a (*D, n) plus b (n,) -> as a."""
    ranked("A", hostdims(a.shape), least=1)
    return gelu.function(a + shaped("B", b, hostdims(a.shape)[-1:]))


@op("FastGelu", DOMAIN, host=True)
def fast_gelu(x, bias=None, /):
    """Take the tanh approximation of Gelu of x (*D, n) plus bias (n,) -> as x."""
    if bias is not None:
        ranked("X", hostdims(x.shape), least=1)
        x = x + shaped("bias", bias, hostdims(x.shape)[-1:])
    return gelu.function(x, approximate="tanh")


@op("QuickGelu", DOMAIN, host=True, elementwise=True)
@widened
def quick_gelu(x, /, *, alpha=1.7020000219345093):
    """Multiply x by Sigmoid of alpha x; x (*D) -> (*D)."""
    return x * sigmoid.function(alpha * x)


def _activated(y: Any, name: str, params: Any) -> Any:
    """The operator of that name on y; params are its attributes in order, or by name."""
    if not name:
        return y
    found = select("", name, 6 if name == "Clip" else 22)  # Clip's bounds were attributes up to 6
    if found is None or not found.elementwise or len(found.inputs) != 1:
        raise ShapeError(f"activation is {name!r}, which is no activation of one input")
    if not isinstance(params, dict):
        params = dict(zip(_ORDER.get(name, found.attributes), params or (), strict=False))
    return found.function(y, **{k: v for k, v in params.items() if k in found.attributes})


_ORDER = {"Clip": ("min", "max")}


# products -----------------------------------------------------------------------------------------


def _permutation(rank: int, trans: int, trans_batch: int) -> tuple[int, ...]:
    """The axes of an operand as the product takes them."""
    axes = list(range(rank))
    if trans_batch and rank > 2:
        axes.insert(rank - 2, axes.pop(0))
    if trans and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return tuple(axes)


def _operands(a: Any, b: Any, trans: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ta, tb, batch_a, batch_b = trans
    return _permutation(len(a), ta, batch_a), _permutation(len(b), tb, batch_b)


@op("FusedMatMul", DOMAIN, host=True)
def fused_matmul(a, b, /, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """Multiply a (*N, m, k) by b (*N, k, n), times alpha -> (*N, m, n).

    Stored with their last axes exchanged, or with the first between batch and last, on request.
    """
    axes = _operands(a.shape, b.shape, (transA, transB, transBatchA, transBatchB))
    a, b = (transpose.function(x, perm=p) for x, p in zip((a, b), axes, strict=True))
    matmul_shape(hostdims(a.shape), hostdims(b.shape))
    return (matmul(a, b) * alpha).astype(a.dtype)


@op("TransposeMatMul", DOMAIN, host=True)
def transpose_matmul(a, b, /, *, alpha=1.0, transA=0, transB=0):
    """Multiply a (*N, m, k) by b (*N, k, n), maybe stored transposed, times alpha -> (*N, m, n)."""
    return fused_matmul.function(a, b, alpha=alpha, transA=transA, transB=transB)


# because JAX cannot broadcast batch sizes that it cannot compare
@fused_matmul.shape_rule
@transpose_matmul.shape_rule
def _(a, b, /, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    axes = _operands(a.shape, b.shape, (transA, transB, transBatchA, transBatchB))
    shapes = [[x.shape[i] for i in p] for x, p in zip((a, b), axes, strict=True)]
    return TensorType(a.dtype, matmul_shape(*map(tuple, shapes)))


@op("FusedGemm", DOMAIN, host=True)
def fused_gemm(
    a, b, c=None, /, *, activation=None, activation_alpha=None, activation_beta=None,
    activation_gamma=None, alpha=1.0, beta=1.0, transA=0, transB=0,
):  # fmt: skip
    """Apply an activation to Gemm of a (m, k), b (k, n) and c -> (m, n)."""
    y = gemm_11.function(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    params = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return _activated(y, activation or "", {k: v for k, v in params.items() if v is not None})


@op("FusedConv", DOMAIN)
def fused_conv(
    x, w, b=None, z=None, /, *, activation=None, activation_params=None, auto_pad="NOTSET",
    dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Apply an activation to Conv of x (N, C, *D), w and b, plus z (N, M, *D') -> (N, M, *D')."""
    y = conv.function(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    y = y if z is None else y + fit(z, hostdims(y.shape))
    return _activated(y, activation or "", activation_params)


@fused_conv.shape_rule(rankless=True)  # because JAX cannot decide whether a window fits
def _(x, w, b=None, z=None, /, *, activation=None, activation_params=None, **attributes):
    return TensorType(x.dtype, agreed(x, w, b, **attributes)[1])


# odds and ends ------------------------------------------------------------------------------------


@op("Inverse", DOMAIN, host=True)
def inverse(x, /):
    """Invert the matrices of x (*N, m, m) -> as x."""
    ranked("X", hostdims(x.shape), least=2)
    xp = namespace(x)
    return xp.linalg.inv(x.astype(wide(x.dtype))).astype(x.dtype)


@inverse.shape_rule  # because JAX factors no matrix of symbolic size
def _(x, /):
    return TensorType(x.dtype, matmul_shape(x.shape, x.shape))


@op("CDist", DOMAIN, host=True)
def cdist(a, b, /, *, metric="sqeuclidean"):
    """Take the distances of the rows of a (m, k) and b (n, k) -> (m, n); squared unless told."""
    if metric not in ("euclidean", "sqeuclidean"):
        raise ShapeError(f"metric is {metric!r}, wants euclidean or sqeuclidean")
    ranked("A", hostdims(a.shape), 2)
    ranked("B", hostdims(b.shape), 2)
    m, k = hostdims(a.shape)
    n = matmul_shape((m, k), hostdims(b.shape)[::-1])[1]
    a, b = fit(a, (m, k)), fit(b, (n, k))
    xp = namespace(a, b)
    squares = xp.sum((a[:, None] - b[None]) ** 2, axis=-1)
    return squares if metric == "sqeuclidean" else xp.sqrt(squares)


@op("ExpandDims", DOMAIN, host=True)
def expand_dims(x, axis: Static, /):
    """Insert an axis of size 1 before axis () of the result -> x with one axis more."""
    at = int(np.asarray(axis).reshape(()))
    if not -x.ndim - 1 <= at <= x.ndim:
        raise ShapeError(f"axis {at} is out of range for rank {x.ndim}")
    return namespace(x).expand_dims(x, at)


op("Trilu", DOMAIN, host=True)(trilu.function)
