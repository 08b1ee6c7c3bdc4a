"""Token ids and words, and their alignments (com.microsoft).

Where the result's length is data it is computed in NumPy.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._error import ShapeError
from .._facts import count, same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked
from ._nonzero import concrete
from ._static import bounded
from .microsoft import DOMAIN


@op("SampleOp", DOMAIN, host=True, elementwise=True)
def sample(X, /):
    """Give X (*D) -> (*D)."""
    return X


def _repeat_shape(ids: Any, scores: Any, size: int) -> tuple[Any, ...]:
    if size < 1:
        raise ShapeError(f"ngram_size is {size}, wants at least 1")
    ranked("input_ids", ids, 2)
    ranked("scores", scores, 2)
    return (same(ids[0], scores[0], "batch of input_ids and scores"), scores[1])


@op("NGramRepeatBlock", DOMAIN)
def ngram_repeat_block(input_ids, scores, /, *, ngram_size):
    """Put -inf into scores (N, V) at the tokens that would end an n-gram which input_ids (N, S)
    hold already -> as scores."""
    _repeat_shape(hostdims(input_ids.shape), hostdims(scores.shape), ngram_size)
    length, n = input_ids.shape[1], ngram_size
    if length < n:
        return scores
    last = input_ids[:, length - n + 1 :]
    starts = jnp.arange(length - n + 1)
    grams = input_ids[:, starts[:, None] + jnp.arange(n - 1)]  # (N, S-n+1, n-1)
    found = jnp.all(grams == last[:, None], axis=2)
    ends = input_ids[:, n - 1 :]
    batch = jnp.arange(input_ids.shape[0])[:, None]
    bar = jnp.where(found, -np.inf, np.inf).astype(scores.dtype)
    return scores.at[batch, ends].min(bar, mode="drop")


@ngram_repeat_block.shape_rule  # because JAX cannot decide whether a sequence holds an n-gram
def _(input_ids, scores, /, *, ngram_size):
    return TensorType(scores.dtype, _repeat_shape(input_ids.shape, scores.shape, ngram_size))


# aggressive decoding ------------------------------------------------------------------------------


@op("BifurcationDetector", DOMAIN, host=True)
def bifurcation_detector(
    src_tokens, cur_tokens, prev_suffix_match_idx, pred_tokens=None, /, *, max_ngram_size=3,
    min_ngram_size=1,
):  # fmt: skip
    """Take pred_tokens to behind cur_tokens up to the first that src_tokens (S,) do not have, and
    find where in those the last n-gram goes on -> (T,), () of -1 where it does not."""
    if pred_tokens is not None:
        source, guess = concrete(src_tokens), concrete(pred_tokens)
        at = int(concrete(prev_suffix_match_idx).reshape(()))
        if guess.size != source.size + 1 - at:
            raise ShapeError(
                f"pred_tokens are {guess.size}, wants {source.size + 1 - at}: one more than "
                f"src_tokens from {at} on"
            )
        differ = np.flatnonzero(guess[:-1] != source[at:])
        taken = guess[: 1 + (differ[0] if differ.size else guess.size)]
        cur_tokens = np.concatenate([concrete(cur_tokens), taken])
    return cur_tokens, _match(src_tokens, cur_tokens, min_ngram_size, max_ngram_size)


def _match(source: Any, tokens: Any, least: int, most: int) -> Any:
    """Where the last n-gram of tokens, of the first size that the source has once, goes on in it;
    -1 if there is none."""
    xp = namespace(source, tokens)
    length, found, looking = source.shape[0], xp.asarray(np.int64(-1)), xp.asarray(True)
    for n in range(least, min(most, length, tokens.shape[0]) + 1):
        starts = xp.arange(length - n + 1)
        grams = source[starts[:, None] + xp.arange(n)]
        hits = xp.all(grams == tokens[tokens.shape[0] - n :], axis=1)
        number = xp.sum(hits)
        end = (xp.argmax(hits) + n).astype(found.dtype)
        found = xp.where(looking & (number == 1), end, found)
        looking = looking & (number > 1)
    return found


@bifurcation_detector.shape_rule  # because data tell how many tokens are taken
def _(src_tokens, cur_tokens, prev_suffix_match_idx, pred_tokens=None, /, **_):
    for name, t in (("src_tokens", src_tokens), ("cur_tokens", cur_tokens)):
        ranked(name, t.shape, 1)
    (length,) = cur_tokens.shape
    if pred_tokens is not None:
        ranked("pred_tokens", pred_tokens.shape, 1)
        length = length + count("tokens", most=pred_tokens.shape[0])
    return TensorType(cur_tokens.dtype, (length,)), TensorType("int64", ())


# alignment ----------------------------------------------------------------------------------------


@op("DynamicTimeWarping", DOMAIN, host=True)
def dynamic_time_warping(input, /):
    """Find the cheapest way through costs (M, N) or (1, M, N) from the first to the last, by steps
    down, right or both -> (2, x) of rows and columns."""
    cost = concrete(input)
    ranked("input", cost.shape, 2, 3)
    rows, columns = cost.shape[-2:]
    cost = cost.reshape(rows, columns)
    total = np.full((rows + 1, columns + 1), np.inf, cost.dtype)
    total[0, 0] = 0
    came = np.zeros((rows + 1, columns + 1), np.int8)
    for d in range(2, rows + columns + 1):  # what lies on a diagonal does not need each other
        i = np.arange(max(1, d - columns), min(rows, d - 1) + 1)
        j = d - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        kind = np.where(
            (both < down) & (both < right), 0, np.where((down < both) & (down < right), 1, 2)
        )
        total[i, j] = cost[i - 1, j - 1] + np.choose(kind, [both, down, right])
        came[i, j] = kind
    i, j, path = rows, columns, []
    while i > 0 and j > 0:
        path.append((i - 1, j - 1))
        kind = came[i, j]
        i, j = i - (kind != 2), j - (kind != 1)
    return np.array(path[::-1], np.int32).reshape(-1, 2).T


@dynamic_time_warping.shape_rule  # because data tell the length of the way
def _(input, /):
    ranked("input", input.shape, 2, 3)
    if len(input.shape) == 3:
        same(input.shape[0], 1, "batch of costs")
    rows, columns = input.shape[-2:]
    return TensorType("int32", (2, bounded("steps", most=rows + columns)))


# words --------------------------------------------------------------------------------------------


def _word_shapes(words: Any, w: Any, b: Any, c: Any) -> tuple[Any, Any]:
    for name, shape, rank in (("Sequence", words, 2), ("W", w, 4), ("B", b, 1), ("C", c, 2)):
        ranked(name, shape, rank)
    same(w[1], 1, "axis 1 of W")
    same(w[3], c[1], "size of a character's embedding")
    return words[0], same(w[0], b[0], "filters of W and B")


@op("WordConvEmbedding", DOMAIN)
def word_conv_embedding(
    Sequence, W, B, C, /, *, char_embedding_size=None, conv_window_size=None, embedding_size=None
):
    """Embed the characters of words Sequence (N, L), 0 where they end, by C (V, E), convolve by
    W (F, 1, k, E), take the greatest and its tanh -> (N, F)."""
    shapes = [hostdims(v.shape) for v in (Sequence, W, B, C)]
    _word_shapes(*shapes)  # type: ignore[misc]
    window, length = W.shape[2], Sequence.shape[1]
    characters = C[Sequence]  # (N, L, E)
    starts = jnp.arange(length - window + 1)
    parts = characters[:, starts[:, None] + jnp.arange(window)]  # (N, L-k+1, k, E)
    y = jnp.einsum("nlke,fke->nlf", parts, W[:, 0], precision=lax.Precision.HIGHEST) + B
    size = jnp.sum(Sequence > 0, axis=1)
    within = starts <= jnp.maximum(size, window)[:, None] - window
    best = jnp.tanh(jnp.max(jnp.where(within[:, :, None], y, -np.inf), axis=1))
    return jnp.where((size > 0)[:, None], best, 0).astype(W.dtype)


@word_conv_embedding.shape_rule  # because JAX cannot decide whether a window fits
def _(Sequence, W, B, C, /, **_):
    shapes = [v.shape for v in (Sequence, W, B, C)]
    return TensorType(W.dtype, _word_shapes(*shapes))  # type: ignore[misc]
