"""A validation report as text and HTML: what was compared, how far off, and who is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .html import _text, widget
from .text import table

if TYPE_CHECKING:
    from .._validate import Check, Report

HEADER = ("value", "node", "op", "off by", "verdict")


def _rows(report: Report) -> list[tuple[str, ...]]:
    """Outputs first; of the nodes checked by themselves only those that differ."""
    shown = [c for c in report.checks if not c.local or not c.ok]
    return [(c.value, c.node, c.op, _off(c), _verdict(c)) for c in shown]


def _off(check: Check) -> str:
    return "" if check.problem else f"{100 * check.share:.1f} % of tolerance"


def _verdict(check: Check) -> str:
    where = " (on equal inputs)" if check.local else ""
    return "ok" if check.ok else (check.problem or "differs") + where


def _summary(report: Report) -> str:
    verdict = "agrees with" if report.ok else "DIFFERS from"
    local = sum(c.local for c in report.checks)
    parts = [f"{report.model} {verdict} {report.reference}"]
    if report.sizes:
        parts.append(
            "at "
            + "; ".join(", ".join(f"{k}={v}" for k, v in s.items()) for s in report.sizes if s)
        )
    if local:
        parts.append(f"{local} values checked on equal inputs")
    if report.culprit:
        parts.append(f"first to differ: {report.culprit.node} ({report.culprit.op})")
    if report.error:
        parts.append(report.error)
    return "\n".join(p for p in parts if p != "at ")


def report_text(report: Report) -> str:
    return f"{_summary(report)}\n\n{table(_rows(report), HEADER)}"


def report_html(report: Report) -> str:
    lines = "".join(f"<div>{_text(line)}</div>" for line in _summary(report).splitlines())
    head = "".join(f"<th>{h}</th>" for h in HEADER)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_text(c)}</td>" for c in row) + "</tr>" for row in _rows(report)
    )
    return widget(lines, f"<table><tr>{head}</tr>{rows}</table>", search=True)
