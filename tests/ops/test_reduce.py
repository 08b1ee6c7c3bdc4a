"""Reductions, positions and running totals: what the official cases leave out."""

import ml_dtypes
import numpy as np
import pytest
from builders import node
from close import check
from forms import types

import jaxshape as js

F, I64, BF16 = np.float32, np.int64, ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
X = np.array([[[1.0, -2.0], [3.0, 0.5]], [[-4.0, 2.5], [0.25, 1.0]], [[2.0, 2.0], [-1.0, 6.0]]])

REDUCERS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **k: np.sum(abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}
AXES = [None, (0,), (-1,), (0, 2), (-2, -3)]


@pytest.mark.parametrize("op", REDUCERS)
@pytest.mark.parametrize("axes", AXES)
def test_reduction(op, axes):
    keep = len(axes or ()) % 2
    x = abs(X) if op == "ReduceLogSum" else X
    wanted = REDUCERS[op](x, axis=axes, keepdims=bool(keep))
    check(op, [x], wanted, opset=11, axes=axes, keepdims=keep)
    inputs = [x] if axes is None else [x, np.array(axes)]
    check(op, inputs, wanted, static=(1,), keepdims=keep)


@pytest.mark.parametrize("op", REDUCERS)
def test_rank_0_and_no_axes(op):
    x = np.array(3.0)
    check(op, [x], REDUCERS[op](x))
    none = np.zeros(0, I64)
    each = REDUCERS[op](abs(X)[None], axis=0)
    check(op, [abs(X), none], each, static=(1,), noop_with_empty_axes=1)
    check(op, [abs(X), none], REDUCERS[op](abs(X), keepdims=True), static=(1,))


@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [
        ("ReduceSum", F, 0),
        ("ReduceProd", F, 1),
        ("ReduceMax", F, -INF),
        ("ReduceMin", F, INF),
        ("ReduceMax", "int32", np.iinfo("int32").min),
        ("ReduceMin", "uint8", 255),
        ("ReduceMax", "bool", False),
        ("ReduceMin", "bool", True),
        ("ReduceL2", F, 0),
        ("ReduceLogSum", F, -INF),
        ("ReduceLogSumExp", F, -INF),
        ("ReduceMean", F, NAN),
    ],
)
def test_nothing_to_reduce(op, dtype, wanted):
    x = np.zeros((2, 0), dtype)
    check(op, [x, np.array([1])], np.array([wanted] * 2, dtype), static=(1,), keepdims=0)


def test_the_dtype_stays():
    check("ReduceSum", [np.array([2**31 - 1, 1], "int32")], np.array([-(2**31)], "int32"))
    check("ReduceMean", [np.array([-1, -2], "int32")], np.array([-1], "int32"))
    check("ReduceL2", [np.array([3, 4], "int64")], np.array([5], "int64"))
    check("ReduceMax", [np.array([True, False])], np.array([True]))
    check("ReduceSum", [np.full(4096, 1, BF16)], np.array([4096], BF16))
    check("ReduceMean", [np.full(4096, 60000, "float16")], np.array([60000], "float16"))


def test_extremes():
    x = np.array([1.0, NAN, 3.0])
    check("ReduceMax", [x], np.array([NAN]))
    check("ReduceLogSumExp", [np.array([1e4, 1e4])], np.array([1e4 + np.log(2)]))
    check("ReduceLogSumExp", [np.array([-INF, -INF])], np.array([-INF]))
    check("ReduceLogSumExp", [np.array([INF, 1.0])], np.array([INF]))


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted"),
    [
        (["float32[N, c, h]"], {"opset": 13}, "float32[1, 1, 1]"),
        (["float32[N, c, h]", np.array([-1])], {}, "float32[N, c, 1]"),
        (["float32[N, c, h]", np.array([1])], {"keepdims": 0}, "float32[N, h]"),
        (["float32[N, c, h]"], {"noop_with_empty_axes": 1}, "float32[N, c, h]"),
        (["float32[N, 1]", "int64[k]"], {}, "float32[reduced, 1]"),
        (["float32[N, c]", "int64[1]"], {"keepdims": 0}, "float32[reduced]"),
        (["float32[N, c]", "int64[2]"], {}, "float32[1, 1]"),
        (["float32[N]", "int64[k]"], {"keepdims": 0}, "float32[]"),
        (["float32[N, c]", "int64[k]"], {"keepdims": 0}, "float32[...]"),
        (["float32", np.array([0])], {}, "float32[...]"),
    ],
)
def test_sizes(inputs, attributes, wanted):
    assert types("ReduceSum", *inputs, **attributes) == [wanted]


def test_a_size_that_may_be_reduced_is_bounded():
    trace = js.trace(node("ReduceMax", "float32[N, 4]", "int64[1]", keepdims=0))
    assert {k: tuple(map(str, v)) for k, v in trace.bounds.items()} == {
        "reduced": ("1", "max(N, 4)")
    }


# positions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_and_ties(axis, last):
    x = np.array([[2, 2, 1], [2, 0, 0]], "int8")
    n = x.shape[axis]
    for op, f in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        wanted = n - 1 - f(np.flip(x, axis), axis) if last else f(x, axis)
        check(op, [x], wanted, axis=axis, select_last_index=last, keepdims=0)
        check(op, [x.astype(BF16)], np.expand_dims(wanted, axis), axis=axis, select_last_index=last)


def test_positions_at_opset_1():
    check("ArgMax", [np.array([1, 3, 3], F)], np.array([1]), opset=1)
    assert types("ArgMin", "float32[N, h]", axis=-1, keepdims=0) == ["int64[N]"]


# running totals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "total", "product"),
    [
        ({}, [1, 3, 6], [1, 2, 6]),
        ({"exclusive": 1}, [0, 1, 3], [1, 1, 2]),
        ({"reverse": 1}, [6, 5, 3], [6, 6, 3]),
        ({"exclusive": 1, "reverse": 1}, [5, 3, 0], [6, 3, 1]),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "float64", "float16"])
def test_running(attributes, total, product, dtype):
    x = np.array([[1, 2, 3]], dtype)
    check("CumSum", [x, np.array(-1)], np.array([total], dtype), static=(1,), **attributes)
    check("CumProd", [x, np.array([1])], np.array([product], dtype), static=(1,), **attributes)
    nothing = np.zeros((2, 0), dtype)
    check("CumSum", [nothing, np.array(1)], nothing, static=(1,), **attributes)


def test_a_running_total_of_unknown_axis_keeps_its_shape():
    assert types("CumSum", "float32[N, c]", "int64[]") == ["float32[N, c]"]


# errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "match"),
    [
        ("ReduceSum", ["float32[N]", np.array([1])], {}, "axis 1 is out of range for rank 1"),
        ("ReduceMax", ["float32[N, c]"], {"opset": 13, "axes": [0, -2]}, "name an axis twice"),
        ("ReduceMax", ["float32[N]", "int64[2]"], {}, "2 axes to reduce of rank 1"),
        ("ArgMax", ["float32[N]"], {"axis": -2}, "axis -2 is out of range for rank 1"),
        ("ArgMin", ["float32[]"], {}, "out of range for rank 0"),
        ("CumSum", ["float32[N]", np.array(1)], {}, "axis 1 is out of range for rank 1"),
        (
            "CumSum",
            ["float32[N]", np.array([0, 0])],
            {},
            r"axis has shape \(2,\), wants one element",
        ),
    ],
)
def test_errors(op, inputs, attributes, match):
    with pytest.raises(js.ShapeError, match=match):
        js.trace(node(op, *inputs, **attributes))
