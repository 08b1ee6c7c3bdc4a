"""What layers share: sizes that must agree, and the precision in which narrow types are computed.

Invariant: a demand is stated on our dims, so that the same line records a requirement while tracing
and checks numbers while running. Floats narrower than 32 bits are summed in float32 and rounded
once, at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._error import ShapeError
from .._facts import broadcast, count, same
from .._host import namespace
from .._symbol import fit, hostdims, to_export


def written(shape: Iterable[Any]) -> str:
    """A shape as errors show it: (2, h, 3)."""
    return f"({', '.join(map(str, shape))})"


def ranked(name: str, shape: Sequence[Any] | None, *ranks: int, least: int = 0) -> None:
    """Demand one of these ranks, or at least a rank; an unknown rank (None) passes."""
    if shape is None or (len(shape) in ranks if ranks else len(shape) >= least):
        return
    wanted = " or ".join(map(str, ranks)) if ranks else f"at least {least}"
    raise ShapeError(f"{name} {written(shape)} has rank {len(shape)}, wants {wanted}")


def agree(name: str, *sizes: Any) -> Any:
    """The one size that all of these are; None is an unknown one, a fresh size where all are."""
    known, why = [d for d in sizes if d is not None], name.replace("_", " ")
    return functools.reduce(lambda a, b: same(a, b, why), known) if known else count(name)


def _why(name: str, own: Sequence[Any], verb: str, dims: Sequence[Any]) -> str:
    """What is demanded, with the shapes if they are numbers; a pattern has stand-ins for sizes."""
    known = all(isinstance(d, int) for d in (*own, *dims))
    return f"{name} {written(own)} must {verb} {written(dims)}" if known else f"shape of {name}"


def shaped(name: str, x: Any, dims: Sequence[Any]) -> Any:
    """x, of which the shape `dims` is demanded."""
    dims, own = hostdims(dims), hostdims(x.shape)
    ranked(name, own, len(dims))
    why = _why(name, own, "be", dims)
    for d, wanted in zip(own, dims, strict=True):
        same(d, wanted, why)
    return fit(x, dims)


def onto(name: str, x: Any, dims: Sequence[Any]) -> Any:
    """x, of which is demanded that it broadcasts one way to `dims`: sizes equal or 1."""
    dims, own = hostdims(dims), hostdims(x.shape)
    return fit(x, demand_onto(name, own, dims))


def demand_onto(name: str, own: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, ...]:
    """Demand one-way broadcasting of a shape to `dims`; its own sizes, as `dims` tell them."""
    why = _why(name, own, "broadcast to", dims)
    if len(own) > len(dims):
        raise ShapeError(f"{name} has rank {len(own)}, wants at most {len(dims)}: {why}")
    aligned = tuple(dims)[len(dims) - len(own) :]
    for d, wanted in zip(own, aligned, strict=True):
        same(broadcast(d, wanted, why=why), wanted, why)
    return tuple([1 if d == 1 else wanted for d, wanted in zip(own, aligned, strict=True)])


def broadcast_shape(why: str, *shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that all of these broadcast to."""
    rank = max(map(len, shapes), default=0)
    columns = zip(*[(1,) * (rank - len(s)) + tuple(s) for s in shapes], strict=True)
    return tuple([broadcast(*column, why=why) for column in columns])


def wide(*dtypes: Any) -> np.dtype:
    """The dtype to compute in: the widest of these, float32 at least where they are floats."""
    return functools.reduce(np.promote_types, map(_widened, dtypes))


@functools.cache
def _widened(dtype: Any) -> np.dtype:
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return np.dtype(np.float32) if narrow else np.dtype(dtype)


def matmul(a: Any, b: Any) -> Any:
    """The matrix product a @ b in the wide dtype; on the device narrow operands stay narrow."""
    dtype = wide(a.dtype, b.dtype)
    if namespace(a, b) is np:
        return np.matmul(a.astype(dtype), b.astype(dtype))
    if a.dtype != b.dtype:
        a, b = a.astype(dtype), b.astype(dtype)
    return jnp.matmul(a, b, preferred_element_type=dtype)


def reshape(x: Any, dims: Sequence[Any]) -> Any:
    """x viewed in a shape of our dims."""
    return x.reshape([to_export(d) for d in dims])
