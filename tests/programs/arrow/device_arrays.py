"""Columns in GPU memory on the fake driver: values, order of work, and releases."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import cupy
import numpy as np
import pyarrow as pa
from support.arrow_device import (
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    Producer,
    array,
    column,
    inspect_export,
)
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import driver, on_gpu
from support.gpu_transfers import Foreign

import tensorferry as ferry
from tensorferry import arrow

VALUES = np.arange(24, dtype=np.float32) - 3.5
driver.cuEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def check_released(producer: Producer, times: int) -> None:
    gc.collect()
    assert producer.releases == times, producer.releases


@case
def columns() -> None:
    """Numbers, fixed-size lists and fixed-shape tensors are read in place, on either GPU."""
    for device in (0, 1):
        x = on_gpu(VALUES, device)
        for kind, name in ((CUDA, "cuda"), (CUDA_MANAGED, "cuda_managed")):
            producer = column(pa.float32(), 20, x.data.ptr, kind, offset=4, device_id=device)
            # CuPy has no read-only arrays: a copy that stays on the GPU.
            plan = ferry.plan(producer, "cupy")
            assert (plan.action, plan.source_device) == ("copy", f"{name}:{device}"), plan
            copied = ferry.to(producer, "cupy")
            assert copied.data.device_id == device
            assert copied.data.ptr != x.data.ptr + 16
            with cupy.cuda.Device(device):
                np.testing.assert_array_equal(copied.get(), VALUES[4:])
            np.testing.assert_array_equal(ferry.to(producer, "numpy"), VALUES[4:])
            result = ferry.to(producer, "torch", device="cpu", dtype="float64")
            assert result.tolist() == VALUES[4:].tolist()
            check_released(producer, 4)
    x = on_gpu(VALUES)
    lists = pa.list_(pa.float32(), 6)
    made = Producer(lists, array(4, [None], [array(24, [None, x.data.ptr])]), CUDA)
    np.testing.assert_array_equal(ferry.to(made, "numpy"), VALUES.reshape(4, 6))
    tensors = pa.field("", pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=(1, 0)))
    made = Producer(tensors, array(4, [None], [array(24, [None, x.data.ptr])]), CUDA)
    expected = VALUES.reshape(4, 2, 3).transpose(0, 2, 1)
    np.testing.assert_array_equal(ferry.to(made, "numpy"), expected)
    np.testing.assert_array_equal(ferry.to(made, "cupy").get(), expected)
    empty = column(pa.float32(), 0, None)
    assert ferry.to(empty, "cupy").shape == (0,)
    times = column(pa.timestamp("s"), 3, on_gpu(np.arange(3)).data.ptr)
    raised(ferry.UnsupportedDTypeError, ferry.to, times, "numpy")
    assert arrow.to(times, "numpy", temporal="integer").tolist() == [0, 1, 2]
    plan = arrow.plan(times, "numpy", temporal="integer")
    assert any(note.startswith("the integers count ") for note in plan.notes), plan
    check_released(times, 3)


@case
def tables() -> None:
    """A table is a dict. Columns that are left out are not read."""
    x, ids = on_gpu(VALUES), on_gpu(np.arange(4))
    kind = pa.struct([("id", pa.int64()), ("x", pa.list_(pa.float32(), 6)), ("name", pa.string())])
    parts = [
        array(4, [None, ids.data.ptr]),
        array(4, [None], [array(24, [None, x.data.ptr])]),
        array(4, [None, 4096, 4096]),
    ]
    table = Producer(kind, array(3, [None], parts, offset=1), CUDA)
    result = arrow.to(table, "cupy", columns=["x", "id"])
    assert list(result) == ["x", "id"]
    np.testing.assert_array_equal(result["x"].get(), VALUES.reshape(4, 6)[1:])
    np.testing.assert_array_equal(result["id"].get(), [1, 2, 3])
    check_released(table, 1)


def record_event(stream: Any) -> ctypes.c_void_p:
    event = ctypes.c_void_p()
    assert driver.cuEventCreate(ctypes.byref(event), 2) == 0
    assert driver.cuEventRecord(event, stream.ptr) == 0
    return event


@case
def events() -> None:
    """A reader of the column sees the work that was queued before the producer's event."""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    for turn in range(10):
        values = VALUES + turn
        x = cupy.empty(values.shape, values.dtype)
        with mine:
            x.set(values)
        event = record_event(mine)
        address = ctypes.addressof(event)
        producer = column(pa.float32(), 24, x.data.ptr, sync_event=address)
        if turn % 2:
            with theirs:
                np.testing.assert_array_equal(ferry.to(producer, "cupy").get(), values)
        else:
            np.testing.assert_array_equal(ferry.to(producer, "numpy"), values)
        check_released(producer, 1)


@case
def pinned_memory() -> None:
    """The host waits for the event before it reads pinned memory."""
    stream = cupy.cuda.Stream()
    source, target = on_gpu(VALUES), np.zeros_like(VALUES)
    with stream:
        status = driver.cuMemcpyDtoHAsync_v2(
            target.ctypes.data, source.data.ptr, target.nbytes, stream.ptr
        )
    assert status == 0
    event = record_event(stream)
    producer = column(
        pa.float32(), 24, target.ctypes.data, CUDA_HOST, sync_event=ctypes.addressof(event)
    )
    result = ferry.to(producer, "numpy")
    np.testing.assert_array_equal(result, VALUES)
    assert result.ctypes.data == target.ctypes.data


@case
def releases_after_errors() -> None:
    """Every failure releases the array once."""
    x = on_gpu(VALUES)
    event = record_event(cupy.cuda.Stream())
    with_event = column(pa.float32(), 24, x.data.ptr, sync_event=ctypes.addressof(event))
    driver.testdriver_fail(b"cuStreamWaitEvent", 0, 719)
    raised(ferry.FrameworkError, ferry.to, with_event, "numpy")
    check_released(with_event, 1)
    absent = column(pa.float32(), 24, x.data.ptr, device_id=7)
    error = raised(ferry.UnsupportedError, ferry.to, absent, "numpy")
    assert "cuda:7 does not exist" in str(error), error
    check_released(absent, 1)
    producer = column(pa.float32(), 24, x.data.ptr)
    raised(ferry.InvalidArgumentError, ferry.to, producer, "cupy", dtype="unknown")
    driver.testdriver_fail(b"cuMemcpyDtoHAsync_v2", 0, 719)
    before = producer.releases
    raised(ferry.FrameworkError, ferry.to, producer, "numpy")
    check_released(producer, before + 1)
    np.testing.assert_array_equal(ferry.to(producer, "numpy"), VALUES)
    check_released(producer, before + 2)


@case
def memory_elsewhere() -> None:
    """An address that is not on the GPU of the struct is refused before it is used."""
    x = on_gpu(VALUES, device=1)
    for address, where in ((VALUES.ctypes.data, "cpu"), (x.data.ptr, "cuda:1")):
        producer = column(pa.float32(), 24, address)
        for verb in (ferry.to, ferry.plan):
            error = raised(ferry.InvalidTensorError, verb, producer, "cupy")
            assert f"is on {where}, and its producer said cuda:0" in str(error), error
            assert error.hint
        check_released(producer, 2)


@case
def batches() -> None:
    """Batches of one array are slices of its memory. Batches of several cannot be gathered."""
    x = on_gpu(VALUES)
    producer = column(pa.float32(), 24, x.data.ptr)
    found = [batch.get() for batch in arrow.batches(producer, 10, "cupy")]
    np.testing.assert_array_equal(np.concatenate(found), VALUES)
    assert [len(batch) for batch in found] == [10, 10, 4]
    check_released(producer, 1)
    several = arrow.batches([producer, producer], 20, "cupy")
    assert next(several).shape == (20,)
    error = raised(ferry.UnsupportedError, next, several)
    assert "on cuda:0" in str(error), error
    assert error.hint
    del several
    check_released(producer, 3)


@case
def exports() -> None:
    """A GPU tensor is exported with its device, and comes back as the same memory."""
    for device in (0, 1):
        x = on_gpu(VALUES.reshape(4, 3, 2), device)
        exported = arrow.export(x)
        struct = inspect_export(exported)
        assert (struct.device_type, struct.device_id, struct.sync_event) == (CUDA, device, None)
        assert struct.array.children[0].contents.buffers[1] == x.data.ptr
        assert ferry.to(exported, "cupy").shape == (4, 3, 2)
        np.testing.assert_array_equal(ferry.to(exported, "numpy"), VALUES.reshape(4, 3, 2))
        gone = weakref.ref(x.data.mem)
        del x, exported
        gc.collect()
        assert gone() is not None
        del struct
        gc.collect()
        assert gone() is None
    table = arrow.export({"x": on_gpu(VALUES), "y": on_gpu(VALUES * 2)})
    result = ferry.to(table, "numpy")
    np.testing.assert_array_equal(result["y"], VALUES * 2)
    for exported in (table, arrow.export(on_gpu(VALUES))):
        exported.__arrow_c_schema__()
        methods = ["__arrow_c_array__"] + ["__arrow_c_stream__"] * (exported is table)
        for method in methods:
            error = raised(ferry.UnsupportedError, getattr(exported, method))
            assert f"on cuda:0, and {method} is for host memory" in str(error), error
            assert 'ferry.to(x, "numpy")' in (error.hint or "")


@case
def exports_wait_for_queued_work() -> None:
    """An export has no event, because the work queued on the source's stream is complete."""
    stream = cupy.cuda.Stream()
    for turn in range(10):
        values = VALUES + turn
        x = cupy.empty(values.shape, values.dtype)
        with stream:
            x.set(values)
        exported = arrow.export(Foreign(x, stream))
        # The memory of the fake driver is host memory.
        assert ctypes.string_at(x.data.ptr, values.nbytes) == values.tobytes()
        del exported


@case
def exports_during_a_capture() -> None:
    """The host cannot wait for a captured stream, and does not end the capture by trying."""
    x, stream = on_gpu(VALUES), cupy.cuda.Stream()
    driver.testdriver_capture(stream.ptr)
    error = raised(ferry.InvalidArgumentError, arrow.export, Foreign(x, stream))
    assert "captured" in str(error), error
    assert error.hint
    assert driver.testdriver_end_captures(), "the capture was invalidated"
    np.testing.assert_array_equal(ferry.to(arrow.export(Foreign(x, stream)), "numpy"), VALUES)


@case
def release_of_exports_is_ordered() -> None:
    """Memory is handed out again only after the work that a consumer has queued."""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    x = on_gpu(VALUES)
    address = x.data.ptr
    exported = arrow.export(Foreign(x, mine))
    struct = inspect_export(exported)
    with theirs:
        kept = x.queue_copy()
    del x, exported, struct
    gc.collect()
    with mine:
        again = cupy.empty(VALUES.shape, VALUES.dtype)
        assert again.data.ptr == address, "the memory was not handed out again"
        again.set(np.full_like(VALUES, 9))
        again.get()
    with theirs:
        np.testing.assert_array_equal(kept.get(), VALUES)


@case
def exports_that_are_refused() -> None:
    """Tensors that are not dense are copied if they can be; tables are on one device."""
    x = on_gpu(VALUES.reshape(4, 6))
    turned = cupy.ndarray((6, 4), np.dtype(np.float32), x.data, (4, 24))
    # A framework allocates the copy of its own tensor.
    np.testing.assert_array_equal(ferry.to(arrow.export(turned), "numpy"), VALUES.reshape(4, 6).T)
    foreign = Foreign(turned, cupy.cuda.Stream())
    foreign.__cuda_array_interface__["strides"] = turned.strides
    error = raised(ferry.InvalidArgumentError, arrow.export, foreign)
    assert "dense" in str(error), error
    assert "copy=True" in (error.hint or "")
    for other, where in ((VALUES[:4], "cpu"), (on_gpu(VALUES[:4], 1), "cuda:1")):
        error = raised(ferry.InvalidArgumentError, arrow.export, {"a": x, "b": other})
        assert f"column 'a' is on cuda:0 and column 'b' on {where}" in str(error), error
        assert error.hint
    complex_ = on_gpu(VALUES.astype(np.complex64))
    raised(ferry.UnsupportedDTypeError, arrow.export, complex_)


if __name__ == "__main__":
    main()
