"""jaxshape: trace, convert and run ONNX models with JAX.

Every ONNX operator is written once, as a small JAX function. Traced with symbolic sizes it gives
shapes; called it gives numbers, on CPU or GPU; jitted, differentiated and exported it is what JAX
does anyway.

Example:
  >>> import onnx.parser, jaxshape as js
  >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
  ... g (float[N, 4] x) => (float[a, b] y) { y = Concat <axis=1> (x, x) }''')
  >>> print(js.trace(m)["y"])
  float32[N, 8]
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from . import sizes as sizes
    from ._checkpoint import load_params as load_params
    from ._checkpoint import save_params as save_params
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
    from ._infer import infer_shapes as infer_shapes
    from ._infer import infer_shapes_path as infer_shapes_path
    from ._model import Model as Model
    from ._model import load as load
    from ._op import Static as Static
    from ._op import op as op
    from ._operator import operator as operator
    from ._padded import Padded as Padded
    from ._run import run as run
    from ._session import InferenceSession as InferenceSession
    from ._sharding import shardings as shardings
    from ._sweep import Sweep as Sweep
    from ._trace import Trace as Trace
    from ._trace import trace as trace
    from ._validate import Report as Report
    from ._validate import validate as validate
    from ._value import MapType as MapType
    from ._value import OptionalType as OptionalType
    from ._value import SequenceType as SequenceType
    from ._value import TensorType as TensorType

__version__ = "0.1.0"

# where each public name lives: JAX and ONNX are imported when one is first used, not with this
# package
_HOMES = {
    "load_params": "_checkpoint",
    "save_params": "_checkpoint",
    "ShapesContext": "_context",
    "JaxModel": "_convert",
    "to_jax": "_convert",
    "ExecutionError": "_error",
    "JaxshapeError": "_error",
    "JaxshapeWarning": "_error",
    "ModelError": "_error",
    "ShapeError": "_error",
    "UnknownValueError": "_error",
    "UnsupportedError": "_error",
    "infer_shapes": "_infer",
    "infer_shapes_path": "_infer",
    "Model": "_model",
    "load": "_model",
    "Static": "_op",
    "op": "_op",
    "operator": "_operator",
    "Padded": "_padded",
    "run": "_run",
    "InferenceSession": "_session",
    "shardings": "_sharding",
    "Sweep": "_sweep",
    "Trace": "_trace",
    "trace": "_trace",
    "Report": "_validate",
    "validate": "_validate",
    "MapType": "_value",
    "OptionalType": "_value",
    "SequenceType": "_value",
    "TensorType": "_value",
}


__all__ = [*_HOMES, "sizes"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name not in _HOMES:
        return import_module(f".{name}", __name__)
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
