"""The one way by which host arrays reach the device.

Under a caller that has not enabled 64-bit types JAX has no int64 and no float64: an int64 saturates
(2**63 - 1, "to the end", must not wrap to -1) and a float64 narrows, with one warning. Nothing here
changes a setting of JAX.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._error import JaxshapeWarning
from ._host import DimArray, namespace

_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def canonical(dtype: Any, *arrays: Any) -> np.dtype:
    """The dtype that JAX uses for this one under the caller's setting: int64 is int32 without x64.

    On the host nothing is narrowed: where `arrays` are given and all of them are host arrays, it is
    the dtype itself.
    """
    if arrays and namespace(*arrays) is np:
        return np.dtype(dtype)
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def to_device(x: Any) -> Any:
    """A host array as a `jax.Array` (a constant under jit); anything else as it is."""
    if isinstance(x, DimArray) or not isinstance(x, (np.ndarray, np.generic)) or x.dtype == object:
        return x
    target = canonical(x.dtype)
    if target == x.dtype:
        return jnp.asarray(x)
    if target.kind in "iu":
        limits = np.iinfo(target)
        return jnp.asarray(np.clip(x, limits.min, limits.max).astype(target))
    warnings.warn(
        f"{x.dtype} becomes {target}: enable 64-bit types (jax.enable_x64) to keep its precision",
        JaxshapeWarning,
        stacklevel=2,
    )
    return jnp.asarray(x.astype(target))
