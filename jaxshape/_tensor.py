"""A tensor at rest: dtype and shape are known at once, its bytes are read when they are asked for.

A model of gigabytes is traced from the shapes of its weights alone, so `Stored` holds a way to
read instead of an array.  What the file claims about itself is checked before anything of that
size is allocated, and external data is mapped from one folder that no path may leave: whoever
wrote the model is not trusted.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import ml_dtypes
import numpy as np
from onnx import SparseTensorProto, TensorProto

from ._error import ModelError, UnsupportedError

# By TensorProto.DataType.  Numbers, since an older onnx package has no name for the newer ones.
DTYPES: dict[int, np.dtype] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    8: np.dtype(object),  # string: the elements are str, or bytes where they are not UTF-8
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    14: np.dtype(np.complex64),
    15: np.dtype(np.complex128),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
    27: np.dtype(ml_dtypes.float6_e2m3fn),
    28: np.dtype(ml_dtypes.float6_e3m2fn),
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_STRING = 8

# Bits of one element where ONNX packs several into a byte; NumPy gives each a byte of its own.
_BITS = {
    DTYPES[c]: bits
    for bits, codes in {4: (21, 22, 23), 2: (25, 26), 6: (27, 28)}.items()
    for c in codes
}

# The field that holds the elements when `raw_data` does not; every other type uses int32_data.
_FIELDS = {
    1: ("float_data", np.float32),
    14: ("float_data", np.float32),
    11: ("double_data", np.float64),
    15: ("double_data", np.float64),
    7: ("int64_data", np.int64),
    12: ("uint64_data", np.uint64),
    13: ("uint64_data", np.uint64),
}
_INT32 = ("int32_data", np.int32)

SMALL = 65_536  # elements: arrays up to here are kept once read
_LARGEST_DENSE = (
    2**31
)  # bytes: what a sparse tensor may unfold to, as a model file could hold no more
_MOST_AXES = 64  # NumPy's limit


def onnx_dtype(dtype: np.dtype) -> int:
    """Give the TensorProto.DataType of a NumPy dtype; any kind of NumPy string is ONNX's string."""
    dtype = np.dtype(dtype)
    code = _CODES.get(dtype) or (_STRING if dtype.kind in "USTO" else None)
    if code is None:
        raise UnsupportedError(f"ONNX has no tensor type for dtype {dtype}")
    return code


class Stored:
    """A tensor that lies in the model file, beside it, or in memory, and is read on demand."""

    __slots__ = ("name", "dtype", "shape", "external", "_read", "_array", "__weakref__")

    def __init__(
        self,
        name: str,
        dtype: np.dtype,
        shape: tuple[int, ...],
        read: Callable[[], np.ndarray],
        external: bool = False,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.external = external
        self._read = read
        self._array: Callable[[], np.ndarray | None] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes at rest, packed where ONNX packs; of a string tensor, those of its pointers."""
        return _nbytes(self.dtype, self.size)

    def array(self) -> np.ndarray:
        """Read the elements, as an array that cannot be written to.

        A small array is kept; a large one lives as long as someone holds it and is then read
        again.  Raises ModelError where the file does not hold what it claims.
        """
        array = self._array() if self._array else None
        if array is None:
            array = self._read()
            array.flags.writeable = False
            self._array = (lambda kept=array: kept) if array.size <= SMALL else weakref.ref(array)
        return array

    def __deepcopy__(self, memo: object) -> Stored:
        return self  # nothing about it changes, and it may lie in a file that is mapped

    def __repr__(self) -> str:
        return f"Stored({self.name!r}, {self.dtype}, {list(self.shape)})"


@dataclass(frozen=True, eq=False, slots=True)
class Sparse:
    """A tensor of shape `dims`, zero but for `values` (n,) at `indices` (n,) or (n, rank)."""

    values: Stored
    indices: Stored
    dims: tuple[int, ...]

    def array(self) -> np.ndarray:
        """Unfold into a dense array."""
        what = f"sparse tensor {self.values.name!r}"
        dtype, rank, indices = self.values.dtype, len(self.dims), self.indices.array()
        if _nbytes(dtype, math.prod(self.dims)) > _LARGEST_DENSE:
            raise ModelError(f"{what}: shape {list(self.dims)} unfolds to more than 2 GiB")
        count = self.values.size
        linear = indices.shape == (count,)
        if not linear and indices.shape != (count, rank):
            raise ModelError(
                f"{what}: {count} values at indices of shape {list(indices.shape)}, "
                f"which should be [{count}] or [{count}, {rank}]"
            )
        limit = math.prod(self.dims) if linear else np.array(self.dims, np.int64)
        if ((indices < 0) | (indices >= limit)).any():
            raise ModelError(f"{what}: an index lies outside of shape {list(self.dims)}")
        dense = np.full(self.dims, "" if dtype.kind == "O" else 0, dtype)
        where = np.unravel_index(indices, self.dims) if linear else tuple(indices.T)
        dense[where] = self.values.array().reshape(count)
        return dense


class Folder:
    """The folder that a model's external data lies in; each file is mapped only once.

    `mapped` are files in it that are mapped already, the model's own, by name.
    """

    __slots__ = ("path", "_maps", "_own")

    def __init__(self, path: str, mapped: Mapping[str, np.ndarray] | None = None) -> None:
        self.path = os.path.abspath(path)
        self._maps: dict[str, np.ndarray] = {}
        self._own = mapped or {}

    def read(self, entries: Mapping[str, str], nbytes: int, what: str) -> np.ndarray:
        """Map the bytes (nbytes,) that a tensor's external_data entries point to."""
        location = entries.get("location", "")
        offset = _number(entries.get("offset", "0"), "offset", what)
        length = _number(entries.get("length", str(nbytes)), "length", what)
        if length != nbytes:
            raise ModelError(
                f"{what}: {length} bytes of external data, where its shape takes {nbytes}"
            )
        data = self._map(location, what)
        if offset + nbytes > data.size:
            raise ModelError(
                f"{what}: needs bytes {offset} to {offset + nbytes} of {location!r}, "
                f"which has {data.size}; the file is cut short or belongs to another model"
            )
        return data[offset : offset + nbytes]

    def _map(self, location: str, what: str) -> np.ndarray:
        if location in self._own:
            return self._own[location]
        try:
            root = os.path.realpath(self.path)
            file = os.path.realpath(os.path.join(root, location))
            inside = os.path.commonpath([root, file]) == root
            if not location or os.path.isabs(location) or not inside:
                raise ModelError(
                    f"{what}: external data {location!r} is not inside of {self.path}, the model's "
                    "folder; put the file itself, not a link to it, beside the model"
                )
            if file not in self._maps:
                # Nothing but a regular file: opening a pipe would wait for ever.
                if not os.path.isfile(file):
                    raise ModelError(
                        f"{what}: there is no file {location!r} in {self.path} to hold its data; "
                        "put the file beside the model and load the model by its path"
                    )
                self._maps[file] = (
                    np.asarray(np.memmap(file, np.uint8, "r"))
                    if os.path.getsize(file)
                    else np.empty(0, np.uint8)
                )
            return self._maps[file]
        except (OSError, ValueError, TypeError) as e:  # a NUL in the path, or one that is no text
            raise ModelError(f"{what}: cannot read external data {location!r}: {e}") from e


def stored(proto: TensorProto, folder: Folder, owner: str = "") -> Stored:
    """Take up a tensor without reading its elements; errors name one without name by `owner`."""
    name, code = str(proto.name), proto.data_type  # bytes where it is not UTF-8
    shape = tuple(proto.dims)
    what = f"tensor {name!r}" if name or not owner else f"tensor of {owner}"
    dtype = DTYPES.get(code)
    if dtype is None:
        raise ModelError(f"{what}: {code} is not a data type of ONNX")
    _check_shape(shape, what)
    external = proto.data_location == TensorProto.EXTERNAL
    return Stored(name, dtype, shape, partial(_read, proto, code, shape, folder, what), external)


def sparse(proto: SparseTensorProto, folder: Folder, owner: str = "") -> Sparse:
    """Take up a sparse tensor without reading its elements."""
    values = stored(proto.values, folder, owner)
    indices = stored(proto.indices, folder, f"the indices of {values.name!r}")
    dims = tuple(proto.dims)
    _check_shape(dims, f"sparse tensor {values.name!r}")
    if indices.dtype != np.int64:
        raise ModelError(f"sparse tensor {values.name!r}: indices are {indices.dtype}, not int64")
    return Sparse(values, indices, dims)


def densified(s: Sparse) -> Stored:
    """Give a sparse tensor as a dense one that unfolds when it is read."""
    return Stored(s.values.name, s.values.dtype, s.dims, s.array)


def _check_shape(shape: tuple[int, ...], what: str) -> None:
    if not shape:
        return
    if min(shape) < 0:
        raise ModelError(f"{what}: shape {list(shape)} has a negative size")
    # Sizes of 0 do not count: NumPy wants the product of the others to fit as well.
    if len(shape) > _MOST_AXES or math.prod(d or 1 for d in shape) >= 2**59:
        raise ModelError(f"{what}: shape {list(shape)[:8]} is beyond what any machine could hold")


def bits_of(dtype: np.dtype) -> int:
    """Bits that one element takes at rest."""
    return _BITS.get(dtype) or 8 * dtype.itemsize


def _nbytes(dtype: np.dtype, size: int) -> int:
    return -(-size * bits_of(dtype) // 8)


def raw_nbytes(proto: TensorProto) -> int | None:
    """The bytes of raw_data that a tensor's elements take; None where they do not lie there."""
    dtype = DTYPES.get(proto.data_type)
    elsewhere = proto.data_location == TensorProto.EXTERNAL or proto.HasField("segment")
    if dtype is None or proto.data_type == _STRING or elsewhere:
        return None
    return _nbytes(dtype, math.prod(proto.dims))


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{what}: external data with {key} {text[:40]!r}, not a number of bytes")
    return int(text)


def _read(
    proto: TensorProto, code: int, shape: tuple[int, ...], folder: Folder, what: str
) -> np.ndarray:
    dtype, size = DTYPES[code], math.prod(shape)
    nbytes = _nbytes(dtype, size)
    if proto.HasField("segment"):
        raise ModelError(f"{what}: is stored in segments, which ONNX itself never reads")
    if proto.data_location == TensorProto.EXTERNAL:
        if code == _STRING:
            raise ModelError(f"{what}: strings may not be external data")
        entries = {e.key: e.value for e in proto.external_data}
        return _from_bytes(folder.read(entries, nbytes, what), dtype, shape)
    if code == _STRING:
        _check_count(len(proto.string_data), size, "string_data", what)
        flat = np.empty(size, object)
        flat[:] = [text(s) for s in proto.string_data]
        return flat.reshape(shape)
    # Some writers set an empty raw_data beside the typed field that holds the elements.
    if raw := proto.raw_data:
        _check_count(len(raw), nbytes, "bytes of raw_data", what)
        return _from_bytes(np.frombuffer(raw, np.uint8), dtype, shape)
    field, wire = _FIELDS.get(code, _INT32)
    values = getattr(proto, field)
    packed = _BITS.get(dtype) in (2, 4)  # an int holds a byte of these, but one element of float6
    wanted = nbytes if packed else size * 2 if dtype.kind == "c" else size
    _check_count(len(values), wanted, field, what)
    flat = np.fromiter(values, wire, wanted)
    if dtype.kind == "c":
        flat = flat.view(dtype)
    elif packed:
        return _from_bytes(flat.astype(np.uint8), dtype, shape)
    elif field != "int32_data" or dtype in (np.bool_, np.int32):
        flat = flat.astype(dtype, copy=False)
    else:  # a bit pattern in the low end of each int
        pattern = flat.astype(f"u{dtype.itemsize}")
        flat = (pattern & 0x3F if dtype in _BITS else pattern).view(dtype)
    return flat.reshape(shape)


def _check_count(got: int, wanted: int, unit: str, what: str) -> None:
    if got != wanted:
        raise ModelError(f"{what}: has {got} {unit}, where its shape takes {wanted}")


def _from_bytes(data: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """See bytes (n,) as an array, without a copy unless elements are packed or bools."""
    bits, size = _BITS.get(dtype), math.prod(shape)
    if bits == 6:
        apart = np.unpackbits(data, bitorder="little")[: size * 6].reshape(size, 6)
        data = np.packbits(apart, axis=1, bitorder="little").reshape(size)
    elif bits:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        data = ((data[:, None] >> shifts) & np.uint8(2**bits - 1)).reshape(-1)[:size]
    elif dtype == np.bool_:
        return data.astype(np.bool_).reshape(shape)  # a byte that is neither 0 nor 1 is true
    return data.view(dtype).reshape(shape)


def text(data: bytes) -> str | bytes:
    """Decode a string of the model; what is not UTF-8 stays bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def strings(items: Iterable[bytes]) -> tuple[str | bytes, ...]:
    """Decode the strings of the model one by one."""
    return tuple(map(text, items))
