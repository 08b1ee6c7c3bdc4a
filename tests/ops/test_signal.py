"""Fourier transforms and the mel scale: what the official cases leave out."""

import ml_dtypes
import numpy as np
import pytest
from builders import node
from close import check
from forms import demands, types
from layers import layer, refused
from onnx import TensorProto
from slopes import slopes

F = np.float32
RNG = np.random.default_rng(0)


def f(values):
    return np.array(values, F)


def pairs(z):
    """Complex numbers as pairs of float32."""
    return np.stack([z.real, z.imag], -1).astype(F)


REAL = RNG.normal(size=(2, 6, 3, 1)).astype(F)
COMPLEX = RNG.normal(size=(2, 6, 3, 2)).astype(F)
Z = COMPLEX[..., 0] + 1j * COMPLEX[..., 1]


@pytest.mark.parametrize("n", [None, 4, 9])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_transforms(n, axis):
    length, at, along = None if n is None else np.array(n), np.array(axis), axis + (axis < 0)
    for x, z in ((REAL, REAL[..., 0]), (COMPLEX, Z)):
        wanted = pairs(np.fft.fft(z, n, along))
        layer("DFT", x, length, at, wanted=wanted, opset=20)
        wanted = pairs(np.fft.ifft(z, n, along))
        layer("DFT", x, length, at, wanted=wanted, opset=20, inverse=1)
    wanted = pairs(np.fft.rfft(REAL[..., 0], n, along))
    layer("DFT", REAL, length, at, wanted=wanted, opset=20, onesided=1)
    wanted = np.fft.irfft(Z, n, along)[..., None].astype(F)
    layer("DFT", COMPLEX, length, at, wanted=wanted, opset=20, onesided=1, inverse=1)


def test_default_axes():
    wanted = pairs(np.fft.fft(REAL[..., 0], axis=1))
    layer("DFT", REAL, wanted=wanted, opset=17)
    layer("DFT", REAL, np.array(8), wanted=pairs(np.fft.fft(REAL[..., 0], 8, 2)), opset=17, axis=-2)
    layer("DFT", REAL, wanted=pairs(np.fft.fft(REAL[..., 0], axis=2)), opset=20)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float64"])
def test_dtypes(dtype):
    x = np.arange(8).reshape(1, 8, 1).astype(dtype)
    wanted = np.fft.fft(np.arange(8))
    wanted = np.stack([wanted.real, wanted.imag], -1)[None].astype(dtype)
    layer("DFT", x, wanted=wanted, rtol=1e-2, opset=20)


def test_sums_that_cancel():
    x = np.tile(f([1000, -1000]), 512).reshape(1, -1, 1)
    (y,) = layer("DFT", x, opset=20)
    assert abs(y[0, 1:512]).max() < 1e-6


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(
    ("x", "step", "window", "length"),
    [
        (REAL[:, :, 0], 2, None, 3),
        (REAL[:, :, 0], 1, f([0.5, 1, 0.5, 2]), None),
        (REAL[:, :, 0], 3, f([0.5, 1]), 2),
        (REAL[:, :, 0], 1, None, None),
        (COMPLEX[:, :, 0], 2, f([0.5, 1, 2]), 3),
    ],
)
def test_short_time(x, step, window, length, onesided):
    z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    size = length or (6 if window is None else len(window))
    starts = range(0, 7 - size, step)
    frames = np.stack([z[:, i : i + size] for i in starts], 1) * (1 if window is None else window)
    wanted = pairs(np.fft.fft(frames)[..., : size // 2 + 1 if onesided else size])
    inputs = [x, np.array(step), window, None if length is None else np.array(length)]
    layer("STFT", *inputs, wanted=wanted, opset=17, onesided=onesided)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32])
def test_mel(dtype):
    bands, n, rate, low, high = np.array(3), np.array(16), np.array(8000), F(0), F(4000)
    mel = np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 6)[:5]
    bins = np.floor(17 * (700 * (10 ** (mel / 2595) - 1)) / 8000).astype(int)
    wanted = np.zeros((9, 3))
    for i, (left, centre, right) in enumerate(zip(bins, bins[1:], bins[2:], strict=False)):
        for j in range(9):
            if left <= j < centre:
                wanted[j, i] = (j - left) / (centre - left)
            if centre <= j < right:
                wanted[j, i] = (right - j) / (right - centre)
            if j == centre:
                wanted[j, i] = 1
    given = [bands, n, rate, low, high]
    wanted = wanted.astype({1: F, 11: np.float64, 6: np.int32}[dtype])
    check("MelWeightMatrix", given, wanted, (0, 1, 2, 3, 4), opset=17, output_datatype=dtype)


def test_gradient():
    x = REAL[:1, :, 0]
    ahead, along = slopes(
        node("STFT", "float32[1, 6, 1]", np.array(2), None, np.array(3), opset=17), x
    )
    np.testing.assert_allclose(along, ahead, 1e-2, 1e-6)


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted"),
    [
        (["float32[N, L, 1]"], {}, "float32[N, L, 2]"),
        (["float32[N, L, p]"], {}, "float32[N, L, 2]"),
        (["float32[N, L, 1]"], {"onesided": 1}, "float32[N, L//2 + 1, 2]"),
        (["float32[N, L, 2]"], {"onesided": 1, "inverse": 1}, "float32[N, 2*L - 2, 1]"),
        (["float32[N, L, 1]", np.array(16)], {"onesided": 1}, "float32[N, 9, 2]"),
        (["float32[N, L, 1]", "int64[]"], {}, "float32[N, x1, 2]"),
        (["float32[N, L, 1]", None, "int64[]"], {}, "float32[N, L, 2]"),
        (["float32[N, L, 1]", "int64[]", "int64[]"], {}, "float32[DFT_size0, DFT_size1, 2]"),
    ],
)
def test_dft_types(inputs, attributes, wanted):
    assert types("DFT", *inputs, opset=20, **attributes) == [wanted]


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted"),
    [
        ([np.array(4), "float32[16]"], {}, "float32[N, L//4 - 3, 9, 2]"),
        ([np.array(4), None, np.array(16)], {"onesided": 0}, "float32[N, L//4 - 3, 16, 2]"),
        ([np.array(4), "float32[f]"], {"onesided": 0}, "float32[N, (L - f)//4 + 1, f, 2]"),
        ([np.array(4)], {}, "float32[N, 1, L//2 + 1, 2]"),
        (["int64", None, np.array(8)], {}, "float32[N, STFT_frames, 5, 2]"),
        (
            [np.array(2), None, "int64"],
            {},
            "float32[N, (L - STFT_frame)//2 + 1, STFT_frame//2 + 1, 2]",
        ),
    ],
)
def test_stft_types(inputs, attributes, wanted):
    assert types("STFT", "float32[N, L, 1]", *inputs, opset=17, **attributes) == [wanted]


def test_types_without_ranks():
    assert types("DFT", "float32", opset=20) == ["float32[...]"]
    wanted = ["float32[STFT_batch, STFT_length//2 - 1, 3, 2]"]
    assert types("STFT", "float32", np.array(2), None, np.array(4), opset=17) == wanted


def test_mel_types():
    given = np.array(8), "int64[]", "int64", "float32", "float32"
    wanted = ["float64[x1//2 + 1, 8]"]
    assert types("MelWeightMatrix", *given, opset=17, output_datatype=TensorProto.DOUBLE) == wanted


def test_demands():
    given = "float32[N, L, 1]", np.array(4), "float32[f]", np.array(16)
    assert demands("STFT", *given, opset=17) == ["f == 16", "L >= 16"]
    assert demands("DFT", "float32[N, L, p]", opset=20, onesided=1) == ["p == 1"]
    assert demands("DFT", "float32[N, L, 2]", opset=20, onesided=1, inverse=1) == ["L >= 2"]


@pytest.mark.parametrize(
    ("op", "inputs", "keywords", "text"),
    [
        ("DFT", ["float32[2, 4, 1]"], {"axis": 2}, "axis 2 holds the parts of the complex numbers"),
        (
            "DFT",
            ["float32[2, 4, 1]"],
            {"axis": -1},
            "axis 2 holds the parts of the complex numbers",
        ),
        ("DFT", ["float32[2, 4, 1]"], {"axis": 3}, "axis 3 is out of range for rank 3"),
        (
            "DFT",
            ["float32[2, 4, 3]"],
            {},
            "the last axis of (2, 4, 3) wants 1 (real) or 2 (complex",
        ),
        ("DFT", ["float32[4]"], {}, "has rank 1, wants at least 2"),
        ("DFT", ["float32[2, 4, 1]", np.array(0)], {}, "the length of the transform"),
        ("DFT", ["float32[2, 4, 2]"], {"onesided": 1}, "the parts of (2, 4, 2), one-sided"),
        ("STFT", ["float32[2, 4, 1]", np.array(0)], {}, "frame_step"),
        ("STFT", ["float32[2, 4, 1]", np.array(1), "float32[5]"], {}, "must hold a frame"),
        ("STFT", ["float32[2, 4, 1]", np.array(1), "float32[3]", np.array(2)], {}, "frame_length"),
        ("STFT", ["float32[4, 1]", np.array(1)], {}, "has rank 2, wants 3"),
    ],
)
def test_errors(op, inputs, keywords, text):
    assert text in refused(op, *inputs, opset=17, **keywords)
