"""What a validation found: one `Check` a value, and the `Report` of them all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class Check:
    """One value compared.

    Attributes:
      value, node, op: the value's name, the node that makes it, and its operator.
      stage: `"output"`, an output of the model; `"value"`, one inside of it, as it flows;
        `"node"`, a result of one node that was fed the reference's own inputs.
      share: the greatest difference over what is tolerated (1 and above fails).
      problem: what else differs: dtype, shape, the place of a NaN, exact elements.
      note: why a difference is no fault: chance, rounding, or a reference that is wrong itself.
    """

    value: str
    node: str
    op: str
    stage: str
    share: float
    problem: str = ""
    note: str = ""

    @property
    def local(self) -> bool:
        """Whether the node was fed the reference's own inputs."""
        return self.stage == "node"

    @property
    def agrees(self) -> bool:
        return not self.problem and self.share <= 1

    @property
    def ok(self) -> bool:
        return self.agrees or bool(self.note)

    def to_json(self) -> dict[str, Any]:
        """The check as plain data; `share` is None where `problem` says what no number does."""
        share = self.share if math.isfinite(self.share) else None
        return dataclasses.asdict(self) | {"share": share, "local": self.local, "ok": self.ok}


@dataclasses.dataclass
class Report:
    """What `validate` found: `ok`, the `checks`, and where nodes were checked one by one the
    `culprit`, the first that is wrong.

    `str(report)` is a table, in Jupyter it shows itself. `sizes` are those that inputs were drawn
    at, `skipped` counts values that the reference could not give, `error` is why ours did not run.

    Example:
      >>> import numpy as np, onnx.parser, jaxshape as js
      >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
      ... g (float[2] x) => (float[2] y) { y = Floor (x) }''')
      >>> print(js.validate(m, [np.float32([1.5, -1.5])], reference={"y": np.float32([1, -2])}))
      g agrees with stored outputs
      <BLANKLINE>
      value  node        op     off by              verdict
      y      Floor -> y  Floor  0.0 % of tolerance  ok
    """

    model: str
    reference: str
    checks: list[Check]
    sizes: list[dict[str, int]]
    error: str = ""
    skipped: int = 0

    @property
    def ok(self) -> bool:
        """Whether every output agrees, or its difference is explained, and no node is to blame."""
        outputs = all(c.ok for c in self.checks if c.stage == "output")
        return not self.error and outputs and self.culprit is None

    @property
    def culprit(self) -> Check | None:
        """The first node whose result differs on the reference's own inputs."""
        return next((c for c in self.checks if c.local and not c.ok), None)

    @property
    def first(self) -> Check | None:
        """The first value that differs as it flows; what made it so may lie further up."""
        return next((c for c in self.checks if c.stage == "value" and not c.agrees), None)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "model": self.model,
            "reference": self.reference,
            "ok": self.ok,
            "error": self.error,
            "sizes": self.sizes,
            "skipped": self.skipped,
            "culprit": self.culprit.to_json() if self.culprit else None,
            "checks": [c.to_json() for c in self.checks],
        }

    def __str__(self) -> str:
        from .show.report import report_text

        return report_text(self)

    def __repr__(self) -> str:
        return f"<Report on {self.model!r}: {'ok' if self.ok else 'differs'}>"

    def _repr_html_(self) -> str:
        from .show.report import report_html

        return report_html(self)
