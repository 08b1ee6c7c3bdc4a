"""The operators of ONNX's nn family, one node at a time: types in sizes, types in numbers.

Three things must hold of each row: the types as formulas are as written; the same node with numbers
gives what the formulas give; and onnx's own shape inference does not say otherwise.
"""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from builders import value_info
from nn_rows import ROWS, SIZES, TABLE, X, computed, names, tensor
from onnx import TensorProto, TypeProto, helper

from jaxshape import ShapeError, ShapesContext, TensorType, UnknownValueError, operator


@pytest.mark.parametrize(TABLE, ROWS)
def test_types_are_formulas(op, opset, inputs, attrs, outputs, requires, wrong):
    ctx = computed(op, opset, inputs, attrs, names(outputs))
    for i, want in enumerate(outputs):
        if isinstance(want, str) and want:
            assert str(ctx[f"y{i}"]) == str(tensor(want))
        elif want:
            assert want.fullmatch(str(ctx[f"y{i}"])), ctx[f"y{i}"]
    if requires is not None:
        assert sorted(map(str, ctx.requirements)) == sorted(requires)


@pytest.mark.parametrize(TABLE, ROWS)
def test_numbers_agree_with_formulas(op, opset, inputs, attrs, outputs, requires, wrong):
    formulas = computed(op, opset, inputs, attrs, names(outputs))
    numbers = computed(op, opset, tuple(map(at_sizes, inputs)), attrs, names(outputs))
    for name in filter(None, names(outputs)):
        formula, number = formulas[name], numbers[name]
        assert number.dtype == formula.dtype
        if formula.shape is None:
            continue
        fresh = set(formulas.bounds)
        for d, n in zip(formula.shape, number.shape, strict=True):
            symbols = {s.name: s for s in getattr(d, "symbols", ())}
            if not fresh.intersection(symbols):
                env = {k: SIZES[k] for k in symbols}
                assert (d.evaluate(env) if symbols else d) == n, (name, formula, number)


def at_sizes(given: Any) -> Any:
    """A type with its formulas worked out at SIZES."""
    if not isinstance(given, str) or "[" not in given:
        return given
    t = tensor(given)
    dims = [d if isinstance(d, int) or d is None else d.evaluate(SIZES) for d in t.shape or ()]
    return f"{given.partition('[')[0]}[{', '.join(map(str, dims))}]"


@pytest.mark.parametrize(TABLE, ROWS)
def test_onnx_does_not_say_otherwise(op, opset, inputs, attrs, outputs, requires, wrong):
    fixed = tuple(map(at_sizes, inputs))
    ctx = computed(op, opset, fixed, attrs, names(outputs))
    given = [(f"x{i}", x) for i, x in enumerate(fixed) if x is not None]
    node = helper.make_node(
        op, ["" if x is None else f"x{i}" for i, x in enumerate(inputs)], names(outputs), **attrs
    )
    graph = helper.make_graph(
        [node],
        "g",
        [value_info(n, _onnx_text(x)) for n, x in given if isinstance(x, str)],
        [onnx.ValueInfoProto(name=n) for n in names(outputs) if n],
        [onnx.numpy_helper.from_array(x, n) for n, x in given if not isinstance(x, str)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    agree = all(agrees(o.type.tensor_type, ctx[o.name]) for o in inferred)
    assert agree != bool(wrong), wrong or [(o, ctx[o.name]) for o in inferred]


def agrees(theirs: TypeProto.Tensor, ours: TensorType) -> bool:
    """Whether two types contradict each other nowhere."""
    if theirs.elem_type != TensorProto.UNDEFINED and theirs.elem_type != _code(ours.dtype):
        return False
    if not theirs.HasField("shape") or ours.shape is None:
        return True
    pairs = list(itertools.zip_longest(theirs.shape.dim, ours.shape))
    return all(
        d is not None
        and n is not None
        and (not d.HasField("dim_value") or not isinstance(n, int) or d.dim_value == n)
        for d, n in pairs
    )


def _code(dtype: Any) -> int:
    return TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)


def _onnx_text(text: str) -> str:
    return text.replace("float8e5m2", "float8_e5m2")


def once() -> list:
    """One row for each operator, the newest."""
    found: dict[str, Any] = {}
    for r in ROWS:
        op, opset = str(r.values[0]), r.values[1]
        if op not in found or found[op].values[1] <= opset:
            found[op] = r
    return list(found.values())


@pytest.mark.parametrize(TABLE, once())
def test_misuse(op, opset, inputs, attrs, outputs, requires, wrong):
    given = {f"x{i}": tensor(x) if isinstance(x, str) else x for i, x in enumerate(inputs)}
    ctx = ShapesContext({n: v for n, v in given.items() if v is not None}, opset)
    used = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    before = dict(ctx)
    with pytest.raises(ShapeError, match="has no output"):
        ctx.compute(helper.make_node(op, used, [], **attrs))
    for i in range(len(used)):
        names_ = [*used[:i], "nowhere", *used[i + 1 :]]
        with pytest.raises(UnknownValueError, match="takes 'nowhere'") as error:
            ctx.compute(helper.make_node(op, names_, ["y"], name="n", **attrs))
        assert str(error.value).startswith(f"n ({op}, opset {opset}): ")
        assert isinstance(error.value, KeyError)
    other = helper.make_node("Relu", ["x0"], ["y"])
    with pytest.raises(ShapeError, match=f"{op} .*another operator, Relu"):
        operator(op, opset=opset).compute(ctx, other)
    assert dict(ctx) == before and not ctx.requirements
    node = helper.make_node(op, used, names(outputs), **attrs)
    operator(op, opset=opset).compute(ctx, node)
    assert all(n in ctx for n in names(outputs) if n)


def test_selected_boxes_are_bounded():
    ctx = computed(
        "NonMaxSuppression",
        11,
        ("float32[N, R, 4]", "float32[N, C, R]", np.array([3])),
        {},
        ("y0",),
    )
    (bound,) = ctx.bounds.values()
    assert bound[0] == 0 and str(bound[1]) in ("C*N*min(R, 3)", "min(3*C*N, C*N*R)")


def test_a_limit_of_none_selects_none():
    ctx = computed("NonMaxSuppression", 11, ("float32[1, R, 4]", "float32[1, C, R]"), {}, ("y0",))
    assert str(ctx["y0"]) == "int64[0, 3]"


def test_shape_is_known_by_content():
    ctx = computed("Shape", 15, (X,), {"start": 1}, ("y0",))
    assert [str(d) for d in ctx.content("y0").tolist()] == ["C", "H", "W"]
