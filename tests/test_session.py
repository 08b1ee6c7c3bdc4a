"""`InferenceSession` takes the calls that were written for onnxruntime."""

import concurrent.futures
import dataclasses

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from builders import model
from onnx import numpy_helper

import jaxshape as js
from jaxshape import _run

X = np.array([[1, -2]], np.float32)


@pytest.fixture(scope="module")
def made():
    found = model("""g (float[N, 2] x, float[2] w) => (float[N, 2] y, int64[2] s)
        { y = Mul (x, w) s = Shape (x) }""")
    found.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    found.model_version, found.doc_string, found.graph.doc_string = 3, "of two numbers", "a product"
    onnx.helper.set_model_props(found, {"names": "{0: 'cat'}"})
    return found


def test_calls_of_onnxruntime(made):
    providers = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    options = onnxruntime.SessionOptions()
    data = made.SerializeToString()
    ours = js.InferenceSession(data, options, ["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    for method in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        for a, b in zip(getattr(ours, method)(), getattr(theirs, method)(), strict=True):
            assert (a.name, a.type, a.shape) == (b.name, b.type, b.shape)
    assert ours.get_providers() == theirs.get_providers()
    a, b = ours.get_modelmeta(), theirs.get_modelmeta()
    assert all(getattr(b, name) == value for name, value in dataclasses.asdict(a).items())
    assert a.custom_metadata_map == {"names": "{0: 'cat'}"} and a.version == 3
    assert js.InferenceSession(made, providers=providers).get_providers()
    for names in (None, ["s"], ["s", "y"], []):
        for feed in ({"x": X}, {"x": X, "w": np.ones(2, np.float32)}):
            got, want = (s.run(names, feed, None) for s in (ours, theirs))
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)


def test_providers_that_are_not_here(made):
    with pytest.raises(js.UnsupportedError, match=r"none of the providers Tensorrt.* give dev"):
        js.InferenceSession(made, providers=["TensorrtExecutionProvider"])


def test_a_name_that_is_nearly_right(made):
    with pytest.raises(js.UnknownValueError, match="no value 'yy'; did you mean 'y'"):
        js.trace(made)["yy"]
    assert onnx.checker.check_model(js.trace(made).to_onnx()) is None


def test_an_output_that_is_none(made):
    with pytest.raises(js.UnknownValueError, match=r"no output 'w'; it gives y, s .*outputs="):
        js.InferenceSession(made).run(["w"], {"x": X})


def test_threads_share_a_session_that_keeps_the_last_sizes(made, monkeypatch):
    monkeypatch.setattr(_run, "KEPT", 3)
    session = js.InferenceSession(made)

    def call(n):
        y, s = session.run(None, {"x": np.full((n, 2), n, np.float32)})
        return y.tolist() == [[2 * n, 3 * n]] * n and s.tolist() == [n, 2]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 5, 5] * 4))
    (stage,) = session._runner.stages.values()
    assert len(stage.plans) == 3
    call(7)
    call(5)
    call(8)
    before = {id(p) for p in stage.plans.values()}
    call(5)
    assert {id(p) for p in stage.plans.values()} == before  # nothing made anew


def test_a_run_without_chance_makes_no_key(made, monkeypatch):
    """It takes longer than the rest of a call."""
    session = js.InferenceSession(made)
    monkeypatch.setattr(jax.random, "key", lambda seed: pytest.fail("a key is made"))
    assert session.run(["y"], {"x": X})[0].tolist() == [[2, -6]]
    assert js.to_jax(made)(X)[0].tolist() == [[2, -6]]
