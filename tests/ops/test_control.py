"""If, Loop and Scan: what is known of sizes made by a graph in a graph, and what it demands."""

import jax
import numpy as np
import pytest
from builders import model
from onnx import helper

import jaxshape as js

ONE, TWO = "one = Constant <value_ints = [1]> ()", "two = Constant <value_ints = [2]> ()"
LENGTH = "n = Shape (x)"


def if_(condition: str, yes: str, no: str) -> str:
    """y is what `yes` or `no` makes of x (N): each ends in a value `u` or `v`."""
    return f"""g (float[N] x, bool flag) => (float[] y) {{
        {LENGTH} {ONE} {TWO}
        four = Constant <value_ints = [4]> ()
        {condition}
        y = If (c) <then_branch = t () => (float[] u) {{ {yes} }},
                    else_branch = e () => (float[] v) {{ {no} }}>
    }}"""


def loop(trips: str, body: str, outputs: str = "y, ys", start: str = "", ends: str = "w, z") -> str:
    """x (N) is carried through rounds of `body`, which makes w of v, and z, a row to collect."""
    declared = ", ".join(f"float[] {o.strip()}" for o in outputs.split(","))
    made = ", ".join(f"float[] {o.strip()}" for o in ends.split(","))
    return f"""g (float[N] x, int64 m, bool flag) => ({declared}) {{
        {LENGTH} {ONE} {TWO}
        three = Constant <value_int = 3> ()
        far = Constant <value_int = 1000> ()
        never = Constant <value_int = 0> ()
        {outputs} = Loop ({trips}, {start}, x) <body = b (int64 i, bool k, float[] v)
            => (bool go, {made}) {{ go = Identity (k) {body} }}>
    }}"""


def counting(start: str) -> str:
    """A number is carried beside y, which is as long as the number says."""
    return f"""g (float[1] x, int64[1] k) => (float[] y, int64[] end) {{
        {ONE} {TWO} trips = Constant <value_int = 2> ()
        end, y = Loop (trips, , {start}, x) <body =
            b (int64 i, bool c, int64[1] j, float[] v) => (bool go, int64[1] after, float[] w)
            {{ go = Identity (c) after = Add (j, one) w = Expand (x, after) }}>
    }}"""


def scan(body: str) -> str:
    """A state s (N) and the rows of x (T, M) go through `body`, which makes t of s, and z."""
    return f"""g (float[N] s, float[T, M] x) => (float[] y, float[] ys) {{
        {TWO}
        y, ys = Scan (s, x) <num_scan_inputs = 1, body = b (float[] a, float[] r)
            => (float[] t, float[] z) {{ {body} }}>
    }}"""


SAME = "w = Relu (v) z = Neg (v)"
TWICE = "w = Concat <axis = 0> (v, v) z = ReduceSum <keepdims = 0> (v)"

# (graph, types as text, requirements)
TYPES = {
    "if: both branches alike": (
        if_("c = Identity (flag)", "u = Relu (x)", "v = Neg (x)"),
        {"y": "float32[N]"},
        [],
    ),
    "if: a size that differs is between the two": (
        if_("c = Identity (flag)", "u = Relu (x)", "v = Concat <axis = 0> (x, x)"),
        {"y": "float32[If_size]"},
        [],
    ),
    "if: a condition on sizes is no failure": (
        if_("t = GreaterOrEqual (n, four) c = Squeeze (t)", "u = Relu (x)", "v = Neg (x)"),
        {"y": "float32[N]"},
        [],
    ),
    "if: what a branch demands holds only there": (
        if_("c = Identity (flag)", "s = Reshape (x, four) u = Neg (s)", "v = Identity (x)"),
        {"y": "float32[If_size]"},
        [],
    ),
    "if: a branch that cannot be leaves the other": (
        if_("t = Less (n, four) c = Squeeze (t)", "u = Reshape (x, four)", "v = Relu (x)"),
        {"y": "float32[N]"},
        ["N >= 4"],
    ),
    "if: nor one that cannot be reached": (
        if_(
            "r = Reshape (x, four) t = Less (n, four) c = Squeeze (t)",
            "u = Reshape (x, two)",
            "v = Relu (r)",
        ),
        {"y": "float32[4]"},
        ["N == 4"],
    ),
    "if: the lesser where what is longer is cut": (
        if_(
            "t = Greater (n, four) c = Squeeze (t)",
            "zero = Constant <value_ints = [0]> () u = Slice (x, zero, four)",
            "v = Identity (x)",
        ),
        {"y": "float32[min(N, 4)]"},
        [],
    ),
    "if: the greater where what is shorter is padded": (
        if_(
            "t = GreaterOrEqual (n, four) c = Squeeze (t)",
            "u = Identity (x)",
            "zero = Sub (n, n) d = Sub (four, n) p = Concat <axis = 0> (zero, d) v = Pad (x, p)",
        ),
        {"y": "float32[max(N, 4)]"},
        [],
    ),
    "if: the one that is the other where the other is chosen": (
        if_(
            "t = Equal (n, four) c = Squeeze (t)",
            "u = ConstantOfShape (four)",
            "v = Identity (x)",
        ),
        {"y": "float32[N]"},
        [],
    ),
    "if: not by what a branch's own size is there": (
        if_(
            "t = Greater (n, one) c = Squeeze (t)",
            "p = NonZero (x) f = Cast <to = 1> (p) r = Neg (one) u = Reshape (f, r)",
            "e = Sub (n, n) v = ConstantOfShape (e)",
        ),
        {"y": "float32[If_size]"},
        [],
    ),
    "if: a number that decides a size outside": (
        f"""g (float[N] x) => (float[] y) {{
            {LENGTH} {ONE} four = Constant <value_ints = [4]> ()
            t = Greater (n, four) c = Squeeze (t)
            k = If (c) <then_branch = t () => (int64[1] u) {{ u = Identity (four) }},
                        else_branch = e () => (int64[1] v) {{ v = Identity (n) }}>
            y = ConstantOfShape (k)
        }}""",
        {"y": "float32[min(N, 4)]"},
        [],
    ),
    "loop: rounds one by one": (
        loop("three", TWICE),
        {"y": "float32[8*N]", "ys": "float32[3]"},
        [],
    ),
    "loop: a fixpoint": (
        loop("far", SAME),
        {"y": "float32[N]", "ys": "float32[1000, N]"},
        [],
    ),
    "loop: a size that changes is a fresh one": (
        loop("far", TWICE),
        {"y": "float32[Loop_size_1]", "ys": "float32[1000]"},
        [],
    ),
    "loop: what the body demands holds where it runs": (
        loop("far", "s = Reshape (v, two) w = Relu (s) z = Neg (s)"),
        {"y": "float32[2]", "ys": "float32[1000, 2]"},
        ["N == 2"],
    ),
    "loop: not where it may not run": (
        loop("m", "s = Reshape (v, two) w = Relu (s) z = Neg (s)"),
        {"y": "float32[N]"},
        [],
    ),
    "loop: nor where the first condition is data": (
        loop("far", "s = Reshape (v, two) w = Relu (s) z = Neg (s)", start="flag"),
        {"y": "float32[N]"},
        [],
    ),
    "loop: no round leaves all as it is": (
        loop("never", TWICE),
        {"y": "float32[N]", "ys": "float32[0]"},
        [],
    ),
    "loop: a body that cannot run does not run": (
        loop("m", "s = Reshape (one, two) f = Cast <to = 1> (s) w = Add (v, f) z = Neg (f)"),
        {"y": "float32[N]"},
        [],
    ),
    "loop: what is carried is followed round by round": (
        loop("three", "w = Concat <axis = 0> (v, x) z = ReduceSum <keepdims = 0> (w)"),
        {"y": "float32[4*N]", "ys": "float32[3]"},
        [],
    ),
    "loop: a carried number decides a size": (
        counting("one"),
        {"y": "float32[3]", "end": "int64[1]"},
        [],
    ),
    "loop: a number that was given, too": (
        counting("k"),
        {"y": "float32[k + 2]", "end": "int64[1]"},
        ["k >= -1"],
    ),
    "scan": (
        scan("t = Relu (a) z = Neg (r)"),
        {"y": "float32[N]", "ys": "float32[T, M]"},
        [],
    ),
    "scan: a state keeps its size": (
        scan("t = Add (a, r) z = Reshape (r, two)"),
        {"ys": "float32[T, 2]"},
        ["N == 2", "M == 2"],
    ),
}


@pytest.mark.parametrize(("graph", "types", "demands"), TYPES.values(), ids=TYPES)
def test_types(graph, types, demands):
    traced = js.trace(model(graph))
    assert {n: str(traced[n]) for n in types} == types
    assert [str(r) for r in traced.requirements] == demands


def test_bounds_of_a_joined_size():
    traced = js.trace(model(TYPES["if: a size that differs is between the two"][0]))
    assert {n: (low, str(high)) for n, (low, high) in traced.bounds.items()} == {
        "If_size": (1, "2*N")
    }


@pytest.mark.parametrize("trips", [0, 1, 2])
def test_rows_of_a_loop(trips):
    """A loop that never runs gives no rows, of the size that its rows would have."""
    feed = {"x": np.ones(3, np.float32), "m": np.asarray(trips), "flag": np.asarray(True)}
    found = js.run(model(loop("m", SAME)), feed)
    assert (found["y"].shape, found["ys"].shape) == ((3,), (trips, 3))


def test_impossible_body_that_never_runs():
    graph = loop("m", "s = Reshape (v, two) w = Relu (s) z = Neg (s)")
    feed = {"x": np.ones(3, np.float32), "m": np.asarray(0), "flag": np.asarray(True)}
    assert js.run(model(graph), feed)["y"].shape == (3,)


def nested(depth: int, name: str = "") -> str:
    """Loops in one another, the innermost of which doubles what is carried."""
    i, carry = f"i{depth}", f"v{depth}"
    inner = (
        f"w{depth} = Concat <axis = 0> ({carry}, {carry})"
        if depth == 0
        else f"w{depth} = Loop (m, , {carry}) <body = {nested(depth - 1)}>"
    )
    return (
        f"b{depth} (int64 {i}, bool k{depth}, float[] {carry}) => (bool g{depth}, float[] "
        f"w{depth}) {{ g{depth} = Identity (k{depth}) {inner} }}"
    )


@pytest.mark.parametrize("m", ["int64 m", ""])
def test_loops_in_loops(m):
    """They end, however deep, and claim nothing of what they do not follow."""
    known = "" if m else "m = Constant <value_int = 3> ()"
    graph = f"""g (float[N] x{", " + m if m else ""}) => (float[] y) {{
        {known} y = Loop (m, , x) <body = {nested(6)}>
    }}"""
    assert str(js.trace(model(graph))["y"]) in ("float32[...]", "float32[Loop_size]")


def test_sizes_from_a_carried_number():
    feed = {"x": np.ones(1, np.float32), "k": np.array([4])}
    assert js.run(model(counting("one")), feed)["y"].shape == (3,)
    assert js.run(model(counting("k")), feed)["y"].shape == (6,)
    assert jax.jit(js.to_jax(model(counting("one"))))(**feed)[0].shape == (3,)


def test_branches_give_the_same_number_of_values():
    graph = """g (float[N] x, bool flag) => (float[] y) {
        y = If (flag) <then_branch = t () => (float[] u) { u = Relu (x) },
                       else_branch = e () => (float[] v, float[] w) { v = Neg (x) w = Neg (v) }>
    }"""
    with pytest.raises(js.ShapeError, match="then_branch gives 1 outputs, else_branch 2"):
        js.trace(model(graph))


def test_a_sequence_that_grows_is_not_for_jit():
    graph = """g (float[N] x, int64 m) => (float[] y) {
        s = SequenceEmpty ()
        t = Loop (m, , s) <body = b (int64 i, bool c, seq(float[N]) v) => (bool go, seq(float[N]) w)
            { go = Identity (c) w = SequenceInsert (v, x) }>
        y = ConcatFromSequence <axis = 0> (t)
    }"""
    f, feed = js.to_jax(model(graph)), {"x": np.ones(2, np.float32), "m": np.asarray(3)}
    assert js.run(model(graph), feed)["y"].shape == (6,)
    with pytest.raises(js.UnsupportedError, match="sequence carried as value 0 changes"):
        f(**feed)


def test_a_carried_shape_that_never_changes():
    graph = """g (float[1] x, int64 m) => (float[] y, int64[] end) {
        start = Constant <value_ints = [2, 5]> ()
        first = Expand (x, start)
        end, y = Loop (m, , start, first) <body = b (int64 i, bool c, int64[2] s, float[] v)
            => (bool go, int64[2] t, float[] w) { go = Identity (c) t = Identity (s)
            e = Expand (x, s) w = Add (e, v) }>
    }"""
    assert str(js.trace(model(graph))["y"]) == "float32[2, 5]"
    feed = {"x": np.ones(1, np.float32), "m": np.asarray(3)}
    y = js.run(model(graph), feed)["y"]
    np.testing.assert_array_equal(y, np.full((2, 5), 4, np.float32))
    found, end = jax.jit(js.to_jax(model(graph)))(**feed)
    np.testing.assert_array_equal(found, y)
    assert end.tolist() == [2, 5]


@pytest.mark.parametrize("data", ["", "d = Equal (i, far)"])
def test_a_loop_whose_first_condition_is_false(data):
    """No round, whatever the body answers."""
    graph = f"""g (float[N] x) => (float[] y, float[] ys) {{
        m = Constant <value_int = 40> ()
        far = Constant <value_int = 7> ()
        no = Equal (m, far)
        y, ys = Loop (m, no, x) <body = b (int64 i, bool c, float[] v)
            => (bool go, float[] w, float[] z) {{
                {data} go = Identity ({"d" if data else "c"}) w = Add (v, v) z = Neg (v) }}>
    }}"""
    x = np.ones(3, np.float32)
    assert [str(t) for t in js.trace(model(graph)).outputs.values()] == [
        "float32[N]",
        "float32[0, N]",
    ]
    found = js.run(model(graph), {"x": x})
    np.testing.assert_array_equal(found["y"], x)
    assert found["ys"].shape == (0, 3)
    assert [a.shape for a in jax.jit(js.to_jax(model(graph)))(x)] == [(3,), (0, 3)]


def test_a_loop_of_its_trips_alone():
    graph = """g (float[N] x) => (float[] y) {
        m = Constant <value_int = 3> ()
        y = Loop (m) <body = b (int64 i, bool c) => (bool go, float[] z)
            { go = Identity (c) z = Neg (x) }>
    }"""
    assert str(js.trace(model(graph))["y"]) == "float32[3, N]"


@pytest.mark.parametrize("first", ["yes", "more"], ids=["True", "data"])
@pytest.mark.parametrize(
    "most", ["0", "2", "100", "70000", "2147483647", "9223372036854775807", ""]
)
def test_a_loop_that_data_ends(most, first):
    """Exporters write a `while` as a loop of the largest number of trips there is."""
    graph = f"""g (float[1] x, float n) => (float[1] y) {{
        yes = Constant <value = bool {{1}}> ()
        most = Constant <value_int = {most or 0}> ()
        s = ReduceSum <keepdims = 0> (x)
        more = Less (s, n)
        y = Loop ({"most" if most else ""}, {first}, x) <body = b (int64 i, bool c, float[1] v)
            => (bool go, float[1] w) {{ w = Add (v, x) t = Squeeze (w) go = Less (t, n) }}>
    }}"""
    f = js.to_jax(model(graph))
    for n in (0, 4):
        feed = {"x": np.ones(1, np.float32), "n": np.float32(n)}
        rounds = max(n - 1, 1 if first == "yes" else 0)
        want = [1 + min(rounds, int(most or 9))]
        assert js.run(f.model, feed)["y"] == want
        for wide in (False, True):
            with jax.enable_x64(wide):
                assert jax.jit(lambda feed: f(**feed))(feed).tolist() == want


ROUNDS_THAT_DIFFER = {  # what a round makes of v, and whether it is as large
    "a slice at the trip": """s = Reshape (i, one) e = Add (s, one) t = Slice (x, s, e)
        w = Add (v, t)""",
    "a carry that grows": "w = Concat <axis = 0> (v, x)",
}


@pytest.mark.parametrize("round", ROUNDS_THAT_DIFFER.values(), ids=ROUNDS_THAT_DIFFER)
@pytest.mark.parametrize("trips", [3, 20])
def test_a_known_loop_whose_rounds_differ(round, trips):
    graph = f"""g (float[20] x) => (float[] y) {{ {ONE}
        m = Constant <value_int = {trips}> ()
        z = Constant <value_floats = [0.0]> ()
        y = Loop (m, , z) <body = b (int64 i, bool c, float[] v) => (bool go, float[] w)
            {{ go = Identity (c) {round} }}>
    }}"""
    x = np.arange(20, dtype=np.float32)
    (want,) = js.run(model(graph), [x]).values()
    f = js.to_jax(model(graph))
    np.testing.assert_array_equal(jax.jit(f)(x), want)
    slope = jax.grad(lambda x: f(x).sum())(x)
    assert slope.sum() == (trips if "Slice" in round else 20 * trips)


@pytest.mark.parametrize("direction", [0, 1])
def test_scan_8_ends_each_row_at_its_length(direction):
    graph = f"""<ir_version: 8, opset_import: ["": 8]>
    g (int64[B] n, float[B] s, float[B, T] x) => (float[] end, float[] ys) {{
        end, ys = Scan (n, s, x) <num_scan_inputs = 1, directions = [{direction}], body =
            b (float a, float r) => (float t, float z) {{ t = Add (a, r) z = Identity (t) }}>
    }}"""
    x = np.array([[1, 2, 4], [8, 16, 32]], np.float32)
    feed = {"n": np.array([2, 3]), "s": np.zeros(2, np.float32), "x": x}
    rows = [[1, 3, 0], [8, 24, 56]] if direction == 0 else [[2, 3, 0], [32, 48, 56]]
    found = js.run(model(graph), feed)
    assert found["end"].tolist() == [3, 56]
    assert found["ys"].tolist() == rows
    assert jax.jit(js.to_jax(model(graph)))(**feed)[1].tolist() == rows


@pytest.mark.parametrize("inputs", ["two, , x", ", pair, x"])
def test_a_loop_takes_one_number_and_one_condition(inputs):
    graph = f"""g (float[N] x, bool[2] pair) => (float[] y) {{
        two = Constant <value_ints = [2, 3]> ()
        y = Loop ({inputs}) <body = b (int64 i, bool c, float[] v) => (bool go, float[] w)
            {{ go = Identity (c) w = Neg (v) }}>
    }}"""
    with pytest.raises(js.ShapeError, match="is one element: 2 is not 1"):
        js.trace(model(graph))


@pytest.mark.parametrize("opset", [16, 18, 21])
def test_empty_optionals(opset):
    """Empty ones pass through; none of them is a missing input."""
    kind = helper.make_tensor_type_proto(1, [2])
    steps = [("Optional", "", "a"), ("Identity", "a", "b"), ("OptionalHasElement", "b", "none")]
    steps += [("Optional", "x", "c"), ("Identity", "c", "d"), ("OptionalHasElement", "d", "some")]
    steps += [("OptionalGetElement", "d", "y")]
    nodes = [helper.make_node(op, [x] if x else [], [y]) for op, x, y in steps]
    nodes[0].attribute.append(helper.make_attribute("type", kind))
    ends = [helper.make_tensor_value_info(n, 9, []) for n in ("none", "some")]
    ends.append(helper.make_tensor_value_info("y", 1, [2]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [2])], ends)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    x = np.ones(2, np.float32)
    for none, some, y in (js.run(m, [x]).values(), js.to_jax(m)(x)):
        assert (bool(none), bool(some)) == (False, True)
        np.testing.assert_array_equal(y, x)
    assert str(js.trace(m)["y"]) == "float32[2]"
    m.graph.node[-1].input[0] = "b"
    with pytest.raises(js.ShapeError, match="the optional is empty"):
        js.run(m, [x])
