"""Inputs and outputs that lie beside a model, as ONNX's own test data do: `input_0.pb`,
`output_0.pb`, in the order of the graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import google.protobuf.message
import onnx

from ._error import ModelError
from ._model import Model
from ._tensor import Folder, stored


def data_set(model: Model, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs and outputs in a `test_data_set` folder, by name.

    Raises:
      ModelError: a file is no value of ONNX, or there are more than the model has.
    """
    graph = model.proto.graph
    return _values(folder, "input", graph.input), _values(folder, "output", graph.output)


def read_value(path: Path, kind: str = "tensor") -> Any:
    """One value from a protobuf file: a tensor, or by `kind` a sequence or an optional.

    Raises:
      ModelError: the file holds no such value.
    """
    proto = {"sequence": onnx.SequenceProto, "optional": onnx.OptionalProto}.get(
        kind, onnx.TensorProto
    )()
    try:
        proto.ParseFromString(path.read_bytes())
    except google.protobuf.message.DecodeError as e:
        raise ModelError(f"{path} holds no {kind}: {e}") from e
    return _value(proto, Folder(str(path.parent)), str(path))


def _values(folder: Path, what: str, infos: Any) -> dict[str, Any]:
    files = sorted(folder.glob(f"{what}_*.pb"))
    found = {}
    for path in files:
        index = path.stem.removeprefix(f"{what}_")
        if not index.isdecimal() or int(index) >= len(infos):
            raise ModelError(f"{path}: the model has {len(infos)} {what}s")
        info = infos[int(index)]
        kind = info.type.WhichOneof("value") or "tensor_type"
        found[info.name] = read_value(path, kind.removesuffix("_type"))
    return found


def _value(proto: Any, folder: Folder, what: str) -> Any:
    if isinstance(proto, onnx.TensorProto):
        return stored(proto, folder, what).array()
    if isinstance(proto, onnx.SequenceProto):
        if proto.elem_type == onnx.SequenceProto.TENSOR:
            return [_value(t, folder, what) for t in proto.tensor_values]
        if proto.elem_type == onnx.SequenceProto.SEQUENCE:
            return [_value(s, folder, what) for s in proto.sequence_values]
    elif proto.elem_type == onnx.OptionalProto.TENSOR:
        return _value(proto.tensor_value, folder, what)
    elif proto.elem_type == onnx.OptionalProto.SEQUENCE:
        return _value(proto.sequence_value, folder, what)
    elif proto.elem_type == onnx.OptionalProto.UNDEFINED:
        return None
    raise ModelError(f"{what}: holds values of a kind that is not read here")
