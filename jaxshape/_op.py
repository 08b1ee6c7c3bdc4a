"""The registry of operators, read from signatures.

Invariant: an operator is one plain function whose signature is its schema. Positional-only
parameters are the ONNX inputs (`= None` optional, `*xs` variadic); an input annotated `Static` must
be known on the host; keyword-only parameters are the attributes with ONNX's own names and defaults.
Look-ups are pure: the newest `since` that does not pass the opset wins, and nothing here is changed
by using an operator.
"""

from __future__ import annotations

import bisect
import functools
import inspect
import operator as _operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from ._error import ShapeError

Function = Callable[..., Any]

Static = Annotated[Any, "static"]
"""An input whose value must be on the host: it decides a shape, an axis or a type."""

Known = Annotated[Any, "known"]
"""An input that need not be known, but whose value, where it is, the shape rule is given: to check
it, or to follow it through a graph. A `traced` op is given it on the host, too."""

Maybe = Annotated[Any, "maybe"]
"""An input that may be an empty optional, None, and is not missing then."""

REQUIRED = inspect.Parameter.empty


class Op:
    """One version of an operator: its lowering, and what its signature and its declaration say.

    Attributes are read-only facts: `name`, `domain`, `since`; `inputs`, the names of the inputs in
    order; `static`, for each of them whether its value must be known; `required`, how many must be
    given; `variadic`, whether the last may repeat; `attributes`, names with defaults (`REQUIRED`
    where there is none).
    """

    def __init__(
        self,
        function: Function,
        name: str,
        domain: str,
        since: int,
        host: bool,
        elementwise: bool,
        random: bool,
        traced: bool,
        sizes: bool,
        dtypes: tuple[str, ...],
    ):
        self.function, self.name, self.domain, self.since = function, name, domain, since
        self.host, self.elementwise, self.random, self.traced = host, elementwise, random, traced
        self.sizes, self.dtypes = sizes, dtypes
        self.rule: Function | None = None
        self.rankless = False
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
        for p in parameters:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_KEYWORD):
                raise TypeError(
                    f"{name}: parameter {p} is neither an input, which stands before a `/` (or is "
                    "*xs), nor an attribute, which stands after a `*`"
                )
        self.inputs = tuple(p.name for p in inputs)
        self.static = tuple(p.annotation == Static for p in inputs)
        self.known = tuple(p.annotation == Known for p in inputs)
        self.maybe = tuple(p.annotation == Maybe for p in inputs)
        self.variadic = bool(inputs) and inputs[-1].kind is inputs[-1].VAR_POSITIONAL
        self.required = sum(p.default is REQUIRED and p.kind is p.POSITIONAL_ONLY for p in inputs)
        keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        self.wants_outputs = keywords.pop("n_outputs", None) is not None
        # the part of the graph that attributes name, see `_part.py`
        self.supplied = {name for name in ("part",) if keywords.pop(name, None) is not None}
        self.attributes: dict[str, Any] = keywords

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        domain = f"{self.domain}::" if self.domain else ""
        return f"<Op {domain}{self.name}-{self.since}>"

    def shape_rule(self, rule: Function | None = None, *, rankless: bool = False) -> Any:
        """Decorate the second function of an op whose shape JAX cannot derive.

        The rule takes `TensorType`s for inputs (host arrays where an input is `Static` or `Known`,
        and known) and returns the types of the outputs, or host arrays where a result is known.
        With `rankless` it is also called where an input's rank is unknown (`shape is None`);
        otherwise the engine answers "unknown" for it then.
        """
        if rule is None:
            return functools.partial(self.shape_rule, rankless=rankless)
        self.rule, self.rankless = rule, rankless
        return rule

    def is_static(self, position: int) -> bool:
        """Whether the input at this position (a variadic one repeats the last) must be known on the
        host.
        """
        return self.static[min(position, len(self.static) - 1)] if self.static else False

    def is_followed(self, position: int) -> bool:
        """Whether the shape rule is given the value of the input at this position where it is
        known.
        """
        return self.is_static(position) or (
            self.known[min(position, len(self.known) - 1)] if self.known else False
        )

    def check(
        self, n_inputs: int, given: Sequence[bool], attributes: dict[str, Any]
    ) -> dict[str, Any]:
        """The keyword arguments for one node, or a `ShapeError` that says what the signature wants.

        `given[i]` tells whether input i is there: an absent one in a required place is an error.
        """
        if n_inputs > len(self.inputs) and not self.variadic:
            raise ShapeError(
                f"takes at most {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"got {n_inputs}"
            )
        for i in range(self.required):
            if i >= n_inputs or not (given[i] or self.maybe[i]):
                raise ShapeError(f"needs input {i} ({self.inputs[i]})")
        if unknown := attributes.keys() - self.attributes.keys() - self.supplied:
            known = ", ".join(self.attributes) or "none"
            raise ShapeError(f"has no attribute {', '.join(sorted(unknown))} (known: {known})")
        for name, default in self.attributes.items():
            if default is REQUIRED and name not in attributes:
                raise ShapeError(f"needs attribute {name}")
        return attributes


_registry: dict[tuple[str, str], list[Op]] = {}


def op(
    name: str,
    domain: str = "",
    since: int = 1,
    *,
    host: bool = False,
    elementwise: bool = False,
    random: bool = False,
    traced: bool = False,
    sizes: bool = False,
    dtypes: tuple[str, ...] = (),
) -> Callable[[Function], Op]:
    """Register a function as the lowering of an ONNX operator.

    Args:
      name: the ONNX operator type.
      domain: the operator's domain; the empty string is ai.onnx.
      since: the first opset version of the domain in which this signature holds.
      host: the body also runs in NumPy where all inputs are host arrays (it uses `namespace(...)`).
      elementwise: the output's shape is that of the inputs broadcast together.
      random: the result depends on a generator, so that two equal nodes are two different values.
      traced: under jit the body also takes `Static` inputs that are not known (control flow).
      sizes: the result tells how large the inputs are, never what they hold.
      dtypes: the attributes that name an element type, of a result or to compute in; a conversion
        to another precision (`to_jax(dtype=...)`) changes them.

    Returns:
      A decorator that gives back the registered `Op`, callable as the function itself.

    Raises:
      TypeError: a parameter that is neither an input (positional-only) nor an attribute
        (keyword-only).

    Example:
      >>> import jaxshape as js
      >>> @js.op("Twice", domain="my.domain", elementwise=True)
      ... def twice(x, /, *, offset=0.0):
      ...     return x + x + offset
      >>> twice
      <Op my.domain::Twice-1>
    """

    if not isinstance(name, str):
        raise TypeError(f'op takes the name of an operator, as @op("Conv"), not {name!r}')

    def register(function: Function) -> Op:
        made = Op(
            function,
            name,
            "" if domain == "ai.onnx" else domain,
            since,
            host,
            elementwise,
            random,
            traced,
            sizes,
            dtypes,
        )
        versions = _registry.setdefault((made.domain, name), [])
        versions[:] = [v for v in versions if v.since != since]
        bisect.insort(versions, made, key=_operator.attrgetter("since"))
        return made

    return register


def select(domain: str, name: str, opset: int) -> Op | None:
    """The newest registered version of an operator that does not pass `opset`, or None."""
    found = None
    for version in _registry.get((domain, name), ()):
        if version.since <= opset:
            found = version
    return found


def earliest(domain: str, name: str) -> Op | None:
    """The oldest registered version of an operator, or None."""
    versions = _registry.get((domain, name))
    return versions[0] if versions else None


def registered() -> list[Op]:
    """Every registered version of every operator, sorted by domain, name and version."""
    return [version for key in sorted(_registry) for version in _registry[key]]
