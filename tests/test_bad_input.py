"""What a user may get wrong: each is an error of ours that says what and where, and nothing is
written.
"""

import warnings

import numpy as np
import onnx
import pytest
from builders import model, node
from onnx import TensorProto, helper

import jaxshape as js

RELU = "g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }"
X = np.ones((2, 3), np.float32)


def cyclic() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    graph = helper.make_graph(
        nodes,
        "loop",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("b", 1, [2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def without_data() -> onnx.ModelProto:
    m = model("g (float[N, 3] x) => (float[N, k] y) { y = MatMul (x, w) }")
    tensor = TensorProto(data_type=1, dims=[3, 5], name="w", data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "absent.bin"), ("offset", "0"), ("length", "60")):
        tensor.external_data.add(key=key, value=value)
    m.graph.initializer.append(tensor)
    return m


def opset(version: int) -> onnx.ModelProto:
    return model(f'<ir_version: 10, opset_import: ["": {version}]> {RELU}')


@pytest.mark.parametrize("call", [js.load, js.trace, lambda m: js.run(m, {"x": X}), js.to_jax])
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (b"not a model", "bytes"),
        (b"", "empty"),
        (lambda: model(RELU).SerializeToString()[:-7], "cut short|malformed|no ONNX"),
        ("no_such_file.onnx", "no_such_file.onnx"),
        (cyclic, "circle.*Relu -> b"),
        (lambda: opset(999), "999"),
    ],
    ids=["garbage", "empty", "truncated", "no file", "cycle", "opset"],
)
def test_no_proper_model(call, source, text):
    with pytest.raises(js.ModelError, match=text):
        call(source() if callable(source) else source)


@pytest.mark.parametrize(
    ("feed", "kind", "text"),
    [
        ({}, js.UnknownValueError, "'x' is missing"),
        ({"z": X}, js.UnknownValueError, "no input 'z'"),
        ({"x": X, "z": X}, js.UnknownValueError, "no input 'z'"),
        ([X, X], js.UnknownValueError, "2 inputs given, the model takes 1"),
        ({"x": X.astype(np.float64)}, js.ShapeError, "float64.*float32"),
        ({"x": X[0]}, js.ShapeError, r"shape \(3,\).*N, 3"),
        ({"x": X[:, :2]}, js.ShapeError, "size 2 along axis 1"),
        ({"x": None}, js.UnknownValueError, "'x' is missing"),
        ({"x": "text"}, js.ShapeError, "string"),
        (None, js.UnknownValueError, "by name or in order, not as NoneType"),
        (3, js.UnknownValueError, "by name or in order, not as int"),
        ("x", js.UnknownValueError, "by name or in order, not as str"),
        ({"x": [[1.0], [1.0, 2.0]]}, js.ShapeError, r"'x' is no array, wants float32\[N, 3\]"),
        ({"x": {"a": 1}}, js.ShapeError, "'x' is a map, wants float32"),
        ({"x": [[object()] * 3]}, js.ShapeError, "objects that are no text"),
        ({"x": [[10**400] * 3]}, js.ShapeError, "objects that are no text"),
    ],
)
def test_wrong_feed(feed, kind, text):
    with pytest.raises(kind, match=text):
        js.run(model(RELU), feed)
    with pytest.raises(kind, match=text):
        js.InferenceSession(model(RELU)).run(None, feed)


@pytest.mark.parametrize(
    ("dtype", "numbers", "fits"),
    [
        ("int8", [-128, 127], True),
        ("int8", [-129], False),
        ("uint64", [2**64 - 1], True),
        ("uint64", [-1], False),
        ("int4", [-8, 7], True),
        ("int4", [8], False),
        ("uint2", [4], False),
        ("int4", [1.5], False),
        ("int64", [1.0], False),
        ("bool", [1], False),
        ("float", [True], False),
        ("int8", [], False),  # an empty list is one of floats
        ("double", [], True),
        ("string", ["a", b"b"], True),
        ("string", ["a", None], False),
        ("bfloat16", [1, 2], True),
        ("complex64", [1.5], True),
        ("float", [1j], False),
    ],
)
def test_python_numbers_become_only_what_holds_them(dtype, numbers, fits):
    m = model(f"g ({dtype}[N] x) => ({dtype}[N] y) {{ y = Identity (x) }}")
    feed = {"x": np.array(numbers, object) if dtype == "string" else numbers}
    if fits:
        assert js.run(m, feed)["y"].tolist() == numbers
        return
    with pytest.raises(js.ShapeError, match=f"'x'.*wants {dtype.replace('float', 'float32')}"):
        js.run(m, feed)


@pytest.mark.parametrize("dtype", [">f4", "<f4", np.dtypes.StringDType(), "U1", object])
def test_arrays_of_another_layout(dtype):
    """Byte order and the way in which NumPy holds text are no types of ONNX."""
    x = np.array(["a", "b"] if np.dtype(dtype).kind in "OTU" else [1, 2], dtype)
    kind = "float" if x.dtype.kind == "f" else "string"
    m = model(f"g ({kind}[N] x) => ({kind}[N] y) {{ y = Identity (x) }}")
    assert js.run(m, {"x": x})["y"].tolist() == x.tolist()


@pytest.mark.parametrize(
    ("names", "given"),
    [(None, "yz"), ([], "yz"), (["z"], "z"), (("z", "y", "z"), "zyz")],
)
def test_outputs_that_a_session_gives(names, given):
    session = js.InferenceSession(
        model("g (float[N] x) => (float[N] y, float[N] z) { y = Neg (x) z = Identity (x) }")
    )
    found = session.run(names, {"x": np.ones(2, np.float32)})
    assert [v[0] for v in found] == [{"y": -1, "z": 1}[n] for n in given]


def test_sizes_of_one_name_must_agree():
    m = model("g (float[N] x, float[N] z) => (float[N] y) { y = Add (x, z) }")
    with pytest.raises(js.ShapeError, match="size 1 along axis 0, but N is 2 in input 'x'"):
        js.run(m, {"x": np.ones(2, np.float32), "z": np.ones(1, np.float32)})


def test_unknown_operator_traces_but_does_not_run():
    m = node("Mystery", "float32[N, 3]", domain="acme")
    with pytest.warns(js.JaxshapeWarning, match="acme::Mystery"):
        traced = js.trace(m)
    assert traced["y0"].shape is None
    with pytest.raises(js.UnsupportedError, match="acme::Mystery"):
        js.trace(m, strict_mode=True)
    with (
        pytest.raises(js.UnsupportedError, match="acme::Mystery.*jaxshape.op"),
        pytest.warns(js.JaxshapeWarning),
    ):
        js.run(m, {"x0": X})


def test_missing_data_matters_only_when_its_bytes_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(js.trace(without_data())["y"]) == "float32[N, 5]"
    with pytest.raises(js.ModelError, match="absent.bin"):
        js.run(without_data(), {"x": X})
    with pytest.raises(js.ModelError, match="absent.bin"):
        js.to_jax(without_data())
    assert not list(tmp_path.iterdir())


def test_a_clash_names_node_and_sizes():
    m = model("g (float[N, 4] x, float[3, 5] w) => (float[N, 5] y) { [product] y = MatMul (x, w) }")
    with pytest.raises(js.ShapeError, match="product.*MatMul.*4.*3"):
        js.trace(m)


def test_unknown_names():
    traced = js.trace(model(RELU))
    with pytest.raises(js.UnknownValueError, match="'nothing'"):
        traced["nothing"]
    with pytest.raises(js.UnknownValueError, match="'M'.*N"):
        traced.at(M=3)
    for wrong in (-1, 2.0, "2", None):
        with pytest.raises(js.ShapeError, match="size N is .*, wants an int >= 0"):
            traced.at(N=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(js.UnknownValueError, match="'z'"):
        js.trace(model(RELU), {"z": (1, 2)})
    with pytest.raises(TypeError, match="wants a mapping"):
        js.trace(model(RELU), (1, 2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(js.UnknownValueError, match=r"position or by name: f\(\*\*inputs\)"):
        js.to_jax(model(RELU))({"x": X})
    with pytest.raises(ValueError, match="N >"):
        js.trace(model(RELU), requirements=["N >"])
    with pytest.raises(js.UnknownValueError, match="'y2'"):
        js.InferenceSession(model(RELU)).run(["y2"], {"x": X})
    with pytest.raises(js.UnsupportedError, match="tpu9"):
        js.run(model(RELU), {"x": X}, device="tpu9")


def test_a_requirement_on_no_size_of_the_model():
    with pytest.warns(js.JaxshapeWarning, match="'M > 2' is about M; .* inputs are N") as found:
        js.trace(model(RELU), requirements="M > 2")
    assert found[0].filename == __file__
    with pytest.raises(js.UnknownValueError, match="'M > 2' is about M"):
        js.trace(model(RELU), requirements=["M > 2"], strict_mode=True)
    with warnings.catch_warnings(action="error"):  # a new name may say how one is composed
        assert str(js.trace(model(RELU), requirements="N == 2*M").requirements) == "[<N == 2*M>]"


@pytest.mark.parametrize("function", [lambda x: x, lambda x, /, k=1: x, lambda x, /, **k: x])
def test_no_proper_operator(function):
    with pytest.raises(TypeError, match="Wrong: parameter .* is neither an input"):
        js.op("Wrong", domain="my.wrong")(function)
    with pytest.raises(TypeError, match="takes the name of an operator"):
        js.op(function)


def test_a_shape_is_no_type():
    with pytest.raises(TypeError, match=r"'batch', wants a tuple"):
        js.TensorType("float32", "batch")
    with pytest.raises(TypeError, match=r"x is \('N', 3\), a shape without a dtype"):
        js.ShapesContext({"x": ("N", 3)})


def loop_of(outputs: str) -> str:
    body = "b (int64 i, bool c) => (bool go, float[3] r) { go = Identity (c) r = Neg (x) }"
    return f"g (float[3] x, int64 m) => (float[] y) {{ {outputs} = Loop (m) <body = {body}> }}"


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ("g (float[N] x) => (float[] y) { y, z = Relu (x) }", "names 2 outputs, but gives 1"),
        (loop_of("y, z"), "names 2 outputs, but gives 1"),
        (
            "g (float[N] x) => (float[] y) { y = Concat <axis = 0.0> (x, x) }",
            "axis is 0.0, wants an int",
        ),
        (
            "g (float[N] x) => (float[] y) { y = ReduceSum <keepdims = [1]> (x) }",
            r"keepdims is \(1,\), wants an int",
        ),
        ('g (float[N, 1] x) => (float[] y) { y = Softmax <axis = "1"> (x) }', "wants an int"),
    ],
)
def test_no_proper_node(graph, text):
    for call in (js.trace, js.infer_shapes):
        with pytest.raises(js.JaxshapeError, match=text) as found:
            call(model(graph))
        assert "-> y" in str(found.value)


def test_dtypes_that_do_not_agree_leave_the_shape():
    m = model("g (float[N, 1] x, double[3] w) => (float[] y) { y = Add (x, w) }")
    assert (
        js.trace(m)["y"].shape == js.trace(node("Add", "float32[N, 1]", "float32[3]"))["y0"].shape
    )
    with pytest.raises(js.JaxshapeError, match="one dtype is wanted, not float32, float64"):
        js.run(m, {"x": np.ones((2, 1), np.float32), "w": np.ones(3)})
