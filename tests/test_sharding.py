"""Parameters on a mesh by their names; results on many devices are those on one."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import jaxshape as js

HERE = pathlib.Path(__file__).parent
RULES = [("*.up.w", P(None, "model")), (re.compile(r"\.(down|up)\.[wb]$"), P("model"))]

PLACES = [  # a name, a shape, the rules, how it is split
    ("h.up.w", (3, 8), RULES, (None, "model")),
    ("h.up.w", (8, 6), RULES, (None, None)),  # four devices do not divide 6
    ("h.down.w", (8, 3), RULES, ("model",)),
    ("h.up.b", (4,), RULES, ("model",)),
    ("h.up.b", (), RULES, ()),
    ("h.norm.w", (8,), RULES, ()),
    ("w", (16, 4), [("w", P(("data", "model"), None))], (("data", "model"), None)),
    ("w", (12, 4), [("w", P(("data", "model"), None))], (None, None)),
    ("w", (8, 8), [("v", P("data")), ("*", P(None, "data")), ("w", P("model"))], (None, "data")),
    ("w", (8, 8), {"v": P("data"), "*": P(None, "data"), "w": P("model")}, (None, "data")),
    ("w", (0, 4), [("w", P("data", "model"))], ("data", "model")),
]


def mesh():
    return AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


@pytest.mark.parametrize("name, shape, rules, spec", PLACES)
def test_places(name, shape, rules, spec):
    found = js.shardings({name: jnp.zeros(shape)}, mesh(), rules)
    assert tuple(found[name].spec) == spec


def test_what_mirrors_the_parameters_is_placed_like_them():
    params = {"a": jnp.zeros((4, 4)), "b": jnp.zeros(3)}
    state = ({"count": jnp.zeros(()), "mu": params, "nu": jax.tree.map(jnp.ones_like, params)},)
    found = js.shardings(state, mesh(), [("a", P("data"))])[0]
    assert tuple(found["mu"]["a"].spec) == ("data",) == tuple(found["nu"]["a"].spec)
    assert tuple(found["count"].spec) == () == tuple(found["mu"]["b"].spec)


def test_an_axis_that_the_mesh_lacks_is_an_error():
    with pytest.raises(js.UnknownValueError, match="along 'expert'; the mesh has 'data', 'model'"):
        js.shardings({}, mesh(), [("w", P(None, "expert"))])


# in processes of their own ------------------------------------------------------------------------


def start(devices, *what):
    flags = f"--xla_force_host_platform_device_count={devices}"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, HERE / "many_devices.py", *map(str, what)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*processes):
    try:
        for p in processes:
            said, _ = p.communicate(timeout=120)
            assert p.returncode == 0 and said.endswith("same\n"), said
    finally:
        for p in processes:
            p.kill()


def test_eight_devices_give_what_one_gives():
    finish(start(8, "mesh"))


@pytest.mark.slow
def test_two_processes_give_what_one_gives():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    finish(*[start(2, "process", i, 2, port) for i in range(2)])
