"""Text: strings, patterns, tokens, n-grams."""

import time
from typing import Any

import numpy as np
import pytest
from builders import node
from forms import run, types
from layers import refused
from twin import twin

import jaxshape as js
from jaxshape.ops._regex import Regex


def words(*values):
    return np.array(values, object)


# StringConcat, StringSplit, StringNormalizer ------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [
        (words("a", "b"), words("c"), ["ac", "bc"]),
        (words("a", "b"), np.array([["x"], ["y"]], object), [["ax", "bx"], ["ay", "by"]]),
        (np.array("ä", object), np.array("ß", object), "äß"),
        (np.zeros((0, 2), object), words("a", "b"), np.zeros((0, 2))),
    ],
)
def test_string_concat(x, y, wanted):
    (z,) = run("StringConcat", x, y)
    assert z.dtype == object and z.tolist() == np.array(wanted).tolist()


@pytest.mark.parametrize(
    ("attributes", "parts", "counts"),
    [
        ({}, [["a", "b"], ["c,,d", ""], ["", ""]], [2, 1, 0]),
        ({"delimiter": ""}, [["a", "b"], ["c,,d", ""], ["", ""]], [2, 1, 0]),
        ({"maxsplit": 0}, [["a  b"], ["c,,d"], [""]], [1, 1, 0]),  # no white space at the end
        ({"maxsplit": 1}, [["a", "b"], ["c,,d", ""], ["", ""]], [2, 1, 0]),
        ({"delimiter": ","}, [[" a  b ", "", ""], ["c", "", "d"], ["", "", ""]], [1, 3, 1]),
        ({"delimiter": ",", "maxsplit": 1}, [[" a  b ", ""], ["c", ",d"], ["", ""]], [1, 2, 1]),
    ],
)
def test_string_split(attributes, parts, counts):
    y, z = run("StringSplit", words(" a  b ", "c,,d", ""), outputs=2, **attributes)
    assert y.tolist() == parts and z.tolist() == counts


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_string_split_of_nothing(shape):
    y, z = run("StringSplit", np.zeros(shape, object), outputs=2, delimiter=",")
    assert y.shape == (*shape, 0) and z.shape == shape


@pytest.mark.parametrize(
    ("x", "attributes", "wanted"),
    [
        (["b", "A", "B"], {}, ["b", "A", "B"]),
        (["b", "A", "B"], {"stopwords": ["B"]}, ["A"]),
        (["b", "A", "B"], {"stopwords": ["B"], "is_case_sensitive": 1}, ["b", "A"]),
        (["b", "A", "B"], {"case_change_action": "UPPER"}, ["B", "A", "B"]),
        (["b", "a"], {"stopwords": ["a", "B"]}, [""]),
        ([["b", "a"]], {"stopwords": ["a", "B"]}, [[""]]),
        ([["É", ""]], {"case_change_action": "LOWER", "stopwords": ["x"]}, [["é", ""]]),
        (["Iİ", "ı"], {"case_change_action": "LOWER", "locale": "tr_TR"}, ["ıi", "ı"]),
        (["i"], {"case_change_action": "UPPER", "locale": "tr"}, ["İ"]),
        (["i"], {"case_change_action": "UPPER", "locale": "no_such_PLACE.x"}, ["I"]),
    ],
)
def test_string_normalizer(x, attributes, wanted):
    (y,) = run("StringNormalizer", np.array(x, object), **attributes)
    assert y.tolist() == wanted


# patterns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("", [""], ["a"]),
        ("a|bc*", ["a", "b", "bcc"], ["ab", "abc"]),
        ("(a|ab)(c|bcd)", ["ac", "abcd", "abc"], ["ab"]),
        ("(a*)*b?", ["", "aab"], ["ba"]),
        ("a{2}b{1,2}c{0,}", ["aab", "aabbcc"], ["ab", "aabbb"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),  # no repetition without a least
        ("(?:x|y)+?", ["x", "yx"], [""]),
        ("(?P<one>a)(?<two>b)", ["ab"], ["a"]),
        (".", ["é", "😀"], ["\n", "ab"]),
        ("(?s).", ["\n"], []),
        ("a$", ["a"], ["a\n"]),  # the end of the text, unlike Python's
        ("(?m)a$\n^b", ["a\nb"], []),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"a\b.b\B.", ["a bb"], ["aabb", "a b "]),
        (r"\d\w\s", ["1a ", "1_\t"], ["١a ", "1é "]),  # ASCII only
        (r"[^\D]+", ["12"], ["a"]),
        (r"[]a]\]?", ["]", "a]"], ["b"]),
        (r"[a\-c-]", ["a", "-", "c"], ["b"]),
        ("[[:alpha:]_]+[[:^digit:]]", ["a_b", "ab!"], ["a1"]),
        (r"\x41\x{1F600}\101\n", ["A😀A\n"], []),
        (r"\Qa+b\E+", ["a+b", "a+bb"], ["aab"]),
        (r"\pL+\p{Lu}\P{Lu}", ["éÉé"], ["éé1"]),
        ("a(?i)b", ["ab", "aB"], ["Ab"]),
        ("(a(?i)b)c", ["aBc"], ["aBC"]),
        ("(?i:é)k", ["Ék"], ["éK"]),
        ("(?i)[a-c]k", ["BK", "B\u212a"], ["d"]),
    ],
)
def test_patterns(pattern, matching, other):
    texts = [*matching, *other]
    (found,) = run("RegexFullMatch", words(*texts), pattern=pattern)
    assert [t for t, f in zip(texts, found, strict=True) if f] == matching
    if texts:
        np.testing.assert_array_equal(
            found, twin("RegexFullMatch", words(*texts), pattern=pattern)[0]
        )


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a**", "a repetition is repeated"),
        ("*a", "nothing is there to repeat"),
        ("(a", r"a \( is not closed"),
        ("a)", r"a \) closes no group"),
        ("[a", "it ends too early"),
        ("[b-a]", "the range b-a is empty"),
        ("(?=a)", "no group of RE2"),
        (r"(a)\1", "no escape of RE2"),
        ("a{1001}", "more than 1000 repetitions"),
        ("a{2,1}", "wrong order"),
        ("((a{1000}){1000})", "is too large"),
        ("(" * 200 + ")" * 200, "groups more than 100 deep"),
        ("[[:foo:]]", "is no class; known are alnum"),
    ],
)
def test_bad_patterns(pattern, says):
    with pytest.raises(js.ShapeError, match=says):
        js.trace(node("RegexFullMatch", "string[N]", pattern=pattern))


def test_no_pattern_takes_long():
    before = time.perf_counter()
    assert not Regex("(a+)+(a|aa)*$").fullmatch("a" * 5000 + "b")
    assert time.perf_counter() - before < 1


# Tokenizer ----------------------------------------------------------------------------------------

TOKENS: dict[str, Any] = {"domain": "com.microsoft", "mark": 0, "mincharnum": 1, "pad_value": "#"}


@pytest.mark.parametrize(
    "attributes",
    [
        {"separators": [" "]},
        {"separators": [" ", "b"]},
        {"separators": ["[^a-z]+", "a*"]},
        {"separators": [" "], "mark": 1},
        {"separators": [" "], "mincharnum": 2},
        {"separators": [""]},
        {"tokenexp": "."},
        {"tokenexp": "[a-c]|ab", "mark": 1},
        {"tokenexp": "a*", "mincharnum": 2},
        {"tokenexp": r"\w+"},
    ],
)
@pytest.mark.parametrize("x", [["ab  cab", "é", ""], [["a b", "x"], ["", " "]], [""], []])
def test_tokenizer(attributes, x):
    x = np.array(x, object)
    (y,) = run("Tokenizer", x, **TOKENS | attributes)
    assert y.tolist() == twin("Tokenizer", x, **TOKENS | attributes)[0].tolist()


# TfIdfVectorizer ----------------------------------------------------------------------------------

GRAMS: dict[str, Any] = {
    "max_gram_length": 2,
    "max_skip_count": 1,
    "min_gram_length": 1,
    "mode": "TF",
    "ngram_counts": [0, 3],
    "ngram_indexes": [0, 4, 1, 2, 3],
}
NUMBERS: dict[str, Any] = {"pool_int64s": [1, 2, 3, 1, 2, 3, 1]}
NAMES: dict[str, Any] = {"pool_strings": ["w1", "w2", "w3", "w1", "w2", "w3", "w1"]}
ROWS = [[1, 2, 2, 3, 1], [9, 1, 9, 2, 3]]


WEIGHTS = [0.5, 1.0, 2.0, 3.0, 4.0]
MODES: list[dict[str, Any]] = [
    {},
    {"mode": "IDF"},
    {"mode": "TFIDF", "weights": WEIGHTS},
    {"mode": "IDF", "weights": WEIGHTS},
    {"min_gram_length": 2},
    {"max_gram_length": 1, "max_skip_count": 3},
    {"max_skip_count": 0},
    {"max_skip_count": 9},
]


@pytest.mark.parametrize("attributes", MODES)
@pytest.mark.parametrize("x", [ROWS, ROWS[0], [7], [[7, 7]]])
def test_tfidf(attributes, x):
    text = np.vectorize("w{}".format, otypes=[object])(x)
    (wanted,) = twin("TfIdfVectorizer", text, **GRAMS | attributes, **NAMES)
    (y,) = run("TfIdfVectorizer", text, **GRAMS | attributes, **NAMES)
    np.testing.assert_allclose(y, wanted, 1e-6)


@pytest.mark.parametrize("x", [np.array(ROWS), np.array([7, 1], np.int32)])
def test_tfidf_of_numbers(x):
    (wanted,) = twin("TfIdfVectorizer", x, **GRAMS | MODES[2], **NUMBERS)
    (y,) = run("TfIdfVectorizer", x, **GRAMS | MODES[2], **NUMBERS)
    np.testing.assert_allclose(y, wanted, 1e-6)


def test_tfidf_of_nothing():
    (y,) = run("TfIdfVectorizer", np.zeros((2, 0), np.int64), **GRAMS, **NUMBERS)
    np.testing.assert_array_equal(y, np.zeros((2, 5), np.float32))


# sizes and errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "x", "attributes", "wanted"),
    [
        ("RegexFullMatch", "string[N, C]", {"pattern": "a"}, ["bool[N, C]"]),
        ("RegexFullMatch", "string", {"pattern": "a"}, ["bool[...]"]),
        ("StringSplit", "string[N]", {}, ["string[N, StringSplit_parts]", "int64[N]"]),
        ("StringSplit", "string[0]", {}, ["string[0, 0]", "int64[0]"]),
        ("StringSplit", "string", {}, ["string[...]", "int64[...]"]),
        ("StringNormalizer", "string[C]", {}, ["string[C]"]),
        ("StringNormalizer", "string[N, 0]", {}, ["string[1, 1]"]),
        ("StringNormalizer", "string[C]", {"stopwords": ["a"]}, ["string[StringNormalizer_kept]"]),
        ("TfIdfVectorizer", "string[N, C]", GRAMS | NAMES, ["float32[N, 5]"]),
        ("TfIdfVectorizer", "int32[C]", GRAMS | NUMBERS, ["float32[5]"]),
        (
            "Tokenizer",
            "string[N, C]",
            TOKENS | {"separators": [" "]},
            ["string[N, C, Tokenizer_tokens]"],
        ),
    ],
)
def test_sizes(op, x, attributes, wanted):
    assert types(op, x, outputs=len(wanted), **attributes) == wanted


def test_how_many_parts_there_may_be():
    found = js.trace(node("StringSplit", "string[N]", outputs=2, delimiter=",", maxsplit=2)).bounds
    assert found["StringSplit_parts"] == (1, 3)
    found = js.trace(node("StringNormalizer", "string[C]", stopwords=["a"])).bounds
    assert {n: (low, str(high)) for n, (low, high) in found.items()} == {
        "StringNormalizer_kept": (1, "C")
    }


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("StringConcat", ["string[2]", "string[3]"], {}, "2 does not broadcast with 3"),
        ("StringNormalizer", ["string[2, 3]"], {}, "is one row: 2 is not 1"),
        ("StringNormalizer", ["string[]"], {}, "has rank 0, wants 1 or 2"),
        ("StringNormalizer", ["string[2]"], {"case_change_action": "BIG"}, "'BIG', wants NONE"),
        ("Tokenizer", ["string[2]"], TOKENS, "one of separators and tokenexp is wanted"),
        (
            "Tokenizer",
            ["string[2]"],
            TOKENS | {"tokenexp": ".", "mincharnum": 2},
            "mincharnum is 2, wants 1",
        ),
        ("TfIdfVectorizer", ["int64[2]"], GRAMS | NAMES, "integers pool_int64s"),
        ("TfIdfVectorizer", ["int64[2]"], GRAMS, "one of pool_int64s and pool_strings"),
        ("TfIdfVectorizer", ["int64[2]"], GRAMS | NUMBERS | {"mode": "X"}, "mode is 'X'"),
        ("TfIdfVectorizer", ["int64[1, 1, 2]"], GRAMS | NUMBERS, "has rank 3, wants 1 or 2"),
    ],
)
def test_refusals(op, inputs, attributes, says):
    assert says in refused(op, *inputs, **attributes)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"ngram_counts": [0, 2]}, "2-grams from 2 to 7"),
        ({"ngram_indexes": [0, 1]}, "2 ngram_indexes for more n-grams"),
        ({"mode": "IDF", "weights": [1.0]}, "1 weights for 5 ngram_indexes"),
    ],
)
def test_pools_that_do_not_fit(attributes, says):
    with pytest.raises(js.ShapeError, match=says):
        run("TfIdfVectorizer", np.array([1, 2]), **GRAMS | NUMBERS | attributes)
