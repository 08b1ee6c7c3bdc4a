"""Check a device: the official cases of the onnx package, then every model in a folder.

    python tests/gpu/validate_all.py                          # on JAX's default device
    python tests/gpu/validate_all.py models/ --seconds 300    # and the models in there
    JAX_PLATFORMS=cpu python tests/gpu/validate_all.py --only '^test_(conv|gru)'

Values are compared by `jaxshape._compare`, whose one table holds what a dtype may differ by on a
platform; matmuls run in full precision. It ends when its time is up and says what it did not get
to. Exit status 1 where anything differs or fails.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

# what the standard leaves to chance: dtypes and shapes must be equal, numbers cannot be
CHANCE = "bernoulli", "training_dropout"
STARTED = time.monotonic()


def official(only: str) -> list[Any]:
    """The onnx package's own cases of single nodes whose name matches a pattern."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return sorted((c for c in cases if re.search(only, c.name)), key=lambda c: c.name)


def run_case(case: Any, device: Any) -> str:
    """What is wrong with a case on a device, or nothing."""
    import jax
    import onnx

    import jaxshape as js
    from jaxshape._compare import difference

    def array(value: Any) -> Any:
        if isinstance(value, onnx.TensorProto):
            return onnx.numpy_helper.to_array(value)
        return np.asarray(value) if isinstance(value, np.generic) else value

    try:
        with jax.default_matmul_precision("highest"), np.errstate(all="ignore"):
            session = js.InferenceSession(case.model, device=device)
            for inputs, expected in case.data_sets:
                results = session.run(None, [array(v) for v in inputs])
                for info, got, want in zip(
                    case.model.graph.output, results, map(array, expected), strict=True
                ):
                    if any(word in case.name for word in CHANCE):
                        same = (got.dtype, got.shape) == (want.dtype, want.shape)
                        share, problem = 0.0, "" if same else "dtype or shape differs"
                    else:
                        share, problem = difference(got, want, device.platform)
                    if problem or share > 1:
                        return f"{info.name}: {problem or f'{share:.3g} times what is tolerated'}"
    except Exception as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return ""


def run_model(path: Path, device: Any, reference: str) -> str:
    """What is wrong with a model on a device, or nothing."""
    import jaxshape as js

    try:
        report = js.validate(path, reference=reference, device=device, bindings=1)
    except js.JaxshapeError as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    if report.ok:
        return ""
    culprit = f"; first to differ: {report.culprit.node}" if report.culprit else ""
    worst = max((c for c in report.checks if not c.ok), key=lambda c: c.share, default=None)
    return (report.error or f"{worst and worst.value} differs") + culprit


def sweep(what: str, jobs: dict[str, Any], workers: int, until: float) -> dict[str, Any]:
    """Run jobs by name until a time; print what is wrong, and give the figures."""
    began, done, wrong, longest = time.monotonic(), 0, {}, []

    def timed(job: Any) -> tuple[str | None, float]:
        start = time.monotonic()
        if start > until:
            return None, 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return job(), time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        pending = {pool.submit(timed, job): name for name, job in jobs.items()}
        for future in concurrent.futures.as_completed(pending):
            name, (problem, seconds) = pending[future], future.result()
            if problem is None:
                continue
            done += 1
            longest.append((round(seconds, 2), name))
            if problem:
                wrong[name] = problem
                print(f"WRONG {name}: {problem}", flush=True)
    seconds = round(time.monotonic() - began, 1)
    left = len(jobs) - done
    print(f"{what}: {done - len(wrong)} of {done} right in {seconds} s; not reached: {left}")
    return {
        "right": done - len(wrong),
        "done": done,
        "not reached": left,
        "seconds": seconds,
        "wrong": wrong,
        "longest": sorted(longest, reverse=True)[:5],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("models", nargs="?", type=Path, help="a folder of .onnx files")
    parser.add_argument("--device", help="cpu, gpu, cuda:1; JAX's default if left out")
    parser.add_argument("--only", default="", help="cases and models whose name matches this")
    parser.add_argument("--seconds", type=float, default=330, help="time for all of it")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args(argv)

    import jax
    import onnx

    from jaxshape._run import find_device

    device = find_device(args.device) if args.device else jax.devices()[0]
    print(f"{device.device_kind} ({device.platform}), JAX {jax.__version__}, onnx", end=" ")
    print(f"{onnx.__version__}, {args.workers} workers, {args.seconds:g} s", flush=True)
    until = STARTED + args.seconds
    models = sorted(args.models.glob("*.onnx")) if args.models else []
    models = [p for p in models if re.search(args.only, p.name)]
    cases = official(args.only)
    share = 0.6 if models else 1.0
    figures: dict[str, Any] = {"device": device.device_kind, "jax": jax.__version__}
    figures["cases"] = sweep(
        "official cases",
        {c.name: lambda c=c: run_case(c, device) for c in cases},
        args.workers,
        STARTED + share * args.seconds,
    )
    if models:
        found = importlib.util.find_spec("onnxruntime")
        reference = "onnxruntime" if found else "onnx"
        figures["models"] = sweep(
            f"models against {reference}",
            {p.name: lambda p=p: run_model(p, device, reference) for p in models},
            min(args.workers, 4),
            until,
        )
    figures["seconds"] = round(time.monotonic() - STARTED, 1)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{figures['seconds']} s in all")
    return int(any(v["wrong"] for v in figures.values() if isinstance(v, dict)))


if __name__ == "__main__":
    sys.exit(main())
