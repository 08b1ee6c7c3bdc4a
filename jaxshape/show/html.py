"""HTML for notebooks and files: one element that carries its style and needs no network.

Every name and text from the model is escaped.  Folding is `<details>`, so it works where scripts
are not allowed; only the search box needs one, and that is an attribute which looks no further
than the element it is in: any number of these can be in one page.  Colours follow the theme
of JupyterLab and VS Code, and the reader's preference elsewhere.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from .._dim import Dim
from .._value import MapType, OptionalType, SequenceType, TensorType, dtype_name
from .text import (
    INNER,
    bound_texts,
    content_text,
    declared_text,
    operator_counts,
    printable,
    reason,
    value_rows,
    weights_text,
)

if TYPE_CHECKING:
    from .._describe import Description, Parameter
    from .._model import Model
    from .._trace import Trace
    from .._values import Values

_DEEPEST = 8  # folds in one another: a name with a thousand slashes has no thousand levels
_OPEN = 200  # rows: a longer table starts folded

_LIGHT = (
    "--bg:#fff;--fg:#1b1f24;--dim:#656d76;--line:#d8dee4;--head:#f3f5f7;"
    "--named:#0a58ca;--fresh:#a3480a;--mark:#fff4ce;color-scheme:light"
)
_DARK = (
    "--bg:#16191d;--fg:#dfe3e8;--dim:#98a1ab;--line:#363c44;--head:#20252b;"
    "--named:#79b8ff;--fresh:#ffb273;--mark:#3d3417;color-scheme:dark"
)
_STYLE = (
    f".jaxshape{{{_LIGHT}}}"
    f"@media(prefers-color-scheme:dark){{.jaxshape{{{_DARK}}}}}"
    f"[data-jp-theme-light=true] .jaxshape,.vscode-light .jaxshape{{{_LIGHT}}}"
    f"[data-jp-theme-light=false] .jaxshape,.vscode-dark .jaxshape{{{_DARK}}}"
    """
.jaxshape{background:var(--bg);color:var(--fg);font:13px/1.5 system-ui,sans-serif;padding:8px;
max-width:100%;overflow-x:auto}
.jaxshape table{border-collapse:collapse;table-layout:fixed;width:100%;min-width:640px;margin:0}
.jaxshape tr{background:none!important}
.jaxshape td,.jaxshape th{text-align:left!important;vertical-align:top;padding:1px 8px;
border-bottom:1px solid var(--line);overflow-wrap:anywhere;white-space:pre-wrap}
.jaxshape th{background:var(--head);font-weight:600}
.jaxshape col.n{width:36%}.jaxshape col.o{width:16%}
.jaxshape td,.jaxshape code,.jaxshape summary{font-family:ui-monospace,monospace;font-size:12px}
.jaxshape td.p{font-family:inherit}
.jaxshape code{background:none;color:inherit;padding:0}
.jaxshape details{margin:0;padding:0}
.jaxshape details details,.jaxshape details table{margin-left:14px;width:calc(100% - 14px)}
.jaxshape summary{cursor:pointer;padding:1px 0}
.jaxshape summary small,.jaxshape .q{color:var(--dim)}
.jaxshape input{background:var(--bg);color:var(--fg);border:1px solid var(--line);
border-radius:4px;padding:2px 8px;margin:0 0 6px;width:260px;max-width:100%}
.jaxshape b.d{color:var(--named);font-weight:600}
.jaxshape b.f{color:var(--fresh);font-weight:600;font-style:italic}
.jaxshape .m{background:var(--mark)!important}
.jaxshape ul{margin:4px 0 8px;padding:4px 8px 4px 26px}
.jaxshape .out{color:var(--dim);border:1px solid var(--line);border-radius:4px;padding:0 4px}
.jaxshape [hidden]{display:none}
"""
)
# A row stays where its text holds every word; a fold stays where a row in it does, and opens.
_SEARCH = (
    "const r=this.closest('.jaxshape'),w=this.value.toLowerCase().split(/\\s+/).filter(Boolean);"
    "r.querySelectorAll('[data-row]').forEach(e=>{const t=e.textContent.toLowerCase();"
    "e.hidden=!w.every(x=>t.includes(x))});"
    "r.querySelectorAll('details').forEach(d=>{"
    "if(d.dataset.was===undefined)d.dataset.was=+d.open;"
    "d.hidden=!d.querySelector('[data-row]:not([hidden])');"
    "d.open=w.length?true:!!+d.dataset.was;if(!w.length)delete d.dataset.was})"
)


def _text(value: object) -> str:
    return escape(printable(value))


def widget(*parts: str, search: bool = False) -> str:
    """The parts as one self-contained element."""
    script = escape(_SEARCH)
    box = f'<input type="search" placeholder="filter" aria-label="filter" oninput="{script}">'
    body = (box if search else "") + "".join(parts)
    return f'<div class="jaxshape"><style>{_STYLE}</style>{body}</div>'


def trace_html(trace: Trace) -> str:
    """A trace: requirements, bounds, and every value, folded by the scopes in its name; then the
    values inside subgraphs and functions.
    """
    bounds, requirements = trace.bounds, trace.requirements
    demands: dict[str, list[str]] = {}
    for r in requirements:
        demands.setdefault(r.node, []).append(str(r))
    rows = _rows(trace, set(trace.outputs), demands)
    head = "<tr><th>name</th><th>op</th><th>type</th></tr>"
    inner = [
        _fold(path, _table("".join(row for _, row in _rows(values))), opened=False)
        for path, values in itertools.islice(trace.inner.items(), INNER)
    ]
    if len(trace.inner) > INNER:
        inner.append(f"and {len(trace.inner) - INNER} more subgraphs and calls")
    return widget(
        _facts(requirements, bound_texts(bounds)),
        f"<table>{_COLUMNS}{head}</table>",
        _folded(rows, len(rows) <= _OPEN),
        *inner,
        search=True,
    )


def _rows(
    values: Values,
    outputs: Collection[str] = (),
    demands: Mapping[str, Sequence[str]] | None = None,
) -> list[tuple[str, str]]:
    """Name and row of each value of a graph; marked where its node demands something."""
    bounds = values.bounds
    fresh = dict(zip(bounds, bound_texts(bounds), strict=True))
    makers = {name: node.label for node in values.graph.nodes for name in node.outputs if name}

    def row(name: str, op: str, found: Any, content: Any) -> tuple[str, str]:
        known = content_text(content)
        shown = type_html(found, fresh) + (f" = {_text(known)}" if known else "")
        if name in outputs:
            shown += ' <span class="out">output</span>'
        wanted = (demands or {}).get(makers.get(name, ""))
        mark = f' class="m" title="requires {_text(", ".join(wanted))}"' if wanted else ""
        cells = f"<td>{_text(name)}</td><td>{_text(op)}</td><td>{shown}</td>"
        return name, f"<tr data-row{mark}>{cells}</tr>"

    return [row(*r) for r in value_rows(values)]


_COLUMNS = '<colgroup><col class="n"><col class="o"><col></colgroup>'


def _facts(requirements: Sequence[Any], bounds: Collection[str]) -> str:
    """The requirements with the nodes that demand them, and the bounds as text."""
    html = ""
    if requirements:
        items = "".join(
            f'<li><code>{_text(r)}</code> <span class="q">{_text(reason(r))}</span></li>'
            for r in requirements
        )
        html += f"<strong>Requires</strong><ul class='m'>{items}</ul>"
    if bounds:
        items = "".join(f"<li><code>{_text(b)}</code></li>" for b in bounds)
        html += f"<strong>Depends on data</strong><ul>{items}</ul>"
    return html


def type_html(t: Any, fresh: dict[str, str]) -> str:
    """A type with its dynamic sizes marked; those in `fresh` (name -> bound) depend on data."""
    if isinstance(t, TensorType):
        if t.shape is None:
            return f'{_text(dtype_name(t.dtype))}[<b class="f" title="any rank">...</b>]'
        dims = ", ".join(_dim_html(d, fresh) for d in t.shape)
        return f"{_text(dtype_name(t.dtype))}[{dims}]"
    if t is None:
        return "absent"
    if isinstance(t, list):
        return f"[{', '.join(type_html(v, fresh) for v in t)}]"
    inner = type_html(t.elem, fresh) if getattr(t, "elem", None) is not None else "?"
    if isinstance(t, SequenceType):
        return f"seq({inner})"
    if isinstance(t, OptionalType):
        return f"optional({inner})"
    if isinstance(t, MapType):
        return f"map({_text(dtype_name(t.key))}, {inner})"
    return _text(t)


def _dim_html(d: Any, fresh: dict[str, str]) -> str:
    if not isinstance(d, Dim):
        return "?" if d is None else str(d)
    bounds = [fresh[s.name] for s in d.symbols if s.name in fresh]
    if bounds:
        return f'<b class="f" title="{_text("; ".join(bounds))}">{_text(d)}</b>'
    return f'<b class="d">{_text(d)}</b>'


def _folded(rows: Sequence[tuple[str, str]], opened: bool, depth: int = 0, cut: int = 0) -> str:
    """Rows in their order; neighbours whose names go on with the same part are one fold.

    `cut` is the length of what the names have in common already.
    """
    parts: list[str] = []
    plain: list[str] = []
    for scope, group in _runs(rows, cut):
        if scope is None or len(group) == 1 or depth >= _DEEPEST:
            plain += [row for _, row in group]
            continue
        common = _common(group, cut)
        inner = _folded(group, opened, depth + 1, len(common))
        label = f"{_text(common[cut:].strip('/.'))} <small>{len(group)}</small>"
        fold = f"<details{' open' if opened else ''}><summary>{label}</summary>{inner}</details>"
        parts += [_table("".join(plain)), fold]
        plain = []
    return "".join([*parts, _table("".join(plain))])


def _table(rows: str) -> str:
    return f"<table>{_COLUMNS}{rows}</table>" if rows else ""


_PART = re.compile(r"[/.]*[^/.]+[/.]+")


def _part(name: str, cut: int) -> str | None:
    """The next part of a name, with its separator; None where no other follows."""
    found = _PART.match(name, cut)
    return found[0] if found and found.end() < len(name) else None


def _runs(
    rows: Sequence[tuple[str, str]], cut: int
) -> Iterable[tuple[str | None, list[tuple[str, str]]]]:
    """Neighbouring rows with the same next part."""
    start: int = 0
    for i in range(1, len(rows) + 1):
        part = _part(rows[start][0], cut)
        if i == len(rows) or _part(rows[i][0], cut) != part:
            yield part, list(rows[start:i])
            start = i


def _common(group: Sequence[tuple[str, str]], cut: int) -> str:
    """The longest run of parts that all the names share: one fold instead of one in another."""
    first = group[0][0]
    while (part := _part(first, cut)) is not None:
        if any(_part(name, cut) != part for name, _ in group):
            break
        cut += len(part)
    return first[:cut]


def operator_html(op: Description) -> str:
    """An operator: what it does, takes and gives."""
    versions = ", ".join(map(str, op.versions))
    parts = [
        f"<strong>{_text(op.title)}</strong> since version {op.since_version}, of {versions}"
        f"{': deprecated' if op.deprecated else ''}"
    ]
    if op.doc:
        lines = "\n".join(map(printable, op.doc.splitlines()))
        parts.append(
            _fold("what it does", f'<table><tr><td class="p">{escape(lines)}</td></tr></table>')
        )
    for title, parameters in (("inputs", op.inputs), ("outputs", op.outputs)):
        rows = [(p.name, _option(p), p.description) for p in parameters]
        parts.append(_listing(title, rows))
    shown = zip(op.args_default, op.attributes.values(), strict=True)
    parts.append(_listing("attributes", [(text, a.type, a.description) for text, a in shown]))
    constraints = op.type_constraints.items()
    rows = [(name, "", f"{why}\n{', '.join(types)}") for name, (types, why) in constraints]
    parts.append(_listing("types", rows))
    return widget(*parts)


def _option(p: Parameter) -> str:
    return p.type if p.option == "Single" else f"{p.type} {p.option.lower()}".strip()


def _listing(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f'<tr><td>{_text(a)}</td><td>{_text(b)}</td><td class="p">{_lines(c)}</td></tr>'
        for a, b, c in rows
    )
    return _fold(title, _table(cells))


def _lines(text: str) -> str:
    return escape("\n".join(map(printable, text.splitlines())))


def _fold(title: str, body: str, opened: bool = True) -> str:
    start = "<details open>" if opened else "<details>"
    return f"{start}<summary>{_text(title)}</summary>{body}</details>"


def model_html(model: Model) -> str:
    """A model: its opsets, inputs, outputs, weights, and how many nodes of each operator it has."""
    graph = model.graph
    opsets = ", ".join(f"{d} {v}".strip() for d, v in sorted(model.opsets.items()))
    sides = (
        ("input", graph.inputs),
        ("optional input", graph.optional_inputs),
        ("output", graph.outputs),
    )
    values = [(i.name, kind, declared_text(i.type)) for kind, side in sides for i in side]
    counts = [(op, str(n), "") for op, n in operator_counts(model).items()]
    return widget(
        f"<strong>{_text(model.name or 'model')}</strong> "
        f'<span class="q">opset {_text(opsets)}, IR version {model.ir_version}, '
        f"{_text(weights_text(model))}</span>",
        _listing("inputs and outputs", values),
        _listing(f"{len(graph.nodes)} nodes", counts),
    )
