"""Types by one node at a time, for tools that build graphs.

A context knows what is known of named values; `compute` adds the outputs of a node, by the same
abstract interpretation that `trace` applies to a whole model.  Here nothing vouches for the node
but itself, so it is first held against what the standard says of its operator: attributes of the
right kind, as many outputs as there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from ._describe import newest
from ._dim import Dim
from ._error import JaxshapeError, ShapeError, UnknownValueError
from ._facts import Facts, Requirement, using
from ._graph import Graph, Model, Node
from ._host import DimArray, is_host, type_of
from ._interpret import Scope, annotate
from ._model import node_of
from ._schema import schema
from ._simplify import simplified
from ._tensor import Stored
from ._tracer import Tracer
from ._value import MapType, OptionalType, SequenceType, TensorType

_KINDS: dict[str, tuple[type, ...]] = {
    "FLOAT": (float,),
    "INT": (int,),
    "STRING": (str, bytes),
    "TENSOR": (Stored,),
    "GRAPH": (Graph,),
}


class ShapesContext(Mapping[str, Any]):
    """The types of named values, to which `compute` adds the outputs of one node after another.

    A mapping from names to types.

    Args:
      values: for each name a `TensorType` (or `SequenceType`, ...), or an array, whose content is
        then known; a list of these is a sequence.  A string among the sizes is a named size: the
        same name, the same size.  None there is an unknown one.
      opset: the version of the default domain, or versions by domain.  A domain that is not named
        is taken at its newest.
      strict_mode: raise `UnsupportedError` at an operator that nobody knows, instead of a warning.

    Example:
      >>> import onnx, jaxshape as js
      >>> ctx = js.ShapesContext({"x": js.TensorType("float32", ("N", 3, "H", "W"))}, opset=20)
      >>> ctx.compute(onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]))
      >>> print(ctx["y"])
      float32[N, 3, H - 1, W - 1]
      >>> [str(r) for r in ctx.requirements]
      ['H >= 2', 'W >= 2']
    """

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        opset: int | Mapping[str, int] | None = None,
        *,
        strict_mode: bool = False,
    ):
        if opset is None:
            opset = onnx.defs.onnx_opset_version()
        given = {"": opset} if isinstance(opset, int) else opset
        self.opsets = {"" if d == "ai.onnx" else d: int(v) for d, v in given.items()}
        graph = Graph("", (), (), (), {})
        self._model = Model(graph, self.opsets, {}, onnx.IR_VERSION, "", onnx.ModelProto(), ".")
        self._facts = Facts()
        self._tracer = Tracer(self._facts, strict_mode)
        self._values: dict[str, Any] = {}
        values = values or {}
        self._facts.reserve(n for v in values.values() for n in _names(v))
        for name, value in values.items():
            self.set(name, value)

    def set(self, name: str, value: Any) -> None:
        """Say what is known of a value, in place of what was."""
        self._facts.reserve(_names(value))
        with using(self._facts):
            self._facts.node = ""
            self._values[name] = self._value(name, value)

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, TensorType):
            if value.shape is None:
                return value
            dims = [
                self._facts.count(f"{name}_{axis}", least=1) if d is None else d
                for axis, d in enumerate(value.shape)
            ]
            return self._tracer.named(TensorType(value.dtype, dims), name)
        if isinstance(value, SequenceType) and value.length is None:
            return SequenceType(value.elem, self._facts.count(f"{name}_length"))
        if value is None or isinstance(value, (DimArray, SequenceType, OptionalType, MapType)):
            return value
        if isinstance(value, (list, tuple)) and all(map(_is_value, value)):
            return [self._value(f"{name}_{i}", v) for i, v in enumerate(value)]
        if isinstance(value, tuple) and any(isinstance(v, (str, Dim)) or v is None for v in value):
            raise TypeError(f"{name} is {value}, a shape without a dtype: wants a TensorType")
        return as_array(value)

    def compute(self, node: onnx.NodeProto) -> None:
        """Add the outputs of a node, or put them in the place of what was there.

        Raises:
          UnknownValueError: (a KeyError) the node takes a value that is not here.
          ShapeError: (a ValueError) the node is not what its operator takes, or the sizes
            contradict each other.
          ModelError: the node is malformed.
          UnsupportedError: an operator that nobody knows, in `strict_mode`.
        """
        self._compute(node, self._opsets(node))

    def _opsets(self, node: onnx.NodeProto) -> dict[str, int]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain in self.opsets:
            return self.opsets
        return self.opsets | {domain: newest(domain, node.op_type) or 1}

    def _compute(self, proto: onnx.NodeProto, opsets: dict[str, int]) -> list[Any]:
        """Add the outputs of a node read at these opsets; the values of all it gives, in order."""
        node = node_of(proto, opsets)
        scope = Scope(self._model, opsets)
        scope.values = self._values
        before = self._facts.snapshot()
        try:
            for name in (*node.inputs, *sorted(node.captures)):
                if name and name not in self._values:
                    raise UnknownValueError(f"takes {name!r}, which is not in the context")
            check(node, schema(node.domain, node.op_type, opsets[node.domain]))
            inputs = [self._values[n] if n else None for n in node.inputs]
            with using(self._facts):
                outputs = list(self._tracer.apply(node, inputs, scope))
            if len(outputs) < len(node.outputs):
                count = len(outputs)
                raise ShapeError(f"names {len(node.outputs)} outputs, the operator gives {count}")
        except JaxshapeError as e:
            self._facts.restore(before)  # a node that cannot run demands nothing
            self._tracer.memo.clear()  # what it did before it failed has its demands forgotten
            raise e if hasattr(e, "node") else annotate(e, node, scope) from None
        self._values.update({n: v for n, v in zip(node.outputs, outputs, strict=False) if n})
        return outputs

    def _known(self, name: str) -> Any:
        if name not in self._values:
            raise UnknownValueError(f"the context has no value {name!r}")
        return self._resolved(self._values[name])

    def _resolved(self, value: Any) -> Any:
        """A value in the simplest sizes known by now."""
        return simplified(value, self._facts)

    def __getitem__(self, name: str) -> Any:
        """The type of a value; where its rank is unknown, its `shape` is None.

        Raises:
          UnknownValueError: (a KeyError) no value has that name.
        """
        return type_of(self._known(name))

    def content(self, name: str) -> Any:
        """The content of a value where it is known, else None; sizes in it may be formulas."""
        value = self._known(name)
        return value if is_host(value) else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    @property
    def requirements(self) -> list[Requirement]:
        """What must hold or some node so far cannot run."""
        return self._facts.report()

    @property
    def bounds(self) -> dict[str, tuple[int | None, Any]]:
        """For each size that depends on data: its least and its greatest value, None if unknown."""
        shapes = [getattr(self[name], "shape", None) or () for name in self]
        dims = [d for shape in shapes for d in shape if isinstance(d, Dim)]
        fresh = {s.name: s for d in dims for s in d.symbols if self._facts.is_fresh(s)}
        return {name: self._facts.bound(s) for name, s in fresh.items()}

    def __str__(self) -> str:
        from .show.text import context_text

        return context_text(self)

    def __repr__(self) -> str:
        from .show.text import plural

        opsets = ", ".join(f"{d} {v}".strip() for d, v in self.opsets.items())
        return f"<ShapesContext of {plural(len(self), 'value')}, opset {opsets}>"


def check(node: Node, found: Any) -> None:
    """Raise a `ShapeError` where a node is not what the standard's schema (None: no such) says."""
    if not any(node.outputs):
        raise ShapeError("has no output")
    if found is None:
        return
    count = len(node.outputs)
    if not found.min_output <= count <= found.max_output:
        names = ", ".join(o.name for o in found.outputs)
        few = count < found.min_output
        wanted = f"at least {found.min_output}" if few else f"at most {found.max_output}"
        raise ShapeError(f"names {count} outputs, it has {wanted} ({names})")
    for name, attribute in found.attributes.items():
        if name not in node.attrs:
            if attribute.required:
                raise ShapeError(f"needs attribute {name}")
        elif not _is_kind(node.attrs[name], attribute.type.name):
            given = node.attrs[name]
            raise ShapeError(f"attribute {name} is of type {attribute.type.name}, not {given!r}")


def _is_kind(value: Any, kind: str) -> bool:
    one = _KINDS.get(kind)
    if one is not None:
        return isinstance(value, one)
    each = _KINDS.get(kind.removesuffix("S"))
    return each is None or isinstance(value, tuple) and all(isinstance(v, each) for v in value)


def as_array(value: Any) -> Any:
    """What is given as an array, as one; text is an array of objects."""
    array: Any = value if hasattr(value, "shape") else np.asarray(value)
    if isinstance(array, np.generic) or array.dtype.kind in "US":
        return np.asarray(array, object if array.dtype.kind in "US" else None)
    return array


def _is_value(value: Any) -> bool:
    return is_host(value) or isinstance(value, (TensorType, SequenceType, OptionalType, MapType))


def _names(value: Any) -> Iterator[str]:
    """The names of sizes that a type mentions."""
    for d in getattr(value, "shape", None) or ():
        if isinstance(d, Dim):
            yield from (s.name for s in d.symbols)
