"""One node against a reference: on the host and on the device it gives what is expected."""

from typing import Any

import numpy as np
from builders import node

import jaxshape as js

RTOL = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 2e-6, "float64": 1e-12}


def check(
    op: str, inputs: list[Any], wanted: Any, static: tuple[int, ...] = (), **keywords: Any
) -> None:
    """Run one node with its inputs as constants and as arguments: dtype, shape, values as wanted.

    The inputs at `static` are constants in both forms. Infinities, NaN and integers must be exact.
    """
    given = [None if x is None else np.asarray(x) for x in inputs]
    fed = {f"x{i}": x for i, x in enumerate(given) if x is not None and i not in static}
    typed: list[Any] = list(given)
    for i, x in enumerate(given):
        if f"x{i}" in fed:
            dtype = "string" if x.dtype == object else x.dtype  # type: ignore[union-attr]
            typed[i] = f"{dtype}[{', '.join(map(str, x.shape))}]"  # type: ignore[union-attr]
    wanted = np.asarray(wanted)
    for form, (arguments, feed) in {"host": (given, {}), "device": (typed, fed)}.items():
        (got,) = js.run(node(op, *arguments, **keywords), feed).values()
        assert got.dtype == wanted.dtype, form
        rtol = RTOL.get(got.dtype.name, 0)
        if rtol:
            wide = np.float64 if got.dtype == np.float64 else np.float32
            got, expected = got.astype(wide), wanted.astype(wide)
            np.testing.assert_allclose(got, expected, rtol, rtol, err_msg=form)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=form)
        assert got.shape == wanted.shape, form
