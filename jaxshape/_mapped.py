"""A large model file whose weights stay where they lie.

Where an initializer's elements are a run of bytes of the file (raw_data), the model that is parsed
refers to them as ONNX refers to external data: by file, offset and length. So nothing of a model
but its graph is in memory before it is asked for, whether its weights lie in the file or beside it.
"""

from __future__ import annotations

import functools
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TensorProto

if TYPE_CHECKING:
    import jax

from ._error import ModelError
from ._tensor import raw_nbytes
from ._wire import RAW, Span, fields, rewritten, stripped

_FILE = 1 << 24  # bytes: smaller files are parsed as a whole
_TENSOR = 1 << 16  # bytes: the elements of smaller tensors are parsed with the graph
_MESSAGE = (1 << 31) - 1  # bytes: what protobuf parses at once


class Mapped:
    """The bytes of a model file: `proto` is the model that refers to them, `whole` the model with
    its weights inside, as any other tool would parse it.
    """

    def __init__(self, path: str):
        self.path = path
        self.folder, self.name = os.path.split(os.path.abspath(path))
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.frombuffer(self._data, np.uint8)
        self.proto = ModelProto.FromString(rewritten(self._data, self._referring))

    def __deepcopy__(self, memo: object) -> Mapped:
        return self

    @functools.cached_property
    def whole(self) -> ModelProto:
        if len(self._data) > _MESSAGE:
            raise ModelError(
                f"{self.path} has {len(self._data):,} bytes, and a ModelProto holds less than "
                f"{_MESSAGE:,}: write its weights beside it, as external data; what needs no "
                "ModelProto, such as trace, run, to_jax and infer_shapes_path, reads it as it is"
            )
        return ModelProto.FromString(self._data[:])

    def _referring(self, count: int, tensor: Span) -> bytes | None:
        """The message of a large tensor whose elements lie in one piece, with where that is."""
        if tensor[1] - tensor[0] < _TENSOR:
            return None
        found = [inside for number, _, inside in fields(self._data, tensor) if number == RAW]
        if len(found) != 1 or found[0] is None:
            return None
        start, end = found[0]
        rest = stripped(self._data, tensor)
        if end - start != raw_nbytes(TensorProto.FromString(rest)):
            return None
        # two messages one after the other are read as one with the fields of both
        return rest + self._reference(found[0])

    def _reference(self, elements: Span) -> bytes:
        start, end = elements
        entries = {"location": self.name, "offset": start, "length": end - start}
        return TensorProto(
            data_location=TensorProto.EXTERNAL,
            external_data=[StringStringEntryProto(key=k, value=str(v)) for k, v in entries.items()],
        ).SerializeToString()


def is_large(path: str) -> bool:
    """Whether a file is worth mapping."""
    return os.path.isfile(path) and os.path.getsize(path) >= _FILE


def release(array: np.ndarray, copy: jax.Array) -> jax.Array:
    """The copy of a part of a mapped file, whose memory is let go of; it is read again if needed.

    Where JAX has not copied but uses the memory of the file as it is, that stays.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if array.nbytes < _TENSOR or not isinstance(owner, mmap.mmap):
        return copy
    copy.block_until_ready()
    address = array.__array_interface__["data"][0]
    shared = any(s.data.unsafe_buffer_pointer() == address for s in copy.addressable_shards)
    if not shared and hasattr(mmap, "MADV_DONTNEED"):
        start = address - np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages alone
        end = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > first:
            owner.madvise(mmap.MADV_DONTNEED, first, end - first)
    return copy
