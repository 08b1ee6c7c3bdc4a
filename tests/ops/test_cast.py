"""Conversions between element types, with every rule of the standard's tables."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builders import node
from close import check
from forms import types
from onnx import TensorProto, helper

import jaxshape as js

F, I64, BF16 = np.float32, np.int64, ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu


def code(dtype) -> int:
    return (
        TensorProto.STRING if dtype is object else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    )


@pytest.mark.parametrize(
    ("x", "to", "attributes", "wanted"),
    [
        (np.array([200, -129], np.int16), "int8", {}, [-56, 127]),
        (np.array([200, -3], np.int32), ml_dtypes.int4, {}, [-8, -3]),
        (np.array([1.9, -1.9], F), "int32", {}, [1, -1]),
        (np.array([9.0, -9.0], F), ml_dtypes.uint4, {}, [9, 7]),
        (np.array([0.0, -0.0, NAN, 0.1], F), "bool", {}, [False, False, True, True]),
        (np.array([1e6, -1e6]), "float16", {}, [INF, -INF]),
        (np.array([1000, INF, NAN, 464], F), E4M3, {}, [448, 448, NAN, 448]),
        (np.array([1000, INF, NAN, 464], F), E4M3, {"saturate": 0}, [NAN, NAN, NAN, 448]),
        (np.array([1e6, -INF], F), E5M2, {"saturate": 0}, [INF, -INF]),
        (np.array([1e6, -INF], F), E5M2, {}, [57344, -57344]),
        (np.array([6, -6], F).astype(ml_dtypes.float4_e2m1fn), "int64", {}, [6, -6]),
        (np.array([3.0, 5.0, 6.0, 0.0], F), E8M0, {}, [4, 8, 8, 2.0**-127]),
        (np.array([3.0, 5.0, 6.0], F), E8M0, {"round_mode": "down"}, [2, 4, 4]),
        (
            np.array([3.0, 5.0, 6.0, 1e-39, 8e-39], F),
            E8M0,
            {"round_mode": "nearest"},
            [4, 4, 8, 2.0**-127, 2.0**-127],
        ),
        (np.array([INF, 2e38, NAN], F), E8M0, {}, [2.0**127, 2.0**127, NAN]),
        (np.array([INF, 2e38, 0.0], F), E8M0, {"saturate": 0}, [NAN, NAN, NAN]),
    ],
)
def test_cast(x, to, attributes, wanted):
    wide = np.array(wanted, F if np.dtype(to).kind in "fV" else to)
    for attempt in ("Cast", "CastLike"):
        more: dict[str, Any] = {"to": code(to)} if attempt == "Cast" else {}
        like = [] if attempt == "Cast" else [np.zeros((2, 2), to)]
        for given in (x, x[:0], x[0]):
            at = wide if given is x else wide[:0] if given.ndim else wide[0]
            (host,) = js.run(node(attempt, given, *like, **attributes, **more), {}).values()
            typed = f"{given.dtype}{list(given.shape)}"
            (device,) = js.run(
                node(attempt, typed, *like, **attributes, **more), {"x0": given}
            ).values()
            for got in (host, device):
                assert got.dtype == to
                np.testing.assert_array_equal(got.astype(wide.dtype), at)


@pytest.mark.parametrize(
    ("x", "to", "wanted"),
    [
        ([1, -20], object, ["1", "-20"]),
        (np.array([0.5, 1e-5, 3.14], F), object, ["0.5", "1e-05", "3.14"]),
        (["1", " 2 ", "9223372036854775807"], I64, [1, 2, 2**63 - 1]),
        (["+INF", "-inf", "NaN", "1E3"], F, [INF, -INF, NAN, 1000]),
        (["0.1", "1e3"], E4M3, np.array([0.1, 448], F).astype(E4M3)),
        (["a", "b"], object, ["a", "b"]),
    ],
)
def test_cast_text(x, to, wanted):
    x = np.array(x, object) if isinstance(x[0], str) else np.array(x)
    got = js.run(node("Cast", x, to=code(to)), {})["y0"]
    assert got.dtype == to and got.shape == x.shape
    np.testing.assert_array_equal(got, np.array(wanted, to))


def test_cast_of_opset_1_names_its_type():
    check("Cast", [np.array([1.5], F)], np.array([1]), opset=1, to="INT64")
    with pytest.raises(js.ShapeError, match="to is 'NUMBER', which is no element type"):
        types("Cast", "float32[N]", opset=1, to="NUMBER")


@pytest.mark.parametrize(
    ("x", "to", "wanted"),
    [
        (np.array([1.0, -0.0], F), "uint32", np.array([0x3F800000, 1 << 31], "uint32")),
        (np.array([True, False]), "int8", np.array([1, 0], "int8")),
        (np.array([1 + 2j], "complex64"), "uint64", np.array([0x400000003F800000], "uint64")),
        (np.array([0x400000003F800000], "uint64"), "complex64", np.array([1 + 2j], "complex64")),
        (np.array([-1, 7], ml_dtypes.int4), ml_dtypes.uint4, np.array([15, 7], ml_dtypes.uint4)),
        (np.float16(1), BF16, np.array(0x3C00, "uint16").view(BF16)),
    ],
)
def test_bitcast(x, to, wanted):
    check("BitCast", [x], wanted, to=code(to))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "match"),
    [
        ("Cast", ["float32[N]"], {"to": 99}, "99 is not a data type"),
        (
            "Cast",
            ["float32[N]"],
            {"to": code(E8M0), "round_mode": "odd"},
            "'odd', wants up, down or nearest",
        ),
        ("BitCast", ["float32[N]"], {"to": 7}, "x is float32 of 32 bits, int64 has 64"),
        ("BitCast", ["string[N]"], {"to": 7}, "strings have no bits"),
    ],
)
def test_errors(op, inputs, attributes, match):
    with pytest.raises(js.ShapeError, match=match):
        js.trace(node(op, *inputs, **attributes))
