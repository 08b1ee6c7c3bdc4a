"""Steps of optimisers: what the official cases leave out."""

import numpy as np
import pytest
from forms import demands, types
from layers import layer, refused

F = np.float32
DOMAIN = {"domain": "ai.onnx.preview.training"}
MOMENTUM = {"alpha": 0.5, "beta": 0.25, "mode": "standard", "norm_coefficient": 0.0}


def f(*values):
    return np.array(values, F)


@pytest.mark.parametrize(
    ("op", "step", "state", "attributes", "wanted"),
    [
        ("Momentum", 0, [f(8)], MOMENTUM, [1 - 0.1 * 6, 6]),  # the first step takes no beta
        ("Momentum", 1, [f(8)], MOMENTUM, [1 - 0.1 * 4.5, 4.5]),
        ("Momentum", 1, [f(8)], {**MOMENTUM, "mode": "nesterov"}, [1 - 0.1 * (2 + 2.25), 4.5]),
        ("Momentum", 1, [f(8)], {**MOMENTUM, "norm_coefficient": 2.0}, [1 - 0.1 * 5, 5]),
        ("Adagrad", 3, [f(5)], {"decay_factor": 1.0, "epsilon": 0.0}, [1 - 0.025 * 2 / 3, 9]),
        (
            "Adam",
            0,
            [f(4), f(0)],
            {"alpha": 0.5, "beta": 0.75, "epsilon": 0.0},
            [1 - 0.1 * 3, 3, 1],
        ),
        (
            "Adam",
            1,
            [f(4), f(0)],
            {"alpha": 0.5, "beta": 0.75, "epsilon": 0.0, "norm_coefficient_post": 0.5},
            [(1 - 0.1 * 0.5 / 0.5 * 3) / 2, 3, 1],
        ),
    ],
)
def test_steps(op, step, state, attributes, wanted):
    inputs = [F(0.1), np.int64(step), f(1), f(2), *state]
    wanted = [f(w) for w in wanted]
    layer(op, *inputs, wanted=wanted, outputs=len(wanted), **DOMAIN, **attributes)


def test_tensors_move_alone():
    inputs = [
        F(0.1),
        np.int64(0),
        f(1),
        np.zeros((2, 0)),
        f(2),
        np.zeros((2, 0)),
        f(8),
        np.zeros((2, 0)),
    ]
    wanted = [f(0.4), np.zeros((2, 0)), f(6), np.zeros((2, 0))]
    layer("Momentum", *inputs, wanted=wanted, outputs=4, **DOMAIN, **MOMENTUM)


def test_types():
    inputs = "float32[]", "int64[]", "float64[N, c]", "float64[N, d]", "float64[N, c]"
    wanted = ["float64[N, c]"] * 2
    assert types("Adagrad", *inputs, outputs=2, **DOMAIN) == wanted
    assert demands("Adagrad", *inputs, **DOMAIN) == ["c == d"]


def test_errors():
    inputs = "float32[]", "int64[]", "float32[2]", "float32[2]"
    assert "has 2 tensors, wants 3 groups of equal length" in refused("Adagrad", *inputs, **DOMAIN)
    attributes = {**MOMENTUM, "mode": "heavy"}
    given = (*inputs, "float32[3]")
    assert "mode is 'heavy', wants standard" in refused("Momentum", *given, **DOMAIN, **attributes)
    assert "tensor 2" in refused("Momentum", *given, **DOMAIN, **MOMENTUM)
