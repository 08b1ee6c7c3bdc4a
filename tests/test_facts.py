"""What is known about sizes: never wrong on any sizes that meet the demands, and listed in full."""

from __future__ import annotations

import random
from typing import Any

import pytest
from random_dims import C, H, W, formula, value

from jaxshape import _facts
from jaxshape._dim import Dim, Undecided, floordiv, maximum, minimum, symbol
from jaxshape._error import ShapeError
from jaxshape._facts import Facts, current, using

PAST, SEQ, TOTAL, B, N = (symbol(name) for name in ("past", "seq", "total", "b", "n"))


def demand(facts: Facts, *demands: tuple[Any, ...]) -> Facts:
    for name, *args in demands:
        getattr(facts, name)(*args)
    return facts


def listed(facts: Facts) -> list[str]:
    return [str(r) for r in facts.report()]


@pytest.mark.parametrize(
    ("demands", "requirements", "simplified"),
    [
        (
            [("same", 2 * (H // 2), H)],
            ["h % 2 == 0"],
            {2 * (H // 2): "h", (H - 1) // 2 + 1: "h//2"},
        ),
        ([("divisible", H, 4), ("divisible", H, 6)], ["h % 12 == 0"], {H // 3 * 3: "h"}),
        ([("divisible", 6 * H, 4)], ["h % 2 == 0"], {}),
        ([("divisible", H - 2, 4)], ["(h - 2) % 4 == 0"], {H // 4: "(h - 2)//4", H % 4: "2"}),
        ([("divisible", H + W, 2)], ["(h + w) % 2 == 0"], {2 * ((H + W) // 2): "h + w"}),
        ([("divisible", B * SEQ, 12)], ["(b*seq) % 12 == 0"], {12 * ((B * SEQ) // 12): "b*seq"}),
        (
            [("same", PAST + SEQ, TOTAL)],
            ["total == past + seq"],
            {B * PAST + B * SEQ: "b*total", PAST + SEQ + 1: "total + 1", TOTAL - SEQ: "past"},
        ),
        (
            [("same", PAST + SEQ, TOTAL), ("least", 1024, PAST + SEQ)],
            ["total == past + seq", "total <= 1024"],
            {},
        ),
        ([("same", H, W)], ["h == w"], {W: "h", maximum(H, W): "h"}),
        ([("same", B * H, B * W)], ["h == w"], {}),
        ([("same", H, W), ("same", W, 7)], ["h == 7", "w == 7"], {H * W: "49"}),
        ([("same", 2 * H, 3 * W)], ["h % 3 == 0", "w == 2*(h//3)"], {2 * H - 3 * W: "0"}),
        ([("same", H // 2, 7)], ["h >= 14", "h <= 15"], {H // 2: "7"}),
        ([("same", H * H, 196)], ["h == 14"], {H: "14"}),
        ([("same", PAST + SEQ, 8)], ["past + seq == 8"], {}),
        ([("same", (H - 1) // 2 + 1, N)], ["n == (h - 1)//2 + 1"], {(H - 1) // 2 + 1: "n"}),
        ([("same", maximum(H, 4), H)], ["h >= 4"], {maximum(H, 3): "h"}),
        ([("least", H, 4)], ["h >= 4"], {maximum(H, 4): "h", 3 // H: "0"}),
        ([("least", H // 2, 3)], ["h >= 6"], {}),
        ([("least", H, 4), ("least", H, 3), ("least", H, 9)], ["h >= 9"], {}),
        ([("least", H, 4), ("divisible", H, 8)], ["h % 8 == 0"], {}),
        ([("least", H, 4), ("same", H, W + 1)], ["h == w + 1", "w >= 3"], {}),
        ([("least", H, 1), ("least", H + W, 2)], [], {}),
        ([("same", H, 2 * H)], ["h == 0"], {}),
        ([("broadcast", H, W)], ["h == w or h == 1 or w == 1"], {}),
        ([("broadcast", H, W), ("same", H, W)], ["h == w"], {}),
        (
            [("broadcast", H, W), ("least", H, 2), ("least", W, 2)],
            ["h >= 2", "h == w"],
            {},
        ),
        ([("broadcast", H, 8)], ["h == 8 or h == 1"], {}),
    ],
)
def test_requirements(demands: Any, requirements: list[str], simplified: dict[Dim, str]) -> None:
    facts = demand(Facts(), *demands)
    assert sorted(listed(facts)) == sorted(requirements)
    for d, expected in simplified.items():
        assert str(facts.simplify(d)) == expected
        assert facts.simplify(facts.simplify(d)) is facts.simplify(d) or expected.isdigit()


@pytest.mark.parametrize(
    ("demands", "message"),
    [
        ([("same", 3, 4, "channels")], "channels: 3 is not 4"),
        ([("same", H, H + 1)], "h is not h \\+ 1"),
        ([("same", 2 * H, 2 * W + 1)], "2\\*h is not"),
        ([("least", 3, H + 5, "k")], "k: 3 is less than h \\+ 5"),
        ([("least", H, 5), ("same", H, 3)], "is not 3"),
        ([("least", H, 5), ("least", 4, H)], "less"),
        ([("divisible", 2 * H + 1, 2)], "2\\*h \\+ 1 is no multiple of 2"),
        ([("divisible", H, 0)], "divided by 0"),
        ([("divisible", H, 4), ("same", H, W), ("same", W, 6)], "w is not 6"),
        ([("broadcast", 3, 4)], "3 does not broadcast with 4"),
        ([("broadcast", 0, 3)], "does not broadcast"),
        ([("broadcast", H + 2, H + 3)], "does not broadcast"),
        ([("same", H * H, 2)], "is not 2"),
    ],
)
def test_clash(demands: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        demand(Facts(), *demands)


@pytest.mark.parametrize(
    "demands",
    [
        [("same", H, 2 * H)],  # h == 0
        [("same", H - H // 5, 0)],
        [("same", PAST + SEQ, SEQ)],
        [("least", 3 * H, 5 * H)],
        [("broadcast", H + 1, H + 2)],  # 1 and 2
        [("same", H, H * H), ("divisible", H // 6 + H - 3, 3)],  # h may be 0, not only 1
    ],
)
def test_what_holds_at_zero_alone_is_no_clash(demands: Any) -> None:
    demand(Facts(), *demands)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 1), "1"),
        ((0, 1), "0"),
        ((1, H, 1), "h"),
        ((H, H), "h"),
        ((H, 8), "8"),
        ((PAST + SEQ, N), "past + seq"),
        ((H, W), "max(h, w)"),
        ((H, W, maximum(H, W)), "max(h, w)"),
        ((minimum(H, W), W), "w"),
        ((C, 1), "c"),
        ((C, 8), "8"),
        ((C, H), "broadcast"),
        ((C + 1, 2 * C + 1), "1"),  # either is 1 only where the other is
        (tuple(symbol(f"n{i}") for i in range(4)), "max(n0, n1, n2, n3)"),
    ],
)
def test_broadcast(sizes: Any, expected: str) -> None:
    facts = Facts()
    result = facts.broadcast(*sizes)
    assert str(result) == expected
    assert facts.broadcast(*sizes) is result  # and nothing new is demanded
    assert facts.broadcast(result, result) is result


def test_broadcast_of_layers_stays_small() -> None:
    facts = Facts()
    x: Any = SEQ
    for _ in range(50):
        x = facts.broadcast(facts.broadcast(x, SEQ), 1, N)
    assert str(x) == "max(n, seq)" and len(facts.report()) == 1


def test_encoder_and_decoder() -> None:
    facts = Facts()
    for side in (H, W):
        sizes = [side]
        for _ in range(5):
            sizes.append((sizes[-1] - 1) // 2 + 1)
        x = sizes.pop()
        for skip in reversed(sizes):
            x = facts.same(2 * x, skip, "axis")
        assert x is side
    assert listed(facts) == ["h % 32 == 0", "w % 32 == 0"]
    assert str(facts.simplify((H - 1) // 4 + 1)) == "h//4"


def test_occurs_check() -> None:
    facts = Facts()
    n = facts.count("n")
    facts.same(n, n // 2 + 3)
    assert facts.bound(n) == (5, 6) and facts.equal(n - 3, n // 2) is True
    assert facts.simplify(n * (n // 2 - n)).symbols == {n}  # type: ignore[union-attr]


def test_fresh() -> None:
    facts = Facts()
    facts.reserve(["rows", "batch size"])
    a, b = facts.count("rows", 0, B * N), facts.count("batch size", 2)
    assert (str(a), str(b), str(facts.count("rows"))) == ("rows_1", "batch_size_1", "rows_2")
    assert facts.at_least(B * N, a) and facts.at_least(2 * B * N, a + 1) and facts.at_least(b, 2)
    assert facts.equal(a, B * N + 1) is False
    assert facts.bound(a) == (0, B * N) and facts.bound(2 * a + 1)[1] is 2 * B * N + 1
    e = facts.element("e")
    assert facts.at_least(e, 0) is None and facts.bound(e) == (None, None)
    assert facts.same(a, SEQ) is SEQ and not listed(facts)  # minted names are no requirement


def test_define() -> None:
    facts = Facts()
    d = (H * W + 5) // 7
    name = facts.define(d, "size")
    assert facts.define(d, "size") is name and facts.definitions == {name: d}
    assert facts.bound(name)[0] == 0


def test_branch() -> None:
    facts = demand(Facts(), ("divisible", H, 2))
    epoch = facts.epoch
    snap = facts.snapshot()
    demand(facts, ("same", H, 8), ("broadcast", N, W), ("least", PAST, SEQ))
    assert facts.simplify(H) == 8 and facts.epoch != epoch
    for _ in range(2):
        facts.restore(snap)
        assert facts.simplify(H) is H and listed(facts) == ["h % 2 == 0"] and facts.epoch == epoch
        assert facts.at_least(PAST, SEQ) is None
        with facts.tentative():
            facts.same(H, 10)
    facts.broadcast(N, W)
    assert listed(facts) == ["h % 2 == 0", "n == w or n == 1 or w == 1"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("h % 32 == 0", ["h % 32 == 0"]),
        ("h%32 == 4", ["(h - 4) % 32 == 0"]),
        ("total == past + seq", ["total == past + seq"]),
        ("h >= 4", ["h >= 4"]),
        ("h < 5", ["h <= 4"]),
        ("4 <= h < 9", ["h >= 4", "h <= 8"]),
        ("h > 3 and w <= 7", ["h >= 4", "w <= 7"]),
        ("h == w or h == 1", ["h == w or h == 1"]),
        ("b*h <= 1024", ["b*h <= 1024"]),
        ("h <= w", ["w >= h"]),
    ],
)
def test_assume(given: str, expected: list[str]) -> None:
    facts = Facts()
    facts.assume(given, symbol)
    assert listed(facts) == expected
    assert all(r.why == "given" for r in facts.report())
    facts.assume(given, symbol)
    assert listed(facts) == expected


@pytest.mark.parametrize("given", ["h", "h ~ 3", "h == ", "h != 3", "h = 3", "nothing == 3", ""])
def test_not_a_requirement(given: str) -> None:
    with pytest.raises(ValueError, match="no requirement|no size is called|no formula"):
        Facts().assume(given, {"h": H}.get)


def test_broken_and_source() -> None:
    facts = Facts()
    facts.node = "conv_1"
    demand(facts, ("divisible", H, 32, "stride"), ("same", PAST + SEQ, TOTAL, "mask"))
    assert [(r.node, r.why) for r in facts.report()] == [("conv_1", "stride"), ("conv_1", "mask")]
    assert [str(r) for r in facts.broken({"h": 33})] == ["h % 32 == 0"]
    assert not facts.broken({"h": 64, "past": 3, "seq": 1, "total": 4})
    assert len(facts.broken({"h": 1, "past": 3, "seq": 1, "total": 5})) == 2


def test_without_a_trace() -> None:
    assert current() is None
    assert _facts.same(3, 3) == 3 and _facts.broadcast(3, 1, 3) == 3 and _facts.broadcast(0, 1) == 0
    assert _facts.equal(H, H + 1) is False and _facts.at_least(H, 1) and _facts.simplify(H) is H
    _facts.least(3, 3)
    _facts.divisible(6, 3)
    for wrong in (
        lambda: _facts.same(3, 4, "x"),
        lambda: _facts.least(2, 3),
        lambda: _facts.divisible(6, 4),
        lambda: _facts.broadcast(3, 4),
        lambda: _facts.broadcast(0, 3),
    ):
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(Undecided):
        _facts.same(H, W)
    with using(Facts()) as facts:
        assert current() is facts and _facts.same(H, W) is H
        assert str(_facts.count("k", 1)) == "k" and _facts.element("e").least is None
    assert current() is None


# random systems of demands, against all sizes up to a limit

SIZES = range(13)


def meets(kind: str, a: Any, b: Any, env: dict[str, int]) -> bool:
    try:
        x, y = value(a, env), value(b, env)
    except ZeroDivisionError:
        return False
    if kind == "same":
        return x == y
    if kind == "least":
        return x >= y
    return x % y == 0 if kind == "divisible" else x >= 0 <= y and (x == y or x == 1 or y == 1)


def agree(before: Any, after: Any, env: dict[str, int]) -> bool:
    try:
        expected = value(before, env)
    except ZeroDivisionError:
        return True
    return value(after, env) == expected


def simple(r: random.Random, symbols: list[Dim]) -> Any:
    a, b = r.choice(symbols), r.choice(symbols)
    forms = [
        lambda: a,
        lambda: a * r.randint(1, 3) + r.randint(-3, 3),
        lambda: floordiv(a + r.randint(-2, 2), r.randint(1, 4)),
        lambda: a * b,
        lambda: a + b,
        lambda: formula(r, 2, symbols)[0],
    ]
    return r.choice(forms)()


@pytest.mark.parametrize("seed", range(150))
def test_random_demands(seed: int) -> None:
    r = random.Random(seed)
    symbols = r.choice([[H], [H, W], [H, W], [H, C], [H, W, C]])
    facts = Facts()
    facts.adopt([C])
    facts.reserve(["c"])
    demands: list[tuple[str, Any, Any]] = []
    results: list[tuple[Any, Any]] = []
    clash = None
    try:
        for _ in range(r.randint(1, 4)):
            kind = r.choice(["same", "same", "least", "divisible", "broadcast"])
            a = simple(r, symbols)
            b = simple(r, symbols) if r.random() < 0.6 else r.randint(0, 9)
            b = r.randint(1, 8) if kind == "divisible" else b
            demands.append((kind, a, b))
            if kind == "broadcast":
                facts.least(a, 0)
                facts.least(b, 0)
            result = getattr(facts, kind)(a, b)
            if kind == "same":
                results.append((a, result))
    except ShapeError as e:
        clash = e
    except (Undecided, ZeroDivisionError):
        return
    grid = [
        {"h": h, "w": w, "c": c}
        for h in SIZES
        for w in (SIZES if W in symbols else [3])
        for c in (SIZES if C in symbols else [1])
    ]
    runs = [env for env in grid if all(meets(*d, env) for d in demands)]
    if clash is not None:
        assert not runs, (demands, clash, runs[:3])
        return
    runs = [env for env in runs if env["h"] and env["w"]]
    asked = [x for _ in range(6) if type(x := simple(r, symbols)) is Dim]
    for d in asked:
        results.append((d, facts.simplify(d)))
        k = r.choice([0, 1, simple(r, symbols)])
        same, above, (low, high) = facts.equal(d, k), facts.at_least(d, k), facts.bound(d)
        for env in runs:
            try:
                x, y = value(d, env), value(k, env)
            except ZeroDivisionError:
                continue
            assert same is None or same == (x == y), (demands, d, k, env)
            assert above is None or above == (x >= y), (demands, d, k, env)
            assert low is None or x >= low
            assert type(high) is not int or x <= high
    for before, after in results:
        if type(after) is not Dim or after.symbols <= {H, W, C}:
            for env in runs:
                assert agree(before, after, env), (demands, before, after, env)
    report = facts.report()

    def met(env: dict[str, int]) -> bool:
        try:
            return all([requirement.holds(env) for requirement in report])
        except (KeyError, ZeroDivisionError):
            return False

    for env in runs:
        assert met(env) or any(s.name not in env for q in report for s in _symbols(q))
    if C not in symbols and not any(kind == "broadcast" for kind, _, _ in demands):
        others = [env for env in grid if env["h"] and env["w"] and env not in runs]
        assert not any(met(env) for env in others), (demands, listed(facts))


def _symbols(requirement: Any) -> set[Dim]:
    found = set().union(*[_symbols(r) for r in requirement.alternatives])
    for side in (requirement.left, requirement.right):
        if type(side) is Dim:
            found |= side.symbols
    return found
