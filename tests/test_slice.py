"""A part of a model between two of its values, as a function of its own."""

import jax
import numpy as np
import onnx.checker
import pytest
from builders import model

import jaxshape as js

CHAIN = """g (float[N, 2] x, float[N, 2] skip) => (float[N, 2] y)
<float[2] a = {1, 2}, float[2] b = {3, 4}, float[2] c = {5, 6}> {
    h1 = Mul (x, a)
    h2 = Relu (h1)
    h3 = Add (h2, b)
    h4 = Mul (h3, skip)
    y = Add (h4, c)
}"""
X, S = np.array([[1, -1]], np.float32), np.array([[2, 3]], np.float32)
VALUES = {"x": X, "skip": S, "h1": [[1, -2]], "h2": [[1, 0]], "h3": [[4, 4]], "h4": [[8, 12]]}
VALUES = {n: np.array(v, np.float32) for n, v in VALUES.items()} | {
    "y": np.array([[13, 18]], np.float32)
}

PARTS = [  # inputs, outputs, what is taken, the parameters
    (None, ["h1"], ["x"], ["a"]),
    (None, ["h4", "h2"], ["x", "skip"], ["a", "b"]),
    (["h2"], ["h3"], ["h2"], ["b"]),
    (["h2", "skip"], None, ["h2", "skip"], ["b", "c"]),
    (["skip", "h3"], ["y", "h4"], ["skip", "h3"], ["c"]),
    (["x", "h3", "skip"], ["y"], ["x", "h3", "skip"], ["c"]),
    (["x"], ["x", "h1", "a"], ["x"], ["a"]),
    (["h1"], "h3", ["h1"], ["b"]),
]


@pytest.mark.parametrize("inputs, outputs, taken, params", PARTS)
def test_parts(inputs, outputs, taken, params):
    f = js.to_jax(model(CHAIN), inputs=inputs, outputs=outputs)
    assert list(f.input_names) == taken and sorted(f.params) == params
    named = jax.jit(lambda f, x: f.named(*x))(f, [VALUES[n] for n in taken])
    wanted = [outputs] if isinstance(outputs, str) else outputs or ["y"]
    assert sorted(named) == sorted(wanted) and list(f.output_names) == list(wanted)
    for name, value in named.items():
        np.testing.assert_array_equal(value, VALUES.get(name, [1, 2]))


@pytest.mark.parametrize("inputs, outputs, taken, params", PARTS)
def test_parts_are_models(inputs, outputs, taken, params):
    f = js.to_jax(model(CHAIN), inputs=inputs, outputs=outputs)
    written = f.to_onnx()
    if outputs != ["x", "h1", "a"]:  # the checker wants outputs that nodes make
        onnx.checker.check_model(written, full_check=True)
    assert [i.name for i in written.graph.input] == taken
    assert sorted(t.name for t in written.graph.initializer) == params
    for m in (written, f.model):
        for name, value in js.run(m, {n: VALUES[n] for n in taken}).items():
            np.testing.assert_array_equal(value, VALUES.get(name, [1, 2]))


ERRORS = [
    (dict(outputs=["skop"]), "no value 'skop'; did you mean 'skip'"),
    (dict(outputs=["conv"]), "no value 'conv' outside of subgraphs"),
    (dict(inputs=["z"]), "no value 'z'"),
    (dict(inputs=["h2"]), "y cannot be computed from h2 alone: inputs are missing: skip"),
    (dict(inputs=[], outputs=["h4"]), "h4 .* from nothing alone: .* missing: x, skip"),
]


@pytest.mark.parametrize("asked, text", ERRORS)
def test_errors_name_what_is_missing(asked, text):
    with pytest.raises(js.UnknownValueError, match=text):
        js.to_jax(model(CHAIN), **asked)


def test_a_weight_and_one_of_two_results_may_be_given():
    proto = model("""g (float[N, 4] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
        p, q = Split <axis = 1, num_outputs = 2> (x)
        h = Add (p, q)
        y = MatMul (h, w)
    }""")
    x = np.array([[1, 2, 3, 4]], np.float32)
    f = js.to_jax(proto, inputs=["x", "q", "w"])
    assert not f.params
    y = f(x, np.array([[10, 20]], np.float32), np.eye(2, dtype=np.float32))
    np.testing.assert_array_equal(y, [[11, 22]])
    again = js.run(f.to_onnx(), [x, np.array([[10, 20]], np.float32), np.eye(2, dtype=np.float32)])
    np.testing.assert_array_equal(again["y"], y)


@pytest.mark.parametrize("names", [["h"], ["h", "x"], ["y", "h"]])
def test_a_run_gives_values_in_place_of_the_outputs(names):
    net = model("""g (float[N, 2] x, float[N] z) => (float[N, 1] y, float[N] q)
    <float[2, 1] w = {1, 2}> { h = MatMul (x, w)  y = Neg (h)  q = Neg (z) }""")
    x, z = np.ones((1, 2), np.float32), np.zeros(1, np.float32)
    want = {"h": [[3]], "x": x, "y": [[-3]]}
    session = js.InferenceSession(net, outputs=names)
    assert [i.name for i in session.get_inputs()] == ["x"]
    for feed in ({"x": x}, {"x": x, "z": z}, [x, z], [x]):
        found = js.run(net, feed, outputs=names)
        assert list(found) == names
        for n, v in zip(names, session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(found[n], want[n])
            np.testing.assert_array_equal(v, want[n])
    for feed, text in (({"z": z}, "'x' is missing"), ({"x": x, "u": z}, "no input 'u'")):
        with pytest.raises(js.UnknownValueError, match=text):
            js.run(net, feed, outputs=names)


def test_what_branches_use_is_kept():
    proto = model("""g (float[N] x, bool c) => (float[N] y) <float[2] b = {1, 2}> {
        h = Neg (x)
        k = Exp (h)
        u = If (c) <then_branch = t () => (float[N] p) { p = Add (h, b) },
                    else_branch = e () => (float[N] q) { q = Identity (h) }>
        y = Sin (u)
    }""")
    f = js.to_jax(proto, outputs=["u"])
    assert f.input_names == ("x", "c") and len(f.model.graph.nodes) == 2
    np.testing.assert_array_equal(f(np.array([1, 2], np.float32), True), [0, 0])
    g = js.to_jax(proto, inputs=["h", "c"], outputs=["u"])
    np.testing.assert_array_equal(g(np.array([1, 2], np.float32), True), [2, 4])
