"""Arithmetic on single elements of host arrays: numbers, dims, and relations between dims.

Each function computes what the runtime would in the array's dtype, for every admissible size. What
cannot be expressed raises `Undecided`; an integer that cannot becomes a fresh unknown integer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from . import _facts
from ._branch import chosen
from ._dim import Dim, Undecided, maximum, minimum
from ._rational import Float, divide_exact, integral, scale_exact
from ._relation import Relation, both, decided, either, negate, related


def number(x: Any) -> bool:
    """Whether an element is a plain number."""
    return not isinstance(x, (Dim, Relation, Float))


def unknown(*parts: Any) -> Dim:
    """A fresh integer for an element that no formula expresses."""
    return _facts.element("value")


def decisive(function: Callable[..., Any], result: np.dtype) -> Callable[..., Any]:
    """An element function whose result, if it is a float that no formula gives, is unknown: as is
    all that is computed of such a one.
    """

    def apply(*args: Any) -> Any:
        vague = any(isinstance(x, Float) for x in args)
        if vague and result.kind != "f":
            raise Undecided("what follows from a float that is not known")
        if vague:
            return _facts.real()
        try:
            return function(*args)
        except Undecided:
            if result.kind != "f":
                raise
            return _facts.real()

    return apply


def cast(x: Any, source: np.dtype, target: np.dtype) -> Any:
    """One element converted to another dtype."""
    kind = np.dtype(target).kind
    if isinstance(x, Float):
        if kind == "f":
            return _facts.real()
        return unknown(x) if kind in "iu" else _raise("whether a float that is not known is 0")
    if number(x):
        return np.asarray(x, dtype=source).astype(target).item()
    if isinstance(x, Relation):
        known = decided(x)
        if known is not None:
            return known if kind == "b" else int(known)
        if kind == "b":
            return x
        raise Undecided("a relation as a number")
    if kind == "b":
        return related("!=", x, 0)
    if kind in "iu":
        if integral(x):
            if target.itemsize >= 4 and (kind == "i" or _facts.at_least(x, 0)):
                return x  # sizes stay below 10**9
            raise Undecided("a size in an integer that may not hold it")
        if _facts.at_least(x, 0):
            return math.floor(x)
        return unknown(x)
    if kind != "f":
        raise Undecided("no such conversion of a size")
    return decisive(lambda x: scale_exact(x, 1, target), target)(x)


def _raise(text: str) -> Any:
    raise Undecided(text)


def arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Numbers in the node's own dtype, dims exactly; floats only where rounding does not show."""

    def apply(dtype: np.dtype, a: Any, b: Any) -> Any:
        if number(a) and number(b):
            with np.errstate(all="ignore"):
                return function(dtype.type(a), dtype.type(b)).item()
        if dtype.kind not in "iu":
            a, b = (scale_exact(x, 1, dtype) for x in (a, b))
        return function(a, b)

    return apply


def extreme(formula: Callable[[Any, Any], Any], plain: np.ufunc) -> Callable[..., Any]:
    """The greater or lesser of two elements; a NaN wins."""

    def apply(dtype: np.dtype, a: Any, b: Any) -> Any:
        if number(a) and number(b):
            return plain(dtype.type(a), dtype.type(b)).item()
        exact = [Fraction(x) if isinstance(x, float) else x for x in (a, b)]
        return formula(*exact)

    return apply


def multiply(dtype: np.dtype, a: Any, b: Any) -> Any:
    if dtype.kind in "iu" or number(a) == number(b):
        return arithmetic(operator.mul)(dtype, a, b)
    return scale_exact(a, b, dtype) if number(b) else scale_exact(b, a, dtype)


def divide(dtype: np.dtype, a: Any, b: Any) -> Any:
    if dtype.kind in "iu":
        raise Undecided("integers divide by truncation: use truncate_divide")
    if number(a) and number(b):
        return arithmetic(operator.truediv)(dtype, a, b)
    return divide_exact(a, b, dtype)


def power(dtype: np.dtype, a: Any, b: Any) -> Any:
    if number(b) and b == int(b) and 0 <= b <= 4 and dtype.kind in "iu":
        return a ** int(b)
    raise Undecided("a power of a size")


def truncated(x: Any, y: Any) -> Any:
    """An integer division toward zero."""
    if number(x) and number(y):
        return int(math.copysign(1, x) * math.copysign(1, y)) * (abs(x) // abs(y)) if y else 0
    if _facts.at_least(-1, y):
        x, y = -x, -y
    if _facts.at_least(x, 0) and _facts.at_least(y, 1):
        return x // y
    if _facts.at_least(0, x) and _facts.at_least(y, 1):
        return -(-x // y)
    return unknown(x, y)


def modulo(dtype: np.dtype, a: Any, b: Any) -> Any:
    if number(a) and number(b):
        return np.remainder(dtype.type(a), dtype.type(b)).item()
    if dtype.kind in "iu" and _facts.at_least(b, 1):
        return a % b
    return unknown(a, b) if dtype.kind in "iu" else _raise("a remainder of floats")


def fmod(dtype: np.dtype, a: Any, b: Any) -> Any:
    if _facts.at_least(-1, b):
        b = -b  # the sign of a remainder is that of a
    if _facts.at_least(a, 0) and _facts.at_least(b, 1):
        return modulo(dtype, a, b)
    if dtype.kind in "iu" and _facts.at_least(0, a) and _facts.at_least(b, 1):
        return -modulo(dtype, -a, b)
    return unknown(a, b) if dtype.kind in "iu" else _raise("a remainder of floats")


def absolute(dtype: np.dtype, x: Any) -> Any:
    return x if _facts.at_least(x, 0) else maximum(x, -x)


def sign(dtype: np.dtype, x: Any) -> Any:
    return 1 if _facts.at_least(x, 1) else -1 if _facts.at_least(-1, x) else unknown(x)


def choose(condition: Any, a: Any, b: Any) -> Any:
    """One element of a selection: the branch that is sure, a max or min, else unknown."""
    known = decided(condition)
    if known is not None:
        return a if known else b
    if a is b or (number(a) and number(b) and a == b):
        return a
    if isinstance(a, Float) or isinstance(b, Float):
        return _facts.real()
    if isinstance(a, Relation) or isinstance(b, Relation) or isinstance(a, bool):
        yes, no = both(condition, a), both(negate(condition), b)
        return either(yes, no)
    if (picked := chosen(condition, a, b)) is not None:
        return picked
    if not (integral(a) and integral(b)):
        return _facts.real()
    if _facts.at_least(a, 0) and _facts.at_least(b, 0):
        return _facts.count("value", minimum(a, b), maximum(a, b))
    return _facts.element("value")
