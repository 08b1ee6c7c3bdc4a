"""Tracing whole small models: shapes as formulas, requirements, and what stays unknown."""

import numpy as np
import onnx
import pytest
from builders import model
from onnx import numpy_helper

import jaxshape as js


def with_initializers(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    made = model(text)
    for name, array in arrays.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return made


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# (graph text, initializers, {value: type as text})
FORMULAS = [
    ("(float[N, 3] x) => (float[] y) { y = Concat <axis=0> (x, x) }", {}, {"y": "float32[2*N, 3]"}),
    (
        "(float[N, 3] x, float[M, 3] z) => (float[] y) { y = Concat <axis=0> (x, z) }",
        {},
        {"y": "float32[M + N, 3]"},
    ),
    (
        "(float[N, 3, L] x) => (float[] y) { y = Reshape (x, s) }",
        {"s": i64(0, -1)},
        {"y": "float32[N, 3*L]"},
    ),
    (
        "(float[B, S, 12] x) => (float[] y) { h = Shape (x)  b = Gather (h, zero)  "
        "c = Gather (h, one)  d = Concat <axis=0> (b, c, four, three)  r = Reshape (x, d)  "
        "y = Transpose <perm=[0, 2, 1, 3]> (r) }",
        {"zero": i64(0), "one": i64(1), "four": i64(4), "three": i64(3)},
        {"y": "float32[B, 4, S, 3]"},
    ),
    (
        "(float[N, 4] x) => (float[] y) { y = MatMul (x, w) }",
        {"w": np.ones((4, 5), np.float32)},
        {"y": "float32[N, 5]"},
    ),
    ("(float[N, C] x, float[C] b) => (float[] y) { y = Add (x, b) }", {}, {"y": "float32[N, C]"}),
    (
        "(float[L, 3] x) => (float[] y) { y = Slice (x, a, e) }",
        {"a": i64(1), "e": i64(2**63 - 1)},
        {"y": "float32[L - 1, 3]"},
    ),
    ("(float[N] x) => (bool[] y) { y = Greater (x, x) }", {}, {"y": "bool[N]"}),
]


@pytest.mark.parametrize(("graph", "arrays", "expected"), FORMULAS)
def test_formula(graph, arrays, expected):
    traced = js.trace(
        with_initializers(f'<ir_version: 10, opset_import: ["": 20]> g {graph}', **arrays)
    )
    assert {n: str(traced[n]) for n in expected} == expected


def squeeze_if_one(rest: str) -> onnx.ModelProto:
    """x (N, L, 3) loses axis 1 where L//8 is 1, as an exporter writes a squeeze; then `rest`."""
    return model(f"""g (float[N, L, 3] x) => (float[] y) {{
        s = Shape <start = 1, end = 2> (x)
        eight = Constant <value = int64[1] {{8}}> ()
        one = Constant <value = int64[1] {{1}}> ()
        q = Div (s, eight)
        c = Equal (q, one)
        z = If (c) <
            then_branch = t () => (float[] u) {{ u = ReduceMax <keepdims = 0> (x, one) }},
            else_branch = e () => (float[] v) {{ v = Identity (x) }}>
        {rest}
    }}""")


def test_branches_of_different_rank_are_tried_where_the_rest_decides():
    traced = js.trace(squeeze_if_one("y = Transpose <perm = [1, 0]> (z)"))
    assert str(traced["y"]) == "float32[3, N]"
    assert sorted(map(str, traced.requirements)) == ["L <= 15", "L >= 8"]


def test_branches_of_different_rank_that_both_may_run_stay_unknown():
    traced = js.trace(squeeze_if_one("y = Relu (z)"))
    assert traced["y"].shape is None and not traced.requirements
