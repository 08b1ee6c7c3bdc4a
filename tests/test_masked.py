"""JAX's primitives where sizes are counts: functions evaluated at a bound against the exact ones.

What lies beyond the counts is NaN, or the greatest integer, when it is given: it must not matter.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxshape as js
from jaxshape._bounded_node import lowered
from jaxshape._counts import Counted, Counts
from jaxshape._facts import using

BOUND = 5


def at_bound(function, *shapes):
    """(arrays at the bound, counts c and d) -> results at the bound, with their sizes."""

    def run(arrays, c, d):
        counts = Counts({})
        with using(counts):
            sizes = {"c": counts.mint(BOUND, c), "d": counts.mint(BOUND, d)}
            given = []
            for x, shape in zip(arrays, shapes, strict=True):
                dims = tuple(sizes.get(n, n) for n in shape)
                x = counts.masked(x, dims)
                given.append(Counted(x, dims) if x.shape != dims else x)
            made = lowered(counts, function, given, {})
            wrong = counts.flags + counts.violated()
            return (
                [y.array if isinstance(y, Counted) else y for y in made],
                [[counts.size(n) for n in y.shape] for y in made],
                jnp.any(jnp.stack(wrong)) if wrong else False,
            )

    return jax.jit(run)


def example(shape, seed, dtype):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[BOUND if isinstance(n, str) else n for n in shape])
    return (3 * x).astype(dtype)


def soiled(x, shape, sizes):
    """x with what must not matter beyond the counts."""
    x = x.copy()
    for axis, n in enumerate(shape):
        if isinstance(n, str):
            x[(slice(None),) * axis + (slice(sizes[n], None),)] = (
                np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).max
            )
    return x


def exact(x, shape, sizes):
    return jnp.asarray(x[tuple(slice(0, sizes.get(n, n)) for n in shape)])


def first(n, x):
    return lax.dynamic_slice_in_dim(x, n, 1, 0)


C3, CD = ("c", 3), ("c", "d")
ROWS = {
    "transpose": (lambda x: x.T, C3),
    "row-major": (lambda x: x.reshape(-1), C3),
    "row-major, counted last": (lambda x: x.T.reshape(-1), C3),
    "row-major of both": (lambda x: x.reshape(-1), CD),
    "regrouped": (lambda x: x.reshape(x.shape[0] * 3, 2), ("c", 3, 2)),
    "swapped and regrouped": (
        lambda x: jnp.transpose(x, (1, 0, 2)).reshape(3, x.shape[0] * 2),
        ("c", 3, 2),
    ),
    "sum of both": (lambda x: x.sum((0, 1)), CD),
    "mean": (lambda x: jnp.mean(x, 0), C3),
    "variance": (lambda x: jnp.var(x, 0), C3),
    "products": (lambda x: jnp.prod(x, 0), C3),
    "extremes": (lambda x: x.max(0, initial=-9) - x.min(0, initial=9), C3),
    "logic": (lambda x: jnp.stack([(x > 0).any(0), (x > 0).all(0)]).astype(jnp.float32), C3),
    "positions": (lambda x: (jnp.argmax(x, 0) + 10 * jnp.argmin(x, 0)).astype(jnp.float32), C3),
    "softmax": (lambda x: jax.nn.softmax(x, 0), CD),
    "log-sum-exp": (lambda x: jax.nn.logsumexp(x, 0), C3),
    "running": (lambda x: jnp.cumsum(x, 0) + lax.cummax(x, 0), C3),
    "running backward": (
        lambda x: (
            lax.cumsum(x, 0, reverse=True)
            + lax.cummin(x, 0, reverse=True)
            + lax.cumprod(x, 0, reverse=True)
        ),
        C3,
    ),
    "sorted": (lambda x: jnp.sort(x, 0), CD),
    "sorted by another": (lambda x: jnp.take_along_axis(x, jnp.argsort(-x, 0), 0), C3),
    "top": (lambda x: lax.top_k(x.T, x.shape[0])[0], C3),
    "reversed": (lambda x: x[::-1], C3),
    "rolled": (lambda x: jnp.roll(x, 1, 0), C3),
    "strided": (lambda x: lax.slice(x, (0, 0), (x.shape[0], 3), (2, 1)), C3),
    "but the first": (lambda x: lax.slice_in_dim(x, 1, x.shape[0]), C3),
    "joined": (lambda x: jnp.concatenate([x, 2 * x, jnp.ones((2, 3)), x]), C3),
    "joined with another": (lambda x, y: jnp.concatenate([x, y, x], 0), C3, ("d", 3)),
    "joined along the other axis": (lambda x: jnp.concatenate([x, x * 2], 1), CD),
    "stacked": (lambda x: jnp.stack([x, -x], 1), CD),
    "tiled": (lambda x: jnp.tile(x, (2, 2)), CD),
    "padded": (lambda x: lax.pad(x, jnp.float32(7), ((1, 2, 0), (0, 1, 0))), C3),
    "padded inside": (lambda x: lax.pad(x, jnp.float32(7), ((1, 0, 1), (0, 0, 2))), C3),
    "cut by padding": (lambda x: lax.pad(x, jnp.float32(7), ((-1, 3, 0), (0, 0, 0))), C3),
    "repeated": (lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], 2, 3)), C3),
    "places": (lambda x: x * jnp.arange(x.shape[0])[:, None].astype(x.dtype), C3),
    "triangle": (lambda x: jnp.tril(x), CD),
    "matmul": (lambda x, y: x @ y, ("c", 3), (3, 2)),
    "matmul over it": (lambda x, y: x.T @ y, ("c", 3), ("c", 2)),
    "gram": (lambda x: x @ x.T, CD),
    "batched": (lambda x: jnp.einsum("cij,cjk->cik", x, x), ("c", 2, 2)),
    "outer": (lambda x, y: x[:, None] * y[None], ("c",), ("d",)),
    "window": (lambda x: first(jnp.int32(9), x), ("c", 3)),
    "window written": (
        lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 2), x.dtype), (9, 1)),
        C3,
    ),
    "window written, counted": (
        lambda x: lax.dynamic_update_slice(jnp.ones((x.shape[0] + 2, 3), x.dtype), x, (1, 0)),
        C3,
    ),
    "gather, filled": (
        lambda x: x.at[jnp.array([0, 2, 4, -1])].get(mode="fill", fill_value=5),
        C3,
    ),
    "gather, clipped": (lambda x: jnp.take(x, jnp.array([0, 2, 9]), 0, mode="clip"), C3),
    "gather at counted": (
        lambda x, y: jnp.take(y, jnp.abs(x).astype(jnp.int32), 0, mode="clip"),
        ("c",),
        ("d", 2),
    ),
    "written at counted": (
        lambda x, y: x.at[jnp.arange(y.shape[0])].set(y, mode="drop"),
        (3, 2),
        ("d", 2),
    ),
    "added at counted": (
        lambda x, y: x.at[jnp.abs(y).astype(jnp.int32) % 3].add(y, mode="drop"),
        (3,),
        ("d",),
    ),
    "multiplied, greatest, least": (
        lambda x, y: sum(
            getattr(x.at[jnp.zeros(y.shape, jnp.int32)], how)(y, mode="drop")
            for how in ("multiply", "max", "min")
        ),
        (3,),
        ("d",),
    ),
    "written into counted": (
        lambda x, y: x.at[jnp.array([0, 2, 4])].set(y, mode="drop"),
        ("c", 2),
        (3, 2),
    ),
    "clipped into counted": (
        lambda x, y: x.at[jnp.array([9])].add(y, mode="clip"),
        ("c", 2),
        (1, 2),
    ),
    "whole rows written": (lambda x: jnp.zeros((2, x.shape[0])).at[1].set(x), ("c",)),
    "scan": (lambda x: lax.scan(lambda s, r: (s * 0.5 + r, s), jnp.zeros(3), x), C3),
    "scan backward": (
        lambda x: lax.scan(lambda s, r: (s * 0.5 + r, s), jnp.zeros(3), x, reverse=True),
        C3,
    ),
    "scan of rows of counts": (
        lambda x: lax.scan(lambda s, r: (s + r.sum(), r / s), jnp.float32(20), x.T),
        C3,
    ),
    "loop": (
        lambda x: lax.fori_loop(0, x.shape[0], lambda i, s: s * 0.5 + x.sum(), jnp.float32(0)),
        C3,
    ),
    "branch": (
        lambda x: lax.cond(x.sum() > 0, lambda x: x.mean(0), lambda x: x.max(0, initial=0), x),
        C3,
    ),
    "convolved": (
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
        ("c", 2, 4, 4),
        (3, 2, 3, 3),
    ),
    "pooled": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 1), "VALID"),
        C3,
    ),
    "solved": (
        lambda x: jnp.linalg.cholesky(x @ jnp.swapaxes(x, 1, 2) + 2 * jnp.eye(2)),
        ("c", 2, 2),
    ),
    "vmapped": (lambda x: jax.vmap(lambda r: jnp.sort(r) / r.max())(x.T), ("c", 3)),
    "kinks": (lambda x: jax.nn.relu(x) + jax.nn.silu(x), C3),
}
FROM_ONE = {"positions", "sorted by another", "vmapped", "window", "rolled"}
FROM = {"window": 1, "window written": 1, "gather, clipped": 1, "but the first": 1}
FROM |= {
    "gather, filled": 1,
    "clipped into counted": 1,
    "gather at counted": 1,
    "cut by padding": 1,
}


@pytest.mark.parametrize("name", ROWS)
def test_rule(name):
    function, *shapes = ROWS[name]
    run = at_bound(function, *shapes)
    arrays = [example(s, i, np.float32) for i, s in enumerate(shapes)]
    start = FROM.get(name, int(name in FROM_ONE))
    for c in range(start, BOUND + 1):
        d = (2 * c) % (BOUND + 1) if c else 0
        d = max(d, start)
        sizes = {"c": c, "d": d}
        given = [soiled(x, s, sizes) for x, s in zip(arrays, shapes, strict=True)]
        made, dims, wrong = run(given, c, d)
        want = function(*[exact(x, s, sizes) for x, s in zip(arrays, shapes, strict=True)])
        assert not wrong
        for y, shape, w in zip(jax.tree.leaves(made), dims, jax.tree.leaves(want), strict=True):
            assert tuple(map(int, shape)) == w.shape
            inside = tuple(slice(0, int(n)) for n in shape)
            np.testing.assert_allclose(y[inside], w, rtol=1e-5, atol=1e-5)
            rest = np.array(y)
            rest[inside] = 0
            assert (rest == 0).all()


def test_integers_beyond_the_count_do_not_matter():
    run = at_bound(lambda x: jnp.stack([x.max(0), x.min(0), x.sum(0)]), ("c", 3))
    x = example(("c", 3), 0, np.int32)
    for c in range(1, BOUND + 1):
        sizes = {"c": c}
        (y,), _, _ = run([soiled(x, ("c", 3), sizes)], c, 0)
        part = x[:c]
        np.testing.assert_array_equal(y, [part.max(0), part.min(0), part.sum(0)])


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.fft.fft(x, axis=0).real, "fft"),
        (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"), "reduce_window"),
        (lambda x: jax.random.normal(jax.random.key(0), x.shape), "random"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(function, name):
    with pytest.raises(js.UnsupportedError, match=name):
        at_bound(function, ("c", 3))([example(("c", 3), 0, np.float32)], 2, 0)
