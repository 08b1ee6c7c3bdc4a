"""Labels and maps of ai.onnx.ml: one value for another, and rows as Python dicts.

Numbers are looked up by binary search, on the device too; text is looked up on the host. A map is a
dict; a sequence of maps a list of dicts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._error import ShapeError
from .._facts import count, same
from .._host import is_host, namespace
from .._op import op
from .._symbol import hostdims
from .._value import STRING, UNKNOWN, MapType, SequenceType, TensorType
from ._numeric import is_float
from ._scores import constant, rows, rows_of
from .text import text, words

DOMAIN = "ai.onnx.ml"


def _looked_up(x: Any, keys: np.ndarray, values: np.ndarray, default: Any) -> Any:
    """For each element of x the value at its key, the default where there is none; None for text
    under a transformation of JAX.
    """
    if values.dtype == STRING and not is_host(x):
        return None
    if x.dtype == STRING or values.dtype == STRING:
        table = dict(zip(_plain(keys), values.tolist(), strict=True))
        found = [table.get(k, default) for k in (words(x) if x.dtype == STRING else _plain(x))]
        if values.dtype == STRING:
            return text(found, x.shape)
        return np.array(found, values.dtype).reshape(x.shape)
    xp = namespace(x)
    _, last = np.unique(keys[::-1], return_index=True)  # of a key named twice the last counts
    order = len(keys) - 1 - last
    made, keys = constant(x, values[order], values.dtype), constant(x, keys[order], x.dtype)
    missing = constant(x, default, values.dtype)
    if not len(order):
        return xp.full(x.shape, missing)
    at = xp.minimum(xp.searchsorted(keys, x), len(order) - 1)  # NaN is behind all numbers
    known = keys[at] == x
    if is_float(x.dtype):
        known = known | xp.isnan(keys[at]) & xp.isnan(x)
    return xp.where(known, made[at], missing)


def _plain(x: np.ndarray) -> list[Any]:
    """The elements as Python's own, every NaN the same."""
    return ["nan" if v != v else v for v in x.ravel().tolist()]


# the names of attributes, and of what they hold
_KINDS = {"floats": np.float32, "int64s": np.int64, "strings": object, "tensor": None}


def _given(attributes: Any, side: str) -> tuple[np.ndarray, str]:
    """The keys or values, of which one kind is given, and the kind."""
    found = [
        (kind, given)
        for kind in _KINDS
        if (given := attributes.get(f"{side}_{kind}")) is not None and len(given)
    ]
    if len(found) != 1:
        wanted = ", ".join(f"{side}_{kind}" for kind in _KINDS)
        raise ShapeError(f"one of {wanted} is wanted, {len(found)} are given")
    kind, given = found[0]
    return (given.ravel() if kind == "tensor" else np.array(given, _KINDS[kind])), kind


def _encoding(attributes: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Keys, values and the default."""
    keys, _ = _given(attributes, "keys")
    values, kind = _given(attributes, "values")
    if len(keys) != len(values):
        raise ShapeError(f"{len(keys)} keys for {len(values)} values")
    tensor = attributes.get("default_tensor")
    if tensor is not None and (kind == "tensor" or tensor.dtype == values.dtype):
        if tensor.size != 1 or tensor.dtype != values.dtype:
            raise ShapeError(f"default_tensor {tensor.dtype}{tensor.shape} is no {values.dtype}[1]")
        return keys, values, tensor.item()
    if kind == "tensor":
        return keys, values, _UNUSED.get(values.dtype.kind, -1)
    return keys, values, attributes[f"default_{kind.rstrip('s')}"]


_UNUSED = {"O": "_Unused", "f": -0.0}  # the default of a default_tensor, of integers -1


def _encode(x: Any, **attributes: Any) -> Any:
    keys, values, default = _encoding(attributes)
    if keys.dtype != x.dtype and namespace(x) is np:
        raise ShapeError(f"the keys are {keys.dtype}, X is {x.dtype}")
    return _looked_up(x, keys, values, default)


def _encoded(x: Any, **attributes: Any) -> TensorType:
    keys, values, _ = _encoding(attributes)
    if x.dtype is not None and keys.dtype != x.dtype:
        raise ShapeError(f"the keys are {keys.dtype}, X is {x.dtype}")
    return TensorType(values.dtype, x.shape)


@op("LabelEncoder", domain=DOMAIN, since=1, host=True)
def label_encoder_1(x, /, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    """Give the place of text x (*D) among the classes, or the class at a place x (*D)."""
    names, places = np.array(classes_strings or (), object), np.arange(len(classes_strings or ()))
    if x.dtype == STRING:
        return _looked_up(x, names, places, default_int64)
    return _looked_up(x, places, names, default_string)


@label_encoder_1.shape_rule(rankless=True)  # because JAX holds no text
def _(x, /, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    return _mapped(x)


def _mapped(x: Any) -> TensorType:
    dtype = None if x.dtype is None else "int64" if x.dtype == STRING else STRING
    return TensorType(dtype, x.shape)


@op("LabelEncoder", domain=DOMAIN, since=2, host=True)
def label_encoder_2(
    x, /, *, default_float=-0.0, default_int64=-1, default_string="_Unused", keys_floats=None,
    keys_int64s=None, keys_strings=None, values_floats=None, values_int64s=None,
    values_strings=None,
):  # fmt: skip
    """Replace keys in x (*D) by their values -> (*D)."""
    return _encode(**locals())


@op("LabelEncoder", domain=DOMAIN, since=4, host=True)
def label_encoder_4(
    x, /, *, default_float=-0.0, default_int64=-1, default_string="_Unused", default_tensor=None,
    keys_floats=None, keys_int64s=None, keys_strings=None, keys_tensor=None, values_floats=None,
    values_int64s=None, values_strings=None, values_tensor=None,
):  # fmt: skip
    """Replace keys in x (*D) by their values -> (*D)."""
    return _encode(**locals())


_DEFAULTS = {"default_float": -0.0, "default_int64": -1, "default_string": "_Unused"}


# because JAX holds no text
@label_encoder_2.shape_rule(rankless=True)
@label_encoder_4.shape_rule(rankless=True)
def _(x, /, **attributes):
    return _encoded(x, **_DEFAULTS | attributes)


@op("CategoryMapper", domain=DOMAIN, host=True)
def category_mapper(
    x, /, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"
):
    """Replace integers in x (*D) by text, or text by integers -> (*D)."""
    names, numbers = np.array(cats_strings or (), object), np.array(cats_int64s or (), np.int64)
    if not len(names) or len(names) != len(numbers):
        raise ShapeError(f"{len(names)} cats_strings for {len(numbers)} cats_int64s")
    if x.dtype == STRING:
        return _looked_up(x, names, numbers, default_int64)
    return _looked_up(x, numbers, names, default_string)


@category_mapper.shape_rule(rankless=True)  # because JAX holds no text
def _(x, /, **_):
    return _mapped(x)


# maps ---------------------------------------------------------------------------------------------


def _keys(ints: Any, strings: Any) -> Any:
    if bool(ints) == bool(strings):
        raise ShapeError("one of classlabels_int64s and classlabels_strings is wanted")
    return ints or strings


@op("ZipMap", domain=DOMAIN, host=True)
def zip_map(x, /, *, classlabels_int64s=None, classlabels_strings=None):
    """Make of each row of x (N, E) or (E,) a map from the labels to its elements."""
    keys = _keys(classlabels_int64s, classlabels_strings)
    same(rows_of(hostdims(x.shape))[1], len(keys), f"{len(keys)} labels for the columns of X")
    return [dict(zip(keys, row, strict=True)) for row in rows(x)]


@zip_map.shape_rule  # because a map is no array for JAX
def _(x, /, *, classlabels_int64s=None, classlabels_strings=None):
    keys = _keys(classlabels_int64s, classlabels_strings)
    n, e = rows_of(x.shape)
    same(e, len(keys), f"{len(keys)} labels for the columns of X")
    kind = STRING if classlabels_strings else np.int64
    return SequenceType(MapType(kind, TensorType("float32", ())), n)


@op("DictVectorizer", domain=DOMAIN, host=True)
def dict_vectorizer(x, /, *, int64_vocabulary=None, string_vocabulary=None):
    """Lay out a map along the vocabulary -> (1, k), 0 or "" where a word has no value."""
    words = _vocabulary(int64_vocabulary, string_vocabulary)
    values = list(x.values())
    textual = bool(values) and isinstance(values[0], str)
    dtype = np.dtype(object) if textual else np.asarray(values).dtype if values else np.float32
    nothing = "" if textual else 0
    made = np.empty(len(words), dtype)
    made[:] = [x.get(w, nothing) for w in words]
    return made[None]


def _vocabulary(ints: Any, strings: Any) -> Any:
    if bool(ints) == bool(strings):
        raise ShapeError("one of int64_vocabulary and string_vocabulary is wanted")
    return ints or strings


@dict_vectorizer.shape_rule(rankless=True)  # because a map is no array for JAX
def _(x, /, *, int64_vocabulary=None, string_vocabulary=None):
    k = len(_vocabulary(int64_vocabulary, string_vocabulary))
    elem = x.elem if isinstance(x, MapType) else UNKNOWN
    return TensorType(getattr(elem, "dtype", None), (1, k))


_CASTS = {"TO_FLOAT": np.dtype(np.float32), "TO_INT64": np.dtype(np.int64), "TO_STRING": STRING}


@op("CastMap", domain=DOMAIN, host=True)
def cast_map(x, /, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    """Lay out a map by its keys, which are places where sparse, else in their order -> (1, k)."""
    dtype = _cast_dtype(cast_to, map_form)
    values = [x[k] for k in sorted(x)]
    if map_form == "SPARSE":
        if x and not 0 <= min(x) <= max(x) < max_map:
            raise ShapeError(f"the keys {sorted(x)[:8]} are no places of max_map = {max_map}")
        values = [x.get(k, "0.f" if dtype == STRING else 0) for k in range(max_map)]
    made = np.empty((1, len(values)), dtype)
    made[0] = [_cast(v, dtype) for v in values]
    return made


def _cast(value: Any, dtype: Any) -> Any:
    if dtype == STRING:
        return value if isinstance(value, str) else f"{float(value):f}"
    return float(value) if dtype.kind == "f" else int(float(value))


def _cast_dtype(cast_to: str, map_form: str) -> np.dtype:
    if cast_to not in _CASTS or map_form not in ("DENSE", "SPARSE"):
        raise ShapeError(f"cast_to {cast_to!r}, map_form {map_form!r}: one of them is no such name")
    return _CASTS[cast_to]


@cast_map.shape_rule(rankless=True)  # because a map is no array for JAX
def _(x, /, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    k = max_map if map_form == "SPARSE" else count("CastMap_keys")
    return TensorType(_cast_dtype(cast_to, map_form), (1, k))
