"""`InferenceSession`: a model compiled once and kept, with the calls that users of onnxruntime
know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ._error import UnknownValueError, UnsupportedError
from ._feed import checked_feed
from ._model import Declared, Input, Model, load
from ._run import Runner, execute, find_device, placed
from ._slice import sliced
from ._value import STRING, dtype_name

_PROVIDERS = {"CUDAExecutionProvider": "gpu", "CPUExecutionProvider": "cpu"}
_NAMES = {"float32": "float", "float64": "double"}


@dataclasses.dataclass(frozen=True)
class NodeArg:
    """An input or output as onnxruntime describes it: `name`, `type` as `tensor(float)`, `shape`
    with names.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclasses.dataclass(frozen=True)
class ModelMetadata:
    """What the file says of itself, by onnxruntime's names."""

    custom_metadata_map: dict[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


class InferenceSession:
    """A model that is planned and compiled at the first call of each input shape, and kept.

    `run`, `get_inputs` and `get_outputs` are called as onnxruntime's are; `device` is in the place
    of its providers.

    Args:
      model: what `load` takes.
      sess_options: means nothing here; for code that was written for onnxruntime.
      providers: onnxruntime's names, in order of preference, in place of `device`.
      outputs: names of values to compute instead of the model's outputs, intermediate ones too;
        inputs that they do not need are left out.
      device: a `jax.Device` or its name; None: JAX's default. The weights go there once.

    Example:
      >>> import numpy as np, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N, 2] y) { y = Neg (x) }''')
      >>> s = js.InferenceSession(m)
      >>> s.run(None, {"x": np.ones((1, 2), np.float32)})
      [array([[-1., -1.]], dtype=float32)]
    """

    def __init__(
        self,
        model: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        device: Any = None,
    ):
        self.model: Model = sliced(load(model), None, outputs)
        self.device = _device_of(providers) if device is None and providers else device
        self._runner = Runner()

    def __repr__(self) -> str:
        return f"<InferenceSession of {self.model.name!r}>"

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any] | Sequence[Any],
        run_options: Any = None,
    ) -> list[Any]:
        """The outputs of these names, in their order, for inputs by name or in order.

        All outputs where no name is given (None, or a list of none), as in onnxruntime, whose
        `run_options` mean nothing here.

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
                    f"the session has no output {name!r}; it gives {', '.join(known)} "
                    "(InferenceSession(model, outputs=...) gives other values)"
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

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Name, type and shape of each input that may be left out: the model has a value for it."""
        return [_arg(i) for i in self.model.graph.optional_inputs]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself: its metadata, who wrote it, and the like."""
        proto = self.model.outline
        return ModelMetadata(
            {p.key: p.value for p in proto.metadata_props},
            proto.doc_string,
            proto.domain,
            proto.graph.doc_string,
            proto.graph.name,
            proto.producer_name,
            proto.model_version,
        )

    def get_providers(self) -> list[str]:
        """What onnxruntime calls the platform that this runs on."""
        device = jax.devices()[0] if self.device is None else find_device(self.device)
        names = {platform: provider for provider, platform in _PROVIDERS.items()}
        return [names.get(device.platform, f"{device.platform.upper()}ExecutionProvider")]


def _device_of(providers: Sequence[Any]) -> str:
    """The first of onnxruntime's providers, or pairs of one and its options, that JAX has."""
    names = [p if isinstance(p, str) else p[0] for p in providers]
    for name in names:
        if name in _PROVIDERS:
            try:
                find_device(_PROVIDERS[name])
            except UnsupportedError:
                continue
            return _PROVIDERS[name]
    raise UnsupportedError(
        f"none of the providers {', '.join(names)} is here; known are {', '.join(_PROVIDERS)}, or "
        "give device="
    )


def _arg(given: Input) -> NodeArg:
    return NodeArg(given.name, _type_text(given.type), list(given.type.dims or ()))


def _type_text(t: Declared) -> str:
    if t.kind == "sequence":
        return f"seq({_type_text(t.elem)})" if t.elem else "seq(?)"
    if t.kind == "optional":
        return f"optional({_type_text(t.elem)})" if t.elem else "optional(?)"
    name = "string" if t.dtype == STRING else dtype_name(t.dtype)
    return f"tensor({_NAMES.get(name, name.replace('_', ''))})"
