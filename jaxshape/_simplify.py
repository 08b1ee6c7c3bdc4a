"""Types and host arrays with their dims in the simplest form that a trace knows."""

from __future__ import annotations

from typing import Any

from ._dim import Dim
from ._facts import Facts
from ._host import DimArray, host
from ._value import MapType, OptionalType, SequenceType, TensorType


def simplified(value: Any, facts: Facts) -> Any:
    """A type or host array with each dim in its simplest form."""
    if type(value) is TensorType and value.shape is not None:
        if any(type(d) is Dim for d in value.shape):
            return TensorType(
                value.dtype,
                tuple([facts.simplify(d) if type(d) is Dim else d for d in value.shape]),
            )
        return value
    if type(value) is DimArray:
        return renamed_elements(value, facts)
    if isinstance(value, list):
        return [simplified(v, facts) for v in value]
    if isinstance(value, SequenceType):
        length = facts.simplify(value.length) if isinstance(value.length, Dim) else value.length
        return SequenceType(simplified(value.elem, facts), length)
    if isinstance(value, OptionalType):
        return OptionalType(simplified(value.elem, facts))
    if isinstance(value, MapType):
        return MapType(value.key, simplified(value.elem, facts))
    return value


def renamed_elements(array: DimArray, facts: Facts) -> Any:
    dims = {e for e in array.elements.ravel().tolist() if isinstance(e, Dim)}
    changed = {d: s for d in dims if (s := facts.simplify(d)) is not d}
    if not changed:
        return array
    flat = [changed.get(e, e) if isinstance(e, Dim) else e for e in array.elements.ravel().tolist()]
    return host(flat, array.dtype).reshape(array.shape)
