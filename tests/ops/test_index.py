"""Gather*, Scatter*, OneHot, TopK: what the official cases leave out."""

import jax
import ml_dtypes
import numpy as np
import pytest
from builders import node
from forms import demands, run, typed_as, types
from jax.test_util import check_grads

import jaxshape as js

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
TEXT = np.array([["a", "b"], ["c", "d"]], object)
NAN = np.nan


@pytest.mark.parametrize("axis", [-3, 0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0,)])
def test_gather(axis, shape):
    n = X.shape[axis]
    indices = np.random.default_rng(0).integers(-n, n, shape)
    np.testing.assert_array_equal(
        run("Gather", X, indices, axis=axis)[0], np.take(X, indices, axis)
    )


@pytest.mark.parametrize("dtype", ["bool", "complex64", "uint8", ml_dtypes.bfloat16, "float64"])
def test_gather_keeps_the_dtype(dtype):
    (y,) = run("Gather", X.astype(dtype), np.int32(-1), axis=1)
    assert y.dtype == dtype and y.shape == (2, 4)


@pytest.mark.parametrize(
    ("op", "indices", "attributes", "wanted"),
    [
        ("Gather", -1, {}, ["c", "d"]),
        ("Gather", [1, 0], {"axis": 1}, [["b", "a"], ["d", "c"]]),
        ("GatherElements", [[1, -1]], {}, [["c", "d"]]),
        ("GatherND", [[1, 0], [0, -1]], {}, ["c", "b"]),
    ],
)
def test_gather_text(op, indices, attributes, wanted):
    assert run(op, TEXT, indices, **attributes)[0].tolist() == wanted


def test_gather_one_text_element():
    assert run("Gather", np.array(["a", "b"], object), -1)[0].item() == "b"


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_with_fewer_indices_than_data(axis):
    n = X.shape[axis]
    indices = np.random.default_rng(1).integers(-n, n, (1, 2, 3))
    (y,) = run("GatherElements", X, indices, axis=axis)
    for at in np.ndindex(indices.shape):
        there = list(at)
        there[axis] = indices[at]
        assert y[at] == X[tuple(there)]


@pytest.mark.parametrize(
    ("indices", "batch", "wanted"),
    [
        (np.array([[1, -1, 0]]), 0, X[[1], [-1], [0]]),
        (np.array([[-1]]), 0, X[[-1]]),
        (np.array([[[2]], [[-3]]]), 1, np.stack([X[0, [2]], X[1, [0]]])),
        (np.array([[1, -1], [0, 2]]), 1, np.array([X[0, 1, 3], X[1, 0, 2]])),
        (np.zeros((0, 2), np.int64), 0, np.zeros((0, 4), np.float32)),
    ],
)
def test_gather_nd(indices, batch, wanted):
    np.testing.assert_array_equal(run("GatherND", X, indices, batch_dims=batch)[0], wanted)


def test_an_index_out_of_range_on_the_device_is_no_neighbour():
    def gathered(op, indices):
        return js.run(node(op, *map(typed_as, (X[0], indices))), {"x0": X[0], "x1": indices})["y0"]

    assert np.isnan(gathered("Gather", np.array([3, -4]))).all()
    assert np.isnan(gathered("GatherElements", np.full((1, 4), 3))).all()
    assert np.isnan(gathered("GatherND", np.array([[0, 4], [-4, 0]]))).all()


def test_a_known_index_out_of_range_is_refused_under_jit():
    made = node("Gather", "float32[N,4]", np.array([4]), axis=1)
    for call in (lambda x: js.run(made, {"x0": x}), jax.jit(js.to_jax(made))):
        with pytest.raises(js.ShapeError, match="index 4 is out of range for axis 1 of size 4"):
            call(np.ones((2, 4), np.float32))


REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("opset", [16, 18])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_combines_all_that_share_a_place(dtype, reduction, opset):
    """The largest and the least in opset 16 too, as PyTorch writes it."""
    data = np.array([[1, 0, 3], [4, 5, 0]]).astype(dtype)
    indices = np.array([[0, -1, 0], [0, 1, -2]])
    updates = np.array([[2, 7, 1], [0, 3, 1]]).astype(dtype)
    wanted = data.copy()
    for at in np.ndindex(indices.shape):
        place = (indices[at], at[1])
        wanted[place] = REDUCTIONS[reduction](wanted[place], updates[at])
    elements = run("ScatterElements", data, indices, updates, reduction=reduction, opset=opset)[0]
    np.testing.assert_array_equal(elements, wanted)
    tuples = np.stack([indices, np.broadcast_to(np.arange(3), (2, 3))], -1)
    nd = run("ScatterND", data, tuples, updates, reduction=reduction, opset=opset)[0]
    np.testing.assert_array_equal(nd, wanted)


@pytest.mark.parametrize("reduction", ["none", *REDUCTIONS])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_slopes_where_several_share_a_place(op, reduction):
    """Products too, of which JAX has no gradient where places are the same; with factors of 0."""
    indices = np.array([[0, -1, 0], [0, 1, -2]])
    if reduction == "none":  # which one stays is left open
        indices = np.array([[1, -1, 0], [0, 0, -1]])
    tuples = np.stack([indices, np.broadcast_to(np.arange(3), (2, 3))], -1)
    m = node(
        op,
        "float64[2, 3]",
        tuples if op == "ScatterND" else indices,
        "float64[2, 3]",
        reduction=reduction,
    )
    data = np.array([[1.0, 2, 3.5], [4, 0, 6]])
    for updates in ([[2, 7, 1], [3, 5, 1.5]], [[0, 7, 1], [0, 5, 0]]):
        updates = np.array(updates, float)
        weight = np.array([[0.3, 0.7, -1], [2, 0.1, 0.4]])
        with jax.enable_x64(True):
            f = js.to_jax(m)

            def total(*args, f=f, weight=weight):
                return (f(*args) * weight).sum()

            if reduction in ("none", "add", "mul"):
                check_grads(total, (data, updates), order=1)
            assert np.isfinite(jax.hessian(total, 1)(data, updates)).all()


def test_scatter_writes():
    indices, updates = np.array([[3, 0], [-1, 1]]), np.array([[1, 2], [3, 4]], np.float32)
    wanted = X[0].copy()
    wanted[0, [3, 0]], wanted[1, [3, 1]] = [1, 2], [3, 4]
    for op, opset in (("ScatterElements", 11), ("Scatter", 9)):
        np.testing.assert_array_equal(
            run(op, X[0], indices, updates, axis=-1, opset=opset)[0], wanted
        )


def test_scatter_text_and_slices():
    (y,) = run("ScatterND", TEXT, [[-1]], np.array([["x", "y"]], object))
    assert y.tolist() == [["a", "b"], ["x", "y"]]
    (y,) = run("ScatterND", X[0], np.zeros((1, 0), np.int64), X[:1] + 1)
    np.testing.assert_array_equal(y, X[0] + 1)


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint64", "float32", "float16", "float64"])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_ties_go_to_the_lower_index(dtype, largest):
    x = np.random.default_rng(2).integers(0, 3, (2, 7, 3)).astype(dtype)
    if dtype != "float16" and x.dtype.kind in "iu":
        x[0, 0, 0], x[0, 1, 0] = np.iinfo(dtype).min, np.iinfo(dtype).max
    keys = -x.astype(object) if largest else x.astype(object)
    order = np.argsort(keys, 1, kind="stable")[:, :4]
    values, indices = run("TopK", x, [4], static=(1,), outputs=2, axis=-2, largest=largest)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize(("largest", "wanted"), [(1, [0, 4, 2, 5, 1, 3]), (0, [1, 3, 5, 2, 0, 4])])
def test_top_k_has_one_zero_and_nan_is_greatest(largest, wanted):
    x = np.array([NAN, -0.0, 2, 0.0, -NAN, 1], np.float32)
    assert run("TopK", x, [6], static=(1,), outputs=2, largest=largest)[1].tolist() == wanted


def test_top_k_of_nothing():
    values, indices = run("TopK", X[:0], [0], static=(1,), outputs=2)
    assert values.shape == indices.shape == (0, 3, 0)


@pytest.mark.parametrize("axis", [-3, 0, 1, -1])
@pytest.mark.parametrize("opset", [9, 11])
def test_one_hot(axis, opset):
    indices = np.array([[0, -1, 3], [-4, 4, 2]])
    shape = np.expand_dims(indices, axis).shape
    (y,) = run("OneHot", indices, 4, np.array([7, 9], np.int8), static=(1,), axis=axis, opset=opset)
    classes = np.arange(4).reshape(
        [4 if d == 1 and i == axis % 3 else 1 for i, d in enumerate(shape)]
    )
    hit = np.where(indices < 0, indices + 4, indices) if opset > 9 else indices
    np.testing.assert_array_equal(y, np.where(np.expand_dims(hit, axis) == classes, 9, 7))


@pytest.mark.parametrize(
    ("indices", "depth", "wanted"),
    [
        (np.array([1.9, -1.2], np.float32), np.float32(2.9), [[0, 1], [0, 1]]),
        (np.array([2**64 - 1, 1], np.uint64), np.uint8(2), [[0, 0], [0, 1]]),
        (np.array(1, np.int32), np.int64(3), [0, 1, 0]),
        (np.array([], np.int32), np.int64(3), []),
    ],
)
def test_one_hot_of_other_types(indices, depth, wanted):
    (y,) = run("OneHot", indices, depth, np.array([0, 1]), static=(1,))
    assert y.tolist() == wanted


def test_one_hot_text():
    (y,) = run("OneHot", [1], [2], np.array(["no", "yes"], object), static=(1,))
    assert y.tolist() == [["no", "yes"]]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("Gather", ("float32[N,M,3]", "int64[a,b]"), {"axis": 1}, "float32[N, a, b, 3]"),
        ("GatherElements", ("float32[N,M]", "int64[a,b]"), {}, "float32[a, b]"),
        ("GatherElements", ("float32", "int64[a,b]"), {}, "float32[a, b]"),
        ("GatherND", ("float32[N,M,3]", "int64[a,b,2]"), {}, "float32[a, b, 3]"),
        ("GatherND", ("float32[N,M,3]", "int64[N,1]"), {"batch_dims": 1}, "float32[N, 3]"),
        ("GatherND", ("float32[N,M,3]", "int64[a,b]"), {}, "float32[...]"),
        ("ScatterElements", ("float32[N,M]", "int64", "float32"), {}, "float32[N, M]"),
        ("ScatterND", ("float32[N,M]", "int64[a,b]", "float32"), {}, "float32[N, M]"),
        ("TopK", ("float32[N,h]", np.array([5])), {"outputs": 2}, "float32[N, 5]"),
        ("TopK", ("float32[N,h]",), {"outputs": 2, "k": 5, "opset": 9}, "float32[N, 5]"),
        ("OneHot", ("int64[N,M]", np.array(5), "int8[2]"), {"axis": 1}, "int8[N, 5, M]"),
    ],
)
def test_types(op, inputs, attributes, wanted):
    assert types(op, *inputs, **attributes)[0] == wanted


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("GatherElements", ("float32[N,M]", "int64[a,b]"), {}, ["M >= b"]),
        ("GatherND", ("float32[N,M]", "int64[a,1]"), {"batch_dims": 1}, ["N == a"]),
        ("ScatterND", ("float32[N,3]", "int64[a,1]", "float32[b,3]"), {}, ["a == b"]),
        ("TopK", ("float32[N,h]", np.array([5])), {"outputs": 2}, ["h >= 5"]),
        ("Gather", ("float32[N,M]", np.array([2, -1])), {"axis": 1}, ["M >= 3"]),
        ("Gather", ("float32[N,M]", np.zeros((0, 2), np.int64)), {}, []),
        ("GatherElements", ("float32[2,M]", np.array([[-4]])), {"axis": 1}, ["M >= 4"]),
        ("GatherND", ("float32[N,M]", np.array([[3, -3]])), {}, ["N >= 4", "M >= 3"]),
        ("ScatterND", ("float32[N]", np.array([[3]]), "float32[1]"), {}, ["N >= 4"]),
    ],
)
def test_requirements(op, inputs, attributes, wanted):
    found = demands(op, *inputs, **attributes)
    assert [" == ".join(sorted(r.split(" == "))) for r in found] == wanted


@pytest.mark.parametrize(
    ("x", "indices", "shape"),
    [
        ((0, 0, 5), np.array([[0], [-1]]), (2, 0, 5)),
        ((2, 0, 0), np.array([[1, -1]]), (1, 0)),
    ],
)
def test_slices_without_elements_are_not_looked_up(x, indices, shape):
    """As in onnxruntime: an index tuple that takes nothing cannot be out of range."""
    text = f"float32[{', '.join(map(str, x))}]"
    made = node("GatherND", text, indices)
    assert js.trace(made)["y0"].shape == shape
    assert js.run(made, {"x0": np.zeros(x, np.float32)})["y0"].shape == shape


F, I64 = "float32[4,3]", "int64[2,3]"


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "text"),
    [
        ("Gather", (F, I64), {"axis": 2}, "axis 2 is out of range for rank 2"),
        ("Gather", (np.arange(3), np.array(3)), {}, "index 3 is out of range for axis 0 of size 3"),
        ("Gather", (np.arange(3), np.array([0, -4])), {}, "index -4 is out of range"),
        ("Gather", (F, np.array([4])), {}, "index 4 is out of range for axis 0 of size 4"),
        ("GatherElements", (F, np.array([[0, -5]])), {}, "index -5 is out of range for axis 0"),
        ("GatherND", (F, np.array([[0, 3]])), {}, "index 3 is out of range for axis 1 of size 3"),
        ("ScatterND", (F, np.array([[9]]), "float32[1,3]"), {}, "index 9 is out of range"),
        (
            "ScatterElements",
            (F, np.array([[4]]), "float32[1,1]"),
            {},
            "index 4 is out of range for axis 0 of size 4",
        ),
        ("GatherElements", (F, "int64[2]"), {}, "indices have rank 1, want the rank of data, 2"),
        ("GatherElements", (F, "int64[2,4]"), {}, "axis 1 of indices within that of data"),
        ("GatherND", (F, I64), {}, "an index tuple has 3 elements, wants 1 to 2"),
        ("GatherND", (F, I64), {"batch_dims": -1}, "batch_dims is -1, wants at least 0"),
        (
            "GatherND",
            (F, I64),
            {"batch_dims": 2},
            "less than the ranks of data, 2, and of indices, 2",
        ),
        ("GatherND", (F, "int64[3,1]"), {"batch_dims": 1}, "batch axes"),
        ("ScatterElements", (F, I64, "float32[2,2]"), {}, "indices and updates"),
        ("ScatterElements", (F, I64, "float32[2]"), {}, "updates have rank 1"),
        (
            "ScatterElements",
            (F, I64, "float32[2,3]"),
            {"reduction": "sum"},
            "reduction 'sum' is none",
        ),
        ("ScatterND", (F, I64, F), {}, "an index tuple has 3 elements, data has rank 2"),
        ("ScatterND", (F, "int64[2,1]", "float32[2]"), {}, "updates have rank 1, want 2"),
        ("ScatterND", (F, "int64[2,1]", "float32[2,4]"), {}, "updates"),
        (
            "ScatterND",
            (F, "int64[2,1]", "float32[2,3]"),
            {"reduction": "mean", "opset": 16},
            "'mean'",
        ),
        ("TopK", (F, np.array([4])), {"outputs": 2}, "k within axis 1: 3 is less than 4"),
        ("TopK", (F, np.array([-1])), {"outputs": 2}, "k: -1 is less than 0"),
        ("TopK", (F, np.array([1, 1])), {"outputs": 2}, r"k has shape \(2,\), wants one element"),
        ("OneHot", (I64, np.array(3), F), {}, r"values \(4, 3\) has rank 2, wants 1"),
        ("OneHot", (I64, np.array(3), "float32[3]"), {}, "3 is not 2"),
        ("OneHot", (I64, np.array(-3), "float32[2]"), {}, "depth: -3 is less than 0"),
        (
            "OneHot",
            (I64, np.array(3), "float32[2]"),
            {"axis": 3},
            "axis 3 is out of range for rank 3",
        ),
    ],
)
def test_errors(op, inputs, attributes, text):
    with pytest.raises(js.ShapeError, match=text):
        types(op, *inputs, **attributes)
