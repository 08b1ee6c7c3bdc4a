"""Random graphs that run: every node is tried on a handful of bindings before it is kept.

A `Case` is a model, bindings of its named sizes, and for each binding under which the whole model
runs the value of every name, computed by onnxruntime node by node. So a graph stays meaningful
however deep it gets, and the oracle costs one small session a node. Some bindings die on the way
(a Reshape that does not divide, a window that does not fit): what such nodes demand is worth
testing. The operators are in `random_nodes.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

OPSET, IR = 21, 10
LIMIT = 5000  # elements of any value
Values = dict[str, list[Any]]  # by name; for each binding an array, or None where it is dead

_SIZES = [1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16]
_PLAIN = ["N", "M", "H", "W", "seq", "batch"]
_ODD = [
    "batch size",
    "max",
    "s0",
    "NonZero_count",
    "broadcast",
    "1e9",
    "p2o.Dim.1",
    "Ünï",
    "If_size",
]
_options = onnxruntime.SessionOptions()
_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
_options.intra_op_num_threads = _options.inter_op_num_threads = 1
_options.log_severity_level = 4


@dataclasses.dataclass
class Case:
    """A model, the sizes to bind its names to, and what the runtime says for each binding."""

    model: onnx.ModelProto
    bindings: list[dict[str, int]]
    feeds: list[dict[str, np.ndarray]]
    values: Values

    def alive(self) -> list[int]:
        """The bindings under which the whole model runs."""
        dead = {i for column in self.values.values() for i, v in enumerate(column) if v is None}
        return [i for i in range(len(self.bindings)) if i not in dead]


def typed(name: str, dtype: Any, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


def build(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "random",
        inputs,
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def captured(node: onnx.NodeProto) -> list[str]:
    """The names a node reads, in its subgraphs too."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = attribute.g
            made = {i.name for i in (*inner.input, *inner.initializer)} | {
                o for n in inner.node for o in n.output
            }
            used = [n for part in inner.node for n in captured(part)] + [
                o.name for o in inner.output
            ]
            names += [n for n in used if n not in made]
    return list(dict.fromkeys(names))


class Builder:
    """A graph under way: names, their values under each binding, and the random choices."""

    def __init__(
        self, r: np.random.Generator, bindings: list[dict[str, int]], outer: Builder | None = None
    ):
        self.r, self.bindings, self.outer = r, bindings, outer
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.values: Values = {n: list(v) for n, v in outer.values.items()} if outer else {}
        self.constants: dict[str, np.ndarray] = {}
        self.numbers: list[int] = outer.numbers if outer else [0]
        self.undefined: set[int] = outer.undefined if outer else set()  # bindings not `legal`

    # choices --------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.r.integers(len(options)))]

    def int(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.r.integers(low, high + 1))

    def name(self, stem: str) -> str:
        self.numbers[0] += 1
        return f"{stem}_{self.numbers[0]}"

    # values ---------------------------------------------------------------------------------------

    def samples(self, name: str) -> list[Any]:
        return [v for v in self.values[name] if v is not None]

    def rank(self, name: str) -> int | None:
        ranks = {v.ndim for v in self.samples(name)}
        return ranks.pop() if len(ranks) == 1 else None

    def dtype(self, name: str) -> Any:
        return self.samples(name)[0].dtype

    def pool(self, kind: str = "f", least: int = 0, most: int = 5) -> list[str]:
        """The names of tensors of a kind of dtype and a range of ranks."""
        found = []
        for name in self.values:
            rank = self.rank(name)
            if rank is not None and least <= rank <= most and self.dtype(name).kind in kind:
                found.append(name)
        return found[-12:] if self.chance(0.7) else found

    def tensor(self, kind: str = "f", least: int = 0, most: int = 5) -> str | None:
        found = self.pool(kind, least, most)
        return self.pick(found) if found else None

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name, array = self.name("c"), np.asarray(value, dtype)
        self.constants[name] = array
        self.values[name] = [array] * len(self.bindings)
        return name

    def input(self, name: str, dtype: Any, dims: Sequence[Any], arrays: list[Any]) -> str:
        self.inputs.append(typed(name, dtype, dims))
        self.values[name] = arrays
        return name

    # nodes ----------------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        *inputs: str | None,
        outputs: int = 1,
        keep: float = 0.4,
        before: Sequence[onnx.NodeProto] = (),
        legal: Callable[[int], bool] = lambda i: True,
        **attrs: Any,
    ) -> Any:
        """The names of a new node's outputs, or None where it runs at too few bindings.

        Nodes `before` it run with it; what they give is no tensor. `legal` says of a binding
        whether the standard defines the result, where the runtime always gives one.
        """
        names = [self.name(op[:1].lower()) for _ in range(outputs)]
        attrs = {k: v for k, v in attrs.items() if v is not None}
        node = helper.make_node(op, [i or "" for i in inputs], names, name=self.name(op), **attrs)
        was = self.alive()
        self.undefined.update(i for i in was if not legal(i))
        columns = self.execute([*before, node], names, sorted({*was} - self.undefined))
        lives = sum(v is not None for v in columns[0]) if columns else 0
        if not columns or lives < max(1, keep * len(was)) and not (lives and self.chance(0.05)):
            return None
        self.nodes += [*before, node]
        self.values.update(zip(names, columns, strict=True))
        for column in self.values.values():  # a binding that dies, dies for all
            for i, v in enumerate(columns[0]):
                if v is None:
                    column[i] = None
        return names[0] if outputs == 1 else names

    def alive(self) -> list[int]:
        return [
            i
            for i in range(len(self.bindings))
            if all(v[i] is not None for v in self.values.values())
        ]

    def execute(
        self, nodes: list[onnx.NodeProto], names: list[str], at: Sequence[int]
    ) -> list[list[Any]] | None:
        """The outputs at some bindings; None where the runtime does not take the nodes at all."""
        inside = {o for node in nodes for o in node.output}
        used = dict.fromkeys(n for node in nodes for n in captured(node) if n not in inside)
        fixed = {n: v for n in used if (v := self.fixed(n)) is not None}
        free = [n for n in used if n not in fixed]
        inputs = [
            typed(n, self.dtype(n), None if (r := self.rank(n)) is None else [None] * r)
            for n in free
        ]
        columns: list[list[Any]] = [[None] * len(self.bindings) for _ in names]
        try:
            made = build(nodes, inputs, names, fixed).SerializeToString()
            session = onnxruntime.InferenceSession(made, _options, ["CPUExecutionProvider"])
        except Exception:
            return None
        for i in at:
            try:
                found = session.run(None, {n: self.values[n][i] for n in free})
            except Exception:
                continue
            if all(isinstance(v, np.ndarray) and v.size <= LIMIT and v.ndim <= 6 for v in found):
                for column, v in zip(columns, found, strict=True):
                    column[i] = v
        return columns

    def fixed(self, name: str) -> np.ndarray | None:
        builder: Builder | None = self
        while builder is not None:
            if name in builder.constants:
                return builder.constants[name]
            builder = builder.outer
        return None


# whole cases --------------------------------------------------------------------------------------


def bindings(r: np.random.Generator, names: list[str], count: int) -> list[dict[str, int]]:
    """Sizes for names: apart, all alike, some of them 1 or 0."""
    found = []
    for i in range(count):
        sizes = [int(r.choice(_SIZES)) for _ in names]
        kind = r.random()
        if kind < 0.25:
            sizes = [sizes[0]] * len(names)
        elif kind < 0.4:
            sizes[int(r.integers(len(names)))] = 1
        elif kind < 0.5 and i:
            sizes[int(r.integers(len(names)))] = 0
        found.append(dict(zip(names, sizes, strict=True)))
    return found


def _dim(b: Builder, names: list[str]) -> tuple[Any, Any]:
    """A size as the model declares it, and what it is under a binding."""
    kind, n = b.r.random(), b.pick(names)
    if kind < 0.62:
        return n, lambda sizes: sizes[n]
    if kind < 0.68 and n.isidentifier():
        k = b.int(2, 3)
        text = b.pick([f"{k}*{n}", f"{n} + {k}"])
        for sizes in b.bindings:  # a name of its own, unless n is one too
            sizes[text] = k * sizes[n] if "*" in text else sizes[n] + k
        return text, lambda sizes: sizes[text]
    if kind < 0.73:  # a size without a name
        hidden = b.name("?")
        for sizes in b.bindings:
            sizes[hidden] = b.pick(_SIZES) * b.chance(0.95)
        return None, lambda sizes: sizes[hidden]
    k = b.pick([1, 2, 3, 3, 4, 6, 8])
    return k, lambda sizes: k


def _floats(r: np.random.Generator, shape: Any) -> np.ndarray:
    """Numbers of which some are 0 and some alike, so that selections by content differ."""
    return np.where(r.random(shape) < 0.2, 0, np.round(r.normal(size=shape) * 2, 1)).astype(
        np.float32
    )


def inputs(b: Builder, names: list[str]) -> None:
    """The inputs of a graph: tensors of named sizes, small integers, a truth value."""
    for i in range(b.int(1, 3)):
        dims = [_dim(b, names) for _ in range(b.pick([1, 2, 2, 3, 3, 4, 4]))]
        if i == 0 and all(isinstance(d, int) for d, _ in dims):
            dims[0] = names[0], lambda sizes: sizes[names[0]]
        shapes = [tuple([f(sizes) for _, f in dims]) for sizes in b.bindings]
        arrays = [_floats(b.r, s) if np.prod(s) <= LIMIT else None for s in shapes]
        b.input(f"x{i}", np.float32, [d for d, _ in dims], arrays)
    if b.chance(0.3):
        n = b.int(1, 2)
        arrays = [b.r.integers(0, 5, n) for _ in b.bindings]
        b.input("k", np.int64, [n], [a.astype(np.int64) for a in arrays])
    if b.chance(0.2):
        b.input("flag", np.bool_, [], [np.asarray(b.chance(0.5)) for _ in b.bindings])
    dead = {i for column in b.values.values() for i, v in enumerate(column) if v is None}
    for column in b.values.values():
        for i in dead:
            column[i] = None


def case(seed: int, size: int = 10, count: int = 8) -> Case:
    """The random graph of a seed: up to about `size` nodes, tried on `count` bindings."""
    from random_layers import LAYERS
    from random_nodes import NODES

    r = np.random.default_rng(seed)
    names = list(r.choice(_PLAIN, int(r.integers(1, 4)), replace=False))
    if r.random() < 0.1:
        names[0] = str(r.choice(_ODD))
    names = [str(n) for n in names]
    b = Builder(r, bindings(r, names, count))
    inputs(b, names)
    makers, weights = zip(*NODES, *LAYERS, strict=True)
    # each graph has operators of its own: what meets seldom in a mixture of all meets often so
    chances = np.array(weights) * (r.random(len(weights)) < r.choice([0.2, 0.5, 1.0]))
    chances = (chances if chances.any() else np.array(weights)) / (chances.sum() or sum(weights))
    target = b.int(1, size)
    for _ in range(3 * target):
        makers[int(r.choice(len(makers), p=chances))](b)
        if len(b.nodes) >= target:
            break
    outputs = [o for n in b.nodes for o in n.output] or [b.inputs[0].name]
    made = {i.name for i in b.inputs}
    if not b.nodes:
        b.add("Relu", b.inputs[0].name)
        outputs = list(b.nodes[0].output) if b.nodes else []
    used = {n for node in b.nodes for n in captured(node)}
    constants = {n: v for n, v in b.constants.items() if n in used}
    model = build(b.nodes, b.inputs, outputs, constants)
    kept = {n: v for n, v in b.values.items() if n in made or n in outputs}
    feeds = [{n: b.values[n][i] for n in made} for i in range(count)]
    return Case(model, b.bindings, feeds, kept)
