"""Model files of any size: read without their weights, written whole or not at all.

An ONNX file is a row of fields, each with its length before it.  So a large initializer can be
stepped over, and copied into a new file as it is: neither file is ever in memory.  What is left,
the skeleton, is an ordinary ModelProto in which such initializers lack their elements.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from ._error import ModelError
from ._source import is_binary as is_binary
from ._source import kind_of as kind_of
from ._source import open_source
from ._wire import GRAPH, INITIALIZER, Span, head, rewritten, stripped

# No tensor that tracing looks into, of 65,536 elements at most, takes as many bytes.
_LARGE = 1 << 20
_CHUNK = 1 << 24


class Skeleton:
    """An open model file: `proto` is the model without the elements of large initializers."""

    def __init__(self, file: BinaryIO, data: Any):
        self._file, self._data = file, data  # the same bytes, to be copied and to be looked at
        self._large: dict[int, Span] = {}  # where these lie, by their number
        self.proto = ModelProto.FromString(rewritten(data, self._without))

    def _without(self, count: int, tensor: Span) -> bytes | None:
        if tensor[1] - tensor[0] <= _LARGE:
            return None
        self._large[count] = tensor
        return stripped(self._data, tensor)

    def write(self, proto: ModelProto, file: BinaryIO) -> None:
        """Write a model made from `proto`, with the elements that this lacks."""
        if not self._large:
            file.write(proto.SerializeToString())
            return
        rest, graph = ModelProto(), GraphProto()
        graph.CopyFrom(proto.graph)
        graph.ClearField("initializer")
        rest.CopyFrom(proto)
        rest.ClearField("graph")
        inner = graph.SerializeToString()
        tensors = [
            self._large[i] if i in self._large else t.SerializeToString()
            for i, t in enumerate(proto.graph.initializer)
        ]
        sizes = [len(t) if isinstance(t, bytes) else t[1] - t[0] for t in tensors]
        heads = [head(INITIALIZER, size) for size in sizes]
        file.write(rest.SerializeToString())
        file.write(head(GRAPH, len(inner) + sum(sizes) + sum(map(len, heads))))
        file.write(inner)
        for start, tensor in zip(heads, tensors, strict=True):
            file.write(start)
            if isinstance(tensor, bytes):
                file.write(tensor)
            else:
                self._file.seek(tensor[0])
                for at in range(*tensor, _CHUNK):
                    file.write(self._file.read(min(_CHUNK, tensor[1] - at)))


@contextlib.contextmanager
def skeleton(path: str) -> Iterator[Skeleton]:
    """Open a model file, in ONNX's binary form."""
    try:
        if not os.path.isfile(path) or not os.path.getsize(path):
            open_source(path)  # says what is wrong
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                found = Skeleton(file, data)
            except (DecodeError, ModelError) as e:
                raise ModelError(f"{path} is no ONNX model, or is cut short: {e}") from e
            yield found
    except OSError as e:
        raise ModelError(f"cannot read or write {e.filename or path}: {e.strerror or e}") from e


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write `path` with, which takes the place of `path` only once it is complete."""
    path = Path(path).resolve()  # a link stays a link to the file that is replaced
    if path.exists() and not path.is_file():
        # A device or a pipe takes what is written; put a file in its place and it is gone.
        with open(path, "wb") as f:
            yield f
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            f = open(part, "wb")
        except OSError as e:  # of a file that nobody has asked for
            raise type(e)(e.errno, e.strerror, str(path)) from e
        with f:
            yield f
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def relocate(proto: ModelProto, old: str, new: str) -> None:
    """Let external data be found from another folder; raises `ModelError` where it cannot be."""
    if os.path.realpath(old) == os.path.realpath(new):
        return
    for tensor in _tensors(proto):
        for entry in tensor.external_data:
            if entry.key != "location":
                continue
            file, there = (os.path.join(folder, entry.value) for folder in (old, new))
            if not os.path.isfile(file) or os.path.exists(there) and os.path.samefile(there, file):
                continue  # nothing to be found, or found as it is
            inside = os.path.relpath(os.path.realpath(file), os.path.realpath(new))
            if inside.startswith(os.pardir) or os.path.isabs(inside):
                raise ModelError(
                    f"external data {entry.value!r} of tensor {tensor.name!r} lies in {old}; a "
                    f"model in {new} could not refer to it, since external data may not leave the "
                    "model's folder: write beside the model, and move both"
                )
            entry.value = inside.replace(os.sep, "/")


def _tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """The tensors of a model, those of subgraphs and functions included."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for s in graph.sparse_initializer:
        yield from (s.values, s.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for attribute in (a for node in nodes for a in node.attribute):
        match attribute.type:
            case AttributeProto.TENSOR:
                yield attribute.t
            case AttributeProto.TENSORS:
                yield from attribute.tensors
            case AttributeProto.GRAPH:
                yield from _of_graph(attribute.g)
            case AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    yield from _of_graph(graph)
