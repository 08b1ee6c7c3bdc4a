"""RNN, GRU and LSTM: what the official cases leave out."""

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forms import demands, types
from layers import layer, refused

RNG = np.random.default_rng(0)
F = np.float32
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}
NAMES = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
DEFINED = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * (np.exp(x) - 1), x),
    "softsign": lambda x, a, b: x / (1 + abs(x)),
    "softplus": lambda x, a, b: np.log(1 + np.exp(x)),
}


def normal(*shape, dtype: Any = np.float32):
    return RNG.normal(size=shape).astype(dtype)


def by_steps(
    kind, x, w, r, b, lens, states, p=None, functions=None, clip=None, reverse=False,
    linear_before_reset=0, input_forget=0,
):  # fmt: skip
    """One direction, row by row and step by step: y (S, N, H), states (N, H), from x (S, N, I)."""
    plain = [functools.partial(DEFINED[n.lower()], a=None, b=None) for n in NAMES[kind]]
    chosen: list[Any] = [*(functions or plain), None, None]
    f, g, out = chosen[:3]
    cut = (lambda v: v) if clip is None else (lambda v: np.clip(v, -clip, clip))
    h_size, y = r.shape[1], np.zeros((*x.shape[:2], r.shape[1]))
    lasts = [s.astype(np.float64) for s in states]
    wb, rb = np.split(b.astype(np.float64), 2)
    for n in range(x.shape[1]):
        h, c = (lasts[0][n], lasts[-1][n])
        steps = range(x.shape[0] if lens is None else lens[n])
        for t in reversed(steps) if reverse else steps:
            gx, gh = w @ x[t, n] + wb, r @ h + rb
            if kind == "RNN":
                h = f(cut(gx + gh))
            elif kind == "GRU":
                z, reset = np.split(f(cut(gx + gh)[: 2 * h_size]), 2)
                inner = reset * gh[2 * h_size :]
                if not linear_before_reset:
                    inner = r[2 * h_size :] @ (reset * h) + rb[2 * h_size :]
                h = (1 - z) * g(cut(gx[2 * h_size :] + inner)) + z * h
            else:
                i, o, forget, new = np.split(gx + gh, 4)
                pi, po, pf = np.zeros((3, h_size)) if p is None else np.split(p, 3)
                i = f(cut(i + pi * c))
                c = (1 - i if input_forget else f(cut(forget + pf * c))) * c + i * g(cut(new))
                h = f(cut(o + po * c)) * out(c)
            y[t, n] = h
        lasts[0][n] = h
        if kind == "LSTM":
            lasts[1][n] = c
    return y, lasts


def check(
    kind, direction="forward", lens=None, start=False, bias=True, peephole=False, layout=0,
    length=4, dtype=np.float32, functions=None, opset=14, rtol=1e-5, attributes=None, **options,
):  # fmt: skip
    """Compare a node with `by_steps`."""
    reverses = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    d, n, i, h, g = len(reverses), 3, 2, 5, GATES[kind]
    x, w, r = normal(length, n, i), normal(d, g * h, i), normal(d, g * h, h)
    b = normal(d, 2 * g * h) if bias else None
    states = [normal(d, n, h) if start else None for _ in range(STATES[kind])]
    p = normal(d, 3 * h) if peephole else None
    given: Any = [None if v is None else v.astype(dtype) for v in (x, w, r, b, p, *states)]
    x, w, r, b, p, *states = given
    results = []
    for k, reverse in enumerate(reverses):
        begin = [np.zeros((n, h)) if s is None else s[k] for s in states]
        biases, peep = np.zeros(2 * g * h) if b is None else b[k], None if p is None else p[k]
        weights = w[k].astype(float), r[k].astype(float), biases, lens, begin, peep
        results.append(by_steps(kind, x, *weights, functions, reverse=reverse, **options))
    wanted = [np.stack([y for y, _ in results], 1)]
    wanted += [np.stack(s) for s in zip(*(last for _, last in results), strict=True)]
    inputs = [x, w, r, b, None if lens is None else np.array(lens, np.int32), *states]
    if layout:
        inputs[0] = x.swapaxes(0, 1)
        inputs[5:] = [None if s is None else s.swapaxes(0, 1) for s in inputs[5:]]
        wanted = [wanted[0].transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in wanted[1:])]
    inputs += [p] if peephole else []
    layer(
        kind,
        *inputs,
        wanted=[v.astype(dtype) for v in wanted],
        outputs=len(wanted),
        rtol=rtol,
        opset=opset,
        hidden_size=h,
        direction=direction,
        layout=layout or None,
        **options,
        **attributes or {},
    )


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_and_lengths(kind, direction):
    check(kind, direction, lens=[4, 2, 1], start=True, layout=1)


@pytest.mark.parametrize("kind", GATES)
def test_what_may_be_absent_or_empty(kind):
    check(kind, bias=False)
    check(kind, lens=[0, 4, 2], start=True)  # a row of length 0 ends where it starts
    check(kind, length=0, start=True)
    check(kind, opset=7)


@pytest.mark.parametrize(
    ("kind", "dtype", "rtol"),
    [("LSTM", np.float64, 1e-12), ("GRU", np.float16, 5e-3), ("RNN", ml_dtypes.bfloat16, 3e-2)],
)
def test_dtypes(kind, dtype, rtol):
    check(kind, dtype=dtype, rtol=rtol, opset=22)


def test_options():
    check("GRU", "bidirectional", linear_before_reset=1, start=True)
    check("LSTM", "bidirectional", peephole=True, start=True)
    check("LSTM", input_forget=1, peephole=True, start=True)
    for kind in GATES:
        check(kind, start=True, clip=0.3)


DEFAULTS = {
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "elu": (1.0, None),
    "affine": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
}


@pytest.mark.parametrize("name", DEFINED)
def test_activations(name):
    functions = [functools.partial(DEFINED[name], a=0.3, b=0.2)]
    numbers = {"activation_alpha": [0.3], "activation_beta": [0.2]}
    check("RNN", functions=functions, attributes={"activations": [name]} | numbers, length=2)


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_of_activations(name):
    a, b = DEFAULTS[name]
    functions = [functools.partial(DEFINED[name], a=a, b=b)]
    check("RNN", functions=functions, attributes={"activations": [name]}, length=2)


def test_numbers_go_to_those_who_use_them():
    names = ["Sigmoid", "Elu", "HardSigmoid"]  # the first uses none, the second alpha only
    numbers = [(None, None), (0.3, None), (0.4, 0.2)]
    functions = [
        functools.partial(DEFINED[n.lower()], a=a, b=b)
        for n, (a, b) in zip(names, numbers, strict=True)
    ]
    numbers = {"activation_alpha": [0.3, 0.4], "activation_beta": [0.2]}
    check("LSTM", functions=functions, attributes={"activations": names} | numbers)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "wanted", "requires"),
    [
        ("RNN", ("[s, n, i]", "[1, h, i]", "[1, h, h]"), {}, ("[s, 1, n, h]", "[1, n, h]"), []),
        ("GRU", ("[n, s, 3]", "[2, 24, 3]", "[2, 24, 8]"),
         {"layout": 1, "direction": "bidirectional"}, ("[n, s, 2, 8]", "[n, 2, 8]"), []),
        ("LSTM", ("[s, n, i]", "[1, 32, 3]", "[1, 32, k]"), {"hidden_size": 8},
         ("[s, 1, n, 8]", "[1, n, 8]", "[1, n, 8]"), ["i == 3", "k == 8"]),
        ("LSTM", ("", "[2, 32, 3]", "", "", "", "[2, n, 8]"), {"direction": "bidirectional"},
         ("[LSTM_length, 2, n, 8]", "[2, n, 8]", "[2, n, 8]"), []),
    ],
)  # fmt: skip
def test_types(kind, inputs, attributes, wanted, requires):
    inputs = [f"{'int32' if i == 4 else 'float32'}{s}" for i, s in enumerate(inputs)]
    found = types(kind, *inputs, outputs=len(wanted), **attributes)
    assert found == [f"float32{w}" for w in wanted]
    assert sorted(demands(kind, *inputs, **attributes)) == requires


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "says"),
    [
        ("LSTM", ("3, 2", "1, 8, 2", "1, 8, 2"), {}, "X (3, 2) has rank 2, wants 3"),
        ("LSTM", ("4, 3, 2", "1, 8, 3", "1, 8, 2"), {}, "input size of X and W: 2 is not 3"),
        ("LSTM", ("4, 3, 2", "1, 8, 2", "1, 8, 3"), {}, "axis 1 of W: 12 is not 8"),
        ("GRU", ("4, 3, 2", "1, 6, 2", "1, 6, 2"), {"hidden_size": 3}, "3 is not 2"),
        ("RNN", ("4, 3, 2", "1, 5, 2", "1, 5, 5"), {"direction": "bidirectional"}, "2 is not 1"),
        ("RNN", ("4, 3, 2", "1, 5, 2", "1, 5, 5"), {"direction": "back"}, "direction is 'back'"),
        ("RNN", ("4, 3, 2", "1, 5, 2", "1, 5, 5"), {"layout": 2}, "layout is 2"),
        ("RNN", ("4, 3, 2", "1, 5, 2", "1, 5, 5"), {"activations": ["Sine"]}, "'Sine' is known"),
        ("GRU", ("4, 3, 2", "1, 6, 2", "1, 6, 2"), {"activations": ["Tanh"]}, "2 are wanted"),
        ("RNN", ("4, 3, 2", "1, 5, 2", "1, 5, 5", "1, 9"), {}, "axis 1 of B: 10 is not 9"),
    ],
)
def test_errors(kind, inputs, attributes, says):
    assert says in refused(kind, *[f"float32[{i}]" for i in inputs], **attributes)
