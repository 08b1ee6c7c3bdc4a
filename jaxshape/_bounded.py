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
from jax.extend.core import get_opaque_trace_state

from ._bounded_node import current, elementwise, leaves, lowered
from ._counts import Counted, Counts, SizeIsData
from ._dim import Dim, Undecided
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
from ._relation import Relation, decided
from ._tracer import TINY


class BoundedLowerer(Lowerer):
    """The interpreter that computes with arrays of counted sizes."""

    def __init__(self, parameters: dict[int, Any], counts: Counts):
        super().__init__(parameters)
        self.counts = counts

    def by_op(self, op: Op, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        counts = self.counts
        counts.results = tuple([scope.path + n for n in node.outputs if n])
        inputs = [current(counts, x) for x in inputs]
        inputs = [self._known(op, node, i, x, scope) for i, x in enumerate(inputs)]
        if not any(isinstance(x, (Counted, DimArray)) for x in leaves(inputs)):
            try:
                return super().by_op(op, node, list(inputs), scope)
            except SizeIsData:
                pass
        if any(True for _ in node.graphs):
            return self._with_bodies(op, node, inputs, scope)
        over = copy.copy(op)
        over.function = functools.partial(self._evaluated, op)
        if op.host and all(x is None or is_host(x) for x in leaves(inputs)):
            with contextlib.suppress(Exception):  # no formula in the counts: on the device then
                return super().by_op(over, node, list(inputs), scope)
            # NumPy has no sizes that are counts: what is known meets them on the device
            inputs = [
                x if op.is_static(i) or isinstance(x, DimArray) else placed(x)
                for i, x in enumerate(inputs)
            ]
        inputs = [x if op.is_static(i) else self._placed(x) for i, x in enumerate(inputs)]
        return super().by_op(over, node, inputs, scope)

    def _with_bodies(self, op: Op, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        """A node whose attributes are graphs: they meet counted sizes by themselves."""
        inputs = [x if is_decided(x) else self._placed(x) for x in inputs]
        try:
            outputs = super().by_op(op, node, inputs, scope)
        except (TypeError, AttributeError, ValueError, IndexError, Undecided) as e:
            if any(isinstance(x, Counted) for x in leaves(inputs)):
                raise UnsupportedError(f"takes sizes that are data ({e})") from e
            raise
        for x in leaves(list(outputs)):
            sizes = x.dims if isinstance(x, Counted) else ()
            if any(s.name not in self.counts.values for d in sizes for s in symbols_of(d)):
                raise UnsupportedError("a size that comes up inside of it is data")
        return outputs

    def walk(self, nodes: Sequence[Node], scope: Scope, outputs: Sequence[str]) -> None:
        """Nodes; those of a body that is traced by itself, so that no size may come up there."""
        counts = self.counts
        if counts.place == get_opaque_trace_state():
            return super().walk(nodes, scope, outputs)
        demands = len(counts.demands)
        with counts.apart() as flags:
            super().walk(nodes, scope, outputs)
            if flags or len(counts.demands) > demands:
                raise UnsupportedError("what a loop demands of sizes that are data goes unchecked")
        return None

    def _evaluated(self, op: Op, *inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        on_host = all(x is None or is_host(x) for x in leaves(list(inputs)))
        if op.elementwise and not op.random and not on_host:
            return elementwise(self.counts, op.function, inputs, kwargs)
        return lowered(self.counts, op.function, inputs, kwargs)

    def _placed(self, x: Any) -> Any:
        """Formulas as numbers on the device."""
        if isinstance(x, list):
            return [self._placed(v) for v in x]
        return self.counts.on_device(x) if isinstance(x, DimArray) else x

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
        flags = [*counts.flags, *counts.violated()]
        wrong = jnp.any(jnp.stack(flags)) if flags else None
        return tuple([self._output(current(counts, x), wrong) for x in found])

    def _output(self, x: Any, wrong: Any) -> Any:
        overflow = jnp.asarray(False) if wrong is None else wrong
        if isinstance(x, list):
            return [self._output(v, wrong) for v in x]
        if isinstance(x, Counted):
            axes = tuple([i for i, d in enumerate(x.dims) if isinstance(d, Dim)])
            sizes = tuple([self.counts.size(x.dims[i]) for i in axes])
            one = len(axes) == 1
            return Padded(x.array, sizes[0] if one else sizes, axes[0] if one else axes, overflow)
        x = self.counts.on_device(x) if isinstance(x, DimArray) else placed(x)
        if wrong is None or x is None:
            return x
        if x.dtype == bool:  # which has no value that tells
            return Padded(x, (), (), overflow)
        tell = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else least(x.dtype)
        return jnp.where(wrong, jnp.full_like(x, tell), x)


def is_decided(x: Any) -> bool:
    """Whether a value is no formula, or a relation that is sure by now."""
    if not isinstance(x, DimArray):
        return True
    return all(isinstance(e, Relation) and decided(e) is not None for e in x.elements.ravel())


def symbols_of(d: Any) -> frozenset[Dim]:
    return d.symbols if isinstance(d, Dim) else frozenset()


def bounded_outputs(
    model: Model, inputs: Mapping[str, Any], parameters: dict[int, Any], bounds: Mapping[str, int]
) -> tuple[Any, ...]:
    """The outputs of a model on the caller's arrays; of sizes that are data at their bounds."""
    for name, x in inputs.items():
        sizes = getattr(x, "shape", ())
        if not all(isinstance(d, int) for d in sizes):
            raise UnsupportedError(
                f"bounds are numbers, so the sizes of {name!r} must be, which are "
                f"({', '.join(map(str, sizes))}): give shapes={{{name!r}: ...}}"
            )
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
        for name, sub in node.attrs.items():
            if isinstance(sub, Graph):
                yield from _names(sub, f"{path}{node.label}/{name}/")
