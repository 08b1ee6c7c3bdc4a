"""What people look at: plain tables, and HTML that is whole, escaped and needs nothing else."""

import re
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest
from builders import model

import jaxshape as js
from jaxshape import ShapesContext, operator
from jaxshape.show import html, text

NET = """
net (float[N, 3, H, W] x, float[8, 3, 3, 3] w) => (float[N, M, P, Q] y) {
    c = Conv<strides: ints = [2, 2]>(x, w)
    y = Relu(c)
    s = Shape(c)
    flat = Flatten(y)
    found = NonZero(flat)
}
"""
EVIL = "a<b>&\"'\x1b[31m\nx"


class Page(HTMLParser):
    """Reads HTML, holds its tags to be balanced, and keeps the text of each table row."""

    VOID = {"input", "col", "br", "meta"}

    def __init__(self, source: str):
        super().__init__()
        self.open, self.tags, self.rows, self.attrs = [], [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += attrs
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def trace():
    return js.trace(model(NET))


def renamed(name: str) -> onnx.ModelProto:
    """A model in which a value, a node and a size have this name."""
    made = model("g (float[N] x) => (float[M] y) { t = Neg(x)  y = Concat<axis: int = 0>(t, t) }")
    for node in made.graph.node:
        node.name = name
    made.graph.node[0].output[0] = name
    made.graph.node[1].input[:] = [name, name]
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    return made


def test_a_trace_as_text(trace):
    lines = text.trace_text(trace).splitlines()
    assert lines[0].split() == ["name", "op", "type"]
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines[1:] if line.strip()}
    assert rows["x"] == ["input", "float32[N, 3, H, W]"]
    assert rows["c"] == ["Conv", "float32[N, 8, (H - 1)//2, (W - 1)//2]"]
    assert rows["y"][1].endswith("-> output") and not rows["c"][1].endswith("output")
    assert rows["s"][1] == "int64[4] = [N, 8, (H - 1)//2, (W - 1)//2]"
    assert re.search(r"\n\nrequires\n  H >= 3 +Conv -> c", "\n".join(lines))
    assert re.search(r"\n\ndepends on data\n  0 <= \w+ <= 8\*N\*", "\n".join(lines))
    columns = {line.index(" ".join(line.split()[1:2])) for line in lines[1:8]}
    assert len(columns) == 1  # they line up
    assert str(trace) == "\n".join(lines)


def test_a_weight_that_callers_may_give_is_shown_where_they_do():
    m = model(
        "g (float[N, 2] x, float[2] w) => (float[] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
    )
    for shapes, shown in ((None, ["x", "y"]), ({"w": (2,)}, ["x", "w", "y"])):
        assert [line.split()[0] for line in str(js.trace(m, shapes)).splitlines()[1:]] == shown


def test_public_names():
    assert {"trace", "op", "sizes", "JaxshapeError"} <= set(js.__all__) <= set(dir(js))
    assert all(getattr(js, name) is not None for name in js.__all__)


def test_a_trace_as_html(trace):
    source = html.trace_html(trace)
    page = Page(source)
    rows = {r[0]: r[1:] for r in page.rows}
    assert rows["c"] == ["Conv", "float32[N, 8, (H - 1)//2, (W - 1)//2]"]
    assert rows["y"][1].endswith("output")
    assert '<b class="d">(H - 1)//2</b>' in source
    assert re.search(r'<b class="f" title="0 &lt;= \w+ &lt;= 8\*', source)
    assert re.search(r"<li><code>H &gt;= 3</code>", source)
    assert re.search(r'data-row class="m" title="requires [^"]*H &gt;= 3', source)
    assert trace._repr_html_() == source


def test_html_is_self_contained(trace):
    for source in (
        html.trace_html(trace),
        html.operator_html(operator("Conv")),
        html.model_html(trace.model),
    ):
        page = Page(source)
        assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
        assert not {"href", "src", "id"} & {name for name, _ in page.attrs}
        assert "@import" not in source and "url(" not in source
        assert "prefers-color-scheme:dark" in source
        assert "[data-jp-theme-light=false]" in source and "[data-jp-theme-light=true]" in source
        assert source.startswith('<div class="jaxshape">') and source.endswith("</div>")


def test_what_a_model_says_is_escaped():
    made = js.trace(renamed(EVIL))
    page = Page(html.trace_html(made))
    shown = EVIL.replace("\x1b", r"\x1b").replace("\n", r"\n")
    assert any(row[0] == shown for row in page.rows)
    plain = str(made)
    assert shown in plain and "\x1b" not in plain
    assert all(line.isprintable() for line in plain.splitlines())


def test_names_fold_by_scope():
    names = ("x", "/enc/l.0/a", "/enc/l.0/b", "/enc/l.1/a", "/enc/l.1/b", "/dec/a", "y")
    rows = [(n, f"<tr data-row><td>{n}</td></tr>") for n in names]
    source = html._folded(rows, True)
    summaries = re.findall(r"<summary>(.*?)</summary>", source)
    assert summaries == ["enc/l <small>4</small>", "0 <small>2</small>", "1 <small>2</small>"]
    assert re.findall(r"<td>(.*?)</td>", source) == [n for n, _ in rows]  # in their order
    Page(source)
    deep = [("/".join("a" * 5000) + f"/{'b' * 300}/{i % 2}/{i}", "<tr></tr>") for i in range(5)]
    Page(html._folded(deep, False))
    assert Page(html._folded([(".", ""), ("..", ""), ("a.", "")], True)).rows == []


def test_a_long_trace_starts_folded():
    nodes = "\n".join(f"m{i}a = Neg(x) m{i}b = Neg(m{i}a)" for i in range(110))
    made = js.trace(model(f"g (float[N] x) => (float[N] y) {{ {nodes} y = Neg(x) }}"))
    assert "<details open>" not in html.trace_html(made)


def test_an_operator():
    conv = operator("Conv", opset=11)
    plain = str(conv)
    assert plain.startswith("Conv (opset 11), since version 11 (versions 1, 11, 22)\n")
    for part in (
        r"\ninputs\n  X +T",
        r"  B +optional +T",
        r"auto_pad='NOTSET' +STRING",
        r"T: tensor\(",
    ):
        assert re.search(part, plain), part
    page = Page(conv._repr_html_())
    assert ["group=1", "INT"] in [row[:2] for row in page.rows]
    assert {"inputs", "outputs", "attributes", "types"} <= set(
        re.findall(r"<summary>(.*?)</summary>", conv._repr_html_())
    )


def test_a_model():
    proto = model(NET)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((8, 3, 3, 3), "f"), "w"))
    del proto.graph.input[1]
    loaded = js.load(proto)
    plain = text.model_text(loaded)
    assert re.search(r"net: opset \d+, IR version", plain)
    assert re.search(r"input +x +float32\[N, 3, H, W\]", plain)
    assert "1 initializers, 216 elements, 864 B" in plain
    assert re.search(r"1 +NonZero", plain)
    page = Page(html.model_html(loaded))
    assert ["x", "input", "float32[N, 3, H, W]"] in page.rows


def test_a_context():
    ctx = ShapesContext({"x": js.TensorType("float32", ("N", 2)), "k": np.array([0.5, 1e-7])}, 20)
    assert str(ctx) == "name  type\nx     float32[N, 2]\nk     float64[2] = [0.5, 1e-07]"


@pytest.mark.parametrize(
    "rows, header, want",
    [
        ([], (), ""),
        ([("a", 1), ("bcd", 22)], (), "a    1\nbcd  22"),
        ([("a", "")], ("n", "t"), "n  t\na"),
        ([("x" * 70, 1), ("y", 2)], (), f"{'x' * 70}  1\n{'y'.ljust(60)}  2"),
        ([("a\tb",)], (), r"a\tb"),
    ],
)
def test_tables_line_up(rows, header, want):
    assert text.table(rows, header) == want
