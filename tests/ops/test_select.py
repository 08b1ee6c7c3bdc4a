"""NonZero, Unique, Compress, NonMaxSuppression: results whose size is data."""

import ml_dtypes
import numpy as np
import pytest
from builders import node
from forms import demands, run, types

import jaxshape as js

NAN = np.nan


def bounds(op, *inputs, **keywords):
    """The least and greatest value of each size that depends on data, as text."""
    found = js.trace(node(op, *inputs, **keywords)).bounds
    return {name: (least, str(most)) for name, (least, most) in found.items()}


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (np.array([[0, 2], [NAN, 0]], np.float32), [[0, 1], [1, 0]]),
        (np.array([[0, 2], [1, 0]], ml_dtypes.bfloat16), [[0, 1], [1, 0]]),
        (np.array([True, False, True]), [[0, 2]]),
        (np.array(["", "a"], object), [[1]]),
        (np.zeros((0, 3), np.int8), [[], []]),
        (np.zeros((2, 2), np.int8), [[], []]),
    ],
)
def test_non_zero(x, wanted):
    assert run("NonZero", x)[0].tolist() == wanted


@pytest.mark.parametrize(("x", "count"), [(np.int32(5), 1), (np.int32(0), 0)])
def test_non_zero_of_a_scalar_indexes_no_axis(x, count):
    assert run("NonZero", x)[0].shape == (0, count)


X = np.array([[2, 1, 1], [3, 1, 1], [2, 1, 1]], np.float32)


@pytest.mark.parametrize(
    ("x", "attributes", "wanted"),
    [
        (X, {}, ([1, 2, 3], [1, 0, 3], [1, 0, 0, 2, 0, 0, 1, 0, 0], [6, 2, 1])),
        (X, {"sorted": 0}, ([2, 1, 3], [0, 1, 3], [0, 1, 1, 2, 1, 1, 0, 1, 1], [2, 6, 1])),
        (X, {"axis": 0}, ([[2, 1, 1], [3, 1, 1]], [0, 1], [0, 1, 0], [2, 1])),
        (X, {"axis": -1}, ([[1, 2], [1, 3], [1, 2]], [1, 0], [1, 0, 0], [2, 1])),
        (X, {"axis": 1, "sorted": 0}, ([[2, 1], [3, 1], [2, 1]], [0, 1], [0, 1, 1], [1, 2])),
        (X.astype(ml_dtypes.bfloat16)[:1], {}, ([1, 2], [1, 0], [1, 0, 0], [2, 1])),
        (np.array(["b", "a", "b"], object), {}, (["a", "b"], [1, 0], [1, 0, 1], [1, 2])),
        (np.array([["b", "a"], ["b", "a"]], object), {"axis": 0}, ([["b", "a"]], [0], [0, 0], [2])),
        (np.array([NAN, 1, NAN], np.float32), {}, ([1, NAN], [1, 0], [1, 0, 1], [1, 2])),
        (np.array([3], np.int8), {}, ([3], [0], [0], [1])),
        (np.array(3, np.int8), {}, ([3], [0], [0], [1])),
        (np.zeros((0, 2), np.int8), {}, ([], [], [], [])),
        (np.zeros((0, 2), np.int8), {"axis": 0}, ([], [], [], [])),
        (np.zeros((3, 0), np.int8), {"axis": 0}, ([[]], [0], [0, 0, 0], [3])),
    ],
)
def test_unique(x, attributes, wanted):
    found = run("Unique", x, outputs=4, **attributes)
    assert found[0].dtype == x.dtype and all(y.dtype == np.int64 for y in found[1:])
    for y, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(y, np.array(w, y.dtype).reshape(y.shape))


@pytest.mark.parametrize(
    ("x", "condition", "attributes", "wanted"),
    [
        (X, [0, 1], {"axis": 0}, X[[1]]),
        (X, [1, 0, 1, 1], {"axis": -1}, X[:, [0, 2]]),
        (X, [0, 0, 0, 1], {}, X.ravel()[[3]]),
        (X, [], {"axis": 1}, X[:, :0]),
        (np.array([["a"], ["b"]], object), [0, 1], {}, np.array(["b"], object)),
    ],
)
def test_compress(x, condition, attributes, wanted):
    (y,) = run("Compress", x, np.array(condition, bool), **attributes)
    np.testing.assert_array_equal(y, wanted)


BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [1, 1, 0, 0]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6, 0.9], [0.1, 0.2, 0.3, 0.4]]], np.float32)


def nms(limit=9, overlap=0.5, floor=None, boxes=BOXES, scores=SCORES, **attributes):
    """The boxes kept of each class."""
    inputs = [boxes, scores, np.array([limit]), np.array([overlap], "f")]
    inputs += [] if floor is None else [np.array([floor], "f")]
    (y,) = run("NonMaxSuppression", *inputs, static=(2,), **attributes)
    assert y.dtype == np.int64 and y.shape[1] == 3 and (y[:, 0] == 0).all()
    return [y[y[:, 1] == c, 2].tolist() for c in range(scores.shape[1])]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, [[0, 2], [3, 2]]),  # box 3 is box 0 by its other corners: the tie goes to 0
        ({"limit": 1}, [[0], [3]]),
        ({"limit": 0}, [[], []]),
        ({"limit": -1}, [[], []]),
        ({"overlap": 1.0}, [[0, 3, 1, 2], [3, 2, 1, 0]]),  # only what is above it falls
        ({"overlap": 0.0}, [[0, 2], [3, 2]]),
        ({"floor": 0.3}, [[0, 2], [3]]),  # a score must be above the floor
        ({"boxes": BOXES[:, :0], "scores": SCORES[..., :0]}, [[], []]),
    ],
)
def test_non_max_suppression(arguments, wanted):
    assert nms(**arguments) == wanted


def test_non_max_suppression_by_centers():
    (a, b), (c, d) = BOXES[..., 1::-1].T[..., 0], BOXES[..., :1:-1].T[..., 0]
    centers = np.stack([(a + c) / 2, (b + d) / 2, c - a, d - b], -1)[None]
    kept = nms(boxes=centers, scores=SCORES, center_point_box=1)
    assert kept == [[0, 3, 2], [3, 2, 1]]  # an extent below 0 overlaps nothing


def test_without_a_limit_nothing_is_kept():
    assert run("NonMaxSuppression", BOXES, SCORES)[0].shape == (0, 3)
    assert types("NonMaxSuppression", "float32[B,n,4]", "float32[B,C,n]") == ["int64[0, 3]"]


B, S = "float32[B,n,4]", "float32[B,C,n]"


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted", "most"),
    [
        ("NonZero", ("float32[N,3]",), {}, ["int64[2, NonZero_count]"], (0, "3*N")),
        ("NonZero", ("float32[]",), {}, ["int64[0, NonZero_count]"], (0, "1")),
        (
            "Compress",
            ("float32[N,3]", "bool[5]"),
            {},
            ["float32[Compress_count]"],
            (0, "5"),
        ),
        ("Compress", ("int8[N,3]", "bool[5]"), {"axis": 1}, ["int8[N, Compress_count]"], (0, "3")),
        ("Compress", ("int8", "bool[5]"), {}, ["int8[Compress_count]"], (0, "5")),
        (
            "Unique",
            ("int8[N,3]",),
            {"outputs": 4},
            ["int8[u]", "int64[u]", "int64[3*N]", "int64[u]"],
            (1, "3*N"),
        ),
        (
            "Unique",
            ("int8[N,3]",),
            {"outputs": 4, "axis": -1},
            ["int8[N, u]", "int64[u]", "int64[3]", "int64[u]"],
            (1, "3"),
        ),
        ("NonMaxSuppression", (B, S, np.array(5)), {}, ["int64[k, 3]"], (0, "B*C*min(n, 5)")),
        ("NonMaxSuppression", (B, S, "int64[1]"), {}, ["int64[k, 3]"], (0, "B*C*n")),
    ],
)
def test_counts_are_bounded(op, inputs, attributes, wanted, most):
    names = {"u": "Unique_count", "k": "NonMaxSuppression_count"}
    for short, name in names.items():
        wanted = [
            w.replace(f"[{short}", f"[{name}").replace(f" {short}]", f" {name}]") for w in wanted
        ]
    assert types(op, *inputs, **attributes) == wanted
    assert list(bounds(op, *inputs, **attributes).values()) == [most]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("NonZero", ("float32",), {}, ["int64[NonZero_rank, NonZero_count]"]),
        ("NonZero", ("float32[N,0]",), {}, ["int64[2, 0]"]),
        ("Compress", ("int8", "bool[5]"), {"axis": 1}, ["int8[...]"]),
        ("Unique", ("int8",), {}, ["int8[Unique_count]"]),
        ("Unique", ("int8",), {"axis": 1}, ["int8[...]"]),
        ("Unique", ("int8[1]",), {}, ["int8[1]"]),
        ("NonMaxSuppression", (B, S, np.array([0])), {}, ["int64[0, 3]"]),
        (
            "NonMaxSuppression",
            (B, "float32", np.array([3])),
            {},
            ["int64[NonMaxSuppression_count, 3]"],
        ),
    ],
)
def test_types(op, inputs, attributes, wanted):
    assert types(op, *inputs, **attributes) == wanted


def test_boxes_and_scores_agree():
    found = demands("NonMaxSuppression", "float32[a,n,4]", "float32[b,C,m]", np.array([5]))
    assert found == ["a == b", "m == n"]


def test_under_jit_the_size_cannot_depend_on_data():
    f = js.to_jax(node("NonZero", "float32[N]"))
    with pytest.raises(js.UnsupportedError, match="the size of the result depends on data"):
        f(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "text"),
    [
        ("Compress", ("float32[N]", "bool[2,2]"), {}, r"condition \(2, 2\) has rank 2, wants 1"),
        ("Compress", ("float32[N]", "bool[2]"), {"axis": 1}, "axis 1 is out of range for rank 1"),
        ("Unique", ("float32[N]",), {"axis": -2}, "axis -2 is out of range for rank 1"),
        ("NonMaxSuppression", ("float32[B,n]", S), {}, "boxes .* has rank 2, wants 3"),
        ("NonMaxSuppression", (B, "float32[B,n]"), {}, "scores .* has rank 2, wants 3"),
        ("NonMaxSuppression", ("float32[B,n,5]", S), {}, "5 is not 4"),
        ("NonMaxSuppression", ("float32[2,n,4]", "float32[3,C,n]"), {}, "2 is not 3"),
        ("NonMaxSuppression", (B, S), {"center_point_box": 2}, "center_point_box is 2"),
        ("NonMaxSuppression", (B, S, np.array([1, 2])), {}, "wants one element"),
    ],
)
def test_errors(op, inputs, attributes, text):
    with pytest.raises(js.ShapeError, match=text):
        types(op, *inputs, **attributes)


def test_a_threshold_out_of_range():
    with pytest.raises(js.ShapeError, match="iou_threshold is 1.5, wants 0 to 1"):
        nms(overlap=1.5)
