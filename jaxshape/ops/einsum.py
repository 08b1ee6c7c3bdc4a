"""Einsum: sums of products named by letters.

An equation is read once into terms of labels. A letter is a label; the axes of an ellipsis are the
labels 0, 1, ..., which cannot be letters. A label has one size wherever it stands, except that size
1 broadcasts between operands.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._error import ShapeError
from .._facts import broadcast, same
from .._host import namespace
from .._op import op
from .._symbol import hostdims
from .._value import TensorType
from ._agree import wide, written

Term = tuple[Any, ...]  # of letters and at most one Ellipsis


@functools.lru_cache(maxsize=1024)
def _read(equation: str) -> tuple[tuple[Term, ...], Term | None]:
    """The terms of an equation, and the output's where one is written."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = tuple([_term(t, equation) for t in left.split(",")])
    if not arrow:
        return terms, None
    output = _term(right, equation)
    if unknown := set(output).difference(*terms, [...]):
        raise ShapeError(f"{equation!r}: {''.join(sorted(unknown))} stands in the output only")
    if len(set(output)) < len(output):
        raise ShapeError(f"{equation!r}: the output names an axis twice")
    return terms, output


def _term(text: str, equation: str) -> Term:
    head, dots, tail = text.partition("...")
    if any(not (c.isascii() and c.isalpha()) for c in head + tail):
        raise ShapeError(f"{equation!r}: {text!r} is no term of letters and at most one ellipsis")
    return (*head, *([...] if dots else []), *tail)


def _labelled(
    equation: str, shapes: Sequence[Sequence[Any]]
) -> tuple[list[Term], Term, dict[Any, Any]]:
    """The labels of each operand's axes and of the output's, and the size of each label."""
    terms, output = _read(equation)
    if len(terms) != len(shapes):
        raise ShapeError(f"{equation!r} has {len(terms)} terms for {len(shapes)} inputs")
    hidden: int | None = None
    labels: list[Term] = []
    sizes: dict[Any, Any] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        extra = len(shape) - len(term) + (... in term)
        if extra < 0 or (extra and ... not in term):
            raise ShapeError(
                f"{equation!r}: input {i} {written(shape)} does not have the axes of its term"
            )
        if ... in term:
            if hidden is not None and hidden != extra:
                raise ShapeError(
                    f"{equation!r}: the ellipsis is {hidden} axes in one term, {extra} in another"
                )
            hidden = extra
        labels.append(_spread(term, extra))
        own: dict[Any, Any] = {}
        for label, d in zip(labels[-1], shape, strict=True):
            own[label] = same(own[label], d, f"{equation!r}: axis {label}") if label in own else d
        for label, d in own.items():
            why = f"{equation!r}: axis {label}"
            sizes[label] = broadcast(sizes[label], d, why=why) if label in sizes else d
    if output is None:
        seen = Counter(c for term in terms for c in term if c is not ...)
        output = (..., *sorted(c for c, n in seen.items() if n == 1))
    elif hidden and ... not in output:
        raise ShapeError(f"{equation!r}: the output leaves out the axes of the ellipsis")
    return labels, _spread(output, hidden or 0), sizes


def _spread(term: Term, extra: int) -> Term:
    """A term with the axes of its ellipsis in full."""
    if ... not in term:
        return term
    at = term.index(...)
    return (*term[:at], *range(extra), *term[at + 1 :])


@op("Einsum", since=12, host=True)
def einsum(*inputs, equation):
    """Multiply inputs whose axes the equation names, sum over the names that its output lacks."""
    labels, output, sizes = _labelled(equation, [hostdims(x.shape) for x in inputs])
    dtype, xp = wide(inputs[0].dtype), namespace(*inputs)
    number = {label: i for i, label in enumerate(sizes)}
    operands: list[Any] = []
    for x, names in zip(inputs, labels, strict=True):
        # a size 1 that broadcasts adds nothing to a product
        single = [i for i, n in enumerate(names) if x.shape[i] == 1 and sizes[n] != 1]
        operands += [
            xp.squeeze(x, tuple(single)),
            [number[n] for i, n in enumerate(names) if i not in single],
        ]
    result = [number[n] for n in output]
    if xp is np:
        operands[::2] = [x.astype(dtype) for x in operands[::2]]
        return np.asarray(np.einsum(*operands, result, optimize=len(inputs) > 2), inputs[0].dtype)
    if not _one_product(operands[1::2], result):
        operands[::2] = [x.astype(dtype) for x in operands[::2]]
    return jnp.einsum(*operands, result, preferred_element_type=dtype).astype(inputs[0].dtype)


def _one_product(names, result):
    """Whether this is one step, into which narrow types may go: two, summed over what both have."""
    if len(names) != 2 or any(len(set(n)) < len(n) for n in names):
        return False
    return set(names[0]) ^ set(names[1]) <= set(result)


@einsum.shape_rule  # because JAX cannot decide which sizes of one letter are 1
def _(*inputs, equation):
    _, output, sizes = _labelled(equation, [x.shape for x in inputs])
    return TensorType(inputs[0].dtype, [sizes[n] for n in output])
