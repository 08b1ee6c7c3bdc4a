"""Text: strings live on the host, as object arrays, whatever runs on the device.

No locale need be installed: case follows Unicode, and Turkish and Azeri their dotless i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._dim import maximum
from .._error import ShapeError
from .._facts import at_least, count, same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import STRING, TensorType
from ._agree import ranked, written
from ._regex import compiled

_CASES = ("NONE", "LOWER", "UPPER")


def words(x: Any) -> list[str]:
    """The elements in order; bytes that are no UTF-8 pass through as surrogates."""
    return [w if isinstance(w, str) else w.decode("utf-8", "surrogateescape") for w in x.flat]


def text(values: Any, shape: Any) -> np.ndarray:
    """An array of strings."""
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(shape)


@op("StringConcat", since=20, host=True, elementwise=True)
def string_concat(x, y, /):
    """Append y to x, element by element; the shapes broadcast."""
    return np.asarray(np.add(x, y), object) if namespace(x, y) is np else x + y


@op("RegexFullMatch", since=20, host=True)
def regex_full_match(x, /, *, pattern=None):
    """Tell of each element of x (*D) whether all of it matches an RE2 pattern -> bool (*D)."""
    regex = compiled(pattern or "")
    return np.array([regex.fullmatch(w) for w in words(x)], bool).reshape(x.shape)


@regex_full_match.shape_rule(rankless=True)  # because JAX holds no text
def _(x, /, *, pattern=None):
    compiled(pattern or "")
    return TensorType("bool", x.shape)


@op("StringSplit", since=20, host=True)
def string_split(x, /, *, delimiter=None, maxsplit=None):
    """Cut x (*D) at a delimiter, at most maxsplit times -> parts (*D, k), their numbers (*D)."""
    parts = [_parts(w, delimiter or None, maxsplit) for w in words(x)]
    k = max(map(len, parts), default=0)
    padded = [p for row in parts for p in (*row, *[""] * (k - len(row)))]
    counts = np.array([len(row) for row in parts], np.int64)
    return text(padded, (*x.shape, k)), counts.reshape(x.shape)


def _parts(word: str, delimiter: str | None, maxsplit: int | None) -> list[str]:
    # Python's split leaves white space behind the last part that maxsplit allows
    word = word if delimiter else word.strip()
    return word.split(delimiter, -1 if maxsplit is None else maxsplit)


@string_split.shape_rule(rankless=True)  # because the text decides how many parts there are
def _(x, /, *, delimiter=None, maxsplit=None):
    if x.shape is None:
        return TensorType(STRING, None), TensorType("int64", None)
    # a delimiter leaves at least one part, white space alone none
    least = int(bool(delimiter) and at_least(x.size, 1) is True)
    most = None if maxsplit is None or maxsplit < 0 else maxsplit + 1
    k = count("StringSplit_parts", least, 0 if x.size == 0 else most)
    return TensorType(STRING, (*x.shape, k)), TensorType("int64", x.shape)


@op("StringNormalizer", since=10, host=True)
def string_normalizer(
    x, /, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=None
):
    """Drop stopwords from x (C,) or (1, C), change case -> (k,) or (1, k); k is at least 1."""
    _check_normalizer(hostdims(x.shape), case_change_action)
    # without regard to case, words are compared in the case that is asked for
    compared = _NORMAL[case_change_action if case_change_action != "NONE" else "LOWER"]
    seen = (lambda w, locale: w) if is_case_sensitive else compared
    stops = {seen(w, locale) for w in stopwords or ()}
    kept = [w for w in words(x) if seen(w, locale) not in stops] or [""]
    changed = [_NORMAL[case_change_action](w, locale) for w in kept]
    return text(changed, (1,) * (x.ndim - 1) + (-1,))


def _check_normalizer(shape: Any, case: str) -> None:
    if case not in _CASES:
        raise ShapeError(f"case_change_action is {case!r}, wants {', '.join(_CASES)}")
    ranked("X", shape, 1, 2)
    if len(shape) == 2:
        same(shape[0], 1, f"X {written(shape)} is one row")


def _lower(word: str, locale: str | None) -> str:
    if _dotted(locale):
        word = word.replace("I", "ı").replace("İ", "i")
    return word.lower()


def _upper(word: str, locale: str | None) -> str:
    return (word.replace("i", "İ") if _dotted(locale) else word).upper()


def _dotted(locale: str | None) -> bool:
    return bool(locale) and locale[:2].lower() in ("tr", "az")


_NORMAL = {"NONE": lambda word, locale: word, "LOWER": _lower, "UPPER": _upper}


@string_normalizer.shape_rule  # because the text decides how many words are kept
def _(x, /, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=None):
    _check_normalizer(x.shape, case_change_action)
    most = maximum(x.shape[-1], 1)
    k = count("StringNormalizer_kept", 1, most) if stopwords and most != 1 else most
    return TensorType(STRING, (1,) * (len(x.shape) - 1) + (k,))
