"""Parameters on disk, as safetensors: names, shapes, dtypes and bytes; nothing that could run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._error import UnsupportedError


def save_params(params: Any, path: str | os.PathLike[str]) -> None:
    """Write parameters to a safetensors file.

    Args:
      params: a `JaxModel`, or a mapping of arrays (*D) of any dtype by name, such as `f.params`.
      path: the file; one that is there is replaced.

    Raises:
      UnsupportedError: the package safetensors is not installed, or it has no such dtype.

    Example:
      >>> import os, tempfile, numpy as np, jaxshape as js
      >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
      >>> js.save_params({"w": np.ones((2, 3), np.float32)}, path)
      >>> js.load_params(path)["w"].shape
      (2, 3)
    """
    arrays = getattr(params, "params", params)
    contents = {n: np.ascontiguousarray(v) for n, v in arrays.items()}
    try:
        _safetensors().save_file(contents, os.fspath(path))
    except KeyError as e:
        raise UnsupportedError(f"safetensors has no dtype {e}") from e


def load_params(path: str | os.PathLike[str]) -> Mapping[str, np.ndarray]:
    """Read the arrays (*D) of a safetensors file by name, for `f.replace(...)` or `f.apply(...)`.

    Raises:
      UnsupportedError: the package safetensors is not installed.
      OSError: the file cannot be read.

    Example:
      >>> import os, tempfile, numpy as np, jaxshape as js
      >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
      >>> js.save_params({"w": np.ones(2, np.float32)}, path)
      >>> js.load_params(path)
      {'w': array([1., 1.], dtype=float32)}
    """
    return _safetensors().load_file(os.fspath(path))


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as e:
        raise UnsupportedError(
            "safetensors is not installed: pip install 'jaxshape[safetensors]'"
        ) from e
    return safetensors.numpy
