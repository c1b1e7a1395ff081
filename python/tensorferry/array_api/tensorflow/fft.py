"""The standard's extension `fft`: Fourier transforms along one axis or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.creation import arange
from tensorferry.array_api.tensorflow.devices import placed
from tensorferry.array_api.tensorflow.dtypes import Kind
from tensorferry.array_api.tensorflow.manipulation import roll
from tensorferry.array_api.tensorflow.tensors import (
    Axis,
    Device,
    DType,
    Tensor,
    all_axes,
    axis_back,
    axis_last,
    cast,
    invalid,
    missing,
    one_axis,
    rank,
    sizes,
    tensor,
    tf,
)

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

_REAL = Kind("float32 and float64", frozenset({tf.float32, tf.float64}))
_ANY = Kind("float32, float64 and complex", _REAL.members | frozenset(dtypes.COMPLEXES))
_INVERSE_NORMS = {"forward": "backward", "ortho": "ortho", "backward": "forward"}


def _fitted(x: Tensor, length: Any) -> Tensor:
    """The last axis truncated, or padded with zeros, to a length."""
    x = x[..., :length]
    missing = length - sizes(x)[-1]
    return tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, missing]])


def _scale(name: str, x: Tensor, length: Any, norm: str, inverse: bool) -> Tensor:
    """The factor of a norm; TensorFlow's inverse divides by the length."""
    if norm not in _INVERSE_NORMS:
        raise invalid(f"{name} was given norm={norm!r}", 'pass "backward", "ortho" or "forward"')
    number = tf.cast(length, dtypes.real_of(x.dtype))
    if norm == "ortho":
        factor = tf.sqrt(number) if inverse else 1 / tf.sqrt(number)
    elif norm == "forward":
        factor = number if inverse else 1 / number
    else:
        return x
    return x * cast(factor, x.dtype)


def _transform(
    name: str,
    body: Callable[[Tensor, Any], Tensor],
    x: Tensor,
    n: int | None,
    axis: int,
    norm: str,
    inverse: bool,
    half: bool = False,
) -> Tensor:
    dimensions = rank(name, x)
    place = one_axis(name, axis, dimensions)
    x = axis_last(x, place, dimensions)
    given = sizes(x)[-1]
    length = n if n is not None else 2 * (given - 1) if half else given
    if isinstance(length, int) and length < 1:
        raise invalid(f"{name} was given n={length}", "pass 1 or more")
    result = body(_fitted(x, length // 2 + 1 if half else length), length)
    return axis_back(_scale(name, result, length, norm, inverse), place, dimensions)


def _complex(name: str, x: Tensor) -> Tensor:
    x = tensor(name, x, _ANY)
    return cast(x, dtypes.complex_of(x.dtype))


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform."""
    values = _complex("fft", x)
    return _transform("fft", lambda y, _: tf.signal.fft(y), values, n, axis, norm, inverse=False)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft`."""
    values = _complex("ifft", x)
    return _transform("ifft", lambda y, _: tf.signal.ifft(y), values, n, axis, norm, inverse=True)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform of real values: the nonredundant half."""
    values = tensor("rfft", x, _REAL)
    return _transform("rfft", lambda y, _: tf.signal.rfft(y), values, n, axis, norm, inverse=False)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`."""

    def body(y: Tensor, length: Any) -> Tensor:
        return tf.signal.irfft(y, fft_length=[length])

    return _transform("irfft", body, _complex("irfft", x), n, axis, norm, inverse=True, half=True)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform of a signal that is Hermitian, whose spectrum is real."""
    return irfft(
        tf.math.conj(_complex("hfft", x)), n=n, axis=axis, norm=_inverse_norm("hfft", norm)
    )


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`."""
    return tf.math.conj(rfft(x, n=n, axis=axis, norm=_inverse_norm("ihfft", norm)))


def _inverse_norm(name: str, norm: str) -> str:
    if norm not in _INVERSE_NORMS:
        raise invalid(f"{name} was given norm={norm!r}", 'pass "backward", "ortho" or "forward"')
    return _INVERSE_NORMS[norm]


def _lengths(
    name: str, x: Tensor, s: Sequence[int] | None, axes: Axis
) -> list[tuple[int, int | None]]:
    dimensions = rank(name, x)
    if axes is None and s is not None:
        axes = range(dimensions - len(s), dimensions)
    places = all_axes(name, axes, dimensions)
    lengths: Sequence[int | None] = [None] * len(places) if s is None else s
    if len(lengths) != len(places):
        raise invalid(
            f"{name} was given {len(lengths)} sizes and {len(places)} axes",
            "pass as many of either",
        )
    return list(zip(places, lengths, strict=True))


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Axis = None, norm: str = "backward"
) -> Tensor:
    """The transform along several axes."""
    x = _complex("fftn", x)
    for place, length in _lengths("fftn", x, s, axes):
        x = fft(x, n=length, axis=place, norm=norm)
    return x


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Axis = None, norm: str = "backward"
) -> Tensor:
    """The inverse of `fftn`."""
    x = _complex("ifftn", x)
    for place, length in _lengths("ifftn", x, s, axes):
        x = ifft(x, n=length, axis=place, norm=norm)
    return x


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Axis = None, norm: str = "backward"
) -> Tensor:
    """The transform of real values along several axes; the last is halved."""
    x = tensor("rfftn", x, _REAL)
    *others, (last, length) = _lengths("rfftn", x, s, axes)
    x = rfft(x, n=length, axis=last, norm=norm)
    for place, length in others:
        x = fft(x, n=length, axis=place, norm=norm)
    return x


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Axis = None, norm: str = "backward"
) -> Tensor:
    """The inverse of `rfftn`."""
    x = _complex("irfftn", x)
    *others, (last, length) = _lengths("irfftn", x, s, axes)
    for place, size in others:
        x = ifft(x, n=size, axis=place, norm=norm)
    return irfft(x, n=length, axis=last, norm=norm)


def _frequencies(name: str, places: Tensor, n: int, d: float, dtype: DType | None) -> Tensor:
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else dtypes.resolve(dtype)
    if wanted not in dtypes.REAL_FLOATING.members:
        raise invalid(f"{name} was given dtype={wanted.name}", "pass a real floating-point type")
    return cast(tf.cast(places, tf.float64) / (n * d), wanted)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies of the points of `fft`."""
    with placed(device):
        places = tf.concat([arange((n + 1) // 2), arange(-(n // 2), 0)], 0)
        return _frequencies("fftfreq", places, n, d, dtype)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies of the points of `rfft`."""
    with placed(device):
        return _frequencies("rfftfreq", arange(n // 2 + 1), n, d, dtype)


def fftshift(x: Tensor, /, *, axes: Axis = None) -> Tensor:
    """Frequency zero moved to the middle."""
    x = tensor("fftshift", x)
    places = all_axes("fftshift", axes, rank("fftshift", x))
    return roll(x, [sizes(x)[place] // 2 for place in places], axis=places)


def ifftshift(x: Tensor, /, *, axes: Axis = None) -> Tensor:
    """The inverse of `fftshift`."""
    x = tensor("ifftshift", x)
    places = all_axes("ifftshift", axes, rank("ifftshift", x))
    return roll(x, [-(sizes(x)[place] // 2) for place in places], axis=places)


def __getattr__(name: str) -> NoReturn:
    missing("fft", name)
