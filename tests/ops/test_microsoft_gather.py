"""com.microsoft: tables, windows and crops, held against onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from builders import node
from forms import demands, typed_as, types
from layers import compare, layer, refused
from twin import check, twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def codes(*shape, dtype: Any = np.uint8, most=256):
    return rng.integers(0, most, shape).astype(np.uint8).astype(dtype)


def as_constants(op, *inputs, fed=(1,), rtol=1e-5, **attributes):
    """The node gives what onnxruntime gives with all but some inputs constant: onnxruntime can be
    fed no numbers of few bits."""
    given = [typed_as(x) if i in fed else x for i, x in enumerate(inputs)]
    m = node(op, *given, **MS, **attributes)
    m.opset_import[0].version = min(m.opset_import[0].version, 21)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    feeds = {f"x{i}": inputs[i] for i in fed}
    session = onnxruntime.InferenceSession(
        m.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    compare(list(js.run(m, feeds).values()), session.run(None, feeds), rtol)


IDS = np.array([[0, 3], [-1, 4]])
OUT = np.array([1, 7, -9])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("data", "blocks", "zeros", "attributes"),
    [
        (codes(5, 32), 2, None, {"bits": 8}),
        (codes(5, 32), 2, codes(5, 2), {"bits": 8}),
        (codes(5, 16), 2, None, {"bits": 4}),
        (codes(5, 24), 3, codes(5, 2), {"bits": 4}),
        (codes(5, 8), 2, None, {"bits": 2}),
        (codes(5, 8), 2, codes(5, 1), {"bits": 2}),
    ],
)
def test_tables_of_bytes(data, blocks, zeros, attributes, dtype):
    scales = np.abs(numbers(5, blocks, dtype=dtype))
    for ids in (IDS, OUT, np.array(2), IDS.astype(np.int32)):
        inputs = (data, ids, scales) if zeros is None else (data, ids, scales, zeros)
        as_constants("GatherBlockQuantized", *inputs, block_size=16, **attributes)


U4, I4 = ml_dtypes.uint4, ml_dtypes.int4


@pytest.mark.parametrize(
    ("data", "scales", "zeros", "attributes"),
    [
        (codes(5, 32, dtype=U4, most=16), (5, 2), None, {}),
        (codes(5, 40, dtype=U4, most=16), (5, 3), codes(5, 3, dtype=U4, most=16), {}),
        (codes(5, 32, dtype=np.int8, most=7).astype(I4), (5, 2), None, {}),
        (codes(3, 5, 32, dtype=U4, most=16), (3, 5, 2), None, {"gather_axis": 1}),
        (codes(32, 5, dtype=U4, most=16), (2, 5), None, {"gather_axis": 1, "quantize_axis": 0}),
        (codes(32, 5, dtype=U4, most=16), (2, 5), None, {"gather_axis": 0, "quantize_axis": 0}),
    ],
)
def test_tables_of_four_bits(data, scales, zeros, attributes):
    inputs = [data, IDS, np.abs(numbers(*scales)), *([] if zeros is None else [zeros])]
    attributes = {"quantize_axis": -1, "block_size": 16, **attributes}
    as_constants("GatherBlockQuantized", *inputs, **attributes)


F8 = ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize(
    ("data", "scales", "block"),
    [
        (numbers(5, 32, dtype=F8), (5, 2), 16),
        (numbers(5, 32, dtype=F8), (1, 2), 16),
        (numbers(5, 32, dtype=ml_dtypes.float8_e5m2), (5, 1), 0),
        (numbers(5, 32, dtype=F8), (1, 1), 0),
        (numbers(5, 32, dtype=ml_dtypes.float4_e2m1fn), (5, 2), 16),
    ],
)
def test_tables_of_narrow_floats(data, scales, block):
    inputs = data, IDS, np.abs(numbers(*scales))
    as_constants("GatherBlockQuantized", *inputs, block_size=block)


def test_tables_in_bfloat16():
    """Not on onnxruntime's CPU: float32 rounded once."""
    scales = np.abs(numbers(5, 2)).astype(ml_dtypes.bfloat16)
    inputs = codes(5, 32), IDS
    (exact,) = twin("GatherBlockQuantized", *inputs, scales.astype(F), bits=8, block_size=16, **MS)
    wanted = exact.astype(ml_dtypes.bfloat16)
    layer("GatherBlockQuantized", *inputs, scales, wanted=wanted, bits=8, block_size=16, **MS)


def test_what_the_standard_has():
    check("GatherND", numbers(3, 4, 5), np.array([[0, 1], [2, 3]]))
    check("GatherND", numbers(3, 4, 5), np.array([[[0], [1]]], np.int32))
    grid = np.clip(numbers(2, 3, 5, 2), -1.2, 1.2)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                how = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                check("GridSample", numbers(2, 3, 6, 4), grid, **how)
    for mode in ("constant", "reflect", "edge"):
        check("Pad", numbers(3, 4), np.array([1, 0, 2, 1]), mode=mode)
    check("Pad", numbers(3, 4), np.array([[1, -1, 2, 0]]), np.array([1.5], F))
    check("Pad", numbers(3, 4), np.array([0, -1, 1, 0]), np.array(1.5, F))
    for dtype in (np.int16, np.int32, np.int64, F, np.float64):
        check("Range", *(np.array(v, dtype) for v in (1, 8, 3)))
        check("Range", np.array([2], dtype), np.array([5], dtype))
    check("Unique", np.array([2, 1, 1, 3, 4, 3], F), outputs=3)
    check("Unique", np.array([], F), outputs=3)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((7,), {"size": 3}),
        ((2, 7), {"size": 3, "step": 2}),
        ((2, 7, 3), {"dim": 1, "size": 3, "step": 3}),
        ((5, 3), {"dim": -2, "size": 5, "step": 2}),
    ],
)
def test_unfold(shape, attributes):
    for dtype in (F, np.int64, np.float64):
        check("UnfoldTensor", numbers(*shape).astype(dtype), **attributes)


ROIS = np.array(
    [[0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], [0.9, 0.8, 0.2, 0.3], [-0.2, 0.5, 1.4, 0.6]], F
)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (2, 1), (1, 1)])
def test_crops(mode, size):
    batch, size = np.array([0, 1, 1, 0], np.int32), np.array(size, np.int32)
    attributes = {"mode": mode, "extrapolation_value": 0.5}
    check("CropAndResize", numbers(2, 3, 6, 5), ROIS, batch, size, **attributes)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        (
            "GatherBlockQuantized",
            ["uint8[V, K]", "int64[N, S]", "float32[V, B]"],
            {"bits": 4, "block_size": 32},
            "float32[N, S, 2*K]",
        ),
        (
            "GatherBlockQuantized",
            ["uint4[V, K]", "int64[N, S]", "float16[V, B]"],
            {"block_size": 32},
            "float16[N, S, K]",
        ),
        (
            "UnfoldTensor",
            ["float32[N, S]"],
            {"size": 4, "step": 2},
            "float32[N, S//2 - 1, 4]",
        ),
        ("Pad", ["float32[N, S]", np.array([0, 1, 0, 2])], {}, "float32[N, S + 3]"),
        ("Range", [np.int64(0), np.int64(5)], {}, "int64[5]"),
        ("GatherND", ["float32[A, B, C]", "int64[N, 2]"], {}, "float32[N, C]"),
        (
            "CropAndResize",
            ["float32[N, C, H, W]", "float32[R, 4]", "int32[R]", np.array([3, 4], np.int32)],
            {},
            "float32[R, C, 3, 4]",
        ),
    ],
)
def test_sizes(op, inputs, attributes, wanted):
    assert types(op, *inputs, **attributes, **MS)[0].split(" = ")[0] == wanted


def test_demands():
    inputs = "uint8[V, K]", "int64[N, S]", "float32[U, B]"
    found = demands("GatherBlockQuantized", *inputs, bits=8, block_size=32, **MS)
    assert found == ["U == V", "B == (K - 1)//32 + 1"]
    assert demands("UnfoldTensor", "float32[N, S]", size=4, **MS) == ["S >= 4"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        (
            "GatherBlockQuantized",
            ["uint8[5, 16]", "int64[2]", "float32[5, 1]"],
            {"block_size": 24},
            "block_size is 24",
        ),
        (
            "GatherBlockQuantized",
            ["uint8[5, 16]", "int64[2]", "float32[5, 1]"],
            {"block_size": 32, "gather_axis": 1},
            "several numbers in a byte",
        ),
        (
            "GatherBlockQuantized",
            ["uint8[5, 16]", "int64[2]", "float32[5, 1]"],
            {"bits": 3},
            "bits is 3",
        ),
        ("UnfoldTensor", ["float32[3]"], {"size": 4}, "3 is less than 4"),
        (
            "CropAndResize",
            ["float32[1, 1, 3, 3]", "float32[2, 4]", "int32[2]", np.array([3], np.int32)],
            {},
            "wants two elements",
        ),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)
