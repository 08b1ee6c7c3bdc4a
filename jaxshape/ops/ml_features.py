"""Preparing features, the operators of ai.onnx.ml that scikit-learn's transformers become."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .._device import canonical
from .._error import ShapeError
from .._facts import least, same
from .._host import namespace
from .._op import op
from .._symbol import fit, hostdims
from .._value import STRING, TensorType
from ._agree import ranked, reshape, written
from ._numeric import is_float
from ._scores import constant, floats
from .index import check_range
from .text import words

DOMAIN = "ai.onnx.ml"


@op("Binarizer", domain=DOMAIN, host=True, elementwise=True)
def binarizer(x, /, *, threshold=0.0):
    """Give 1 where x is above the threshold, else 0; x (*D) -> (*D)."""
    above = (x if is_float(x.dtype) else x.astype(canonical("float64"))) > threshold
    return above.astype(x.dtype)


def _spread(x: Any, *lists: Any) -> Any:
    """x (*D, F), of which is demanded that F is the length of these lists; one element fits all."""
    ranked("X", hostdims(x.shape), least=1)
    *rest, f = hostdims(x.shape)
    for values in lists:
        if values is not None and len(values) != 1:
            f = same(f, len(values), f"{len(values)} values for the features of X")
    return fit(x, (*rest, f))


@op("Scaler", domain=DOMAIN, host=True)
def scaler(x, /, *, offset=None, scale=None):
    """Subtract offset from x (*D, F), multiply by scale, both (F,) or (1,) -> float (*D, F)."""
    y = floats(_spread(x, offset, scale))
    y = y - constant(y, offset, y.dtype) if offset else y
    return (y * constant(y, scale, y.dtype) if scale else y).astype(np.float32)


@op("Imputer", domain=DOMAIN, host=True)
def imputer(
    x, /, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0,
    replaced_value_int64=0,
):  # fmt: skip
    """Replace one value in x (*D, F) by imputed ones (F,) or (1,), NaN among them -> (*D, F)."""
    real = is_float(x.dtype)
    values = imputed_value_floats if real else imputed_value_int64s
    replaced = replaced_value_float if real else replaced_value_int64
    if not values:
        kind = "floats" if real else "int64s"
        raise ShapeError(f"imputed_value_{kind} is wanted for {x.dtype}")
    x, xp = _spread(x, values), namespace(x)
    found = xp.isnan(x) if replaced != replaced else x == constant(x, replaced, x.dtype)
    return xp.where(found, constant(x, values, x.dtype), x)


def _unchanged(norm: Any) -> Any:
    """A divisor that leaves rows of norm 0 as they are."""
    return namespace(norm).where(norm == 0, 1, norm)


@op("Normalizer", domain=DOMAIN, host=True)
def normalizer(x, /, *, norm="MAX"):
    """Divide rows of x (N, C) or (C,) by their greatest element, 1- or 2-norm -> float, as x."""
    ranked("X", hostdims(x.shape), 1, 2)
    if norm not in ("MAX", "L1", "L2"):
        raise ShapeError(f"norm is {norm!r}, wants MAX, L1, L2")
    xp, y = namespace(x), floats(x)
    if norm == "MAX":
        by = _unchanged(xp.max(y, axis=-1, keepdims=True, initial=-np.inf))
    elif norm == "L1":
        by = _unchanged(xp.sum(xp.abs(y), axis=-1, keepdims=True))
    else:  # inside the root: its slope at 0 has no bound
        by = xp.sqrt(_unchanged(xp.sum(y * y, axis=-1, keepdims=True)))
    return (y / by).astype(np.float32)


@op("OneHotEncoder", domain=DOMAIN, host=True)
def one_hot_encoder(x, /, *, cats_int64s=None, cats_strings=None, zeros=1):
    """Mark which category each element of x (*D) is -> float (*D, k).

    Without zeros an element that is none is an error, or NaN where it is not known on the host.
    """
    cats = _categories(x.dtype, cats_int64s, cats_strings)
    places = {c: i for i, c in enumerate(cats)}
    if x.dtype == STRING:
        hot = np.zeros((x.size, len(cats)), np.float32)
        found = [places.get(w) for w in words(x)]
        for row, place in zip(hot, found, strict=True):
            row[[] if place is None else place] = 1
        hot = hot.reshape(*x.shape, len(cats))
    else:
        last = np.array([places[c] == i for i, c in enumerate(cats)])  # of a category named twice
        whole = x.astype(canonical("int64"))[..., None]
        found = (whole == constant(x, cats, whole.dtype)) & constant(x, last, bool)
        hot = found.astype(np.float32)
    if zeros:
        return hot
    xp = namespace(hot)
    known = xp.any(hot > 0, axis=-1, keepdims=True)
    if xp is np and not known.all():
        raise ShapeError(f"{x[~known[..., 0]].tolist()[0]!r} is none of the {len(cats)} categories")
    return xp.where(known, hot, np.nan)


def _categories(dtype: Any, ints: Any, strings: Any) -> Any:
    cats = strings if dtype == STRING else ints
    if not cats:
        raise ShapeError(f"cats_{'strings' if dtype == STRING else 'int64s'} is wanted")
    return cats


@one_hot_encoder.shape_rule(rankless=True)  # because JAX holds no text
def _(x, /, *, cats_int64s=None, cats_strings=None, zeros=1):
    k = len(_categories(x.dtype, cats_int64s, cats_strings))
    return TensorType("float32", None if x.shape is None else (*x.shape, k))


@op("FeatureVectorizer", domain=DOMAIN, host=True)
def feature_vectorizer(*x, inputdimensions=None):
    """Join inputs (N, C) or (C,), cut or filled up to inputdimensions -> float (N, sum of them)."""
    if not x or inputdimensions is not None and len(inputdimensions) != len(x):
        raise ShapeError(f"{len(inputdimensions or ())} inputdimensions for {len(x)} inputs")
    tables, xp = [_table(v) for v in x], namespace(*x)
    n = functools.reduce(
        lambda a, b: same(a, b, "rows of the inputs"), [hostdims(v.shape)[0] for v in tables]
    )
    parts = [fit(v, (n, *hostdims(v.shape)[1:])).astype(np.float32) for v in tables]
    for i, width in enumerate(inputdimensions or ()):
        if parts[i].shape[1] != width:
            parts[i] = xp.pad(parts[i], ((0, 0), (0, width)))[:, :width]
    return xp.concatenate(parts, 1)


def _table(x: Any) -> Any:
    """x (N, *C) or (C,) with two axes."""
    ranked("X", hostdims(x.shape), least=1)
    n, *rest = hostdims(x.shape) if x.ndim > 1 else (1, *hostdims(x.shape))
    return reshape(x, (n, functools.reduce(lambda a, b: a * b, rest)))


@op("ArrayFeatureExtractor", domain=DOMAIN, host=True)
def array_feature_extractor(x, y, /):
    """Take elements y (*K) of the last axis of x (*D, F) -> (*D, k); (F,) gives (1, k)."""
    _extracted(hostdims(x.shape), hostdims(y.shape))
    check_range(y, x.shape, x.ndim - 1)
    if isinstance(y, np.ndarray) and y.size and y.min() < 0:
        raise ShapeError(f"index {y.min()} is negative, which is no place of a feature")
    xp = namespace(x, y)
    flat = y.reshape(-1)
    if xp is np:
        taken = np.take(x, flat, -1)
    else:  # a negative index is out of range as well
        flat = xp.where(flat < 0, np.iinfo(flat.dtype).max, flat)
        taken = xp.take(x, flat, axis=-1, mode="fill")
    return taken[None] if x.ndim == 1 else taken


def _extracted(x: Any, y: Any) -> tuple[Any, ...]:
    ranked("X", x, least=1)
    k = functools.reduce(lambda a, b: a * b, y, 1)
    least(k, 1, f"indices Y {written(y)}")
    return (*(x[:-1] or (1,)), k)


@array_feature_extractor.shape_rule  # because JAX holds no text
def _(x, y, /):
    return TensorType(x.dtype, _extracted(x.shape, y.shape))
