"""Sizes as values in random graphs: int64 tensors of shape (1,) and vectors of them.

They come from three places: constants, arithmetic on `Shape` (in integers, and through floats as
exporters write it), and integers that only the feed knows.
"""

from __future__ import annotations

import numpy as np
from random_graphs import Builder

FAR = [2**63 - 1, 2**31 - 1, 10**9]


def leaf(b: Builder) -> str | None:
    kind = b.r.random()
    if kind < 0.12:
        return b.constant([b.int(0, 6)])
    if kind < 0.2 and "k" in b.values:
        return b.add("Slice", "k", b.constant([0]), b.constant([1]))
    x = b.tensor("fbi", 1)
    if x is None:
        return b.constant([b.int(1, 4)])
    rank = b.rank(x) or 1
    if kind < 0.25:
        total = b.add("Size", x)
        return b.add("Reshape", total, b.constant([1]))
    axis = b.int(-rank, rank - 1)
    if kind < 0.6:
        return b.add("Gather", b.add("Shape", x), b.constant([axis]), axis=0)
    start = axis % rank
    return b.add("Shape", x, start=start, end=start + 1)


def divisor(b: Builder, x: str) -> bool:
    """Whether x is never 0, by which the runtime would crash; in a loop only a constant is sure."""
    sure = x in b.constants or b.outer is None
    return sure and all(bool(np.all(v)) for v in b.samples(x))


def arithmetic(b: Builder, depth: int) -> str | None:
    """A size from others, in integers."""
    x = expression(b, depth - 1)
    op = b.pick(["Add", "Sub", "Mul", "Div", "Div", "Mod", "Max", "Min", "Neg", "Where"])
    if x is None:
        return None
    if op == "Neg":
        return b.add("Neg", x)
    y = (
        b.constant([b.pick([1, 2, 2, 3, 4, 5, 7, -1, -2])])
        if b.chance(0.6)
        else expression(b, depth - 1)
    )
    if y is None or op in ("Div", "Mod") and not divisor(b, y):
        return None
    if op == "Where":
        test = b.add(
            b.pick(["Equal", "Less", "GreaterOrEqual", "Greater"]), x, b.constant([b.int(1, 5)])
        )
        if b.chance(0.2):
            test = test and b.add("Not", test)
        if test and b.chance(0.2):
            test = b.add(b.pick(["And", "Or"]), test, b.add("Less", y, x))
        z = expression(b, depth - 1)
        return b.add("Where", test, y, z) if test and z else None
    if op == "Mod" and b.chance(0.2):
        return b.add("Mod", x, y, fmod=1)
    if op == "Sub" and b.chance(0.3) or op == "Mod" and b.chance(0.3) and divisor(b, x):
        x, y = y, x
    return b.add(op, x, y)


def floating(b: Builder, depth: int) -> str | None:
    """A size from another, through floats."""
    x = expression(b, depth - 1)
    dtype = b.pick([1, 1, 1, 11])
    kind = np.float32 if dtype == 1 else np.float64
    x = x and b.add("Cast", x, to=dtype)
    for _ in range(b.int(1, 3)):
        if x is None:
            return None
        op = b.pick(
            ["Mul", "Mul", "Div", "Add", "Sub", "Floor", "Ceil", "Round", "Max", "Min", "Neg"]
        )
        if op in ("Floor", "Ceil", "Round", "Neg"):
            x = b.add(op, x)
        else:
            factor = b.pick([0.5, 2.0, 0.25, 1.5, 0.7, 3.0, 0.1, 1 / 3, 2.5])
            x = b.add(op, x, b.constant([factor], kind))
    if x and b.chance(0.8):
        x = b.add(b.pick(["Floor", "Ceil", "Round"]), x)
    return x and b.add("Cast", x, to=7)


def expression(b: Builder, depth: int) -> str | None:
    kind = b.r.random()
    if depth <= 0 or kind < 0.3:
        return leaf(b)
    return floating(b, depth) if kind < 0.55 else arithmetic(b, depth)


def size(b: Builder, low: int = 0, high: int = 20, depth: int = 2) -> str:
    """A size that lies in a range wherever it is known to run."""
    for _ in range(4):
        nodes, values = list(b.nodes), {n: list(v) for n, v in b.values.items()}
        x = expression(b, b.int(0, depth))
        if x is not None and all(low <= int(v[0]) <= high for v in b.samples(x)):
            return x
        b.nodes, b.values = nodes, values
    return b.constant([b.int(max(low, 1), max(1, min(high, 4)))])


def vector(b: Builder) -> str | None:
    """Sizes of several axes at once, through floats or not, beside plain numbers."""
    x = b.tensor("fbi", 1)
    shape = x and b.add("Shape", x)
    if shape is None:
        return None
    if b.chance(0.4):
        shape = b.add("Concat", shape, b.constant(b.r.integers(-2, 5, b.int(1, 2))), axis=0)
    v = b.add("Cast", shape, to=b.pick([1, 11, 6])) if shape and b.chance(0.8) else shape
    for _ in range(b.int(1, 4)):
        if v is None:
            return None
        kind, n = b.dtype(v), len(b.samples(v)[0])
        op = b.pick(
            [
                "Mul",
                "Mul",
                "Div",
                "Add",
                "Sub",
                "Max",
                "Min",
                "Floor",
                "Round",
                "Abs",
                "Mod",
                "Concat",
                "Slice",
                "Clip",
            ]
        )
        if op in ("Floor", "Round", "Abs"):
            v = b.add(op, v) or v
        elif op == "Concat":
            v = b.add("Concat", v, b.constant([b.pick([0.5, 2.5, 3, -1.5])], kind), axis=0)
        elif op == "Slice":
            v = (
                b.add(
                    "Slice", v, b.constant([b.int(-3, 1)]), b.constant([b.pick([2**31, 2, 3, -1])])
                )
                or v
            )
        elif op == "Clip":
            v = b.add("Clip", v, b.constant(b.int(0, 3), kind), b.constant(b.int(3, 9), kind)) or v
        else:
            values = [
                b.pick([1, 2, 3, 4, 8]) if kind.kind == "i" else b.pick([0.5, 2, 1.5, 0.25, 3, 0.7])
                for _ in range(n)
            ]
            v = b.add(op, v, b.constant(values, kind)) or v
    return v and b.add("Cast", v, to=7)


def scalar(b: Builder, x: str) -> str | None:
    return (
        b.add("Squeeze", x, b.constant([0]))
        if b.chance(0.5)
        else b.add("Reshape", x, b.constant([], np.int64))
    )


def sizes(b: Builder, n: int, low: int = 0, high: int = 12) -> str | None:
    if n == 0:
        return b.constant([])
    parts = [
        size(b, low, high) if b.chance(0.6) else b.constant([b.int(max(low, 1), min(high, 4))])
        for _ in range(n)
    ]
    return parts[0] if n == 1 else b.add("Concat", *parts, axis=0)
