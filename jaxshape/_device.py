"""The one way by which host arrays reach the device.

Under a caller that has not enabled 64-bit types JAX has no int64 and no float64: an int64 saturates
(2**63 - 1, "to the end", must not wrap to -1) and a float64 narrows, with one warning for all that
is lost. Nothing here changes a setting of JAX.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ._error import JaxshapeWarning
from ._host import DimArray, namespace

# what 64-bit types are to a caller without them
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def canonical(dtype: Any, *arrays: Any) -> np.dtype:
    """The dtype that JAX uses for this one under the caller's setting: int64 is int32 without x64.

    On the host nothing is narrowed: where `arrays` are given and all of them are host arrays, it is
    the dtype itself.
    """
    if arrays and namespace(*arrays) is np:
        return np.dtype(dtype)
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


OPTION = "xla_cpu_experimental_ynn_fusion_type"


@functools.cache
def compiler_options() -> dict[str, Any]:
    """What our own jits tell XLA.

    In jaxlib 0.10 the YNN fusions of its CPU backend give garbage where a reduction or elementwise
    steps follow a long chain of convolutions (a ResNet-50 of constant weights: in each process
    another number), so that they are left to dots and convolutions. Nothing was seen to be slower.
    A jaxlib that lacks the option needs nothing.
    """
    kinds = ("DOT", "INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION")
    names = ",".join([f"LIBRARY_FUSION_TYPE_{kind}" for kind in kinds])
    options: Any = {OPTION: names}
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


_probe = jax.jit(lambda: np.int8(0))


def tracing(leaves: Iterable[Any]) -> bool:
    """Whether a call with these leaves is part of a trace (of jit, grad, vmap) that is under way:
    one of them belongs to it, or whatever is computed now does.
    """
    return any(isinstance(x, jax.core.Tracer) for x in leaves) or isinstance(
        _probe(), jax.core.Tracer
    )


def to_device(x: Any) -> Any:
    """A host array as a `jax.Array` (a constant under jit), and one of JAX in the caller's setting;
    anything else as it is.
    """
    if isinstance(x, DimArray):  # met under `jax.export` alone
        from ._export_scope import array_of

        return array_of(x)
    if isinstance(x, jax.Array):
        wide = x.dtype.name in NARROW and canonical(x.dtype) != x.dtype
        return x.astype(canonical(x.dtype)) if wide else x  # it was made under another setting
    if not isinstance(x, (np.ndarray, np.generic)) or x.dtype == object:
        return x
    target = canonical(x.dtype)
    if target == x.dtype:
        return jnp.asarray(x)
    if target.kind in "iu":
        limits = np.iinfo(target)
        fitting = np.clip(x, limits.min, limits.max)
        if (fitting != x).any():
            _tell(f"{x.dtype} becomes {target}, which does not hold all of its numbers")
        return jnp.asarray(fitting.astype(target))
    _tell(f"{x.dtype} becomes {target}")
    return jnp.asarray(x.astype(target))


_told: ContextVar[dict[str, None] | None] = ContextVar("told", default=None)


def _tell(loss: str) -> None:
    """Warn of what is lost, at once or when `one_warning` ends."""
    told = _told.get()
    if told is None:
        _warn([loss])
    else:
        told[loss] = None


@contextlib.contextmanager
def one_warning() -> Iterator[None]:
    """Gather what is lost for want of 64-bit types into one warning, however many the arrays."""
    if _told.get() is not None:
        yield
        return
    token = _told.set(told := {})
    try:
        yield
    finally:
        _told.reset(token)
    if told:
        _warn(told)


def _warn(losses: Iterable[str]) -> None:
    warnings.warn(
        f"{'; '.join(losses)}: enable 64-bit types (jax.enable_x64) to keep them",
        JaxshapeWarning,
        stacklevel=4,
    )
