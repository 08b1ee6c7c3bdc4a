"""From what a trace has come to know, back to the shortest list of what it demands.

Facts about single symbols are read off what they stand for, so that folded congruences, raised
bounds and solved equations appear once, in their final form. The rest is simplified by those, and
dropped where it holds anyway.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from ._decide import verdict
from ._dim import Atom, Dim, Scalar, make, text
from ._evaluate import construct
from ._fit import fit
from ._require import Requirement
from ._solve import primitive
from ._world import World


class Serial:
    """Numbers of which none is given twice, to whoever shares this; unlike an iterator it may be
    copied.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


@dataclasses.dataclass(frozen=True)
class Source:
    """When, where and why something was demanded."""

    order: int
    node: str
    why: str


@dataclasses.dataclass(frozen=True)
class Demand:
    """`left kind right`, in symbols of the model. No source: true by what fresh dims are, so not to
    be reported.

    `hard` replaces both sides where named sizes may be 0; `divides` is (d, k) where the demand is d
    % k == 0.
    """

    left: Scalar
    right: Scalar
    source: Source | None
    kind: str = "=="
    divides: tuple[Scalar, Scalar] | None = None
    hard: tuple[Scalar, Scalar] | None = None
    proved: bool = True
    tried: int = -1  # the epoch in which it gave no more


Choice = tuple[tuple[Demand, ...], Source]
Asked = dict[tuple[Atom, str], tuple[int, Source]]


def report(
    world: World,
    equations: Iterable[Demand],
    above: Iterable[Demand],
    choices: Iterable[Choice],
    asked: Asked,
    solved: dict[Atom, Source],
    implied: Callable[[Demand], bool],
    holds: Callable[[Demand], bool | None],
) -> list[Requirement]:
    """See `Facts.report`."""
    found: list[tuple[float, Requirement]] = []

    def add(
        source: Source | None,
        kind: str,
        left: Any = 0,
        right: Any = 0,
        proved: Any = True,
        **more: Any,
    ) -> None:
        node, why = (source.node, source.why) if source else ("", "")
        made = Requirement(kind, left, right, node=node, why=why, proved=proved, **more)
        found.append((source.order if source else math.inf, made))

    def plain(d: Scalar, named: bool = True) -> Scalar:
        return world._integral(world.back(fit(world.solved(d)), named))

    for t in world.map:
        own = world.own(t)
        if own is not None:
            _own(t, *own, asked, solved, add)
        elif t not in world.fresh:
            sides = _positive(t.dim, plain(t.dim, named=False))
            both = [s for s in sides if type(s) is Dim and s.is_symbol]
            add(solved.get(t), "==", *(sorted(both, key=text) if len(both) == 2 else sides))
    for e in equations:
        d: Any = world.solved(e.left - e.right)
        if e.source is None or verdict(d).zero:
            continue
        if e.divides is not None:
            add(e.source, "%", *_divided(world, d, e.divides, plain), e.proved)
        else:
            alone = type(d) is Dim and len(d.terms) == 1
            sides = (plain(_monic(d)), 0) if alone else _equated(plain(e.left), plain(e.right))
            add(e.source, "==", *sides, e.proved)
    for e in above:
        d = world.forward(e.left) - world.forward(e.right)
        if e.source is not None and not verdict(d).sign and not implied(e):
            add(e.source, ">=", *_compared(plain(e.left - e.right)), e.proved)
    for demands, source in choices:
        answers = [holds(d) for d in demands]
        if True not in answers:
            open_ones = [d for d, answer in zip(demands, answers, strict=True) if answer is None]
            alternatives = tuple(
                [Requirement(d.kind, plain(d.left), plain(d.right)) for d in open_ones or demands]
            )
            add(source, "or", alternatives=alternatives)
    found.sort(key=lambda item: item[0])
    made = list({str(r): r for _, r in reversed(found)}.values())[::-1]
    return [r for r in made if not any(_follows(r, other) for other in made if other is not r)]


def _follows(r: Requirement, choice: Requirement) -> bool:
    """Whether each alternative says by itself that r holds, which is an inequality."""

    def settles(option: Requirement) -> bool:
        for s, value in ((option.left, option.right), (option.right, option.left)):
            if option.kind == "==" and type(s) is Dim and s.is_symbol:
                d: Any = r.left - r.right
                d = d.substitute({s: value}) if type(d) is Dim else d
                if verdict(d).sign:
                    return True
        return False

    return r.kind == ">=" and choice.kind == "or" and all(map(settles, choice.alternatives))


def _monic(d: Dim) -> Scalar:
    """The one term of d, without its coefficient."""
    return make({mono: 1 for mono in primitive(d)[0].terms})


def _equated(left: Scalar, right: Scalar) -> tuple[Scalar, Scalar]:
    """The sides of left == right, without a common factor or minus signs before everything."""
    sides: Any = [x.terms.values() if type(x) is Dim else (x,) for x in (left, right)]
    terms = [k for side in sides for k in side if k]
    if all(type(k) is int for k in terms) and terms:
        factor = math.gcd(*terms) * (-1 if max(terms) < 0 else 1)
        left, right = left * Fraction(1, factor), right * Fraction(1, factor)
    return left, right


def _compared(d: Scalar) -> tuple[Scalar, Scalar]:
    """The sides of d >= 0, without minus signs and without numbers that decide nothing."""
    if type(d) is not Dim:
        return d, 0
    left = make({m: k for m, k in d.terms.items() if k > 0})
    right = left - d
    if type(left) is Dim and left.constant and type(right) is not Dim:
        left, right = left - left.constant, right - left.constant
    atom = left.atom if type(left) is Dim else None
    if atom is not None and atom.kind in ("max", "min") and type(right) is int:
        biggest = atom.kind == "max"  # a number that is too small, or that is no obstacle
        args = [x for x in atom.args if type(x) is not int or (x >= right) is biggest]
        left = construct(atom.kind, args) if args else left
    return left, right


def _positive(t: Dim, e: Scalar) -> tuple[Scalar, Scalar]:
    """The sides of t == e, without minus signs before symbols."""
    minus = make({m: k for m, k in e.terms.items() if m and k < 0}) if type(e) is Dim else 0
    return t - minus, e - minus


def _own(
    t: Atom,
    k: Atom,
    m: int,
    r: int,
    asked: Asked,
    solved: dict[Atom, Source],
    add: Callable[..., None],
) -> None:
    """What is known of a symbol that stands for m*k + r: its residue, least and greatest value."""
    if m > 1:
        source = asked[t, "mod"][1] if (t, "mod") in asked else solved.get(t)
        add(source, "%", t.dim - r, m)
    least, most = k.args[1:]
    natural = t.args[1] and -((r - t.args[1]) // m)
    if (t, "least") in asked and least is not None and (natural is None or least > natural):
        value, source = asked[t, "least"]
        if m * (least - 1) + r < value:  # else another requirement says more
            add(source, ">=", t.dim, m * least + r)
    if (t, "most") in asked and most is not None:
        value, source = asked[t, "most"]
        if m * (most + 1) + r > value:
            add(source, ">=", m * most + r, t.dim)


def _divided(
    world: World, rest: Any, pair: tuple[Scalar, Scalar], plain: Callable[..., Scalar]
) -> tuple[Scalar, Scalar]:
    """The operands of a remainder that must be 0, reduced where it is one remainder still."""
    if type(rest) is Dim and len(rest.terms) == 1:
        ((mono, _),) = rest.terms.items()
        if len(mono) == 1 and mono[0].kind == "%":
            a, m = mono[0].args
            return world._integral(world.back(a)), world._integral(world.back(m))
    return plain(pair[0]), plain(pair[1])
