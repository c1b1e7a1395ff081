"""Uploads small arrays by way of pinned memory on the fake GPU, one by one and in trees."""

from __future__ import annotations

import threading
from typing import Any

import cupy
import numpy as np
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import driver
from support.gpu_transfers import KIB, MIB, Array, calls, numbers

import tensorferry as ferry


def waits() -> int:
    """How often the host waited for the GPU."""
    return calls("cuStreamSynchronize") + calls("cuCtxSynchronize")


@case
def trees() -> None:
    """The uploads of a tree are waited for together, and pinned memory is bounded."""
    stream = cupy.cuda.Stream()
    sources: list[Array] = []
    for size in (1, 4 * KIB, 100 * KIB, 129 * KIB, 600 * KIB, 2 * MIB - 4):
        sources += [numbers(max(size // 4, 1)), numbers(30, 20).T[::2], numbers(300, 200).T]
    for dtype in ("float32", "float64"):
        for count in (1, 20):
            tree = {f"{turn}.{i}": x.copy() for turn in range(count) for i, x in enumerate(sources)}
            expected = {name: x.copy() for name, x in tree.items()}
            with stream:
                before = waits()
                found: dict[str, Any] = ferry.to(tree, "cupy", dtype=dtype)
                # Those of more than 2 MiB go another way.
                if dtype == "float32" and count == 1:
                    assert waits() == before + 1
            for x in tree.values():
                x[:] = -1
            # All are there, on whatever stream one looks.
            for name in expected:
                np.testing.assert_array_equal(found[name].get(), expected[name])
    # What waited for the GPU is bounded, and can be given back.
    held = ferry.memory_stats()
    assert 0 < held.pinned_bytes <= 26 * MIB, held
    found.clear()
    ferry.empty_cache()
    assert ferry.memory_stats().pinned_bytes == 0, ferry.memory_stats()
    assert driver.testdriver_registered() == 0


class Mine:
    """An array of the user's that converts others while a tree is converted."""

    def __init__(self, seen: list[bool]) -> None:
        self.seen = seen

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = numbers(3000)
        with cupy.cuda.Stream():
            one, (two,) = ferry.to(array, "cupy"), ferry.to([array], "cupy")
        self.seen.append(np.array_equal(one.get(), array) and np.array_equal(two.get(), array))
        return array


@case
def calls_inside_a_tree() -> None:
    """Code of the user's inside a tree gets values that are there, on every stream."""
    seen: list[bool] = []
    for _ in range(5):
        tree = ferry.to([numbers(500), Mine(seen), numbers(700)], "cupy")
        assert [x.shape for x in tree] == [(500,), (3000,), (700,)]
    assert seen
    assert all(seen), seen


@case
def captured_stream() -> None:
    """An upload on a captured stream is refused, and the capture ends well."""
    stream = cupy.cuda.Stream()

    def upload(source: Any) -> None:
        with stream:
            ferry.to(source, "cupy")

    for source in (numbers(MIB // 4), [numbers(5)]):
        driver.testdriver_capture(stream.ptr)
        error = raised(ferry.InvalidArgumentError, upload, source)
        assert "captured" in str(error)
        assert error.hint
        assert driver.testdriver_end_captures(), "broken off"


@case
def many_threads() -> None:
    """Four threads upload trees, each for a stream of its own."""
    wrong: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        own = np.random.default_rng(number)
        stream = cupy.cuda.Stream()
        with lock:
            pass
        for _ in range(25):
            sizes = own.integers(1, 300_000, 4)
            tree = [own.standard_normal(size, dtype=np.float32) for size in sizes]
            found = ferry.to(tree, "cupy", stream=stream.ptr)
            pairs = zip(found, tree, strict=True)
            if not all(np.array_equal(ferry.to(x, "numpy"), y) for x, y in pairs):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


@case
def failing_upload(name: str, size: str) -> None:
    """A function of the driver fails in three uploads of five trees; nothing is lost."""
    arrays = [[numbers(int(size) // 4) for _ in range(12)] for _ in range(5)]
    kept = [ferry.to(array, "cupy") for array in arrays]
    held = ferry.memory_stats().pinned_bytes
    failures = 0
    for late in (0, 1, 3):
        driver.testdriver_fail(name.encode(), late, 719)
        for array in arrays:
            try:
                ferry.to(array, "cupy")
            except ferry.FrameworkError:
                failures += 1
    assert failures == 3, failures
    assert ferry.memory_stats().pinned_bytes <= held + 10 * MIB
    for found, array in zip(kept, arrays, strict=True):
        np.testing.assert_array_equal([x.get() for x in found], array)
    for array in arrays:
        np.testing.assert_array_equal(ferry.to(ferry.to(array, "cupy"), "numpy"), array)


if __name__ == "__main__":
    main()
