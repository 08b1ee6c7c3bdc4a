"""Conversion of models with sizes that are data: results at their bounds, and how much is meant.

The interpreter behind `to_jax(..., bounded=...)`. Values are those of `_lower.py` and arrays of
counted sizes (`Counted`). What is arithmetic of sizes stays on the host, as formulas in the counts;
a node that takes or makes counted sizes is done by `_bounded_node.py`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._bounded_node import elementwise, leaves, lowered
from ._counts import Counted, Counts, SizeIsData
from ._device import canonical
from ._dim import Dim
from ._error import UnknownValueError, UnsupportedError
from ._facts import using
from ._host import DimArray, host, is_host
from ._interpret import Scope, enter
from ._lower import Lowerer
from ._masked_reduce import least
from ._model import Graph, Model, Node
from ._op import Op
from ._padded import Padded
from ._precision import placed
from ._require import Requirement
from ._tracer import TINY


class BoundedLowerer(Lowerer):
    """The interpreter that computes with arrays of counted sizes."""

    def __init__(self, parameters: dict[int, Any], counts: Counts):
        super().__init__(parameters)
        self.counts = counts

    def by_op(self, op: Op, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        counts = self.counts
        counts.results = tuple([scope.path + n for n in node.outputs if n])
        inputs = [self._current(x) for x in inputs]
        inputs = [self._known(op, node, i, x, scope) for i, x in enumerate(inputs)]
        if not any(isinstance(x, (Counted, DimArray)) for x in leaves(inputs)):
            try:
                return super().by_op(op, node, list(inputs), scope)
            except SizeIsData:
                pass
        if any(node.graphs):
            return super().by_op(op, node, inputs, scope)
        over = copy.copy(op)
        over.function = functools.partial(self._evaluated, op)
        if op.host and all(x is None or is_host(x) for x in leaves(inputs)):
            with contextlib.suppress(Exception):  # no formula in the counts: on the device then
                return super().by_op(over, node, list(inputs), scope)
        inputs = [x if op.is_static(i) else self._placed(x) for i, x in enumerate(inputs)]
        return super().by_op(over, node, inputs, scope)

    def _evaluated(self, op: Op, *inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        on_host = all(x is None or is_host(x) for x in leaves(list(inputs)))
        if op.elementwise and not op.random and not on_host:
            return elementwise(self.counts, op.function, inputs, kwargs)
        return lowered(self.counts, op.function, inputs, kwargs)

    def _current(self, x: Any) -> Any:
        """A value in the simplest sizes known by now."""
        if isinstance(x, list):
            return [self._current(v) for v in x]
        if not isinstance(x, Counted):
            return x
        dims = tuple([self.counts.simplify(d) for d in x.dims])
        array = self.counts.conform(x.array, dims)
        return Counted(array, dims) if any(isinstance(d, Dim) for d in dims) else array

    def _placed(self, x: Any) -> Any:
        """Formulas as numbers on the device."""
        if isinstance(x, list):
            return [self._placed(v) for v in x]
        return self.on_device(x) if isinstance(x, DimArray) else x

    def on_device(self, x: DimArray) -> Any:
        dtype = canonical(x.dtype)
        found = [jnp.asarray(self.counts.number(e)).astype(dtype) for e in x.elements.ravel()]
        return jnp.reshape(jnp.stack(found), x.shape)

    def _known(self, op: Op, node: Node, i: int, x: Any, scope: Scope) -> Any:
        """An integer that decides a size as a count, where the caller bounds it."""
        if x is None or not op.is_static(i) or op.traced or isinstance(x, list) or is_host(x):
            return x
        name = scope.path + node.inputs[i]
        counts = self.counts
        if name not in counts.bounds:
            raise UnsupportedError(
                f"input {op.inputs[min(i, len(op.inputs) - 1)]} ({name!r}) must be known "
                "beforehand, but depends on the model's inputs; give a bound for it: "
                f"to_jax(..., bounded={{{name!r}: ...}})"
            )
        if isinstance(x, Counted) or x.size > TINY or not jnp.issubdtype(x.dtype, jnp.integer):
            raise UnsupportedError(f"{name!r} is no few integers that can be bounded")
        counts.used.add(name)
        most, flat = counts.bounds[name], jnp.reshape(x, -1)
        counts.flags.append(jnp.any((flat < 0) | (flat > most)))
        found = [counts.mint(most, jnp.maximum(flat[k], 0)) for k in range(x.size)]
        return host(found, np.int64).reshape(x.shape)

    # results ------------------------------------------------------------------------------------

    def finish(self, found: Sequence[Any]) -> tuple[Any, ...]:
        """The model's outputs: arrays, and `Padded` where sizes are counts."""
        counts = self.counts
        if missing := sorted(counts.bounds.keys() - counts.used):
            raise UnknownValueError(
                f"bounded names {', '.join(missing)}, of which no size depends on data"
            )
        flags = [*counts.flags, *[~self._holds(r) for r in counts.report()]]
        wrong = jnp.any(jnp.stack(flags)) if flags else None
        return tuple([self._output(self._current(x), wrong) for x in found])

    def _output(self, x: Any, wrong: Any) -> Any:
        overflow = jnp.asarray(False) if wrong is None else wrong
        if isinstance(x, list):
            return [self._output(v, wrong) for v in x]
        if isinstance(x, Counted):
            axes = tuple([i for i, d in enumerate(x.dims) if isinstance(d, Dim)])
            sizes = tuple([self.counts.size(x.dims[i]) for i in axes])
            one = len(axes) == 1
            return Padded(x.array, sizes[0] if one else sizes, axes[0] if one else axes, overflow)
        x = self.on_device(x) if isinstance(x, DimArray) else placed(x)
        if wrong is None or x is None:
            return x
        if x.dtype == bool:  # which has no value that tells
            return Padded(x, (), (), overflow)
        tell = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else least(x.dtype)
        return jnp.where(wrong, jnp.full_like(x, tell), x)

    def _holds(self, r: Requirement) -> Any:
        """Whether a demand of the model holds; one made for counts of at least 1, also at 0."""
        counts = self.counts
        if r.kind == "or":
            held = jnp.any(jnp.stack([self._holds(a) for a in r.alternatives]))
        else:
            left, right = counts.number(r.left), counts.number(r.right)
            if r.kind == "%":
                held = left % jnp.maximum(right, 1) == 0
            else:
                held = left == right if r.kind == "==" else left >= right
        for s in r.symbols:
            if s.name[0] == "s" and isinstance(s, Dim):
                held = held | (counts.size(s) == 0)
        return jnp.asarray(held)


def bounded_outputs(
    model: Model, inputs: Mapping[str, Any], parameters: dict[int, Any], bounds: Mapping[str, int]
) -> tuple[Any, ...]:
    """The outputs of a model on the caller's arrays; of sizes that are data at their bounds."""
    counts = Counts(bounds)
    walker = BoundedLowerer(parameters, counts)
    with using(counts):
        given = {n: placed(v) for n, v in inputs.items()}
        found = enter(model.graph, given, Scope(model, model.opsets), walker)
        return walker.finish(found)


def checked_bounds(bounded: Any, model: Model) -> dict[str, int] | None:
    """What the caller asks for: None, or bounds by name of value.

    Raises:
      UnknownValueError: a name that the model does not have.
      UnsupportedError: a bound that is no size.
    """
    if bounded is None or bounded is False:
        return None
    if bounded is True:
        return {}
    names = set(_names(model.graph, ""))
    for name, most in bounded.items():
        if name not in names:
            raise UnknownValueError(f"the model has no value {name!r} to be bounded")
        if isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 0:
            raise UnsupportedError(f"the bound of {name!r} is {most!r}, wants an int >= 0")
    return {name: int(most) for name, most in bounded.items()}


def _names(graph: Graph, path: str) -> Iterator[str]:
    for i in (*graph.inputs, *graph.optional_inputs):
        yield path + i.name
    for node in graph.nodes:
        yield from [path + n for n in node.outputs if n]
        for sub in node.graphs:
            yield from _names(sub, f"{path}{node.label}/")
