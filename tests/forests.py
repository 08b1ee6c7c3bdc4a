"""Attributes of small forests, random or planted, for the tree operators of ai.onnx.ml."""

from typing import Any

import numpy as np

F, NAN = np.float32, np.nan
BRANCHES = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]


def forest(
    kind, targets, trees=3, depth=3, votes: Any = "each", seed=0, missing=False, positive=False
) -> dict[str, Any]:
    """Attributes of random trees: leaves vote `each` for its tree's target, for `all`, for one."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, list] = {
        f"nodes_{n}": []
        for n in "treeids nodeids featureids modes values truenodeids falsenodeids".split()
    }
    if missing:
        nodes["nodes_missing_value_tracks_true"] = []
    said: dict[str, list] = {f"{kind}_{n}": [] for n in "ids nodeids treeids weights".split()}

    def put(table, *values):
        for column, value in zip(table.values(), values, strict=False):
            column.append(value)

    def grow(tree, rows, left):
        rows.append(None)
        at = len(rows) - 1
        if not left or at and rng.random() < 0.25:
            rows[at] = (0, "LEAF", 0.0, 0, 0, 0)
            for target in {"each": [tree % targets], "all": range(targets)}.get(votes, [votes]):
                weight = rng.normal()
                put(said, target, at, tree, float(F(abs(weight) if positive else weight)))
        else:
            mode, cut = f"BRANCH_{rng.choice(BRANCHES)}", float(rng.integers(-2, 3))
            feature, follow = int(rng.integers(3)), int(rng.integers(2))
            sides = [grow(tree, rows, left - 1) for _ in range(2)]
            rows[at] = (feature, mode, cut, *sides, follow)
        return at

    for tree in range(trees):
        rows: list = []
        grow(tree, rows, depth)
        for at, row in enumerate(rows):
            put(nodes, tree, at, *row)
    return nodes | said


def features(dtype: Any = F, missing=False):
    x = np.random.default_rng(9).integers(-2, 3, (6, 3)).astype(dtype)
    if missing:
        x[::2, 1] = NAN
    return x


def planted(**changed: Any) -> dict[str, Any]:
    """Attributes of one tree of TreeEnsemble: x[0] in {1, 3} ? 10 : (x[1] <= 2 ? 20 : 30)."""
    attributes = {
        "leaf_targetids": [0, 1, 0],
        "leaf_weights": np.array([10, 20, 30], F),
        "membership_values": np.array([1, 3, NAN], F),
        "n_targets": 2,
        "nodes_falseleafs": [0, 1],
        "nodes_falsenodeids": [1, 2],
        "nodes_featureids": [0, 1],
        "nodes_modes": np.array([6, 0], np.uint8),
        "nodes_splits": np.array([99, 2], F),
        "nodes_trueleafs": [1, 1],
        "nodes_truenodeids": [0, 1],
        "tree_roots": [0],
        "opset": 5,
    }
    return {k: v for k, v in (attributes | changed).items() if v is not None}
