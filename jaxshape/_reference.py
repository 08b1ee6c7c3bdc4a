"""What a model should give, by onnxruntime or by the standard's own reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.external_data_helper

from ._error import ExecutionError, UnsupportedError
from ._model import Model

LARGEST = 2**31 - 1  # bytes of a protobuf


def reference_outputs(
    model: Model, feed: Mapping[str, Any], reference: str, names: Sequence[str]
) -> dict[str, Any]:
    """The values of these names, for a feed, as `reference` computes them.

    Args:
      reference: `"onnxruntime"` (without its optimisations) or `"onnx"`, the standard's own.

    Raises:
      UnsupportedError: the reference is unknown or not installed.
      ExecutionError: it failed on this model, with what it said.
    """
    runners = {"onnxruntime": _by_onnxruntime, "onnx": _by_onnx}
    if reference not in runners:
        raise UnsupportedError(f"no reference {reference!r}; known are {', '.join(runners)}")
    try:
        found = runners[reference](_exposing(model, names), feed, names)
    except (ImportError, UnsupportedError):
        raise
    except Exception as e:
        raise ExecutionError(f"{reference} fails on this model: {' '.join(str(e).split())}") from e
    return dict(zip(names, found, strict=True))


def _exposing(model: Model, names: Sequence[str]) -> onnx.ModelProto:
    """The model with these values as its outputs and its weights inside."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    onnx.external_data_helper.load_external_data_for_model(proto, model.folder)
    declared = {o.name for o in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in declared)
    if proto.ByteSize() > LARGEST:
        raise UnsupportedError("a model above 2 GiB cannot be handed over with its values exposed")
    return proto


def _by_onnxruntime(proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str]) -> Any:
    try:
        import onnxruntime
    except ImportError as e:
        raise UnsupportedError(
            "onnxruntime is not installed: pip install 'jaxshape[validate]', or reference='onnx'"
        ) from e
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(list(names), dict(feed))


def _by_onnx(proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str]) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(proto).run(list(names), dict(feed))
