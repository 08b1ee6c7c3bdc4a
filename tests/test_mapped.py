"""Large model files are mapped: their weights are read when asked for, wherever the file lies."""

import copy
import gc
import mmap
import weakref

import jax
import numpy as np
import onnx
import pytest
from builders import model
from onnx import numpy_helper

import jaxshape as js
from jaxshape import _file, _mapped, _wire
from jaxshape._run import Runner, execute, placed

ROWS = 1 << 12
W = np.arange(ROWS * 1024, dtype=np.float32).reshape(ROWS, 1024) / (1 << 22)
TYPED = np.arange(1 << 15, dtype=np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A model of 17 MB: a large weight as bytes, one as a list of numbers, and a small one."""
    made = model(f"""g (float[N, {ROWS}] x) => (float[N, 1024] y, float[{1 << 15}] t) {{
        h = MatMul (x, w)  y = Add (h, b)  t = Neg (typed) }}""")
    made.graph.initializer.append(numpy_helper.from_array(W, "w"))
    made.graph.initializer.append(
        onnx.helper.make_tensor("typed", onnx.TensorProto.FLOAT, TYPED.shape, TYPED)
    )
    made.graph.initializer.append(numpy_helper.from_array(W[1] * 4, "b"))
    found = tmp_path_factory.mktemp("large") / "model.onnx"
    onnx.save(made, found)
    return found


def owner(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_weights_lie_in_the_file(path):
    loaded = js.load(path)
    w, b = (loaded.graph.initializers[n].array() for n in "wb")
    assert isinstance(owner(w), mmap.mmap) and not isinstance(owner(b), mmap.mmap)
    np.testing.assert_array_equal(w, W)
    np.testing.assert_array_equal(b, W[1] * 4)
    assert str(js.trace(loaded)["y"]) == "float32[N, 1024]"


def test_run_and_converted(path):
    x = np.zeros((1, ROWS), np.float32)
    x[0, 3] = 1
    for outputs in (js.run(path, {"x": x}).values(), js.to_jax(str(path))(x)):
        y, t = outputs
        np.testing.assert_allclose(y, W[3:4] + W[1] * 4, rtol=1e-6)
        np.testing.assert_array_equal(t, -TYPED)


def test_the_protobuf_is_whole(path):
    """Whoever asks for it gets what the file holds, with no reference to it."""
    loaded = js.load(path)
    assert loaded.proto == onnx.load(path)
    typed = js.trace(loaded).to_onnx()
    assert list(typed.graph.initializer) == list(onnx.load(path).graph.initializer)
    assert {v.name for v in typed.graph.value_info} == {"h"}


def message(number, inside):
    """A field of bytes, written as protobuf does."""
    return _wire.head(number, len(inside)) + inside


def taken_apart():
    """A small model: the message without its graph, the graph without weights, and its weight."""
    made = model("g (float[N, 2] x) => (float[2, 3] y) { y = Identity (w) }")
    graph = made.graph.SerializeToString()
    made.ClearField("graph")
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    return made.SerializeToString(), graph, weight


def in_one(rest, graph, weight):
    return rest + message(_wire.GRAPH, graph + message(_wire.INITIALIZER, weight))


GROUP = bytes([15 << 3 | 3, 1 << 3, 5, 14 << 3 | 3, 14 << 3 | 4, 15 << 3 | 4])  # a field unknown
RAW = message(_wire.RAW, bytes(24))


def elsewhere(weight, **entries):
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return weight.SerializeToString()


@pytest.mark.parametrize(
    "bent",
    [
        lambda r, g, w: in_one(r, g, w.SerializeToString()),
        lambda r, g, w: in_one(b"", g, w.SerializeToString()) + r,
        lambda r, g, w: in_one(r, b"", w.SerializeToString()) + message(_wire.GRAPH, g),
        lambda r, g, w: in_one(r + GROUP, g + GROUP, w.SerializeToString() + GROUP),
        lambda r, g, w: in_one(r, g, w.SerializeToString() + RAW),
        lambda r, g, w: in_one(r, g, RAW + w.SerializeToString()),
        lambda r, g, w: in_one(r, g, w.SerializeToString() + message(_wire.RAW, b"")),
        lambda r, g, w: in_one(r, g, w.SerializeToString() + message(_wire.RAW, bytes(23))),
        lambda r, g, w: in_one(r, g, elsewhere(w, location="beside.bin")),
        lambda r, g, w: in_one(r, g, elsewhere(w, location="absent.bin")),
        lambda r, g, w: in_one(r, g, elsewhere(w)),
        lambda r, g, w: in_one(r, g, w.SerializeToString() + bytes([2 << 3, 8])),  # strings
        lambda r, g, w: in_one(r, g, w.SerializeToString() + bytes([2 << 3, 6])),  # int32
        lambda r, g, w: in_one(r, g, w.SerializeToString() + bytes([1 << 3, 0])),  # no elements
    ],
)
@pytest.mark.filterwarnings("ignore")  # of declarations that these weights do not meet
def test_read_as_a_small_file_is(bent, tmp_path, monkeypatch):
    """However odd its messages are, a mapped file is the model that protobuf reads."""
    path = tmp_path / "bent.onnx"
    path.write_bytes(bent(*taken_apart()))
    (tmp_path / "beside.bin").write_bytes(np.full(6, 7, np.float32).tobytes())

    def found():
        try:
            loaded = js.load(path)
            w = loaded.graph.initializers["w"]
            return loaded.proto, str(js.trace(loaded)["y"]), w.array().tolist()
        except js.JaxshapeError as e:
            return str(e)

    small = found()
    monkeypatch.setattr(_mapped, "_FILE", 1)
    monkeypatch.setattr(_mapped, "_TENSOR", 1)
    assert found() == small


def test_a_graph_in_two_fields_is_copied_whole(tmp_path, monkeypatch):
    """What is stepped over is counted through all of them."""
    monkeypatch.setattr(_file, "_LARGE", 1)
    rest, graph, w = taken_apart()
    b = numpy_helper.from_array(np.full(3, 5, np.float32), "b")
    path = tmp_path / "two.onnx"
    path.write_bytes(
        in_one(rest, graph, w.SerializeToString()) + in_one(b"", b"", b.SerializeToString())
    )
    js.infer_shapes_path(path)
    assert list(onnx.load(path).graph.initializer) == [w, b]


def test_more_than_a_protobuf_holds(path, monkeypatch):
    monkeypatch.setattr(_mapped, "_MESSAGE", 1 << 20)
    loaded = js.load(path)
    assert str(js.trace(loaded)["y"]) == "float32[N, 1024]"
    with pytest.raises(js.ModelError, match="a ModelProto holds less than 1,048,576"):
        _ = loaded.proto


@pytest.mark.parametrize("make", [js.load, js.trace, js.InferenceSession])
def test_copies_share_the_file(make, path):
    made = copy.deepcopy(make(path))
    graph = getattr(made, "model", made).graph
    assert isinstance(owner(graph.initializers["w"].array()), mmap.mmap)


def test_a_link_to_the_file(path, tmp_path):
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    np.testing.assert_array_equal(js.load(link).graph.initializers["w"].array(), W)


def test_a_file_that_is_replaced_meanwhile(path, tmp_path):
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(path.read_bytes())
    loaded = js.load(copy)
    other = tmp_path / "other.onnx"
    onnx.save(model("g (float[1] x) => (float[1] y) { y = Neg (x) }"), other)
    other.replace(copy)
    np.testing.assert_array_equal(loaded.graph.initializers["w"].array(), W)
    assert len(loaded.proto.graph.node) == 3


def test_cut_short(path, tmp_path):
    short = tmp_path / "short.onnx"
    short.write_bytes(path.read_bytes()[: -(1 << 18)])
    with pytest.raises(js.ModelError, match=r"short\.onnx is no ONNX model, or is cut short"):
        js.load(short)


def test_a_run_keeps_nothing_of_itself(path):
    """Weights on the device go with the run that put them there; nobody has to collect them."""
    loaded, x = js.load(path), np.ones((2, ROWS), np.float32)
    gc.collect()
    gc.disable()
    try:
        runner = Runner()
        with placed(None):
            execute(loaded, {"x": x}, runner)
        w = weakref.ref(next(a for a in runner.weights.values() if a.shape == W.shape))
        assert isinstance(w(), jax.Array)
        del runner
        assert w() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
def test_a_reference_reads_the_weights_where_they_lie(path, reference, monkeypatch):
    monkeypatch.setattr(_mapped.Mapped, "whole", None)
    report = js.validate(path, reference=reference, bisect=True, bindings=1)
    assert report.ok and {c.value for c in report.checks if c.local} == {"h", "y", "t"}
