"""Normalising layers and Dropout: what the official cases leave out."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builders import node
from close import check
from forms import demands, types
from layers import layer, refused
from slopes import slopes

import jaxshape as js

RNG = np.random.default_rng(0)
F, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16


def normal(*shape, dtype: Any = np.float32):
    return RNG.normal(size=shape).astype(dtype)


def standard(x, axes, eps=1e-5):
    x = x.astype(np.float64)
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + eps), mean


def on_channels(v, x):
    return v.reshape(-1, *(1,) * (x.ndim - 2)).astype(np.float64)


# BatchNormalization -------------------------------------------------------------------------------

VERSIONS = [(1, {"consumed_inputs": [0] * 5}), (6, {}), (7, {}), (9, {}), (14, {}), (15, {})]


@pytest.mark.parametrize(("opset", "extra"), VERSIONS)
@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (0, 3)])
def test_batchnorm_in_use(opset, extra, shape):
    x, c = normal(*shape), (*shape, 1, 1)[1] if len(shape) > 1 else 1
    scale, b, mean, var = (normal(c) for _ in range(4))
    var = abs(var) + 1
    wide = [on_channels(v, x) if x.ndim > 1 else v.astype(float) for v in (scale, b, mean, var)]
    wanted = (x - wide[2]) / np.sqrt(wide[3] + 1e-3) * wide[0] + wide[1]
    extra = extra | ({"is_test": 1} if opset < 7 else {})
    inputs = [x, scale, b, mean, var]
    layer(
        "BatchNormalization", *inputs, wanted=wanted.astype(F), opset=opset, epsilon=1e-3, **extra
    )


@pytest.mark.parametrize(("opset", "extra"), VERSIONS)
def test_batchnorm_in_training(opset, extra):
    dtype = F16 if opset > 14 else F
    x, (scale, b) = normal(2, 3, 4, dtype=dtype), (normal(3, dtype=dtype) for _ in range(2))
    mean, var = normal(3), abs(normal(3))
    y, _ = standard(x, (0, 2))
    y = (y * on_channels(scale, x) + on_channels(b, x)).astype(dtype)
    now, spread = x.astype(np.float64).mean((0, 2)), x.astype(np.float64).var((0, 2))
    stats = [0.8 * mean + 0.2 * now, 0.8 * var + 0.2 * spread, now, spread]
    wanted = [y, *(s.astype(F) for s in stats[: 2 if opset > 9 else 4])]
    layer(
        "BatchNormalization", x, scale, b, mean, var, wanted=wanted, opset=opset, momentum=0.8,
        outputs=len(wanted), rtol=2e-3 if dtype == F16 else 1e-5,
        **extra | ({"training_mode": 1} if opset > 9 else {}),
    )  # fmt: skip


def test_batchnorm_not_spatial():
    x, rest = normal(4, 3, 2), [abs(normal(3, 2)) for _ in range(4)]
    scale, b, mean, var = rest
    wanted = (x - mean) / np.sqrt(var + F(1e-5)) * scale + b
    layer("BatchNormalization", x, *rest, wanted=wanted, opset=7, spatial=0)


# the others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F, np.float64, F16, BF16])
@pytest.mark.parametrize("opset", [1, 6, 22])
def test_instance_norm(opset, dtype):
    x, scale, b = normal(2, 3, 4, 2, dtype=dtype), normal(3, dtype=dtype), normal(3, dtype=dtype)
    wanted = standard(x, (2, 3))[0] * on_channels(scale, x) + on_channels(b, x)
    rtol = 2e-2 if dtype in (F16, BF16) else 1e-5
    layer("InstanceNormalization", x, scale, b, wanted=wanted.astype(dtype), opset=opset, rtol=rtol)


@pytest.mark.parametrize("opset", [18, 21])
def test_group_norm(opset):
    x, n = normal(2, 6, 4), 3 if opset == 18 else 6
    scale, b = normal(n), normal(n)
    y = standard(x.reshape(2, 3, 2, 4), (2, 3))[0].reshape(x.shape)
    wide = [on_channels(np.repeat(v, 6 // n), x) for v in (scale, b)]
    wanted = (y * wide[0] + wide[1]).astype(F)
    layer("GroupNormalization", x, scale, b, wanted=wanted, opset=opset, num_groups=3)


@pytest.mark.parametrize(
    ("axis", "scale", "b"),
    [(-1, (4,), (4,)), (1, (3, 4), None), (1, (1, 4), (4,)), (-3, (2, 3, 4), (1,)), (2, (), ())],
)
@pytest.mark.parametrize("dtype", [F, np.float64, BF16])
def test_layer_norm(axis, scale, b, dtype):
    x, scale = normal(2, 3, 4, dtype=dtype), np.asarray(normal(*scale), dtype)
    b = None if b is None else np.asarray(normal(*b), dtype)
    axes = tuple(range(axis % 3, 3))
    y, mean = standard(x, axes)
    inverse = 1 / np.sqrt(x.astype(np.float64).var(axes, keepdims=True) + 1e-5)
    y = y * scale.astype(np.float64) + (0 if b is None else b.astype(np.float64))
    wanted = [y.astype(dtype), mean.astype(F), inverse.astype(F)]
    rtol = 2e-2 if dtype in (F16, BF16) else 1e-5
    inputs = [x, scale] if b is None else [x, scale, b]
    layer("LayerNormalization", *inputs, wanted=wanted, outputs=3, axis=axis, rtol=rtol)


def test_layer_norm_keeps_what_cancels():
    x = np.array([[10000, 10001, 10002]], F)  # a difference of squares has no digit of its variance
    y = np.array([[-1.5, 0, 1.5]]) / np.sqrt(1.5)
    layer("LayerNormalization", x, np.ones(3, F), wanted=y.astype(F), rtol=1e-4)


def test_rms_norm():
    x, scale = normal(2, 3, 4, dtype=F16), normal(3, 4)
    square = (x.astype(np.float64) ** 2).mean((1, 2), keepdims=True)
    wanted = (x / np.sqrt(square + 1e-5) * scale).astype(F)
    layer("RMSNormalization", x, scale, wanted=wanted, axis=1)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_norm(p, axis):
    x = normal(2, 3, 4)
    x[:, 1, :] = x[1] = 0  # a norm of 0 gives 0
    norm = np.linalg.norm(x, p, axis, keepdims=True)
    check("LpNormalization", [x], np.where(norm, x / np.where(norm, norm, 1), 0), p=p, axis=axis)


@pytest.mark.parametrize("size", [1, 2, 5, 10**9])
@pytest.mark.parametrize("shape", [(2, 7, 3), (1, 0, 2), (2, 3)])
def test_lrn(size, shape):
    x, c = normal(*shape), shape[1]
    before, after = (size - 1) // 2, size // 2
    around = [(x[:, max(0, i - before) : min(c, i + after + 1)] ** 2).sum(1) for i in range(c)]
    squares = np.stack(around, 1) if c else x
    wanted = x / (2 + 0.5 / size * squares) ** 0.6
    layer("LRN", x, wanted=wanted.astype(F), size=size, alpha=0.5, beta=0.6, bias=2.0)


C2 = (np.array([1, 2], F), np.array([3, 4], F))  # a scale and a bias for two channels
STAT = (np.array([0.5, -1], F), np.array([2, 3], F))
SLOPES = [
    ("LRN", (), {"size": 3}),
    ("LpNormalization", (), {"p": 1}),
    ("LpNormalization", (), {"p": 2}),
    ("MeanVarianceNormalization", (), {"axes": (0, 2)}),
    ("InstanceNormalization", C2, {}),
    ("GroupNormalization", C2, {"num_groups": 1}),
    ("BatchNormalization", (*C2, *STAT), {}),
    ("LayerNormalization", (normal(3), normal(3)), {}),
    ("RMSNormalization", (normal(3),), {}),
]


@pytest.mark.parametrize(("op", "parameters", "attributes"), SLOPES)
def test_gradients(op, parameters, attributes):
    given, x = [*parameters], normal(2, 2, 3)
    change, told = slopes(node(op, *["float32[...]"] * (1 + len(given)), **attributes), x, *given)
    np.testing.assert_allclose(told, change, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("axes", [None, (0, 1, 2, 3), (-1,)])
def test_mvn(axes):
    x = normal(2, 3, 4, 5)
    wanted = standard(x, axes or (0, 2, 3), 0)[0].astype(F)
    layer("MeanVarianceNormalization", x, wanted=wanted, axes=axes)
    layer("MeanVarianceNormalization", x, wanted=wanted, axes=axes, opset=9)


# Dropout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opset", "mask", "attributes"),
    [(1, F, {"is_test": 1}), (6, F, {"is_test": 1}), (7, F, {}), (10, bool, {}), (12, bool, {})],
)
def test_dropout_in_use_changes_nothing(opset, mask, attributes):
    x = normal(2, 3)
    layer("Dropout", x, wanted=[x, np.ones(x.shape, mask)], outputs=2, opset=opset, **attributes)


@pytest.mark.parametrize("dtype", [F, ml_dtypes.float8_e5m2])
def test_dropout_in_training(dtype):
    x = np.ones((50, 40), dtype)
    ratio, on = np.array(0.25, dtype), np.array(True)
    y, kept = layer("Dropout", x, ratio, on, outputs=2, seed=3)
    assert 0.7 < kept.mean() < 0.8 and kept.dtype == bool
    np.testing.assert_array_equal(y, np.where(kept, np.asarray(4 / 3, dtype), 0).astype(dtype))
    again = layer("Dropout", x, ratio, on, wanted=[y, kept], outputs=2, seed=3)
    other = layer("Dropout", x, ratio, on, outputs=2, seed=4)
    assert (again[1] == kept).all() and (other[1] != kept).any()


def test_dropout_up_to_opset_6_trains_unless_told():
    x = np.ones((40, 40), F)
    y, kept = layer("Dropout", x, outputs=2, opset=6)
    assert kept.dtype == F and 0.4 < kept.mean() < 0.6
    np.testing.assert_array_equal(y, 2 * kept)


def test_dropout_that_learns_its_mode_late():
    x = np.ones((3, 4), F)
    inputs = "float32[3, 4]", "float32[]", "bool[]"
    for on in (True, False):
        feed = {"x0": x, "x1": np.array(0.0, F), "x2": np.array(on)}
        y, kept = js.run(node("Dropout", *inputs, outputs=2), feed).values()
        assert kept.all() and (y == x).all()


# types --------------------------------------------------------------------------------------------

C = "float32[c]"


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted", "requires"),
    [
        ("LayerNormalization", ("float16[a, b, c]", "float16[b, 1]"), {"axis": 1, "stash_type": 16},
         ("float16[a, b, c]", "bfloat16[a, 1, 1]", "bfloat16[a, 1, 1]"), []),
        ("LayerNormalization", ("float32[a, b]", "float32[4]"), {},
         ("float32[a, 4]", "float32[a, 1]", "float32[a, 1]"), ["b == 4"]),
        ("RMSNormalization", ("float16[a, b]", "float32[b]"), {}, ("float32[a, b]",), []),
        ("GroupNormalization", ("float32[n, c, h]", C, C), {"num_groups": 4},
         ("float32[n, c, h]",), ["c % 4 == 0"]),
        ("GroupNormalization", ("float32[n, c, h]", "float32[g]", "float32[g]"),
         {"num_groups": 4, "opset": 18}, ("float32[n, c, h]",), ["c % 4 == 0", "g == 4"]),
        ("InstanceNormalization", ("float32[n, 3]", C, C), {}, ("float32[n, 3]",), ["c == 3"]),
        ("BatchNormalization", ("float16[n, c]", *["float16[c]"] * 2, C, C),
         {"training_mode": 1}, ("float16[n, c]", C, C), []),
        ("BatchNormalization", ("float32[n]", C, C, C, C), {}, ("float32[n]",), ["c == 1"]),
        ("LRN", ("float32[n, c, h]",), {"size": 3}, ("float32[n, c, h]",), []),
        ("Dropout", ("float32",), {}, ("float32[...]", "bool[...]"), []),
        ("Dropout", ("float16[a]",), {"opset": 7}, ("float16[a]", "float16[a]"), []),
    ],
)  # fmt: skip
def test_types(op, inputs, attributes, wanted, requires):
    assert types(op, *inputs, outputs=len(wanted), **attributes) == list(wanted)
    assert sorted(demands(op, *inputs, outputs=len(wanted), **attributes)) == requires


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("BatchNormalization", ("2, 3, 4", "4", "3", "3", "3"), {}, "scale (4) must be (3)"),
        ("BatchNormalization", ("", "1", "1", "1", "1"), {}, "X () has rank 0, wants at least 1"),
        ("BatchNormalization", ("2, 3", *["3"] * 4), {"outputs": 3}, "training_mode is 0"),
        ("BatchNormalization", ("2, 3", *["3"] * 4), {"outputs": 2, "opset": 9}, "1 or 5 outputs"),
        ("InstanceNormalization", ("2, 3, 4", "3", "3, 1"), {}, "B (3, 1) has rank 2, wants 1"),
        ("GroupNormalization", ("2, 6, 4", "6", "6"), {"num_groups": 4}, "6 is no multiple of 4"),
        ("GroupNormalization", ("2, 6, 4", "6", "6"), {"num_groups": 0}, "wants at least 1"),
        ("LayerNormalization", ("2, 3, 5", "4"), {}, "Scale (4) must broadcast to (2, 3, 5)"),
        ("LayerNormalization", ("2, 3", "3"), {"axis": 2}, "axis 2 is"),
        ("LayerNormalization", ("2, 3", "3"), {"stash_type": 7}, "stash_type is 7"),
        ("LpNormalization", ("",), {}, "axis -1 is"),
        ("LpNormalization", ("2",), {"p": 3}, "p is 3, wants 1 or 2"),
        ("LRN", ("2",), {"size": 3}, "X (2) has rank 1, wants at least 2"),
        ("LRN", ("2, 3",), {"size": 0}, "size is 0"),
        ("MeanVarianceNormalization", ("2, 3, 4",), {}, "axis 3 is"),
        ("Dropout", ("2", "2"), {}, "ratio is one element: 2 is not 1"),
    ],
)
def test_errors(op, inputs, attributes, says):
    assert says in refused(op, *[f"float32[{i}]" for i in inputs], **attributes)
