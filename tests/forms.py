"""One node in its two forms: all of it on the host, and its data on the device."""

from typing import Any

import numpy as np
from builders import node

import jaxshape as js


def run(
    op: str, *inputs: Any, static: tuple[int, ...] = (), outputs: int = 1, **keywords: Any
) -> list[Any]:
    """The outputs of one node, which must be the same where its inputs are constants or arguments.

    The inputs at `static` stay constants, as in most models.
    """
    given = [None if x is None else np.asarray(x) for x in inputs]
    fed = {f"x{i}": x for i, x in enumerate(given) if x is not None and i not in static}
    typed = [x if x is None or i in static else typed_as(x) for i, x in enumerate(given)]
    device = js.run(node(op, *typed, outputs=outputs, **keywords), fed)
    host = js.run(node(op, *given, outputs=outputs, **keywords), {})
    for name, value in device.items():
        assert value.dtype == host[name].dtype and value.shape == host[name].shape, name
        np.testing.assert_array_equal(value, host[name])
    return list(device.values())


def typed_as(x: np.ndarray) -> str:
    """The type of an array as `builders.node` reads it."""
    return f"{'string' if x.dtype == object else x.dtype}[{','.join(map(str, x.shape))}]"


def types(op: str, *inputs: Any, outputs: int = 1, **keywords: Any) -> list[str]:
    """The types of one node's outputs as text, for inputs as in `builders.node`."""
    trace = js.trace(node(op, *inputs, outputs=outputs, **keywords))
    return [str(trace[f"y{i}"]) for i in range(outputs)]


def demands(op: str, *inputs: Any, **keywords: Any) -> list[str]:
    """What must hold or the node cannot run, as text."""
    return [str(r) for r in js.trace(node(op, *inputs, **keywords)).requirements]
