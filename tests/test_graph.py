"""What a loaded graph says: declared types, attributes, keys of equal nodes, functions."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import AttributeProto, helper, numpy_helper

from jaxshape._error import ModelError
from jaxshape._model import AttrRef, Declared, Graph, Sparse, function_of, load

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'
FLOAT = np.dtype(np.float32)


def parse(body: str, head: str = HEAD) -> onnx.ModelProto:
    return onnx.parser.parse_model(head + body)


def relu() -> onnx.ModelProto:
    return parse("g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")


def constant(**attributes) -> onnx.ModelProto:
    """A model of one Constant node; attributes are protos or what make_attribute takes."""
    node = helper.make_node("Constant", [], ["y"], name="c")
    for name, value in attributes.items():
        made = isinstance(value, AttributeProto)
        node.attribute.append(value if made else helper.make_attribute(name, value))
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def value_of(proto: onnx.ModelProto, name: str = "value"):
    return load(proto).graph.nodes[0].attrs[name]


DIMS = [
    ("n", "n"),
    ("batch size", "batch size"),
    ("2*h", "2*h"),
    ("7", 7),
    ("", None),
    ("?", None),
    ("-1", None),
    (3, 3),
    (0, 0),
    (-1, None),
    (None, None),
]


@pytest.mark.parametrize(("written", "read"), DIMS)
def test_dims(written, read):
    proto = relu()
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [5]))
    dim = proto.graph.input[0].type.tensor_type.shape.dim[0]
    dim.Clear()
    if isinstance(written, str):
        dim.dim_param = written
    elif written is not None:
        dim.dim_value = written
    assert load(proto).graph.inputs[0].type.dims == (read,)


def test_declared_kinds():
    tensor = helper.make_tensor_type_proto(1, [2])
    rows = [
        (onnx.TypeProto(), Declared()),
        (tensor, Declared("tensor", FLOAT, (2,))),
        (helper.make_tensor_type_proto(8, []), Declared("tensor", np.dtype(object), ())),
        (helper.make_tensor_type_proto(0, None), Declared("tensor")),
        (helper.make_sparse_tensor_type_proto(1, [2]), Declared("sparse", FLOAT, (2,))),
        (
            helper.make_sequence_type_proto(tensor),
            Declared("sequence", elem=Declared("tensor", FLOAT, (2,))),
        ),
        (
            helper.make_optional_type_proto(helper.make_sequence_type_proto(tensor)),
            Declared("optional", elem=Declared("sequence", elem=Declared("tensor", FLOAT, (2,)))),
        ),
        (
            helper.make_map_type_proto(7, tensor),
            Declared("map", elem=Declared("tensor", FLOAT, (2,)), key=np.dtype(np.int64)),
        ),
    ]
    proto = relu()
    for i, (written, _) in enumerate(rows):
        proto.graph.value_info.append(helper.make_value_info(f"v{i}", written))
    declared = load(proto).graph.declared
    assert [declared[f"v{i}"] for i in range(len(rows))] == [read for _, read in rows]
    proto.graph.value_info[0].type.tensor_type.elem_type = 99
    with pytest.raises(ModelError, match="element type 99"):
        load(proto)


# Nodes and attributes


def test_attribute_values():
    tensor = numpy_helper.from_array(np.arange(3.0))
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5.0]), "s"), numpy_helper.from_array(np.array([2])), [4]
    )
    rows = {
        "f": (0.5, 0.5),
        "i": (-3, -3),
        "s": ("abc", "abc"),
        "bytes": (b"\xff\x00", b"\xff\x00"),
        "floats": ([0.5, 2.0], (0.5, 2.0)),
        "ints": ([1, 2], (1, 2)),
        "strings": (["a", "b"], ("a", "b")),
        "type": (
            helper.make_tensor_type_proto(1, ["n"]),
            Declared("tensor", FLOAT, ("n",)),
        ),
    }
    attrs = load(constant(**{k: w for k, (w, _) in rows.items()})).graph.nodes[0].attrs
    assert attrs == {k: r for k, (_, r) in rows.items()}
    assert value_of(constant(value=[tensor, tensor]))[1].array().tolist() == [0, 1, 2]
    value = value_of(constant(value=sparse))
    assert isinstance(value, Sparse) and value.dims == (4,)
    assert value.array().tolist() == [0, 0, 5, 0]
    assert isinstance(value_of(constant(value=relu().graph)), Graph)
    assert value_of(constant(value=[relu().graph]))[0].nodes[0].op_type == "Relu"


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (AttributeProto(name="value"), "attribute 'value' holds nothing"),
        (AttributeProto(name="value", type=AttributeProto.GRAPH), "'value' holds nothing"),
        (AttributeProto(name="value", type=AttributeProto.TENSOR), "0 is not a data type"),
    ],
)
def test_malformed_attributes(proto, message):
    with pytest.raises(ModelError, match=f"node 'c': .*{message}"):
        load(constant(value=proto))


def test_an_attribute_given_twice():
    proto = constant(value=1)
    proto.graph.node[0].attribute.append(helper.make_attribute("value", 2))
    with pytest.raises(ModelError, match="node 'c': attribute 'value' is there twice"):
        load(proto)


def test_attributes_of_old_files_have_no_type():
    attribute = AttributeProto(name="value", ints=[1, 2])
    assert value_of(constant(value=attribute)) == (1, 2)


def test_labels():
    proto = parse("g (float x) => (y) { [named] a = Relu(x)  y = Relu(a) }")
    assert [n.label for n in load(proto).graph.nodes] == ["named", "Relu -> y"]


EQUAL = [
    ({"value": 1}, {"value": 1}, True),
    ({"value": 1, "b": 2}, {"b": 2, "value": 1}, True),
    ({"value": 1}, {"value": 1.0}, False),
    ({"value": 0.0}, {"value": -0.0}, False),
    ({"value": float("nan")}, {"value": float("nan")}, True),
    ({"value": [1, 2]}, {"value": [1.0, 2.0]}, False),
    ({"value": "a"}, {"value": b"a"}, True),
    ({"value": "a"}, {"value": "b"}, False),
    (
        {"value": numpy_helper.from_array(np.ones(2), "p")},
        {"value": numpy_helper.from_array(np.ones(2), "q")},
        True,
    ),
    (
        {"value": numpy_helper.from_array(np.ones(2))},
        {"value": numpy_helper.from_array(np.ones((2, 1)))},
        False,
    ),
    (
        {"value": numpy_helper.from_array(np.zeros(2000))},
        {"value": numpy_helper.from_array(np.zeros(2000))},
        False,  # too large to look into: equal to itself alone
    ),
]


@pytest.mark.parametrize(("one", "other", "equal"), EQUAL)
def test_equal_nodes_share_a_key(one, other, equal):
    a, b = (load(constant(**attrs)).graph.nodes[0] for attrs in (one, other))
    assert a.key is not None and b.key is not None
    assert (a.key is b.key) == equal


def test_keys_tell_operators_and_domains_apart():
    proto = parse("g (float x) => (y) { a = Neg(x) b = Neg(a) c = Abs(b) y = local.Neg(c) }")
    a, b, c, y = (n.key for n in load(proto).graph.nodes)
    assert a is b and len({a, c, y}) == 3


# Functions


FUNCTIONS = """g (float[n] x) => (y) { y = local.twice<alpha = 0.5>(x) }
    <domain: "local", opset_import: ["": 18]>
    twice <alpha, axes: ints = [1]> (a) => (c) {
        b = Elu<alpha: float = @alpha>(a)
        d = ReduceSum<axes: ints = @axes, noop: int = @absent>(b)
        c = Relu(d)
    }"""


def test_functions():
    model = load(parse(FUNCTIONS))
    function = model.functions["local", "twice", ""]
    assert (function.inputs, function.outputs) == (("a",), ("c",))
    assert function.attributes == ("alpha",) and function.defaults == {"axes": (1,)}
    assert function.opsets[""] == 18
    assert function.nodes[0].attrs == {"alpha": AttrRef("alpha")}
    assert function.nodes[0].key is None and function.nodes[2].key is not None
    bound = [n.bound(function.defaults | {"alpha": 0.5}) for n in function.nodes]
    assert [n.attrs for n in bound] == [{"alpha": 0.5}, {"axes": (1,)}, {}]
    assert all(n.key for n in bound) and bound[2] is function.nodes[2]


def test_binding_reaches_into_subgraphs_and_copies_nothing_else():
    text = """g (float[n] x, bool c) => (y) { y = local.f<alpha = 0.5>(x, c) }
        <domain: "local", opset_import: ["": 18]>
        f <alpha> (a, c) => (b) {
            b = If(c)<then_branch = t () => (p) { p = Elu<alpha: float = @alpha>(a) },
                      else_branch = e () => (q) { q = Neg(a) }>
        }"""
    model = load(parse(text))
    function = model.functions["local", "f", ""]
    bound = function.nodes[0].bound(model.graph.nodes[0].attrs)
    then, other = bound.graphs
    assert then.nodes[0].attrs == {"alpha": 0.5}
    assert other is list(function.nodes[0].graphs)[1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("f (a) => (b) { b = Add(a, z) }", "function 'f' of domain 'local': 'z' is no input"),
        ("f (a) => (b) { c = Neg(a) }", "'b' is no input"),
        ("f (a) => (b) { b = Neg(a) b = Neg(a) }", "'Neg -> b' defines 'b'"),
        ("f (a, a) => (b) { b = Neg(a) }", "two inputs"),
        ("f (a) => (b) { b = local.f(a) }", "functions call themselves: f -> f"),
        (
            'f (a) => (b) { b = local.h(a) } <domain: "local", opset_import: ["": 18]> '
            "h (a) => (b) { b = local.f(a) }",
            "functions call themselves: [fh] -> [fh] -> [fh]",
        ),
        (
            'f (a) => (b) { b = Neg(a) } <domain: "local", opset_import: ["": 18]> '
            "f (a) => (b) { b = Abs(a) }",
            "is there twice",
        ),
    ],
)
def test_malformed_functions(body, message):
    head = 'g (float x) => (y) { y = local.f(x) } <domain: "local", opset_import: ["": 18]> '
    with pytest.raises(ModelError, match=message):
        load(parse(head + body))


def test_every_function_body_of_the_standard_reads():
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.has_function:  # type: ignore[attr-defined]
            function = function_of(schema.function_body)
            assert function.nodes and function.name == schema.name
