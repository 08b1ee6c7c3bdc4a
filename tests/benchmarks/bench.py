"""`make bench`: how long tracing takes, and running against onnxruntime.

Tracing: each network that the onnx package ships, as it is; the first call in the
process pays for JAX's start, so one is made before the clock runs. Running: ResNet-50 in one
process, two threads each, the two runtimes in turns; milliseconds a call, least and median.
"""

import os
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import onnx
import onnxruntime

import jaxshape as js
from jaxshape._demo import INPUT, LIGHT, resnet50


def bench_trace() -> None:
    print(f"{'model':<24}{'nodes':>7}{'load s':>9}{'trace s':>9}")
    js.trace(str(LIGHT))
    for path in sorted(Path(LIGHT).parent.glob("light_*.onnx")):
        proto = onnx.load(path)
        start = time.perf_counter()
        model = js.load(proto)
        loaded = time.perf_counter()
        js.trace(model)
        traced = time.perf_counter()
        name, nodes = path.stem.removeprefix("light_"), len(proto.graph.node)
        print(f"{name:<24}{nodes:>7}{loaded - start:>9.3f}{traced - loaded:>9.3f}")


def bench_run(batch: int, seconds: float = 6) -> None:
    proto = resnet50()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    runtimes = {"onnxruntime": theirs, "jaxshape": js.InferenceSession(proto)}
    x = np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)
    times: dict[str, list[float]] = {name: [] for name in runtimes}
    for session in runtimes.values():
        session.run(None, {INPUT: x})
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, session in runtimes.items():
            time.sleep(0.05)  # onnxruntime's threads spin for a while after a run
            session.run(None, {INPUT: x})
            start = time.perf_counter()
            session.run(None, {INPUT: x})
            times[name].append(1e3 * (time.perf_counter() - start))
    print(f"\nResNet-50, batch {batch}")
    for name, ms in times.items():
        print(f"{name:<24}{min(ms):>9.1f} ms least{float(np.median(ms)):>9.1f} ms median")


if __name__ == "__main__":
    bench_trace()
    for batch in (1, 8):
        bench_run(batch)
