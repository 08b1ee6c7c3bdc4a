"""One node of several float outputs, on the host and on the device, against a reference."""

from typing import Any

import numpy as np
from builders import node
from forms import typed_as

import jaxshape as js


def layer(
    op: str, *inputs: Any, wanted: Any = None, rtol: float = 1e-5, outputs: int = 1, **keywords: Any
) -> list[np.ndarray]:
    """The outputs of a node whose inputs are arguments, which constants must give as well.

    `wanted` are the first outputs as a reference has them, dtypes included; None is any.
    """
    given = [None if x is None else np.asarray(x) for x in inputs]
    fed = {f"x{i}": x for i, x in enumerate(given) if x is not None}
    typed = [None if x is None else typed_as(x) for x in given]
    device = js.run(node(op, *typed, outputs=outputs, **keywords), fed)
    host = js.run(node(op, *given, outputs=outputs, **keywords), {})
    compare(list(host.values()), list(device.values()), rtol)
    compare(list(device.values()), wanted if isinstance(wanted, (list, tuple)) else [wanted], rtol)
    return list(device.values())


def compare(got: list[Any], wanted: Any, rtol: float) -> None:
    """Demand dtypes, shapes and values; half types are compared in float32."""
    for i, (g, w) in enumerate(zip(got, wanted, strict=False)):
        if w is None:
            continue
        assert (g.dtype, g.shape) == (w.dtype, w.shape), i
        if g.dtype.kind in "fV":
            g, w = (v.astype(np.float64) for v in (g, w))
        np.testing.assert_allclose(g, w, rtol, rtol, err_msg=f"output {i}")


def refused(op: str, *inputs: Any, **keywords: Any) -> str:
    """What the error says of a node that cannot run."""
    try:
        js.trace(node(op, *inputs, **keywords))
    except js.ShapeError as e:
        return str(e)
    raise AssertionError(f"{op} is not refused")
