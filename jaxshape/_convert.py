"""Conversion: an ONNX model as a JAX function with a pytree of parameters.

A `JaxModel` is called like a function and passes through `jit`, `grad`, `vmap` and `scan` as a
pytree whose leaves are the model's float parameters under their ONNX names. It interprets the graph
with the caller's tracers, so new input shapes need no reconversion, and it follows the caller's
precision settings instead of changing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.export
import numpy as np

from ._device import to_device
from ._error import UnknownValueError
from ._export_walk import walking
from ._interpret import Scope, enter, lowering
from ._model import Graph, Model, Node, Stored, load
from ._op import Op
from ._random import using_key
from ._value import STRING

LARGE = 1024  # elements: integer arrays above this are arguments of jit, not constants in it


class _Static:
    """What is not a leaf: the model and where its parameters lie. Compared by identity, as a jit
    key wants it.
    """

    def __init__(self, model: Model, places: dict[str, Stored], buffers: dict[str, Stored]):
        self.model, self.places, self.buffers = model, places, buffers
        self.stored_buffers = {n: s.array() for n, s in buffers.items()}
        self.inputs = tuple(i.name for i in (*model.graph.inputs, *model.graph.optional_inputs))
        self.required = frozenset(i.name for i in model.graph.inputs)
        self.outputs = tuple(o.name for o in model.graph.outputs)
        self.compiled = jax.jit(self.compute)

    def compute(
        self, params: Mapping[str, Any], buffers: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> Any:
        """The outputs as a tuple, by interpreting the graph on whatever the caller gives."""
        arrays = {id(s): params[n] for n, s in self.places.items()}
        arrays |= {id(s): buffers[n] for n, s in self.buffers.items()}
        scope = Scope(self.model, self.model.opsets)
        with walking(self.model, inputs, arrays) as interpreter, using_key(jax.random.key(0)):
            given = {n: to_device(v) for n, v in inputs.items()}
            found = enter(self.model.graph, given, scope, interpreter)
            return tuple(to_device(v) for v in found)


@jax.tree_util.register_pytree_node_class
class JaxModel:
    """An ONNX model as a JAX function; made by `to_jax`.

    A pytree: its leaves are `params`, the float parameters by ONNX name. `f(x)` computes with them,
    `f.apply(params, x)` with others. Inputs go by position, in the model's order, or by name; one
    output comes as an array, several as a tuple. `buffers` are its large integer arrays.
    """

    def __init__(self, params: dict[str, Any], static: _Static):
        self.params = params
        self._static = static

    def tree_flatten(self) -> tuple[tuple[Any], _Static]:
        return (self.params,), self._static

    @classmethod
    def tree_unflatten(cls, static: _Static, children: Sequence[Any]) -> JaxModel:
        return cls(children[0], static)

    @property
    def model(self) -> Model:
        return self._static.model

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        return dict(self._static.stored_buffers)

    @property
    def input_names(self) -> tuple[str, ...]:
        return self._static.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        return self._static.outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply(self.params, *args, **kwargs)

    def apply(self, params: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The model's outputs with these parameters.

        Raises:
          UnknownValueError: an input or parameter that the model does not have, or one that is
            missing.
          UnsupportedError: what JAX cannot express with the sizes at hand; names the node and what
            to do.
        """
        static = self._static
        inputs = self._bind(args, kwargs)
        if missing := static.places.keys() - params.keys():
            raise UnknownValueError(f"parameters are missing: {', '.join(sorted(missing)[:5])}")
        traced = any(
            isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((dict(params), inputs))
        )
        compute = static.compute if traced else static.compiled
        outputs = compute(dict(params), static.stored_buffers, inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def export(
        self,
        shapes: Mapping[str, Any] | None = None,
        *,
        requirements: Sequence[str] = (),
        platforms: Sequence[str] | None = None,
        params: str = "constants",
        x64: bool | None = None,
    ) -> jax.export.Exported:
        """The model as StableHLO that a process without jaxshape can load and call.

        Sizes stay symbols where the shapes have names. What the model requires of them holds for
        every call: where `h % 8 == 0` is required the result takes `8*h_8`, and JAX refuses 63.

        Args:
          shapes: as for `trace`, for some or all inputs; an array makes that input a constant.
            A size that may be 0 is written as `"past - 1"`, since JAX takes names to be >= 1.
          requirements: what the caller knows to hold, as for `trace`; checked at each call.
          platforms: such as `("cpu", "cuda", "tpu")`; the default is JAX's default platform.
          params: `"constants"` puts the weights into the result, which is called with the inputs
            by position in the model's order; `"arguments"` leaves them out, and a mapping like
            `f.params` is the first argument.
          x64: whether int64 and float64 are kept (the process that calls it needs x64 too) or
            narrowed to 32 bits; the default is the caller's setting.

        Returns:
          A `jax.export.Exported`: `.call(x)`, `.serialize()`, `.mlir_module()`.

        Raises:
          UnsupportedError: a size that depends on data, or what JAX cannot express with symbolic
            sizes; names the node and what to do.
          ShapeError: the sizes contradict the model.
          UnknownValueError: no input has that name.
          ValueError: a requirement that cannot be parsed.

        Example:
          >>> import jax, numpy as np, onnx.parser, jaxshape as js
          >>> f = js.to_jax(onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N, 4, H] x) => (float[a, b, c] y) { y = MaxPool <kernel_shape=[3]> (x) }'''))
          >>> e = f.export({"x": ("batch", 4, "h")}, platforms=("cpu", "cuda"))
          >>> e.in_avals[0].str_short(), e.out_avals[0].str_short()
          ('float32[batch,4,h]', 'float32[batch,4,h - 2]')
          >>> jax.export.deserialize(e.serialize()).call(np.ones((2, 4, 5), "f")).shape
          (2, 4, 3)
        """
        from ._export import exported

        return exported(self, shapes, requirements, platforms, params, x64)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = self._static.inputs
        if len(args) > len(names):
            raise UnknownValueError(
                f"{len(args)} inputs given, the model takes {len(names)}: {', '.join(names)}"
            )
        inputs = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise UnknownValueError(
                    f"the model has no input {name!r}; it takes {', '.join(names)}"
                )
            if name in inputs:
                raise UnknownValueError(f"input {name!r} is given twice")
            inputs[name] = value
        if missing := [n for n in names if n in self._static.required and n not in inputs]:
            raise UnknownValueError(f"inputs are missing: {', '.join(missing)}")
        return {n: v for n, v in inputs.items() if v is not None}

    def __repr__(self) -> str:
        count = sum(int(np.prod(p.shape)) for p in self.params.values() if hasattr(p, "shape"))
        return f"JaxModel({self.model.name!r}, {len(self.params)} parameters of {count:,} elements)"


def to_jax(model: Any) -> JaxModel:
    """Convert an ONNX model to a JAX function that is a pytree of its parameters.

    Args:
      model: what `load` takes.

    Returns:
      A `JaxModel` f: `f(x)`, `f.params`, `f.apply(params, x)`; under `jit`, `grad`, `vmap`, `scan`.

    Raises:
      ModelError: the file is not a proper model, or external data is missing.

    Example:
      >>> import jax, numpy as np, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, 2}> { y = MatMul (x, w) }''')
      >>> f = js.to_jax(m)
      >>> x = np.ones((1, 2), np.float32)
      >>> f(x)
      Array([[3.]], dtype=float32)
      >>> jax.grad(lambda f: f(x).sum())(f).params
      {'w': Array([[1.],
             [1.]], dtype=float32)}
    """
    loaded = load(model)
    places: dict[str, Stored] = {}
    buffers: dict[str, Stored] = {}
    static = set(_used_statically(loaded.graph, loaded))
    for name, stored in _tensors(loaded.graph, ""):
        if stored.dtype == STRING or id(stored) in static:
            continue
        if is_parameter(stored):
            places[name] = stored
        elif stored.size > LARGE:
            buffers[name] = stored
    params = {n: to_device(s.array()) for n, s in places.items()}
    return JaxModel(params, _Static(loaded, places, buffers))


def is_parameter(stored: Stored) -> bool:
    """Whether a stored tensor is trainable: floating point, of more than one element."""
    return stored.size > 1 and jax.numpy.issubdtype(stored.dtype, jax.numpy.inexact)


def _tensors(graph: Graph, path: str) -> Iterator[tuple[str, Stored]]:
    """Every stored tensor of a graph and its subgraphs with its name, prefixed by the node inside
    of subgraphs.
    """
    for name, stored in graph.initializers.items():
        yield path + name, stored
    for node in graph.nodes:
        if not node.inputs:
            for value in node.attrs.values():
                if isinstance(value, Stored):
                    yield path + node.outputs[0], value
        for sub in node.graphs:
            yield from _tensors(sub, f"{path}{node.label}/")


def _used_statically(
    graph: Graph, model: Model, outer: Mapping[str, Stored] | None = None
) -> Iterable[int]:
    """The ids of stored tensors that some node needs to know beforehand: shapes, axes, scales."""
    known = {**(outer or {}), **graph.initializers}
    scope = Scope(model, model.opsets)
    for node in graph.nodes:
        if not node.inputs:
            for value in node.attrs.values():
                if isinstance(value, Stored):
                    known[node.outputs[0]] = value
        found = lowering(node, scope)
        for i, name in enumerate(node.inputs):
            if name in known and isinstance(found, Op) and found.is_static(i):
                yield id(known[name])
        for sub in node.graphs:
            yield from _used_statically(sub, model, known)


__all__ = ["JaxModel", "to_jax", "is_parameter", "Node"]
