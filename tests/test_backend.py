"""The official cases that the onnx package ships: run, each gives what the standard expects at the
case's own tolerance;
traced, each claims nothing that the expected outputs contradict."""

import glob
import os
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import jaxshape as js
from jaxshape._value import STRING

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

# what the standard leaves to chance: their numbers cannot be equal, their shapes and dtypes must be
RANDOM = "bernoulli", "training_dropout"

# the expected numbers have Softmax round its exponentials and their sum to float16; ours does as
# onnxruntime, in float32, which is nearer to the truth: 2 of 192 elements differ in the last bit
ROUNDED = {
    "test_attention_4d_causal_fp16_expanded": pytest.mark.xfail(
        strict=True, reason="expects a float16 sum of exponentials"
    )
}


def cases() -> list:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    found.sort(key=lambda case: case.name)
    return [pytest.param(c, id=c.name, marks=ROUNDED.get(c.name, ())) for c in found]


def data_of(case) -> tuple[onnx.ModelProto, list]:
    """The model and its data sets of inputs and outputs."""
    if case.model is not None:
        sets = [[[array(v) for v in part] for part in data] for data in case.data_sets]
        return case.model, sets
    model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
    sets = []
    load: Any = Runner._load_proto
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set*"))):
        data: list[list] = [[], []]
        for part, what, infos in (
            (0, "input", model.graph.input),
            (1, "output", model.graph.output),
        ):
            for i in range(len(glob.glob(os.path.join(folder, f"{what}_*.pb")))):
                path = os.path.join(folder, f"{what}_{i}.pb")
                load(None, path, data[part], infos[i].type)
        sets.append(data)
    return model, sets


def array(value):
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def check(expected, got, rtol: float, atol: float, where: str) -> None:
    if expected is None or got is None:
        assert expected is None and got is None, where
    elif isinstance(expected, (list, tuple)):
        assert len(expected) == len(got), where
        for i, (e, g) in enumerate(zip(expected, got, strict=True)):
            check(e, g, rtol, atol, f"{where}[{i}]")
    else:
        Runner.assert_similar_outputs([expected], [got], rtol, atol)


def contradicts(claimed, value) -> bool:
    """Whether a traced type is false of a value; sizes that are unknown are not."""
    if isinstance(claimed, js.SequenceType):
        return not isinstance(value, (list, tuple)) or any(
            contradicts(claimed.elem, v) for v in value
        )
    if isinstance(claimed, list):
        return len(claimed) != len(value) or any(map(contradicts, claimed, value))
    if not isinstance(claimed, js.TensorType) or value is None:
        return False
    value = np.asarray(value)
    dtype = STRING if value.dtype.kind in "OUS" else value.dtype
    if claimed.dtype is not None and claimed.dtype != dtype:
        return True
    if claimed.shape is None:
        return False
    return len(claimed.shape) != value.ndim or any(
        isinstance(d, int) and d != n for d, n in zip(claimed.shape, value.shape, strict=True)
    )


@pytest.mark.official
@pytest.mark.parametrize("case", cases())
@pytest.mark.filterwarnings(
    "ignore"
)  # the cases themselves overflow, divide by zero and use old opsets
def test_official(case):
    model, sets = data_of(case)
    session = js.InferenceSession(model, device="cpu")
    traced = js.trace(model)
    for inputs, expected in sets:
        got = session.run(None, inputs)
        for output, e, g in zip(model.graph.output, expected, got, strict=True):
            assert not contradicts(traced[output.name], e), f"{output.name}: {traced[output.name]}"
            if any(word in case.name for word in RANDOM):
                assert np.asarray(g).shape == e.shape and np.asarray(g).dtype == e.dtype
            else:
                check(e, g, case.rtol, case.atol, output.name)
