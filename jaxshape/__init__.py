"""jaxshape: trace, convert and run ONNX models with JAX.

Every ONNX operator is written once, as a small JAX function. Traced with symbolic sizes it gives shapes; called it gives
numbers, on CPU or GPU; jitted, differentiated and exported it is what JAX does anyway.

Example:
  >>> import onnx.parser, jaxshape as js
  >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
  ... g (float[N, 4] x) => (float[a, b] y) { y = Concat <axis=1> (x, x) }''')
  >>> print(js.trace(m)["y"])
  float32[N, 8]
"""

from ._context import ShapesContext as ShapesContext
from ._convert import JaxModel as JaxModel
from ._convert import to_jax as to_jax
from ._error import ExecutionError as ExecutionError
from ._error import JaxshapeError as JaxshapeError
from ._error import JaxshapeWarning as JaxshapeWarning
from ._error import ModelError as ModelError
from ._error import ShapeError as ShapeError
from ._error import UnknownValueError as UnknownValueError
from ._error import UnsupportedError as UnsupportedError
from ._model import Model as Model
from ._model import load as load
from ._op import Static as Static
from ._op import op as op
from ._operator import operator as operator
from ._run import run as run
from ._session import InferenceSession as InferenceSession
from ._trace import Trace as Trace
from ._trace import infer_shapes as infer_shapes
from ._trace import trace as trace
from ._value import MapType as MapType
from ._value import OptionalType as OptionalType
from ._value import SequenceType as SequenceType
from ._value import TensorType as TensorType

__version__ = "0.1.0"
