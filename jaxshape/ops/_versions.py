"""Operators whose versions differ in a few attributes: one lowering, a row for each version."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .._op import Op, op

_Kind = inspect.Parameter


def declare(
    name: str,
    since: int,
    lowering: Callable[..., Any],
    rule: Callable[..., Any],
    inputs: str,
    attributes: Mapping[str, Any],
    doc: str,
    domain: str = "",
    dtypes: tuple[str, ...] = (),
) -> Op:
    """Register a version of an op that runs in NumPy too; its rule takes inputs of unknown rank.

    `inputs` are the names in order, `?` behind those that may be absent. The lowering and the
    rule take all inputs, None where absent, and all attributes. `dtypes` is as for `op`.
    """
    names = inputs.split()

    def completed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            return function(*given, *(None,) * (len(names) - len(given)), **{**attributes, **named})

        return call

    run = completed(lowering)
    run.__name__, run.__doc__ = f"{name.lower()}_{since}", doc
    run.__module__ = lowering.__module__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            _Kind(
                n.rstrip("?"), _Kind.POSITIONAL_ONLY, default=None if n[-1] == "?" else _Kind.empty
            )
            for n in names
        ]
        + [_Kind(n, _Kind.KEYWORD_ONLY, default=default) for n, default in attributes.items()]
    )
    made = op(name, domain, since, host=True, dtypes=dtypes)(run)
    made.shape_rule(completed(rule), rankless=True)
    return made
