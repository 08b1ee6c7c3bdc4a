"""Scan: one step of a graph for each slice of its inputs, carrying states."""

from __future__ import annotations

import contextlib
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import _facts
from .._branch import branch, mark
from .._error import ShapeError
from .._join import elem_type, rename
from .._op import op
from .._value import TensorType
from .control import hosted, on_device, same_carry, stacked, under_trace


@op("Scan", since=9, host=True, traced=True)
def scan_9(
    *initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    """Run body over slices of the scanned inputs, carrying states -> final states, then stacked
    outputs.
    """
    n = len(initial_state_and_scan_inputs) - num_scan_inputs
    states, xs = initial_state_and_scan_inputs[:n], initial_state_and_scan_inputs[n:]
    axes, backward = (
        _per_input(scan_input_axes, len(xs)),
        _per_input(scan_input_directions, len(xs)),
    )
    out_axes = _per_input(scan_output_axes, body.n_outputs - n)
    out_backward = _per_input(scan_output_directions, body.n_outputs - n)
    xp = np if all(map(hosted, (*states, *xs))) else jnp
    xs = [
        xp.moveaxis(x, a, 0)[:: -1 if r else 1] for x, a, r in zip(xs, axes, backward, strict=True)
    ]
    lengths = {x.shape[0] for x in xs}
    if len(lengths) != 1:
        raise ShapeError(f"the scanned inputs have lengths {sorted(lengths)}, want one")
    done = _scan_on_host(states, xs, body) if xp is np and lengths != {0} else None
    if done is not None:
        states, ys = done
    else:
        xp = jnp
        states, ys = lax.scan(
            lambda carry, x: (lambda outs: (same_carry(carry, outs[:n]), on_device(outs[n:])))(
                body(*carry, *x)
            ),
            on_device(states),
            on_device(xs),
        )
    ys = [
        xp.moveaxis(y[:: -1 if r else 1], 0, a)
        for y, a, r in zip(ys, out_axes, out_backward, strict=True)
    ]
    return *states, *ys


def _scan_on_host(states: Any, xs: Any, body: Any) -> Any:
    """The steps one by one; None where a step gives what is not known on the host."""
    rounds = []
    for x in zip(*xs, strict=True):
        outs = body(*states, *x)
        if under_trace(outs):
            return None
        states = outs[: len(states)]
        rounds.append([np.asarray(y) for y in outs[len(states) :]])
    return states, [np.stack(ys) for ys in zip(*rounds, strict=True)]


def _per_input(given: Any, n: int) -> tuple[int, ...]:
    given = tuple(given or (0,) * n)
    if len(given) != n:
        raise ShapeError(f"axes or directions {given} are for {len(given)} values, there are {n}")
    return given


@scan_9.shape_rule(rankless=True)  # because what is carried must agree with what comes out
def _(
    *initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    n = len(initial_state_and_scan_inputs) - num_scan_inputs
    states, xs = initial_state_and_scan_inputs[:n], initial_state_and_scan_inputs[n:]
    out_axes = _per_input(scan_output_axes, body.n_outputs - n)
    before = mark()
    length, slices = _sliced(xs, _per_input(scan_input_axes, len(xs)))
    with contextlib.nullcontext() if _facts.at_least(length, 1) else branch():
        carry, ys = _settled(body, states, slices)
    rows = [stacked(elem_type(y), length, axis) for y, axis in zip(ys, out_axes, strict=True)]
    return tuple(rename([*carry, *rows], before, "Scan_size", keep=[length]))


def _settled(body: Any, states: Any, slices: Any) -> Any:
    """The types of states and outputs, given that the standard wants each of the same shape in
    every round.
    """
    carry, outs = [elem_type(v) for v in states], []
    for _ in range(4):
        outs = body(*carry, *slices)
        after = [_agreed(old, elem_type(new)) for old, new in zip(carry, outs, strict=False)]
        if all(old is new for old, new in zip(carry, after, strict=True)):
            break
        carry = after
    return carry, outs[len(carry) :]


def _agreed(old: Any, new: Any) -> Any:
    if not (isinstance(old, TensorType) and isinstance(new, TensorType)) or new.shape is None:
        return old
    if old.shape is None:
        return new
    if len(old.shape) != len(new.shape) or old.dtype != new.dtype:
        raise ShapeError(f"a state changes from {old} to {new} in a round")
    sizes = [
        _facts.same(a, b, "a state keeps its shape")
        for a, b in zip(old.shape, new.shape, strict=True)
    ]
    return TensorType(old.dtype, tuple(sizes))


def _sliced(xs: Any, axes: Any) -> Any:
    """The scanned length, on which all inputs must agree, and the type of one slice of each."""
    length, slices = None, []
    for x, axis in zip(xs, axes, strict=True):
        if not isinstance(x, TensorType) or x.shape is None:
            slices.append(TensorType(getattr(x, "dtype", None), None))
            continue
        if not -len(x.shape) <= axis < len(x.shape):
            raise ShapeError(f"axis {axis} is out of range for a scanned input {x}")
        axis %= len(x.shape)
        size = x.shape[axis]
        length = size if length is None else _facts.same(length, size, "the scanned length")
        slices.append(TensorType(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :])))
    return _facts.count("Scan_length") if length is None else length, slices


@op("Scan", since=8, host=True, traced=True)
def scan_8(
    sequence_lens=None, /, *initial_state_and_scan_inputs, body, num_scan_inputs, directions=None
):
    """Run body over axis 1 for each batch row of axis 0 -> states (N, *), outputs (N, length, *),
    zeros past the end.
    """
    if sequence_lens is not None and not hosted([sequence_lens, *initial_state_and_scan_inputs]):
        return _scan_8_under_jit(
            sequence_lens, initial_state_and_scan_inputs, body, num_scan_inputs, directions
        )
    lens = None if sequence_lens is None else np.asarray(sequence_lens)
    xp = np if all(map(hosted, initial_state_and_scan_inputs)) else jnp
    n = len(initial_state_and_scan_inputs) - num_scan_inputs
    rows = []
    for i in range(initial_state_and_scan_inputs[0].shape[0]):
        row = [x[i] for x in initial_state_and_scan_inputs]
        full = row[n].shape[0]
        used = full if lens is None else int(lens[i])
        outs = scan_9.function(
            *row[:n],
            *(x[:used] for x in row[n:]),
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        pad = [xp.pad(y, [(0, full - used), *[(0, 0)] * (y.ndim - 1)]) for y in outs[n:]]
        rows.append([*outs[:n], *pad])
    return tuple(xp.stack(v) for v in zip(*rows, strict=True))


def _scan_8_under_jit(lens: Any, values: Any, body: Any, num: int, directions: Any) -> Any:
    """Every row to its full length; past its own end states stay and outputs are zeros."""
    values, n = on_device(values), len(values) - num
    backward = _per_input(directions, num)
    steps = jnp.arange(values[n].shape[1])
    rows = []
    for i in range(values[0].shape[0]):
        used = jnp.asarray(lens)[i].astype(steps.dtype)
        back = jnp.maximum(used - 1 - steps, 0)
        scanned = [
            jnp.take(x[i], back, axis=0) if r else x[i]
            for x, r in zip(values[n:], backward, strict=True)
        ]
        states = [x[i] for x in values[:n]]
        rows.append(
            scan_9.function(
                *states, *scanned, steps < used, body=_Ending(body, n), num_scan_inputs=num + 1
            )
        )
    return tuple(jnp.stack(v) for v in zip(*rows, strict=True))


class _Ending:
    """A body that takes, last of all, whether its row still goes on."""

    def __init__(self, body: Any, n_states: int):
        self.body, self.n_states, self.n_outputs = body, n_states, body.n_outputs

    def __call__(self, *values: Any) -> list[Any]:
        alive, outs = values[-1], on_device(self.body(*values[:-1]))
        states = zip(outs, values[: self.n_states], strict=False)
        return [
            *[jnp.where(alive, new, old) for new, old in states],
            *[jnp.where(alive, y, jnp.zeros_like(y)) for y in outs[self.n_states :]],
        ]


@scan_8.shape_rule  # because what is carried must agree with what comes out
def _(
    sequence_lens=None, /, *initial_state_and_scan_inputs, body, num_scan_inputs, directions=None
):
    n = len(initial_state_and_scan_inputs) - num_scan_inputs
    before = mark()
    batch, rows = _sliced(initial_state_and_scan_inputs, (0,) * len(initial_state_and_scan_inputs))
    length, slices = _sliced(rows[n:], (0,) * num_scan_inputs)
    carry, ys = _settled(body, rows[:n], slices)
    results = [stacked(elem_type(c), batch) for c in carry]
    results += [stacked(stacked(elem_type(y), length), batch) for y in ys]
    return tuple(rename(results, before, "Scan_size", keep=[batch, length]))
