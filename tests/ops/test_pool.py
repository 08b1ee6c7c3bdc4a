"""Pools and MaxUnpool: values against NumPy, shapes as formulas, what is refused."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import node
from forms import demands, typed_as, types
from slopes import slopes

import jaxshape as js

RNG = np.random.default_rng(0)
NAN, INF = np.nan, np.inf


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(op, *inputs, static=(), outputs=1, **keywords) -> Any:
    """The outputs of one node on arrays; those at `static` are constants."""
    given = [None if x is None else np.asarray(x) for x in inputs]
    typed = [x if x is None or i in static else typed_as(x) for i, x in enumerate(given)]
    fed = {f"x{i}": x for i, x in enumerate(given) if x is not None and i not in static}
    made = js.run(node(op, *typed, outputs=outputs, **keywords), fed)
    return made["y0"] if outputs == 1 else list(made.values())


def pooled(
    x, kernel, fold, strides=None, pads=None, dilations=None, ceil_mode=0, counted=False
) -> Any:
    """Fold each window of x (N, C, *D), a list of (place in x or None for a pad, value)."""
    n = len(kernel)
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * 2 * n
    axes = []
    for i, d in enumerate(x.shape[2:]):
        starts, span = [], dilations[i] * (kernel[i] - 1) + 1
        start, end = -pads[i], d + pads[i + n]
        while start + span <= end or (ceil_mode and start + span - strides[i] < end and start < d):
            starts.append([p for j in range(kernel[i]) if (p := start + j * dilations[i]) < end])
            start += strides[i]
        axes.append(starts)
    y = np.zeros((*x.shape[:2], *map(len, axes)), np.float64)
    for place in np.ndindex(*y.shape):
        cells = itertools.product(*(axis[i] for axis, i in zip(axes, place[2:], strict=True)))
        inside = [(*place[:2], *c) if is_in(c, x.shape[2:]) else None for c in cells]
        seen = [(c, 0 if c is None else x[c]) for c in inside if counted or c is not None]
        y[place] = fold(seen) if seen else 0
    return y


def is_in(cell, shape):
    return all(0 <= c < d for c, d in zip(cell, shape, strict=True))


def average(seen):
    return sum(float(v) for _, v in seen) / len(seen)


def norm(p):
    return lambda seen: sum(abs(float(v)) ** p for _, v in seen) ** (1 / p)


def largest(seen):
    return max(v for _, v in seen)


def place_of_largest(shape):
    return lambda seen: np.ravel_multi_index(max(seen, key=lambda s: s[1])[0], shape)


WINDOWS = [
    ((7,), {"kernel_shape": (3,)}),
    ((7, 6), {"kernel_shape": (2, 3), "strides": (3, 2), "pads": (1, 2, 0, 1)}),
    ((7, 6), {"kernel_shape": (3, 2), "strides": (2, 3), "pads": (1, 0, 2, 1), "ceil_mode": 1}),
    (
        (5, 6),
        {"kernel_shape": (2, 2), "strides": (3, 4), "ceil_mode": 1},
    ),  # gaps, a part at the end
    ((4, 3), {"kernel_shape": (3, 2), "strides": (3, 3), "pads": (0, 0, 2, 1), "ceil_mode": 1}),
    ((8, 9), {"kernel_shape": (3, 2), "dilations": (2, 3), "pads": (1, 1, 2, 0)}),
    ((3, 9), {"kernel_shape": (2, 2), "dilations": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
    ((4, 5, 3), {"kernel_shape": (2, 3, 1), "strides": (2, 1, 2), "pads": (0, 1, 0, 1, 1, 0)}),
]


@pytest.mark.parametrize(("space", "how"), WINDOWS)
def test_windows(space, how):
    x = np.round(normal(2, 2, *space) * 2)  # with ties
    kernel, rest = how["kernel_shape"], {k: v for k, v in how.items() if k != "kernel_shape"}
    y, i = run("MaxPool", x, outputs=2, **how)
    assert i.dtype == np.int64
    np.testing.assert_array_equal(y, pooled(x, kernel, largest, **rest))
    np.testing.assert_array_equal(i, pooled(x, kernel, place_of_largest(x.shape), **rest))
    for counted in (False, True):
        y = run("AveragePool", x, count_include_pad=int(counted), **how)
        np.testing.assert_allclose(
            y, pooled(x, kernel, average, counted=counted, **rest), 1e-5, 1e-6
        )
    y = run("LpPool", x, p=3, **how)
    np.testing.assert_allclose(y, pooled(x, kernel, norm(3), **rest), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("auto_pad", "kernel", "stride", "pads"),
    [
        ("SAME_UPPER", 4, 1, (1, 2)),
        ("SAME_LOWER", 4, 1, (2, 1)),
        ("SAME_LOWER", 2, 2, (1, 0)),
        ("SAME_UPPER", 1, 3, (0, 0)),
        ("VALID", 3, 2, (0, 0)),
    ],
)
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_auto_pad(auto_pad, kernel, stride, pads, ceil_mode):
    x, how = normal(1, 1, 7), {"auto_pad": auto_pad, "count_include_pad": 1, "ceil_mode": ceil_mode}
    y = run("AveragePool", x, kernel_shape=(kernel,), strides=(stride,), **how)
    wanted = pooled(x, (kernel,), average, (stride,), pads, counted=True)
    np.testing.assert_allclose(y, wanted, 1e-5)


@pytest.mark.parametrize(
    ("op", "opset", "how", "wanted"),
    [
        ("AveragePool", 1, {"pads": [1, 1]}, [1, 1.5, 2.5, 3]),
        ("AveragePool", 7, {"pads": [1, 1], "count_include_pad": 1}, [0.5, 1.5, 2.5, 1.5]),
        ("AveragePool", 10, {"strides": [2], "ceil_mode": 1}, [1.5, 3]),
        ("MaxPool", 1, {"strides": [2]}, [2]),
        ("MaxPool", 8, {"pads": [1, 0]}, [1, 2, 3]),
        ("LpPool", 1, {"p": 1.0}, [3, 5]),
        ("LpPool", 2, {"p": 1}, [3, 5]),
    ],
)
def test_older_versions(op, opset, how, wanted):
    model = node(op, "float32[1, 1, 3]", kernel_shape=[2], **how)
    model.opset_import[0].version = opset
    y = js.run(model, {"x0": np.array([[[1, 2, 3]]], "f")})["y0"]
    np.testing.assert_allclose(y.ravel(), wanted)


def test_places_by_columns():
    x = normal(2, 3, 4, 5)
    _, rows = run("MaxPool", x, outputs=2, kernel_shape=(2, 2))
    _, columns = run("MaxPool", x, outputs=2, kernel_shape=(2, 2), storage_order=1)
    n, c, i, j = np.unravel_index(rows, x.shape)
    np.testing.assert_array_equal(columns, ((n * 3 + c) * 5 + j) * 4 + i)


@pytest.mark.parametrize(
    ("row", "wanted", "places"),
    [
        ([3, 3, 1, 1], [3, 3, 1], [0, 1, 2]),
        ([-INF, -INF, -INF, 0], [-INF, -INF, 0], [0, 1, 3]),
        ([INF, 1, NAN, 2], [INF, NAN, NAN], [0, 2, 2]),
    ],
)
def test_max_pool_of_ties_and_what_is_not_finite(row, wanted, places):
    y, i = run("MaxPool", np.array([[row]], "f"), outputs=2, kernel_shape=(2,))
    np.testing.assert_array_equal(y.ravel(), wanted)
    assert i.ravel().tolist() == places


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_max_pool_of_other_types(dtype, dilation):
    x = (normal(1, 2, 6) * 50).astype(np.int8 if dtype == "int8" else np.uint8).astype(dtype)
    y = run("MaxPool", x, kernel_shape=(2,), pads=(1, 1), dilations=(dilation,))
    assert y.dtype == x.dtype
    wanted = pooled(x.astype(int), (2,), largest, pads=(1, 1), dilations=(dilation,))
    np.testing.assert_array_equal(y.astype(int), wanted)


def test_half_precision_adds_up_in_float32():
    x = np.full((1, 1, 4096), 0.1, np.float16)
    for op, how, wanted in (("AveragePool", {}, 0.1), ("LpPool", {"p": 1}, 409.5)):
        y = run(op, x, kernel_shape=(4096,), **how)
        assert y.dtype == x.dtype
        np.testing.assert_allclose(y.ravel(), [wanted], 1e-3)


@pytest.mark.parametrize("space", [(), (5,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_over_all_of_space(space, dtype):
    x = normal(2, 3, *space).astype(dtype)
    flat = x.astype("d").reshape(2, 3, -1)
    shape = (2, 3, *(1,) * len(space))
    for op, how, wanted in (
        ("GlobalAveragePool", {}, flat.mean(2)),
        ("GlobalMaxPool", {}, flat.max(2)),
        ("GlobalLpPool", {}, np.sqrt((flat**2).sum(2))),
        ("GlobalLpPool", {"p": 3}, (abs(flat) ** 3).sum(2) ** (1 / 3)),
    ):
        y = run(op, x, **how)
        assert y.dtype == x.dtype and y.shape == shape
        np.testing.assert_allclose(y, wanted.reshape(shape), 2e-3 if dtype == "float16" else 1e-5)


# unpooled ---------------------------------------------------------------------


def test_max_unpool_undoes_max_pool():
    x = normal(2, 3, 4, 6)
    y, i = run("MaxPool", x, outputs=2, kernel_shape=(2, 3), strides=(2, 3))
    back = run("MaxUnpool", y, i, kernel_shape=(2, 3), strides=(2, 3))
    wanted = np.zeros_like(x)
    wanted.ravel()[i.ravel()] = y.ravel()
    np.testing.assert_array_equal(back, wanted)
    larger = np.array([2, 3, 5, 8])  # places count through the smallest size, as onnx's cases do
    grown = run("MaxUnpool", y, i, larger, static=(2,), kernel_shape=(2, 3), strides=(2, 3))
    np.testing.assert_array_equal(grown, np.pad(wanted, [(0, 0), (0, 0), (0, 1), (0, 2)]))


# types ------------------------------------------------------------------------

X4 = "float32[N, C, H, W]"
K2 = {"kernel_shape": [2, 2]}


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize(
    ("x", "how", "wanted", "requires"),
    [
        (X4, K2, "float32[N, C, H - 1, W - 1]", ["H >= 2", "W >= 2"]),
        (X4, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
         "float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]", []),
        (X4, {**K2, "strides": [2, 2], "ceil_mode": 1},
         "float32[N, C, (H - 1)//2 + 1, (W - 1)//2 + 1]", []),
        (X4, {**K2, "strides": [2, 3], "auto_pad": "SAME_UPPER"},
         "float32[N, C, (H - 1)//2 + 1, (W - 1)//3 + 1]", []),
        (X4, {**K2, "dilations": [2, 3], "pads": [1, 1, 1, 2]}, "float32[N, C, H, W]", []),
        ("float32", K2, "float32[Pool_batch, Pool_channels, Pool_size2, Pool_size3]", []),
        ("float16[N, C, 5]", {"kernel_shape": [2], "strides": [2]}, "float16[N, C, 2]", []),
    ],
)  # fmt: skip
def test_types_are_formulas(op, x, how, wanted, requires):
    assert types(op, x, **how) == [wanted]
    assert demands(op, x, **how) == requires
    if op == "MaxPool":
        assert types(op, x, outputs=2, **how)[1] == "int64" + wanted[7:]


@pytest.mark.parametrize(
    ("op", "inputs", "how", "wanted", "requires"),
    [
        ("GlobalMaxPool", (X4,), {}, "float32[N, C, 1, 1]", []),
        ("GlobalLpPool", ("float32[N, C]",), {}, "float32[N, C]", []),
        ("MaxUnpool", (X4, "int64[n, C, h, W]"), {**K2, "strides": [2, 2]},
         "float32[N, C, 2*H, 2*W]", ["N == n", "H == h"]),
        ("MaxUnpool", (X4, X4.replace("float32", "int64"), np.array([1, 2, 9, 9])), K2,
         "float32[1, 2, 9, 9]", ["N <= 1", "C <= 2", "H <= 8", "W <= 8"]),
        ("MaxUnpool", ("float32", "int64[N, C, L]"), {"kernel_shape": [2]},
         "float32[N, C, L + 1]", []),
    ],
)  # fmt: skip
def test_types_of_the_rest(op, inputs, how, wanted, requires):
    assert types(op, *inputs, **how) == [wanted]
    assert sorted(demands(op, *inputs, **how)) == sorted(requires)


PAIR = (X4, X4.replace("float32", "int64"))


@pytest.mark.parametrize(
    ("op", "inputs", "how", "says"),
    [
        ("MaxPool", (X4,), {"kernel_shape": [2]}, "rank 4, wants 3"),
        ("MaxPool", (X4,), {"kernel_shape": [2, 0]}, r"kernel_shape \(2, 0\) must be positive"),
        ("AveragePool", (X4,), {**K2, "strides": [1, 1, 1]}, r"strides \(1, 1, 1\) has 3 values"),
        ("AveragePool", (X4,), {**K2, "pads": [1]}, "pads .* wants 4"),
        ("AveragePool", ("float32[N, 2, 2]",), {"kernel_shape": [3]}, "axis 2 .* 2 is less than 3"),
        ("LpPool", (X4,), {**K2, "dilations": [-1, 1]}, "dilations"),
        ("LpPool", (X4,), {**K2, "p": 0}, "p is 0, wants a positive"),
        ("LpPool", (X4,), {**K2, "auto_pad": "SOME"}, "'SOME'"),
        ("GlobalAveragePool", ("float32[N]",), {}, "rank 1, wants at least 2"),
        ("MaxUnpool", (X4, "int64[N, C, H]"), K2, "i .* has rank 3, wants 4"),
        ("MaxUnpool", ("float32[1, 1, 2]", "int64[1, 1, 3]"), {"kernel_shape": [2]}, "2 is not 3"),
        ("MaxUnpool", (*PAIR, np.array([1, 1, 9])), K2, "3 is not 4"),
        ("MaxUnpool", (*PAIR, np.array([1, 1, 0, 9])), K2, "axis 2 of output_shape"),
    ],
)  # fmt: skip
def test_refused(op, inputs, how, says):
    with pytest.raises(js.ShapeError, match=says):
        js.trace(node(op, *inputs, **how))


@pytest.mark.parametrize(
    ("op", "how"),
    [
        ("MaxPool", {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1)}),
        ("MaxPool", {"kernel_shape": (3,), "dilations": (2,), "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": (3,), "dilations": (2,), "pads": (0, 1)}),
        ("LpPool", {"kernel_shape": (3,), "p": 3, "auto_pad": "SAME_LOWER"}),
        ("GlobalMaxPool", {}),
    ],
)
def test_gradients(op, how):
    change, slope = slopes(node(op, "float32[1, 2, 7]", **how), normal(1, 2, 7))
    np.testing.assert_allclose(change, slope, 0.03, 1e-4)


def test_norm_of_nothing_has_no_slope():
    f = js.to_jax(node("GlobalLpPool", "float32[1, 2, 3]"))
    grad = jax.grad(lambda x: jax.tree.leaves(f(x))[0].sum())(jnp.zeros((1, 2, 3)))
    assert not np.asarray(grad).any()
