"""Attention and what stands beside it: what the official cases leave out."""

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from builders import node
from close import check
from forms import demands, types
from layers import layer, refused
from onnx import helper

import jaxshape as js

RNG = np.random.default_rng(0)
F, BF16 = np.float32, ml_dtypes.bfloat16
INF = np.inf


def normal(*shape, dtype: Any = np.float32):
    return np.asarray(RNG.normal(size=shape), dtype)


def by_loops(q, k, v, bias=None, past=(), scale=None, softcap=0.0, group=1):
    """y and the scores at four stages, of q (N, H, S, E), k, v (N, Hkv, K, E), by definition."""
    if past:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    raw = q.astype(np.float64) @ k.swapaxes(2, 3) * (scale or 1 / math.sqrt(q.shape[3]))
    capped = softcap * np.tanh(raw / softcap) if softcap else raw
    bias = np.broadcast_to(0.0 if bias is None else bias, raw.shape)
    biased, p = capped + bias, np.zeros_like(raw)
    for row in np.ndindex(raw.shape[:3]):
        if (bias[row] > -INF).any():
            e = np.exp(biased[row] - biased[row].max())
            p[row] = e / e.sum()
    return p @ v, (raw, capped, biased, p)


def packed(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


Q, K, V = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
PK, PV = normal(2, 2, 2, 8), normal(2, 2, 2, 6)


@pytest.mark.parametrize(("mode", "past"), [(0, False), (1, True), (2, False), (3, True)])
def test_every_output(mode, past):
    keys = 7 if past else 5
    mask, cache = normal(3, keys), (PK, PV) if past else ()
    y, stages = by_loops(Q, K, V, mask, cache, softcap=1.5, group=2)
    k, v = (np.concatenate([PK, K], 2), np.concatenate([PV, V], 2)) if past else (K, V)
    wanted = [y.astype(F), k, v, stages[mode].astype(F)]
    rest = {"softcap": 1.5, "qk_matmul_output_mode": mode, "outputs": 4}
    layer("Attention", Q, K, V, mask, *cache, wanted=wanted, **rest)
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    wanted[0] = packed(wanted[0])
    layer("Attention", *map(packed, (Q, K, V)), mask, *cache, wanted=wanted, **heads, **rest)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((5,), bool),
        ((3, 5), bool),
        ((1, 5), F),
        ((4, 3, 5), F),
        ((2, 1, 3, 5), bool),
        ((3, 2), bool),
        ((4, 1, 2), F),
    ],
)
def test_masks_of_every_rank(shape, kind):
    mask = RNG.random(shape) < 0.6 if kind is bool else normal(*shape)
    bias = np.where(mask, 0, -INF) if kind is bool else mask
    if shape[-1] < 5:  # shorter: what follows may not be attended
        pads = [(0, 0)] * (len(shape) - 1) + [(0, 5 - shape[-1])]
        bias = np.pad(bias, pads, constant_values=-INF)
    y, _ = by_loops(Q, K, V, bias, group=2)
    layer("Attention", Q, K, V, mask, wanted=y.astype(F), opset=24)


def test_a_mask_of_one_column_broadcasts_before_opset_24():
    mask = np.array([[True], [False], [True]])
    y, _ = by_loops(Q, K, V, np.where(mask, 0, -INF), group=2)
    layer("Attention", Q, K, V, mask, wanted=y.astype(F), opset=23)


@pytest.mark.parametrize(
    ("causal", "left", "right"), [(1, -1, -1), (0, 2, 1), (1, 0, 1), (0, -1, 0)]
)
@pytest.mark.parametrize("cache", ["none", "past", "padded"])
def test_where_a_query_stands(causal, left, right, cache):
    lens = np.array([5, 2])
    past, n = ((PK, PV), 7) if cache == "past" else ((), 5)
    at = np.arange(3)[:, None] + (2 if past else 0)
    if cache == "padded":
        at = np.arange(3)[:, None] + (lens - 3).reshape(2, 1, 1, 1)
    keys = np.arange(n)
    open_ = (keys <= at) | (not causal)
    open_ = open_ & ((keys >= at - left) | (left < 0)) & ((keys <= at + right) | (right < 0))
    inputs = [Q, K, V, None, *(past or (None, None))]
    if cache == "padded":
        open_ = open_ & (keys < lens.reshape(2, 1, 1, 1))
        inputs.append(lens)
    y, _ = by_loops(Q, K, V, np.where(open_, 0, -INF), past, group=2)
    windows = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    check("Attention", inputs, y.astype(F), opset=25, **windows)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(np.float16, None), (np.float16, 1), (BF16, None), (BF16, 11), (np.float64, None)],
)
def test_dtypes_and_precision(dtype, precision):
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    y, _ = by_loops(q, k, v, group=2, scale=0.5)
    rtol = 2e-2 if np.dtype(dtype).itemsize == 2 else 1e-6
    wanted = [y.astype(dtype), None, None, None]
    at = {"scale": 0.5, "softmax_precision": precision, "outputs": 4, "rtol": rtol}
    layer("Attention", q, k, v, wanted=wanted, **at)


def test_nothing_to_attend_is_zero_and_has_gradients():
    empty = layer("Attention", Q, K[:, :, :0], V[:, :, :0])[0]
    assert empty.shape == (2, 4, 3, 6) and (empty == 0).all()
    f = js.to_jax(node("Attention", "float32[2, 4, 3, 8]", K, V, np.zeros((3, 5), bool)))
    slope = jax.grad(lambda x: jax.numpy.sum(f(x) ** 2))(Q)
    assert (np.asarray(slope) == 0).all()


B, S4 = "float32[b, 8, s, 64]", "float32[b, 2, t, 64]"


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted", "requires"),
    [
        (("[b, s, 512]", "[b, t, 128]", "[b, t, v]"), {"q_num_heads": 8, "kv_num_heads": 2},
         ("[b, s, 4*v]", "[b, 2, t, 64]", "[b, 2, t, v//2]", "[b, 8, s, t]"), ["v % 2 == 0"]),
        (("[b, 8, s, 64]", "[b, 2, s, 64]", "[b, 2, s, v]", "[s, n]", "[b, 2, p, 64]",
          "[b, 2, p, v]"), {},
         ("[b, 8, s, v]", "[b, 2, p + s, 64]", "[b, 2, p + s, v]", "[b, 8, s, p + s]"),
         ["p + s >= n"]),
        (("[b, 8, s, 64]", "", "[b, 2, t, 64]", ""), {},
         ("[b, 8, s, 64]", "[b, 2, t, 64]", "[b, 2, t, 64]", "[b, 8, s, t]"), []),
        (("", "", ""), {}, ("[...]",) * 4, []),
    ],
)  # fmt: skip
def test_types(inputs, attributes, wanted, requires):
    inputs = [f"float32{i}" for i in inputs]
    assert types("Attention", *inputs, outputs=4, **attributes) == [f"float32{w}" for w in wanted]
    assert sorted(demands("Attention", *inputs, **attributes)) == requires


@pytest.mark.parametrize(
    ("inputs", "attributes", "says"),
    [
        (("2, 8, 3, 4", "2, 3, 5, 4", "2, 3, 5, 4"), {}, "8 query heads share 3 key heads"),
        (("2, 3, 8", "2, 5, 8", "2, 5, 8"), {}, "Q (2, 3, 8) of rank 3 wants q_num_heads"),
        (("2, 3, 9", "2, 5, 8", "2, 5, 8"), {"q_num_heads": 2, "kv_num_heads": 2}, "9 is no"),
        (("2, 3, 8", "2, 1, 5, 8", "2, 5, 8"), {"q_num_heads": 1}, "want the same rank"),
        (("2, 8", "2, 8", "2, 8"), {}, "Q (2, 8) has rank 2, wants 3 or 4"),
        (("2, 1, 3, 8", "2, 1, 5, 8", "2, 1, 6, 8"), {}, "keys: 5 is not 6"),
        (("2, 1, 3, 8", "2, 1, 5, 7", "2, 1, 5, 8"), {}, "head size: 8 is not 7"),
        (("2, 1, 3, 8", "2, 1, 5, 8", "2, 1, 5, 8", "4, 5"), {}, "attn_mask"),
        (("2, 1, 3, 8", "2, 1, 5, 8", "2, 1, 5, 8", "3, 6"), {}, "5 is less than 6"),
        (("2, 1, 3, 8", "2, 1, 5, 8", "2, 1, 5, 8", "3, 4"), {"opset": 23}, "4 does not broadcast"),
        (("2, 1, 3, 8", *["2, 1, 5, 8"] * 2, None, "2, 1, 4, 8"), {}, "both given or neither"),
        (("2, 1, 3, 8", *["2, 1, 5, 8"] * 2, None, "2, 1, 4, 8", "2, 1, 5, 8"), {}, "past: 4 is"),
        (("2, 1, 3, 8", *["2, 1, 5, 8"] * 2), {"qk_matmul_output_mode": 4}, "mode is 4"),
        (("2, 1, 3, 8", *["2, 1, 5, 8"] * 2), {"left_window_size": -2}, "left_window_size is -2"),
    ],
)
def test_errors(inputs, attributes, says):
    inputs = [None if i is None else f"float32[{i}]" for i in inputs]
    assert says in refused("Attention", *inputs, **attributes)


# RotaryEmbedding, TensorScatter, SwiGLU -----------------------------------------------------------


@pytest.mark.parametrize(
    ("interleaved", "turning", "ids", "rank"),
    [(0, 0, True, 4), (1, 0, False, 3), (0, 4, False, 4), (1, 4, True, 3), (1, 0, True, 4)],
)
def test_rotary(interleaved, turning, ids, rank):
    x, half = normal(2, 3, 4, 8), (turning or 8) // 2
    angle = normal(*((9, half) if ids else (2, 4, half)))
    where = RNG.integers(0, 9, (2, 4))
    turn = np.exp(1j * (angle[where] if ids else angle))[:, None]
    first, rest = x[..., : 2 * half], x[..., 2 * half :]
    pairs = first.reshape(*x.shape[:3], half, 2) if interleaved else first.reshape(
        *x.shape[:3], 2, half).swapaxes(3, 4)  # fmt: skip
    z = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
    turned = np.stack([z.real, z.imag], 4 if interleaved else 3).reshape(first.shape)
    wanted = np.concatenate([turned, rest], -1).astype(F)
    inputs = [x if rank == 4 else packed(x), np.cos(angle), np.sin(angle)] + [where] * ids
    wanted = wanted if rank == 4 else packed(wanted)
    at = {"interleaved": interleaved, "rotary_embedding_dim": turning}
    layer("RotaryEmbedding", *inputs, wanted=wanted, num_heads=3 if rank == 3 else None, **at)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("dtype", "axis"), [(np.float32, 1), (np.int8, -2), (object, -2)])
def test_tensor_scatter(mode, dtype, axis):
    past, update = np.zeros((2, 5, 3)), np.arange(1, 13).reshape(2, 2, 3)
    past, update = (x.astype(int).astype(str if dtype is object else dtype) for x in (past, update))
    past, update = (x.astype(dtype) for x in (past, update))
    start, wanted = np.array([3, 4 if mode == "circular" else 0]), past.copy()
    for n, i in np.ndindex(2, 2):
        wanted[n, (start[n] + i) % 5] = update[n, i]
    check("TensorScatter", [past, update, start], wanted, mode=mode, axis=axis)
    wanted = past.copy()
    wanted[:, :2] = update
    check("TensorScatter", [past, update], wanted, mode=mode, axis=axis)
    check("TensorScatter", [past, update[:, :0]], past, mode=mode, axis=axis)


def test_swiglu():
    a, b = normal(2, 3), normal(2, 3)
    layer("SwiGLU", a, b, wanted=(a / (1 + np.exp(-2 * a)) * b).astype(F), alpha=2.0)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("RotaryEmbedding", ("1, 2, 3, 7", "9, 4", "9, 4", "1, 3"), {}, "7 elements turn in pairs"),
        ("RotaryEmbedding", ("1, 3, 8", "9, 4", "9, 4", "1, 3"), {}, "wants num_heads"),
        ("RotaryEmbedding", ("1, 2, 3, 8", "9, 4", "9, 4"), {}, "has rank 2, wants 3"),
        ("RotaryEmbedding", ("1, 2, 3, 8", "9, 3", "9, 4", "1, 3"), {}, "3 is not 4"),
        ("TensorScatter", ("2, 4, 3", "2, 5, 3"), {}, "4 is less than 5"),
        ("TensorScatter", ("2, 4, 3", "2, 4, 3"), {"axis": 0}, "axis is that of the batch"),
        ("TensorScatter", ("2, 4, 3", "2, 4, 3"), {"mode": "round"}, "mode is 'round'"),
        ("SwiGLU", ("2, 4", "2, 1"), {}, "B (2, 1) must be (2, 4)"),
    ],
)
def test_errors_beside(op, inputs, attributes, says):
    kinds = ["int64" if op == "RotaryEmbedding" and i == 3 else "float32" for i in range(4)]
    given = [f"{kind}[{i}]" for kind, i in zip(kinds, inputs, strict=False)]
    assert says in refused(op, *given, **attributes)


def test_what_is_outside_is_not_clamped():
    cache = np.ones((4, 4), F)
    with pytest.raises(js.ShapeError, match="position_ids go from 2 to 4, of 4 positions"):
        layer("RotaryEmbedding", normal(1, 2, 3, 8), cache, cache, np.array([[2, 3, 4]]))
    with pytest.raises(js.ShapeError, match="write_indices go from 3 to 3, from where 2"):
        layer("TensorScatter", normal(1, 4, 2), normal(1, 2, 2), np.array([3]))


# LinearAttention, CausalConvWithState, FlexAttention ----------------------------------------------


@pytest.mark.parametrize(
    ("rule", "variant"),
    [
        ("linear", 0),
        ("gated", 0),
        ("delta", 0),
        ("gated_delta", 0),
        ("gated_delta", 1),
        ("gated", 2),
    ],
)
def test_linear_attention(rule, variant):
    n, t, heads, group, dk, dv = 2, (4, 0, 1)[variant], 2, 3, 3, 2
    q, k, v = normal(n, t, heads * group * dk), normal(n, t, heads * dk), normal(n, t, heads * dv)
    state = normal(n, heads, dk, dv).astype(np.float16)
    decay = -abs(normal(n, t, heads * (dk if variant else 1))) if "gated" in rule else None
    beta = abs(normal(n, t, (heads, 1, 1)[variant])) if "delta" in rule else None
    y = np.zeros((n, t, heads * group, dv))
    s = state.astype(np.float64)
    for i in range(t):
        ki, vi = k[:, i].reshape(n, heads, dk), v[:, i].reshape(n, heads, dv)
        if decay is not None:
            s = s * np.exp(decay[:, i].reshape(n, heads, -1, 1))
        if beta is not None:
            vi = beta[:, i].reshape(n, -1, 1) * (vi - np.einsum("nhkv,nhk->nhv", s, ki))
        s = s + ki[..., None] * vi[:, :, None]
        qi = q[:, i].reshape(n, heads * group, dk)
        y[:, i] = np.einsum("nhk,nhkv->nhv", qi, np.repeat(s, group, 1)) / math.sqrt(dk)
    wanted = [y.reshape(n, t, heads * group * dv).astype(F), s.astype(np.float16)]
    at = {"q_num_heads": heads * group, "kv_num_heads": heads, "update_rule": rule, "outputs": 2}
    got = layer("LinearAttention", q, k, v, state, decay, beta, rtol=2e-3, **at)
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("length", "kernel"), [(5, 3), (1, 4), (0, 2), (4, 1), (40, 20)])
@pytest.mark.parametrize("past", [False, True])
def test_causal_conv(length, kernel, past):
    x, w, b = normal(2, 3, length), normal(3, 1, kernel), normal(3)
    before = normal(2, 3, kernel - 1) if past else np.zeros((2, 3, kernel - 1), F)
    whole = np.concatenate([before, x], 2)
    y = [(whole[:, :, i : i + kernel] * w[:, 0]).sum(2) + b for i in range(length)]
    y = np.stack(y, 2) if y else x
    wanted = [(y / (1 + np.exp(-y))).astype(F), whole[:, :, length:]]
    inputs = [x, w, b, before] if past else [x, w, b]
    layer("CausalConvWithState", *inputs, wanted=wanted, outputs=2, activation="silu")


def graph(op, shape):
    """A graph of one node that changes x by a constant."""
    tensor = helper.make_tensor("c", onnx.TensorProto.FLOAT, [], [0.5])
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in ("x", "z")]
    return helper.make_graph(
        [helper.make_node(op, ["x", "c"], ["z"])], op, info[:1], info[1:], [tensor]
    )


def test_flex_attention():
    y, (raw, *_) = by_loops(Q, K, V, group=2)
    e = np.exp(raw + 0.5 - raw.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True) * 0.5 @ np.repeat(V, 2, 1)
    shape = (2, 4, 3, 5)
    mods: dict[str, Any] = {"score_mod": graph("Add", shape), "prob_mod": graph("Mul", shape)}
    layer("FlexAttention", Q, K, V, wanted=y.astype(F), domain="ai.onnx.preview", **mods)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("LinearAttention", ("1, 2, 6", "1, 2, 3", "1, 2, 3"),
         {"q_num_heads": 3, "update_rule": "linear"}, "no positive multiple"),
        ("LinearAttention", ("1, 2, 6", "1, 2, 6", "1, 2, 6"), {"update_rule": "gated"},
         "wants decay"),
        ("LinearAttention", ("1, 2, 6", "1, 2, 6", "1, 2, 6", None, "1, 2, 2"),
         {"update_rule": "linear"}, "takes no decay"),
        ("LinearAttention", ("1, 2, 6", "1, 2, 6", "1, 2, 6", None, "1, 2, 5"),
         {"update_rule": "gated"}, "last size 5, wants 2 or 6"),
        ("LinearAttention", ("1, 2, 6", "1, 2, 6", "1, 3, 6"), {"update_rule": "linear"}, "length"),
        ("CausalConvWithState", ("1, 2, 6", "2, 2, 3"), {}, "2 is not 1"),
        ("CausalConvWithState", ("1, 2, 6", "3, 1, 3"), {}, "channels: 2 is not 3"),
        ("CausalConvWithState", ("1, 2, 6", "2, 1, 3"), {"activation": "relu"}, "activation is"),
    ],
)  # fmt: skip
def test_errors_of_states(op, inputs, attributes, says):
    heads = {"q_num_heads": 2, "kv_num_heads": 2} if op == "LinearAttention" else {}
    given = [None if i is None else f"float32[{i}]" for i in inputs]
    assert says in refused(op, *given, outputs=2, **heads | attributes)
