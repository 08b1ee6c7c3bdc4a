"""`InferenceSession`: a model compiled once and kept, with the calls that users of onnxruntime
know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._error import UnknownValueError
from ._feed import checked_feed
from ._model import Declared, Input, Model, load
from ._run import Runner, execute, placed
from ._value import STRING, dtype_name

_NAMES = {"float32": "float", "float64": "double"}


@dataclasses.dataclass(frozen=True)
class NodeArg:
    """An input or output as onnxruntime describes it: `name`, `type` as `tensor(float)`, `shape`
    with names.
    """

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """A model that is planned and compiled at the first call of each input shape, and kept.

    `run`, `get_inputs` and `get_outputs` are called as onnxruntime's are; `device` is in the place
    of its providers.

    Args:
      model: what `load` takes.
      device: a `jax.Device` or its name; None: JAX's default. The weights go there once.

    Example:
      >>> import numpy as np, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N, 2] y) { y = Neg (x) }''')
      >>> s = js.InferenceSession(m)
      >>> s.run(None, {"x": np.ones((1, 2), np.float32)})
      [array([[-1., -1.]], dtype=float32)]
    """

    def __init__(self, model: Any, *, device: Any = None):
        self.model: Model = load(model)
        self.device = device
        self._runner = Runner()

    def __repr__(self) -> str:
        return f"<InferenceSession of {self.model.name!r}>"

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any] | Sequence[Any]
    ) -> list[Any]:
        """The outputs of these names, in their order, for inputs by name or in order.

        All outputs where no name is given (None, or a list of none), as in onnxruntime.

        Raises:
          UnknownValueError: a name that the model does not have, or a missing input.
          ShapeError: an input of the wrong dtype, rank or size.
        """
        known = [o.name for o in self.model.graph.outputs]
        output_names = [output_names] if isinstance(output_names, str) else output_names
        names = list(output_names or ()) or known
        for name in names:
            if name not in known:
                raise UnknownValueError(
                    f"the model has no output {name!r}; it gives {', '.join(known)}"
                )
        with placed(self.device):
            found = execute(self.model, checked_feed(self.model, input_feed), self._runner)
        return [found[n] for n in names]

    def get_inputs(self) -> list[NodeArg]:
        """Name, type and shape of each input that must be given."""
        return [_arg(i) for i in self.model.graph.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Name, type and shape of each output, as far as the model declares them."""
        return [_arg(o) for o in self.model.graph.outputs]


def _arg(given: Input) -> NodeArg:
    return NodeArg(given.name, _type_text(given.type), list(given.type.dims or ()))


def _type_text(t: Declared) -> str:
    if t.kind == "sequence":
        return f"seq({_type_text(t.elem)})" if t.elem else "seq(?)"
    if t.kind == "optional":
        return f"optional({_type_text(t.elem)})" if t.elem else "optional(?)"
    name = "string" if t.dtype == STRING else dtype_name(t.dtype)
    return f"tensor({_NAMES.get(name, name.replace('_', ''))})"


__all__ = ["InferenceSession", "NodeArg", "np"]
