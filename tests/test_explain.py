"""Why a value has its shape: every step is true, and the steps end at the inputs."""

import re

import numpy as np
import pytest
from builders import model
from onnx import numpy_helper
from test_show import Page

import jaxshape as js
from jaxshape._explain import Explanation, Place

NET = """
g (float[N, 3, H, W] x, float[8, 3, 3, 3] w) => (float[a, b] out) {
    c = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w)
    r = Relu(c)
    s = Shape(r)
    n = Gather(s, zero)
    t = Concat<axis = 0>(n, rest)
    f = Reshape(r, t)
    out = Concat<axis = 1>(f, f)
    k = NonZero(out)
    k2 = Concat<axis = 1>(k, k)
    long1 = Relu(x) long2 = Relu(long1) long3 = Neg(long2) long4 = Relu(long3) long5 = Neg(long4)
}
"""


@pytest.fixture(scope="module")
def trace():
    made = model(NET)
    for name, value in (("zero", [0]), ("rest", [-1])):
        made.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    return js.trace(made)


def chain(explanation: Explanation, part: str) -> list[tuple[str, str, str, str]]:
    return [(str(s.place), str(s.size), s.op, s.formula) for s in explanation.parts[part]]


def test_a_window(trace):
    found = trace.explain("c")
    assert list(found.parts) == ["axis 0", "axis 1", "axis 2", "axis 3"]
    assert chain(found, "axis 2") == [
        ("c.shape[2]", "(H - 1)//2 + 1", "Conv", "(x.shape[2] - 1)//2 + 1"),
        ("x.shape[2]", "H", "input", ""),
    ]
    assert chain(found, "axis 0")[0][3] == "x.shape[0]"
    assert chain(found, "axis 1") == [
        ("c.shape[1]", "8", "Conv", "w.shape[0]"),
        ("w.shape[0]", "8", "input", ""),
    ]
    step = found.parts["axis 2"][0]
    assert (step.node, step.how) == ("Conv -> c", "strides=[2, 2], pads=[1, 1, 1, 1]")


def test_through_contents(trace):
    found = chain(trace.explain("f"), "axis 0")
    assert [row[0] for row in found] == [
        "f.shape[0]", "t[0]", "n[0]", "s[0]", "r.shape[0]", "c.shape[0]", "x.shape[0]"
    ]  # fmt: skip
    wide = chain(trace.explain("out"), "axis 1")
    assert wide[0][3] == "2*f.shape[1]"
    assert wide[1][3] == "8*r.shape[0]*r.shape[2]*r.shape[3]//t[0]"
    ends = [row[0] for row in wide if row[2] == "input"]
    assert ends == ["x.shape[0]", "x.shape[2]", "x.shape[3]"]
    assert "s[2]" in trace.explain("s").parts


def test_every_step_is_true(trace):
    """Each formula, with the sizes at its sources put in, is the size."""
    sizes = {"N": 2, "H": 9, "W": 14}
    at = trace.at(**sizes)

    def value(place: Place) -> int:
        if place.shape is None:
            return at[place.value].shape[place.index]
        return np.ravel(at.content(place.value))[place.index]

    checked = 0
    for name in trace:
        for steps in trace.explain(name).parts.values():
            places = {s.place for s in steps}
            for step in steps:
                assert places.issuperset(step.sources)
                text = step.formula
                for place in sorted(step.sources, key=lambda p: -len(str(p))):
                    text = text.replace(str(place), f"({value(place)})")
                if text and "k" not in step.place.value:
                    assert eval(text) == value(step.place), step
                    checked += 1
    assert checked > 100


def test_data(trace):
    found = trace.explain("k2").parts["axis 1"]
    assert found[0].formula == "2*k.shape[1]"
    assert found[1].how.startswith("depends on data: 0 <= NonZero_count <= ")
    assert found[1].sources == () and len(found) == 2


def test_subgraphs_and_functions():
    made = js.trace(
        model("""<ir_version: 10, opset_import: ["": 20, "my": 1]>
        g (float[N, M] x, bool c) => (float[a, b] y) { t = my.f(x)
          y = If (c) <then_branch = t () => (float[p, q] r) { r = Concat<axis=0>(t, t) },
                      else_branch = e () => (float[p, q] r) { r = Concat<axis=0>(x, t, t) }> }
        <domain: "my", opset_import: ["": 20]> f (u) => (v) { v = Transpose(u) }""")
    )
    assert chain(made.explain("t"), "axis 0") == [
        ("t.shape[0]", "M", "my::f", "x.shape[1]"),
        ("x.shape[1]", "M", "input", ""),
    ]
    other = made.explain("y").parts["axis 1"]
    assert [s.op for s in other][0] == "If"


def test_shown(trace):
    plain = str(trace.explain("out"))
    assert plain.startswith("out: float32[N, ")
    assert re.search(
        r"\n\naxis 0: N\n  out.shape\[0\] +N +Concat -> out: axis=1 +f.shape\[0\]\n", plain
    )
    folded = str(trace.explain("long5"))
    assert "unchanged by 4 nodes: Relu, Neg" in folded
    rows = Page(trace.explain("c")._repr_html_()).rows
    assert ["x.shape[2]", "H", "input", ""] in rows
    with pytest.raises(js.UnknownValueError):
        trace.explain("nothing")
