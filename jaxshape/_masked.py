"""Evaluating a jaxpr whose sizes are counts: arrays at their bounds, zeros beyond the counts.

Invariant: each array has the bounds of its sizes for a shape, and zeros (False) beyond them. Every
result is masked anew, by `where`; so nothing that lies beyond a count reaches a value, and no NaN
from there a gradient. What a primitive must do beside is its rule, in a table by name: entry by
entry, moving entries, combining them. A primitive without a rule is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.extend import core

from ._counts import Counts
from ._dim import Dim
from ._error import UnsupportedError
from ._symbol import from_export, hostdims

RULES: dict[str, Callable[..., Any]] = {}


class Equation:
    """One equation of a jaxpr under evaluation: its counts, sizes and parameters."""

    __slots__ = ("counts", "eqn", "ins", "outs", "params")

    def __init__(self, eqn: Any, counts: Counts):
        self.eqn, self.counts, self.params = eqn, counts, eqn.params
        self.ins = [dims_of(v) for v in eqn.invars]
        self.outs = [dims_of(v) for v in eqn.outvars]

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    def bind(self, *args: Any, **changes: Any) -> Any:
        """The primitive itself on arrays as they are, some of its parameters changed."""
        bound = self.eqn.primitive.get_bind_params({**self.params, **changes})
        subfuns, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX before 0.10
        return self.eqn.primitive.bind(*subfuns, *args, **params)

    def dims(self, sizes: Any) -> tuple[Any, ...]:
        """Sizes in a parameter, as dims."""
        return hostdims(sizes)

    def counted(self, operand: int) -> list[int]:
        """The axes of an operand whose sizes are counts."""
        return [i for i, d in enumerate(self.ins[operand]) if isinstance(d, Dim)]

    def refuse(self, why: str) -> Any:
        raise UnsupportedError(
            f"JAX's {self.name} with sizes that are data {why}; jaxshape.run runs such models"
        )


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what (equation, *arrays) -> array, or list of them, does for some primitives."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def dims_of(v: Any) -> tuple[Any, ...]:
    return hostdims(getattr(v.aval, "shape", ()))


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], counts: Counts) -> list[Any]:
    """The outputs of a jaxpr as arrays at their bounds, from inputs that are such.

    Raises:
      UnsupportedError: a primitive without a rule, named.
    """
    env: dict[Any, Any] = {}

    def read(v: Any) -> Any:
        return v.val if isinstance(v, core.Literal) else env[v]

    env.update(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        e = Equation(eqn, counts)
        inputs = [read(v) for v in eqn.invars]
        if not involved(eqn):
            found = e.bind(*inputs)
        else:
            known = RULES.get(e.name)
            found = e.refuse("has no rule") if known is None else known(e, *inputs)
        results = list(found) if eqn.primitive.multiple_results else [found]
        for v, x, dims in zip(eqn.outvars, results, e.outs, strict=True):
            env[v] = masked(x, dims, counts)
    return [read(v) for v in jaxpr.outvars]


def masked(x: Any, dims: Sequence[Any], counts: Counts) -> Any:
    return counts.masked(x, dims) if any(isinstance(d, Dim) for d in dims) else x


def involved(eqn: Any) -> bool:
    """Whether sizes that are data have a say in an equation, or in one inside of it."""
    if eqn.primitive.name in ("dim_as_value", "nonzero", "refit"):
        return True
    if any(isinstance(d, Dim) for v in (*eqn.invars, *eqn.outvars) for d in dims_of(v)):
        return True
    return any(_any_involved(j) for p in eqn.params.values() for j in _jaxprs(p))


def _jaxprs(param: Any) -> list[Any]:
    if isinstance(param, core.ClosedJaxpr):
        return [param.jaxpr]
    if isinstance(param, core.Jaxpr):
        return [param]
    return [j for p in param for j in _jaxprs(p)] if isinstance(param, (tuple, list)) else []


@functools.lru_cache(maxsize=4096)
def _any_involved(jaxpr: Any) -> bool:
    return any(map(involved, jaxpr.eqns))


# entry by entry -----------------------------------------------------------------------------------

ENTRYWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp clz complex conj convert_element_type copy copy_p cos cosh digamma div eq eq_to erf
    erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac imag integer_pow is_finite le le_to
    lgamma log log1p log2 logistic lt lt_to max min mul mulhi ne neg nextafter not one_minus_square
    or polygamma population_count pow real reduce_precision regularized_incomplete_beta rem round
    rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square
    stop_gradient sub tan tanh xor zeta
""".split()


@rule(*ENTRYWISE)
def _entrywise(e: Equation, *args: Any) -> Any:
    dims = e.outs[0]
    return e.bind(*[_spread(e, x, d, dims) for x, d in zip(args, e.ins, strict=True)])


def _spread(e: Equation, x: Any, own: Sequence[Any], dims: Sequence[Any]) -> Any:
    """An operand at the bounds of the result; one of fewer entries that a gradient may reach, at
    each entry: so that what lies beyond the counts adds nothing to its own.
    """
    if own:
        want = [d if isinstance(d, int) and d == 1 else n for d, n in zip(own, dims, strict=True)]
        x = e.counts.conform(x, want)
    shape = e.counts.tops_of(dims)
    if x.shape != shape and isinstance(x, Tracer) and jnp.issubdtype(x.dtype, jnp.inexact):
        return e.counts.masked(jnp.broadcast_to(x, shape), dims)
    return x


@rule("bitcast_convert_type")
def _bitcast(e: Equation, x: Any) -> Any:
    return e.bind(x) if len(e.ins[0]) == len(e.outs[0]) else e.refuse("changes the number of axes")


@rule("optimization_barrier")
def _barrier(e: Equation, *args: Any) -> Any:
    return e.bind(*args)


# sizes ------------------------------------------------------------------------------------------


@rule("dim_as_value")
def _dim_as_value(e: Equation) -> Any:
    (out,) = e.eqn.outvars
    return jnp.asarray(e.counts.size(from_export(e.params["dim"]))).astype(out.aval.dtype)


@rule("iota")
def _iota(e: Equation, *_: Any) -> Any:
    shape = e.counts.tops_of(e.outs[0])
    return lax.broadcasted_iota(e.params["dtype"], shape, e.params["dimension"])


@rule("refit")
def _refit(e: Equation, x: Any) -> Any:
    return e.counts.conform(x, e.outs[0])


# calls ------------------------------------------------------------------------------------------


@rule("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2")
def _call(e: Equation, *args: Any) -> list[Any]:
    return inside(e.params.get("jaxpr") or e.params["call_jaxpr"], args, e.counts)


@rule("custom_jvp_call", "custom_vjp_call")
def _custom(e: Equation, *args: Any) -> list[Any]:
    """By what it computes: JAX then derives the derivative, which is another at kinks alone."""
    return inside(e.params["call_jaxpr"], args, e.counts)


def inside(jaxpr: Any, args: Sequence[Any], counts: Counts) -> list[Any]:
    """The outputs of a jaxpr, open or closed, that is a parameter of an equation."""
    if isinstance(jaxpr, core.ClosedJaxpr):
        return evaluate(jaxpr.jaxpr, jaxpr.consts, args, counts)
    return evaluate(jaxpr, (), args, counts)
