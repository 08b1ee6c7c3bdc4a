"""Every shape at many sizes: what one binding at a time gives, and nothing where none holds."""

import itertools
import json
from typing import Any

import numpy as np
import onnx
import pytest
from builders import model
from onnx import numpy_helper
from test_show import Page

import jaxshape as js
from jaxshape import _grid

NET = """
g (float[batch, 3, h, w] x, int8[batch, h] q) => (float[a, b] y) {
    c = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x)
    d = SpaceToDepth<blocksize=2>(c)
    f = Flatten<axis=1>(d)
    y = Concat<axis=0>(f, f)
    p = Cast<to=22>(q)
    s = Shape(f)
}
"""


def net() -> onnx.ModelProto:
    made = model(NET)
    made.graph.initializer.append(numpy_helper.from_array(np.zeros((5, 2), "f"), "weight"))
    return made


@pytest.fixture(scope="module")
def trace():
    return js.trace(net())


def same(sweep: js.Sweep, trace: js.Trace) -> None:
    """A sweep gives at each binding that holds what `at` gives, and masks what `at` refuses."""
    sizes = {name: v.tolist() for name, v in sweep.sizes.items()}
    for i in range(sweep.count):
        binding = {name: v[i] for name, v in sizes.items()}
        if not sweep.valid[i]:
            assert all(sweep[n][i].mask.all() for n in sweep if sweep[n].shape[1])
            if all(v >= 1 for v in binding.values()):
                with pytest.raises(js.ShapeError):
                    trace.at(**binding)
            continue
        at = trace.at(**binding)
        total = 0
        for name in sweep:
            assert tuple(sweep[name][i].tolist()) == at[name].shape, (name, binding)
            bits = 4 if at[name].dtype.name == "int4" else 8 * at[name].dtype.itemsize
            assert sweep.elements(name)[i] == at[name].size
            assert sweep.bytes(name)[i] == -(-at[name].size * bits // 8)
            total += int(sweep.bytes(name)[i])
        assert sweep.total_bytes[i] == total


def test_a_product(trace):
    sweep = trace.sweep(batch=range(1, 4), h=[7, 8, 10, 11], w=12)
    assert sweep.shape == (3, 4, 1) and sweep.count == 12
    rows = list(zip(*sweep.sizes.values(), strict=True))
    assert rows == list(itertools.product([1, 2, 3], [7, 8, 10, 11], [12]))
    assert sweep["x"].dtype == np.int64 and sweep["x"].shape == (12, 4)
    assert sweep["s"].tolist()[1] == [2]
    same(sweep, trace)


def test_together(trace):
    sweep = trace.sweep(batch=[1, 2, 3], h=[7, 8, 11], w=[12], zip=True)
    assert sweep.shape == (3,)
    assert [v.tolist() for v in sweep.sizes.values()] == [[1, 2, 3], [7, 8, 11], [12, 12, 12]]
    same(sweep, trace)
    with pytest.raises(js.ShapeError, match="2 of batch, 3 of h"):
        trace.sweep(batch=[1, 2], h=[1, 2, 3], zip=True)


def test_what_breaks_is_masked_and_named(trace):
    sweep = trace.sweep(batch=[0, 2], h=[8, 9, -3], w=[8])
    broken = {str(r): n for r, n in sweep.broken.items()}
    assert broken["batch >= 1"] == 3 and broken["h >= 1"] == 2
    assert sum("% 2 == 0" in r or "% 4" in r for r in broken) == 1
    assert sweep.valid.tolist() == [False, False, False, True, False, False]
    assert [str(r) for r in sweep.why(0)] == ["batch >= 1"]
    assert sweep.why(3) == []
    (demand,) = sweep.why(4)
    assert demand.node == "SpaceToDepth -> d"
    assert sweep.total_bytes.mask.tolist() == (~sweep.valid).tolist()
    assert sweep["y"].tolist()[0] == [None, None]
    assert (sweep["y"].data[~sweep.valid] == -1).all()


def test_what_is_not_given(trace):
    sweep = trace.sweep(batch=[1, 2])
    assert sweep["x"].tolist() == [[1, 3, None, None], [2, 3, None, None]]
    assert "x" in sweep.unknown and "weight" not in sweep.unknown
    assert sweep.bytes("x").mask.all() and sweep.bytes("weight").tolist() == [40, 40]
    assert sweep.total_bytes.tolist() == [56, 56]  # the weight, and the shape of f
    assert len(sweep.unchecked) == len(trace.requirements)
    assert trace.sweep().count == 1
    assert trace.sweep(batch=[])["x"].shape == (0, 4)


def test_derived_sizes():
    graph = """g (float[1, past] p, float[1, seq] x, float[1, total] mask) => (float[2, n] z)
        { y = Concat<axis=1>(p, x)  z = Concat<axis=0>(y, mask) }"""
    trace = js.trace(model(graph))
    sweep = trace.sweep(past=[1, 2, 5], total=[5])
    assert sweep["x"].tolist() == [[1, 4], [1, 3], [None, None]]
    assert sweep["z"].tolist() == [[2, 5], [2, 5], [None, None]]
    assert [str(r) for r in sweep.why(2)] == ["seq >= 1"]
    assert trace.sweep(past=1, seq=2, total=[3, 4]).valid.tolist() == [True, False]


def test_data_dependent_sizes():
    trace = js.trace(model("g (float[n] x) => (int64[1, K] y) { y = NonZero(x) }"))
    (name,) = trace.bounds
    assert trace.sweep(n=[1, 2])["y"].tolist() == [[1, None], [1, None]]
    sweep = trace.sweep({name: [0, 3], "n": [2, 3]})
    assert sweep["y"].tolist() == [[1, 0], [1, 0], [None, None], [1, 3]]


def test_sizes_that_no_formula_of_bearable_length_gives():
    nodes = "".join(f"t{i} = Concat<axis=0>(t{i - 1}, s{i})\n" for i in range(1, 40))
    inputs = ", ".join(f"float[n{i}, 2] s{i}" for i in range(1, 40))
    graph = f"g (float[n0, 2] t0, {inputs}) => (float[a, b] y) {{ {nodes} y = Identity(t39) }}"
    trace = js.trace(model(graph))
    sizes = {f"n{i}": [i + 1, 2] for i in range(40)}
    assert trace.sweep(sizes, zip=True)["y"].tolist() == [[820, 2], [80, 2]]


def test_divisors_of_zero():
    graph = """g (float[n] x, float[a, b] w) => (float[p, q, r] y)
        { s = Shape(w)  m = Constant<value_ints=[-1]>()  t = Concat<axis=0>(s, m)
          y = Reshape(x, t)  u = Sub(s, m) }"""
    trace = js.trace(model(graph))
    sweep = trace.sweep(n=[12, 13], a=[0, 2, 5], b=[3])
    assert sweep.valid.tolist() == [False, True, False, False, False, False]
    assert sweep["y"].tolist()[1] == [2, 3, 2]
    assert {str(r) for r in sweep.broken} == {"a >= 1", "n % (a*b) == 0"}


def test_numbers_are_exact():
    trace = js.trace(model("g (float[n, m] x) => (float[a, b] y) { y = Concat<axis=1>(x, x) }"))
    big = 3_000_000_001
    sweep = trace.sweep(n=[2, big], m=[big])
    assert sweep["y"].tolist() == [[2, 2 * big], [big, 2 * big]]
    assert sweep.elements("y").tolist() == [4 * big, 2 * big * big]
    assert sweep.bytes("y").tolist() == [16 * big, 8 * big * big]
    assert sweep.total_bytes.tolist() == [24 * big, 12 * big * big]


@pytest.mark.parametrize("block", [1, 5, 1 << 17])
def test_blocks(trace, monkeypatch, block):
    whole = trace.sweep(batch=range(1, 5), h=range(5, 9), w=range(6, 10)).total_bytes
    monkeypatch.setattr(_grid, "_BLOCK", block)
    parts = trace.sweep(batch=range(1, 5), h=range(5, 9), w=range(6, 10)).total_bytes
    assert parts.tolist() == whole.tolist()


@pytest.mark.parametrize(
    "sizes, error",
    [
        ({"batch": [1.5]}, js.ShapeError),
        ({"batch": "12"}, js.ShapeError),
        ({"batch": [[1]]}, js.ShapeError),
        ({"batch": [2**63]}, js.ShapeError),
        ({"Batch": 1}, js.UnknownValueError),
    ],
)
def test_refused(trace, sizes: dict[str, Any], error):
    with pytest.raises(error, match="atch"):
        trace.sweep(sizes)


def test_names(trace):
    sweep = trace.sweep(batch=1, h=8, w=8)
    with pytest.raises(js.UnknownValueError, match="'z'"):
        sweep["z"]
    assert list(sweep) == list(trace) and "y" in sweep
    odd = js.trace(model("g (float[n] x) => (float[n] y) { y = Neg(x) }"), {"x": ("zip it",)})
    assert odd.sweep({"zip it": [3]})["y"].tolist() == [[3]]


def test_it_cannot_be_written_to(trace):
    sweep = trace.sweep(batch=[1, 2], h=8, w=8)
    with pytest.raises(ValueError):
        sweep["x"][0, 0] = 7


def test_shown(trace):
    sweep = trace.sweep(batch=range(1, 30), h=[8, 9], w=8)
    plain = str(sweep)
    assert plain.startswith("58 bindings, 29 of which hold\n")
    for part in (
        "1 ... 29",
        "broken requirements",
        "SpaceToDepth -> d",
        "largest values at batch=29",
    ):
        assert part in plain
    rows = Page(sweep._repr_html_()).rows
    assert ["batch", "1 ... 29", "29"] in rows
    assert "none" not in repr(sweep) and "58 bindings" in repr(sweep)
    assert json.loads(json.dumps(sweep.to_dict(["y"])))["values"]["y"]["bytes"][1] is None
    assert str(trace.sweep()).startswith("1 binding\n")


def test_a_million_bindings(trace):
    sweep = trace.sweep(batch=range(1, 101), h=range(1, 101), w=range(1, 101))
    picked = np.random.default_rng(0).integers(0, sweep.count, 50)
    total, y = sweep.total_bytes, sweep["y"]
    for i in picked.tolist():
        binding = {name: int(v[i]) for name, v in sweep.sizes.items()}
        one = trace.sweep(binding)
        assert one["y"][0].tolist() == y[i].tolist()
        assert one.total_bytes.tolist() == [total[i] if sweep.valid[i] else None]
