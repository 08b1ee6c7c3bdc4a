"""Whatever a user may hold a model as, to a ModelProto and the folder of its external data."""

from __future__ import annotations

import importlib
import os
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto
from onnx.serialization import registry

from ._error import ModelError
from ._mapped import Mapped, is_large


def open_source(source: Any) -> tuple[ModelProto, str, str]:
    """Find the protobuf, the folder of its external data, and what to call it in errors."""
    if isinstance(source, ModelProto):
        return source, os.getcwd(), "the given ModelProto"
    if isinstance(source, (bytes, bytearray, memoryview)):
        if not source:
            raise ModelError("the given bytes are empty, where an ONNX model was expected")
        return _parse(bytes(source)), os.getcwd(), "the given bytes"
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return _parse_file(path), os.path.dirname(os.path.abspath(path)), path
    if type(source).__module__.partition(".")[0] == "onnx_ir":
        return _from_onnx_ir(source)
    raise ModelError(
        f"cannot load a model from a {type(source).__name__}: give a path, the bytes of a file, "
        "an onnx.ModelProto or an onnx_ir.Model"
    )


def map_source(source: Any) -> Mapped | None:
    """The file of a model, mapped, where it is a large one in ONNX's binary form."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = os.fspath(source)
    try:
        return Mapped(path) if is_large(path) and is_binary(path) else None
    except OSError as e:
        raise ModelError(f"cannot read {path}: {e.strerror or e}") from e
    except (DecodeError, ModelError) as e:
        raise ModelError(f"{path} is no ONNX model, or is cut short: {e}") from e


def _parse(data: bytes) -> ModelProto:
    try:
        return ModelProto.FromString(data)
    except Exception as e:
        raise ModelError(f"the given bytes are no ONNX model, or are cut short: {e}") from e


def _parse_file(path: str) -> ModelProto:
    if os.path.isdir(path):
        raise ModelError(f"{path} is a folder: give the path of the model file in it")
    try:
        if not os.path.getsize(path):
            raise ModelError(f"{path} is empty; was it downloaded or written to the end?")
        return onnx.load(path, load_external_data=False)
    except OSError as e:
        raise ModelError(f"cannot read {path}: {e.strerror or e}") from e
    except ModelError:
        raise
    except Exception as e:  # which of protobuf's errors depends on the format the name asks for
        raise ModelError(f"{path} is no ONNX model, or is cut short: {e}") from e


def _from_onnx_ir(source: Any) -> tuple[ModelProto, str, str]:
    try:
        proto = importlib.import_module("onnx_ir").to_proto(source)
    except Exception as e:
        raise ModelError(f"onnx_ir cannot write this {type(source).__name__} as ONNX: {e}") from e
    if not isinstance(proto, ModelProto):
        raise ModelError(f"cannot load a model from an onnx_ir.{type(source).__name__}")
    weights = (v.const_value for v in source.graph.initializers.values())
    folder = next(filter(None, (getattr(w, "base_dir", None) for w in weights)), os.getcwd())
    return proto, os.fspath(folder), "the given onnx_ir.Model"


def is_binary(path: str) -> bool:
    """Whether a file's name asks for ONNX's binary form, as `onnx.load` and `onnx.save` take it."""
    return kind_of(path) == "protobuf"


def kind_of(path: str) -> str:
    """The format that a file's name asks for."""
    extension = os.path.splitext(path)[1]
    return registry.get_format_from_file_extension(extension) or "protobuf"
