"""The values that one walk over a graph gave, as what is known of them in the end.

Sizes are simplified when a value is looked up, by all that the whole trace came to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ._dim import Dim
from ._error import UnknownValueError, similar
from ._facts import Facts
from ._host import DimArray, is_host, type_of
from ._interpret import Scope
from ._model import Function, Graph
from ._simplify import simplified
from ._tracer import Missing


class Values(Mapping[str, Any]):
    """A mapping from the names of values to their types.

    Attributes:
      graph: the `Graph` (or model's own `Function`) that the values are of.
    """

    def __init__(self, graph: Graph | Function, scope: Scope, facts: Facts):
        self.graph = graph
        self._scope, self._facts = scope, facts
        self._cache: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The type of a value: a `TensorType`, or a `SequenceType`, `OptionalType`, `MapType`.

        Raises:
          UnknownValueError: no value of the graph has that name.
        """
        if name not in self._cache:
            self._cache[name] = type_of(self._known(name))
        return self._cache[name]

    @property
    def bounds(self) -> dict[str, tuple[int | None, Any]]:
        """For each size that depends on data: its least and its greatest value (None where there is
        none).
        """
        shapes = [getattr(self[name], "shape", None) or () for name in self]
        dims = [d for shape in shapes for d in shape if isinstance(d, Dim)]
        symbols = [s for d in dims for s in sorted(d.symbols, key=str)]
        fresh = {s.name: s for s in symbols if self._facts.is_fresh(s)}
        given = self._from_caller()
        return {name: self._facts.bound(s) for name, s in fresh.items() if name not in given}

    def _from_caller(self) -> Collection[str]:
        """The sizes that a caller decides, with names or without."""
        return ()

    def _sizes(self) -> set[Dim]:
        """The symbols in shapes and in known contents."""
        dims: set[Any] = set()
        for name in self:
            value = self._known(name)
            dims.update(getattr(value, "shape", None) or ())
            if isinstance(value, DimArray):
                dims.update(value.elements.ravel().tolist())
        return {s for d in dims if isinstance(d, Dim) for s in d.symbols}

    def content(self, name: str) -> Any:
        """The content of a value where it is known while tracing (shape arithmetic, constants),
        else None.
        """
        value = self._known(name)
        return value if is_host(value) else None

    def _known(self, name: str) -> Any:
        if name not in self._scope.values:
            close = similar(str(name), self._scope.values)
            raise UnknownValueError(f"the graph has no value {name!r}{close}")
        return resolved(self._scope.values[name], self._facts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope.values)

    def __len__(self) -> int:
        return len(self._scope.values)

    def __contains__(self, name: object) -> bool:
        return name in self._scope.values

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        from .show.text import values_text

        return values_text(self)

    def __repr__(self) -> str:
        return f"<{len(self)} values>"


def resolved(value: Any, facts: Facts) -> Any:
    """A value in the simplest sizes known by now."""
    return simplified(value.type if isinstance(value, Missing) else value, facts)


def _outer_first(found: dict[str, list[Values]]) -> dict[str, list[Values]]:
    """The same, where each walk, which ends after those inside of it, comes before them."""
    paths: list[str] = []
    for path in found:
        at = len(paths)
        while at and paths[at - 1].startswith(path):
            at -= 1
        paths.insert(at, path)
    return {path: found[path] for path in paths}


def inner(facts: Facts) -> dict[str, Values]:
    """The values of each subgraph and function call, by the labels of the nodes around them.

    Where one is walked several times, as a loop of known length is, each time counts.
    """
    found: dict[str, list[Values]] = {}
    for graph, scope, path in facts.walks:
        found.setdefault(path, []).append(Values(graph, scope, facts))
    return {
        path.rstrip("/") + (f"[{i}]" if len(walks) > 1 else ""): values
        for path, walks in _outer_first(found).items()
        for i, values in enumerate(walks)
    }
