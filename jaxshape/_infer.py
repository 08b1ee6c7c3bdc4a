"""Shape inference as onnx's own package has it: a model in, the model with types out."""

from __future__ import annotations

import onnx

from ._error import ShapeError
from ._trace import trace


def infer_shapes(
    model: onnx.ModelProto,
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> onnx.ModelProto:
    """A copy of the model with inferred types in value_info and outputs: drop-in for
    `onnx.shape_inference.infer_shapes`.

    Args:
      model: a ModelProto (or a path, or bytes).
      check_type: also run onnx's own type check of the nodes' inputs.
      strict_mode: raise where otherwise a warning would be given.
      data_prop: taken for compatibility; known contents always propagate.

    Raises:
      ShapeError: a proved contradiction, whatever the mode.
      ModelError: not a proper model.

    Example:
      >>> import onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[] y) { h = Concat <axis=0> (x, x)  y = Relu (h) }''')
      >>> js.infer_shapes(m).graph.value_info[0].type.tensor_type.shape.dim[0].dim_param
      '2*N'
    """
    del data_prop
    traced = trace(model, strict_mode=strict_mode)
    if check_type:
        try:
            onnx.checker.check_model(traced.model.proto)
        except onnx.checker.ValidationError as e:
            raise ShapeError(f"the model does not pass onnx's check: {e}") from e
    return traced.to_onnx()
