"""What the ONNX standard, or the signature that a user registered, says of one operator.

The standard's texts are read from the onnx package when they are asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from ._error import ShapeError
from ._model import node_of
from ._op import REQUIRED, Op, registered
from ._schema import schema

NEWEST = 2**31 - 1  # an opset past all that there are


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


class Description:
    """What is said of one version of an operator.

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
        self.versions = versions_of(domain, name)
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
        """The attributes, as in a signature: `name=default`; only the name where it is required."""
        return [
            a.name if a.required else f"{a.name}={_shown(a.default)}"
            for a in self.attributes.values()
        ]

    def args_default_modified(self, node: Any = None, /, **attributes: Any) -> list[str]:
        """Those attributes of a node, or those given, that differ from their default.

        >>> import jaxshape as js
        >>> js.operator("Shape", opset=15).args_default_modified(start=1, end=None)
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

    @property
    def _opsets(self) -> dict[str, int]:
        return {"": onnx.defs.onnx_opset_version()} | {self.domain: self.opset}

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


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, float):
        return repr(float(str(np.float32(value))))  # 0.01, as it was before it became a float32
    return repr(value)


def _signature_inputs(op: Op) -> list[Parameter]:
    inputs = [
        Parameter(name, "Single" if i < op.required else "Optional")
        for i, name in enumerate(op.inputs)
    ]
    return [*inputs[:-1], Parameter(op.inputs[-1], "Variadic")] if op.variadic else inputs


def load_ops() -> None:
    """Register every operator; not before one is asked for, so that importing stays light."""
    import jaxshape.ops  # noqa: F401


def newest(domain: str, name: str) -> int | None:
    """The newest version of an operator, in the standard or registered."""
    load_ops()
    versions = [v.since for v in registered() if (v.domain, v.name) == (domain, name)]
    if found := schema(domain, name, NEWEST):
        versions.append(found.since_version)
    return max(versions, default=None)


@functools.cache
def _standard_versions(domain: str, name: str) -> tuple[int, ...]:
    found, version = [], NEWEST
    while version and (one := schema(domain, name, version)) is not None:
        found.append(one.since_version)
        version = one.since_version - 1
    return tuple(reversed(found))


def versions_of(domain: str, name: str) -> tuple[int, ...]:
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
