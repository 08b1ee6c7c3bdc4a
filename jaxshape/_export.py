"""Export: a model as StableHLO that any process with JAX can load and call, at many sizes.

JAX takes a symbol as any size >= 1 and cannot use `h % 8 == 0`. So the sizes of the inputs are
solved first: what the trace knows of them is written in symbols that are free, `h = 8*h_8`, and
what remains becomes constraints of JAX's scope, which every call checks.

The result needs neither jaxshape nor the ONNX file, just JAX and flatbuffers:

    exported = f.export({"x": ("batch", 3, "h", "w")}, platforms=("cpu", "cuda"))
    pathlib.Path("model.bin").write_bytes(exported.serialize())
    # elsewhere
    exported = jax.export.deserialize(pathlib.Path("model.bin").read_bytes())
    y = jax.jit(exported.call)(x)

A JaxModel is also compiled ahead of time as every JAX function is, at one set of sizes:
`jax.jit(f).lower(jax.ShapeDtypeStruct((8, 3, 224, 224), "float32")).compile()`. Both ways use JAX's
persistent cache of compilations if the caller turns it on, as by
`jax.config.update("jax_compilation_cache_dir", "/tmp/jax_cache")`: a second process then loads what
the first one compiled (https://docs.jax.dev/en/latest/persistent_compilation_cache.html).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import export as jax_export

from ._device import canonical
from ._dim import Dim, mangled, symbol
from ._error import JaxshapeError, UnsupportedError
from ._export_scope import Exporting, shape_in, symbols_for
from ._export_walk import ready
from ._host import is_host
from ._padded import Padded
from ._require import Requirement
from ._trace import Trace, trace
from ._value import STRING, TensorType

if TYPE_CHECKING:
    from ._convert import JaxModel

ROUNDS = 8  # of solving: what is solved may let more be seen
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_RESERVED = ("max", "min", "mod", "floordiv")  # JAX reads these as functions


def exported(
    f: JaxModel,
    shapes: Mapping[str, Any] | None,
    requirements: Sequence[str],
    platforms: Sequence[str] | None,
    params: str,
    x64: bool | None,
) -> jax_export.Exported:
    """See `JaxModel.export`."""
    if params not in ("constants", "arguments"):
        raise ValueError(f"params is {params!r}, wants 'constants' or 'arguments'")
    platforms = (platforms,) if isinstance(platforms, str) else platforms
    for name in platforms or ():  # JAX takes any word, and nothing could call the result
        if name not in PLATFORMS and name != jax_export.default_export_platform():
            raise ValueError(f"platform is {name!r}, wants one of {', '.join(PLATFORMS)}")
    known = {n: np.asarray(v) for n, v in (shapes or {}).items() if is_host(v)}
    traced = _solved(trace(f.model, shapes, requirements=requirements), known)
    types = {n: t for n, t in _types(traced).items() if n not in known}
    names = [s.name for s in _symbols(d for t in types.values() for d in t.shape or ())]
    about = [r for r in traced.requirements if all(s.name in names for s in r.symbols)]
    symbols = symbols_for(names, about)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ready(traced))
        if x64 is not None:
            stack.enter_context(jax.enable_x64(x64))
        stack.enter_context(jax.numpy_dtype_promotion("strict"))
        structs = [
            jax.ShapeDtypeStruct(shape_in(t.shape or (), symbols), canonical(t.dtype))
            for t in types.values()
        ]
        weights = [jax.tree.map(_struct, f.params)] if params == "arguments" else []
        call = _function(f, list(types), known, bool(weights))
        try:
            return jax_export.export(jax.jit(call), platforms=platforms)(*weights, *structs)
        except JaxshapeError:
            raise
        except Exception as e:  # JAX's lowering, after every node was walked
            raise UnsupportedError(
                f"JAX cannot export this with symbolic sizes, try numbers: {type(e).__name__}: {e}"
            ) from e


def _struct(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _function(
    f: JaxModel, names: Sequence[str], known: Mapping[str, Any], weights: bool
) -> Callable[..., Any]:
    """The model as a function of its inputs in order, after its parameters where these are wanted;
    named after the model, since exports show that.
    """

    def call(*args: Any) -> Any:
        params, args = (args[0], args[1:]) if weights else (f.params, args)
        found = f.apply(params, **dict(zip(names, args, strict=True)), **known)
        return jax.tree.map(_plain, found, is_leaf=lambda x: isinstance(x, Padded))

    call.__name__ = call.__qualname__ = mangled(f.model.name or "model")
    return call


def _plain(x: Any) -> Any:
    """An output as any process can take it apart, one without this package too."""
    if not isinstance(x, Padded):
        return x
    return {"array": x.array, "count": x.count, "overflow": x.overflow}


# sizes --------------------------------------------------------------------------------------------


def _types(traced: Trace) -> dict[str, TensorType]:
    """The inputs' types; what is no tensor of known rank is refused."""
    found = {}
    for name in traced._given:
        t = traced[name]
        known = isinstance(t, TensorType) and t.dtype is not None and t.shape is not None
        if not known or t.dtype == STRING:
            raise UnsupportedError(
                f"input {name} is {t}: only tensors of numbers whose rank is known can be "
                f"exported; give its shape, as in shapes={{{name!r}: ('n', 3)}}"
            )
        found[name] = t
    return found


def _symbols(dims: Iterable[Any]) -> list[Dim]:
    """The symbols in sizes, in order."""
    found = [s for d in dims if isinstance(d, Dim) for s in sorted(d.symbols, key=str)]
    return list(dict.fromkeys(found))


def _solved(traced: Trace, known: Mapping[str, Any]) -> Trace:
    """The trace with inputs whose sizes are free as far as possible: nothing but inequalities is
    left to be said of their symbols.
    """
    for _ in range(ROUNDS):
        shapes = {n: t.shape or () for n, t in _types(traced).items()}
        facts = Exporting(traced._facts, {})
        free = _symbols(facts.free(d) for shape in shapes.values() for d in shape)
        names = _named(free)
        shifts = {s: int(s.least is None or s.least < 1) for s in free}  # JAX's are >= 1
        new = {s: symbol(names[s]) - shifts[s] for s in free}

        def renamed(d: Any, facts: Exporting = facts, new: Any = new) -> Any:
            d = facts.free(d)
            return d.substitute(new) if isinstance(d, Dim) else d

        wanted = {n: tuple(map(renamed, shape)) for n, shape in shapes.items()}
        if list(map(str, wanted.values())) == list(map(str, shapes.values())):
            return traced
        texts = []
        for s in free:
            least, most = facts.range(s)
            if least is not None and least > 1:
                texts.append(f"{names[s]} >= {least}")
            if most is not None:
                texts.append(f"{names[s]} <= {most + shifts[s]}")
        for r in traced.requirements:
            if set(_symbols(map(facts.free, r.symbols))) <= set(free):
                texts.append(str(_mapped(r, renamed)))
        traced = trace(traced.model, {**wanted, **known}, requirements=texts)
    return traced


def _mapped(r: Requirement, change: Callable[[Any], Any]) -> Requirement:
    """A requirement with its sides changed."""
    alternatives = tuple([_mapped(a, change) for a in r.alternatives])
    return dataclasses.replace(
        r, left=change(r.left), right=change(r.right), alternatives=alternatives
    )


def _named(free: Sequence[Dim]) -> dict[Dim, str]:
    """A name that JAX can read for each symbol; `h_8` for the eighth of h."""
    found: dict[Dim, str] = {}
    for s in free:
        stem, *divided = s.name.split("\0")  # by m to the remainder r: m.r
        stem = mangled(stem).strip("_") or "n"
        stem = stem if stem[0].isalpha() and stem not in _RESERVED else f"n_{stem}"
        if divided:
            stem += f"_{math.prod(int(d.split('.')[0]) for d in divided)}"
        taken, several = set(found.values()), [f"{stem}_{i}" for i in range(1, len(free))]
        found[s] = next(name for name in (stem, *several) if name not in taken)
    return found
