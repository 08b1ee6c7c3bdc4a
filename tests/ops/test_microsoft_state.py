"""com.microsoft: layers that carry a state, held against onnxruntime."""

from typing import Any

import jax
import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import refused
from twin import check, twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("heads", "rule", "past", "each", "length"),
    [
        ((4, 2), "gated_delta", False, False, 3),
        ((2, 4), "gated_delta", True, True, 3),
        ((2, 2), "linear", True, False, 1),
        ((1, 3), "gated", False, True, 2),
        ((2, 4), "delta", True, False, 2),
        ((2, 4), "gated_delta", True, False, 0),
    ],
)
def test_linear_attention(heads, rule, past, each, length):
    (h, g), dk, dv, n, t = heads, 4, 3, 2, length
    inputs: list[Any] = [numbers(n, t, d) for d in (h * dk, g * dk, g * dv)]
    inputs += [numbers(n, g, dk, dv) if past else None]
    inputs += [-np.abs(numbers(n, t, g * dk if each else g)) if "gated" in rule else None]
    inputs += [np.abs(numbers(n, t, g)) if "delta" in rule else None]
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"q_num_heads": h, "kv_num_heads": g, "update_rule": rule}
    check("LinearAttention", *inputs, outputs=2, **attributes)
    check("LinearAttention", *inputs, outputs=2, scale=0.3, **attributes)


@pytest.mark.parametrize(
    ("shape", "weight", "state", "attributes"),
    [
        ((2, 3, 5), (3, 1, 3), (2, 3, 2), {}),
        ((2, 3, 1), (3, 1, 4), (2, 3, 3), {"activation": "silu"}),
        ((2, 3, 5), (3, 1, 3), (2, 3, 4), {"dilation": 2}),
        ((2, 3, 5), (3, 1, 1), (2, 3, 0), {"activation": "swish"}),
        ((2, 5, 3), (3, 1, 3), (2, 2, 3), {"channels_last": 1}),
        ((2, 5, 3, 2), (6, 1, 3), (2, 4, 3, 2), {"channels_last": 1, "dilation": 2}),
    ],
)
def test_causal_conv(shape, weight, state, attributes):
    x, w, b, past = numbers(*shape), numbers(*weight), numbers(weight[0]), numbers(*state)
    check("CausalConvWithState", x, w, b, past, outputs=2, **attributes)
    check("CausalConvWithState", x, w, outputs=2, **attributes)


ENDS = np.array([0, 2, 3, 7], np.int32)


@pytest.mark.parametrize(
    ("k", "dilation", "activation"), [(3, 1, "none"), (4, 2, "silu"), (1, 1, "none")]
)
def test_causal_conv_of_requests(k, dilation, activation):
    x, w, b = numbers(7, 3), numbers(3, 1, k), numbers(3)
    state, how = numbers(3, 3, (k - 1) * dilation), {"dilation": dilation, "activation": activation}
    check("VarlenCausalConvWithState", x, w, ENDS, None, state, outputs=2, **how)
    counts = np.array([1, 2, 3], np.int32)
    how |= {"state_update_capacity": 2}
    check("VarlenCausalConvWithState", x, w, ENDS, b, state, counts, outputs=3, **how)


N, T, G, H, DK, DV = 2, 6, 2, 4, 4, 3


def delta(each=False, lead=(T,), state=True, ends=None):
    """The inputs of GatedDeltaNet, up to the state."""
    q, k, v = (numbers(*lead, *d) for d in ((G, DK), (G, DK), (H, DV)))
    decay = -np.abs(numbers(*lead, H, *((DK,) if each else ())))
    return [
        q,
        k,
        v,
        ends,
        decay,
        np.abs(numbers(*lead, H)),
        numbers(N, H, DV, DK) if state else None,
    ]


UNEVEN = np.array([0, 2, 6], np.int32)
COUNTS = np.array([1, 5], np.int32)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        (delta(), {}),
        (delta(each=True), {"scale": 0.3}),
        (delta(lead=(N, 3)), {}),
        (delta(lead=(N, 3), state=False), {}),
        (delta(ends=UNEVEN), {}),
        (delta(ends=UNEVEN, each=True, state=False), {}),
        (delta(), {"qk_l2_norm": 1, "beta_activation": "sigmoid"}),
        (delta(), {"update_rule": "gated"}),
        (delta(), {"update_rule": "delta"}),
        (delta(), {"update_rule": "linear"}),
        ([*delta(), numbers(H), numbers(H)], {"gate_activation": "softplus"}),
        ([*delta(each=True), numbers(H), numbers(H)], {"gate_activation": "qwen"}),
        ([*delta(each=True), numbers(H), numbers(H, DK)], {"gate_activation": "kda"}),
        (
            [*delta(each=True), numbers(H), numbers(H * DK)],
            {"gate_activation": "sigmoid", "gate_lower_bound": -2.0},
        ),
    ],
)
def test_gated_delta_net(inputs, attributes):
    given = list(inputs)
    rule = attributes.get("update_rule", "gated_delta")
    given[4] = given[4] if "gated" in rule else None
    given[5] = given[5] if "delta" in rule else None
    while given[-1] is None:
        given.pop()
    check("GatedDeltaNet", *given, outputs=2, **attributes)


def test_float16():
    """States stay float32."""
    half = [None if v is None else v.astype(np.float16) for v in delta()[:6]]
    check("GatedDeltaNet", *half, numbers(N, H, DV, DK), outputs=2, rtol=4e-3)
    x, w, state = (numbers(*s, dtype=np.float16) for s in ((7, 3), (3, 1, 3), (3, 3, 2)))
    check("VarlenCausalConvWithState", x, w, ENDS, None, state, outputs=2, rtol=4e-3)


def test_a_packed_query():
    q, k, v, _, *rest = delta()
    whole = np.concatenate([x.reshape(T, -1) for x in (q, k, v)], 1)
    check("GatedDeltaNet", whole, None, None, None, *rest, outputs=2)
    check("GatedDeltaNet", whole, None, None, UNEVEN, *rest, outputs=2)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("ends", [None, UNEVEN])
def test_what_the_first_tokens_did(ends, each):
    """The rest of a row is not specified."""
    capacity, inputs = 2, [*delta(each=each, ends=ends), None, None, COUNTS]
    keywords = {"outputs": 3, "state_update_capacity": capacity, "qk_l2_norm": 1, **MS}
    *_, wanted = twin("GatedDeltaNet", *inputs, **keywords)
    (*_, got) = js.run(node("GatedDeltaNet", *inputs, **keywords), {}).values()
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    begin = 0
    for size in (H * DK if each else H, G * DK, H * DV):
        for b, count in enumerate((1, 2)):
            part = slice(begin, begin + count * size)
            np.testing.assert_allclose(got[b, part], wanted[b, part], 1e-4, 1e-4)
        begin += capacity * size


def test_gradients():
    inputs = delta()
    typed = [None if v is None else f"float32[{','.join(map(str, v.shape))}]" for v in inputs]
    f = js.to_jax(node("GatedDeltaNet", *typed, **MS))
    given = [v for v in inputs if v is not None]
    slope = jax.grad(lambda v: f(*given[:2], v, *given[3:]).sum())(given[2])
    assert slope.shape == (T, H, DV) and np.abs(slope).max() > 0


def floats(*shapes):
    return [None if s is None else f"float32[{s}]" for s in shapes]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted", "requires"),
    [
        (
            "LinearAttention",
            floats("N, T, Q", "N, T, P", "N, T, V"),
            {"q_num_heads": 2, "kv_num_heads": 4, "update_rule": "linear"},
            ["[N, T, V]", "[N, 4, P//4, V//4]"],
            ["P % 4 == 0", "V % 4 == 0", "Q == P//2"],
        ),
        (
            "CausalConvWithState",
            floats("N, C, L", "D, 1, 4"),
            {},
            ["[N, C, L]", "[N, C, 3]"],
            ["C == D"],
        ),
        (
            "CausalConvWithState",
            floats("N, L, A, B", "D, 1, 4"),
            {"channels_last": 1, "dilation": 2},
            ["[N, L, A, B]", "[N, 6, A, B]"],
            ["D == A*B"],
        ),
        (
            "VarlenCausalConvWithState",
            ["float32[T, C]", "float32[C, 1, 4]", "int32[M]", None, "float32[N, C, 3]"],
            {},
            ["[T, C]", "[N, C, 3]"],
            ["M == N + 1"],
        ),
        (
            "GatedDeltaNet",
            ["float32[T, G, K]", "float32[T, G, K]", "float32[T, H, V]", "int32[M]"]
            + floats("T, H", "T, H"),
            {},
            ["[T, H, V]", "[M - 1, H, V, K]"],
            ["H % G == 0"],
        ),
        (
            "GatedDeltaNet",
            floats("N, S, 2, K", "N, S, 2, K", "N, S, 4, V", None, "N, S, 4", "N, S, 4"),
            {},
            ["[N, S, 4, V]", "[N, 4, V, K]"],
            [],
        ),
    ],
)
def test_sizes(op, inputs, attributes, wanted, requires):
    found = types(op, *inputs, outputs=2, **attributes, **MS)
    assert found == [f"float32{w}" for w in wanted]
    assert demands(op, *inputs, **attributes, **MS) == requires


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("CausalConvWithState", floats("1, 2, 3", "2, 1, 2"), {"activation": "relu"}, "is 'relu'"),
        ("CausalConvWithState", floats("1, 2, 3", "2, 1, 2"), {"dilation": 0}, "dilation is 0"),
        (
            "GatedDeltaNet",
            floats("3, 2, 4", "3, 2, 4", "3, 2, 4"),
            {"update_rule": "linear"},
            "needs cu_seqlens or initial_state",
        ),
        ("GatedDeltaNet", floats("3, 2, 4", "3, 2, 4", "3, 2, 4"), {}, "wants decay"),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("CausalConvWithState", floats("1, 2, 3", "2, 1, 2"), {"state_window": 2}),
        (
            "LinearAttention",
            floats("1, 2, 4", "1, 2, 4", "1, 2, 4"),
            {"state_window": 2, "q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear"},
        ),
    ],
)
def test_what_is_not_handled(op, inputs, attributes):
    with pytest.raises(js.UnsupportedError, match="state_window"):
        js.trace(node(op, *inputs, **attributes, **MS))
