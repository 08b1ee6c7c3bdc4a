"""Quantized tensors and their products: what the official cases leave out."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builders import node
from close import check
from forms import demands, run, types
from layers import layer, refused
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import jaxshape as js

F, INF = np.float32, np.inf
RNG = np.random.default_rng(0)
Q, D = "QuantizeLinear", "DequantizeLinear"
INTEGERS = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"]


def typed(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def f(*values):
    return np.array(values, F)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_saturate_and_come_back(name):
    dtype, info = typed(name), ml_dtypes.iinfo(typed(name))
    x = f(-INF, -1e20, -1.5, -0.5, 0, 0.5, 1.5, 1e20, INF)
    zero = np.array(1, dtype)
    whole = np.clip([-INF, -INF, -2, 0, 0, 0, 2, INF, INF] + f(1), info.min, info.max)
    y = whole.astype(np.int32).astype(dtype)
    check(Q, [x, f(1)[0], zero], y, opset=25)
    back = (y.astype(np.int32) - 1).astype(F) * F(0.3)
    check(D, [y, f(0.3)[0], zero], back, opset=25)


@pytest.mark.parametrize(
    ("name", "saturate", "wanted"),
    [
        ("float8_e4m3fn", 1, [-448, 0.5, 448, 448, np.nan]),
        ("float8_e4m3fn", 0, [-448, 0.5, np.nan, np.nan, np.nan]),
        ("float8_e4m3fnuz", 1, [-240, 0.5, 240, 240, np.nan]),
        ("float8_e5m2", 1, [-448, 0.5, 57344, 57344, np.nan]),
        ("float8_e5m2", 0, [-448, 0.5, INF, INF, np.nan]),
        ("float8_e5m2fnuz", 1, [-448, 0.5, 57344, 57344, np.nan]),
        ("float4_e2m1fn", 1, [-6, 0.5, 6, 6, None]),
    ],
)
def test_small_floats(name, saturate, wanted):
    x = f(-448, 0.5, 1e6, INF, np.nan)[: 4 if wanted[4] is None else 5]
    wanted = np.array(wanted[: len(x)], F).astype(typed(name))
    zero = np.zeros((), typed(name))
    (y,) = layer(Q, x, f(1)[0], zero, wanted=wanted, rtol=0, opset=25, saturate=saturate)
    layer(D, y, f(2)[0], wanted=wanted.astype(F) * 2, rtol=0, opset=25)


@pytest.mark.parametrize("scale", [0.7, 0.3, 3.0, 255.0])
def test_a_quotient_is_not_a_product(scale):
    x = np.arange(-400, 400).astype(F) * F(scale) / 2  # x / scale is a tie, or nearly so
    (got,) = run(Q, x, F(scale), np.int16(0), opset=21)
    np.testing.assert_array_equal(got, np.rint(x / F(scale)).astype(np.int16))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_quotients_are_rounded_twice(name):
    x, scale = (RNG.uniform(1, 100, 4000).astype(typed(name)), np.array(0.7, typed(name)))
    wanted = np.rint((x.astype(F) / scale.astype(F)).astype(typed(name)).astype(F))
    (got,) = run(Q, x, scale, np.uint8(3), opset=21)
    np.testing.assert_array_equal(got, np.clip(wanted + 3, 0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("x", "scale", "attributes", "wanted"),
    [
        (f(1, 2.2), np.float16(0.1), {}, [10, 22]),
        (np.array([7, 9], np.int32), F(2), {}, [4, 4]),
        (np.array([7, 9], np.int32), np.int32(2), {}, [4, 4]),
        (f(3, 5), ml_dtypes.float8_e8m0fnu(2), {}, [2, 2]),
        (f(1, 3), F(3), {"precision": TensorProto.FLOAT16}, [0, 1]),
        (np.array([1, 3], np.float16), F(3), {"precision": TensorProto.DOUBLE}, [0, 1]),
    ],
    ids=str,
)
def test_precision(x, scale, attributes, wanted):
    wanted = np.array(wanted, np.uint8)
    check(Q, [x, np.asarray(scale)], wanted, opset=25, **attributes)


def test_axis_and_blocks():
    x = RNG.normal(size=(2, 5, 3)).astype(F)
    for axis, shape in ((0, (2, 1, 1)), (1, (1, 5, 1)), (-1, (1, 1, 3))):
        s = RNG.uniform(0.1, 1, shape[axis]).astype(F)
        z = RNG.integers(-9, 9, shape[axis]).astype(np.int8)
        y = np.clip(np.rint(x / s.reshape(shape)) + z.reshape(shape), -128, 127).astype(np.int8)
        check(Q, [x, s, z], y, opset=13, axis=axis)
        back = (y - z.reshape(shape).astype(np.int32)).astype(F) * s.reshape(shape)
        check(D, [y, s, z], back, opset=13, axis=axis)
    s = RNG.uniform(0.1, 1, (2, 3, 3)).astype(F)
    z = RNG.integers(-9, 9, (2, 3, 3)).astype(np.int8)
    full_s, full_z = s.repeat(2, 1)[:, :5], z.repeat(2, 1)[:, :5]
    y = np.clip(np.rint(x / full_s) + full_z, -128, 127).astype(np.int8)
    check(Q, [x, s, z], y, opset=21, axis=1, block_size=2)
    back = (y - full_z.astype(np.int32)).astype(F) * full_s
    check(D, [y, s, z], back, opset=21, axis=-2, block_size=2)


def test_output_types():
    x, scale = np.array([1, -2], np.int8), np.float16(0.5)
    check(D, [x, scale], np.array([0.5, -1], np.float16), opset=19)
    check(D, [x, scale], f(0.5, -1), opset=23, output_dtype=TensorProto.FLOAT)
    wanted = np.array([2, -4], ml_dtypes.int4)
    check(Q, [f(1, -2), f(0.5)[0]], wanted, opset=21, output_dtype=TensorProto.INT4)
    check(Q, [np.zeros((0, 3), F), f(0.5, 1, 2)], np.zeros((0, 3), np.uint8), opset=13)
    check(Q, [F(3), f(2)], np.uint8(2), opset=13)


def test_six_bit_floats_on_the_host():
    dtype = typed("float6_e2m3fn")
    (y,) = js.run(node(Q, f(1.5, 99), f(0.5), np.zeros((), dtype), opset=28), {}).values()
    assert (y.dtype, y.astype(F).tolist()) == (dtype, [3, 7.5])
    inputs = "float32[N]", "float32[]"
    code = TensorProto.FLOAT6E2M3
    assert types(Q, *inputs, opset=28, output_dtype=code) == ["float6_e2m3fn[N]"]


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (f(0, 1, 2.55), ([0, 100, 255], 0.01, 0)),
        (f(-1, -2.55), ([155, 0], 0.01, 255)),
        (f(0, 0), ([0, 0], 1 / 255, 0)),
        (np.zeros((0, 2), F), (np.zeros((0, 2)), 1 / 255, 0)),
        (F(5.1), (255, 0.02, 0)),
    ],
)
def test_dynamic(x, wanted):
    y, scale, zero = run("DynamicQuantizeLinear", x, outputs=3, opset=21)
    np.testing.assert_array_equal(y, np.array(wanted[0], np.uint8))
    np.testing.assert_allclose(scale, wanted[1], 1e-6)
    assert (y.dtype, scale.dtype, zero.dtype, zero) == ("uint8", "float32", "uint8", wanted[2])


# products -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("a_type", ["int8", "uint8"])
@pytest.mark.parametrize("b_type", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("a", "b", "a_zero", "b_zero"),
    [
        ((3, 70), (70, 2), None, None),
        ((3, 4), (4, 2), (), (1,)),
        ((3, 4), (4, 2), (3,), (2,)),
        ((2, 1, 3, 4), (5, 4, 2), (2, 1, 3, 1), (5, 1, 2)),
        ((4,), (4,), (), ()),
        ((4,), (3, 4, 2), None, None),
        ((3, 0), (0, 2), (), ()),
    ],
)
def test_integer_product(a_type, b_type, a, b, a_zero, b_zero):
    def bytes_of(dtype, shape):
        info = np.iinfo(dtype)
        return None if shape is None else RNG.integers(info.min, info.max + 1, shape).astype(dtype)

    given = [
        bytes_of(t, s) for t, s in zip((a_type, b_type) * 2, (a, b, a_zero, b_zero), strict=True)
    ]
    left, right, za, zb = (np.int64(0) if v is None else v.astype(np.int64) for v in given)
    za = za[:, None] if za.ndim == 1 else za
    wanted = np.matmul(left - za, right - zb).astype(np.int32)
    check("MatMulInteger", given, wanted, opset=10)


def test_quantized_product_rounds_before_the_zero_point():
    one, zero = F(1), np.int8(0)
    a, b = np.array([[1], [3]], np.int8), np.array([[1]], np.int8)
    inputs = [a, one, zero, b, one, zero, F(2), np.int8(1)]
    check("QLinearMatMul", inputs, np.array([[1], [3]], np.int8), opset=21)  # 0.5 and 1.5


def test_quantized_product_by_rows_and_columns():
    a, b = (
        RNG.integers(0, 255, (3, 5)).astype(np.uint8),
        RNG.integers(-99, 99, (5, 2)).astype(np.int8),
    )
    a_scale, b_scale = f(0.1, 0.2, 0.3), f(0.05, 0.01)
    a_zero, b_zero = np.array([3, 4, 5], np.uint8), np.array([-1, 7], np.int8)
    whole = (a - a_zero[:, None].astype(np.int64)) @ (b - b_zero.astype(np.int64))
    wanted = np.rint(whole * a_scale[:, None] * b_scale / 0.4) + 100
    inputs = [a, a_scale, a_zero, b, b_scale, b_zero, F(0.4), np.uint8(100)]
    check("QLinearMatMul", inputs, np.clip(wanted, 0, 255).astype(np.uint8), opset=21)


def test_quantized_product_of_floats():
    e4 = typed("float8_e4m3fn")
    a, zero, one = np.array([[1, 2.5]], e4), np.zeros((), e4), F(1)
    inputs = [a, F(2), zero, a.T, one, zero, F(0.5), zero]
    (got,) = js.run(node("QLinearMatMul", *inputs, opset=21), {}).values()
    assert (got.dtype, got.tolist()) == (e4, [[28]])  # 29, to 3 bits


@pytest.mark.parametrize(
    ("group", "w_zero", "attributes"),
    [
        (1, (), {}),
        (2, (4,), {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
        (2, (1,), {"dilations": [2, 1]}),
    ],
)
def test_quantized_convolution(group, w_zero, attributes):
    x = RNG.integers(0, 256, (1, 4, 6, 5)).astype(np.uint8)
    w = RNG.integers(-128, 128, (4, 4 // group, 2, 3)).astype(np.int8)
    wz = RNG.integers(-9, 9, w_zero).astype(np.int8)
    scale = RNG.uniform(0.01, 0.1, 4).astype(F)
    b = RNG.integers(-900, 900, 4).astype(np.int32)
    x = [x, F(0.1), np.uint8(120), w, scale, wz, F(2), np.uint8(9), b]
    model = node("QLinearConv", *x, opset=10, group=group, **attributes)
    wanted: Any = [*ReferenceEvaluator(model).run(None, {})][0]
    (got,) = js.run(model, {}).values()
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got.astype(int), wanted.astype(int), atol=1)  # it rounds once later
    assert (got != wanted).mean() < 0.05


# types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        (Q, ["float32[N, c]", "float32[]"], {}, "uint8[N, c]"),
        (Q, ["float32", "float32[]"], {"output_dtype": 22}, "int4[...]"),
        (Q, ["float32[N, c]", "float32[c]", "int8[c]"], {}, "int8[N, c]"),
        (D, ["int4[N, c]", "float16[N, 2]"], {"block_size": 32}, "float16[N, c]"),
        (D, ["int8", "float16[]"], {"output_dtype": 1}, "float32[...]"),
        ("DynamicQuantizeLinear", ["float32[N, c]"], {"outputs": 3}, "uint8[N, c]"),
        ("MatMulInteger", ["uint8[b, 1, m, k]", "int8[h, k, n]"], {}, "int32[b, h, m, n]"),
    ],
)
def test_types(op, inputs, attributes, wanted):
    assert types(op, *inputs, opset=25, **attributes)[0] == wanted


def test_types_of_quantized_products():
    scales = "float32[]", "uint8[]"
    a, b = ["uint8[N, m, k]", *scales], ["uint8[k, n]", "float32[n]", "uint8[n]"]
    assert types("QLinearMatMul", *a, *b, "float32[]", "int8[]", opset=21) == ["int8[N, m, n]"]
    x, w = ["uint8[N, 3, h, w]", *scales], ["uint8[8, 3, 3, 3]", "float32[M]", "uint8[]"]
    given = [*x, *w, *scales]
    assert types("QLinearConv", *given, opset=21) == ["uint8[N, 8, h - 2, w - 2]"]
    assert demands("QLinearConv", *given, opset=21) == ["h >= 3", "w >= 3", "M == 8"]


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted"),
    [
        (["float32[N, c]", "float32[s]"], {}, ["s == c or s == 1 or c == 1", "c >= s"]),
        (["float32[N]", "float32[s]"], {}, ["s == 1"]),
        (["float32[N, c]", "float32[a, b]"], {"block_size": 2}, ["N == a", "b == (c - 1)//2 + 1"]),
    ],
)
def test_demands(inputs, attributes, wanted):
    assert demands(Q, *inputs, opset=25, **attributes) == wanted


@pytest.mark.parametrize(
    ("op", "inputs", "keywords", "text"),
    [
        (Q, ["float32[2, 3]", "float32[2]"], {}, "y_scale (2) must broadcast to (3)"),
        (
            Q,
            ["float32[2, 3]", "float32[3]"],
            {"opset": 10},
            "y_scale has shape (3), wants a scalar",
        ),
        (Q, ["float32[2, 3]", "float32[3]"], {"axis": 2}, "axis 2 is out of range for rank 2"),
        (Q, ["float32[2, 3]", "float32[2, 3]"], {}, "y_scale (2, 3) has rank 2, wants 0 or 1"),
        (Q, ["float32[2, 3]", "float32[2, 2]"], {"block_size": 3}, "for blocks of 3 along axis 1"),
        (Q, ["float32[2, 3]", "float32[2, 2]"], {"block_size": -1}, "block_size is -1, wants"),
        (Q, ["float32[2]", "float32[]"], {"output_dtype": 1}, "float32 is no type to quantize to"),
        (
            Q,
            ["float32[2]", "float32[]", "int8[]"],
            {"output_dtype": 2},
            "output_dtype is uint8, y_zero_point is int8",
        ),
        (D, ["int8[2, 3]", "float32[]", "int8[2]"], {}, "x_zero_point (2) must broadcast to (3)"),
        ("MatMulInteger", ["int8[2, 3]", "int8[2, 3]"], {}, "A (2, 3) times B (2, 3)"),
        ("MatMulInteger", ["int8[2, 3]", "int8[3, 4]", "int8[3]"], {}, "a_zero_point (3)"),
    ],
)
def test_errors(op, inputs, keywords, text):
    assert text in refused(op, *inputs, **{"opset": 25, **keywords})


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("scale", [1, INF])
def test_what_is_no_number_becomes_the_least(dtype, scale):
    """A calibration over a mask of -inf writes an infinite scale; the standard leaves NaN open."""
    x = np.array([1, -INF, INF, np.nan], np.float32)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    wanted = [4, low, high, low] if scale == 1 else [3, low, low, low]
    parts = [x, np.float32(scale), np.array(3, dtype)]
    check("QuantizeLinear", parts, np.array(wanted, dtype), static=(1, 2))
