"""com.microsoft: token ids, their hashes and alignments, held against onnxruntime."""

from typing import Any

import jax
import numpy as np
import pytest
from builders import node
from forms import demands, types
from layers import layer, refused
from twin import check, twin

import jaxshape as js

F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)


def numbers(*shape, dtype: Any = F):
    return rng.normal(size=shape).astype(dtype)


def test_sample():
    check("SampleOp", numbers(2, 3))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_repeated_ngrams(size):
    ids = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4], [0, 1, 2, 3, 4]])
    check("NGramRepeatBlock", ids, numbers(3, 6), ngram_size=size)


def test_bifurcation():
    for _ in range(12):
        source = rng.integers(0, 4, rng.integers(1, 9))
        at = rng.integers(0, source.size)
        current = rng.integers(0, 4, rng.integers(0, 4))
        guess = rng.integers(0, 4, source.size - at + 1)
        like = np.append(source[at:], 9)
        for given in ([], [guess], [like]):
            inputs = source, current, np.array(at), *given
            wanted = twin("BifurcationDetector", *inputs, outputs=2, **MS)
            layer("BifurcationDetector", *inputs, wanted=wanted, outputs=2, **MS)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (1, 4), (5, 2), (6, 7), (1, 4, 5)])
def test_time_warping(shape):
    for costs in (numbers(*shape), rng.integers(0, 3, shape).astype(F)):
        check("DynamicTimeWarping", costs)


@pytest.mark.parametrize("attributes", [{}, {"positive": 0}, {"seed": 42}])
@pytest.mark.parametrize(
    "x",
    [
        np.array([[1, -2], [3, 4]], np.int32),
        np.array([1, 2**31], np.uint32),
        np.array([1, -(2**40)], np.int64),
        np.array([1, 2**60], np.uint64),
        np.array([1.5, -0.0], F),
        np.array(1.5),
        np.array(["", "a", "hello", "grün", "abcdefgh"], object),
    ],
    ids=lambda x: str(x.dtype),
)
def test_hashes(x, attributes):
    check("MurmurHash3", x, **attributes)


SIZES, ODD = np.array([11, 13, 17, 19, 23, 29]), np.array([3, 5, 7, 9])
HOW: dict[str, Any] = {"max_ngram_size": 4, "n_head_per_ngram": 2, "pad_id": 1}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("optional", "attributes"),
    [
        ((), {}),
        (("past",), {}),
        (("offsets",), {}),
        (("past", "eos"), {"reset_on_eos": 1}),
        (("eos",), {}),
        (("past", "segments"), {}),
        (("past", "offsets", "eos", "segments"), {"reset_on_eos": 1}),
    ],
)
def test_hashes_of_ngrams(optional, attributes, dtype):
    n, length = 2, 6
    ids = rng.integers(-3, 9, (n, length)).astype(dtype)
    given = {
        "past": rng.integers(-3, 9, (n, 3)).astype(dtype),
        "offsets": (100 * np.arange(6)).astype(dtype),
        "eos": np.array(2, dtype),
        "segments": np.array([[0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 5, 6]], np.int32),
    }
    inputs: list[Any] = [ids, ODD.astype(dtype), SIZES.astype(dtype)]
    inputs += [v if k in optional else None for k, v in given.items()]
    while inputs[-1] is None:
        inputs.pop()
    check("NGramHashMapping", *inputs, outputs=2, **HOW, **attributes)


@pytest.mark.parametrize(
    ("optional", "attributes"),
    [
        ((), {}),
        (("past", "eos"), {"reset_on_eos": 1}),
        (("past", "offsets", "segments"), {}),
        (("past", "eos", "segments", "past_segments"), {"reset_on_eos": 1}),
        (("past", "segments", "captured"), {"state_update_capacity": 2}),
    ],
)
def test_hashes_of_ngrams_of_requests(optional, attributes):
    ends = np.array([0, 2, 3, 8], np.int32)
    given = {
        "past": rng.integers(0, 9, (3, 3)),
        "offsets": 100 * np.arange(6),
        "eos": np.array(2),
        "segments": np.array([0, 1, 0, 0, 0, 1, 1, 2], np.int32),
        "past_segments": np.array([[0, 0, 0], [1, 1, 0], [0, 1, 1]], np.int32),
        "captured": np.array([1, 5, 2], np.int32),
    }
    inputs: list[Any] = [rng.integers(0, 9, 8), ODD, SIZES, ends]
    inputs += [v if k in optional else None for k, v in given.items()]
    while inputs[-1] is None:
        inputs.pop()
    outputs = ("y", "ids", "parts" if "segments" in optional else "", "states")
    outputs = outputs if "captured" in optional else outputs[:3]
    outputs = outputs if outputs[-1] else outputs[:2]
    check("VarlenNGramHashMapping", *inputs, outputs=outputs, **HOW, **attributes)


def test_words():
    words = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 0, 0], [7, 0, 0, 0, 0], [0] * 5, [1, 2, 0, 3, 0]])
    weights = numbers(4, 1, 2, 3), numbers(4), numbers(10, 3)
    check("WordConvEmbedding", words.astype(np.int32), *weights)


def test_under_jit():
    ids, scores = np.array([[1, 2, 1]]), numbers(1, 4)
    f = jax.jit(
        js.to_jax(node("NGramRepeatBlock", "int64[N,S]", "float32[N,V]", ngram_size=2, **MS))
    )
    assert np.isneginf(f(ids, scores)[0, 2])
    with pytest.raises(js.UnsupportedError, match="depends on data"):
        jax.jit(js.to_jax(node("DynamicTimeWarping", "float32[M,N]", **MS)))(numbers(2, 3))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("NGramRepeatBlock", ["int64[N, S]", "float32[N, V]"], {"ngram_size": 3}, "float32[N, V]"),
        ("MurmurHash3", ["string[N]"], {"positive": 0}, "int32[N]"),
        ("NGramHashMapping", ["int64[N, S]", "int64[4]", "int64[6]"], HOW, "int64[N, S, 6]"),
        (
            "VarlenNGramHashMapping",
            ["int64[T]", "int64[4]", "int64[6]", "int32[M]"],
            HOW,
            "int64[T, 6]",
        ),
        (
            "WordConvEmbedding",
            ["int32[N, L]", "float32[F, 1, 2, E]", "float32[F]", "float32[V, E]"],
            {},
            "float32[N, F]",
        ),
        ("DynamicTimeWarping", ["float32[M, N]"], {}, "int32[2, steps]"),
        ("BifurcationDetector", ["int64[S]", "int64[T]", "int64[]"], {}, "int64[T]"),
        (
            "BifurcationDetector",
            ["int64[S]", "int64[T]", "int64[]", "int64[P]"],
            {},
            "int64[T + tokens]",
        ),
    ],
)
def test_sizes(op, inputs, attributes, wanted):
    assert types(op, *inputs, **attributes, **MS)[0].split(",  ")[0] == wanted


def test_demands():
    found = demands("NGramHashMapping", "int64[N, S]", "int64[4]", "int64[K]", **HOW, **MS)
    assert found == ["K == 6"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("NGramRepeatBlock", ["int64[1, 2]", "float32[1, 3]"], {"ngram_size": 0}, "is 0, wants"),
        (
            "NGramHashMapping",
            ["int64[1, 2]", "int64[4]", "int64[6]"],
            {**HOW, "max_ngram_size": 1},
            "max_ngram_size is 1",
        ),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes, **MS)
