"""Two branches of which data picks one, where they give sizes that are data, or unlike ones.

Both give arrays at the greater of their bounds, and beside them the sizes; a size that they do not
have in common is a count of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ._counts import Counted, Counts
from ._dim import Dim
from ._error import UnsupportedError
from ._host import DimArray
from ._precision import placed


def joined(
    counts: Counts, condition: Any, *branches: Callable[[], Sequence[Any]]
) -> tuple[Any, ...]:
    """The outputs of the first branch where the condition () holds, else of the second."""
    kinds = [_looked_at(counts, b) for b in branches]
    dims: list[list[Any]] = []
    tops: list[list[int]] = []
    apart: list[tuple[int, int]] = []  # outputs and their axes
    for k, (a, b) in enumerate(zip(*kinds, strict=True)):
        if a[0] != b[0] or len(a[1]) != len(b[1]):
            raise UnsupportedError(
                f"the branches give {a[0]} of rank {len(a[1])} and {b[0]} of rank {len(b[1])}: "
                "the condition must be known before jit"
            )
        tops.append([max(pair) for pair in zip(a[2], b[2], strict=True)])
        dims.append(list(a[1]))
        for axis, (d, e) in enumerate(zip(a[1], b[1], strict=True)):
            known = not isinstance(d, Dim) or all(s.name in counts.values for s in d.symbols)
            if not known or (d is not e and d != e):
                apart.append((k, axis))

    def run(branch: Callable[[], Sequence[Any]]) -> Callable[[], Any]:
        def go() -> Any:
            with counts.apart() as flags:
                counts.demands = {}
                found = [_array(counts, x) for x in branch()]
                sizes = [jnp.asarray(counts.size(found[k].dims[axis])) for k, axis in apart]
                flags += counts.violated()
                flag = jnp.any(jnp.stack(flags)) if flags else jnp.asarray(False)
                made = [counts.conform(x.array, t) for x, t in zip(found, tops, strict=True)]
            return made, [s.astype(jnp.asarray(0).dtype) for s in sizes], flag

        return go

    made, sizes, flag = lax.cond(condition, *[run(b) for b in branches])
    counts.flags.append(flag)
    for (k, axis), size in zip(apart, sizes, strict=True):
        dims[k][axis] = counts.mint(tops[k][axis], size)
    return tuple(
        [
            Counted(x, tuple(d)) if any(isinstance(n, Dim) for n in d) else x
            for x, d in zip(made, dims, strict=True)
        ]
    )


def _array(counts: Counts, x: Any) -> Counted:
    if isinstance(x, list) or x is None:
        raise UnsupportedError("a branch gives a sequence, or nothing, and data picks it")
    if isinstance(x, Counted):
        return x
    x = counts.on_device(x) if isinstance(x, DimArray) else placed(x)
    return Counted(x, tuple(x.shape))


def _looked_at(counts: Counts, branch: Callable[[], Sequence[Any]]) -> list[Any]:
    """Of each output the dtype, the sizes and their bounds."""
    found: list[Any] = []

    def look() -> None:
        with counts.apart():
            for x in branch():
                x = _array(counts, x)
                found.append((x.array.dtype, x.dims, counts.tops_of(x.dims)))

    jax.eval_shape(look)
    return found
