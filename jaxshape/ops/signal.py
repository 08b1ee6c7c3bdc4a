"""Fourier transforms and the mel scale.

Invariant: complex numbers are pairs of reals on a last axis of size 2; a last axis of size 1 holds
reals. The sizes come from `_dft_shape` and `_frames`, which the lowerings call to check numbers and
the shape rules to derive dims.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._device import canonical
from .._error import ShapeError
from .._facts import count, least, same
from .._host import namespace
from .._op import Static, op
from .._symbol import hostdims, to_export
from .._value import TensorType
from ._agree import ranked, wide, written
from ._static import axis_of, bounded, dtype_of, replaced, scalar, size_of

# DFT ----------------------------------------------------------------------------------------------


def _dft_shape(shape: Any, n: Any, axis: int, inverse: int, onesided: int) -> tuple[Any, ...]:
    """The shape of the transform of (*D, 1 or 2) along an axis of D, to n points if not None."""
    ranked("input", shape, least=2)
    axis, parts = axis_of(axis, len(shape)), shape[-1]
    if axis == len(shape) - 1:
        raise ShapeError(f"axis {axis} holds the parts of the complex numbers of {written(shape)}")
    if isinstance(parts, int) and parts not in (1, 2):
        raise ShapeError(f"the last axis of {written(shape)} wants 1 (real) or 2 (complex numbers)")
    if onesided:
        same(
            parts,
            2 if inverse else 1,
            f"the parts of {written(shape)}, one-sided{' inverse' * inverse}",
        )
    d = shape[axis]
    n = n if n is not None else 2 * (d - 1) if inverse and onesided else d
    least(n, 1, "the length of the transform")
    points = n // 2 + 1 if onesided and not inverse else n
    return (*replaced(shape[:-1], axis, points), 1 if onesided and inverse else 2)


def _transform(x: Any, n: Any, axis: int, inverse: int = 0, onesided: int = 0) -> Any:
    """Transform x (..., d, ..., 1 or 2) along an axis counted from the front, to n points or d."""
    xp, dtype = namespace(x), x.dtype
    n = None if n is None else to_export(n)
    x = x.astype(wide(dtype))
    if x.shape[-1] == 1:
        # in JAX's float32 too much is left where a sum should cancel
        z = x[..., 0] if xp is np else x[..., 0].astype(canonical("float64"))
    else:
        z = x[..., 0] + 1j * x[..., 1] if xp is np else lax.complex(x[..., 0], x[..., 1])
    if not isinstance(z.shape[axis] if n is None else n, int):
        y = _by_product(z, n, axis, inverse, onesided)
        return (jnp.stack([y.real, y.imag], -1) if y.dtype.kind == "c" else y[..., None]).astype(
            dtype
        )
    if inverse and onesided:
        return xp.fft.irfft(z, n, axis)[..., None].astype(dtype)
    if inverse:
        y = xp.fft.ifft(z, n, axis)
    elif onesided and z.dtype.kind == "f":
        y = xp.fft.rfft(z, n, axis)
    else:
        y = xp.fft.fft(z, n, axis)
        y = y[(slice(None),) * axis + (slice(y.shape[axis] // 2 + 1),)] if onesided else y
    return xp.stack([y.real, y.imag], -1).astype(dtype)


def _by_product(z: Any, n: Any, axis: int, inverse: int, onesided: int) -> Any:
    """The same for a length that is a symbol of JAX, whose FFT wants numbers: as a product with the
    matrix of roots of unity; real only where the result is.
    """
    half, taken = inverse and onesided, z.shape[axis]
    n = n if n is not None else 2 * (taken - 1) if half else taken
    used = n // 2 + 1 if half else n
    pads = [(0, 0, 0)] * z.ndim
    pads[axis] = (0, used - taken, 0)
    z = jnp.moveaxis(lax.pad(z, np.zeros((), z.dtype), pads), axis, -1)
    index, real = canonical("int64"), jnp.finfo(z.dtype).dtype
    length = jnp.asarray(n).astype(index)
    rows = jnp.arange(used, dtype=index)[:, None]
    columns = jnp.arange(n // 2 + 1 if onesided and not inverse else n, dtype=index)
    turns = (rows * columns % length).astype(real) / length.astype(real)
    angle = turns * np.asarray((2 if inverse else -2) * np.pi, real)
    share = 1 / length.astype(real) if inverse else np.ones((), real)
    if half:  # the points that are left out are the conjugates of those between the ends
        share = share * jnp.where((rows == 0) | (2 * rows == length), 1, 2).astype(real)
    roots = lax.complex(jnp.cos(angle) * share, jnp.sin(angle) * share)
    y = jnp.matmul(z.astype(roots.dtype), roots, precision="highest")
    return jnp.moveaxis(y.real if half else y, -1, axis)


def _dft(x, dft_length, axis, inverse, onesided):
    length = None if dft_length is None else size_of(dft_length, "dft_length", "DFT_length")
    _dft_shape(hostdims(x.shape), length, axis, inverse, onesided)
    return _transform(x, length, axis_of(axis, x.ndim), inverse, onesided)


def _dft_type(x, dft_length, axis, inverse, onesided):
    if x.shape is None:
        return TensorType(x.dtype, None)
    length = None if dft_length is None else size_of(dft_length, "dft_length", "DFT_length")
    return TensorType(x.dtype, _dft_shape(x.shape, length, axis, inverse, onesided))


@op("DFT", since=17, host=True)
def dft_17(x, dft_length: Static = None, /, *, axis=1, inverse=0, onesided=0):
    """Transform x (..., d, ..., 1 or 2) along axis -> (..., n, ..., 2), n being dft_length () or d.

    One-sided: n//2 + 1 points of a real x, or inversely the reals (..., n, ..., 1) behind them.
    """
    return _dft(x, dft_length, axis, inverse, onesided)


@dft_17.shape_rule(rankless=True)  # because dft_length decides a size
def _(x, dft_length=None, /, *, axis=1, inverse=0, onesided=0):
    return _dft_type(x, dft_length, axis, inverse, onesided)


@op("DFT", since=20, host=True)
def dft_20(x, dft_length: Static = None, axis: Static = None, /, *, inverse=0, onesided=0):
    """Transform x (..., d, ..., 1 or 2) along axis () or -2 -> (..., n, ..., 2), as before."""
    axis = -2 if axis is None else scalar(axis, "axis")
    return _dft(x, dft_length, axis, inverse, onesided)


@dft_20.shape_rule(rankless=True)  # because dft_length decides a size, and axis which one
def _(x, dft_length=None, axis=None, /, *, inverse=0, onesided=0):
    axis = -2 if axis is None else None if isinstance(axis, TensorType) else scalar(axis, "axis")
    if not isinstance(axis, int) and x.shape is not None:
        ranked("input", x.shape, least=2)
        *signal, _ = x.shape
        if dft_length is not None or onesided:
            signal = [count(f"DFT_size{i}") for i in range(len(signal))]
        return TensorType(x.dtype, (*signal, 1 if onesided and inverse else 2))
    return _dft_type(x, dft_length, axis, inverse, onesided)


# STFT ---------------------------------------------------------------------------------------------


def _frames(shape: Any, step: Any, window: Any, length: Any) -> tuple[Any, Any]:
    """How many frames a signal (N, L, 1 or 2) has, and their size; None is an unknown operand."""
    ranked("signal", shape, 3)
    if isinstance(shape[2], int) and shape[2] not in (1, 2):
        raise ShapeError(f"the last axis of {written(shape)} wants 1 (real) or 2 (complex numbers)")
    if window is not None and window.shape is not None:
        ranked("window", window.shape, 1)
        own = hostdims(window.shape)[0]
        length = own if length is None else same(own, length, f"window ({own},) and frame_length")
    length = count("STFT_frame", least=1, most=shape[1]) if length is None else length
    least(length, 1, "frame_length")
    least(shape[1], length, f"signal {written(shape)} must hold a frame")
    if step is None:
        return bounded("STFT_frames", shape[1] - length + 1, 1), length
    least(step, 1, "frame_step")
    return (shape[1] - length) // step + 1, length


def _length(operand: Any, window: Any, signal: Any) -> Any:
    """The frame length where it is given or follows; None where it is unknown."""
    if operand is None:
        return signal if window is None else None
    return None if isinstance(operand, TensorType) else scalar(operand, "frame_length")


@op("STFT", since=17, host=True)
def stft(signal, frame_step: Static, window=None, frame_length: Static = None, /, *, onesided=1):
    """Transform frames of signal (N, L, 1 or 2), times window (f,) -> (N, frames, points, 2).

    Frames of size f start a step apart; one-sided there are f//2 + 1 points, else f.
    """
    xp, shape = namespace(signal), hostdims(signal.shape)
    step = scalar(frame_step, "frame_step")
    frames, f = _frames(shape, step, window, _length(frame_length, window, shape[1]))
    starts = xp.arange(to_export(frames)) * to_export(step)
    index = starts[:, None] + xp.arange(to_export(f))
    x = xp.take(signal, index, axis=1, mode="clip")
    if window is not None:
        x = x * window[:, None]
    return _transform(x, None, 2, onesided=onesided)


@stft.shape_rule(rankless=True)  # because frame_step and frame_length decide sizes
def _(signal, frame_step, window=None, frame_length=None, /, *, onesided=1):
    step = None if isinstance(frame_step, TensorType) else scalar(frame_step, "frame_step")
    shape = signal.shape or (count("STFT_batch"), count("STFT_length"), 1)
    ranked("signal", shape, 3)
    frames, f = _frames(shape, step, window, _length(frame_length, window, shape[1]))
    points = f // 2 + 1 if onesided else f
    return TensorType(signal.dtype, (shape[0], frames, points, 2))


# mel scale ----------------------------------------------------------------------------------------


@op("MelWeightMatrix", since=17, host=True, dtypes=("output_datatype",))
def mel_weight_matrix(
    num_mel_bins: Static, dft_length: Static, sample_rate: Static, lower_edge_hertz: Static,
    upper_edge_hertz: Static, /, *, output_datatype=1,
):  # fmt: skip
    """Weigh the bins of a spectrum into mel bands -> (dft_length//2 + 1, num_mel_bins)."""
    bands, n = scalar(num_mel_bins, "num_mel_bins"), scalar(dft_length, "dft_length")
    rate = scalar(sample_rate, "sample_rate")
    edges = [scalar(e.astype(np.float64), "an edge") for e in (lower_edge_hertz, upper_edge_hertz)]
    low, high = (2595 * np.log1p(e / 700) / np.log(10) for e in edges)
    mel = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    corners = (n + 1) * (700 * np.expm1(mel / 2595 * np.log(10))) // rate
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    bins = np.arange(n // 2 + 1)[:, None]
    rise, fall = np.maximum(centre - left, 1), np.maximum(right - centre, 1)
    weights = np.where((left <= bins) & (bins < centre), (bins - left) / rise, 0)
    weights = np.where((centre <= bins) & (bins < right), (right - bins) / fall, weights)
    weights = np.where(bins == centre, 1.0, weights)
    return weights.astype(dtype_of(output_datatype))


@mel_weight_matrix.shape_rule(rankless=True)  # because the first two inputs are sizes
def _(num_mel_bins, dft_length, *_, output_datatype=1):
    bands = size_of(num_mel_bins, "num_mel_bins", "MelWeightMatrix_bands")
    n = size_of(dft_length, "dft_length", "MelWeightMatrix_length")
    return TensorType(dtype_of(output_datatype), (n // 2 + 1, bands))
