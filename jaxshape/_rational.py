"""Sizes that pass through floating point, kept exact.

Exporters compute sizes as `Cast -> Mul 0.7 -> Floor -> Cast`. The runtime does that in float32; a
formula is right only if it gives what those roundings give. So an element stays a rational over
dims only where the float step is exact (integers and dyadic factors whose product fits the
mantissa), or where a simple fraction (0.7 as 7/10) was checked, once per factor and dtype, to
floor, ceil and round like the float product at every size up to `CHECKED`. Any other is a `Float`:
unknown, so that the elements beside it stay known.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from ._dim import Dim, Undecided, ceildiv

CHECKED = 1 << 20  # sizes up to which float steps are held equal to exact ones
_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


class Float:
    """A float of which nothing is known, since no formula gives what the runtime's rounding gives:
    a number divided by a size. Equal to itself alone.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "?"


def denominator(x: Any) -> int:
    """The least positive integer that makes x a combination of dims with integer coefficients."""
    return x.denominator if isinstance(x, (Dim, Fraction)) else 1


def integral(x: Any) -> bool:
    """Whether an element is an integer at every size."""
    return (
        x == int(x)
        if isinstance(x, float) and math.isfinite(x)
        else not isinstance(x, float) and denominator(x) == 1
    )


def _bits(dtype: np.dtype) -> int:
    if dtype.name not in _BITS:
        raise Undecided(f"sizes in {dtype}")
    return _BITS[dtype.name]


def scale_exact(x: Any, factor: Any, dtype: np.dtype) -> Any:
    """x times a number as `dtype` computes it, or `Undecided`."""
    if not isinstance(x, Dim):
        exact = Fraction(x) * Fraction(factor)
        return int(exact) if exact.denominator == 1 else exact
    if not math.isfinite(factor):
        raise Undecided("not a finite factor")
    below = denominator(x)
    if below & (below - 1) or below > 256:
        raise Undecided("a further step after an inexact one")
    exact = Fraction(factor)
    spent = below.bit_length() - 1
    if _fits(exact, spent, dtype):
        return x * exact
    simple = _simple(float(factor), dtype.name) if spent == 0 else None
    if simple is None:
        raise Undecided(f"{factor} times a size rounds")
    return x * simple


def divide_exact(x: Any, y: Any, dtype: np.dtype) -> Any:
    """x / y as `dtype` computes it, or `Undecided`."""
    if isinstance(y, Dim):
        return x / y if isinstance(x, Dim) else _undecided("a number divided by a size")
    if not y or not math.isfinite(y):
        raise Undecided("division by no proper number")
    inverse = 1 / Fraction(y)
    if _power_of_two(inverse.denominator):
        return scale_exact(x, inverse, dtype)
    if denominator(x) == 1 and _divides_alike(float(y), dtype.name):
        return x * inverse
    raise Undecided(f"a size divided by {y} rounds")


def _undecided(text: str) -> Any:
    raise Undecided(text)


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _fits(factor: Fraction, spent: int, dtype: np.dtype) -> bool:
    """Whether a size up to CHECKED times the factor needs no rounding."""
    odd = abs(factor.numerator)
    odd //= odd & -odd or 1
    return _power_of_two(
        factor.denominator
    ) and odd.bit_length() + spent + CHECKED.bit_length() - 1 <= _bits(dtype)


def _alike(approximate: np.ndarray, sizes: np.ndarray, exact: Fraction) -> bool:
    """Whether floor, ceil and round of the float results are those of sizes * exact."""
    top, bottom = sizes * exact.numerator, exact.denominator
    low = top // bottom
    remainder = top - low * bottom
    tie = 2 * remainder == bottom
    nearest = low + ((2 * remainder > bottom) | (tie & (low % 2 == 1)))
    approximate = approximate.astype(np.float64)
    return (
        np.array_equal(np.floor(approximate), low)
        and np.array_equal(np.ceil(approximate), low + (remainder > 0))
        and np.array_equal(np.rint(approximate), nearest)
    )


@functools.cache
def _simple(factor: float, dtype_name: str) -> Fraction | None:
    """The simple fraction that rounds like the float factor at every size, or None."""
    if dtype_name not in ("float32", "float64"):
        return None
    dtype = np.dtype(dtype_name)
    for limit in (100, 4096):
        simple = Fraction(factor).limit_denominator(limit)
        if (
            simple
            and dtype.type(float(simple)) == dtype.type(factor)
            and abs(simple.numerator) < 1 << 20
        ):
            sizes = np.arange(CHECKED + 1, dtype=np.int64)
            return (
                simple if _alike(sizes.astype(dtype) * dtype.type(factor), sizes, simple) else None
            )
    return None


@functools.cache
def _divides_alike(divisor: float, dtype_name: str) -> bool:
    if dtype_name not in ("float32", "float64"):
        return False
    dtype, sizes = np.dtype(dtype_name), np.arange(CHECKED + 1, dtype=np.int64)
    exact = 1 / Fraction(divisor).limit_denominator(4096)
    if 1 / exact != Fraction(divisor) or abs(exact.numerator) >= 1 << 20:
        return False
    return _alike(sizes.astype(dtype) / dtype.type(divisor), sizes, exact)


def half_even(x: Any) -> Any:
    """x rounded to the nearest integer, ties to the even one, as a formula."""
    q = denominator(x)
    if q == 1:
        return x
    n = x * q
    nearest = (2 * n + q) // (2 * q)
    if q % 2:
        return nearest  # no ties
    # at a tie that rounded up to an odd integer, one less: (2n + q) is an odd multiple of 2q there
    period = 4 * q
    off = (2 * n + q - 2 * q) % period
    return nearest - (period - 1 - off) // (period - 1)


def round_up(x: Any) -> Any:
    """The least integer not below x."""
    q = denominator(x)
    return x if q == 1 else ceildiv(x * q, q)
