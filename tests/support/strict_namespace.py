"""Comparison of TensorFlow's namespace with array-api-strict, by the same calls."""

from __future__ import annotations

import zlib

import array_api_strict as strict
import numpy as np
import tensorflow as tf

import tensorferry as ferry

xp = ferry.array_namespace(tf.zeros(1))

BOOLEAN = ["bool"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTEGER = SIGNED + UNSIGNED
REAL_FLOATING = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
FLOATING = REAL_FLOATING + COMPLEX
REAL = INTEGER + REAL_FLOATING
NUMERIC = REAL + COMPLEX
ANY = BOOLEAN + NUMERIC

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, -0.5, 1e30, 7.0]


def values(dtype: str, shape: tuple[int, ...] = (3, 4), *, seed: object = 0, small: bool = False):
    """Random values of a type; integers over their whole range, unless they are to be small."""
    rng = np.random.default_rng(zlib.crc32(repr((dtype, shape, seed)).encode()))
    kind = np.dtype(dtype)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if dtype in INTEGER:
        limits = np.iinfo(kind)
        low, high = (0 if limits.min == 0 else -5, 5) if small else (limits.min, limits.max)
        return np.asarray(rng.integers(low, high, shape, kind, endpoint=True))
    x = rng.normal(size=shape) * 3
    if dtype in COMPLEX:
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x).astype(kind)


def both(x):
    """An array of array-api-strict and of TensorFlow; other objects unchanged."""
    if isinstance(x, np.ndarray):
        return strict.asarray(x), tf.constant(x)
    if isinstance(x, list | tuple):
        pairs = [both(part) for part in x]
        return type(x)(a for a, _ in pairs), type(x)(b for _, b in pairs)
    return x, x


def dtypes_too(options):
    """Options for array-api-strict and for TensorFlow, with types by name."""
    if "dtype" not in options or options["dtype"] is None:
        return options, options
    name = options["dtype"]
    return {**options, "dtype": getattr(strict, name)}, {**options, "dtype": getattr(xp, name)}


def agree(got, want, *, exact: bool = False, context: object = "") -> None:
    """Fails unless type, shape and values are those of array-api-strict."""
    if isinstance(want, list | tuple):
        assert len(got) == len(want), context
        if hasattr(want, "_fields"):
            assert got._fields == want._fields
        for one, other in zip(got, want, strict=True):
            agree(one, other, exact=exact, context=context)
        return
    assert isinstance(got, tf.Tensor), (type(got), context)
    expected = np.asarray(want._array)
    assert got.dtype.name == expected.dtype.name, (got.dtype, expected.dtype, context)
    assert tuple(got.shape) == expected.shape, (got.shape, expected.shape, context)
    if exact or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(context))
        if expected.dtype.kind == "f":
            zeros = expected == 0
            np.testing.assert_array_equal(
                np.signbit(got.numpy()[zeros]), np.signbit(expected[zeros]), err_msg=str(context)
            )
    else:
        single = expected.dtype in (np.float32, np.complex64)
        np.testing.assert_allclose(
            got.numpy(), expected, rtol=2e-4 if single else 1e-9, atol=1e-5 if single else 1e-10,
            err_msg=str(context),
        )  # fmt: skip


def check_strict(name: str, *arguments, exact: bool = False, **options):
    """Calls a function of both namespaces and compares; gives what TensorFlow gave."""
    pairs = [both(argument) for argument in arguments]
    theirs, ours = dtypes_too(options)
    there, here = strict, xp
    for part in name.split("."):
        there, here = getattr(there, part), getattr(here, part)
    with np.errstate(all="ignore"):
        want = there(*(a for a, _ in pairs), **{key: both(x)[0] for key, x in theirs.items()})
    got = here(*(b for _, b in pairs), **{key: both(x)[1] for key, x in ours.items()})
    agree(got, want, exact=exact, context=(name, arguments, options))
    return got
