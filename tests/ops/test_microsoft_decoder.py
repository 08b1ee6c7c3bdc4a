"""com.microsoft: decoders that write into buffers, held against onnxruntime."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from builders import TYPES, node
from forms import demands, typed_as, types
from layers import compare, refused
from twin import check

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def session(m):
    """onnxruntime's, for a model whose outputs have their types."""
    for y in m.graph.output:
        y.type.tensor_type.elem_type = TYPES["float32"]
    m.opset_import[0].version = min(m.opset_import[0].version, 21)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(
        m.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def written(op, *inputs, buffers=(), outputs: Any = 1, **attributes):
    """The node gives what onnxruntime gives, whose outputs 1, 2 are the inputs at `buffers`."""
    typed = [None if x is None else typed_as(np.asarray(x)) for x in inputs]
    m = node(op, *typed, outputs=outputs, **MS, **attributes)
    fed = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    got = list(js.run(m, fed).values())
    made = session(m)
    binding = made.io_binding()
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for name, x in fed.items()}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    for i, y in enumerate(made.get_outputs()):
        if buffers and i in (1, 2):
            binding.bind_ortvalue_output(y.name, held[f"x{buffers[i - 1]}"])
        else:
            binding.bind_output(y.name)
    made.run_with_iobinding(binding)
    compare(got, [y.numpy() for y in binding.get_outputs()], 1e-4)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("section", [[4, 0, 0], [2, 1, 1], [1, 2, 1]])
def test_angles_of_three_positions(section, interleaved, layout):
    cos, sin, at = numbers(10, 4), numbers(10, 4), rng.integers(0, 10, (3, 2, 3))
    how = {"mrope_section": section, "mrope_layout": layout, "interleaved": interleaved}
    check("MRotaryEmbedding", numbers(2, 2, 3, 8), at, cos, sin, **how)
    check("MRotaryEmbedding", numbers(2, 3, 16), at, cos, sin, num_heads=2, **how)
    how |= {"num_heads": 2, "rotary_embedding_dim": 8}
    check("MRotaryEmbedding", numbers(2, 3, 24), at, cos, sin, **how)


def test_angles_in_float16():
    x, cos, sin = (numbers(*s, dtype=np.float16) for s in ((2, 2, 3, 8), (10, 4), (10, 4)))
    at = rng.integers(0, 10, (3, 2, 3))
    check("MRotaryEmbedding", x, at, cos, sin, mrope_section=[2, 1, 1], rtol=4e-3)


N, H, E, M, D = 4, 2, 4, 6, 8


def one(past, mask=None, bias=None, beams=None, added=None):
    """One token behind `past` ones in buffers."""
    made = [numbers(N, 1, D), numbers(N, 1, D), numbers(N, 1, D), mask, bias]
    made += [numbers(N, H, M, E), numbers(N, H, M, E), np.array([past], np.int32)]
    made += [None, None] if beams is None else [np.array([2], np.int32), beams]
    return [*made, added] if added is not None else made if beams is not None else made[:8]


MASK = np.array([[1, 0, 1, 1]] * N, np.int32)
BEAMS = rng.integers(0, 2, (2, 2, M)).astype(np.int32)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        (one(0), {}),
        (one(3), {"scale": 0.3}),
        (one(5), {}),
        (one(3, MASK), {}),
        (one(3, MASK), {"mask_filter_value": -1.0}),
        (one(3, None, numbers(1, H, 1, 4)), {}),
        (one(3, added=numbers(3 * D)), {}),
        (one(3, beams=BEAMS), {}),
    ],
)
def test_one_token(inputs, attributes):
    how = {"num_heads": H, "past_present_share_buffer": 1, **attributes}
    written("DecoderMaskedMultiHeadAttention", *inputs, outputs=3, **how)


@pytest.mark.parametrize(
    ("past", "beams", "mask", "added"),
    [(3, None, None, None), (0, None, None, numbers(3 * D)), (3, BEAMS, None, None),
     (3, None, MASK, None)],
)  # fmt: skip
def test_one_token_of_multi_head_attention(past, beams, mask, added):
    q, k, v, _, _, *rest = one(past)
    inputs = [q, k, v, added, mask, None, *rest, *([] if beams is None else [beams])]
    written("MultiHeadAttention", *inputs, outputs=3, num_heads=H)


@pytest.mark.parametrize("mask", [None, np.array([[1, 0, 1, 1, 1]] * N, np.int32)])
@pytest.mark.parametrize("added", [None, numbers(3 * D)])
def test_one_token_on_others(mask, added):
    inputs = [numbers(N, 1, D), numbers(N, H, 5, E), numbers(N, H, 5, E), mask]
    inputs += [] if added is None else [*[None] * 6, added]
    while inputs[-1] is None:
        inputs.pop()
    op, how = "DecoderMaskedMultiHeadAttention", {"num_heads": H}
    written(op, *inputs, **how)
    written(op, *inputs, outputs=("y", "", "", "qk"), output_qk=1, **how)


ROWS = np.array([[0, 1, 2], [0, 1, 3]], np.int32)
COLUMNS = np.array([[0, 1, -1], [0, 0, 1]], np.int32)


@pytest.mark.parametrize("how", ["plain", "turned", "packed"])
@pytest.mark.parametrize(
    ("new", "total", "lens"), [(20, 20, [20]), (1, 20, [20]), (1, 20, [20, 20]), (20, 20, [20, 20])]
)
def test_blocks(new, total, lens, how):
    n, h, kv, e = len(lens), 4, 2, 16
    parts = [numbers(n, new, d * e) for d in (h, kv, kv)]
    parts = [np.concatenate(parts, 2), None, None] if how == "packed" else parts
    inputs = [*parts, numbers(n, kv, 32, e), numbers(n, kv, 32, e), ROWS, COLUMNS]
    inputs += [np.array([total], np.int32), np.array(lens, np.int32)]
    attributes = {"num_heads": h, "kv_num_heads": kv, "sparse_block_size": 16}
    if how == "turned":
        inputs += [numbers(32, e // 2), numbers(32, e // 2)]
        attributes |= {"do_rotary": 1, "scale": 0.2}
    written("SparseAttention", *inputs, buffers=(3, 4), outputs=3, **attributes)


def floats(*shapes):
    return [None if s is None else f"float32[{s}]" for s in shapes]


SPARSE = ["int32[2, B]", "int32[2, Z]", "int32[1]", "int32[N]"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted", "requires"),
    [
        (
            "MRotaryEmbedding",
            ["float32[N, S, 32]", "int64[3, N, T]", "float32[P, 8]", "float32[P, 8]"],
            {"mrope_section": [4, 2, 2], "num_heads": 2},
            ["[N, S, 32]"],
            ["S == T"],
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            floats("N, 1, K", "N, 1, K", "N, 1, K", None, None, "N, 2, M, E", "N, 2, M, E")
            + ["int32[1]"],
            {"num_heads": 2, "past_present_share_buffer": 1},
            ["[N, 1, K]", "[N, 2, M, E]", "[N, 2, M, E]"],
            ["K == 2*E"],
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            floats("N, 1, 8", "N, 2, L, 4", "N, 2, L, 4"),
            {"num_heads": 2},
            ["[N, 1, 8]"],
            [],
        ),
        (
            "SparseAttention",
            floats("N, S, 64", "N, S, 32", "N, S, 32", "N, 2, C, 16", "N, 2, C, 16") + SPARSE,
            {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16},
            ["[N, S, 64]", "[N, 2, C, 16]", "[N, 2, C, 16]"],
            [],
        ),
    ],
)
def test_sizes(op, inputs, attributes, wanted, requires):
    found = types(op, *inputs, outputs=len(wanted), **attributes, **MS)
    assert found == [f"float32{w}" for w in wanted]
    assert demands(op, *inputs, outputs=len(wanted), **attributes, **MS) == requires


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        (
            "MRotaryEmbedding",
            ["float32[2, 3, 16]", "int64[3, 2, 3]", "float32[9, 4]", "float32[9, 4]"],
            {"mrope_section": [2, 1, 1]},
            "wants num_heads",
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            floats("1, 1, 8", "1, 1, 8", "1, 1, 8"),
            {"num_heads": 2},
            "wants past_key and past_value",
        ),
        (
            "SparseAttention",
            floats("1, 1, 64", "1, 1, 32", "1, 1, 32"),
            {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16},
            "needs the past",
        ),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)
