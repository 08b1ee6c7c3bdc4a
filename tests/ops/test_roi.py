"""Pools over regions: values point by point in NumPy, shapes as formulas, what is refused."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from builders import node
from forms import demands, typed_as, types
from slopes import slopes

import jaxshape as js

RNG = np.random.default_rng(0)
X4, ROI = "float32[N, C, H, W]", ("float32[R, 4]", "int64[R]")


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(op, *inputs, **keywords) -> Any:
    """The output of one node on arrays."""
    model = node(op, *map(typed_as, inputs), **keywords)
    return js.run(model, {f"x{i}": x for i, x in enumerate(inputs)})["y0"]


def test_max_roi_pool():
    x = np.arange(2 * 25, dtype="f").reshape(2, 1, 5, 5)
    rois = [
        [0, 0, 0, 3, 3],
        [1, 2, 1, 2, 1],
        [0, 1.5, 0.5, 2.4, 9],
        [0, 7, 7, 8, 8],
        [0, 3, 3, 1, 1],
    ]
    y = run("MaxRoiPool", x, np.array(rois, "f"), pooled_shape=(2, 2))
    assert y[:, 0].reshape(-1, 4).tolist() == [
        [6, 8, 16, 18],
        [32, 32, 32, 32],  # one pixel is in every bin
        [22, 22, 0, 0],  # its lower half is outside
        [0, 0, 0, 0],  # outside
        [18, 18, 18, 18],  # turned: one pixel
    ]
    assert run("MaxRoiPool", x, np.zeros((0, 5), "f"), pooled_shape=(2, 3)).shape == (0, 1, 2, 3)


def aligned(x, roi, batch, size, ratio, mode, half):
    """RoiAlign of one region, point by point."""
    corners = np.array(roi, "d") - 0.5 * half
    bins = []
    for start, end, n in ((1, 3, size[0]), (0, 2, size[1])):
        length = corners[end] - corners[start]
        step = (length if half else max(length, 1)) / n
        points = ratio or max(math.ceil(step), 0)
        grid = [
            [corners[start] + p * step + (i + 0.5) * step / points for i in range(points)]
            for p in range(n)
        ]
        bins.append(grid)
    y = np.zeros((x.shape[1], *size))
    for c, p, q in np.ndindex(*y.shape):
        seen = []
        for at in itertools.product(bins[0][p], bins[1][q]):
            if any(a < -1 or a > d for a, d in zip(at, x.shape[2:], strict=True)):
                seen.append([0.0])
                continue
            at = [min(max(a, 0), d - 1) for a, d in zip(at, x.shape[2:], strict=True)]
            low = [int(a) for a in at]
            seen.append([
                x[batch, c, min(low[0] + i, x.shape[2] - 1), min(low[1] + j, x.shape[3] - 1)]
                * abs(1 - i - (at[0] - low[0])) * abs(1 - j - (at[1] - low[1]))
                for i, j in np.ndindex(2, 2)
            ])  # fmt: skip
        fold = (
            (lambda s: sum(map(sum, s)) / len(s)) if mode == "avg" else (lambda s: max(map(max, s)))
        )
        y[c, p, q] = fold(seen) if seen else 0
    return y


ROIS = np.array([[0, 0.3, 4.1, 3.2], [-2, 1, 9, 5.5], [3, 3, 1, 1], [2, 2, 2.2, 2.1]], "f")


@pytest.mark.parametrize(
    ("mode", "ratio", "half"),
    [("avg", 0, True), ("avg", 2, False), ("max", 0, False), ("max", 2, True)],
)
def test_roi_align(mode, ratio, half):
    x, batch, size = normal(2, 2, 5, 6), np.array([0, 1, 1, 0]), (2, 3)
    how = {"mode": mode, "sampling_ratio": ratio, "output_height": 2, "output_width": 3}
    how["coordinate_transformation_mode"] = "half_pixel" if half else "output_half_pixel"
    wanted = [aligned(x, r, b, size, ratio, mode, half) for r, b in zip(ROIS, batch, strict=True)]
    model = [
        node("RoiAlign", *given, **how)
        for given in (map(typed_as, (x, ROIS, batch)), (x, ROIS, batch))
    ]
    for m, fed in zip(model, ({"x0": x, "x1": ROIS, "x2": batch}, {}), strict=True):
        np.testing.assert_allclose(js.run(m, fed)["y0"], wanted, 1e-4, 1e-5)
    if not half:
        del how["coordinate_transformation_mode"]
        np.testing.assert_allclose(
            run("RoiAlign", x, ROIS, batch, opset=10, **how), wanted, 1e-4, 1e-5
        )


def test_no_region():
    y = run("RoiAlign", normal(1, 2, 5, 5), np.zeros((0, 4), "f"), np.zeros(0, int), output_width=2)
    assert y.shape == (0, 2, 1, 2)


@pytest.mark.parametrize(
    ("op", "inputs", "how", "wanted", "requires"),
    [
        ("MaxRoiPool", (X4, "float32[R, 5]"), {"pooled_shape": [2, 3]}, "float32[R, C, 2, 3]", []),
        ("RoiAlign", (X4, "float32[R, 4]", "int64[7]"), {}, "float32[7, C, 1, 1]", ["R == 7"]),
        ("RoiAlign", ("float32", "float32", "int64[R]"), {"output_width": 3},
         "float32[R, Roi_channels, 1, 3]", []),
    ],
)  # fmt: skip
def test_types_are_formulas(op, inputs, how, wanted, requires):
    assert types(op, *inputs, **how) == [wanted]
    assert demands(op, *inputs, **how) == requires


@pytest.mark.parametrize(
    ("op", "inputs", "how", "says"),
    [
        ("MaxRoiPool", (X4, "float32[R, 4]"), {"pooled_shape": [2, 2]}, "4 is not 5"),
        ("MaxRoiPool", (X4, "float32[R, 5]"), {"pooled_shape": [2]}, "pooled_shape"),
        ("RoiAlign", (X4, "float32[6, 4]", "int64[7]"), {}, "6 is not 7"),
        ("RoiAlign", ("float32[N, C, L]", *ROI), {}, "rank 3, wants 4"),
        ("RoiAlign", (X4, *ROI), {"mode": "min"}, "mode is 'min', wants avg or max"),
        ("RoiAlign", (X4, *ROI), {"output_width": 0}, "output_width is 0"),
        ("RoiAlign", (X4, *ROI), {"sampling_ratio": -1}, "sampling_ratio is -1"),
    ],
)  # fmt: skip
def test_refused(op, inputs, how, says):
    with pytest.raises(js.ShapeError, match=says):
        js.trace(node(op, *inputs, **how))


@pytest.mark.parametrize("how", [{}, {"mode": "max"}, {"sampling_ratio": 2, "output_height": 3}])
def test_gradients(how):
    """Also where the number of points is data: without sampling_ratio."""
    model = node("RoiAlign", "float32[2, 2, 5, 6]", "float32[4, 4]", np.array([0, 1, 1, 0]), **how)
    change, slope = slopes(
        model, normal(2, 2, 5, 6), ROIS + np.array([0.03, 0.02, 0.07, 0.09], "f")
    )
    np.testing.assert_allclose(change, slope, 0.03, 1e-4)
