"""TfIdfVectorizer: n-grams are counted by walking a trie from every place of a row at once.

The trie is one sorted table of edges: (state, token) is a number, and a step is a binary search for
it. So the walk is a few array operations, the same in NumPy and under jit. Tokens are numbered
first, which text needs the host for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._host import namespace
from .._op import op
from .._symbol import hostdims, to_export
from .._value import STRING, TensorType
from ._agree import ranked
from .text import words

_MODES = ("TF", "IDF", "TFIDF")


class _Trie(NamedTuple):
    vocabulary: Any  # the tokens in order
    edges: np.ndarray  # state * tokens + token, in order
    targets: np.ndarray  # the state behind each edge; 0 is the root, 1 is nowhere
    grams: np.ndarray  # the n-gram that ends in each state, -1 where none does


def _trie(grams: dict[tuple, int]) -> _Trie:
    """The trie of n-grams, each with its number."""
    vocabulary = sorted({token for gram in grams for token in gram})
    numbers = {token: i for i, token in enumerate(vocabulary)}
    edges: dict[int, int] = {}
    ends = [-1, -1]
    for gram, index in grams.items():
        state = 0
        for token in gram:
            edge = state * len(vocabulary) + numbers[token]
            if edge not in edges:
                edges[edge] = len(ends)
                ends.append(-1)
            state = edges[edge]
        ends[state] = index
    order = sorted(edges)
    dtype = object if vocabulary and isinstance(vocabulary[0], str) else np.int64
    return _Trie(
        np.array(vocabulary, dtype),
        np.array(order, np.int64),
        np.array([edges[e] for e in order], np.int64),
        np.array(ends, np.int64),
    )


def _grams(pool: Any, starts: Any, least: int, most: int) -> dict[tuple, int]:
    """The n-grams of the pool that are looked for, numbered as they stand in it."""
    found, number = {}, 0
    for n, (start, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % n:
            raise ShapeError(
                f"ngram_counts {list(starts)}: {n}-grams from {start} to {end} of {len(pool)}"
            )
        for at in range(start, end, n):
            if least <= n <= most:
                found[tuple(pool[at : at + n])] = number
            number += 1
    return found


def _find(table: np.ndarray, keys: Any) -> tuple[Any, Any]:
    """Where keys stand in a sorted table, and whether they do."""
    xp = namespace(keys)
    table = xp.asarray(table).astype(keys.dtype)
    at = xp.minimum(xp.searchsorted(table, keys), len(table) - 1)
    return at, table[at] == keys


def _tokens(x: Any, vocabulary: np.ndarray) -> Any:
    """The number of each token of x, -1 for those that no n-gram has."""
    if x.dtype == STRING:
        numbers = {token: i for i, token in enumerate(vocabulary)}
        found = [numbers.get(w, -1) for w in words(x)]
        return np.array(found, np.int64).reshape(x.shape)
    at, known = _find(vocabulary, x.astype(canonical("int64", x)))
    return namespace(x).where(known, at, -1).astype(canonical("int64", x))


@op("TfIdfVectorizer", since=9, host=True)
def tfidf(
    x, /, *, max_gram_length, max_skip_count, min_gram_length, mode, ngram_counts, ngram_indexes,
    pool_int64s=None, pool_strings=None, weights=None,
):  # fmt: skip
    """Count or weigh n-grams, which may skip tokens, in x (C,) or (N, C) -> (k,) or (N, k)."""
    pool = _checked(hostdims(x.shape), x.dtype, mode, pool_int64s, pool_strings)
    grams = _grams(pool, ngram_counts, min_gram_length, max_gram_length)
    k = _columns(ngram_indexes)
    xp, rows = namespace(x), x.reshape(1, -1) if x.ndim == 1 else x
    n = rows.shape[0]
    total = xp.zeros((n, k), np.float32)
    if grams and not any(isinstance(d, int) and d == 0 for d in x.shape):
        if max(grams.values()) >= len(ngram_indexes):
            raise ShapeError(f"{len(ngram_indexes)} ngram_indexes for more n-grams")
        trie = _trie(grams)
        columns = np.array([*ngram_indexes, k], np.int64)[trie.grams]  # column k: no n-gram
        columns[trie.grams < 0] = k
        tokens = _tokens(rows, trie.vocabulary)
        total = _counted(tokens, trie, columns, k, min_gram_length, max_gram_length, max_skip_count)
    if mode != "TF":
        total = xp.minimum(total, 1) if mode == "IDF" else total
        total = total * xp.asarray(_weights(weights, ngram_indexes, k))
    return total.reshape((*x.shape[:-1], k))


def _counted(
    tokens: Any, trie: _Trie, columns: Any, k: int, least: int, most: int, skips: int
) -> Any:
    """How often each column's n-grams are found in rows of tokens (N, C) -> (N, k).

    All strides, which skip one token less than they are long, are walked at once: (N, strides, C).
    """
    xp = namespace(tokens)
    n, c = (to_export(d) for d in hostdims(tokens.shape))
    # a stride from C on meets no second token, and single tokens have none
    strides = min(skips + 1, max(c - 1, 1)) if isinstance(c, int) else skips + 1
    stride = xp.arange(1, 1 + (strides if most > 1 else 1))[:, None]
    row, start = xp.arange(n)[:, None, None], xp.arange(c)
    total = xp.zeros((n, k + 1), np.float32)
    state = xp.zeros((n, stride.shape[0], c), tokens.dtype)
    targets = xp.asarray(trie.targets).astype(tokens.dtype)
    for size in range(1, most + 1):
        at = start + (size - 1) * stride
        ahead = xp.where(at < c, tokens[:, xp.minimum(at, c - 1)], -1)
        edge, known = _find(trie.edges, state * len(trie.vocabulary) + ahead)
        state = xp.where(known & (ahead >= 0), targets[edge], 1)
        if size >= least:  # single tokens are the same at every stride
            total = _add(total, row, xp.asarray(columns)[state if size > 1 else state[:, :1]])
    return total[:, :k]


def _add(total: Any, row: Any, columns: Any) -> Any:
    if isinstance(total, jax.Array):
        return total.at[row, columns].add(1)
    np.add.at(total, (row, columns), 1)
    return total


def _weights(weights: Any, indexes: Any, k: int) -> np.ndarray:
    """The weight of each column."""
    made = np.ones(k, np.float32)
    if weights:
        if len(weights) != len(indexes):
            raise ShapeError(f"{len(weights)} weights for {len(indexes)} ngram_indexes")
        made[list(indexes)] = weights
    return made


def _columns(indexes: Any) -> int:
    if not indexes or min(indexes) < 0:
        raise ShapeError(
            f"ngram_indexes {list(indexes or ())[:8]}: at least one is wanted, none < 0"
        )
    return max(indexes) + 1


def _checked(shape: Any, dtype: Any, mode: str, ints: Any, strings: Any) -> Any:
    """The pool of tokens, of x's type."""
    if mode not in _MODES:
        raise ShapeError(f"mode is {mode!r}, wants {', '.join(_MODES)}")
    if (ints is None) == (strings is None):
        raise ShapeError("one of pool_int64s and pool_strings is wanted")
    if (dtype == STRING) != (ints is None):
        raise ShapeError("text wants pool_strings, integers pool_int64s")
    ranked("X", shape, 1, 2)
    return strings if ints is None else ints


@tfidf.shape_rule  # because JAX holds no text
def _(x, /, *, mode, ngram_indexes, pool_int64s=None, pool_strings=None, **_):
    _checked(x.shape, x.dtype, mode, pool_int64s, pool_strings)
    return TensorType("float32", (*x.shape[:-1], _columns(ngram_indexes)))
