"""Linear models, support vector machines and trees of ai.onnx.ml, held against onnxruntime."""

from typing import Any

import jax
import numpy as np
import pytest
from builders import node
from forests import features, forest, planted
from forms import demands, types
from layers import layer, refused
from twin import twin

import jaxshape as js

F, NAN = np.float32, np.nan
ML: dict[str, Any] = {"domain": "ai.onnx.ml"}
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
INTS, NAMES = "classlabels_ints", "classlabels_strings"


def numbers(*shape, seed=0, scale=1.0):
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(F)


def listed(*shape, seed=1):
    return numbers(*shape, seed=seed).ravel().tolist()


X = numbers(4, 3)


def check(op, x, outputs: Any = 1, rtol: Any = 2e-5, **attributes):
    """The node gives what onnxruntime gives, text too."""
    wanted = twin(op, x, outputs=outputs, **attributes, **ML)
    model = node(
        op, f"{x.dtype}[{', '.join(map(str, x.shape))}]", outputs=outputs, **attributes, **ML
    )
    got = list(js.run(model, {"x0": x}).values())
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        if g.dtype == object:
            assert g.tolist() == w.tolist()
        else:
            np.testing.assert_allclose(g, w, rtol, 1e-6)
    traced = js.trace(model)
    for i, w in enumerate(wanted):
        assert traced[f"y{i}"].shape == w.shape
        assert traced[f"y{i}"].dtype == w.dtype


# linear -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(transform, targets):
    weights = {"coefficients": listed(targets * 3), "intercepts": listed(targets, seed=2)}
    for x in (X * F(0.1), X[0]):
        check("LinearRegressor", x, targets=targets, post_transform=transform, **weights)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_linear_models_of_other_types(dtype):
    x = (X * 3).astype(dtype)
    weights = {"coefficients": listed(6), "intercepts": listed(2)}
    check("LinearClassifier", x, outputs=2, **{INTS: [5, 7]}, **weights)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (3, {INTS: [5, 6, 7]}),
        (3, {NAMES: ["a", "b", "c"]}),
        (2, {NAMES: ["a", "b"]}),
        (1, {INTS: [5, 7]}),
        (1, {NAMES: ["a", "b"]}),
    ],
)
def test_linear_classifier(transform, scores, labels):
    if transform == "PROBIT" and scores == 1:
        return  # there onnxruntime leaves half of the scores unwritten
    weights = {"coefficients": listed(scores * 3), "intercepts": listed(scores, seed=2)}
    for x in (X, X[0])[: 1 + (NAMES in labels)]:
        check("LinearClassifier", x, outputs=2, post_transform=transform, **weights, **labels)


def test_text_is_none_under_jax():
    attributes = {"coefficients": listed(6), "intercepts": [0.0, 1.0], NAMES: ["a", "b"]}
    f = js.to_jax(node("LinearClassifier", "float32[N, 3]", outputs=2, **attributes, **ML))
    labels, scores = f(X)
    assert labels is None and scores.shape == (4, 2)
    assert np.isfinite(jax.grad(lambda x: f(x)[1].sum())(X)).all()


# support vectors ----------------------------------------------------------------------------------

KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_regressor(kernel):
    attributes = {"kernel_type": kernel, "kernel_params": [0.5, 0.3, 2.0], "rho": [0.1]}
    vectors = {"support_vectors": listed(6), "coefficients": listed(2, seed=2), "n_supports": 2}
    check("SVMRegressor", X, **attributes, **vectors)
    check("SVMRegressor", X, coefficients=listed(3), one_class=1, **attributes)


@pytest.mark.parametrize(
    ("kernel", "classes", "sure"),
    [
        *[(k, 3, False) for k in KERNELS],
        ("RBF", 2, False),
        ("RBF", 3, True),
        ("POLY", 2, True),
    ],
)
def test_svm_classifier(kernel, classes, sure):
    total, pairs = 2 * classes + 1, classes * (classes - 1) // 2
    attributes = {
        "coefficients": listed((classes - 1) * total, seed=3),
        "kernel_params": [0.5, 0.3, 2.0],
        "kernel_type": kernel,
        "rho": listed(pairs, seed=4),
        "support_vectors": listed(total * 3),
        "vectors_per_class": [3, *[2] * (classes - 1)],
    } | ({"prob_a": listed(pairs, seed=5), "prob_b": listed(pairs, seed=6)} if sure else {})
    check("SVMClassifier", X, outputs=2, **{INTS: list(range(classes))}, **attributes)
    check("SVMClassifier", X[0], outputs=2, **{NAMES: ["a", "b", "c"][:classes]}, **attributes)


@pytest.mark.parametrize(
    ("transform", "classes"), [("NONE", 2), ("SOFTMAX_ZERO", 2), ("SOFTMAX", 3)]
)
def test_svm_classifier_of_linear_kind(transform, classes):
    attributes = {"coefficients": listed(3 * classes), "rho": [0.2], "post_transform": transform}
    attributes |= {"kernel_params": [0.0, 0.0, 0.0]}
    check("SVMClassifier", X, outputs=2, **{INTS: [3, 1, 2][:classes]}, **attributes)


# trees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("votes", "targets"), [("each", 1), ("each", 3), ("all", 3)])
def test_tree_regressor(aggregate, votes, targets):
    trees = forest("target", targets, votes=votes, missing=True)
    attributes = {"aggregate_function": aggregate, "base_values": [0.5] * targets}
    check("TreeEnsembleRegressor", features(missing=True), n_targets=targets, **trees, **attributes)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_trees(transform):
    for targets in (1, 2):
        trees = forest("target", targets, votes="all", positive=True)
        trees["target_weights"] = [w / 10 for w in trees["target_weights"]]
        attributes = {"n_targets": targets, "post_transform": transform}
        check("TreeEnsembleRegressor", features(), **trees, **attributes)


@pytest.mark.parametrize(
    ("votes", "base", "transform"),
    [
        ("each", None, "NONE"),
        ("each", [0.5, -0.5, 0.25], "SOFTMAX"),
        ("all", [0.5, -0.5, 0.25], "LOGISTIC"),
    ],
)
def test_tree_classifier(votes, base, transform):
    trees = forest("class", 3, votes=votes)
    attributes = {"base_values": base, "post_transform": transform}
    labels = {"classlabels_int64s": [5, 6, 7]}
    check("TreeEnsembleClassifier", features(), outputs=2, **trees, **attributes, **labels)
    labels = {"classlabels_strings": ["a", "b", "c"]}
    check("TreeEnsembleClassifier", features(), outputs=2, **trees, **attributes, **labels)


@pytest.mark.parametrize(
    ("votes", "positive", "transform"),
    [
        (0, False, "NONE"),
        (0, True, "NONE"),
        (0, False, "LOGISTIC"),
        (0, True, "SOFTMAX"),
        (1, False, "NONE"),
        (1, True, "SOFTMAX"),
    ],
)
def test_two_classes_by_one_score(votes, positive, transform):
    trees = forest("class", 2, votes=votes, positive=positive)
    attributes = {"classlabels_int64s": [5, 7], "post_transform": transform}
    check("TreeEnsembleClassifier", features(), outputs=2, **trees, **attributes)
    if not votes:
        check(
            "TreeEnsembleClassifier",
            features(),
            outputs=2,
            base_values=[0.3],
            **trees,
            **attributes,
        )


def test_two_classes_by_both_scores():
    """The best label wins, where onnxruntime gives 0 or 1 whatever the labels are."""
    trees = forest("class", 2, votes="all")
    model = node(
        "TreeEnsembleClassifier",
        "float32[6, 3]",
        outputs=2,
        classlabels_int64s=[5, 7],
        **trees,
        **ML,
    )
    label, scores = js.run(model, {"x0": features()}).values()
    np.testing.assert_array_equal(label, np.array([5, 7])[scores.argmax(1)])


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_trees_of_other_types(dtype):
    trees = forest("class", 3)
    labels = {"classlabels_int64s": [1, 2, 3]}
    check("TreeEnsembleClassifier", features(dtype), outputs=2, **trees, **labels)


def test_trees_in_doubles():
    trees = forest("target", 2, votes="all")
    for name in ("nodes_values", "target_weights"):
        trees[f"{name}_as_tensor"] = np.array(trees.pop(name))
    base = np.array([0.25, 0.5])
    trees |= {"n_targets": 2, "base_values_as_tensor": base, "opset": 3}
    check("TreeEnsembleRegressor", features(np.float64), **trees)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, [[10, 0], [0, 20], [30, 0], [30, 0]]),
        ({"nodes_missing_value_tracks_true": [0, 1]}, [[10, 0], [0, 20], [30, 0], [0, 20]]),
        ({"nodes_missing_value_tracks_true": [1, 0]}, [[10, 0], [0, 20], [30, 0], [30, 0]]),
        ({"tree_roots": [0, 1]}, [[10, 20], [0, 40], [60, 0], [60, 0]]),
        ({"tree_roots": [0, 1], "aggregate_function": 0}, [[5, 10], [0, 20], [30, 0], [30, 0]]),
        ({"tree_roots": [0, 0], "aggregate_function": 2}, [[10, 0], [0, 20], [30, 0], [30, 0]]),
        ({"post_transform": 2}, 1 / (1 + np.exp(-np.array([[10, 0], [0, 20], [30, 0], [30, 0]])))),
    ],
)
def test_tree_ensemble(changed, wanted):
    for dtype in (np.float32, np.float16, np.float64):
        x = np.array([[3, 2], [2, 2], [2, 3], [2, NAN]], dtype)
        tensors = {
            n: planted()[n].astype(dtype)
            for n in ("leaf_weights", "membership_values", "nodes_splits")
        }
        layer(
            "TreeEnsemble", x, wanted=np.array(wanted, dtype), **planted(**tensors, **changed), **ML
        )


def test_a_tree_of_one_leaf():
    one = {"nodes_falsenodeids": [0], "nodes_truenodeids": [0], "nodes_featureids": [0]}
    one |= {"nodes_trueleafs": [1], "nodes_falseleafs": [1], "membership_values": None}
    one |= {"nodes_modes": np.zeros(1, np.uint8), "nodes_splits": np.zeros(1, F)}
    x = np.ones((2, 1), F)
    layer("TreeEnsemble", x, wanted=np.array([[10, 0]] * 2, F), **planted(**one), **ML)


# sizes and errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "x", "attributes", "wanted"),
    [
        ("LinearRegressor", "float32[N, F]", {"coefficients": [1.0] * 6, "targets": 2}, ["[N, 2]"]),
        ("LinearRegressor", "int32[F]", {"coefficients": [1.0] * 6, "targets": 2}, ["[1, 2]"]),
        (
            "LinearClassifier",
            "int64[N, F]",
            {"coefficients": [1.0] * 6, INTS: [1, 2]},
            ["[N]", "[N, 2]"],
        ),
        (
            "LinearClassifier",
            "float32",
            {"coefficients": [1.0] * 6, INTS: [1, 2]},
            ["[rows]", "[rows, 2]"],
        ),
        ("SVMRegressor", "float32[N, F]", {"coefficients": [1.0] * 6, "rho": [0.0]}, ["[N, 1]"]),
        ("TreeEnsemble", "float64[N, F]", planted(), ["[N, 2]"]),
        ("TreeEnsembleRegressor", "float32[N, F]", forest("target", 3), ["[N, 3]"]),
    ],
)
def test_sizes(op, x, attributes, wanted):
    found = types(op, x, outputs=len(wanted), **attributes, **ML)
    assert [f"[{t.split('[')[1]}" for t in found] == wanted


def test_demands():
    assert demands("LinearRegressor", "float32[N, F]", coefficients=[1.0] * 6, **ML) == ["F == 6"]
    assert demands("TreeEnsemble", "float32[N, F]", **planted(), **ML) == ["F >= 2"]


TREES: dict[str, Any] = forest("target", 2)


@pytest.mark.parametrize(
    ("op", "x", "attributes", "says"),
    [
        ("LinearRegressor", "float32[2, 4]", {"coefficients": [1.0] * 3}, "3 features: 4 is not 3"),
        (
            "LinearRegressor",
            "float32[2]",
            {"coefficients": [1.0], "targets": 2},
            "1 coefficients for 2",
        ),
        ("LinearRegressor", "float32[]", {"coefficients": [1.0]}, "has rank 0, wants 1 or 2"),
        ("LinearClassifier", "float32[2]", {"coefficients": [1.0] * 4}, "class labels are wanted"),
        (
            "LinearClassifier",
            "float32[2]",
            {"coefficients": [1.0] * 4, INTS: [1, 2], "post_transform": "EXP"},
            "post_transform is 'EXP', wants NONE",
        ),
        ("SVMRegressor", "float32[2]", {"coefficients": [1.0]}, "coefficients and rho are wanted"),
        (
            "SVMClassifier",
            "float32[2]",
            {"coefficients": [1.0], "rho": [1.0], INTS: [1, 2], "vectors_per_class": [1]},
            "vectors_per_class [1] for 2 class labels",
        ),
        ("TreeEnsembleRegressor", "float32[4, 1]", TREES, "features that the trees look at"),
        ("TreeEnsembleRegressor", "float32[4, 3]", {}, "there are no nodes"),
        (
            "TreeEnsembleRegressor",
            "float32[4, 3]",
            TREES | {"nodes_values": [1.0]},
            "nodes_values has 1 elements",
        ),
        (
            "TreeEnsembleRegressor",
            "float32[4, 3]",
            TREES | {"nodes_modes": ["BRANCH"] * len(TREES["nodes_modes"])},
            "nodes_modes has 'BRANCH'",
        ),
        (
            "TreeEnsembleRegressor",
            "float32[4, 3]",
            TREES | {"nodes_nodeids": [0] * len(TREES["nodes_modes"])},
            "is there twice",
        ),
        (
            "TreeEnsembleRegressor",
            "float32[4, 3]",
            TREES | {"nodes_truenodeids": [99] * len(TREES["nodes_modes"])},
            "names node 99 of tree 0, which is not there",
        ),
        (
            "TreeEnsembleRegressor",
            "float32[4, 3]",
            TREES | {"nodes_truenodeids": [0] * len(TREES["nodes_modes"])},
            "the nodes are no trees",
        ),
    ],
)
def test_refusals(op, x, attributes, says):
    assert says in refused(op, x, **attributes, **ML)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"nodes_falsenodeids": [0, 2]}, "the nodes are no trees"),
        ({"nodes_falsenodeids": [1, 9]}, "names a node or leaf that is not there"),
        ({"nodes_modes": np.array([7, 0], np.uint8)}, "nodes_modes has 7, wants 0 to 6"),
        ({"membership_values": np.array([1], F)}, "0 sets for 1 nodes"),
        ({"tree_roots": [2]}, "do not agree"),
        ({"n_targets": 1}, "a leaf votes on target 1 of 1"),
        ({"aggregate_function": 4}, "aggregate_function is 4, wants 0 to 3"),
    ],
)
def test_ensembles_that_are_no_trees(changed, says):
    with pytest.raises(js.ShapeError, match=says):
        js.run(
            node("TreeEnsemble", "float32[1, 2]", **planted(**changed), **ML), [np.zeros((1, 2), F)]
        )
