"""Comparisons, truth values and bits.

Invariant: a comparison of sizes answers with a relation where it depends on them, never with a
guess (`_relation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._error import ShapeError
from .._host import namespace
from .._op import op
from ._legacy import limited
from ._numeric import is_integer, one_dtype

# name: the version from which it broadcasts, and the function of NumPy and jax.numpy
_BINARY = {
    "Equal": (7, "equal"),
    "Less": (7, "less"),
    "Greater": (7, "greater"),
    "LessOrEqual": (12, "less_equal"),
    "GreaterOrEqual": (12, "greater_equal"),
    "And": (7, "logical_and"),
    "Or": (7, "logical_or"),
    "Xor": (7, "logical_xor"),
    "BitwiseAnd": (18, "bitwise_and"),
    "BitwiseOr": (18, "bitwise_or"),
    "BitwiseXor": (18, "bitwise_xor"),
}
_UNARY = {"Not": (1, "logical_not"), "BitwiseNot": (18, "bitwise_not"), "IsNaN": (9, "isnan")}


def _binary(name: str) -> Callable[..., Any]:
    def apply(a, b, /):
        one_dtype(a, b)
        return getattr(namespace(a, b), name)(a, b)

    apply.__doc__ = f"Apply `{name}` to the elements of a (*D) and b (*D), broadcast."
    return apply


def _unary(name: str) -> Callable[..., Any]:
    def apply(x, /):
        return getattr(namespace(x), name)(x)

    apply.__doc__ = f"Apply `{name}` to each element; x (*D) -> (*D)."
    return apply


for _name, (_since, _function) in _BINARY.items():
    _apply = _binary(_function)
    op(_name, since=_since, host=True, elementwise=True)(_apply)
    if _since == 7:
        op(_name, since=1, host=True)(limited(_apply))

for _name, (_since, _function) in _UNARY.items():
    op(_name, since=_since, host=True, elementwise=True)(_unary(_function))


@op("IsInf", since=10, host=True, elementwise=True)
def isinf(x, /, *, detect_negative=1, detect_positive=1):
    """Tell which elements of x (*D) are infinite, of the signs asked for -> bool (*D)."""
    infinite = namespace(x).isinf(x)
    if detect_negative and detect_positive:
        return infinite
    if not detect_negative and not detect_positive:
        return infinite & False
    return infinite & (x < 0 if detect_negative else x > 0)


@op("BitShift", since=11, host=True, elementwise=True)
def bitshift(x, y, /, *, direction):
    """Shift the bits of x (*D) by y (*D), broadcast; past the width only the sign of x is left."""
    if direction not in ("LEFT", "RIGHT"):
        raise ShapeError(f"direction is {direction!r}, wants LEFT or RIGHT")
    one_dtype(x, y)
    xp, bits = namespace(x, y), x.dtype.itemsize * 8
    outside = (y < 0) | (y >= bits)
    by = xp.where(outside, xp.asarray(bits - 1, y.dtype), y)
    if direction == "LEFT":
        return xp.where(outside, xp.zeros_like(x), xp.left_shift(x, by))
    shifted = xp.right_shift(x, by)
    signed = is_integer(x.dtype) and x.dtype.kind == "i"
    return shifted if signed else xp.where(outside, xp.zeros_like(x), shifted)
