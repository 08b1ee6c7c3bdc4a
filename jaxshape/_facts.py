"""What one trace knows about its sizes, and what it demands of them.

A demand (`same`, `least`, `divisible`, `broadcast`) that holds at all sizes costs nothing; one that
holds at none is a `ShapeError`; any other is recorded as a requirement and used from then on. Sound
before precise: what is claimed holds for every input on which the model runs. Claims are about
named sizes >= 1 and counts >= 0; a named size may be 0 when the model is run, so a clash counts as
proved only if it is one at 0 too.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._dim import (
    Atom,
    Dim,
    Scalar,
    Undecided,
    maximum,
    minimum,
    mod,
    scalar,
)
from ._error import ShapeError
from ._evaluate import rebuild
from ._mint import Mint
from ._rational import Float
from ._report import Demand, report
from ._require import Requirement as Requirement
from ._require import read
from ._store import because


class Facts(Mint):
    """The requirements, bounds and decisions of one trace."""

    def simplify(self, d: Scalar) -> Scalar:
        """The shortest known formula for d; an int, where it can be nothing else."""
        d = super().simplify(d)
        if type(d) is not Dim or not self._facts_about(d):
            return d
        memo: dict[Any, Any] = self._world.memo.decided
        if (d, "extremes") not in memo:
            found = d
            for atom in sorted(extremes(d), key=lambda a: a.depth):
                left = self._undominated(atom)
                if len(left) < len(atom.args):
                    extreme = maximum if atom.kind == "max" else minimum
                    found = rebuild(found, {atom: extreme(*left)}, {})
            memo[d, "extremes"] = found if found is d else self.simplify(found)
        return memo[d, "extremes"]

    def _undominated(self, atom: Atom) -> list[Scalar]:
        """The members of an extreme that may be it, given what was demanded between sizes."""
        left = list(atom.args)
        for x in atom.args:
            rest = [y for y in left if y is not x]
            above = atom.kind == "max"
            if rest and any(self.at_least(*((y, x) if above else (x, y))) for y in rest):
                left = rest
        return left

    # demands --------------------------------------------------------------------------------------

    def same(self, a: Scalar, b: Scalar, why: str = "") -> Scalar:
        """Demand a == b; the simpler of the two."""
        if a is b:
            return self.simplify(a)
        known = self.equal(a, b)
        if known is None:
            if not self._among(a, b, why) and not self._among(b, a, why):
                self._equate(Demand(a, b, self._source(why)))
        elif not known:
            self._clash(a, b, "==", f"{a} is not {b}", why)
        return min(self.simplify(a), self.simplify(b), key=self._rank)

    def _among(self, a: Scalar, b: Scalar, why: str) -> bool:
        """Demand a == b where a is an extreme of b and others: an order between them; whether it is
        that.
        """
        atom = a.atom if type(a) is Dim else None
        if atom is None or atom.kind not in ("max", "min") or b not in atom.args:
            return False
        for other in atom.args:
            if other is not b and other != b:
                self.least(*((b, other) if atom.kind == "max" else (other, b)), why)
        return True

    def least(self, d: Scalar, k: Scalar, why: str = "") -> None:
        """Demand d >= k."""
        known = self.at_least(d, k)
        if known is None:
            self._raise(Demand(d, k, self._source(why)))
            self._settle()
        elif not known:
            self._clash(d, k, ">=", f"{d} is less than {k}", why)

    def divisible(self, d: Scalar, k: Scalar, why: str = "") -> None:
        """Demand d % k == 0."""
        if type(k) is not Dim and k == 0:
            raise ShapeError(because(why, f"{d} is to be divided by 0"))
        rest = mod(d, k)
        known = self.equal(rest, 0)
        if known is None:
            self._equate(Demand(rest, 0, self._source(why), divides=(d, k)))
        elif not known:
            self._clash(rest, 0, "==", f"{d} is no multiple of {k}", why)

    def broadcast(self, *dims: Scalar, why: str = "") -> Scalar:
        """Demand that sizes of one axis broadcast as NumPy's do; the size of the result."""
        if len(dims) == 2 and dims[0] is dims[1] and type(dims[0]) is Dim:
            return self.simplify(dims[0])
        key = (self._state.epoch, *dims)
        done = self._state.done
        if key not in done:
            sizes = list(dict.fromkeys(d for d in map(self.simplify, dims) if d != 1))
            sizes.sort(key=lambda d: 0 if type(d) is not Dim else 1 if self.at_least(d, 2) else 2)
            # simplified sizes prove a clash only if they are right at 0 too
            sure = not self._world.soft or all(type(d) is not Dim for d in dims)
            result: Scalar = sizes[0] if sizes else 1
            for d in sizes[1:]:
                result = self._pair(self.simplify(result), self.simplify(d), why, sure)
            self._state.done[key] = result
            return result
        return done[key]

    def _pair(self, a: Scalar, b: Scalar, why: str, sure: bool) -> Scalar:
        known = self.equal(a, b)
        if known:
            return min(a, b, key=self._rank)
        one_a, one_b = self.equal(a, 1), self.equal(b, 1)
        if one_a or one_b:
            return b if one_a else a
        alike, a_one, b_one = (a, b), (a, 1), (b, 1)
        if one_a is False and one_b is False:
            if known is None:
                # neither is 1, named sizes of 0 aside
                self._world.soft |= self._possible(*a_one) or self._possible(*b_one)
                return self.same(a, b, why)
            if sure and not any(self._possible(*pair) for pair in (alike, a_one, b_one)):
                raise ShapeError(because(why, f"{a} does not broadcast with {b}"))
            self._choose([alike, a_one, b_one], why)
            return min(a, b, key=self._rank)
        for x, y in ((a, b), (b, a)):
            if type(x) is Dim and x in self._state.joined and y in x._key().args:
                return x  # what y may be was demanded when x was made
        if self._forced(a, b):
            return self.same(a, b, why)
        for x, y in ((a, b), (b, a)):
            # y is the result where it is at least 2, or where it is at least x and x at least 1
            if self.at_least(y, 2) or self.at_least(y, x) and self.at_least(x, 1):
                self._choose([alike, a_one, b_one], why)
                return self.simplify(y)
        positive = self.at_least(a, 1) and self.at_least(b, 1)
        self._choose([alike, a_one, b_one], why)
        a, b = self.simplify(a), self.simplify(b)
        try:
            least, result = minimum(a, b), maximum(a, b)
        except Undecided:  # too many sizes for one formula
            return self.count("broadcast", int(bool(positive)))
        if not positive:
            return self.count("broadcast", least, result)
        if type(result) is Dim and result.atom is not None:
            self._state.joined |= {result}
        return result

    def _forced(self, a: Scalar, b: Scalar) -> bool:
        """Whether a == 1 forces b == 1 and the other way round: then nothing is broadcast."""
        if type(a) is not Dim or type(b) is not Dim or a.symbols.isdisjoint(b.symbols):
            return False
        for x, y in ((a, b), (b, a)):
            with self.tentative():
                try:
                    self.same(x, 1)
                    if not self.equal(y, 1):
                        return False
                except ShapeError:
                    pass
        return True

    def assume(self, source: str, lookup: Callable[[str], Any]) -> None:
        """Demand what a caller states, such as 'h % 32 == 0', 'h <= 512', 'total == past + seq', 'a
        == b or a == 1'.
        """
        node, self.node = self.node, ""
        try:
            for alternatives in read(source, lookup):
                if len(alternatives) == 1:
                    kind, left, right = alternatives[0]
                    self.same(left, right, "given") if kind == "==" else self.least(
                        left, right, "given"
                    )
                else:
                    self._choose(
                        [(left, right) for _, left, right in alternatives],
                        "given",
                        [k for k, *_ in alternatives],
                    )
        finally:
            self.node = node

    # results --------------------------------------------------------------------------------------

    def report(self) -> list[Requirement]:
        """The requirements, simplified by each other, without those that others imply, in the order
        of their demand.
        """
        s = self._state

        def implied(demand: Demand) -> bool:
            d = s.world.forward(demand.left) - s.world.forward(demand.right)
            return self._nonnegative(d, but=demand)

        return report(
            s.world, s.equations, s.above, s.choices, s.asked, s.solved, implied, self._holds
        )

    def broken(self, env: Mapping[str, int]) -> list[Requirement]:
        """The requirements that these sizes violate; one about a size that is not given is passed
        over.
        """
        found = []
        for requirement in self.report():
            try:
                held = requirement.holds(env)
            except KeyError:
                continue
            except ZeroDivisionError:
                held = False
            if not held:
                found.append(requirement)
        return found


def extremes(d: Dim) -> set[Atom]:
    """The maxima and minima in a formula, at any depth."""
    found: set[Atom] = set()
    for atom in d.atoms():
        if atom.kind != "symbol":
            if atom.kind in ("max", "min"):
                found.add(atom)
            for x in atom.args:
                if type(x) is Dim:
                    found |= extremes(x)
    return found


# the trace under way ------------------------------------------------------------------------------

_current: contextvars.ContextVar[Facts | None] = contextvars.ContextVar("facts", default=None)


def current() -> Facts | None:
    """The facts of the trace under way, if one is."""
    return _current.get()


@contextlib.contextmanager
def using(facts: Facts) -> Iterator[Facts]:
    """Make facts the current ones."""
    token = _current.set(facts)
    try:
        yield facts
    finally:
        _current.reset(token)


def _asked() -> Facts:
    """Whom to ask; without a trace nothing is known but what symbols are."""
    return _current.get() or Facts()


def _told() -> Facts:
    facts = _current.get()
    if facts is None:
        raise Undecided("a demand on symbolic sizes outside any trace")
    return facts


def same(a: Any, b: Any, why: str = "") -> Any:
    """Demand a == b; the simpler of the two."""
    if a is b or type(a) is int and a == b:
        return simplify(a)
    if type(a) is not Dim and type(b) is not Dim:
        if a != b:
            raise ShapeError(because(why, f"{a} is not {b}"))
        return scalar(a)
    return _told().same(a, b, why)


def least(d: Any, k: Any, why: str = "") -> None:
    """Demand d >= k."""
    if type(d) is not Dim and type(k) is not Dim:
        if d < k:
            raise ShapeError(because(why, f"{d} is less than {k}"))
    else:
        _told().least(d, k, why)


def divisible(d: Any, k: Any, why: str = "") -> None:
    """Demand d % k == 0."""
    if type(d) is not Dim and type(k) is not Dim:
        if k == 0 or d % k:
            raise ShapeError(because(why, f"{d} is no multiple of {k}"))
    else:
        _told().divisible(d, k, why)


def broadcast(*dims: Any, why: str = "") -> Any:
    """Demand that sizes of one axis broadcast together; the size of the result."""
    if any(type(d) is Dim for d in dims):
        others = {d for d in dims if type(d) is Dim or d != 1}
        return simplify(others.pop()) if len(others) == 1 else _told().broadcast(*dims, why=why)
    result = 1
    for d in dims:
        if d != 1 != result and d != result:
            raise ShapeError(because(why, f"{result} does not broadcast with {d}"))
        result = result if d == 1 else d
    return result


def equal(a: Any, b: Any) -> bool | None:
    """Whether a == b: at all sizes that are possible, at none, or undecided (None)."""
    return a == b if type(a) is not Dim and type(b) is not Dim else _asked().equal(a, b)


def at_least(a: Any, b: Any) -> bool | None:
    """Whether a >= b, in the same sense."""
    return a >= b if type(a) is not Dim and type(b) is not Dim else _asked().at_least(a, b)


def simplify(d: Any) -> Any:
    """The shortest known formula for d."""
    facts = _current.get()
    return d if facts is None or type(d) is not Dim else facts.simplify(d)


def count(stem: str, least: Any = 0, most: Any = None) -> Any:
    """A fresh size between two bounds."""
    return _told().count(stem, least, most)


def element(stem: str) -> Dim:
    """A fresh integer of which nothing is known."""
    return _told().element(stem)


def real() -> Float:
    """A float of which nothing is known, where such may stand beside what is known."""
    facts = _current.get()
    if facts is None or not facts.floats:
        raise Undecided("a float that no formula gives")
    return Float()


# kept by the engine -------------------------------------------------------------------------------


def bound(d: Any) -> tuple[int | None, Any]:
    """The least and the greatest value of a size, as far as known."""
    return (d, d) if type(d) is not Dim else _asked().bound(d)
