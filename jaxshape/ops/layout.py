"""Operators that move a tensor's elements about: Transpose, Concat, Expand, Tile and the like.

Those whose sizes JAX derives from what the lowering states have no rule; the others share one size
formula between lowering and rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .._error import ShapeError
from .._facts import broadcast, count, divisible, same
from .._host import namespace
from .._op import Static, op
from .._symbol import fit, hostdims
from .._value import TensorType
from ._agree import ranked, written
from ._axes import counted, exported, integers, nothing, numbers
from ._static import axis_of, replaced, scalar

# Transpose --------------------------------------------------------------------------------------


def _order(perm: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes in the order of the result."""
    order = tuple(range(rank))[::-1] if perm is None else tuple(perm)
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"perm {list(order)} is no order of the axes of rank {rank}")
    return order


@op("Transpose", since=1, host=True)
def transpose(data, /, *, perm=None):
    """Put the axes of data (*D) in the order perm, by default the reverse."""
    return namespace(data).transpose(data, _order(perm, data.ndim))


@transpose.shape_rule(rankless=True)  # because perm alone tells the rank
def _(data, /, *, perm=None):
    if data.shape is not None:
        return TensorType(
            data.dtype, tuple([data.shape[axis] for axis in _order(perm, len(data.shape))])
        )
    sizes = (
        None if perm is None else tuple([count("Transpose_size") for _ in _order(perm, len(perm))])
    )
    return TensorType(data.dtype, sizes)


# Concat -----------------------------------------------------------------------------------------

_QUARTERS = (np.dtype(ml_dtypes.int2), np.dtype(ml_dtypes.uint2))


def joined(shapes: Sequence[Sequence[Any]], axis: int) -> tuple[Any, ...]:
    """The sizes of tensors put one after another along an axis; the other sizes must agree."""
    if len({len(s) for s in shapes}) != 1:
        raise ShapeError(f"the inputs {', '.join(map(written, shapes))} differ in rank")
    axis = axis_of(axis, len(shapes[0]))
    shape = list(shapes[0])
    for other in shapes[1:]:
        for i, d in enumerate(other):
            if i != axis:
                shape[i] = same(shape[i], d, f"axis {i} of inputs joined along axis {axis}")
    shape[axis] = sum(s[axis] for s in shapes)
    return tuple(shape)


@op("Concat", since=1, host=True)
def concat_1(*inputs, axis=None):
    """Put inputs, alike but along axis (1 if absent), one after another along it."""
    return concat_4(*inputs, axis=1 if axis is None else axis)


@op("Concat", since=4, host=True)
def concat_4(*inputs, axis):
    """Put inputs, alike but along axis, one after another along it."""
    joined([hostdims(x.shape) for x in inputs], axis)
    dtype, xp = inputs[0].dtype, namespace(*inputs)
    if xp is not np and dtype in _QUARTERS:  # XLA's CPU compiler aborts the process on these
        return xp.concatenate([x.astype(np.int8) for x in inputs], axis).astype(dtype)
    return xp.concatenate(inputs, axis)


@concat_4.shape_rule(
    rankless=True
)  # because JAX cannot take sizes as equal, and one known rank is that of all
def _concat_type(*inputs, axis):
    dtype = next((x.dtype for x in inputs if x.dtype is not None), None)
    shapes = [x.shape for x in inputs if x.shape is not None]
    if not shapes:
        return TensorType(dtype, None)
    shape = joined(shapes, axis)
    if len(shapes) < len(inputs):
        axis = axis_of(axis, len(shape))
        shape = replaced(shape, axis, count("Concat_size", shape[axis]))
    return TensorType(dtype, shape)


@concat_1.shape_rule(rankless=True)  # because it shares the rule of the newer form
def _(*inputs, axis=None):
    return _concat_type(*inputs, axis=1 if axis is None else axis)


# Expand, Tile -----------------------------------------------------------------------------------


def expanded(shape: Sequence[Any], target: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes to which `shape` and `target` broadcast together, aligned at the end."""
    for v in target:
        counted(v, "a size to expand to")
    rank = max(len(shape), len(target))
    columns = zip(*[(1,) * (rank - len(s)) + tuple(s) for s in (shape, target)], strict=True)
    return tuple([broadcast(*column, why="expanding") for column in columns])


@op("Expand", since=8, host=True)
def expand(input, shape: Static, /):
    """Repeat input (*D) along axes of size 1, to the sizes that D and shape (r,) broadcast to."""
    sizes = expanded(hostdims(input.shape), integers(shape, "shape"))  # type: ignore[arg-type]
    return namespace(input).broadcast_to(input, exported(sizes))


@expand.shape_rule  # because shape may hold symbols or be unknown
def _(input, shape, /):
    target = integers(shape, "shape")
    return TensorType(input.dtype, None if target is None else expanded(input.shape, target))


def tiled(shape: Sequence[Any], repeats: Sequence[Any]) -> tuple[Any, ...]:
    """Each size times its number of repeats."""
    if len(repeats) != len(shape):
        raise ShapeError(f"{len(repeats)} repeats, the rank is {len(shape)}")
    return tuple(
        [d * counted(r, "a number of repeats") for d, r in zip(shape, repeats, strict=True)]
    )


def _tile(x: Any, repeats: Sequence[Any]) -> Any:
    xp, shape = namespace(x), hostdims(x.shape)
    sizes = tiled(shape, repeats)
    apart = xp.reshape(x, exported([n for d in shape for n in (1, d)]))
    pairs = zip(repeats, shape, strict=True)
    return xp.reshape(
        xp.broadcast_to(apart, exported([n for pair in pairs for n in pair])), exported(sizes)
    )


def _one_axis(rank: int, tiles: Any, axis: Any) -> list[Any]:
    """The repeats that Tile's first form means by a number and an axis."""
    axis = axis_of(int(scalar(axis, "axis")), rank)
    tiles = scalar(tiles, "tiles")
    return list(replaced((1,) * rank, axis, int(tiles) if numbers(tiles) else tiles))


@op("Tile", since=1, host=True)
def tile_1(input, tiles: Static, axis: Static, /):
    """Repeat input (*D) tiles () times along axis ()."""
    return _tile(input, _one_axis(input.ndim, tiles, axis))


@op("Tile", since=6, host=True)
def tile_6(input, repeats: Static, /):
    """Repeat input (*D) along each axis as often as repeats (r,) say."""
    return _tile(input, integers(repeats, "repeats"))  # type: ignore[arg-type]


@tile_1.shape_rule  # because the operands may be unknown
def _(input, tiles, axis, /):
    rank = len(input.shape)
    axis_known = not isinstance(axis, TensorType) and numbers(axis.item())
    if not axis_known:
        return TensorType(input.dtype, tuple([count("Tile_size") for _ in range(rank)]))
    if isinstance(tiles, TensorType):
        tiles = np.asarray(count("Tile_tiles"), dtype=object)
    return TensorType(input.dtype, tiled(input.shape, _one_axis(rank, tiles, axis)))


@tile_6.shape_rule(
    rankless=True
)  # because repeats may hold symbols or be unknown; their number is the rank
def _(input, repeats, /):
    values, shape = integers(repeats, "repeats"), input.shape
    if values is None:
        return TensorType(input.dtype, shape and tuple([count("Tile_size") for _ in shape]))
    if shape is None:
        shape = [count("Tile_size") for _ in values]
    return TensorType(input.dtype, tiled(shape, values))


# space and depth --------------------------------------------------------------------------------

_FROM_DEPTH = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_TO_DEPTH = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


def _blocks(x: Any, blocksize: int, mode: str) -> tuple[Any, Any, Any, Any]:
    """The sizes of x (N, C, H, W), after a look at the attributes."""
    shape = hostdims(x.shape)
    ranked("input", shape, 4)
    if mode not in _TO_DEPTH:
        raise ShapeError(f"mode {mode!r} is neither DCR nor CRD")
    if blocksize < 1:
        raise ShapeError(f"blocksize is {blocksize}, wants at least 1")
    return shape  # type: ignore[return-value]


@op("DepthToSpace", since=1, host=True)
def depth_to_space_1(input, /, *, blocksize):
    """Move channels of input (N, C, H, W) into blocks of space -> (N, C / b^2, H * b, W * b)."""
    return depth_to_space_11(input, blocksize=blocksize)


@op("DepthToSpace", since=11, host=True)
def depth_to_space_11(input, /, *, blocksize, mode="DCR"):
    """Move channels of input (N, C, H, W) into blocks of space -> (N, C / b^2, H * b, W * b)."""
    b, xp = blocksize, namespace(input)
    n, c, h, w = _blocks(input, b, mode)
    divisible(c, b * b, f"channels and blocks of {b} x {b}")
    c = c // (b * b)
    x = fit(input, (n, c * b * b, h, w))
    apart = xp.reshape(x, exported((n, b, b, c, h, w) if mode == "DCR" else (n, c, b, b, h, w)))
    return xp.reshape(xp.transpose(apart, _FROM_DEPTH[mode]), exported((n, c, h * b, w * b)))


@op("SpaceToDepth", since=1, host=True)
def space_to_depth_1(input, /, *, blocksize):
    """Move blocks of space of input (N, C, H, W) into channels -> (N, C * b^2, H / b, W / b)."""
    return space_to_depth_28(input, blocksize=blocksize)


@op("SpaceToDepth", since=28, host=True)
def space_to_depth_28(input, /, *, blocksize, mode="DCR"):
    """Move blocks of space of input (N, C, H, W) into channels -> (N, C * b^2, H / b, W / b)."""
    b, xp = blocksize, namespace(input)
    n, c, h, w = _blocks(input, b, mode)
    for d, what in ((h, "height"), (w, "width")):
        divisible(d, b, f"{what} and blocks of {b}")
    h, w = h // b, w // b
    x = fit(input, (n, c, h * b, w * b))
    apart = xp.reshape(x, exported((n, c, h, b, w, b)))
    return xp.reshape(xp.transpose(apart, _TO_DEPTH[mode]), exported((n, c * b * b, h, w)))


# triangles, reversed sequences ------------------------------------------------------------------


@op("Trilu", since=14, host=True)
def trilu(input, k=None, /, *, upper=1):
    """Keep input (*, N, M) on and above diagonal k () (below, if not upper), put 0 elsewhere."""
    ranked("input", hostdims(input.shape), least=2)
    xp = namespace(input, k)
    rows, columns = [xp.arange(d) for d in input.shape[-2:]]
    diagonal = columns - rows[:, None]
    if k is None:
        k = np.zeros((), np.int64)
    k = xp.reshape(k, ()).astype(diagonal.dtype)
    keep = diagonal >= k if upper else diagonal <= k
    return xp.where(keep, input, nothing(input.dtype))


@op("ReverseSequence", since=10, host=True)
def reverse_sequence(input, sequence_lens, /, *, batch_axis=1, time_axis=0):
    """Reverse the first sequence_lens (N,) elements of each sequence in input (T, N, *)."""
    shape, lengths = hostdims(input.shape), hostdims(sequence_lens.shape)
    ranked("input", shape, least=2)
    ranked("sequence_lens", lengths, 1)
    if sorted((batch_axis, time_axis)) != [0, 1]:
        raise ShapeError(
            f"batch_axis {batch_axis} and time_axis {time_axis} are not 0 and 1 in some order"
        )
    n = same(shape[batch_axis], lengths[0], "the batch and sequence_lens")
    xp = namespace(input, sequence_lens)
    x, lens = fit(input, replaced(shape, batch_axis, n)), fit(sequence_lens, (n,))
    time = xp.arange(x.shape[time_axis], dtype=lens.dtype)
    place = xp.where(time < lens[:, None], lens[:, None] - 1 - time, time)
    place = place if batch_axis == 0 else place.T
    return xp.take_along_axis(x, xp.reshape(place, (*place.shape, *(1,) * (x.ndim - 2))), time_axis)
