"""Operators of the first opset that the standard dropped."""

import numpy as np
import pytest
from builders import node

import jaxshape as js

X = np.linspace(-2, 2, 60, dtype=np.float32).reshape(1, 3, 4, 5)
IMAGES = "float32[N,3,H,W]"


@pytest.mark.parametrize(
    ("op", "attributes", "wanted"),
    [
        ("Affine", {"alpha": 2.0, "beta": 1.0}, 2 * X + 1),
        ("Affine", {}, X),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(0.5 * X)),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}, 2 * np.log1p(np.exp(0.5 * X))),
        (
            "ImageScaler",
            {"scale": 2.0, "bias": [0.0, 1.0, 2.0]},
            2 * X + np.arange(3, dtype=np.float32)[:, None, None],
        ),
    ],
)
def test_values(op, attributes, wanted):
    made = node(op, IMAGES, opset=6, **attributes)
    assert str(js.trace(made)["y0"]) == "float32[N, 3, H, W]"
    found = js.run(made, {"x0": X})["y0"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "wanted", "cut"),
    [
        ({"border": [1, 1, 2, 1]}, "float32[N, 3, H - 2, W - 3]", X[:, :, 1:3, 1:3]),
        ({"border": [1, 1, 9, 9], "scale": [2, 3]}, "float32[N, 3, 2, 3]", X[:, :, 1:3, 1:4]),
    ],
)
def test_crop(attributes, wanted, cut):
    made = node("Crop", IMAGES, opset=6, **attributes)
    assert str(js.trace(made)["y0"]) == wanted
    np.testing.assert_array_equal(js.run(made, {"x0": X})["y0"], cut)


@pytest.mark.parametrize(
    ("op", "attributes", "text"),
    [
        ("Crop", {"border": [1, 2]}, "want 4 and 2 numbers"),
        ("Crop", {"border": [2, 0, 3, 0]}, "what the border leaves"),
        ("Crop", {"border": [2, 0, 3, 0], "scale": [4, 5]}, "what is kept"),
        ("ImageScaler", {"bias": [1.0]}, "channels and the numbers of bias"),
    ],
)
def test_errors(op, attributes, text):
    with pytest.raises(js.ShapeError, match=text):
        js.trace(node(op, "float32[N,3,4,4]", opset=6, **attributes))
