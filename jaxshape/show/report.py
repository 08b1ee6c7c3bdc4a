"""A validation report as text and HTML: what was compared, how far off, and who is to blame."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .html import _text, widget
from .text import table

if TYPE_CHECKING:
    from .._checks import Check, Report

HEADER = ("value", "node", "op", "off by", "verdict")
MOST = 20  # rows of values inside the model


def _rows(report: Report) -> list[tuple[str, ...]]:
    """The outputs, then of the nodes checked by themselves those that differ."""
    outputs = [c for c in report.checks if c.stage == "output"]
    nodes = [c for c in report.checks if c.local and not c.agrees]
    nodes.sort(key=lambda c: c.ok)  # what is wrong comes before what is explained
    rows = [(c.value, c.node, c.op, _off(c), _verdict(c)) for c in (*outputs, *nodes[:MOST])]
    more = len(nodes) - MOST
    return [*rows, (f"({more} more)", "", "", "", "")] if more > 0 else rows


def _off(check: Check) -> str:
    if check.problem or not math.isfinite(check.share):
        return ""
    if check.share > 10:
        return f"{check.share:,.0f} times the tolerance"
    return f"{100 * check.share:.1f} % of tolerance"


def _verdict(check: Check) -> str:
    where = " (on equal inputs)" if check.local else ""
    if check.agrees:
        return "ok" + where
    found = (check.problem or "differs") + where
    return f"ok: {check.note} ({found})" if check.note else found


def _summary(report: Report) -> list[str]:
    verdict = "agrees with" if report.ok else "DIFFERS from"
    lines = [f"{report.model} {verdict} {report.reference}"]
    sizes = [", ".join(f"{k}={v}" for k, v in s.items()) for s in report.sizes if s]
    if sizes:
        lines.append(f"at {'; '.join(sizes)}")
    local = [c for c in report.checks if c.local]
    if local:
        lines.append(f"{len(local)} values checked on equal inputs")
    if report.skipped:
        lines.append(f"{report.skipped} values not compared: the reference does not give them")
    for note, n in Counter(c.note for c in local if c.note).items():
        lines.append(f"{n} of them differ: {note}")
    if report.culprit:
        lines.append(f"first to differ: {report.culprit.node} ({report.culprit.op})")
    elif local and not report.ok and not report.error:
        lines.append("no node differs on equal inputs")
    if report.first and not report.ok:
        lines.append(f"first to differ as values flow: {report.first.value}")
    if report.error:
        lines.append(report.error)
    return lines


def report_text(report: Report) -> str:
    return "\n".join(_summary(report)) + f"\n\n{table(_rows(report), HEADER)}"


def report_html(report: Report) -> str:
    lines = "".join(f"<div>{_text(line)}</div>" for line in _summary(report))
    head = "".join(f"<th>{h}</th>" for h in HEADER)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_text(c)}</td>" for c in row) + "</tr>" for row in _rows(report)
    )
    return widget(lines, f"<table><tr>{head}</tr>{rows}</table>", search=True)
