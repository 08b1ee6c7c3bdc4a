"""One node in onnxruntime, as a reference where the standard has no cases."""

from typing import Any

import numpy as np
import onnxruntime
from builders import node
from forms import typed_as
from layers import layer


def twin(op: str, *inputs: Any, outputs: Any = 1, **keywords: Any) -> list[Any]:
    """The outputs of a node as onnxruntime has them."""
    given = [None if x is None else np.asarray(x) for x in inputs]
    typed = [None if x is None else typed_as(x) for x in given]
    model = node(op, *typed, outputs=outputs, **keywords)
    model.opset_import[0].version = min(model.opset_import[0].version, 21)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {f"x{i}": x for i, x in enumerate(given) if x is not None}))


def check(
    op: str,
    *inputs: Any,
    outputs: Any = 1,
    rtol: Any = 1e-4,
    domain: Any = "com.microsoft",
    **more: Any,
) -> None:
    """The node gives what onnxruntime gives, on the host and on the device."""
    keywords = {"domain": domain, "outputs": outputs, **more}
    wanted = twin(op, *inputs, **keywords)
    layer(op, *inputs, wanted=wanted, rtol=rtol, **keywords)
