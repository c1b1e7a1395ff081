"""Every elementwise function for TensorFlow, in every type, against array-api-strict."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support.strict_namespace import (
    ANY,
    BOOLEAN,
    COMPLEX,
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    SPECIAL,
    UNSIGNED,
    check_strict,
    values,
    xp,
)

import tensorferry as ferry

UNARY = {
    "abs": NUMERIC, "acos": FLOATING, "acosh": FLOATING, "asin": FLOATING, "asinh": FLOATING,
    "atan": FLOATING, "atanh": FLOATING, "bitwise_invert": BOOLEAN + INTEGER, "ceil": REAL,
    "conj": NUMERIC, "cos": FLOATING, "cosh": FLOATING, "exp": FLOATING, "expm1": FLOATING,
    "floor": REAL, "imag": COMPLEX, "isfinite": NUMERIC, "isinf": NUMERIC, "isnan": NUMERIC,
    "log": FLOATING, "log10": FLOATING, "log1p": FLOATING, "log2": FLOATING,
    "logical_not": BOOLEAN, "negative": NUMERIC, "positive": NUMERIC, "real": NUMERIC,
    "reciprocal": FLOATING, "round": NUMERIC, "sign": NUMERIC, "signbit": REAL_FLOATING,
    "sin": FLOATING, "sinh": FLOATING, "sqrt": FLOATING, "square": NUMERIC, "tan": FLOATING,
    "tanh": FLOATING, "trunc": REAL,
}  # fmt: skip

BINARY = {
    "add": NUMERIC, "atan2": REAL_FLOATING, "bitwise_and": BOOLEAN + INTEGER,
    "bitwise_left_shift": INTEGER, "bitwise_or": BOOLEAN + INTEGER,
    "bitwise_right_shift": INTEGER, "bitwise_xor": BOOLEAN + INTEGER, "copysign": REAL_FLOATING,
    "divide": FLOATING, "equal": ANY, "floor_divide": REAL, "greater": REAL,
    "greater_equal": REAL, "hypot": REAL_FLOATING, "less": REAL, "less_equal": REAL,
    "logaddexp": REAL_FLOATING, "logical_and": BOOLEAN, "logical_or": BOOLEAN,
    "logical_xor": BOOLEAN, "maximum": REAL, "minimum": REAL, "multiply": NUMERIC,
    "nextafter": REAL_FLOATING, "not_equal": ANY, "pow": NUMERIC, "remainder": REAL,
    "subtract": NUMERIC,
}  # fmt: skip

EXACT = {
    "abs", "ceil", "copysign", "floor", "floor_divide", "maximum", "minimum", "negative",
    "nextafter", "remainder", "round", "sign", "square", "trunc",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name):
    for dtype in UNARY[name]:
        for shape in ((3, 4), (), (0, 2)):
            check_strict(name, values(dtype, shape))
        if dtype in REAL_FLOATING:
            check_strict(name, np.array(SPECIAL, dtype), exact=name in EXACT)
            check_strict(name, np.linspace(-0.9, 0.9, 7).astype(dtype))
            check_strict(name, np.linspace(1, 9, 7).astype(dtype))
    for dtype in set(ANY) - set(UNARY[name]):
        with pytest.raises(TypeError, match=name) as refused:
            getattr(xp, name)(tf.constant(values(dtype)))
        assert isinstance(refused.value, ferry.FerryError)
        assert refused.value.hint


def operands(name: str, dtype: str, shape: tuple[int, ...], seed: object) -> np.ndarray:
    small = name == "pow" or (name.endswith("_shift") and seed == 2)
    x = values(dtype, shape, seed=seed, small=small)
    return np.asarray(np.abs(x)) if small and dtype in INTEGER else x


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name):
    for dtype in BINARY[name]:
        for one, other in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((2, 0), (1, 1))):
            check_strict(name, operands(name, dtype, one, 1), operands(name, dtype, other, 2))
        if dtype in REAL_FLOATING and name != "pow":
            x = np.array(SPECIAL, dtype)
            check_strict(name, x[:, None], x, exact=name in EXACT)
    for dtype in set(ANY) - set(BINARY[name]):
        with pytest.raises(TypeError, match=name):
            getattr(xp, name)(tf.constant(values(dtype)), tf.constant(values(dtype)))


def test_powers_of_special_values():
    for dtype in REAL_FLOATING:
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0], dtype)
        check_strict("pow", x[:, None], x)


@pytest.mark.parametrize("dtype", INTEGER)
def test_integer_division_at_its_edges(dtype):
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.min + 1, 0, 1, 7, limits.max], dtype)
    y = np.array([0, 1, 2, 3, limits.max], dtype)
    check_strict("floor_divide", x[:, None], y)
    check_strict("remainder", x[:, None], y)
    if dtype not in UNSIGNED:
        signed = np.array([-1, -2, -3, limits.min], dtype)
        check_strict("remainder", x[:, None], signed)
        check_strict("floor_divide", x[1:, None], signed)
        # NumPy warns of the one quotient that does not fit, and wraps it.
        least = xp.floor_divide(tf.constant(x[0]), tf.constant(signed[0]))
        assert int(least) == limits.min


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts_by_the_width_and_more(name):
    for dtype in INTEGER:
        bits = np.iinfo(dtype).bits
        check_strict(name, values(dtype, (5, 1)), np.array([0, 1, bits - 1, bits, bits + 3], dtype))


def test_the_promotion_table():
    for one in ANY:
        for other in ANY:
            x, y = values(one, (3,), small=True), values(other, (3,), small=True)
            try:
                check_strict("equal", x, y)
                defined = True
            except TypeError:
                defined = False
            if defined and "bool" not in (one, other):
                check_strict("add", x, y)
                check_strict("where", np.array([True, False, True]), x, y)
            else:
                if one != other:
                    with pytest.raises(TypeError, match=f"{one}|{other}"):
                        xp.add(tf.constant(x), tf.constant(y))


def test_every_undefined_pair_is_undefined_for_the_strict_namespace():
    import array_api_strict as strict

    for one in ANY:
        for other in ANY:
            try:
                want = strict.result_type(getattr(strict, one), getattr(strict, other))
            except TypeError:
                with pytest.raises(TypeError, match="undefined"):
                    xp.result_type(getattr(xp, one), getattr(xp, other))
            else:
                got = xp.result_type(getattr(xp, one), getattr(xp, other))
                assert got.name == str(want).rpartition(".")[2].rstrip("')>")


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "less", "equal"])
def test_python_scalars(name):
    for dtype in REAL:
        x = values(dtype, (3,), small=True)
        check_strict(name, x, 3)
        check_strict(name, 3, x)
        if dtype in REAL_FLOATING:
            check_strict(name, x, 2.5)
        else:
            with pytest.raises(TypeError, match=r"2\.5"):
                getattr(xp, name)(tf.constant(x), 2.5)
        with pytest.raises(TypeError, match="True"):
            getattr(xp, name)(tf.constant(x), True)
    for dtype in COMPLEX:
        check_strict("multiply", values(dtype), 2 + 1j)
        check_strict("multiply", 2.5, values(dtype))


def test_scalars_that_do_not_fit():
    for dtype in INTEGER:
        with pytest.raises(ferry.InvalidArgumentError, match="cannot hold"):
            xp.add(xp.ones(2, dtype=dtype), np.iinfo(dtype).max + 1)
    with pytest.raises(ferry.InvalidArgumentError, match="scalars alone"):
        xp.add(1, 2)
    with pytest.raises(ferry.NotATensorError, match=r"numpy\.ndarray"):
        xp.add(np.ones(2), tf.ones(2))


def test_clip():
    for dtype in REAL:
        x = values(dtype, (3, 4), small=True)
        check_strict("clip", x, 1, 3)
        check_strict("clip", x, min=1)
        check_strict("clip", x, max=2)
        check_strict("clip", x)
        low = np.full((4,), 1, dtype)
        check_strict("clip", x, low, low + 2)
        check_strict("clip", values(dtype, (1, 4), small=True), low[:, None], 3)


def test_logarithms_of_powers_are_exact():
    twos = xp.pow(xp.asarray(2.0, dtype=xp.float64), xp.arange(-40, 60, dtype=xp.float64))
    assert np.array_equal(xp.log2(twos).numpy(), np.arange(-40, 60))
    tens = xp.asarray([10.0**power for power in range(16)], dtype=xp.float64)
    assert np.array_equal(xp.log10(tens).numpy(), np.arange(16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_work_too(dtype):
    x = xp.astype(xp.asarray([1.5, -2.5, 7.0]), dtype)
    for name in ("floor_divide", "remainder", "add", "maximum", "less", "hypot", "copysign"):
        wide = getattr(xp, name)(xp.astype(x, xp.float32), 2.0).numpy()
        got = getattr(xp, name)(x, 2.0)
        assert got.dtype.name in (dtype, "bool")
        assert np.allclose(got.numpy().astype(np.float32), wide, rtol=1e-2), name
    assert xp.add(x, xp.ones(3)).dtype == xp.float32
    assert xp.result_type(xp.float16, xp.bfloat16) == xp.float32


@pytest.mark.parametrize(
    "name", ["remainder", "log2", "copysign", "hypot", "logaddexp", "pow", "maximum", "atan2"]
)
def test_gradients_reach_the_argument(name):
    x = tf.constant([1.3, 2.7, 4.1], tf.float64)
    step = 1e-6

    def function(x):
        made = getattr(xp, name)
        return made(x) if name == "log2" else made(x, tf.constant([2.0, 1.5, 3.0], tf.float64))

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    slope = (function(x + step) - function(x - step)) / (2 * step)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope.numpy(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", REAL_FLOATING)
def test_what_few_values_need_is_done_where_they_are(dtype):
    """One value among many that TensorFlow's own function would get wrong, or end on."""
    random = np.random.default_rng(5)
    x = (random.standard_normal(1000) * 100).astype(dtype)
    y = random.uniform(0.3, 9.0, 1000).astype(dtype)
    for place, (first, second) in {3: (np.inf, 2), 500: (-1, np.inf), 700: (1, 0)}.items():
        changed = x.copy(), y.copy()
        changed[0][place], changed[1][place] = first, second
        with np.errstate(all="ignore"):
            check_strict("floor_divide", *changed)
            check_strict("hypot", *changed)
            check_strict("sign", np.where(np.arange(1000) == place, np.nan, x).astype(dtype))
    # A quotient just below an integer, which rounds to it.
    y = random.uniform(0.5, 9.0, 1000).astype(dtype)
    x = np.nextafter((y * random.integers(1, 40, 1000)).astype(dtype), np.zeros((), dtype))
    check_strict("floor_divide", x, y)
    check_strict("floor_divide", x[::50, None], y)


@pytest.mark.parametrize("dtype", INTEGER)
def test_divisors_and_shifts_that_trap_among_many(dtype):
    random = np.random.default_rng(6)
    x, y = (random.integers(1, most, 1000).astype(dtype) for most in (100, 7))
    rest = np.arange(1000) != 10
    for name in ("floor_divide", "remainder", "bitwise_left_shift", "bitwise_right_shift"):
        wanted = getattr(xp, name)(tf.constant(x[rest]), tf.constant(y[rest])).numpy()
        check_strict(name, x[rest], y[rest])
        changed = y.copy()
        changed[10] = 100 if "shift" in name else 0
        got = getattr(xp, name)(tf.constant(x), tf.constant(changed)).numpy()
        assert np.array_equal(got[rest], wanted)
        assert got[10] == 0
