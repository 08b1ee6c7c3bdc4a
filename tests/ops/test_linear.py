"""Products of matrices, Einsum and Det: what the official cases leave out."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from close import check
from forms import demands, types
from layers import refused

RNG = np.random.default_rng(0)
F, BF16 = "float32", ml_dtypes.bfloat16


def normal(*shape, dtype: Any = np.float32):
    return np.asarray(RNG.normal(size=shape), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16, np.int64, np.uint32])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (5, 4, 2)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((3, 0), (0, 4)),
        ((0, 3, 4), (1, 4, 2)),
    ],
)
def test_matmul(dtype, a, b):
    a, b = (np.asarray(RNG.integers(0, 5, s), dtype) for s in (a, b))
    check("MatMul", [a, b], np.matmul(a.astype("float64"), b.astype("float64")).astype(dtype))


def test_half_types_are_summed_in_float32():
    ones = np.ones((1, 4096), np.float16)  # in float16 the sum stays at 2048
    check("MatMul", [ones, ones.T], np.array([[4096]], np.float16))
    check("Gemm", [ones, ones.T], np.array([[4096]], np.float16))
    check("Einsum", [ones, ones], np.array(4096, np.float16), equation="ij,ij->")
    check("Einsum", [ones], np.array(4096, np.float16), equation="ij->")


@pytest.mark.parametrize(
    ("a", "b", "wanted", "requires"),
    [
        ("b, s, d", "d, e", "b, s, e", []),
        ("b, h, s, d", "b, h, d, t", "b, h, s, t", []),
        ("b, s, k", "b, m, n", "b, s, n", ["k == m"]),
        ("a, m, 4", "7, k, n", "7, m, n", ["k == 4", "a == 7 or a == 1"]),
        ("a, m, k", "b, k, n", "max(a, b), m, n", ["a == b or a == 1 or b == 1"]),
        ("k", "b, k, n", "b, n", []),
        ("b, m, k", "k", "b, m", []),
        ("k", "n", "", ["k == n"]),
    ],
)
def test_matmul_types(a, b, wanted, requires):
    inputs = f"{F}[{a}]", f"{F}[{b}]"
    assert types("MatMul", *inputs) == [f"{F}[{wanted}]"]
    assert sorted(demands("MatMul", *inputs)) == sorted(requires)


@pytest.mark.parametrize("c", [(), (1,), (2,), (3, 1), (3, 2)])
def test_gemm(c):
    a, b, c = normal(4, 3), normal(2, 4), normal(*c)
    wanted = 0.5 * a.T @ b.T + 2 * c
    check("Gemm", [a, b, c], wanted, alpha=0.5, beta=2.0, transA=1, transB=1)
    check("Gemm", [a, b, c], wanted, opset=7, alpha=0.5, beta=2.0, transA=1, transB=1)
    keep = {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}
    check("Gemm", [a, b, c], wanted, opset=6, broadcast=1, **keep)


def test_gemm_without_c_and_with_integers():
    a, b = normal(3, 0), normal(0, 2)
    check("Gemm", [a, b], np.zeros((3, 2), F))
    check("Gemm", [a, b, np.full(2, np.nan, F)], np.zeros((3, 2), F), beta=0.0)
    big = np.array([[2**40 + 1]])
    check("Gemm", [big, np.array([[3]]), np.array(5)], 3 * big + 5)
    check("Gemm", [big, np.array([[3]]), np.array(5)], 6 * big + 10, alpha=2.0, beta=2.0)


def test_gemm_types():
    inputs = f"{F}[k, m]", f"{F}[n, 8]", f"{F}[n]"
    assert types("Gemm", *inputs, transA=1, transB=1) == [f"{F}[m, n]"]
    assert demands("Gemm", *inputs, transA=1, transB=1) == ["k == 8"]
    assert types("Gemm", "bfloat16[m, k]", "bfloat16[k, 3]") == ["bfloat16[m, 3]"]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]),
        (" b i j , b j k -> b i k ", [(2, 2, 3), (2, 3, 4)]),
        ("...ij,...jk->...ik", [(5, 1, 2, 3), (1, 6, 3, 4)]),
        ("i...->...i", [(2, 3, 4)]),
        ("ii->i", [(3, 3)]),
        ("bii", [(2, 3, 3)]),
        ("i,i->", [(3,), (3,)]),
        ("ij,ij->ij", [(1, 3), (4, 3)]),
        ("ij,ij->", [(1, 3), (4, 1)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("aB,Bc", [(2, 3), (3, 4)]),
        ("i,j->ji", [(2,), (3,)]),
        (",", [(), ()]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.int64, BF16])
def test_einsum(equation, shapes, dtype):
    inputs = [np.asarray(RNG.integers(0, 4, s), dtype) for s in shapes]
    wanted = np.einsum(equation, *[x.astype(np.float64) for x in inputs]).astype(dtype)
    check("Einsum", inputs, wanted, equation=equation)


@pytest.mark.parametrize(
    ("equation", "inputs", "wanted", "requires"),
    [
        ("bhqd,bhkd->bhqk", ("b, 8, q, 64", "b, 8, k, 64"), "b, 8, q, k", []),
        ("...ij,...jk", ("b, c, i, j", "b, c, j, k"), "b, c, i, k", []),
        ("bij,bjk->bik", ("b, i, j", "1, 7, k"), "b, i, k", ["j == 7 or j == 1"]),
        ("ii->i", ("n, m",), "m", ["m == n"]),
        ("ij->", ("n, m",), "", []),
        ("Ba,a", ("n, m", "m"), "n", []),
    ],
)
def test_einsum_types(equation, inputs, wanted, requires):
    inputs = [f"{F}[{i}]" for i in inputs]
    assert types("Einsum", *inputs, equation=equation) == [f"{F}[{wanted}]"]
    assert demands("Einsum", *inputs, equation=equation) == requires


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 2), (0, 2, 2), (4, 4), (2, 0, 0)])
def test_det(dtype, shape):
    x = normal(*shape, dtype=dtype)
    wanted = np.linalg.det(x.astype(np.float64)).astype(dtype)
    check("Det", [x + np.eye(shape[-1], dtype=dtype) * 0], wanted)


def test_det_types():
    assert types("Det", "float64[b, m, n]") == ["float64[b]"]
    assert demands("Det", "float64[b, m, n]") == ["m == n"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("MatMul", ("2, 3", "4, 5"), {}, "A (2, 3) times B (4, 5): 3 is not 4"),
        ("MatMul", ("2, 2, 3", "3, 3, 5"), {}, "2 does not broadcast with 3"),
        ("MatMul", ("", "3"), {}, "A () has rank 0, wants at least 1"),
        ("Gemm", ("2, 3", "4, 5"), {}, "B (4, 5) must be (3, 5)"),
        ("Gemm", ("2, 3", "3, 5", "4"), {}, "C (4) must broadcast to (2, 5)"),
        ("Gemm", ("2, 3", "3, 5", "1, 2, 5"), {}, "C has rank 3, wants at most 2"),
        ("Gemm", ("2, 3, 4", "4, 5"), {}, "A (2, 3, 4) has rank 3, wants 2"),
        ("Gemm", ("2, 3", "3, 5", "5"), {"opset": 6}, "C (5) has rank 1, wants 2"),
        ("Einsum", ("2, 3",), {"equation": "ij,jk"}, "has 2 terms for 1 inputs"),
        ("Einsum", ("2, 3",), {"equation": "ijk"}, "input 0 (2, 3) does not have the axes"),
        ("Einsum", ("2, 3",), {"equation": "ij->k"}, "k stands in the output only"),
        ("Einsum", ("2, 3",), {"equation": "ij->ii"}, "the output names an axis twice"),
        ("Einsum", ("2, 3",), {"equation": "i1"}, "'i1' is no term of letters"),
        ("Einsum", ("2, 3",), {"equation": "ii"}, "axis i: 2 is not 3"),
        ("Einsum", ("2, 3", "4"), {"equation": "ij,j"}, "3 does not broadcast with 4"),
        ("Einsum", ("2, 3",), {"equation": "...i->i"}, "leaves out the axes of the ellipsis"),
        ("Einsum", ("2, 3", "2"), {"equation": "...i,...i"}, "the ellipsis is 1 axes in one term"),
        ("Det", ("2, 3",), {}, "3 is not 2"),
        ("Det", ("2",), {}, "has rank 1, wants at least 2"),
    ],
)
def test_errors(op, inputs, attributes, says):
    assert says in refused(op, *[f"{F}[{i}]" for i in inputs], **attributes)
