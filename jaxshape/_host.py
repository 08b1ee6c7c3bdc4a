"""Host arrays whose elements are dims: shape arithmetic as NumPy code.

A `DimArray` stands where a small array's content is a formula in the model's sizes. It answers to
NumPy's ufuncs and functions, so that one lowering written with `namespace(x)` computes with
numbers, with dims, and on a device.

Invariant: a DimArray holds at least one symbol (`wrap` gives a plain ndarray otherwise), and each
element is what the runtime would compute, for every admissible size. What cannot be expressed
raises `Undecided`; integers that cannot become a fresh unknown integer. Floats are rationals over
dims, kept only while the runtime's own rounding provably does not show (see `_rational.py`); while
tracing, others are unknown floats.
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np

from . import _element
from ._dim import Dim, Undecided, maximum, minimum
from ._rational import Float, half_even
from ._relation import Relation, both, either, negate, related
from ._value import TensorType

SMALL = 65_536  # elements: the most that constant folding touches


class DimArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of an ONNX dtype whose elements are numbers, dims, relations between dims, or floats
    that are not known.

    `elements` is an object ndarray; `dtype` what the runtime's array would have. Made by `wrap`.
    """

    __slots__ = ("_key", "dtype", "elements")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, elements: np.ndarray, dtype: np.dtype):
        self.elements, self.dtype = elements, dtype
        self._key: Any = None

    shape = property(lambda self: self.elements.shape)
    ndim = property(lambda self: self.elements.ndim)
    size = property(lambda self: self.elements.size)
    T = property(lambda self: DimArray(self.elements.T, self.dtype))

    @property
    def key(self) -> Any:
        """A hashable that stands for the content: equal keys, equal arrays."""
        if self._key is None:
            self._key = (self.dtype, self.elements.shape, *self.elements.ravel().tolist())
        return self._key

    def __repr__(self) -> str:
        return f"DimArray({self.elements.tolist()}, {self.dtype})".replace("'", "")

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self):
        return (self[i] for i in range(len(self.elements)))

    def __getitem__(self, index: Any) -> Any:
        return wrap(np.asarray(self.elements[index], dtype=object), self.dtype)

    def tolist(self) -> Any:
        return self.elements.tolist()

    def item(self) -> Any:
        return self.elements.item()

    def reshape(self, *shape: Any) -> DimArray:
        return DimArray(self.elements.reshape(*shape), self.dtype)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Convert as the runtime does: to integers by truncation, to bool by comparison with 0."""
        target = np.dtype(dtype)
        return wrap(
            _vectorize(lambda x: _element.cast(x, self.dtype, target), self.elements), target
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise Undecided("the content of this array is a formula, not numbers")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = _UFUNCS.get(ufunc.__name__)
        if function is None or method != "__call__" or kwargs:
            return NotImplemented
        dtype = next(x.dtype for x in inputs if isinstance(x, DimArray))
        result = np.dtype(bool) if ufunc.__name__ in _TO_BOOL else dtype
        apply = _element.decisive(functools.partial(function, dtype), result)
        return wrap(_vectorize(apply, *map(_elements, inputs)), result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if special := _FUNCTIONS.get(func.__name__):
            return special(*args, **kwargs)
        if func.__name__ not in _STRUCTURAL:
            return NotImplemented
        dtype = next(x.dtype for x in _leaves([*args, *kwargs.values()]) if isinstance(x, DimArray))
        result = func(*[_strip(a) for a in args], **{k: _strip(v) for k, v in kwargs.items()})
        return [wrap(r, dtype) for r in result] if isinstance(result, list) else wrap(result, dtype)


def wrap(elements: Any, dtype: np.dtype) -> Any:
    """A DimArray of the elements, or a plain ndarray where none of them is symbolic."""
    elements = elements if isinstance(elements, np.ndarray) else np.asarray(elements, dtype=object)
    if any(isinstance(x, (Dim, Relation, Float)) for x in elements.ravel().tolist()):
        return DimArray(elements, dtype)
    return elements.astype(dtype)


def host(values: Iterable[Any], dtype: Any = "int64") -> Any:
    """A rank-1 host array of numbers and dims."""
    return wrap(np.array([*values, None], dtype=object)[:-1], np.dtype(dtype))


def is_host(x: Any) -> TypeGuard[Any]:
    """Whether the content of this value is known on the host."""
    return isinstance(x, (np.ndarray, DimArray, np.generic))


def namespace(*xs: Any) -> Any:
    """NumPy where every array is a host array, else `jax.numpy`; so one body serves both."""
    for x in xs:
        if not (
            x is None or isinstance(x, (np.ndarray, DimArray, np.generic, numbers.Number, str))
        ):
            import jax.numpy

            return jax.numpy
    return np


def type_of(value: Any) -> Any:
    """The type of a value: itself where it is a type, else the dtype and shape of the array."""
    if isinstance(value, (np.ndarray, DimArray, np.generic)):
        return TensorType(value.dtype, value.shape)
    return value


def content_key(value: Any) -> Any:
    """A hashable that is equal for equal host arrays."""
    if isinstance(value, DimArray):
        return value.key
    if value.dtype == object:
        return (value.dtype, value.shape, *value.ravel().tolist())
    return (value.dtype, value.shape, value.tobytes())


def _elements(x: Any) -> Any:
    """The elements as Python objects, for element functions."""
    return x.elements if isinstance(x, DimArray) else np.asarray(x).astype(object)


def _vectorize(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """Apply an element function with broadcasting; always an object array."""
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)


def _leaves(xs: Any) -> Iterable[Any]:
    for x in xs:
        if isinstance(x, (list, tuple)):
            yield from _leaves(x)
        else:
            yield x


def _strip(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_strip(v) for v in x)
    if isinstance(x, DimArray):
        return x.elements
    return x


def truncate_divide(a: Any, b: Any) -> Any:
    """Integer division toward zero, as ONNX's Div: on host arrays, with dims, or in JAX."""
    if namespace(a, b) is not np:
        import jax.numpy as jnp
        from jax import lax

        return lax.div(*jnp.broadcast_arrays(a, b))
    if not isinstance(a, DimArray) and not isinstance(b, DimArray):
        with np.errstate(all="ignore"):
            q = np.floor_divide(a, b)
            return np.where(
                (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)), q + np.ones_like(q), q
            )
    dtype = a.dtype if isinstance(a, DimArray) else b.dtype

    return wrap(_vectorize(_element.truncated, _elements(a), _elements(b)), dtype)


def where(condition: Any, a: Any, b: Any) -> Any:
    dtype = next((x.dtype for x in (a, b) if hasattr(x, "dtype")), np.dtype("int64"))
    return wrap(_vectorize(_element.choose, *map(_elements, (condition, a, b))), dtype)


def _reduction(function: Callable[[Any, Any], Any], start: Any) -> Callable[..., Any]:
    """A reduction along axes as a fold of an element function."""

    def reduce(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = tuple(sorted(a % x.ndim for a in axes))
        moved = np.moveaxis(x.elements, axes, range(len(axes)))
        rest = moved.shape[len(axes) :]
        rows = moved.reshape(-1, *rest)
        apply = _element.decisive(function, np.dtype(dtype or x.dtype))
        total = (
            functools.reduce(lambda a, b: _vectorize(apply, a, b), rows)
            if len(rows)
            else np.full(rest, start)
        )
        if keepdims:
            total = np.asarray(total, dtype=object).reshape(
                [1 if i in axes else n for i, n in enumerate(x.shape)]
            )
        return wrap(np.asarray(total, dtype=object), np.dtype(dtype or x.dtype))

    return reduce


def _cumsum(x: Any, axis: int = 0, dtype: Any = None) -> Any:
    apply = _element.decisive(operator.add, x.dtype)
    total = np.frompyfunc(apply, 2, 1).accumulate(x.elements, axis=axis, dtype=object)
    return wrap(total, x.dtype)


def _clip(x: Any, low: Any = None, high: Any = None, **_: Any) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _compare(kind: str) -> Callable[..., Any]:
    return lambda dtype, a, b: related(kind, a, b)


_TO_BOOL = frozenset(
    "equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_not logical_xor".split()
)
_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": _element.arithmetic(operator.add),
    "subtract": _element.arithmetic(operator.sub),
    "multiply": _element.multiply,
    "divide": _element.divide,
    "true_divide": _element.divide,
    "power": _element.power,
    "remainder": _element.modulo,
    "fmod": _element.fmod,
    "maximum": _element.extreme(maximum, np.maximum),
    "minimum": _element.extreme(minimum, np.minimum),
    "negative": lambda dtype, x: -x,
    "absolute": _element.absolute,
    "sign": _element.sign,
    "floor": lambda dtype, x: math.floor(x),
    "ceil": lambda dtype, x: math.ceil(x),
    "rint": lambda dtype, x: half_even(Fraction(x) if isinstance(x, float) else x),
    "equal": _compare("=="),
    "not_equal": _compare("!="),
    "less": _compare("<"),
    "less_equal": _compare("<="),
    "greater": _compare(">"),
    "greater_equal": _compare(">="),
    "logical_and": lambda dtype, a, b: both(a, b),
    "logical_or": lambda dtype, a, b: either(a, b),
    "logical_not": lambda dtype, a: negate(a),
    "logical_xor": lambda dtype, a, b: either(both(a, negate(b)), both(negate(a), b)),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": where,
    "sum": _reduction(operator.add, 0),
    "prod": _reduction(operator.mul, 1),
    "max": _reduction(maximum, None),
    "min": _reduction(minimum, None),
    "amax": _reduction(maximum, None),
    "amin": _reduction(minimum, None),
    "cumsum": _cumsum,
    "clip": _clip,
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
}
_STRUCTURAL = frozenset(
    "reshape transpose concatenate take squeeze expand_dims stack broadcast_to tile flip ravel "
    "moveaxis swapaxes repeat split array_split take_along_axis roll atleast_1d diagonal tril triu "
    "delete insert append".split()
)
