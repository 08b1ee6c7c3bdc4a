"""Types by one node at a time: what a tool that builds graphs sees."""

import numpy as np
import onnx
import pytest
from onnx import helper

from jaxshape import (
    JaxshapeError,
    JaxshapeWarning,
    ModelError,
    SequenceType,
    ShapeError,
    ShapesContext,
    TensorType,
    UnknownValueError,
    UnsupportedError,
    op,
)

node = helper.make_node
F = TensorType("float32", ("N", 3, "H", "W"))


def test_it_is_a_mapping_that_grows():
    ctx = ShapesContext({"x": F, "k": np.array([2])}, opset=20)
    assert list(ctx) == ["x", "k"] and ctx["x"] is F and "y" not in ctx
    ctx.compute(node("Relu", ["x"], ["y"]))
    ctx.compute(node("Concat", ["y", "x"], ["z"], axis=0))
    assert ctx["y"].dtype == np.float32 and ctx["y"].shape == F.shape
    assert [str(d) for d in ctx["z"].shape or ()] == ["2*N", "3", "H", "W"]
    assert len(ctx) == 4 and dict(ctx)["z"] is ctx["z"] and ctx.get("nothing") is None
    assert repr(ctx) == "<ShapesContext of 4 values, opset 20>"


def test_contents_are_followed():
    ctx = ShapesContext({"x": F, "tail": np.array([-1])}, opset=20)
    for made in (
        node("Shape", ["x"], ["n"], end=1),
        node("Concat", ["n", "tail"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["flat"]),
    ):
        ctx.compute(made)
    assert str(ctx["flat"]) == "float32[N, 3*H*W]"
    assert str(ctx.content("n").tolist()[0]) == "N"
    assert ctx.content("tail").tolist() == [-1] and ctx.content("x") is None
    assert "int64[2] = [N, -1]" in str(ctx)


def test_rank_may_be_unknown():
    ctx = ShapesContext({"x": TensorType("float32", None)}, opset=20)
    ctx.compute(node("Relu", ["x"], ["y"]))
    assert ctx["y"].shape is None and ctx["y"].dtype == np.float32


def test_unknown_sizes_are_never_the_same():
    ctx = ShapesContext({"x": TensorType("float32", (None, None))}, opset=20)
    a, b = ctx["x"].shape
    assert a is not b and set(ctx.bounds) == {str(a), str(b)}
    with pytest.raises(UnknownValueError, match="no value 'q'"):
        ctx["q"]


def test_what_is_given_may_be_text_numbers_and_sequences():
    ctx = ShapesContext(
        {"s": np.array("a"), "n": 3, "l": [F, np.zeros(2)], "q": SequenceType(F, None)}, opset=20
    )
    ctx.compute(node("SequenceLength", ["l"], ["c"]))
    ctx.compute(node("SequenceAt", ["q", "n"], ["e"]))
    assert str(ctx["s"]) == "string[]" and ctx.content("c") == 2
    assert str(ctx["e"]) == "float32[N, 3, H, W]"


def test_requirements_come_with_their_node():
    ctx = ShapesContext({"x": F, "w": TensorType("float32", (8, 4, 3, 3))}, opset=20)
    ctx.compute(node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2, 3]))
    assert {(str(r), r.node) for r in ctx.requirements} == {("H >= 2", "pool"), ("W >= 3", "pool")}


def test_a_node_that_fails_leaves_nothing():
    ctx = ShapesContext({"x": F, "w": TensorType("float32", (8, 4, 3, 3))}, opset=20)
    with pytest.raises(ShapeError, match=r"bad \(Conv, opset 20\): .*3.*4|.*4.*3"):
        ctx.compute(node("Conv", ["x", "w"], ["y"], name="bad"))
    assert list(ctx) == ["x", "w"] and not ctx.requirements
    ctx.compute(node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3]))
    assert len(ctx.requirements) == 2


def test_a_value_can_be_set_again():
    ctx = ShapesContext({"x": F}, opset=20)
    ctx.compute(node("Relu", ["x"], ["y"]))
    ctx.set("x", TensorType("float16", (2,)))
    ctx.compute(node("Relu", ["x"], ["y"]))
    assert str(ctx["y"]) == "float16[2]"


def test_opsets_are_by_domain():
    old, new = ShapesContext({"x": F}, 12), ShapesContext({"x": F}, {"ai.onnx": 13})
    for ctx in (old, new):
        ctx.set("axes", np.array([0]))
    old.compute(node("Unsqueeze", ["x"], ["y"], axes=[0]))
    new.compute(node("Unsqueeze", ["x", "axes"], ["y"]))
    assert old["y"] is new["y"]
    with pytest.raises(ShapeError, match=r"Unsqueeze, opset 13"):
        new.compute(node("Unsqueeze", ["x"], ["z"], axes=[0]))


def test_a_user_defined_operator_is_one_like_any():
    @op("Doubled", domain="test.context", since=2)
    def doubled(x, /, *, axis=0):
        return np.concatenate([x, x], axis)

    @doubled.shape_rule
    def _(x, /, *, axis=0):
        return TensorType(x.dtype, [d * (1 + (i == axis)) for i, d in enumerate(x.shape)])

    ctx = ShapesContext({"x": F}, opset=20)  # the domain is not named: its newest
    ctx.compute(node("Doubled", ["x"], ["y"], domain="test.context", axis=2))
    assert str(ctx["y"]) == "float32[N, 3, 2*H, W]"
    with pytest.raises(ShapeError, match=r"test.context::Doubled, opset 2\): has no attribute ax"):
        ctx.compute(node("Doubled", ["x"], ["y"], domain="test.context", ax=2))


def test_unknown_operators_warn_or_raise():
    made = node("Nowhere", ["x"], ["y"])
    ctx = ShapesContext({"x": F}, opset=20)
    with pytest.warns(JaxshapeWarning, match="Nowhere"):
        ctx.compute(made)
    assert str(ctx["y"]) == "?[...]"
    with pytest.raises(UnsupportedError, match="Nowhere"):
        ShapesContext({"x": F}, opset=20, strict_mode=True).compute(made)


def test_subgraphs_see_the_context():
    body = helper.make_graph(
        [node("Add", ["x", "x"], ["inner"])], "b", [], [onnx.ValueInfoProto(name="inner")]
    )
    ctx = ShapesContext({"c": TensorType("bool", ()), "x": F}, opset=20)
    made = node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    ctx.compute(made)
    assert ctx["y"] is F
    with pytest.raises(UnknownValueError, match="takes 'x'"):
        ShapesContext({"c": TensorType("bool", ())}, opset=20).compute(made)


@pytest.mark.parametrize(
    "made, kind, says",
    [
        (node("Relu", ["q"], ["y"]), UnknownValueError, "takes 'q', which is not in the context"),
        (node("Relu", ["x"], []), ShapeError, "has no output"),
        (node("Relu", ["x"], [""]), ShapeError, "has no output"),
        (node("Relu", ["x"], ["y", "z"]), ShapeError, "names 2 outputs, it has at most 1"),
        (node("TopK", ["x", "k"], ["y"]), ShapeError, "names 1 outputs, it has at least 2"),
        (node("Relu", [], ["y"]), ShapeError, "needs input 0"),
        (node("Relu", ["x", "x"], ["y"]), ShapeError, "at most 1 input"),
        (node("Relu", ["x"], ["y"], strange=1), ShapeError, "has no attribute strange"),
        (node("Concat", ["x"], ["y"]), ShapeError, "needs attribute axis"),
        (node("Concat", ["x"], ["y"], axis=1.0), ShapeError, "axis is of type INT, not 1.0"),
        (node("Transpose", ["x"], ["y"], perm="no"), ShapeError, "perm is of type INTS, not 'no'"),
        (onnx.NodeProto(input=["x"], output=["y"]), ModelError, "op_type"),
    ],
)
def test_errors_name_the_node(made, kind, says):
    made.name = "n"
    ctx = ShapesContext({"x": F, "k": np.array([1])}, opset=20)
    with pytest.raises(kind, match=says) as error:
        ctx.compute(made)
    assert "n" in str(error.value) and isinstance(error.value, JaxshapeError)
    assert kind is ModelError or str(error.value).startswith(f"n ({made.op_type}, opset 20): ")
