"""Attention of decoders that write into the buffers they are given (com.microsoft).

Buffers are values here: what a kernel would write in place is a new array, the rest of which is as
it was. Positions of images and text turn heads by three angles (MRotaryEmbedding).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._error import ShapeError, UnsupportedError
from .._facts import count, divisible, same
from .._host import namespace
from .._op import Static, op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import agree, matmul, onto, ranked, reshape, shaped, wide
from ._static import scalar
from .attention import softmax
from .microsoft import DOMAIN
from .microsoft_cache import Step, placed
from .microsoft_gqa import Sizes, attended, parted, sizes_of, turned
from .rotary import rotary

# angles of three positions ------------------------------------------------------------------------


def _sources(section: Any, layout: int) -> np.ndarray:
    """Which of the three positions tells each of the angles."""
    if len(section) != 3 or min(section) < 0 or layout not in (0, 1):
        raise ShapeError(
            f"mrope_section is {list(section)}, mrope_layout {layout}: wants three, and 0 or 1"
        )
    t, h, w = section
    if layout == 0:
        return np.repeat(np.arange(3), section)
    source = np.zeros(t + h + w, np.int64)
    source[1 : 3 * h : 3] = 1
    source[2 : 3 * w : 3] = 2
    return source


def _mrotary_check(packed: Any, x: Any, heads: Any) -> None:
    if packed:
        raise UnsupportedError("is_packed_batching is not handled")
    ranked("input", x, 3, 4)
    if len(x) == 3 and not heads:
        raise ShapeError("input of rank 3 wants num_heads")


@op("MRotaryEmbedding", DOMAIN, host=True)
def mrotary(
    input, position_ids, cos_cache, sin_cache, /, *, interleaved=None, is_packed_batching=None,
    mrope_layout=None, mrope_section, num_heads=None, rotary_embedding_dim=None, scale=None,
):  # fmt: skip
    """Turn pairs of input (N, H, S, E) or (N, S, H*E) by angles of three positions (3, N, S)
    -> as input."""
    shape = hostdims(input.shape)
    _mrotary_check(is_packed_batching, shape, num_heads)
    source = _sources(mrope_section, mrope_layout or 0)
    n, s = shape[0], shape[-2] if len(shape) == 4 else shape[1]
    at = shaped("position_ids", position_ids, (3, n, s))
    xp = namespace(input, at, cos_cache, sin_cache)
    halves = []
    for name, cache in (("cos_cache", cos_cache), ("sin_cache", sin_cache)):
        ranked(name, hostdims(cache.shape), 2)
        table = fit(cache, (hostdims(cache.shape)[0], len(source)))
        known = (at >= 0) & (at < table.shape[0])
        rows = table[xp.clip(at, 0, table.shape[0] - 1)]  # (3, N, S, E/2)
        rows = xp.where(known[..., None], rows, np.nan).astype(cache.dtype)
        parts = [xp.where(source == i, rows[i], 0).astype(cache.dtype) for i in range(3)]
        halves.append(parts[0] + parts[1] + parts[2] if len(source) else parts[0])
    return rotary.function(
        input, *halves, None, interleaved=interleaved or 0, num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )  # fmt: skip


@mrotary.shape_rule  # because JAX can neither part a hidden size nor halve a head
def _(
    input, position_ids, cos_cache, sin_cache, /, *, is_packed_batching=None, mrope_layout=None,
    mrope_section, num_heads=None, rotary_embedding_dim=None, **_,
):  # fmt: skip
    _mrotary_check(is_packed_batching, input.shape, num_heads)
    half = len(_sources(mrope_section, mrope_layout or 0))
    n, s = input.shape[0], input.shape[-2]
    ranked("position_ids", position_ids.shape, 3)
    for d, wanted in zip(position_ids.shape, (3, n, s), strict=True):
        same(d, wanted, "position_ids")
    for cache in (cos_cache, sin_cache):
        ranked("cache", cache.shape, 2)
        same(cache.shape[1], half, "angles in a cache and in mrope_section")
    angles = TensorType(cos_cache.dtype, (n, s, half))
    return rotary.rule(  # type: ignore[misc]
        input, angles, angles, None, num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )  # fmt: skip


# one token ----------------------------------------------------------------------------------------


def _one_shapes(shapes: Any, heads: int, shared: Any) -> tuple[Any, ...]:
    """Batch, head size, that of the value, and the length of what is attended."""
    q, k, v, past_key, past_value = shapes
    if k is None or v is None:
        raise UnsupportedError("a packed query is not handled: give query, key and value")
    ranked("query", q, 3)
    ranked("key", k, 3, 4)
    ranked("value", v, len(k))
    same(q[1], 1, "length of query")
    divisible(q[2], heads, f"query of {q[2]} in {heads} heads")
    n, e = agree("batch", q[0], k[0], v[0]), q[2] // heads
    if len(k) == 4:
        for x, name in ((k, "key"), (v, "value")):
            same(x[1], heads, f"heads of {name}")
        return n, same(e, k[3], "head size of key"), v[3], same(k[2], v[2], "length of value")
    if past_key is None or past_value is None:
        raise ShapeError("self-attention wants past_key and past_value")
    divisible(v[2], heads, f"value of {v[2]} in {heads} heads")
    f = v[2] // heads
    for x, size, name in ((past_key, e, "past_key"), (past_value, f, "past_value")):
        ranked(name, x, 4)
        for d, wanted in zip((*x[:2], x[3]), (n, heads, size), strict=True):
            same(d, wanted, name)
    length = same(past_key[2], past_value[2], "length of the past")
    return n, e, f, length if shared else length + 1


def _of_beams(x: Any, indirection: Any, past: Any) -> Any:
    """x (N, H, M, E), of which each token of the past is another beam's where that is said."""
    groups, beams, _ = indirection.shape
    at = indirection[:, :, : x.shape[2]].reshape((groups * beams, -1))
    at = at + beams * (jnp.arange(groups * beams, dtype=at.dtype) // beams)[:, None]
    own = jnp.arange(x.shape[0], dtype=at.dtype)[:, None]
    at = jnp.where(jnp.arange(x.shape[2]) < past, at, own)
    return jnp.moveaxis(x[at, :, jnp.arange(x.shape[2])], 1, 2)


@op("DecoderMaskedMultiHeadAttention", DOMAIN)
def decoder_masked_attention(
    query, key=None, value=None, mask_index=None, attention_bias=None, past_key=None,
    past_value=None, past_sequence_length: Static = None, beam_width: Static = None,
    cache_indirection=None, bias=None, /, *, mask_filter_value=-10000.0, num_heads, output_qk=0,
    past_present_share_buffer=None, scale=None,
):  # fmt: skip
    """Attend by query (N, 1, H*E) the past (N, H, M, E) with key and value (N, 1, H*E) written
    behind it, or other ones (N, H, L, E) -> (N, 1, H*E), the buffers, the scores (N, H, 1, T)."""
    given = query, key, value, past_key, past_value
    shapes = [None if x is None else hostdims(x.shape) for x in given]
    n, e, f, length = _one_shapes(shapes, num_heads, past_present_share_buffer)
    assert key is not None and value is not None
    h, cross = num_heads, key.ndim == 4
    q, k, v = (x if x.ndim == 4 else reshape(x, (n, -1)) for x in (query, key, value))
    if bias is not None:
        d = h * e
        b = [bias[: to_export(d)], bias[to_export(d) : to_export(2 * d)], bias[to_export(2 * d) :]]
        q, k, v = (q + b[0], k, v) if cross else (x + y for x, y in zip((q, k, v), b, strict=True))
    q = reshape(q, (n, h, 1, e))
    old: Any = (past_key, past_value)
    present: Any = (None, None)
    if cross:
        total = length
    else:
        k, v = reshape(k, (n, h, 1, e)), reshape(v, (n, h, 1, f))
        if past_present_share_buffer:
            past = _past(past_sequence_length)
            total = past + 1
            here = (jnp.arange(to_export(length)) == to_export(past))[:, None]
            present = jnp.where(here, k, old[0]), jnp.where(here, v, old[1])
        else:
            past, total = length - 1, length
            present = tuple(jnp.concatenate(pair, 2) for pair in zip(old, (k, v), strict=True))
        k, v = (x[:, :, : to_export(total)] for x in present)
        if cache_indirection is not None:
            k, v = (_of_beams(x, cache_indirection, to_export(past)) for x in (k, v))
    dtype = wide(q.dtype)
    size = jnp.asarray(to_export(e)).astype(dtype)
    factor = jnp.asarray(scale, dtype) if scale else 1 / jnp.sqrt(size)
    scores = matmul(q, jnp.swapaxes(k, 2, 3)) * factor
    if mask_index is not None:
        mask = shaped("mask_index", mask_index, (n, total))[:, None, None]
        scores = scores + jnp.where(mask > 0, 0, mask_filter_value).astype(dtype)
    if attention_bias is not None:
        if cross:
            raise ShapeError("attention_bias is for self-attention alone")
        scores = scores + onto("attention_bias", attention_bias, (n, h, 1, total)).astype(dtype)
    y = jnp.swapaxes(matmul(softmax(scores), v.astype(dtype)), 1, 2)
    y = reshape(y, (n, 1, h * f)).astype(query.dtype)
    return y, *present, scores.astype(query.dtype)


def _past(value: Any) -> Any:
    if value is None:
        raise ShapeError("past_present_share_buffer wants past_sequence_length")
    return scalar(value, "past_sequence_length")


@decoder_masked_attention.shape_rule  # because data tell how long the past is
def _(
    query, key=None, value=None, mask_index=None, attention_bias=None, past_key=None,
    past_value=None, past_sequence_length=None, *rest, num_heads, past_present_share_buffer=None,
    **_,
):  # fmt: skip
    given = query, key, value, past_key, past_value
    shapes = [None if x is None else x.shape for x in given]
    n, e, f, length = _one_shapes(shapes, num_heads, past_present_share_buffer)
    total = length
    if past_present_share_buffer and key is not None and len(key.shape) == 3:
        known = not isinstance(past_sequence_length, TensorType)
        total = _past(past_sequence_length) + 1 if known else count("total", 1, length)
    present = [(n, num_heads, length, d) for d in (e, f)]
    shapes = (n, 1, num_heads * f), *present, (n, num_heads, 1, total)
    return tuple(TensorType(query.dtype, shape) for shape in shapes)


# sparse blocks ------------------------------------------------------------------------------------


def _sparse_sizes(shapes: Any, heads: int, kv_heads: int, block: int) -> Sizes:
    *rest, rows, columns = shapes
    sizes = sizes_of(rest, heads, kv_heads, 0)
    ranked("block_row_indices", rows, 2)
    ranked("block_col_indices", columns, 2)
    layouts = same(rows[0], columns[0], "layouts of block_row_indices and block_col_indices")
    divisible(heads, layouts, f"{heads} heads by turns in {layouts} layouts")
    if block < 1:
        raise ShapeError(f"sparse_block_size is {block}, wants at least 1")
    return sizes


def _open_blocks(rows: Any, columns: Any, blocks: Any) -> Any:
    """Which blocks of keys each block of queries attends, (layouts, blocks, blocks), of rows as
    they begin in a list of columns."""
    entry = jnp.arange(columns.shape[1], dtype=rows.dtype)
    inside = (entry >= rows[:, :-1, None]) & (entry < rows[:, 1:, None])  # (L, blocks, entries)
    hit = columns[:, :, None] == jnp.arange(blocks, dtype=columns.dtype)  # (L, entries, blocks)
    return jnp.any(inside[:, :, :, None] & hit[:, None], axis=2)


@op("SparseAttention", DOMAIN)
def sparse_attention(
    query, key=None, value=None, past_key=None, past_value=None, block_row_indices=None,
    block_col_indices=None, total_sequence_length: Static = None, key_total_sequence_lengths=None,
    cos_cache=None, sin_cache=None, /, *, do_rotary=None, kv_num_heads, num_heads,
    rotary_interleaved=None, scale=None, sparse_block_size,
):  # fmt: skip
    """Attend by query (N, S, H*E) those blocks of the buffers (N, Hkv, C, E) that lie behind it and
    are open to it -> (N, S, H*E), the buffers with key and value (N, S, Hkv*E) in them."""
    lens, rows, columns = key_total_sequence_lengths, block_row_indices, block_col_indices
    given = query, key, value, past_key, past_value, lens, rows, columns
    _sparse_given(*given[3:], total_sequence_length)
    shapes = [None if x is None else hostdims(x.shape) for x in given]
    sizes = _sparse_sizes(shapes, num_heads, kv_num_heads, sparse_block_size)
    assert past_key is not None and lens is not None and rows is not None and columns is not None
    total = to_export(scalar(total_sequence_length, "total_sequence_length"))
    after = lens.astype(np.int32)
    new = jnp.asarray(to_export(sizes.queries)).astype(np.int32)
    first = jnp.asarray(total).astype(np.int32) == new
    before = jnp.where(first, 0, jnp.maximum(after - new, 0))
    step = Step(after, before, jnp.broadcast_to(new, after.shape), first)
    q, k, v = parted(query, key, value, sizes)
    if do_rotary:
        turn = cos_cache, sin_cache, None, step, rotary_interleaved or 0
        q, k = turned(q, *turn), turned(k, *turn)
    present = [_written(*pair, step) for pair in ((past_key, k), (past_value, v))]
    length = past_key.shape[2]
    at = placed(after, length)
    open_ = _open_blocks(rows, columns, rows.shape[1] - 1)
    place = step.before[:, None] + jnp.arange(q.shape[2], dtype=np.int32)
    most = rows.shape[1] - 2
    mine = jnp.clip(place // sparse_block_size, 0, most)  # (N, S)
    theirs = jnp.clip(jnp.arange(length) // sparse_block_size, 0, most)
    allowed = jnp.moveaxis(open_[:, mine[:, :, None], theirs], 0, 1)  # (N, layouts, S, C)
    allowed = jnp.tile(allowed, (1, num_heads // rows.shape[0], 1, 1))
    barred = jnp.where(allowed, 0, -np.inf).astype(np.float32)
    keys, values = present
    y, _ = attended(
        q, keys, values, sizes, at, step, barred, None, 0.0, scale or 0.0, -1, 1
    )  # fmt: skip
    return y, keys, values


def _written(buffer: Any, new: Any, step: Step) -> Any:
    """A buffer (N, H, C, E) with new rows (N, H, S, E) behind the old ones."""
    source = jnp.arange(buffer.shape[2], dtype=np.int32) - step.before[:, None]
    index = jnp.clip(source, 0, new.shape[2] - 1)[:, None, :, None]
    fresh = ((source >= 0) & (source < step.valid[:, None]))[:, None, :, None]
    return jnp.where(fresh, jnp.take_along_axis(new, index, 2), buffer)


def _sparse_given(*inputs: Any) -> None:
    if any(x is None for x in inputs):
        raise ShapeError("needs the past, the blocks, and both inputs of total lengths")


@sparse_attention.shape_rule  # because JAX cannot part a hidden size into heads
def _(
    query, key=None, value=None, past_key=None, past_value=None, block_row_indices=None,
    block_col_indices=None, total_sequence_length=None, key_total_sequence_lengths=None,
    cos_cache=None, sin_cache=None, /, *, kv_num_heads, num_heads, sparse_block_size, **_,
):  # fmt: skip
    lens, rows, columns = key_total_sequence_lengths, block_row_indices, block_col_indices
    given = query, key, value, past_key, past_value, lens, rows, columns
    _sparse_given(*given[3:], total_sequence_length)
    shapes = [None if x is None else x.shape for x in given]
    n, h, kv, s, _, past, e, _ = _sparse_sizes(shapes, num_heads, kv_num_heads, sparse_block_size)
    present = TensorType(query.dtype, (n, kv, past, e))
    return TensorType(query.dtype, (n, s, h * e)), present, present
