"""NonMaxSuppression in JAX, where how many boxes are kept may be a symbol.

As on the host: scores descend, ties go to the lower index, a box falls where its overlap with one
that was kept is above the threshold.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .._device import canonical
from .._dim import minimum
from .._symbol import hostdims, to_export
from ._nonzero import nonzero
from .slicing import FAR


def nms_in_jax(
    boxes: Any, scores: Any, most: int, overlap: Any, floor: Any, center_point_box: int
) -> Any:
    """Keep boxes (N, n, 4) by scores (N, C, n), of each class at most so many -> (count, 3)."""
    int64 = canonical("int64")
    boxes, scores = lax.stop_gradient((boxes, scores))
    order = jnp.argsort(-scores, axis=-1, stable=True)
    ranked = jnp.take_along_axis(scores, order, -1, mode="clip")
    corners = jnp.take_along_axis(
        _corners(boxes, center_point_box)[:, None], order[..., None], 2, mode="clip"
    )  # (N, C, n, 4), the best first
    alive = jnp.ones_like(ranked, bool) if floor is None else ranked > jnp.reshape(floor, ())
    limit = jnp.float32(0) if overlap is None else jnp.reshape(overlap, ()).astype(jnp.float32)
    place = lax.broadcasted_iota(int64, alive.shape, 2)

    def keep(alive: Any, _: Any) -> Any:
        some = jnp.any(alive, -1)
        best = jnp.min(jnp.where(alive, place, place.shape[2]), -1)
        box = jnp.take_along_axis(corners, best[..., None, None], 2, mode="clip")
        alive = alive & (place > best[..., None]) & ~_clash(box, corners, limit)
        return alive, (best, some)

    n = hostdims(scores.shape)[2]
    rounds = to_export(n if most >= FAR else minimum(most, n))
    _, (best, some) = lax.scan(keep, alive, lax.iota(int64, rounds))
    best, some = jnp.moveaxis(best, 0, -1), jnp.moveaxis(some, 0, -1)
    batch, label, i = nonzero(some)
    box = order[batch, label, best[batch, label, i]]
    return jnp.stack([batch, label, box.astype(int64)], -1)


def _corners(boxes: Any, center_point_box: int) -> Any:
    """Least y, x, greatest y, x of boxes (N, n, 4): two opposite corners, or center and extent."""
    if center_point_box:
        y, x = boxes[..., 1:2], boxes[..., 0:1]
        center, half = jnp.concatenate([y, x], -1), boxes[..., 2:] / 2
        half = jnp.concatenate([half[..., 1:2], half[..., 0:1]], -1)
        return jnp.concatenate([center - half, center + half], -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return jnp.concatenate([jnp.minimum(a, b), jnp.maximum(a, b)], -1)


def _clash(box: Any, others: Any, limit: Any) -> Any:
    """Whether the overlap of boxes (*, 1, 4) with each of others (*, n, 4) is above the limit."""
    low = jnp.maximum(box[..., :2], others[..., :2])
    high = jnp.minimum(box[..., 2:], others[..., 2:])
    height, width = (high - low)[..., 0], (high - low)[..., 1]
    shared = height * width
    area, areas = _area(box), _area(others)
    union = area + areas - shared
    proper = (height > 0) & (width > 0) & (shared > 0) & (area > 0) & (areas > 0) & (union > 0)
    ratio = shared / jnp.where(proper, union, jnp.ones_like(union))
    return proper & (ratio > limit.astype(ratio.dtype))


def _area(boxes: Any) -> Any:
    sides = boxes[..., 2:] - boxes[..., :2]
    return sides[..., 0] * sides[..., 1]
