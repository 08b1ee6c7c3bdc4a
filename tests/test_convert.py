"""Conversion: parameters, calls, control flow and precision of a model as a JAX function."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import model

import jaxshape as js

LINEAR = "g (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, 2}> { y = MatMul (x, w) }"
X = np.ones((3, 2), np.float32)


def test_parameters_are_the_leaves():
    f = js.to_jax(model(LINEAR))
    assert list(f.params) == ["w"] and f.input_names == ("x",) and f.output_names == ("y",)
    assert jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(f)[0][0]) == ".params['w']"
    leaves, tree = jax.tree.flatten(f)
    assert len(leaves) == 1
    doubled = jax.tree.unflatten(tree, [2 * leaf for leaf in leaves])
    np.testing.assert_array_equal(doubled(X), 2 * f(X))
    stepped = jax.tree.map(lambda p, g: p - 0.1 * g, f, jax.grad(lambda f: f(X).sum())(f))
    np.testing.assert_allclose(stepped.params["w"], [[0.7], [1.7]], rtol=1e-6)


def test_parameters_in_constant_nodes_and_subgraphs():
    f = js.to_jax(
        model("""g (float[N, 2] x, bool c) => (float[N, 2] y) {
        w = Constant <value = float[2] {1, 2}> ()
        h = Mul (x, w)
        [pick] y = If (c) <
            then_branch = t () => (float[N, 2] u) <float[2] b = {3, 4}> { u = Add (h, b) },
            else_branch = e () => (float[N, 2] v) { v = Neg (h) }>
    }""")
    )
    assert sorted(f.params) == ["pick/b", "w"]
    np.testing.assert_array_equal(f(X, np.array(True)), [[4, 6]] * 3)
    np.testing.assert_array_equal(f(X, np.array(False)), [[-1, -2]] * 3)
    slope = jax.jit(jax.grad(lambda f, c: f(X, c).sum()))
    np.testing.assert_array_equal(slope(f, True).params["pick/b"], [3, 3])
    np.testing.assert_array_equal(slope(f, False).params["w"], [-3, -3])


def test_inputs_by_position_or_name():
    f = js.to_jax(
        model("""g (float[N] a, float[N] b) => (float[N] y, float[N] z) {
        y = Sub (a, b)
        z = Add (a, b)
    }""")
    )
    a, b = np.array([3], np.float32), np.array([1], np.float32)
    for y, z in (f(a, b), f(a, b=b), f(b=b, a=a)):
        assert (float(y[0]), float(z[0])) == (2, 4)
    for args, kwargs, text in (
        ((a,), {}, "inputs are missing: b"),
        ((a, b, a), {}, "3 inputs given, the model takes 2"),
        ((a,), {"a": a}, "given twice"),
        ((a, b), {"c": a}, "no input 'c'"),
        ((a, None), {}, "inputs are missing: b"),
    ):
        with pytest.raises(js.UnknownValueError, match=text):
            f(*args, **kwargs)
    for other in ([1.0], object()):
        with pytest.raises(js.ShapeError, match="'b' is of type .*, wants an array of float32"):
            f(a, other)
    with pytest.raises(js.UnknownValueError, match="a mapping, not list"):
        f.apply([a], a, b)  # pyright: ignore[reportArgumentType]
    with pytest.raises(js.UnknownValueError, match="parameters are missing: w"):
        js.to_jax(model(LINEAR)).apply({}, X)


def test_text_is_refused_with_the_input():
    f = js.to_jax(
        model("""g (string[N] words, float[N] x) => (float[N] y) {
        s = Equal (words, words)
        f = Cast <to = 1> (s)
        y = Add (f, x)
    }""")
    )
    x = np.ones(2, np.float32)
    with pytest.raises(js.UnsupportedError, match="input 'words' is text"):
        f(np.array(["a", "b"]), x)
    g = js.to_jax(f.model, inputs=["f", "x"])
    np.testing.assert_array_equal(g(x, x), [2, 2])


ML = '<ir_version: 10, opset_import: ["": 20, "ai.onnx.ml": 2]>'
CODED = f"""{ML} g (int64[N] x) => (string[N] y) {{
    t = ai.onnx.ml.LabelEncoder <keys_int64s = [1, 2], values_strings = ["a", "b"]> (x)
    y = Identity (t)
}}"""
MADE_TEXT = {  # text that depends on data: what is said of it, nothing where it is but an output
    "Cast": ("g (int64[N] x) => (string[N] y) { y = Cast <to = 8> (x) }", None),
    "LabelEncoder": (CODED, None),
    "back": (
        "g (int64[N] x) => (int64[N] y) { t = Cast <to = 8> (x) y = Cast <to = 7> (t) }",
        "'t' has no value: .* text that depends on data; JAX does not have text: use jaxshape.run",
    ),
    "Gather": (
        'g (int64[N] x) => (string[N] y) <string[3] t = {"a", "b", "c"}> { y = Gather (t, x) }',
        r"Gather -> y \(Gather, .*takes text together with data: JAX does not have text",
    ),
}


@pytest.mark.parametrize(("graph", "error"), MADE_TEXT.values(), ids=MADE_TEXT)
def test_text_that_depends_on_data(graph, error):
    x = np.array([1, 2])
    (y,) = js.run(model(graph), [x]).values()
    assert y.shape == (2,)
    for call in (js.to_jax(model(graph)), jax.jit(js.to_jax(model(graph), bounded=True))):
        if error is None:
            assert call(x) is None
        else:
            with pytest.raises(js.UnsupportedError, match=error):
                call(x)


@pytest.mark.parametrize("other", [np.uint8, np.bool_, np.complex64])
def test_an_input_of_another_kind(other):
    """Its precision follows the caller, its kind does not."""
    f = js.to_jax(model(LINEAR))
    assert f(X.astype(np.float64)).shape == (3, 1)
    for given in (X.astype(other), jnp.asarray(X.astype(other))):
        with pytest.raises(js.ShapeError, match="'x' has dtype .*, wants float32"):
            f(given)
    with pytest.raises(js.ShapeError, match="wants float32"):
        jax.jit(f)(X.astype(other))


def test_shapes_used_statically_are_no_parameters():
    f = js.to_jax(
        model("""g (float[N, 4, 4] x) => (float[a, b, c, d] y) <float[4] s = {1, 1, 2, 2}> {
        axes = Constant <value = int64[1] {1}> ()
        u = Unsqueeze (x, axes)
        y = Resize <mode = "nearest"> (u, , s)
    }""")
    )
    assert not f.params
    assert jax.jit(lambda x: f(x))(np.ones((1, 4, 4), np.float32)).shape == (1, 1, 8, 8)


SIZED = {  # what decides the size of y, from an input n
    "itself": "y = Slice (x, zero, n)",
    "computed": "m = Mul (n, one) k = Add (m, zero) y = Slice (x, zero, k)",
    "of the result": "s = ReduceSum <keepdims = 1> (x) y = Expand (s, n)",
}


@pytest.mark.parametrize("body", SIZED.values(), ids=SIZED)
def test_known_inputs_may_decide_sizes(body):
    """As NumPy arrays, anywhere; as data of JAX they are refused."""
    f = js.to_jax(
        model(f"""g (float[N] x, int64[1] n) => (float[M] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{ {body} }}""")
    )
    x = np.arange(1, 13, dtype=np.float32)
    for size in (*range(1, 11), 1):
        n = np.array([size])
        want = js.run(f.model, {"x": x, "n": n})["y"]
        assert want.shape == (size,)
        np.testing.assert_array_equal(f(x, n), want)
    np.testing.assert_array_equal(jax.jit(lambda x: f(x, n))(x), want)
    assert jax.grad(lambda x: f(x, n).sum())(jnp.asarray(x))[0] == 1
    assert jax.vmap(lambda x: f(x, n))(np.stack([x, x])).shape == (2, 1)
    for call in (f, jax.jit(f)):
        with pytest.raises(js.UnsupportedError, match="must be known beforehand"):
            call(x, jnp.array([2]))


# a decoder in one file: with a cache, and without
MERGED = """g (float[S, 2] x, float[P, 2] past, bool[1] cached) => (float[T, 2] y) {
    CONDITION
    y = If (c) <
        then_branch = t () => (float[T, 2] u) { u = Concat <axis = 0> (past, x) },
        else_branch = e () => (float[S, 2] v) { v = Neg (x) }>
}"""


@pytest.mark.parametrize("condition", ["c = Identity (cached)", "n = Not (cached) c = Not (n)"])
def test_a_known_bool_picks_the_branch(condition):
    f = js.to_jax(model(MERGED.replace("CONDITION", condition)))
    x, past = np.ones((1, 2), np.float32), np.zeros((2, 2), np.float32)
    for cached, n in ((True, 3), (False, 1), (True, 3)):
        for flag in (np.array([cached]), cached):
            assert f(x, past, flag).shape == (n, 2)
            assert jax.jit(lambda x, p, flag=flag: f(x, p, flag))(x, past).shape == (n, 2)
            assert jax.vmap(lambda x, flag=flag: f(x, past, flag))(x[None]).shape == (1, n, 2)
    for call in (f, jax.jit(f)):
        with pytest.raises(js.UnsupportedError, match="give it as a NumPy array that is no argum"):
            call(x, past, jnp.array([True]))


def test_numbers_of_python():
    f = js.to_jax(model("g (float x, int64 n) => (float y, int64 m) { y = Exp (x) m = Neg (n) }"))
    y, m = f(0, 3)
    assert (float(y), y.dtype, int(m)) == (1, np.float32, -3)
    assert float(f(0.0, True + 1)[0]) == 1
    for args in ((True, 3), (0.0, 2.5), (1j, 3), (0.0, True)):
        with pytest.raises(js.ShapeError, match="has dtype .*, wants"):
            f(*args)


LOOP = """g (float[N] x, int64 n) => (float[N] y) {
    yes = Constant <value = bool {1}> ()
    y = Loop (TRIPS, yes, x) <body = b (int64 i, bool c, float[N] v) => (bool d, float[N] w) {
        d = Identity (c)
        w = Mul (v, v)
    }>
}"""


def test_loop_of_known_length_differentiates():
    head = "g (float[N] x) => (float[N] y) <int64 m = {3}> {"
    f = js.to_jax(model(head + LOOP.split("{", 1)[1].replace("TRIPS", "m")))
    x = jnp.array([1.1, 0.9], np.float32)
    np.testing.assert_allclose(jax.jit(f)(x), x**8, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: f(x).sum())(x), 8 * x**7, rtol=1e-5)


def test_loop_of_traced_length_runs_under_jit():
    f = js.to_jax(model(LOOP.replace("TRIPS", "n")))
    x = jnp.array([1.1, 0.9], np.float32)
    run = jax.jit(lambda x, n: f(x, n))
    for n in (0, 1, 3):
        np.testing.assert_allclose(run(x, n), x ** (2**n), rtol=1e-5)


BODY = "(int64 i, bool c, float[2] v) => (bool d, float[2] w)"
FROM_OUTSIDE = {  # loops that start from known numbers; what their bodies take from outside is data
    "a few rounds": f"""{{
        n = Constant <value_int = 3> ()
        y = Loop (n, , start) <body = b {BODY} {{
            d = Identity (c)
            w = Add (v, x)
        }}>
    }}""",
    "many rounds": f"""{{
        n = Constant <value_int = 30> ()
        y = Loop (n, , start) <body = b {BODY} {{
            d = Identity (c)
            w = Add (v, x)
        }}>
    }}""",
    "until data says so": f"""{{
        n = Constant <value_int = 30> ()
        y = Loop (n, , start) <body = b {BODY} {{
            w = Add (v, x)
            s = ReduceMax <keepdims = 0> (w)
            d = Less (s, five)
        }}>
    }}""",
    "no carry": """{
        n = Constant <value_int = 3> ()
        rows = Loop (n, ) <body = b (int64 i, bool c) => (bool d, float[2] w) {
            d = Identity (c)
            f = Cast <to = 1> (i)
            w = Mul (f, x)
        }>
        y = ReduceSum <keepdims = 0> (rows, first)
    }""",
    "Scan": """{
        y, rows = Scan (start, steps) <num_scan_inputs = 1, body = b (float[2] v, float t)
            => (float[2] w, float[2] u) {
            w = Mul (x, t)
            u = Add (v, w)
        }>
    }""",
}


@pytest.mark.parametrize("body", FROM_OUTSIDE.values(), ids=FROM_OUTSIDE)
def test_loops_over_known_numbers_that_use_data(body):
    proto = model(f"""g (float[2] x) => (float[2] y)
    <float[2] start = {{0, 1}}, float five = {{5}}, int64[1] first = {{0}}, int64[1] k = {{3}}> {{
        steps = ConstantOfShape <value = float[1] {{2}}> (k) {body[1:]}""")
    f = js.to_jax(proto, freeze=lambda name: True)
    x = jnp.array([1.0, 2.0])
    want = js.run(proto, [np.asarray(x)])["y"]
    np.testing.assert_allclose(jax.jit(f)(x), want, rtol=1e-6)
    assert (jax.grad(lambda x: f(x).sum())(x) > 0).all()


def test_sizes_that_depend_on_data_are_refused_with_the_node():
    f = js.to_jax(model("g (float[N] x) => (int64[a, b] y) { [find] y = NonZero (x) }"))
    np.testing.assert_array_equal(js.run(f.model, {"x": np.array([0, 1], np.float32)})["y"], [[1]])
    with pytest.raises(js.UnsupportedError, match=r"find \(NonZero"):
        f(np.array([0, 1], np.float32))


def test_what_nobody_uses_is_not_computed():
    f = js.to_jax(
        model("""g (float[N] x, bool c) => (float[N] y) {
        h = Neg (x)
        n = NonZero (h)
        y = If (c) <
            then_branch = t () => (float[N] u) { p = NonZero (h)  u = Identity (h) },
            else_branch = e () => (float[N] v) { q = NonZero (x)  v = Neg (h) }>
    }""")
    )
    x = np.array([0, 1], np.float32)
    np.testing.assert_array_equal(jax.jit(f)(x, True), -x)
    np.testing.assert_array_equal(jax.grad(lambda x: f(x, True).sum())(x), [-1, -1])


FAR = """g (float[N, 2] x) => (float[a, b] y, int64 s) {
    e = Constant <value = int64[1] {9223372036854775807}> ()
    z = Constant <value = int64[1] {0}> ()
    y = Slice (x, z, e)
    s = Size (x)
}"""


@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)])
def test_follows_the_callers_precision_in_any_order(order):
    f = js.to_jax(model(FAR))
    for wide in order:
        with jax.enable_x64(wide), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y, s = jax.jit(lambda x: f(x))(X)
            assert y.shape == (3, 2) and int(s) == 6
            assert s.dtype == (np.int64 if wide else np.int32)
            gradient = jax.grad(lambda x: f(x)[0].sum())(jnp.asarray(X))
            np.testing.assert_array_equal(gradient, np.ones((3, 2)))
        assert js.run(f.model, {"x": X})["s"].dtype == np.int64


@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [("double", {}), ("double", {"freeze": "*"}), ("float", {"dtype": "float64"})],
)
def test_parameters_of_64_bits_follow_the_caller_in_any_order(kind, options, order):
    """Whatever the setting was under which the model was converted, and its input made."""
    m = model(f"""g ({kind}[N, 2] x) => ({kind}[N, 2] y)
    <{kind}[2] w = {{1, 2}}, {kind} s = {{0.5}}> {{
        h = Mul (x, w)  q = Mul (h, s)
        k = Constant <value = {kind}[2] {{1, 2}}> ()
        y = Add (q, k)
    }}""")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.enable_x64(order[0]):
            f, x = js.to_jax(m, **options), np.ones((3, 2))
            x = jnp.asarray(x) if order[0] else x
        for wide in order:
            with jax.enable_x64(wide):
                for y in (f(x), jax.jit(lambda f, x: f(x))(f, x), jax.vmap(f)(x[:, None])[:, 0]):
                    assert y.dtype == (np.float64 if wide else np.float32)
                    np.testing.assert_array_equal(y, [[1.5, 3]] * 3)
                gradient = jax.grad(lambda f: f(x).sum())(f)
                for name, slope in gradient.params.items():
                    np.testing.assert_array_equal(slope, [{"w": 1.5, "k": 3}[name]] * 2)


def test_what_32_bits_lose_saturates_and_is_told_once():
    """int64 beyond int32 and float64, in several constants of each: one warning a compilation."""
    f = js.to_jax(
        model("""g (int64[N] x) => (int64[N] y, double[N] z)
        <int64 big = {9223372036854775807}, int64 low = {-9223372036854775808},
         double half = {0.5}, double third = {0.3}> {
        small = Min (x, big)
        y = Max (small, low)
        d = Cast <to = 11> (x)
        h = Mul (d, half)
        z = Add (h, third)
    }""")
    )
    x = np.array([5, -7])
    with jax.enable_x64(False):
        with pytest.warns(js.JaxshapeWarning) as told:
            y, z = f(x)
        assert len(told) == 1 and "int64" in str(told[0].message), told
        assert "float64 becomes float32" in str(told[0].message)
        np.testing.assert_array_equal(y, [5, -7])
        np.testing.assert_allclose(z, [2.8, -3.2], rtol=1e-6)
        np.testing.assert_array_equal(f(x)[0], [5, -7])  # compiled: nothing more to tell
    with jax.enable_x64(True):
        y, z = f(x)
        assert (y.dtype, z.dtype) == (np.int64, np.float64)
        np.testing.assert_array_equal(z, [2.8, -3.2])
