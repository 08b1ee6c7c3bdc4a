"""Arithmetic, comparisons and bits: what the official cases leave out."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from builders import node, value_info
from close import check
from forms import demands, types
from onnx import TensorProto, helper, numpy_helper

import jaxshape as js

F, I64, BF16 = np.float32, np.int64, ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
X = np.array([[-2.5, -0.5, 0.0], [0.75, 1.5, 4.0]])

# one input ----------------------------------------------------------------------------------------

UNARY = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cosh": np.cosh,
    "Erf": np.vectorize(math.erf),
    "Exp": np.exp,
    "Floor": np.floor,
    "Neg": np.negative,
    "Round": np.rint,
    "Sign": np.sign,
    "Sinh": np.sinh,
    "Tanh": np.tanh,
}


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", ["float64", BF16])
def test_unary_in_every_float(op, dtype):
    x = X.astype(dtype)
    check(op, [x], UNARY[op](x.astype("float64")).astype(dtype))


@pytest.mark.parametrize("opset", [1, 6, 13])
@pytest.mark.parametrize("op", ["Sqrt", "Reciprocal", "Log"])
def test_unary_at_every_opset(op, opset):
    x = np.array([0.25, 4.0, INF, NAN], F)
    legacy: dict[str, Any] = {"consumed_inputs": [1]} if opset == 1 else {}
    wanted = {"Sqrt": np.sqrt(x), "Reciprocal": 1 / x, "Log": np.log(x)}[op]
    check(op, [x], wanted, opset=opset, **legacy)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_unary_rank_0_and_empty(shape):
    check("Exp", [np.zeros(shape, F)], np.ones(shape, F))


def test_round_is_to_even_and_keeps_what_is_no_number():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, INF, NAN], F)
    check("Round", [x], np.array([0, 2, 2, 0, -2, INF, NAN], F))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_integers_have_a_sign_and_a_magnitude(dtype):
    x = np.array([0, 1, 100], dtype)
    check("Sign", [x], np.array([0, 1, 1], dtype))
    check("Abs", [x], x)


def test_identity_hands_on_every_kind_of_value():
    assert types("Identity", "string") == ["string[...]"]
    assert types("Identity", "float32[N, ?]")[0].startswith("float32[N, ")
    text = np.array([["a"], ["b"]], object)
    assert js.run(node("Identity", "string[2, 1]"), {"x0": text})["y0"].tolist() == text.tolist()
    pair = helper.make_tensor_sequence_value_info("x0", TensorProto.FLOAT, ["N"])
    model = node("Identity", "float32[N]")
    model.graph.input[0].CopyFrom(pair)
    assert str(js.trace(model)["y0"]) == str(
        js.SequenceType(js.TensorType("float32", [None]), None)
    )


# two inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"),
    [
        ("Div", [7, -7, 7, -7], [2, 2, -2, -2], [3, -3, -3, 3]),
        ("Mod", [7, -7, 7, -7], [3, 3, -3, -3], [1, 2, -2, -1]),
        ("Pow", [2, -2, 3, 0], [10, 3, 0, 0], [1024, -8, 1, 1]),
        ("Pow", [2, 1, -1, -1], [-1, -5, -2, -3], [0, 1, 1, -1]),
        ("Sub", [1], [2], [-1]),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_arithmetic(op, a, b, wanted, dtype):
    check(op, [np.array(a, dtype), np.array(b, dtype)], np.array(wanted, dtype))


def test_integers_wrap():
    most = np.iinfo(I64).max
    check("Add", [I64(most), I64(1)], I64(np.iinfo(I64).min))
    check("Pow", [I64(3), I64(41)], np.power(np.array(3), 41))
    check("Mul", [np.uint8(200), np.uint8(2)], np.uint8(144))
    check("Div", [np.uint64(2**64 - 1), np.uint64(2)], np.uint64(2**63 - 1))


def test_truncated_remainder_has_the_sign_of_a():
    a, b = np.array([7, -7, 7, -7]), np.array([3, 3, -3, -3])
    check("Mod", [a, b], np.array([1, -1, 1, -1]), fmod=1)
    check("Mod", [F(-5.5), F(2)], F(-1.5), fmod=1)
    check(
        "Mod",
        [np.array([-5.5, 1.0, -1.0], F), np.array([2, -INF, INF], F)],
        np.array([0.5, -INF, INF], F),
    )


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [
        (np.array([2.0, 3.0], F), np.array([3, -1]), np.array([8, 1 / 3], F)),
        (np.array([4, 9], np.int32), np.array([0.5, 0.5], F), np.array([2, 3], np.int32)),
        (np.array([1.5], BF16), np.array([2.0]), np.array([2.25], BF16)),
        (np.array([-8.0]), np.array([3], np.uint8), np.array([-512.0])),
    ],
)
def test_a_power_has_the_dtype_of_its_base(x, y, wanted):
    check("Pow", [x, y], wanted)


LIMITED = [
    ((2, 3, 4), (2, 3, 4), {}, (2, 3, 4)),
    ((2, 3, 4), (), {"broadcast": 1}, ()),
    ((2, 3, 4), (1, 1), {"broadcast": 1}, ()),
    ((2, 3, 4), (3, 4), {"broadcast": 1}, (3, 4)),
    ((2, 3, 4), (3,), {"broadcast": 1, "axis": 1}, (3, 1)),
    ((2, 3, 4), (2, 3), {"broadcast": 1, "axis": -3}, (2, 3, 1)),
]


@pytest.mark.parametrize(("a", "b", "attributes", "shape"), LIMITED)
@pytest.mark.parametrize(("op", "opset"), [("Mul", 6), ("Pow", 1)])
def test_broadcasting_before_opset_7(op, opset, a, b, attributes, shape):
    x, y = (
        1 + np.arange(24, dtype=F).reshape(a) / 8,
        (np.arange(math.prod(b)) % 3).astype(F).reshape(b),
    )
    f = {"Mul": np.multiply, "Pow": np.power}[op]
    check(op, [x, y], f(x, y.reshape(shape)), opset=opset, **attributes)


@pytest.mark.parametrize(
    ("a", "b", "attributes", "text", "demanded"),
    [
        ("float32[N, 3]", "float32[M, N]", {}, "float32[3, 3]", {"N == 3", "M == 3"}),
        (
            "float32[N, c, h]",
            "float32[3]",
            {"broadcast": 1, "axis": 1},
            "float32[N, 3, h]",
            {"c == 3"},
        ),
        (
            "float32[N, c, h]",
            "float32[k, 1]",
            {"broadcast": 1, "axis": 1},
            "float32[N, c, h]",
            set(),
        ),
    ],
)
def test_sizes_before_opset_7(a, b, attributes, text, demanded):
    assert types("Add", a, b, opset=6, **attributes) == [text]
    assert set(demands("Add", a, b, opset=6, **attributes)) == demanded


@pytest.mark.parametrize(
    ("op", "inputs", "text"),
    [
        ("Add", ["float32[N, 1]", "float32[M]"], "float32[N, M]"),
        ("Less", ["int32[N, 3]", "int32[]"], "bool[N, 3]"),
        ("Equal", ["string[N]", "string[1]"], "bool[N]"),
        ("Where", ["bool[N, 1]", "string[M]", "string[1]"], "string[N, M]"),
        ("Pow", ["int32[N]", "float64[]"], "int32[N]"),
        ("Max", ["float16[N]", "float16[4, 1]", "float16[]"], "float16[4, N]"),
        ("Clip", ["float32", "float32[]"], "float32[...]"),
        ("IsNaN", ["float16[N]"], "bool[N]"),
        ("Add", ["float32[N]", "float32"], "float32[...]"),
        ("CastLike", ["float32[N]", "int8"], "int8[N]"),
    ],
)
def test_types(op, inputs, text):
    assert types(op, *inputs) == [text]


# several inputs and choices -----------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 6, 8, 13])
def test_any_number_of_inputs(opset):
    a, b, c = np.array([1, NAN, 3], F), np.array([2, 2, 2], F), np.array([0, 5, 9], F)
    check("Max", [a, b, c], np.array([2, NAN, 9], F), opset=opset)
    check("Min", [a, b, c], np.array([0, NAN, 2], F), opset=opset)
    check("Sum", [a, b, c], a + b + c, opset=opset)
    check("Mean", [a], a, opset=opset)


def test_half_precision_sums_round_once():
    xs = [np.array([2048], np.float16), *[np.array([1], np.float16)] * 2]
    check("Sum", xs, np.array([2050], np.float16))


def test_where_chooses_text():
    x, y = np.array(["a", "b"], object), np.array("c", object)
    check("Where", [np.array([[True], [False]]), x, y], np.array([["a", "b"], ["c", "c"]], object))


def test_clip_at_every_opset():
    x = np.array([-INF, -2, 0.5, 3, INF, NAN], F)
    most = np.finfo(F).max
    check("Clip", [x], x, opset=1)
    check("Clip", [x], np.array([-1, -1, 0.5, 1, 1, NAN], F), opset=6, min=-1.0, max=1.0)
    check("Clip", [x], np.clip(x, -most, most), opset=6)
    check("Clip", [x, None, F(1)], np.minimum(x, F(1)), opset=11)
    check("Clip", [x, F(2), F(-1)], np.where(np.isnan(x), x, F(-1)))  # max wins
    check(
        "Clip",
        [np.array([-5, 300], np.int16), np.array([0], np.int16)],
        np.array([0, 300], np.int16),
    )


# truth and bits -----------------------------------------------------------------------------------


def test_comparisons():
    check("Equal", [np.array(["a", "b"], object), np.array("a", object)], np.array([True, False]))
    check("Equal", [F(NAN), F(NAN)], np.bool_(False))
    check("LessOrEqual", [np.uint64(2**63), np.uint64(2**63 + 1)], np.bool_(True))
    check("Xor", [np.array([True, False]), np.array(True)], np.array([False, True]))


@pytest.mark.parametrize("dtype", [F, "float16", ml_dtypes.float8_e5m2])
def test_infinity_and_nan(dtype):
    x = np.array([1, INF, -INF, NAN], F).astype(dtype)
    check("IsNaN", [x], np.array([0, 0, 0, 1], bool))
    check("IsInf", [x], np.array([0, 1, 1, 0], bool))
    check("IsInf", [x], np.array([0, 1, 0, 0], bool), detect_negative=0)
    check("IsInf", [x], np.array([0, 0, 1, 0], bool), detect_positive=0)
    check("IsInf", [x], np.zeros(4, bool), detect_positive=0, detect_negative=0)


@pytest.mark.parametrize(
    ("dtype", "direction", "x", "y", "wanted"),
    [
        ("uint8", "LEFT", [1, 255, 3], [7, 8, 200], [128, 0, 0]),
        ("uint8", "RIGHT", [128, 255], [7, 8], [1, 0]),
        ("int8", "RIGHT", [-128, -1, 64, -3], [7, 9, 9, -1], [-1, -1, 0, -1]),
        ("int8", "LEFT", [-1, 1, 5], [7, 8, -1], [-128, 0, 0]),
        ("uint64", "RIGHT", [2**63], [63], [1]),
    ],
)
def test_shifts_beyond_the_width(dtype, direction, x, y, wanted):
    check(
        "BitShift",
        [np.array(x, dtype), np.array(y, dtype)],
        np.array(wanted, dtype),
        direction=direction,
    )


# formulas in sizes --------------------------------------------------------------------------------


def on_shape(op: str, *inputs, dtype=None, opset=21, **attributes) -> str:
    """What an op makes of a shape (N, 3), as text; `...` stands for the shape among the inputs."""
    nodes, shape = [helper.make_node("Shape", ["x"], ["s"])], "s"
    if dtype:
        nodes.append(
            helper.make_node(
                "Cast", ["s"], ["f"], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            )
        )
        shape = "f"
    names = [shape if v is ... else f"c{i}" for i, v in enumerate(inputs)]
    nodes.append(helper.make_node(op, names, ["y"], **attributes))
    constants = [
        numpy_helper.from_array(np.asarray(v), n)
        for n, v in zip(names, inputs, strict=True)
        if v is not ...
    ]
    graph = helper.make_graph(
        nodes, "g", [value_info("x", "float32[N, 3]")], [onnx.ValueInfoProto(name="y")], constants
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return ", ".join(map(str, js.trace(made).content("y").reshape(-1).tolist()))


@pytest.mark.parametrize(
    ("op", "inputs", "keywords", "wanted"),
    [
        ("Add", [..., I64(2)], {}, "N + 2, 5"),
        ("Sub", [[1, 2], ...], {}, "1 - N, -1"),
        ("Mul", [..., ...], {}, "N**2, 9"),
        ("Mul", [..., ...], {"opset": 6}, "N**2, 9"),
        ("Div", [..., I64(2)], {}, "N//2, 1"),
        ("Div", [..., F(2)], {"dtype": F}, "N/2, 1.5"),
        ("Mod", [..., I64(2)], {}, "N % 2, 1"),
        ("Neg", [...], {}, "-N, -3"),
        ("Abs", [...], {}, "N, 3"),
        ("Sign", [...], {}, "1, 1"),
        ("Relu", [...], {}, "N, 3"),
        ("Pow", [..., I64(2)], {}, "N**2, 9"),
        ("Min", [..., I64(5)], {}, "min(N, 5), 3"),
        ("Max", [..., I64(5), I64(7)], {}, "max(N, 7), 7"),
        ("Sum", [..., ...], {}, "2*N, 6"),
        ("Mean", [..., ...], {"dtype": F}, "N, 3.0"),
        ("Clip", [..., I64(1), I64(10)], {}, "min(N, 10), 3"),
        ("Where", [[True, False], ..., I64(9)], {}, "N, 9"),
        ("Cast", [...], {"to": TensorProto.INT32}, "N, 3"),
        ("CastLike", [..., F(0)], {}, "N, 3.0"),
        ("Equal", [..., I64(1)], {}, "N == 1, False"),
        ("Greater", [..., I64(0)], {}, "True, True"),
        ("Identity", [...], {}, "N, 3"),
    ],
)
def test_shape_arithmetic(op, inputs, keywords, wanted):
    assert on_shape(op, *inputs, **keywords) == wanted


# errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "match"),
    [
        ("Add", ["float32[3]", "float32[4]"], {}, "3 .* 4"),
        ("Add", ["float32[N, 3]", "float32[3]"], {"opset": 6}, "ranks 2 and 1 differ"),
        (
            "Add",
            ["float32[N]", "float32[3, 4]"],
            {"opset": 6, "broadcast": 1},
            "b of rank 2 does not fit into rank 1",
        ),
        (
            "Mul",
            ["float32[2, 3]", "float32[4]"],
            {"opset": 6, "broadcast": 1},
            "axis 1 of a and 0 of b",
        ),
        ("Max", ["float32[2]", "float32[3]"], {"opset": 6}, "axis 0"),
        ("Max", [], {}, "at least one input"),
        ("Clip", ["float32[N]", "float32[2]"], {}, r"min \(2\) is no scalar"),
        ("BitShift", ["uint8[N]", "uint8[]"], {"direction": "UP"}, "'UP', wants LEFT or RIGHT"),
    ],
)
def test_errors(op, inputs, attributes, match):
    with pytest.raises(js.ShapeError, match=match):
        js.trace(node(op, *inputs, **attributes))
