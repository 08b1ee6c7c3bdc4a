"""Plain text: tables whose columns line up, in any terminal.

Names come from the model and may hold anything; a character that would move the cursor or colour
the terminal is shown escaped.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._graph import Graph
from .._host import DimArray
from .._value import dtype_name

if TYPE_CHECKING:
    from .._context import ShapesContext
    from .._describe import Description, Parameter
    from .._model import Declared, Model
    from .._trace import Trace
    from .._values import Values

_WIDEST = 60  # a longer cell pushes its own row only
_SHOWN = 8  # elements: contents up to here are shown
INNER = 100  # subgraphs and calls: of a model that has more, these are shown


def printable(text: object) -> str:
    r"""The text with what is not printable escaped.

    >>> print(printable("a\nb"))
    a\nb
    """
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in raw)


def plural(n: int, noun: str) -> str:
    """How many, as `1 binding` and `1,200 bindings`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: str = "") -> str:
    """Rows as lines, each column as wide as its widest cell; the last is not padded.

    >>> print(table([("x", 1), ("long", 22)], ("name", "n")))
    name  n
    x     1
    long  22
    """
    cells = [[printable(c) for c in row] for row in ([header] if header else []) + list(rows)]
    widths = [
        min(_WIDEST, max(len(row[i]) for row in cells if i < len(row)))
        for i in range(max(map(len, cells), default=0))
    ]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False)) for row in cells]
    return "\n".join((indent + line).rstrip() for line in lines)


def content_text(content: Any) -> str:
    """A small known content as it is read, such as `[N, 64]`; empty where there is none to show."""
    if content is None or content.size > _SHOWN:
        return ""
    if isinstance(content, DimArray):
        return str(_nested(content.elements.tolist(), str))
    if content.dtype == object:
        return str(_nested(content.tolist(), repr))
    return str(_nested(content.tolist(), lambda v: f"{v:.6g}" if isinstance(v, float) else str(v)))


def type_text(t: Any) -> str:
    """A type as it is read, `float32[N, 3]`; for a list of values the list of theirs."""
    if isinstance(t, list):
        return f"[{', '.join(map(type_text, t))}]"
    return "absent" if t is None else str(t)


def _nested(value: Any, show: Callable[[Any], str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(v, show) for v in value)}]"
    return show(value)


def value_rows(values: Values) -> list[tuple[str, str, Any, Any]]:
    """Name, operator, type and known content of each value but the weights, in order."""
    graph = values.graph
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    if isinstance(graph, Graph):  # those that have a value in the file are weights, unless given
        given = getattr(values, "_given", {})
        inputs = [i.name for i in graph.inputs]
        inputs += [i.name for i in graph.optional_inputs if i.name in given]
    else:
        inputs = graph.inputs
    rows = [(name, "input") for name in inputs if name in values]
    for name, node in makers.items():
        if name in values:
            domain = f"{node.domain}::" if node.domain else ""
            rows.append((name, domain + node.op_type))
    return [(name, op, values[name], values.content(name)) for name, op in rows]


def values_text(values: Values, outputs: Collection[str] = (), indent: str = "") -> str:
    """The values of one graph as a table."""
    rows = [
        (name, op, _known_text(found, content) + ("  -> output" if name in outputs else ""))
        for name, op, found, content in value_rows(values)
    ]
    return table(rows, ("name", "op", "type"), indent)


def trace_text(trace: Trace) -> str:
    """A trace as a table of values, then those of its subgraphs, requirements and bounds."""
    lines = [values_text(trace, set(trace.outputs))]
    for path, values in itertools.islice(trace.inner.items(), INNER):
        lines += ["", printable(path), values_text(values, indent="  ")]
    if len(trace.inner) > INNER:
        lines += ["", f"and {len(trace.inner) - INNER} more subgraphs and calls"]
    return "\n".join([*lines, *facts_lines(trace.requirements, trace.bounds)])


def _known_text(found: Any, content: Any) -> str:
    known = content_text(content)
    return f"{type_text(found)} = {known}" if known else type_text(found)


def context_text(ctx: ShapesContext) -> str:
    """A context as a table of values, then requirements and bounds."""
    values = table([(n, _known_text(t, ctx.content(n))) for n, t in ctx.items()], ("name", "type"))
    return "\n".join([values, *facts_lines(ctx.requirements, ctx.bounds)])


def facts_lines(
    requirements: Sequence[Any], bounds: Mapping[str, tuple[int | None, Any]]
) -> list[str]:
    """Requirements with the nodes that demand them, and bounds."""
    lines = []
    if requirements:
        lines += ["", "requires"]
        lines.append(table([(r, reason(r)) for r in requirements], indent="  "))
    if bounds:
        lines += ["", "depends on data", table([[b] for b in bound_texts(bounds)], indent="  ")]
    return lines


def reason(requirement: Any) -> str:
    """Who demands a requirement, and why."""
    known = "" if requirement.proved else "may always hold"
    return "; ".join(filter(None, (requirement.node, requirement.why, known)))


def bound_texts(bounds: Mapping[str, tuple[int | None, Any]]) -> list[str]:
    """Each bound as an inequality: `0 <= n <= 4*boxes`."""
    return [
        ("" if low is None else f"{low} <= ") + name + ("" if high is None else f" <= {high}")
        for name, (low, high) in bounds.items()
    ]


def operator_text(op: Description) -> str:
    """An operator: what it does, takes and gives."""
    head = f"{op.title}, since version {op.since_version}"
    if len(op.versions) > 1:
        head += f" (versions {', '.join(map(str, op.versions))})"
    lines = [head + (": deprecated" if op.deprecated else "")]
    if op.doc:
        lines += ["", textwrap.indent(_printable_lines(op.doc), "  ")]
    for title, parameters in (("inputs", op.inputs), ("outputs", op.outputs)):
        if parameters:
            rows = [(p.name, _option(p), p.type, first_line(p.description)) for p in parameters]
            lines += ["", title, table(rows, indent="  ")]
    if op.attributes:
        rows = [
            (text, a.type, first_line(a.description))
            for text, a in zip(op.args_default, op.attributes.values(), strict=True)
        ]
        lines += ["", "attributes", table(rows, indent="  ")]
    if op.type_constraints:
        lines += ["", "types"]
        for name, (types, _) in op.type_constraints.items():
            lines.append(textwrap.fill(f"{name}: {', '.join(types)}", 96, **_HANGING))
    return "\n".join(lines)


_HANGING: Any = {"initial_indent": "  ", "subsequent_indent": "    ", "break_on_hyphens": False}


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.splitlines()))


def _option(p: Parameter) -> str:
    return "" if p.option == "Single" else p.option.lower()


def first_line(text: str) -> str:
    """The first sentence of a description, on one line and of bearable length."""
    flat = " ".join(text.split())
    return textwrap.shorten(flat.split(". ")[0], 100, placeholder=" ...") if flat else ""


def model_text(model: Model) -> str:
    """A model: its opsets, inputs, outputs, weights, and how many nodes of each operator it has."""
    graph = model.graph
    opsets = ", ".join(f"{d} {v}".strip() for d, v in sorted(model.opsets.items()))
    lines = [printable(f"{model.name or 'model'}: opset {opsets}, IR version {model.ir_version}")]
    rows = [("input", i.name, declared_text(i.type)) for i in graph.inputs]
    rows += [("optional", i.name, declared_text(i.type)) for i in graph.optional_inputs]
    rows += [("output", o.name, declared_text(o.type)) for o in graph.outputs]
    lines += ["", table(rows, indent="  "), "", f"  {weights_text(model)}", ""]
    counts = operator_counts(model)
    lines.append(table([(n, op) for op, n in counts.items()], indent="  ") or "  no nodes")
    return "\n".join(lines)


def operator_counts(model: Model) -> dict[str, int]:
    """How many nodes of each operator the graph has, most first."""
    counts: dict[str, int] = {}
    for node in model.graph.nodes:
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda c: (-c[1], c[0])))


def weights_text(model: Model) -> str:
    """How many initializers there are and what they hold."""
    stored = model.graph.initializers.values()
    elements = sum(s.size for s in stored)
    size = sum(s.size * np.dtype(s.dtype).itemsize for s in stored if s.dtype != object)
    return f"{len(stored)} initializers, {elements:,} elements, {bytes_text(size)}"


def bytes_text(size: float) -> str:
    """A number of bytes as people read it.

    >>> bytes_text(3 * 2**20)
    '3.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def declared_text(t: Declared | None) -> str:
    """A declared type as `float32[batch, 3]`."""
    if t is None or t.kind is None:
        return "?"
    if t.kind in ("tensor", "sparse"):
        dims = "..." if t.dims is None else ", ".join("?" if d is None else str(d) for d in t.dims)
        return f"{dtype_name(t.dtype)}[{dims}]"
    if t.kind == "map":
        return f"map({dtype_name(t.key)}, {declared_text(t.elem)})"
    return f"{'seq' if t.kind == 'sequence' else t.kind}({declared_text(t.elem)})"
