"""Results in GPU memory on a machine without a GPU: a CuPy on the stand-in for the driver, which
works late and fails on demand."""

from __future__ import annotations

from support import fake_driver

SETUP = """
import weakref

class Foreign:
    '''Somebody else's description of an array, with a stream of its own.'''
    def __init__(self, x, stream):
        self.x = x
        self.__cuda_array_interface__ = {
            "version": 3, "shape": x.shape, "typestr": x.dtype.str, "strides": None,
            "data": (x.data.ptr, False), "stream": stream.ptr or 1,
        }

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6) - 3.5
"""


def run(code: str) -> str:
    return fake_driver.run(fake_driver.SETUP, SETUP, code)


def test_uploads_and_copies():
    run("""
    for view in (ARRAY, ARRAY.T, ARRAY[::2, ::-1], ARRAY[:0], ARRAY[1, 1]):
        for dtype in (None, "float64", "int16", "complex64"):
            y = ferry.to(view, "cupy", dtype=dtype)
            assert type(y) is cupy.ndarray and y.data.device_id == 0
            np.testing.assert_array_equal(y.get(), view if dtype is None else view.astype(dtype))
            z = ferry.to(y, "cupy", copy=True)
            assert z.data.ptr != y.data.ptr or not view.size
            np.testing.assert_array_equal(z.get(), y.get())
    plan = ferry.plan(ARRAY, "cupy")
    assert plan.action == "copy" and plan.steps[0][0] == "upload", plan
    x = on_gpu(ARRAY)
    assert ferry.to(x, "cupy") is x
    """)


def test_a_share_waits_for_the_source_s_stream():
    run("""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    more = ARRAY + 1
    for _ in range(10):
        x = cupy.empty(ARRAY.shape, ARRAY.dtype)
        with mine:
            x.set(ARRAY)
        with theirs:
            y = ferry.to(Foreign(x, mine), "cupy")
            assert y.data.ptr == x.data.ptr
            np.testing.assert_array_equal(y.get(), ARRAY)
        del y
        # The same for a stream that is named, also where the result is the source itself.
        with mine:
            x.set(more)
            assert ferry.to(x, "cupy", stream=theirs.ptr) is x
        with theirs:
            np.testing.assert_array_equal(x.get(), more)
    """)


def test_memory_is_released_after_the_work_that_is_queued_on_it():
    run("""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    nines = np.full_like(ARRAY, 9)
    x = on_gpu(ARRAY)
    place = x.data.ptr
    with theirs:
        y = ferry.to(Foreign(x, mine), "cupy")
        kept = y.queue_copy()
    del x, y
    gc.collect()
    with mine:
        again = cupy.empty(ARRAY.shape, ARRAY.dtype)
        assert again.data.ptr == place, "the memory was not handed out again"
        again.set(nines)
        np.testing.assert_array_equal(again.get(), nines)
    with theirs:
        np.testing.assert_array_equal(kept.get(), ARRAY)
    """)


def test_a_copy_for_a_stream_is_allocated_there():
    run("""
    stream = cupy.cuda.Stream()
    x = on_gpu(ARRAY)
    y = ferry.to(x, "cupy", copy=True, stream=stream.ptr)
    assert cupy.allocated_on[-1] == stream.ptr
    assert cupy.cuda.get_current_stream().ptr == 0
    with stream:
        np.testing.assert_array_equal(y.get(), ARRAY)
    y = ferry.to(ARRAY, "cupy", stream=stream.ptr)
    assert cupy.allocated_on[-1] == stream.ptr
    with stream:
        np.testing.assert_array_equal(y.get(), ARRAY)
    # On a GPU that is not current too: CuPy has a current stream for each.
    y = ferry.to(ARRAY, "cupy", device="cuda:1", stream=stream.ptr)
    assert y.data.device_id == 1 and cupy.allocated_on[-1] == stream.ptr
    with stream:
        np.testing.assert_array_equal(y.get(), ARRAY)
    """)


def test_cupy_without_a_gpu():
    run("""
    driver.testdriver_fail(b"cuInit", 0, 100)
    for verb in (ferry.plan, ferry.to):
        try:
            verb(ARRAY, "cupy")
        except ferry.UnsupportedError as error:
            assert "CuPy holds GPU memory only, and CUDA cannot be initialised" in str(error), error
            assert "numpy or torch" in error.hint
        else:
            raise AssertionError(verb)
    """)


def test_between_two_gpus():
    run("""
    x = on_gpu(ARRAY, device=1)
    before = driver.testdriver_calls(b"cuMemcpyPeerAsync")
    y = ferry.to(x, "cupy", device="cuda:0", dtype="float64")
    assert (x.data.device_id, y.data.device_id) == (1, 0)
    assert driver.testdriver_calls(b"cuMemcpyPeerAsync") == before + 1
    np.testing.assert_array_equal(y.get(), ARRAY)
    assert ferry.plan(x, "cupy", device="cuda:0").steps[0][0] == "peer copy"
    assert ferry.to(x, "cupy") is x
    np.testing.assert_array_equal(ferry.to(x, "numpy"), ARRAY)
    up = ferry.to(ARRAY, "cupy", device="cuda:1")
    assert up.data.device_id == 1
    for verb in (ferry.plan, ferry.to):
        try:
            verb(ARRAY, "cupy", device="cuda:2")
        except ferry.UnsupportedError as error:
            assert "cuda:2 does not exist" in str(error), error
            assert "CUDA_VISIBLE_DEVICES" in error.hint
        else:
            raise AssertionError(verb)
    """)


def test_failures_leave_everything_usable():
    run("""
    x = on_gpu(ARRAY)
    stream = cupy.cuda.Stream()
    def fails(name, status, kind, call):
        driver.testdriver_fail(name, 0, status)
        try:
            call()
        except kind as error:
            assert isinstance(error, ferry.FerryError) and error.hint, error
            return error
        raise AssertionError(name)
    big = np.ones(1 << 16)
    error = fails(b"cuMemAlloc_v2", 2, MemoryError, lambda: ferry.to(big, "cupy"))
    assert "no memory for 524288 bytes on cuda:0" in str(error) and "free" in str(error)
    assert type(error.__cause__) is cupy.OutOfMemoryError
    shares = lambda: ferry.to(Foreign(x, stream), "cupy")
    fails(b"cuEventRecord", 719, ferry.FrameworkError, shares)
    fails(b"cuStreamWaitEvent", 719, ferry.FrameworkError, shares)
    fails(b"cuMemcpyHtoDAsync_v2", 719, ferry.FrameworkError, lambda: ferry.to(ARRAY, "cupy"))
    turned = cupy.ndarray((6, 4), np.float32, x.data, (4, 24))
    copies = lambda: ferry.to(turned, "cupy", copy=True)
    fails(b"cuLaunchKernel", 719, ferry.FrameworkError, copies)
    np.testing.assert_array_equal(copies().get(), ARRAY.T)
    np.testing.assert_array_equal(shares().get(), ARRAY)
    np.testing.assert_array_equal(ferry.to(ARRAY, "cupy").get(), ARRAY)
    # A release that cannot be ordered keeps the memory, because somebody may still read it.
    y, ghost = shares(), weakref.ref(x)
    driver.testdriver_fail(b"cuEventRecord", 0, 719)
    del y, x, turned
    gc.collect()
    assert ghost() is not None
    """)


def test_captures_are_not_broken_off():
    run("""
    driver.testdriver_capture.argtypes = [ctypes.c_size_t]
    driver.testdriver_end_captures.restype = ctypes.c_bool
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    x = on_gpu(ARRAY)

    def captured(stream, work):
        driver.testdriver_capture(stream.ptr)
        try:
            with stream:
                return work()
        finally:
            assert driver.testdriver_end_captures(), "broken off"

    # On one stream, and where nothing is queued on the other.
    for stream in (mine, theirs):
        y = captured(stream, lambda: ferry.to(Foreign(x, mine), "cupy"))
        assert y.data.ptr == x.data.ptr
        del y
    # Where something is, the captured one cannot wait; it is said before the driver hears of it.
    with mine:
        x.set(ARRAY)
    try:
        captured(theirs, lambda: ferry.to(Foreign(x, mine), "cupy"))
    except ferry.InvalidArgumentError as error:
        assert "captured" in str(error) and error.hint
    else:
        raise AssertionError("no error")
    mine.synchronize()
    # A result that dies meanwhile keeps its memory, instead of giving it back out of order.
    with theirs:
        results = [ferry.to(Foreign(x, mine), "cupy")]
    captured(theirs, results.clear)
    np.testing.assert_array_equal(x.get(), ARRAY)
    """)


def test_addresses_tell_their_device():
    run("""
    for device in (0, 1):
        x = on_gpu(ARRAY, device)
        y = ferry.to(Foreign(x, cupy.cuda.Stream(0)), "cupy")
        assert y.data.device_id == device and y.data.ptr == x.data.ptr
        np.testing.assert_array_equal(ferry.to(y, "numpy"), ARRAY)
    """)


def test_a_device_that_is_lost_for_good():
    run("""
    x = on_gpu(np.zeros(3 << 20, np.float32))
    shared, result = ferry.to(Foreign(x, cupy.cuda.Stream()), "cupy"), ferry.to(x, "numpy")
    job = ferry.to_async(x, "numpy")
    driver.testdriver_lose(719)
    for work in (
        lambda: ferry.to(x, "numpy"),
        lambda: ferry.to(Foreign(x, cupy.cuda.Stream(0)), "cupy"),
        lambda: ferry.to_async(x, "numpy").result(),
    ):
        for _ in range(2):
            try:
                work()
            except ferry.FrameworkError as error:
                assert "CUDA_ERROR_LAUNCH_FAILED" in str(error), error
            else:
                raise AssertionError("no error")
    try:
        job.result()
    except ferry.FrameworkError:
        pass
    # What is held goes without a word, and so does the process.
    del shared, result, job
    gc.collect()
    ferry.empty_cache()
    np.testing.assert_array_equal(ferry.to(ARRAY.T, "numpy", copy=True), ARRAY.T)
    """)
