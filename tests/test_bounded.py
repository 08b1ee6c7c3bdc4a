"""Sizes that depend on data under jit: the bounded conversion against the exact run.

Each row is run at counts of none, one, some and all, by one compiled function.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import model
from counted import CONSTANTS, MATRICES, VECTORS, graph, values

import jaxshape as js


def agree(m, feeds, bounded=True):
    """What the bounded function gives, compiled once, is what the exact run gives."""
    traces = []

    def call(*xs):
        traces.append(1)
        return f(*xs)

    f = js.to_jax(m, bounded=bounded)
    compiled = jax.jit(call)
    for x in feeds:
        want = list(js.run(m, [x]).values())
        for y, w in zip(values(compiled(x)), want, strict=True):
            assert y.shape == w.shape and y.dtype.kind == w.dtype.kind
            np.testing.assert_allclose(y, w, rtol=1e-5, atol=1e-6)
    assert len(traces) == 1


ALONG = {
    "entries": "e = Exp (s) y = Mul (e, s)",
    "where": "k = Greater (s, f2) y = Where (k, s, f2)",
    "sum": "y = ReduceSum (s)",
    "mean": "y = ReduceMean <keepdims = 0> (s)",
    "integer mean": "c = Cast <to = 7> (s) y = ReduceMean (c)",
    "greatest": "y = ReduceMax (s)",
    "least": "y = ReduceMin (s)",
    "product": "y = ReduceProd (s)",
    "norm": "y = ReduceL2 (s)",
    "log-sum-exp": "y = ReduceLogSumExp (s)",
    "softmax": "y = Softmax <axis = 0> (s)",
    "running sum": "y = CumSum (s, i0)",
    "running sum backward": "y = CumSum <reverse = 1, exclusive = 1> (s, i0)",
    "sorted": "y, i = TopK (s, n)",
    "matmul": "y = MatMul (s, s)",
    "outer": "u = Unsqueeze (s, v1) y = Mul (u, s)",
    "gram": "u = Unsqueeze (s, v1) y = Gemm <transB = 1> (u, u)",
    "concat": "e = Exp (s) y = Concat <axis = 0> (s, e, x, s)",
    "slice": "y = Slice (s, v1, v3)",
    "slice from the end": "y = Slice (s, less, v3)",
    "slice backward": "y = Slice (s, less, least, v0, less)",
    "split": "d = Concat <axis = 0> (s, s) p = Concat <axis = 0> (n, n) h, y = Split (d, p)",
    "pad": "p = Constant <value = int64[2] {1, 2}> () y = Pad (s, p, f2)",
    "tile": "y = Tile (s, v3)",
    "expand": "h = Concat <axis = 0> (v3, n) y = Expand (s, h)",
    "a product of sizes": "h = Concat <axis = 0> (v3, n) e = Expand (s, h) y = Reshape (e, less)",
    "its other order": """h = Concat <axis = 0> (n, v3) u = Unsqueeze (s, v1) e = Expand (u, h)
        t = Transpose (e) y = Reshape (t, less)""",
    "a square": """u = Unsqueeze (s, v1) q = Mul (u, s) t = Add (q, u) y = Reshape (t, less)""",
    "range": "k = Size (s) r = Range (i0, k, i1) y = Cast <to = 1> (r)",
    "its length": "y = Shape (s)",
    "over its length": "k = Size (s) c = Cast <to = 1> (k) y = Div (x, c)",
    "zeros": "h = Concat <axis = 0> (n, v3) y = ConstantOfShape (h)",
    "one hot": """c = Cast <to = 7> (s) w = Constant <value = float[2] {0, 1}> ()
        y = OneHot (c, v3, w)""",
    "chosen again": "k = Greater (s, f2) y = Compress (s, k)",
    "gather": "i = NonZero (s) j = Squeeze (i, v0) y = Gather (s, j)",
    "gather elements": "i = NonZero (m) j = Squeeze (i, v0) y = GatherElements (x, j)",
    "gather of tuples": "i = NonZero (m) t = Transpose (i) y = GatherND (x, t)",
    "scatter": "i = NonZero (m) t = Transpose (i) u = Neg (s) y = ScatterND (x, t, u)",
    "scatter, added": """i = NonZero (m) j = Squeeze (i, v0)
        y = ScatterElements <reduction = "add"> (x, j, s)""",
    "scatter into it": """i = NonZero (s) j = Squeeze (i, v0) u = Neg (s)
        y = ScatterElements <reduction = "max"> (s, j, u)""",
    "different": "y = Unique (s)",
    "by condition on the count": """k = Equal (n, v1) c = Squeeze (k) y = If (c) <
        then_branch = t () => (float[p] a) { a = Concat <axis = 0> (s, x) },
        else_branch = e () => (float[r] b) { b = Neg (s) }>""",
    "by condition on data": """r = ReduceSum <keepdims = 0> (x) c = Greater (r, f2) y = If (c) <
        then_branch = t () => (float[p] a) { k = Greater (x, f2) a = Compress (x, k) },
        else_branch = e () => (float[r] b) { b = Neg (s) }>""",
    "a loop": """yes = Constant <value = bool {1}> () q = ReduceSum <keepdims = 0> (s) k = Size (s)
        y = Loop (k, yes, q) <body = b (int64 i, bool c, float v) => (bool d, float w) {
            d = Identity (c) h = ReduceSum <keepdims = 0> (s) w = Add (v, h) }>""",
}


@pytest.mark.parametrize("name", ALONG)
def test_is_the_exact_run(name):
    agree(graph(ALONG[name]), VECTORS)


SOME = {  # where nothing is not possible
    "position": "y = ArgMax <axis = 0> (s)",
    "last position": "y = ArgMin <axis = 0, select_last_index = 1> (s)",
    "first": "y = Gather (s, i0)",
    "of given number": "y, i = TopK (s, v1)",
}


@pytest.mark.parametrize("name", SOME)
def test_is_the_exact_run_where_there_is_one(name):
    agree(graph(SOME[name]), VECTORS[1:])


PRODUCERS = {
    "NonZero": ("y = NonZero (x)", "y"),
    "Compress": ("m = Greater (x, zero) y = Compress (x, m)", "y"),
    "Unique": ("y, i, j, k = Unique (x)", "y i j k"),
    "Unique in order": ("y, i, j, k = Unique <sorted = 0> (x)", "y i j k"),
    "Unique of rows": ("y, i, j, k = Unique <axis = 0> (x)", "y i j k"),
}


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize("shape", ["N", "N, M"])
def test_producers(name, shape):
    body, outputs = PRODUCERS[name]
    if (name, shape) == ("Unique of rows", "N") or (name, shape) == ("Compress", "N, M"):
        body = body.replace("(x, m)", "(f, g)").replace("m = Greater (x, zero)", FLAT)
    feeds = VECTORS if shape == "N" else MATRICES
    agree(graph(body, outputs, shape, CONSTANTS), feeds)


FLAT = "w = Constant <value = int64[1] {-1}> () f = Reshape (x, w) g = Greater (f, zero)"

MATRIX = {
    "rows": """r = ReduceSum (x, v1) p = Greater (r, zero) q = Squeeze (p, v1)
        c = Compress <axis = 0> (x, q) y = Softmax <axis = 1> (c) z = ReduceMean (c, v0)""",
    "columns": """r = ReduceSum (x, v0) p = Greater (r, zero) q = Squeeze (p, v0)
        c = Compress <axis = 1> (x, q) y = Reshape (c, less) z = Softmax <axis = 1> (c)""",
    "rows and columns": """r = ReduceSum (x, v1) p = Greater (r, zero) q = Squeeze (p, v1)
        a = Compress <axis = 0> (x, q) t = ReduceSum (x, v0) o = Greater (t, zero)
        k = Squeeze (o, v0) c = Compress <axis = 1> (a, k) y = Reshape (c, less)
        d = Transpose (c) z = MatMul (c, d)""",
}


@pytest.mark.parametrize("name", MATRIX)
def test_of_matrices(name):
    agree(graph(MATRIX[name], "y z", "N, M", CONSTANTS), MATRICES)


BOXES = """g (float[1, n, 4] b, float[1, 2, n] s) => (int64[c, 3] y, float[c, 4] z) {
    most = Constant <value = int64[1] {2}> ()
    iou = Constant <value = float[1] {0.5}> ()
    floor = Constant <value = float[1] {0.3}> ()
    y = NonMaxSuppression <center_point_box = CENTER> (b, s, most, iou, floor)
    zero = Constant <value = int64[1] {0}> ()
    one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()
    three = Constant <value = int64[1] {3}> ()
    flat = Squeeze (b, zero)
    i = Slice (y, two, three, one)
    z = GatherND (flat, i)
}"""


@pytest.mark.parametrize("center", [0, 1])
def test_boxes(center):
    m = model(BOXES.replace("CENTER", str(center)))
    f = jax.jit(js.to_jax(m, bounded=True))
    rng = np.random.default_rng(0)
    counts = set()
    for scored in (0, 1, 4, 12, 12, 12):
        corner = rng.uniform(0, 2, (1, 6, 2))
        b = np.concatenate([corner, corner + rng.uniform(0, 2, (1, 6, 2))], -1).astype(np.float32)
        s = rng.uniform(0.2, 1, 12).astype(np.float32)
        s[7] = s[9]  # a tie
        s[scored:] = 0
        s[0] = 0.9 if scored else 0
        s = s.reshape(1, 2, 6)
        want = js.run(m, [b, s])
        counts.add(len(want["y"]))
        for y, w in zip(values(f(b, s)), want.values(), strict=True):
            np.testing.assert_array_equal(y, w)
        assert f(b, s)[0].array.shape == (4, 3)  # classes, and at most two of each
    assert {0, 1, 4} <= counts


GRADIENTS = {
    "log": "y = Log (s)",
    "root": "y = Sqrt (s)",
    "over a sum": "r = ReduceSum (x) y = Div (r, s)",
    "over a number": "r = ReduceSum <keepdims = 0> (x) y = Div (r, s)",
    "over its norm": "r = ReduceL2 (s) y = Div (s, r)",
    "softmax": "l = Log (s) y = Softmax <axis = 0> (l)",
    "outer": "l = Log (s) u = Unsqueeze (l, v1) w = Unsqueeze (s, v0) y = MatMul (u, w)",
    "scatter": "i = NonZero (m) t = Transpose (i) u = Log (s) y = ScatterND (x, t, u)",
    "sorted": "w, i = TopK (s, n) y = Log (w)",
    "running sum": "l = Log (s) y = CumSum <reverse = 1> (l, i0)",
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_know_nothing_of_what_lies_beyond(name):
    m = graph(GRADIENTS[name])
    f = js.to_jax(m, bounded=True)

    def loss(x):
        y = f(x)
        y = y.array if isinstance(y, js.Padded) else y
        return jnp.sum(jnp.sin(y) * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)))

    slope, curve = jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))
    with jax.enable_x64(True):
        for x in VECTORS:
            assert np.isfinite(curve(x)).all()
            got = slope(x)
            for i in np.flatnonzero(x):
                step = np.zeros_like(x)
                step[i] = 2**-7
                number = (loss(x + step) - loss(x - step)) / 2**-6
                np.testing.assert_allclose(got[i], number, rtol=0.02, atol=0.02)
        batch = np.stack(VECTORS)
        each = jax.vmap(slope)(batch)
        np.testing.assert_allclose(each, [slope(x) for x in batch], rtol=1e-4, atol=1e-5)


def test_vmap():
    m = graph("y = Exp (s) z = ReduceSum (s)", "y z")
    y, z = jax.vmap(js.to_jax(m, bounded=True))(np.stack(VECTORS))
    assert y.array.shape == (4, 5) and y.axis == 0
    np.testing.assert_array_equal(y.count, [0, 1, 2, 5])
    for x, one, total in zip(VECTORS, y.exact(), z, strict=True):
        want = js.run(m, [x])
        np.testing.assert_allclose(one, want["y"], rtol=1e-6)
        np.testing.assert_allclose(total, want["z"])


# bounds and what passes them ----------------------------------------------------------------------


def test_padded_of_several_axes():
    m = graph(MATRIX["rows and columns"].split(" y = ")[0], "c", "N, M", CONSTANTS)
    y = js.to_jax(m, bounded=True)(MATRICES[2])
    assert y.axis == (0, 1) and [int(c) for c in y.count] == [2, 2]
    np.testing.assert_array_equal(y.exact(), [[1, 2], [3, 0]])
    np.testing.assert_array_equal(y.array[2:], [[0, 0]])
    assert len(jax.tree.leaves(y)) == 4


def test_a_bound_of_the_caller():
    m = graph("y = Exp (s) z = ReduceSum (s) k = Cast <to = 9> (z)", "y z k n")
    f = jax.jit(js.to_jax(m, bounded={"s": 2}))
    y, z, k, n = f(VECTORS[2])
    assert y.array.shape == (2,) and not y.overflow and not k.overflow and k.axis == ()
    np.testing.assert_allclose(y.exact(), np.exp([1, 2]), rtol=1e-6)
    np.testing.assert_array_equal(z, [3])
    np.testing.assert_array_equal(n, [2])
    assert k.exact()
    y, z, k, n = f(VECTORS[3])  # five
    assert y.overflow and int(y.count) == 2 and np.isnan(z).all() and k.overflow
    assert int(n[0]) == np.iinfo(n.dtype).min
    with pytest.raises(js.ExecutionError, match="raise the bound"):
        y.exact()


def test_an_integer_that_decides_a_size():
    m = graph("r = ReduceMax (x) c = Cast <to = 7> (r) y, i = TopK (x, c)", head=CONSTANTS)
    with pytest.raises(js.UnsupportedError, match=r"TopK.*bounded=\{'c': ...\}"):
        js.to_jax(m, bounded=True)(VECTORS[1])
    f = jax.jit(js.to_jax(m, bounded={"c": 4}))
    for x in VECTORS[:3]:
        np.testing.assert_array_equal(f(x).exact(), js.run(m, [x])["y"])
    assert f(VECTORS[3]).overflow and not f(VECTORS[2]).overflow


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("a = Greater (x, f2) b = Compress (x, a) y = Add (b, s) z = ReduceSum (y)", 2),
        ("a = Greater (x, f2) b = Compress (x, a) y = MatMul (b, s) z = Neg (y)", 2),
        ("k = Constant <value = int64[1] {2}> () y, i = TopK (s, k) z = Neg (y)", 1),
    ],
)
def test_what_the_model_demands_of_counts(body, wrong):
    m = graph(body, "z")
    f = jax.jit(js.to_jax(m, bounded=True))
    with pytest.raises(js.JaxshapeError):
        js.run(m, [VECTORS[wrong]])
    assert np.isnan(f(VECTORS[wrong])).all()


@pytest.mark.parametrize(
    ("bounded", "error", "text"),
    [
        ({"nobody": 3}, js.UnknownValueError, "no value 'nobody'"),
        ({"s": -1}, js.UnsupportedError, "wants an int >= 0"),
        ({"s": True}, js.UnsupportedError, "wants an int >= 0"),
        ({"m": 3}, js.UnknownValueError, "of which no size depends on data"),
    ],
)
def test_bounds_that_mean_nothing(bounded, error, text):
    with pytest.raises(error, match=text):
        js.to_jax(graph("y = Neg (s)"), bounded=bounded)(VECTORS[0])


def test_what_has_no_rule_is_named():
    m = graph("u = Unsqueeze (s, v0) w = Unsqueeze (u, v0) y = MaxPool <kernel_shape = [2]> (w)")
    with pytest.raises(js.UnsupportedError, match=r"MaxPool -> y.*reduce_window_max"):
        js.to_jax(m, bounded=True)(VECTORS[3])
    with pytest.raises(js.UnsupportedError, match="bounded=True"):
        js.to_jax(m)(VECTORS[3])


@pytest.mark.parametrize("wide", [False, True])
def test_follows_the_callers_precision(wide):
    m = graph("i = NonZero (m) y = Exp (s)", "y i")
    with jax.enable_x64(wide):
        y, i = js.to_jax(m, bounded=True)(VECTORS[2])
        assert i.array.dtype == (np.int64 if wide else np.int32)
        np.testing.assert_array_equal(i.exact(), [[0, 2]])


def test_parameters_under_grad_and_other_precision():
    m = model("""g (float[N] x) => (float[c, 2] y) <float[2] w = {2, 2}> {
        z = Constant <value = float {0}> ()
        one = Constant <value = int64[1] {1}> ()
        m = Greater (x, z)
        s = Compress (x, m)
        l = Log (s)
        u = Unsqueeze (l, one)
        y = Div (w, u)
    }""")
    f = js.to_jax(m, bounded=True)
    x = np.array([2, 0, 4], np.float32)
    got = jax.grad(lambda f: f(x).array.sum())(f).params["w"]
    np.testing.assert_allclose(got, [1 / np.log(2) + 1 / np.log(4)] * 2, rtol=1e-6)
    y = js.to_jax(m, bounded=True, dtype="bfloat16")(x)
    assert y.array.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.exact().astype(np.float32)[:, 0], [2.89, 1.44], rtol=1e-2)


def test_bounds_need_sizes():
    f = js.to_jax(graph("y = Neg (s)"), bounded=True)
    with pytest.raises(js.UnsupportedError, match="bounds are numbers"):
        f.export()
    found: Any = f.export({"x": (5,)}).call(VECTORS[2])
    np.testing.assert_array_equal(found["array"][: found["count"]], [-1, -2])


def test_bounds_inside_of_branches():
    m = graph("""r = ReduceSum <keepdims = 0> (x) c = Greater (r, f2) [pick] y = If (c) <
        then_branch = t () => (float[p] a) { k = Greater (x, f2) a = Compress (x, k) },
        else_branch = e () => (float[r] b) { b = Neg (s) }>""")
    f = jax.jit(js.to_jax(m, bounded={"pick/then_branch/a": 2, "s": 2}))
    assert f(VECTORS[1]).array.shape == (2,)
    assert not f(VECTORS[1]).overflow and f(VECTORS[3]).overflow


def test_boxes_that_were_chosen_before():
    m = model("""g (float[n, 4] b, float[n] s) => (int64[c, 3] y) {
        low = Constant <value = float {0.2}> ()
        v0 = Constant <value = int64[1] {0}> ()
        both = Constant <value = int64[2] {0, 1}> ()
        m = Greater (s, low)
        some = Compress <axis = 0> (b, m)
        scored = Compress <axis = 0> (s, m)
        boxes = Unsqueeze (some, v0)
        scores = Unsqueeze (scored, both)
        most = Constant <value = int64[1] {9223372036854775807}> ()
        iou = Constant <value = float[1] {0.5}> ()
        y = NonMaxSuppression (boxes, scores, most, iou)
    }""")
    f = jax.jit(js.to_jax(m, bounded=True))
    rng = np.random.default_rng(0)
    for scored in (0, 1, 4, 7):
        corner = rng.uniform(0, 1.5, (7, 2))
        b = np.concatenate([corner, corner + rng.uniform(0.2, 1.5, (7, 2))], -1).astype(np.float32)
        s = np.where(np.arange(7) < scored, rng.uniform(0.3, 1, 7), 0).astype(np.float32)
        np.testing.assert_array_equal(f(b, s).exact(), js.run(m, [b, s])["y"])


def test_a_number_spread_to_a_bounded_count():
    """What PyTorch makes of `x[x > 0] = 1.5`: as many numbers as a sum counts."""
    m = model("""g (float[N] x) => (float[N] y)
    <float zero = {0}, float put = {1.5}, int64[1] flat = {-1}> {
        c = Greater (x, zero)
        n = NonZero (c)
        at = Transpose <perm = [1, 0]> (n)
        ones = Cast <to = 7> (c)
        count = ReduceSum (ones)
        values = Expand (put, count)
        made = Reshape (values, flat)
        y = ScatterND (x, at, made)
    }""")
    f = jax.jit(js.to_jax(m, bounded={"count": 4}))
    for x in ([-1, 2, 3, -4], [1, 2, 3, 4], [-1, -2, -3, -4]):
        x = np.array(x, np.float32)
        np.testing.assert_array_equal(f(x), np.where(x > 0, np.float32(1.5), x))
