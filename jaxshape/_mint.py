"""Fresh sizes: what a trace mints for what only a run can tell, each with a name of its own and
bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from ._dim import Dim, Scalar, interval, lower, mangled, minimum, symbol
from ._report import Demand
from ._solve import numeric
from ._store import Store

_MOST = 1 << 63  # a bound beyond any size says nothing


class Mint(Store):
    """A store that makes the sizes it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.minted = 0
        self.floats = False  # whether a float that no formula gives may stand in a host array
        self.floor = 1  # the least value of the sizes that inputs have
        self.walks: list[Any] = []  # of subgraphs and functions: (graph, scope, path)
        self.definitions: dict[Dim, Dim] = {}  # fresh name -> the long formula it stands for
        self._defined: dict[Dim, Dim] = {}
        self._most: dict[Dim, Scalar] = {}
        self._names: set[str] = set()
        self._user: set[str] = set()
        self._authored: dict[str, Dim] = {}
        self.forks: list[Any] = []  # conditions worth trying both ways, see `_fork`

    def named(self, name: str) -> Any:
        """The size that the user calls so."""
        return symbol(name, self.floor)

    def reserve(self, names: Iterable[str]) -> None:
        """Names of the user: fresh dims will not be called that."""
        names = list(names)
        self._user.update(names)
        self._names.update(names)
        self._names.update(map(mangled, names))

    def count(self, stem: str, least: Scalar = 0, most: Scalar | None = None) -> Any:
        """A fresh size between `least` and `most`; the number itself where only one is possible."""
        low = max(0, numeric(lower(self._world.forward(least))) or 0)
        high = None if most is None else numeric(interval(self._world.forward(most))[1])
        if high is not None and high <= low and type(most) is not Dim:
            return low
        made = self._mint(stem, low, high)
        if type(least) is Dim:
            self._limits += (Demand(made, least, None),)
        if type(most) is Dim:
            self._limits += (Demand(most, made, None),)
            self._most[made] = most
        return made

    def element(self, stem: str) -> Dim:
        """A fresh integer of which nothing is known."""
        return self._mint(stem, None, None)

    def define(self, d: Dim, stem: str) -> Dim:
        """A fresh name for a formula too long to be shown; `definitions` keeps the formula."""
        if d not in self._defined:
            world = self._world.forward(d)
            low, high = numeric(lower(world)), numeric(interval(world)[1])
            made = self._defined[d] = self._mint(stem, low, high)
            self.definitions[made] = d
        return self._defined[d]

    def _mint(self, stem: str, least: int | None, most: int | None) -> Dim:
        stem = mangled(stem) if stem else "n"
        name = next(
            n
            for n in itertools.chain([stem], (f"{stem}_{i}" for i in itertools.count(1)))
            if n not in self._names
        )
        self._names.add(name)
        self.minted += 1
        if least is not None:
            least = min(least, _MOST)
        made = symbol(name, least, None if most is None or most > _MOST else most)
        self._world.fresh.add(made._symbol())
        return made

    def reserved(self, name: str) -> bool:
        """Whether a name is one of the user's."""
        return name in self._user

    def authored(self, name: str) -> Dim:
        """The fresh size that a name means which a file declares of a value of its own."""
        if name not in self._authored:
            made = self._authored[name] = self._mint(name, 0, None)
            self._world.authored.add(made._symbol())
        return self._authored[name]

    def is_fresh(self, d: Dim) -> bool:
        """Whether a symbol was minted here, not named by the user."""
        return d._symbol() in self._world.fresh

    def fresh(self) -> list[Dim]:
        """The symbols minted so far."""
        return [atom.dim for atom in self._world.fresh]

    def adopt(self, dims: Iterable[Dim]) -> None:
        """Count symbols that were minted in a branch among the minted ones."""
        self._world.fresh.update(d._symbol() for d in dims)

    def bind(self, d: Dim, value: Scalar) -> bool:
        """Take a fresh symbol to be `value`, without demanding it; whether that is possible."""
        if self.equal(d, value) is False:
            return False
        self._solve(Demand(d, value, None))
        return True

    def bound(self, d: Scalar) -> tuple[int | None, Scalar | None]:
        """The least and the greatest value of d, as far as known; the latter may be a formula."""
        if type(d) is not Dim:
            return d, d  # type: ignore[return-value]
        world: Any = self._world.forward(d)
        low, high = numeric(lower(world)), numeric(-lower(-world))
        for fact in self._state.above if high is None else ():
            if type(fact.left) is int and self.at_least(fact.left, d):
                high = fact.left if high is None else min(high, fact.left)
        if high is None and self._most:
            known: dict[Any, list[Scalar]] = {}  # a size may stand for several that were minted
            for made, most in self._most.items():
                known.setdefault(self.simplify(made), []).append(most)
            tops: Any = self.simplify(d)
            for _ in range(8):
                symbols = tops.symbols if type(tops) is Dim else ()
                limits = {s: minimum(*known[s]) for s in symbols if s in known}
                if not limits:
                    break
                tops = tops.substitute(limits)
            atom = tops.atom if type(tops) is Dim else None
            least_of = atom.args if atom is not None and atom.kind == "min" else (tops,)
            if tops is not d and all(self.at_least(top, d) for top in least_of):
                return low, self.simplify(tops)
        return low, high
