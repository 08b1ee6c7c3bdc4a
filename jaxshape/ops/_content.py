"""What the content of an operator's inputs must be, so that inputs can be drawn which it takes.

Types say nothing of it: an index lies inside of its table, a variance is positive, a length is at
most that of its axis. Only what would fail or give NaN is listed, by operator and input, for all
versions of it; nothing here is checked when a model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Range = tuple[float, float]  # least and greatest value, both included
# of the shapes of a node's inputs, its attributes, and what is known of its inputs' contents
Rule = Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], Range | None]

INF = float("inf")


def _size(shapes: Sequence[Any], position: int, axis: int) -> int | None:
    """A size of an input, where it is there and known."""
    shape = shapes[position] if position < len(shapes) else None
    if not shape or not -len(shape) <= axis < len(shape) or not isinstance(shape[axis], int):
        return None
    return shape[axis]


def index_of(table: int, axis: int | None = None) -> Rule:
    """An index into an axis of another input: a fixed one, or the one that the node names."""

    def rule(shapes: Sequence[Any], attrs: Mapping[str, Any], known: Sequence[Any]) -> Any:
        size = _size(shapes, table, attrs.get("axis", 0) if axis is None else axis)
        return None if size is None else (0, max(size - 1, 0))

    return rule


def index_of_any(table: int) -> Rule:
    """Indices into several axes of another input at once: below the smallest of them."""

    def rule(shapes: Sequence[Any], attrs: Mapping[str, Any], known: Sequence[Any]) -> Any:
        found = [d for d in shapes[table] or () if isinstance(d, int)]
        return (0, max(min(found) - 1, 0)) if found else None

    return rule


def length_of(data: int, axis: int | str = 0) -> Rule:
    """A length of at least 1 and at most that of an axis of another input."""

    def rule(shapes: Sequence[Any], attrs: Mapping[str, Any], known: Sequence[Any]) -> Any:
        size = _size(shapes, data, attrs.get(axis, 0) if isinstance(axis, str) else axis)
        return None if size is None else (1, size)

    return rule


def below(depth: int) -> Rule:
    """Below the content of another input, where that is known."""

    def rule(shapes: Sequence[Any], attrs: Mapping[str, Any], known: Sequence[Any]) -> Any:
        value = known[depth]
        return (0, max(int(value.item()) - 1, 0)) if isinstance(value, np.ndarray) else None

    return rule


def within(low: float, high: float = INF) -> Rule:
    return lambda shapes, attrs, known: (low, high)


POSITIVE = within(0.1)
_LENGTHS = {4: length_of(0)}
_INDICES = {1: index_of(0)}
_MS = "com.microsoft"

# by domain and operator: for the positions of inputs
CONTENT: dict[tuple[str, str], dict[int, Rule]] = {
    ("", "Gather"): _INDICES,
    ("", "GatherElements"): _INDICES,
    ("", "GatherND"): {1: index_of_any(0)},
    ("", "Scatter"): _INDICES,
    ("", "ScatterElements"): _INDICES,
    ("", "ScatterND"): {1: index_of_any(0)},
    ("", "OneHot"): {0: below(1)},
    ("", "RoiAlign"): {2: index_of(0, 0)},
    ("", "RotaryEmbedding"): {3: index_of(1, 0)},
    ("", "ReverseSequence"): {1: length_of(0, "time_axis")},
    ("", "RNN"): _LENGTHS,
    ("", "GRU"): _LENGTHS,
    ("", "LSTM"): _LENGTHS,
    ("", "NegativeLogLikelihoodLoss"): {1: index_of(0, 1)},
    ("", "SoftmaxCrossEntropyLoss"): {1: index_of(0, 1)},
    ("", "Log"): {0: POSITIVE},
    ("", "Sqrt"): {0: within(0)},
    ("", "Reciprocal"): {0: POSITIVE},
    ("", "Pow"): {0: POSITIVE},
    ("", "Acos"): {0: within(-1, 1)},
    ("", "Asin"): {0: within(-1, 1)},
    ("", "Atanh"): {0: within(-0.9, 0.9)},
    ("", "Acosh"): {0: within(1)},
    ("", "Bernoulli"): {0: within(0, 1)},
    ("", "Dropout"): {1: within(0, 0.9)},
    ("", "Div"): {1: POSITIVE},
    ("", "Mod"): {1: POSITIVE},
    ("", "BatchNormalization"): {4: POSITIVE},
    ("", "QuantizeLinear"): {1: POSITIVE},
    ("", "DequantizeLinear"): {1: POSITIVE},
    ("ai.onnx.ml", "ArrayFeatureExtractor"): {1: index_of(0, -1)},
    (_MS, "EmbedLayerNormalization"): {0: index_of(2, 0), 1: index_of(4, 0), 8: index_of(3, 0)},
    (_MS, "RotaryEmbedding"): {1: index_of(2, 0)},
}

# the elements of these inputs come out as they are, in other places or another dtype
_FIRST = (
    "Cast Identity Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile Slice Split Gather "
    "GatherElements GatherND Dropout Pad DepthToSpace SpaceToDepth Trilu ReverseSequence"
)
KEEPS: dict[str, slice] = dict.fromkeys(_FIRST.split(), slice(0, 1)) | {
    "Concat": slice(None),
    "Where": slice(1, 3),
}
