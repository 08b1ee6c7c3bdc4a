"""Tokenizer of com.microsoft: text cut at separators, or into what a pattern matches.

Matches are the leftmost, and of those the longest, as onnxruntime asks of RE2.
"""

from __future__ import annotations

from typing import Any

from .._error import ShapeError
from .._facts import at_least, count
from .._op import op
from .._value import STRING, TensorType
from ._agree import ranked
from ._regex import Regex, compiled
from .text import text, words

_START, _END = "\x02", "\x03"


def _between(word: str, regex: Regex, least: int) -> list[str]:
    """The parts of a word between matches of a separator, those of at least so many characters."""
    parts, start = [], 0
    while (found := regex.search(word, start)) is not None:
        parts.append(word[start : found[0]])
        start = max(found[1], found[0] + 1)  # behind an empty match a character is lost
    parts.append(word[start:])
    return [p for p in parts if len(p) >= least]


def _matches(word: str, regex: Regex, least: int) -> list[str]:
    """The matches of a pattern, those of at least so many characters."""
    parts, start = [], 0
    while (found := regex.search(word, start)) is not None:
        long = found[1] - found[0] >= least
        parts += [word[slice(*found)]] * long
        start = found[1] if long else found[0] + 1
    return parts


def _tokens(word: str, separators: Any, tokenexp: Any, least: int) -> list[str]:
    if _by_character(separators, tokenexp):
        return list(word)
    if not separators:
        return _matches(word, compiled(tokenexp), least)
    parts = [word]
    for separator in separators:
        parts = [q for p in parts for q in _between(p, compiled(separator), least)]
    return parts


def _by_character(separators: Any, tokenexp: Any) -> bool:
    return tuple(separators or ()) == ("",) or not separators and tokenexp == "."


def _check(shape: Any, mincharnum: int, separators: Any, tokenexp: Any) -> None:
    ranked("X", shape, 1, 2)
    if not separators and not tokenexp:
        raise ShapeError("one of separators and tokenexp is wanted")
    by_character = _by_character(separators, tokenexp)
    if mincharnum < 1 or by_character and mincharnum > 1:
        raise ShapeError(
            f"mincharnum is {mincharnum}, wants {'' if by_character else 'at least '}1"
        )
    if not by_character:
        for pattern in separators or (tokenexp,):
            compiled(pattern)


@op("Tokenizer", domain="com.microsoft", host=True)
def tokenizer(x, /, *, mark, mincharnum, pad_value, separators=None, tokenexp=None):
    """Cut x (C,) or (N, C) into tokens -> (C, k) or (N, C, k), padded; mark adds start and end."""
    _check(x.shape, mincharnum, separators, tokenexp)
    if x.size == 0:
        return text([], (*x.shape[:-1], 0))  # onnxruntime gives no axis C then
    rows = [_tokens(w, separators, tokenexp, mincharnum) for w in words(x)]
    k = max(map(len, rows))
    if mark and k:
        rows, k = [[_START, *row, _END] for row in rows], k + 2
    padded = [t for row in rows for t in (*row, *[pad_value] * (k - len(row)))]
    return text(padded, (*x.shape, k))


@tokenizer.shape_rule(rankless=True)  # because the text decides how many tokens there are
def _(x, /, *, mark, mincharnum, pad_value, separators=None, tokenexp=None):
    _check(x.shape, mincharnum, separators, tokenexp)
    if x.shape is None or at_least(x.size, 1) is None:
        return TensorType(STRING, None)
    if x.size == 0:
        return TensorType(STRING, (*x.shape[:-1], 0))
    return TensorType(STRING, (*x.shape, count("Tokenizer_tokens")))
