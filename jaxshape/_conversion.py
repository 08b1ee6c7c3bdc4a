"""What a conversion keeps beside the parameters, and how its function is computed.

Outside of any trace it is compiled once for each kind of inputs. Under a trace the same compiled
function is called, so that `grad` and `vmap` are fast without an outer `jit`, and a model is walked
once for all of them. Inputs that decide sizes stay on the host: such a function is compiled for
each of their contents.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ._bounded import bounded_outputs
from ._device import NARROW, canonical, compiler_options, one_warning, to_device, tracing
from ._error import UnsupportedError
from ._export_walk import walking
from ._host import content_key, is_host
from ._interpret import Scope, enter
from ._model import Model, Stored
from ._parameters import sizing_inputs
from ._precision import FLOATS, placed, saturated, using_precision
from ._random import using_key

KEPT = 8  # functions compiled for contents of inputs: the last ones used


class Conversion:
    """The model and where its parameters lie. Compared by identity, as a jit key wants it."""

    def __init__(
        self,
        model: Model,
        places: dict[str, Stored],
        buffers: dict[str, Stored],
        dtype: np.dtype | None,
        bounds: dict[str, int] | None = None,
    ):
        self.model, self.places, self.buffers, self.dtype = model, places, buffers, dtype
        self.bounds = bounds
        self.stored_buffers = {n: in_precision(s.array(), dtype) for n, s in buffers.items()}
        inputs = (*model.graph.inputs, *model.graph.optional_inputs)
        self.inputs = tuple(i.name for i in inputs)
        self.dtypes = {i.name: i.type.dtype for i in inputs if i.type.kind == "tensor"}
        self.required = frozenset(i.name for i in model.graph.inputs)
        self.outputs = tuple(o.name for o in model.graph.outputs)
        self.sizing = sizing_inputs(model)
        self._compiled: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self._on_device: dict[Any, dict[str, Any]] = {}

    def __deepcopy__(self, memo: Any) -> Conversion:
        return self  # nothing here changes, and a copied model is a pytree of the same kind

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            f"the conversion of model {self.model.name!r} cannot be pickled: save its parameters "
            "(save_params), and convert the model anew and load them where they are needed"
        )

    def __call__(
        self, params: Mapping[str, Any], inputs: Mapping[str, Any], key: Any
    ) -> tuple[Any, ...]:
        """The outputs as a tuple."""
        known = {n: v for n, v in inputs.items() if n in self.sizing and is_host(v)}
        leaves = jax.tree.leaves((params, inputs))
        sizes = [d for x in leaves for d in getattr(x, "shape", ())]
        if not all(isinstance(d, int) for d in sizes):  # of an export, which looks into the walk
            return self.compute(params, self.stored_buffers, inputs, key)
        data = {n: v for n, v in inputs.items() if n not in known}
        inner, outer = self.compiled(known)
        call = inner if tracing(leaves) else outer
        return call(params, self.device_buffers(), data, key)

    def compiled(self, known: Mapping[str, Any]) -> tuple[Any, Any]:
        """The function under jit, for these inputs that are known on the host: as part of what a
        caller compiles, and by itself, with the options that only an outermost jit can have.
        """
        content = tuple((n, content_key(np.asarray(v))) for n, v in sorted(known.items()))
        if content not in self._compiled:
            inner = jax.jit(
                lambda params, buffers, data, key: self.compute(
                    params, buffers, {**data, **known}, key
                )
            )
            outer = jax.jit(lambda *args: inner(*args), compiler_options=compiler_options())
            self._compiled[content] = inner, outer
            while len(self._compiled) > KEPT:
                del self._compiled[next(filter(None, self._compiled))]
        self._compiled.move_to_end(content)
        return self._compiled[content]

    def device_buffers(self) -> dict[str, Any]:
        """The buffers as arrays on the device, put there once for each setting of 64-bit types."""
        wide = canonical("int64")
        if wide not in self._on_device:
            with jax.ensure_compile_time_eval():  # kept, so no tracers of a trace under way
                self._on_device[wide] = {n: to_device(v) for n, v in self.stored_buffers.items()}
        return self._on_device[wide]

    def compute(
        self,
        params: Mapping[str, Any],
        buffers: Mapping[str, Any],
        inputs: Mapping[str, Any],
        key: Any = None,
    ) -> Any:
        """The outputs as a tuple, by interpreting the graph on whatever the caller gives."""
        with (
            one_warning(),
            jax.numpy_rank_promotion("allow"),  # ONNX broadcasts, whatever the caller wants
            using_precision(self.dtype),
            using_key(key),
        ):
            arrays = {id(s): placed(_wide(params[n], s)) for n, s in self.places.items()}
            arrays |= {id(s): placed(buffers[n]) for n, s in self.buffers.items()}
            if self.bounds is not None:
                return bounded_outputs(self.model, inputs, arrays, self.bounds)
            with walking(self.model, inputs, arrays) as interpreter:
                given = {n: v if is_host(v) else placed(v) for n, v in inputs.items()}
                scope = Scope(self.model, self.model.opsets)
                found = enter(self.model.graph, given, scope, interpreter)
                return tuple(placed(v) for v in found)


def _wide(param: Any, stored: Stored) -> Any:
    """A parameter of 64-bit floats, wide again if it was made where there were none."""
    wanted = canonical(stored.dtype)
    narrowed = NARROW.get(wanted.name) == param.dtype.name
    return param.astype(wanted) if narrowed else param


def in_precision(array: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """A stored array in the precision of a conversion, if it holds floats."""
    return array if dtype is None or array.dtype not in FLOATS else saturated(array, dtype)


def is_text(x: Any) -> bool:
    """Whether a leaf is text, which only the host has."""
    return isinstance(x, str) or isinstance(x, np.ndarray) and x.dtype.kind in "OUST"
