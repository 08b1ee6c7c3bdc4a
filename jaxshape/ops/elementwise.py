"""Elementwise arithmetic: one function a row, for NumPy, for formulas in sizes, and for JAX.

From opset 7 on operands broadcast as NumPy's do; the forms before are in `_legacy.py`. A row names
the function that NumPy and `jax.numpy` share; NumPy's also takes arrays of formulas (`_host.py`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._host import DimArray, namespace, truncate_divide
from .._op import Maybe, op
from .._value import TensorType
from ._agree import written
from ._legacy import consuming, first_version, limited, same_shapes
from ._numeric import FLOAT32, HALF, in_floats, is_float, is_integer, one_dtype, widened

# one input ----------------------------------------------------------------------------------------

# name: the version that has today's form, and the function; exact in every float type
_EXACT = {
    "Abs": (6, "abs"),
    "Ceil": (6, "ceil"),
    "Floor": (6, "floor"),
    "Neg": (6, "negative"),
    "Round": (11, "rint"),
    "Sign": (9, "sign"),
}
_ROUNDED = {
    "Acos": (7, "arccos"),
    "Acosh": (9, "arccosh"),
    "Asin": (7, "arcsin"),
    "Asinh": (9, "arcsinh"),
    "Atan": (7, "arctan"),
    "Atanh": (9, "arctanh"),
    "Cos": (7, "cos"),
    "Cosh": (9, "cosh"),
    "Exp": (6, "exp"),
    "Log": (6, "log"),
    "Sin": (7, "sin"),
    "Sinh": (9, "sinh"),
    "Sqrt": (6, "sqrt"),
    "Tan": (7, "tan"),
    "Tanh": (6, "tanh"),
}


def _unary(name: str) -> Callable[..., Any]:
    def apply(x, /):
        return getattr(namespace(x), name)(x)

    apply.__doc__ = f"Apply `{name}` to each element; x (*D) -> (*D)."
    return apply


for _name, (_since, _function) in (_EXACT | _ROUNDED).items():
    _apply = _unary(_function) if _name in _EXACT else widened(_unary(_function))
    _made = op(_name, since=_since, host=True, elementwise=True)(_apply)
    if _since == 6:
        first_version(_made)


@op("Reciprocal", since=6, host=True, elementwise=True)
def reciprocal(x, /):
    """Divide 1 by each element; x (*D) -> (*D)."""
    return 1 / x


first_version(reciprocal)

_erf = np.vectorize(math.erf, otypes=[np.float64])


@op("Erf", since=9, host=True, elementwise=True)
@in_floats
def erf(x, /):
    """Apply the error function to each element; x (*D) -> (*D)."""
    return _erf(x).astype(x.dtype) if namespace(x) is np else jax.lax.erf(x)


@op("Identity", host=True)
def identity(x: Maybe, /):
    """Hand x on, whatever kind of value it is: an empty optional, too."""
    return x


@identity.shape_rule(rankless=True)  # because sequences, optionals and text never reach JAX
def _(x, /):
    return x


# two inputs ---------------------------------------------------------------------------------------


def _binary(name: str) -> Callable[..., Any]:
    def apply(a, b, /):
        one_dtype(a, b)
        return getattr(namespace(a, b), name)(a, b)

    apply.__doc__ = f"Apply `{name}` to the elements of a (*D) and b (*D), broadcast."
    return apply


def divide(a, b, /):
    """Divide a (*D) by b (*D), broadcast; integers toward zero."""
    one_dtype(a, b)
    return truncate_divide(a, b) if is_integer(a.dtype) else namespace(a, b).true_divide(a, b)


def power(x, y, /):
    """Raise x (*D) to the power y (*D), broadcast; the result has the dtype of x."""
    if isinstance(x, DimArray) or isinstance(y, DimArray):
        return np.power(x, y)
    if is_float(x.dtype):
        work = y.dtype if y.dtype == np.float64 else FLOAT32 if x.dtype in HALF else x.dtype
    elif is_float(y.dtype):
        work = canonical("float64", x, y)
    else:
        return _integer_power(x, y)
    return namespace(x, y).power(x.astype(work), y.astype(work)).astype(x.dtype)


def _integer_power(x: Any, y: Any) -> Any:
    """Integers to integer powers, wrapping; 1/x**n truncates to 0 but for x = 1 and x = -1."""
    xp, work = namespace(x, y), canonical("int64", x, y)
    base, exponent = x.astype(work), y.astype(work)
    negative = exponent < 0
    positive = xp.power(base, xp.where(negative, 0, exponent))
    unit = xp.where(exponent % 2 == 0, base * base, base)
    inverse = xp.where(abs(base) == 1, unit, xp.zeros_like(unit))
    return xp.where(negative, inverse, positive).astype(x.dtype)


_ARITHMETIC = {
    "Add": _binary("add"),
    "Sub": _binary("subtract"),
    "Mul": _binary("multiply"),
    "Div": divide,
}

for _name, _function in _ARITHMETIC.items():
    op(_name, since=7, host=True, elementwise=True)(_function)
    op(_name, since=6, host=True)(limited(_function))
    op(_name, since=1, host=True)(consuming(limited(_function)))

op("Pow", since=7, host=True, elementwise=True)(power)
op("Pow", since=1, host=True)(limited(power))


@op("Mod", since=10, host=True, elementwise=True)
def mod(a, b, /, *, fmod=0):
    """Take the remainder of a (*D) by b (*D), broadcast: with b's sign, under `fmod` with a's."""
    one_dtype(a, b)
    return _truncated(a, b) if fmod else _floored(a, b)


@widened
def _truncated(a: Any, b: Any) -> Any:
    return namespace(a, b).fmod(a, b)


@widened
def _floored(a: Any, b: Any) -> Any:
    xp = namespace(a, b)
    rest = xp.remainder(a, b)
    if xp is np or not is_float(a.dtype):
        return rest
    return xp.where(rest == 0, xp.copysign(rest, b), rest)  # a zero has b's sign, as in NumPy


# any number of inputs -----------------------------------------------------------------------------


def _variadic(fold: Callable[[Any, Any], Any], text: str) -> Callable[..., Any]:
    def apply(*xs):
        if not xs:
            raise ShapeError("needs at least one input")
        one_dtype(*xs)
        return functools.reduce(fold, xs)

    apply.__doc__ = text
    return apply


def _maximum(a: Any, b: Any) -> Any:
    return namespace(a, b).maximum(a, b)


def _minimum(a: Any, b: Any) -> Any:
    return namespace(a, b).minimum(a, b)


total = _variadic(operator.add, "Add all xs (*D), broadcast.")


def mean(*xs):
    """Average all xs (*D), broadcast."""
    return total(*xs) / len(xs)


_VARIADIC = {
    "Max": _variadic(_maximum, "Take the greatest of all xs (*D), broadcast; NaN wins."),
    "Min": _variadic(_minimum, "Take the least of all xs (*D), broadcast; NaN wins."),
    "Sum": widened(total),
    "Mean": widened(mean),
}


def _unbroadcast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The form up to opset 7, whose inputs have one shape."""

    @functools.wraps(function)
    def apply(*xs):
        return function(*same_shapes(*xs))

    return apply


for _name, _function in _VARIADIC.items():
    op(_name, since=8, host=True, elementwise=True)(_function)
    first_version(op(_name, since=6, host=True)(_unbroadcast(_function)))


# choices ------------------------------------------------------------------------------------------


@op("Where", since=9, host=True, elementwise=True)
def where(condition, x, y, /):
    """Take from x (*D) where condition (*D) holds, else from y (*D), broadcast."""
    one_dtype(x, y)
    return namespace(condition, x, y).where(condition, x, y)


@op("Clip", since=1, host=True, elementwise=True)
@widened
def clip_1(x, /, *, min=None, max=None, consumed_inputs=None):
    """Limit x (*D) to [min, max] -> (*D)."""
    xp = namespace(x)
    x = x if min is None else xp.maximum(x, xp.asarray(min, x.dtype))
    return x if max is None else xp.minimum(x, xp.asarray(max, x.dtype))


_MOST = float(np.finfo(np.float32).max)


@op("Clip", since=6, host=True, elementwise=True)
def clip_6(x, /, *, min=-_MOST, max=_MOST):
    """Limit x (*D) to [min, max] -> (*D)."""
    return clip_1(x, min=min, max=max)


@op("Clip", since=11, host=True)
def clip_11(x, min=None, max=None, /):
    """Limit x (*D) to [min (), max ()] -> (*D); max wins where min is above it."""
    low, high = _bound(min, "min"), _bound(max, "max")
    one_dtype(*(a for a in (x, low, high) if a is not None))
    x = x if low is None else _maximum(x, low)
    return x if high is None else _minimum(x, high)


@clip_11.shape_rule(rankless=True)  # because the bounds have no say in the shape
def _(x, min=None, max=None, /):
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and bound.shape is not None:
            _check_bound(name, bound.shape)
    return TensorType(x.dtype, x.shape)


def _check_bound(name: str, shape: tuple[Any, ...]) -> None:
    """A bound is a scalar; one element of rank 1 is let pass, as runtimes do."""
    if len(shape) > 1 or any(isinstance(d, int) and d != 1 for d in shape):
        raise ShapeError(f"{name} {written(shape)} is no scalar")


def _bound(x: Any, name: str) -> Any:
    if x is None:
        return None
    _check_bound(name, x.shape)
    return x.reshape(())
