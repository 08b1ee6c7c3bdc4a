"""Values inside of subgraphs and functions, and what of them a trace as a whole says."""

import re

import pytest
from builders import model
from test_show import Page

import jaxshape as js

MODEL = """
<ir_version: 10, opset_import: ["": 20, "my": 1]>
g (float[N, 4] x, bool c, int64 m) => (float[a, b] y) {
    h = my.f(x)
    y = If (c) <
        then_branch = t () => (float[p, q] r) { r = my.f(h) },
        else_branch = e () => (float[p, q] r) { e1 = Relu(h)  r = Concat<axis=0>(e1, e1) }>
    two = Constant<value_int = 2>()
    z = Loop (two, , x) <body = b (int64 i, bool k, float[p, q] v) => (bool go, float[p, q] w)
        { go = Identity(k)  w = Concat<axis=1>(v, v) }>
    many = Constant<value_int = 100>()
    four = Constant<value_ints = [-1, 4]>()
    u = Loop (many, , x) <body = b (int64 i, bool k, float[p, q] v) => (bool go, float[p, q] w)
        { go = Identity(k)  n = NonZero(v)  s = Reshape(n, four)  w = Relu(v) }>
}
<domain: "my", opset_import: ["": 20]>
f (a) => (o) { q = Relu(a)  o = Concat<axis=0>(q, a) }
"""


@pytest.fixture(scope="module")
def trace():
    return js.trace(model(MODEL))


def types(values) -> dict[str, str]:
    return {name: str(t) for name, t in values.items()}


def test_paths(trace):
    assert list(trace.inner) == [
        "f -> h",
        "If -> y/then_branch",
        "If -> y/then_branch/f -> r",
        "If -> y/else_branch",
        "Loop -> z/body[0]",
        "Loop -> z/body[1]",
        "Loop -> u/body",
    ]


def test_types(trace):
    inner = trace.inner
    assert types(inner["f -> h"]) == {
        "a": "float32[N, 4]",
        "q": "float32[N, 4]",
        "o": "float32[2*N, 4]",
    }
    assert types(inner["If -> y/else_branch"]) == {"e1": "float32[2*N, 4]", "r": "float32[4*N, 4]"}
    assert str(inner["Loop -> z/body[0]"]["w"]) == "float32[N, 8]"
    assert str(inner["Loop -> z/body[1]"]["w"]) == "float32[N, 16]"
    assert inner["Loop -> z/body[1]"].content("i") == 1
    with pytest.raises(js.UnknownValueError, match="'nothing'"):
        inner["f -> h"]["nothing"]


def test_a_call_that_a_memo_answers_has_a_path_of_its_own():
    made = js.trace(
        model("""<ir_version: 10, opset_import: ["": 20, "my": 1]>
        g (float[N] x) => (float[N] y) { a = my.f(x)  b = Relu(a)  y = my.f(b) }
        <domain: "my", opset_import: ["": 20]> f (u) => (v) { t = Neg(u)  v = my.h(t) }
        <domain: "my", opset_import: ["": 20, "my": 1]> h (u) => (v) { v = Neg(u) }""")
    )
    assert list(made.inner) == ["f -> a", "f -> a/h -> v", "f -> y", "f -> y/h -> v"]


def test_sizes_inside_are_no_concern_outside(trace):
    assert trace.bounds == {}
    assert [str(r) for r in trace.requirements] == []
    assert len(trace._facts.report()) == 1  # what must hold of a count in one round
    inside = trace.inner["Loop -> u/body"]
    assert re.fullmatch(r"int64\[2, \w+\]", str(inside["n"]))
    (bound,) = [b for name, b in inside.bounds.items() if name in str(inside["n"])]
    assert (bound[0], str(bound[1])) == (0, "4*N")


def test_shown(trace):
    plain = str(trace)
    assert (
        "\n\nIf -> y/else_branch\n  name  op      type\n  e1    Relu    float32[2*N, 4]\n" in plain
    )
    page = Page(trace._repr_html_())
    assert ["e1", "Relu", "float32[2*N, 4]"] in page.rows
    assert trace.to_json()["inner"]["f -> h"]["q"] == "float32[N, 4]"


def test_errors_name_the_path():
    text = """g (float[3] x, float[2] z, bool c) => (float[a] y) { y = If (c) <
        then_branch = t () => (float[p] r) { r = Neg(x) },
        else_branch = e () => (float[p] r) { i = If (c) <
            then_branch = t2 () => (float[p] q) { q = Add(x, z) },
            else_branch = e2 () => (float[p] q) { q = Add(z, x) }> r = Neg(i) }> }"""
    made = js.trace(model(text))
    assert str(made["y"]) == "float32[3]"  # the other branch is proved impossible
    with pytest.raises(js.ShapeError, match="If -> y/then_branch/Add -> r"):
        js.trace(model(text.replace("r = Neg(x)", "r = Add(x, z)")))
