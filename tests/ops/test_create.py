"""Constant, ConstantOfShape, EyeLike, Range, windows, random tensors."""

from typing import Any

import numpy as np
import onnx
import pytest
from builders import model, node
from forms import demands, run, typed_as, types

import jaxshape as js


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("attributes", "dtype", "wanted"),
    [
        ({"value": np.array([[1, 2]], np.int8)}, "int8", [[1, 2]]),
        ({"value_int": -3}, "int64", -3),
        ({"value_ints": [1, 2]}, "int64", [1, 2]),
        ({"value_float": 0.5}, "float32", 0.5),
        ({"value_floats": [0.5, 1.0]}, "float32", [0.5, 1.0]),
        ({"value_string": "é"}, object, "é"),
        ({"value_strings": ["a", "b"]}, object, ["a", "b"]),
    ],
)
def test_constant(attributes, dtype, wanted):
    (y,) = run("Constant", **attributes)
    assert y.dtype == dtype and y.tolist() == wanted


def test_constant_unfolds_a_sparse_tensor():
    m = node("Constant", value_int=0)
    values = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [2], [1.5, 2.5])
    places = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [2], [1, 5])
    sparse = onnx.helper.make_sparse_tensor(values, places, [2, 3])
    del m.graph.node[0].attribute[:]
    m.graph.node[0].attribute.append(onnx.helper.make_attribute("sparse_value", sparse))
    assert js.run(m, {})["y0"].tolist() == [[0, 1.5, 0], [0, 0, 2.5]]


@pytest.mark.parametrize("value", [None, np.array([7], np.int8), np.array([True])])
@pytest.mark.parametrize("shape", [[], [2, 3], [0, 3], [300, 300]])
def test_constant_of_shape(shape, value):
    (y,) = run("ConstantOfShape", np.array(shape, np.int64), static=(0,), value=value)
    wanted = np.zeros(1, np.float32) if value is None else value
    assert y.dtype == wanted.dtype and y.shape == tuple(shape) and (y == wanted).all()


@pytest.mark.parametrize("k", [-(2**40), -2, 0, 1, 5, 2**40])
def test_eye_like(k):
    (y,) = run("EyeLike", np.zeros((3, 4), np.int32), k=k, dtype=1)
    np.testing.assert_array_equal(y, np.eye(3, 4, np.clip(k, -9, 9), dtype=np.float32))


@pytest.mark.parametrize(
    ("dtype", "start", "limit", "delta", "wanted"),
    [
        ("int64", 0, 10, 3, [0, 3, 6, 9]),
        ("int64", 10, 0, -3, [10, 7, 4, 1]),
        ("int32", 5, 0, 1, []),
        ("int64", 0, 0, 1, []),
        ("int64", 2**62, 2**62 + 3, 2, [2**62, 2**62 + 2]),
        ("int16", -32768, 32767, 30000, [-32768, -2768, 27232]),
        ("float32", 0, 1, 0.25, [0, 0.25, 0.5, 0.75]),
        ("float64", 1, 0, -0.5, [1, 0.5]),
        ("float16", 1, 2, 0.5, [1, 1.5]),
    ],
)
def test_range(dtype, start, limit, delta, wanted):
    inputs = [np.array(v, dtype) for v in (start, limit, delta)]
    (y,) = run("Range", *inputs, static=(0, 1, 2))
    assert y.dtype == dtype and y.tolist() == wanted


def test_range_of_floats_is_as_long_as_in_onnxruntime():
    lengths = [
        run("Range", *f32(0, limit, delta), static=(0, 1, 2))[0].size
        for limit, delta in ((0.3, 0.1), (1, 0.1), (2.1, 0.7))
    ]
    assert lengths == [4, 10, 3]  # the quotients of the float32 numbers, taken in float64


def test_range_on_the_device():
    inputs = {f"x{i}": np.array(v) for i, v in enumerate((1, 200_001, 2))}
    y = js.run(node("Range", "int64[]", "int64[]", "int64[]"), inputs)["y0"]
    np.testing.assert_array_equal(y, np.arange(1, 200_001, 2))


WINDOWS = {"HannWindow": np.hanning, "HammingWindow": None, "BlackmanWindow": np.blackman}


@pytest.mark.parametrize("op", WINDOWS)
def test_windows(op):
    (periodic,) = run(op, 6, static=(0,), output_datatype=11)
    (symmetric,) = run(op, 7, static=(0,), periodic=0, output_datatype=11)
    np.testing.assert_allclose(symmetric[:-1], periodic, atol=1e-12)
    np.testing.assert_allclose(symmetric, symmetric[::-1], atol=1e-12)
    if WINDOWS[op]:
        np.testing.assert_allclose(symmetric, WINDOWS[op](7), atol=1e-12)
    assert run(op, 7, static=(0,), periodic=0, output_datatype=7)[0].tolist() == [
        0,
        0,
        0,
        1,
        0,
        0,
        0,
    ]
    assert run(op, 0, static=(0,))[0].shape == (0,)
    large = js.run(node(op, "int64[]"), {"x0": np.array(70_000)})["y0"]
    assert large.shape == (70_000,) and large[35_000] == 1


FROM_SHAPE = """g (float[N, 3] x) => (float[] y) {{
    s = Shape (x)  zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()
    two = Constant <value_int = -2> ()  n = Gather (s, zero)  t = Gather (s, one)
    {} }}"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("i = Range (zero, n, one) y = Cast <to = 1> (i)", "float32[N]"),
        ("i = Range (one, n, one) y = Cast <to = 1> (i)", "float32[N - 1]"),
        ("i = Range (n, zero, two) y = Cast <to = 1> (i)", "float32[(N - 1)//2 + 1]"),
        ("y = HannWindow (n)", "float32[N]"),
        ("y = ConstantOfShape (s)", "float32[N, 3]"),
        (
            "e = Add (n, t) i = Range (n, e, one) y = ConstantOfShape (i)",
            "float32[N, N + 1, N + 2]",
        ),
    ],
)
def test_sizes_by_formula(body, wanted):
    m = model(FROM_SHAPE.format(body))
    trace = js.trace(m)
    assert str(trace["y"]) == wanted
    y = js.run(m, {"x": np.zeros((5, 3), np.float32)})["y"]
    assert y.shape == trace.at(N=5)["y"].shape


@pytest.mark.parametrize(
    ("op", "inputs", "wanted"),
    [
        ("ConstantOfShape", ("int64",), "float32[...]"),
        ("EyeLike", ("int8[N,M]",), "int8[N, M]"),
        ("Range", (np.array(0), "int64[]", np.array(1)), "int64[max(x1, 0)]"),
        ("Range", (np.float32(0), "float32[]", np.float32(1)), "float32[Range_length]"),
        ("Range", ("int64", "int64", "int64"), "int64[Range_length]"),
        ("HannWindow", ("int64[]",), "float32[x0]"),
        ("Bernoulli", ("float32[N,M]",), "float32[N, M]"),
        ("Bernoulli", ("float32",), "float32[...]"),
    ],
)
def test_types(op, inputs, wanted):
    assert types(op, *inputs) == [wanted]


def test_an_unknown_size_is_no_less_than_0():
    assert demands("HannWindow", "int64[]") == ["x0 >= 0"]
    assert demands("ConstantOfShape", "int64[2]") == ["x0_0 >= 0", "x0_1 >= 0"]


def test_what_is_huge_is_only_traced():
    assert types("ConstantOfShape", np.array([10**6, 10**6])) == ["float32[1000000, 1000000]"]


RANDOM = [
    ("RandomNormal", (), {"shape": [50, 40]}, "float32"),
    ("RandomUniform", (), {"shape": [50, 40], "dtype": 10}, "float16"),
    ("RandomNormalLike", (np.zeros((50, 40), np.int32),), {"dtype": 11}, "float64"),
    ("RandomUniformLike", (np.zeros((50, 40), np.float32),), {}, "float32"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "dtype"), RANDOM)
def test_random(op, inputs, attributes, dtype):
    kind: dict[str, Any] = (
        {"mean": 3.0, "scale": 0.5} if "Normal" in op else {"low": 2.0, "high": 4.0}
    )
    fed = {f"x{i}": x for i, x in enumerate(inputs)}

    def session(seed):
        m = node(op, *map(typed_as, inputs), **attributes, **kind, seed=seed)
        return js.InferenceSession(m)

    first, second = session(1.5), session(2.5)
    one, again, other = (s.run(None, fed)[0] for s in (first, first, second))
    assert one.dtype == dtype and one.shape == (50, 40)
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert abs(one.astype(np.float64).mean() - 3) < 0.1
    if "Uniform" in op:
        assert one.min() >= 2 and one.max() <= 4


def test_bernoulli_and_multinomial():
    p = np.repeat(f32([0], [0.25], [1]), 1000, 1)
    (y,) = run("Bernoulli", p, seed=1.0, dtype=9)
    assert y.dtype == bool
    np.testing.assert_allclose(y.mean(1), p[:, 0], atol=0.05)
    logits = np.log(f32([1, 3], [1, 0]) + 1e-30)
    (y,) = run("Multinomial", logits, sample_size=1000, seed=1.0, dtype=7)
    assert y.dtype == np.int64
    np.testing.assert_allclose(y.mean(1), [0.75, 0], atol=0.05)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "text"),
    [
        ("Constant", (), {}, "has 0 values, wants exactly one"),
        ("Constant", (), {"value_int": 1, "value_float": 1.0}, "has 2 values"),
        ("ConstantOfShape", (np.array([2, -1]),), {}, "input: -1 is less than 0"),
        ("ConstantOfShape", (np.array([[2]]),), {}, "has rank 2, wants 1"),
        ("ConstantOfShape", (np.array([2]),), {"value": np.zeros(2, "f")}, "wants one element"),
        ("EyeLike", ("float32[N]",), {}, "has rank 1, wants 2"),
        ("EyeLike", ("float32[N,M]",), {"dtype": 99}, "99 is not a data type of ONNX"),
        ("Range", (np.array(0), np.array(3), np.array(0)), {}, "delta is 0"),
        ("Range", tuple(f32(0, np.inf, 1)), {}, "there are inf steps"),
        ("HannWindow", (np.array(-1),), {}, "size: -1 is less than 0"),
        ("HannWindow", (np.array([1, 2]),), {}, "wants one element"),
        ("RandomNormal", (), {"shape": [2, -3]}, "negative size"),
        ("RandomNormalLike", ("int32[N]",), {}, "dtype is int32, wants a floating-point type"),
        ("Multinomial", ("float32[N]",), {}, "has rank 1, wants 2"),
    ],
)
def test_errors(op, inputs, attributes, text):
    with pytest.raises(js.ShapeError, match=text):
        types(op, *inputs, **attributes)
