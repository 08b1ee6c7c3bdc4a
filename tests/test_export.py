"""Exported models: symbolic sizes, what is required of them, and calls from any process."""

import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from builders import model, node
from export_rows import ROWS, SIZES, F, ints, ones

import jaxshape as js

rng = np.random.default_rng(0)


def drawn(f: js.JaxModel, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs at these sizes: floats of both signs, small integers."""
    feed = {}
    for name, t in js.trace(f.model).at(**sizes).inputs.items():
        normal = t.dtype.kind == "f"
        draw = rng.standard_normal(t.shape) if normal else rng.integers(0, 2, t.shape)
        feed[name] = np.asarray(draw).astype(t.dtype)
    return feed


def check(proto, *several: dict[str, int], **how) -> jax.export.Exported:
    """Export a model, reload it, compare it with `run` at several sizes."""
    f = js.to_jax(proto)
    kept = jax.export.deserialize(f.export(x64=True, **how).serialize())
    with jax.enable_x64(True):
        for sizes in several:
            feed = drawn(f, sizes)
            wanted = js.run(f.model, feed)
            found = kept.call(*feed.values())
            found = found if isinstance(found, (list, tuple)) else [found]
            for (name, y), z in zip(wanted.items(), found, strict=True):
                assert (z.dtype, z.shape) == (y.dtype, y.shape), (name, sizes)
                np.testing.assert_allclose(z, y, 2e-5, 2e-6, err_msg=f"{name} at {sizes}")
    return kept


@pytest.mark.parametrize("name", ROWS)
def test_calls_at_several_sizes_equal_run(name):
    proto, sizes = ROWS[name]
    if isinstance(sizes, str):
        check(proto, *({n: several[n] for n in sizes.split()} for several in SIZES))
    else:
        check(proto, *sizes)


POOLED = """g (float[N, 3, H, W] x) => (float[a, b, c, d] y) <float[4] s = {1, 1, 4, 4}> {
    p = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (x)
    u = Resize <mode = "nearest"> (p, , s)
    y = Add (u, x)
}"""


def test_congruences_become_multiples():
    f = js.to_jax(model(POOLED))
    exported = f.export({"x": ("batch", 3, "h", "w")}, requirements=["w % 6 == 0", "w <= 24"])
    assert exported.in_avals[0].str_short() == "float32[batch,3,4*h_4,12*w_12]"
    kept = jax.export.deserialize(exported.serialize())
    for shape in ((2, 3, 4, 24), (1, 3, 64, 12)):
        x = rng.standard_normal(shape).astype(F)
        for call in (exported.call, kept.call, jax.jit(kept.call)):
            np.testing.assert_array_equal(call(x), js.run(f.model, {"x": x})["y"])
    for bad in ((2, 3, 63, 12), (2, 3, 64, 8), (2, 3, 64, 36), (2, 4, 64, 12)):
        for call in (exported.call, kept.call):
            with pytest.raises(ValueError):
                call(np.zeros(bad, F))


@pytest.mark.parametrize(
    ("text", "shapes", "requirements", "taken"),
    [
        ("g (float[A, 4] x, float[B, 4] z) => (float[a, b] y) { y = Concat <axis = 1> (x, z) }",
         None, (), "float32[A,4] float32[A,4]"),
        ("g (float[A, B, 2] x) => (float[a, b] y) <int64[2] s = {-1, 6}> { y = Reshape (x, s) }",
         {"x": ("n", 3, 2)}, (), "float32[n,3,2]"),
        ("g (float[past, 2] x, float[total, 2] z) => (float[t, 2] y) {"
         " c = Concat <axis = 0> (x, x) y = Add (c, z) }",
         None, ("total == 2*past",), "float32[past,2] float32[2*past,2]"),
        ("g (float[past, 2] x) => (float[t, 2] y) { y = Relu (x) }",
         {"x": ("past - 1", 2)}, (), "float32[past - 1,2]"),
        ("g (float[?, 2] x) => (float[t, 2] y) { y = Relu (x) }",
         {"x": ("batch size", 2)}, (), "float32[batch_size,2]"),
        ("g (float[max, 2] x, float[mod, 1] z) => (float[t, 2] y) { y = Relu (x) }",
         None, (), "float32[n_max,2] float32[n_mod,1]"),
        ("g (float[N, 2] x) => (float[t, 2] y) { y = Relu (x) }",
         {"x": ("3*n + 1", 2)}, ("n >= 4",), "float32[3*n + 1,2]"),
        ("g (float[N, 2] x) => (float[t, 2] y) { y = Relu (x) }",
         {"x": ("n", 2)}, ("n % 5 == 3",), "float32[5*n_5 - 2,2]"),
        ("g (float[N, 2] x) => (float[t, 2] y) { y = Relu (x) }", {"x": (7, 2)}, (),
         "float32[7,2]"),
    ],
)  # fmt: skip
def test_inputs_are_written_in_free_symbols(text, shapes, requirements, taken):
    exported = js.to_jax(model(text)).export(shapes, requirements=requirements)
    assert " ".join(a.str_short() for a in exported.in_avals) == taken


def test_a_size_may_be_0_where_the_shape_says_so():
    f = js.to_jax(model("g (float[P, 2] x, float[S, 2] z) => (float[t, 2] y) {"
                        " y = Concat <axis = 0> (x, z) }"))  # fmt: skip
    exported = f.export({"x": ("past - 1", 2), "z": ("seq", 2)})
    for past in (0, 3):
        assert exported.call(np.ones((past, 2), F), np.ones((1, 2), F)).shape == (past + 1, 2)


def test_requirements_between_sizes_are_checked_at_each_call():
    text = """g (float[N, D] x, int64[S] z) => (float[a, b] y) <int64 zero = {0}, int64 one = {1}> {
        s = Shape (z)
        n = Squeeze (s)
        r = Range (zero, n, one)
        v, i = TopK <axis = 0> (x, s)
        y = Identity (v)
    }"""
    f = js.to_jax(model(text))
    assert [str(r) for r in js.trace(f.model).requirements] == ["N >= S"]
    kept = jax.export.deserialize(f.export().serialize())
    x, z = rng.standard_normal((4, 3)).astype(F), np.zeros(2, np.int32)
    np.testing.assert_array_equal(kept.call(x, z), np.sort(x, 0)[:1:-1])
    with pytest.raises(ValueError):
        kept.call(x[:1], z)


@pytest.mark.parametrize("params", ["constants", "arguments"])
def test_weights_as_constants_or_arguments(params):
    f = js.to_jax(node("Gemm", "float32[N, 8]", ones(8, 3), ones(3)))
    kept = jax.export.deserialize(f.export(params=params, platforms=("cpu", "cuda")).serialize())
    assert kept.platforms == ("cpu", "cuda")
    x = ones(5, 8)
    if params == "constants":
        np.testing.assert_allclose(kept.call(x), x @ ones(8, 3) + ones(3), 1e-6)
    else:
        halves = jax.tree.map(lambda p: p / 2, f.params)
        found = kept.call(halves, x)
        np.testing.assert_allclose(found, (x @ ones(8, 3) + ones(3)) / 2, 1e-6)


def test_follows_the_callers_precision_or_what_is_said():
    f = js.to_jax(node("Shape", "float64[N, 3]"))
    for x64, wanted in ((None, "f4 i4"), (False, "f4 i4"), (True, "f8 i8")):
        e = f.export(x64=x64)
        assert f"{e.in_avals[0].dtype.str[1:]} {e.out_avals[0].dtype.str[1:]}" == wanted
    with jax.enable_x64(True):
        assert f.export().in_avals[0].dtype == np.float64


def test_an_array_is_a_constant():
    f = js.to_jax(node("Resize", "float32[N, H]", None, None, "int64[2]"))
    with pytest.raises(js.UnsupportedError, match="sizes must be known beforehand"):
        f.export()
    exported = f.export({"x0": (1, "h"), "x3": np.array([1, 6])})
    np.testing.assert_array_equal(exported.call(np.ones((1, 3), F)), np.ones((1, 6)))


@pytest.mark.parametrize(
    ("text", "how", "error", "words"),
    [
        ("g (float[N] x) => (int64[a, b] y) { [find] y = NonZero (x) }", {},
         js.UnsupportedError, r"find \(NonZero, opset \d+\): the size of the result depends on"),
        ("g (float[N] x, float[M] z) => (float[a] y) { [plus] y = Add (x, z) }", {},
         js.UnsupportedError, r"N == M or N == 1 or M == 1 \(wanted by plus\).*=\[.N == M.\]"),
        ("g (string[N] x) => (string[N] y) { y = Identity (x) }", {},
         js.UnsupportedError, r"input x is string\[N\]"),
        ("g (float x) => (float y) { y = Relu (x) }", {"shapes": {"q": ()}},
         js.UnknownValueError, "no input 'q'"),
        ("g (float[N] x) => (float y) { y = Relu (x) }", {"requirements": ["N >= "]},
         ValueError, "N >="),
        ("g (float[N] x) => (float y) { y = Relu (x) }", {"params": "none"},
         ValueError, "'none'"),
        ("g (float[N] x) => (float y) { y = Relu (x) }", {"platforms": ("cpu", "gpu")},
         ValueError, "'gpu', wants one of cpu, cuda, rocm, tpu"),
        ("g (float[N, 3] x, float[4, 5] z) => (float[a, b] y) { [mul] y = MatMul (x, z) }", {},
         js.ShapeError, r"mul \(MatMul"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(text, how, error, words):
    with pytest.raises(error, match=words):
        js.to_jax(model(text)).export(**how)


def test_symbols_of_any_scope():
    f = js.to_jax(model(POOLED))

    def export(shape, *constraints):
        sizes = jax.export.symbolic_shape(shape, constraints=constraints)
        return jax.export.export(jax.jit(lambda x: f(jnp.abs(x))))(jax.ShapeDtypeStruct(sizes, F))

    exported = export("s0, 3, 4*s1, 8*z2", "s1 >= 2")
    x = rng.standard_normal((2, 3, 8, 16)).astype(F)
    np.testing.assert_array_equal(exported.call(x), js.run(f.model, {"x": np.abs(x)})["y"])
    with pytest.raises(js.UnsupportedError, match=r"h % 4 == 0 \(wanted by Add -> y\).*8\*k"):
        export("b, 3, h, w")
    conv = js.to_jax(node("Conv", "float32[N, 1, H]", ones(1, 1, 3)))
    struct = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 1, h"), F)
    with pytest.raises(js.UnsupportedError, match="h >= 3"):
        jax.export.export(jax.jit(conv))(struct)
    assert str(jax.eval_shape(f, jax.ShapeDtypeStruct((1, 3, 8, 8), F)).shape) == "(1, 3, 8, 8)"


def test_transformed_functions_export_too():
    f = js.to_jax(node("Conv", "float32[N, 1, H]", ones(2, 1, 3)))
    sizes = jax.export.symbolic_shape("m, n, h", constraints=["h >= 3"])
    struct = jax.ShapeDtypeStruct((*sizes[:2], 1, sizes[2]), F)
    slope = jax.vmap(jax.grad(lambda x: (f(x) ** 2).sum()))
    exported = jax.export.export(jax.jit(slope))(struct)
    x = rng.standard_normal((2, 3, 1, 5)).astype(F)
    np.testing.assert_allclose(exported.call(x), slope(x), 1e-5, 1e-5)
    assert f.export().vjp is not None


def test_compiles_ahead_of_time():
    f = js.to_jax(node("Gemm", "float32[N, 8]", ones(8, 3), ones(3)))
    compiled = jax.jit(f).lower(jax.ShapeDtypeStruct((5, 8), F)).compile()
    np.testing.assert_allclose(compiled(ones(5, 8)), f(ones(5, 8)), 1e-6)
    by_params = jax.jit(f.apply).lower(f.params, jax.ShapeDtypeStruct((5, 8), F)).compile()
    np.testing.assert_allclose(by_params(f.params, ones(5, 8)), f(ones(5, 8)), 1e-6)


ELSEWHERE = """
import sys
sys.modules["jaxshape"] = sys.modules["onnx"] = None
import jax, numpy as np
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
seen = []
jax.monitoring.register_event_listener(lambda name, **_: seen.append(name))
exported = jax.export.deserialize(open(sys.argv[1], "rb").read())
print(jax.jit(exported.call)(np.full((2, 8), 2, np.float32)).tolist())
print(any("cache_hit" in name for name in seen))
"""


def test_another_process_calls_it_without_this_package_and_finds_it_compiled(tmp_path):
    f = js.to_jax(node("ReduceSum", "float32[N, T]", ints(1), keepdims=0))
    (tmp_path / "model.bin").write_bytes(f.export().serialize())
    for hit in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, tmp_path / "model.bin", tmp_path / "cache"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split("\n")[:2] == ["[16.0, 16.0]", str(hit)]


def test_a_quotient_of_sizes_is_computed_at_the_call():
    """No formula gives it, and a trace leaves it unknown."""
    net = model("""g (float[N, H] x, float[N, W] z) => (float[4] s) <float[2] ones = {1, 1}> {
        a = Shape <start = 1> (x)  u = Cast <to = 1> (a)
        b = Shape <start = 1> (z)  v = Cast <to = 1> (b)
        r = Div (v, u)  s = Concat <axis = 0> (ones, r, r)
    }""")
    exported = js.to_jax(net).export({"x": ("n", "h"), "z": ("n", "w")})
    inputs = np.ones((2, 4), "f"), np.ones((2, 5), "f")
    np.testing.assert_array_equal(exported.call(*inputs), [1, 1, 1.25, 1.25])
    bounded = jax.jit(js.to_jax(net, bounded=True))
    np.testing.assert_array_equal(bounded(*inputs), [1, 1, 1.25, 1.25])
