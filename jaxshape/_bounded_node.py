"""One lowering over arrays whose sizes are counts.

Below ONNX: the lowering is traced by `jax.make_jaxpr` with the counts as symbols, then evaluated at
their bounds (`_masked.py`). Counts may be 0, which much of JAX refuses to be undecided about; there
the lowering is traced once for each case, none or some, and the count picks the case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from . import _masked_control, _masked_index, _masked_reduce, _masked_shape  # noqa: F401  (rules)
from ._counts import Counted, Counts, under_way
from ._dim import Dim
from ._error import JaxshapeError, UnsupportedError
from ._host import DimArray, is_host
from ._masked import dims_of, evaluate
from ._pattern import broadcast_shapes
from ._simplify import simplified
from ._symbol import renamed, to_export

CASES = 3  # counts of one node that are taken apart into none and some


def _leaf(x: Any) -> bool:
    return x is None or not isinstance(x, (list, tuple))


def leaves(values: Any) -> list[Any]:
    return jax.tree.leaves(values, is_leaf=_leaf)


def elementwise(
    counts: Counts, function: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The results of a lowering that goes entry by entry, inputs broadcast together."""
    shapes = [tuple(x.shape) for x in inputs if x is not None]
    dims: Any = broadcast_shapes(shapes)
    spread = [None if x is None else _spread(counts, x, dims) for x in inputs]
    result = function(*spread, **kwargs)
    results = result if isinstance(result, tuple) else (result,)
    return tuple([_made(counts, counts.masked(r, dims), dims) for r in results])


def _spread(counts: Counts, x: Any, dims: Any) -> Any:
    """An input at every entry of the result; so that what lies beyond the counts is cut off from
    its gradient.
    """
    own = (1,) * (len(dims) - x.ndim) + tuple(x.shape)
    array = jnp.reshape(_array(x), counts.tops_of(own))
    for axis, (d, e) in enumerate(zip(own, dims, strict=True)):
        if d is not e and isinstance(d, Dim) and counts.equal(d, e) is not True:
            one = counts.size(d) == 1  # broadcast, if it is 1
            place = jnp.where(one, 0, _masked_shape.places(counts, e))
            array = _masked_shape.take(array, place, axis)
    want = [d if isinstance(d, int) and d == 1 else e for d, e in zip(own, dims, strict=True)]
    array = counts.conform(array, want)
    return counts.masked(jnp.broadcast_to(array, counts.tops_of(dims)), dims)


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Counted) else x


def _made(counts: Counts, array: Any, dims: Sequence[Any]) -> Any:
    """An array of these sizes: a plain one where all are numbers."""
    counted = any(isinstance(d, Dim) for d in dims)
    return Counted(array, tuple(dims)) if counted else array


class Traced(NamedTuple):
    """A lowering as a jaxpr: what it takes, and its results, those known on the host as they are.

    `dims` are the sizes of the outputs of the jaxpr.
    """

    jaxpr: Any
    arrays: list[Any]
    sizes: list[tuple[Any, ...]]
    results: list[Any]
    tree: Any
    dims: list[tuple[Any, ...]]

    def evaluate(self, counts: Counts) -> list[Any]:
        pairs = zip(self.arrays, self.sizes, strict=True)
        arrays = [counts.conform(x, dims) for x, dims in pairs]
        return evaluate(self.jaxpr.jaxpr, self.jaxpr.consts, arrays, counts)

    def filled(self, made: Sequence[Any]) -> tuple[Any, ...]:
        """The results, those of the jaxpr as these."""
        rest = iter(made)
        known = [x if _known(x) else next(rest) for x in self.results]
        return tuple(jax.tree.unflatten(self.tree, known))


def _known(x: Any) -> bool:
    return x is None or is_host(x)


def trace(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: dict[str, Any],
    names: dict[Dim, Any],
    like: Sequence[Any] = (),
) -> Traced:
    """Trace a lowering with counts renamed, or taken to be 0; results are arrays where those of
    `like` are. Raises what it or JAX raises.
    """
    flat, tree = jax.tree.flatten(list(inputs), is_leaf=_leaf)
    flat = [renamed(x, names) if isinstance(x, DimArray) else x for x in flat]
    slots = [i for i, x in enumerate(flat) if not _known(x)]
    arrays = [_array(flat[i]) for i in slots]
    sizes = [tuple([_renamed(d, names) for d in flat[i].shape]) for i in slots]
    results: list[Any] = []
    trees: list[Any] = []

    def wrapped(*given: Any) -> Any:
        full = list(flat)
        for i, x in zip(slots, given, strict=True):
            full[i] = x
        result = function(*jax.tree.unflatten(tree, full), **kwargs)
        found, shape = jax.tree.flatten(
            list(result) if isinstance(result, tuple) else [result], is_leaf=_leaf
        )
        arrays = [x is ... for x in like] or [False] * len(found)
        found = [jnp.asarray(x) if a else x for x, a in zip(found, arrays, strict=True)]
        results[:], trees[:] = found, [shape]
        return [x for x in found if not _known(x)]

    pairs = zip(arrays, sizes, strict=True)
    structs = [jax.ShapeDtypeStruct([to_export(d) for d in dims], x.dtype) for x, dims in pairs]
    with under_way():
        jaxpr = jax.make_jaxpr(wrapped)(*structs)
    results = [x if _known(x) else ... for x in results]
    dims = [dims_of(v) for v in jaxpr.jaxpr.outvars]
    return Traced(jaxpr, arrays, sizes, results, trees[0], dims)


def _renamed(d: Any, names: dict[Dim, Any]) -> Any:
    return d.substitute(names) if names and isinstance(d, Dim) else d


def lowered(
    counts: Counts, function: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The results of any lowering.

    Raises:
      UnsupportedError: JAX cannot trace it with such sizes, or a primitive has no rule for them.
    """
    try:
        traced = trace(function, inputs, kwargs, {})
    except JaxshapeError:
        raise
    except Exception as e:
        again = [current(counts, x) for x in inputs]  # what it demanded may make sizes equal
        if _look(again) != _look(inputs):
            return lowered(counts, function, again, kwargs)
        found = [c for c in _symbols(inputs) if c.name[0] == "z"]  # to JAX it may be 0
        if not found or len(found) > CASES:
            raise _refused(e) from e
        return _by_cases(counts, function, inputs, kwargs, found)
    made = traced.evaluate(counts)
    pairs = zip(made, traced.dims, strict=True)
    return traced.filled([_made(counts, x, dims) for x, dims in pairs])


def current(counts: Counts, x: Any) -> Any:
    """A value in the simplest sizes known by now."""
    if isinstance(x, list):
        return [current(counts, v) for v in x]
    if not isinstance(x, Counted):
        return simplified(x, counts) if isinstance(x, DimArray) else x
    dims = tuple([counts.simplify(d) for d in x.dims])
    return _made(counts, counts.conform(x.array, dims), dims)


def _look(inputs: Sequence[Any]) -> Any:
    return [None if x is None else tuple(x.shape) for x in leaves(list(inputs))]


def _symbols(inputs: Sequence[Any]) -> list[Dim]:
    found: set[Dim] = set()
    for x in leaves(list(inputs)):
        sizes = x.dims if isinstance(x, Counted) else ()
        sizes = x.elements.ravel().tolist() if isinstance(x, DimArray) else sizes
        for d in sizes:
            found |= d.symbols if isinstance(d, Dim) else set()
    return sorted(found, key=lambda s: s.name)


def _refused(e: Exception) -> UnsupportedError:
    text = str(e).strip().split("\n")[0]
    return UnsupportedError(
        f"cannot be traced with sizes that are data ({text}); jaxshape.run runs such models"
    )


def _by_cases(
    counts: Counts,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: dict[str, Any],
    found: Sequence[Dim],
) -> tuple[Any, ...]:
    """The results where each of some counts is 0 or is taken to be at least 1."""
    stand_ins = {c: counts.positive(c) for c in found}
    some = {c: formula for c, (formula, _, _) in stand_ins.items()}
    back = {symbol: formula for _, symbol, formula in stand_ins.values()}
    choices = itertools.product((False, True), repeat=len(found))
    cases = [dict(zip(found, empty, strict=True)) for empty in choices]
    traced: list[Any] = []
    wanted: list[dict[Any, None]] = []  # what each case demands, which holds in it alone
    for case in cases:
        names = {c: 0 if empty else some[c] for c, empty in case.items()}
        before = counts.snapshot()
        counts.demands = {}
        try:
            like = traced[0].results if traced and isinstance(traced[0], Traced) else ()
            traced.append(trace(function, inputs, kwargs, names, like))
        except Exception as e:
            traced.append(e)
        wanted.append(counts.demands)
        counts.restore(before)
    main = traced[0]
    if isinstance(main, Exception):
        raise main if isinstance(main, JaxshapeError) else _refused(main) from main
    mine = set(_symbols(inputs))
    dims = [[_renamed(d, back) for d in sizes] for sizes in main.dims]
    results = [renamed(x, back) for x in main.results]
    open_axes: dict[tuple[int, int], None] = {}
    for case, t in zip(cases, traced, strict=True):
        if isinstance(t, Exception):
            continue
        zeros = {c: 0 for c, empty in case.items() if empty}
        _check_known(results, [renamed(x, back) for x in t.results], zeros)
        for k, (sizes, own) in enumerate(zip(dims, t.dims, strict=True)):
            for axis, (d, e) in enumerate(zip(sizes, own, strict=True)):
                e, d = _renamed(e, back), _renamed(d, zeros)
                if d is not e and d != e or isinstance(d, Dim) and not d.symbols <= mine:
                    open_axes[k, axis] = None

    tops = [
        [
            max(counts.top(t.dims[k][a]) for t in traced if not isinstance(t, Exception))
            for a in range(len(sizes))
        ]
        for k, sizes in enumerate(dims)
    ]
    dtypes = [v.aval.dtype for v in main.jaxpr.jaxpr.outvars]

    def branch(t: Any, demands: dict[Any, None]) -> Callable[[], Any]:
        def run() -> Any:
            if isinstance(t, Exception):  # it cannot run, which is told
                empty = [jnp.zeros(s, d) for s, d in zip(tops, dtypes, strict=True)]
                return empty, [jnp.asarray(0)] * len(open_axes), jnp.asarray(True)
            with counts.apart() as flags:
                counts.demands = demands
                made = t.evaluate(counts)
                flags += counts.violated()
                made = [counts.conform(x, s) for x, s in zip(made, tops, strict=True)]
                sizes = [jnp.asarray(counts.size(t.dims[k][a])) for k, a in open_axes]
                flag = jnp.any(jnp.stack(flags)) if flags else jnp.asarray(False)
            return made, [s.astype(jnp.asarray(0).dtype) for s in sizes], flag

        return run

    index = sum(
        jnp.where(counts.size(c) == 0, 1 << i, 0).astype(jnp.int32)
        for i, c in enumerate(reversed(found))
    )
    made, sizes, flag = lax.switch(
        index, [branch(t, d) for t, d in zip(traced, wanted, strict=True)]
    )
    counts.flags.append(flag)
    for (k, axis), size in zip(open_axes, sizes, strict=True):
        dims[k][axis] = counts.mint(tops[k][axis], size)
    arrays = [_made(counts, counts.conform(x, d), d) for x, d in zip(made, dims, strict=True)]
    return main._replace(results=results).filled(arrays)


def _check_known(results: Sequence[Any], others: Sequence[Any], zeros: dict[Dim, Any]) -> None:
    """Refuse what is known on the host, but differently where a count is 0."""
    for a, b in zip(results, others, strict=True):
        if _known(a) and a is not None and repr(renamed(a, zeros)) != repr(b):
            raise UnsupportedError(f"gives {b} where a size is 0, else {a}")
