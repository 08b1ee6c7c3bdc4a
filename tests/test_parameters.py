"""Parameters of a converted model: which they are, freezing, replacing, storing, writing back."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx.checker
import pytest
from builders import model
from onnx import helper, numpy_helper

import jaxshape as js

LAYERS = """g (float[N, 2] x) => (float[N, 1] y)
<float[2, 3] a_w = {1, 2, 3, 4, 5, 6}, float[3] a_b = {1, 1, 1}, float[3, 1] b_w = {1, 2, 3}> {
    h = MatMul (x, a_w)
    k = Add (h, a_b)
    y = MatMul (k, b_w)
}"""
X = np.ones((1, 2), np.float32)


# which they are -----------------------------------------------------------------------------------

HEAD = "g (float[N, 4, 4] x) => (float[p, q, r, s] y)"
STATIC = {  # stored tensors that decide sizes, though no static input is one of them
    "computed scales": """<float[2] ones = {1, 1}, float[2] twice = {2, 2}> {
        axes = Constant <value_ints = [1]> ()
        u = Unsqueeze (x, axes)
        scales = Concat <axis = 0> (ones, twice)
        y = Resize <mode = "nearest"> (u, , scales)
    }""",
    "times a size": """<float[2] half = {2.0, 2.0}> {
        axes = Constant <value_ints = [1]> ()
        u = Unsqueeze (x, axes)
        s = Shape <start = 1> (x)
        f = Cast <to = 1> (s)
        g = Mul (f, half)
        n = Cast <to = 7> (g)
        head = Shape <start = 0, end = 2> (u)
        size = Concat <axis = 0> (head, n)
        y = Resize <mode = "nearest"> (u, , , size)
    }""",
}


@pytest.mark.parametrize("body", STATIC.values(), ids=STATIC)
def test_what_decides_a_size_is_no_parameter(body):
    f = js.to_jax(model(HEAD + body))
    assert not f.params
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    y = jax.jit(f)(x)
    assert y.shape == (1, 1, 8, 8)
    np.testing.assert_array_equal(y[0, 0], x[0].repeat(2, 0).repeat(2, 1))


def test_inside_of_a_function_too():
    f = js.to_jax(
        model("""<ir_version: 10, opset_import: ["": 20, "my": 1]>
    g (float[N, 4] x) => (float[a, b] y) <float[2] sizes = {-1, 2}, float[4] w = {1, 2, 3, 4}> {
        y = my.as (x, sizes, w)
    }
    <opset_import: ["": 20], domain: "my">
    as (x, sizes, w) => (y) {
        s = Cast <to = 7> (sizes)
        m = Mul (x, w)
        y = Reshape (m, s)
    }""")
    )
    assert list(f.params) == ["w"]
    np.testing.assert_array_equal(jax.jit(f)(np.ones((1, 4), np.float32)), [[1, 2], [3, 4]])


def test_data_on_the_way_leaves_the_weights_trainable():
    """A condition on data depends on weights, and is static, but cannot be known."""
    f = js.to_jax(
        model("""g (float[N, 2] x) => (float[N, 2] y) 
        <float[2, 2] w = {1, 0, 0, 1}, float z = {0}> {
        h = MatMul (x, w)
        s = ReduceSum <keepdims = 0> (h)
        c = Greater (s, z)
        y = If (c) <then_branch = t () => (float[N, 2] p) { p = Neg (h) },
                    else_branch = e () => (float[N, 2] q) { q = Exp (h) }>
    }""")
    )
    assert list(f.params) == ["w"]
    np.testing.assert_array_equal(jax.jit(f)(X), [[-1, -1]])


def test_names_are_unique():
    f = js.to_jax(
        model("""g (float[N] x, bool c) => (float[N] y) <float[2] b = {1, 2}> {
        h = Add (x, b)
        [pick] y = If (c) <
            then_branch = t () => (float[N] u) <float[2] b1 = {3, 4}> { u = Add (h, b1) },
            else_branch = e () => (float[N] v) <float[2] b1 = {5, 6}> { v = Add (h, b1) }>
    }""")
    )
    assert sorted(f.params) == ["b", "pick/b1", "pick/else_branch/b1"]
    x = np.zeros(2, np.float32)
    for c, name, want in ((True, "pick/b1", [4, 6]), (False, "pick/else_branch/b1", [6, 8])):
        np.testing.assert_array_equal(f(x, np.array(c)), want)
        slope = jax.grad(lambda f, c=c: f(x, np.array(c)).sum())(f).params
        np.testing.assert_array_equal(slope[name], [1, 1])
        assert sum(float(jnp.abs(s).sum()) for s in slope.values()) == 4


# freezing -----------------------------------------------------------------------------------------

FREEZE = [
    ("a_*", {"b_w"}),
    (["*_w"], {"a_b"}),
    (["a_w", "*_b"], {"b_w"}),
    (lambda name: name.endswith("b"), {"a_w", "b_w"}),
    (lambda name: True, set()),
    ((), {"a_w", "a_b", "b_w"}),
]


@pytest.mark.parametrize("freeze, left", FREEZE)
def test_frozen_parameters_are_no_leaves(freeze, left):
    f, whole = js.to_jax(model(LAYERS), freeze=freeze), js.to_jax(model(LAYERS))
    assert set(f.params) == left and set(f.buffers) == {"a_w", "a_b", "b_w"} - left
    np.testing.assert_array_equal(f(X), whole(X))
    ours, theirs = (jax.jit(jax.grad(lambda f: f(X).sum()))(g).params for g in (f, whole))
    assert set(ours) == left
    for name in left:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_frozen_ones_have_the_asked_dtype():
    f = js.to_jax(model(LAYERS), freeze="a_*", dtype="bfloat16")
    assert {v.dtype.name for v in f.buffers.values()} == {"bfloat16"}
    assert f(X).dtype == jnp.bfloat16


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(js.UnknownValueError, match=r"'encoder.\*' matches no parameter; .* a_w"):
        js.to_jax(model(LAYERS), freeze="encoder.*")


# replacing and storing ----------------------------------------------------------------------------


def test_replace_checks_names_and_shapes():
    f = js.to_jax(model(LAYERS))
    doubled = f.replace({"a_w": 2 * f.params["a_w"]})
    np.testing.assert_array_equal(doubled(X), f(X) + 5 * 1 + 7 * 2 + 9 * 3)
    np.testing.assert_array_equal(f.replace({})(X), f(X))
    for same in (f.replace(doubled)(X), f.apply(doubled, X)):
        np.testing.assert_array_equal(same, doubled(X))
    for params, error, text in (
        ({"c": X}, js.UnknownValueError, "no parameter 'c'; it has a_w, a_b, b_w"),
        ({"a_b": X}, js.ShapeError, r"'a_b' has shape \(1, 2\), wants \(3,\)"),
        ({"a_b": np.array([1, 2, 3], np.int32)}, js.ShapeError, "'a_b' is int32, wants a float"),
    ):
        with pytest.raises(error, match=text):
            f.replace(params)


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
def test_saved_and_loaded_parameters_are_the_same(tmp_path, dtype):
    f = js.to_jax(model(LAYERS), dtype=dtype)
    path = tmp_path / "weights.safetensors"
    js.save_params(f, path)
    js.save_params(f.params, tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    loaded = js.load_params(path)
    assert set(loaded) == set(f.params)
    for name, array in loaded.items():
        assert array.dtype == f.params[name].dtype
        np.testing.assert_array_equal(array, f.params[name])
    zero = f.replace({n: jnp.zeros_like(v) for n, v in f.params.items()})
    np.testing.assert_array_equal(zero.replace(loaded)(X), f(X))


def test_orbax_takes_a_conversion_as_any_pytree(tmp_path):
    import orbax.checkpoint as ocp

    net = model(LAYERS)
    for i, name in enumerate(["/enc/layer.0/w:0", "b 0"]):  # as exporters name them
        net.graph.initializer[i].name = net.graph.node[i].input[1] = name
    f = js.to_jax(net)
    zero = jax.tree.map(jnp.zeros_like, f)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "dict", f.params)
        checkpointer.save(tmp_path / "model", f)
        checkpointer.wait_until_finished()
        params = checkpointer.restore(tmp_path / "dict", zero.params)
        restored = checkpointer.restore(tmp_path / "model", zero)
    assert set(params) == {"/enc/layer.0/w:0", "b 0", "b_w"}
    np.testing.assert_array_equal(zero.replace(params)(X), f(X))
    np.testing.assert_array_equal(restored(X), f(X))


# writing back -------------------------------------------------------------------------------------


def scaled(f, by=2):
    return f.replace({n: by * v for n, v in f.params.items()})


def test_no_proper_file_of_parameters(tmp_path):
    (tmp_path / "text").write_text("no weights at all")
    with pytest.raises(js.ModelError, match="text is no safetensors file"):
        js.load_params(tmp_path / "text")
    with pytest.raises(OSError, match="cannot write"):
        js.save_params({"w": X}, tmp_path / "no" / "folder")


def test_to_onnx_has_the_parameters():
    """Of initializers (raw and not), Constant nodes, and those inside of branches."""
    proto = model("""g (float[N, 2] x, bool c) => (float[N, 2] y) <float[2] b = {1, 2}> {
        w = Constant <value = float[2] {1, 2}> ()
        k = Constant <value_floats = [1.0, 3.0]> ()
        h = Mul (x, w)
        i = Add (h, b)
        j = Mul (i, k)
        [pick] y = If (c) <
            then_branch = t () => (float[N, 2] u) <float[2] d = {3, 4}> { u = Add (j, d) },
            else_branch = e () => (float[N, 2] v) <float[2] d = {5, 6}> { v = Mul (j, d) }>
    }""")
    raw = numpy_helper.from_array(np.array([[1, 2]], np.float16), "unused")
    proto.graph.initializer.append(raw)
    before = proto.SerializeToString()
    f = js.to_jax(proto)
    trained = scaled(f)
    written = trained.to_onnx()
    onnx.checker.check_model(written, full_check=True)
    assert proto.SerializeToString() == before
    for c in (True, False):
        given = {"x": X, "c": np.array(c)}
        y = js.run(written, given)["y"]
        np.testing.assert_array_equal(y, trained(**given))
        same = js.run(f.to_onnx(), given)["y"]
        np.testing.assert_array_equal(same, js.run(proto, given)["y"])
        assert not np.array_equal(y, same)


def test_to_onnx_of_sparse_and_external_weights(tmp_path):
    proto = model("g (float[N, 2] x) => (float[N, 2] y) { h = MatMul (x, s) y = Add (h, e) }")
    values = helper.make_tensor("s", 1, [2], [1.0, 2.0])
    indices = helper.make_tensor("i", 7, [2], [0, 3])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 2]))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([5, 6], np.float32), "e"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    f = scaled(js.to_jax(str(path)))
    written = f.to_onnx()
    np.testing.assert_array_equal(js.run(written, [X])["y"], [[12, 16]])
    np.testing.assert_array_equal(f(X), [[12, 16]])


def test_to_onnx_keeps_the_files_dtypes():
    f = js.to_jax(model(LAYERS), dtype="bfloat16", freeze="b_*")
    written = scaled(f).to_onnx()
    arrays = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
    assert {a.dtype.name for a in arrays.values()} == {"float32"}
    np.testing.assert_array_equal(arrays["a_b"], [2, 2, 2])
    np.testing.assert_array_equal(arrays["b_w"], [[1], [2], [3]])
