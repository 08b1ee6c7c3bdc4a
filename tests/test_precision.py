"""Conversion to another float type: what has it, what stays finite, what keeps its own."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from builders import model, node

import jaxshape as js
from jaxshape._op import registered
from jaxshape._precision import saturated

BLOCK = """g (float[N, S, 8] x, int64[N, S] mask) => (float[N, S, 8] y, float[N, S, S] p)
<float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[8] g = {1, 1, 1, 1, 1, 1, 1, 1},
 float[8] b = {0, 0, 0, 0, 0, 0, 0, 0}, float least = {-3.4028234663852886e38}, float one = {1},
 int64[1] axis = {1}> {
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    kt = Transpose <perm = [0, 2, 1]> (k)
    raw = MatMul (q, kt)
    shape = Shape <start = 2> (x)
    size = Cast <to = 1> (shape)
    root = Sqrt (size)
    scaled = Div (raw, root)
    m = Unsqueeze (mask, axis)
    float = Cast <to = 1> (m)
    off = Sub (one, float)
    bias = Mul (off, least)
    biased = Add (scaled, bias)
    p = Softmax (biased)
    o = MatMul (p, v)
    r = Add (x, o)
    y = LayerNormalization (r, g, b)
}"""


def block():
    """A layer of a transformer whose mask is built from the smallest float32."""
    rng = np.random.default_rng(0)
    text = BLOCK
    for name in ("wq", "wk", "wv"):
        values = ", ".join(f"{v:.4f}" for v in rng.normal(size=64) / 4)
        text = text.replace(f"float[8, 8] {name}", f"float[8, 8] {name} = {{{values}}}")
    return model(text), rng.normal(size=(2, 5, 8)).astype(np.float32)


@pytest.mark.parametrize("name, error", [("bfloat16", 0.05), ("float16", 0.01), ("float64", 1e-6)])
@pytest.mark.parametrize("masked", [0, 2, 5])
def test_a_transformer_with_a_mask(name, error, masked):
    proto, x = block()
    mask = np.ones((2, 5), np.int64)
    mask[1, 5 - masked :] = 0
    with jax.enable_x64(name == "float64"):
        f = js.to_jax(proto, dtype=name)
        assert {p.dtype.name for p in f.params.values()} == {name}
        y, p = jax.jit(f)(x, mask)
    assert y.dtype.name == p.dtype.name == name
    assert not np.isnan(np.asarray(p, np.float32)).any()
    np.testing.assert_allclose(np.asarray(p, np.float32).sum(-1), 1, atol=error)
    if masked < 5:
        want = js.run(proto, {"x": x, "mask": mask})
        np.testing.assert_allclose(np.asarray(y, np.float64), want["y"], atol=4 * error)


RESULTS = [  # a node whose result is float32 as the model says
    node("Constant", value=np.array([[1, 2]], np.float32)),
    node("Constant", value_floats=[1.0, 2.0]),
    node("ConstantOfShape", np.array([2, 3], np.int64)),
    node("ConstantOfShape", np.array([300, 300], np.int64), value=np.array([3], np.float32)),
    node("EyeLike", "int32[3, 3]", dtype=1),
    node("Cast", "int32[3]", to=1),
    node("Cast", "float16[3]", to=1),
    node("Cast", "float32[3]", to=10),
    node("CastLike", "int32[3]", np.array([1], np.float32)),
    node("RandomNormal", shape=[3]),
    node("RandomUniform", shape=[3], dtype=1),
    node("RandomNormalLike", "int32[3]", dtype=1),
    node("HannWindow", np.array(8, np.int64)),
    node(
        "MelWeightMatrix",
        *map(np.asarray, (4, 16, 8000)),
        np.array(0, np.float32),
        np.array(4000, np.float32),
    ),
    node("Range", np.array(0, np.float32), np.array(9, np.float32), np.array(2, np.float32)),
    node("DequantizeLinear", "uint8[3]", np.array(0.5, np.float32)),
    node("DynamicQuantizeLinear", "float32[3]", outputs=("", "y0")),
    node("LayerNormalization", "float32[3, 4]", np.ones(4, np.float32), outputs=("", "y0")),
    node("Dropout", "float32[3]"),
    node("OneHot", "int64[3]", np.array(4, np.int64), np.array([0, 1], np.float32)),
    node("Scaler", "int64[3, 1]", domain="ai.onnx.ml", offset=[1.0], scale=[2.0]),
]


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("proto", RESULTS, ids=lambda p: p.graph.node[0].op_type)
def test_every_result_has_it(proto, name):
    inputs = {
        i.name: np.ones([d.dim_value for d in i.type.tensor_type.shape.dim], t)
        for i in proto.graph.input
        for t in [js.trace(proto)[i.name].dtype]
    }
    with jax.enable_x64(name == "float64"):
        y = js.to_jax(proto, dtype=name)(**inputs)
    assert y.dtype.name == name
    if not proto.graph.node[0].op_type.startswith("Random"):
        want = js.run(proto, inputs)["y0"]
        np.testing.assert_allclose(
            np.asarray(y, np.float64), np.asarray(want, np.float64), rtol=0.01, atol=0.01
        )


def test_integers_booleans_and_text_are_untouched():
    f = js.to_jax(
        model("""g (int32[N] a, bool[N] b) => (int32[N] y, bool[N] z, uint8[N] u) {
        two = Constant <value = int32 {2}> ()
        y = Mul (a, two)
        z = Not (b)
        u = Cast <to = 2> (a)
    }"""),
        dtype="bfloat16",
    )
    y, z, u = f(np.array([1, 2], np.int32), np.array([True, False]))
    assert [v.dtype.name for v in (y, z, u)] == ["int32", "bool", "uint8"]


def test_shape_arithmetic_stays_exact():
    """Half of 515 is no bfloat16; an index of 999 is not, either."""
    f = js.to_jax(
        model("""g (float[N, 1030] x) => (float[a, b] y, float[c, d] z)
        <float half = {0.5}, int64[1] one = {1}, float[4] s = {1, 1, 1, 0.501}> {
        shape = Shape <start = 1> (x)
        f = Cast <to = 1> (shape)
        h = Mul (f, half)
        n = Cast <to = 7> (h)
        zero = Constant <value_ints = [0]> ()
        y = Slice (x, zero, n, one)
        axes = Constant <value_ints = [0, 1]> ()
        u = Unsqueeze (x, axes)
        r = Resize <mode = "linear"> (u, , s)
        z = Squeeze (r, axes)
    }"""),
        dtype="bfloat16",
    )
    y, z = jax.jit(f)(np.ones((2, 1030), np.float32))
    assert y.shape == (2, 515) and z.shape == (2, 516)


def test_control_flow_carries_it():
    """Values from the host start loops, and come out of branches."""
    f = js.to_jax(
        model("""g (float[N] x, int64 n, bool c) => (float[N] y, float u, float w) {
        yes = Constant <value = bool {1}> ()
        start = Constant <value = float {0.1}> ()
        u, s = Loop (n, yes, start, x) <body = b (int64 i, bool k, float a, float[N] v)
            => (bool l, float d, float[N] e) {
            l = Identity (k)
            d = Add (a, start)
            e = Mul (v, v)
        }>
        y = If (c) <then_branch = t () => (float[N] p) { p = Neg (s) },
                    else_branch = e () => (float[N] q) { q = Exp (s) }>
        w = If (c) <then_branch = t2 () => (float p2) { p2 = Constant <value = float {0.7}> () },
                    else_branch = e2 () => (float q2) { q2 = ReduceSum <keepdims = 0> (x) }>
    }"""),
        dtype="bfloat16",
    )
    y, u, w = jax.jit(f)(np.array([1.5, 2], np.float32), 2, True)
    assert {v.dtype.name for v in (y, u, w)} == {"bfloat16"}
    np.testing.assert_allclose(np.asarray(y, np.float32), [-5.0625, -16], rtol=0.01)
    np.testing.assert_allclose(np.asarray([u, w], np.float32), [0.3, 0.7], rtol=0.01)


def test_maps_hold_it():
    proto = node("ZipMap", "float32[N, 2]", domain="ai.onnx.ml", classlabels_int64s=[5, 7])
    (row,) = js.to_jax(proto, dtype="bfloat16")(np.array([[1, 2]], np.float32))
    assert {k: (v.dtype.name, float(v)) for k, v in row.items()} == {
        5: ("bfloat16", 1),
        7: ("bfloat16", 2),
    }


def test_sizes_that_depend_on_data():
    """At their bound, in the precision that is asked for."""
    f = js.to_jax(
        model("""g (float[N] x) => (float[a] y) <float third = {0.333333}> {
        c = Greater (x, third)
        z = Compress (x, c)
        y = Mul (z, third)
    }"""),
        dtype="bfloat16",
        bounded=True,
    )
    y = jax.jit(f)(np.array([1, 0, 3], np.float32))
    assert y.array.dtype == jnp.bfloat16 and int(y.count) == 2
    np.testing.assert_allclose(np.asarray(y.array, np.float32)[:2], [1 / 3, 1], rtol=0.01)


@pytest.mark.parametrize("name", ["bfloat16", "float64"])
def test_graphs_inside_of_an_operator_see_it(name):
    proto = model("""<ir_version: 10, opset_import: ["": 24, "ai.onnx.preview": 1]>
    g (float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v) => (float[1, 2, 3, 4] y) {
        tenth = Constant <value = float {0.1}> ()
        y = ai.onnx.preview.FlexAttention <
            score_mod = a (float[1, 2, 3, 3] s) => (float[1, 2, 3, 3] t) { t = Sub (s, tenth) },
            prob_mod = b (float[1, 2, 3, 3] p) => (float[1, 2, 3, 3] r) { r = Mul (p, p) }
        > (q, k, v)
    }""")
    x = np.random.default_rng(0).normal(size=(3, 1, 2, 3, 4)).astype(np.float32)
    with jax.enable_x64(name == "float64"):
        y = jax.jit(js.to_jax(proto, dtype=name))(*x)
    assert y.dtype.name == name
    np.testing.assert_allclose(np.asarray(y, np.float64), js.run(proto, [*x])["y"], atol=0.02)


def test_master_weights_keep_their_precision():
    """Parameters in float32 are rounded on the way in; their gradients are float32."""
    proto, x = block()
    f = js.to_jax(proto, dtype="bfloat16")
    wide = jax.tree.map(lambda p: p.astype(jnp.float32), f.params)

    def loss(params):
        y, _ = f.apply(params, x, np.ones((2, 5), np.int64))
        assert y.dtype == jnp.bfloat16
        return y.astype(jnp.float32).sum()

    assert {g.dtype.name for g in jax.grad(loss)(wide).values()} == {"float32"}


SATURATION = [
    ("float32", "bfloat16", [3.4e38, -3.4028235e38, 1e30, np.inf, -np.inf]),
    ("float32", "float16", [1e5, -3.4e38, 65519, 1.5, -np.inf]),
    ("bfloat16", "float16", [1e5, -1e30, 65280, 2, np.inf]),
    ("float16", "bfloat16", [65504, -1, 0.1, np.inf, -np.inf]),
    ("float64", "float32", [1e300, -1e39, 1e-3, np.inf, 0]),
]


@pytest.mark.parametrize("source, target, values", SATURATION)
@pytest.mark.parametrize("xp", [np, jnp])
def test_what_is_finite_stays_so(source, target, values, xp):
    to = np.dtype(target) if target != "bfloat16" else np.dtype(ml_dtypes.bfloat16)
    x = np.asarray(values, np.dtype(ml_dtypes.bfloat16) if source == "bfloat16" else source)
    with jax.enable_x64(True):
        y = np.asarray(saturated(xp.asarray(x), to))
    assert y.dtype == to
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(x))
    most = float(ml_dtypes.finfo(to).max)
    np.testing.assert_allclose(
        y.astype(np.float64), np.clip(x.astype(np.float64), -most, most), rtol=0.01
    ) if np.isfinite(x).all() else np.testing.assert_array_equal(
        np.sign(y.astype(np.float64)), np.sign(x.astype(np.float64))
    )


@pytest.mark.parametrize("wrong", ["int8", "float8_e4m3fn", "complex64", "half a float", int])
def test_other_types_are_refused(wrong):
    with pytest.raises(js.UnsupportedError, match="wants one of bfloat16, float16"):
        js.to_jax(node("Relu", "float32[2]"), dtype=wrong)


def test_attributes_that_name_a_type_are_declared():
    """Whatever attribute looks like one; not the bits of BitCast, nor a type with a shape."""
    names = re.compile(r"to|.*_precision|precision|dtype|output_d(ata)?type|stash_type")
    missing = [
        f"{op} {name}"
        for op in registered()
        for name in op.attributes
        if names.fullmatch(name) and name not in op.dtypes and op.name not in ("BitCast",)
    ]
    assert missing == []
