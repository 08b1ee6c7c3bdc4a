"""The operators of random graphs: each maker adds one node, or a few that belong together, or
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from random_graphs import Builder
from random_sizes import FAR, scalar, size, sizes, vector


def unary(b: Builder) -> None:
    if x := b.tensor("f"):
        ops = "Relu Neg Abs Sigmoid Floor Identity Round Tanh HardSwish Not"
        b.add(b.pick(ops.split()), x)


def binary(b: Builder) -> None:
    kind = b.pick("fffi")
    x, y = b.tensor(kind), b.tensor(kind)
    if x and y:
        op = b.pick(["Add", "Sub", "Mul", "Max", "Min", "Where", "Less", "Sum", "Equal"])
        if op == "Where":
            test = b.add("Greater", x, b.constant(0, b.dtype(x)))
            b.add("Where", test, x, y)
        else:
            b.add(op, x, y, *([x] if op in ("Max", "Sum") and b.chance(0.2) else []))


def apart(b: Builder) -> None:
    """Broadcast along different axes."""
    x, y = b.tensor("f", 1, 2), b.tensor("f", 1, 2)
    if x and y and (z := b.add("Unsqueeze", x, b.constant([b.pick([-1, 0, 1])]))):
        b.add(b.pick(["Add", "Mul", "Equal"]), z, y)


def transpose(b: Builder) -> None:
    if x := b.tensor("fib", 1):
        perm = b.r.permutation(b.rank(x) or 1).tolist()
        b.add("Transpose", x, perm=None if b.chance(0.2) else perm)


def flatten(b: Builder) -> None:
    if x := b.tensor("f"):
        rank = b.rank(x) or 0
        b.add("Flatten", x, axis=b.int(-rank, rank))


def squeeze(b: Builder) -> None:
    if x := b.tensor("f", 1):
        rank = b.rank(x) or 1
        axes = None if b.chance(0.15) else b.constant([b.int(-rank, rank - 1)])
        if axes and b.chance(0.1) and "k" in b.values:
            axes = b.add("Slice", "k", b.constant([0]), b.constant([1]))
        b.add(b.pick(["Squeeze", "Unsqueeze"]) if axes else "Squeeze", x, axes, keep=0.3)


def concat(b: Builder) -> None:
    if x := b.tensor("fi", 1):
        rank, kind = b.rank(x) or 1, b.dtype(x).kind
        xs = [x, *[y for _ in range(b.int(0, 2)) if (y := b.tensor(kind, rank, rank))]]
        axis = b.int(0, rank - 1)

        def alike(i: int) -> bool:  # the runtime passes over empty inputs
            return len({tuple(np.delete(b.values[y][i].shape, axis)) for y in xs}) == 1

        b.add("Concat", *xs, axis=axis - b.pick([0, rank]), legal=alike)


def split(b: Builder) -> None:
    if x := b.tensor("f", 1):
        rank = b.rank(x) or 1
        axis, parts = b.int(-rank, rank - 1), b.int(1, 3)
        kind = b.r.random()
        if kind < 0.4:
            b.add("Split", x, axis=axis, num_outputs=parts, outputs=parts)
        elif kind < 0.6:
            n = b.add("Shape", x, start=axis % rank, end=axis % rank + 1)
            k = size(b, 0, 8)
            rest = b.add("Sub", n, k)
            if rest:
                b.add("Split", x, b.add("Concat", k, rest, axis=0), axis=axis, outputs=2)
        elif kind < 0.8:
            b.add(
                "Split",
                x,
                b.constant(b.r.integers(0, 4, parts)),
                axis=axis,
                outputs=parts,
                keep=0.1,
            )
        else:
            b.add("Split", x, sizes(b, parts, 0, 6), axis=axis, outputs=parts, keep=0.1)


def slice_(b: Builder) -> None:
    if x := b.tensor("fi", 1):
        rank = b.rank(x) or 1
        axes = b.r.choice(rank, b.int(1, rank), replace=False) - (rank if b.chance(0.3) else 0)
        n = len(axes)

        steps = [b.pick([1, 2, 3, -1, -2, -3]) if b.chance(0.6) else 1 for _ in range(n)]
        # the runtime takes 2^63 - 1 to mean "to the end" for a backward end too, the standard does
        # not
        far = FAR if min(steps) > 0 else [-(2**63), -(10**9)]

        def bounds() -> Any:
            if b.chance(0.3):
                return sizes(b, n, -9, 20)
            return b.constant([b.pick([0, 1, 2, 3, -1, -2, -3, 5, -7, *far]) for _ in range(n)])

        b.add(
            "Slice",
            x,
            bounds(),
            bounds(),
            b.constant(axes),
            b.constant(steps) if max(steps) > 1 or min(steps) < 0 else None,
        )


def pad(b: Builder) -> None:
    if x := b.tensor("f", 1):
        rank = b.rank(x) or 1
        mode = b.pick(["constant", "constant", "constant", "reflect", "edge", "wrap"])
        whole = b.chance(0.5)
        n = rank if whole else 1
        low = -3 if mode == "constant" else 0
        pads = sizes(b, 2 * n, low, 4) if b.chance(0.4) else b.constant(b.r.integers(low, 4, 2 * n))
        axes = None if whole else b.constant([b.int(-rank, rank - 1)])
        if mode in ("reflect", "wrap") and any(
            0 in v.shape or min(v.shape) < 6 for v in b.samples(x)
        ):
            mode = "edge" if all(v.size for v in b.samples(x)) else "constant"
        b.add("Pad", x, pads, None, axes, mode=mode)


def reshape(b: Builder) -> None:
    x = b.tensor("fi", 0)
    if x is None:
        return
    rank, kind = b.rank(x) or 0, b.r.random()
    if kind < 0.3:
        keep = b.int(0, rank)
        b.add(
            "Reshape", x, b.constant([0] * keep + [-1] + ([1] if b.chance(0.2) else [])), keep=0.1
        )
    elif kind < 0.45:
        b.add(
            "Reshape",
            x,
            b.constant([b.pick([2, 3, 4, 1]), -1, *([b.int(1, 3)] if b.chance(0.3) else [])]),
            keep=0.1,
        )
    elif kind < 0.6 and rank:
        order = b.r.permutation(rank)
        s = b.add("Gather", b.add("Shape", x), b.constant(order), axis=0)
        b.add("Reshape", x, s, allowzero=b.pick([None, 1]), keep=0.2)
    elif kind < 0.8 and rank >= 2:
        i = b.int(0, rank - 2)
        s = [b.add("Shape", x, start=j, end=j + 1) for j in range(rank)]
        merged = b.add("Mul", s[i], s[i + 1])
        parts = [*s[:i], merged, *s[i + 2 :]]
        if b.chance(0.4):
            parts[b.int(0, len(parts) - 1)] = b.constant([-1])
        if b.chance(0.3):
            k = b.constant([b.int(2, 4)])
            parts[-1:] = [b.add("Div", merged, k) if parts[-1] == merged else parts[-1], k]
        if all(parts):
            b.add("Reshape", x, b.add("Concat", *parts, axis=0), keep=0.1)
    else:
        s = sizes(b, b.int(1, 3), -1, 12)
        b.add("Reshape", x, s, keep=0.1)


def repeat(b: Builder) -> None:
    if x := b.tensor("fi", 0, 3):
        rank = b.rank(x) or 0
        if b.chance(0.4) and rank:
            b.add("Tile", x, sizes(b, rank, 0, 4))
        elif b.chance(0.5):
            b.add("Expand", x, sizes(b, b.int(1, 3), 0, 8), keep=0.3)
        elif y := b.tensor("f", 0, 4):
            b.add("Expand", x, b.add("Shape", y), keep=0.3)


def gather(b: Builder) -> None:
    x = b.tensor("fi", 1)
    if x is None:
        return
    rank, kind = b.rank(x) or 1, b.r.random()
    if kind < 0.5:
        low = b.pick([-1, -2, 0])
        index = b.constant(
            b.r.integers(low, 2 if low == 0 else 0, b.pick([(), (2,), (2, 2), (0,)]))
        )
        b.add("Gather", x, index, axis=b.int(-rank, rank - 1))
    elif kind < 0.7:
        axis = b.int(0, rank - 1)
        top = b.add("ArgMax", x, axis=axis, keepdims=1)
        if top:
            b.add("GatherElements", x, top, axis=axis)
    elif kind < 0.85:
        k = b.int(1, rank)
        b.add("GatherND", x, b.constant(b.r.integers(-1, 1, (b.int(1, 3), k))))
    elif found := b.add("NonZero", x):
        b.add("GatherND", x, b.add("Transpose", found))


def scatter(b: Builder) -> None:
    x = b.tensor("f", 1, 3)
    if x is None:
        return
    if b.chance(0.5):
        top = b.add("ArgMax", x, axis=0, keepdims=1)
        if top:
            b.add("ScatterElements", x, top, b.add("Cast", top, to=1), axis=0)
    elif (found := b.add("NonZero", x)) and (places := b.add("Transpose", found)):
        b.add("ScatterND", x, places, b.add("GatherND", x, places))


def topk(b: Builder) -> None:
    if x := b.tensor("f", 1):
        rank = b.rank(x) or 1
        b.add("TopK", x, size(b, 0, 6), axis=b.int(-rank, rank - 1), largest=b.int(0, 1), outputs=2)


def reduce(b: Builder) -> None:
    x = b.tensor("f", 1)
    if x is None:
        return
    rank, kind = b.rank(x) or 1, b.r.random()
    if kind < 0.5:
        axes = b.constant([b.int(-rank, rank - 1)]) if b.chance(0.7) else None
        if not all(v.size for v in b.samples(x)):
            return  # what the mean of nothing is, nobody says
        b.add(
            b.pick(["ReduceSum", "ReduceMean", "ReduceProd", "ReduceL2"]),
            x,
            axes,
            keepdims=b.int(0, 1),
            noop_with_empty_axes=b.int(0, 1),
        )
    elif kind < 0.7:
        b.add(b.pick(["ArgMax", "ArgMin"]), x, axis=b.int(-rank, rank - 1), keepdims=b.int(0, 1))
    elif kind < 0.85:
        b.add("CumSum", x, b.constant(b.int(-rank, rank - 1)))
    else:
        b.add(b.pick(["Softmax", "LogSoftmax"]), x, axis=b.int(-rank, rank - 1))


def select(b: Builder) -> None:
    x = b.tensor("f", 1)
    if x is None:
        return
    rank, kind = b.rank(x) or 1, b.r.random()
    axis = None if b.chance(0.4) else b.int(-rank, rank - 1)
    if kind < 0.35:
        b.add("NonZero", x)
    elif kind < 0.6:
        test = b.add(
            "Greater",
            b.tensor("f", 1, 1) or b.constant([1, 0, 1], np.float32),
            b.constant(0, np.float32),
        )
        if test and b.chance(0.5):
            b.add("Compress", x, test, axis=axis)
        else:
            b.add("Compress", x, b.constant([True, False, True][: b.int(1, 3)], bool), axis=axis)
    elif all(v.size for v in b.samples(x)):
        b.add("Unique", x, axis=axis, sorted=b.int(0, 1), outputs=4)


def nms(b: Builder) -> None:
    x = b.tensor("f", 3, 3)
    if x and (n := b.add("Shape", x, start=1, end=2)) and (s := b.add("Shape", x, start=0, end=1)):
        boxes = b.add(
            "Expand",
            b.constant([[[0, 0, 1, 1.0]]], np.float32),
            b.add("Concat", s, n, b.constant([4]), axis=0),
        )
        scores = b.add("Transpose", x, perm=[0, 2, 1])
        limit = size(b, 0, 3)
        if boxes and scores:
            b.add(
                "NonMaxSuppression",
                boxes,
                scores,
                limit,
                b.constant(0.5, np.float32),
                b.constant(0.1, np.float32),
            )


def create(b: Builder) -> None:
    kind = b.r.random()
    if kind < 0.35:
        start, stop = scalar(b, size(b, -3, 9)), scalar(b, size(b, -3, 20))
        step = (
            b.constant(b.pick([1, 1, 2, 3, -1, -2])) if b.chance(0.8) else scalar(b, size(b, 1, 5))
        )
        if start and stop and step:
            b.add("Range", start, stop, step)
    elif kind < 0.6:
        b.add(
            "ConstantOfShape",
            sizes(b, b.int(0, 3), 0, 9),
            value=helper.make_tensor("v", b.pick([1, 7]), [1], [1]),
        )
    elif kind < 0.75:
        if x := b.tensor("i", 0, 2):
            b.add("OneHot", x, size(b, 1, 9), b.constant([0, 1], np.float32), axis=b.pick([-1, 0]))
    elif kind < 0.9:
        if x := b.tensor("f", 2, 3):
            b.add("Trilu", x, scalar(b, size(b, -2, 3)))
    elif x := b.tensor("f", 2, 2):
        b.add("EyeLike", x)


def shape(b: Builder) -> None:
    if x := b.tensor("fib"):
        rank = b.rank(x) or 0
        b.add(
            "Shape", x, start=b.pick([None, 0, -1, 1]), end=b.pick([None, None, rank, -1, 9])
        ) if b.chance(0.8) else b.add("Size", x)


def elements(b: Builder) -> None:
    if b.chance(0.6):
        size(b, -50, 5000, 4)
    elif (
        (v := vector(b))
        and (x := b.tensor("f", 0, 4))
        and all(-1 <= n < 30 for s in b.samples(v) for n in s)
    ):
        b.add(b.pick(["Reshape", "Expand", "Expand", "Tile"]), x, v)


def product(b: Builder) -> None:
    kind, x = b.r.random(), b.tensor("f", 1, 4)
    if x is None:
        return
    if kind < 0.5:
        y = b.tensor("f", 1, 4)
        rank = b.rank(x) or 0
        if b.chance(0.5) or rank < 2:
            b.add("MatMul", x, y)
        else:
            perm = [*range(rank - 2), rank - 1, rank - 2]
            b.add("MatMul", x, b.add("Transpose", x, perm=perm))
    elif kind < 0.7:
        last = {v.shape[-1] for v in b.samples(x)}
        n = last.pop() if len(last) == 1 else b.int(1, 4)
        b.add("MatMul", x, b.constant(np.ones((n, b.int(1, 4))), np.float32))
    elif kind < 0.85:
        y = b.tensor("f", 2, 2)
        if y and b.rank(x) == 2:
            b.add(
                "Gemm",
                x,
                y,
                b.tensor("f", 0, 2) if b.chance(0.4) else None,
                transA=b.int(0, 1),
                transB=b.int(0, 1),
            )
    else:
        y = b.tensor("f", 2, 2)
        if y and b.rank(x) == 2 and all(v.size for v in (*b.samples(x), *b.samples(y))):
            b.add(
                "Einsum", x, y, equation=b.pick(["ij,jk->ik", "ij,kj->ik", "ij,ij->j", "ij,kl->jl"])
            )


NODES: list[tuple[Any, float]] = [
    (unary, 2),
    (binary, 5),
    (apart, 2),
    (transpose, 2),
    (flatten, 1),
    (squeeze, 2),
    (concat, 3),
    (split, 3),
    (slice_, 4),
    (pad, 3),
    (reshape, 5),
    (repeat, 3),
    (gather, 3),
    (scatter, 1.5),
    (topk, 2),
    (reduce, 2.5),
    (select, 3),
    (nms, 1),
    (create, 3),
    (shape, 1),
    (elements, 4),
    (product, 2.5),
]
