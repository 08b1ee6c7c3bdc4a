"""Sizes as values: what shape arithmetic knows of its elements, as the runtime would compute."""

import numpy as np
import pytest
from builders import model

import jaxshape as js

CONSTANTS = {
    "half": "value_float = 0.5",
    "small": "value_float = 0.7",
    "odd": "value_floats = [2.5, -0.5]",
    "one": "value_ints = [1]",
    "two": "value_ints = [2]",
    "four": "value_ints = [4]",
    "minus": "value_ints = [-2]",
}


def graph(nodes: str, result: str = "int64") -> str:
    used = [f"{n} = Constant <{v}> ()" for n, v in CONSTANTS.items() if f"{n}" in nodes]
    return (
        f"g (float[N] x, float[M] z) => ({result}[] y) {{ n = Shape (x) {' '.join(used)} {nodes} }}"
    )


FLOAT = "f = Cast <to = 1> (n)"
INT = "y = Cast <to = 7> (r)"

# (nodes that make y from n, the sizes of x (N); what is known of y's elements)
ELEMENTS = [
    ("y = Div (n, two)", "[N//2]"),
    ("y = Div (n, minus)", "[-(N//2)]"),
    ("m = Neg (n) y = Div (m, two)", "[-(N//2)]"),
    ("m = Neg (n) y = Div (m, minus)", "[N//2]"),
    ("y = Mod (n, two)", "[N % 2]"),
    ("y = Mod <fmod = 1> (n, minus)", "[N % 2]"),
    ("m = Neg (n) y = Mod <fmod = 1> (m, two)", "[-(N % 2)]"),
    ("m = Neg (n) y = Mod (m, two)", "[N % 2]"),
    (f"{FLOAT} h = Mul (f, half) r = Floor (h) {INT}", "[N//2]"),
    (f"{FLOAT} h = Mul (f, small) r = Floor (h) {INT}", "[7*N//10]"),
    (f"{FLOAT} c = Concat <axis = 0> (f, odd) r = Round (c) {INT}", "[N, 2, 0]"),
    (f"{FLOAT} c = Concat <axis = 0> (f, odd) r = Floor (c) {INT}", "[N, 2, -1]"),
    (f"{FLOAT} h = Mul (f, half) m = Max (h, small) r = Floor (m) {INT}", "[N//2]"),
    (
        f"{FLOAT} h = Mul (f, half) g = Cast <to = 1> (one) m = Max (h, g) r = Floor (m) {INT}",
        "[max(N, 2)//2]",
    ),
    (f"{FLOAT} m = Min (f, small) r = Floor (m) {INT}", "[0]"),
    ("c = Less (n, one) y = Where (c, four, n)", "[N]"),
    ("c = Less (n, four) y = Where (c, four, n)", "[max(N, 4)]"),
    ("c = Equal (n, four) y = Where (c, four, n)", "[N]"),
    ("c = Less (n, four) y = Where (c, two, four)", "[value]"),
    ("c = Greater (n, four) y = Where (c, four, n)", "[min(N, 4)]"),
    ("m = Add (n, one) c = Less (n, four) y = Where (c, four, m)", "[max(N + 1, 4)]"),
    ("m = Add (n, one) c = Less (n, four) y = Where (c, m, four)", "[min(N + 1, 4)]"),
    ("c = Less (n, two) y = Where (c, one, n)", "[N]"),
]


MS = "m = Shape (z) g = Cast <to = 1> (m) r = Div (g, f)"  # a quotient of sizes, rounded

# (nodes that make y from n and the floats f, beside one that no formula gives; what is known of y)
BESIDE = [
    ("y = Concat <axis = 0> (odd, r)", "[2.5, -0.5, ?]"),
    ("c = Concat <axis = 0> (f, r, odd) y = Floor (c)", "[N, ?, 2, -1]"),
    ("c = Concat <axis = 0> (r, odd) y = Mul (c, half)", "[?, 1.25, -0.25]"),
    ("c = Concat <axis = 0> (r, odd) y = Max (c, half)", "[?, 2.5, 0.5]"),
    ("c = Concat <axis = 0> (r, odd) y = Gather (c, one)", "[2.5]"),
    ("c = Concat <axis = 0> (odd, r) y = ReduceSum <keepdims = 0> (c)", "?"),
    ("e = Equal (n, four) y = Where (e, r, odd)", "[?, ?]"),
    ("c = Concat <axis = 0> (odd, r) y = CumSum (c, one)", "[2.5, 2.0, ?]"),
    ("c = Concat <axis = 0> (odd, r) y = Cast <to = 11> (c)", "[2.5, -0.5, ?]"),
    ("y = Concat <axis = 0> (r, r) d = Sub (r, r)", "[?, ?]"),
    ("c = Concat <axis = 0> (odd, r) q = Less (c, half) y = Cast <to = 1> (q)", None),
    ("c = Concat <axis = 0> (odd, r) q = Cast <to = 9> (c) y = Cast <to = 1> (q)", None),
    ("y = Range (half, r, half)", None),
]


@pytest.mark.parametrize(("nodes", "elements"), BESIDE)
def test_a_float_that_no_formula_gives_leaves_the_others(nodes, elements):
    nodes = nodes.replace("CumSum (c, one)", "CumSum (c, zero)")
    zero = "zero = Constant <value_int = 0> ()"
    traced = js.trace(model(graph(f"{FLOAT} {MS} {zero} {nodes}", "float")))
    known = traced.content("y")
    assert (known if known is None else str(known.tolist())) == elements
    assert traced["y"] == js.trace(traced.model)["y"] and "y" in str(traced)


def test_a_float_that_is_unknown_is_an_unknown_integer():
    nodes = f"{FLOAT} {MS} c = Concat <axis = 0> (f, r) i = Floor (c) y = Cast <to = 7> (i)"
    assert str(js.trace(model(graph(nodes))).content("y").tolist()) == "[N, value]"


@pytest.mark.parametrize(("nodes", "elements"), ELEMENTS)
def test_elements(nodes, elements):
    traced = js.trace(model(graph(nodes)))
    known = traced.content("y")
    assert known is not None and str(known.tolist()) == elements
    for n in range(9):
        y = js.run(model(graph(nodes)), {"x": np.ones(n, "f"), "z": np.ones(2, "f")})["y"]
        for e, got in zip(known.tolist(), y.tolist(), strict=True):
            names = {s.name for s in getattr(e, "symbols", ())}
            if n and names <= {"N"}:
                assert got == (e.evaluate({"N": n}) if names else e)


def test_a_choice_by_halves():
    """Half a size that is less than another may be so by a half."""
    nodes = f"""{FLOAT} h = Mul (f, half) m = Shape (z) g = Cast <to = 1> (m) c = Less (h, g)
        t = Mul (m, two) e = Sub (t, two) d = Sub (t, one)"""
    for other, known in (("e", "[value]"), ("d", "[min(2*M - 1, N)]")):
        net = model(graph(f"{nodes} y = Where (c, n, {other})"))
        assert str(js.trace(net).content("y").tolist()) == known
    y = js.run(
        model(graph(f"{nodes} y = Where (c, n, e)")), {"x": np.ones(5, "f"), "z": np.ones(3, "f")}
    )
    assert y["y"].tolist() == [5]


def test_bounds_of_a_choice():
    nodes = "c = Less (n, four) s = Where (c, two, four) y = ConstantOfShape (s)"
    traced = js.trace(model(graph(nodes, "float")))
    assert (str(traced["y"]), traced.bounds) == ("float32[value]", {"value": (2, 4)})


def test_an_index_is_int64_on_the_host_too():
    """Whatever JAX's setting: what is folded has the dtype of the standard."""
    assert str(js.trace(model(graph("y = ArgMax <axis = 0> (n)")))["y"]) == "int64[1]"


def test_products_beyond_int64_are_unknown():
    """Doubled 70 times, a size has overflowed: no formula says what the runtime holds then."""
    steps = " ".join(f"s{i + 1} = Add (s{i}, s{i})" for i in range(70))
    traced = js.trace(model(graph(f"s0 = Identity (n) {steps} y = ConstantOfShape (s70)", "float")))
    assert "N" not in str(traced["y"])
