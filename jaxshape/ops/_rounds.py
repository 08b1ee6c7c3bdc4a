"""What a loop under jit carries on the device, and what it keeps on the host.

A value that is known beforehand and that no round changes may decide sizes in the body, which a
value on the device may not. So it is no part of the carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from .._device import canonical
from .._host import content_key, is_host
from .._precision import placed
from .._value import STRING


class Rounds:
    """A loop's body as a function of the trip, whether to go on, and the values that change."""

    def __init__(self, body: Callable[..., Any], fixed: dict[int, Any]):
        self.body, self.fixed = body, fixed

    def __call__(self, trip: Any, keep: Any, *values: Any) -> list[Any]:
        keep, *outs = self.body(trip, keep, *self.whole(values))
        return [keep, *[v for i, v in enumerate(outs) if i not in self.fixed]]

    def whole(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """All carried values, given those that change."""
        rest = iter(values)
        n = len(values) + len(self.fixed)
        return tuple([self.fixed[i] if i in self.fixed else next(rest) for i in range(n)])


def changing(carry: Sequence[Any], body: Callable[..., Any]) -> tuple[list[Any], Rounds]:
    """The carried values that change, on the device, and the body as a function of them."""
    fixed = {i: v for i, v in enumerate(carry) if is_host(v) and v.dtype != STRING}
    while fixed:
        kept = _kept(carry, body, fixed)
        if len(kept) == len(fixed):
            break
        fixed = kept
    return on_device([v for i, v in enumerate(carry) if i not in fixed]), Rounds(body, fixed)


def _kept(carry: Sequence[Any], body: Callable[..., Any], fixed: dict[int, Any]) -> dict[int, Any]:
    """Those that a round gives back as they are, if all of them are what they are now."""
    found: list[Any] = []

    def once(trip: Any, keep: Any, values: Any) -> None:
        found.extend(body(trip, keep, *Rounds(body, fixed).whole(values))[1:])

    trip = jax.ShapeDtypeStruct((), canonical("int64"))
    keep = jax.ShapeDtypeStruct((), bool)
    jax.eval_shape(once, trip, keep, on_device([v for i, v in enumerate(carry) if i not in fixed]))
    return {
        i: v
        for i, v in fixed.items()
        if is_host(found[i]) and content_key(found[i]) == content_key(v)
    }


def on_device(values: Any) -> Any:
    return [placed(v) for v in values]
