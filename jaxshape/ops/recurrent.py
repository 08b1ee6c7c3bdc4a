"""RNN, GRU and LSTM: one walk along the sequence, three kinds of cell.

A cell makes the next state from the one before and from what the inputs add to its gates; the
inputs' part is one product for the whole sequence. A direction is one scan, forward or in reverse.
Past the end of a row (sequence_lens) its state stays as it is and its output is 0, so that in
reverse it starts at its own end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from .._error import ShapeError
from .._host import namespace
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import agree, ranked, wide
from ._scan import scan
from ._versions import declare

# name: function of x, alpha and beta, and the defaults of the two where it has them
ACTIVATIONS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "relu": (lambda xp, x, a, b: xp.maximum(x, 0), None, None),
    "tanh": (lambda xp, x, a, b: xp.tanh(x), None, None),
    "sigmoid": (lambda xp, x, a, b: 0.5 * xp.tanh(0.5 * x) + 0.5, None, None),
    "softsign": (lambda xp, x, a, b: x / (1 + xp.abs(x)), None, None),
    "softplus": (lambda xp, x, a, b: xp.logaddexp(x, xp.zeros_like(x)), None, None),
    "elu": (lambda xp, x, a, b: xp.where(x < 0, a * xp.expm1(xp.minimum(x, 0)), x), 1.0, None),
    "leakyrelu": (lambda xp, x, a, b: xp.where(x < 0, a * x, x), 0.01, None),
    "thresholdedrelu": (lambda xp, x, a, b: xp.where(x >= a, x, 0), 1.0, None),
    "affine": (lambda xp, x, a, b: a * x + b, 1.0, 0.0),
    "scaledtanh": (lambda xp, x, a, b: a * xp.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda xp, x, a, b: xp.clip(a * x + b, 0, 1), 0.2, 0.5),
}
DIRECTIONS = {
    "forward": (False,),
    "foward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}


class Cell(NamedTuple):
    """A kind of cell: its gates, activation functions, number of states, and what makes a step."""

    name: str
    gates: int
    activations: tuple[str, ...]
    states: int
    build: Callable[..., Callable[..., tuple[Any, ...]]]
    doc: str


class Sizes(NamedTuple):
    length: Any
    batch: Any
    hidden: Any


def _directions(direction: str) -> tuple[bool, ...]:
    if direction not in DIRECTIONS:
        raise ShapeError(f"direction is {direction!r}, wants one of {', '.join(DIRECTIONS)}")
    return DIRECTIONS[direction]


def _sizes(cell, shapes, direction, hidden_size, layout) -> Sizes:
    """The sizes that shapes agree on; a shape is None where it is unknown or the input absent."""
    if layout not in (0, 1):
        raise ShapeError(f"layout is {layout}, wants 0 or 1")
    names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    for name, shape, rank in zip(names, shapes, (3, 3, 3, 2, 1, 3, 3, 2), strict=False):
        ranked(name, shape, rank)
    x, w, r, b, lens, h, c, p = (*shapes, None, None)[:8]
    none = (None,) * 3
    length, batch, entry = (x or none) if layout == 0 else tuple((x or none)[i] for i in (1, 0, 2))
    starts = [
        (s or none) if layout == 0 else tuple((s or none)[i] for i in (1, 0, 2)) for s in (h, c)
    ]
    wanted = len(_directions(direction))
    hidden = hidden_size if hidden_size and hidden_size > 0 else None
    hidden = agree(f"{cell.name}_hidden_size", hidden, (r or none)[2], *(s[2] for s in starts))
    agree(
        "num_directions", wanted, *((s or none)[0] for s in (w, r, b, p)), *(s[0] for s in starts)
    )
    for name, shape, i, times in (("W", w, 1, 1), ("R", r, 1, 1), ("B", b, 1, 2)):
        agree(f"axis {i} of {name}", times * cell.gates * hidden, (shape or none)[i])
    agree("axis 1 of P", 3 * hidden, (p or none)[1])
    if x or w:
        agree("input size of X and W", entry, (w or none)[2])
    batch = agree(f"{cell.name}_batch", batch, (lens or none)[0], *(s[1] for s in starts))
    return Sizes(agree(f"{cell.name}_length", length), batch, hidden)


def _functions(cell, names, alphas, betas, directions) -> list[Callable[..., Any]]:
    """The activation functions in order; each takes the next alpha and beta if it uses them."""
    names, wanted = names or cell.activations * directions, len(cell.activations) * directions
    if len(names) < wanted:
        raise ShapeError(f"activations are {', '.join(names)}, {wanted} are wanted")
    alphas, betas = iter(alphas or ()), iter(betas or ())
    found = []
    for name in names[:wanted]:
        if name.lower() not in ACTIVATIONS:
            raise ShapeError(f"no activation {name!r} is known, only {', '.join(ACTIVATIONS)}")
        function, alpha, beta = ACTIVATIONS[name.lower()]
        alpha = None if alpha is None else next(alphas, alpha)
        beta = None if beta is None else next(betas, beta)
        found.append(functools.partial(function, a=alpha, b=beta))
    return found


def _rnn(xp, r, rb, p, act, **_):
    (f,) = act
    return lambda state, gates: (f(gates + state[0] @ r + rb),)


def _gru(xp, r, rb, p, act, linear_before_reset=0, **_):
    f, g = act
    (r_zr, r_h), (b_zr, b_h) = _cut(xp, r, (2, 3)), _cut(xp, rb, (2, 3))

    def step(state, gates):
        (h,), (zr, new) = state, _cut(xp, gates, (2, 3))
        z, reset = xp.split(f(zr + h @ r_zr + b_zr), 2, axis=-1)
        inner = reset * (h @ r_h + b_h) if linear_before_reset else (reset * h) @ r_h + b_h
        return ((1 - z) * g(new + inner) + z * h,)

    return step


def _lstm(xp, r, rb, p, act, input_forget=0, **_):
    f, g, out = act
    p_i, p_o, p_f = (0, 0, 0) if p is None else xp.split(p, 3)

    def step(state, gates):
        h, c = state
        i, o, forget, new = xp.split(gates + h @ r + rb, 4, axis=-1)
        i = f(i + p_i * c)
        forget = 1 - i if input_forget else f(forget + p_f * c)
        c = forget * c + i * g(new)
        return f(o + p_o * c) * out(c), c

    return step


def _cut(xp, x, of):
    """The first `of[0]` and the rest of `of[1]` equal parts along the last axis."""
    parts = xp.split(x, of[1], axis=-1)
    return xp.concatenate(parts[: of[0]], axis=-1), xp.concatenate(parts[of[0] :], axis=-1)


_ALONG = "-> y (S, D, N, H) of D directions, last"
RNN = Cell(
    "RNN", 1, ("Tanh",), 1, _rnn,
    f"Walk along x (S, N, I) by h = f(x w + h r + b) {_ALONG} h (D, N, H); layout 1 puts N first.",
)  # fmt: skip
GRU = Cell(
    "GRU", 3, ("Sigmoid", "Tanh"), 1, _gru,
    f"Walk along x (S, N, I) by gates z, r, h {_ALONG} h (D, N, H); layout 1 puts N first.",
)  # fmt: skip
LSTM = Cell(
    "LSTM", 4, ("Sigmoid", "Tanh", "Tanh"), 2, _lstm,
    f"Walk along x (S, N, I) by gates i, o, f, c {_ALONG} h, c (D, N, H); layout 1 puts N first.",
)  # fmt: skip


def _run(
    cell, x, w, r, b, lens, h, c=None, p=None, *,
    activation_alpha, activation_beta, activations, clip, direction, hidden_size, layout=0,
    **options,
):  # fmt: skip
    """The outputs of a cell along a sequence: y, and the last of each state."""
    xp = namespace(x, w, r, b, lens, h, c, p)
    stored, dtype = x.dtype, wide(x.dtype)
    shapes = [None if v is None else hostdims(v.shape) for v in (x, w, r, b, lens, h, c, p)]
    sizes = _sizes(cell, shapes, direction, hidden_size, layout)
    directions, k = _directions(direction), len(cell.activations)
    chosen = _functions(cell, activations, activation_alpha, activation_beta, len(directions))
    clipped = (lambda v: v) if clip is None else (lambda v: xp.clip(v, -clip, clip))
    # what goes into gates is clipped; the state that goes through the third function is not,
    # as in onnxruntime
    functions = [
        lambda v, f=f, i=i: f(xp, clipped(v) if i % k < 2 else v) for i, f in enumerate(chosen)
    ]
    n = len(directions)

    def placed(v, *dims):
        """A value in the dtype to compute in, its sequence or directions first; zeros for None."""
        if v is None:
            return xp.zeros([to_export(d) for d in dims], dtype)
        return (xp.swapaxes(v, 0, 1) if layout and v.ndim == 3 else v).astype(dtype)

    x, w, r = placed(x), w.astype(dtype), r.astype(dtype)
    h, c = (placed(v, n, sizes.batch, sizes.hidden) for v in (h, c))
    b = placed(b, n, 2 * cell.gates * sizes.hidden)
    xs = []
    if lens is not None:
        steps = xp.arange(to_export(sizes.length)).astype(lens.dtype)
        xs.append(xp.expand_dims(steps[:, None] < lens, 2))
    ys, lasts = [], []
    for d, reverse in enumerate(directions):
        wb, rb = xp.split(b[d], 2)
        peephole = None if p is None else p[d].astype(dtype)
        step = cell.build(xp, r[d].T, rb, peephole, functions[d * k : (d + 1) * k], **options)
        state = (h[d], c[d])[: cell.states]
        gates = x @ w[d].T + wb
        last, y = scan(functools.partial(_advance, xp, step), state, [gates, *xs], reverse)
        ys.append(y)
        lasts.append(last)
    y = xp.stack(ys, axis=1)  # (length, directions, batch, hidden)
    states = [xp.stack(state) for state in zip(*lasts, strict=True)]
    if layout:
        y, states = xp.transpose(y, (2, 0, 1, 3)), [xp.swapaxes(s, 0, 1) for s in states]
    return tuple(v.astype(stored) for v in (y, *states))


def _advance(xp, step, state, xs):
    """One step of all rows; those that have ended keep their state and give 0."""
    gates, *alive = xs
    after = step(state, gates)
    if not alive:
        return after, after[0]
    after = tuple(xp.where(alive[0], new, old) for new, old in zip(after, state, strict=True))
    return after, xp.where(alive[0], after[0], 0)


def _types(
    cell,
    *inputs,
    activations,
    activation_alpha,
    activation_beta,
    direction,
    hidden_size,
    layout=0,
    **_,
):
    """The types of the outputs of a cell along a sequence."""
    shapes = [None if t is None else t.shape for t in inputs]
    length, batch, hidden = _sizes(cell, shapes, direction, hidden_size, layout)
    d = len(_directions(direction))
    _functions(cell, activations, activation_alpha, activation_beta, d)
    y = (batch, length, d, hidden) if layout else (length, d, batch, hidden)
    state = (batch, d, hidden) if layout else (d, batch, hidden)
    return tuple(TensorType(inputs[0].dtype, shape) for shape in (y, *(state,) * cell.states))


_INPUTS = "x w r b? sequence_lens? initial_h?"
_COMMON = {
    "activation_alpha": None,
    "activation_beta": None,
    "activations": None,
    "clip": None,
    "direction": "forward",
    "hidden_size": None,
}
_VERSIONS = (  # what one version has beside the common attributes
    (RNN, 1, {"activations": ("Tanh", "Tanh"), "output_sequence": 0}),
    (RNN, 7, {"activations": ("Tanh", "Tanh")}),
    (RNN, 14, {"activations": ("Tanh", "Tanh"), "layout": 0}),
    (GRU, 1, {"direction": "foward", "output_sequence": 0}),  # the standard's own spelling
    (GRU, 3, {"linear_before_reset": 0, "output_sequence": 0}),
    (GRU, 7, {"linear_before_reset": 0}),
    (GRU, 14, {"linear_before_reset": 0, "layout": 0}),
    (LSTM, 1, {"input_forget": 0, "output_sequence": 0}),
    (LSTM, 7, {"input_forget": 0}),
    (LSTM, 14, {"input_forget": 0, "layout": 0}),
)
for _cell, _since, _special in _VERSIONS:
    declare(
        _cell.name,
        _since,
        functools.partial(_run, _cell),
        # a rule, because every rank is fixed, so that sizes are known where an input's rank is not
        functools.partial(_types, _cell),
        _INPUTS + " initial_c? p?" * (_cell is LSTM),
        _COMMON | _special,
        _cell.doc,
    )
