"""Sequences and optionals: Python lists and None.

A sequence whose length is known while tracing is a list of values; otherwise a `SequenceType`,
whose element type holds of every element, with None for each size in which elements may differ. An
empty sequence traces as a `SequenceType` of length 0, which keeps the dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _facts
from .._branch import mark, minted_since
from .._dim import Dim, ceildiv
from .._error import ShapeError
from .._host import host, is_host, namespace, type_of
from .._join import as_sequence, elem_join, elem_renamed, elem_type
from .._op import Maybe, Static, op
from .._refine import from_declared
from .._value import UNKNOWN, OptionalType, SequenceType, TensorType, dtype_name
from ._static import dtype_of


def _opened(elem: Any) -> Any:
    """The type of one element: each size in which elements differ is one of its own."""
    if isinstance(elem, TensorType) and elem.shape is not None and None in elem.shape:
        return TensorType(
            elem.dtype, tuple(_facts.count("element_size") if d is None else d for d in elem.shape)
        )
    return UNKNOWN if elem is None else elem


def _as_list(seq: Any) -> Any:
    """The sequence as a list of values where its length is known, else its type."""
    if isinstance(seq, SequenceType) and seq.length == 0:
        return []
    return seq


def _place(seq: Any, position: Any, room: int) -> int:
    """A position as an index from 0; `room` is 1 where the place after the last is one too."""
    given = int(np.asarray(position).reshape(()))
    n = len(seq)
    if not -n <= given < n + room:
        raise ShapeError(f"position {given} is outside of a sequence of {n} elements")
    return given + n if given < 0 else given


def _known(position: Any) -> bool:
    return is_host(position) and not any(isinstance(p, Dim) for p in np.ravel(position.tolist()))


def _one_dtype(values: Any) -> None:
    dtypes = {
        t.dtype for v in values if isinstance(t := type_of(v), TensorType) and t.dtype is not None
    }
    if len(dtypes) > 1:
        raise ShapeError(
            f"the elements have dtypes {', '.join(sorted(map(dtype_name, dtypes)))}, want one"
        )


@op("SequenceConstruct", since=11, host=True)
def sequence_construct(*inputs):
    """Make a sequence of the inputs."""
    return list(inputs)


@sequence_construct.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(*inputs):
    _one_dtype(inputs)
    return list(inputs)


@op("SequenceEmpty", since=11, host=True, dtypes=("dtype",))
def sequence_empty(*, dtype=None):
    """Make a sequence of no elements."""
    return []


@sequence_empty.shape_rule  # because the element type comes from an attribute alone
def _(*, dtype=None):
    return SequenceType(TensorType(dtype_of(dtype, np.float32), None), 0)


@op("SequenceAt", since=11, host=True)
def sequence_at(input_sequence, position: Static, /):
    """Take the element at position (); negative counts from the end."""
    return input_sequence[_place(input_sequence, position, 0)]


@sequence_at.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(input_sequence, position, /):
    seq = input_sequence
    if isinstance(seq, list):
        return seq[_place(seq, position, 0)] if _known(position) else _opened(as_sequence(seq).elem)
    return _opened(seq.elem) if isinstance(seq, SequenceType) else UNKNOWN


@op("SequenceInsert", since=11, host=True)
def sequence_insert(input_sequence, tensor, position: Static = None, /):
    """Put tensor before position (), at the end without one."""
    at = len(input_sequence) if position is None else _place(input_sequence, position, 1)
    return [*input_sequence[:at], tensor, *input_sequence[at:]]


@sequence_insert.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(input_sequence, tensor, position=None, /):
    seq = _as_list(input_sequence)
    if isinstance(seq, list):
        _one_dtype([*seq, tensor])
        if position is None or _known(position):
            return sequence_insert.function(seq, tensor, position)
        seq = as_sequence(seq)
    if not isinstance(seq, SequenceType):
        return SequenceType(None, None)
    _one_dtype([seq.elem, tensor])
    return SequenceType(
        elem_join(seq.elem, elem_type(tensor)), None if seq.length is None else seq.length + 1
    )


@op("SequenceErase", since=11, host=True)
def sequence_erase(input_sequence, position: Static = None, /):
    """Leave out the element at position (), the last without one."""
    at = _place(input_sequence, -1 if position is None else position, 0)
    return [*input_sequence[:at], *input_sequence[at + 1 :]]


@sequence_erase.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(input_sequence, position=None, /):
    seq = _as_list(input_sequence)
    if isinstance(seq, list):
        if position is None or _known(position):
            return sequence_erase.function(seq, position) or as_sequence(seq[:1], 0)
        seq = as_sequence(seq)
    if not isinstance(seq, SequenceType):
        return SequenceType(None, None)
    if seq.length is not None:
        _facts.least(seq.length, 1, "a sequence to erase from")
    return SequenceType(seq.elem, None if seq.length is None else seq.length - 1)


@op("SequenceLength", since=11, host=True, sizes=True)
def sequence_length(input_sequence, /):
    """Count the elements -> ()."""
    return np.asarray(len(input_sequence), np.int64)


@sequence_length.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(input_sequence, /):
    if isinstance(input_sequence, list):
        return np.asarray(len(input_sequence), np.int64)
    length = getattr(input_sequence, "length", None)
    return TensorType("int64", ()) if length is None else host([length]).reshape(())


@op("SplitToSequence", since=11, host=True)
def split_to_sequence(input, split: Static = None, /, *, axis=0, keepdims=1):
    """Cut input (..., n, ...) along axis into parts of split () or (k,) sizes; into single slices
    without it.
    """
    n = input.shape[axis]
    ends = _ends(n, split)
    parts = namespace(input).split(input, ends[:-1], axis=axis)
    if split is None and not keepdims:
        parts = [p.squeeze(axis) for p in parts]
    return list(parts[: len(ends)])


def _ends(n: int, split: Any) -> list[int]:
    """Where each part ends."""
    if split is None:
        return list(range(1, n + 1))
    if np.ndim(split) == 0:
        size = int(split)
        if size <= 0:
            raise ShapeError(f"split is {size}, wants at least 1")
        return [min(i + size, n) for i in range(0, n, size)]
    ends = [int(e) for e in np.cumsum(split)]
    if min(split, default=0) < 0 or (ends[-1] if ends else 0) != n:
        raise ShapeError(f"split {np.asarray(split).tolist()} does not add up to {n}")
    return ends


@split_to_sequence.shape_rule  # because a sequence is no array for JAX
def _(input, split=None, /, *, axis=0, keepdims=1):
    rank = len(input.shape)
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    axis %= rank
    n = input.shape[axis]

    def part(size: Any) -> TensorType:
        return TensorType(input.dtype, (*input.shape[:axis], size, *input.shape[axis + 1 :]))

    if isinstance(n, int) and (split is None or _known(split)) and n <= 1024:
        ends = _ends(n, split)
        if split is None and not keepdims:
            parts = [TensorType(input.dtype, input.shape[:axis] + input.shape[axis + 1 :])] * n
        else:
            parts = [part(e - b) for b, e in zip([0, *ends], ends, strict=False)]
        return parts or SequenceType(part(0), 0)
    if split is None:
        one = (
            part(1)
            if keepdims
            else TensorType(input.dtype, input.shape[:axis] + input.shape[axis + 1 :])
        )
        return SequenceType(one, n)
    if not is_host(split):
        return SequenceType(part(None), split.shape[0] if split.shape else None)
    if split.ndim:
        sizes = split.tolist()
        _facts.same(sum(sizes), n, "the sizes of the parts")
        return [part(s) for s in sizes]
    size = split.item()
    return SequenceType(part(None), ceildiv(n, size) if _facts.at_least(size, 1) else None)


@op("ConcatFromSequence", since=11, host=True)
def concat_from_sequence(input_sequence, /, *, axis, new_axis=0):
    """Join the elements along axis, or stack them on a new one."""
    if not input_sequence:
        raise ShapeError("the sequence is empty: there is nothing to join")
    xp = namespace(*input_sequence)
    return (xp.stack if new_axis else xp.concatenate)(input_sequence, axis=axis)


@concat_from_sequence.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(input_sequence, /, *, axis, new_axis=0):
    parts = [type_of(v) for v in input_sequence] if isinstance(input_sequence, list) else None
    count: Any = len(parts) if parts else getattr(input_sequence, "length", None)
    elem = as_sequence(input_sequence).elem if parts else getattr(input_sequence, "elem", None)
    if not isinstance(elem, TensorType):
        return UNKNOWN
    if elem.shape is None or parts and any(p.shape is None for p in parts):
        return TensorType(elem.dtype, None)
    rank = len(elem.shape) + bool(new_axis)
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    axis %= rank
    rest = list(elem.shape) if new_axis else [d for i, d in enumerate(elem.shape) if i != axis]
    columns = (
        [[p.shape[i] for p in parts] for i in range(len(elem.shape)) if new_axis or i != axis]
        if parts
        else []
    )
    for i, column in enumerate(columns):  # what is joined must agree in the other sizes
        for d in column:
            rest[i] = d if rest[i] is None else _facts.same(rest[i], d, "the other sizes")
    rest = [_facts.count("ConcatFromSequence_size") if d is None else d for d in rest]
    if new_axis:
        length = count
    else:
        length = sum(p.shape[axis] for p in parts) if parts else None
        if not parts and elem.shape[axis] is not None and count is not None:
            length = elem.shape[axis] * count
    length = _facts.count("ConcatFromSequence_size") if length is None else length
    return TensorType(elem.dtype, (*rest[:axis], length, *rest[axis:]))


@op("SequenceMap", since=17, host=True, traced=True)
def sequence_map(input_sequence, /, *additional_inputs, body):
    """Run body on each element (of all inputs that are sequences, together) -> sequences of the
    results.
    """
    rows = []
    for i in range(len(input_sequence)):
        rest = [x[i] if isinstance(x, list) else x for x in additional_inputs]
        rows.append(body(input_sequence[i], *rest))
    return tuple([row[k] for row in rows] for k in range(body.n_outputs))


@sequence_map.shape_rule(rankless=True)  # because a sequence is no array for JAX
def _(input_sequence, /, *additional_inputs, body):
    lists = [x for x in (input_sequence, *additional_inputs) if isinstance(x, (list, SequenceType))]
    if all(isinstance(x, list) for x in lists) and lists:
        return sequence_map.function(input_sequence, *additional_inputs, body=body)
    before = mark()
    args = [
        _opened(as_sequence(x).elem) if isinstance(x, (list, SequenceType)) else x
        for x in (input_sequence, *additional_inputs)
    ]
    results = body(*args)
    inside = minted_since(before)
    length = getattr(input_sequence, "length", None)
    return tuple(SequenceType(elem_renamed(elem_type(r), inside), length) for r in results)


@op("Optional", since=15, host=True)
def optional(input=None, /, *, type=None):
    """Wrap input; without one, an empty optional of the type."""
    return input


@optional.shape_rule(rankless=True)  # because an optional is no array for JAX
def _(input=None, /, *, type=None):
    if input is not None:
        return input
    facts = _facts.current() or _facts.Facts()
    return OptionalType(None if type is None else from_declared(type, facts))


def _has(input: Any) -> Any:
    return np.asarray(input is not None)


def _has_rule(input: Any = None, /) -> Any:
    if isinstance(input, OptionalType) or input is UNKNOWN:
        return TensorType("bool", ())
    return np.asarray(input is not None)


@op("OptionalHasElement", since=15, host=True)
def optional_has_element_15(input: Maybe, /):
    """Tell whether the optional holds something -> ()."""
    return _has(input)


optional_has_element_15.shape_rule(
    _has_rule, rankless=True
)  # because an optional is no array for JAX


@op("OptionalHasElement", since=18, host=True)
def optional_has_element_18(input=None, /):
    """Tell whether the input is there and holds something -> ()."""
    return _has(input)


optional_has_element_18.shape_rule(
    _has_rule, rankless=True
)  # because an optional is no array for JAX


@op("OptionalGetElement", since=15, host=True)
def optional_get_element(input: Maybe, /):
    """Take what the optional holds."""
    if input is None:
        raise ShapeError("the optional is empty")
    return input


@optional_get_element.shape_rule(rankless=True)  # because an optional is no array for JAX
def _(input, /):
    if isinstance(input, OptionalType):
        return _opened(input.elem)
    return optional_get_element.function(input)
