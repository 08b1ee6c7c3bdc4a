"""Inputs that are drawn: sizes that meet what the trace requires, contents that operators take."""

import numpy as np
import pytest
from builders import model

import jaxshape as js
from jaxshape._draw import draw_inputs, draw_sizes


def drawn(text: str, seed: int = 0) -> dict:
    traced = js.trace(model(text))
    rng = np.random.default_rng(seed)
    (sizes, *_) = draw_sizes(traced, 2, rng)
    return draw_inputs(traced, sizes, rng)


HEAD = "g (int64[N, M] i, float[9, 3] t, float[M, N, 3] s, float[N, M] f, uint8[N, 99] b)"


@pytest.mark.parametrize(
    ("body", "name", "low", "high"),
    [
        ("y = Gather (t, i)", "i", 0, 8),
        ("j = Cast <to = 6> (i) y = Gather <axis = 1> (t, j)", "i", 0, 2),
        ("a, c = Split <num_outputs = 2> (i) y = Gather (s, a)", "i", 0, 2),
        ("k = Constant <value = int64[1] {7}> () o = Constant <value = float[2] {0, 1}> ()"
         " y = OneHot (i, k, o)", "i", 0, 6),
        ("y = GatherElements (f, i)", "i", 0, 1),
        ("y = Log (f)", "f", 0.1, np.inf),
        ("r = Sqrt (f) y = Neg (r)", "f", 0, np.inf),
        ("y = Asin (f)", "f", -1, 1),
        ("y = Div (i, i)", "i", 1, 4),
        ("y = Neg (i)", "i", 0, 1),
        ("y = Identity (b)", "b", 0, 255),
    ],
)  # fmt: skip
def test_drawn_contents_are_what_operators_take(body, name, low, high):
    got = np.concatenate([drawn(f"{HEAD} => (y) {{ {body} }}", s)[name].ravel() for s in range(40)])
    assert low <= got.min() and got.max() <= high
    if np.isfinite(high):
        assert got.max() - got.min() >= 0.9 * (high - low) or got.dtype == np.float32


def test_contents_inside_a_function_count():
    text = """<ir_version: 10, opset_import: ["": 20, "my": 1]>
    g (int64[N] i) => (float[N] y) <float[5] t = {1, 2, 3, 4, 5}> { y = my.Look (t, i) }
    <domain: "my", opset_import: ["": 20]> Look (t, i) => (z) { z = Gather (t, i) }"""
    values = np.concatenate([drawn(text, seed)["i"] for seed in range(30)])
    assert set(values) == {0, 1, 2, 3, 4}


def test_lengths_and_masks_are_sensible():
    text = """g (float[T, B, 2] x, float[1, 9, 2] w, float[1, 9, 3] r, int32[B] n, bool[B, T] m)
    => (y, z) { y = GRU <hidden_size = 3> (x, w, r, , n)  z = Not (m) }"""
    for seed in range(20):
        got = drawn(text, seed)
        assert 1 <= got["n"].min() and got["n"].max() <= len(got["x"])
        assert got["m"][:, 0].all()


@pytest.mark.parametrize(("a", "b", "names"), [("N", "M", "NM"), ("?", "?", ["x_0"])])
def test_sizes_that_must_be_equal_are(a, b, names):
    text = f"g (float[{a}, 4] x, float[{b}, 4] z) => (y) {{ y = Concat <axis=1> (x, z) }}"
    for sizes in draw_sizes(js.trace(model(text)), 3, np.random.default_rng(0)):
        assert set(sizes) == set(names) and len(set(sizes.values())) == 1


def test_sizes_differ_and_grow_only_where_asked():
    text = """g (float[N, 3, H, W] x, float[4, 3, 33, 5] w) => (y) { y = Conv (x, w) }"""
    first, second = draw_sizes(js.trace(model(text)), 2, np.random.default_rng(0))
    assert first["N"] == 2 and first["H"] >= 33 and 5 <= first["W"] < 64
    assert second["N"] == 1


def test_drawn_sizes_meet_the_requirements():
    halves = """g (float[N, C] x) => (float[N, a] y) {
        a, b = Split <axis=1, num_outputs=2> (x)
        y = Add (a, b)
    }"""
    sixes = """g (float[N, L] x) => (float[a, b] y) {
        s = Constant <value = int64[2] {-1, 6}> ()
        y = Reshape (x, s)
    }"""
    report = js.validate(model(sixes), reference="onnx")
    assert report.ok and all(s["N"] * s["L"] % 6 == 0 for s in report.sizes)
    assert js.validate(model(halves), reference="onnx").ok
