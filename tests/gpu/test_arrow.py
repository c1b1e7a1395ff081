"""Columns in GPU memory through the Arrow C device data interface, with real frameworks."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from gpu.test_streams import spin
from support.arrow_device import CUDA, Producer, array, column, inspect_export
from support.share_counts import soon

import tensorferry as ferry
from tensorferry import arrow

VALUES = np.arange(24, dtype=np.float32) - 3.5
SIZE = 1 << 22


@pytest.mark.parametrize("target", GPU_FRAMEWORKS)
@pytest.mark.parametrize("source", GPU_FRAMEWORKS)
def test_out_and_in(source: str, target: str) -> None:
    """A table of one framework is a dict of tensors of another, and never leaves the GPU."""
    make, look = GPU_FRAMEWORKS[source].make, GPU_FRAMEWORKS[target]
    x, y = make(VALUES), make(VALUES.reshape(4, 3, 2))
    exported = arrow.export({"x": x, "z": make(VALUES * 2)})
    result = ferry.to(exported, target)
    assert all(look.on_gpu(tensor) for tensor in result.values())
    np.testing.assert_array_equal(look.host(result["x"]), VALUES)
    np.testing.assert_array_equal(look.host(result["z"]), VALUES * 2)
    column = ferry.to(arrow.export(y), target)
    np.testing.assert_array_equal(look.host(column), VALUES.reshape(4, 3, 2))
    struct = inspect_export(arrow.export(x))
    assert (struct.device_type, struct.device_id, struct.sync_event) == (CUDA, 0, None)
    assert struct.array.buffers[1] == GPU_FRAMEWORKS[source].address(x)


@pytest.mark.parametrize(
    "target", [name for name in ("jax", "tensorflow") if name in GPU_FRAMEWORKS]
)
def test_immutable_tensors_share(target: str) -> None:
    x = torch.arange(1024, device="cuda", dtype=torch.float32)
    producer = column(pa.float32(), 1024, x.data_ptr())
    assert ferry.plan(producer, target).shares
    shared = ferry.to(producer, target)
    assert GPU_FRAMEWORKS[target].address(shared) == x.data_ptr()
    before = producer.releases
    del shared
    gc.collect()
    assert soon(lambda: producer.releases == before + 1)


@pytest.mark.parametrize("target", [*GPU_FRAMEWORKS, "numpy"])
def test_the_event_of_the_producer_is_waited_for(target: str) -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    x = torch.zeros(SIZE, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        spin(15)
        x.add_(3)
        event.record(side)
    handle = ctypes.c_void_p(event.cuda_event)
    producer = column(pa.float32(), SIZE, x.data_ptr(), sync_event=ctypes.addressof(handle))
    result = ferry.to(producer, target)
    host = result if target == "numpy" else GPU_FRAMEWORKS[target].host(result)
    assert (host == 3).all()


def test_an_export_waits_for_queued_work() -> None:
    x = torch.zeros(SIZE, device="cuda")
    spin(15)
    x.add_(3)
    exported = arrow.export(x)
    assert torch.cuda.current_stream().query()
    del exported


def test_strided_tensors_are_copied() -> None:
    x = torch.from_numpy(VALUES.reshape(4, 6).copy()).cuda().T
    exported = arrow.export(x)
    np.testing.assert_array_equal(ferry.to(exported, "numpy"), VALUES.reshape(4, 6).T)


def test_releases() -> None:
    x = torch.from_numpy(VALUES.copy()).cuda()
    lists = pa.list_(pa.float32(), 6)
    producer = Producer(lists, array(4, [None], [array(24, [None, x.data_ptr()])]), CUDA)
    np.testing.assert_array_equal(ferry.to(producer, "torch").cpu(), VALUES.reshape(4, 6))
    gc.collect()
    assert producer.releases == 1
    on_host = column(pa.float32(), 24, VALUES.ctypes.data)
    with pytest.raises(ferry.InvalidTensorError, match="is on cpu, and its producer said cuda:0"):
        ferry.to(on_host, "torch")
    assert on_host.releases == 1


@pytest.mark.skipif("cupy" not in GPU_FRAMEWORKS, reason="CuPy is not here")
def test_nanoarrow_holds_memory_of_cupy() -> None:
    import cupy

    x: Any = cupy.asarray(VALUES)
    held = nanoarrow.device.c_device_array(arrow.export(x))
    assert held.device_type_id == CUDA
    assert held.array.buffers[1] == x.data.ptr
    del x
    gc.collect()
    result = ferry.to(held, "torch")
    assert result.is_cuda
    np.testing.assert_array_equal(result.cpu(), VALUES)
