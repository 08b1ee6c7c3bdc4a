"""One operator by itself: looked up, described, inferred and run without a model around it.

An `Operator` is what the ONNX standard, or the signature that a user registered, says of one
version; the standard's texts are read from the onnx package when they are asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ._context import NEWEST, ShapesContext, load_ops, newest
from ._dim import Dim
from ._error import ShapeError, UnknownValueError, UnsupportedError
from ._graph import Graph, Model
from ._host import type_of
from ._interpret import Scope
from ._model import node_of
from ._op import REQUIRED, Op, registered, select
from ._run import Runner, placed
from ._schema import schema, type_named
from ._value import TensorType, dtype_name


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An input or output: `option` is Single (required), Optional or Variadic.

    `type` is the type constraint's name, or the type itself; `types` are all that it allows, empty
    where nothing is said.
    """

    name: str
    option: str = "Single"
    type: str = ""
    types: tuple[str, ...] = ()
    description: str = ""


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute: `type` is INT, FLOATS, GRAPH, ...; `default` None where there is none."""

    name: str
    type: str = ""
    default: Any = None
    required: bool = False
    description: str = ""


class Operator:
    """One version of an operator; made by `operator`.

    Attributes:
      name, domain: what it is called; the domain "" is ai.onnx.
      opset: the opset it was asked for at.
      since_version: the version of the opset that brought this form of it.
      versions: every such version up to now.
      deprecated: whether that opset dropped it.
      doc: what it does.
      inputs, outputs: tuples of `Parameter`; outputs are empty where only the function knows.
      attributes: `Attribute`s by name.
      type_constraints: for each type name, the types allowed and what for.
    """

    def __init__(self, name: str, domain: str, opset: int, standard: Any, lowering: Op | None):
        self.name, self.domain, self.opset = name, domain, opset
        self.versions = _versions(domain, name)
        self._schema = standard
        self.type_constraints: dict[str, tuple[tuple[str, ...], str]] = {}
        if standard is None:
            assert lowering is not None
            self.since_version = lowering.since
            self.deprecated = False
            self.doc = inspect.getdoc(lowering.function) or ""
            self.inputs = tuple(_signature_inputs(lowering))
            self.outputs: tuple[Parameter, ...] = ()
            self.attributes = {
                n: Attribute(n, "", None if v is REQUIRED else v, v is REQUIRED)
                for n, v in lowering.attributes.items()
            }
            return
        self.since_version = standard.since_version
        self.deprecated = standard.deprecated
        self.doc = inspect.cleandoc(standard.doc or "")
        self.type_constraints = {
            c.type_param_str: (tuple(c.allowed_type_strs), c.description)
            for c in standard.type_constraints
        }
        self.inputs = tuple(map(self._parameter, standard.inputs))
        self.outputs = tuple(map(self._parameter, standard.outputs))
        self.attributes = {
            n: Attribute(n, a.type.name, value, a.required, inspect.cleandoc(a.description))
            for (n, a), value in zip(
                standard.attributes.items(), _defaults(standard, domain, opset), strict=True
            )
        }

    def _parameter(self, p: Any) -> Parameter:
        allowed = self.type_constraints.get(p.type_str)
        types = allowed[0] if allowed else (p.type_str,)
        return Parameter(
            p.name, p.option.name, p.type_str, types, inspect.cleandoc(p.description or "")
        )

    # what it takes --------------------------------------------------------------------------------

    @property
    def args_mandatory(self) -> list[str]:
        """The names of the inputs that must be given."""
        return [p.name for p in self.inputs if p.option == "Single"]

    @property
    def args_optional(self) -> list[str]:
        """The inputs that may be left out, as in a signature."""
        return [
            f"*{p.name}" if p.option == "Variadic" else f"{p.name}=None"
            for p in self.inputs
            if p.option != "Single"
        ]

    @property
    def args_default(self) -> list[str]:
        """The attributes, as in a signature: `name=default`, or the name where one must be given."""
        return [
            a.name if a.required else f"{a.name}={_shown(a.default)}"
            for a in self.attributes.values()
        ]

    def args_default_modified(self, node: Any = None, /, **attributes: Any) -> list[str]:
        """Those attributes of a node, or those given, that differ from their default.

        >>> from jaxshape._operator import operator
        >>> operator("Shape", opset=15).args_default_modified(start=1, end=None)
        ['start=1']
        """
        if node is not None:
            self._expect(node)
            attributes = dict(node_of(node, self._opsets).attrs) | attributes
        else:
            self._known(attributes)
        return [
            f"{n}={_shown(v)}"
            for n, v in attributes.items()
            if n not in self.attributes or _shown(v) != _shown(self.attributes[n].default)
        ]

    @property
    def atts_value(self) -> dict[str, Any]:
        """The default of each attribute, None where there is none."""
        return {a.name: a.default for a in self.attributes.values()}

    # using it -------------------------------------------------------------------------------------

    @property
    def _opsets(self) -> dict[str, int]:
        return {"": onnx.defs.onnx_opset_version()} | {self.domain: self.opset}

    def infer(self, *types: Any, n_outputs: int | None = None, **attributes: Any) -> Any:
        """The type of the output; of several, a tuple.

        Args:
          *types: the inputs, each a `TensorType`, an array whose content may be used, or None.
          n_outputs: how many outputs there are; None: those that must be there.
          **attributes: by name, as in a node.

        Raises:
          ShapeError: (a ValueError) it does not take these.

        Example:
          >>> from jaxshape._operator import operator
          >>> from jaxshape._value import TensorType
          >>> print(operator("Shape", opset=15).infer(TensorType("string", ("N", 3)), start=1))
          int64[1]
        """
        node = self._node(types, n_outputs, attributes)
        given = {n: v for n, v in zip(node.input, types, strict=True) if n}
        ctx = ShapesContext(given, self._opsets)
        self._check_types([ctx[n] if n else None for n in node.input])
        values = ctx._compute(node, self._opsets)
        if n_outputs is not None or not self._open:
            values = values[: len(node.output)]
        found = tuple(type_of(ctx._resolved(v)) for v in values)
        return found[0] if len(found) == 1 else found

    def sizes(self, *types: Any, n_outputs: int | None = None, **attributes: Any) -> Any:
        """The bytes that the output takes as an array, a number or a formula; None if unknown.

        Takes what `infer` does.

        >>> from jaxshape._operator import operator
        >>> from jaxshape._value import TensorType
        >>> x = TensorType("float32", ("N", 3))
        >>> print(operator("Concat").sizes(x, x, axis=0), operator("Shape").sizes(x))
        24*N 16
        """
        found = self.infer(*types, n_outputs=n_outputs, **attributes)
        return tuple(map(_bytes, found)) if isinstance(found, tuple) else _bytes(found)

    @property
    def _open(self) -> bool:
        """Whether only the function knows how many outputs there are."""
        return not self.outputs or self.outputs[-1].option == "Variadic"

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
          >>> import numpy as np
          >>> from jaxshape._operator import operator
          >>> operator("Shape", opset=15).run(np.zeros((2, 3, 4)), start=-1)
          array([4])
        """
        arrays = tuple(map(_array, arrays))
        node = self._node(arrays, n_outputs, attributes)
        self._check_types([type_of(a) for a in arrays])
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

    def _expect(self, node: Any) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) != (self.domain, self.name):
            given = f"{domain}::{node.op_type}" if domain else node.op_type
            raise ShapeError(
                f"{self.title}: {node.name or 'the node'} is of another operator, {given}"
            )

    def _known(self, attributes: Mapping[str, Any]) -> None:
        for name in attributes:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise ShapeError(f"{self.title} has no attribute {name} (known: {known})")

    def _node(
        self, inputs: Sequence[Any], n_outputs: int | None, attributes: Mapping[str, Any]
    ) -> onnx.NodeProto:
        self._known(attributes)
        if n_outputs is None:
            n_outputs = max(self._schema.min_output, 1) if self._schema else 1
        names = ["" if x is None else self._input_name(i) for i, x in enumerate(inputs)]
        outputs = [f"output_{i}" for i in range(n_outputs)]
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

    # what people look at --------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """Its name, domain and opset, as messages write them."""
        domain = f"{self.domain}::" if self.domain else ""
        return f"{domain}{self.name} (opset {self.opset})"

    def __str__(self) -> str:
        from .show.text import operator_text

        return operator_text(self)

    def __repr__(self) -> str:
        domain = f"{self.domain}::" if self.domain else ""
        return f"<Operator {domain}{self.name}-{self.since_version}>"

    def _repr_html_(self) -> str:
        from .show.html import operator_html

        return operator_html(self)


def operator(name: str, opset: int | None = None, domain: str = "") -> Operator:
    """Look up an operator, of the standard or registered with `op`.

    Args:
      name: its type, as `"Conv"`.
      opset: the version of the domain's opset; None: the newest.
      domain: the empty string is ai.onnx.

    Raises:
      UnsupportedError: no such operator, or not yet at that opset.

    Example:
      >>> from jaxshape._operator import operator
      >>> shape = operator("Shape", opset=15)
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
        raise UnsupportedError(f"no operator {full} is known{hint}")
    newest_opset = max(last, 1 if domain else onnx.defs.onnx_opset_version())
    opset = newest_opset if opset is None else opset
    if not domain and opset > newest_opset:
        raise UnsupportedError(
            f"opset {opset}: the installed onnx package knows opsets up to {newest_opset}"
        )
    standard, lowering = schema(domain, name, opset), select(domain, name, opset)
    if standard is None and lowering is None:
        first = _versions(domain, name)[0]
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
    if value is None or hasattr(value, "dtype"):
        return np.asarray(value) if isinstance(value, np.generic) else value
    if isinstance(value, list) and any(hasattr(v, "dtype") for v in value):
        return [_array(v) for v in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _bytes(t: Any) -> int | Dim | None:
    if not isinstance(t, TensorType) or t.shape is None or t.dtype is None or t.dtype == object:
        return None
    return t.size * t.dtype.itemsize


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, float):
        return str(np.float32(value))  # 0.01, as it was before it became a float32
    return repr(value)


_CONVERTED = {
    "INT": int,
    "FLOAT": float,
    "INTS": lambda v: [int(x) for x in v],
    "FLOATS": lambda v: [float(x) for x in v],
}


def _signature_inputs(op: Op) -> list[Parameter]:
    last = len(op.inputs) - 1
    return [
        Parameter(
            name,
            "Variadic"
            if op.variadic and i == last
            else "Single"
            if i < op.required
            else "Optional",
        )
        for i, name in enumerate(op.inputs)
    ]


@functools.cache
def _standard_versions(domain: str, name: str) -> tuple[int, ...]:
    found, version = [], NEWEST
    while version and (one := schema(domain, name, version)) is not None:
        found.append(one.since_version)
        version = one.since_version - 1
    return tuple(reversed(found))


def _versions(domain: str, name: str) -> tuple[int, ...]:
    """Every version of an operator; the standard's where it has any, else those registered."""
    return _standard_versions(domain, name) or tuple(
        v.since for v in registered() if (v.domain, v.name) == (domain, name)
    )


def _defaults(standard: Any, domain: str, opset: int) -> list[Any]:
    """The default of each attribute, read as a node's attribute would be."""
    node = onnx.NodeProto(op_type=standard.name, domain=domain, output=["y"])
    node.attribute.extend(
        a.default_value for a in standard.attributes.values() if a.default_value.name
    )
    attrs = node_of(node, {"": opset, domain: opset}).attrs
    return [attrs.get(name) for name in standard.attributes]
