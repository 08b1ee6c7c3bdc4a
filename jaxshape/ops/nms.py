"""NonMaxSuppression: greedy selection of boxes, one list per batch and class.

Exactly the order and the float32 arithmetic of onnxruntime: scores descend, ties go to the lower
index, a box falls where its overlap with one that was kept is above the threshold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._dim import minimum
from .._error import ShapeError
from .._facts import at_least, same
from .._op import Static, op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import ranked
from ._nms import nms_in_jax
from ._nonzero import concrete, symbolic
from ._static import bounded, scalar


@op("NonMaxSuppression", since=10, host=True)
def non_max_suppression(
    boxes,
    scores,
    max_output_boxes_per_class: Static = None,
    iou_threshold=None,
    score_threshold=None,
    /,
    *,
    center_point_box=0,
):
    """Keep boxes (N, n, 4) by scores (N, C, n) -> (count, 3) of batch, class, box.

    The maximum counts for each batch and class; without one none is kept.
    """
    sizes = check(hostdims(boxes.shape), hostdims(scores.shape), center_point_box)
    limit = max_output_boxes_per_class
    most = 0 if limit is None else scalar(limit, "max_output_boxes_per_class")
    if most <= 0 or 0 in sizes:
        return np.zeros((0, 3), np.int64)
    if symbolic(boxes, scores):
        return nms_in_jax(boxes, scores, most, iou_threshold, score_threshold, center_point_box)
    overlap = 0.0 if iou_threshold is None else scalar(concrete(iou_threshold), "iou_threshold")
    if not 0 <= overlap <= 1:
        raise ShapeError(f"iou_threshold is {overlap}, wants 0 to 1")
    boxes, scores = concrete(boxes), concrete(scores)
    floor = None if score_threshold is None else concrete(score_threshold).reshape(())
    rows = [np.zeros((0, 3), np.int64)]
    for batch, corners in enumerate(_corners(boxes, center_point_box)):
        for label, values in enumerate(scores[batch]):
            kept = _greedy(corners, values, most, overlap, floor)
            rows += [np.array([(batch, label, box) for box in kept], np.int64).reshape(-1, 3)]
    return np.concatenate(rows)


@non_max_suppression.shape_rule(rankless=True)  # because the count is data
def _(
    boxes, scores, limit=None, iou_threshold=None, score_threshold=None, /, *, center_point_box=0
):
    n, c, k = check(boxes.shape, scores.shape, center_point_box)
    if limit is not None and not isinstance(limit, TensorType):
        limit = scalar(limit, "max_output_boxes_per_class")
        if at_least(0, limit):
            k = 0
        elif k is not None and at_least(limit, 0):
            k = minimum(limit, k)
    if limit is None or 0 in (n, c, k):
        return TensorType("int64", (0, 3))
    most = None if None in (n, c, k) else n * c * k
    return TensorType("int64", (bounded("NonMaxSuppression_count", most), 3))


def check(boxes: Any, scores: Any, center_point_box: int) -> tuple[Any, Any, Any]:
    """State what the shapes (None: unknown rank) must be; how many batches, classes and boxes."""
    if center_point_box not in (0, 1):
        raise ShapeError(f"center_point_box is {center_point_box}, wants 0 or 1")
    ranked("boxes", boxes, 3)
    ranked("scores", scores, 3)
    if boxes is not None:
        same(boxes[2], 4, "the sides of a box")
    if boxes is None:
        return (None, None, None) if scores is None else scores
    if scores is None:
        return boxes[0], None, boxes[1]
    return (
        same(boxes[0], scores[0], "batch"),
        scores[1],
        same(boxes[1], scores[2], "boxes and scores"),
    )


def _corners(boxes: np.ndarray, center_point_box: int) -> np.ndarray:
    """Least y, x, greatest y, x of boxes (N, n, 4): two opposite corners, or center and extent."""
    if center_point_box:
        center, half = boxes[..., 1::-1], boxes[..., :1:-1] / boxes.dtype.type(2)
        return np.concatenate([center - half, center + half], -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _greedy(
    corners: np.ndarray, scores: np.ndarray, most: int, overlap: float, floor: Any
) -> list[int]:
    """The boxes (n, 4) kept by scores (n,), best first."""
    order = np.argsort(-scores, kind="stable")
    if floor is not None:
        order = order[scores[order] > floor]
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        order = order[~_clash(corners[best], corners[order], overlap)]
    return kept


def _clash(box: np.ndarray, others: np.ndarray, overlap: float) -> np.ndarray:
    """Whether the overlap of a box (4,) with each of the others (n, 4) is above the threshold."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    height, width = (high - low).T
    shared = height * width
    area = np.prod(box[2:] - box[:2])
    areas = np.prod(others[:, 2:] - others[:, :2], -1)
    union = area + areas - shared
    proper = (height > 0) & (width > 0) & (shared > 0) & (area > 0) & (areas > 0) & (union > 0)
    return proper & (shared / np.where(proper, union, np.ones_like(union)) > np.float32(overlap))
