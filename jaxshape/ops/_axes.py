"""Integer operands as ONNX writes them: axes, sizes, starts, pads.

Such an operand is a list of integers, each of which may be a dim, or a fresh integer where only the
length of the operand is known; so one formula serves numbers, dims and the unknown. Axes must be
numbers to be of use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._dim import Dim
from .._error import ShapeError
from .._facts import element, least
from .._host import is_host
from .._symbol import to_export
from .._value import STRING
from ._static import axis_of
from ._static import axis_of as axis_in  # noqa: F401  (one axis, for those who ask for axes here)


def axes_in(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes counted from the front, in the order given; none may come twice."""
    found = tuple([axis_of(axis, rank) for axis in axes])
    if len(set(found)) < len(found):
        raise ShapeError(f"axes {list(axes)} name an axis twice, the rank is {rank}")
    return found


def integers(operand: Any, stem: str) -> list[Any] | None:
    """The elements of an integer operand: ints, dims, fresh integers; None: any number."""
    if operand is None or isinstance(operand, (tuple, list)):
        return None if operand is None else list(operand)
    if is_host(operand):
        return operand.reshape(-1).tolist()
    length = None if operand.shape is None else operand.shape[0] if operand.shape else 1
    return [element(stem) for _ in range(length)] if isinstance(length, int) else None


def numbers(*values: Any) -> bool:
    """Whether these are all plain numbers."""
    return not any(isinstance(v, Dim) for v in values)


def counted(size: Any, why: str) -> Any:
    """An operand that is itself a size: it must not be negative."""
    least(size, 0, why)
    return size


def exported(shape: Sequence[Any]) -> list[Any]:
    """Our sizes as the sizes that a JAX call takes."""
    return [to_export(d) for d in shape]


def nothing(dtype: Any) -> Any:
    """What fills a gap: zero, False, the empty string."""
    return "" if dtype == STRING else np.zeros((), dtype)
