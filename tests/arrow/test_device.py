"""The Arrow C device data interface on a machine without a GPU: host memory, and arrays on devices
that are refused before their buffers are read."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import nanoarrow
import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest
from support import fake_driver
from support.arrow_device import CPU, CUDA, CUDA_HOST, Producer, array, column, inspect_export

import tensorferry as ferry
from tensorferry import arrow

VALUES = np.arange(6, dtype=np.float32)
ADDRESS = VALUES.ctypes.data
# Not mapped: a read of it ends the process.
UNMAPPED = 4096
NULL_EVENT = np.zeros(1, np.uint64)


class OnlyDevice:
    """An object whose only method of Arrow is that for devices."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __arrow_c_device_array__(
        self, requested_schema: object = None, **kwargs: object
    ) -> tuple[object, object]:
        return self.inner.__arrow_c_device_array__(requested_schema, **kwargs)


@pytest.mark.parametrize("device_type", [CPU, CUDA_HOST])
def test_host_memory_is_shared(device_type: int) -> None:
    producer = column(pa.float32(), 4, ADDRESS, device_type, offset=1, device_id=-1)
    result = ferry.to(producer, "numpy")
    assert result.tolist() == [1, 2, 3, 4]
    assert result.ctypes.data == ADDRESS + 4
    assert not result.flags.writeable
    assert producer.releases == 0
    del result
    gc.collect()
    assert producer.releases == 1


def test_nanoarrow_on_the_cpu() -> None:
    made = nanoarrow.device.c_device_array([1, 2, 3], nanoarrow.int32())
    for source in (made, OnlyDevice(made)):
        assert ferry.to(source, "torch").tolist() == [1, 2, 3]
    lists = OnlyDevice(pa.array([[True], [False, None]]))
    values, offsets = arrow.to(lists, "numpy", ragged="offsets", nulls=False)
    assert (values.tolist(), offsets.tolist()) == ([True, False, False], [0, 1, 3])


def test_the_host_methods_come_first() -> None:
    class Both(Producer):
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
            return pa.array([7, 8]).__arrow_c_array__()

    producer = Both(pa.int64(), array(1, [None, UNMAPPED]), CUDA)
    assert ferry.to(producer, "numpy").tolist() == [7, 8]


def test_host_methods_that_raise() -> None:
    class OnGpu(OnlyDevice):
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
            raise NotImplementedError("the memory is on a GPU")

    class Interrupted(OnlyDevice):
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise KeyboardInterrupt

    assert ferry.to(OnGpu(pa.array([7, 8])), "numpy").tolist() == [7, 8]
    with pytest.raises(KeyboardInterrupt):
        ferry.to(Interrupted(pa.array([7, 8])), "numpy")


def test_a_method_that_fails() -> None:
    class Fails:
        def __arrow_c_device_array__(self) -> None:
            raise ValueError("out of order")

    class Other:
        def __arrow_c_device_array__(self) -> object:
            return pa.array([1]).__arrow_c_array__()

    with pytest.raises(ferry.FrameworkError, match=r"__arrow_c_device_array__ of .*Fails failed"):
        ferry.to(Fails(), "numpy")
    with pytest.raises(ferry.InvalidTensorError, match="did not return Arrow capsules\nhint: "):
        ferry.to(Other(), "numpy")


@pytest.mark.parametrize(
    ("device_type", "named"),
    [(0, "type 0;"), (-1, "type -1;"), (10, r"type 10 \(rocm\)"), (99, "type 99;")],
)
def test_devices_that_are_not_supported(device_type: int, named: str) -> None:
    producer = column(pa.float32(), 4, UNMAPPED, device_type)
    with pytest.raises(ferry.UnsupportedError, match=f"{named}.*\nhint: copy it to host memory"):
        ferry.to(producer, "numpy")
    assert producer.releases == 1


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"device_type": CPU, "sync_event": UNMAPPED}, "an event, which CPUs do not have"),
        ({"sync_event": ADDRESS + 1}, "event is not aligned"),
        ({"sync_event": NULL_EVENT.ctypes.data}, "event is a null pointer"),
        ({"device_id": -1}, "the GPU with the number -1"),
        ({"device_id": 2**32}, "the GPU with the number 4294967296"),
        ({"length": -1}, "-1 elements at 0"),
        ({"offset": 2**62}, "elements at 4611686018427387904"),
        ({"null_count": 5}, "5 nulls and 4 elements"),
        ({"data": None}, "4 elements have a null pointer"),
        ({"null_count": 1}, "1 nulls and no bitmap"),
    ],
)
def test_structs_that_are_invalid(options: dict[str, Any], fact: str) -> None:
    filled = {"length": 4, "data": UNMAPPED, **options}
    producer = column(pa.float32(), filled.pop("length"), filled.pop("data"), **filled)
    with pytest.raises(ferry.InvalidTensorError, match=f"{fact}\nhint: report"):
        ferry.to(producer, "numpy")
    assert producer.releases == 1


def of_lists() -> Producer:
    child = array(9, [None, UNMAPPED])
    return Producer(pa.list_(pa.int8()), array(4, [None, UNMAPPED], [child]), CUDA)


def of_codes() -> Producer:
    kind = pa.dictionary(pa.int8(), pa.float32())
    codes = array(4, [None, UNMAPPED], dictionary=array(2, [None, UNMAPPED]))
    return Producer(kind, codes, CUDA)


def of_nulls_in_lists() -> Producer:
    child = array(8, [UNMAPPED, UNMAPPED], null_count=-1)
    return Producer(pa.list_(pa.int8(), 2), array(4, [None], [child]), CUDA)


def of_null_structs() -> Producer:
    kind = pa.struct([("a", pa.int8())])
    child = array(4, [None, UNMAPPED])
    return Producer(kind, array(4, [UNMAPPED], [child], null_count=1), CUDA)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: column(pa.int8(), 4, UNMAPPED, bitmap=UNMAPPED, null_count=1), "with nulls"),
        (lambda: column(pa.int8(), 4, UNMAPPED, bitmap=UNMAPPED, null_count=-1), "with nulls"),
        (lambda: column(pa.bool_(), 4, UNMAPPED), "booleans"),
        (lambda: column(pa.field("", pa.bool8()), 4, UNMAPPED), "booleans"),
        (of_lists, "lists"),
        (of_codes, "codes of a dictionary"),
        (of_nulls_in_lists, "with nulls"),
        (of_null_structs, "with nulls"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"nulls": 0, "ragged": "dense", "pad": 0}])
def test_buffers_on_a_gpu_are_not_read(
    make: Callable[[], Producer], what: str, options: dict[str, Any]
) -> None:
    producer = make()
    with pytest.raises(
        ferry.UnsupportedError,
        match=f"{what} are on cuda:0.*\nhint: copy it to host memory first",
    ):
        arrow.to(producer, "numpy", **options)
    assert producer.releases == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [({"stack": True}, "stack=True"), ({"nulls": "mask"}, 'nulls="mask"')],
)
def test_options_that_gather_on_the_host(options: dict[str, Any], named: str) -> None:
    kind = pa.struct([("a", pa.int8()), ("b", pa.int8())])
    columns = [array(4, [None, UNMAPPED]) for _ in range(2)]
    producer = Producer(kind, array(4, [None], columns), CUDA)
    with pytest.raises(ferry.UnsupportedError, match=f"{named} is for.*cuda:0\nhint: leave out"):
        arrow.to(producer, "numpy", **options)
    assert producer.releases == 1


def test_columns_that_are_left_out_may_be_anything() -> None:
    kind = pa.struct([("a", pa.string()), ("b", pa.bool_())])
    columns = [array(4, [None, UNMAPPED, UNMAPPED]), array(4, [None, UNMAPPED])]
    producer = Producer(kind, array(4, [None], columns), CUDA)
    with pytest.raises(ferry.UnsupportedError, match="column 'b': booleans are on cuda:0"):
        arrow.to(producer, "numpy", columns=["b"])
    with pytest.raises(ferry.UnsupportedDTypeError, match=r"column 'a'.*string"):
        arrow.to(producer, "numpy", columns=["a"])
    assert producer.releases == 2


def test_export_of_host_memory() -> None:
    values = np.arange(6.0).reshape(3, 2)
    gone = weakref.ref(values)
    for exported in (arrow.export(values), arrow.export({"x": values})):
        struct = inspect_export(exported)
        assert (struct.device_type, struct.device_id, struct.sync_event) == (CPU, -1, None)
        assert struct.array.length == 3
        assert list(struct.reserved) == [0, 0, 0]
        made = nanoarrow.device.c_device_array(exported)
        assert made.device_type == nanoarrow.device.DeviceType.CPU
        imported = pa.array(OnlyDevice(exported))
        imported.validate(full=True)
        assert len(imported) == 3
    shared = ferry.to(OnlyDevice(arrow.export(values)), "numpy")
    assert shared.ctypes.data == values.ctypes.data
    del values, exported, struct, made, imported, shared
    gc.collect()
    assert gone() is None


def test_keywords_of_later_versions() -> None:
    exported = arrow.export(VALUES)
    exported.__arrow_c_device_array__(requested_schema=None, stream=None)
    with pytest.raises(NotImplementedError, match="'stream'"):
        exported.__arrow_c_device_array__(stream=3)
    with pytest.raises(NotImplementedError, match="'stream'"):
        arrow.export({"a": VALUES}).__arrow_c_device_array__(stream=3)


@pytest.mark.parametrize(
    "case",
    [
        "columns",
        "tables",
        "events",
        "pinned_memory",
        "releases_after_errors",
        "memory_elsewhere",
        "batches",
        "exports",
        "exports_wait_for_queued_work",
        "exports_during_a_capture",
        "release_of_exports_is_ordered",
        "exports_that_are_refused",
    ],
)
def test_on_the_fake_driver(case: str) -> None:
    fake_driver.run_program("arrow/device_arrays.py", case)
