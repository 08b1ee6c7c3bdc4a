"""Parameters on disk, as safetensors: names, shapes, dtypes and bytes; nothing that could run.

Orbax needs nothing of this: its checkpointers take a `JaxModel`, `f.params` and the state of an
optimizer as they take any pytree.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._error import ModelError, UnsupportedError


def save_params(params: Any, path: str | os.PathLike[str]) -> None:
    """Write parameters to a safetensors file; an orbax checkpointer takes them as they are.

    Args:
      params: a `JaxModel`, or a mapping of arrays (*D) of any dtype by name, such as `f.params`.
      path: the file; one that is there is replaced.

    Raises:
      UnsupportedError: the package safetensors is not installed, or it has no such dtype.
      OSError: the file cannot be written.

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
    except Exception as e:
        if not _is_its_own(e):
            raise
        raise OSError(f"cannot write {os.fspath(path)}: {e}") from e


def load_params(path: str | os.PathLike[str]) -> Mapping[str, np.ndarray]:
    """Read the arrays (*D) of a safetensors file by name, for `f.replace(...)` or `f.apply(...)`.

    Raises:
      UnsupportedError: the package safetensors is not installed.
      OSError: the file cannot be read.
      ModelError: it is no safetensors file, or is cut short.

    Example:
      >>> import os, tempfile, numpy as np, jaxshape as js
      >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
      >>> js.save_params({"w": np.ones(2, np.float32)}, path)
      >>> js.load_params(path)
      {'w': array([1., 1.], dtype=float32)}
    """
    try:
        return _safetensors().load_file(os.fspath(path))
    except Exception as e:
        if not _is_its_own(e):
            raise
        raise ModelError(f"{os.fspath(path)} is no safetensors file, or is cut short: {e}") from e


def _is_its_own(e: Exception) -> bool:
    """Whether safetensors raised its own error, which derives from none of Python's."""
    import safetensors

    return isinstance(e, safetensors.SafetensorError)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as e:
        raise UnsupportedError(
            "safetensors is not installed: pip install 'jaxshape[safetensors]'"
        ) from e
    return safetensors.numpy
