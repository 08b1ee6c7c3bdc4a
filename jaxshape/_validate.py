"""Validation: a model's numbers here against a reference, and which node first goes wrong.

The values are compared as they flow (chained), so a difference upstream shows in all that follows.
To find where it comes from, `bisect` feeds each node the reference's own inputs: that verdict is
local, so rounding and discrete choices that flip (TopK, ArgMax) are not blamed on the nodes after
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._dim import Dim
from ._draw import draw_inputs, draw_sizes
from ._error import JaxshapeError
from ._feed import checked_feed
from ._interpret import Scope, enter
from ._model import Model, Node, load
from ._reference import reference_outputs
from ._run import Runner, placed
from ._trace import Trace, trace
from ._value import STRING, SequenceType, TensorType, dtype_name

# relative to the greater of |reference| and its root mean square, and absolute
TOLERANCE = {
    "float64": (1e-6, 1e-9),
    "float32": (2e-4, 1e-5),
    "float16": (2e-2, 2e-3),
    "bfloat16": (5e-2, 1e-2),
    "complex64": (2e-4, 1e-5),
    "complex128": (1e-6, 1e-9),
}


@dataclasses.dataclass(frozen=True)
class Check:
    """One value compared: `share` is the greatest difference over what is tolerated (1 and above
    fails).
    """

    value: str
    node: str
    op: str
    local: bool
    share: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and self.share <= 1


@dataclasses.dataclass
class Report:
    """What `validate` found: `ok`, the `checks`, and with `bisect` the `culprit`, the first node
    that is wrong.
    """

    model: str
    reference: str
    checks: list[Check]
    sizes: list[dict[str, int]]
    error: str = ""

    @property
    def ok(self) -> bool:
        return (
            not self.error
            and all(c.ok for c in self.checks if not c.local)
            and self.culprit is None
        )

    @property
    def culprit(self) -> Check | None:
        """The first node whose result differs on the reference's own inputs."""
        return next((c for c in self.checks if c.local and not c.ok), None)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "model": self.model,
            "reference": self.reference,
            "ok": self.ok,
            "error": self.error,
            "sizes": self.sizes,
            "culprit": dataclasses.asdict(self.culprit) if self.culprit else None,
            "checks": [dataclasses.asdict(c) | {"ok": c.ok} for c in self.checks],
        }

    def __str__(self) -> str:
        from .show.report import report_text

        return report_text(self)

    def __repr__(self) -> str:
        return f"<Report on {self.model!r}: {'ok' if self.ok else 'differs'}>"

    def _repr_html_(self) -> str:
        from .show.report import report_html

        return report_html(self)


def validate(
    model: Any,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    reference: str | Mapping[str, Any] = "onnxruntime",
    device: Any = None,
    bisect: bool = False,
    bindings: int = 2,
    seed: int = 0,
) -> Report:
    """Compare a model's outputs on a device with a reference's: dtype, traced shape and values.

    Args:
      model: what `load` takes.
      inputs: as for `run`; None: drawn at random, at sizes that meet the traced requirements.
      reference: `"onnxruntime"`, `"onnx"` (the standard's reference), or expected outputs by name.
      device: where to run, as for `run`.
      bisect: also compare every value, and name the node that first differs on equal inputs.
      bindings: at how many different sizes to draw inputs.
      seed: of what is drawn.

    Returns:
      A `Report`; `report.ok` says whether all agree.

    Raises:
      ModelError, UnsupportedError: the model cannot be loaded or run, or the reference is missing.
      ExecutionError: the reference itself fails on the model.

    Example:
      >>> import onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[N, 2] x) => (float[N, 2] y) { y = Softmax (x) }''')
      >>> js.validate(m, reference="onnx").ok
      True
    """
    loaded = load(model)
    traced = trace(loaded)
    rng = np.random.default_rng(seed)
    sizes: list[dict[str, int]] = []
    if inputs is not None:
        feeds = [checked_feed(loaded, inputs)]
    else:
        sizes = draw_sizes(traced, bindings, rng)
        feeds = [draw_inputs(traced, s, rng) for s in sizes]
    name = reference if isinstance(reference, str) else "stored outputs"
    report = Report(loaded.name, name, [], sizes)
    try:
        for feed in feeds:
            report.checks += _compare(loaded, traced, feed, reference, device, bisect)
    except JaxshapeError as e:
        if hasattr(e, "node"):
            report.error = str(e)
        else:
            raise
    return report


def _compare(
    model: Model, traced: Trace, feed: dict[str, Any], reference: Any, device: Any, bisect: bool
) -> list[Check]:
    nodes = {o: node for node in model.graph.nodes for o in node.outputs if o}
    outputs = [o.name for o in model.graph.outputs]
    names = [*outputs, *(n for n in nodes if n not in outputs)] if bisect else outputs
    if isinstance(reference, str):
        wanted = reference_outputs(model, feed, reference, names)
    else:
        wanted = {n: reference[n] for n in names if n in reference}
    runner = Runner()
    with placed(device):
        scope = Scope(model, model.opsets)
        enter(model.graph, dict(feed), scope, runner)
        got = {n: runner.on_host(scope[n]) for n in outputs}
        checks = [
            _check(n, nodes.get(n), got[n], wanted[n], traced, False)
            for n in outputs
            if n in wanted
        ]
        if bisect:
            checks += _local(model, feed, wanted, traced, nodes)
    return checks


def _local(
    model: Model,
    feed: dict[str, Any],
    wanted: dict[str, Any],
    traced: Trace,
    nodes: dict[str, Node],
) -> list[Check]:
    """Each node on the reference's inputs; a node that fails is a check that fails."""
    checks = []
    for node in model.graph.nodes:
        runner, scope = Runner(), Scope(model, model.opsets)
        scope.values.update(model.graph.initializers)
        scope.values.update(feed)
        scope.values.update({n: v for n, v in wanted.items() if n not in node.outputs})
        names = [n for n in node.outputs if n and n in wanted]
        try:
            runner.walk([node], scope, names)
            checks += [
                _check(n, node, runner.on_host(scope[n]), wanted[n], traced, True) for n in names
            ]
        except JaxshapeError as e:
            checks.append(Check(node.outputs[0], node.label, node.op_type, True, np.inf, str(e)))
    return checks


def _check(name: str, node: Node | None, got: Any, want: Any, traced: Trace, local: bool) -> Check:
    label, op = (node.label, node.op_type) if node else ("", "")
    share, problem = difference(got, want)
    if not problem and not local and name in traced and _denies(traced[name], got):
        problem = f"traced as {traced[name]}, but it is {dtype_name(got.dtype)}{list(got.shape)}"
    return Check(name, label, op, local, share, problem)


def difference(got: Any, want: Any) -> tuple[float, str]:
    """The greatest difference of two values over what is tolerated, and what else differs."""
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return np.inf, "sequences of different lengths"
        pairs = [difference(g, w) for g, w in zip(got, want, strict=True)]
        return max([s for s, _ in pairs], default=0.0), next((p for _, p in pairs if p), "")
    if want is None or got is None or isinstance(want, dict):
        return (0.0, "") if got is want or got == want else (np.inf, "one is absent")
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind in "US":
        want = want.astype(object)
    if got.dtype != want.dtype:
        return np.inf, f"dtype {dtype_name(got.dtype)}, not {dtype_name(want.dtype)}"
    if got.shape != want.shape:
        return np.inf, f"shape {list(got.shape)}, not {list(want.shape)}"
    if not want.size:
        return 0.0, ""
    if want.dtype.name not in TOLERANCE:
        same = got == want if want.dtype == STRING else got.astype(object) == want.astype(object)
        wrong = int(np.size(same) - np.count_nonzero(same))
        return (0.0, "") if not wrong else (np.inf, f"{wrong} of {want.size} elements differ")
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    g, w = got.astype(wide), want.astype(wide)
    odd = ~np.isfinite(w)
    if not np.array_equal(np.isnan(g), np.isnan(w)) or not np.array_equal(
        g[odd], w[odd], equal_nan=True
    ):
        return np.inf, "NaN or infinity in different places"
    g, w = g[~odd], w[~odd]
    if not w.size:
        return 0.0, ""
    rtol, atol = TOLERANCE[want.dtype.name]
    scale = np.maximum(np.abs(w), np.sqrt(np.mean(np.abs(w) ** 2)))
    return float(np.max(np.abs(g - w) / (atol + rtol * scale))), ""


def _denies(claimed: Any, got: Any) -> bool:
    """Whether a traced type is false of a value."""
    if isinstance(claimed, SequenceType) or not isinstance(claimed, TensorType):
        return False
    got = np.asarray(got)
    if claimed.dtype is not None and claimed.dtype != (
        STRING if got.dtype.kind in "US" else got.dtype
    ):
        return True
    if claimed.shape is None:
        return False
    return len(claimed.shape) != got.ndim or any(
        not isinstance(d, Dim) and d is not None and d != n
        for d, n in zip(claimed.shape, got.shape, strict=True)
    )
