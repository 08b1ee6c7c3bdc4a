"""How operators were declared before opset 7.

Opset 1 told which input buffers might be reused (`consumed_inputs`, which changes no result); up to
opset 6 the second operand was broadcast only on request, from an axis on, and variadic operators
did not broadcast.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .._error import ShapeError
from .._facts import same
from .._host import namespace
from .._op import Op, op
from .._symbol import fit, hostdims


def consuming(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with the attribute `consumed_inputs`, which it ignores."""

    @functools.wraps(function)
    def first(*xs: Any, consumed_inputs: Any = None, **attributes: Any) -> Any:
        return function(*xs, **attributes)

    signature = inspect.signature(function, eval_str=True)
    extra = inspect.Parameter("consumed_inputs", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = [*signature.parameters.values(), extra]
    first.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return first


def first_version(newer: Op) -> Op:
    """Register version 1 of an op whose next version only lost `consumed_inputs`."""
    made = op(newer.name, since=1, host=newer.host, elementwise=newer.elementwise)
    first = made(consuming(newer.function))
    if newer.rule is not None:
        first.shape_rule(consuming(newer.rule), rankless=newer.rankless)
    return first


def limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A binary function as up to opset 6: b, a run of a's dims or one number, is laid out for a."""

    @functools.wraps(function)
    def old(a, b, /, *, axis=None, broadcast=0):
        return function(*(_laid_out(a, b, axis) if broadcast else same_shapes(a, b)))

    old.__signature__ = inspect.signature(old, follow_wrapped=False)  # type: ignore[attr-defined]
    return old


def _laid_out(a: Any, b: Any, axis: int | None) -> tuple[Any, Any]:
    """a (*D) and b with a's rank, its dims at those of a from `axis` on; at the end without one."""
    theirs = hostdims(b.shape)
    if all(isinstance(d, int) and d == 1 for d in theirs):
        return a, b.reshape(())
    start = a.ndim - b.ndim if axis is None else axis + a.ndim if axis < 0 else axis
    after = a.ndim - b.ndim - start
    if start < 0 or after < 0:
        raise ShapeError(f"b of rank {b.ndim} does not fit into rank {a.ndim} from axis {start} on")
    dims = list(hostdims(a.shape)[start : start + b.ndim])
    for i, d in enumerate(theirs):
        if isinstance(d, int):  # a size that may be 1 is stretched, as one element would be
            dims[i] = 1 if d == 1 else same(dims[i], d, f"axis {start + i} of a and {i} of b")
    b = namespace(b).expand_dims(fit(b, dims), tuple(range(b.ndim, b.ndim + after)))
    whole = list(hostdims(a.shape))
    for i, d in enumerate(dims, start):
        whole[i] = whole[i] if d == 1 else d
    return fit(a, whole), b


def same_shapes(*xs: Any) -> tuple[Any, ...]:
    """The arrays with the shape that all must have."""
    shapes = [hostdims(x.shape) for x in xs]
    shape = list(shapes[0]) if shapes else []
    for other in shapes[1:]:
        if len(other) != len(shape):
            raise ShapeError(
                f"ranks {len(shape)} and {len(other)} differ, and nothing is broadcast"
            )
        shape = [same(d, e, f"axis {i}") for i, (d, e) in enumerate(zip(shape, other, strict=True))]
    return tuple(fit(x, shape) for x in xs)
