"""Convolutions: values against sums over windows in NumPy, shapes as formulas, what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
from builders import node
from forms import demands, typed_as, types
from slopes import slopes

import jaxshape as js

RNG = np.random.default_rng(0)
W = np.zeros((8, 3, 3, 3), "f")
X4, X8 = "float32[N, 3, H, W]", "float32[N, 8, 2, 2]"
IMAGE = np.array([6, 7])


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(op, *inputs, static=(), **keywords) -> Any:
    """The first output of one node on arrays; those at `static` are constants."""
    given = [None if x is None else np.asarray(x) for x in inputs]
    typed = [x if x is None or i in static else typed_as(x) for i, x in enumerate(given)]
    fed = {f"x{i}": x for i, x in enumerate(given) if x is not None and i not in static}
    return js.run(node(op, *typed, **keywords), fed)["y0"]


def windows(x, kernel, strides=None, dilations=None, pads=None) -> Any:
    """The windows of x (N, C, *D) -> (N, C, *D', *K)."""
    n = len(kernel)
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * 2 * n
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)])
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, n + 2)))
    seen = seen[(..., *[slice(None, None, d) for d in dilations])]
    return seen[(slice(None), slice(None), *[slice(None, None, s) for s in strides])]


def convolved(x, w, group=1, strides=None, dilations=None, pads=None):
    n = w.ndim - 2
    seen = windows(x, w.shape[2:], strides, dilations, pads)
    seen = seen.reshape(len(x), group, -1, *seen.shape[2:])
    y = [
        np.tensordot(seen[:, g], part, ([1, *range(n + 2, 2 * n + 2)], [1, *range(2, n + 2)]))
        for g, part in enumerate(np.split(w, group))
    ]
    return np.moveaxis(np.concatenate(y, -1), -1, 1)


CASES = [
    (1, 1, {}),
    (1, 2, {"strides": (2,), "pads": (1, 2), "dilations": (2,)}),
    (2, 1, {"strides": (1, 2), "pads": (1, 0, 2, 1)}),
    (2, 3, {"dilations": (1, 2), "pads": (2, 2, 2, 2)}),
    (3, 1, {"strides": (2, 1, 1), "pads": (1, 0, 0, 0, 1, 2)}),
]


@pytest.mark.parametrize(("n", "group", "how"), CASES)
def test_conv(n, group, how):
    x, w = normal(2, 2 * group, *range(5, 5 + n)), normal(3 * group, 2, *range(2, 2 + n))
    b = normal(3 * group)
    wanted = convolved(x, w, group, **how) + b.reshape(-1, *(1,) * n)
    y = run("Conv", x, w, b, group=group, kernel_shape=w.shape[2:], **how)
    np.testing.assert_allclose(y, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_conv_in_other_floats(dtype):
    x, w = normal(1, 4, 9).astype(dtype), normal(2, 4, 3).astype(dtype)
    y = run("Conv", x, w)
    assert y.dtype == x.dtype
    rtol = {"float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(y.astype("d"), convolved(x.astype("d"), w.astype("d")), rtol, rtol)


def test_an_empty_batch():
    x, w = normal(0, 2, 5), normal(3, 2, 3)
    assert run("Conv", x, w).shape == (0, 3, 3)
    assert run("ConvTranspose", run("Conv", x, w), w).shape == (0, 2, 5)
    assert run("ConvInteger", np.zeros((0, 2, 5), "u1"), np.zeros((3, 2, 3), "u1")).shape[2] == 3
    assert run("DeformConv", x, w, normal(0, 3, 3)).shape == (0, 3, 3)
    image, block = np.array([4]), np.array([2])
    assert run("Col2Im", x[:, :, :3], image, block, static=(1, 2)).shape == (0, 1, 4)


@pytest.mark.parametrize(
    ("auto_pad", "kernel", "stride", "pads"),
    [
        ("SAME_UPPER", 4, 1, (1, 2)),
        ("SAME_LOWER", 4, 1, (2, 1)),
        ("SAME_UPPER", 3, 2, (1, 1)),
        ("SAME_LOWER", 2, 2, (1, 0)),
        ("SAME_UPPER", 1, 3, (0, 0)),  # less than nothing to pad
        ("VALID", 3, 2, (0, 0)),
        ("", 3, 2, (0, 0)),  # as some exporters write the default
    ],
)
def test_auto_pad(auto_pad, kernel, stride, pads):
    x, w = normal(1, 1, 7), normal(1, 1, kernel)
    how = {"strides": (stride,), "pads": pads}
    y = run("Conv", x, w, auto_pad=auto_pad, strides=(stride,))
    np.testing.assert_allclose(y, convolved(x, w, **how), 1e-4, 1e-5)
    assert auto_pad[:4] != "SAME" or y.shape[2] == -(-7 // stride)


FORMS = {  # (x, w), and what CPUs do in a form of their own
    "depthwise": ((2, 3, 9), (3, 1, 3), {"pads": (1, 2), "strides": (2,)}),
    "depthwise, cut and dilated": (
        (1, 4, 9, 8),
        (4, 1, 3, 2),
        {"pads": (-1, 1, 2, 0), "dilations": (2, 3)},
    ),
    "depthwise, several of each": ((2, 3, 5, 6), (6, 1, 2, 2), {"strides": (1, 2)}),
    "depthwise, in space": ((1, 2, 4, 5, 3), (2, 1, 2, 3, 1), {}),
    "depthwise, a large window": ((1, 2, 12, 12), (2, 1, 9, 9), {}),
    "depthwise, nothing": ((0, 3, 9), (3, 1, 3), {}),
    "one channel": ((2, 1, 5, 5), (4, 1, 3, 3), {}),
    "pointwise": ((2, 3, 4, 5), (4, 3, 1, 1), {}),
    "pointwise, padded and strided": ((2, 3, 9), (4, 3, 1), {"pads": (1, 2), "strides": (3,)}),
    "pointwise, cut": ((2, 3, 9), (4, 3, 1), {"pads": (-1, -2), "dilations": (2,)}),
    "pointwise, nothing": ((0, 3, 4), (4, 3, 1), {}),
    "pointwise by groups": ((2, 4, 3, 3), (6, 2, 1, 1), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_convolution(form):
    """Values, gradients and a batch of batches as XLA's own convolution gives them."""
    xs, ws, how = FORMS[form]
    group, n = xs[1] // ws[1], len(xs) - 2
    x, w = normal(*xs), normal(*ws)
    pads = how.get("pads", (0,) * 2 * n)

    def own(x, w):
        pairs = list(zip(pads[:n], pads[n:], strict=True))
        around = [(0, 0, 0), (0, 0, 0), *((*p, 0) for p in pairs)]
        return jax.lax.conv_general_dilated(
            jax.lax.pad(x, np.float32(0), around), w, how.get("strides", (1,) * n), "VALID",
            rhs_dilation=how.get("dilations"), feature_group_count=group,
        )  # fmt: skip

    f = js.to_jax(node("Conv", typed_as(x), typed_as(w), group=group, **how))
    batch = np.stack([x, 2 * x])
    for g in (f, lambda x, w: jax.vmap(f, (0, None))(batch, w)[0]):
        np.testing.assert_allclose(g(x, w), own(x, w), rtol=1e-5, atol=1e-5)
    weights = normal(*own(x, w).shape)
    slopes = [jax.grad(lambda x, w: (h(x, w) * weights).sum(), (0, 1))(x, w) for h in (f, own)]  # noqa: B023
    for got, want in zip(*slopes, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["depthwise", "pointwise"])
def test_on_an_explicit_mesh(form):
    """There the sharding is part of a type, and each form gives one of its own."""
    xs, ws, how = FORMS[form]
    x, w = normal(*xs), normal(*ws)
    f = js.to_jax(node("Conv", typed_as(x), w, group=xs[1] // ws[1], **how))
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.PartitionSpec("data")
    with jax.set_mesh(mesh):
        y = jax.jit(f)(jax.device_put(x, jax.sharding.NamedSharding(mesh, spec)))
    np.testing.assert_allclose(y, f(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "group", "how"), CASES)
def test_conv_integer_is_exact(n, group, how):
    x = RNG.integers(0, 256, (2, 2 * group, *range(5, 5 + n))).astype(np.uint8)
    w = RNG.integers(-128, 128, (3 * group, 2, *range(2, 2 + n))).astype(np.int8)
    zero, zeros = np.uint8(200), RNG.integers(-128, 128, 3 * group).astype(np.int8)
    y = run("ConvInteger", x, w, zero, zeros, group=group, **how)
    less = w.astype(int) - zeros.reshape(-1, *(1,) * (n + 1))
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, convolved(x.astype(int) - 200, less, group, **how))


@pytest.mark.parametrize(("n", "group", "how"), CASES)
def test_conv_transpose_is_the_gradient_of_conv(n, group, how):
    x, w = normal(2, 2 * group, *range(6, 6 + n)), normal(3 * group, 2, *range(2, 2 + n))
    conv = js.to_jax(node("Conv", typed_as(x), typed_as(w), group=group, **how))
    y, pull = jax.vjp(lambda x: first(conv, x, w), x)
    (wanted,) = pull(y)
    strides, dilations = (how.get(k, (1,) * n) for k in ("strides", "dilations"))
    reach = [
        s * (d - 1) + t * (k - 1) + 1
        for s, d, t, k in zip(strides, y.shape[2:], dilations, w.shape[2:], strict=True)
    ]
    pads = how.get("pads", (0,) * 2 * n)
    extra = [
        d - r + a + b for d, r, a, b in zip(x.shape[2:], reach, pads[:n], pads[n:], strict=True)
    ]
    got = run("ConvTranspose", y, w, group=group, output_padding=extra, **how)
    np.testing.assert_allclose(got, wanted, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({}, [1, 10, 102, 20, 203, 30, 304, 40, 400]),
        ({"auto_pad": "SAME_UPPER"}, [1, 10, 102, 20, 203, 30, 304, 40]),
        ({"auto_pad": "SAME_LOWER"}, [10, 102, 20, 203, 30, 304, 40, 400]),
        ({"auto_pad": "VALID", "output_padding": [1]}, [1, 10, 102, 20, 203, 30, 304, 40, 400, 0]),
        ({"output_shape": [7]}, [10, 102, 20, 203, 30, 304, 40]),
        ({"output_shape": [1, 1, 6]}, [102, 20, 203, 30, 304, 40]),
        ({"auto_pad": "SAME_UPPER", "output_shape": [8]}, [1, 10, 102, 20, 203, 30, 304, 40]),
        ({"output_shape": [11]}, [1, 10, 102, 20, 203, 30, 304, 40, 400, 0, 0]),
        ({"pads": [3, 2]}, [20, 203, 30, 304]),  # more than the kernel reaches
    ],
)
def test_conv_transpose_sizes(how, wanted):
    x, w = np.array([[[1, 2, 3, 4]]], "f"), np.array([[[1, 10, 100]]], "f")
    assert run("ConvTranspose", x, w, strides=[2], **how).ravel().tolist() == wanted


def test_deform_conv_without_offset_is_conv():
    x, w, b = normal(2, 4, 5, 6), normal(6, 2, 3, 2), normal(6)
    how = {"strides": (1, 2), "pads": (1, 0, 2, 1), "dilations": (1, 2)}
    wanted = convolved(x, w, 2, **how) + b.reshape(-1, 1, 1)
    offset = np.zeros((2, 2 * 6 * 2, *wanted.shape[2:]), "f")
    y = run("DeformConv", x, w, offset, b, group=2, offset_group=2, **how)
    np.testing.assert_allclose(y, wanted, 1e-4, 1e-5)
    half = np.full((2, 2 * 6, *wanted.shape[2:]), 0.5, "f")
    y = run("DeformConv", x, w, offset, None, half, group=2, offset_group=2, **how)
    np.testing.assert_allclose(y, convolved(x, w, 2, **how) / 2, 1e-4, 1e-5)


def test_deform_conv_interpolates_and_is_0_outside():
    # one tap on a ramp in three axes: the value is the coordinate, as far as there is data
    at = np.indices((4, 5, 6)).astype("f")
    x = (at * np.array([100, 10, 1]).reshape(-1, 1, 1, 1)).sum(0).reshape(1, 1, 4, 5, 6)
    offset = np.zeros((1, 3, 4, 5, 6), "f")
    offset[:, 0], offset[:, 2] = 0.25, -0.5
    y = run("DeformConv", x.astype("f"), np.ones((1, 1, 1, 1, 1), "f"), offset)
    np.testing.assert_allclose(y[0, 0, :3, :, 1:], x[0, 0, :3, :, 1:] + 24.5, 1e-5)
    np.testing.assert_allclose(y[0, 0, 3, :, 1:], (x[0, 0, 3, :, 1:] - 0.5) * 0.75, 1e-5)
    offset[:] = 1e6
    assert not run("DeformConv", x.astype("f"), np.ones((1, 1, 1, 1, 1), "f"), offset).any()


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
@pytest.mark.parametrize(
    ("image", "block", "how"),
    [
        ((7,), (3,), {"strides": (2,)}),
        ((5, 6), (2, 3), {"dilations": (2, 1), "pads": (1, 0, 0, 2)}),
        ((3, 4, 5), (2, 1, 2), {"strides": (1, 3, 2), "pads": (0, 1, 0, 1, 1, 0)}),
    ],
)
def test_col2im(image, block, how, dtype):
    n = len(image)
    places = np.arange(np.prod(image)).reshape(1, 1, *image) + 1  # 0 is a pad
    seen = windows(places, block, **how)[0, 0]
    seen = np.moveaxis(seen, range(n, 2 * n), range(n)).reshape(np.prod(block), -1)
    x = RNG.integers(0, 2, (2, 3, *seen.shape)).astype(dtype)
    wanted = np.zeros((2, 3, places.size + 1), dtype)
    for at in np.ndindex(2, 3):
        np.add.at(wanted[at], seen, x[at])
    flat = x.reshape(2, -1, seen.shape[1])
    y = run("Col2Im", flat, np.array(image), np.array(block), static=(1, 2), **how)
    assert y.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(y, wanted[..., 1:].reshape(2, 3, *image))


@pytest.mark.parametrize(
    ("op", "inputs", "how", "wanted", "requires"),
    [
        ("Conv", ("float32[N, C, H, W]", W), {"pads": [1] * 4, "strides": [2, 2]},
         "float32[N, 8, (H - 1)//2 + 1, (W - 1)//2 + 1]", ["C == 3"]),
        ("Conv", (X4, W), {}, "float32[N, 8, H - 2, W - 2]", ["H >= 3", "W >= 3"]),
        ("Conv", (X4, W), {"auto_pad": "SAME_LOWER", "strides": [2, 1]},
         "float32[N, 8, (H - 1)//2 + 1, W]", []),
        ("Conv", ("float32[N, 6, L]", "float32[M, c, k]"), {"group": 2},
         "float32[N, M, L - k + 1]", ["c == 3", "M % 2 == 0", "L >= k"]),
        ("Conv", (X4, "float32"), {"kernel_shape": [3, 3], "pads": [1] * 4},
         "float32[N, Conv_channels, H, W]", []),
        ("Conv", ("float32[N, 3, L]", "float32", "float32[M]"), {},
         "float32[N, M, L - Conv_kernel + 1]", ["L >= Conv_kernel"]),
        ("Conv", ("float32", W), {}, "float32[Conv_batch, 8, Conv_size2, Conv_size3]", []),
        ("Conv", ("float32", "float32"), {}, "float32[...]", []),
        ("ConvInteger", ("uint8[N, 3, L]", "int8[8, 3, 3]", "uint8[]", "int8[8]"), {"pads": [1, 1]},
         "int32[N, 8, L]", []),
        ("ConvTranspose", ("float32[N, 8, H, W]", W), {"strides": [2, 2], "pads": [1] * 4},
         "float32[N, 3, 2*H - 1, 2*W - 1]", []),
        ("ConvTranspose", ("float32[N, C, H, W]", W),
         {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 3]},
         "float32[N, 12, 2*H, 3*W]", ["C == 8"]),
        ("ConvTranspose", ("float32[N, 8, H, W]", W), {"pads": [2] * 4},
         "float32[N, 3, H - 2, W - 2]", ["H >= 3", "W >= 3"]),
        ("ConvTranspose", ("float32[N, 8, H, W]", W), {"output_shape": [5, 6]},
         "float32[N, 3, 5, 6]", []),
        ("DeformConv", (X4, W, "float32[n, 18, h, w]"), {"pads": [1] * 4},
         "float32[N, 8, H, W]", ["N == n", "H == h", "W == w"]),
        ("Col2Im", ("float32[N, C, L]", np.array([6, 7]), np.array([2, 2])), {},
         "float32[N, C//4, 6, 7]", ["C % 4 == 0", "L == 30"]),
        ("Col2Im", ("float32[N, C, L]", "int64[2]", np.array([1, 1])), {"strides": [2, 2]},
         "float32[N, C, x1_0, x1_1]", None),
        ("Col2Im", ("float32[N, C, L]", "int64[n]", "int64[m]"), {"strides": [1, 1, 1]},
         "float32[N, Col2Im_channels, Col2Im_size, Col2Im_size_1, Col2Im_size_2]", None),
    ],
)  # fmt: skip
def test_types_are_formulas(op, inputs, how, wanted, requires):
    assert types(op, *inputs, **how) == [wanted]
    if requires is not None:
        assert sorted(demands(op, *inputs, **how)) == sorted(requires)


@pytest.mark.parametrize(
    ("op", "inputs", "how", "says"),
    [
        ("Conv", ("float32[N, 4, H, W]", W), {}, r"x \(N, 4, H, W\) and w \(8, 3, 3.*: 4 is not 3"),
        ("Conv", ("float32[N, 3, H]", W), {}, "rank 4, wants 3"),
        ("Conv", ("float32[N, 3]", W), {}, "rank 2, wants at least 3"),
        ("Conv", (X4, W), {"strides": [1]}, r"strides \(1,\) has 1 values, wants 2"),
        ("Conv", (X4, W), {"dilations": [1, 0]}, r"dilations \(1, 0\) must be positive"),
        ("Conv", (X4, W), {"pads": [1, 1]}, "pads .* wants 4"),
        ("Conv", (X4, W), {"kernel_shape": [3, 5]}, r"kernel_shape \(3, 5\): 3 is not 5"),
        ("Conv", (X4, W), {"kernel_shape": [3]}, "rank 4, wants 3"),
        ("Conv", (X4, W), {"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
        ("Conv", (X4, W), {"group": 0}, "group is 0"),
        ("Conv", ("float32[N, 6, H, W]", np.zeros((7, 3, 1, 1), "f")), {"group": 2}, "7"),
        ("Conv", (X4, W, "float32[7]"), {}, "8 is not 7"),
        ("Conv", (X4, W, "float32[7, 1]"), {}, "rank 2, wants 1"),
        ("Conv", ("float32[1, 3, 2, 5]", W), {}, "a window of 3: 2 is less than 3"),
        ("ConvInteger", ("int8[N, 3, 5]", "int8[8, 3, 3]", "int8[2]"), {}, "x_zero_point: 2"),
        ("ConvInteger", ("int8[N, 3, 5]", "int8[8, 3, 3]", None, "int8[7]"), {}, "7 is not 8"),
        ("ConvTranspose", (X4, W), {}, "3 is not 8"),
        ("ConvTranspose", (X8, W), {"pads": [2] * 4}, "axis 2 of the result"),
        ("ConvTranspose", (X8, W), {"output_padding": [1, 0]}, "less than the stride"),
        ("ConvTranspose", (X8, W), {"output_shape": [1]}, "output_shape .* wants 2"),
        ("DeformConv", (X4, W, "float32[N, 17, h, w]"), {}, "17 is not 18"),
        ("DeformConv", (X4, W, "float32", None, "float32[N, 8, h, w]"), {}, "8 is not 9"),
        ("DeformConv", (X4, W, "float32[N, 36, h, w]"), {"offset_group": 2}, "3"),
        ("Col2Im", ("float32[N, 20, 31]", IMAGE, np.array([2, 2])), {}, "31 is not 30"),
        ("Col2Im", ("float32[N, 21, 30]", IMAGE, np.array([2, 2])), {}, "21 is no multiple of 4"),
        ("Col2Im", ("float32[N, 20, 30]", IMAGE, np.array([2])), {}, "2 is not 1"),
        ("Col2Im", ("float32[N, 20]", IMAGE, np.array([2, 2])), {}, "rank 2, wants 3"),
        ("Col2Im", ("float32[N, 32, 30]", IMAGE, np.array([2, 8])), {}, "7 is less than 8"),
    ],
)  # fmt: skip
def test_refused(op, inputs, how, says):
    with pytest.raises(js.ShapeError, match=says):
        js.trace(node(op, *inputs, **how))


@pytest.mark.parametrize(
    ("op", "shapes", "how"),
    [
        ("Conv", [(1, 4, 5, 5), (6, 2, 3, 3), (6,)],
         {"group": 2, "strides": (2, 1), "pads": (1, 0, 2, 1)}),
        ("ConvTranspose", [(1, 4, 3, 3), (4, 3, 3, 3), (6,)],
         {"group": 2, "strides": (2, 1), "pads": (3, 0, 1, 1)}),
        ("DeformConv", [(1, 4, 4, 4), (2, 2, 2, 2), (1, 16, 3, 3), (2,), (1, 8, 3, 3)],
         {"group": 2, "offset_group": 2}),
    ],
)  # fmt: skip
def test_gradients(op, shapes, how):
    typed = [f"float32[{', '.join(map(str, s))}]" for s in shapes]
    change, slope = slopes(node(op, *typed, **how), *[normal(*s) for s in shapes])
    np.testing.assert_allclose(change, slope, 0.03, 3e-4)


def first(f, *args):
    return jax.tree.leaves(f(*args))[0]
