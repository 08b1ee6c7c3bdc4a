"""Sampling and decoding images: what the official cases leave out."""

import builtins
import io

import jax
import ml_dtypes
import numpy as np
import pytest
from builders import node
from close import check
from forms import demands, types
from layers import layer, refused
from onnx.reference import ReferenceEvaluator
from slopes import slopes

import jaxshape as js

F = np.float32
RNG = np.random.default_rng(0)


def grid_of(*places):
    """A grid of one batch over one row of places, each given last axis first."""
    return np.array(places, F).reshape(1, 1, len(places), -1)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_reference(mode, padding_mode, align_corners):
    x, grid = RNG.normal(size=(2, 2, 3, 4)).astype(F), RNG.uniform(-3, 3, (2, 2, 5, 2)).astype(F)
    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    model = node("GridSample", x, grid, opset=22, **attributes)
    wanted = ReferenceEvaluator(model).run(None, {})
    layer("GridSample", x, grid, wanted=wanted, rtol=1e-4, opset=22, **attributes)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_the_gradient_on_a_pixel_is_the_slope_to_the_next(mode, align_corners):
    """Where spatial transformers start: a grid that gives every pixel itself."""
    x = RNG.normal(size=(1, 2, 5))
    pixels = np.arange(1, 3)
    grid = 2 * pixels / 4 - 1 if align_corners else (2 * pixels + 1) / 5 - 1
    net = node(
        "GridSample", x, "float64[1, G, 1]", opset=22, mode=mode, align_corners=align_corners
    )
    with jax.enable_x64(True):
        f = js.to_jax(net)
        slope = jax.grad(lambda g: f(g.reshape(1, -1, 1)).sum())(grid)
        ahead, here = (np.asarray(f((grid + s).reshape(1, -1, 1))) for s in (1e-7, 0))
    np.testing.assert_allclose(slope, (ahead - here).sum((0, 1)) / 1e-7, rtol=1e-3)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(mode, rank):
    if (rank, mode) == (3, "cubic"):
        pytest.skip("64 pixels for each sample take the reference long")
    x = RNG.normal(size=(1, 2, *range(2, 2 + rank))).astype(F)
    grid = RNG.uniform(-1.2, 1.2, (1, *(2,) * rank, rank)).astype(F)
    wanted = ReferenceEvaluator(node("GridSample", x, grid, opset=22, mode=mode)).run(None, {})
    layer("GridSample", x, grid, wanted=wanted, rtol=1e-4, opset=22, mode=mode)


@pytest.mark.parametrize(
    ("old", "new"), [("bilinear", "linear"), ("bicubic", "cubic"), ("nearest",) * 2]
)
def test_old_names(old, new):
    x, grid = RNG.normal(size=(1, 1, 3, 3)).astype(F), grid_of([0.1, -0.3], [1.5, 0.9])
    (wanted,) = js.run(node("GridSample", x, grid, opset=20, mode=new), {}).values()
    check("GridSample", [x, grid], wanted, opset=16, mode=old)


@pytest.mark.parametrize(
    ("x", "mode", "wanted"),
    [
        (np.array([0, 5], np.uint8), "linear", [2, 5, 0]),  # 2.5 is cut, not rounded
        (np.array([-128, 127], np.int8), "cubic", [0, 127, 0]),
        (np.array([True, False]), "nearest", [True, False, False]),
        (np.array([1 + 2j, 3], np.complex64), "linear", [2 + 1j, 3, 0]),
        (np.array([1, 2], np.float16), "linear", [1.5, 2, 0]),
        (np.array([1, 2], ml_dtypes.bfloat16), "linear", [1.5, 2, 0]),
        (np.array([1, 2], np.float64), "linear", [1.5, 2, 0]),
        (np.array([2**40, 2**40 + 2]), "linear", [2**40 + 1, 2**40 + 2, 0]),
    ],
    ids=lambda v: str(getattr(v, "dtype", "")),
)
def test_dtypes(x, mode, wanted):
    x, grid = x.reshape(1, 1, 2), np.array([0, 0.5, 9], F).reshape(1, 3, 1)
    wanted = np.array(wanted, x.dtype).reshape(1, 1, 3)
    check("GridSample", [x, grid], wanted, opset=22, mode=mode)


def test_strings_and_nothing():
    x = np.array(["a", "b"], object).reshape(1, 1, 2)
    model = node("GridSample", x, np.array([0.5, 9], F).reshape(1, 2, 1), opset=22, mode="nearest")
    assert js.run(model, {})["y0"].tolist() == [[["b", ""]]]
    for shape in ((0, 2, 3, 3), (1, 0, 3, 3)):
        x, grid = np.zeros(shape, F), np.zeros((shape[0], 4, 5, 2), F)
        check("GridSample", [x, grid], np.zeros((*shape[:2], 4, 5), F), opset=22)
    check(
        "GridSample",
        [np.zeros((1, 1, 3), F), np.zeros((1, 0, 1), F)],
        np.zeros((1, 1, 0), F),
        opset=22,
    )


def test_one_pixel_is_reflected_into_itself():
    x, grid = np.full((1, 1, 1, 1), 3, F), grid_of([0.7, -5], [9, 1])
    attributes = {"padding_mode": "reflection", "align_corners": 1}
    check("GridSample", [x, grid], np.full((1, 1, 1, 2), 3, F), opset=22, **attributes)


def test_grid_sample_types():
    inputs = "float16[N, C, h, w]", "float32[R, a, b, k]"
    assert types("GridSample", *inputs, opset=22) == ["float16[N, C, a, b]"]
    assert demands("GridSample", *inputs, opset=22) == ["N == R", "k == 2"]
    assert types("GridSample", "string[N, C, h]", "float32[N, a, 1]", opset=22) == [
        "string[N, C, a]"
    ]


@pytest.mark.parametrize(
    ("op", "inputs", "keywords", "text"),
    [
        (
            "GridSample",
            ["float32[1, 2, 3]", "float32[1, 4, 2]"],
            {},
            "the coordinates in grid (1, 4, 2)",
        ),
        ("GridSample", ["float32[1, 2, 3]", "float32[1, 4, 4, 2]"], {}, "has rank 4, wants 3"),
        ("GridSample", ["float32[1, 2]", "float32[1, 0]"], {}, "has rank 2, wants at least 3"),
        ("GridSample", ["float32[1, 2, 3]", "float32[2, 4, 1]"], {}, "the batch of X (1, 2, 3)"),
        ("GridSample", ["float32[1, 2, 3]", "float32[1, 4, 1]"], {"opset": 16}, "rank 3, wants 4"),
        (
            "AffineGrid",
            ["float32[1, 2, 3]", np.array([1, 1, 3])],
            {},
            "size has 3 elements, wants 4",
        ),
        ("AffineGrid", ["float32[1, 2, 3]", np.array([1, 1, 2, 3, 4])], {}, "theta (1, 2, 3)"),
        ("AffineGrid", ["float32[2, 2, 3]", np.array([1, 1, 2, 3])], {}, "theta (2, 2, 3)"),
        ("ImageDecoder", ["uint8[n]"], {"pixel_format": "RGBA"}, "pixel_format is 'RGBA', wants"),
    ],
)
def test_errors(op, inputs, keywords, text):
    assert text in refused(op, *inputs, **{"opset": 22, **keywords})


@pytest.mark.parametrize(("name", "value"), [("mode", "bilinear"), ("padding_mode", "wrap")])
def test_bad_words(name, value):
    inputs = "float32[1, 2, 3]", "float32[1, 4, 1]"
    assert f"{name} is {value!r}, wants one of" in refused(
        "GridSample", *inputs, opset=22, **{name: value}
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_gradient(mode):
    x, grid = RNG.normal(size=(1, 2, 4)).astype(F), RNG.uniform(-0.9, 0.9, (1, 3, 1)).astype(F)
    model = node("GridSample", "float32[1, 2, 4]", "float32[1, 3, 1]", opset=22, mode=mode)
    ahead, along = slopes(model, x, grid)
    np.testing.assert_allclose(along, ahead, 2e-2, 1e-5)


# AffineGrid ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("align_corners", "x", "y"),
    [(0, [-2 / 3, 0, 2 / 3], [-0.5, 0.5]), (1, [-1, 0, 1], [-1, 1])],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
def test_identity_grid(align_corners, x, y, dtype):
    theta = np.eye(2, 3)[None].astype(dtype)
    wanted = np.stack(np.meshgrid(x, y), -1)[None].astype(dtype)
    size = np.array([1, 1, 2, 3])
    check("AffineGrid", [theta, size], wanted, (1,), opset=20, align_corners=align_corners)


def test_one_pixel_is_in_the_middle():
    theta, size = np.eye(3, 4, dtype=F)[None], np.array([1, 1, 1, 1, 1])
    for align_corners in (0, 1):
        wanted = np.zeros((1, 1, 1, 1, 3), F)
        check("AffineGrid", [theta, size], wanted, (1,), opset=20, align_corners=align_corners)
    check(
        "AffineGrid", [theta, size * [1, 1, 0, 1, 1]], np.zeros((1, 0, 1, 1, 3), F), (1,), opset=20
    )


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        (["float32[N, 2, 3]", "int64[4]"], "float32[N, x1_2, x1_3, 2]"),
        (["float32[N, r, q]", np.array([2, 1, 3, 4])], "float32[2, 3, 4, 2]"),
        (["float32[N, 2, 3]", "int64[k]"], "float32[N, AffineGrid_size0, AffineGrid_size1, 2]"),
        (["float32[N, r, q]", "int64[k]"], "float32[...]"),
        (["float32", np.array([2, 1, 3, 4])], "float32[2, 3, 4, 2]"),
        (["float32[N, 2, 3]", "int64"], "float32[N, AffineGrid_size0, AffineGrid_size1, 2]"),
    ],
)
def test_affine_types(inputs, wanted):
    assert types("AffineGrid", *inputs, opset=20) == [wanted]


# ImageDecoder -------------------------------------------------------------------------------------


def png(pixels, mode=None):
    Image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, "PNG")
    return np.frombuffer(file.getvalue(), np.uint8)


PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10


@pytest.mark.parametrize(
    ("pixels", "pixel_format", "wanted"),
    [
        (PIXELS, "RGB", PIXELS),
        (PIXELS, "BGR", PIXELS[:, :, ::-1]),
        (PIXELS[:, :, 0], "RGB", PIXELS[:, :, :1].repeat(3, 2)),
        (PIXELS[:, :, 0], "Grayscale", PIXELS[:, :, :1]),
        (np.dstack([PIXELS, PIXELS[:, :, 0]]), "RGB", PIXELS),
    ],
)
def test_decode(pixels, pixel_format, wanted):
    file = png(pixels)
    for inputs, feed in (([file], {}), (["uint8[n]"], {"x0": file})):
        model = node("ImageDecoder", *inputs, opset=20, pixel_format=pixel_format)
        np.testing.assert_array_equal(js.run(model, feed)["y0"], wanted)


@pytest.mark.parametrize("file", [b"", b"no image", bytes(png(PIXELS))[:40]])
def test_what_cannot_be_read_is_empty(file):
    pytest.importorskip("PIL")
    model = node("ImageDecoder", np.frombuffer(file, np.uint8), opset=20)
    assert js.run(model, {})["y0"].shape == (0, 0, 3)


def test_decoder_types():
    wanted = ["uint8[ImageDecoder_height, ImageDecoder_width, 1]"]
    assert types("ImageDecoder", "uint8", opset=20, pixel_format="Grayscale") == wanted


def test_large_images_are_refused(monkeypatch):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(js.UnsupportedError, match="the image is too large"):
        js.run(node("ImageDecoder", png(PIXELS), opset=20), {})


def test_without_pillow(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "PIL":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(js.UnsupportedError, match=r"needs Pillow: pip install jaxshape\[image\]"):
        js.run(node("ImageDecoder", np.zeros(3, np.uint8), opset=20), {})
