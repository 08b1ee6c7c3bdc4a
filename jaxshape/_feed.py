"""What the caller feeds to a model, checked against what the model declares before it runs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ._error import ShapeError, UnknownValueError
from ._model import Declared, Input, Model
from ._tensor import DTYPES
from ._value import STRING, dtype_name

_INTEGERS = frozenset(d for d in DTYPES.values() if d.name.lstrip("u").startswith("int"))


def checked_feed(
    model: Model,
    inputs: Mapping[str, Any] | Sequence[Any],
    needed: Container[str] | None = None,
) -> dict[str, Any]:
    """The inputs as arrays by name; raises where a name, dtype, rank or size is not what the model
    declares, or where one that is needed (None: any) is missing.

    Equal names of sizes are one size: `x (N, 3)` and `y (N,)` must agree on N.
    """
    graph = model.graph
    known = {i.name: i for i in (*graph.inputs, *graph.optional_inputs)}
    if not isinstance(inputs, Mapping):
        if not hasattr(inputs, "__len__") or isinstance(inputs, (str, bytes)):
            raise UnknownValueError(
                f"inputs are given by name or in order, not as {type(inputs).__name__}; "
                f"the model takes {_listed(known)}"
            )
        if len(inputs) > len(known):
            raise UnknownValueError(
                f"{len(inputs)} inputs given, the model takes {len(known)}: {_listed(known)}"
            )
        inputs = dict(zip(known, inputs, strict=False))
    for name in inputs:
        if name not in known:
            raise UnknownValueError(f"the model has no input {name!r}; it takes {_listed(known)}")
    for i in graph.inputs:
        if i.name not in inputs and (needed is None or i.name in needed):
            raise UnknownValueError(
                f"input {i.name!r} is missing; the model takes {_listed(known)}"
            )
    sizes: dict[str, tuple[int, str]] = {}
    return {
        name: _checked(known[name], known[name].type, value, sizes)
        for name, value in inputs.items()
    }


def _listed(known: Mapping[str, Input]) -> str:
    return ", ".join(f"{n} ({_shown(i.type)})" for n, i in known.items()) or "none"


def _shown(declared: Declared) -> str:
    if declared.kind not in ("tensor", "sparse"):
        return declared.kind or "?"
    dims = (
        "..."
        if declared.dims is None
        else ", ".join("?" if d is None else str(d) for d in declared.dims)
    )
    return f"{dtype_name(declared.dtype)}[{dims}]"


def _checked(
    given: Input, declared: Declared, value: Any, sizes: dict[str, tuple[int, str]]
) -> Any:
    if declared.kind == "optional":
        return None if value is None else _checked(given, declared.elem or Declared(), value, sizes)
    if declared.kind == "sequence":
        if not isinstance(value, (list, tuple)):
            raise ShapeError(
                f"input {given.name!r} is a sequence: give a list, not {type(value).__name__}"
            )
        return [_checked(given, declared.elem or Declared(), v, {}) for v in value]
    if declared.kind == "map":
        return _map(given, declared, value)
    if isinstance(value, Mapping):
        if declared.kind is not None:
            raise ShapeError(f"input {given.name!r} is a map, wants {_shown(declared)}")
        return dict(value)
    if value is None:
        raise UnknownValueError(f"input {given.name!r} is missing: None is no {_shown(declared)}")
    return _array(given, declared, value, sizes)


def _map(given: Input, declared: Declared, value: Any) -> Any:
    """A dict with its values in the dtype that the model declares."""
    if not isinstance(value, Mapping):
        raise ShapeError(f"input {given.name!r} is a map: give a dict, not {type(value).__name__}")
    dtype = declared.elem.dtype if declared.elem else None
    if dtype is None or dtype == STRING:
        return dict(value)
    return {key: dtype.type(v) for key, v in value.items()}


def _array(given: Input, declared: Declared, value: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    array = _as_array(given, declared, value)
    if declared.dtype is not None and array.dtype != declared.dtype:
        if hasattr(value, "dtype") or not _lossless(array, declared.dtype):
            wanted, what = _shown(declared), dtype_name(array.dtype)
            numbers = "" if hasattr(value, "dtype") else ", which does not hold all of its numbers"
            same_kind = array.dtype.kind in "iu" and declared.dtype in _INTEGERS
            raise ShapeError(
                f"input {given.name!r} has dtype {what}, wants {wanted}{numbers * same_kind}"
            )
        array = array.astype(declared.dtype)
    if array.dtype == STRING and not isinstance(array, np.ndarray):
        array = np.asarray(array)
    if declared.dims is None:
        return array
    if len(array.shape) != len(declared.dims):
        raise ShapeError(
            f"input {given.name!r} has shape {tuple(array.shape)}, wants {_shown(declared)}"
        )
    for axis, (size, dim) in enumerate(zip(array.shape, declared.dims, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise ShapeError(
                f"input {given.name!r} has size {size} along axis {axis}, wants {_shown(declared)}"
            )
        if isinstance(dim, str):
            first, where = sizes.setdefault(dim, (size, given.name))
            if first != size:
                raise ShapeError(
                    f"input {given.name!r} has size {size} along axis {axis}, "
                    f"but {dim} is {first} in input {where!r}"
                )
    return array


def _as_array(given: Input, declared: Declared, value: Any) -> Any:
    """An array in the machine's byte order, text in it as objects."""
    try:
        array = value if hasattr(value, "dtype") and hasattr(value, "shape") else np.asarray(value)
    except (ValueError, OverflowError) as e:  # lists of different lengths
        raise ShapeError(f"input {given.name!r} is no array, wants {_shown(declared)}: {e}") from e
    if array.dtype.kind in "UST":
        return np.asarray(array).astype(object)
    if array.dtype == STRING and not all(isinstance(x, (str, bytes)) for x in np.ravel(array)):
        raise ShapeError(
            f"input {given.name!r} holds Python objects that are no text, wants {_shown(declared)}"
        )
    foreign = isinstance(array, np.ndarray) and not array.dtype.isnative
    return array.astype(array.dtype.newbyteorder("=")) if foreign else array


def _lossless(array: np.ndarray, dtype: np.dtype) -> bool:
    """Whether plain Python numbers may become this dtype: ints that it holds, floats a float."""
    if dtype == STRING or array.dtype == STRING:
        return False
    if array.dtype.kind == "b" or dtype.kind == "b":
        return array.dtype == dtype
    if dtype in _INTEGERS:
        limits = ml_dtypes.iinfo(dtype)
        fits = not array.size or limits.min <= array.min() and array.max() <= limits.max
        return array.dtype.kind in "iu" and bool(fits)
    return array.dtype.kind != "c" or dtype.kind == "c"
