"""Which shape has every value of a model, as a formula in its inputs' sizes: `trace` and what it returns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from . import _facts
from ._dim import Dim, parse, symbol
from ._error import JaxshapeWarning, ShapeError, UnknownValueError, UnsupportedError
from ._facts import Facts, Requirement
from ._host import is_host, type_of
from ._interpret import Scope, enter
from ._model import Declared, Model, load
from ._tracer import Missing, Tracer, simplified
from ._value import MapType, OptionalType, SequenceType, TensorType
from ._write import annotated


class Trace(Mapping[str, Any]):
    """The result of tracing: a mapping from the name of each value of the graph to its type.

    `str(trace)` is a table; in Jupyter it shows itself. Names of values inside subgraphs are under
    `trace.inner(...)`.

    Attributes:
      model: the traced `Model`.
      requirements: what must hold or the model cannot run, each with the node that demands it.
      bounds: least and greatest value of every size that depends on data, by its name.
    """

    def __init__(self, model: Model, tracer: Tracer, scope: Scope, given: dict[str, Any]):
        self.model = model
        self._tracer, self._scope, self._given = tracer, scope, given
        self._cache: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The type of a value: a `TensorType`, or a `SequenceType`, `OptionalType`, `MapType`.

        Raises:
          UnknownValueError: no value of the graph has that name.
        """
        if name not in self._scope.values:
            raise UnknownValueError(f"the model has no value {name!r}")
        if name not in self._cache:
            self._cache[name] = type_of(self._resolve(self._scope.values[name]))
        return self._cache[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope.values)

    def __len__(self) -> int:
        return len(self._scope.values)

    def __contains__(self, name: object) -> bool:
        return name in self._scope.values

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def _resolve(self, value: Any) -> Any:
        value = value.type if isinstance(value, Missing) else value
        return simplified(value, self._tracer.facts)

    @property
    def inputs(self) -> dict[str, Any]:
        """The types of the graph's inputs, by name."""
        return {i.name: self[i.name] for i in self.model.graph.inputs}

    @property
    def outputs(self) -> dict[str, Any]:
        """The types of the graph's outputs, by name."""
        return {o.name: self[o.name] for o in self.model.graph.outputs}

    @property
    def requirements(self) -> list[Requirement]:
        """What must hold or the model cannot run; `str` of each is Python over the sizes' names."""
        return self._tracer.facts.report()

    @property
    def bounds(self) -> dict[str, tuple[int | None, Any]]:
        """For each size that depends on data: its least and its greatest value (None where there is none)."""
        found: dict[str, tuple[int | None, Any]] = {}
        for name in self._scope.values:
            t = self[name]
            for d in getattr(t, "shape", None) or ():
                if isinstance(d, Dim):
                    for s in d.symbols:
                        if self._tracer.facts.is_fresh(s) and s.name not in found:
                            found[s.name] = self._tracer.facts.bound(s)
        return found

    @property
    def symbols(self) -> list[str]:
        """The names of the sizes that the inputs' shapes mention, in order."""
        found: dict[str, None] = {}
        for t in self.inputs.values():
            for d in getattr(t, "shape", None) or ():
                if isinstance(d, Dim):
                    found.update(dict.fromkeys(sorted(s.name for s in d.symbols)))
        return list(found)

    def content(self, name: str) -> Any:
        """The content of a value where it is known while tracing (shape arithmetic, constants), else None."""
        self[name]
        value = self._resolve(self._scope.values[name])
        return value if is_host(value) else None

    def at(self, **sizes: int) -> Trace:
        """The same trace with numbers for some or all of its named sizes.

        Args:
          **sizes: an int >= 0 for each name; names that are no identifiers can be given as `**{"a b": 2}`.

        Raises:
          ShapeError: a requirement does not hold at these sizes.
          UnknownValueError: no size has that name.

        Example:
          >>> import onnx.parser, jaxshape as js
          >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N, 2] x) => (float[a, b] y) { y = Concat <axis=0> (x, x) }''')
          >>> t = js.trace(m)
          >>> print(t["y"], t.at(N=3)["y"])
          float32[2*N, 2] float32[6, 2]
        """
        known = self.symbols
        for name in sizes:
            if name not in known:
                raise UnknownValueError(
                    f"no size is called {name!r}; the inputs have {', '.join(known) or 'none'}"
                )
        broken = self._tracer.facts.broken(sizes)
        if broken:
            listed = "; ".join(f"{r} (wanted by {r.node})" if r.node else str(r) for r in broken)
            raise ShapeError(
                f"at {', '.join(f'{k}={v}' for k, v in sizes.items())} this does not hold: {listed}"
            )
        shapes = {i: _bound(t, sizes) for i, t in self.inputs.items()}
        known = {k: v for k, v in self._given.items() if isinstance(v, np.ndarray)}
        return trace(self.model, shapes | known)

    def to_onnx(self) -> onnx.ModelProto:
        """The model with every inferred type in value_info and outputs, for Netron and every other tool."""
        return annotated(self.model, self._scope.values, self._tracer.inner, self._resolve)

    def to_json(self) -> dict[str, Any]:
        """The trace as plain data: types by name, requirements, bounds."""
        return {
            "inputs": {n: str(t) for n, t in self.inputs.items()},
            "outputs": {n: str(t) for n, t in self.outputs.items()},
            "values": {n: str(self[n]) for n in self},
            "requirements": [
                {"text": str(r), "node": r.node, "why": r.why} for r in self.requirements
            ],
            "bounds": {
                n: [low, None if high is None else str(high)]
                for n, (low, high) in self.bounds.items()
            },
        }

    def __str__(self) -> str:
        from .show.text import trace_text

        return trace_text(self)

    def __repr__(self) -> str:
        return f"<Trace of {self.model.name!r}: {len(self)} values, {len(self.requirements)} requirements>"

    def _repr_html_(self) -> str:
        from .show.html import trace_html

        return trace_html(self)


def _bound(t: Any, sizes: Mapping[str, int]) -> Any:
    if not isinstance(t, TensorType) or t.shape is None:
        return t
    mapping = {
        s: sizes[s.name]
        for d in t.shape
        if isinstance(d, Dim)
        for s in d.symbols
        if s.name in sizes
    }
    return TensorType(
        t.dtype, tuple(d.substitute(mapping) if isinstance(d, Dim) else d for d in t.shape)
    )


def trace(
    model: Any,
    shapes: Mapping[str, Any] | None = None,
    *,
    requirements: Sequence[str] = (),
    strict_mode: bool = False,
) -> Trace:
    """Find the type of every value of a model, as formulas in the sizes of its inputs.

    Args:
      model: what `load` takes: a path, bytes, a ModelProto or a Model. Weights are not read.
      shapes: for some or all inputs, the shape to trace with, as a tuple of ints, names and expressions over names
        (None: as declared); or a `TensorType`; or an array, whose content is then known too.
      requirements: what the caller knows to hold, as `"h % 32 == 0"`, `"total == past + seq"`, `"seq <= 1024"`.
      strict_mode: raise where otherwise a warning would be given: unknown operators, stale declared shapes.

    Returns:
      A `Trace`.

    Raises:
      ModelError: the file is not a proper model.
      ShapeError: the model cannot run at any size, with the node and the sizes that contradict each other.
      UnknownValueError: `shapes` names an input that the model does not have.
      UnsupportedError: an unknown operator, in `strict_mode`.
      ValueError: a requirement that cannot be parsed.

    Example:
      >>> import onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 3, H, W] x, float[8, 3, 3, 3] w) => (float[a, b, c, d] y) { y = Conv <strides=[2, 2]> (x, w) }''')
      >>> t = js.trace(m)
      >>> print(t["y"])
      float32[N, 8, (H - 3)//2 + 1, (W - 3)//2 + 1]
      >>> [str(r) for r in t.requirements]
      ['H >= 3', 'W >= 3']
    """
    loaded = load(model)
    facts = Facts()
    tracer = Tracer(facts, strict_mode)
    scope = Scope(loaded, loaded.opsets)
    with _facts.using(facts):
        given = _inputs(loaded, dict(shapes or {}), tracer)
        for text in requirements:
            facts.node = ""
            facts.assume(text, symbol)
        enter(loaded.graph, given, scope, tracer)
        _check_outputs(loaded, scope, tracer)
    return Trace(loaded, tracer, scope, given)


def infer_shapes(
    model: onnx.ModelProto,
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = True,
) -> onnx.ModelProto:
    """A copy of the model with inferred types in value_info and outputs: drop-in for `onnx.shape_inference.infer_shapes`.

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


def _inputs(model: Model, shapes: dict[str, Any], tracer: Tracer) -> dict[str, Any]:
    """The values to bind the graph's inputs to; names of sizes are reserved first."""
    inputs = {i.name: i.type for i in (*model.graph.inputs, *model.graph.optional_inputs)}
    for name in shapes:
        if name not in inputs:
            raise UnknownValueError(
                f"the model has no input {name!r}; it takes {', '.join(inputs)}"
            )
    names = _names([t for t in inputs.values()])
    tracer.facts.reserve(names)
    for shape in shapes.values():
        given = (
            shape.shape
            if isinstance(shape, TensorType)
            else shape
            if isinstance(shape, (tuple, list))
            else ()
        )
        tracer.facts.reserve(
            s.name
            for d in TensorType(None, given or ()).shape or ()
            for s in getattr(d, "symbols", ())
        )
    renamed: dict[str, Any] = {}
    for name, given in shapes.items():
        dims = given.shape if isinstance(given, (TensorType, np.ndarray)) else given
        for d, old in zip(dims or (), inputs[name].dims or (), strict=False):
            if isinstance(old, str) and d is not None:
                renamed.setdefault(old, d)
    values: dict[str, Any] = {}
    for i in (*model.graph.inputs, *(o for o in model.graph.optional_inputs if o.name in shapes)):
        if i.name in shapes:
            values[i.name] = _given(i.name, i.type, shapes[i.name], tracer, names)
        else:
            values[i.name] = _declared(i.type, i.name, tracer, names, renamed)
    return values


def _names(types: Sequence[Declared]) -> set[str]:
    """Every bare name of a size that the declared types mention."""
    found: set[str] = set()
    for t in types:
        for d in t.dims or ():
            if isinstance(d, str):
                found.add(d)
    compound = {d for d in found if isinstance(p := parse(d, symbol), Dim) and not p.is_symbol}
    simple = found - compound
    for d in (
        compound
    ):  # an expression over names that are there is that expression, else it is a name itself
        if not {s.name for s in parse(d, symbol).symbols} <= simple:  # type: ignore[union-attr]
            simple.add(d)
    return simple


def _declared(
    t: Declared,
    name: str,
    tracer: Tracer,
    names: set[str],
    renamed: Mapping[str, Any],
    within: bool = False,
) -> Any:
    """The value that stands for an input of a declared type."""
    if t.kind in ("tensor", "sparse"):
        if t.dims is None:
            return TensorType(t.dtype, None)
        dims = [
            _size(d, f"{name}_{axis}", tracer, names, renamed, within)
            for axis, d in enumerate(t.dims)
        ]
        made = TensorType(t.dtype, dims)
        return made if within else tracer.named(made, name)
    elem = t.elem and _declared(t.elem, name, tracer, names, renamed, within=True)
    if t.kind == "sequence":
        return SequenceType(elem, None if within else tracer.facts.count(f"{name}_length"))
    if t.kind == "optional":
        return OptionalType(elem)
    if t.kind == "map":
        return MapType(t.key, elem)
    return TensorType(None, None)


def _size(
    d: Any, stem: str, tracer: Tracer, names: set[str], renamed: Mapping[str, Any], within: bool
) -> Any:
    if isinstance(d, int):
        return d
    if within:
        return None  # the elements of a sequence need not have equal sizes
    if d is None:
        return tracer.facts.count(stem, least=1)
    if d in renamed:
        return TensorType(None, (renamed[d],)).shape[0]  # type: ignore[index]
    return symbol(d) if d in names else parse(d, symbol)


def _given(name: str, declared: Declared, given: Any, tracer: Tracer, names: set[str]) -> Any:
    if is_host(given):
        return np.asarray(given)
    if isinstance(given, (SequenceType, OptionalType, MapType)):
        return given
    dtype = declared.dtype
    if isinstance(given, TensorType):
        dtype, given = given.dtype or dtype, given.shape
    if given is None:
        return TensorType(dtype, None)
    dims = list(given)
    if declared.dims is not None and len(declared.dims) == len(dims):
        dims = [old if d is None else d for d, old in zip(dims, declared.dims, strict=True)]
    sizes = TensorType(dtype, tuple(dims)).shape or ()
    made = [
        tracer.facts.count(f"{name}_{i}", least=1) if d is None else d for i, d in enumerate(sizes)
    ]
    return tracer.named(TensorType(dtype, tuple(made)), name)


def _check_outputs(model: Model, scope: Scope, tracer: Tracer) -> None:
    """Use what the model declares of its values where nothing was derived, and warn where it is stale."""
    for o in model.graph.outputs:
        scope.values[o.name] = tracer.declare(o.name, scope[o.name], o.type, scope)


__all__ = ["Trace", "trace", "infer_shapes", "JaxshapeWarning", "UnsupportedError", "warnings"]
