"""Tests run on the platform of JAX_PLATFORMS, CPU unless said; there a mixed dtype is an error.

Strict promotion holds in the test's own thread only, and the package must do its work without it:
what it protects from is a lowering that mixes dtypes and gets a result JAX chose and ONNX did not.
Nor may a lowering or shape rule fail by a slip of ours, which a trace takes for a shape unknown.
"""

import os

# JAX reads it once, at the first use of a device: before any test module is imported.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

from jaxshape._tracer import Tracer


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(autouse=True)
def no_slips(monkeypatch):
    failed = Tracer.failed

    def failed_for_a_reason(self, node, error):
        if isinstance(error, (NameError, ImportError, AttributeError, SyntaxError)):
            raise error
        failed(self, node, error)

    monkeypatch.setattr(Tracer, "failed", failed_for_a_reason)
