"""Calling lowerings on values: the interpreter under `run` and `to_jax`.

Values are host arrays, JAX arrays and tracers. What is known on the host stays there: a node whose
inputs are all host arrays runs in NumPy where its op can, so that shapes, axes and indices stay
numbers under jit. Host arrays reach the device through `to_device` only, see `_precision.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ._error import ExecutionError, JaxshapeError, ShapeError, UnsupportedError
from ._host import is_host, type_of
from ._interpret import Scope, annotate, call, complete, keywords, lowering, walk
from ._model import Function, Graph, Node, Stored
from ._op import Op
from ._precision import adapted, placed, rounded
from ._schema import body_of
from ._slice import needed
from ._value import STRING

_NOT_KNOWN = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
_NO_TEXT = (
    "JAX does not have text: use jaxshape.run, or give to_jax outputs= that are made without it"
)
_NO_VALUE = f"has no value: it is an empty optional, or text that depends on data; {_NO_TEXT}"


class Lowerer:
    """The interpreter that computes; see `_interpret.Interpreter`.

    `parameters` replaces stored tensors by other arrays, by id of the `Stored`; `watch` sees every
    value by its path.
    """

    def __init__(
        self,
        parameters: dict[int, Any] | None = None,
        watch: Callable[[str, Any], None] | None = None,
    ):
        self.parameters = parameters or {}
        self.watch = watch

    def constant(self, stored: Stored) -> Any:
        given = self.parameters.get(id(stored))
        return stored.array() if given is None else given

    def tensor(self, stored: Stored) -> Any:
        given = self.parameters.get(id(stored))
        return stored.array() if given is None else given

    def argument(self, value: Any, name: str) -> Any:
        return value

    def walk(self, nodes: Sequence[Node], scope: Scope, outputs: Sequence[str]) -> None:
        # what nobody uses may be what cannot be computed: a size that is data
        walk(nodes if self.watch else needed(nodes, outputs)[0], scope, self)

    def leave(self, graph: Graph | Function, scope: Scope) -> None:
        pass

    def apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        try:
            return complete(node, self._apply(node, inputs, scope))
        except JaxshapeError as e:
            if hasattr(e, "node"):
                raise
            raise annotate(e, node, scope) from e
        except Exception as e:
            if isinstance(e, _NOT_KNOWN):
                text = "a value that must be known beforehand depends on the model's inputs"
                raise annotate(UnsupportedError(text), node, scope) from e
            raise annotate(ExecutionError(f"{type(e).__name__}: {e}"), node, scope) from e

    def _apply(self, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        found = lowering(node, scope)
        if isinstance(found, Op):
            return self.by_op(found, node, inputs, scope)
        if found is None:
            found = body_of(node, scope.opsets, [_struct_of(x) for x in inputs])
        if found is None:
            known = ", ".join(sorted(d or "ai.onnx" for d in scope.opsets))
            raise UnsupportedError(
                f"no such operator is known (the model imports {known}); "
                "register it with jaxshape.op"
            )
        return call(found, node, inputs, scope, self)

    def by_op(self, op: Op, node: Node, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        lost = [n for n, x in zip(node.inputs, inputs, strict=True) if n and x is None]
        try:
            kwargs = keywords(op, node, inputs, scope, self)
        except ShapeError as e:
            if lost:
                raise UnsupportedError(f"{lost[0]!r} {_NO_VALUE} ({e})") from e
            raise
        if not (
            op.host
            and all(x is None or is_host(x) or isinstance(x, list) and _hosted(x) for x in inputs)
        ):
            if not op.traced and any(is_host(x) and x.dtype == STRING for x in inputs):
                raise UnsupportedError(f"takes text together with data: {_NO_TEXT}")
            kwargs = adapted(op, kwargs)
            if any(op.known) and not op.traced:
                _looked_at(op, inputs, kwargs)
            for i, x in enumerate(inputs):
                if not op.is_static(i):
                    if not (op.traced and op.is_followed(i)):
                        inputs[i] = _placed(x)
                elif not is_host(x) and x is not None and not op.traced:
                    name = op.inputs[min(i, len(op.inputs) - 1)]
                    raise UnsupportedError(
                        f"input {name} must be known beforehand, but depends on the model's inputs"
                    )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            result = op.function(*inputs, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        return [
            np.asarray(v) if isinstance(v, (np.generic, bool, int, float)) else rounded(v)
            for v in outputs
        ]


def _looked_at(op: Op, inputs: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Let the shape rule check what is known by now, and on the device will not be."""
    if op.rule is not None and all(isinstance(d, int) for x in inputs for d in x.shape):
        seen = [
            x if op.is_followed(i) and is_host(x) else _struct_of(x) for i, x in enumerate(inputs)
        ]
        op.rule(*seen, **kwargs)


def _hosted(x: Any) -> bool:
    return all(_hosted(v) if isinstance(v, list) else v is None or is_host(v) for v in x)


def _placed(x: Any) -> Any:
    """The value on the device; text stays where it is."""
    if isinstance(x, list):
        return [_placed(v) for v in x]
    return x if x is None or is_host(x) and x.dtype == STRING else placed(x)


def _struct_of(x: Any) -> Any:
    """The type of an array of any kind."""
    from ._value import TensorType

    if x is None or isinstance(x, list) or is_host(x):
        return type_of(x)
    return TensorType(np.dtype(x.dtype), tuple(x.shape))
