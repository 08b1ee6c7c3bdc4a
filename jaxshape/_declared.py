"""Types as a file declares them, which may be wrong, stale, partial or absent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorShapeProto, TypeProto

from ._error import ModelError
from ._tensor import DTYPES

_DEEPEST = 64  # types in one another, such as sequences of sequences


@dataclass(frozen=True, slots=True)
class Declared:
    """A type as the file declares it; None wherever the file says nothing.

    `dims` holds ints, and the text of a dim_param as it is written unless that is a number.
    """

    kind: str | None = None  # 'tensor', 'sparse', 'sequence', 'optional', 'map'
    dtype: np.dtype | None = None
    dims: tuple[int | str | None, ...] | None = None
    elem: Declared | None = None  # of a sequence, optional or map
    key: np.dtype | None = None  # of a map


def declared(p: TypeProto, depth: int = 0) -> Declared:
    """Read a type."""
    if depth > _DEEPEST:
        raise ModelError(f"types lie more than {_DEEPEST} deep in one another")
    match p.WhichOneof("value"):
        case "tensor_type":
            return _tensor("tensor", p.tensor_type)
        case "sparse_tensor_type":
            return _tensor("sparse", p.sparse_tensor_type)
        case "sequence_type":
            return Declared("sequence", elem=declared(p.sequence_type.elem_type, depth + 1))
        case "optional_type":
            return Declared("optional", elem=declared(p.optional_type.elem_type, depth + 1))
        case "map_type":
            elem = declared(p.map_type.value_type, depth + 1)
            return Declared("map", elem=elem, key=DTYPES.get(p.map_type.key_type))
    return Declared()


def _tensor(kind: str, p: TypeProto.Tensor | TypeProto.SparseTensor) -> Declared:
    code = p.elem_type
    dtype = DTYPES.get(code)
    if code and dtype is None:
        raise ModelError(f"a type is declared with element type {code}, which is none of ONNX's")
    return Declared(kind, dtype, tuple(map(_dim, p.shape.dim)) if p.HasField("shape") else None)


def _dim(p: TensorShapeProto.Dimension) -> int | str | None:
    match p.WhichOneof("value"):
        case "dim_value":
            return p.dim_value if p.dim_value >= 0 else None
        case "dim_param":
            return _param(p.dim_param)
    return None


def _param(written: str | bytes) -> int | str | None:
    if isinstance(written, bytes):  # what protobuf gives for text that is not UTF-8
        return None
    bare = written.strip()
    if bare in ("", "?") or (bare.startswith("-") and bare[1:].isdecimal()):
        return None
    return int(bare) if bare.isdecimal() and len(bare) < 20 else written
