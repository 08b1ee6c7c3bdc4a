"""Operators by themselves: what is said of them, and what they do without a model."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import jaxshape.backend
from jaxshape import (
    ShapeError,
    ShapesContext,
    TensorType,
    UnknownValueError,
    UnsupportedError,
    op,
    operator,
)
from jaxshape._operator import run_node

X = TensorType("float32", ("N", 3, "H"))


def test_shape_as_it_is_described():
    shape = operator("Shape", opset=15)
    assert (shape.name, shape.domain, shape.since_version) == ("Shape", "", 15)
    assert shape.versions[:3] == (1, 13, 15) and not shape.deprecated
    assert "1D int64 tensor containing the shape" in shape.doc
    (data,), (result,) = shape.inputs, shape.outputs
    assert (data.name, data.type, data.option) == ("data", "T", "Single")
    assert {"tensor(string)", "tensor(complex64)", "tensor(bool)"} <= set(data.types)
    assert (result.name, result.types) == ("shape", ("tensor(int64)",))
    assert shape.attributes["start"].type == "INT" and shape.attributes["start"].default == 0
    assert not shape.attributes["end"].required and shape.attributes["end"].default is None
    assert shape.type_constraints["T1"][0] == ("tensor(int64)",)
    assert repr(shape) == "<Operator Shape-15>"


@pytest.mark.parametrize(
    "name, opset, mandatory, optional, default",
    [
        ("Shape", 15, ["data"], [], ["end=None", "start=0"]),
        ("Shape", 13, ["data"], [], []),
        ("Conv", 22, ["X", "W"], ["B=None"], ["auto_pad='NOTSET'", "group=1"]),
        ("Concat", 13, [], ["*inputs"], ["axis"]),
        ("LeakyRelu", 16, ["X"], [], ["alpha=0.01"]),
        ("LRN", 13, ["X"], [], ["size", "alpha=0.0001", "beta=0.75", "bias=1.0"]),
        ("Resize", 19, ["X"], ["roi=None", "scales=None", "sizes=None"], ["mode='nearest'"]),
    ],
)
def test_arguments(name, opset, mandatory, optional, default):
    found = operator(name, opset=opset)
    assert found.args_mandatory == mandatory and found.args_optional == optional
    assert set(default) <= set(found.args_default)
    assert list(found.atts_value) == list(found.attributes)
    assert all(f"{a}={v!r}" in found.args_default or v is None or isinstance(v, float)
               for a, v in found.atts_value.items())  # fmt: skip


def test_modified_arguments():
    shape = operator("Shape", opset=15)
    assert shape.args_default_modified(start=1, end=None) == ["start=1"]
    assert shape.args_default_modified(start=0) == []
    made = helper.make_node("Shape", ["x"], ["y"], start=-1, end=3)
    assert sorted(shape.args_default_modified(made)) == ["end=3", "start=-1"]
    assert operator("LeakyRelu").args_default_modified(alpha=0.01) == []
    assert operator("Conv").args_default_modified(pads=[1, 1]) == ["pads=[1, 1]"]
    with pytest.raises(ShapeError, match="no attribute begin"):
        shape.args_default_modified(begin=1)
    with pytest.raises(ShapeError, match="another operator, Size"):
        shape.args_default_modified(helper.make_node("Size", ["x"], ["y"]))


@pytest.mark.parametrize(
    "start, end, want",
    [
        (None, None, [2, 3, 4]),
        (-1, None, [4]),
        (None, -1, [2, 3]),
        (1, 2, [3]),
        (-9, 9, [2, 3, 4]),
        (2, 1, []),
        (3, None, []),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, bool, np.complex64, ml_dtypes.bfloat16, object])
def test_shape_runs_and_infers(start, end, want, dtype):
    shape, x = operator("Shape", opset=15), np.zeros((2, 3, 4)).astype(dtype)
    y = shape.run(x, start=start, end=end)
    assert y.tolist() == want and y.dtype == np.int64
    assert shape.infer(TensorType(dtype, (2, 3, 4)), start=start, end=end) is TensorType(
        "int64", (len(want),)
    )
    assert shape.sizes(x, start=start, end=end) == 8 * len(want)


def test_infer():
    values, indices = operator("TopK", opset=11).infer(X, np.array([2]), axis=1)
    assert (str(values), str(indices)) == ("float32[N, 2, H]", "int64[N, 2, H]")
    pool = operator("MaxPool", opset=22)
    assert str(pool.infer(X, kernel_shape=[2])) == "float32[N, 3, H - 1]"
    both = pool.infer(X, kernel_shape=[2], n_outputs=2)
    assert [str(t) for t in both] == ["float32[N, 3, H - 1]", "int64[N, 3, H - 1]"]
    parts = operator("Split", opset=18).infer(X, num_outputs=3, axis=1, n_outputs=3)
    assert [str(t) for t in parts] == ["float32[N, 1, H]"] * 3
    assert str(operator("Cast").infer(X, to=onnx.TensorProto.BFLOAT16)) == "bfloat16[N, 3, H]"
    value = np.array([1], np.int8)
    assert str(operator("ConstantOfShape").infer(np.array([2, 3]), value=value)) == "int8[2, 3]"


def test_sizes():
    concat = operator("Concat", opset=13)
    assert str(concat.sizes(X, X, axis=0)) == "24*H*N"
    assert concat.sizes(TensorType("float64", (2, 3)), TensorType("float64", (1, 3)), axis=0) == 72
    assert operator("Relu").sizes(TensorType("float16", None)) is None
    assert operator("TopK").sizes(TensorType("float32", (8,)), np.array([3])) == (12, 24)


def test_run():
    x = np.array([[3.0, 1.0, 2.0]], np.float32)
    values, indices = operator("TopK", opset=11).run(x, np.array([2]))
    assert values.tolist() == [[3, 2]] and indices.tolist() == [[0, 2]]
    np.testing.assert_array_equal(operator("Add").run(jnp.ones(2), np.float32(1)), [2, 2])
    clipped = operator("Clip", opset=13).run(x, None, np.float32(2))
    assert clipped.tolist() == [[2, 1, 2]]
    assert operator("NonZero").run(np.array([0, 5, 6])).tolist() == [[1, 2]]
    assert operator("Identity").run(["a", "b"]).tolist() == ["a", "b"]
    joined = operator("ConcatFromSequence").run([x, x], axis=0)
    assert joined.shape == (2, 3)


def test_a_subgraph_is_an_attribute():
    body = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["i"])], "b", [],
        [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [])],
        [onnx.numpy_helper.from_array(np.array(7), "k")],
    )  # fmt: skip
    found = operator("If").run(np.array(True), then_branch=body, else_branch=body)
    assert found == 7


@pytest.mark.parametrize(
    "call, kind, says",
    [
        (lambda: operator("Attention", opset=20), UnsupportedError, "since opset 23, not"),
        (lambda: operator("Shap"), UnsupportedError, "no operator Shap is known; is it Shape"),
        (lambda: operator("FastGelu"), UnsupportedError,
         "FastGelu is known in domain ai.onnx; it is one of com.microsoft"),
        (lambda: operator("Relu").infer(("N", 3)), TypeError, "a shape without a dtype"),
        (lambda: operator("X", domain="none"), UnsupportedError, "none::X .*register it"),
        (lambda: operator("Relu", opset=999), UnsupportedError, "knows opsets up to"),
        (lambda: operator("Shape").infer(X, begin=1), ShapeError, "no attribute begin"),
        (lambda: operator("Shape").infer(X, X), ShapeError, "at most 1 inputs .data"),
        (lambda: operator("Shape").infer(X, start=1.5), ShapeError, "is of type INT, not 1.5"),
        (lambda: operator("Conv").infer(X, pads="ab"), ShapeError, "pads is of type INTS"),
        (lambda: operator("Shape", 12).infer(TensorType("bfloat16", (1,))), ShapeError,
         "input data is bfloat16, not of tensor"),
        (lambda: operator("Add").run(np.ones(2), np.ones(2, np.float32)), ShapeError,
         "B is float32, but A is float64: both are of type T"),
        (lambda: operator("Relu").infer(), ShapeError, r"^Relu \(opset \d+\): needs input 0"),
    ],
)  # fmt: skip
def test_errors(call, kind, says):
    with pytest.raises(kind, match=says):
        call()


def test_compute_takes_its_own_nodes_only():
    pool = operator("AveragePool", opset=22)
    ctx = ShapesContext({"x": X}, opset=20)
    pool.compute(ctx, helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2]))
    assert str(ctx["y"]) == "float32[N, 3, H - 1]"
    with pytest.raises(ShapeError, match="AveragePool .opset 22.: m is of another operator, Relu"):
        pool.compute(ctx, helper.make_node("Relu", ["x"], ["z"], name="m"))
    assert "z" not in ctx


def test_a_user_defined_operator():
    @op("Scaled", domain="test.operator", since=3)
    def scaled(x, y=None, /, *, by, offset=0.0):
        """Multiply x by a number."""
        return x * x.dtype.type(by) + x.dtype.type(offset)

    found = operator("Scaled", domain="test.operator")
    assert found.doc == "Multiply x by a number." and found.versions == (3,)
    assert (found.args_mandatory, found.args_optional) == (["x"], ["y=None"])
    assert found.args_default == ["by", "offset=0.0"]
    assert found.infer(X, by=2.0) is X
    assert found.run(np.ones(2, np.float32), by=2.0).tolist() == [2, 2]
    assert "test.operator::Scaled" in str(found) and "Scaled" in found._repr_html_()
    with pytest.raises(UnsupportedError, match="since opset 3, not in opset 2"):
        operator("Scaled", opset=2, domain="test.operator")
    with pytest.raises(ShapeError, match="needs attribute by"):
        found.infer(X)


def test_every_operator_of_the_standard_can_be_described():
    names = {(s.domain, s.name) for s in onnx.defs.get_all_schemas()}
    for domain, name in names:
        found = operator(name, domain=domain)
        schema = onnx.defs.get_schema(name, domain=domain)
        assert found.since_version == schema.since_version == found.versions[-1]
        assert list(found.attributes) == list(schema.attributes)
        assert str(found).startswith(found.title) and found._repr_html_()


def test_a_deprecated_one_says_so():
    assert operator("Upsample", opset=10).deprecated
    assert "deprecated" in str(operator("Upsample", opset=10))
    assert not operator("Upsample", opset=9).deprecated


def test_run_node():
    made = helper.make_node("Clip", ["x", "", "high"], ["y"])
    for given in ([3.0, 2.0], [3.0, None, 2.0], {"x": 3.0, "high": 2.0}):
        assert run_node(made, given, {"": 13}) == [2.0]
    pool = helper.make_node("MaxPool", ["x"], ["", "i"], kernel_shape=[2])
    assert run_node(pool, [np.zeros((1, 1, 3), "f")], {"": 12})[0].tolist() == [[[0, 1]]]
    with pytest.raises(UnknownValueError, match="takes 'high', which is not given"):
        run_node(made, [3.0], {"": 13})
    with pytest.raises(ShapeError, match="takes 3 inputs, 4 are given"):
        run_node(made, [1.0] * 4, {"": 13})


def test_backend_runs_a_node():
    made = helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    outputs = jaxshape.backend.run_node(made, [np.zeros((1, 2))], opset_version=11)
    assert outputs[0].shape == (2,)
