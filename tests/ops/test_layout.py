"""Transpose, Concat, Expand, Tile, DepthToSpace, SpaceToDepth, Trilu, ReverseSequence."""

import numpy as np
import pytest
from builders import model, node
from forms import demands, run, types

import jaxshape as js

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
STRINGS = np.array([["a", "b"], ["c", "d"]], object)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("x", "perm", "wanted"),
    [
        ("float32[T, N, 4]", None, "float32[4, N, T]"),
        ("float32[T, N, 4]", [1, 0, 2], "float32[N, T, 4]"),
        ("string[]", None, "string[]"),
        ("float32", [1, 0], "float32[Transpose_size, Transpose_size_1]"),
        ("float32", None, "float32[...]"),
    ],
)
def test_transpose_by_formula(x, perm, wanted):
    assert types("Transpose", x, perm=perm) == [wanted]


@pytest.mark.parametrize("x", [X, X[:, :0], np.float32(1), STRINGS, X.astype(bool)])
def test_transpose(x):
    np.testing.assert_array_equal(run("Transpose", x)[0], x.T)
    order = list(range(np.ndim(x))) or None
    np.testing.assert_array_equal(run("Transpose", x, perm=order and order[::-1])[0], x.T)


@pytest.mark.parametrize(
    ("inputs", "axis", "wanted", "needs"),
    [
        (["B, n", "C, m", "B, 3"], 1, "B, m + n + 3", ["B == C"]),
        (["n, 3", "n, h"], -2, "2*n, 3", ["h == 3"]),
        (["0", "n"], 0, "n", []),
    ],
)
def test_concat_by_formula(inputs, axis, wanted, needs):
    inputs = [f"float32[{x}]" for x in inputs]
    assert types("Concat", *inputs, axis=axis) == [f"float32[{wanted}]"]
    assert demands("Concat", *inputs, axis=axis) == needs


def test_concat_with_an_input_of_any_rank():
    assert types("Concat", "float32[B, 2]", "float32", axis=0) == ["float32[Concat_size, 2]"]
    assert types("Concat", "float32", "float32", axis=0) == ["float32[...]"]


@pytest.mark.parametrize("dtype", ["float32", "int2", "uint2", "int4", "object", "complex64"])
def test_concat(dtype):
    x = STRINGS if dtype == "object" else np.array([[0, 1], [1, 0]]).astype(dtype)
    for axis in (0, -1):
        (y,) = run("Concat", x, x[:1].T if axis else x[:1], x, axis=axis)
        wanted = np.concatenate([x, x[:1].T if axis else x[:1], x], axis)
        assert y.dtype == x.dtype and y.tolist() == wanted.tolist()


def test_concat_of_old_takes_axis_1():
    m = node("Concat", "float32[2, 3, 4]", "float32[2, 3, 4]", opset=1)
    assert js.run(m, {"x0": X, "x1": X})["y0"].shape == (2, 6, 4)


@pytest.mark.parametrize(
    ("x", "shape", "wanted"),
    [
        ("B, 1", ints(3, 1, 7), "3, B, 7"),
        ("B, 3", ints(1), "B, 3"),
        ("", ints(2, 0), "2, 0"),
        ("1, 3", "int64[2]", "x1_0, 3"),
        ("B, 3", "int64[k]", "..."),
    ],
)
def test_expand_by_formula(x, shape, wanted):
    assert types("Expand", f"float32[{x}]", shape) == [f"float32[{wanted}]"]


def test_expand_demands_what_broadcasts():
    found = demands("Expand", "float32[1, 3]", "int64[2]")
    assert "x1_0 >= 0" in found and any("x1_1 == 1" in r for r in found)


@pytest.mark.parametrize(
    ("x", "shape"),
    [(X[:, :1], (3, 1)), (X, (5, 1, 1, 1)), (np.float32(2), (2, 0)), (STRINGS[:1], (3, 2))],
)
def test_expand(x, shape):
    wanted = np.broadcast_to(x, np.broadcast_shapes(np.shape(x), shape))
    np.testing.assert_array_equal(run("Expand", x, ints(*shape), static=(1,))[0], wanted)


@pytest.mark.parametrize(
    ("x", "repeats", "wanted"),
    [
        ("B, 3", ints(2, 4), "2*B, 12"),
        ("B, 3", ints(0, 1), "0, 3"),
        ("", ints(), ""),
        ("B, 3", "int64[2]", "B*x1_0, 3*x1_1"),
        ("B, 3", "int64[k]", "Tile_size, Tile_size_1"),
    ],
)
def test_tile_by_formula(x, repeats, wanted):
    assert types("Tile", f"float32[{x}]", repeats) == [f"float32[{wanted}]"]


@pytest.mark.parametrize(
    ("x", "repeats"), [(X, (2, 1, 3)), (X, (1, 0, 1)), (np.float32(1), ()), (STRINGS, (2, 2))]
)
def test_tile(x, repeats):
    np.testing.assert_array_equal(
        run("Tile", x, ints(*repeats), static=(1,))[0], np.tile(x, repeats)
    )


def test_tile_of_old():
    tiles, axis = np.array(3, "f"), np.array(1, "f")
    m = node("Tile", "float32[2, 3, 4]", tiles, axis, opset=1)
    np.testing.assert_array_equal(js.run(m, {"x0": X})["y0"], np.tile(X, (1, 3, 1)))
    assert types("Tile", "float32[B, 4]", tiles, axis, opset=1) == ["float32[B, 12]"]
    assert types("Tile", "float32[B, 4]", tiles, "float32[]", opset=1) == [
        "float32[Tile_size, Tile_size_1]"
    ]


SHAPES = """g (float[B, S, 8] x) => (y) {{
    s = Shape (x)  one = Constant <value_ints = [1]> ()  two = Constant <value_ints = [2]> ()
    b, n, h = Split <axis = 0, num_outputs = 3> (s)  {} }}"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("t = Concat <axis = 0> (two, b, one, one) y = Expand (x, t)", "2, B, S, 8"),
        ("t = Tile (n, two) z = ConstantOfShape (t) y = Identity (z)", "S, S"),
        ("e = Expand (b, two) z = ConstantOfShape (e) y = Identity (z)", "B, B"),
        (
            "f = Flatten <axis = 0> (s) t = Transpose (f) r = Squeeze (t, one) y = Expand (x, r)",
            "B, S, 8",
        ),
        ("t = Concat <axis = 0> (one, b, one) y = Tile (x, t)", "B, B*S, 8"),
        ("t = Concat <axis = 0> (one, n, h) y = Expand (x, t)", "B, S, 8"),
    ],
)
def test_sizes_pass_through(body, wanted):
    """Shape arithmetic by the same operators, on arrays that hold sizes."""
    assert str(js.trace(model(SHAPES.format(body)))["y"]) == f"float32[{wanted}]"


@pytest.mark.parametrize(
    ("op", "x", "mode", "wanted", "needs"),
    [
        ("DepthToSpace", "B, C, h, w", "DCR", "B, C//4, 2*h, 2*w", ["C % 4 == 0"]),
        ("DepthToSpace", "B, 12, h, w", "CRD", "B, 3, 2*h, 2*w", []),
        ("SpaceToDepth", "B, C, h, 6", "CRD", "B, 4*C, h//2, 3", ["h % 2 == 0"]),
    ],
)
def test_space_and_depth_by_formula(op, x, mode, wanted, needs):
    assert types(op, f"float32[{x}]", blocksize=2, mode=mode) == [f"float32[{wanted}]"]
    assert demands(op, f"float32[{x}]", blocksize=2, mode=mode) == needs


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_and_depth_are_inverse(mode):
    x = np.arange(2 * 8 * 3 * 5).reshape(2, 8, 3, 5)
    (y,) = run("DepthToSpace", x, blocksize=2, mode=mode)
    np.testing.assert_array_equal(run("SpaceToDepth", y, blocksize=2, mode=mode)[0], x)
    channel = 2 if mode == "DCR" else 1  # of the place to the right of the first
    assert y[0, 0, 0, :2].tolist() == [x[0, 0, 0, 0], x[0, channel, 0, 0]]
    if mode == "DCR":
        np.testing.assert_array_equal(run("DepthToSpace", x, blocksize=2, opset=1)[0], y)
        np.testing.assert_array_equal(run("SpaceToDepth", y, blocksize=2, opset=1)[0], x)


@pytest.mark.parametrize("k", [-(2**40), -2, 0, 1, 9])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(k, upper):
    cut = (np.triu if upper else np.tril)(X, np.clip(k, -9, 9))
    np.testing.assert_array_equal(run("Trilu", X, np.array(k), upper=upper)[0], cut)


def test_trilu_by_formula():
    assert types("Trilu", "bool[B, h, w]", "int64[]") == ["bool[B, h, w]"]
    np.testing.assert_array_equal(run("Trilu", X > 5)[0], np.triu(X > 5))


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0)])
def test_reverse_sequence(batch, time):
    lengths = ints(0, 2, 1)[: X.shape[batch]]
    (y,) = run("ReverseSequence", X, lengths, batch_axis=batch, time_axis=time)
    wanted = X.copy()
    for i, n in enumerate(lengths):
        row, into = (wanted[i], X[i]) if batch == 0 else (wanted[:, i], X[:, i])
        row[:n] = into[:n][::-1]
    np.testing.assert_array_equal(y, wanted)


def test_reverse_sequence_by_formula():
    inputs = "float32[T, N, 4]", "int64[M]"
    assert types("ReverseSequence", *inputs) == ["float32[T, M, 4]"]
    assert demands("ReverseSequence", *inputs) == ["M == N"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "text"),
    [
        (
            "Transpose",
            ["2, N"],
            {"perm": [0, 0]},
            r"perm \[0, 0\] is no order of the axes of rank 2",
        ),
        ("Transpose", ["2, N"], {"perm": [0]}, r"perm \[0\] is no order"),
        (
            "Concat",
            ["B, 2", "B, 3"],
            {"axis": 0},
            "axis 1 of inputs joined along axis 0: 2 is not 3",
        ),
        ("Concat", ["B, 2", "B"], {"axis": 0}, r"\(B, 2\), \(B\) differ in rank"),
        ("Concat", ["B", "B"], {"axis": 1}, "axis 1 is out of range for rank 1"),
        ("Concat", ["", ""], {"axis": 0}, "axis 0 is out of range for rank 0"),
        ("Expand", ["B, 3", ints(2)], {}, "expanding"),
        ("Expand", ["B, 3", ints(-1, 3)], {}, "a size to expand to"),
        ("Tile", ["B, 3", ints(2)], {}, "1 repeats, the rank is 2"),
        ("Tile", ["B, 3", ints(2, -1)], {}, "a number of repeats"),
        ("DepthToSpace", ["B, 6, h, w"], {"blocksize": 2}, "6 is no multiple of 4"),
        ("DepthToSpace", ["B, 4, h"], {"blocksize": 2}, "has rank 3, wants 4"),
        ("SpaceToDepth", ["B, 4, 3, w"], {"blocksize": 2}, "height and blocks of 2"),
        ("SpaceToDepth", ["B, 4, 3, w"], {"blocksize": 0}, "blocksize is 0"),
        ("DepthToSpace", ["B, 4, h, w"], {"blocksize": 2, "mode": "DRC"}, "neither DCR nor CRD"),
        ("Trilu", ["N"], {}, "has rank 1, wants at least 2"),
        ("ReverseSequence", ["2, 3", ints(1, 1)], {}, "the batch and sequence_lens: 3 is not 2"),
        ("ReverseSequence", ["2, 3", ints(1, 1)], {"time_axis": 1}, "are not 0 and 1"),
    ],
)
def test_refuses(op, inputs, attributes, text):
    inputs = [f"float32[{x}]" if isinstance(x, str) else x for x in inputs]
    with pytest.raises(js.ShapeError, match=text):
        js.trace(node(op, *inputs, **attributes))
