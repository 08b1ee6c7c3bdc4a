"""Loading: what a Model holds, and that a bad file is a ModelError which says where and why."""

import os
import pathlib
import sys
import types

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import AttributeProto, helper

from jaxshape._error import JaxshapeWarning, ModelError
from jaxshape._model import (
    Declared,
    Stored,
    load,
)

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'
FLOAT = np.dtype(np.float32)


def parse(body: str, head: str = HEAD) -> onnx.ModelProto:
    return onnx.parser.parse_model(head + body)


def relu() -> onnx.ModelProto:
    return parse("g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")


# Sources


def test_every_source_gives_the_same_graph(tmp_path):
    proto = relu()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    data = proto.SerializeToString()
    for source in (proto, data, bytearray(data), memoryview(data), path, str(path)):
        model = load(source)
        assert [(n.op_type, n.inputs, n.outputs) for n in model.graph.nodes] == [
            ("Relu", ("x",), ("y",))
        ]
    assert load(path).folder == str(tmp_path)
    assert load(proto).folder == os.getcwd()
    assert load(proto).proto is proto
    assert load(model) is model


def test_onnx_ir_is_converted_without_being_a_dependency(monkeypatch):
    fake = types.ModuleType("onnx_ir")
    fake.to_proto = lambda model: relu()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnx_ir", fake)
    weight = types.SimpleNamespace(const_value=types.SimpleNamespace(base_dir="/models"))
    source = type("Model", (), {"__module__": "onnx_ir._core"})()
    setattr(source, "graph", types.SimpleNamespace(initializers={"w": weight}))  # noqa: B010
    assert load(source).name == "g"
    assert load(source).folder == "/models"


def test_the_repr_of_a_model_is_one_short_line():
    assert repr(load(relu())) == "Model('g', 1 node, opset 21, local 1)"


@pytest.mark.parametrize("name", ["m.onnx", "m.json", "m.textproto"])
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"\x08\x0a\x3a\xff\xff", "cut short"), (b"hello there", "no ONNX model")],
)
def test_what_is_no_model_file(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "empty"),
        (b"\xff\xff", "cut short"),
        (b"\x08\x0a", "it has no graph"),
        (onnx.ModelProto(), "it has no graph"),
        ("/no/such/model.onnx", "/no/such/model.onnx: No such file"),
        ("a\0b", "no ONNX model"),
        ("/", "is a folder"),
        (42, "from a int"),
        (relu().graph, "from a GraphProto"),
    ],
)
def test_what_is_no_model(source, message):
    with pytest.raises(ModelError, match=message):
        load(source)


@pytest.mark.filterwarnings("ignore::jaxshape._error.JaxshapeWarning")
def test_no_prefix_of_a_file_escapes_as_another_error():
    data = parse("""g (float[n] x, bool c) => (y) {
        w = Constant<value = float[2] {1, 2}>()
        y = If(c)<then_branch = a () => (p) { p = Add(x, w) },
                  else_branch = b () => (q) { q = Neg(x) }>
    }""").SerializeToString()
    random = np.random.default_rng(0)
    broken = [data[:i] for i in range(len(data))]
    for _ in range(2000):
        mutant = bytearray(data)
        for at in random.integers(len(data), size=random.integers(1, 4)):
            mutant[at] = random.integers(256)
        broken.append(bytes(mutant))
    for b in broken:
        try:
            model = load(b)
        except ModelError:
            continue
        for node in model.graph.nodes:
            for value in node.attrs.values():
                if isinstance(value, Stored):
                    try:
                        value.array()
                    except ModelError:
                        pass


# Opsets


@pytest.mark.parametrize(
    ("ir", "imports", "message"),
    [
        (10, [("", 9999)], r"opset 9999.*knows opsets up to \d+"),
        (10, [("", 0)], "opset 0 of domain ''"),
        (10, [("x", -1)], "opset -1 of domain 'x'"),
        (10, [], "does not say which opset"),
        (10, [("x", 1)], "node 'Relu.*: no opset is imported for the default domain"),
    ],
)
def test_bad_opsets(ir, imports, message):
    proto = relu()
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(*i) for i in imports)
    proto.ir_version = ir
    with pytest.raises(ModelError, match=message):
        load(proto)


def test_opsets_are_normalised():
    proto = relu()
    proto.opset_import[0].domain = "ai.onnx"
    proto.graph.node[0].domain = "ai.onnx"
    model = load(proto)
    assert model.opsets == {"": 21, "local": 1}
    assert model.graph.nodes[0].domain == ""
    del proto.opset_import[:]
    proto.ir_version = 2
    assert load(proto).opsets == {"": 1}


def test_doubtful_versions_are_warned_of():
    proto = relu()
    proto.opset_import.append(helper.make_opsetid("", 20))
    with pytest.warns(JaxshapeWarning, match="as opset 21 and 20"):
        assert load(proto).opsets[""] == 20
    del proto.opset_import[-1]
    proto.ir_version = onnx.IR_VERSION + 1
    with pytest.warns(JaxshapeWarning, match="IR version"):
        load(proto)


# Graphs


def test_inputs_with_an_initializer_are_optional():
    graph = load(
        parse("""g (float[n] x, float[2] w) => (y) <float[2] w = {1, 2}, float k = {3}> {
            y = Add(x, w)
        }""")
    ).graph
    assert [i.name for i in graph.inputs] == ["x"]
    assert [i.name for i in graph.optional_inputs] == ["w"]
    assert list(graph.initializers) == ["w", "k"]
    assert graph.inputs[0].type == Declared("tensor", FLOAT, ("n",))
    assert graph.outputs[0].type == Declared("tensor", None, None) or not graph.outputs[0].type.kind


def test_nodes_are_put_in_order_and_otherwise_left():
    proto = parse("""g (float[n] x) => (y) {
        a = Relu(x)
        b = Abs(x)
        y = Add(b, d)
        c = Neg(a)
        d = Exp(c)
    }""")
    assert [n.op_type for n in load(proto).graph.nodes] == ["Relu", "Abs", "Neg", "Exp", "Add"]


def test_what_a_subgraph_captures_orders_its_node():
    proto = parse("""g (float[n] x, bool c) => (y) {
        y = If(c)<then_branch = t () => (p) { p = Add(x, late) },
                  else_branch = e () => (q) {
                      q = If(c)<then_branch = u () => (r) { r = Neg(deep) },
                                else_branch = v () => (s) { s = Neg(x) }> }>
        late = Relu(x)
        deep = Abs(late)
    }""")
    graph = load(proto).graph
    assert [n.op_type for n in graph.nodes] == ["Relu", "Abs", "If"]
    assert graph.captures == frozenset()
    assert graph.nodes[2].captures == {"x", "late", "deep", "c"}
    then, other = graph.nodes[2].graphs
    assert then.captures == {"x", "late"} and other.captures == {"c", "deep", "x"}
    assert graph.nodes[2].key is None


def test_a_subgraph_may_give_out_and_shadow_outer_names():
    graph = load(
        parse("""g (float[n] x, bool c) => (y) {
            a = Relu(x)
            y = If(c)<then_branch = t () => (x) { }, else_branch = e () => (a) { a = Neg(x) }>
        }""")
    ).graph
    assert [g.captures for g in graph.nodes[1].graphs] == [{"x"}, {"x"}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("g (float[n] x) => (y) { y = Add(x, z) }", r"node 'Add -> y' takes 'z'"),
        ("g (float[n] x) => (y, z) { y = Relu(x) }", "the graph gives out 'z'"),
        ("g (float[n] x) => (y) { y = Relu(x) y = Neg(x) }", "'Neg -> y' defines 'y'"),
        ("g (float[n] x) => (y) { y, y = Split(x) }", "'Split -> y' defines 'y'"),
        ("g (float[n] x) => (x) { x = Relu(x) }", "'Relu -> x' defines 'x'"),
        ("g (float[n] x, float[n] x) => (x) { }", "two inputs are called 'x'"),
        ("g () => (w) <float w = {1}, float w = {2}> { }", "two initializers are called 'w'"),
        ("g () => (w) <float w = {1}> { w = Neg(w) }", "'Neg -> w' defines 'w'"),
        ("g (float x) => (y) { a = Neg(b) b = Neg(a) y = Add(x, a) }", "in a circle: 'Neg -> .'"),
        ("g (float x) => (y) { y = Neg(y) }", "in a circle: 'Neg -> y'"),
        (
            "g (bool c) => (y) { y = If(c)<then_branch = t () => (p) { p = Neg(z) }> }",
            "node 'If -> y' takes 'z'",
        ),
        (
            "g (bool c) => (y) { y = If(c)<then_branch = t () => (p) { p = Neg(c) p = Neg(c) }> }",
            "node 'If -> y'.*node 'Neg -> p' defines 'p'",
        ),
    ],
)
def test_malformed_graphs(body, message):
    with pytest.raises(ModelError, match=message):
        load(parse(body))


def test_nameless_things_are_refused():
    proto = relu()
    proto.graph.node[0].op_type = ""
    with pytest.raises(ModelError, match=r"-> \['y'\] does not say its op_type"):
        load(proto)
    proto = relu()
    proto.graph.input[0].name = ""
    with pytest.raises(ModelError, match="has no name"):
        load(proto)


def test_a_name_that_is_no_text():
    data = relu().SerializeToString().replace(b"Relu", b"Re\xff\xfe")
    with pytest.raises(ModelError, match="not UTF-8"):
        load(data)


def nested(depth: int) -> onnx.ModelProto:
    proto = relu()
    graph = proto.graph
    for _ in range(depth):
        node = graph.node.add(op_type="If", input=["x"], output=["o"])
        branch = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH)
        graph = branch.g
        graph.name = "inner"
    return proto


def test_deep_nesting():
    assert load(nested(60)).graph.nodes[1].captures == {"x"}
    for depth in (80, 3000):
        with pytest.raises(ModelError, match="more than 64 deep"):
            load(nested(depth))


@pytest.mark.parametrize("depth", [70, 2000])
def test_deep_types(depth):
    proto = relu()
    t = proto.graph.input[0].type
    for _ in range(depth):
        t = t.sequence_type.elem_type
    t.tensor_type.elem_type = 1
    with pytest.raises(ModelError, match="deep in one another"):
        load(proto)


# Whole models


def test_the_models_that_come_with_onnx_load():
    root = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    paths = sorted((root / "light").glob("*.onnx")) + sorted((root / "simple").glob("*/*.onnx"))
    assert len(paths) > 10
    for path in paths:
        model = load(path)
        for stored in model.graph.initializers.values():
            assert stored.array().shape == stored.shape
