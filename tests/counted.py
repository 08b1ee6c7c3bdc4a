"""Models whose sizes are data: inputs of which none, one, some and all are counted, and heads that
count them.
"""

import numpy as np
from builders import model

import jaxshape as js

COUNTS = [[0, 0, 0, 0, 0], [0, 0, 3, 0, 0], [1, 0, 2, 0, -3], [1, 2, 3, 4, 5]]
VECTORS = [np.array(v, np.float32) for v in COUNTS]
MATRICES = [
    np.array(m, np.float32)
    for m in (
        [[0, 0], [0, 0], [0, 0]],
        [[0, 1], [0, 0], [0, 0]],
        [[1, 2], [0, -1], [3, 0]],
        [[1, 2], [3, 4], [5, 6]],
    )
]
CONSTANTS = """
    zero = Constant <value = float {0}> ()
    f2 = Constant <value = float {2}> ()
    i0 = Constant <value = int64 {0}> ()
    i1 = Constant <value = int64 {1}> ()
    v0 = Constant <value = int64[1] {0}> ()
    v1 = Constant <value = int64[1] {1}> ()
    v3 = Constant <value = int64[1] {3}> ()
    less = Constant <value = int64[1] {-1}> ()
    least = Constant <value = int64[1] {-9223372036854775808}> ()
"""
POSITIVE = CONSTANTS + " m = Greater (x, zero) s = Compress (x, m) n = Shape (s) "


def graph(body, outputs="y", shape="N", head=POSITIVE):
    types = ", ".join(f"undefined {name}" for name in outputs.split())
    text = f"g (float[{shape}] x) => ({types}) {{ {head} {body} }}"
    m = model(text.replace("undefined", "float[q]"))
    for o in m.graph.output:
        o.ClearField("type")
    return m


def values(outputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [y.exact() if isinstance(y, js.Padded) else np.asarray(y) for y in outputs]
