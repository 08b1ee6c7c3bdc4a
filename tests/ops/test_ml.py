"""ai.onnx.ml: features, labels and maps."""

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from builders import node
from forms import demands, run, types
from layers import layer, refused
from onnx import helper
from twin import twin

import jaxshape as js

F, NAN = np.float32, np.nan
ML: dict[str, Any] = {"domain": "ai.onnx.ml"}


def words(*values):
    return np.array(values, object)


X = np.array([[1, -2, 3], [-4, -5, -6], [0, 0, 0]])


# features -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Normalizer", {"norm": "MAX"}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Scaler", {"offset": [0.5, 1.0, 2.0], "scale": [2.0, 0.5, 1.0]}),
        ("Scaler", {"offset": [0.5], "scale": [2.0]}),
    ],
)
def test_rows(op, attributes, dtype):
    for x in (X.astype(dtype), X[0].astype(dtype)):
        layer(op, x, wanted=twin(op, x, **ML, **attributes), rtol=1e-6, **ML, **attributes)


def test_scaler_without_its_lists():
    (y,) = run("Scaler", X.astype(F), scale=[2.0], **ML)
    np.testing.assert_array_equal(y, 2 * X)


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_rows_of_zeros_have_slopes(norm):
    f = js.to_jax(node("Normalizer", "float32[N, 3]", norm=norm, **ML))
    assert np.isfinite(jax.grad(lambda x: f(x).sum())(X.astype(F))).all()


@pytest.mark.parametrize(
    ("x", "threshold", "wanted"),
    [
        (np.array([0.5, 1, 1.5, NAN, np.inf], F), 1.0, [0, 0, 1, 0, 1]),
        (np.array([[-1], [1]], np.int64), -0.5, [[0], [1]]),
        (np.array(2**53 + 1, np.int64), 0.0, 1),
        (np.zeros((0, 2)), 0.0, np.zeros((0, 2))),
    ],
)
def test_binarizer(x, threshold, wanted):
    (y,) = run("Binarizer", x, threshold=threshold, **ML)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("x", "attributes", "wanted"),
    [
        (
            np.array([[NAN, 1], [2, NAN]], F),
            {"imputed_value_floats": [8.0, 9.0], "replaced_value_float": NAN},
            [[8, 1], [2, 9]],
        ),
        (np.array([[0.0, 1]]), {"imputed_value_floats": [8.0]}, [[8, 1]]),
        (np.array([0, 1], np.int32), {"imputed_value_int64s": [8, 9]}, [8, 1]),
        (
            np.array([[[5]]]),
            {"imputed_value_int64s": [2**40], "replaced_value_int64": 5},
            [[[2**40]]],
        ),
    ],
)
def test_imputer(x, attributes, wanted):
    (y,) = run("Imputer", x, **attributes, **ML)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("x", "attributes", "wanted"),
    [
        (np.array([[1], [9]]), {"cats_int64s": [1, 2]}, [[[1, 0]], [[0, 0]]]),
        (np.array([1.9, -1], F), {"cats_int64s": [1, 2, 1]}, [[0, 0, 1], [0, 0, 0]]),
        (np.array(2, np.int32), {"cats_int64s": [1, 2], "zeros": 0}, [0, 1]),
        (words("b", "z"), {"cats_strings": ["a", "b"]}, [[0, 1], [0, 0]]),
        (np.zeros((0, 2), np.int64), {"cats_int64s": [1]}, np.zeros((0, 2, 1))),
    ],
)
def test_one_hot(x, attributes, wanted):
    (y,) = run("OneHotEncoder", x, **attributes, **ML)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, wanted)


def test_one_hot_of_no_category():
    attributes = {"cats_int64s": [1, 2], "zeros": 0}
    with pytest.raises(js.ShapeError, match="7 is none of the 2 categories"):
        js.run(node("OneHotEncoder", np.array([1, 7]), **attributes, **ML), {})
    y = js.run(node("OneHotEncoder", "int64[2]", **attributes, **ML), {"x0": np.array([1, 7])})
    np.testing.assert_array_equal(y["y0"], [[1, 0], [NAN, NAN]])


@pytest.mark.parametrize(
    ("inputs", "sizes", "wanted"),
    [
        ([X[:2], X[1:, :1]], [3, 1], [[1, -2, 3, -4], [-4, -5, -6, 0]]),
        ([X[:1], X[:1]], [2, 5], [[1, -2, 1, -2, 3, 0, 0]]),
        ([X[0], X[1]], [3, 1], [[1, -2, 3, -4]]),
        ([X[:2, :2].reshape(1, 2, 2)], [4], [[1, -2, -4, -5]]),
        ([X[:1]], None, [[1, -2, 3]]),
    ],
)
def test_feature_vectorizer(inputs, sizes, wanted):
    (y,) = run("FeatureVectorizer", *inputs, inputdimensions=sizes, **ML)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [
        (X, [2, 0, 2], X[:, [2, 0, 2]]),
        (X[0], [1], X[:1, [1]]),
        (X, [[1], [0]], X[:, [1, 0]]),
        (X, 1, X[:, [1]]),
        (words("a", "b"), [1, 1], [["b", "b"]]),
    ],
)
def test_array_feature_extractor(x, y, wanted):
    (z,) = run("ArrayFeatureExtractor", x, np.array(y), **ML)
    assert z.dtype == x.dtype
    np.testing.assert_array_equal(z, wanted)


@pytest.mark.parametrize("index", [3, -1])
def test_features_that_are_not_there(index):
    with pytest.raises(js.ShapeError, match=f"index {index} is"):
        js.run(node("ArrayFeatureExtractor", X, np.array([index]), **ML), {})
    fed = {"x0": X.astype(F), "x1": np.array([index])}
    y = js.run(node("ArrayFeatureExtractor", "float32[3,3]", "int64[1]", **ML), fed)["y0"]
    assert np.isnan(y).all()


# labels -------------------------------------------------------------------------------------------

KEYS: dict[str, Any] = {"int64s": [3, 1, 2], "floats": [3.0, NAN, -0.0], "strings": ["b", "a", ""]}
VALUES: dict[str, Any] = {
    "int64s": [30, 10, 20],
    "floats": [0.5, 0.25, 2.0],
    "strings": ["B", "A", "E"],
}
ASKED = {
    "int64s": np.array([[1, 2], [3, 9]]),
    "floats": np.array([[NAN, 0.0], [3.0, 9]], F),
    "strings": np.array([["a", ""], ["b", "z"]], object),
}
DEFAULTS = {"int64s": -1, "floats": -0.0, "strings": "_Unused"}
CHOSEN: dict[str, Any] = {"default_int64": 7, "default_float": 0.5, "default_string": "D"}


@pytest.mark.parametrize("opset", [2, 4])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", VALUES)
def test_label_encoder(key, value, opset):
    attributes = {f"keys_{key}": KEYS[key], f"values_{value}": VALUES[value]}
    a, b, c = VALUES[value]
    (y,) = run("LabelEncoder", ASKED[key], opset=opset, **attributes, **ML)
    np.testing.assert_array_equal(y, np.array([[b, c], [a, DEFAULTS[value]]], y.dtype))
    (y,) = run("LabelEncoder", ASKED[key][1], opset=opset, **attributes, **CHOSEN, **ML)
    default = CHOSEN[f"default_{value.rstrip('s')}"]
    np.testing.assert_array_equal(y, np.array([a, default], y.dtype))


@pytest.mark.parametrize(
    ("keys", "values", "default", "wanted"),
    [
        (words("a", "b"), np.array([1, 2], np.int16), np.array([9], np.int16), [1, 2, 9]),
        (words("a", "b"), np.array([1, 2], np.int16), None, [1, 2, -1]),
        (words("a", "b"), np.array([0.5, 2]), None, [0.5, 2, -0.0]),
        (words("a", "b"), words("x", "y"), None, ["x", "y", "_Unused"]),
        (words("a", "b", "a"), words("x", "y", "z"), words("?"), ["z", "y", "?"]),  # the last one
    ],
)
def test_label_encoder_by_tensors(keys, values, default, wanted):
    tensors = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    (y,) = run("LabelEncoder", words("a", "b", "c"), opset=4, **tensors, **ML)
    assert y.dtype == values.dtype and y.tolist() == wanted


def test_first_label_encoder_and_category_mapper():
    classes = {"classes_strings": ["a", "b"]}
    assert run("LabelEncoder", words("b", "z"), **classes, **ML)[0].tolist() == [1, -1]
    assert run("LabelEncoder", np.array([0, 5]), **classes, **ML)[0].tolist() == ["a", "_Unused"]
    cats = {"cats_strings": ["a", "b"], "cats_int64s": [5, 6], "default_int64": 0}
    assert run("CategoryMapper", words("b", "z"), **cats, **ML)[0].tolist() == [6, 0]
    assert run("CategoryMapper", np.array([6, 7]), **cats, **ML)[0].tolist() == ["b", "_Unused"]


# maps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "keys"),
    [({"classlabels_int64s": [3, 1]}, (3, 1)), ({"classlabels_strings": ["a", ""]}, ("a", ""))],
)
def test_zip_map(labels, keys):
    x = np.array([[1, 2], [3, 4]], F)
    model = node("ZipMap", "float32[N, 2]", **labels, **ML)
    found = js.run(model, {"x0": x})["y0"]
    assert found == [dict(zip(keys, row, strict=True)) for row in x]
    assert all(type(v) is np.float32 for row in found for v in row.values())
    assert js.run(node("ZipMap", "float32[2]", **labels, **ML), {"x0": x[0]})["y0"] == found[:1]
    assert [dict(row) for row in js.to_jax(model)(x)] == found
    assert js.trace(model)["y0"].length is js.trace(model)["x0"].shape[0]


def of_map(op, key, value, **attributes):
    """A model of one node that takes a map."""
    taken = onnx.ValueInfoProto(name="x")
    taken.type.map_type.key_type = key
    taken.type.map_type.value_type.tensor_type.elem_type = value
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)],
        "g",
        [taken],
        [onnx.ValueInfoProto(name="y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)])


INT, TEXT, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.STRING, onnx.TensorProto.FLOAT


@pytest.mark.parametrize(
    ("op", "types", "attributes", "given", "wanted"),
    [
        ("DictVectorizer", (TEXT, FLOAT), {"string_vocabulary": ["a", "c"]}, {"c": 4}, [0, 4]),
        ("DictVectorizer", (INT, TEXT), {"int64_vocabulary": [2, 1]}, {1: "x"}, ["", "x"]),
        ("DictVectorizer", (TEXT, FLOAT), {"string_vocabulary": ["a", "c"]}, {}, [0, 0]),
        ("CastMap", (INT, FLOAT), {}, {3: 1.5, 0: 2.5}, [2.5, 1.5]),
        ("CastMap", (INT, FLOAT), {"cast_to": "TO_INT64"}, {3: 1.5, 0: 2.5}, [2, 1]),
        ("CastMap", (INT, FLOAT), {"cast_to": "TO_STRING"}, {3: 1.5}, ["1.500000"]),
        ("CastMap", (INT, TEXT), {"cast_to": "TO_FLOAT"}, {3: "1.5"}, [1.5]),
        ("CastMap", (INT, FLOAT), {"map_form": "SPARSE", "max_map": 3}, {1: 1.5}, [0, 1.5, 0]),
    ],
)
def test_maps_as_tensors(op, types, attributes, given, wanted):
    model = of_map(op, *types, **attributes)
    assert js.run(model, {"x": given})["y"].tolist() == [wanted]


def test_maps_that_do_not_fit():
    sparse = of_map("CastMap", INT, FLOAT, map_form="SPARSE", max_map=2)
    with pytest.raises(js.ShapeError, match="the keys .0, 2. are no places of max_map = 2"):
        js.run(sparse, {"x": {2: 1.0, 0: 1.0}})
    with pytest.raises(js.ShapeError, match="'x' is a map: give a dict"):
        js.run(sparse, {"x": np.zeros(2)})


# sizes and errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("Scaler", ["float32[N, M, F]"], {"scale": [1.0, 2.0]}, "float32[N, M, 2]"),
        ("Imputer", ["int64[N, F]"], {"imputed_value_int64s": [1]}, "int64[N, F]"),
        ("Normalizer", ["float64[N, F]"], {}, "float32[N, F]"),
        ("Binarizer", ["float64[N, F]"], {}, "float64[N, F]"),
        ("OneHotEncoder", ["string[N, F]"], {"cats_strings": ["a", "b"]}, "float32[N, F, 2]"),
        ("FeatureVectorizer", ["float32[N, A, B]", "float32[N, C]"], {}, "float32[N, A*B + C]"),
        (
            "FeatureVectorizer",
            ["int64[N, A]", "int64[N, 2]"],
            {"inputdimensions": [4, 1]},
            "float32[N, 5]",
        ),
        ("ArrayFeatureExtractor", ["string[N, F]", "int64[K, 2]"], {}, "string[N, 2*K]"),
        ("ArrayFeatureExtractor", ["int32[F]", "int64[K]"], {}, "int32[1, K]"),
        ("CategoryMapper", ["int64"], {"cats_int64s": [1], "cats_strings": ["a"]}, "string[...]"),
        ("ZipMap", ["float32[N, E]"], {"classlabels_int64s": [1]}, "seq(map(int64, float32[]))"),
    ],
)
def test_sizes(op, inputs, attributes, wanted):
    assert types(op, *inputs, **attributes, **ML) == [wanted]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("Scaler", ["float32[N, F]"], {"offset": [1.0, 2.0]}, ["F == 2"]),
        ("FeatureVectorizer", ["int64[N, A]", "int64[M, 2]"], {}, ["M == N"]),
        ("ZipMap", ["float32[N, E]"], {"classlabels_int64s": [1]}, ["E == 1"]),
    ],
)
def test_demands(op, inputs, attributes, wanted):
    assert demands(op, *inputs, **attributes, **ML) == wanted


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("Scaler", ["float32[2, 3]"], {"offset": [1.0, 2.0]}, "2 values for the features of X"),
        ("Scaler", ["float32[]"], {}, "has rank 0, wants at least 1"),
        ("Imputer", ["float32[2]"], {"imputed_value_int64s": [1]}, "imputed_value_floats is want"),
        ("Normalizer", ["float32[1, 2, 3]"], {}, "has rank 3, wants 1 or 2"),
        ("Normalizer", ["float32[2]"], {"norm": "L3"}, "norm is 'L3', wants MAX, L1, L2"),
        ("OneHotEncoder", ["string[2]"], {"cats_int64s": [1]}, "cats_strings is wanted"),
        ("FeatureVectorizer", ["float32[2]"], {"inputdimensions": [1, 2]}, "2 inputdimensions"),
        ("FeatureVectorizer", ["float32[2, 1]", "float32[3, 1]"], {}, "rows of the inputs"),
        ("ArrayFeatureExtractor", ["float32[2]", "int64[0]"], {}, "0 is less than 1"),
        ("ZipMap", ["float32[2, 3]"], {"classlabels_int64s": [1]}, "1 labels for the columns"),
        ("ZipMap", ["float32[2, 3]"], {}, "one of classlabels_int64s and classlabels_strings"),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **ML)


@pytest.mark.parametrize(
    ("x", "attributes", "says"),
    [
        ("int64[2]", {"keys_int64s": [1], "values_int64s": [1, 2]}, "1 keys for 2 values"),
        ("int64[2]", {"keys_int64s": [1]}, "one of values_floats, values_int64s"),
        (
            "int64[2]",
            {"keys_int64s": [1], "keys_floats": [1.0], "values_floats": [1.0]},
            "2 are given",
        ),
        (
            "float32[2]",
            {"keys_int64s": [1], "values_int64s": [1]},
            "the keys are int64, X is float32",
        ),
        (
            "int64[2]",
            {"keys_int64s": [1], "values_tensor": np.zeros(1), "default_tensor": np.zeros(2)},
            r"is no float64[1]",
        ),
    ],
)
def test_label_encoders_that_do_not_fit(x, attributes, says):
    assert says in refused("LabelEncoder", x, opset=4, **attributes, **ML)
