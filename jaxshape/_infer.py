"""Shape inference as onnx's own package has it: a model in, the model with types out."""

from __future__ import annotations

import os

from onnx import ModelProto
from onnx.serialization import registry

from ._error import ModelError, ShapeError
from ._file import is_binary, kind_of, relocate, skeleton, whole
from ._host import type_of
from ._interpret import describe
from ._model import Model, load, read
from ._schema import mismatch
from ._source import open_source
from ._trace import Trace, trace
from ._values import resolved


def infer_shapes(
    model: ModelProto | bytes | str | os.PathLike[str],
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> ModelProto:
    """A copy of the model with inferred types in value_info and outputs, those of subgraphs and
    functions included: drop-in for `onnx.shape_inference.infer_shapes`.

    What holds in some rounds of a loop or some calls of a function, but not in all, is left out.

    Args:
      model: a ModelProto (or a path, or bytes).
      check_type: also hold the dtypes of what each node takes against the standard.
      strict_mode: raise where otherwise a warning would be given.
      data_prop: taken for compatibility; known contents always propagate.

    Raises:
      ShapeError: a proved contradiction, whatever the mode; a wrong dtype, with `check_type`.
      ModelError: not a proper model.

    Example:
      >>> import onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[] y) { h = Concat <axis=0> (x, x)  y = Relu (h) }''')
      >>> js.infer_shapes(m).graph.value_info[0].type.tensor_type.shape.dim[0].dim_param
      '2*N'
    """
    del data_prop
    return _inferred(load(model), check_type, strict_mode)


def infer_shapes_path(
    model_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str] = "",
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> None:
    """`infer_shapes` from file to file, of any size: weights are copied unread, and what lies
    beside the model stays there. Drop-in for `onnx.shape_inference.infer_shapes_path`.

    Args:
      model_path: the model's file.
      output_path: the file to write; empty: the model's own. It appears whole or not at all.
      check_type, strict_mode, data_prop: see `infer_shapes`.

    Raises:
      ModelError: a file that cannot be read or written; external data that a model at
        `output_path` could not refer to.
      ShapeError: see `infer_shapes`.

    Example:
      >>> import os, tempfile, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[] y) { h = Concat <axis=0> (x, x)  y = Relu (h) }''')
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = os.path.join(folder, "m.onnx")
      ...     onnx.save(m, path)
      ...     js.infer_shapes_path(path)
      ...     onnx.load(path).graph.value_info[0].name
      'h'
    """
    del data_prop
    source, target = _path(model_path, "model"), _path(output_path, "output")
    target = target or source
    old, new = (os.path.dirname(os.path.abspath(p)) for p in (source, target))
    try:
        if is_binary(source) and is_binary(target):
            with whole(target) as file, skeleton(source) as found:
                made = _inferred(read(found.proto, old, source), check_type, strict_mode)
                relocate(made, old, new)
                found.write(made, file)
        else:
            made = _inferred(read(*open_source(source)), check_type, strict_mode)
            relocate(made, old, new)
            with whole(target) as file:
                file.write(registry.get(kind_of(target)).serialize_proto(made))
    except OSError as e:
        raise ModelError(f"cannot write {target}: {e.strerror or e}") from e


def _path(path: str | os.PathLike[str], what: str) -> str:
    try:
        return os.fspath(path)
    except TypeError:
        raise TypeError(
            f"infer_shapes_path takes the path of the {what} file, not a {type(path).__name__}; "
            "infer_shapes takes a ModelProto"
        ) from None


def _inferred(model: Model, check_type: bool, strict_mode: bool) -> ModelProto:
    traced = trace(model, strict_mode=strict_mode)
    if check_type:
        _check_types(traced)
    return traced.to_onnx()


def _check_types(traced: Trace) -> None:
    """Raise where a node takes a dtype that the standard does not let it take."""
    for values in (traced, *traced.inner.values()):
        scope = values._scope
        for node in values.graph.nodes:
            types = [type_of(resolved(scope[n], values._facts)) if n else None for n in node.inputs]
            wrong = mismatch(node, scope.opsets, types)
            if wrong:
                raise ShapeError(f"{describe(node, scope)}: {wrong}")
