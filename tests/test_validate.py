"""Validation: what agrees, what differs and where, on given and on drawn inputs."""

import json
import re

import numpy as np
import onnx
import pytest
from builders import model

import jaxshape as js
from jaxshape import _reference
from jaxshape._bisect import DEPARTS, amplified
from jaxshape._compare import difference, nearest

NET = """g (float[N, 4] x) => (float[N, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
    [mix] h = MatMul (x, w)
    [squash] t = Tanh (h)
    [share] y = Softmax (t)
}"""


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize("bisect", [False, True])
def test_a_right_model_agrees(reference, bisect):
    report = js.validate(model(NET), reference=reference, bisect=bisect)
    assert report.ok and report.culprit is None and len(report.sizes) == 2
    assert "agrees with" in str(report) and "<table>" in report._repr_html_()
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


def test_a_wrong_operator_is_named(monkeypatch):
    tanh = operator("Tanh")
    right = tanh.function
    monkeypatch.setattr(tanh, "function", lambda x, /: right(x) * 1.001)
    report = js.validate(model(NET), bisect=True)
    assert not report.ok
    assert report.culprit is not None and report.culprit.node == "squash"
    assert "first to differ: squash (Tanh)" in str(report)


def test_stored_outputs_are_a_reference():
    x = np.ones((1, 4), np.float32)
    expected = js.run(model(NET), {"x": x})
    assert js.validate(model(NET), {"x": x}, reference=expected).ok
    wrong = {"y": expected["y"] * 1.01}
    report = js.validate(model(NET), {"x": x}, reference=wrong)
    assert not report.ok and report.checks[0].share > 1


@pytest.mark.parametrize("bisect", [False, True])
def test_a_reference_without_a_value_of_the_model_is_an_error(bisect):
    x = {"x": np.ones((1, 4), np.float32)}
    other = model(NET.replace("y", "z"))
    for reference in ({"q": np.ones(2)}, js.load(other)):
        with pytest.raises(js.UnknownValueError, match="by name: the model gives y.* gives [qz]"):
            js.validate(model(NET), x, reference=reference, bisect=bisect)


def operator(name: str, opset: int = 20):
    """A registered operator, whose lowering a test may spoil."""
    from jaxshape._op import select

    js.trace(model("g () => (float y) { y = Constant <value_float = 1.0> () }"))  # registers them
    found = select("", name, opset)
    assert found is not None
    return found


def engine(monkeypatch, change):
    """Let `onnxruntime` be the standard's reference, its results seen and changed by a function."""
    right = _reference.ENGINES["onnx"]

    def run(proto, feed, names, folder):
        return change(dict(zip(names, right(proto, feed, names, folder), strict=True)))

    monkeypatch.setitem(_reference.ENGINES, "onnxruntime", run)


FUNCTION = """<ir_version: 10, opset_import: ["": 20, "my": 1]>
g (float[N, 4] x) => (float[N, 4] y) { [first] t = my.F <a = 2.0> (x)  [last] y = my.F (t) }
<domain: "my", opset_import: ["": 20]>
F <a: float = 3.0> (x) => (z) { [even] s = LeakyRelu <alpha: float = @a> (x)  [bend] z = Tanh (s) }
"""
DEFAULT = """<ir_version: 10, opset_import: ["": 20, "my": 1]>
g (float[N] x, bool b) => (float[N] y) {
    t = If (b) <then_branch = a () => (float[N] u) { u = my.F (x) },
                else_branch = b () => (float[N] v) { v = my.F <beta = 3.0> (x) }>
    [bend] y = Tanh (t)
}
<domain: "my", opset_import: ["": 20]>
F <beta: float = 2.0> (a) => (c) { k = Constant <value_float: float = @beta> ()  c = Mul (a, k) }
"""
BRANCH = """g (float[N] x) => (float[N] y) {
    q = ReduceSumSquare <keepdims = 0> (x)
    z = Constant <value = float {-1.0}> ()
    c = Less (z, q)
    [choose] t = If (c) <then_branch = a () => (float[N] u) { u = Tanh (x) },
                         else_branch = b () => (float[N] v) { v = Neg (x) }>
    [root] y = Abs (t)
}"""
LOOP = """g (float[2] x) => (float[2] y, float[n, 2] all) {
    m = Constant <value = int64 {3}> ()
    k = Constant <value = bool {1}> ()
    [turn] y, all = Loop (m, k, x) <body = b (int64 i, bool c, float[2] h) => (bool d, float[2] o,
        float[2] p) { d = Identity (c)  o = Tanh (h)  p = Identity (o) }>
}"""
SEQUENCE = """g (float[N] x) => (float[M] y) {
    i = Constant <value = int64 {1}> ()
    [bend] t = Tanh (x)
    both = SequenceConstruct (x, t)
    y = SequenceAt (both, i)
}"""
COUNT = """g (float[N] x) => (float[1, M] y) {
    [bend] t = Tanh (x)
    i = NonZero (t)
    f = Cast <to = 1> (i)
    [up] y = Exp (f)
}"""


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize(
    ("text", "spoilt", "node"),
    [
        (FUNCTION, "Tanh", "F/bend"),
        (FUNCTION, "LeakyRelu", "F/even"),
        (DEFAULT, "Tanh", "bend"),
        (BRANCH, "Tanh", "choose"),
        (BRANCH, "Abs", "root"),
        (LOOP, "Tanh", "turn"),
        (SEQUENCE, "Tanh", "bend"),
        (COUNT, "Exp", "up"),
    ],
    ids=lambda v: v.split("(")[0] if len(v) > 20 else v,
)
def test_the_node_that_is_wrong_is_named(monkeypatch, text, spoilt, node, reference):
    right = js.validate(model(text), reference=reference, bisect=True, bindings=1)
    assert right.ok and not right.skipped and right.first is None, right
    assert all(c.agrees for c in right.checks)
    op = operator(spoilt)
    function = op.function
    monkeypatch.setattr(op, "function", lambda *x, **k: function(*x, **k) * np.float32(1.01))
    wrong = js.validate(model(text), reference=reference, bindings=1)  # looks for whom by itself
    assert not wrong.ok and wrong.culprit is not None
    assert wrong.culprit.node.startswith(node) and wrong.culprit.op in (spoilt, "If", "Loop")
    others = {c.node for c in wrong.checks if c.local and not c.ok}
    assert all(o.startswith(node) for o in others), others


@pytest.mark.parametrize("opset", [15, 21])
@pytest.mark.parametrize(
    "node",
    ["RandomNormalLike (x)", "RandomUniformLike <seed = 1.0> (x)", "Dropout (x, r, yes)",
     "Dropout <seed = 3> (x, r, yes)", "Bernoulli (p)"],
)  # fmt: skip
def test_chance_is_not_compared(node, opset):
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    g (float[N, 50] x) => (float[N, 50] y) {{
        r = Constant <value = float {{0.5}}> ()
        yes = Constant <value = bool {{1}}> ()
        p = Sigmoid (x)
        [roll] t = {node}
        y = Add (x, t)
    }}"""
    report = js.validate(model(text), bisect=True)
    assert report.ok and report.culprit is None
    assert "left to chance" in str(report)
    roll = [c for c in report.checks if c.local and c.node == "roll"]
    assert roll and all(c.note and not c.agrees for c in roll)
    assert all(c.agrees for c in report.checks if c.local and c.node != "roll")


def test_another_model_is_a_reference(tmp_path):
    changed = model(NET)
    w = np.arange(1, 9, dtype="f").reshape(4, 2) * 1.002
    changed.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(w.astype("f"), "w"))
    onnx.save(model(NET), tmp_path / "net.onnx")
    for reference in (model(NET), js.load(model(NET)), tmp_path / "net.onnx"):
        assert js.validate(model(NET), reference=reference, bisect=True).ok
        report = js.validate(changed, reference=reference, bisect=True)
        assert report.culprit is not None and report.culprit.node == "mix"
        assert [c.value for c in report.checks if c.local and not c.ok] == ["h"] * 2


def test_a_reference_that_is_wrong_itself_is_overruled(monkeypatch):
    engine(monkeypatch, lambda got: [v * 2 if n == "t" else v for n, v in got.items()])
    right = js.validate(model(NET), bisect=True)
    assert right.ok and "1 of them differ" not in str(right)
    spoilt = [c for c in right.checks if c.value == "t" and c.local]
    assert [c.note for c in spoilt] == [DEPARTS] * 2
    # what follows was fed what the reference has, and there it does not agree with itself
    assert all(c.note == DEPARTS for c in right.checks if c.local and not c.agrees)
    monkeypatch.setattr(operator("Tanh"), "function", lambda x, /: x)
    assert not js.validate(model(NET), bisect=True).ok


def test_values_that_the_reference_cannot_give_are_counted(monkeypatch):
    def refuse(got):
        assert "t" not in got
        return list(got.values())

    engine(monkeypatch, refuse)
    report = js.validate(model(NET), bisect=True, bindings=1)
    assert report.ok and report.skipped == 1 and "1 values not compared" in str(report)
    assert {c.value for c in report.checks if c.local} == {"h", "y"}
    tanh = operator("Tanh")
    right = tanh.function
    monkeypatch.setattr(tanh, "function", lambda x, /: right(x) * 1.01)
    report = js.validate(model(NET), bisect=True, bindings=1)
    assert report.culprit is not None and report.culprit.node == "share"
    assert "or squash does, which is not compared" in report.culprit.problem


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize(
    "text",
    [
        "(float[N] x) => (bfloat16[N] y) { h = Cast <to = 16> (x) y = Identity (h) }",
        "(bfloat16[N] x) => (float[N] y) { y = Cast <to = 1> (x) }",
        "(float[N] x) => (float8e4m3fn[N] h, float[N] y) { h = Cast <to = 17> (x)"
        " y = Cast <to = 1> (h) }",
        "(float[N] x) => (float[N] y) { s = Constant <value_float = 0.1> ()"
        " h = QuantizeLinear <output_dtype = 22> (x, s) y = DequantizeLinear (h, s) }",
        "(seq(float[N]) x) => (seq(float[N]) y) { y = SequenceErase (x) }",
    ],
)
def test_types_that_numpy_lacks(text, reference):
    text = f'<ir_version: 11, opset_import: ["": 22]> g {text}'
    report = js.validate(model(text), reference=reference, bisect=True, bindings=1)
    assert report.ok and not report.skipped and all(c.agrees for c in report.checks), report


def test_an_operator_that_the_reference_lacks():
    @js.op("Twice", domain="test.validate", elementwise=True)
    def twice(x, /):
        return x + x

    text = """<ir_version: 10, opset_import: ["": 20, "test.validate": 1]>
    g (float[N] x) => (float[N] y) { y = test.validate.Twice (x) }"""
    with pytest.raises(js.ExecutionError, match="reference='onnx' may run it"):
        js.validate(model(text))
    x = np.array([1, 2], "f")
    assert js.validate(model(text), [x], reference={"y": x + x}).ok


@pytest.mark.parametrize(("stored", "ok"), [([2, 3], True), ([3, 3], True), ([2, 4], False)])
def test_a_tie_may_be_rounded_either_way(stored, ok):
    text = """g (float[2] x) => (uint8[2] y) {
        s = Constant <value = float {0.1}> ()
        z = Constant <value = uint8 {0}> ()
        y = QuantizeLinear (x, s, z)
    }"""
    report = js.validate(
        model(text), [np.array([0.25, 0.3], "f")], reference={"y": np.array(stored, "B")}
    )
    assert report.ok is ok, report


@pytest.mark.parametrize(
    ("outcomes", "want", "near"),
    [
        ([[1, 2], [1, 3]], [1, 3], [1, 3]),
        ([[1, 2], [1, 3]], [0, 4], [1, 3]),
        ([[1.0, 2.0], [1.5, 2.0]], [1.25, 9.0], [1.25, 2.0]),
        ([[True], [False]], [True], [True]),
        ([[True], [True]], [False], [True]),
        ([[0, 1, 2], [0, 2, 1]], [0, 2, 1], [0, 2, 1]),
        ([[np.nan, 1.0], [0.0, 1.0]], [np.nan, np.nan], [np.nan, 1.0]),
    ],
)
def test_nearest(outcomes, want, near):
    got = nearest([np.array(o) for o in outcomes], np.array(want))
    if got.dtype.kind == "f" and np.isnan(want[-1]):
        got = got[:1]
        near = near[:1]
    np.testing.assert_array_equal(got, near)


def test_outcomes_of_different_shapes_are_taken_whole():
    a, b = np.array([1, 2]), np.array([1])
    assert nearest([a, b], np.array([1])) is b
    assert nearest([a, b], np.array([3])) is a


@pytest.mark.parametrize(
    ("moves", "want", "checked", "ok"),
    [
        ([[1.001, 2.0]], [1.003, 2.0], False, True),
        ([[1.001, 2.0]], [1.005, 2.0], True, False),
        ([[1.5, 2.0]], [1.9, 2.0], True, True),
        ([[1.5, 2.0]], [1.9, 2.0], False, False),
        ([[np.inf, 2.0]], [1.9, 2.0], True, False),
        ([[1.0, 2.0]], [np.nan, 2.0], True, False),
    ],
)
def test_what_a_model_amplifies(moves, want, checked, ok):
    got = np.array([1.0, 2.0], "f")
    arrays = [np.array(m, "f") for m in moves]
    assert amplified(got, arrays, np.array(want, "f"), checked) is ok


def test_a_model_that_amplifies_rounding_is_no_fault():
    text = """g (float[2] x, float big) => (float[2] y) {
        [lift] a = Add (x, big)
        [cut] b = Sub (a, big)
        y = Mul (b, big)
    }"""
    x, y = np.array([0.1, 0.2], "f"), np.array([300.0, 600.0], "f")
    feed = [x, np.array(3000, "f")]
    report = js.validate(model(text), feed, reference={"y": y})  # a better runtime's
    assert report.ok and "amplifies rounding" in str(report) and not report.checks[0].agrees
    assert not js.validate(model(text), feed, reference={"y": y + 30}).ok


def test_unknown_reference():
    with pytest.raises(
        js.UnsupportedError, match="no reference 'tvm'; known are onnxruntime, onnx"
    ):
        js.validate(model(NET), reference="tvm")


@pytest.mark.parametrize(
    ("got", "want", "problem"),
    [
        (np.float32(1), np.float64(1), "dtype float32, not float64"),
        (np.ones(2), np.ones(3), r"shape \[2\], not \[3\]"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ"),
        (np.array([np.nan, 1]), np.array([1, np.nan]), "NaN"),
        (np.array([np.inf]), np.array([-np.inf]), "infinity"),
        ([np.ones(1)], [], "lengths"),
        (None, np.ones(1), "absent"),
        (np.array(["a"], object), np.array(["b"], object), "1 of 1"),
    ],
)
def test_difference_says_what(got, want, problem):
    share, text = difference(got, want)
    assert share == np.inf
    assert re.search(problem, text)


def test_maps_are_compared():
    """onnxruntime names their type `seq(map(int64,tensor(float)))`, which is no dtype."""
    net = model(
        """<ir_version: 10, opset_import: ["": 20, "ai.onnx.ml": 3]>
        g (float[N, 2] x) => (seq(map(int64, float[])) y) {
            y = ai.onnx.ml.ZipMap <classlabels_int64s = [3, 5]> (x)
        }"""
    )
    report = js.validate(net, bisect=True)
    assert report.ok and {c.op for c in report.checks} == {"ZipMap"}
