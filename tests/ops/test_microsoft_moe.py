"""com.microsoft: mixtures of experts, held against onnxruntime."""

from typing import Any

import jax
import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import layer, refused
from twin import check

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
T, W, D, E = 5, 32, 16, 4  # tokens, hidden, inner, experts
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def inputs(parts=1, bias=True, shape=(T,)):
    tokens = int(np.prod(shape))
    b1, b2 = (numbers(E, parts * D), numbers(E, W)) if bias else (None, None)
    x, logits = numbers(*shape, W), numbers(tokens, E)
    return [x, logits, numbers(E, parts * D, W), b1, numbers(E, W, D), b2][: 6 if bias else 5]


SWIGLU: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1}


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        (inputs(), {}),
        (inputs(bias=False), {"activation_type": "gelu", "k": 2}),
        (inputs(), {"activation_type": "silu", "k": 2, "normalize_routing_weights": 1}),
        (inputs(shape=(2, 3)), {"activation_type": "identity", "k": 4}),
        (inputs(2), {**SWIGLU, "k": 2, "activation_alpha": 1.702, "activation_beta": 1.0}),
        (inputs(2, bias=False), {**SWIGLU, "k": 3, "swiglu_limit": 0.5}),
        (inputs(shape=(0,)), {"k": 2}),
        (inputs(shape=(1,)), {"k": 2}),
    ],
)
def test_experts(given, attributes):
    check("MoE", *given, **attributes)


def test_equal_routers():
    given = inputs()
    given[1] = np.zeros((T, E), F)
    check("MoE", *given, k=2)


def test_experts_in_parts():
    """Not on onnxruntime's CPU: gate and linear part in turn, in a row and apart are the same."""
    x, logits, first, b1, second, b2 = inputs(2)
    (wanted,) = layer("MoE", x, logits, first, b1, second, b2, k=2, **SWIGLU, **MS)
    rows = [np.concatenate([v[:, ::2], v[:, 1::2]], 1) for v in (first, b1)]
    keywords = {**MS, "k": 2, "activation_type": "swiglu", "wanted": wanted}
    layer("MoE", x, logits, *rows, second, b2, swiglu_fusion=2, **keywords)
    gate, linear = ([v[:, i::2] for v in (first, b1)] for i in (0, 1))
    layer("MoE", x, logits, *gate, second, b2, *linear, **keywords)


def test_gradients_and_batches():
    given = inputs(2)
    typed = [f"float32[{','.join(map(str, v.shape))}]" for v in given]
    f = js.to_jax(node("MoE", *typed, k=2, **SWIGLU, **MS))
    slope = jax.grad(lambda x: f(x, *given[1:]).sum())(given[0])
    step = 1e-2 * numbers(T, W)
    found = f(given[0] + step, *given[1:]).sum() - f(given[0] - step, *given[1:]).sum()
    np.testing.assert_allclose((slope * step).sum() * 2, found, rtol=2e-2)
    many = np.stack([given[0], -given[0]])
    batched = jax.vmap(lambda x: f(x, *given[1:]))(many)
    np.testing.assert_allclose(batched[1], f(many[1], *given[1:]), rtol=1e-4, atol=1e-4)


def quantized(bits, block=0, zeros=False, parts=1, dtype: Any = F, router=False):
    """The inputs of QMoE."""

    def weights(n, k):
        w = rng.integers(0, 256, (E, n, k * bits // 8)).astype(np.uint8)
        scales = np.abs(numbers(E, n, *((k // block,) if block else ()))) / F(4 << bits)
        shape = (E, n, -(-k * bits // (8 * block))) if block else (E, n * bits // 8)
        zero = rng.integers(0, 256, shape).astype(np.uint8) if zeros else None
        return w, scales.astype(dtype), zero

    (w1, s1, z1), (w2, s2, z2) = weights(parts * W, W), weights(W, W)
    x, logits = numbers(T, W, dtype=dtype), numbers(T, E, dtype=dtype)
    b1, b2 = numbers(E, parts * W, dtype=dtype), numbers(E, W, dtype=dtype)
    made = [x, logits, w1, s1, b1, w2, s2, b2, *[None] * 3, z1, z2, None]
    made += [np.abs(numbers(T, E))] if router else []
    while made[-1] is None:
        made.pop()
    return made


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantized_experts(bits, block, zeros):
    given = quantized(bits, block, zeros)
    how = {"expert_weight_bits": bits, "k": 2, "activation_type": "silu"}
    rtol = 0.02 if bits == 8 and block else 1e-4  # onnxruntime rounds activations to 8 bits there
    check("QMoE", *given, block_size=block or None, rtol=rtol, **how)


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        (quantized(4, 16, parts=2), {**SWIGLU, "swiglu_limit": 0.5, "block_size": 16}),
        (quantized(4, 32, router=True), {"k": 2, "block_size": 32, "activation_type": "gelu"}),
        (quantized(4, router=True), {"k": 3, "normalize_routing_weights": 1}),
        (quantized(4), {"k": 3, "normalize_routing_weights": 1, "weights_prepacked": 0}),
    ],
)
def test_quantized_experts_otherwise(given, attributes):
    check("QMoE", *given, **attributes)


def test_quantized_experts_in_float16():
    check("QMoE", *quantized(4, 32, dtype=np.float16), rtol=4e-3, k=2, block_size=32)


@pytest.mark.parametrize(
    "attributes",
    [
        {"top_k": 2},
        {"top_k": 3, "n_group": 4, "topk_group": 2},
        {"top_k": 2, "n_group": 2, "group_topk": 1, "router_sentinel": -5.0},
        {"top_k": 2, "n_group": 4, "group_topk": 9},
    ],
)
def test_router(attributes):
    check("MoEGroupRouter", numbers(5, 8), numbers(8), **attributes)
    check("MoEGroupRouter", numbers(2, 3, 8), numbers(8), **attributes)


def test_router_in_float16():
    check("MoEGroupRouter", numbers(5, 8, dtype=np.float16), numbers(8), top_k=2, rtol=4e-3)


def test_router_with_all_scores():
    both = ("", "scores", "weights")
    check("MoEGroupRouter", numbers(5, 8), numbers(8), outputs=both, top_k=2)
    projected = numbers(5, 256), numbers(8), numbers(8, 256) / F(16)
    check("MoEGroupRouter", *projected, outputs=both, top_k=2)


WEIGHTS = ["float32[4, 16, K]", None, "float32[4, K, 16]"]


def test_sizes():
    given = ["float32[N, S, K]", "float32[T, 4]", *WEIGHTS]
    assert types("MoE", *given, k=2, **MS) == ["float32[N, S, K]"]
    assert demands("MoE", *given, k=2, **MS) == ["T == N*S"]
    given = ["float32[T, K]", "float32[T, 4]", "uint8[4, 16, B]", "float32[4, 16]", None]
    given += ["uint8[4, K, 8]", "float32[4, K]"]
    assert types("QMoE", *given, **MS) == ["float32[T, K]"]
    assert demands("QMoE", *given, **MS) == ["K == 2*B"]
    found = types("MoEGroupRouter", "float16[N, S, 8]", "float32[8]", top_k=2, outputs=3, **MS)
    assert found == ["float16[N*S, 8]", "float32[N*S, 8]", "float32[N*S, 8]"]


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"k": 5}, "4 is less than 5"),
        ({"activation_type": "tanh"}, "activation_type is 'tanh'"),
        ({"activation_type": "swiglu"}, "wants fc3_experts_weights"),
        ({"activation_type": "swiglu", "swiglu_fusion": 3}, "swiglu_fusion is 3"),
    ],
)
def test_refusals(attributes, says):
    given = ["float32[3, 8]", "float32[3, 4]", "float32[4, 16, 8]", None, "float32[4, 8, 16]"]
    assert says in refused("MoE", *given, **attributes, **MS)
