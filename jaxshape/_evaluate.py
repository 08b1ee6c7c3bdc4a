"""What a formula becomes when its symbols get values: another formula, a number, or an array of
numbers.

Both are one walk from the operands up, with a memo, so that a formula that shares parts costs no
more than its parts.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ._dim import Atom, Dim, Monomial, Number, Scalar, make, number, product
from ._divide import floordiv, maximum, minimum, mod

_SAFE = 1 << 62  # int64 holds what stays below
_CONSTRUCT: dict[str, Callable[..., Any]] = {
    "//": floordiv,
    "%": mod,
    "max": maximum,
    "min": minimum,
}


def rebuild(x: Scalar, atoms: Mapping[Atom, Scalar], memo: dict[Any, Any]) -> Scalar:
    """x with atoms replaced, made canonical again; `memo` may be kept between calls with the same
    `atoms`.
    """
    if type(x) is not Dim:
        return x
    found = memo.get(x)
    if found is not None:
        return found
    values = {atom: _rebuilt(atom, atoms, memo) for atom in x.atoms()}
    if all(v is None for v in values.values()):
        memo[x] = x
        return x
    kept: dict[Monomial, Number] = {}
    total: Any = 0
    for mono, k in x.terms.items():
        if all(values[atom] is None for atom in mono):
            kept[mono] = k
        else:
            total += product(
                [k, *[atom.dim if (v := values[atom]) is None else v for atom in mono]]
            )
    total += make(kept)
    memo[x] = total = total if type(total) is Dim else number(total)
    return total


def _rebuilt(atom: Atom, atoms: Mapping[Atom, Scalar], memo: dict[Any, Any]) -> Scalar | None:
    """What an atom becomes, None where it stays."""
    if atom.kind == "symbol":
        return atoms.get(atom)
    if atom in memo:
        return memo[atom]
    args = [rebuild(a, atoms, memo) for a in atom.args]
    if all(a is b or a == b for a, b in zip(args, atom.args, strict=True)):
        value = atoms.get(atom)
    else:
        value = construct(atom.kind, args)
        if type(value) is Dim and (whole := value.atom) is not None and whole in atoms:
            value = atoms[whole]
    memo[atom] = value
    return value


def construct(kind: str, args: Sequence[Scalar]) -> Any:
    """The formula for a kind of atom and its operands, simplified."""
    return _CONSTRUCT[kind](*args)


def evaluate(d: Scalar, env: Mapping[str, Any], greatest: Any = None, smallest: Any = None) -> Any:
    """See `Dim.evaluate`."""
    if type(d) is not Dim:
        return d
    values: dict[Atom, Any] = {}
    for s in d.symbols:
        value = env[s.name]
        if isinstance(value, numbers.Integral):
            value = operator.index(value)
        values[s._symbol()] = value
    return at(d, values, greatest, smallest)


def at(d: Scalar, values: Mapping[Atom, Any], greatest: Any = None, smallest: Any = None) -> Any:
    """The value of d where atoms have these values: all ints, or arrays (int64, widened where
    needed), or neither.
    """
    if any(isinstance(v, np.ndarray) for v in values.values()):
        met: dict[Any, int] = {}
        most = {a: peak(v) for a, v in values.items()}
        exact = magnitude(d, most, met) < _SAFE and max(met.values(), default=0) < _SAFE
        dtype = np.int64 if exact else object
        values = {a: v.astype(dtype) if isinstance(v, np.ndarray) else v for a, v in values.items()}
    memo: dict[Any, Any] = dict(values)
    return _value(d, memo, greatest, smallest)


class Evaluator:
    """Many formulas at the same arrays: what they have in common is computed once.

    Call it with a formula for what `evaluate` gives.
    """

    def __init__(self, env: Mapping[str, Any]):
        self._env = dict(env)
        self._peaks = {name: peak(v) for name, v in self._env.items()}
        self._memos: dict[Any, dict[Any, Any]] = {np.int64: {}, object: {}}

    def __call__(self, d: Scalar) -> Any:
        if type(d) is not Dim:
            return d
        names = {s._symbol(): s.name for s in d.symbols}
        met: dict[Any, int] = {}
        most = {atom: self._peaks[name] for atom, name in names.items()}
        exact = magnitude(d, most, met) < _SAFE and max(met.values(), default=0) < _SAFE
        dtype = np.int64 if exact else object
        memo = self._memos[dtype]
        for atom, name in names.items():
            if atom not in memo:
                memo[atom] = np.asanyarray(self._env[name]).astype(dtype)
        return _value(d, memo, None, None)

    def set(self, name: str, value: Any) -> None:
        """Give one more symbol its value."""
        self._env[name], self._peaks[name] = value, peak(value)

    @property
    def nbytes(self) -> int:
        """What it keeps."""
        kept = [v for memo in self._memos.values() for v in memo.values()]
        return sum([v.nbytes for v in kept if isinstance(v, np.ndarray)])


def peak(v: Any) -> int:
    """The greatest magnitude in an array, or of a number."""
    if isinstance(v, np.ndarray):
        data = np.ma.getdata(v)
        return max(abs(int(data.min())), abs(int(data.max()))) if data.size else 0
    return math.ceil(abs(v))


def magnitude(d: Scalar, most: Mapping[Atom, int], memo: dict[Any, int]) -> int:
    """A bound of |d| and, in `memo`, of all that is met on the way, given bounds of the atoms."""
    if type(d) is not Dim:
        return math.ceil(abs(d))  # type: ignore[arg-type]
    if d not in memo:
        scale = d.denominator
        total = 0
        for mono, k in d.terms.items():
            part = int(abs(k * scale))
            for atom in mono:
                part *= max(_magnitude(atom, most, memo), 1)
            total += part
        memo[d] = total
    return memo[d]


def _magnitude(atom: Atom, most: Mapping[Atom, int], memo: dict[Any, int]) -> int:
    if atom in most:
        return most[atom]
    parts = [magnitude(a, most, memo) for a in atom.args]
    return parts[0] + 1 if atom.kind == "//" else parts[1] if atom.kind == "%" else max(parts)


def _value(d: Scalar, memo: dict[Any, Any], greatest: Any, smallest: Any) -> Any:
    if type(d) is not Dim:
        return d
    if d in memo:
        return memo[d]
    scale = d.denominator
    total: Any = 0
    for mono, k in d.terms.items():
        k = int(k * scale)
        if not mono:
            total = total + k
            continue
        part: Any = None
        for atom in mono:
            value = memo[atom] if atom in memo else _atom_value(atom, memo, greatest, smallest)
            part = value if part is None else part * value
        total = total + (part if k == 1 else part * k)
    if scale != 1:
        total = _divided(total, scale)
    memo[d] = total
    return total


def _divided(total: Any, scale: int) -> Any:
    if isinstance(total, int):
        return number(Fraction(total, scale))
    if not isinstance(total, np.ndarray):
        return total / scale
    if not (total % scale).any():
        return total // scale
    return np.array([number(Fraction(int(x), scale)) for x in total.ravel()] + [None], object)[
        :-1
    ].reshape(total.shape)


def _atom_value(atom: Atom, memo: dict[Any, Any], greatest: Any, smallest: Any) -> Any:
    if atom.kind == "symbol":
        raise KeyError(atom.args[0])
    args = [_value(a, memo, greatest, smallest) for a in atom.args]
    if atom.kind in ("//", "%"):
        a, b = args
        masks = isinstance(a, np.ma.MaskedArray) or isinstance(b, np.ma.MaskedArray)
        if isinstance(b, np.ndarray) and not masks and not b.all():
            raise ZeroDivisionError(f"division by {atom.args[1]}, which is 0")
        value = a // b if atom.kind == "//" else a % b
    else:
        biggest = atom.kind == "max"
        arrays = any(isinstance(a, np.ndarray) for a in args)
        pick: Any = greatest if biggest else smallest
        if arrays:
            pick = np.maximum if biggest else np.minimum
        elif pick is None or all(isinstance(a, int) for a in args):
            pick = max if biggest else min
        value = args[0]
        for other in args[1:]:
            value = pick(value, other)
    memo[atom] = value
    return value
