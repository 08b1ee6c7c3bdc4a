"""The `onnx.backend.base.Backend` interface, for tools and tests that take any backend.

Example:
  >>> import numpy as np, onnx.parser, jaxshape.backend
  >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
  ... g (float[2] x) => (float[2] y) { y = Neg (x) }''')
  >>> jaxshape.backend.prepare(m).run([np.ones(2, np.float32)])
  Outputs(y=array([-1., -1.], dtype=float32))
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ._error import UnsupportedError
from ._session import InferenceSession

_PLATFORMS = {"CPU": "cpu", "CUDA": "gpu"}


class JaxshapeRep(BackendRep):
    """A prepared model."""

    def __init__(self, session: InferenceSession):
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, for inputs in the model's order, by name, or a single array."""
        if isinstance(inputs, (np.ndarray, np.generic)):
            inputs = [inputs]
        outputs = self.session.run(None, inputs)
        names = [o.name for o in self.session.model.graph.outputs]
        return namedtupledict("Outputs", names)(*outputs)


class JaxshapeBackend(Backend):
    """Runs ONNX models with JAX."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> JaxshapeRep:
        """A model ready to run on `CPU` or `CUDA`.

        Raises:
          ModelError: not a proper model.
          UnsupportedError: a device that is not there.
        """
        if not cls.supports_device(device):
            raise UnsupportedError(f"no device {device!r}; known are {', '.join(_PLATFORMS)}")
        kind, _, index = device.partition(":")
        name = _PLATFORMS[kind] + (f":{index}" if index else "")
        return JaxshapeRep(InferenceSession(model, device=name))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays; `opset_version=` says which operator set is meant (the newest if
        not given).
        """
        from ._operator import run_node

        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        outputs = run_node(node, list(inputs), {node.domain: version, "": version})
        return namedtupledict("Outputs", [o for o in node.output if o])(*outputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether JAX sees such a device: `CPU`, `CUDA`, `CUDA:1`."""
        import jax

        kind, _, index = device.partition(":")
        try:
            return kind in _PLATFORMS and int(index or 0) < len(jax.devices(_PLATFORMS[kind]))
        except (RuntimeError, ValueError):
            return False


prepare = JaxshapeBackend.prepare
run_model = JaxshapeBackend.run_model
run_node = JaxshapeBackend.run_node
supports_device = JaxshapeBackend.supports_device
