"""Sampling images at given places, and decoding them.

Invariant: a place is a coordinate for each spatial axis, in pixels whose centres are 0, 1, ...;
padding folds coordinates, and the pixels around them, back into the image, or has 0 outside. A
sample is the sum of the pixels around it times weights, so that both operands differentiate.
"""

from __future__ import annotations

import functools
import io
import itertools
import operator
import warnings
from typing import Any

import numpy as np

from .._error import ShapeError, UnsupportedError
from .._facts import count, same
from .._host import is_host, namespace
from .._op import Static, op
from .._symbol import fit, hostdims, to_export
from .._value import TensorType
from ._agree import ranked, wide, written
from ._axes import counted, nothing
from ._resample import MODES, Filter, among, number, working

# GridSample ---------------------------------------------------------------------------------------

_PADDINGS = ("zeros", "border", "reflection")
_OLD_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def _reflected(x: Any, low: Any, high: Any) -> Any:
    """Coordinates folded at both borders until they lie between them."""
    xp, span = namespace(x, low, high), high - low
    distance = xp.abs(x - low)
    times = xp.floor(distance / xp.where(span == 0, 1, span))
    rest = xp.where(span == 0, 0, distance - times * span)
    folded = xp.where(times % 2 == 0, low + rest, high - rest)
    return xp.where((x < low) | (x > high), folded, x)


def _padded(x: Any, n: Any, padding_mode: str, align_corners: int) -> Any:
    """Coordinates on an axis of n pixels, moved into it as the padding says."""
    if padding_mode == "zeros":
        return x
    low, high = (n * 0, n - 1) if align_corners else (n * 0 - 0.5, n - 0.5)
    if padding_mode == "reflection":
        return _reflected(x, low, high)
    xp = namespace(x, n)
    # between a border and the centre of its pixel a coordinate stays, as in the reference
    return xp.where((x < low) | (x > high), xp.clip(x, 0, n - 1), x)


def _taps(x: Any, n: Any, how: Filter, padding_mode: str, align_corners: int) -> list[Any]:
    """What makes the samples at x on one axis: pixels, whether they are inside, their weights."""
    xp = namespace(x, n)
    x = _padded(xp.round(x) if how.mode == "nearest" else x, n, padding_mode, align_corners)
    low = xp.floor(x)
    taps = []
    for i in (0,) if how.mode == "nearest" else range(1 - how.support, 1 + how.support):
        at = _padded(low + i, n, padding_mode, align_corners)
        inside = (at >= 0) & (at <= n - 1)
        # no absolute value, which has no slope at 0: on a pixel this is the slope to the next one
        distance = low + i - x if i > 0 else x - low - i
        weight = None if how.mode == "nearest" else how.weight(distance)
        taps.append((xp.clip(xp.round(at), 0, n - 1).astype(np.int32), inside, weight))
    return taps


def _sample_shape(x: Any, grid: Any) -> tuple[Any, ...]:
    """The shape (N, C, *O) of x (N, C, *D) sampled at a grid (N, *O, len(D))."""
    ranked("X", x, least=3)
    ranked("grid", grid, len(x))
    batch = same(x[0], grid[0], f"the batch of X {written(x)} and of grid {written(grid)}")
    same(grid[-1], len(x) - 2, f"the coordinates in grid {written(grid)} for X {written(x)}")
    return (batch, x[1], *grid[1:-1])


def _sample(x, grid, mode, padding_mode, align_corners):
    _sample_shape(hostdims(x.shape), hostdims(grid.shape))
    xp, dtype, how = namespace(x, grid), x.dtype, Filter(mode)
    sizes = [number(d) for d in hostdims(x.shape)[2:]]
    grid = grid.astype(wide(grid.dtype))
    taps = []
    for axis, n in enumerate(sizes):
        n, place = n.astype(grid.dtype), grid[..., len(sizes) - 1 - axis] + 1
        place = place / 2 * (n - 1) if align_corners else (place * n - 1) / 2
        taps.append(_taps(place, n, how, padding_mode, align_corners))
    image = xp.moveaxis(x if how.mode == "nearest" else x.astype(working(dtype)), 1, -1)
    batch = xp.arange(x.shape[0]).reshape(-1, *(1,) * len(sizes))
    total: Any = None
    for corner in itertools.product(*taps):
        indices, inside, weights = zip(*corner, strict=True)
        pixel = image[(batch, *indices)]
        if padding_mode == "zeros":
            every = functools.reduce(operator.and_, inside)[..., None]
            pixel = xp.where(every, pixel, nothing(pixel.dtype))
        if how.mode != "nearest":
            weight = functools.reduce(operator.mul, weights)
            pixel = pixel * weight[..., None].astype(pixel.dtype)
        total = pixel if total is None else total + pixel
    y = xp.moveaxis(total, -1, 1)
    if dtype.kind in "iu" and y.dtype != dtype:
        limits = np.iinfo(dtype)
        y = xp.clip(y, limits.min, limits.max)
    return y.astype(dtype)


@op("GridSample", since=16, host=True)
def grid_sample_16(x, grid, /, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    """Sample x (N, C, H, W) at grid (N, *O, 2) -> (N, C, *O).

    Coordinates from -1 to 1 span the image, its width first.
    """
    among("mode", mode, _OLD_MODES)
    among("padding_mode", padding_mode, _PADDINGS)
    ranked("X", x.shape, 4)
    return _sample(x, grid, _OLD_MODES[mode], padding_mode, align_corners)


@op("GridSample", since=20, host=True)
def grid_sample_20(x, grid, /, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """Sample x (N, C, *D) at grid (N, *O, len(D)) -> (N, C, *O).

    Coordinates from -1 to 1 span D, its last axis first.
    """
    among("mode", mode, MODES)
    among("padding_mode", padding_mode, _PADDINGS)
    return _sample(x, grid, mode, padding_mode, align_corners)


# Rules, because JAX cannot index by arrays whose sizes it cannot compare.


@grid_sample_16.shape_rule
def _(x, grid, /, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    among("mode", mode, _OLD_MODES)
    among("padding_mode", padding_mode, _PADDINGS)
    ranked("X", x.shape, 4)
    return TensorType(x.dtype, _sample_shape(x.shape, grid.shape))


@grid_sample_20.shape_rule
def _(x, grid, /, *, align_corners=0, mode="linear", padding_mode="zeros"):
    among("mode", mode, MODES)
    among("padding_mode", padding_mode, _PADDINGS)
    return TensorType(x.dtype, _sample_shape(x.shape, grid.shape))


# AffineGrid ---------------------------------------------------------------------------------------


def _grid_shape(theta: Any, size: Any) -> tuple[Any, ...]:
    """The shape (N, *D, r) that a size (N, C, *D) asks for, with theta (N, r, r + 1)."""
    if len(size) not in (4, 5):
        raise ShapeError(
            f"size has {len(size)} elements, wants 4 (N, C, H, W) or 5 (N, C, D, H, W)"
        )
    n, _, *space = [counted(s, "size") for s in size]
    wanted = (n, len(space), len(space) + 1)
    theta = wanted if theta is None else theta
    ranked("theta", theta, 3)
    for d, w in zip(theta, wanted, strict=True):
        same(d, w, f"theta {written(theta)} against {written(wanted)}")
    return (n, *space, len(space))


@op("AffineGrid", since=20, host=True)
def affine_grid(theta, size: Static, /, *, align_corners=0):
    """Map the places of an image of size (N, C, *D) by theta (N, r, r + 1) -> (N, *D, r).

    r is the length of D, 2 or 3.
    """
    *_, r = shape = _grid_shape(hostdims(theta.shape), size.tolist())
    xp, dtype = namespace(theta), wide(theta.dtype)
    given, theta = theta.dtype, fit(theta, (shape[0], r, r + 1)).astype(dtype)
    column = (-1, *(1,) * r, r)
    y = theta[:, :, r].reshape(column)
    for j, d in enumerate(reversed(shape[1:-1])):
        steps, n = xp.arange(to_export(d)).astype(dtype), number(d).astype(dtype)
        # -1 and 1 are the outer centres or the outer edges; a lone centre is at 0
        at = (2 * steps + 1 - n) / (xp.maximum(n - 1, 1) if align_corners else n)
        y = y + theta[:, :, j].reshape(column) * at.reshape(-1, *(1,) * (j + 1))
    return y.astype(given)


@affine_grid.shape_rule(rankless=True)  # because the content of size decides the shape
def _(theta, size, /, *, align_corners=0):
    if is_host(size):
        return TensorType(theta.dtype, _grid_shape(theta.shape, size.tolist()))
    ranked("theta", theta.shape, 3)
    batch, r, _ = theta.shape or (None, None, None)
    if not isinstance(r, int):
        r = size.shape[0] - 2 if size.shape and isinstance(size.shape[0], int) else None
    if r is None:
        return TensorType(theta.dtype, None)
    batch = count("AffineGrid_batch") if batch is None else batch
    return TensorType(theta.dtype, (batch, *[count(f"AffineGrid_size{i}") for i in range(r)], r))


# ImageDecoder -------------------------------------------------------------------------------------

_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
_CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


def _channels(pixel_format: str) -> int:
    among("pixel_format", pixel_format, _CHANNELS)
    return _CHANNELS[pixel_format]


@op("ImageDecoder", since=20, host=True)
def image_decoder(encoded_stream: Static, /, *, pixel_format="RGB"):
    """Decode the bytes of an image file (n,) -> uint8 (height, width, channels).

    What cannot be read gives an empty image.
    """
    channels = _channels(pixel_format)
    try:
        from PIL import Image
    except ImportError as e:
        raise UnsupportedError("decoding an image needs Pillow: pip install jaxshape[image]") from e
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(encoded_stream.tobytes()), formats=_FORMATS) as image:
                pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as e:
        raise UnsupportedError(f"the image is too large: {e}") from e
    except Exception:  # whatever the reason, the standard wants an empty result
        return np.zeros((0, 0, channels), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], channels)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels


@image_decoder.shape_rule(rankless=True)  # because the content of the file decides the shape
def _(encoded_stream, /, *, pixel_format="RGB"):
    sizes = [count(f"ImageDecoder_{side}") for side in ("height", "width")]
    return TensorType("uint8", (*sizes, _channels(pixel_format)))
