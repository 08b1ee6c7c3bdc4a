"""Conversion: an ONNX model as a JAX function with a pytree of parameters.

A `JaxModel` is called like a function and passes through `jit`, `grad`, `vmap` and `scan` as a
pytree whose leaves are the model's float parameters under their ONNX names. It interprets the graph
with the caller's tracers, so new input shapes need no reconversion, and it follows the caller's
precision settings instead of changing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.export
import numpy as np
import onnx

from ._bounded import checked_bounds
from ._conversion import Conversion, in_precision, is_text
from ._device import one_warning, to_device
from ._error import ShapeError, UnknownValueError, UnsupportedError
from ._mapped import release
from ._model import Model, Stored, load
from ._parameters import Freeze, sorted_out
from ._precision import float_type
from ._slice import sliced
from ._value import dtype_name


@jax.tree_util.register_pytree_with_keys_class
class JaxModel:
    """An ONNX model as a JAX function; made by `to_jax`.

    A pytree: its leaves are `params`, the float parameters by ONNX name. `f(x)` computes with them,
    `f.apply(params, x)` with others, `f.replace(params)` is a model that has them. Inputs go by
    position, in the model's order, or by name; one output comes as an array, several as a tuple,
    and from `f.named(x)` as a dict.

    Nodes that draw numbers and have no seed take them from `key=`, an extra argument of each call.
    """

    def __init__(self, params: dict[str, Any], static: Conversion):
        self.params = params
        self._static = static

    def tree_flatten(self) -> tuple[tuple[Any], Conversion]:
        return (self.params,), self._static

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any]], Conversion]:
        return ((jax.tree_util.GetAttrKey("params"), self.params),), self._static

    @classmethod
    def tree_unflatten(cls, static: Conversion, children: Sequence[Any]) -> JaxModel:
        return cls(children[0], static)

    @property
    def model(self) -> Model:
        """The model that is computed: the one converted, or the part of it that was asked for."""
        return self._static.model

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays (*D) that are no leaves, by name: frozen parameters, and integers of more than
        1,024 elements.
        """
        return dict(self._static.stored_buffers)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in the order in which a call takes them."""
        return self._static.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in the order in which a call gives them."""
        return self._static.outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs with its own parameters; see `apply`."""
        return self.apply(self.params, *args, **kwargs)

    def named(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The model's outputs with its own parameters, by name; see `apply`.

        Example:
          >>> import numpy as np, onnx.parser, jaxshape as js
          >>> f = js.to_jax(onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N] x) => (float[N] y, float[N] z) { y = Neg (x) z = Add (x, x) }'''))
          >>> f.named(np.ones(1, np.float32))
          {'y': Array([-1.], dtype=float32), 'z': Array([2.], dtype=float32)}
        """
        return dict(zip(self.output_names, self._outputs(self.params, args, kwargs), strict=True))

    def apply(self, params: Mapping[str, Any] | JaxModel, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs with these parameters: an array, or a tuple of several.

        An output that is text is None: JAX has no text.

        Args:
          params: an array (*D) for each name in `f.params`; or a `JaxModel` that has them.
          *args: the inputs in order; an optional one that is left out is None. One that decides
            sizes, such as the shape of a Reshape, or a bool that picks one of two branches of
            other sizes, must be a NumPy array, not one of JAX; it is compiled anew for each
            content.
          **kwargs: inputs by name. `key`, unless an input is called so, is a key of `jax.random`
            for the nodes that draw numbers and have no seed.

        Raises:
          UnknownValueError: an input or parameter that the model does not have, or one that is
            missing.
          UnsupportedError: what JAX cannot express with the sizes at hand; names the node and what
            to do.
        """
        outputs = self._outputs(params, args, kwargs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _outputs(
        self, params: Mapping[str, Any] | JaxModel, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        static = self._static
        key = None if "key" in static.inputs else kwargs.pop("key", None)
        inputs = self._bind(args, kwargs)
        params = _by_name(params)
        if missing := sorted(static.places.keys() - params.keys()):
            more = ", ..." if len(missing) > 5 else ""
            raise UnknownValueError(f"parameters are missing: {', '.join(missing[:5])}{more}")
        own = {n: params[n] for n in static.places}
        return static(own, inputs, key)

    def replace(self, params: Mapping[str, Any] | JaxModel) -> JaxModel:
        """The same model with other parameters; those that are not given stay.

        It shares what is compiled.

        Args:
          params: arrays by name, each of the shape (*D) that `f.params` has there, of any float
            dtype; or a `JaxModel` that has them.

        Raises:
          UnknownValueError: the model has no parameter of that name.
          ShapeError: an array of another shape, or one that holds no floats.

        Example:
          >>> import numpy as np, onnx.parser, jaxshape as js
          >>> f = js.to_jax(onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N] x) => (float[N] y) <float[2] w = {1, 2}> { y = Mul (x, w) }'''))
          >>> f.replace({"w": np.float32([3, 4])})(np.ones(2, np.float32))
          Array([3., 4.], dtype=float32)
        """
        given = {
            n: v if hasattr(v, "dtype") else np.asarray(v) for n, v in _by_name(params).items()
        }
        for name, array in given.items():
            stored = self._static.places.get(name)
            if stored is None:
                raise UnknownValueError(
                    f"the model has no parameter {name!r}; it has {', '.join(self.params)}"
                )
            if np.shape(array) != stored.shape:
                raise ShapeError(
                    f"parameter {name!r} has shape {np.shape(array)}, wants {stored.shape}"
                )
            if not jax.numpy.issubdtype(array.dtype, jax.numpy.inexact):
                raise ShapeError(f"parameter {name!r} is {array.dtype}, wants a float type")
        others = {n: to_device(v) for n, v in given.items()}
        return JaxModel({**self.params, **others}, self._static)

    def to_onnx(self) -> onnx.ModelProto:
        """The ONNX model with the parameters that this one has, in the file's own dtypes.

        So what was trained in JAX runs wherever ONNX does. A part of a model is written as a model
        of its own; what `dtype=` changed of the computation is not written.

        Example:
          >>> import numpy as np, onnx.numpy_helper, onnx.parser, jaxshape as js
          >>> f = js.to_jax(onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N] x) => (float[N] y) <float[2] w = {1, 2}> { y = Mul (x, w) }'''))
          >>> trained = f.replace({"w": f.params["w"] - 1}).to_onnx()
          >>> onnx.numpy_helper.to_array(trained.graph.initializer[0])
          array([0., 1.], dtype=float32)
        """
        from ._write import with_arrays

        arrays = {id(s): np.asarray(self.params[n]) for n, s in self._static.places.items()}
        return with_arrays(self.model, arrays)

    def export(
        self,
        shapes: Mapping[str, Any] | None = None,
        *,
        requirements: Sequence[str] = (),
        platforms: Sequence[str] | None = None,
        params: str = "constants",
        x64: bool | None = None,
    ) -> jax.export.Exported:
        """The model as StableHLO that a process without jaxshape can load and call, with inputs of
        the model's own dtypes.

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
          A `jax.export.Exported`: `.call(x)`, `.mlir_module()`, and `.serialize()`, which like
          `jax.export.deserialize` wants flatbuffers (`pip install 'jaxshape[export]'`). What is a
          `Padded` here is a dict of its `array`, `count` and `overflow` there.

        Raises:
          UnsupportedError: a size that depends on data, or what JAX cannot express with symbolic
            sizes; names the node and what to do.
          ShapeError: the sizes contradict the model.
          UnknownValueError: no input has that name.
          ValueError: a requirement that cannot be parsed, a platform that JAX does not have.

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
        if any(isinstance(a, Mapping) for a in args):
            raise UnknownValueError("inputs go by position or by name: f(**inputs) for a mapping")
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
        if missing := [n for n in self._static.dtypes if n in inputs and inputs[n] is None]:
            raise UnknownValueError(f"inputs are missing: {', '.join(missing)} (None is no array)")
        for name, value in inputs.items():
            if any(map(is_text, jax.tree.leaves(value))):
                raise UnsupportedError(
                    f"input {name!r} is text, which JAX does not have: use jaxshape.run, or give "
                    "to_jax the values that are made of it, as inputs="
                )
            wanted = self._static.dtypes.get(name)
            given = getattr(value, "dtype", None)
            if wanted is not None and not _is_array(value):
                raise ShapeError(
                    f"input {name!r} is of type {type(value).__name__}, wants an array of "
                    f"{dtype_name(wanted)}, of NumPy or JAX"
                )
            if wanted is not None and not hasattr(value, "dtype"):
                inputs[name], given = _number(value, wanted)
            if wanted is not None and _kind(given) != _kind(wanted):
                raise ShapeError(f"input {name!r} has dtype {given}, wants {dtype_name(wanted)}")
        return {n: v for n, v in inputs.items() if v is not None}

    def __repr__(self) -> str:
        from .show.text import plural

        arrays = self.params.values()
        text = plural(len(arrays), "parameter")
        if all(hasattr(p, "shape") for p in arrays):  # else they are shardings or the like
            text += f" of {plural(sum(int(np.prod(p.shape)) for p in arrays), 'element')}"
        return f"JaxModel({self.model.name!r}, {text})"


def _by_name(params: Mapping[str, Any] | JaxModel) -> Mapping[str, Any]:
    if isinstance(params, JaxModel):
        return params.params
    if not isinstance(params, Mapping):
        raise UnknownValueError(f"parameters go by name: a mapping, not {type(params).__name__}")
    return params


def _is_array(value: Any) -> bool:
    """Whether JAX takes it as an array: numbers, and what has a dtype of NumPy."""
    return isinstance(getattr(value, "dtype", None), np.dtype) or isinstance(
        value, (bool, int, float, complex)
    )


def _number(value: complex, wanted: np.dtype) -> tuple[np.ndarray, np.dtype]:
    """A number of Python's as an array of the dtype that is wanted, and the dtype it has itself: an
    int may become a float.
    """
    own = wanted if type(value) is int and _kind(wanted) == jax.numpy.floating else None
    made = np.asarray(value, own)
    return (made.astype(wanted) if _kind(made.dtype) == _kind(wanted) else made), made.dtype


def _kind(dtype: Any) -> Any:
    """What a dtype is of, whatever its precision: that follows the caller."""
    kinds = (jax.numpy.bool, jax.numpy.integer, jax.numpy.floating, jax.numpy.complexfloating)
    return next((k for k in kinds if jax.numpy.issubdtype(dtype, k)), dtype)


def _parameter(stored: Stored, precision: np.dtype | None) -> jax.Array:
    array = stored.array()
    return release(array, to_device(in_precision(array, precision)))


def to_jax(
    model: Any,
    *,
    dtype: Any = None,
    freeze: Freeze | None = (),
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    bounded: bool | Mapping[str, int] = False,
) -> JaxModel:
    """Convert an ONNX model to a JAX function that is a pytree of its parameters.

    Args:
      model: what `load` takes.
      dtype: the float type to compute in, `"bfloat16"`, `"float16"`, `"float32"` or `"float64"`:
        parameters, inputs, constants and all results have it, whatever the model says; numbers
        beyond its range become its largest. Shape arithmetic keeps its own precision.
      freeze: the parameters that are no leaves, so that nothing trains them: a glob on the name or
        several (`"encoder.*"`), or a function of the name. They are in `f.buffers`.
      inputs: names of values to give instead of the model's inputs; what lies before them is left
        out.
      outputs: names of values to compute instead of the model's outputs, intermediate ones too;
        what they do not need is left out.
      bounded: compute sizes that depend on data (NonZero, NonMaxSuppression, Compress, Unique) at
        their bounds; an output with such a size is a `Padded`. Bounds follow from the shapes, or
        are given by name of value: of one whose size is data, or of integers that decide a size.
        Where a count passes its bound, `Padded.overflow` is set, and other outputs are NaN, or the
        least integer (those of bools are a `Padded` too).

    Returns:
      A `JaxModel` f: `f(x)`, `f.params`, `f.apply(params, x)`; under `jit`, `grad`, `vmap`, `scan`.

    Raises:
      ModelError: the file is not a proper model, or external data is missing.
      UnknownValueError: the model has no such value (`bounded` names values, too), a pattern of
        `freeze` names no parameter, or `outputs` need an input of the model that is not among
        `inputs`.
      UnsupportedError: a model cannot be computed in that dtype.

    Example:
      >>> import jax, numpy as np, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, 2}> {
      ...   h = MatMul (x, w)
      ...   y = Exp (h)
      ... }''')
      >>> f = js.to_jax(m, outputs=["h"])
      >>> x = np.ones((1, 2), np.float32)
      >>> f(x)
      Array([[3.]], dtype=float32)
      >>> jax.grad(lambda f: f(x).sum())(f).params
      {'w': Array([[1.],
             [1.]], dtype=float32)}
      >>> js.to_jax(m, dtype="bfloat16")(x)
      Array([[20.125]], dtype=bfloat16)
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N] x) => (int64[1, c] y) { y = NonZero (x) }''')
      >>> y = jax.jit(js.to_jax(m, bounded=True))(np.array([0, 5, 0, 7], np.float32))
      >>> print(y.array, y.count, y.axis, y.exact())
      [[1 3 0 0]] 2 1 [[1 3]]
    """
    precision = None if dtype is None else float_type(dtype)
    part = sliced(load(model), inputs, outputs)
    places, buffers = sorted_out(part, freeze or ())
    with one_warning():
        params = {n: _parameter(s, precision) for n, s in places.items()}
    bounds = checked_bounds(bounded, part)
    return JaxModel(params, Conversion(part, places, buffers, precision, bounds))
