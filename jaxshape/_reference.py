"""What a model should give, by onnxruntime, by the standard's own reference, or by another model.

A runtime may refuse to hand out some inner value (a type it cannot infer, a dtype that NumPy
lacks). Then the others are asked for in halves, and what stays away is left out, for the caller to
count.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper

from ._error import ExecutionError, JaxshapeError, UnsupportedError
from ._model import Model, Node, Stored, onnx_dtype
from ._plan import names_used
from ._value import STRING, as_dtype

LARGEST = 2**31 - 1  # bytes of a protobuf
FOLDER = "session.model_external_initializers_file_folder_path"
ATTEMPTS = 40  # halvings, each a session of its own

Engine = Callable[..., Sequence[Any]]  # of a ModelProto, a feed and names; folder=


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
            f"no reference {reference!r}; known are {', '.join(ENGINES)}, a model (or its file), "
            "and a mapping of stored outputs"
        )
    # the standard's reference does not resolve every attribute of a function
    model = inlined(model) if reference == "onnx" else model
    engine = functools.partial(ENGINES[reference], folder=model.folder)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.outline)
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


def _by_onnxruntime(
    proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str], folder: str
) -> Sequence[Any]:
    """External data is left to it, so that weights that lie in files are in memory once."""
    try:
        import onnxruntime
    except ImportError as e:
        raise UnsupportedError(
            "onnxruntime is not installed: pip install 'jaxshape[validate]', or reference='onnx'"
        ) from e

    def session(proto: onnx.ModelProto) -> Any:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.add_session_config_entry(FOLDER, folder)
        if proto.ByteSize() > LARGEST:
            raise UnsupportedError(
                "onnxruntime takes no model above 2 GiB from memory: give the path of one that has "
                "its weights in files, or reference='onnx'"
            )
        return onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    arrays = {n: np.asarray(v) if hasattr(v, "shape") else v for n, v in feed.items()}
    given = {n: v.dtype for n, v in arrays.items() if hasattr(v, "dtype") and _lacking(v.dtype)}
    made = session(proto)
    types = {o.name: o.type[7:-1] for o in made.get_outputs() if o.type.startswith("tensor(")}
    asked = {n: as_dtype(t) for n, t in types.items() if _lacking(t)}
    if not given and not asked:
        return made.run(list(names), arrays)
    proto = _widened(proto, given, asked)
    fed = {_wide(n) if n in given else n: _to(v, given, n) for n, v in arrays.items()}
    found = session(proto).run([_wide(n) if n in asked else n for n in names], fed)
    return [v.astype(asked[n]) if n in asked else v for n, v in zip(names, found, strict=True)]


# Arrays of what NumPy lacks (bfloat16, 8- and 4-bit types) do not pass onnxruntime's own door: they
# go in and out as types that hold them exactly, with a Cast on the other side.


def _lacking(dtype: Any) -> bool:
    """Whether a dtype, or one by ONNX's name, is none of NumPy's own."""
    try:
        return as_dtype(dtype).type.__module__ == "ml_dtypes"
    except TypeError:  # no tensor
        return False


def _holding(dtype: np.dtype) -> np.dtype:
    return np.dtype(
        "int8"
        if "int" in dtype.name and dtype.name[0] == "i"
        else "uint8"
        if "int" in dtype.name
        else "float32"
    )


def _to(value: Any, given: Mapping[str, np.dtype], name: str) -> Any:
    return value.astype(_holding(given[name])) if name in given else value


def _wide(name: str) -> str:
    return f"{name}__as_numpy_has_it"


def _widened(
    proto: onnx.ModelProto, given: Mapping[str, np.dtype], asked: Mapping[str, np.dtype]
) -> onnx.ModelProto:
    """The model with these inputs and outputs in NumPy's types, cast inside."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph, casts = made.graph, []
    for info in graph.input:
        if info.name in given:
            dtype = given[info.name]
            casts.append(
                onnx.helper.make_node("Cast", [_wide(info.name)], [info.name], to=onnx_dtype(dtype))
            )
            info.name = _wide(info.name)
            info.type.tensor_type.elem_type = onnx_dtype(_holding(dtype))
    nodes = [*casts, *graph.node]
    for info in graph.output:
        if info.name in asked:
            code = onnx_dtype(_holding(asked[info.name]))
            nodes.append(onnx.helper.make_node("Cast", [info.name], [_wide(info.name)], to=code))
            info.CopyFrom(onnx.ValueInfoProto(name=_wide(info.name)))
    del graph.node[:]
    graph.node.extend(nodes)
    return made


def _by_onnx(
    proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str], folder: str
) -> Sequence[Any]:
    from onnx.reference import ReferenceEvaluator

    onnx.external_data_helper.load_external_data_for_model(proto, folder)
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
    outline = model.outline
    proto = next((p for p in outline.graph.node if list(p.output) == list(node.outputs)), None)
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
        opset_imports=list(outline.opset_import),
        ir_version=model.ir_version,
        functions=list(outline.functions),
    )
    try:
        return dict(zip(names, _by_onnx(single, feed, names, model.folder), strict=True))
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
    if not model.outline.functions:
        return model
    import onnx.inliner

    from ._model import read

    proto = onnx.ModelProto()
    proto.CopyFrom(model.outline)
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions}
    for node in _nodes(proto.graph.node, *(f.node for f in proto.functions)):
        said = {a.name for a in node.attribute}  # the inliner would drop what refers to a default
        key = (node.domain, node.op_type, node.overload)
        node.attribute.extend(a for a in defaults.get(key, ()) if a.name not in said)
    for function in proto.functions:
        for node in function.node:
            node.name = f"{function.name}/{node.name or node.op_type}"
    try:
        return read(
            onnx.inliner.inline_local_functions(proto), model.folder, model.name, model.mapped
        )
    except (JaxshapeError, RuntimeError, ValueError):
        return model


def _nodes(*lists: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes in these lists and in the graphs that they hold."""
    for nodes in lists:
        for node in nodes:
            yield node
            for a in node.attribute:
                yield from _nodes(a.g.node, *(g.node for g in a.graphs))
