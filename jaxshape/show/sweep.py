"""A sweep as people read it: which bindings fail and why, the bytes, and where most of them are."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from .._value import dtype_name
from .html import widget
from .text import bytes_text, plural, printable, reason, table

if TYPE_CHECKING:
    from .._sweep import Sweep

_ROWS = 12  # bindings: of more, some between the least and the greatest total are shown
_LARGEST = 10  # values

Section = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]  # title, header, rows


def _sections(sweep: Sweep) -> list[Section]:
    """All there is to show, as tables."""
    valid, total, sizes = sweep.valid, sweep.total_bytes, sweep.sizes
    good = int(valid.sum())
    found: list[Section] = []
    ranges = [(name, _range(np.unique(v)), len(np.unique(v))) for name, v in sizes.items()]
    title = plural(sweep.count, "binding")
    if good < valid.size:
        title += f", {good:,} of which {'holds' if good == 1 else 'hold'}"
    found.append((title, ("size", "values", "n"), ranges))
    broken = [(str(r), f"{n:,}", reason(r)) for r, n in sweep.broken.items()]
    if broken:
        found.append(("broken requirements", ("requirement", "bindings", "wanted by"), broken))
    unchecked = [(str(r), reason(r)) for r in sweep.unchecked]
    if unchecked:
        found.append(("not checked: sizes are missing", ("requirement", "wanted by"), unchecked))
    unknown = set(sweep.unknown)
    if not good or len(unknown) == len(sweep._types) + len(sweep._others):
        return found
    without = f", without {len(unknown)} values of unknown size" if unknown else ""
    rows = _chosen(np.flatnonzero(valid), np.ma.getdata(total))
    cells = [(*(int(v[i]) for v in sizes.values()), bytes_text(int(total[i]))) for i in rows]
    found.append((f"bytes of all values{without}", (*sizes, "total"), cells))
    most = rows[int(np.argmax([int(total[i]) for i in rows]))]
    one = sweep._one(most)
    by_size = sorted(
        ((int(one.bytes(name)[0]), name) for name in one if name not in unknown),
        key=lambda item: (-item[0], item[1]),
    )
    where = ", ".join(f"{name}={int(v[most])}" for name, v in sizes.items())
    largest = [
        (name, f"{dtype_name(sweep._types[name].dtype)}{one[name][0].tolist()}", bytes_text(n))
        for n, name in by_size[:_LARGEST]
    ]
    at = f" at {where}" if where else ""
    found.append((f"largest values{at}", ("name", "type", "bytes"), largest))
    return found


def _range(values: np.ndarray) -> str:
    if values.size <= 6:
        return ", ".join(map(str, values.tolist()))
    return f"{values[0]} ... {values[-1]}"


def _chosen(rows: np.ndarray, total: np.ndarray) -> list[int]:
    """All rows where they are few, else some evenly between the least and the greatest total."""
    if rows.size > _ROWS:
        order = rows[np.argsort(total[rows], kind="stable")]
        rows = order[np.linspace(0, rows.size - 1, 5).round().astype(int)]
    return rows.tolist()


def sweep_text(sweep: Sweep) -> str:
    """A sweep as plain tables."""
    parts = [
        f"{printable(title)}\n{table(rows, header, indent='  ')}"
        for title, header, rows in _sections(sweep)
    ]
    return "\n\n".join(parts)


def sweep_html(sweep: Sweep) -> str:
    """A sweep as HTML tables."""
    parts = []
    for title, header, rows in _sections(sweep):
        head = "".join(f"<th>{escape(printable(h))}</th>" for h in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(printable(c))}</td>" for c in row) + "</tr>"
            for row in rows
        )
        parts.append(
            f"<strong>{escape(printable(title))}</strong><table><tr>{head}</tr>{body}</table>"
        )
    return widget(*parts)
