"""The exception tree: one base to catch, and Python's own meaning beside it."""

import pytest

from jaxshape import _error

TREE = [
    ("ModelError", Exception),
    ("ShapeError", ValueError),
    ("UnsupportedError", NotImplementedError),
    ("UnknownValueError", KeyError),
    ("ExecutionError", RuntimeError),
]


@pytest.mark.parametrize(("name", "base"), TREE)
def test_each_error_has_both_bases(name, base):
    error = getattr(_error, name)
    assert issubclass(error, _error.JaxshapeError)
    assert issubclass(error, base)


@pytest.mark.parametrize("name", ["JaxshapeError", *(name for name, _ in TREE)])
def test_text_is_what_was_said(name):
    assert str(getattr(_error, name)("no value 'x' here")) == "no value 'x' here"


def test_docstring_draws_every_class():
    assert all(name in (_error.__doc__ or "") for name, _ in TREE)


def test_warning_is_the_users_to_filter():
    assert issubclass(_error.JaxshapeWarning, UserWarning)
