"""Rules for control flow and for the search for entries, where sizes are counts.

A loop's body is evaluated like any other jaxpr, inside of the same loop over arrays at their
bounds. Sizes do not change from round to round, so that what they are is known outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from ._counts import find
from ._dim import Dim
from ._masked import Equation, dims_of, inside, rule
from ._symbol import from_export


@rule("nonzero")
def _nonzero(e: Equation, mask: Any) -> list[Any]:
    return find(e.counts, mask, e.params["size"])


def _alone(e: Equation, run: Callable[[], Any]) -> Any:
    """Run a body in which no size may come up: its value would not outlive the body."""
    before = set(e.counts.values)
    with e.counts.apart() as flags:
        result = run()
        if flags or set(e.counts.values) - before:
            e.refuse("that come up inside of it")
    return result


@rule("cond")
def _cond(e: Equation, index: Any, *args: Any) -> Any:
    bodies = [
        lambda *xs, body=body: _alone(e, lambda: inside(body, xs, e.counts))
        for body in e.params["branches"]
    ]
    return lax.switch(index.astype(jnp.int32), bodies, *args)


@rule("while")
def _while(e: Equation, *args: Any) -> Any:
    p = e.params
    k, n = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def keep(carry: Any) -> Any:
        return _alone(e, lambda: inside(p["cond_jaxpr"], [*args[:k], *carry], e.counts))[0]

    def body(carry: Any) -> Any:
        return _alone(e, lambda: inside(p["body_jaxpr"], [*args[k:n], *carry], e.counts))

    return lax.while_loop(keep, body, list(args[n:]))


@rule("scan")
def _scan(e: Equation, *args: Any) -> Any:
    """Rounds beyond a count leave what is carried as it is."""
    p, body = e.params, e.params["jaxpr"].jaxpr
    # which operands are rows and which results are stacked, by ranks: JAX's versions say it
    # under different names
    stacked = sum(len(a) > len(dims_of(b)) for a, b in zip(e.ins, body.invars, strict=True))
    carried = sum(len(a) == len(dims_of(b)) for a, b in zip(e.outs, body.outvars, strict=True))
    m = len(args) - stacked
    n = m - carried
    length = from_export(p["length"])
    rounds, reverse = e.counts.top(length), p["reverse"]
    consts, carry, rows = args[:n], list(args[n:m]), list(args[m:])
    size = e.counts.size(length)

    def step(carry: Any, row: Any) -> Any:
        i, *row = row
        found = _alone(e, lambda: inside(p["jaxpr"], [*consts, *carry, *row], e.counts))
        after, out = found[: len(carry)], found[len(carry) :]
        if isinstance(length, Dim):
            after = [jnp.where(i < size, b, a) for a, b in zip(carry, after, strict=True)]
        return after, out

    numbers = jnp.arange(rounds)
    carry, out = lax.scan(step, carry, [numbers, *rows], rounds, reverse, p["unroll"])
    return [*carry, *out]
