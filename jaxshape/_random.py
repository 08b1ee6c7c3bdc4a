"""Keys for random operators that have no seed of their own.

Reproducible: a run draws from one key, a default or the caller's, and each node takes the next of
its stream, so that two equal nodes are two different values.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax

_stream: ContextVar[Iterator[Any] | None] = ContextVar("stream", default=None)
_draws: ContextVar[int] = ContextVar("draws", default=0)


@contextlib.contextmanager
def using_key(key: Any = None) -> Iterator[None]:
    """Let nodes without a seed draw from this key (None: the key 0), each its own numbers, in the
    order they run.
    """
    token = _stream.set(_keys(key))
    try:
        yield
    finally:
        _stream.reset(token)


def _keys(key: Any) -> Iterator[Any]:
    if key is None:  # made when the first is drawn: most models draw none, and it takes its time
        with jax.ensure_compile_time_eval():  # for all the segments of a run, no tracer of one
            key = jax.random.key(0)
    for i in itertools.count():
        yield jax.random.fold_in(key, i)


def next_key() -> Any:
    """The next key of the stream under way; outside of one, the key 0."""
    note_draw()
    stream = _stream.get()
    return jax.random.key(0) if stream is None else next(stream)


def note_draw() -> None:
    """Count a draw, also one from a node's own seed: who watches `draws` knows chance by it."""
    _draws.set(_draws.get() + 1)


def draws() -> int:
    """How many draws there were so far."""
    return _draws.get()
