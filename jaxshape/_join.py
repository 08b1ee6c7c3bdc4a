"""Joins and fixpoints: what is known of a value that comes from one of several places.

`join` keeps what both sides agree on and mints a fresh dim, bounded by the two, where they differ.
`stable` iterates a loop body abstractly, widening each dim that changes to a fresh one, until
nothing changes: a dim widens once and a known content is given up once, so that it ends. Names
minted inside a loop mean the sizes of one round; `rename` gives what leaves the loop names of its
own, or the final size would be claimed equal to a size in mid-loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from . import _facts
from ._branch import minted_since, tentative
from ._dim import Dim, maximum, minimum
from ._element import integral, number
from ._host import DimArray, content_key, is_host, type_of, wrap
from ._value import UNKNOWN, OptionalType, SequenceType, TensorType

WALKS = 256  # of a body, all loops around it together: where there would be more, less is followed
FIXPOINT = 4  # walks that a loop takes to settle, about
_walks: ContextVar[int] = ContextVar("walks", default=1)


def _nothing(a: Any, b: Any) -> Any:
    return None


Choose = Callable[[Any, Any], Any]


@contextlib.contextmanager
def repeated(times: int) -> Iterator[bool]:
    """What is walked so often inside a loop; gives whether that can be borne."""
    together = _walks.get() * times
    token = _walks.set(together if together <= WALKS else _walks.get())
    try:
        yield together <= WALKS
    finally:
        _walks.reset(token)


def join(a: Any, b: Any, stem: str = "join", choose: Choose = _nothing) -> Any:
    """The most that holds of a value which is `a` or `b`; sizes that differ become fresh ones named
    after `stem`, but where `choose` knows a formula for whichever of the two it is.
    """
    if a is b:
        return a
    if a is None or b is None:
        other = b if a is None else a
        return OptionalType(elem_type(other.elem if isinstance(other, OptionalType) else other))
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [join(x, y, stem, choose) for x, y in zip(a, b, strict=True)]
    if isinstance(a, (list, SequenceType)) and isinstance(b, (list, SequenceType)):
        a, b = as_sequence(a), as_sequence(b)
        elem = elem_join(a.elem, b.elem)
        return SequenceType(elem, join_dim(a.length, b.length, stem, choose))
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        x, y = (t.elem if isinstance(t, OptionalType) else type_of(t) for t in (a, b))
        return OptionalType(y if x is None else x if y is None else join(x, y, stem, choose))
    if is_host(a) and is_host(b) and a.dtype == b.dtype and a.shape == b.shape:
        if content_key(a) == content_key(b):
            return a
        if a.dtype.kind in "iu" and a.size <= 32:
            return _join_elements(a, b, stem, choose)
    a, b = type_of(a), type_of(b)
    if not (isinstance(a, TensorType) and isinstance(b, TensorType)):
        return UNKNOWN
    dtype = a.dtype if a.dtype == b.dtype else None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(dtype, None)
    pairs = zip(a.shape, b.shape, strict=True)
    return TensorType(dtype, tuple(join_dim(x, y, stem, choose) for x, y in pairs))


def join_dim(a: Any, b: Any, stem: str, choose: Choose = _nothing) -> Any:
    if a is None or b is None:
        return None if a is b else _facts.count(stem)
    if a is b or a == b or _facts.equal(a, b):
        return a
    if (found := choose(a, b)) is not None:
        return found
    low = minimum(*(_least(d) for d in (a, b)))
    return _facts.count(stem, least=low if isinstance(low, int) else 0, most=maximum(a, b))


def _least(d: Any) -> int:
    facts = _facts.current()
    return (facts.bound(d)[0] or 0) if facts is not None else 0


def _join_elements(a: Any, b: Any, stem: str, choose: Choose) -> Any:
    def joined(x: Any, y: Any) -> Any:
        if x is y or (number(x) and number(y) and x == y):
            return x
        found = choose(x, y) if integral(x) and integral(y) else None
        return _facts.element(stem) if found is None else found

    flat = [*map(joined, np.ravel(_objects(a)), np.ravel(_objects(b)))]
    return wrap(np.array([*flat, None], dtype=object)[:-1].reshape(a.shape), a.dtype)


def _objects(a: Any) -> np.ndarray:
    return a.elements if isinstance(a, DimArray) else np.asarray(a).astype(object)


def as_sequence(value: Any, length: int | None = None) -> Any:
    """A list of values as a sequence type: what holds of every element."""
    if not isinstance(value, list):
        return value
    elem = None
    for v in value:
        elem = elem_join(elem, elem_type(v))
    return SequenceType(elem, len(value) if length is None else length)


def elem_join(a: Any, b: Any) -> Any:
    """What holds of elements of either type (None: no element yet): sizes that differ are None, not
    one fresh size.
    """
    if a is None or b is None or a is b:
        return b if a is None else a
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(elem_join(a.elem, b.elem), a.length if a.length == b.length else None)
    if not (isinstance(a, TensorType) and isinstance(b, TensorType)):
        return UNKNOWN
    dtype = a.dtype if a.dtype == b.dtype else None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(dtype, None)
    return TensorType(
        dtype, tuple(x if x is y or x == y else None for x, y in zip(a.shape, b.shape, strict=True))
    )


def elem_type(value: Any) -> Any:
    """The type of a value where it is an element: contents forgotten, lists as sequence types."""
    return as_sequence(value) if isinstance(value, list) else type_of(value)


def widen(old: Any, new: Any, fresh: set[Any], stem: str) -> Any:
    """`old` where `new` agrees with it, else wider: differing dims fresh, differing contents
    unknown.
    """
    if old is new:
        return old
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [widen(x, y, fresh, stem) for x, y in zip(old, new, strict=True)]
    if isinstance(old, (list, SequenceType)) and isinstance(new, (list, SequenceType)):
        old, new = as_sequence(old), as_sequence(new)
        return SequenceType(
            elem_join(old.elem, new.elem), _widen_dim(old.length, new.length, fresh, stem)
        )
    if (
        is_host(old)
        and is_host(new)
        and old.dtype == new.dtype
        and content_key(old) == content_key(new)
    ):
        return old
    if isinstance(old, OptionalType) and new is not None and not isinstance(new, OptionalType):
        return elem_type(new)  # the type that the body declares for what it carries
    if isinstance(old, OptionalType) or isinstance(new, OptionalType) or old is None or new is None:
        return join(old, new, stem)
    old, new = type_of(old), type_of(new)
    if not (isinstance(old, TensorType) and isinstance(new, TensorType)):
        return UNKNOWN
    dtype = old.dtype if old.dtype == new.dtype else None
    if old.shape is None or new.shape is None or len(old.shape) != len(new.shape):
        return TensorType(dtype, None)
    return TensorType(
        dtype,
        tuple(_widen_dim(x, y, fresh, stem) for x, y in zip(old.shape, new.shape, strict=True)),
    )


def _widen_dim(old: Any, new: Any, fresh: set[Any], stem: str) -> Any:
    if (
        old is new
        or old == new
        or old in fresh
        or (new is not None and old is not None and _facts.equal(old, new))
    ):
        return old
    made = _facts.count(stem)
    fresh.add(made)
    return made


def stable(
    step: Callable[[Sequence[Any]], Sequence[Any]], carry: Sequence[Any], stem: str
) -> tuple[Any, Any]:
    """Iterate `step` on abstract values until they no longer change.

    `step(carry)` gives (next carry, other results). Returns the stable carry and the other results
    at it. What the rounds before demanded of the sizes is dropped: only the last round, which holds
    for all, counts.
    """
    fresh: set[Any] = set()
    with repeated(FIXPOINT) as followed:
        carry = list(carry) if followed else [_vague(v) for v in carry]
        while True:
            with tentative() as trial:
                after, rest = step(carry)
                pairs = zip(carry, after, strict=True)
                wider = [widen(old, new, fresh, stem) for old, new in pairs]
                if all(_alike(x, y) for x, y in zip(wider, carry, strict=True)):
                    trial.keep()
                    return carry, rest
            carry = wider


def _vague(value: Any) -> Any:
    """What no round of a loop can change of a value."""
    t = type_of(value)
    if isinstance(t, TensorType):
        return TensorType(t.dtype, None)
    return SequenceType(None, None) if isinstance(t, (list, SequenceType)) else value


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if is_host(a) and is_host(b):
        return content_key(a) == content_key(b)
    return a is b


def rename(
    values: Sequence[Any], mark: frozenset[Any], stem: str, keep: Sequence[Any] = ()
) -> list[Any]:
    """Give sizes minted since `mark` (but for those to `keep`) fresh names: they meant one round of
    a loop.

    Contents that mention them are forgotten.
    """
    inside = minted_since(mark) - set(keep)
    return [_renamed(v, inside, stem) for v in values]


def _renamed(value: Any, inside: set[Any], stem: str) -> Any:
    def outside(d: Any) -> Any:
        return _facts.count(stem) if isinstance(d, Dim) and not inside.isdisjoint(d.symbols) else d

    if isinstance(value, list):
        return [_renamed(v, inside, stem) for v in value]
    if isinstance(value, DimArray):
        elements = value.elements.ravel().tolist()
        sure = all(
            number(e) or isinstance(e, Dim) and inside.isdisjoint(e.symbols) for e in elements
        )
        return value if sure else type_of(value)
    if isinstance(value, TensorType) and value.shape is not None:
        return TensorType(value.dtype, tuple(outside(d) for d in value.shape))
    if isinstance(value, SequenceType):
        return SequenceType(
            value.elem and _renamed(value.elem, inside, stem), outside(value.length)
        )
    if isinstance(value, OptionalType):
        return OptionalType(value.elem and _renamed(value.elem, inside, stem))
    return value


def elem_renamed(t: Any, inside: set[Any]) -> Any:
    """The type of every element, from that of one: sizes of its own (`inside`) differ from one to
    the next.
    """
    if not isinstance(t, TensorType) or t.shape is None:
        return t
    return TensorType(
        t.dtype,
        tuple(
            None if isinstance(d, Dim) and not inside.isdisjoint(d.symbols) else d for d in t.shape
        ),
    )
