"""Which shape has every value of a model, as a formula in its inputs' sizes: `trace` and what it
returns.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from . import _facts
from ._bind import bind_inputs
from ._dim import Dim, symbol
from ._error import ShapeError, UnknownValueError, warn
from ._explain import Explanation, explain
from ._facts import Facts, Requirement
from ._fork import Fork, settled, take
from ._host import type_of
from ._interpret import Scope, enter
from ._model import Model, load
from ._require import read
from ._sweep import Sweep
from ._tracer import Tracer
from ._value import TensorType
from ._values import Values, inner
from ._write import annotated


class Trace(Values):
    """The result of tracing: a mapping from the name of each value of the graph to its type.

    `str(trace)` is a table; in Jupyter it shows itself.  Values inside subgraphs and functions are
    in `inner`.

    Attributes:
      model: the traced `Model`.
    """

    def __init__(self, model: Model, tracer: Tracer, scope: Scope, given: dict[str, Any]):
        super().__init__(model.graph, scope, tracer.facts)
        self.model = model
        self._tracer, self._given = tracer, given
        self._inner: dict[str, Values] | None = None

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
        """What must hold or the model cannot run; `str` of each is Python over the sizes' names.

        Without what is about nothing but sizes inside of subgraphs.
        """
        found = self._facts.report()
        inside = [r for r in found if r.symbols and all(map(self._facts.is_fresh, r.symbols))]
        shown = self._sizes() if inside else set()
        return [r for r in found if r not in inside or not shown.isdisjoint(r.symbols)]

    def broken(self, sizes: Mapping[str, int]) -> list[Requirement]:
        """The requirements that do not hold at these sizes, given by name."""
        return self._facts.broken(sizes)

    @property
    def symbols(self) -> list[str]:
        """The names of the sizes that the inputs' shapes mention, in order."""
        found: dict[str, None] = {}
        inputs = self.inputs.values()
        written = [type_of(self._scope.values[i.name]) for i in self.model.graph.inputs]
        for t in (*inputs, *written):  # as they are known now, then what that stands for
            for d in getattr(t, "shape", None) or ():
                if isinstance(d, Dim):
                    found.update(dict.fromkeys(sorted(s.name for s in d.symbols)))
        return list(found)

    def _from_caller(self) -> list[str]:
        return self.symbols

    @property
    def inner(self) -> dict[str, Values]:
        """The values inside subgraphs and functions, by path: `"If_3/then_branch"`, `"call_1"`,
        `"Loop_2/body[0]"` for the first of several rounds that were traced one by one.
        """
        if self._inner is None:
            self._inner = inner(self._facts)
        return self._inner

    def _with_nameless(
        self, sizes: Mapping[str, int], written: Mapping[str, Any]
    ) -> dict[str, int]:
        """The sizes, with those of input axes without a name by what they are shown as."""
        found = dict(sizes)
        for d in (d for t in written.values() for d in getattr(t, "shape", None) or ()):
            if isinstance(d, Dim) and d.is_symbol and self._facts.is_fresh(d):
                shown = self._facts.simplify(d)
                if isinstance(shown, Dim) and shown.is_symbol and shown.name in sizes:
                    found.setdefault(d.name, sizes[shown.name])
        return found

    def at(self, **sizes: int) -> Trace:
        """The same trace with numbers for some or all of its named sizes.

        Args:
          **sizes: an int >= 0 for each name; a name that is no identifier as in `**{"a b": 2}`.

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
            if not isinstance(sizes[name], (int, np.integer)) or sizes[name] < 0:
                raise ShapeError(f"size {name} is {sizes[name]!r}, wants an int >= 0")
        # requirements are about sizes >= 1: what an empty axis allows, the trace with numbers tells
        broken = self._facts.broken(sizes) if all(sizes.values()) else []
        if broken:
            listed = "; ".join(f"{r} (wanted by {r.node})" if r.node else str(r) for r in broken)
            raise ShapeError(
                f"at {', '.join(f'{k}={v}' for k, v in sizes.items())} this does not hold: {listed}"
            )
        # as given, not as requirements simplified it: those may fail at a size of 0
        written = {i.name: type_of(self._scope.values[i.name]) for i in self.model.graph.inputs}
        numbers = self._with_nameless(sizes, written)
        shapes = {i: _bound(t, numbers) for i, t in written.items()}
        known = {k: v for k, v in self._given.items() if isinstance(v, np.ndarray)}
        return trace(self.model, shapes | known)

    def sweep(
        self, sizes: Mapping[str, Any] | None = None, /, *, zip: bool = False, **more: Any
    ) -> Sweep:
        """Every shape at many sizes at once: at each combination of the values given for each name.

        Args:
          sizes: for each name an int, or several in any form; in a mapping, any name can be given.
            A name in `bounds` may be given too.
          zip: take the first values together, the second ones together, and so on.
          **more: the same, where names are identifiers.

        Returns:
          A `Sweep`: a mapping from names of values to arrays (bindings, rank).

        Raises:
          UnknownValueError: no size has that name.
          ShapeError: values that are no integers, or with `zip` not equally many.

        Example:
          >>> import onnx.parser, jaxshape as js
          >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N, 1, H] x) => (float[a, b, c] y) {
          ...     y = AveragePool <kernel_shape=[3]> (x) }''')
          >>> s = js.trace(m).sweep(N=[1, 2], H=8)
          >>> s["y"].tolist(), s.bytes("y").tolist()
          ([[1, 1, 6], [2, 1, 6]], [24, 48])
        """
        return Sweep(self, {**(sizes or {}), **more}, zip)

    def explain(self, name: str) -> Explanation:
        """Why a value has its shape: each size followed back through the nodes that made it.

        Raises:
          UnknownValueError: no value of the graph has that name.

        Example:
          >>> import onnx.parser, jaxshape as js
          >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
          ... g (float[N, 2] x) => (float[a, b] y) { h = Relu (x)  y = Concat <axis=0> (h, x) }''')
          >>> print(js.trace(m).explain("y"))
          y: float32[2*N, 2]
          <BLANKLINE>
          axis 0: 2*N
            y.shape[0]  2*N  Concat -> y: axis=0  h.shape[0] + x.shape[0]
            h.shape[0]  N    Relu -> h            x.shape[0]
            x.shape[0]  N    input
          <BLANKLINE>
          axis 1: 2
            y.shape[1]  2  Concat -> y: axis=0  h.shape[1]
            h.shape[1]  2  Relu -> h            x.shape[1]
            x.shape[1]  2  input
        """
        return explain(self, name)

    def to_onnx(self) -> onnx.ModelProto:
        """The model with every inferred type in value_info and outputs, for Netron and every other
        tool.
        """
        return annotated(self.model, self, self.inner.values())

    def to_json(self) -> dict[str, Any]:
        """The trace as plain data: types by name, requirements, bounds."""
        return {
            "inputs": {n: str(t) for n, t in self.inputs.items()},
            "outputs": {n: str(t) for n, t in self.outputs.items()},
            "values": {n: str(self[n]) for n in self},
            "inner": {
                path: {n: str(t) for n, t in values.items()} for path, values in self.inner.items()
            },
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
        from .show.text import plural

        many = plural(len(self), "value"), plural(len(self.requirements), "requirement")
        return f"<Trace of {self.model.name!r}: {', '.join(many)}>"

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
      shapes: for some or all inputs, the shape to trace with, as a tuple of ints, names and
        expressions over names (None: as declared); or a `TensorType`; or an array, whose content is
        then known too.
      requirements: what the caller knows to hold, as `"h % 32 == 0"`, `"total == past + seq"`,
        `"seq <= 1024"`; one of them may stand alone.
      strict_mode: raise where otherwise a warning would be given: unknown operators, stale declared
        shapes.

    Returns:
      A `Trace`.

    Raises:
      ModelError: the file is not a proper model.
      ShapeError: the model cannot run at any size, with the node and the sizes that contradict each
        other.
      UnknownValueError: `shapes` names an input that the model does not have.
      UnsupportedError: an unknown operator, in `strict_mode`.
      ValueError: a requirement that cannot be parsed.

    Example:
      >>> import onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 3, H, W] x, float[8, 3, 3, 3] w) => (float[a, b, c, d] y) {
      ...     y = Conv <strides=[2, 2]> (x, w) }''')
      >>> t = js.trace(m)
      >>> print(t["y"])
      float32[N, 8, (H - 1)//2, (W - 1)//2]
      >>> [str(r) for r in t.requirements]
      ['H >= 3', 'W >= 3']
    """
    loaded = load(model)
    requirements = [requirements] if isinstance(requirements, str) else requirements
    if shapes is not None and not isinstance(shapes, Mapping):
        raise TypeError(f"shapes is {shapes!r}, wants a mapping from inputs' names to shapes")

    def once(assumed: Sequence[Fork], before: Trace | None, floor: int = 1) -> Trace:
        facts = Facts()
        facts.floor = floor
        tracer = Tracer(facts, strict_mode)
        scope = Scope(loaded, loaded.opsets)
        with _facts.using(facts):
            given = bind_inputs(loaded, dict(shapes or {}), tracer)
            facts.node = ""
            for text in requirements:
                facts.assume(text, facts.named)
            take(assumed, before._facts.report() if before else ())
            enter(loaded.graph, given, scope, tracer)
            _check_outputs(loaded, scope, tracer)
        return Trace(loaded, tracer, scope, given)

    def tried(walk: Any) -> Trace:
        return settled(walk, lambda t: t._facts.forks, _merge)

    try:
        found = tried(once)
    except ShapeError as clash:  # claims are for sizes >= 1, but 0 may be what the model runs with
        try:
            found = tried(functools.partial(once, floor=0))
        except ShapeError:
            raise clash from clash.__cause__
    for text in requirements:
        _check_names(text, found, strict_mode)
    return found


def _check_names(requirement: str, found: Trace, strict: bool) -> None:
    """Warn of a requirement on sizes that no value has: a name in it may be a slip."""
    names: set[str] = set()
    read(requirement, lambda name: names.add(name) or symbol(name))
    known = {*found.symbols, *found.bounds, *(d.name for d in found._sizes())}
    if names and names.isdisjoint(known):
        text = f"the requirement {requirement!r} is about {', '.join(sorted(names))}; the sizes of "
        text += f"the inputs are {', '.join(found.symbols) or 'numbers'}"
        if strict:
            raise UnknownValueError(text)
        warn(text)


def _merge(found: Trace, outcomes: Sequence[Trace]) -> None:
    """Take over the types on which traces agree, of which one holds at any sizes."""
    for name, value in found._scope.values.items():
        if isinstance(value, TensorType) and all(name in t for t in outcomes):
            types = {t[name] for t in outcomes}
            (t, *others) = types
            if others or not isinstance(t, TensorType) or t.shape is None:
                continue
            symbols = {s for d in t.shape if isinstance(d, Dim) for s in d.symbols}
            if not any(o._facts.is_fresh(s) for o in outcomes for s in symbols):
                found._scope.values[name] = t


def _check_outputs(model: Model, scope: Scope, tracer: Tracer) -> None:
    """Use what the model declares of its values where nothing was derived, and warn where it is
    stale.
    """
    for o in model.graph.outputs:
        scope.values[o.name] = tracer.declare(o.name, scope[o.name], o.type, scope)
