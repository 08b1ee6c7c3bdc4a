"""The state of a trace's knowledge of sizes, how it decides, and how it takes in what is demanded.

State is a `World` (what symbols stand for) and three lists of what it cannot hold: equations that
give no symbol, inequalities between several, and alternatives. Epochs number the states: what was
simplified in one epoch need not be again. `_facts` is the interface; nothing else should be needed
from here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from . import _decide
from ._dim import Atom, Dim, Scalar, Undecided, symbol, text
from ._error import ShapeError
from ._interval import bottomless
from ._report import Asked, Choice, Demand, Serial, Source
from ._solve import bare, step, threshold, tighter
from ._world import Memo, World

_ROUNDS = 64  # of consequences of one demand


@dataclasses.dataclass
class State:
    """What a branch may change and `restore` brings back."""

    world: World
    epoch: int = 0
    equations: tuple[Demand, ...] = ()
    above: tuple[Demand, ...] = ()
    choices: tuple[Choice, ...] = ()
    asked: Asked = dataclasses.field(default_factory=dict)
    solved: dict[Atom, Source] = dataclasses.field(default_factory=dict)
    joined: frozenset[Dim] = frozenset()
    done: dict[Any, Scalar] = dataclasses.field(default_factory=dict)


class Store:
    """What is known of sizes."""

    def __init__(self) -> None:
        self.node = ""
        self._limits: tuple[Demand, ...] = ()  # of fresh dims: true by what they are
        self._epochs, self._orders = Serial(), Serial()
        self._state = State(World())

    @property
    def epoch(self) -> int:
        """Changes with each change of what symbols stand for."""
        return self._state.epoch

    @property
    def version(self) -> tuple[int, ...]:
        """Changes with each demand that is recorded; back where `restore` drops them."""
        s = self._state
        return s.epoch, len(s.equations), len(s.above), len(s.choices)

    # decisions ------------------------------------------------------------------------------------

    def equal(self, a: Scalar, b: Scalar) -> bool | None:
        """Whether a == b: True at all sizes that are possible, False at none, None where it depends
        or is unknown.
        """
        if a is b:
            return True
        if type(a) is not Dim and type(b) is not Dim:
            return a == b
        memo = self._world.memo.decided
        key = (a, b)
        if key not in memo:
            d = self._world.forward(a) - self._world.forward(b)
            answer = _decide.verdict(d).zero
            if (
                answer is None
                and self._facts_about(d)
                and (self._nonnegative(d - 1) or self._nonnegative(-d - 1))
            ):
                answer = False
            memo[key] = answer
        return memo[key]

    def at_least(self, a: Scalar, b: Scalar) -> bool | None:
        """Whether a >= b, in the same sense."""
        if a is b:
            return True
        if type(a) is not Dim and type(b) is not Dim:
            return a >= b  # type: ignore[operator]
        memo = self._world.memo.decided
        key = (a, b, ">=")
        if key not in memo:
            d = self._world.forward(a) - self._world.forward(b)
            answer = _decide.verdict(d).sign
            if answer is None and self._facts_about(d):
                integral = d.denominator == 1
                answer = (
                    True
                    if self._nonnegative(d)
                    else False
                    if integral and self._nonnegative(-d - 1)
                    else None
                )
            memo[key] = answer
        return memo[key]

    def _facts_about(self, d: Scalar) -> bool:
        return type(d) is Dim and bool(self._state.above or self._limits)

    def _nonnegative(self, d: Any, depth: int = 3, but: Demand | None = None) -> bool:
        """Whether d >= 0 follows from what was demanded, adding inequalities that cancel negative
        terms.
        """
        if type(d) is not Dim or _decide.verdict(d).sign is not None:
            return bool(_decide.verdict(d).sign)
        if not depth:
            return False
        for fact, e in self._known():
            if fact is but or e.symbols.isdisjoint(d.symbols):
                continue
            for mono, k in e.terms.items():
                c = d.terms.get(mono, 0)
                weighs = k < 0 and c < 0 or k > 0 and c > 0 and bottomless(mono)
                if mono and weighs and self._nonnegative(d - e * (Fraction(c) / k), depth - 1, but):
                    return True
        return False

    def _known(self) -> list[tuple[Demand, Dim]]:
        """The inequalities, with what each says to be at least 0 in world symbols."""
        memo, above, limits = self._world.memo, self._state.above, self._limits
        if memo.facts[0] is not above or memo.facts[1] is not limits:
            forward, found = self._world.forward, []
            for fact in (*above, *limits):
                e = forward(fact.left) - forward(fact.right)
                if type(e) is Dim:
                    found.append((fact, e))
            memo.facts = above, limits, found
        return memo.facts[2]

    def simplify(self, d: Scalar) -> Scalar:
        """The shortest known formula for d under what is known; an int, where it can be nothing
        else.
        """
        return self._world.simplify(d) if type(d) is Dim else d

    # recording ------------------------------------------------------------------------------------

    @property
    def _world(self) -> World:
        return self._state.world

    def _source(self, why: str) -> Source:
        return Source(self._orders.next(), self.node, why)

    def _rank(self, d: Scalar) -> tuple[int, int, str]:
        if type(d) is not Dim:
            return 0, 0, ""
        fresh = d.is_symbol and d._symbol() in self._world.fresh
        return (1 if d.is_symbol and not fresh else 2), len(text(d)), text(d)

    def _changed(self) -> None:
        self._state.epoch = self._epochs.next()
        self._world.memo = Memo()

    def _possible(self, a: Scalar, b: Scalar) -> bool:
        """Whether a == b at some sizes, named ones of 0 included, for all that is known."""
        return _decide.verdict(self._world.hard(a) - self._world.hard(b)).zero is not False

    def _clash(self, a: Scalar, b: Scalar, kind: str, what: str, why: str) -> None:
        """What holds at no size >= 1: an error, unless a size of 0 would do."""
        difference = self._world.hard(a) - self._world.hard(b)
        found = _decide.verdict(difference)
        if (found.zero if kind == "==" else found.sign) is False:
            raise ShapeError(because(why, what))
        demand = Demand(a, b, self._source(why))
        if kind == "==":
            self._state.equations += (demand,)
        else:
            self._state.above += (demand,)

    def _equate(self, demand: Demand) -> None:
        """Record left == right, which some sizes meet, and draw its consequences."""
        self._solve(demand)
        self._settle()

    def _solve(self, demand: Demand) -> None:
        source = demand.source
        world = self._world
        for _ in range(_ROUNDS):
            d = world.forward(demand.left) - world.forward(demand.right)
            known = _decide.verdict(d)
            if known.zero:
                return
            if known.zero is False:
                return self._clash(
                    demand.left,
                    demand.right,
                    "==",
                    f"{demand.left} is not {demand.right}",
                    source.why if source else "",
                )
            demand = dataclasses.replace(demand, proved=demand.proved and known.exact)

            def narrow(e: Dim) -> bool:
                return self._bound_by(e, e, source)

            def eliminated(w: Atom, origin: Any) -> None:
                homes = [s._symbol() for s in origin.symbols]
                if source is not None:
                    for h in homes:
                        self._state.solved.setdefault(h, source)
                self._changed()
                self._inherit(w, homes[0] if homes else w, origin)

            homes = {h: world.own(h) for h in [world.home_of(x._symbol()) for x in d.symbols]}
            if not step(world, d, narrow, eliminated):
                break
            for h, own in homes.items():
                now = world.own(h)
                if source and own is not None and now is not None and now[1] != own[1]:
                    self._state.asked[h, "mod"] = (now[1], source)
            self._changed()
        self._state.equations += (dataclasses.replace(demand, tried=self._state.epoch),)

    def _inherit(self, w: Atom, home: Atom, origin: Any) -> None:
        """What was known of an eliminated symbol is now known of what it equals."""
        asked = self._state.asked
        _, least, most = w.args
        hard_least, hard_most = self._world.hard_edges(w)
        for kind, edge, hard in (("least", least, hard_least), ("most", most, hard_most)):
            value, source = asked.pop((home, kind), (None, None))
            if value is not None:
                left, right = (home.dim, value) if kind == "least" else (value, home.dim)
                if self.at_least(left, right) is None:
                    self._raise(Demand(left, right, source))
            if edge is not None:
                sides: Any = [(origin, x) if kind == "least" else (x, origin) for x in (edge, hard)]
                if self.at_least(*sides[0]) is None:
                    self._raise(
                        Demand(*sides[0], source=None, hard=None if hard is None else sides[1])
                    )

    def _raise(self, demand: Demand) -> None:
        """Record left >= right: a bound of one symbol, or an inequality between several."""
        world = self._world
        d = world.forward(demand.left) - world.forward(demand.right)
        d = bare(d) if type(d) is Dim else d
        if type(d) is Dim and len(d.symbols) == 1:
            left, right = demand.hard or (demand.left, demand.right)
            hard = world.forward(left) - world.forward(right)
            hard = bare(hard) if type(hard) is Dim else hard
            if self._bound_by(d, hard, demand.source):
                return
        self._state.above += (dataclasses.replace(demand, proved=_decide.verdict(d).exact),)
        self._changed()

    def _bound_by(self, d: Dim, hard: Any, source: Source | None) -> bool:
        """Raise the least, or lower the greatest value of the one symbol of d by d >= 0; whether
        that changed it.
        """
        world = self._world
        (s,) = d.symbols
        w = s._symbol()
        name, least, most = w.args
        edges = world.hard_edges(w)
        try:
            edge = threshold(d, least, most)
            hard_edge = threshold(hard, *edges) if type(hard) is Dim and hard.symbols else None
        except (Undecided, ZeroDivisionError):
            return False
        if edge is None:
            return False
        kind, k = edge
        old = least if kind == "least" else most
        if old is not None and (k <= old if kind == "least" else k >= old):
            return False
        least, most = (k, most) if kind == "least" else (least, k)
        if hard_edge is not None and hard_edge[0] == kind:
            edges = tighter(edges, *hard_edge)
        home = world.home_of(w)
        if least is not None and most is not None and least > most:
            low, high = edges
            if low is not None and high is not None and low > high and not world.soft:
                what = f"no size {home.args[0]!r} meets all requirements"
                raise ShapeError(because(source.why if source else "", what))
            return False
        if source is not None:
            own = world.own(home)
            if own is not None and own[0] is w:
                self._state.asked[(home, kind)] = (own[1] * k + own[2], source)
        world.narrow(w, least, most, *edges)
        if least is not None and least == most and edges == (least, most):
            new = symbol(name, least, most)._symbol()
            if source is not None:
                self._state.solved.setdefault(home, source)
            self._state.asked.pop((home, "least"), None)
            self._state.asked.pop((home, "most"), None)
            world.assign(new, least)
        self._changed()
        return True

    def _choose(
        self, pairs: list[tuple[Scalar, Scalar]], why: str, kinds: list[str] | None = None
    ) -> None:
        """Record that one of several demands holds."""
        kinds = kinds or ["=="] * len(pairs)
        demands = tuple(
            [Demand(a, b, None, kind=k) for (a, b), k in zip(pairs, kinds, strict=True)]
        )
        self._state.choices += ((demands, self._source(why)),)
        self._settle()

    def _holds(self, demand: Demand) -> bool | None:
        decide = self.equal if demand.kind == "==" else self.at_least
        return decide(demand.left, demand.right)

    def _settle(self) -> None:
        """Use again, in the new state, what could not be used up before."""
        state = self._state
        for _ in range(_ROUNDS):
            epoch = state.epoch
            equations, state.equations = state.equations, ()
            if state.world.rules:
                state.world.rules = {}
                state.world.memo = Memo()
            for demand in equations:
                if demand.tried == state.epoch:
                    state.equations += (demand,)
                else:
                    self._solve(demand)
            for demand in state.equations:
                d = state.world.forward(demand.left) - state.world.forward(demand.right)
                if type(d) is Dim and _decide.verdict(d).zero is None:
                    state.world.rule(d * d.denominator)  # type: ignore[arg-type]
            for demand in state.above:
                if self._is_false(dataclasses.replace(demand, kind=">=")):
                    raise ShapeError(
                        because(
                            demand.source.why if demand.source else "",
                            f"{demand.left} is less than {demand.right}",
                        )
                    )
            for choice in list(state.choices):
                demands, source = choice
                left = [d for d in demands if self._holds(d) is not False]
                if len(left) == 1 and len(demands) > 1:
                    state.choices = tuple([c for c in state.choices if c is not choice])
                    if self._holds(left[0]) is None:
                        only = dataclasses.replace(left[0], source=source)
                        others = [d for d in demands if d is not left[0]]
                        # where a size of 0 leaves another choice, this one is no ground for a clash
                        state.world.soft |= not all(map(self._is_false, others))
                        self._solve(only) if only.kind == "==" else self._raise(only)
            if state.epoch == epoch:
                return

    def _is_false(self, demand: Demand) -> bool:
        left, right = self._world.hard(demand.left), self._world.hard(demand.right)
        if demand.hard is not None:
            left, right = map(self._world.hard, demand.hard)
        found = _decide.verdict(left - right)
        return (found.zero if demand.kind == "==" else found.sign) is False

    # branches -------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """The present state, for `restore`."""
        s = self._state
        return dataclasses.replace(
            s,
            world=s.world.copy(),
            asked=s.asked.copy(),
            solved=s.solved.copy(),
            done=s.done.copy(),
        )

    def restore(self, snap: Any) -> None:
        """Forget what was demanded since; fresh dims minted since stay valid."""
        self._state = snap
        self._state = self.snapshot()

    @contextlib.contextmanager
    def tentative(self) -> Iterator[None]:
        """What is demanded inside holds only there."""
        snap = self.snapshot()
        try:
            yield
        finally:
            self.restore(snap)


def because(why: str, what: str) -> str:
    return f"{why}: {what}" if why else what
