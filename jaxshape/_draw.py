"""Inputs for a model that nobody gave inputs for: sizes that meet its requirements, and random
content.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._dim import Dim
from ._error import ShapeError, UnsupportedError
from ._trace import Trace
from ._value import STRING, OptionalType, SequenceType, TensorType

SIZES = (2, 1, 3, 4, 5, 8, 6, 7, 16, 12, 32, 64, 128, 224, 256)
TRIES = 2000


def draw_sizes(trace: Trace, n: int, rng: np.random.Generator) -> list[dict[str, int]]:
    """Up to `n` different bindings of the trace's named sizes that break no requirement.

    Raises:
      ShapeError: none was found; give `inputs` then.
    """
    names = trace.symbols
    if not names:
        return [{}]
    found: list[dict[str, int]] = []
    for sizes in itertools.islice(_candidates(names, rng), TRIES):
        if sizes not in found and not trace.broken(sizes):
            found.append(sizes)
            if len(found) == n:
                break
    if not found:
        listed = "; ".join(map(str, trace.requirements))
        raise ShapeError(f"found no sizes that meet the requirements ({listed}): give inputs")
    return found


def _candidates(names: list[str], rng: np.random.Generator) -> Iterator[dict[str, int]]:
    for size in SIZES:
        yield dict.fromkeys(names, size)
    while True:
        yield {n: int(rng.choice(SIZES)) for n in names}


def draw_inputs(trace: Trace, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """A value for each input: normal floats, integers 0 and 1 (valid as ids, lengths, masks),
    letters.
    """
    return {name: _drawn(name, t, sizes, rng) for name, t in trace.inputs.items()}


def _drawn(name: str, t: Any, sizes: dict[str, int], rng: np.random.Generator) -> Any:
    if isinstance(t, OptionalType):
        return _drawn(name, t.elem, sizes, rng)
    if isinstance(t, SequenceType):
        return [_drawn(name, t.elem, sizes, rng) for _ in range(2)]
    if not isinstance(t, TensorType) or t.dtype is None or t.shape is None:
        raise UnsupportedError(f"cannot draw a value for input {name!r} of type {t}: give inputs")
    shape = tuple(_size(d, sizes) for d in t.shape)
    if t.dtype == STRING:
        return rng.choice(np.array(["a", "b", "ab"], object), size=shape)
    if t.dtype.kind == "b":
        return rng.random(shape) < 0.7
    if t.dtype.kind in "iu" or "int" in t.dtype.name:
        return rng.integers(0, 2, shape).astype(t.dtype)
    if t.dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(t.dtype)
    return np.asarray(rng.normal(size=shape)).astype(t.dtype)


def _size(d: Any, sizes: dict[str, int]) -> int:
    if not isinstance(d, Dim):
        return 2 if d is None else d
    return int(d.evaluate({s.name: sizes.get(s.name, 2) for s in d.symbols}))
