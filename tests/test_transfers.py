"""Bytes between GPU and host by every road, on a CuPy over the stand-in for the driver, which works
late and fails on demand."""

from __future__ import annotations

import pytest
from support import fake_driver, subprocesses

run = fake_driver.run_transfers


@pytest.mark.parametrize("threads", ["1", "3"])
def test_downloads_of_every_size(threads):
    run(
        """
    small = (0, 1, 4 * KIB, 511 * KIB, 512 * KIB, 700 * KIB)
    for size in (*small, MIB, 4 * MIB, 5 * MIB + 12, 19 * MIB):
        array = numbers(size // 4)
        x = on_gpu(array)
        kept = []
        for _ in range(3):
            # Dropped, and kept: by the driver, into recycled, pinned and fresh memory.
            np.testing.assert_array_equal(ferry.to(x, "numpy"), array)
            kept.append(ferry.to(x, "numpy"))
        assert all(np.array_equal(result, array) for result in kept)
        assert len({result.ctypes.data for result in kept}) == 3
    """,
        TENSORFERRY_THREADS=threads,
    )


def test_strides_and_casts_are_folded_in():
    run("""
    base = numbers(1500, 1100)
    x = on_gpu(base)
    views = (base.T, base[::3, 1::2], base[100:200], base[:, 5:900], base[::-1, ::-1].T)
    for view in views:
        there = strided(x, view, base)
        for dtype in (None, "float16", "float64", "int8"):
            expected = view if dtype is None else ferry.to(view, "numpy", dtype=dtype)
            for _ in range(2):
                found = ferry.to(there, "numpy", dtype=dtype)
                assert np.array_equal(found, expected), (view.shape, dtype)
            up = ferry.to(view, "cupy", dtype=dtype)
            assert np.array_equal(up.get(), expected), (view.shape, dtype)
    # A part costs its own bytes.
    with ferry.trace() as trips:
        ferry.to(strided(x, base[100:200], base), "numpy")
    assert trips[0].bytes_moved == 100 * 1100 * 4
    """)


def test_slabs_where_the_gpu_has_little_memory():
    run("""
    base = numbers(6000, 2000)
    x = on_gpu(base)
    there = strided(x, base.T, base)
    before = calls("cuMemAllocAsync")
    # The first sizes that are tried are refused.
    driver.testdriver_fail(b"cuMemAllocAsync", 0, 2)
    assert np.array_equal(ferry.to(there, "numpy"), base.T)
    assert calls("cuMemAllocAsync") == before + 2
    """)


def test_a_result_that_was_dropped_leaves_pinned_memory():
    run("""
    x = on_gpu(numbers(3 * MIB))
    first = ferry.to(x, "numpy")
    assert ferry.memory_stats().used_bytes >= 12 * MIB
    staging = ferry.memory_stats().pinned_bytes
    del first
    second = ferry.to(x, "numpy")
    place = second.ctypes.data
    assert ferry.memory_stats().pinned_bytes == staging + 12 * MIB
    del second
    copies = calls("cuMemcpyDtoHAsync_v2")
    third = ferry.to(x, "numpy")
    # One copy, by the GPU itself.
    assert third.ctypes.data == place and calls("cuMemcpyDtoHAsync_v2") == copies + 1
    # From pinned memory it goes back in one as well.
    uploads = calls("cuMemcpyHtoDAsync_v2")
    y = ferry.to(third, "cupy")
    assert calls("cuMemcpyHtoDAsync_v2") == uploads + 1
    assert np.array_equal(y.get(), third)
    # Host copies get other memory, so that the pinned stays for transfers.
    del third
    other = ferry.to(numbers(3 * MIB), "numpy", copy=True)
    assert other.ctypes.data != place
    del other
    gc.collect()
    assert ferry.memory_stats().pinned_bytes > 0
    assert ferry.empty_cache() > 0
    assert ferry.memory_stats().pinned_bytes == 0 and driver.testdriver_registered() == 0
    """)


def test_pinned_memory_is_bounded():
    run(
        """
    x = on_gpu(numbers(3 * MIB))
    for _ in range(4):
        ferry.to(x, "numpy")
        assert ferry.memory_stats().pinned_bytes <= 16 * MIB, ferry.memory_stats()
    small = on_gpu(numbers(MIB // 4))
    kept = [ferry.to(small, "numpy") for _ in range(40)]
    # Results that are kept are not pinned for ever.
    assert ferry.memory_stats().pinned_bytes <= 16 * MIB, ferry.memory_stats()
    """,
        TENSORFERRY_POOL="16M",
        TENSORFERRY_THREADS="1",
    )


def test_the_exit_ends_jobs():
    # An exit handler that was there before tensorferry runs after all that it does at exit.
    early = """
    import atexit
    jobs = []
    def last():
        for job in jobs:
            try:
                job.result()
            except Exception as error:
                assert type(error).__name__ == "CancelledError", error
    atexit.register(last)
    """
    late = """
    x = on_gpu(numbers(60 * MIB))
    jobs += [ferry.to_async(x, "numpy") for _ in range(3)]
    """
    fake_driver.run(early, fake_driver.SETUP, fake_driver.TRANSFERS, late)
    run("""
    import sys
    x = on_gpu(numbers(60 * MIB))
    jobs = [ferry.to_async(x, "numpy") for _ in range(3)]
    sys.exit(0)
    """)


def test_memory_that_somebody_still_reads_is_not_overwritten():
    """A result that went may be on its way to a GPU: others copy late from pinned memory."""
    run("""
    one, two = numbers(2 * MIB), numbers(2 * MIB)
    x, y = on_gpu(one), on_gpu(two)
    ferry.to(x, "numpy")
    for _ in range(3):
        result = ferry.to(x, "numpy")
        stream, copy = cupy.cuda.Stream(), cupy.empty(one.shape, one.dtype)
        with stream:
            copy.set(result)
        place = result.ctypes.data
        del result
        again = ferry.to(y, "numpy")
        assert again.ctypes.data == place and np.array_equal(again, two)
        with stream:
            assert np.array_equal(copy.get(), one)
        del again
    """)


@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_nor_is_it_a_buffer(threads):
    run(
        """
    for size in (MIB // 2, MIB, 2 * MIB, 4 * MIB):
        one, two = numbers(size), numbers(size)
        x = on_gpu(one)
        kept = ferry.to(x, "numpy")
        for _ in range(3):
            ferry.to(x, "numpy")
            result = ferry.to(x, "numpy")
            stream, copy = cupy.cuda.Stream(), cupy.empty(one.shape, one.dtype)
            with stream:
                copy.set(result)
            del result
            ferry.to(two[::-1], "cupy")
            out = np.empty_like(two)
            ferry.to(x, "numpy", out=out[::-1])
            with stream:
                assert np.array_equal(copy.get(), one), size
    """,
        TENSORFERRY_THREADS=threads,
    )


def test_queued_work_is_waited_for():
    run("""
    for size in (MIB // 8, MIB, 5 * MIB):
        kept = []
        for repeat in range(12):
            stream, array = cupy.cuda.Stream(), numbers(size)
            with stream:
                x = cupy.empty(array.shape, array.dtype)
                x.set(array)
                found = ferry.to(x, "numpy")
                assert np.array_equal(found, array)
                if repeat % 2:
                    kept.append(found)
                y = ferry.to(array, "cupy")
                assert np.array_equal(y.get(), array)
    """)


DRIVER_ERRORS = [
    *("cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventSynchronize", "cuStreamWaitEvent"),
    *("cuEventQuery", "cuEventCreate", "cuStreamCreate", "cuStreamSynchronize", "cuLaunchKernel"),
]


@pytest.mark.parametrize("name", DRIVER_ERRORS)
def test_a_device_that_fails_midway(name):
    run(f"""
    base = numbers(2100, 2000)
    x, name = on_gpu(base), {name!r}.encode()
    there, raised = strided(x, base.T, base), 0
    for fetch, expected in (
        (lambda: ferry.to(x, "numpy"), base),
        (lambda: ferry.to(there, "numpy"), base.T),
        (lambda: ferry.to(base.T, "cupy"), base.T),
    ):
        host = lambda found: found if isinstance(found, np.ndarray) else found.get()
        for call in range(4):
            gc.collect()
            used = ferry.memory_stats().used_bytes
            driver.testdriver_fail(name, call, 719)
            try:
                found = fetch()
            except RuntimeError as error:
                assert isinstance(error, ferry.FrameworkError), error
                raised += 1
                # Nothing uses memory that was given back, but where waiting itself fails.
                assert driver.testdriver_busy() == 0 or name == b"cuStreamSynchronize"
            else:
                # Not called so often.
                driver.testdriver_fail(name, 1 << 40, 719)
                assert np.array_equal(host(found), expected)
            found = None
            assert ferry.memory_stats().used_bytes == used
            assert np.array_equal(host(fetch()), expected)
    assert raised
    ferry.empty_cache()
    assert driver.testdriver_registered() == 0
    """)


def test_a_system_that_lets_nobody_pin():
    run("""
    array = numbers(3 * MIB)
    x = on_gpu(array)
    driver.testdriver_fail_for_good(b"cuMemHostRegister_v2", 1)
    kept, wide = [], np.zeros((2, 3 * MIB), np.float32)
    for _ in range(3):
        for _ in range(4):
            kept.append(ferry.to(x, "numpy"))
            y = ferry.to(array[::-1], "cupy")
            assert np.array_equal(y.get(), array[::-1])
            ferry.to(x, "numpy", out=wide.T[:, 1])
            assert np.array_equal(wide[1], array) and not wide[0].any()
        assert all(np.array_equal(result, array) for result in kept)
        kept.clear()
    assert driver.testdriver_registered() == 0 and ferry.memory_stats().pinned_bytes == 0
    """)


def test_out():
    run("""
    import tempfile
    array = numbers(1200, 1100)
    x = on_gpu(array)
    out = np.empty_like(array)
    assert ferry.to(x, "numpy", out=out) is out and np.array_equal(out, array)
    wide = np.full((1200, 2200), 7, np.float32)
    ferry.to(x, "numpy", out=wide[:, ::2])
    assert np.array_equal(wide[:, ::2], array) and (wide[:, 1::2] == 7).all()
    half = np.empty((1200, 1100), np.float16)
    ferry.to(x, "numpy", out=half, dtype="float16")
    assert np.array_equal(half, array.astype(np.float16))
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file, np.float32, "w+", shape=array.shape)
        gc.collect()
        ferry.empty_cache()
        before = calls("cuMemcpyDtoHAsync_v2")
        ferry.to(x, "numpy", out=mapped, budget=2 * MIB)
        held = ferry.memory_stats()
        assert held.used_bytes + held.idle_bytes == 2 * MIB, held
        assert calls("cuMemcpyDtoHAsync_v2") - before >= array.nbytes / MIB
        mapped.flush()
        assert np.array_equal(np.fromfile(file.name, np.float32).reshape(array.shape), array)
    y = cupy.empty(array.shape, array.dtype)
    assert ferry.to(array, "cupy", out=y) is y and np.array_equal(y.get(), array)
    used = driver.testdriver_used()
    wide = cupy.empty(array.shape, np.float64)
    peak = driver.testdriver_used()
    calls_before = calls("cuMemAllocAsync")
    ferry.to(array, "cupy", out=wide, dtype="float64", budget=2 * MIB)
    # Cast on the host: no scratch memory on the GPU.
    assert np.array_equal(wide.get(), array.astype(np.float64))
    assert calls("cuMemAllocAsync") == calls_before
    z = cupy.empty(array.shape, array.dtype)
    ferry.to(strided(x, array[::-1], array), "cupy", out=z)
    assert np.array_equal(z.get(), array[::-1])
    def refused(text, **options):
        try:
            ferry.to(**options)
        except ferry.InvalidArgumentError as error:
            assert text in str(error) and error.hint, error
        else:
            raise AssertionError(text)
    back = strided(z, array[:, ::-1], array)
    refused("on a GPU and not contiguous", x=array, framework="cupy", out=back)
    refused("share memory on a GPU", x=strided(x, array[::-1], array), framework="cupy", out=x)
    refused("out is on cpu", x=x, framework="numpy", out=out, device="cuda:0")
    refused("stays on the host", x=array, framework="numpy", out=out, stream=0)
    try:
        ferry.to(x, "numpy", out=out, budget=1000)
    except MemoryError as error:
        assert "budget is 1000 bytes" in str(error)
    else:
        raise AssertionError("no error")
    """)


def test_to_async():
    run("""
    from support.subprocesses import HANG_SECONDS
    array = numbers(2100, 2000)
    x = on_gpu(array)
    for target, source, check in (
        ("numpy", x, lambda found: found), ("cupy", array.T.copy().T, lambda found: found.get())
    ):
        job = ferry.to_async(source, target)
        assert job.bytes_total == array.nbytes and 0 <= job.bytes_moved <= job.bytes_total
        assert np.array_equal(check(job.result(timeout=HANG_SECONDS)), array)
        assert job.done() and job.bytes_moved == job.bytes_total and not job.cancel()
        assert repr(job).startswith("<Job done, ")
    tree = {"a": x, "b": [x, array, 5, None]}
    found = ferry.to_async(tree, "numpy").result()
    assert found["a"] is found["b"][0] and found["b"][1] is array and found["b"][2:] == [5, None]
    out = np.empty_like(array)
    assert ferry.to_async(x, "numpy", out=out).result() is out and np.array_equal(out, array)
    large = np.ones((4, 8 * MIB), np.float32)
    job = ferry.to_async(large, "numpy", out=np.empty((4, 8 * MIB), np.float64), dtype="float64")
    assert (job.result() == 1).all()
    with ferry.trace() as trips:
        ferry.to_async(x, "numpy").result()
    assert len(trips) == 1 and trips[0].bytes_moved == array.nbytes

    async def main():
        one, two = await asyncio.gather(*(wrap(ferry.to_async(x, "numpy")) for _ in range(2)))
        assert np.array_equal(one, array) and np.array_equal(two, array)
        try:
            driver.testdriver_fail(b"cuMemcpyDtoHAsync_v2", 0, 719)
            await ferry.to_async(x, "numpy")
        except ferry.FrameworkError:
            pass
        else:
            raise AssertionError("no error")

    async def wrap(job):
        return await job

    asyncio.run(main())
    """)


def test_a_job_whose_stream_is_the_caller_s():
    """What is queued on the stream that is current at the call is waited for, not that of a thread
    of the job's."""
    run("""
    array = numbers(2 * MIB)
    for _ in range(5):
        stream = cupy.cuda.Stream()
        with stream:
            x = cupy.empty(array.shape, array.dtype)
            x.set(array)
            down, up = ferry.to_async(x, "numpy"), ferry.to_async(array, "cupy")
        assert np.array_equal(down.result(), array)
        y = up.result()
        with stream:
            assert np.array_equal(y.get(), array)
    """)


def test_a_job_is_cancelled():
    run("""
    import concurrent.futures, sys
    # The exception of a callback that breaks off is not of interest.
    sys.unraisablehook = lambda _: None
    array = numbers(4 * MIB)
    x = on_gpu(array)
    used = ferry.memory_stats().used_bytes
    cancelled = turns = 0

    def outcome(job):
        try:
            return job.exception()
        except ferry.CancelledError as error:
            return error

    def break_off(job):
        if job.cancelled():
            raise SystemExit("from a callback")

    # Some are done before they are cancelled.
    while turns < 20 or not cancelled:
        turns += 1
        # Into fresh memory, then into what is pinned.
        job, seen = ferry.to_async(x, "numpy"), []
        # Callbacks run before those who wait are notified; one of them asks, one breaks off.
        job.add_done_callback(lambda job, seen=seen: seen.append(outcome(job)))
        job.add_done_callback(break_off)
        if job.cancel():
            try:
                job.result()
            except ferry.CancelledError as error:
                assert isinstance(error, concurrent.futures.CancelledError)
                assert job.cancelled() and job.done() and not job.running() and job.cancel()
                assert concurrent.futures.wait([job]).done == {job}
                assert len(seen) == 1 and isinstance(seen[0], ferry.CancelledError), seen
                cancelled += 1
            else:
                raise AssertionError("cancelled, and there is a result")
        else:
            job.result()
        del job
    gc.collect()
    assert cancelled > 0
    assert ferry.memory_stats().used_bytes == used
    assert np.array_equal(ferry.to(x, "numpy"), array)
    try:
        ferry.to_async(x, "numpy").result(timeout=0)
    except TimeoutError as error:
        assert isinstance(error, ferry.DeadlineError) and error.hint
    assert np.array_equal(ferry.to_async(x, "numpy").result(timeout=float("inf")), array)
    """)


def test_progress_and_interruption():
    run("""
    array = numbers(4 * MIB)
    x = on_gpu(array)
    seen = []
    found = ferry.to(x, "numpy", progress=lambda moved, total: seen.append((moved, total)))
    assert np.array_equal(found, array)
    assert seen[-1] == (array.nbytes, array.nbytes) and seen == sorted(seen)
    assert all(total == array.nbytes for _, total in seen)
    ferry.to(x, "numpy", progress=True)  # no terminal, no bar
    del found
    used = ferry.memory_stats().used_bytes

    # One call, and no Python in it that would hear the signal: the function is a builtin.
    big = on_gpu(numbers(100 * MIB))
    # It sends the signal itself when bytes have moved, and disregards the other arguments.
    interrupt = functools.partial(ctypes.CDLL(None)["raise"], signal.SIGINT)
    made = all_of_it = 400 * MIB // (128 * KIB)
    while made >= all_of_it:
        # One whose bytes have all moved before it is first looked at proves nothing.
        before = calls("cuMemcpyDtoHAsync_v2")
        try:
            ferry.to(big, "numpy", progress=interrupt)
        except KeyboardInterrupt:
            made = calls("cuMemcpyDtoHAsync_v2") - before
        else:
            raise AssertionError("not interrupted")
    del big
    gc.collect()
    assert ferry.memory_stats().used_bytes == used
    assert np.array_equal(ferry.to(x, "numpy"), array)
    """)


def test_the_plan_names_the_transfer_path():
    run("""
    for size, roads in (
        (KIB, ("one driver call", "one driver call")),
        (3 * MIB, ("memory is fresh", "pinned for this and later", "of an earlier result")),
    ):
        x = on_gpu(numbers(size))
        for road in roads:
            plan = ferry.plan(x, "numpy")
            assert road in plan.transfer_path and road in str(plan), (road, plan)
            ferry.to(x, "numpy")
            assert ("time: about" in str(plan)) == (plan.expected_seconds is not None)
            assert ("not known before the first" in str(plan)) == (plan.expected_seconds is None)
    assert plan.expected_seconds
    pinned = ferry.to(x, "numpy")
    for source, road in (
        (numbers(KIB), "one driver call"),
        (numbers(MIB // 4), "through a pinned staging buffer"),
        (numbers(3 * MIB), "is not pinned"),
        (numbers(3 * MIB)[::-1], "packed or cast"),
        (pinned, "from pinned memory"),
    ):
        assert road in ferry.plan(source, "cupy").transfer_path
    assert ferry.plan(x, "cupy").transfer_path is None
    assert ferry.plan(numbers(9), "torch").transfer_path is None
    """)


def test_chunks_and_threads_can_be_set():
    code = """
    x = on_gpu(numbers(64 * MIB))
    ferry.to(x, "numpy")
    print(ferry.memory_stats().pinned_bytes // MIB)
    """
    asked = [("1M", "2"), ("4M", "2"), ("2M", "3")]
    pinned = [
        int(run(code, TENSORFERRY_CHUNK=chunk, TENSORFERRY_THREADS=threads))
        for chunk, threads in asked
    ]
    # Two buffers for each thread.
    assert pinned == [4, 16, 12]
    done = subprocesses.attempt(
        "import tensorferry", TENSORFERRY_CHUNK="7", PYTHONWARNINGS="default"
    )
    assert 'TENSORFERRY_CHUNK: "7" is not' in done.stderr


def test_a_failed_transfer_leaves_no_wait_and_no_event():
    run("""
    big = numbers(4 * MIB)
    other, out = on_gpu(big), np.empty_like(big)
    ferry.to(other, "numpy", out=out)
    for turn in range(20):
        busy = cupy.cuda.Stream()
        with busy:
            # Put off until somebody waits for this stream.
            late = cupy.empty((MIB,), big.dtype)
            late.set(big[:MIB])
            target = cupy.empty(big.shape, big.dtype)
            job = ferry.to_async(big[::-1], "cupy", out=target)
        job.cancel()
        try:
            job.result()
        except ferry.CancelledError:
            pass
        before = driver.testdriver_busy()
        with cupy.cuda.Stream():
            ferry.to(other, "numpy", out=out)
        assert driver.testdriver_busy() >= before, "an unrelated download waited for the stream"
        busy.synchronize()
    made = calls("cuEventCreate")
    for _ in range(20):
        driver.testdriver_fail(b"cuMemcpyHtoDAsync_v2", 0, 719)
        try:
            ferry.to(big[::-1], "cupy", out=target)
        except ferry.FrameworkError:
            pass
    assert calls("cuEventCreate") - made < 6
    np.testing.assert_array_equal(ferry.to(other, "numpy"), big)
    """)
