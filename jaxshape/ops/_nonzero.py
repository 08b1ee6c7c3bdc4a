"""Results whose size is data: what they need of their inputs.

They are computed in NumPy, where sizes are numbers. Under jit the size would have to be known
before the data is; a conversion with bounds takes it for a symbol (see `_counts.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.core import Tracer

from .._counts import SizeIsData, counting
from .._dim import Undecided
from .._host import DimArray


def concrete(x: Any) -> np.ndarray:
    """The numbers of an array, on the host."""
    if isinstance(x, DimArray):
        raise Undecided("a result whose size depends on formulas")
    if isinstance(x, Tracer):
        raise SizeIsData(
            "the size of the result depends on data, which is not known under jit, grad or vmap; "
            "jaxshape.run and InferenceSession run such models, to_jax with bounded=True"
        )
    return np.asarray(x)


def symbolic(*xs: Any) -> bool:
    """Whether these are traced where a count may be a symbol."""
    counts = counting()
    return counts is not None and counts.tracing and any(isinstance(x, Tracer) for x in xs)


def nonzero(mask: Any, least: int = 0) -> Any:
    """Where mask (*D) is true, in row-major order: for each axis the indices (count,).

    `least` is how many there are at least.
    """
    counts = counting()
    if counts is not None and symbolic(mask):
        return counts.nonzero(mask, least)
    return np.nonzero(concrete(mask))
