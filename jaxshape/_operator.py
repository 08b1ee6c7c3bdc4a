"""One operator by itself: looked up, described, inferred and run without a model around it.

What is said of it is in `_describe.py`; here it is used, as a node of its own.
"""

from __future__ import annotations

import difflib
import operator as _operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ._context import ShapesContext, as_array
from ._describe import Description, load_ops, newest, versions_of
from ._dim import Dim
from ._error import ShapeError, UnknownValueError, UnsupportedError
from ._graph import Graph, Model
from ._host import type_of
from ._interpret import Scope
from ._model import node_of
from ._op import registered, select
from ._run import Runner, placed
from ._schema import schema, type_named
from ._value import TensorType, dtype_name


class Operator(Description):
    """One version of an operator, to be looked at, inferred and run; made by `operator`.

    Attributes are those of a `Description`: `name`, `domain`, `opset`, `since_version`, `doc`,
    `inputs`, `outputs`, `attributes`, `type_constraints`, `versions`, `deprecated`.
    """

    def infer(self, *types: Any, n_outputs: int | None = None, **attributes: Any) -> Any:
        """The type of the output; of several, a tuple.

        Args:
          *types: the inputs, each a `TensorType`, an array whose content may be used, or None.
          n_outputs: how many outputs there are; None: those that must be there.
          **attributes: by name, as in a node.

        Raises:
          ShapeError: (a ValueError) it does not take these.

        Example:
          >>> import jaxshape as js
          >>> x = js.TensorType("string", ("N", 3))
          >>> print(js.operator("Shape", opset=15).infer(x, start=1))
          int64[1]
        """
        node = self._node(types, n_outputs, attributes)
        given = {n: v for n, v in zip(node.input, types, strict=True) if n}
        ctx = ShapesContext(given, self._opsets)
        self._check_types([ctx[n] if n else None for n in node.input])
        values = ctx._compute(node, self._opsets)
        if n_outputs is not None or self.outputs and self.outputs[-1].option != "Variadic":
            values = values[: len(node.output)]  # else only the function knows how many there are
        found = tuple(type_of(ctx._resolved(v)) for v in values)
        return found[0] if len(found) == 1 else found

    def sizes(self, *types: Any, n_outputs: int | None = None, **attributes: Any) -> Any:
        """The bytes that the output takes as an array, a number or a formula; None if unknown.

        Takes what `infer` does.

        >>> import jaxshape as js
        >>> x = js.TensorType("float32", ("N", 3))
        >>> print(js.operator("Concat").sizes(x, x, axis=0), js.operator("Shape").sizes(x))
        24*N 16
        """
        found = self.infer(*types, n_outputs=n_outputs, **attributes)
        return tuple(map(_bytes, found)) if isinstance(found, tuple) else _bytes(found)

    def run(
        self, *arrays: Any, n_outputs: int | None = None, device: Any = None, **attributes: Any
    ) -> Any:
        """Run it on arrays: the output as a NumPy array; of several, a tuple.

        Args:
          *arrays: the inputs; a list of arrays is a sequence, None an absent one.
          n_outputs: how many outputs to ask for; None: those that must be there.
          device: a `jax.Device` or its name; None: JAX's default.
          **attributes: by name, as in a node.

        Raises:
          ShapeError: (a ValueError) it does not take these.
          UnsupportedError: nothing here computes it.

        Example:
          >>> import numpy as np, jaxshape as js
          >>> js.operator("Shape", opset=15).run(np.zeros((2, 3, 4)), start=-1)
          array([4])
        """
        arrays = tuple(map(_array, arrays))
        node = self._node(arrays, n_outputs, attributes)
        self._check_types([_type(a) for a in arrays])
        given = [a for n, a in zip(node.input, arrays, strict=True) if n]
        found = tuple(run_node(node, given, self._opsets, device))
        return found[0] if len(found) == 1 else found

    def compute(self, ctx: ShapesContext, node: Any) -> None:
        """Add the outputs of a node of this operator to a context, in this version of it.

        Raises what `ShapesContext.compute` does, and `ShapeError` (a ValueError) for a node of
        another operator.
        """
        self._expect(node)
        ctx._compute(node, ctx.opsets | {self.domain: self.opset})

    def _node(
        self, inputs: Sequence[Any], n_outputs: int | None, attributes: Mapping[str, Any]
    ) -> onnx.NodeProto:
        self._known(attributes)
        least = max(self._schema.min_output, 1) if self._schema else 1
        names = ["" if x is None else self._input_name(i) for i, x in enumerate(inputs)]
        outputs = [f"output_{i}" for i in range(least if n_outputs is None else n_outputs)]
        node = onnx.helper.make_node(self.name, names, outputs, self.title, domain=self.domain)
        for name, value in attributes.items():
            if value is not None:
                node.attribute.append(self._attribute(name, value))
        return node

    def _input_name(self, i: int) -> str:
        last = len(self.inputs) - 1
        if last < 0 or i > last and self.inputs[last].option != "Variadic":
            wanted = ", ".join(p.name for p in self.inputs) or "none"
            raise ShapeError(f"{self.title} takes at most {last + 1} inputs ({wanted})")
        variadic = self.inputs[min(i, last)].option == "Variadic"
        return f"{self.inputs[last].name}_{i - last}" if variadic else self.inputs[i].name

    def _attribute(self, name: str, value: Any) -> onnx.AttributeProto:
        kind = self.attributes[name].type
        try:
            if isinstance(value, np.ndarray):
                floats = value.dtype.kind not in "biu"
                tensor = kind in ("", "TENSOR")
                value = numpy_helper.from_array(value) if tensor else value.tolist()
                kind = "TENSOR" if tensor else kind or ("FLOATS" if floats else "INTS")
            elif kind in _CONVERTED:
                value = _CONVERTED[kind](value)
            code = onnx.AttributeProto.AttributeType.Value(kind) if kind else None
            return onnx.helper.make_attribute(name, value, attr_type=code)
        except (TypeError, ValueError) as e:
            wanted = f"is of type {kind}, not" if kind else "cannot be"
            raise ShapeError(f"{self.title}: attribute {name} {wanted} {value!r}") from e

    def _check_types(self, types: Sequence[Any]) -> None:
        """Raise where an input's dtype is not what the standard allows in this version."""
        if self._schema is None:
            return
        bound: dict[str, tuple[str, Any]] = {}
        for i, t in enumerate(types):
            if not isinstance(t, TensorType) or t.dtype is None:
                continue
            formal = self._schema.inputs[min(i, len(self.inputs) - 1)]
            shapeless, shown = TensorType(t.dtype, None), dtype_name(t.dtype)
            allowed = self.type_constraints.get(formal.type_str, ((formal.type_str,), ""))[0]
            if shapeless not in map(type_named, allowed):
                listed = ", ".join(allowed)
                raise ShapeError(f"{self.title}: input {formal.name} is {shown}, not of {listed}")
            if formal.is_homogeneous:
                name, first = bound.setdefault(formal.type_str, (formal.name, shapeless))
                if first is not shapeless:
                    raise ShapeError(
                        f"{self.title}: input {formal.name} is {shown}, but {name} is "
                        f"{dtype_name(first.dtype)}: both are of type {formal.type_str}"
                    )


def operator(name: str, opset: int | None = None, domain: str = "") -> Operator:
    """Look up an operator, of the standard or registered with `op`.

    Args:
      name: its type, as `"Conv"`.
      opset: the version of the domain's opset; None: the newest.
      domain: the empty string is ai.onnx.

    Raises:
      UnsupportedError: no such operator, or not yet at that opset.

    Example:
      >>> import jaxshape as js
      >>> shape = js.operator("Shape", opset=15)
      >>> shape
      <Operator Shape-15>
      >>> shape.args_mandatory, shape.args_default
      (['data'], ['end=None', 'start=0'])
    """
    load_ops()
    domain = "" if domain == "ai.onnx" else domain
    last = newest(domain, name)
    full = f"{domain}::{name}" if domain else name
    if last is None:
        known = {v.name for v in registered() if v.domain == domain}
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; is it {' or '.join(near)}?" if near else "; register it with jaxshape.op"
        if elsewhere := sorted({v.domain or "ai.onnx" for v in registered() if v.name == name}):
            hint = f" in domain {domain or 'ai.onnx'}; it is one of {' and '.join(elsewhere)}"
        raise UnsupportedError(f"no operator {full} is known{hint}")
    newest_opset = max(last, 1 if domain else onnx.defs.onnx_opset_version())
    opset = newest_opset if opset is None else opset
    if not domain and opset > newest_opset:
        raise UnsupportedError(
            f"opset {opset}: the installed onnx package knows opsets up to {newest_opset}"
        )
    standard, lowering = schema(domain, name, opset), select(domain, name, opset)
    if standard is None and lowering is None:
        first = versions_of(domain, name)[0]
        raise UnsupportedError(f"{full} is there since opset {first}, not in opset {opset}")
    return Operator(name, domain, opset, standard, lowering)


def run_node(
    node: onnx.NodeProto,
    inputs: Sequence[Any] | Mapping[str, Any],
    opsets: Mapping[str, int],
    device: Any = None,
) -> list[Any]:
    """Run one node: its named outputs as NumPy arrays.

    Args:
      node: may hold subgraphs.
      inputs: by name, or in the order of the node's inputs; absent ones None or left out.
      opsets: versions by domain.
      device: a `jax.Device` or its name; None: JAX's default.

    Raises what `run` raises.

    Example:
      >>> import numpy as np, onnx
      >>> from jaxshape._operator import run_node
      >>> node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
      >>> run_node(node, [np.arange(2), np.array(1)], {"": 14})
      [array([1, 2])]
    """
    opsets = {"" if d == "ai.onnx" else d: v for d, v in opsets.items()}
    made = node_of(node, opsets)
    if not isinstance(inputs, Mapping):
        names = [n for n in made.inputs if n]
        if len(inputs) != len(names):
            names = list(made.inputs)
        if len(inputs) > len(names):
            raise ShapeError(f"{made.label} takes {len(names)} inputs, {len(inputs)} are given")
        inputs = dict(zip(names, inputs, strict=False))
    for name in (*made.inputs, *made.captures):
        if name and name not in inputs:
            raise UnknownValueError(f"{made.label} takes {name!r}, which is not given")
    graph = Graph("", (), (), (made,), {})
    model = Model(graph, opsets, {}, onnx.IR_VERSION, "", onnx.ModelProto(), ".")
    outputs = [n for n in made.outputs if n]
    with placed(device):
        runner, scope = Runner(), Scope(model, opsets)
        scope.values.update({n: _array(v) for n, v in inputs.items() if n})
        runner.walk([made], scope, outputs)
        return [runner.on_host(scope[n]) for n in outputs]


def _array(value: Any) -> Any:
    """What is given as an array, as one; a list is a sequence of them."""
    if value is None:
        return None
    if isinstance(value, list) and any(hasattr(v, "dtype") for v in value):
        return [_array(v) for v in value]
    return as_array(value)


def _type(value: Any) -> Any:
    """The type of an array of any library; other values as they are."""
    return TensorType(value.dtype, value.shape) if hasattr(value, "dtype") else value


def _bytes(t: Any) -> int | Dim | None:
    if not isinstance(t, TensorType) or t.shape is None or t.dtype is None or t.dtype == object:
        return None
    return t.size * t.dtype.itemsize


_CONVERTED = {
    "INT": _operator.index,
    "FLOAT": float,
    "INTS": lambda v: [_operator.index(x) for x in v],
    "FLOATS": lambda v: [float(x) for x in v],
}
