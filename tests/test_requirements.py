"""How requirements and bounds read: Python over the model's names, short, each said once."""

import numpy as np
import pytest
from builders import model
from onnx import numpy_helper

import jaxshape as js
from jaxshape._dim import Dim, maximum, minimum, symbol
from jaxshape._facts import Facts, using
from jaxshape._require import Requirement

h, w, p, s = (symbol(name) for name in "hwps")
r = symbol("r", None)


def traced(text: str, **arrays) -> js.Trace:
    made = model(text)
    for name, value in arrays.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return js.trace(made)


@pytest.mark.parametrize(
    "demand, text",
    [
        (lambda f: f.least(maximum(r, 0) + 4, 5), "r >= 1"),
        (lambda f: f.least(minimum(h * w, 7), 3), "h*w >= 3"),
        (lambda f: f.least(h // 2, 3), "h >= 6"),
        (lambda f: f.least(1024, p + s), "p + s <= 1024"),
        (lambda f: f.least(h - w, 4), "h >= w + 4"),
        (lambda f: f.least(p + 4, s), "p + 4 >= s"),
        (lambda f: f.same(-4 * h * w, -8 * p), "h*w == 2*p"),
        (lambda f: f.same(-4 * (r * w), 0), "r == 0"),
        (lambda f: f.divisible(30, h * w), "30 % (h*w) == 0"),
        (lambda f: f.divisible(h * w + 1, 6), "(h*w + 1) % 6 == 0"),
    ],
)
def test_text(demand, text):
    facts = Facts()
    with using(facts):
        demand(facts)
    assert [str(x) for x in facts.report()] == [text] and repr(facts.report()) == f"[<{text}>]"


def test_a_size_at_least_1_is_no_greatest_of_itself_and_0():
    facts = Facts()
    with using(facts):
        facts.least(2 * maximum(r, 0) + 3, 5)
        facts.least(minimum(-r, -2), -9)
        assert facts.simplify(maximum(r, 0)) is facts.simplify(r) and facts.bound(r) == (1, 9)


def test_a_choice_says_what_follows_from_it():
    made = traced("g (float[2, 3] x, int64[2] t) => (float[a, b] y) { y = Expand(x, t) }")
    texts = [str(x) for x in made.requirements]
    assert "t_1 == 3 or t_1 == 1" in texts and "t_1 >= 0" not in texts


@pytest.mark.parametrize(
    "text, bounds",
    [
        ("(float[N, 3] x) => (int64[2, K] y) { y = NonZero(x) }", {"K": "0 3*N"}),
        (
            "(float[N] x, float[M] z) => (int64[2, K] y) "
            "{ a = NonZero(x)  b = NonZero(z)  y = Concat<axis=0>(a, b) }",
            {"K": "0 min(M, N)"},
        ),
    ],
)
def test_bounds(text, bounds):
    made = traced(f"g {text}")
    assert {n: f"{low} {high}" for n, (low, high) in made.bounds.items()} == bounds


def test_holds_element_by_element():
    env = {"h": np.array([1, 2, 3, 4]), "w": np.array([0, 2, 2, 1])}
    options = (Requirement("==", h, 3), Requirement("==", w, 1))
    for requirement, want in (
        (Requirement("%", h, 2), [False, True, False, True]),
        (Requirement("%", h, w), [False, True, False, True]),
        (Requirement(">=", h, w), [True, True, True, True]),
        (Requirement("or", alternatives=options), [False, False, True, True]),
    ):
        assert requirement.holds(env).tolist() == want
        rows = [{n: int(v[i]) for n, v in env.items()} for i in range(4)]
        assert [requirement.holds(row) for row in rows] == want
        assert requirement.symbols <= {h, w}
    assert all(isinstance(x, Dim) for x in options[0].symbols)


def test_a_size_that_can_be_one_number_alone_can_still_be_given():
    made = traced(
        "g (float[N, h] x) => (float[N, a] y) { y = MatMul(x, w) }", w=np.ones((8, 2), "f")
    )
    assert str(made["x"]) == "float32[N, 8]" and [str(x) for x in made.requirements] == ["h == 8"]
    assert made.symbols == ["N", "h"]
    assert str(made.at(N=3, h=8)["y"]) == "float32[3, 2]"
    with pytest.raises(js.ShapeError, match="h == 8"):
        made.at(N=3, h=9)
    assert made.sweep(N=2, h=[8, 9])["y"].tolist() == [[2, 2], [None, None]]


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("(float[?, 3] x) => (float[batch, 3] y) { y = Relu (x) }", "float32[batch, 3]"),
        ("(float[?, 3] x) => (float[?, 3] y) { y = Relu (x) }", "float32[x_0, 3]"),
        ("(float[n, 3] x) => (float[batch, 3] y) { y = Relu (x) }", "float32[n, 3]"),
        ("(float[?] x) => (float[b] y) { y = Concat <axis = 0> (x, x) }", "float32[x_0]"),
    ],
)
def test_a_size_without_a_name_takes_the_one_that_the_file_gives_it_elsewhere(text, x):
    """It is the caller's all the same: it depends on no data."""
    made = traced("g " + text)
    assert str(made["x"]) == x and made.bounds == {}
    assert made.at(**{made.symbols[0]: 4})["x"].shape[0] == 4
