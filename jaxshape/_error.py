"""Every failure this package raises on purpose is one branch of one tree.

    JaxshapeError(Exception)
    ├── ModelError                                the file is not a well-formed ONNX model
    ├── ShapeError(ValueError)                    the sizes at hand contradict the model
    ├── UnsupportedError(NotImplementedError)     a sound model, asking for what is not done here
    ├── UnknownValueError(KeyError)               no such value, input or output in the model
    └── ExecutionError(RuntimeError)              a run failed for a reason that no shape shows

Catching `JaxshapeError` catches them all; the second base keeps the meaning that Python already
has for it.  Anything else that escapes is a defect of this package.
"""

import difflib
import sys
import warnings
from collections.abc import Iterable


class JaxshapeError(Exception):
    """The base of everything this package raises on purpose."""


class ModelError(JaxshapeError):
    """The given thing is not an ONNX model, or is malformed; the message names where."""


class ShapeError(JaxshapeError, ValueError):
    """Sizes contradict the model, at every size that could be given or at the given one."""


class UnsupportedError(JaxshapeError, NotImplementedError):
    """A well-formed model asks for an operator, version or type that is not handled here."""


class UnknownValueError(JaxshapeError, KeyError):
    """A name was asked for that the model does not have."""

    # KeyError prints the repr of its argument, quotes and escapes included: a sentence should not.
    __str__ = Exception.__str__


class ExecutionError(JaxshapeError, RuntimeError):
    """A run failed for a reason that no shape shows, such as a loop passing its bound."""


class JaxshapeWarning(UserWarning):
    """The result is right, but the model or the call deserves a look."""


_INNER = ("jaxshape", "jax", "contextlib")


def warn(text: str) -> None:
    """Give a `JaxshapeWarning` at the line that called this package, however far up."""
    frame, level = sys._getframe(), 1
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, JaxshapeWarning, stacklevel=level)


def similar(name: str, names: Iterable[str]) -> str:
    """The end of a message about a name that is not there: which ones it may have meant."""
    close = difflib.get_close_matches(name, list(names), 3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
