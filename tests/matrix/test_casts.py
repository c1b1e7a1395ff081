"""Casts: every pair of types against exact arithmetic, and the same whatever the layout, byte
order and size."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf
import torch
import xarray as xr
from matrix.check import Failures
from support import exact, subprocesses
from support.dtypes import ALL, NAMED, DType, significant
from support.followed_hints import follow
from support.introspect import INSPECTORS, has_dtype
from support.memory import aligned

import tensorferry as ferry


def elements(dtype: DType) -> np.ndarray:
    """The bytes of all elements worth trying; complex ones are pairs of them."""
    part = exact.component_of(dtype)
    codes = exact.codes_worth_trying(part)
    if dtype.kind == "complex":
        turned = codes[7:] + codes[:7]
        codes = [code for pair in zip(codes, turned, strict=True) for code in pair]
    return np.array(codes, f"u{part.size}").view(np.uint8)


def carried(raw: np.ndarray, source: DType, target: DType) -> np.ndarray:
    return ferry.to(raw.view(source.numpy), "numpy", dtype=target.name, copy=True)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_every_pair_against_exact_arithmetic(source: DType) -> None:
    raw = elements(source)
    failures = Failures()
    for target in ALL:
        with failures.observe(target):
            if not source.casts_to(target):
                with pytest.raises(ferry.UnsupportedDTypeError, match=r"hint: .*\.real\(x\)$"):
                    carried(raw, source, target)
                continue
            made = carried(raw, source, target)
            assert made.dtype == target.numpy
            got = np.frombuffer(significant(target, made.tobytes()), f"V{target.size}")
            wanted = np.frombuffer(exact.cast(source, target, raw), f"V{target.size}")
            wrong = np.flatnonzero(got != wanted)
            count = raw.size // source.size
            assert got.size == count
            if wrong.size:
                shown = [
                    f"{raw[i * source.size :][: source.size][::-1].tobytes().hex()} gave "
                    f"{got[i].tobytes()[::-1].hex()}, not {wanted[i].tobytes()[::-1].hex()}"
                    for i in wrong[:5]
                ]
                pytest.fail(f"{wrong.size} of {count}: " + "; ".join(shown))
    failures.report()


def test_the_reference_agrees_with_numpy_where_numpy_is_right() -> None:
    """The slow reference is held against NumPy and ml_dtypes, so that two wrongs make no right."""
    random = np.random.default_rng(5)
    floats = random.standard_normal(500).astype(np.float32) * 2.0 ** random.integers(
        -20, 20, 500
    ).astype(np.float32)
    for name in exact.FORMATS:
        target = NAMED[name]
        if name == "float8_e8m0fnu":
            values = np.abs(floats)
        else:
            values = floats
        with np.errstate(over="ignore", invalid="ignore"):
            theirs = values.astype(target.numpy)
        ours = exact.cast(NAMED["float32"], target, values.view(np.uint8))
        assert theirs.tobytes() == ours, name
    whole = random.integers(-(2**62), 2**62, 500)
    for name in ("float32", "float64", "int8", "uint16", "int32", "bool"):
        theirs = whole.astype(NAMED[name].numpy)
        assert theirs.tobytes() == exact.cast(NAMED["int64"], NAMED[name], whole.view(np.uint8)), (
            name
        )
    small = np.arange(256, dtype=np.uint8)
    for name in (name for name in exact.FORMATS if exact.FORMATS[name].bits <= 8):
        codes = small & ((1 << NAMED[name].bits) - 1)
        theirs = codes.view(NAMED[name].numpy).astype(np.float64)
        ours = np.frombuffer(exact.cast(NAMED[name], NAMED["float64"], codes), np.float64)
        assert np.array_equal(theirs, ours, equal_nan=True), name
        assert np.array_equal(np.signbit(theirs[theirs == 0]), np.signbit(ours[ours == 0])), name


def test_traps_of_other_tools() -> None:
    """What NumPy, ml_dtypes and torch get wrong or differ on, by name."""
    nan = np.array([np.nan, 1.0, np.nan], np.float32)
    assert ferry.to(nan, "numpy", dtype="uint32").tolist() == [0, 1, 0]
    assert ferry.to(nan[::-2], "numpy", dtype="uint32").tolist() == [0, 0]
    # float64 to bfloat16 through float32 rounds twice: just above a tie must go up.
    above = np.array([1.0 + 2.0**-8 + 2.0**-40])
    assert ferry.to(above, "numpy", dtype="bfloat16").astype(np.float32)[0] == 1.0 + 2.0**-7
    assert above.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)[0] == 1.0
    far = np.array([1e6, -1e6], np.float32)
    assert np.isnan(ferry.to(far, "numpy", dtype="float8_e4m3fn").astype(np.float32)).all()
    huge = np.array([2**63, 2**64 - 1], np.uint64)
    assert ferry.to(huge, "numpy", dtype="int64").tolist() == [-(2**63), -1]
    assert ferry.to(huge.astype(np.float64), "numpy", dtype="int64").tolist() == [2**63 - 1] * 2
    signed = np.array([300.0, -300.0, 3.99, -3.99], np.float32)
    assert ferry.to(signed, "numpy", dtype="int8").tolist() == [127, -128, 3, -3]
    assert ferry.to(signed, "numpy", dtype="int4").astype(np.int8).tolist() == [7, -8, 3, -3]


def _layouts(raw: np.ndarray, dtype: DType) -> dict[str, np.ndarray]:
    """The same elements, lying in many ways."""
    dense = raw.view(dtype.numpy)
    n = dense.size
    spread = aligned(n * 3 * dtype.size).view(dtype.numpy)[::3]
    spread[:] = dense
    backwards = dense[::-1].copy()[::-1]
    moved = aligned(n * dtype.size, past=1)
    moved[:] = raw
    rows = dense[: n - n % 2].reshape(2, -1)
    turned = np.ascontiguousarray(rows.T).T
    record = aligned(n * (dtype.size + 1))
    broken = np.ndarray((n,), dtype.numpy, record, 0, (dtype.size + 1,))
    broken[:] = dense
    made = {
        "strided": spread,
        "backwards": backwards,
        "unaligned": moved.view(dtype.numpy),
        "broken strides": broken,
        "transposed": turned.reshape(2, -1),
        "large": np.tile(dense, 1 + (3 << 20) // (n * dtype.size)),
        "large and strided": np.repeat(np.tile(dense, 1 + (1 << 20) // (n * dtype.size)), 2)[::2],
    }
    if dtype.size > 1 and dtype.is_numpys_own:
        # astype might make signalling NaNs quiet: swap the bytes themselves.
        made["other byte order"] = (
            raw.view(f"u{dtype.swap_unit}").byteswap().view(dtype.numpy.newbyteorder(">"))
        )
    return made


TARGETS_FOR_LAYOUTS = (
    *("bool", "uint4", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn", "complex64"),
)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_the_same_for_every_layout_and_size(source: DType) -> None:
    raw = aligned(elements(source).size)
    raw[:] = elements(source)
    failures = Failures()
    layouts = _layouts(raw, source)
    for target in (NAMED[name] for name in TARGETS_FOR_LAYOUTS):
        if not source.casts_to(target):
            continue
        dense = carried(raw, source, target)
        for how, a in layouts.items():
            with failures.observe(f"{target}, {how}"):
                made = ferry.to(a, "numpy", dtype=target.name, copy=True)
                assert made.shape == a.shape
                once = dense.view(np.uint8)[: a.size * target.size]
                assert (made.reshape(-1).view(np.uint8).reshape(-1, once.size) == once).all()
    failures.report()


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow", "paddle", "mlx"])
def test_the_same_for_every_target(target: str) -> None:
    """A cast is ours, not the target's."""
    failures = Failures()
    for source in (
        NAMED[name]
        for name in ("float64", "float32", "int64", "bfloat16", "float8_e5m2", "complex64")
    ):
        raw = elements(source)
        for wanted in ALL:
            if (
                not has_dtype(target, wanted)
                or not source.casts_to(wanted)
                or (target == "jax" and wanted.is_64_bit)
                or wanted == source
            ):
                continue
            with failures.observe(f"{source} to {wanted}"):
                result = ferry.to(raw.view(source.numpy), target, dtype=wanted.name)
                assert INSPECTORS[target].dtype(result) == wanted.name
                reference = carried(raw, source, wanted).tobytes()
                got = INSPECTORS[target].values(result)
                assert significant(wanted, got) == significant(wanted, reference)
    failures.report()


def _via(x: np.ndarray) -> object:
    return ferry.via("numpy", dtype="float32")(lambda x: x)(torch.from_numpy(x))


DROPPING = {
    "to": lambda x: ferry.to(x, "torch", dtype="float32"),
    "to itself": lambda x: ferry.to(x, "numpy", dtype="int8"),
    "plan": lambda x: ferry.plan(x, "torch", dtype="float32"),
    "tree": lambda x: ferry.to({"a": x}, "torch", dtype="float32"),
    "to_async": lambda x: ferry.to_async(x, "torch", dtype="float32").result(),
    "out": lambda x: ferry.to(x, "numpy", out=np.zeros(x.shape, "f4"), dtype="float32"),
    "out without dtype": lambda x: ferry.to(x, "numpy", out=np.zeros(x.shape, "f4")),
    "lazy": lambda x: ferry.to(torch.from_numpy(x).conj(), "numpy", dtype="float32"),
    "feed": lambda x: list(ferry.feed([x], "torch", dtype="float32")),
    "sparse": lambda x: ferry.to(scipy.sparse.csr_array(x[None]), "torch", dtype="float32"),
    "sparse to dense": lambda x: ferry.sparse.to_dense(
        scipy.sparse.csr_array(x[None]), "torch", dtype="float32"
    ),
    "publish": lambda x: ferry.publish(x, dtype="float32"),
    "via": _via,
    "empty": lambda x: ferry.to(x[:0], "numpy", dtype="float32"),
}


@pytest.mark.parametrize("source", ["complex64", "complex128"])
@pytest.mark.parametrize("way", DROPPING)
def test_a_cast_that_would_drop_imaginary_parts(way: str, source: str) -> None:
    x = np.array([1 + 2j, 3j, 0], source)
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        DROPPING[way](x)
    assert "real" in caught.value.hint
    # The type that needs no imaginary part.
    assert ferry.to(x, "torch", dtype="bool").tolist() == [True, True, False]


def test_the_hint_takes_the_real_part() -> None:
    values = np.array([[1 + 2j]], "c8")
    frameworks = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")
    sources = [ferry.to(values, framework) for framework in frameworks]
    for x in (*sources, pd.Series(values[0]), memoryview(values), xr.DataArray(values)):
        with pytest.raises(ferry.UnsupportedDTypeError) as caught:
            ferry.to(x, "numpy", dtype="float32")
        found = ferry.to(follow(caught.value, x=x, tf=tf), "numpy", dtype="float32")
        assert found.ravel().tolist() == [1]


@pytest.mark.parametrize("framework", ["scipy", "torch", "jax", "tensorflow", "sparse"])
def test_the_hint_takes_the_real_part_of_a_sparse_tensor(framework: str) -> None:
    x = ferry.sparse.to(scipy.sparse.csr_array(np.array([[1 + 2j]], "c8")), framework)
    for convert in (ferry.to, ferry.sparse.to, ferry.sparse.plan, ferry.sparse.to_dense):
        with pytest.raises(ferry.UnsupportedDTypeError) as caught:
            convert(x, "torch", dtype="float32")
        found = ferry.sparse.to_dense(follow(caught.value, x=x), "numpy", dtype="float32")
        assert found.tolist() == [[1]]


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_a_file_whose_imaginary_parts_would_be_dropped(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    x = np.array([1 + 2j], "complex64")
    ferry.save(path, x if suffix == "npy" else {"x": x})
    with pytest.raises(ferry.UnsupportedDTypeError, match="real"):
        ferry.load(path, "torch", dtype="float32")


@pytest.mark.parametrize("moment", ["before helpers", "after helpers"])
def test_subnormals_are_kept_where_a_thread_flushes_them(moment):
    """A thread may have told its processor to flush; helpers that it starts would inherit that."""
    subprocesses.run_program("matrix/keep_subnormals.py", moment, TENSORFERRY_THREADS="3")
