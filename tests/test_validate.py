"""Validation: what agrees, what differs and where, on given and on drawn inputs."""

import json
import re

import numpy as np
import pytest
from builders import model

import jaxshape as js
from jaxshape._compare import difference

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
    from jaxshape._op import select

    tanh = select("", "Tanh", 20)
    assert tanh is not None
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


def test_drawn_sizes_meet_the_requirements():
    halves = """g (float[N, C] x) => (float[N, a] y) {
        a, b = Split <axis=1, num_outputs=2> (x)
        y = Add (a, b)
    }"""
    sixes = """g (float[N, L] x) => (float[a, b] y) {
        s = Constant <value = int64[2] {-1, 6}> ()
        y = Reshape (x, s)
    }"""
    report = js.validate(model(sixes), reference="onnx")
    assert report.ok and all(s["N"] * s["L"] % 6 == 0 for s in report.sizes)
    assert js.validate(model(halves), reference="onnx").ok


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
