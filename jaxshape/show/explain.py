"""An explanation as people read it: for each size a table, from the value back to the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from .html import type_html, widget
from .text import printable, table, type_text

if TYPE_CHECKING:
    from .._explain import Explanation, Step

_RUN = 4  # nodes in a row that pass a size on: as many are shown as one line

Row = tuple[str, str, str, str]  # place, size, who made it, from what


def _rows(steps: Sequence[Step]) -> list[Row]:
    rows: list[Row] = []
    i = 0
    while i < len(steps):
        rows.append(_row(steps[i]))
        i += 1
        end = i
        while end < len(steps) and steps[end].unchanged and steps[end - 1].unchanged:
            end += 1
        if end - i >= _RUN:
            operators = list(dict.fromkeys(s.op for s in steps[i:end]))
            several = ", ".join(operators[:6]) + (", ..." if len(operators) > 6 else "")
            rows.append(("...", str(steps[i].size), f"unchanged by {end - i} nodes: {several}", ""))
            i = end
    return rows


def _row(step: Step) -> Row:
    node = (
        step.node if step.op in step.node else f"{step.node} ({step.op})" if step.node else step.op
    )
    by = f"{node}: {step.how}" if step.how else node
    origin = step.formula or ", ".join(map(str, step.sources))
    return str(step.place), str(step.size), by, origin


def explanation_text(explanation: Explanation) -> str:
    """An explanation as plain tables."""
    lines = [printable(f"{explanation.name}: {type_text(explanation.type)}")]
    for label, steps in explanation.parts.items():
        lines += ["", printable(f"{label}: {steps[0].size}"), table(_rows(steps), indent="  ")]
    return "\n".join(lines)


def explanation_html(explanation: Explanation) -> str:
    """An explanation as HTML tables."""
    head = "<tr><th>size</th><th>is</th><th>made by</th><th>from</th></tr>"
    parts = [
        f"<strong>{escape(printable(explanation.name))}</strong> "
        f"<code>{type_html(explanation.type, {})}</code>"
    ]
    for label, steps in explanation.parts.items():
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(printable(c))}</td>" for c in row) + "</tr>"
            for row in _rows(steps)
        )
        title = escape(printable(f"{label}: {steps[0].size}"))
        parts.append(
            f"<details open><summary>{title}</summary><table>{head}{body}</table></details>"
        )
    return widget(*parts)
