"""Ensembles of decision trees of ai.onnx.ml.

Thresholds are compared in the dtype of x, float32 where it holds integers. Weights are constants of
the compiled model; what a row is worth is a step function of it, of slope 0.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .._error import ShapeError
from .._facts import least
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._forest import LEAF, MODES, Forest, check_lengths, gathered, landed, planted, spoken, tallied
from ._scores import (
    check_transform,
    classified,
    constant,
    either_of,
    floats,
    labels_of,
    picked,
    rows,
    rows_of,
    second_class,
    transformed,
)
from ._versions import declare

DOMAIN = "ai.onnx.ml"


# versions 1 and 3: a node is known by the ids of its tree and its own -----------------------------


def _numbers(tree: Any, node: Any, known: Any, what: str) -> np.ndarray:
    """Where each pair of tree and node id stands among the known ones."""
    trees, ids = known
    names, own = np.unique(trees, return_inverse=True)
    low, span = int(ids.min(initial=0)), int(np.ptp(ids)) + 1 if len(ids) else 1
    if len(names) * span >= 1 << 62:
        raise ShapeError("nodes_nodeids lie too far apart")
    keys = own * span + (ids - low)
    order = np.argsort(keys, kind="stable")
    if (np.diff(keys[order]) == 0).any():
        twice = order[1:][np.diff(keys[order]) == 0][0]
        raise ShapeError(f"node {ids[twice]} of tree {trees[twice]} is there twice")
    place = np.minimum(np.searchsorted(names, tree), len(names) - 1)
    sure = (names[place] == tree) & (node >= low) & (node < low + span)
    wanted = place * span + np.where(sure, node - low, 0)
    at = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
    bad = ~(sure & (keys[at] == wanted))
    if bad.any():
        i = int(np.argmax(bad))
        raise ShapeError(f"{what} names node {node[i]} of tree {tree[i]}, which is not there")
    return at


@functools.lru_cache(maxsize=16)
def _grown(
    trees: Any, ids: Any, features: Any, modes: Any, splits: Any, true: Any, false: Any,
    missing: Any, double: bool,
) -> Forest:  # fmt: skip
    n = len(ids or ())
    if not n:
        raise ShapeError("there are no nodes")
    given = {
        "nodes_treeids": trees,
        "nodes_featureids": features,
        "nodes_modes": modes,
        "nodes_values": splits,
        "nodes_truenodeids": true,
        "nodes_falsenodeids": false,
    } | ({"nodes_missing_value_tracks_true": missing} if missing else {})
    check_lengths(given, n)
    codes = {f"BRANCH_{m}": i for i, m in enumerate(MODES[:-1])} | {"LEAF": LEAF}
    if unknown := set(modes) - codes.keys():
        raise ShapeError(f"nodes_modes has {sorted(unknown)[0]!r}, wants {', '.join(codes)}")
    mode = np.array([codes[m] for m in modes])
    known = tree, own = np.array(trees, np.int64), np.array(ids, np.int64)
    inner = mode != LEAF
    branches = []
    for what, side in (("nodes_truenodeids", true), ("nodes_falsenodeids", false)):
        made = np.zeros(n, np.int64)
        made[inner] = _numbers(tree[inner], np.array(side, np.int64)[inner], known, what)
        branches.append(made)
    return planted(
        np.array(features, np.int64),
        np.array(splits, np.float64 if double else np.float32),
        mode,
        branches[0],
        branches[1],
        np.array(missing or (0,) * n, bool),
        np.sort(np.unique(tree, return_index=True)[1]),
    )


def _forest(attributes: Any) -> Forest:
    """The forest that the attributes nodes_* tell of."""
    a = attributes
    splits, tensor = a["nodes_values"], a.get("nodes_values_as_tensor")
    return _grown(
        a["nodes_treeids"],
        a["nodes_nodeids"],
        a["nodes_featureids"],
        a["nodes_modes"],
        splits if tensor is None else tuple(tensor.ravel().tolist()),
        a["nodes_truenodeids"],
        a["nodes_falsenodeids"],
        a["nodes_missing_value_tracks_true"],
        tensor is not None,
    )


def _either(attributes: Any, name: str) -> np.ndarray:
    """Floats that are given as a list, or as a tensor where they are doubles."""
    tensor = attributes.get(f"{name}_as_tensor")
    return np.array(attributes[name] or (), np.float32) if tensor is None else tensor.ravel()


def _votes(forest: Forest, attributes: Any, kind: str, count: int, aggregate: str) -> Any:
    """What the leaves say; what inner nodes say is not heard."""
    a, weights = attributes, _either(attributes, f"{kind}_weights")
    ids, trees, nodes = (a[f"{kind}_{name}"] for name in ("ids", "treeids", "nodeids"))
    check_lengths({f"{kind}_treeids": trees, f"{kind}_nodeids": nodes}, len(ids or ()))
    check_lengths({f"{kind}_weights": weights.tolist()}, len(ids or ()))
    known = np.array(a["nodes_treeids"], np.int64), np.array(a["nodes_nodeids"], np.int64)
    place = np.array(trees or (), np.int64), np.array(nodes or (), np.int64)
    at = _numbers(*place, known, f"{kind}_nodeids")
    heard = forest.modes[at] == LEAF
    targets = np.array(ids or (), np.int64)[heard]
    return gathered(forest, forest.leaves[at[heard]], targets, weights[heard], count, aggregate)


def _landing(forest: Forest, x: Any) -> tuple[Any, Any]:
    """The rows of x, of the dtype to compute in, and the leaves they reach."""
    x = floats(rows(x))
    _looked_at(hostdims(x.shape)[1], forest.n_features)
    return x, landed(forest, x)


def _looked_at(size: Any, wanted: int) -> None:
    """Demand as many features as the trees look at; None is an unknown size."""
    if size is not None:
        least(size, wanted, "features that the trees look at")


def _n_targets(attributes: Any) -> int:
    n = attributes["n_targets"]
    n = max(attributes["target_ids"] or (0,)) + 1 if n is None else n
    if n < 1:
        raise ShapeError(f"n_targets is {n}, wants at least 1")
    return n


def _regress(x: Any, /, **attributes: Any) -> Any:
    forest, n = _forest(attributes), _n_targets(attributes)
    votes = _votes(forest, attributes, "target", n, attributes["aggregate_function"])
    x, landing = _landing(forest, x)
    total = tallied(votes, landing, x.dtype)
    base = _either(attributes, "base_values")
    if base.size not in (0, n):
        raise ShapeError(f"base_values has {base.size} elements, wants {n}")
    total = total + constant(x, base, x.dtype) if base.size else total
    return transformed(total, attributes["post_transform"]).astype(np.float32)


def _regressed(x: Any, /, **attributes: Any) -> Any:
    check_transform(attributes["post_transform"])
    n, f = rows_of(x.shape)
    _looked_at(f, _forest(attributes).n_features)
    return TensorType("float32", (n, _n_targets(attributes)))


def _classify(x: Any, /, **attributes: Any) -> Any:
    labels = labels_of(attributes["classlabels_int64s"], attributes["classlabels_strings"])
    forest, n, transform = _forest(attributes), len(labels), attributes["post_transform"]
    votes = _votes(forest, attributes, "class", n, "SUM")
    x, landing = _landing(forest, x)
    xp, scores = namespace(x), tallied(votes, landing, x.dtype)
    base = _base(attributes, n)
    voted = set(attributes["class_ids"] or ())
    if n > 2 or len(voted) > 1:
        said = spoken(votes, landing) | constant(x, np.arange(n) < base.size, bool)
        scores = scores + constant(x, np.pad(base, (0, n - base.size)), x.dtype)
        best = xp.argmax(xp.where(said, scores, -np.inf), 1)  # of those anything is said of
        return picked(labels, best), transformed(scores, transform).astype(np.float32)
    # two classes, of which all votes are for one: its score decides for the second
    (one,) = voted or (0,)
    score = scores[:, one : one + 1] + (float(base[one % base.size]) if base.size else 0)
    whole = bool((_either(attributes, "class_weights") >= 0).all())
    best = (score[:, 0] > (0.5 if whole and n == 2 else 0)).astype(np.int32)
    if n == 1:
        made = transformed(score, transform)
    elif one:
        made = transformed(xp.concatenate([xp.zeros_like(score), score], 1), transform)
    else:
        made = second_class(score, transform, whole)
    return picked(either_of(labels), best), made.astype(np.float32)


def _base(attributes: Any, n: int) -> np.ndarray:
    base = _either(attributes, "base_values")
    if base.size > n:
        raise ShapeError(f"base_values has {base.size} elements, wants {n}")
    return base


def _classified(x: Any, /, **attributes: Any) -> Any:
    check_transform(attributes["post_transform"])
    labels = labels_of(attributes["classlabels_int64s"], attributes["classlabels_strings"])
    n, f = rows_of(x.shape)
    _looked_at(f, _forest(attributes).n_features)
    return classified(n, labels, len(labels))


_NODES = (
    "falsenodeids featureids hitrates missing_value_tracks_true modes nodeids treeids truenodeids "
    "values"
)
_OWN = {
    "TreeEnsembleRegressor": (
        _regress,
        _regressed,
        "base_values target_ids target_nodeids target_treeids target_weights n_targets",
        {"aggregate_function": "SUM", "post_transform": "NONE"},
        "Sum what trees say of x (N, F) -> (N, targets); or the average, least, greatest of it.",
    ),
    "TreeEnsembleClassifier": (
        _classify,
        _classified,
        "base_values class_ids class_nodeids class_treeids class_weights classlabels_int64s "
        "classlabels_strings",
        {"post_transform": "NONE"},
        "Sum what trees say of the classes of x (N, F) -> the best label (N,), scores (N, E).",
    ),
}
# a rule, because labels may be text, and since the trees need not be walked to know the sizes
for _name, (_run, _rule, _plain, _defaults, _doc) in _OWN.items():
    _attributes = [f"nodes_{n}" for n in _NODES.split()] + _plain.split()
    for _since in (1, 3):
        declare(
            _name, _since, _run, _rule, "x", dict.fromkeys(_attributes) | _defaults, _doc, DOMAIN
        )
        # from version 3 on these may be doubles
        _attributes += [
            f"{n}_as_tensor"
            for n in _attributes
            if n.endswith(("_values", "_hitrates", "_weights"))
        ]


# version 5: nodes and leaves are known by their places --------------------------------------------

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _named(code: int, names: tuple[str, ...], what: str) -> str:
    if not 0 <= code < len(names):
        raise ShapeError(f"{what} is {code}, wants 0 to {len(names) - 1}")
    return names[code]


def _sets(modes: np.ndarray, values: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sets of MEMBER nodes, one a row, and for each node the row of its set."""
    asking = modes == MODES.index("MEMBER")
    flat = np.array([] if values is None else values.ravel(), dtype)
    ends = np.flatnonzero(np.isnan(flat.astype(np.float64)))
    if len(ends) != asking.sum():
        raise ShapeError(f"membership_values has {len(ends)} sets for {asking.sum()} nodes")
    parts = np.split(flat, ends + 1)[:-1]
    width = max(map(len, parts), default=1)
    table = np.full((max(len(parts), 1), width), np.nan).astype(dtype)
    for row, part in zip(table, parts, strict=False):
        row[: len(part)] = part
    return table, np.cumsum(asking) - 1


@op("TreeEnsemble", domain=DOMAIN, since=5, host=True)
def tree_ensemble(
    x, /, *, aggregate_function=1, leaf_targetids, leaf_weights, membership_values=None,
    n_targets=None, nodes_falseleafs, nodes_falsenodeids, nodes_featureids, nodes_hitrates=None,
    nodes_missing_value_tracks_true=None, nodes_modes, nodes_splits, nodes_trueleafs,
    nodes_truenodeids, post_transform=0, tree_roots,
):  # fmt: skip
    """Sum what trees say of x (N, F) -> (N, targets); or the average, least, greatest of it."""
    n, dtype = len(nodes_featureids), x.dtype
    modes, leaves = np.asarray(nodes_modes).ravel().astype(np.int64), len(leaf_targetids)
    missing = np.array(nodes_missing_value_tracks_true or (0,) * n, bool)
    branches = []
    for side, (ids, ends) in {
        "true": (nodes_truenodeids, nodes_trueleafs),
        "false": (nodes_falsenodeids, nodes_falseleafs),
    }.items():
        check_lengths({f"nodes_{side}nodeids": ids, f"nodes_{side}leafs": ends}, n)
        place, end = np.array(ids, np.int64), np.array(ends, bool)
        limit = np.where(end, leaves, n)
        if ((place < 0) | (place >= limit)).any():
            raise ShapeError(f"nodes_{side}nodeids names a node or leaf that is not there")
        branches.append(place + n * end)
    roots = np.array(tree_roots, np.int64)
    lists = (missing, modes, np.asarray(nodes_splits).ravel())
    if not len(roots) or roots.min() < 0 or roots.max() >= n or {len(v) for v in lists} != {n}:
        raise ShapeError(f"tree_roots {list(tree_roots)[:8]} and lists of {n} nodes do not agree")
    if modes.min() < 0 or modes.max() >= LEAF:
        raise ShapeError(f"nodes_modes has {modes.max()}, wants 0 to {LEAF - 1}")
    table, row = _sets(modes, membership_values, dtype)

    def padded(v: Any, fill: Any = 0) -> np.ndarray:
        return np.concatenate([v, np.full(leaves, fill, np.asarray(v).dtype)])

    forest = planted(
        padded(np.array(nodes_featureids, np.int64)),
        padded(lists[2]),
        padded(modes, LEAF),
        padded(branches[0]),
        padded(branches[1]),
        padded(missing),
        roots,
        padded(row),
        table,
    )
    weights, targets = np.asarray(leaf_weights).ravel(), np.array(leaf_targetids, np.int64)
    check_lengths({"leaf_weights": weights.tolist()}, leaves)
    count = int(targets.max()) + 1 if n_targets is None else n_targets
    aggregate = _named(aggregate_function, _AGGREGATES, "aggregate_function")
    votes = gathered(forest, np.arange(leaves), targets, weights, count, aggregate)
    x = rows(x)
    _looked_at(hostdims(x.shape)[1], forest.n_features)
    total = tallied(votes, landed(forest, x), dtype)
    return transformed(total, _named(post_transform, _TRANSFORMS, "post_transform")).astype(dtype)


@tree_ensemble.shape_rule(rankless=True)  # because the trees need not be walked to know the sizes
def _(x, /, *, nodes_featureids, leaf_targetids, n_targets=None, **_):
    n, f = rows_of(x.shape)
    _looked_at(f, max(nodes_featureids, default=0) + 1)
    return TensorType(x.dtype, (n, max(leaf_targetids) + 1 if n_targets is None else n_targets))
