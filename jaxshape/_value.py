"""What flows along an edge of a graph.

A value is one of:

- a host array, whose content is known while tracing: an `np.ndarray`, or a `DimArray` where
  elements are dims;
- a `TensorType`, of which only dtype and shape are known (dtype or shape None where even that is
  not);
- a Python list, a sequence of known length; a `SequenceType`, one of unknown length;
- an `OptionalType`; a `MapType`; `None`, an input that is absent or an optional that is empty;
- while running, also a `jax.Array` or tracer.

Invariant: types are interned, so that equality is identity and a type is a cheap part of a memo
key. Strings are arrays of Python objects; their dtype is `np.dtype(object)` and shows as `string`.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from ._dim import Dim, Scalar, parse, symbol

STRING = np.dtype(object)
_NAMES = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
        "float4_e2m1fn float6_e2m3fn float6_e3m2fn int4 uint4 int2 uint2"
    ).split()
} | {
    "string": STRING,
    "str": STRING,
    "float": np.dtype("float32"),
    "double": np.dtype("float64"),
    # ONNX's spelling of the types that NumPy lacks
    "float8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}

Shape = tuple[Any, ...]  # of int and Dim; None stands for an unknown size in what a user gives


def as_dtype(dtype: Any) -> np.dtype:
    """The NumPy dtype of a name, a NumPy dtype or scalar type; ml_dtypes for what NumPy lacks."""
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    return np.dtype(dtype)


def dtype_name(dtype: np.dtype | None) -> str:
    """How a dtype is shown: NumPy's name, `string` for text, `?` where it is unknown."""
    return "?" if dtype is None else "string" if dtype == STRING else dtype.name


def as_dim(size: Any) -> Scalar | None:
    """A size as a user writes it: an int, a name, an expression over names, or None, "?" and "" for
    unknown.
    """
    if size is None or isinstance(size, Dim):
        return size
    if isinstance(size, str):
        if size.strip() in ("", "?", "-1"):
            return None
        parsed = parse(size, symbol)
        return symbol(size) if parsed is None else parsed
    try:
        size = operator.index(size)
    except TypeError:
        raise TypeError(f"{size!r} is no size: an int, a name or a formula is wanted") from None
    return None if size < 0 else size


class _Interned(type):
    """Makes equal calls give the same object, as long as someone holds it."""

    _table: ClassVar[weakref.WeakValueDictionary[Any, Any]] = weakref.WeakValueDictionary()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        args = cls.normal(*args, **kwargs)  # type: ignore[attr-defined]
        key = (cls, *args)
        made = _Interned._table.get(key)
        if made is None:
            made = super().__call__(*args)
            _Interned._table[key] = made
        return made


class TensorType(metaclass=_Interned):
    """The dtype and shape of a tensor.

    Args:
      dtype: a dtype or its name (`"float32"`, `"bfloat16"`, `"string"`), None where it is unknown.
      shape: a tuple of ints and dims; a string is a named size or an expression over named sizes,
        None inside the tuple an unknown size. None instead of a tuple: not even the rank is known.

    Example:
      >>> print(TensorType("float32", ("batch", 3, "2*h")))
      float32[batch, 3, 2*h]
    """

    __slots__ = ("__weakref__", "dtype", "shape")
    dtype: np.dtype | None
    shape: Shape | None

    def __init__(self, dtype: Any, shape: Sequence[Any] | None):
        self.dtype, self.shape = dtype, shape  # type: ignore[assignment]

    @staticmethod
    def normal(dtype: Any, shape: Sequence[Any] | None) -> tuple[Any, ...]:
        if not isinstance(dtype, np.dtype) and dtype is not None:
            dtype = as_dtype(dtype)
        if isinstance(shape, str):
            raise TypeError(f"the shape is {shape!r}, wants a tuple of sizes, as ({shape!r},)")
        if shape is not None:
            shape = tuple([d if type(d) is int or type(d) is Dim else as_dim(d) for d in shape])
        return dtype, shape

    @property
    def ndim(self) -> int:
        """The rank; raises `TypeError` where it is unknown."""
        return len(self.shape)  # type: ignore[arg-type]

    @property
    def size(self) -> Any:
        """The number of elements, an int or a dim."""
        size: Any = 1
        for d in self.shape:  # type: ignore[union-attr]
            size = size * d
        return size

    def __repr__(self) -> str:
        return f"TensorType({dtype_name(self.dtype)!r}, {self.shape})"

    def __str__(self) -> str:
        dims = (
            "..."
            if self.shape is None
            else ", ".join("?" if d is None else str(d) for d in self.shape)
        )
        return f"{dtype_name(self.dtype)}[{dims}]"


UNKNOWN = TensorType(None, None)


class SequenceType(metaclass=_Interned):
    """A sequence whose length is a dim (None where unknown) and whose elements all have one type
    (None: unknown).
    """

    __slots__ = ("__weakref__", "elem", "length")

    def __init__(self, elem: Any, length: Any):
        self.elem, self.length = elem, length

    @staticmethod
    def normal(elem: Any, length: Any = None) -> tuple[Any, ...]:
        return elem, length

    def __repr__(self) -> str:
        return f"SequenceType({self.elem!r}, {self.length})"

    def __str__(self) -> str:
        return f"seq({self.elem if self.elem is not None else '?'})"


class OptionalType(metaclass=_Interned):
    """A value of type `elem` that may be absent."""

    __slots__ = ("__weakref__", "elem")

    def __init__(self, elem: Any):
        self.elem = elem

    @staticmethod
    def normal(elem: Any) -> tuple[Any, ...]:
        return (elem,)

    def __repr__(self) -> str:
        return f"OptionalType({self.elem!r})"

    def __str__(self) -> str:
        return f"optional({self.elem if self.elem is not None else '?'})"


class MapType(metaclass=_Interned):
    """A map from keys of one dtype to values of one type."""

    __slots__ = ("__weakref__", "elem", "key")

    def __init__(self, key: np.dtype | None, elem: Any):
        self.key, self.elem = key, elem

    @staticmethod
    def normal(key: Any, elem: Any) -> tuple[Any, ...]:
        return as_dtype(key) if key is not None else None, elem

    def __repr__(self) -> str:
        return f"MapType({dtype_name(self.key)!r}, {self.elem!r})"

    def __str__(self) -> str:
        return f"map({dtype_name(self.key)}, {self.elem if self.elem is not None else '?'})"


Type = TensorType | SequenceType | OptionalType | MapType
