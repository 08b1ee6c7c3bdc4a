"""Stored tensors: every dtype and form of storage, and files that lie about what they hold."""

import math
import os
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jaxshape._error import ModelError, UnsupportedError
from jaxshape._model import DTYPES, Stored, load, onnx_dtype

FLOAT = np.dtype(np.float32)


def weights(*tensors: TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph([], "g", [], [], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def weight(tensor: TensorProto) -> Stored:
    return load(weights(tensor)).graph.initializers[tensor.name]


CODES = sorted(c for c in DTYPES if c in TensorProto.DataType.values())
STORED = [(c, True) for c in CODES if c != TensorProto.STRING]
# onnx itself writes float6 as raw bytes only
STORED += [(c, False) for c in CODES if DTYPES[c].name not in ("float6_e2m3fn", "float6_e3m2fn")]


@pytest.mark.parametrize(("code", "raw"), STORED)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (0, 4)])
def test_tensors_read_as_onnx_reads_them(code, raw, shape):
    size = math.prod(shape)
    values: list[Any] = [v % 2 + 1 for v in range(size)]
    if code == TensorProto.BOOL:
        values = [v == 1 for v in values]
    if code == TensorProto.STRING:
        values = list(map(str, values))
    dtype = helper.tensor_dtype_to_np_dtype(code)
    proto = (
        numpy_helper.from_array(np.array(values).astype(dtype).reshape(shape), "w")
        if raw
        else helper.make_tensor("w", code, shape, values)
    )
    tensor = weight(proto)
    array = tensor.array()
    assert array.dtype == tensor.dtype == DTYPES[code]
    assert array.shape == tensor.shape == shape and tensor.size == size
    assert not array.flags.writeable
    assert array.tolist() == numpy_helper.to_array(proto).tolist()
    assert tensor.nbytes == (len(proto.raw_data) if raw else tensor.nbytes)
    assert onnx_dtype(array.dtype) == code


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    ("code", "values"),
    [
        (TensorProto.INT4, [-8, 7, -1]),
        (TensorProto.UINT4, [15, 0, 9]),
        (TensorProto.INT8, [-128, 127]),
        (TensorProto.INT16, [-32768, 1]),
        (TensorProto.UINT64, [2**64 - 1]),
        (TensorProto.INT64, [-(2**63)]),
        (TensorProto.FLOAT16, [-1.5, float("inf")]),
        (TensorProto.BFLOAT16, [-1.5, 3.0]),
        (TensorProto.COMPLEX64, [1 + 2j, -1j]),
        (TensorProto.BOOL, [True, False]),
    ],
)
def test_extreme_elements(code, values, raw):
    dtype = helper.tensor_dtype_to_np_dtype(code)
    proto = (
        numpy_helper.from_array(np.array(values).astype(dtype), "w")
        if raw
        else helper.make_tensor("w", code, [len(values)], values)
    )
    assert weight(proto).array().tolist() == np.array(values).astype(dtype).tolist()


@pytest.mark.parametrize("name", ["int2", "uint2"])
def test_two_bit_elements(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    values = [-2, 1, 0, -1, 1] if name == "int2" else [3, 1, 0, 2, 1]
    packed = [sum((v & 3) << (2 * i) for i, v in enumerate(values[at : at + 4])) for at in (0, 4)]
    for proto in (TensorProto(raw_data=bytes(packed)), TensorProto(int32_data=packed)):
        proto.MergeFrom(TensorProto(name="w", data_type=onnx_dtype(dtype), dims=[5]))
        assert weight(proto).array().astype(int).tolist() == values


def test_a_string_that_is_no_text_stays_bytes():
    proto = TensorProto(name="w", data_type=8, dims=[2], string_data=[b"\xff", b"ok"])
    assert weight(proto).array().tolist() == [b"\xff", "ok"]


def test_small_arrays_are_kept_and_large_ones_as_long_as_they_are_held():
    small = weight(numpy_helper.from_array(np.ones(3), "w"))
    assert small.array() is small.array()
    large = weight(numpy_helper.from_array(np.ones(70_000, np.float32), "w"))
    held = large.array()
    assert large.array() is held


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data_type": 1, "dims": [2], "raw_data": b"1234567"}, "7 bytes of raw_data.*takes 8"),
        ({"data_type": 22, "dims": [3], "raw_data": b"1"}, "1 bytes of raw_data.*takes 2"),
        ({"data_type": 1, "dims": [2], "float_data": [1]}, "1 float_data.*takes 2"),
        ({"data_type": 14, "dims": [2], "float_data": [1, 2]}, "2 float_data.*takes 4"),
        ({"data_type": 1, "dims": [10**12]}, "0 float_data"),
        ({"data_type": 8, "dims": [10**12]}, "0 string_data"),
        ({"data_type": 1, "dims": [2], "int32_data": [1, 2]}, "0 float_data"),
        (
            {"data_type": 1, "dims": [1], "segment": TensorProto.Segment(begin=0)},
            "stored in segments",
        ),
    ],
)
def test_what_a_tensor_claims_is_checked_when_it_is_read(fields, message):
    stored = weight(TensorProto(name="w", **fields))
    with pytest.raises(ModelError, match=f"tensor 'w': .*{message}"):
        stored.array()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data_type": 0}, "0 is not a data type"),
        ({"data_type": 99}, "99 is not a data type"),
        ({"data_type": 1, "dims": [-1]}, "negative size"),
        ({"data_type": 1, "dims": [2**62, 2**62]}, "beyond what any machine"),
        ({"data_type": 1, "dims": [0, 2**62, 2**62]}, "beyond what any machine"),
        ({"data_type": 1, "dims": [1] * 70}, "beyond what any machine"),
    ],
)
def test_impossible_tensors_are_refused_at_once(fields, message):
    with pytest.raises(ModelError, match=f"tensor 'w': .*{message}"):
        load(weights(TensorProto(name="w", **fields)))


def test_an_unnamed_tensor_is_named_by_its_attribute():
    tensor = TensorProto(data_type=1, dims=[2], raw_data=b"123")
    proto = weights()
    proto.graph.node.add(op_type="Constant", name="c", output=["y"])
    proto.graph.node[0].attribute.append(helper.make_attribute("value", tensor))
    with pytest.raises(ModelError, match="node 'c': tensor of attribute 'value': has 3 bytes"):
        load(proto)


def test_dtypes_without_a_type_in_onnx():
    assert onnx_dtype(np.dtype("U3")) == onnx_dtype(np.dtype("S3")) == TensorProto.STRING
    with pytest.raises(UnsupportedError, match="datetime64"):
        onnx_dtype(np.dtype("datetime64[s]"))


# Sparse tensors


def sparse_model(indices, dims, values=(5.0, 6.0)) -> onnx.ModelProto:
    proto = weights()
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.array(values, np.float32), "s"),
            numpy_helper.from_array(np.array(indices, np.int64), "i"),
            dims,
        )
    )
    return proto


@pytest.mark.parametrize("indices", [[1, 3], [[0, 1], [1, 1]]])
def test_sparse_initializers_unfold(indices):
    stored = load(sparse_model(indices, [2, 2])).graph.initializers["s"]
    assert (stored.dtype, stored.shape) == (FLOAT, (2, 2))
    assert stored.array().tolist() == [[0, 5], [0, 6]]


def test_an_empty_sparse_initializer():
    stored = load(sparse_model(np.zeros(0), [0, 3], ())).graph.initializers["s"]
    assert stored.array().shape == (0, 3)


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([1, 4], [2, 2], "an index lies outside"),
        ([-1, 0], [2, 2], "an index lies outside"),
        ([[0, 2], [0, 0]], [2, 2], "an index lies outside"),
        ([1], [2, 2], r"2 values at indices of shape \[1\]"),
        ([0, 1], [10**6, 10**6], "shape .* unfolds to more than 2 GiB"),
    ],
)
def test_malformed_sparse_initializers(indices, dims, message):
    stored = load(sparse_model(indices, dims)).graph.initializers["s"]
    with pytest.raises(ModelError, match=f"sparse tensor 's': {message}"):
        stored.array()


# External data


def external(folder: pathlib.Path, **entries: object) -> Stored:
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(weights(tensor).SerializeToString())
    return load(path).graph.initializers["w"]


@pytest.fixture
def folder(tmp_path):
    inner = tmp_path / "model"
    (inner / "sub").mkdir(parents=True)
    data = np.arange(4, dtype=np.float32).tobytes()
    for place in (inner / "w.bin", inner / "sub/w.bin", tmp_path / "out.bin"):
        place.write_bytes(data)
    (inner / "empty.bin").touch()
    (inner / "link.bin").symlink_to(tmp_path / "out.bin")
    (inner / "near.bin").symlink_to(inner / "w.bin")
    (inner / "up").symlink_to(tmp_path)
    os.mkfifo(inner / "pipe")
    return inner


@pytest.mark.parametrize(
    ("entries", "values"),
    [
        ({"location": "w.bin"}, [0, 1]),
        ({"location": "w.bin", "offset": 8, "length": 8}, [2, 3]),
        ({"location": "sub/w.bin", "offset": 4}, [1, 2]),
        ({"location": "near.bin"}, [0, 1]),
    ],
)
def test_external_data_is_mapped(folder, entries, values):
    stored = external(folder, **entries)
    assert stored.external
    array = stored.array()
    assert type(array) is np.ndarray and not array.flags.writeable
    assert array.tolist() == values


def test_external_bytes_may_start_anywhere(folder):
    (folder / "odd.bin").write_bytes(b"x" + np.array([1, 2], np.float32).tobytes())
    assert external(folder, location="odd.bin", offset=1).array().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "gone.bin"}, "there is no file 'gone.bin' in .*put the file beside"),
        ({}, "not inside of"),
        ({"location": "../out.bin"}, "not inside of"),
        ({"location": "sub/../../out.bin"}, "not inside of"),
        ({"location": "/etc/passwd"}, "not inside of"),
        ({"location": "link.bin"}, "not inside of"),
        ({"location": "up/out.bin"}, "not inside of"),
        ({"location": "sub"}, "there is no file"),
        ({"location": "pipe"}, "there is no file"),
        ({"location": "a\0b"}, "cannot read|not inside of"),
        ({"location": "empty.bin"}, "which has 0"),
        ({"location": "w.bin", "offset": 12}, "needs bytes 12 to 20 of 'w.bin', which has 16"),
        ({"location": "w.bin", "offset": 10**18}, "which has 16"),
        ({"location": "w.bin", "offset": -4}, "offset '-4', not a number"),
        ({"location": "w.bin", "offset": "abc"}, "offset 'abc', not a number"),
        ({"location": "w.bin", "length": 4}, "4 bytes of external data.*takes 8"),
    ],
)
def test_external_data_that_cannot_be_had_fails_when_it_is_read(folder, entries, message):
    stored = external(folder, **entries)
    assert stored.shape == (2,)
    with pytest.raises(ModelError, match=f"tensor 'w': .*(?:{message})"):
        stored.array()


def test_external_data_of_a_proto_lies_in_the_current_folder(folder, monkeypatch):
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    monkeypatch.chdir(folder)
    assert weight(tensor).array().tolist() == [0, 1]
