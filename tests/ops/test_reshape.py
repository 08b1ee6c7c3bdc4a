"""Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze."""

import numpy as np
import pytest
from builders import model, node
from forms import demands, run, types

import jaxshape as js

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (None, None, ["N", 3, "w"]),
        (1, None, [3, "w"]),
        (-1, None, ["w"]),
        (None, -1, ["N", 3]),
        (-9, 9, ["N", 3, "w"]),
        (2, 1, []),
        (9, None, []),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "string", "complex64", "uint4"])
def test_shape(dtype, start, end, wanted):
    trace = js.trace(node("Shape", f"{dtype}[N, 3, w]", start=start, end=end))
    assert str(trace["y0"]) == f"int64[{len(wanted)}]"
    assert [str(d) for d in trace.content("y0").tolist()] == [str(d) for d in wanted]


def test_sizes_as_values():
    (y,) = run("Shape", X, end=2)
    assert y.dtype == np.int64 and y.tolist() == [2, 3]
    assert run("Shape", np.float32(1))[0].shape == (0,)
    assert run("Shape", np.array(["a", "b"], object), opset=13)[0].tolist() == [2]
    (n,) = run("Size", X)
    assert n.dtype == np.int64 and n.shape == () and n == 24
    assert run("Size", np.float32(1))[0] == 1
    assert str(js.trace(node("Size", "float32[N, 3]")).content("y0").item()) == "3*N"
    assert types("Shape", "float32") == ["int64[rank]"]
    assert types("Size", "float32") == ["int64[]"]


@pytest.mark.parametrize(
    ("x", "target", "allowzero", "shape"),
    [
        (X, [4, 6], 0, (4, 6)),
        (X, [-1], 0, (24,)),
        (X, [0, -1], 0, (2, 12)),
        (X, [1, 0, 1, -1], 0, (1, 3, 1, 8)),
        (X[:1, :1, :1], [], 0, ()),
        (np.float32(3), [1, -1], 0, (1, 1)),
        (X[:0], [0, 4, 3], 0, (0, 4, 3)),
        (X[:0], [-1, 4], 0, (0, 4)),
        (X[:0], [0, -1, 12], 0, (0, 1, 12)),  # 0 elements for 0 rows leave 1: the sizes cancel
        (X[:0], [7, 0], 1, (7, 0)),
        (X[:0].astype(bool), [0, 2, 6], 1, (0, 2, 6)),
        (np.array([["a", "b"]], object), [2, -1], 0, (2, 1)),
    ],
)
def test_reshape(x, target, allowzero, shape):
    (y,) = run("Reshape", x, ints(*target), static=(1,), allowzero=allowzero)
    assert y.dtype == x.dtype and y.shape == shape
    assert y.ravel().tolist() == np.ravel(x).tolist()


def test_reshape_of_old():
    y = js.run(node("Reshape", "float32[2, 3, 4]", shape=[0, -1], opset=1), {"x0": X})["y0"]
    np.testing.assert_array_equal(y, X.reshape(2, 12))
    with pytest.raises(js.ShapeError, match="needs attribute shape"):
        js.trace(node("Reshape", "float32[2]", opset=1))


@pytest.mark.parametrize(
    ("x", "target", "wanted", "needs"),
    [
        ("B, S, 768", ints(0, 0, 12, 64), "B, S, 12, 64", []),
        ("B, S, 768", ints(0, -1, 64), "B, 12*S, 64", []),
        ("B, S, 768", ints(-1), "768*B*S", []),
        ("B, S, h", ints(0, 0, -1, 8), "B, S, h//8, 8", ["h % 8 == 0"]),
        ("n, 4", ints(8), "8", ["n == 2"]),
        ("B, h", ints(0, 2, 3), "B, 2, 3", ["h == 6"]),
        ("N, 12", "int64[1]", "12*N", []),
        ("N, 12", "int64[2]", "Reshape_size, Reshape_size_1", []),
        ("N, 12", "int64[k]", "...", []),
    ],
)
def test_reshape_by_formula(x, target, wanted, needs):
    assert types("Reshape", f"float32[{x}]", target) == [f"float32[{wanted}]"]
    assert demands("Reshape", f"float32[{x}]", target) == needs


def test_reshape_bounds_what_it_cannot_know():
    trace = js.trace(node("Reshape", "float32[N, 12]", "int64[2]"))
    low, high = trace.bounds["Reshape_size"]
    assert low == 1 and str(high) == "12*N"
    assert types("Reshape", "float32", ints(0, -1, 5)) == [
        "float32[Reshape_size, Reshape_size_1, 5]"
    ]


@pytest.mark.parametrize(
    ("body", "wanted", "needs"),
    [
        ("n = Mul (a, b) t = Concat <axis = 0> (n, c, d) y = Reshape (x, t)", "B*H, S, 64", []),
        ("t = Concat <axis = 0> (a, m, d) y = Reshape (x, t)", "B, H*S, 64", []),
        ("n = Mul (a, b) t = Concat <axis = 0> (n, m) y = Reshape (x, t)", "B*H, 64*S", []),
        ("t = Concat <axis = 0> (a, b, m) y = Reshape (x, t)", "B, H, 64*S", []),
        ("t = Concat <axis = 0> (a, u, c, d) y = Reshape (x, t)", "B, H, S, 64", []),
        ("t = Concat <axis = 0> (b, a, c, d) y = Reshape (x, t)", "H, B, S, 64", []),
        ("t = Concat <axis = 0> (a, a, c, d) y = Reshape (x, t)", "B, B, S, 64", ["B == H"]),
    ],
)
def test_reshape_by_computed_sizes(body, wanted, needs):
    trace = js.trace(
        model(f"""g (float[B, H, S, 64] x, int64[1] u) => (y) {{
            s = Shape (x)  a, b, c, d = Split <axis = 0, num_outputs = 4> (s)
            m = Constant <value_ints = [-1]> ()  {body} }}""")
    )
    assert str(trace["y"]) == f"float32[{wanted}]"
    assert [str(r) for r in trace.requirements] == needs


@pytest.mark.parametrize(
    ("target", "wanted", "needs"),
    [
        ("a, p, four, q, four, d", "B, H//4, 4, S//4, 4, 8", ["H % 4 == 0", "S % 4 == 0"]),
        ("a, p, four, c, d", "B, H//4, 4, S, 8", ["H % 4 == 0"]),
        ("a, p, m", "B, Reshape_size, Reshape_size_1", []),
        ("d, b, c, a, p", "8, H, S, B, 1", ["H >= 4", "H <= 7"]),
    ],
)
def test_a_quotient_in_the_target_is_no_copied_size(target, wanted, needs):
    """Where H//4 is 0 a size is copied: mostly the number of elements does not fit then."""
    trace = js.trace(
        model(f"""g (float[B, H, S, 8] x) => (y) {{
            s = Shape (x)  a, b, c, d = Split <axis = 0, num_outputs = 4> (s)
            four = Constant <value_ints = [4]> ()  m = Constant <value_ints = [-1]> ()
            p = Div (b, four)  q = Div (c, four)
            t = Concat <axis = 0> ({target})  y = Reshape (x, t) }}""")
    )
    assert str(trace["y"]) == f"float32[{wanted}]"
    assert [str(r) for r in trace.requirements] == needs


def test_a_size_that_may_be_zero_is_not_divided_out():
    """n rows of 4 seen as (n, v): at n = 0 every v will do."""
    trace = js.trace(
        model("""g (float[N] x, int64[1] v) => (y) {
            i = NonZero (x)  r = Transpose (i)  s = Shape <end = 1> (r)
            t = Concat <axis = 0> (s, v)  y = Reshape (r, t) }""")
    )
    assert str(trace["y"]) == "int64[NonZero_count, Reshape_size]"


@pytest.mark.parametrize(
    ("x", "target", "attributes", "text"),
    [
        ("2, 3", ints(4, 2), {}, r"cannot view \(2, 3\) as \[4, 2\]: 6 elements are not 8"),
        (
            "2, 3",
            ints(4, -1),
            {},
            r"cannot view \(2, 3\) as \[4, -1\]: 6 elements do not divide by 4",
        ),
        ("2, 3", ints(-1, -1), {}, "more than one -1"),
        ("2, 3", ints(0, -1), {"allowzero": 1}, "-1 beside a 0"),
        ("2, 3", ints(2, 3, 0), {}, r"0 at 2, but there is no such axis in \(2, 3\)"),
        ("n, 3", ints(-2, 3), {}, "the target holds -2"),
    ],
)
def test_reshape_refuses(x, target, attributes, text):
    with pytest.raises(js.ShapeError, match=text):
        js.trace(node("Reshape", f"float32[{x}]", target, **attributes))


@pytest.mark.parametrize(
    ("x", "axis", "wanted"),
    [
        ("B, S, 4, h", 2, "B*S, 4*h"),
        ("B, S, 4, h", 0, "1, 4*B*S*h"),
        ("B, S, 4, h", -1, "4*B*S, h"),
        ("B, S, 4, h", 4, "4*B*S*h, 1"),
        ("", 0, "1, 1"),
        ("0, B", 1, "0, B"),
    ],
)
def test_flatten(x, axis, wanted):
    assert types("Flatten", f"float32[{x}]", axis=axis) == [f"float32[{wanted}]"]


def test_flatten_of_any_rank_and_of_old():
    assert types("Flatten", "float32", axis=0) == ["float32[1, Flatten_size]"]
    np.testing.assert_array_equal(run("Flatten", X, axis=-1)[0], X.reshape(6, 4))
    np.testing.assert_array_equal(run("Flatten", X, opset=9)[0], X.reshape(2, 12))
    with pytest.raises(js.ShapeError, match=r"axis -1 is not in \[0, 3\]"):
        js.trace(node("Flatten", "float32[2, 3, 4]", axis=-1, opset=9))
    with pytest.raises(js.ShapeError, match=r"axis 1 is not in \[0, 0\], the rank is 0"):
        js.trace(node("Flatten", "float32[]"))


@pytest.mark.parametrize(
    ("x", "axes", "wanted", "needs"),
    [
        ("1, N, 1", ints(0, -1), "N", []),
        ("1, 3, 1", None, "3", []),
        ("1, N, 1", None, "...", []),
        ("1, 3, 0", None, "3, 0", []),
        ("h, N, 1", ints(0), "N, 1", ["h == 1"]),
        ("1, 3, 4", "int64[1]", "3, 4", []),
        ("1, N, 4", "int64[1]", "Squeeze_size, Squeeze_size_1", []),
        ("1, N, 4", "int64[k]", "...", []),
    ],
)
def test_squeeze(x, axes, wanted, needs):
    inputs = [f"float32[{x}]"] + ([] if axes is None else [axes])
    assert types("Squeeze", *inputs) == [f"float32[{wanted}]"]
    assert demands("Squeeze", *inputs) == needs


@pytest.mark.parametrize(
    ("x", "axes", "wanted"),
    [
        ("N, 3", ints(0, -1), "1, N, 3, 1"),
        ("N, 3", ints(2, 0), "1, N, 1, 3"),
        ("", ints(0), "1"),
        ("N", ints(), "N"),
        ("1, 1", "int64[2]", "1, 1, 1, 1"),
        ("N", "int64[1]", "Unsqueeze_size, Unsqueeze_size_1"),
        ("N", "int64[k]", "..."),
    ],
)
def test_unsqueeze(x, axes, wanted):
    assert types("Unsqueeze", f"float32[{x}]", axes) == [f"float32[{wanted}]"]


def test_axes_of_size_1_in_numbers():
    x = X[:1]
    assert run("Squeeze", x)[0].shape == (3, 4)
    assert run("Squeeze", x, axes=[0], opset=11)[0].shape == (3, 4)
    assert run("Unsqueeze", x, ints(-1), static=(1,))[0].shape == (1, 3, 4, 1)
    assert run("Unsqueeze", x, axes=[1, 3], opset=1)[0].shape == (1, 1, 3, 1, 4)
    assert run("Unsqueeze", np.array("a", object), ints(0), static=(1,))[0].tolist() == ["a"]


@pytest.mark.parametrize(
    ("op", "x", "axes", "text"),
    [
        ("Squeeze", "2, N", ints(0), r"axis 0 to drop from \(2, N\): 2 is not 1"),
        ("Squeeze", "1, N", ints(2), "axis 2 is out of range for rank 2"),
        ("Squeeze", "1, N", ints(0, -2), "name an axis twice"),
        ("Squeeze", "2, 3, N", "int64[2]", "not as many of size 1"),
        ("Unsqueeze", "N", ints(0, -3), "name an axis twice"),
        ("Unsqueeze", "N", ints(2), "axis 2 is out of range for rank 2"),
    ],
)
def test_axes_of_size_1_refuse(op, x, axes, text):
    with pytest.raises(js.ShapeError, match=text):
        js.trace(node(op, f"float32[{x}]", axes))
