"""What a model should give, by onnxruntime, by the standard's own reference, or by another model.

A runtime may refuse to hand out some inner value (a type it cannot infer, a dtype that NumPy
lacks). Then the others are asked for in halves, and what stays away is left out, for the caller to
count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper

from ._error import ExecutionError, JaxshapeError, UnsupportedError
from ._model import Model, Node, Stored, onnx_dtype
from ._plan import names_used
from ._value import STRING

LARGEST = 2**31 - 1  # bytes of a protobuf
ATTEMPTS = 40  # halvings, each a session of its own

Engine = Callable[[onnx.ModelProto, Mapping[str, Any], Sequence[str]], Sequence[Any]]


def reference_outputs(
    model: Model, feed: Mapping[str, Any], reference: str, inner: Iterable[str] = ()
) -> dict[str, Any]:
    """The model's outputs for a feed, as `reference` computes them, and those of the `inner`
    values that it can give.

    Args:
      reference: `"onnxruntime"` (without its optimisations) or `"onnx"`, the standard's own.

    Raises:
      UnsupportedError: the reference is unknown or not installed.
      ExecutionError: it failed on this model, with what it said.
    """
    if reference not in ENGINES:
        raise UnsupportedError(
            f"no reference {reference!r}; known are {', '.join(ENGINES)}, a model, "
            "and a mapping of stored outputs"
        )
    engine = ENGINES[reference]
    # the standard's reference does not resolve every attribute of a function
    proto = _whole(inlined(model) if reference == "onnx" else model)
    outputs = [o.name for o in model.graph.outputs]
    inner = [n for n in inner if n not in outputs]
    if inner:
        with contextlib.suppress(Exception):
            return _ask(engine, proto, feed, [*outputs, *inner])
    try:
        found = _ask(engine, proto, feed, outputs)
    except UnsupportedError:
        raise
    except Exception as e:
        other = next(n for n in ENGINES if n != reference)
        raise ExecutionError(
            f"{reference} fails on this model (reference={other!r} may run it): "
            f"{' '.join(str(e).split())}"
        ) from e
    return found | _in_halves(engine, proto, feed, inner)


def _in_halves(
    engine: Engine, proto: onnx.ModelProto, feed: Mapping[str, Any], names: list[str]
) -> dict[str, Any]:
    """The values that can be had, of names that cannot all be had at once."""
    found: dict[str, Any] = {}
    left, attempts = [names], ATTEMPTS
    while left and attempts:
        part, attempts = left.pop(), attempts - 1
        if not part:
            continue
        try:
            found |= _ask(engine, proto, feed, part)
        except Exception:
            half = len(part) // 2
            left += [part[half:], part[:half]] if half else []
    return found


def _ask(
    engine: Engine, proto: onnx.ModelProto, feed: Mapping[str, Any], names: list[str]
) -> dict[str, Any]:
    """Run with these values as the outputs, and put the outputs back."""
    kept = {o.name: o for o in proto.graph.output}
    old = list(proto.graph.output)
    del proto.graph.output[:]
    proto.graph.output.extend(kept.get(n) or onnx.ValueInfoProto(name=n) for n in names)
    try:
        return dict(zip(names, engine(proto, feed, names), strict=True))
    finally:
        del proto.graph.output[:]
        proto.graph.output.extend(old)


def _whole(model: Model) -> onnx.ModelProto:
    """A copy of the model with its weights inside."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    onnx.external_data_helper.load_external_data_for_model(proto, model.folder)
    if proto.ByteSize() > LARGEST:
        raise UnsupportedError(
            "a model above 2 GiB cannot be handed to a reference: give stored outputs, or a model"
        )
    return proto


def _by_onnxruntime(
    proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str]
) -> Sequence[Any]:
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
    return session.run(list(names), {n: _fed(v) for n, v in feed.items()})


def _fed(value: Any) -> Any:
    return np.asarray(value) if hasattr(value, "shape") else value


def _by_onnx(
    proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str]
) -> Sequence[Any]:
    from onnx.reference import ReferenceEvaluator

    with _quiet():
        return ReferenceEvaluator(proto).run(list(names), dict(feed))  # type: ignore[return-value]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The reference computes on what overflows as the model does, and need not say so."""
    import warnings

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


ENGINES: dict[str, Engine] = {"onnxruntime": _by_onnxruntime, "onnx": _by_onnx}


def second_opinion(model: Model, node: Node, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """One node's results by the standard's own reference, on these values of its inputs; None where
    it cannot tell.
    """
    proto = next((p for p in model.proto.graph.node if list(p.output) == list(node.outputs)), None)
    used = list(dict.fromkeys(names_used(node)))
    if proto is None or any(n not in values for n in used):
        return None
    feed = {n: v.array() if isinstance(v := values[n], Stored) else v for n in used}
    names = [n for n in node.outputs if n]
    graph = onnx.helper.make_graph(
        [proto],
        "node",
        [_declared(n, v) for n, v in feed.items()],
        [onnx.ValueInfoProto(name=n) for n in names],
    )
    single = onnx.helper.make_model(
        graph,
        opset_imports=list(model.proto.opset_import),
        ir_version=model.ir_version,
        functions=list(model.proto.functions),
    )
    try:
        return dict(zip(names, _by_onnx(single, feed, names), strict=True))
    except Exception:  # whatever it is, it says nothing about ours
        return None


def _declared(name: str, value: Any) -> onnx.ValueInfoProto:
    if not isinstance(value, np.ndarray):
        return onnx.ValueInfoProto(name=name)
    dtype = onnx_dtype(STRING if value.dtype.kind in "US" else value.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, value.shape)


def inlined(model: Model) -> Model:
    """The model with its own functions' nodes in their callers' place, named after them, so that
    their values can be compared too; the model itself where it has none or that fails.
    """
    if not model.proto.functions:
        return model
    import onnx.inliner

    from ._model import read

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for function in proto.functions:
        for node in function.node:
            node.name = f"{function.name}/{node.name or node.op_type}"
    try:
        return read(onnx.inliner.inline_local_functions(proto), model.folder, model.name)
    except (JaxshapeError, RuntimeError, ValueError):
        return model
