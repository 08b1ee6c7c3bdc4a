"""Sizes that are symbols of someone else's scope, as under `jax.export`.

A caller of `jax.export` gives inputs whose sizes are symbols of a scope that we did not make. Each
stands for a symbol of ours with its name; the model is traced with these, so that what lowerings
ask and demand is answered by what that trace knows. JAX cannot simplify, and takes two formulas as
different unless it sees that they are one: so each size has one form in JAX, the first that was
seen, and a result in another form is padded by the difference, which is 0.

What the model requires must be promised by the caller's scope. The module is, with `_symbol`, the
gate to the symbols of `jax.export`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import export

from ._device import canonical
from ._dim import Dim, Undecided, parse
from ._error import UnsupportedError
from ._facts import Facts, current
from ._host import DimArray, is_host
from ._relation import Relation
from ._require import Requirement

CONSTRAINTS = (
    "see https://docs.jax.dev/en/latest/export/shape_poly.html#user-specified-symbolic-constraints"
)


class Exporting(Facts):
    """The facts of a trace, about sizes that JAX holds as symbols of a scope of the caller's."""

    def __init__(self, known: Facts, symbols: Mapping[str, Any]):
        self.__dict__.update(known.__dict__)
        self.floats = False  # what is not known beforehand is computed when the result is called
        self.symbols = dict(symbols)  # by name, which is that of our symbol too
        self._ours: dict[Any, Any] = {}
        self._forms: dict[Any, Any] = {}
        self._at = self.epoch

    def ours(self, size: Any) -> Any:
        """Our dim of a size in JAX, in the simplest form."""
        if isinstance(size, (int, np.integer)):
            return int(size)
        if self._at != self.epoch:
            self._ours, self._forms, self._at = {}, {}, self.epoch
        found = self._ours.get(size)
        if found is None:
            read = parse(str(size), lambda name: self.named(name) if name in self.symbols else None)
            if read is None:
                raise Undecided(f"the size {size} of JAX")
            found = self._ours[size] = self.simplify(read)
            self._forms.setdefault(found, size)
        return found

    def theirs(self, d: Any) -> Any:
        """JAX's size for one of our dims, in the form that was seen first."""
        if type(d) is not Dim:
            return int(d)
        d = self.simplify(d)
        if type(d) is not Dim:
            return int(d)
        found = self._forms.get(d)
        if found is None:
            found = self._forms[d] = formula(d, self.symbols)
        return found

    def free(self, d: Any) -> Any:
        """A formula in symbols of which only bounds are known: 8*k for an h with h % 8 == 0."""
        return self._world.forward(d)

    def range(self, s: Dim) -> tuple[int | None, int | None]:
        """The least and the greatest value of such a symbol."""
        return s._symbol().args[1:]

    def count(self, stem: str, least: Any = 0, most: Any = None) -> Any:
        raise Undecided(f"a size that depends on data ({stem})")

    def element(self, stem: str) -> Dim:
        raise Undecided(f"an integer that depends on data ({stem})")

    def promised(self, requirement: Requirement) -> bool:
        """Whether the caller's scope says that a requirement holds; so it is about its symbols."""
        r = requirement
        if r.kind == "or":
            return any(map(self.promised, r.alternatives))
        difference: Any = r.left % r.right if r.kind == "%" else r.left - r.right
        if type(difference) is not Dim:
            return difference >= 0 if r.kind == ">=" else difference == 0
        try:
            size = formula(difference * difference.denominator, self.symbols)
            return bool(size >= 0 if r.kind == ">=" else size == 0)
        except Exception:  # JAX finds it inconclusive, in one of several ways
            return False

    def unpromised(self) -> list[Requirement]:
        """What the model requires of the caller's symbols and their scope does not say."""
        return [
            r
            for r in self.report()
            if all(s.name in self.symbols for s in r.symbols) and not self.promised(r)
        ]


def formula(d: Any, symbols: Mapping[str, Any]) -> Any:
    """JAX's size for a formula, computed from JAX's symbols by name."""
    if type(d) is not Dim:
        return int(d)
    if missing := sorted(s.name for s in d.symbols if s.name not in symbols):
        raise Undecided(f"{d}, of which {missing[0]} depends on data")
    below = d.denominator  # a formula may be whole without all of its terms: n*(n - 1)/2
    whole: Any = d * below
    return whole.evaluate(symbols, jax.core.max_dim, jax.core.min_dim) // below


def value(x: Any, dtype: np.dtype) -> Any:
    """An element of a host array as a JAX scalar."""
    if isinstance(x, Relation):
        if x.kind == "not":
            return ~value(x.left, dtype)
        if x.kind in ("and", "or"):
            a, b = value(x.left, dtype), value(x.right, dtype)
            return a & b if x.kind == "and" else a | b
        wide = canonical("int64")
        a, b = value(x.left, wide), value(x.right, wide)
        return a == b if x.kind == "==" else a >= b
    if isinstance(x, Dim):
        from ._symbol import to_export

        if dtype.kind != "f":
            return jnp.asarray(to_export(x)).astype(dtype)
        above: Any = x * x.denominator
        top = to_export(above) if type(above) is Dim else above
        return jnp.asarray(top).astype(dtype) / np.asarray(x.denominator, dtype)
    return jnp.asarray(x, dtype)


def array_of(x: DimArray) -> Any:
    """A host array of sizes as a JAX array; the sizes are computed when the result is called."""
    dtype = canonical(x.dtype)
    items = [value(e, dtype) for e in x.elements.ravel().tolist()]
    return jnp.stack(items).reshape(x.shape)


def agreed(x: Any, dims: Sequence[Any] | None = None) -> Any:
    """x with each size in the form that JAX knows it by, or with the sizes `dims`, equal to its own
    by what is known.
    """
    facts = exporting()
    if isinstance(x, list):
        return [agreed(v) for v in x]
    if facts is None or x is None or is_host(x) or not hasattr(x, "shape"):
        return x
    wanted = [facts.theirs(facts.ours(d)) for d in x.shape] if dims is None else dims
    if all(a is b or a == b for a, b in zip(x.shape, wanted, strict=True)):
        return x
    fill = np.zeros((), x.dtype)
    config = [(0, b - a, 0) for a, b in zip(x.shape, wanted, strict=True)]
    return jax.lax.pad(x, fill, config)


def exporting() -> Exporting | None:
    """The facts of the export under way, if one is."""
    facts = current()
    return facts if isinstance(facts, Exporting) else None


def symbols_in(sizes: Iterable[Any]) -> dict[str, Any]:
    """The JAX symbols that sizes mention, by name."""
    found: dict[str, Any] = {}
    for size in sizes:
        if export.is_symbolic_dim(size):
            for name in re.findall(r"[^\W\d]\w*", str(size)):
                if name not in ("max", "min", "mod", "floordiv") and name not in found:
                    (found[name],) = export.symbolic_shape(name, scope=size.scope)
    return found


def refuse(requirements: Sequence[Requirement]) -> None:
    """Raise for requirements that the symbols of an export do not keep."""
    if requirements:
        listed = "; ".join(f"{r} (wanted by {r.node})" if r.node else str(r) for r in requirements)
        raise UnsupportedError(
            f"the model requires of its sizes what their scope does not say: {listed}. State it "
            "in `constraints`, take 8*k as the size h of which h % 8 == 0 is wanted, give sizes "
            f"that must be equal one name, or use JaxModel.export, which does so; {CONSTRAINTS}"
        )


def symbols_for(names: Sequence[str], requirements: Sequence[Requirement]) -> dict[str, Any]:
    """JAX symbols with these names, in a scope that is told the requirements.

    Raises `UnsupportedError` where one is an alternative, which no scope can be told.
    """
    scope = export.SymbolicScope()
    scratch = {n: export.symbolic_shape(n, scope=scope)[0] for n in names}
    constraints: dict[str, str] = {}
    for r in requirements:
        if r.kind == "or":
            wanted = f" (wanted by {r.node})" if r.node else ""
            raise UnsupportedError(
                f"of these sizes one of several must hold: {r}{wanted}. Say which, as in "
                f"requirements=[{str(r.alternatives[0])!r}], or in the shapes that are given"
            )
        difference: Any = r.left % r.right if r.kind == "%" else r.left - r.right
        if type(difference) is not Dim:
            continue
        size = formula(difference * difference.denominator, scratch)
        if isinstance(size, int):
            continue
        if r.kind == ">=":
            constraints[f"{size} >="] = f"{size} >= 0"
        else:
            sign, term = _leading(str(size))
            (left,) = export.symbolic_shape(term, scope=scope)
            constraints.setdefault(f"{term} ==", f"{term} == {left - sign * size}")
    told = export.SymbolicScope(list(constraints.values()))
    return {n: export.symbolic_shape(n, scope=told)[0] for n in names}


def _leading(size: str) -> tuple[int, str]:
    """The sign and the text of the term of a sum that the others shall replace: the longest of
    those with a function in them, else of all.
    """
    terms: list[tuple[int, str]] = []
    depth, start, sign = 0, 0, 1
    for i, c in enumerate(f"{size}+"):
        if depth == 0 and c in "+-":
            if part := size[start:i].strip():
                terms.append((sign, part))
            start, sign = i + 1, 1 if c == "+" else -1
        depth += (c == "(") - (c == ")")
    return max(terms, key=lambda t: ("(" in t[1], len(t[1])))


def shape_in(shape: Sequence[Any], symbols: Mapping[str, Any]) -> tuple[Any, ...]:
    """A shape in JAX's symbols."""
    return tuple([formula(d, symbols) for d in shape])
