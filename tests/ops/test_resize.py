"""Resize and Upsample: what the official cases leave out."""

from typing import Any

import numpy as np
import pytest
from builders import model, node
from close import check
from forms import demands, types
from layers import refused
from onnx.reference import ReferenceEvaluator
from slopes import slopes

import jaxshape as js

F = np.float32
RNG = np.random.default_rng(0)
X = np.arange(4, dtype=F)
MODES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners"]
MODES += ["asymmetric", "tf_crop_and_resize"]


def f(*values):
    return np.array(values, F)


def resize(wanted, x, roi=None, scales=None, sizes=None, opset=19, **attributes):
    wanted = np.asarray(wanted, np.asarray(x).dtype)
    check("Resize", [x, roi, scales, sizes], wanted, static=(1, 2, 3), opset=opset, **attributes)


@pytest.mark.parametrize(
    ("nearest_mode", "wanted"),
    [
        ("round_prefer_floor", [0, 2]),
        ("round_prefer_ceil", [1, 3]),
        ("floor", [0, 2]),
        ("ceil", [1, 3]),
    ],
)
def test_nearest_at_a_tie(nearest_mode, wanted):
    resize(wanted, X, sizes=np.array([2]), nearest_mode=nearest_mode)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("half_pixel", [0, 0.25, 0.75, 1]),
        ("half_pixel_symmetric", [0, 0.25, 0.75, 1]),
        ("pytorch_half_pixel", [0, 0.25, 0.75, 1]),
        ("align_corners", [0, 1 / 3, 2 / 3, 1]),
        ("asymmetric", [0, 0.5, 1, 1]),
        ("tf_half_pixel_for_nn", [0.25, 0.75, 1, 1]),
        ("tf_crop_and_resize", [0.5, 5 / 6, -7, -7]),
    ],
)
def test_coordinates(mode, wanted):
    attributes = {"mode": "linear", "coordinate_transformation_mode": mode}
    roi = f(0.5, 1.5)
    resize(wanted, X[:2], roi, f(2), extrapolation_value=-7.0, **attributes)


FILTERS = [
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "cubic_coeff_a": -0.5},
    {"mode": "cubic", "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
]


@pytest.mark.parametrize(
    ("coordinates", "attributes"),
    [(c, {"mode": "nearest", "nearest_mode": "ceil"}) for c in MODES]
    + [(c, {"mode": "linear"}) for c in MODES]
    + [("half_pixel", a) for a in FILTERS]
    + [("tf_crop_and_resize", {"mode": "cubic"})],
    ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values())),
)
def test_reference(coordinates, attributes):
    x, roi = RNG.normal(size=(5, 7)).astype(F), f(0.1, 0.2, 0.9, 0.7)
    attributes = {**attributes, "coordinate_transformation_mode": coordinates}
    inputs = [x, roi, None, np.array([8, 3])]
    model = node("Resize", *inputs, opset=19, **attributes)
    wanted: Any = [*ReferenceEvaluator(model).run(None, {})][0]
    (host,) = js.run(node("Resize", *inputs, opset=19, **attributes), {}).values()
    inputs[0] = "float32[5, 7]"
    (device,) = js.run(node("Resize", *inputs, opset=19, **attributes), {"x0": x}).values()
    np.testing.assert_allclose(host, wanted, 1e-4, 1e-5)
    np.testing.assert_allclose(device, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("policy", "shape", "sizes", "wanted"),
    [
        ("stretch", (4, 6), [7, 9], (7, 9)),
        ("not_larger", (4, 6), [8, 9], (6, 9)),
        ("not_smaller", (4, 6), [8, 9], (8, 12)),
        ("not_larger", (2, 3), [3, 100], (3, 5)),  # 4.5 rounds up
    ],
)
def test_aspect_ratio(policy, shape, sizes, wanted):
    x = np.zeros((1, *shape), F)
    attributes = {"axes": [1, -1], "keep_aspect_ratio_policy": policy}
    resize(np.zeros((1, *wanted)), x, sizes=np.array(sizes), **attributes)


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (np.array([0, 1, 2, 5], np.uint8), [0, 1, 1, 2, 3, 4]),
        (np.array([-128, 127], np.int8), [-128, -86, -1, 0]),
    ],
)
def test_integers_are_rounded(x, wanted):
    sizes = np.array([len(wanted)])
    attributes: dict[str, Any] = {"mode": "linear"}
    attributes["coordinate_transformation_mode"] = "align_corners"
    (real,) = js.run(
        node("Resize", x.astype(F), None, None, sizes, opset=19, **attributes), {}
    ).values()
    resize(np.round(real), x, sizes=sizes, **attributes)


def test_cubic_saturates():
    x = np.array([0, 255, 255, 0], np.uint8)
    (got,) = js.run(node("Resize", x, None, f(2), opset=19, mode="cubic"), {}).values()
    assert got.tolist() == [0, 58, 197, 255, 255, 197, 58, 0]


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "float64", "complex64"])
def test_nearest_keeps_any_dtype(dtype):
    x = np.array([[1, 0]], dtype)
    resize(x.repeat(2, 0).repeat(3, 1), x, scales=f(2, 3))


def test_strings():
    x = np.array(["a", "b"], object)
    (got,) = js.run(node("Resize", x, None, f(2), opset=19), {}).values()
    assert got.tolist() == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("x", "scales", "wanted"),
    [
        (np.zeros((0, 2)), f(1, 2), (0, 4)),
        (np.zeros((3, 1)), f(0.3, 1), (0, 1)),
        (np.zeros((10, 1)), f(0.7, 1), (7, 1)),  # as float32 rounds 10 * 0.7
        (np.zeros(()), np.zeros((0,), F), ()),
    ],
)
def test_sizes(x, scales, wanted):
    if scales.size:
        resize(np.zeros(wanted), x, scales=scales, mode="linear")
    else:
        assert "wants one of scales and sizes, none are given" in refused(
            "Resize", x, None, scales, opset=19
        )


@pytest.mark.parametrize(
    ("op", "opset", "operand", "attributes", "wanted"),
    [
        ("Resize", 10, f(0.6), {}, [0, 2]),
        ("Resize", 10, f(1.5), {}, [0, 0, 1, 2, 2, 3]),
        ("Resize", 10, f(0.6), {"mode": "linear"}, [0, 5 / 3]),
        ("Upsample", 9, f(1.5), {}, [0, 0, 1, 2, 2, 3]),
        ("Upsample", 9, f(2), {"mode": "linear"}, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),
        ("Upsample", 7, None, {"scales": [2.0]}, [0, 0, 1, 1, 2, 2, 3, 3]),
    ],
)
def test_old_versions(op, opset, operand, attributes, wanted):
    inputs = [X] if operand is None else [X, operand]
    check(op, inputs, np.array(wanted, F), static=(1,), opset=opset, **attributes)


def test_first_version():
    x = X.reshape(1, 1, 2, 2)
    attributes: dict[str, Any] = {"height_scale": 1.0, "width_scale": 2.0}
    check("Upsample", [x], x.repeat(2, 3), opset=1, **attributes)
    wanted = np.array([[0, 0.5, 1, 1], [2, 2.5, 3, 3]], F).reshape(1, 1, 2, 4)
    check("Upsample", [x], wanted, opset=1, mode="bilinear", **attributes)


@pytest.mark.parametrize("opset", [11, 13, 18, 19])
def test_empty_operands_are_absent(opset):
    empty = np.zeros((0,), F)
    resize([0, 0, 1, 1], X[:2], empty, empty, np.array([4]), opset=opset)
    resize([0, 0, 1, 1], X[:2], empty, f(2), np.zeros((0,), np.int64), opset=opset)


@pytest.mark.parametrize(
    ("scale", "size"),
    [
        (2, "2*h"),
        (0.5, "h//2"),
        (0.6, "3*h//5"),
        (0.7, "7*h//10"),
        (1 / 3, "h//3"),
        (1, "h"),
        (1.7, "Resize_size1"),  # 17*h//10 is 1 too large at 786437
    ],
)
def test_symbolic_scale(scale, size):
    assert types("Resize", "float32[N, h]", None, f(1, scale), opset=19) == [f"float32[N, {size}]"]


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted"),
    [
        (["float32[N, h]", None, None, "int64[2]"], {}, "float32[x3_0, x3_1]"),
        (["float32[N, h]", None, "float32[2]"], {}, "float32[Resize_size0, Resize_size1]"),
        (["float32[N, h]", None, None, "int64[1]"], {"axes": [1]}, "float32[N, x3]"),
        (["float32", None, None, np.array([2, 3])], {}, "float32[2, 3]"),
        (["float32", None, None, np.array([2, 3])], {"axes": [0, 1]}, "float32[...]"),
        (["string[N, h]", None, f(2, 2)], {}, "string[2*N, 2*h]"),
        (
            ["float32[h, w]", None, None, np.array([8, 6])],
            {"keep_aspect_ratio_policy": "not_larger"},
            "float32[min((12*h + w)//(2*w), 8), min((h + 16*w)//(2*h), 6)]",
        ),
    ],
)
def test_types(inputs, attributes, wanted):
    assert types("Resize", *inputs, opset=19, **attributes) == [wanted]


def test_unknown_scales_are_bounded():
    trace = js.trace(node("Resize", "float32[h, w]", None, f(1.7, 0.53), opset=19))
    assert {str(k): tuple(map(str, v)) for k, v in trace.bounds.items()} == {
        "Resize_size0": ("1", "None"),
        "Resize_size1": ("0", "w"),
    }


def test_axes_that_no_scale_changes_are_kept_beside_quotients_of_sizes():
    """As exporters scale to another map's size: its batch and channels stay known."""
    net = model("""g (float[N, 3, H] x, float[N, 3, K] z) => (float[a, b, c] y)
    <float[2] ones = {1, 1}, int64[1] two = {2}> {
        s = Shape <start = 2> (x)  t = Shape <start = 2> (z)
        u = Cast <to = 1> (s)  v = Cast <to = 1> (t)  r = Div (v, u)
        scales = Concat <axis = 0> (ones, r)
        y = Resize <mode = "nearest"> (x, , scales)
    }""")
    assert str(js.trace(net)["y"]) == "float32[N, 3, c]"
    x, z = np.ones((2, 3, 4), "f"), np.ones((2, 3, 6), "f")
    assert js.run(net, [x, z])["y"].shape == (2, 3, 6)


@pytest.mark.parametrize(
    ("inputs", "attributes", "text"),
    [
        (
            ["float32[2]", None, f(2), np.array([4])],
            {},
            "wants one of scales and sizes, both are given",
        ),
        (["float32[2]", None, f(1, 2)], {}, "the elements of scales, one for each axis"),
        (["float32[2]", None, f(-1)], {}, "the scale -1.0 of axis 0 must be positive"),
        (["float32[2]", None, f(np.nan)], {}, "the scale nan of axis 0 must be positive"),
        (
            ["float32[2]", None, f(2)],
            {"mode": "area"},
            "mode is 'area', wants one of nearest, linear",
        ),
        (["float32[2]", None, f(2)], {"nearest_mode": "up"}, "nearest_mode is 'up'"),
        (
            ["float32[2]", None, f(2)],
            {"coordinate_transformation_mode": "x"},
            "coordinate_transformation_mode is 'x', wants one of half_pixel",
        ),
        (
            ["float32[2]", None, None, np.array([4])],
            {"keep_aspect_ratio_policy": "crop"},
            "keep_aspect_ratio_policy is 'crop', wants one of stretch",
        ),
        (["float32[2]", None, f(2)], {"axes": [1]}, "axis 1 is out of range for rank 1"),
        (["float32[2, 2]", None, f(2, 2)], {"axes": [0, -2]}, "name an axis twice"),
        (["float32[2]", None, None, np.array([-1])], {}, "sizes"),
    ],
)
def test_errors(inputs, attributes, text):
    assert text in refused("Resize", *inputs, opset=19, **attributes)


@pytest.mark.parametrize(
    ("x", "inputs", "attributes", "text"),
    [
        (
            np.zeros(0, F),
            [None, None, np.array([4])],
            {},
            r"x \(0,\) is empty and cannot be resized",
        ),
        (
            X,
            [None, f(2)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "roi has nothing",
        ),
        (
            X,
            [f(0, 1, 2), f(2)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            r"roi has shape \(3,\), wants \(2,\)",
        ),
    ],
)
def test_errors_of_values(x, inputs, attributes, text):
    with pytest.raises(js.ShapeError, match=text):
        js.run(node("Resize", x, *inputs, opset=19, **attributes), {})


def test_demands():
    assert demands("Resize", "float32[N, h]", None, None, "int64[2]", opset=19) == [
        "x3_0 >= 0",
        "x3_1 >= 0",
    ]


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest"},
        {"mode": "linear"},
        {"mode": "cubic"},
        {"mode": "cubic", "antialias": 1},
    ],
    ids=str,
)
def test_gradient(attributes):
    x = RNG.normal(size=(5, 6)).astype(F)
    ahead, along = slopes(
        node("Resize", "float32[5, 6]", None, f(2, 0.5), opset=19, **attributes), x
    )
    np.testing.assert_allclose(along, ahead, 1e-2, 1e-6)
