"""What a graph's inputs stand for when its trace begins.

A name that a file or a caller gives to a size means one size wherever it stands; what is written as
an expression over such names is that expression.  Sizes without a name are minted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ._dim import Dim, parse, symbol
from ._error import UnknownValueError
from ._facts import Facts
from ._host import is_host
from ._model import Declared, Model
from ._symbol import renamed
from ._tracer import Tracer
from ._value import MapType, OptionalType, SequenceType, TensorType


def bind_inputs(model: Model, shapes: dict[str, Any], tracer: Tracer) -> dict[str, Any]:
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
    meant: dict[str, Any] = {}
    for name, given in shapes.items():
        dims = given.shape if isinstance(given, (TensorType, np.ndarray)) else given
        for d, old in zip(dims or (), inputs[name].dims or (), strict=False):
            if isinstance(old, str) and d is not None:
                meant.setdefault(old, d)
    values: dict[str, Any] = {}
    for i in (*model.graph.inputs, *(o for o in model.graph.optional_inputs if o.name in shapes)):
        if i.name in shapes:
            values[i.name] = _given(i.name, i.type, shapes[i.name], tracer, names)
        else:
            values[i.name] = _declared(i.type, i.name, tracer, names, meant)
    return {name: floored(value, tracer.facts) for name, value in values.items()}


def floored(value: Any, facts: Facts) -> Any:
    """A value whose named sizes have the least value that this trace gives them."""
    if facts.floor == 1 or not isinstance(value, TensorType):
        return value
    symbols = {s for d in value.shape or () if isinstance(d, Dim) for s in d.symbols}
    return renamed(value, {s: facts.named(s.name) for s in symbols if not facts.is_fresh(s)})


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
    meant: Mapping[str, Any],
    within: bool = False,
) -> Any:
    """The value that stands for an input of a declared type."""
    if t.kind in ("tensor", "sparse"):
        if t.dims is None:
            return TensorType(t.dtype, None)
        dims = [
            _size(d, f"{name}_{axis}", tracer, names, meant, within)
            for axis, d in enumerate(t.dims)
        ]
        made = TensorType(t.dtype, dims)
        return made if within else tracer.named(made, name)
    elem = t.elem and _declared(t.elem, name, tracer, names, meant, within=True)
    if t.kind == "sequence":
        return SequenceType(elem, None if within else tracer.facts.count(f"{name}_length"))
    if t.kind == "optional":
        return OptionalType(elem)
    if t.kind == "map":
        return MapType(t.key, elem)
    return TensorType(None, None)


def _size(
    d: Any, stem: str, tracer: Tracer, names: set[str], meant: Mapping[str, Any], within: bool
) -> Any:
    if isinstance(d, int):
        return d
    if within:
        return None  # the elements of a sequence need not have equal sizes
    if d is None:
        return tracer.facts.count(stem, least=tracer.facts.floor)
    if d in meant:
        return TensorType(None, (meant[d],)).shape[0]  # type: ignore[index]
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
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"the shape of {name} is {given!r}, wants a tuple of sizes")
    dims = [None if isinstance(d, int) and d == -1 else d for d in given]
    if declared.dims is not None and len(declared.dims) == len(dims):
        dims = [old if d is None else d for d, old in zip(dims, declared.dims, strict=True)]
    sizes = TensorType(dtype, tuple(dims)).shape or ()
    made = [
        tracer.facts.count(f"{name}_{i}", least=tracer.facts.floor) if d is None else d
        for i, d in enumerate(sizes)
    ]
    return tracer.named(TensorType(dtype, tuple(made)), name)
