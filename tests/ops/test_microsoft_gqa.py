"""GroupQueryAttention of com.microsoft, held against onnxruntime."""

from typing import Any

import jax
import numpy as np
import pytest
from builders import model, node
from forms import demands, types
from layers import compare, refused
from twin import twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
H, KV, E = 4, 2, 16
rng = np.random.default_rng(0)
INPUTS = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache "
    "position_ids attention_bias head_sink k_scale v_scale q_norm_weight k_norm_weight "
    "query_seqlens"
).split()
INT8 = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
INT4 = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 4}


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def inputs(lens, new, past=0, total=None, cache=None, packed=False, **more):
    """One step: after it there are `lens` tokens, of which `new` are given."""
    n = len(lens)
    q, k, v = numbers(n, new, H * E), numbers(n, new, KV * E), numbers(n, new, KV * E)
    made: dict[str, Any] = {"query": q, "key": k, "value": v}
    if packed:
        made = {"query": np.concatenate([q, k, v], 2)}
    if past:
        shape = (n, KV, past, E)
        for name in ("past_key", "past_value"):
            made[name] = numbers(*shape) if cache is None else cache(*shape)
    made["seqlens_k"] = np.array(lens, np.int32) - np.int32(1)
    made["total_sequence_length"] = np.array(max(lens) if total is None else total, np.int32)
    return made | more


def step(made, outputs=3, rows=None, held=None, rtol=1e-4, **attributes):
    """The node gives what onnxruntime gives; of the result in `rows` of each entry, of the cache in
    those `held`."""
    given = [made.get(name) for name in INPUTS]
    while given[-1] is None:
        given.pop()
    keywords = {"num_heads": H, "kv_num_heads": KV, "outputs": outputs, **MS, **attributes}
    wanted = twin("GroupQueryAttention", *given, **keywords)
    typed = [None if x is None else f"{x.dtype}[{','.join(map(str, x.shape))}]" for x in given]
    typed[6] = given[6]
    m = node("GroupQueryAttention", *typed, **keywords)
    fed = {f"x{i}": x for i, x in enumerate(given) if x is not None and i != 6}
    got = list(js.run(m, fed).values())
    trace = js.trace(m)
    for i, y in enumerate(got):
        assert trace[f"y{i}"].shape == y.shape and trace[f"y{i}"].dtype == y.dtype
    for i, y in enumerate(wanted):
        for b, count in enumerate((rows if i == 0 else held) or ()):
            got[i] = np.array(got[i])
            (got[i][b, count:] if i == 0 else got[i][b, :, count:])[:] = 0
            (y[b, count:] if i == 0 else y[b, :, count:])[:] = 0
    compare(got, wanted, rtol)
    return got


COS, SIN = numbers(12, E // 2), numbers(12, E // 2)
TURN: dict[str, Any] = {"cos_cache": COS, "sin_cache": SIN}


PROMPTS = [([3, 3], 3, 0, 3), ([3], 3, 8, 3)]  # the second into a buffer
ONE = [([5, 3], 1, 4, 5), ([5, 3], 1, 8, 8), ([1], 1, 4, 1)]  # token more
SEVERAL = [([6], 2, 4, 6), ([5], 2, 8, 7)]


@pytest.mark.parametrize(
    ("how", "lens", "new", "past", "total"),
    [
        *[("plain", *row) for row in (*PROMPTS, *ONE, *SEVERAL)],
        *[("turned", *row) for row in (*PROMPTS, *ONE, *SEVERAL)],
        *[(how, *row) for how in ("interleaved", "packed") for row in (PROMPTS[0], ONE[1])],
    ],
)
def test_steps(how, lens, new, past, total):
    turn, packed = ({} if how == "plain" else TURN), how == "packed"
    attributes = {"do_rotary": int(bool(turn)), "rotary_interleaved": int(how == "interleaved")}
    step(inputs(lens, new, past, total, packed=packed, **turn), **attributes)


@pytest.mark.parametrize("row", [PROMPTS[0], ONE[1], SEVERAL[0]])
def test_steps_in_float16(row):
    made = inputs(*row, **TURN)
    half = {k: v.astype(np.float16) if v.dtype == F else v for k, v in made.items()}
    step(half, rtol=4e-3, do_rotary=1)
    half["attention_bias"] = numbers(1, H, row[1], row[3], dtype=np.float16)
    step(half | {"head_sink": numbers(H, dtype=np.float16)}, rtol=4e-3, local_window_size=2)


def test_a_padded_prompt():
    step(inputs([3, 2, 1], 3, **TURN), rows=[3, 2, 1], do_rotary=1)


PROMPT, DECODE = inputs([5], 5), inputs([6, 4], 1, 8, 6)
BIASED = inputs([6], 2, 4, 6, attention_bias=numbers(1, H, 2, 6))


@pytest.mark.parametrize(
    ("made", "attributes"),
    [
        (PROMPT, {"local_window_size": 2}),
        (PROMPT, {"causal": 0}),
        (PROMPT, {"smooth_softmax": 1, "scale": 0.3, "softcap": 2.0}),
        (DECODE, {"local_window_size": 3, "softcap": 0.7}),
        (DECODE, {"smooth_softmax": 1}),
        (DECODE | {"head_sink": numbers(H)}, {"smooth_softmax": 1}),
        (PROMPT | {"head_sink": numbers(H)}, {"local_window_size": 2}),
        (BIASED, {"softcap": 0.7, "local_window_size": 3}),
        (BIASED, {"causal": 0, "smooth_softmax": 1}),
        (DECODE | {"attention_bias": numbers(2, 1, 1, 6)}, {}),
    ],
)
def test_scores(made, attributes):
    for what in (0, 1, 2):
        step(made, outputs=4 if what else 3, qk_output=what, **attributes)


@pytest.mark.parametrize("made", [inputs([3], 3, **TURN), inputs([6], 2, 8, 7, **TURN)])
def test_places_of_their_own(made):
    made["position_ids"] = np.array([[4, 2, 7][: made["query"].shape[1]]])
    step(made, do_rotary=1)


@pytest.mark.parametrize(
    ("lens", "valid", "new", "past", "total"),
    [([6, 4], [2, 1], 2, 8, 6), ([6, 4], [3, 1], 3, 8, 8), ([3, 5], [3, 0], 3, 8, 8)],
)
def test_padded_chunks(lens, valid, new, past, total):
    made = inputs(lens, new, past, total, query_seqlens=np.array(valid, np.int32), **TURN)
    step(made, rows=valid, do_rotary=1, local_window_size=4)


def bytes_of(dtype):
    def draw(*shape):
        least, most = (-128, 128) if dtype is np.int8 else (0, 256)
        shape = shape if dtype is np.int8 else (*shape[:3], shape[3] // 2)
        return rng.integers(least, most, shape).astype(dtype)

    return draw


@pytest.mark.parametrize(("lens", "new", "past"), [([5, 3], 1, 4), ([5, 3], 1, 8), ([3, 3], 3, 8)])
def test_quantized_caches(lens, new, past):
    one, each = np.array([0.02], F), np.abs(numbers(1, KV, 1, E)) / F(4) + F(0.1)
    made = inputs(lens, new, past, cache=bytes_of(np.int8), k_scale=one, v_scale=one)
    step(made, **INT8)
    step(made | {"k_scale": each, "v_scale": each}, **{**INT4, "kv_cache_bit_width": 8})
    made = inputs(lens, new, past, cache=bytes_of(np.uint8), k_scale=each, v_scale=each)
    step(made, **INT4)
    step(made | {"k_scale": one * 9, "v_scale": one * 9}, **{**INT8, "kv_cache_bit_width": 4})


@pytest.mark.parametrize(
    ("lens", "new", "past", "window", "held"),
    [
        ([3, 2], 1, 4, 3, [3, 2]),
        ([5, 4], 1, 4, 3, [3, 4]),
        ([6, 9], 1, 4, 4, [4, 4]),
        ([11, 9], 1, 6, 3, [3, 5]),
        ([11], 3, 6, 3, [3]),
        ([11], 9, 4, 3, [3]),
        ([7], 7, 4, 3, [3]),
    ],
)
def test_windows(lens, new, past, window, held):
    made = inputs(lens, new, past, attention_bias=numbers(1, 1, new, max(lens)), **TURN)
    attributes = {"local_window_size": window, "sliding_window_cache": 1, "do_rotary": 1}
    step(made, held=held, **attributes)


@pytest.mark.parametrize(
    ("lens", "queries", "past", "total"),
    [([4], 1, 4, 4), ([4], 2, 6, 4), ([4, 2], 1, 6, 4), ([3], 3, 6, 3)],
)
def test_the_cache_of_another_layer(lens, queries, past, total):
    made = inputs(lens, queries, past, total)
    step(made | {name: made[name][:, :0] for name in ("key", "value")})


def test_norms_of_heads():
    """Not on onnxruntime's CPU: query and key, normed before, give the same."""

    def normed(x, weight):
        x = x.reshape(*x.shape[:2], -1, E)
        y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + F(1e-6)) * weight
        return y.reshape(*x.shape[:2], -1)

    made, weights = inputs([5, 3], 1, 4, 5, **TURN), (numbers(E), numbers(E))
    before = made | {n: normed(made[n], w) for n, w in zip(("query", "key"), weights, strict=True)}
    wanted = step(before, do_rotary=1)
    given = made | dict(zip(("q_norm_weight", "k_norm_weight"), weights, strict=True))
    typed = [given.get(name) for name in INPUTS]
    got = js.run(node("GroupQueryAttention", *typed, outputs=3, num_heads=H, kv_num_heads=KV,
                      do_rotary=1, **MS), {})  # fmt: skip
    compare(list(got.values()), wanted, 1e-5)


# sizes --------------------------------------------------------------------------------------------

DECODER = """
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    decoder (float[N, S, 64] q, float[N, S, 32] k, float[N, S, 32] v, float[N, 2, P, 16] past_key,
             float[N, 2, P, 16] past_value, int64[N, T] mask)
        => (float[] y, float[] keys, float[] values)
    <int64[1] one = {1}, int64[1] axis = {1}> {
        counts = ReduceSum <keepdims = 0> (mask, axis)
        less = Sub (counts, one)
        lens = Cast <to = 6> (less)
        shape = Shape (mask)
        size = Gather (shape, one)
        total = Cast <to = 6> (size)
        y, keys, values = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
            (q, k, v, past_key, past_value, lens, total)
    }"""


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ({}, "max(P, T)"),
        ({"mask": ("N", "P + S")}, "P + S"),
        ({"mask": ("N", "P")}, "P"),
        ({"past_key": ("N", 2, 0, 16), "past_value": ("N", 2, 0, 16), "mask": ("N", "S")}, "S"),
        (
            {"q": ("N", 1, 64), "k": ("N", 1, 32), "v": ("N", 1, 32), "mask": ("N", "P + 1")},
            "P + 1",
        ),
    ],
)
def test_the_length_of_the_cache(shapes, wanted):
    trace = js.trace(model(DECODER), shapes)
    assert str(trace["keys"]) == str(trace["values"]) == f"float32[N, 2, {wanted}, 16]"


def test_a_decoder_under_jit_and_grad():
    q, k, v = numbers(1, 2, 64), numbers(1, 2, 32), numbers(1, 2, 32)
    past, mask = numbers(1, 2, 3, 16), np.ones((1, 5), np.int64)
    f = js.to_jax(model(DECODER))
    y, keys, _ = jax.jit(f)(q, k, v, past, past, mask)
    np.testing.assert_allclose(keys[:, :, :3], past)
    slope = jax.grad(lambda v: f(q, k, v, past, past, mask)[0].sum())(v)
    assert slope.shape == v.shape and np.abs(slope).min() > 0


TYPES = ["float32[N, S, 64]", "float32[N, S, 32]", "float32[N, S, 32]"]
PAST = ["float32[N, 2, P, 16]"] * 2
HEADS: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, **MS}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([*TYPES, *PAST, "int32[N]", "int32[]"], "[N, 2, max(P, x6), 16]"),
        (
            ["float32[N, S, 128]", None, None, *PAST, "int32[N]", "int32[]"],
            "[N, 2, max(P, x6), 16]",
        ),
        ([*TYPES, None, None, "int32[N]", "int32[1]"], "[N, 2, S, 16]"),
    ],
)
def test_a_length_that_data_tell(given, wanted):
    found = types("GroupQueryAttention", *given, outputs=3, **HEADS)
    assert found == ["float32[N, S, 64]", *[f"float32{wanted}"] * 2]


def test_demands():
    given = ["float32[N, S, W]", "float32[N, L, K]", "float32[N, L, K]", *[None] * 2]
    found = demands("GroupQueryAttention", *given, "int32[M]", "int32[]", **HEADS)
    assert found == ["M == N", "W % 4 == 0", "L == S", "K == W//2"]


@pytest.mark.parametrize(
    ("given", "attributes", "says"),
    [
        (TYPES, {}, "needs seqlens_k and total_sequence_length"),
        ([*TYPES, None, None, "int32[N]", "int32[]"], {"kv_num_heads": 3}, "kv_num_heads 3"),
        (
            [TYPES[0], TYPES[1], None, None, None, "int32[N]", "int32[]"],
            {},
            "both given or neither",
        ),
        ([*TYPES, None, None, "int32[N]", "int32[]"], {"qk_output": 3}, "qk_output is 3"),
        (
            [*TYPES, None, None, "int32[N]", "int32[]"],
            {"k_quant_type": "ROW"},
            "quantization is 'ROW'",
        ),
        ([*TYPES, None, None, "int32[N]", "int32[]"], {"sliding_window_cache": 1}, "wants local"),
        (
            [*TYPES, None, None, "int32[N]", "int32[]"],
            {"causal": 0, "local_window_size": 2},
            "causal is 0",
        ),
    ],
)
def test_refusals(given, attributes, says):
    assert says in refused("GroupQueryAttention", *given, **HEADS | attributes)
