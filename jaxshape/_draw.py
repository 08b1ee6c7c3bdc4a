"""Inputs for a model that nobody gave inputs for: sizes that meet its requirements, and random
content that its operators take.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ._dim import Dim
from ._error import ShapeError, UnsupportedError
from ._interpret import load_ops
from ._model import Node
from ._trace import Trace
from ._value import STRING, OptionalType, SequenceType, TensorType

# different ones for different names, so that axes that are mixed up show
FIRST = (2, 3, 5, 4, 7, 6, 9, 8, 11, 10)
SIZES = (2, 1, 3, 4, 5, 8, 6, 7, 16, 12, 32, 9, 10, 64, 24, 48, 128, 224, 256, 512, 1024)
TRIES = 300  # sizes tried for one binding
INF = float("inf")

Range = tuple[float, float]


def draw_sizes(trace: Trace, n: int, rng: np.random.Generator) -> list[dict[str, int]]:
    """Up to `n` different bindings of the trace's named sizes that break no requirement: first
    sizes that all differ, then all of size 1, then random ones; grown where a requirement asks.

    Raises:
      ShapeError: none was found; give `inputs` then.
    """
    names = _names(trace)
    if not names:
        return [{}]
    found: list[dict[str, int]] = []
    for start in itertools.islice(_starts(names, rng), 4 * n):
        sizes = _repaired(trace, start, rng)
        if sizes is None:
            break
        if sizes not in found:
            found.append(sizes)
            if len(found) == n:
                break
    if not found:
        listed = "; ".join(map(str, trace.requirements))
        raise ShapeError(f"found no sizes that meet the requirements ({listed}): give inputs")
    return found


def _names(trace: Trace) -> list[str]:
    """The sizes that are to be chosen: not those without a name that turned out to be another."""
    shapes = [getattr(t, "shape", None) or () for t in trace.inputs.values()]
    dims = [d for shape in shapes for d in shape if isinstance(d, Dim)]
    used = {s.name for x in (*dims, *trace.requirements) for s in x.symbols}
    return [n for n in trace.symbols if n in used]


def _starts(names: list[str], rng: np.random.Generator) -> Iterator[dict[str, int]]:
    yield dict(zip(names, itertools.cycle(FIRST), strict=False))
    yield dict.fromkeys(names, 1)
    while True:
        yield {n: int(rng.choice(SIZES[:10])) for n in names}


def _repaired(
    trace: Trace, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, int] | None:
    """Sizes that break no requirement: those that a broken one speaks of are drawn anew, from ever
    more.
    """
    for turn in range(TRIES):
        broken = trace.broken(sizes)
        if not broken:
            return sizes
        asked = sorted({s.name for r in broken for s in r.symbols if s.name in sizes})
        chosen = [n for n in asked or sizes if rng.random() < 0.5] or asked
        choice = SIZES[: 4 + turn // 8]
        sizes = sizes | {n: int(rng.choice(choice)) for n in chosen}
    return None


def draw_inputs(trace: Trace, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """A value for each input: floats from the normal distribution, integers that are 0 or 1 as a
    mask (8-bit ones of any value), letters; and where an operator asks for it, indices inside of
    their table, lengths, positive numbers.
    """
    ranges = input_ranges(trace, sizes)
    return {
        name: _drawn(name, t, sizes, rng, ranges.get(name, (-INF, INF)))
        for name, t in trace.inputs.items()
    }


def input_ranges(trace: Trace, sizes: dict[str, int]) -> dict[str, Range]:
    """The least and greatest value that the model's operators take of each input, where one asks.

    What is asked of a value is asked of what it was copied from; arithmetic is not followed.
    """
    from ._reference import inlined

    load_ops()
    found: dict[str, Range] = {}
    _ask(inlined(trace.model).graph.nodes, trace, sizes, found)
    return found


def _ask(
    nodes: Iterable[Node], trace: Trace, sizes: dict[str, int], found: dict[str, Range]
) -> None:
    from .ops._content import CONTENT, KEEPS

    def ask(name: str, low: float, high: float) -> None:
        before = found.get(name, (-INF, INF))
        found[name] = max(low, before[0]), min(high, before[1])

    for node in reversed(list(nodes)):
        for graph in node.graphs:
            _ask(graph.nodes, trace, sizes, found)
        rules = CONTENT.get((node.domain, node.op_type), {})
        if any(i < len(node.inputs) and node.inputs[i] for i in rules):
            shapes = [_shape(trace, n, sizes) for n in node.inputs]
            known = [trace.content(n) if n in trace else None for n in node.inputs]
            for i, rule in rules.items():
                if i < len(node.inputs) and (asked := rule(shapes, node.attrs, known)):
                    ask(node.inputs[i], *asked)
        if not node.domain and node.op_type in KEEPS:
            for name in node.inputs[KEEPS[node.op_type]]:
                for output in node.outputs:
                    if output in found:
                        ask(name, *found[output])


def _shape(trace: Trace, name: str, sizes: dict[str, int]) -> tuple[Any, ...] | None:
    """A value's shape at these sizes, with a dim where they do not decide it."""
    shape = getattr(trace[name], "shape", None) if name in trace else None
    if shape is None:
        return None
    return tuple(
        _size(d, sizes) if isinstance(d, Dim) and all(s.name in sizes for s in d.symbols) else d
        for d in shape
    )


def _drawn(
    name: str, t: Any, sizes: dict[str, int], rng: np.random.Generator, allowed: Range
) -> Any:
    if isinstance(t, OptionalType):
        return _drawn(name, t.elem, sizes, rng, allowed)
    if isinstance(t, SequenceType):
        return [_drawn(name, t.elem, sizes, rng, allowed) for _ in range(2)]
    if not isinstance(t, TensorType) or t.dtype is None or t.shape is None:
        raise UnsupportedError(f"cannot draw a value for input {name!r} of type {t}: give inputs")
    shape = tuple(_size(d, sizes) for d in t.shape)
    if t.dtype == STRING:
        return rng.choice(np.array(["a", "b", "ab"], object), size=shape)
    if t.dtype.kind == "b":
        return _unmasked(rng.random(shape) < 0.7)
    if t.dtype.kind in "iu" or "int" in t.dtype.name:
        return _integers(shape, t.dtype, rng, allowed)
    if t.dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(t.dtype)
    return np.asarray(_floats(shape, rng, *allowed)).astype(t.dtype)


def _integers(
    shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator, allowed: Range
) -> np.ndarray:
    low, high = allowed
    if low == -INF and high == INF:
        if dtype.kind in "iu" and dtype.itemsize == 1:
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return _unmasked(rng.integers(0, 2, shape)).astype(dtype)
    least = math.ceil(low) if low > -INF else math.floor(high) - 3
    most = max(math.floor(high) if high < INF else least + 3, least)
    return np.asarray(rng.integers(least, most, shape, endpoint=True)).astype(dtype)


def _unmasked(mask: np.ndarray) -> np.ndarray:
    """The mask with the first of each row in it: a row of nothing has no mean and no softmax."""
    mask = np.asarray(mask)
    if mask.ndim and mask.shape[-1]:
        mask[..., 0] = 1
    return mask


def _floats(shape: tuple[int, ...], rng: np.random.Generator, low: float, high: float) -> Any:
    if low > -INF and high < INF:
        return rng.uniform(low, high, shape)
    normal = rng.normal(size=shape)
    return low + np.abs(normal) if low > -INF else high - np.abs(normal) if high < INF else normal


def _size(d: Any, sizes: dict[str, int]) -> int:
    if not isinstance(d, Dim):
        return 2 if d is None else d
    return int(d.evaluate({s.name: sizes.get(s.name, 2) for s in d.symbols}))
