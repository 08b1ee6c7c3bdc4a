"""Products of matrices, and the determinant.

Half types are multiplied as they are and summed in float32. Batch axes broadcast, the axis summed
over must agree.
"""

from __future__ import annotations

from .._device import canonical
from .._facts import same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import broadcast_shape, matmul, onto, ranked, shaped, wide, written
from ._numeric import is_integer


def matmul_shape(a, b):
    """The shape of (*N, m, k) times (*N, k, n); a vector lends the axis that is summed."""
    ranked("A", a, least=1)
    ranked("B", b, least=1)
    why = f"A {written(a)} times B {written(b)}"
    same(a[-1], b[-2] if len(b) > 1 else b[0], why)
    return (*broadcast_shape(why, a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


@op("MatMul", since=1, host=True)
def matmul_1(a, b, /):
    """Multiply a (*N, m, k) by b (*N, k, n) -> (*N, m, n); N broadcasts; a vector lends k."""
    matmul_shape(hostdims(a.shape), hostdims(b.shape))
    return matmul(a, b).astype(a.dtype)


@matmul_1.shape_rule  # because JAX cannot broadcast batch sizes that it cannot compare
def _(a, b, /):
    return TensorType(a.dtype, matmul_shape(a.shape, b.shape))


def _scaled(x, factor):
    """x times an attribute; whole numbers stay exact."""
    if factor == 1:
        return x
    if is_integer(x.dtype) and factor != int(factor):
        return (x.astype(canonical("float64", x)) * factor).astype(x.dtype)
    return x * (int(factor) if is_integer(x.dtype) else factor)


def _gemm(a, b, c, alpha, beta, trans_a, trans_b, broadcast=1):
    ranked("A", hostdims(a.shape), 2)
    ranked("B", hostdims(b.shape), 2)
    a, b = a.T if trans_a else a, b.T if trans_b else b
    (m, k), n = hostdims(a.shape), hostdims(b.shape)[1]
    y = _scaled(matmul(a, shaped("B", b, (k, n))), alpha)
    if c is not None:
        c = (onto if broadcast else shaped)("C", c, (m, n))
        y = y if beta == 0 else y + _scaled(c.astype(y.dtype), beta)
    return y.astype(a.dtype)


@op("Gemm", since=1, host=True)
def gemm_1(a, b, c, /, *, alpha=1.0, beta=1.0, broadcast=0, transA=0, transB=0):
    """Multiply a (m, k) by b (k, n), maybe stored transposed, plus c (m, n) -> (m, n)."""
    return _gemm(a, b, c, alpha, beta, transA, transB, broadcast)


@op("Gemm", since=7, host=True)
def gemm_7(a, b, c, /, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """Multiply a (m, k) by b (k, n), maybe stored transposed, plus c onto (m, n) -> (m, n)."""
    return _gemm(a, b, c, alpha, beta, transA, transB)


@op("Gemm", since=11, host=True)
def gemm_11(a, b, c=None, /, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """Multiply a (m, k) by b (k, n), maybe stored transposed, plus c onto (m, n) -> (m, n)."""
    return _gemm(a, b, c, alpha, beta, transA, transB)


def _det_shape(x):
    ranked("X", x, least=2)
    same(x[-1], x[-2], f"the matrices of X {written(x)} are square")
    return x[:-2]


@op("Det", since=11, host=True)
def det(x, /):
    """Take the determinants of x (*N, m, m) -> (*N,)."""
    _det_shape(hostdims(x.shape))
    xp = namespace(x)
    return xp.asarray(xp.linalg.det(x.astype(wide(x.dtype)))).astype(x.dtype)


@det.shape_rule  # because JAX factors no matrix of symbolic size
def _(x, /):
    return TensorType(x.dtype, _det_shape(x.shape))
