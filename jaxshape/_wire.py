"""Protobuf's wire format: the fields of a message by where they lie, without reading them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from onnx import GraphProto, ModelProto, TensorProto

from ._error import ModelError

GRAPH = ModelProto.DESCRIPTOR.fields_by_name["graph"].number
INITIALIZER = GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
RAW = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_ELEMENTS = frozenset(
    TensorProto.DESCRIPTOR.fields_by_name[name].number
    for name in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data")
)

Span = tuple[int, int]


def rewritten(data: Any, replace: Callable[[int, Span], bytes | None]) -> bytes:
    """The message of a model with other ones in place of some initializers: what `replace` gives
    for the number of an initializer and where it lies, if anything.
    """
    parts: list[bytes] = []
    numbers = itertools.count()  # through all fields that hold the graph, which are parts of one
    for number, whole, inside in fields(data, (0, len(data))):
        if number == GRAPH and inside is not None:
            parts.append(field(GRAPH, b"".join(_graph(data, inside, numbers, replace))))
        else:
            parts.append(data[slice(*whole)])
    return b"".join(parts)


def _graph(
    data: Any,
    graph: Span,
    numbers: Iterator[int],
    replace: Callable[[int, Span], bytes | None],
) -> Iterator[bytes]:
    for number, whole, inside in fields(data, graph):
        made = None
        if number == INITIALIZER and inside is not None:
            made = replace(next(numbers), inside)
        yield data[slice(*whole)] if made is None else field(INITIALIZER, made)


def stripped(data: Any, tensor: Span) -> bytes:
    """The message of a tensor without its elements."""
    kept = [whole for number, whole, _ in fields(data, tensor) if number not in _ELEMENTS]
    return b"".join([bytes(data[slice(*w)]) for w in kept])


def fields(data: Any, span: Span) -> Iterator[tuple[int, Span, Span | None]]:
    """The fields of a message: number, where it lies, where its bytes lie if it holds any."""
    at, end = span
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        inside = None
        if tag & 7 == 2:
            size, at = _varint(data, at, end)
            inside = at, at + size
            at += size
        elif tag & 7 == 3:
            at = _after_group(data, at, end, tag >> 3)
        else:
            at = _after(data, at, end, tag & 7)
        if at > end:
            raise ModelError(f"the field at byte {start} is longer than what it is in")
        yield tag >> 3, (start, at), inside


def _after_group(data: Any, at: int, end: int, number: int) -> int:
    """Where a group ends: ONNX has none, but may be read with fields that it does not know."""
    opened = [number]
    while opened:
        start = at
        tag, at = _varint(data, at, end)
        if tag & 7 == 3:
            opened.append(tag >> 3)
        elif tag & 7 == 4:
            if opened.pop() != tag >> 3:
                raise ModelError(f"at byte {start} a group ends that was not begun")
        else:
            at = _after(data, at, end, tag & 7)
    return at


def _after(data: Any, at: int, end: int, kind: int) -> int:
    """Where a field ends that is no group."""
    match kind:
        case 0:
            return _varint(data, at, end)[1]
        case 1:
            return at + 8
        case 2:
            size, at = _varint(data, at, end)
            return at + size
        case 5:
            return at + 4
    raise ModelError(f"there is a field of unknown kind {kind} before byte {at}")


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ModelError(f"the number at byte {at} does not end")


def field(number: int, inside: bytes) -> bytes:
    return head(number, len(inside)) + inside


def head(number: int, size: int) -> bytes:
    found = bytearray([number << 3 | 2])
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*found, size])
