"""Why a value has its shape: each size followed back through the nodes that made it.

Which sizes a node makes a size from is found by experiment: the node is traced once more with every
size that it takes, in shapes and in known contents, replaced by a symbol of its own.  The symbols
in the result name what it depends on, and the result is the formula for it.  This is believed only
where putting the real sizes back gives the real size.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _facts
from ._dim import Dim, Scalar, Undecided, symbol, text
from ._error import JaxshapeError
from ._facts import Facts
from ._host import DimArray, host, is_host
from ._interpret import Scope
from ._model import Graph, Node, Stored
from ._simplify import simplified
from ._tracer import Tracer
from ._value import TensorType

if TYPE_CHECKING:
    from ._trace import Trace

_STEPS = 1000  # of one size
_ELEMENTS = 64  # of a content whose numbers are looked at one by one


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a size stands: an axis of a value, or an element of its known content."""

    value: str
    index: int  # of an element, in row-major order
    shape: tuple[int, ...] | None = None  # of the content

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.value}.shape[{self.index}]"
        if not self.shape:
            return self.value
        at = np.unravel_index(self.index, self.shape)
        return f"{self.value}[{', '.join(str(int(i)) for i in at)}]"


@dataclasses.dataclass(frozen=True)
class Step:
    """One size, and what made it.

    Attributes:
      place: where the size stands.
      size: the size, a number or a formula in the model's sizes.
      op: the operator of the node that made it; `"input"`, `"weight"`.
      node: the label of that node.
      how: the node's attributes, or what else is to be said.
      formula: the size as the node makes it, from the sizes at `sources`.
      sources: where the node takes it from.
    """

    place: Place
    size: Scalar
    op: str
    node: str = ""
    how: str = ""
    formula: str = ""
    sources: tuple[Place, ...] = ()

    @property
    def unchanged(self) -> bool:
        """Whether the node only passes the size on."""
        return len(self.sources) == 1 and self.formula == str(self.sources[0])


class Explanation:
    """Each size of one value, followed back to the model's inputs, weights and attributes.

    Attributes:
      name: the value.
      type: its type.
      parts: for each axis, and each element of a known content that is no number, its steps: the
        first is the size itself, and each source of a step is a later step.
    """

    def __init__(self, name: str, type: Any, parts: dict[str, list[Step]]):
        self.name, self.type, self.parts = name, type, parts

    def __str__(self) -> str:
        from .show.explain import explanation_text

        return explanation_text(self)

    def __repr__(self) -> str:
        return f"<Explanation of {self.name!r}: {self.type}>"

    def _repr_html_(self) -> str:
        from .show.explain import explanation_html

        return explanation_html(self)


def explain(trace: Trace, name: str) -> Explanation:
    """See `Trace.explain`."""
    t, content = trace[name], trace.content(name)
    places: dict[str, Place] = {}
    if isinstance(t, TensorType):
        places = {f"axis {i}": Place(name, i) for i in range(len(t.shape or ()))}
    if isinstance(content, DimArray):
        for i, element in enumerate(content.elements.ravel().tolist()):
            if isinstance(element, Dim):
                place = Place(name, i, content.shape)
                places[str(place)] = place
    tracker = _Tracker(trace)
    return Explanation(name, t, {label: tracker.follow(p) for label, p in places.items()})


class _Tracker:
    """Finds the steps behind sizes; each is looked for once."""

    def __init__(self, trace: Trace):
        self._trace, self._facts = trace, trace._facts
        self._makers = {
            name: (node, i)
            for node in trace.graph.nodes
            for i, name in enumerate(node.outputs)
            if name
        }
        self._steps: dict[Place, Step] = {}

    def follow(self, place: Place) -> list[Step]:
        """The steps behind a size, depth first."""
        found: dict[Place, Step] = {}
        open_ = [place]
        while open_ and len(found) < _STEPS:
            place = open_.pop()
            if place not in found:
                if place not in self._steps:
                    self._steps[place] = self._step(place)
                found[place] = self._steps[place]
                open_ += reversed(found[place].sources)
        return list(found.values())

    def _size(self, place: Place) -> Any:
        if place.shape is None:
            return self._trace[place.value].shape[place.index]
        return _elements(self._trace.content(place.value))[place.index]

    def _step(self, place: Place) -> Step:
        size = self._size(place)
        if place.value not in self._makers:
            weight = place.value in self._trace.model.graph.initializers
            return Step(place, size, "weight" if weight else "input")
        node, output = self._makers[place.value]
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        how = attributes_text(node)
        formula, sources = "", ()
        for trial in self._trials(node, size):
            found = trial.run(output, place, size)
            if found is not None:
                formula, sources = found
                break
        sources = sources or self._alike(node, size)
        if formula and all(self._size(s) is size for s in sources):
            sources = sources[:1]  # equal ones broadcast: one says it all
            formula = str(sources[0])
        if not sources and isinstance(size, Dim):
            how = "as the file declares it"
            if size.is_symbol and self._facts.is_fresh(size):
                low, high = self._facts.bound(size)
                limits = [str(x) for x in (low, size, high) if x is not None]
                how = "depends on data" + (f": {' <= '.join(limits)}" if len(limits) > 1 else "")
        return Step(place, size, op, node.label, how, formula, sources)

    def _trials(self, node: Node, size: Any) -> Iterator[_Trial]:
        if isinstance(size, Dim):
            if not size.is_symbol or not self._facts.is_fresh(size) or self._alike(node, size):
                yield _Trial(self._trace, node)
        else:
            for contents in ("", "formulas", "all"):
                yield _Trial(self._trace, node, numbers=True, contents=contents)

    def _alike(self, node: Node, size: Any) -> tuple[Place, ...]:
        """The places in what a node takes that mention the same symbols; one of just that size."""
        if not isinstance(size, Dim):
            return ()
        found = [p for p in _places(self._trace, node) if isinstance(self._size(p), Dim)]
        same = [p for p in found if self._size(p) is size]
        return tuple(same[:1] or [p for p in found if self._size(p).symbols & size.symbols])


class _Trial:
    """A node, traced with symbols in the place of the sizes that it takes.

    With `numbers` also in the place of numbers, where they are sizes, then in contents that hold
    formulas too, then in all contents; but for 1 and less, which decide what a node does.
    """

    def __init__(self, trace: Trace, node: Node, numbers: bool = False, contents: str = ""):
        self._trace, self._node = trace, node
        self._symbols: dict[Dim, Place] = {}
        self._reals: dict[Dim, Any] = {}
        self._numbers, self._contents = numbers, contents

    def run(self, output: int, place: Place, size: Any) -> tuple[str, tuple[Place, ...]] | None:
        """The formula for a size of an output, and where its parts come from; None: no answer."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self._traced(output, place)
            if type(found) is not Dim or not found.symbols <= self._symbols.keys():
                return None  # no size that the node takes, or one that it mints
            facts = self._trace._facts
            real = facts.simplify(found.substitute(self._reals))
            wanted = facts.definitions[size] if size in facts.definitions else size
            if not facts.equal(real, wanted):
                return None
        except (JaxshapeError, Undecided, ArithmeticError, LookupError, TypeError, AttributeError):
            return None  # a node need not be traceable like this
        places = {s: place for s, place in self._symbols.items() if s in found.symbols}
        names = {s.name: str(place) for s, place in places.items()}
        shown = names[found.name] if found.is_symbol else text(found, names)
        return shown, tuple(places.values())

    def _traced(self, output: int, place: Place) -> Any:
        facts = Facts()
        tracer = Tracer(facts)
        model = self._trace.model
        scope = Scope(model, model.opsets)
        names = [n for n in (*self._node.inputs, *sorted(self._node.captures)) if n]
        scope.values = {n: self._replaced(n) for n in names}
        inputs = [scope.values[n] if n else None for n in self._node.inputs]
        with _facts.using(facts):
            value = simplified(tracer.apply(self._node, inputs, scope)[output], facts)
        if place.shape is None:
            return value.shape[place.index]
        return _elements(value)[place.index]

    def _replaced(self, name: str) -> Any:
        value = self._trace._known(name)
        if is_host(value) and value.dtype.kind not in "iu" and self._numbers and not self._contents:
            value = TensorType(value.dtype, value.shape)
        if isinstance(value, TensorType) and value.shape is not None:
            dims = [
                self._symbol(Place(name, i), d, self._numbers) for i, d in enumerate(value.shape)
            ]
            return TensorType(value.dtype, dims)
        if not is_host(value) or value.dtype.kind not in "iu" or value.size > _ELEMENTS:
            return value
        numbers = self._contents in (
            ("formulas", "all") if isinstance(value, DimArray) else ("all",)
        )
        flat = [
            self._symbol(Place(name, i, value.shape), d, numbers)
            for i, d in enumerate(_elements(value))
        ]
        return host(flat, value.dtype).reshape(value.shape)

    def _symbol(self, place: Place, size: Any, numbers: bool) -> Any:
        if not isinstance(size, Dim) and not (numbers and type(size) is int and size > 1):
            return size
        least = self._trace._facts.bound(size)[0] if isinstance(size, Dim) else 2
        made = symbol(f"p{len(self._symbols)}", least)
        self._symbols[made], self._reals[made] = place, size
        return made


def _places(trace: Trace, node: Node) -> Iterator[Place]:
    """The sizes that a node takes, in shapes and in known contents."""
    for name in (*node.inputs, *sorted(node.captures)):
        if name:
            content = trace.content(name)
            if isinstance(content, DimArray):
                yield from (Place(name, i, content.shape) for i in range(content.size))
            for i in range(len(getattr(trace[name], "shape", None) or ())):
                yield Place(name, i)


def _elements(content: Any) -> list[Any]:
    if isinstance(content, DimArray):
        return content.elements.ravel().tolist()
    return np.asarray(content).ravel().tolist()


def attributes_text(node: Node) -> str:
    """A node's attributes as they are read, those that are graphs or large left out."""
    shown = []
    for name, value in node.attrs.items():
        items: Sequence[Any] = value if isinstance(value, tuple) else (value,)
        if len(items) <= 8 and not any(isinstance(v, (Graph, Stored)) for v in items):
            texts = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in items]
            shown.append(f"{name}=" + (f"[{', '.join(texts)}]" if value is items else texts[0]))
    return ", ".join(shown)
