"""Decision trees as flat tables, and the walk of every row through every tree at once.

A forest is arrays over nodes; a leaf is a node whose children are itself. So a walk is as many
gathers as the deepest tree has levels, whatever way each row takes, and is compiled as one loop.
What the leaves say of the targets is a table; where each tree speaks of one target only, as those
of boosting do, it is one number a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from .._error import ShapeError, UnsupportedError
from .._host import namespace
from ._scores import constant

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
LEAF = len(MODES)
_TABLE = 1 << 28  # elements: the largest table of votes

# how votes are joined: by NumPy, along an axis, at the places of an index, from which start
AGGREGATES: dict[str, tuple[Any, str, str, float]] = {
    "SUM": (np.add, "sum", "add", 0.0),
    "AVERAGE": (np.add, "sum", "add", 0.0),
    "MIN": (np.minimum, "min", "min", np.inf),
    "MAX": (np.maximum, "max", "max", -np.inf),
}


class Forest(NamedTuple):
    """Arrays over nodes: which feature is compared how with what, and where that leads."""

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    true: np.ndarray
    false: np.ndarray
    missing: np.ndarray  # whether NaN follows the true branch
    roots: np.ndarray
    leaves: np.ndarray  # over nodes: the number of each leaf
    depth: int
    reached: np.ndarray  # (2, k): each leaf's number with its tree
    sets: np.ndarray  # over nodes: for MEMBER the row of `members`
    members: np.ndarray  # filled up with NaN

    @property
    def n_leaves(self) -> int:
        return int(self.leaves[-1]) + 1

    @property
    def n_features(self) -> int:
        """How many features a row must have."""
        used = self.features[self.modes != LEAF]
        return int(used.max()) + 1 if used.size else 0


def planted(
    features: Any, splits: Any, modes: Any, true: Any, false: Any, missing: Any, roots: Any,
    sets: Any = None, members: Any = None,
) -> Forest:  # fmt: skip
    """A forest of these arrays, leaves in the mode LEAF; `ShapeError` where they are no trees."""
    leaf, own = modes == LEAF, np.arange(len(modes))
    if (features[~leaf] < 0).any():
        raise ShapeError(f"nodes_featureids has {features[~leaf].min()}, wants no less than 0")
    true, false = np.where(leaf, own, true), np.where(leaf, own, false)
    leaves = np.cumsum(leaf) - 1
    depth, reached = _climbed(true, false, leaf, roots)
    return Forest(
        np.where(leaf, 0, features),
        splits,
        modes,
        true,
        false,
        missing,
        roots,
        leaves,
        depth,
        np.stack([leaves[reached[0]], reached[1]]),
        np.zeros_like(leaves) if sets is None else sets,
        np.zeros((1, 1), splits.dtype) if members is None else members,
    )


def _climbed(true: Any, false: Any, leaf: Any, roots: Any) -> tuple[int, np.ndarray]:
    """The number of steps to the furthest leaf, and each leaf with its tree."""
    inner = int((~leaf).sum())
    parents = np.bincount(np.concatenate([true[~leaf], false[~leaf]]), minlength=len(leaf))
    level, depth, reached = np.stack([roots, np.arange(len(roots))]), 0, []
    while True:
        at_leaf = leaf[level[0]]
        reached.append(level[:, at_leaf])
        level = level[:, ~at_leaf]
        if not level.size:
            return depth, np.concatenate(reached, axis=1)
        depth += 1
        if depth > inner or (parents[~leaf] > 1).any():
            raise ShapeError("the nodes are no trees: one is reached in two ways")
        level = np.concatenate([np.stack([side[level[0]], level[1]]) for side in (true, false)], 1)


def landed(forest: Forest, x: Any) -> Any:
    """The number of the leaf that each row of x (N, F) reaches in each of T trees (N, T)."""
    xp = namespace(x)
    integers = (forest.features, forest.true, forest.false, forest.modes, forest.sets)
    feature, true, false, mode, sets = (constant(x, t, np.int32) for t in integers)
    split, missing = constant(x, forest.splits, x.dtype), constant(x, forest.missing, bool)
    members = constant(x, forest.members, x.dtype)
    compare: dict[int, Callable[[Any, Any], Any]] = {
        0: lambda a, node: a <= split[node],
        1: lambda a, node: a < split[node],
        2: lambda a, node: a >= split[node],
        3: lambda a, node: a > split[node],
        4: lambda a, node: a == split[node],
        5: lambda a, node: a != split[node],
        6: lambda a, node: xp.any(members[sets[node]] == a[..., None], axis=-1),
    }
    present = sorted(set(forest.modes.tolist()) - {LEAF})

    def step(_: Any, node: Any) -> Any:
        a = xp.take_along_axis(x, feature[node], axis=1)
        holds = compare[present[0]](a, node)
        for m in present[1:]:
            holds = xp.where(mode[node] == m, compare[m](a, node), holds)
        holds = holds | missing[node] & xp.isnan(a)
        return xp.where(holds, true[node], false[node])

    node = xp.zeros((x.shape[0], 1), np.int32) + constant(x, forest.roots, np.int32)
    if xp is np:
        for i in range(forest.depth):
            node = step(i, node)
    elif forest.depth:
        node = lax.fori_loop(0, forest.depth, step, node)
    return constant(x, forest.leaves, np.int32)[node]


class Votes(NamedTuple):
    """What each leaf says of each target, where it does.

    Tables (leaves, targets), or (leaves,) where `owner` (T,) tells the one target of each tree.
    """

    value: np.ndarray
    said: np.ndarray
    owner: np.ndarray | None
    targets: int
    aggregate: str


def gathered(
    forest: Forest, leaves: Any, targets: Any, weights: Any, count: int, aggregate: str
) -> Votes:
    """The votes with these weights, of leaves for targets, joined where a leaf has several."""
    if aggregate not in AGGREGATES:
        raise ShapeError(f"aggregate_function is {aggregate!r}, wants {', '.join(AGGREGATES)}")
    if len(targets) and not 0 <= targets.min() <= targets.max() < count:
        bad = targets.min() if targets.min() < 0 else targets.max()
        raise ShapeError(f"a leaf votes on target {bad} of {count}")
    join, _, _, start = AGGREGATES[aggregate]
    owner = _owner(forest, leaves, targets, count)
    shape = (forest.n_leaves, count) if owner is None else (forest.n_leaves,)
    if len(shape) == 2 and shape[0] * shape[1] > _TABLE:
        raise UnsupportedError(f"{shape[0]} leaves that vote on {count} targets are too many")
    where = (leaves, targets) if owner is None else (leaves,)
    value, said = np.full(shape, start, weights.dtype), np.zeros(shape, bool)
    join.at(value, where, weights)
    said[where] = True
    return Votes(value, said, owner, count, aggregate)


def _owner(forest: Forest, leaves: Any, targets: Any, count: int) -> np.ndarray | None:
    """The one target of each tree, None where a tree votes on several."""
    low, high = np.full(forest.n_leaves, count), np.full(forest.n_leaves, -1)
    np.minimum.at(low, leaves, targets)
    np.maximum.at(high, leaves, targets)
    numbers, tree = forest.reached
    first, last = np.full(len(forest.roots), count), np.full(len(forest.roots), -1)
    np.minimum.at(first, tree, low[numbers])
    np.maximum.at(last, tree, high[numbers])
    return np.minimum(first, count - 1) if (first >= last).all() else None


def tallied(votes: Votes, landing: Any, dtype: Any) -> Any:
    """The votes of the leaves (N, T) taken together (N, targets); 0 where there is none."""
    start = AGGREGATES[votes.aggregate][3]
    total = _joined(constant(landing, votes.value, dtype)[landing], votes, votes.aggregate)
    if start:
        total = namespace(landing).where(spoken(votes, landing), total, 0)
    return total / landing.shape[1] if votes.aggregate == "AVERAGE" else total


def spoken(votes: Votes, landing: Any) -> Any:
    """Whether there is a vote (N, targets)."""
    said = constant(landing, votes.said, np.float32)[landing]
    return _joined(said, votes, "SUM") > 0


def _joined(found: Any, votes: Votes, aggregate: str) -> Any:
    """Join (N, T) or (N, T, targets) over trees, each for its target -> (N, targets)."""
    xp = namespace(found)
    join, along, at, start = AGGREGATES[aggregate]
    if votes.owner is None:
        if xp is np:  # one tree after the other needs no copy of all of them
            return join.reduce(found, axis=1)
        return getattr(xp, along)(found, axis=1)
    if votes.targets == 1:
        return getattr(xp, along)(found, axis=1, keepdims=True)
    made = xp.full((found.shape[0], votes.targets), start, found.dtype)
    if xp is np:
        join.at(made, (slice(None), votes.owner), found)
        return made
    return getattr(made.at[:, votes.owner], at)(found)


def check_lengths(given: dict[str, Sequence[Any] | None], wanted: int) -> None:
    """Demand that all these lists have as many elements."""
    for name, values in given.items():
        if len(values or ()) != wanted:
            raise ShapeError(f"{name} has {len(values or ())} elements, wants {wanted}")
