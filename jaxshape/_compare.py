"""Comparing a value with what it should be: dtype, shape, and numbers within one table of
tolerances.

A difference is given as a share of what is tolerated: 1 and above fails. An element may differ by
`atol + rtol * max(|wanted|, rms(wanted))`: a sum of large terms that nearly cancel is as exact as
its terms, not as its result, and the root mean square stands for those. Integers, booleans, text
and the 8-, 6- and 4-bit floats are compared exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._dim import Dim
from ._value import STRING, SequenceType, TensorType, dtype_name

# (rtol, atol) by dtype, and by platform where it rounds otherwise; matmuls in full precision
TOLERANCE: dict[str, dict[str, tuple[float, float]]] = {
    "float64": {"cpu": (1e-6, 1e-9)},
    "float32": {"cpu": (2e-4, 1e-5)},
    "float16": {"cpu": (2e-2, 2e-3)},
    "bfloat16": {"cpu": (5e-2, 1e-2)},
    "complex64": {"cpu": (2e-4, 1e-5)},
    "complex128": {"cpu": (1e-6, 1e-9)},
}


def tolerance(dtype: np.dtype, platform: str = "cpu") -> tuple[float, float]:
    """What a dtype may differ by on a platform, relatively and absolutely; (0, 0) where exact.

    >>> tolerance(np.dtype("float32")), tolerance(np.dtype("int8"), "gpu")
    ((0.0002, 1e-05), (0.0, 0.0))
    """
    row = TOLERANCE.get(dtype.name, {})
    return row.get(platform, row.get("cpu", (0.0, 0.0)))


def difference(got: Any, want: Any, platform: str = "cpu") -> tuple[float, str]:
    """The greatest difference of two values over what is tolerated, and what else differs.

    >>> difference(np.float32([1, 2]), np.float32([1, 2.0002]))[0] < 1
    True
    >>> difference(np.ones(2), np.ones(3))
    (inf, 'shape [2], not [3]')
    """
    if isinstance(want, dict) and isinstance(got, dict):
        if list(got) != list(want):
            return np.inf, "maps with different keys"
        return difference(_flat(got), _flat(want), platform)
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return np.inf, "sequences of different lengths"
        pairs = [difference(g, w, platform) for g, w in zip(got, want, strict=True)]
        return max([s for s, _ in pairs], default=0.0), next((p for _, p in pairs if p), "")
    if want is None or got is None or isinstance(want, dict) or isinstance(got, dict):
        return (0.0, "") if got is want else (np.inf, "one is absent")
    got, want = _array(got), _array(want)
    if got.dtype != want.dtype:
        return np.inf, f"dtype {dtype_name(got.dtype)}, not {dtype_name(want.dtype)}"
    if got.shape != want.shape:
        return np.inf, f"shape {list(got.shape)}, not {list(want.shape)}"
    if want.dtype == STRING or want.dtype.kind in "biu" or "int" in want.dtype.name:
        wrong = want.size - int(np.count_nonzero(got == want))
        return (0.0, "") if not wrong else (np.inf, f"{wrong} of {want.size} elements differ")
    return _numbers(got, want, platform)


def _numbers(got: np.ndarray, want: np.ndarray, platform: str) -> tuple[float, str]:
    native = want.dtype.name in ("float32", "float64", "complex64", "complex128")
    wide = want.dtype if native else np.dtype(np.float64)
    g, w = got.astype(wide, copy=False), want.astype(wide, copy=False)
    odd = ~np.isfinite(w)
    if odd.any() or not np.isfinite(g).all():
        same = np.array_equal(~np.isfinite(g), odd)
        if not same or not np.array_equal(g[odd], w[odd], equal_nan=True):
            return np.inf, "NaN or infinity in different places"
        g, w = g[~odd], w[~odd]
    rtol, atol = tolerance(want.dtype, platform)
    with np.errstate(over="ignore"):
        off = np.abs(g - w)
    wrong = int(np.count_nonzero(off))
    if not wrong:
        return 0.0, ""
    if not rtol:
        return np.inf, f"{wrong} of {want.size} elements differ"
    size = np.abs(w)
    scale = np.maximum(size, np.sqrt(np.mean(np.square(size, dtype=np.float64))))
    return float(np.max(off / (atol + rtol * scale))), ""


def _array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _flat(values: dict[Any, Any]) -> np.ndarray:
    """The values of a map as one array; a runtime may give them as plain Python numbers."""
    array = np.array(list(values.values()))
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def nearest(outcomes: Sequence[Any], want: Any) -> Any:
    """What is nearest to `want` between the least and the greatest of some outcomes of one node.

    Outcomes that differ in more than numbers are taken whole: the first that equals `want`.
    """
    first = outcomes[0]
    arrays = [isinstance(v, np.ndarray) and v.dtype != STRING for v in (*outcomes, want)]
    if not all(arrays) or any(v.shape != want.shape for v in outcomes) or want.dtype.kind == "c":
        return next((v for v in outcomes if difference(v, want)[0] <= 1), first)
    if first.dtype != want.dtype or not want.size:
        return first
    narrow = want.dtype.kind not in "fiu"  # booleans and what NumPy lacks have no clip of their own
    kind = np.dtype(np.float64) if narrow else want.dtype
    stack = np.stack([v.astype(kind) for v in outcomes])
    wanted = want.astype(kind)
    kept = np.clip(wanted, np.fmin.reduce(stack), np.fmax.reduce(stack))
    absent = np.isnan(wanted) & np.isnan(stack).any(0) if kind.kind == "f" else False
    return np.where(absent, wanted, kept).astype(want.dtype)


def denies(claimed: Any, got: Any) -> bool:
    """Whether a traced type is false of a value."""
    if isinstance(claimed, SequenceType) or not isinstance(claimed, TensorType):
        return False
    if got is None or isinstance(got, (list, dict)):
        return True
    got = np.asarray(got)
    dtype = STRING if got.dtype.kind in "US" else got.dtype
    if claimed.dtype is not None and claimed.dtype != dtype:
        return True
    if claimed.shape is None:
        return False
    return len(claimed.shape) != got.ndim or any(
        not isinstance(d, Dim) and d is not None and d != n
        for d, n in zip(claimed.shape, got.shape, strict=True)
    )
