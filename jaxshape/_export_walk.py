"""A model's graph walked on arrays whose sizes are symbols, as under `jax.export`.

Before the walk the model is traced with these symbols: what it requires of them must be promised by
their scope. On the way each size keeps the one form by which JAX knows it, and shape arithmetic
stays on the host as long as it is a formula in sizes.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._dim import Undecided
from ._error import ExecutionError, JaxshapeError, UnsupportedError
from ._export_scope import Exporting, agreed, exporting, refuse, symbols_in
from ._facts import Facts, using
from ._host import DimArray, is_host
from ._interpret import Scope, annotate
from ._lower import Lowerer
from ._model import Model, Node
from ._op import Op
from ._precision import placed

_ready: contextvars.ContextVar[Any] = contextvars.ContextVar("ready", default=None)


class ExportLowerer(Lowerer):
    """The interpreter that computes on arrays whose sizes are symbols."""

    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        facts = exporting()
        if facts is not None:
            facts.node = node.label
        try:
            return super().apply(node, inputs, scope)
        except ExecutionError as e:
            cause = e.__cause__ or e
            if isinstance(cause, JaxshapeError):
                raise
            reason = re.sub(r"\s+", " ", f"{type(cause).__name__}: {cause}")
            raise annotate(
                UnsupportedError(
                    "cannot be computed with symbolic sizes: give numbers for those of the "
                    f"shapes here, or state what holds of them ({reason[:400]})"
                ),
                node,
                scope,
            ) from cause

    def by_op(self, op: Op, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        if any(isinstance(x, DimArray) for x in inputs):
            with contextlib.suppress(Undecided, TypeError, ValueError):
                # shape arithmetic; what is no formula in sizes is computed on the device
                return [agreed(v) for v in super().by_op(op, node, list(inputs), scope)]
            inputs = [x if op.is_static(i) else placed(x) for i, x in enumerate(inputs)]
        return [agreed(v) for v in super().by_op(op, node, inputs, scope)]


# a walk over a model ----------------------------------------------------------------------------


@contextlib.contextmanager
def walking(
    model: Model, inputs: Mapping[str, Any], arrays: Mapping[int, Any]
) -> Iterator[Lowerer]:
    """The interpreter for a walk with these inputs; where they have symbolic sizes, one that knows
    what the model requires of them.
    """
    sizes = [d for x in inputs.values() for d in getattr(x, "shape", ())]
    if all(isinstance(d, int) for d in sizes):
        with using(Facts()):
            yield Lowerer(dict(arrays))
        return
    facts = _exporting(model, inputs)
    refuse(facts.unpromised())
    before = facts.version
    with using(facts):
        yield ExportLowerer(dict(arrays))
    if facts.version != before:
        refuse(facts.unpromised())


@contextlib.contextmanager
def ready(trace: Any) -> Iterator[None]:
    """A trace for the exports inside, whose inputs have the sizes that it was made with."""
    token = _ready.set(trace)
    try:
        yield
    finally:
        _ready.reset(token)


def _exporting(model: Model, inputs: Mapping[str, Any]) -> Exporting:
    """What is known of the inputs' sizes, from a trace of the model with them."""
    from ._trace import trace

    symbols = symbols_in(d for x in inputs.values() for d in getattr(x, "shape", ()))
    known = _ready.get()
    if known is None:
        given = {
            n: np.asarray(x)
            if is_host(x)
            else tuple([d if isinstance(d, int) else str(d) for d in x.shape])
            for n, x in inputs.items()
            if hasattr(x, "shape")
        }
        known = trace(model, given)
    return Exporting(known._facts, symbols)
