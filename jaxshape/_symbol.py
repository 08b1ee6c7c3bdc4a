"""Our dims and JAX's: with `_export_scope`, the one place that touches `jax.export`'s symbols.

`jax.eval_shape` is asked about patterns, never about a model's own names: each distinct dim of a
node's inputs becomes a placeholder `s0, s1, ...`, the same for every model, in one global JAX
scope. JAX takes symbols to be >= 1, so a dim that may be 0 enters JAX as `s0 - 1`. What must hold
is stated by the lowering (`same`, `least`, `fit`, ...): under the pattern these calls are recorded,
with a new placeholder for each answer, and replayed on the real dims of every node that matches. So
a pattern is traced once, whatever decisions its nodes lead to.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import export

from . import _facts
from ._dim import Dim, Undecided, parse, symbol
from ._export_scope import Exporting, agreed
from ._facts import Facts
from ._host import DimArray, is_host, wrap
from ._value import STRING, TensorType

# a dtype of JAX that ONNX lacks stands for text under eval_shape
_TEXT = jnp.dtype(jnp.float8_e4m3b11fnuz)
_jax_scope = export.SymbolicScope()


@functools.cache
def _placeholder(index: int, least: int) -> tuple[Dim, Any]:
    """The placeholder number `index` of a size >= `least` (0 or 1): our dim and JAX's."""
    name = f"s{index}"
    if least:
        return symbol(name, 1), export.symbolic_shape(name, scope=_jax_scope)[0]
    shifted = f"z{index}"  # JAX's z >= 1 is our z + 1
    return symbol(shifted, 0), export.symbolic_shape(shifted, scope=_jax_scope)[0] - 1


def _lookup(name: str) -> Any:
    index = int(name[1:])
    return _placeholder(index, 1)[0] if name[0] == "s" else _placeholder(index, 0)[0] + 1


@functools.lru_cache(maxsize=65_536)
def _parsed(text: str) -> Any:
    return parse(text, _lookup)


def from_export(size: Any) -> Any:
    """Our dim of a size in JAX: an int, or one of JAX's symbolic dims."""
    if isinstance(size, (int, np.integer)):
        return int(size)
    if isinstance(size, Dim):
        return size
    if size.scope is not _jax_scope:
        return foreign().ours(size)
    found = _parsed(str(size))
    if found is None:
        raise Undecided(f"the size {size} of JAX")
    return found


def hostdims(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape as a lowering sees it (ints, or JAX's symbols) in our dims."""
    return tuple([d if type(d) is int else from_export(d) for d in shape])


def foreign() -> Exporting:
    """What is known of sizes that are symbols of another scope than ours."""
    facts = _facts.current()
    if not isinstance(facts, Exporting):
        raise Undecided("a size that is a symbol of an unknown scope")
    return facts


def to_export(size: Any) -> Any:
    """JAX's size for one of our dims; ints pass through."""
    if type(size) is not Dim:
        return int(size)
    facts = _facts.current()
    return facts.theirs(size) if isinstance(facts, Exporting) else _over_placeholders(size)


@functools.lru_cache(maxsize=65_536)
def _over_placeholders(size: Dim) -> Any:
    names = {s.name: _jax_of(s.name) for s in size.symbols}
    return size.evaluate(names, jax.core.max_dim, jax.core.min_dim)


def _jax_of(name: str) -> Any:
    return _placeholder(int(name[1:]), int(name[0] == "s"))[1]


def named_for_user(text: str, binding: dict[Dim, Any]) -> str:
    """A message about placeholders, with what each of them stands for."""
    names = {d.name: str(real) for d, real in binding.items()}
    return re.sub(r"\b[sz]\d+\b", lambda found: names.get(found[0], found[0]), text)


def fit(x: Any, shape: Sequence[Any]) -> Any:
    """x with the agreed shape: a stand-in under `eval_shape`, x itself where sizes are numbers, and
    in the form that JAX knows the sizes by under `jax.export`.
    """
    ours = hostdims(shape)
    if hostdims(x.shape) == ours:
        return x
    if all(isinstance(d, int) for d in (*x.shape, *ours)):
        return x if isinstance(x, (np.ndarray, DimArray)) else jnp.broadcast_to(x, ours)
    if isinstance(_facts.current(), Exporting):
        return agreed(x, [to_export(d) for d in ours])
    if (refit := getattr(_facts.current(), "refit", None)) is not None:
        return refit(x, ours)
    if not isinstance(_facts.current(), Recorder):  # a stand-in must never reach a real result
        raise Undecided(f"whether {hostdims(x.shape)} is {ours}, outside of a trace")
    return jnp.broadcast_to(jnp.zeros((), x.dtype), [to_export(d) for d in ours])


class Recorder(Facts):
    """Facts about placeholders: statements are written down, to be replayed on the dims of each
    matching node.
    """

    def __init__(self, first: int):
        super().__init__()
        self.steps: list[tuple[str, tuple[Any, ...], Dim | None]] = []
        self._next = first

    def _answer(self, method: str, args: tuple[Any, ...], least: int) -> Dim:
        made = _placeholder(self._next, least)[0]
        self._next += 1
        self.steps.append((method, args, made))
        return made

    def same(self, a: Any, b: Any, why: str = "") -> Any:
        if a is b:
            return a
        if isinstance(a, int) and isinstance(b, int):
            return super().same(a, b, why)
        if isinstance(a, int) or isinstance(b, int):
            self.steps.append(("same", (a, b, why), None))
            return a if isinstance(a, int) else b
        return self._answer("same", (a, b, why), int(bool(_sure(a) or _sure(b))))

    def least(self, d: Any, k: Any, why: str = "") -> None:
        if isinstance(d, int) and isinstance(k, int):
            return super().least(d, k, why)
        self.steps.append(("least", (d, k, why), None))
        return None

    def divisible(self, d: Any, k: Any, why: str = "") -> None:
        if isinstance(d, int) and isinstance(k, int):
            return super().divisible(d, k, why)
        self.steps.append(("divisible", (d, k, why), None))
        return None

    def broadcast(self, *dims: Any, why: str = "") -> Any:
        rest = list(dict.fromkeys(d for d in dims if d is not dims[0]))
        if not rest or all(isinstance(d, int) for d in dims):
            return super().broadcast(*dims, why=why)
        if len(distinct := {d for d in dims if d != 1}) == 1:
            return distinct.pop()
        return self._answer("broadcast", tuple(dims), int(all(_sure(d) for d in dims)))

    def count(self, stem: str, least: int = 0, most: Any = None) -> Dim:
        return self._answer("count", (stem, least, most), int(least >= 1))

    def element(self, stem: str) -> Dim:
        raise Undecided("an unknown element inside a pattern")


def _sure(d: Any) -> bool:
    """Whether a dim over placeholders is >= 1 by what the placeholders are."""
    return bool(Facts().at_least(d, 1))


@dataclasses.dataclass(frozen=True)
class Pattern:
    """What `eval_shape` said about a pattern: result types over placeholders, and the statements to
    replay.
    """

    outputs: tuple[Any, ...]
    steps: tuple[tuple[str, tuple[Any, ...], Dim | None], ...]

    def replay(self, binding: dict[Dim, Any], facts: Facts) -> list[Any]:
        """The outputs for the real dims; raises `ShapeError` where a statement is proved false."""
        binding = dict(binding)
        for method, args, answer in self.steps:
            result = getattr(facts, method)(*[_rename(a, binding) for a in args])
            if answer is not None:
                binding[answer] = result
        return [renamed(o, binding) for o in self.outputs]


def _rename(x: Any, binding: dict[Dim, Any]) -> Any:
    return x.substitute(binding) if isinstance(x, Dim) else x


def renamed(value: Any, binding: dict[Dim, Any]) -> Any:
    """A type or host array with its dims substituted."""
    if isinstance(value, TensorType) and value.shape is not None:
        return TensorType(value.dtype, tuple([_rename(d, binding) for d in value.shape]))
    if isinstance(value, DimArray):
        flat = np.array(
            [*[_rename(e, binding) for e in value.elements.ravel()], None], dtype=object
        )[:-1]
        return wrap(flat.reshape(value.shape), value.dtype)
    return value


def placeholders(values: Sequence[Any], facts: Facts) -> tuple[list[Any], dict[Dim, Any]]:
    """The values with each distinct dim replaced by a placeholder, and what each placeholder stands
    for.
    """
    names: dict[Any, Dim] = {}

    def visit(dims: Any) -> None:
        for d in dims:
            if isinstance(d, Dim) and d not in names:
                if not facts.at_least(d, 0):
                    raise Undecided(f"{d} may be negative: no size of JAX")
                names[d] = _placeholder(len(names), int(bool(facts.at_least(d, 1))))[0]

    for v in values:
        if isinstance(v, TensorType):
            visit(v.shape)
        elif isinstance(v, DimArray):
            visit(v.elements.ravel())
    if not names:
        return list(values), {}

    def replace(v: Any) -> Any:
        if isinstance(v, TensorType):
            return TensorType(v.dtype, tuple([names.get(d, d) for d in v.shape]))  # type: ignore[union-attr]
        if isinstance(v, DimArray):
            flat = np.array(
                [*[names.get(e, e) if isinstance(e, Dim) else e for e in v.elements.ravel()], None],
                dtype=object,
            )
            return DimArray(flat[:-1].reshape(v.shape), v.dtype)
        return v

    return [replace(v) for v in values], {p: d for d, p in names.items()}


def trace_pattern(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], first: int
) -> Pattern:
    """Ask `jax.eval_shape` about a lowering; `args` are types over placeholders, host arrays or
    None.

    `first` is the number of placeholders in use. Raises whatever the lowering or JAX raises.
    """
    recorder = Recorder(first)
    abstract = [i for i, a in enumerate(args) if isinstance(a, TensorType)]
    known: list[Any] = []

    def wrapped(*arrays: Any) -> Any:
        full = list(args)
        for i, array in zip(abstract, arrays, strict=True):
            full[i] = array
        result = function(*full, **kwargs)
        known[:] = result if isinstance(result, tuple) else (result,)
        return [None if is_host(r) or r is None or isinstance(r, TensorType) else r for r in known]

    structs = [_struct(args[i]) for i in abstract]
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"), _facts.using(recorder):
        shapes = jax.eval_shape(wrapped, *structs)
    outputs = [k if s is None else _type(s) for k, s in zip(known, shapes, strict=True)]
    return Pattern(tuple(outputs), tuple(recorder.steps))


def _struct(t: TensorType) -> jax.ShapeDtypeStruct:
    dtype = _TEXT if t.dtype == STRING else t.dtype
    return jax.ShapeDtypeStruct([to_export(d) for d in t.shape], dtype)  # type: ignore[union-attr]


def _type(struct: Any) -> TensorType:
    dtype = STRING if struct.dtype == _TEXT else np.dtype(struct.dtype)
    return TensorType(dtype, hostdims(struct.shape))
