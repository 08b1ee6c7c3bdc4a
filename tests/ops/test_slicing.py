"""Slice and Split."""

import itertools

import numpy as np
import pytest
from builders import model, node
from forms import demands, run, types

import jaxshape as js

FAR = 2**63 - 1
X = np.arange(24, dtype=np.float32).reshape(4, 6)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def sliced(size, start, end, step=1) -> str:
    """The type of x[start:end:step] for x of one axis."""
    return types("Slice", f"float32[{size}]", *map(ints, (start, end, 0, step)))[0]


@pytest.mark.parametrize(
    ("start", "end", "step", "wanted"),
    [
        (-3, FAR, 1, "min(L, 3)"),
        (0, -3, 1, "max(L - 3, 0)"),
        (1, -1, 1, "max(L - 2, 0)"),
        (1, 10**9, 1, "L - 1"),
        (0, 2**31 - 1, 2, "(L - 1)//2 + 1"),
        (1, FAR, 2, "L//2"),
        (2, 5, 1, "max(min(L - 2, 3), 0)"),
        (-5, -2, 1, "max(min(L - 2, 3), 0)"),
        (5, 2, 1, "0"),
        (FAR, FAR, 1, "0"),
        (0, -FAR, 1, "0"),
        (-1, -FAR - 1, -1, "L"),
        (FAR, -FAR, -2, "(L - 1)//2 + 1"),
        (3, 0, -1, "min(L - 1, 3)"),
        (-2, -5, -1, "min(max(L - 1, 1), 3)"),
    ],
)
def test_slice_by_formula(start, end, step, wanted):
    assert sliced("L", start, end, step) == f"float32[{wanted}]"


def length(n: int, start: int, end: int, step: int) -> int:
    """The number of elements by the standard; NumPy differs at a start far before the front."""
    start, end = (v + n if v < 0 else v for v in (start, end))
    if step > 0:
        return len(range(min(max(start, 0), n), min(max(end, 0), n), step))
    return len(range(min(max(start, 0), n - 1), min(max(end, -1), n - 1), step))


def test_slice_formulas_hold_at_every_size():
    bounds = (-FAR - 1, -7, -3, -2, -1, 0, 1, 2, 5, FAR)
    for start, end, step in itertools.product(bounds, bounds, (1, 3, -1, -2)):
        d = js.trace(node("Slice", "float32[L]", *map(ints, (start, end, 0, step))))["y0"].shape[0]
        for n in range(1, 11):
            size = d if isinstance(d, int) else d.evaluate({"L": n})
            assert size == length(n, start, end, step), (n, start, end, step, str(d))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], None, None),
        ([0, -3], [FAR, FAR], None, None),
        ([1], [FAR], [-1], [2]),
        ([-1, -1], [-FAR, -FAR], [0, 1], [-1, -2]),
        ([5], [2], [0], None),
        ([FAR], [-FAR - 1], [1], [-4]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int4", "bool", "object"])
def test_slice(starts, ends, axes, steps, dtype):
    x = X.astype(int).astype(str).astype(object) if dtype == "object" else (X % 2).astype(dtype)
    operands = [None if v is None else ints(*v) for v in (starts, ends, axes, steps)]
    (y,) = run("Slice", x, *operands, static=(1, 2, 3, 4))
    index = [slice(None)] * 2
    rows = zip(axes or range(2), starts, ends, steps or (1, 1), strict=False)
    for axis, start, end, step in rows:
        index[axis] = slice(start, end, step)
    assert y.dtype == x.dtype and y.tolist() == x[tuple(index)].tolist()


def test_slice_clamps_a_start_before_the_front():
    """The standard clamps it to 0, also when going backward; NumPy takes nothing."""
    (y,) = run("Slice", X[0], *map(ints, (-10, -FAR, 0, -1)), static=(1, 2, 3, 4))
    assert y.tolist() == [0]


def test_slice_of_old():
    y = js.run(node("Slice", "float32[4, 6]", starts=[1], ends=[-1], opset=1), {"x0": X})["y0"]
    np.testing.assert_array_equal(y, X[1:-1])


SIZES = """g (float[past, 8] p, float[seq, 8] q, float[1024, 8] table, int64[1] at) => (y) {{
    a = Shape <end = 1> (p)  b = Shape <end = 1> (q)  n = Add (a, b)
    zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()
    two = Constant <value_ints = [2]> ()  far = Constant <value_ints = [9223372036854775807]> ()
    pq = Concat <axis = 0> (p, q)  half = Div (b, two)  {} }}"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("y = Slice (table, zero, n)", "min(past + seq, 1024)"),
        ("y = Slice (pq, a, n)", "seq"),
        ("y = Slice (pq, a, far)", "seq"),
        ("y = Slice (pq, zero, a)", "past"),
        ("e = Neg (b) y = Slice (pq, e, far)", "seq"),
        ("e = Neg (b) y = Slice (pq, zero, e)", "past"),
        ("e = Sub (b, one) y = Slice (q, one, e)", "max(seq - 2, 0)"),
        ("e = Sub (b, one) y = Slice (q, e, far)", "1"),
        ("e = Sub (b, two) y = Slice (q, zero, e)", "max(seq - 2, 0)"),
        ("e = Sub (b, two) y = Slice (q, e, far)", "min(seq, 2)"),
        ("y = Slice (q, zero, half)", "seq//2"),
        ("y = Slice (q, half, far)", "seq - seq//2"),
        ("y = Slice (q, at, far)", "Slice_size"),
        ("e = Add (at, two) y = Slice (q, at, e)", "Slice_size"),
        ("y = Slice (q, zero, two, zero, at)", "Slice_size"),
    ],
)
def test_slice_by_computed_bounds(body, wanted):
    trace = js.trace(model(SIZES.format(body)))
    assert str(trace["y"]) == f"float32[{wanted}, 8]" and not trace.requirements


def test_slice_bounds_what_it_cannot_know():
    trace = js.trace(model(SIZES.format("e = Add (at, two) y = Slice (q, at, e)")))
    assert [str(b) for b in trace.bounds["Slice_size"]] == ["0", "2"]
    trace = js.trace(model(SIZES.format("y = Slice (q, at, far)")))
    assert [str(b) for b in trace.bounds["Slice_size"]] == ["0", "seq"]
    assert types("Slice", "float32[B, 3]", ints(1), ints(2), "int64[1]") == [
        "float32[Slice_size, Slice_size_1]"
    ]
    assert types("Slice", "float32[B, 3]", "int64[k]", "int64[k]", ints(1)) == [
        "float32[B, Slice_size]"
    ]


@pytest.mark.parametrize(
    ("operands", "text"),
    [
        ((ints(0), ints(1), ints(0), ints(0)), "a step is 0"),
        ((ints(0), ints(1), ints(2)), "axis 2 is out of range for rank 2"),
        ((ints(0, 0), ints(1, 1), ints(1, -1)), "name an axis twice"),
        ((ints(0, 0), ints(1)), "2, 1, 2 and 2 elements"),
        ((ints(0, 0, 0), ints(1, 1, 1)), "axis 2 is out of range"),
    ],
)
def test_slice_refuses(operands, text):
    with pytest.raises(js.ShapeError, match=text):
        js.trace(node("Slice", "float32[B, 3]", *operands))


@pytest.mark.parametrize(
    ("split", "attributes", "outputs", "wanted", "needs"),
    [
        (None, {"num_outputs": 2}, 2, ["(h - 1)//2 + 1", "h//2"], []),
        (None, {"opset": 13}, 2, ["h//2"] * 2, ["h % 2 == 0"]),
        (None, {"opset": 11, "split": [1, 4]}, 2, ["1", "4"], ["h == 5"]),
        (None, {"opset": 1}, 2, ["h//2"] * 2, ["h % 2 == 0"]),
        (ints(2, 3), {}, 2, ["2", "3"], ["h == 5"]),
        ("int64[2]", {}, 2, ["x1_0", "h - x1_0"], ["x1_0 >= 0", "h >= x1_0"]),
    ],
)
def test_split_by_formula(split, attributes, outputs, wanted, needs):
    axis = -1 if attributes.get("opset") != 1 else 1
    inputs = ["float32[B, h]"] + ([] if split is None else [split])
    keywords = {"axis": axis, "outputs": outputs, **attributes}
    assert types("Split", *inputs, **keywords) == [f"float32[B, {w}]" for w in wanted]
    assert demands("Split", *inputs, **keywords) == needs


@pytest.mark.parametrize(
    ("split", "attributes", "cuts"),
    [
        (None, {"num_outputs": 4}, [2, 4, 6]),
        (None, {"num_outputs": 3}, [3, 6]),
        (ints(1, 0, 6), {}, [1, 1]),
        (None, {"opset": 11, "split": [3, 4]}, [3]),
        (ints(4, 3), {"opset": 13}, [4]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "object"])
def test_split(split, attributes, cuts, dtype):
    x = np.arange(14).reshape(2, 7).astype(str).astype(dtype)
    parts = np.split(x, cuts, 1)
    inputs = [x] if split is None else [x, split]
    got = run("Split", *inputs, static=(1,), outputs=len(parts), axis=1, **attributes)
    assert [g.tolist() for g in got] == [p.tolist() for p in parts]


@pytest.mark.parametrize(
    ("split", "attributes", "text"),
    [
        (ints(2, 3), {}, "the sum of split and the axis: 5 is not 6"),
        (ints(1, 2, 3), {}, "split has 3 sizes for 2 outputs"),
        (ints(-1, 7), {}, "a size in split"),
        (ints(3, 3), {"num_outputs": 2}, "num_outputs is 2, but split is given too"),
        (None, {"num_outputs": 3}, "num_outputs is 3, but there are 2 outputs"),
        (None, {"num_outputs": 2, "axis": 2}, "axis 2 is out of range for rank 2"),
        (None, {"opset": 13, "axis": 1}, "the axis and 2 equal parts"),
    ],
)
def test_split_refuses(split, attributes, text):
    inputs = ["float32[6, 5]"] + ([] if split is None else [split])
    with pytest.raises(js.ShapeError, match=text):
        js.trace(node("Split", *inputs, outputs=2, **attributes))


def test_split_leaves_no_part_negative():
    """5 in 4 parts of 2 would leave -1: onnxruntime refuses it too."""
    with pytest.raises(js.ShapeError, match="the last of 4 parts of 2"):
        js.trace(node("Split", "float32[5]", num_outputs=4, outputs=4))


def test_split_1_takes_its_sizes_in_the_dtype_of_its_input():
    made = node("Split", "float32[N,3]", np.array([1, 2], np.float32), outputs=2, axis=1, opset=1)
    assert [str(js.trace(made)[n]) for n in ("y0", "y1")] == ["float32[N, 1]", "float32[N, 2]"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(js.run(made, {"x0": x})["y1"], x[:, 1:])
