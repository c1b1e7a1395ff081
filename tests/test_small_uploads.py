"""Small uploads by way of pinned memory, one by one and in trees, on a CuPy over the stand-in for
the driver, which works late and fails on demand."""

from __future__ import annotations

import pytest
from support import fake_driver

run = fake_driver.run_transfers


@pytest.mark.parametrize("threads", ["1", "4"])
def test_small_uploads_of_a_tree_are_waited_for_together(threads):
    """Pinned memory is used again when the GPU has fetched what lay there."""
    run(
        """
    waits = lambda: calls("cuStreamSynchronize") + calls("cuCtxSynchronize")
    stream = cupy.cuda.Stream()
    sources = []
    for size in (1, 4 * KIB, 100 * KIB, 129 * KIB, 600 * KIB, 2 * MIB - 4):
        sources += [numbers(max(size // 4, 1)), numbers(30, 20).T[::2], numbers(300, 200).T]
    for dtype in ("float32", "float64"):
        for count in (1, 20):
            tree = {f"{turn}.{i}": x.copy() for turn in range(count) for i, x in enumerate(sources)}
            expected = {name: x.copy() for name, x in tree.items()}
            with stream:
                before = waits()
                found = ferry.to(tree, "cupy", dtype=dtype)
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
    """,
        TENSORFERRY_THREADS=threads,
    )


def test_calls_inside_of_a_tree_wait_for_themselves():
    """Code of the user's that a tree comes by gets what is there, on whatever stream it looks."""
    run("""
    class Mine:
        def __array__(self, dtype=None, copy=None):
            array = numbers(3000)
            with cupy.cuda.Stream():
                one, (two,) = ferry.to(array, "cupy"), ferry.to([array], "cupy")
            seen.append(np.array_equal(one.get(), array) and np.array_equal(two.get(), array))
            return array

    seen = []
    for _ in range(5):
        tree = ferry.to([numbers(500), Mine(), numbers(700)], "cupy")
        assert [x.shape for x in tree] == [(500,), (3000,), (700,)]
    assert seen and all(seen), seen
    """)


def test_a_captured_stream_is_brought_no_tree():
    """A graph would remember the place, and not the values."""
    run("""
    driver.testdriver_capture.argtypes = [ctypes.c_size_t]
    driver.testdriver_end_captures.restype = ctypes.c_bool
    stream = cupy.cuda.Stream()
    for source in (numbers(MIB // 4), [numbers(5)]):
        driver.testdriver_capture(stream.ptr)
        try:
            with stream:
                ferry.to(source, "cupy")
        except ferry.InvalidArgumentError as error:
            assert "captured" in str(error) and error.hint
        else:
            raise AssertionError("no error")
        assert driver.testdriver_end_captures(), "broken off"
    """)


def test_small_uploads_on_many_threads_and_streams():
    run("""
    def work(number):
        own = np.random.default_rng(number)
        stream = cupy.cuda.Stream()
        with lock:
            pass
        for _ in range(25):
            sizes = own.integers(1, 300_000, 4)
            tree = [own.standard_normal(size, dtype=np.float32) for size in sizes]
            found = ferry.to(tree, "cupy", stream=stream.ptr)
            if not all(np.array_equal(ferry.to(x, "numpy"), y) for x, y in zip(found, tree)):
                wrong.append(number)

    wrong, lock = [], threading.Lock()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    """)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("cuMemcpyHtoDAsync_v2", 4 << 10), ("cuMemcpyHtoDAsync_v2", 600 << 10)),
        # Where a block is full, and where one is needed.
        *(("cuEventRecord", 600 << 10), ("cuEventQuery", 600 << 10)),
        # At the end, when all is waited for.
        ("cuStreamSynchronize", 4 << 10),
    ],
)
def test_a_small_upload_that_fails(name, size):
    """It is said, nothing is lost, and the next one goes well."""
    run(f"""
    arrays = [[numbers({size} // 4) for _ in range(12)] for _ in range(5)]
    kept = [ferry.to(array, "cupy") for array in arrays]
    held = ferry.memory_stats().pinned_bytes
    failures = 0
    for late in (0, 1, 3):
        driver.testdriver_fail({name!r}.encode(), late, 719)
        for array in arrays:
            try:
                ferry.to(array, "cupy")
            except ferry.FrameworkError:
                failures += 1
    assert failures == 3, failures
    assert ferry.memory_stats().pinned_bytes <= held + 10 * MIB
    for found, array in zip(kept, arrays):
        np.testing.assert_array_equal([x.get() for x in found], array)
    for array in arrays:
        np.testing.assert_array_equal(ferry.to(ferry.to(array, "cupy"), "numpy"), array)
    """)
