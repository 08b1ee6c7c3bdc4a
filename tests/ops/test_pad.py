"""Pad and CenterCropPad."""

import numpy as np
import pytest
from builders import model, node
from forms import demands, run, types

import jaxshape as js

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(1, 2, 0, 1), (7, 0, 0, 9), (0, 0, 0, 0)])
@pytest.mark.parametrize("x", [X, X[:1], X.astype(int).astype(str).astype(object)])
def test_pad(x, mode, pads):
    (y,) = run("Pad", x, ints(*pads), static=(1,), mode=mode)
    extra = {"constant_values": ""} if mode == "constant" and x.dtype == object else {}
    wanted = np.pad(x, (pads[::2], pads[1::2]), mode, **extra)  # type: ignore[call-overload]
    assert y.dtype == x.dtype and y.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("pads", "mode", "wanted"),
    [
        ((-2, 3), "edge", [2, 3, 4, 4, 4, 4]),
        ((-2, 3), "wrap", [2, 3, 4, 2, 3, 4]),
        ((-2, 2), "reflect", [2, 3, 4, 3, 2]),
        ((-2, 1), "constant", [2, 3, 4, 0]),
        ((-3, -2), "constant", []),
        ((-7, 4), "constant", [0, 0]),  # more cut than there is: what was added is cut too
        ((4, -7), "constant", [0, 0]),
    ],
)
def test_negative_pads_cut(pads, mode, wanted):
    (y,) = run("Pad", np.arange(5), ints(*pads), static=(1,), mode=mode)
    assert y.tolist() == wanted


@pytest.mark.parametrize(
    "dtype", ["int4", "uint2", "float8_e4m3fn", "bfloat16", "bool", "complex64"]
)
def test_pad_with_a_value(dtype):
    x, value = np.ones((1, 2)).astype(dtype), np.zeros(()).astype(dtype)
    (y,) = run("Pad", x, ints(1, 0), value, ints(-1), static=(1, 3))
    assert y.dtype == x.dtype and y.tolist() == [[value.item(), *x[0].tolist()]]


def test_pad_of_old():
    wanted = np.pad(X, ((0, 1), (1, 0)), constant_values=2.5)
    for m in (
        node("Pad", "float32[3, 4]", opset=1, value=2.5, paddings=[0, 1, 1, 0]),
        node("Pad", "float32[3, 4]", opset=10, value=2.5, pads=[0, 1, 1, 0]),
    ):
        np.testing.assert_array_equal(js.run(m, {"x0": X})["y0"], wanted)
    y = run("Pad", X[:0], ints(2, 0, 0, 0), np.full(1, 7, "f"), static=(1,), opset=11)[0]
    assert y.tolist() == [[7] * 4] * 2


@pytest.mark.parametrize(
    ("pads", "mode", "wanted", "needs"),
    [
        (ints(0, 1, 0, 2), "constant", "B, h + 3", []),
        (ints(0, 1, 0, -3), "constant", "B, h - 2", ["h >= 2"]),
        (ints(0, 1, 0, -3), "reflect", "B, h - 2", ["h >= 4"]),
        ("int64[4]", "constant", "B + x1_0 + x1_2, h + x1_1 + x1_3", None),
    ],
)
def test_pad_by_formula(pads, mode, wanted, needs):
    assert types("Pad", "float32[B, h]", pads, mode=mode) == [f"float32[{wanted}]"]
    if needs is not None:
        assert demands("Pad", "float32[B, h]", pads, mode=mode) == needs


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        (["float32[B, h]", "int64[2]", None, ints(-1)], "float32[B, h + x1_0 + x1_1]"),
        (["float32[B, h]", ints(1, 1), None, "int64[1]"], "float32[Pad_size, Pad_size_1]"),
        (["float32", ints(1, 1)], "float32[Pad_size + 2]"),
        (["float32", ints(1, 1), None, ints(0)], "float32[...]"),
        (["string[B, h]", ints(1, 0, 0, 1)], "string[B + 1, h + 1]"),
    ],
)
def test_pad_by_what_is_known(inputs, wanted):
    assert types("Pad", *inputs) == [wanted]


def test_pad_to_a_multiple():
    trace = js.trace(
        model("""g (float[N, h] x) => (y) {
            s = Shape <start = 1> (x)  m = Constant <value_ints = [8]> ()
            zeros = Constant <value_ints = [0, 0, 0]> ()  n = Neg (s)  more = Mod (n, m)
            pads = Concat <axis = 0> (zeros, more)  y = Pad (x, pads) }""")
    )
    assert trace.at(N=1, h=13)["y"].shape == (1, 16) and not trace.requirements


@pytest.mark.parametrize(
    ("x", "inputs", "attributes", "text"),
    [
        ("B, 3", [ints(1, 1)], {}, "pads has 2 elements, wants 2 for each of 2 axes"),
        ("B, 3", [ints(1, 1)], {"mode": "fill"}, "pads has 2 elements"),
        (
            "3",
            [ints(1, 1)],
            {"mode": "fill"},
            "mode 'fill' is none of constant, reflect, edge, wrap",
        ),
        ("B, 3", [ints(0, -2, 0, -2)], {}, r"axis 1 of \(B, 3\) with pads -2 and -2"),
        ("0", [ints(1, 1)], {"mode": "edge"}, "with pads 1 and 1, mode edge"),
        ("3", [ints(1, 1), None, ints(1)], {}, "axis 1 is out of range for rank 1"),
        ("3", [ints(1, 1), np.zeros(2, "f")], {}, None),
    ],
)
def test_pad_refuses(x, inputs, attributes, text):
    m = node("Pad", f"float32[{x}]", *inputs, **attributes)
    with pytest.raises(js.ShapeError, match=text or "constant_value has shape"):
        js.trace(m) if text else js.run(m, {"x0": np.zeros(3, "f")})


@pytest.mark.parametrize(
    ("x", "shape", "axes", "wanted"),
    [
        (np.arange(7), [4], None, [1, 2, 3, 4]),
        (np.arange(4), [7], None, [0, 0, 1, 2, 3, 0, 0]),
        (X, [2], [-1], [[1, 2], [5, 6], [9, 10]]),
        (X[:2], [1, 6], [0, 1], [[0, 0, 1, 2, 3, 0]]),
        (np.array(["a", "b"], object), [3], None, ["a", "b", ""]),
    ],
)
def test_center_crop_pad(x, shape, axes, wanted):
    (y,) = run("CenterCropPad", x, ints(*shape), static=(1,), axes=axes)
    assert y.dtype == x.dtype and y.tolist() == wanted


def test_center_crop_pad_by_formula():
    assert types("CenterCropPad", "float32[B, h]", ints(5), axes=[1]) == ["float32[B, 5]"]
    assert types("CenterCropPad", "float32[B, h]", "int64[1]", axes=[1]) == ["float32[B, x1]"]
    assert types("CenterCropPad", "float32", ints(5, 6)) == ["float32[5, 6]"]
    with pytest.raises(js.ShapeError, match="shape has 1 elements for 2 axes"):
        js.trace(node("CenterCropPad", "float32[B, h]", ints(5)))
