"""Results whose size is data: what they need of their inputs.

They are computed in NumPy, where sizes are numbers. Under jit the size would have to be known
before the data is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.core import Tracer

from .._dim import Undecided
from .._error import UnsupportedError
from .._host import DimArray


def concrete(x: Any) -> np.ndarray:
    """The numbers of an array, on the host."""
    if isinstance(x, DimArray):
        raise Undecided("a result whose size depends on formulas")
    if isinstance(x, Tracer):
        raise UnsupportedError(
            "the size of the result depends on data, which is not known under jit, grad or vmap; "
            "jaxshape.run and InferenceSession run such models"
        )
    return np.asarray(x)


def nonzero(mask: Any) -> tuple[np.ndarray, ...]:
    """Where mask (*D) is true, in row-major order: for each axis the indices (count,)."""
    return np.nonzero(concrete(mask))
