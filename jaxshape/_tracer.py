"""Tracing: abstract interpretation of a graph, one node at a time.

Each node is answered by the first of these that can: its NumPy body on host arrays (shape
arithmetic), its shape rule, broadcasting (elementwise ops), `jax.eval_shape` of its lowering on
placeholders, the function body that the model or the standard gives, and last "unknown". Undecided
is never false: what must hold becomes a requirement, and only our own checks on proved sizes raise.

Two memos carry the speed: by node (operator, attributes, real input types and contents) and by
pattern (dims renamed). A result that holds a freshly minted dim is never kept, since two equal
nodes are then two different values.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._branch import tentative
from ._dim import Dim, digits, too_long
from ._error import JaxshapeError, ModelError, ShapeError, UnsupportedError, warn
from ._facts import Facts
from ._host import SMALL, DimArray, content_key, host, is_host, type_of
from ._interpret import Body, Scope, annotate, call, complete, describe, keywords, lowering, walk
from ._model import Declared, Function, Graph, Node, Stored
from ._op import Op
from ._pattern import broadcast_shapes, by_pattern, elementwise
from ._refine import refine
from ._schema import body_of, output_types
from ._simplify import simplified
from ._value import TensorType

TINY = 32  # elements: unknown integers of at most rank 1 are followed one by one up to here
FLOATS = 1024  # elements: larger floating-point constants are never looked into
LONG = 200  # parts of a formula: longer ones get a name, whatever becomes of them
WALKS = 100_000  # of subgraphs, beyond which those that repeat an earlier one are not kept
_BIG = 1 << 62  # bytes of one tensor, beyond which no size can be meant
_INTEGERS = (np.dtype("int64"), np.dtype("int32"))


def looked_into(stored: Stored) -> bool:
    """Whether a stored tensor's content may matter beforehand: small, and smaller for floats."""
    return stored.size <= (FLOATS if stored.dtype.kind in "fcV" else SMALL)


class Missing:
    """A constant whose bytes cannot be read: its type is enough until they are needed."""

    __slots__ = ("error", "type")

    def __init__(self, type: TensorType, error: Exception):
        self.type, self.error = type, error


class Tracer:
    """The interpreter whose values are types and host arrays; see `_interpret.Interpreter`."""

    def __init__(self, facts: Facts, strict: bool = False):
        self.facts, self.strict = facts, strict
        facts.floats = True
        self.memo: dict[Any, tuple[Any, ...]] = {}
        self._within: dict[Any, list[Any]] = {}  # the walks that a memo's entry stands for
        self._warned: set[Any] = set()
        self._kept: list[Any] = []  # arrays whose id is part of a memo key
        self._resolved: dict[Any, Any] = {}
        self._epoch = facts.epoch

    def constant(self, stored: Stored) -> Any:
        """A host array where it may be looked into, else its type; the weights stay on disk."""
        t = TensorType(stored.dtype, stored.shape)
        if not looked_into(stored):
            return t
        try:
            return stored.array()
        except ModelError as e:
            return Missing(t, e)

    def tensor(self, stored: Stored) -> Any:
        """A tensor attribute, a large one by its type: exporters may keep every weight in Constant
        nodes.
        """
        value = self.constant(stored)
        if type(value) is Missing:
            raise value.error
        return value

    def walk(self, nodes: Sequence[Node], scope: Scope, outputs: Sequence[str]) -> None:
        walk(nodes, scope, self)

    def leave(self, graph: Graph | Function, scope: Scope) -> None:
        if scope.depth and (isinstance(graph, Graph) or graph in scope.model.functions.values()):
            self.facts.walks.append((graph, scope, scope.path))

    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        facts = self.facts
        facts.node = node.label
        if facts.epoch != self._epoch:
            self._resolved, self._epoch = {}, facts.epoch
        key: Any = None
        inputs = [x if x is None else self.resolve(x) for x in inputs]
        known = facts.version  # what was concluded under a branch's demands must not outlive them
        if node.key is not None:
            key = (
                node.key,
                known,
                scope.opsets.get(node.domain),
                len(node.outputs),
                *map(self._key, inputs),
            )
            found = self.memo.get(key)
            if found is not None:
                if key in self._within and len(facts.walks) < WALKS:
                    path = f"{scope.path}{node.label}/"
                    facts.walks += [(g, s, path + rest) for g, s, rest in self._within[key]]
                return found if not any(node.outputs) else self._adopt(node, found, scope)
        minted, walks = facts.minted, len(facts.walks)
        try:
            results = complete(node, self._evaluate(node, inputs, scope))
            outputs = tuple([self._tidy(v, node) for v in results])
        except JaxshapeError as e:
            if hasattr(e, "node"):
                raise
            raise annotate(e, node, scope) from e
        if key is not None and facts.minted == minted and facts.version == known:
            self.memo[key] = outputs
            if len(facts.walks) > walks:
                cut = len(scope.path) + len(node.label) + 1
                self._within[key] = [(g, s, path[cut:]) for g, s, path in facts.walks[walks:]]
        return self._adopt(node, outputs, scope)

    # one value --------------------------------------------------------------------------------

    def _key(self, value: Any) -> Any:
        """What stands for an input in a memo key."""
        kind = type(value)
        if kind is TensorType or value is None:
            return value
        if kind is np.ndarray:
            if value.size <= 64:
                return content_key(value)
            self._kept.append(value)
            return ("id", id(value))
        if kind is DimArray:
            return value.key
        if kind is Missing:
            return value.type
        if kind is list:
            return ("list", *map(self._key, value))
        return value

    def resolve(self, value: Any) -> Any:
        """The value in the simplest dims known by now."""
        if type(value) is TensorType and value.shape is not None or type(value) is DimArray:
            key: Any = value.key if isinstance(value, DimArray) else value
            found = self._resolved.get(key)
            if found is None:
                found = self._resolved[key] = simplified(value, self.facts)
            return found
        if type(value) is list:
            return [self.resolve(v) for v in value]
        return value

    def _tidy(self, value: Any, node: Node) -> Any:
        """A result as it is kept: arrays as arrays, dims simple and short, sizes possible."""
        if isinstance(value, (np.generic, bool, int, float)):
            return np.asarray(value)
        if isinstance(value, TensorType) and value.shape is not None:
            if any(isinstance(d, Dim) or d is None for d in value.shape):
                return TensorType(value.dtype, tuple([self._short(d, node) for d in value.shape]))
            if value.shape and (min(value.shape) < 0 or value.size > _BIG):
                raise ShapeError(f"the shape {value} is not possible")
        if type(value) is DimArray:
            elements = value.elements.ravel().tolist()
            short = [self._kept_short(e, node) for e in elements]
            if any(a is not b for a, b in zip(short, elements, strict=True)):
                return host(short, value.dtype).reshape(value.shape)
        return value

    def _kept_short(self, e: Any, node: Node) -> Any:
        """An element, or a name for it where its formula is long or the runtime's int overflows."""
        stem = f"{node.op_type}_value"
        if not isinstance(e, Dim) or e.size <= LONG and digits(e) <= 63:
            return e
        return self.facts.define(e, stem) if digits(e) <= 63 else self.facts.element(stem)

    def _short(self, d: Any, node: Node) -> Any:
        if d is None:
            return self.facts.count(f"{node.op_type}_size")
        d = self.facts.simplify(d)
        if isinstance(d, Dim):
            return self.facts.define(d, f"{node.op_type}_size") if too_long(d) else d
        if not isinstance(d, int) or d < 0:
            raise ShapeError(f"the size {d} is not possible")
        return d

    def _adopt(self, node: Node, outputs: Sequence[Any], scope: Scope) -> Sequence[Any]:
        """Give unknown small integers names of their own, so that what is computed from them is
        known by formula.
        """
        made: list[Any] | None = None
        if scope.declared:
            outputs = made = [
                self.declare(n, v, scope.declared[n], scope) if n in scope.declared else v
                for n, v in zip(node.outputs, outputs, strict=False)
            ]
        for i, value in enumerate(outputs):
            if (
                type(value) is TensorType
                and value.dtype in _INTEGERS
                and value.shape is not None
                and i < len(node.outputs)
            ):
                named = self.named(value, node.outputs[i])
                if named is not value:
                    made = list(outputs) if made is None else made
                    made[i] = named
        return outputs if made is None else made

    def declare(self, name: str, value: Any, declared: Declared, scope: Scope) -> Any:
        """The value of a name with what the file declares of it, where that adds something."""
        return refine(
            value,
            declared,
            scope.path + name,
            self.facts,
            lambda text: self.warn(("stale", text), f"{text}: stale?"),
        )

    def argument(self, value: Any, name: str) -> Any:
        """The value that a subgraph's input is bound to."""
        return self.named(value, name)

    def named(self, value: Any, name: str) -> Any:
        """An unknown integer tensor of at most rank 1 as a host array of fresh integers, where it
        is small.
        """
        if (
            type(value) is TensorType
            and value.dtype in _INTEGERS
            and value.shape is not None
            and len(value.shape) <= 1
        ):
            size = value.shape[0] if value.shape else 1
            if isinstance(size, int) and 0 < size <= TINY:
                stems = [name] if size == 1 else [f"{name}_{i}" for i in range(size)]
                return host([self.facts.element(s) for s in stems], value.dtype).reshape(
                    value.shape
                )
        return value

    # one node ---------------------------------------------------------------------------------

    def _evaluate(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        found = lowering(node, scope)
        if isinstance(found, Op):
            if found.since > scope.opsets.get(node.domain, 1):
                text = f"{describe(node, scope)}: taken as of opset {found.since}, its first"
                self.warn(("young", node.domain, node.op_type), text)
            return self._by_op(found, node, inputs, scope)
        types = [x.type if isinstance(x, Missing) else x for x in inputs]
        if found is None:
            found = body_of(node, scope.opsets, types)
        if found is not None:
            return call(found, node, inputs, scope, self)
        self.warn(
            ("op", node.domain, node.op_type),
            f"{describe(node, scope)}: no such operator is known; its results are unknown",
        )
        return self.unknown(node, types, scope)

    def _by_op(self, op: Op, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        kwargs = keywords(op, node, inputs, scope, self)
        graphs = any(isinstance(v, Body) for v in kwargs.values())
        if op.host and not graphs and (result := self._on_host(op, inputs, kwargs)) is not None:
            return result
        for i, x in enumerate(inputs):
            if type(x) is Missing:
                if op.is_static(i):
                    raise x.error
                inputs[i] = x.type
        rankless = any(type(x) is TensorType and x.shape is None for x in inputs)
        try:
            if op.rule is not None:
                if rankless and not op.rankless:
                    return self.unknown(node, inputs, scope)
                args = [
                    x if op.is_followed(i) or not is_host(x) else type_of(x)
                    for i, x in enumerate(inputs)
                ]
                return _outputs(op.rule(*args, **kwargs))
            types = [type_of(x) for x in inputs]
            if any(
                not isinstance(t, (TensorType, type(None))) or (t is not None and t.dtype is None)
                for t in types
            ):
                return self.unknown(node, inputs, scope)
            if op.elementwise:
                return elementwise(op, types, kwargs)
            if rankless:
                return self.unknown(node, inputs, scope)
            args = [
                x if op.is_static(i) else t
                for i, (x, t) in enumerate(zip(inputs, types, strict=True))
            ]
            if any(op.is_static(i) and isinstance(a, TensorType) for i, a in enumerate(args)):
                return self.unknown(node, inputs, scope)
            return by_pattern(op, node, args, kwargs, self.facts)
        except JaxshapeError:
            raise
        except Exception as e:
            # a failure on symbolic or odd sizes proves nothing about the model
            self.failed(node, e)
            results = self.unknown(node, inputs, scope)
            if op.elementwise and not rankless:  # sizes broadcast whatever the dtypes are
                shape = broadcast_shapes([t.shape for t in map(type_of, inputs) if t is not None])
                return [TensorType(t.dtype, shape) for t in results]
            return results

    def _on_host(self, op: Op, inputs: list[Any], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The results of the NumPy body, where every input is a small host array and so is every
        result.
        """
        work = 1
        for x in inputs:
            if x is None:
                continue
            if not is_host(x):
                return None
            work *= max(x.size, 1)
        if work > SMALL:
            if (
                any(x is not None and x.size > SMALL for x in inputs)
                or work > SMALL * 16
                and op.rule is None
            ):
                return None
        if op.rule is not None and not self._small_result(op, inputs, kwargs):
            return None
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _outputs(op.function(*inputs, **kwargs))
        except JaxshapeError:
            raise
        except Exception:
            return None  # not a formula in dims: the rule or JAX may still know the shape

    def _small_result(self, op: Op, inputs: list[Any], kwargs: dict[str, Any]) -> bool:
        """Whether the shape rule promises results that may be allocated here."""
        args = [x if op.is_followed(i) or x is None else type_of(x) for i, x in enumerate(inputs)]
        with tentative():
            try:
                types = _outputs(op.rule(*args, **kwargs))  # type: ignore[misc]
            except JaxshapeError:
                raise
            except Exception:
                return False
        for t in types:
            if not isinstance(t, TensorType) or t.shape is None:
                if isinstance(t, TensorType):
                    return False
                continue
            size = t.size if isinstance(t.size, int) else self.facts.bound(t.size)[1]
            if not isinstance(size, int) or size > SMALL:
                return False
        return True

    # what cannot be known ---------------------------------------------------------------------

    def unknown(self, node: Node, inputs: Sequence[Any], scope: Scope) -> Sequence[Any]:
        """The least that the standard's type constraints say of the results."""
        return output_types(node, scope.opsets, [type_of(x) for x in inputs])

    def failed(self, node: Node, error: Exception) -> None:
        """A lowering or rule did not answer: kept, since it is ours to mend."""
        self.failures = [*getattr(self, "failures", ()), (node.label, node.op_type, error)]

    def warn(self, key: Any, text: str) -> None:
        """Warn once per key; under `strict` raise instead."""
        if self.strict:
            error = UnsupportedError(text)
            error.node = self.facts.node  # type: ignore[attr-defined]  # text names it already
            raise error
        if key not in self._warned:
            self._warned.add(key)
            warn(text)


def _outputs(result: Any) -> Sequence[Any]:
    """An op's result as the sequence of its outputs. A list is a value (a sequence), a tuple is
    several.
    """
    return result if isinstance(result, tuple) else (result,)
