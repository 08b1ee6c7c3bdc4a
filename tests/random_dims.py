"""Random formulas, each with a plain Python function that says what it means."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from jaxshape._dim import Dim, floordiv, maximum, minimum, mod, symbol

H, W, C, E = symbol("h"), symbol("w"), symbol("c", 0), symbol("e", None)
SYMBOLS = {"h": H, "w": W, "c": C, "e": E}
Meaning = Callable[[dict[str, int]], int]


def formula(r: random.Random, depth: int, symbols: list[Dim]) -> tuple[Any, Meaning]:
    """A formula made by our arithmetic, and the same computed by Python's."""
    k = r.random()
    if depth == 0 or k < 0.25:
        if r.random() < 0.7:
            s = r.choice(symbols)
            return s, lambda v: v[s.name]
        n = r.randint(-4, 9)
        return n, lambda v: n
    a, f = formula(r, depth - 1, symbols)
    if k < 0.65:
        b, g = formula(r, depth - 1, symbols)
        if k < 0.45:
            return a + b, lambda v: f(v) + g(v)
        if k < 0.55:
            return a - b, lambda v: f(v) - g(v)
        return a * b, lambda v: f(v) * g(v)
    if k < 0.88:
        m = r.choice([1, 2, 2, 3, 4, 5, 6, -2])
        if k < 0.8:
            return floordiv(a, m), lambda v: f(v) // m
        return mod(a, m), lambda v: f(v) % m
    b, g = formula(r, depth - 1, symbols)
    if k < 0.92 and type(b) is Dim:
        return floordiv(a, b), lambda v: f(v) // g(v)
    if r.random() < 0.5:
        return maximum(a, b), lambda v: max(f(v), g(v))
    return minimum(a, b), lambda v: min(f(v), g(v))


def points(r: random.Random, n: int) -> list[dict[str, int]]:
    """Sizes that symbols may have, small ones preferred."""
    sizes = [1, 1, 2, 3, 4, 5, 6, 7, 8, 13, 20, 60]
    counts, integers = [0, 0, *sizes], [-7, -2, -1, 0, *sizes]
    pick = r.choice
    return [
        {"h": pick(sizes), "w": pick(sizes), "c": pick(counts), "e": pick(integers)}
        for _ in range(n)
    ]


def value(d: Any, env: dict[str, int]) -> Any:
    return d.evaluate(env) if type(d) is Dim else d
