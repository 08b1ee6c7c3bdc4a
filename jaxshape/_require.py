"""What must hold or the model cannot run, as it is shown and as a caller writes it."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ._dim import Dim, Scalar, parse, text


@dataclasses.dataclass(frozen=True, repr=False)
class Requirement:
    """`left == right`, `left >= right`, `left % right == 0`, or one of `alternatives`.

    `node` and `why` say what demands it. `proved` is False where it may always hold, which could
    not be decided.
    """

    kind: str  # "==", ">=", "%", "or"
    left: Scalar = 0
    right: Scalar = 0
    alternatives: tuple[Requirement, ...] = ()
    node: str = ""
    why: str = ""
    proved: bool = True

    def __str__(self) -> str:
        if self.kind == "or":
            return " or ".join(map(str, self.alternatives))
        if self.kind == "%":
            return f"{_operand(self.left)} % {_operand(self.right)} == 0"
        if self.kind == ">=" and type(self.left) is not Dim:
            return f"{text(self.right)} <= {text(self.left)}"
        sides = self.left, self.right
        if self.kind == "==" and type(self.left) is not Dim:
            sides = self.right, self.left
        return f"{text(sides[0])} {self.kind} {text(sides[1])}"

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def symbols(self) -> frozenset[Dim]:
        """The symbols that it mentions."""
        sides = [x.symbols for x in (self.left, self.right) if type(x) is Dim]
        return frozenset().union(*sides, *[r.symbols for r in self.alternatives])

    def holds(self, env: Mapping[str, Any]) -> Any:
        """Whether it holds for these values of its symbols; of arrays, element by element.

        KeyError where one is missing.
        """
        if self.kind == "or":
            return functools.reduce(operator.or_, [r.holds(env) for r in self.alternatives])
        left, right = _at(self.left, env), _at(self.right, env)
        if self.kind == "%":
            return (right != 0) & (left % (right + (right == 0)) == 0)
        return left == right if self.kind == "==" else left >= right


def _at(x: Scalar, env: Mapping[str, Any]) -> Any:
    return x.evaluate(env) if type(x) is Dim else x


def _operand(x: Scalar) -> str:
    """An operand of `%`: what is more than one number, symbol or call stands in parentheses."""
    atom = x.atom if type(x) is Dim else None
    plain = type(x) is int or atom is not None and atom.kind in ("symbol", "max", "min")
    return text(x) if plain else f"({text(x)})"


# how a chain `a <= b` becomes demands: (kind, left, right, 1 where strict)
_SIGNS = {
    "==": ("==", 0, 1, 0),
    ">=": (">=", 0, 1, 0),
    "<=": (">=", 1, 0, 0),
    ">": (">=", 0, 1, 1),
    "<": (">=", 1, 0, 1),
}


def read(source: str, lookup: Callable[[str], Any]) -> list[list[tuple[str, Any, Any]]]:
    """A requirement as text -> all of these must hold, each a list of alternatives (kind, left,
    right).
    """
    demands = []
    for clause in re.split(r"\band\b", source):
        alternatives = []
        for relation in re.split(r"\bor\b", clause):
            parts = [p.strip() for p in re.split(r"(==|!=|<=|>=|<|>|=)", relation)]
            if len(parts) < 3 or any(sign not in _SIGNS for sign in parts[1::2]):
                examples = "'h % 32 == 0', 'h >= 4' or 'total == past + seq'"
                raise ValueError(f"{source!r} is no requirement such as {examples}")
            sides = [_side(p, source, lookup) for p in parts[::2]]
            chain = []
            for i, sign in enumerate(parts[1::2]):
                kind, a, b, strict = _SIGNS[sign]
                chain.append((kind, sides[i + a], sides[i + b] + strict))
            alternatives.append(chain)
        if len(alternatives) == 1:
            demands += [[relation] for relation in alternatives[0]]
        elif all(len(chain) == 1 for chain in alternatives):
            demands.append([relation for chain in alternatives for relation in chain])
        else:
            raise ValueError(
                f"{source!r}: a chain of comparisons cannot be one of several alternatives"
            )
    return demands


def _side(source: str, whole: str, lookup: Callable[[str], Any]) -> Any:
    unknown: list[str] = []

    def find(name: str) -> Any:
        try:
            found = lookup(name)
        except KeyError:
            found = None
        if found is None:
            unknown.append(name)
        return found

    value = parse(source, find)
    if value is None:
        reason = f"no size is called {unknown[0]!r}" if unknown else f"{source!r} is no formula"
        raise ValueError(f"{whole!r}: {reason}")
    return value
