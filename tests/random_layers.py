"""Random graphs, continued: layers over images, sequences, and operators whose attributes are
graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from random_graphs import Builder, captured, typed
from random_nodes import NODES
from random_sizes import scalar, size, sizes

INNER = list(NODES)


def channels(b: Builder, x: str) -> int | None:
    found = {v.shape[1] for v in b.samples(x)}
    return found.pop() if len(found) == 1 else None


def image(b: Builder, least: int = 3) -> str | None:
    x = b.tensor("f", least, 4)
    return x if x and all(v.size for v in b.samples(x)) else None


def windowed(b: Builder, n: int) -> dict[str, Any]:
    kernel = [b.int(1, 4) for _ in range(n)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [b.int(1, 3) for _ in range(n)]}
    kind = b.r.random()
    if b.chance(0.3) and not 0.4 <= kind < 0.6:  # not with auto_pad, which runtimes get wrong then
        found["dilations"] = [b.int(1, 2) for _ in range(n)]
    if kind < 0.4:
        found["pads"] = [b.int(0, k - 1) for k in kernel * 2]
    elif kind < 0.6:
        found["auto_pad"] = b.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return found


def fits(b: Builder, x: str, how: dict[str, Any]) -> Any:
    """Whether a window fits at a binding; the runtime rounds toward zero where it does not."""
    kernel = how["kernel_shape"]
    pads = how.get("pads") or [0] * 2 * len(kernel)
    reach = [
        (k - 1) * d + 1
        for k, d in zip(kernel, how.get("dilations") or [1] * len(kernel), strict=True)
    ]

    def at(i: int) -> bool:
        space = b.values[x][i].shape[2:]
        rows = zip(space, reach, pads, pads[len(kernel) :], strict=False)
        return how.get("auto_pad", "").startswith("SAME") or all(
            n + p + q >= r for n, r, p, q in rows
        )

    return at


def conv(b: Builder) -> None:
    x = image(b)
    if x is None:
        return
    n, c = (b.rank(x) or 3) - 2, channels(b, x) or b.int(1, 4)
    how = windowed(b, n)
    w = b.constant(np.ones((b.int(1, 4), c, *how["kernel_shape"])), np.float32)
    b.add("Conv", x, w, keep=0.2, legal=fits(b, x, how), **how)


def conv_transpose(b: Builder) -> None:
    x = image(b)
    if x is None:
        return
    n, c = (b.rank(x) or 3) - 2, channels(b, x) or b.int(1, 4)
    how = windowed(b, n)
    w = b.constant(np.ones((c, b.int(1, 3), *how["kernel_shape"])), np.float32)
    if "auto_pad" in how:  # runtimes differ where a stride leaves gaps
        how["strides"] = [
            min(s, k) for s, k in zip(how["strides"], how["kernel_shape"], strict=True)
        ]
    b.add("ConvTranspose", x, w, keep=0.2, **how)


def pool(b: Builder) -> None:
    x = image(b)
    if x is None:
        return
    n, op = (
        (b.rank(x) or 3) - 2,
        b.pick(["MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"]),
    )
    if op.startswith("Global"):
        b.add(op, x)
    else:
        ceil: Any = {"ceil_mode": 1} if b.chance(0.3) and op != "LpPool" else {}
        how, outputs = windowed(b, n), 2 if op == "MaxPool" and b.chance(0.3) else 1
        b.add(op, x, keep=0.2, outputs=outputs, legal=fits(b, x, how), **how, **ceil)


def resize(b: Builder) -> None:
    x = image(b, 1)
    if x is None:
        return
    rank, mode = b.rank(x) or 1, b.pick(["nearest", "linear"])
    if b.chance(0.5):
        scales = b.constant(
            [b.pick([1.0, 1.0, 2.0, 0.5, 1.5, 0.7, 3.0]) for _ in range(rank)], np.float32
        )
        b.add("Resize", x, None, scales, mode="nearest")
    else:
        k = b.int(1, min(rank, 2))
        axes = sorted(b.r.choice(rank, k, replace=False).tolist())
        b.add(
            "Resize",
            x,
            None,
            None,
            sizes(b, k, 1, 9),
            axes=axes,
            mode=mode if rank == 4 else "nearest",
        )


def space(b: Builder) -> None:
    if x := b.tensor("f", 4, 4):
        b.add(b.pick(["DepthToSpace", "SpaceToDepth"]), x, blocksize=b.int(1, 3), keep=0.1)


def norm(b: Builder) -> None:
    x = image(b, 2)
    if x is None:
        return
    c = channels(b, x) or b.int(1, 4)
    one, kind = b.constant(np.ones(c), np.float32), b.r.random()
    if kind < 0.4:
        b.add("BatchNormalization", x, one, one, one, one)
    elif kind < 0.6:
        b.add("InstanceNormalization", x, one, one)
    else:
        last = {v.shape[-1] for v in b.samples(x)}
        scale = (
            b.constant(np.ones(last.pop()), np.float32) if len(last) == 1 else b.tensor("f", 1, 1)
        )
        b.add("LayerNormalization", x, scale, axis=-1)


def sequence(b: Builder) -> None:
    x = b.tensor("f", 1)
    if x is None or not all(v.size for v in b.samples(x)):
        return
    rank, name = b.rank(x) or 1, b.name("seq")
    axis = b.int(-rank, rank - 1)
    parts = b.pick([None, b.constant(b.int(1, 3))])
    inputs = [x] if parts is None else [x, parts]
    keepdims = b.int(0, 1) if parts is None else 1  # it is to be ignored beside a split
    made = helper.make_node("SplitToSequence", inputs, [name], axis=axis, keepdims=keepdims)
    kind = b.r.random()
    if kind < 0.4:
        b.add("ConcatFromSequence", name, axis=b.int(0, rank - 1), before=[made])
    elif kind < 0.8:
        b.add("SequenceAt", name, b.constant(b.pick([0, -1, 1])), before=[made])
    else:
        b.add("SequenceLength", name, before=[made])


# graphs in graphs
# -----------------------------------------------------------------------------------


def grow(inner: Builder, steps: int) -> None:
    makers, weights = zip(*INNER, strict=True)
    chances = np.array(weights) / sum(weights)
    for _ in range(steps):
        makers[int(inner.r.choice(len(makers), p=chances))](inner)


def subgraph(inner: Builder, inputs: list[Any], outputs: list[str]) -> onnx.GraphProto:
    used = {n for node in inner.nodes for n in captured(node)}
    constants = [numpy_helper.from_array(v, n) for n, v in inner.constants.items() if n in used]
    results = [onnx.ValueInfoProto(name=n) for n in outputs]
    return helper.make_graph(inner.nodes, inner.name("body"), inputs, results, constants)


def latest(inner: Builder, outer: Builder, kind: str, rank: int | None = None) -> str | None:
    """A value made inside, else one from outside, as an output must be made by a node."""
    ranks = (0, 5) if rank is None else (rank, rank)
    own = [n for n in inner.values if n not in outer.values and n not in inner.constants]
    found = [n for n in own if n in inner.pool(kind, *ranks)]
    x = inner.pick(found[-3:]) if found else inner.tensor(kind, *ranks)
    return x and inner.add("Identity", x, keep=0.1)


def truth(b: Builder) -> str | None:
    """A condition: on sizes, on a feed, or on data."""
    kind = b.r.random()
    if kind < 0.2 and "flag" in b.values:
        return "flag"
    if kind < 0.8:
        test = b.add(
            b.pick(["Equal", "Less", "GreaterOrEqual", "Greater", "LessOrEqual"]),
            size(b, -5, 60, 1),
            size(b, -5, 20, 1),
        )
        return test and scalar(b, test)
    x = b.tensor("f", 1)
    total = x and b.add("ReduceSum", x, keepdims=0)
    return total and b.add("Greater", total, b.constant(0, np.float32))


def if_(b: Builder) -> None:
    test, count = truth(b), b.int(1, 2)
    if test is None:
        return
    graphs, ranks = [], [b.pick([None, 1, 2, 3]) for _ in range(count)]
    for _ in range(2):
        inner = Builder(b.r, b.bindings, b)
        grow(inner, b.int(0, 2))
        outputs = [latest(inner, b, "f", rank) for rank in ranks]
        if None in outputs:
            return
        graphs.append(subgraph(inner, [], outputs))  # type: ignore[arg-type]
    b.add("If", test, then_branch=graphs[0], else_branch=graphs[1], outputs=count, keep=0.1)


def loop(b: Builder) -> None:
    x = b.tensor("f", 0, 3)
    if x is None:
        return
    collects = b.chance(0.5)  # then it must run: of no rows the runtime does not know the sizes
    trips = scalar(b, size(b, int(collects), 4))
    start = truth(b) if b.chance(0.3) and not collects else None
    inner = Builder(b.r, b.bindings, b)
    i, keep, carry = (inner.name(n) for n in ("i", "keep", "carry"))
    alive = [v is not None for v in b.values[x]]
    inner.values[i] = [np.zeros((), np.int64) if a else None for a in alive]
    inner.values[keep] = [np.ones((), np.bool_) if a else None for a in alive]
    inner.values[carry] = list(b.values[x])
    grow(inner, b.int(1, 3))
    kind = b.r.random()
    if kind < 0.7:
        go = inner.add("Identity", keep)
    elif kind < 0.9:
        go = inner.add("Less", i, inner.constant(b.int(0, 3)))
    else:
        go = truth(inner)
        go = go and inner.add("Identity", go)
    outputs = [latest(inner, b, "f", b.rank(x) if b.chance(0.9) else None)]
    scans = [latest(inner, b, "fi")] if collects else []
    if go is None or None in (*outputs, *scans):
        return
    shape = [None] * (b.rank(x) or 0)
    inputs = [typed(i, np.int64, []), typed(keep, np.bool_, []), typed(carry, np.float32, shape)]
    body = subgraph(inner, inputs, [go, *outputs, *scans])  # type: ignore[list-item]
    b.add("Loop", trips, start, x, body=body, outputs=1 + len(scans), keep=0.1)


def scan(b: Builder) -> None:
    x, state = b.tensor("f", 1, 3), b.tensor("f", 0, 2)
    if x is None or state is None or not all(v.size for v in b.samples(x)):
        return
    rank = b.rank(x) or 1
    axis = b.int(0, rank - 1)
    inner = Builder(b.r, b.bindings, b)
    carry, row = inner.name("carry"), inner.name("row")
    inner.values[carry] = list(b.values[state])
    inner.values[row] = [None if v is None else np.take(v, 0, axis) for v in b.values[x]]
    grow(inner, b.int(0, 2))
    after = inner.add(b.pick(["Relu", "Neg", "Identity"]), carry)
    if b.chance(0.4) and (total := inner.add("Add", carry, row)):
        pairs = zip(inner.values[total], inner.values[carry], strict=True)
        if all(v is None or v.shape == was.shape for v, was in pairs):  # as a state has to be
            after = total
    scans = [latest(inner, b, "f")]
    if after is None or None in scans:
        return
    inputs = [
        typed(carry, np.float32, [None] * (b.rank(state) or 0)),
        typed(row, np.float32, [None] * (rank - 1)),
    ]
    body = subgraph(inner, inputs, [after, *scans])  # type: ignore[list-item]
    b.add(
        "Scan", state, x, body=body, num_scan_inputs=1, scan_input_axes=[axis], outputs=2, keep=0.1
    )


LAYERS: list[tuple[Any, float]] = [
    (conv, 2),
    (conv_transpose, 1),
    (pool, 2),
    (resize, 2),
    (space, 1),
    (norm, 1),
    (sequence, 1.5),
    (if_, 2.5),
    (loop, 2),
    (scan, 1.5),
]
