"""Random graphs against the runtime: a trace claims nothing that any run contradicts.

For every binding under which a graph runs: the symbolic trace, with the sizes put in, has the
runtime's ranks, dtypes, sizes and known contents; each requirement and each bound holds there; the
trace with numbers agrees; `run` gives the same shapes. A trace that raises means that nothing runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from random_graphs import Case, case

import jaxshape as js
from jaxshape._dim import Dim
from jaxshape._rational import Float
from jaxshape._relation import Relation


def value(d: Any, env: Mapping[str, int]) -> Any:
    """What a size or an element of a known content is under a binding; None where unknown."""
    if isinstance(d, Dim):
        return d.evaluate(env) if {s.name for s in d.symbols} <= env.keys() else None
    if not isinstance(d, Relation):
        return None if isinstance(d, Float) else d
    left, right = value(d.left, env), value(d.right, env)
    if d.kind == "not":
        return None if left is None else not left
    if left is None or right is None:
        return None
    if d.kind in ("and", "or"):
        return (left and right) if d.kind == "and" else (left or right)
    return left == right if d.kind == "==" else left >= right


def pairs(traced: js.Trace, values: Mapping[str, np.ndarray]) -> list[tuple[str, Any, Any]]:
    """Each claim about a number beside the number that came: (where, claimed, actual)."""
    found = []
    for name, actual in values.items():
        claim, content = traced[name], traced.content(name)
        assert claim.dtype in (None, actual.dtype), f"{name}: {claim} is {actual.dtype}"
        if claim.shape is not None:
            assert len(claim.shape) == actual.ndim, f"{name}: {claim} is {actual.shape}"
            for i, (d, n) in enumerate(zip(claim.shape, actual.shape, strict=True)):
                found.append((f"axis {i} of {name}", d, n))
        if content is not None and actual.size <= 64:
            known = content.elements if hasattr(content, "elements") else content
            for i, (e, n) in enumerate(
                zip(known.ravel().tolist(), actual.ravel().tolist(), strict=True)
            ):
                found.append((f"element {i} of {name}", e, n))
    return found


def agree(claimed: Any, actual: Any) -> bool:
    if isinstance(actual, float):
        claimed = float(claimed)
        return claimed == actual or bool(np.isclose(claimed, actual, 1e-4, 1e-5, equal_nan=True))
    return claimed == actual


def check_claims(
    traced: js.Trace, values: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Compare all claims; what fresh sizes are under this binding is read off where they stand
    alone.
    """
    claims = pairs(traced, values)
    env = dict(sizes)
    for _, d, n in claims:
        if isinstance(d, Dim) and d.is_symbol and isinstance(n, (int, np.integer)):
            env.setdefault(d.name, int(n))
    for where, d, n in claims:
        expected = value(d, env)
        assert expected is None or agree(expected, n), f"{where} is {n}, claimed {d}, under {env}"
    return env


def check_facts(traced: js.Trace, env: Mapping[str, int]) -> None:
    """Requirements and bounds hold."""
    for requirement in traced.requirements:
        try:
            held = requirement.holds(env)
        except KeyError:
            continue
        assert held, f"{requirement} ({requirement.node}: {requirement.why}) under {env}"
    for name, (low, high) in traced.bounds.items():
        if name in env:
            high = value(high, env)
            assert low is None or low <= env[name], f"{name} >= {low} under {env}"
            assert high is None or env[name] <= Fraction(high), f"{name} <= {high} under {env}"


def check(given: Case, run: int = 1) -> None:
    """Hold a trace to all that the runtime says; `run` bindings are also run by us."""
    alive = given.alive()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            traced = js.trace(given.model)
        except js.ShapeError as e:
            assert not alive, f"{e}, but it runs under {given.bindings[alive[0]]}"
            return
        for i in alive:
            sizes = {n: s for n, s in given.bindings[i].items() if n in traced.symbols}
            values = {n: v[i] for n, v in given.values.items()}
            if all(v.size for v in given.feeds[i].values()):
                check_facts(traced, check_claims(traced, values, sizes))
            shapes = {n: v.shape for n, v in given.feeds[i].items()}
            named = sizes.keys() == set(traced.symbols)
            numbers = traced.at(**sizes) if named else js.trace(given.model, shapes)
            check_facts(numbers, check_claims(numbers, values, {}))
        for i in alive[:run]:
            for name, ours in js.run(given.model, given.feeds[i]).items():
                if name in given.values:
                    theirs = given.values[name][i]
                    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name


@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed):
    check(case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 5000, 100))
def test_many_random_graphs(start):
    for seed in range(start, start + 100):
        check(case(seed, size=16), run=0)
