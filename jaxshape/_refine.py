"""Declared shapes: what a file says of its own values, used where nothing was derived, and checked
where something was.

Declarations may be stale: a shape left from export time, contradicted by the inputs. So one never
changes a named size or an expression; it fills unknown dtypes, unknown ranks and fresh sizes, and a
difference elsewhere is a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._dim import Dim
from ._facts import Facts
from ._host import is_host
from ._model import Declared
from ._value import MapType, OptionalType, SequenceType, TensorType, dtype_name


def refine(
    value: Any, declared: Declared, name: str, facts: Facts, warn: Callable[[str], None]
) -> Any:
    """The value with what a declaration adds to it; `warn(text)` where the two contradict each
    other.
    """
    if is_host(value) or declared.kind is None or isinstance(value, list) or value is None:
        return value
    if declared.kind not in ("tensor", "sparse"):
        if isinstance(value, TensorType) and value.dtype is None and value.shape is None:
            return from_declared(declared, facts)
        return value
    if not isinstance(value, TensorType):
        return value
    dtype = value.dtype
    if dtype is None:
        dtype = declared.dtype
    elif declared.dtype is not None and declared.dtype != dtype:
        warn(f"{name} is declared {dtype_name(declared.dtype)}, but is {dtype_name(dtype)}")
    if declared.dims is None:
        return TensorType(dtype, value.shape)
    if value.shape is None:
        return TensorType(dtype, tuple(_author(d, facts) for d in declared.dims))
    if len(declared.dims) != len(value.shape):
        warn(f"{name} is declared of rank {len(declared.dims)}, but is {value}")
        return TensorType(dtype, value.shape)
    dims = []
    for d, wanted in zip(value.shape, declared.dims, strict=True):
        if isinstance(d, Dim) and d.is_symbol and facts.is_fresh(d) and wanted is not None:
            author = _author(wanted, facts)
            if author is not d and facts.bind(d, author):
                d = author
        elif isinstance(wanted, int) and (isinstance(d, Dim) or d != wanted):
            warn(f"{name} is declared {_shown(declared)}, but is {value}")
            return TensorType(dtype, value.shape)
        dims.append(d)
    return TensorType(dtype, tuple(dims))


def _author(d: Any, facts: Facts) -> Any:
    """A size as the author wrote it: an input's name means that input's size, another name a size
    of its own.
    """
    if isinstance(d, str):
        return facts.named(d) if facts.reserved(d) else facts.authored(d)
    return facts.count("size") if d is None else d


def from_declared(declared: Declared, facts: Facts) -> Any:
    """A type as it is declared, for a value of which nothing else is known."""
    if declared.kind in ("tensor", "sparse"):
        dims = declared.dims
        return TensorType(
            declared.dtype, None if dims is None else tuple(_author(d, facts) for d in dims)
        )
    elem = declared.elem and from_declared(declared.elem, facts)
    if declared.kind == "sequence":
        return SequenceType(elem, None)
    if declared.kind == "optional":
        return OptionalType(elem)
    if declared.kind == "map":
        return MapType(declared.key, elem)
    return TensorType(None, None)


def _shown(declared: Declared) -> str:
    dims = ", ".join("?" if d is None else str(d) for d in declared.dims or ())
    return f"{dtype_name(declared.dtype)}[{dims}]"
