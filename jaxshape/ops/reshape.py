"""Operators that look at a tensor's sizes or give it others over the same elements.

Each has one size formula in our dims, used by the lowering and by the rule alike. The number of
elements never changes: equal sizes on both sides cancel before anything is divided or demanded, so
that formulas stay those of the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from .._branch import tentative
from .._dim import Dim, Undecided, divide, mod, product
from .._error import ShapeError, UnsupportedError
from .._facts import at_least, count, divisible, equal, least, same, simplify
from .._host import host, namespace
from .._op import Static, op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import written
from ._axes import axes_in, exported, integers, numbers

COPIES = 3  # sizes of a target that may be 0, up to which all combinations are tried

# the sizes as values ----------------------------------------------------------------------------


def shape_part(shape: Sequence[Any], start: int, end: int | None) -> Any:
    """The sizes from axis `start` up to `end`, both negative or clamped, as a host array."""
    return host(shape[slice(start, end)])


@op("Shape", since=1, host=True, sizes=True)
def shape_1(data, /):
    """Give the sizes of data (*D) as integers (r,)."""
    return shape_15(data)


@op("Shape", since=15, host=True, sizes=True)
def shape_15(data, /, *, start=0, end=None):
    """Give the sizes of data (*D) from axis start up to end, both clamped, as integers (n,)."""
    return shape_part(hostdims(data.shape), start, end)


@shape_15.shape_rule(rankless=True)  # because the rank may be unknown
def _shape_type(data, /, *, start=0, end=None):
    if data.shape is None:
        return TensorType("int64", (count("rank"),))
    return shape_part(data.shape, start, end)


@shape_1.shape_rule(rankless=True)  # because the rank may be unknown
def _(data, /):
    return _shape_type(data)


@op("Size", since=1, host=True, sizes=True)
def size(data, /):
    """Give the number of elements of data (*D) as an integer ()."""
    return host([product(hostdims(data.shape))]).reshape(())


@size.shape_rule(rankless=True)  # because the rank may be unknown
def _(data, /):
    total = count("size") if data.shape is None else product(data.shape)
    return host([total]).reshape(())


# views ------------------------------------------------------------------------------------------


def view_sizes(
    shape: Sequence[Any] | None, target: Sequence[Any], allowzero: int = 0
) -> tuple[Any, ...]:
    """The sizes of a view of `shape` (None: of unknown rank) as `target`.

    0 copies a size unless `allowzero`, -1 takes what is left. An integer that may be either
    is found from the number of elements where it is the only one, else it is a count.
    """
    sizes = [_resolved(shape, i, v, allowzero) for i, v in enumerate(target)]
    if shape is not None and not allowzero:
        _settle_copies(shape, sizes, target)
    gaps = [i for i, v in enumerate(sizes) if v is None]
    rest = [v for v in sizes if v is not None]
    left_over = [i for i in gaps if not isinstance(target[i], Dim) and target[i] == -1]
    if len(left_over) > 1 or (left_over and allowzero and 0 in rest):
        wrong = (
            "more than one -1"
            if len(left_over) > 1
            else "-1 beside a 0 that allowzero=1 takes as it is"
        )
        raise ShapeError(f"cannot view {written(shape or ())} as {list(target)}: {wrong}")
    if shape is None:
        return tuple([count("Reshape_size") if v is None else v for v in sizes])
    if not gaps:
        _agree(shape, sizes, target)
    elif len(gaps) == 1 and (left_over or all(at_least(d, 1) for d in rest)):
        sizes[gaps[0]] = _left(shape, rest, target)
    else:
        total, others = product(shape), product(rest)
        sure = bool(at_least(total, 1) and at_least(others, 1))
        most = total // others if sure else None
        sizes = [count("Reshape_size", int(sure), most) if v is None else v for v in sizes]
    return tuple(sizes)


def _resolved(shape: Sequence[Any] | None, i: int, v: Any, allowzero: int) -> Any:
    """One size of the target, or None where it must be found from the others."""
    if isinstance(v, Dim):
        at_its_place = shape is not None and i < len(shape) and v is shape[i]
        return v if at_its_place or at_least(v, 0 if allowzero else 1) else None
    if v < -1:
        raise ShapeError(f"the target holds {v}: a size, 0 or -1 is wanted")
    if v == 0 and not allowzero:
        if shape is not None and i >= len(shape):
            raise ShapeError(
                f"the target has 0 at {i}, but there is no such axis in {written(shape)}"
            )
        return count("Reshape_size") if shape is None else shape[i]
    return None if v == -1 else v


def _settle_copies(shape: Sequence[Any], sizes: list[Any], target: Sequence[Any]) -> None:
    """Fill in the formulas of the target that may be 0, and would copy a size then, where only one
    of both can be.
    """
    unsure = [i for i, v in enumerate(target) if isinstance(v, Dim) and sizes[i] is None]
    if not 0 < len(unsure) <= COPIES or not all(at_least(target[i], 0) for i in unsure):
        return
    ways = list(itertools.product((False, True), repeat=len(unsure)))
    possible = [
        w for w in ways if _possible(shape, sizes, target, dict(zip(unsure, w, strict=True)))
    ]
    for i, answers in zip(unsure, zip(*possible, strict=True), strict=False):
        if all(answers):
            least(target[i], 1, "the target's 0 would copy a size that does not fit")
            sizes[i] = simplify(target[i])
        elif not any(answers):
            same(target[i], 0, "the target's size does not fit, only a copied one")
            sizes[i] = shape[i]


def _possible(
    shape: Sequence[Any], sizes: Sequence[Any], target: Sequence[Any], own: Mapping[int, bool]
) -> bool:
    """Whether a view may be, if of the unsure sizes these are the target's own, others copied."""
    full = list(sizes)
    try:
        with tentative():
            for i, as_given in own.items():
                if not as_given and i >= len(shape):
                    return False
                least(target[i], 1) if as_given else same(target[i], 0)
                full[i] = target[i] if as_given else shape[i]
            rest = [simplify(d) for d in full if d is not None]
            total, given = product(map(simplify, shape)), product(rest)
            if len(rest) < len(full):
                return not at_least(given, 1) or equal(mod(total, given), 0) is not False
            return equal(total, given) is not False
    except ShapeError:
        return False
    except Undecided:
        return True


def _without_common(a: Sequence[Any], b: Sequence[Any], sure: bool) -> tuple[list[Any], list[Any]]:
    """Both lists without the factors they share; with `sure` those that may be 0 stay."""
    rest, left = list(a), []
    for d in b:
        if d in rest and (not sure or at_least(d, 1)):
            rest.remove(d)
        else:
            left.append(d)
    return rest, left


def _left(shape: Sequence[Any], rest: Sequence[Any], target: Sequence[Any]) -> Any:
    """The size that makes up the number of elements beside `rest`, whose product must not be 0."""
    mine, theirs = _without_common(shape, rest, sure=False)
    n, k = product(mine), product(theirs)
    if not isinstance(n, Dim) and not isinstance(k, Dim):
        if n % k:
            raise ShapeError(
                f"cannot view {written(shape)} as {list(target)}: {n} elements do not divide by {k}"
            )
        return n // k
    quotient = n if not isinstance(k, Dim) and k == 1 else divide(n, k)
    if quotient is not None and quotient.denominator == 1:
        return quotient
    divisible(n, k, "the number of elements and the sizes given")
    return n // k


def _agree(shape: Sequence[Any], sizes: Sequence[Any], target: Sequence[Any]) -> None:
    """Demand that both shapes have the same number of elements."""
    mine, theirs = _without_common(shape, sizes, sure=True)
    a, b = product(mine), product(theirs)
    if not isinstance(a, Dim) and not isinstance(b, Dim) and a == b:
        return
    if equal(a, b) is False:
        a, b = product(shape), product(sizes)  # what was taken out may be 0 after all
        if not isinstance(a, Dim) and not isinstance(b, Dim) and a != b:
            raise ShapeError(
                f"cannot view {written(shape)} as {list(target)}: {a} elements are not {b}"
            )
    same(a, b, f"the number of elements of {written(shape)} and {written(sizes)}")


@op("Reshape", since=1, host=True)
def reshape_1(data, /, *, shape=None, consumed_inputs=None):
    """View data (*D) as shape; 0 copies a size, -1 takes what is left."""
    return reshape_5(data, _given(shape))


@op("Reshape", since=5, host=True)
def reshape_5(data, shape: Static, /):
    """View data (*D) as shape (r,); 0 copies a size, -1 takes what is left."""
    return reshape_14(data, shape)


@op("Reshape", since=14, host=True)
def reshape_14(data, shape: Static, /, *, allowzero=0):
    """View data (*D) as shape (r,); 0 copies a size unless allowzero, -1 takes what is left."""
    target = integers(shape, "shape")
    sizes = view_sizes(hostdims(data.shape), target, allowzero)  # type: ignore[arg-type]
    return namespace(data).reshape(data, exported(sizes))


def _given(shape: Any) -> Any:
    if shape is None:
        raise ShapeError("needs attribute shape")
    return shape


@reshape_14.shape_rule(rankless=True)  # because JAX cannot divide products of sizes
def _reshape_type(data, shape, /, *, allowzero=0):
    target = integers(shape, "shape")
    return TensorType(
        data.dtype, None if target is None else view_sizes(data.shape, target, allowzero)
    )


@reshape_1.shape_rule(rankless=True)  # because JAX cannot divide products of sizes
def _(data, /, *, shape=None, consumed_inputs=None):
    return _reshape_type(data, _given(shape))


@reshape_5.shape_rule(rankless=True)  # because JAX cannot divide products of sizes
def _(data, shape, /):
    return _reshape_type(data, shape)


def flat_sizes(shape: Sequence[Any], axis: int, first: int) -> tuple[Any, Any]:
    """The sizes before and from `axis`, multiplied; `first`: the lowest axis the version allows."""
    if not first <= axis <= len(shape):
        raise ShapeError(f"axis {axis} is not in [{first}, {len(shape)}], the rank is {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return product(shape[:axis]), product(shape[axis:])


def _flatten(data: Any, axis: int, first: int) -> Any:
    if isinstance(data, TensorType):
        if data.shape is None:
            return TensorType(
                data.dtype, (1 if axis == 0 else count("Flatten_size"), count("Flatten_size"))
            )
        return TensorType(data.dtype, flat_sizes(data.shape, axis, first))
    return namespace(data).reshape(data, exported(flat_sizes(hostdims(data.shape), axis, first)))


@op("Flatten", since=1, host=True)
def flatten_1(input, /, *, axis=1):
    """Make input (*D) a matrix (product of D[:axis], product of D[axis:]); axis in [0, r]."""
    return _flatten(input, axis, 0)


@op("Flatten", since=11, host=True)
def flatten_11(input, /, *, axis=1):
    """Make input (*D) a matrix (product of D[:axis], product of D[axis:]); axis in [-r, r]."""
    return _flatten(input, axis, -len(input.shape or ()))


# because of an unknown rank the result still has two axes
flatten_1.shape_rule(flatten_1.function, rankless=True)
flatten_11.shape_rule(flatten_11.function, rankless=True)


# axes of size 1 ---------------------------------------------------------------------------------


def squeezed(shape: Sequence[Any], axes: Sequence[Any] | None) -> tuple[Any, ...] | None:
    """The sizes without the axes of size 1; None where it is undecided which these are."""
    if axes is None:
        ones = [equal(d, 1) for d in shape]
        return (
            None
            if None in ones
            else tuple([d for d, one in zip(shape, ones, strict=True) if not one])
        )
    if len(axes) > len(shape):
        raise ShapeError(f"{len(axes)} axes to drop, the rank is {len(shape)}")
    if not numbers(*axes):
        # only an axis that can be 1 can be meant
        candidates = [i for i, d in enumerate(shape) if equal(d, 1) is not False]
        if len(candidates) < len(axes):
            raise ShapeError(
                f"{len(axes)} axes to drop from {written(shape)}, which has not as many of size 1"
            )
        if len(candidates) > len(axes):
            return tuple([count("Squeeze_size") for _ in range(len(shape) - len(axes))])
        axes = candidates
    dropped = axes_in(axes, len(shape))
    for axis in dropped:
        same(shape[axis], 1, f"axis {axis} to drop from {written(shape)}")
    return tuple([d for i, d in enumerate(shape) if i not in dropped])


def unsqueezed(shape: Sequence[Any], axes: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes with an axis of size 1 put in wherever `axes` say of the result."""
    rank = len(shape) + len(axes)
    if not numbers(*axes):
        alike = all(equal(d, 1) for d in shape)
        return (1,) * rank if alike else tuple([count("Unsqueeze_size") for _ in range(rank)])
    put, sizes = axes_in(axes, rank), iter(shape)
    return tuple([1 if i in put else next(sizes) for i in range(rank)])


@op("Squeeze", since=1, host=True)
def squeeze_1(data, /, *, axes=None):
    """Drop from data (*D) the axes of size 1, or those of them that axes name."""
    return squeeze_13(data, axes)


@op("Squeeze", since=13, host=True)
def squeeze_13(data, axes: Static = None, /):
    """Drop from data (*D) the axes of size 1, or those of them that axes (n,) name."""
    sizes = squeezed(hostdims(data.shape), integers(axes, "axes"))
    if sizes is None:
        raise UnsupportedError(
            f"which sizes of {written(hostdims(data.shape))} are 1 is undecided: name the axes"
        )
    return namespace(data).reshape(data, exported(sizes))


@squeeze_13.shape_rule  # because JAX cannot compare symbolic sizes with 1, and axes may be unknown
def _squeeze_type(data, axes=None, /):
    values = integers(axes, "axes")
    unknown = axes is not None and values is None
    return TensorType(data.dtype, None if unknown else squeezed(data.shape, values))


@squeeze_1.shape_rule  # because JAX cannot compare symbolic sizes with 1
def _(data, /, *, axes=None):
    return _squeeze_type(data, axes)


@op("Unsqueeze", since=1, host=True)
def unsqueeze_1(data, /, *, axes):
    """Put axes of size 1 into data (*D), at the places in the result that axes name."""
    return unsqueeze_13(data, axes)


@op("Unsqueeze", since=13, host=True)
def unsqueeze_13(data, axes: Static, /):
    """Put axes of size 1 into data (*D), at the places in the result that axes (n,) name."""
    sizes = unsqueezed(hostdims(data.shape), integers(axes, "axes"))  # type: ignore[arg-type]
    return namespace(data).reshape(data, exported(sizes))


@unsqueeze_13.shape_rule  # because axes may be unknown
def _unsqueeze_type(data, axes, /):
    values = integers(axes, "axes")
    return TensorType(data.dtype, None if values is None else unsqueezed(data.shape, values))


@unsqueeze_1.shape_rule  # because it shares the rule of the newer form
def _(data, /, *, axes):
    return _unsqueeze_type(data, axes)
