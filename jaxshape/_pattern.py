"""Shapes asked of JAX: `jax.eval_shape` of a lowering, once for each pattern of sizes.

Two memos, shared by all traces: by pattern, with dims renamed to placeholders, and for elementwise
ops by dtypes alone, since broadcasting is done here. A pattern's entry holds no real dim; it is
replayed on those of each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _facts
from ._error import ShapeError
from ._facts import Facts
from ._host import content_key, is_host
from ._model import Node
from ._op import Op
from ._symbol import Pattern, named_for_user, placeholders, trace_pattern
from ._value import TensorType

KEPT = 65_536  # patterns, of all models traced in this process
_patterns: dict[Any, Pattern | Exception] = {}
_scalars: dict[Any, tuple[Any, ...]] = {}


def elementwise(op: Op, types: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The results of an elementwise op: shapes broadcast here, dtypes asked of JAX on scalars."""
    key = (op, tuple([t and t.dtype for t in types]), frozen(kwargs))
    dtypes = _scalars.get(key)
    if dtypes is None:
        scalars = [t and TensorType(t.dtype, ()) for t in types]
        outputs = trace_pattern(op.function, scalars, kwargs, 0).outputs
        dtypes = _scalars[key] = tuple([o.dtype for o in outputs])
    shape = broadcast_shapes([t.shape for t in types if t is not None])
    return [TensorType(d, shape) for d in dtypes]


def by_pattern(
    op: Op, node: Node, args: Sequence[Any], kwargs: dict[str, Any], facts: Facts
) -> Sequence[Any]:
    """The results of a lowering under `jax.eval_shape`, replayed on the node's own dims.

    Raises what JAX or the lowering raised, which on symbolic sizes proves nothing; a `ShapeError`
    alone is a proof.
    """
    pattern_args, binding = placeholders(args, facts)
    key = None
    if node.key is not None:
        contents = [content_key(a) if is_host(a) else a for a in pattern_args]
        key = (op, node.key, len(node.outputs), *contents)
    pattern = _patterns.get(key) if key is not None else None
    if pattern is None:
        try:
            pattern = trace_pattern(op.function, pattern_args, kwargs, len(binding))
        except ShapeError as e:
            raise ShapeError(named_for_user(str(e), binding)) from e
        except Exception as e:
            if not binding:
                raise
            pattern = e.with_traceback(None)
        if key is not None:
            if len(_patterns) >= KEPT:
                _patterns.clear()
            _patterns[key] = pattern
    if isinstance(pattern, Exception):
        raise pattern
    return pattern.replay(binding, facts)


def frozen(kwargs: dict[str, Any]) -> Any:
    """Keyword arguments as part of a memo key."""
    return tuple(
        [(k, content_key(v) if isinstance(v, np.ndarray) else v) for k, v in sorted(kwargs.items())]
    )


def broadcast_shapes(shapes: Sequence[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """The shape that all of these broadcast to; None where a rank is unknown."""
    first = shapes[0] if shapes else ()
    if all(s is first or s == first for s in shapes):
        return first
    if any(s is None for s in shapes):
        return None
    rank = max(len(s) for s in shapes)  # type: ignore[arg-type]
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]  # type: ignore[arg-type]
    sizes: list[Any] = []
    for column in reversed(list(zip(*aligned, strict=True))):
        # the last axes first: what they demand may decide the others
        sizes.append(_facts.broadcast(*column, why="broadcasting"))
    return tuple(reversed(sizes))
