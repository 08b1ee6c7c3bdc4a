"""`make demo`: ResNet-50 traced with a symbolic batch, then run and compared with onnxruntime.

The onnx package ships the graph of ResNet-50 for a batch of 1 with nearly every weight 0.02, so
that each class gets the same probability. Here the batch is freed and the weights are drawn at
random, scaled so that activations neither vanish nor explode: a comparison then says something.
"""

import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import jaxshape as js

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
INPUT = "gpu_0/data_0"
BATCHES = (1, 4)
TOLERANCE = 1e-3  # of the greatest output: float32 sums in another order, through 50 layers


def resnet50(seed: int = 0) -> onnx.ModelProto:
    """ResNet-50 for any batch, its weights drawn at random.

    >>> resnet50().graph.input[0].type.tensor_type.shape.dim[0].dim_param
    'batch'
    """
    model = onnx.load(LIGHT)
    graph, rng = model.graph, np.random.default_rng(seed)
    stored = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    use = {name: (n.op_type, k) for n in graph.node for k, name in enumerate(n.input)}

    nodes, weights = [], []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            weights.append(
                (node.output[0], weight(rng, *use[node.output[0]], stored[node.input[0]]))
            )
            continue
        if node.op_type == "Reshape":  # (1, 2048) before the classifier: 0 copies the batch
            stored[node.input[1]] = np.array([0, 2048])
        nodes.append(node)
        weights += [(name, stored[name]) for name in node.input if name in stored]

    inputs = [i for i in graph.input if i.name == INPUT]
    for value in (*inputs, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    tensors = [numpy_helper.from_array(array, name) for name, array in weights]
    made = onnx.helper.make_graph(nodes, "resnet50", inputs, list(graph.output), tensors)
    return onnx.helper.make_model(made, opset_imports=model.opset_import, ir_version=8)


def weight(rng: np.random.Generator, op: str, place: int, shape: np.ndarray) -> np.ndarray:
    """A parameter of `shape` for input number `place` of an `op`."""
    if op == "BatchNormalization":
        # scale, bias, mean, variance: a small scale keeps the sums of the residual branches small.
        low, high = {1: (0.2, 0.6), 2: (-0.1, 0.1), 3: (-0.1, 0.1), 4: (0.5, 1.5)}[place]
        return rng.uniform(low, high, shape).astype(np.float32)
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def main() -> int:
    """Run the demo; the exit status is 1 where the numbers differ from onnxruntime's."""
    import onnxruntime

    proto = resnet50()
    model = js.load(proto)
    start = time.perf_counter()
    traced = js.trace(model, {INPUT: ("batch", 3, 224, 224)})
    seconds = time.perf_counter() - start
    print(traced)
    print(f"\ntraced {len(proto.graph.node)} nodes in {seconds:.2f} s\n")

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng, good = np.random.default_rng(1), True
    for batch in BATCHES:
        x = rng.standard_normal((batch, 3, 224, 224)).astype(np.float32)
        (want,) = theirs.run(None, {INPUT: x})
        start = time.perf_counter()
        (got,) = js.run(model, {INPUT: x}).values()
        seconds = time.perf_counter() - start
        got, want = np.asarray(got), np.asarray(want)
        difference = float(np.abs(got - want).max() / np.abs(want).max())
        same = got.shape == want.shape and difference <= TOLERANCE
        good &= same
        print(
            f"batch {batch}: {got.dtype}{list(got.shape)} in {seconds:.1f} s with compilation; off "
            f"onnxruntime by {difference:.0e} of the greatest output: {'good' if same else 'BAD'}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
