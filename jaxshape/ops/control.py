"""If and Loop: operators whose attributes are graphs, seen here as functions.

On the host they are Python's own `if` and `for`. Under jit they are `lax.cond`, `lax.scan` and
`lax.while_loop`, which want shapes that do not change. Traced, they are joins and fixpoints (see
`_join.py`).
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import _facts
from .._bounded_join import joined
from .._branch import assume, branch, chosen, mark, minted_since, tentative
from .._counts import counting
from .._device import canonical, to_device
from .._dim import Dim, maximum, minimum
from .._error import JaxshapeError, ShapeError, UnsupportedError
from .._facts import at_least
from .._fork import note
from .._host import DimArray, is_host
from .._join import elem_type, join, rename, repeated, stable
from .._op import Known, Static, op
from .._relation import decided, negate
from .._symbol import to_export
from .._value import UNKNOWN, TensorType
from ._rounds import changing, on_device

UNROLLED = 16  # trips: known loops up to here are traced round by round, exactly
# trips: up to here a loop that may end sooner runs them all, so that it has a reverse-mode gradient
GUARDED = 1 << 16
# trips: up to here a known loop is traced round by round where its rounds cannot be alike, because
# they slice by the trip or carry what grows
DIFFERENT = 256


@op("If", since=1, host=True, traced=True)
def if_(cond: Static, /, *, then_branch, else_branch):
    """Run one of two graphs by cond (one element) -> the outputs of that graph."""
    _same_number(then_branch, else_branch)
    if is_host(cond):
        if (known := _truth(cond)) is not None:
            return tuple(then_branch() if known else else_branch())
        cond = to_device(cond)  # a relation of sizes that are symbols
    if (counts := counting()) is not None:
        return joined(counts, jnp.reshape(cond, ()), then_branch, else_branch)
    try:
        return tuple(
            lax.cond(
                jnp.reshape(cond, ()),
                lambda: on_device(then_branch()),
                lambda: on_device(else_branch()),
            )
        )
    except TypeError as e:
        raise UnsupportedError(
            "the branches give different shapes or dtypes: the condition must be known before jit; "
            "if it is an input, give it as a NumPy array that is no argument of jit, grad or vmap"
        ) from e


@if_.shape_rule(rankless=True)  # because the condition may be data: either branch may come out
def _(cond, /, *, then_branch, else_branch):
    _same_number(then_branch, else_branch)
    known = _truth(cond) if is_host(cond) else None
    if known is not None:
        return tuple(then_branch() if known else else_branch())
    condition = cond.item() if isinstance(cond, DimArray) else None
    opposite = None if condition is None else negate(condition)
    results, possible, clashes, before = [], [], [], mark()
    for body, holds in ((then_branch, condition), (else_branch, opposite)):
        try:
            with branch(holds):  # the condition itself may be impossible by now
                results.append(body())
            possible.append(holds)
        except ShapeError as e:
            clashes.append(e)
    if not results:
        raise clashes[0]
    if len(results) == 1:  # the other branch is proved impossible
        assume(possible[0])
        return tuple(results[0])
    inside = minted_since(before)

    def choose(a: Any, b: Any) -> Any:
        own = any(isinstance(d, Dim) and not inside.isdisjoint(d.symbols) for d in (a, b))
        return None if own else chosen(condition, a, b)  # a branch's own mean nothing elsewhere

    joined = [join(a, b, "If_size", choose) for a, b in zip(*results, strict=True)]
    if any(isinstance(t, TensorType) and t.shape is None for t in joined):
        note(condition)
    return tuple(joined)


def _same_number(then_branch: Any, else_branch: Any) -> None:
    if then_branch.n_outputs != else_branch.n_outputs:
        raise ShapeError(
            f"then_branch gives {then_branch.n_outputs} outputs, else_branch "
            f"{else_branch.n_outputs}: they must give the same number"
        )


def _truth(cond: Any) -> bool | None:
    if cond.size != 1:
        raise ShapeError(f"the condition has shape {tuple(cond.shape)}, wants one element")
    return decided(cond.item())


@op("Loop", since=1, host=True, traced=True)
def loop(m: Static = None, cond: Static = None, /, *v_initial: Known, body):
    """Repeat body while cond and fewer than m times: carried values -> their final ones, then scans
    (trips, *).
    """
    if all(x is None or isinstance(x, list) or is_host(x) for x in (m, cond)):
        if all(map(hosted, v_initial)):
            if (found := _loop_on_host(m, cond, v_initial, body)) is not None:
                return found
    return _loop_under_jit(m, cond, v_initial, body)


def hosted(x: Any) -> bool:
    return all(map(hosted, x)) if isinstance(x, list) else x is None or is_host(x)


def under_trace(values: Any) -> bool:
    """Whether some value is data of a function under jit: a body may take it from outside."""
    return any(isinstance(v, jax.core.Tracer) for v in jax.tree.leaves(values))


def _loop_on_host(m: Any, cond: Any, carry: Any, body: Any) -> Any:
    """The rounds one by one; None where a round gives what is not known on the host."""
    keep = True if cond is None else bool(np.reshape(cond, ()))
    n, trip, rounds = len(carry), 0, []
    while keep and (m is None or trip < int(np.reshape(m, ()))):
        keep, *outs = body(np.asarray(trip, np.int64), np.asarray(keep), *carry)
        if under_trace((keep, outs)):
            return None
        keep = bool(np.asarray(keep).reshape(()))
        carry, trip = outs[:n], trip + 1
        rounds.append([np.asarray(y) for y in outs[n:]])
    if rounds:
        return *carry, *(np.stack(ys) for ys in zip(*rounds, strict=True))
    return *carry, *(_no_rows(body, carry) if body.n_outputs - 1 > n else ())


def _no_rows(body: Any, carry: Any) -> list[Any]:
    """The scans of a loop that never ran: no rows, of what the first round would have given."""
    n = len(carry) + 1
    try:
        rows = body(np.zeros((), np.int64), np.asarray(True), *carry)[n:]
        return [np.zeros((0, *np.shape(y)), y.dtype) for y in rows]
    except JaxshapeError:  # that round is impossible: as the graph declares it
        types = [o.type for o in body.graph.outputs[n:]]
        shapes = [[d if isinstance(d, int) else 0 for d in t.dims or ()] for t in types]
        dtypes = [t.dtype or np.float32 for t in types]
        return [np.zeros((0, *s), d) for s, d in zip(shapes, dtypes, strict=True)]


def _loop_under_jit(m: Any, cond: Any, carry: Any, body: Any) -> Any:
    scans = body.n_outputs - 1 - len(carry)
    if is_host(cond) and not _truth(cond):
        return _loop_by_scan(0, None, carry, body)
    if m is not None and is_host(m) and (scans or cond is None or is_host(cond)):
        trips = np.reshape(m, ()).item()
        return _loop_by_scan(trips if at_least(trips, 0) else maximum(trips, 0), cond, carry, body)
    if scans:
        raise UnsupportedError(
            "the number of rounds depends on data, and with it the size of what the loop collects"
        )
    carry, rounds = changing(carry, body)
    return _loop_by_while(m, cond, carry, rounds)


def _loop_by_while(m: Any, cond: Any, carry: Any, rounds: Any) -> Any:
    """A loop that ends when its condition says so, or after m trips."""
    int64 = canonical("int64")
    if isinstance(m, np.ndarray):  # files write "without end" as the largest int64
        m = np.minimum(m, np.iinfo(int64).max)
    most = None if m is None else jnp.reshape(to_device(m), ()).astype(int64)

    def go(state):
        trip, keep, _ = state
        return keep if most is None else keep & (trip < most)

    def step(state):
        trip, keep, values = state
        keep, *outs = rounds(trip, keep, *values)
        return trip + 1, jnp.reshape(to_device(keep), ()), same_carry(values, outs)

    start = jnp.ones((), bool) if cond is None else jnp.reshape(to_device(cond), ())
    return rounds.whole(lax.while_loop(go, step, (jnp.zeros((), int64), start, carry))[2])


def _loop_by_scan(trips: Any, cond: Any, carry: Any, body: Any) -> Any:
    """A loop of known length; where its condition may end it sooner, rounds after that leave the
    carry alone.
    """
    always = cond is None or is_host(cond) and _truth(cond)
    known = always and isinstance(trips, int)
    if known and 0 < trips <= UNROLLED:
        if exact := _rounds_under_jit(trips, carry, body):
            return exact
    try:
        return _alike(trips, cond, carry, body, always)
    except UnsupportedError:
        if known and UNROLLED < trips <= DIFFERENT:
            with contextlib.suppress(UnsupportedError):
                if exact := _rounds_under_jit(trips, carry, body):
                    return exact
        raise


def _alike(trips: Any, cond: Any, carry: Any, body: Any, always: Any) -> Any:
    """A loop whose rounds are one computation, traced once."""
    scans, int64 = body.n_outputs - 1 - len(carry), canonical("int64")
    known = isinstance(trips, int)
    carry, rounds = changing(carry, body)
    n = len(carry)
    if always:
        keep = _known_keep(carry, rounds)
        if keep is not None or known and not trips:  # every round runs, or the first alone, or none

            def step(values, trip):
                outs = rounds(trip, np.asarray(True), *values)[1:]
                return same_carry(values, outs[:n]), on_device(outs[n:])

            carry, ys = lax.scan(
                step,
                carry,
                jnp.arange(to_export(trips if keep else minimum(trips, 1)), dtype=int64),
            )
            return *rounds.whole(carry), *ys
    if scans:
        raise UnsupportedError(
            "the condition may end the loop early, and with it what the loop collects"
        )
    if known and trips > GUARDED:
        return _loop_by_while(np.asarray(trips, np.int64), cond, carry, rounds)

    def guarded(state, trip):
        alive, values = state
        keep, *outs = rounds(trip, alive, *values)
        after = same_carry(values, outs)
        after = [jnp.where(alive, new, old) for new, old in zip(after, values, strict=True)]
        return (alive & jnp.reshape(to_device(keep), ()), after), ()

    start = jnp.ones((), bool) if cond is None else jnp.reshape(to_device(cond), ())
    (_, carry), _ = lax.scan(guarded, (start, carry), jnp.arange(to_export(trips), dtype=int64))
    return rounds.whole(carry)


def _rounds_under_jit(trips: int, carry: Any, body: Any) -> Any:
    """A short loop round by round, as it was traced, where it is known of each round whether it
    runs; else None.
    """
    n, rounds, keep = len(carry), [], np.asarray(True)
    for i in range(trips):
        if not is_host(keep):
            return None
        if not _truth(keep):
            break
        keep, *outs = body(np.asarray(i, np.int64), keep, *carry)
        carry = outs[:n]
        rounds.append(on_device(outs[n:]))
    return *carry, *(jnp.stack(ys) for ys in zip(*rounds, strict=True))


def _known_keep(carry: Any, body: Any) -> bool | None:
    """What the body answers to "go on?" where that is known beforehand, given that it was True
    before.
    """
    found: list[Any] = []

    def probe(trip, values):
        found.append(body(trip, np.asarray(True), *values)[0])

    jax.eval_shape(probe, jax.ShapeDtypeStruct((), canonical("int64")), carry)
    return bool(np.reshape(found[0], ())) if is_host(found[0]) else None


def _look(x: Any) -> Any:
    return x.dtype, x.shape


def same_carry(old: Any, new: Any) -> Any:
    """The next carry, which must look like the one before."""
    new = on_device(new)
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if isinstance(a, list) or isinstance(b, list):
            if jax.tree.map(_look, a) != jax.tree.map(_look, b):
                raise UnsupportedError(f"the sequence carried as value {i} changes by the round")
        elif a.shape != b.shape or a.dtype != b.dtype:
            raise UnsupportedError(
                f"carried value {i} changes from {a.dtype}{a.shape} to {b.dtype}{b.shape}"
            )
    return new


@loop.shape_rule(
    rankless=True
)  # because trips and early exits are data, and carried sizes may change by the round
def _(m=None, cond=None, /, *v_initial, body):
    n = len(v_initial)
    for name, x in (("m", m), ("cond", cond)):
        for size in getattr(x, "shape", None) or ():
            _facts.same(size, 1, f"{name} is one element")
    start = np.asarray(True) if cond is None else cond
    trips = m.item() if m is not None and is_host(m) and m.size == 1 else None
    if isinstance(trips, int) and 0 < trips <= UNROLLED:
        with repeated(trips) as bearable:
            exact = _unrolled(trips, start, v_initial, body) if bearable else None
        if exact:
            return exact
    happens = _first_round(m, trips, start)
    before = mark()

    def step(carry):
        keep, *outs = body(TensorType("int64", ()), *carry)
        return [keep, *outs[:n]], outs[n:]

    with contextlib.nullcontext() if happens else branch():  # what the body demands if it runs
        try:
            (keep, *carry), scans = stable(step, [start, *v_initial], "Loop_size")
        except ShapeError:
            if happens:
                raise
            happens, keep, scans = False, None, [UNKNOWN] * (body.n_outputs - 1 - n)
    sure = is_host(keep) and _truth(keep) is True
    if happens is False:
        length, carry = 0, v_initial
    elif trips is None:
        length = _facts.count("Loop_trips")
    elif sure and _facts.at_least(trips, 0):
        length = trips
    else:
        length = _facts.count("Loop_trips", most=trips if _facts.at_least(trips, 0) else None)
    rows = [stacked(elem_type(y), length) for y in scans]
    return tuple(rename([*carry, *rows], before, "Loop_size", keep=[length]))


def _first_round(m: Any, trips: Any, start: Any) -> bool | None:
    """Whether a loop runs its body at all; None where that is undecided."""
    begins = _truth(start) if is_host(start) else None
    enough = True if m is None else None if trips is None else _facts.at_least(trips, 1)
    return False if False in (begins, enough) else begins and enough


def stacked(t: Any, length: Any, axis: int = 0) -> Any:
    if not isinstance(t, TensorType):
        return UNKNOWN
    if t.shape is None:
        return t
    axis = axis % (len(t.shape) + 1)
    return TensorType(t.dtype, (*t.shape[:axis], length, *t.shape[axis:]))


def _unrolled(trips: int, keep: Any, carry: Any, body: Any) -> Any:
    """The rounds one by one, where it is known of each whether it runs; else None."""
    n, rounds = len(carry), []
    with tentative() as trial:
        for i in range(trips):
            if not is_host(keep) or _truth(keep) is None:
                return None
            if not _truth(keep):
                break
            keep, *outs = body(np.asarray(i, np.int64), keep, *carry)
            carry = outs[:n]
            rounds.append(outs[n:])
        if not rounds:
            return None
        trial.keep()
    rows = []
    for ys in zip(*rounds, strict=True):
        t = elem_type(ys[0])
        for y in ys[1:]:
            t = join(t, elem_type(y), "Loop_size")
        rows.append(stacked(t, len(rounds)))
    return *carry, *rows
