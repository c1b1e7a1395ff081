"""Memory from outside is not trusted: objects whose protocols lie, break or say nothing."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys

import numpy as np
import pytest
from support.invalid_capsules import Producer
from support.refusals import refused, refused_everywhere

import tensorferry as ferry

_testbuffer = pytest.importorskip("_testbuffer", reason="CPython's own test module")

CAPSULES = {
    "null data": (ferry.NotATensorError, {"null": True}),
    "null data of one element": (ferry.NotATensorError, {"null": True, "shape": ()}),
    "null data with an offset": (ferry.NotATensorError, {"null": True, "byte_offset": 64}),
    "negative shape": (ferry.InvalidTensorError, {"shape": (2, -3)}),
    "overflowing shape": (ferry.InvalidTensorError, {"shape": (2**40, 2**40)}),
    "overflowing bytes": (ferry.InvalidTensorError, {"shape": (2**61, 2)}),
    "overflowing strides": (ferry.InvalidTensorError, {"strides": (2**62, 1)}),
    "overflowing extent": (ferry.InvalidTensorError, {"strides": (2**60, -(2**60))}),
    "no shape": (ferry.InvalidTensorError, {"no_shape": True}),
    "overflowing offset": (ferry.InvalidTensorError, {"byte_offset": 2**64 - 1}),
    "four lanes": (ferry.UnsupportedDTypeError, {"dtype": (2, 32, 4)}),
    "no lanes": (ferry.UnsupportedDTypeError, {"dtype": (2, 32, 0)}),
    "unknown code": (ferry.UnsupportedDTypeError, {"dtype": (200, 32, 1)}),
    "opaque": (ferry.UnsupportedDTypeError, {"dtype": (3, 64, 1)}),
    "no bits": (ferry.UnsupportedDTypeError, {"dtype": (2, 0, 1)}),
    "128 bits": (ferry.UnsupportedDTypeError, {"dtype": (2, 128, 1)}),
    "packed int4": (ferry.UnsupportedDTypeError, {"dtype": (0, 4, 1)}),
    "unknown device": (ferry.FerryError, {"device": (99, 0)}),
    "device 0": (ferry.FerryError, {"device": (0, 0)}),
    "cuda in the struct only": (ferry.UnsupportedError, {"device": (2, 0)}),
    "cuda": (ferry.UnsupportedError, {"device": (2, 0), "device_said": (2, 0)}),
    "cuda managed": (ferry.UnsupportedError, {"device": (13, 0), "device_said": (13, 0)}),
    "no dimensions left": (ferry.InvalidTensorError, {"ndim": -1}),
    "the fewest dimensions": (ferry.InvalidTensorError, {"ndim": -(2**31)}),
    "100,000 dimensions": (ferry.InvalidTensorError, {"ndim": 100_000}),
    "the most dimensions": (ferry.InvalidTensorError, {"ndim": 2**31 - 1}),
}


@pytest.mark.parametrize("form", ["legacy", "versioned"])
@pytest.mark.parametrize("name", CAPSULES)
def test_capsules_that_lie(name, form):
    kind, words = CAPSULES[name]
    for target in ("numpy", "torch", "jax", "tensorflow"):
        producer = Producer(version=None if form == "legacy" else (1, 0), **words)
        refused(kind, kind.__bases__[-1], lambda p=producer, t=target: ferry.to(p, t))
        given = producer.device_said == (1, 0)
        assert producer.deleted == given, "what was taken is given back, once"


@pytest.mark.parametrize("version", [(2, 0), (0, 8), (2**32 - 1, 0)])
def test_capsules_of_another_version(version):
    producer = Producer(version=version, null=True, ndim=-1)
    error = refused(ferry.InvalidTensorError, BufferError, lambda: ferry.to(producer, "numpy"))
    assert f"{version[0]}.{version[1]}" in str(error)
    assert producer.deleted == 1


@pytest.mark.parametrize("form", ["legacy", "versioned"])
def test_capsules_that_are_right(form):
    """The same producer without a lie: what the tests above refuse is the lie."""
    for words in ({}, {"no_deleter": True}, {"strides": (3, 1)}, {"byte_offset": 8}):
        producer = Producer(version=None if form == "legacy" else (1, 9), **words)
        got = ferry.to(producer, "numpy")
        start = words.get("byte_offset", 0) // 4
        assert got.ravel().tolist() == list(range(start, start + 6))
        del got
        assert producer.deleted == (0 if "no_deleter" in words else 1)


def test_empty_capsules_may_have_no_data():
    got = ferry.to(Producer(null=True, shape=(0, 3)), "numpy")
    assert got.shape == (0, 3)


def test_a_capsule_is_taken_once():
    producer = Producer()
    kept = ferry.to(producer, "numpy")
    refused(ferry.InvalidTensorError, BufferError, lambda: ferry.to(producer, "numpy"))
    assert producer.deleted == 0
    del kept
    assert producer.deleted == 1


def speaks(**members):
    return type("Speaks", (), members)()


def raiser(error):
    def method(self, *arguments, **keywords):
        raise error

    return method


@pytest.mark.parametrize(
    "answer",
    [None, 42, "capsule", b"dltensor", object(), (1, 2), [], Producer(name=b"tensor").capsule],
    ids=["None", "int", "str", "bytes", "object", "tuple", "list", "capsule of another name"],
)
def test_dlpack_that_answers_garbage(answer):
    thing = speaks(__dlpack__=lambda self, **_: answer, __dlpack_device__=lambda self: (1, 0))
    refused_everywhere(ferry.InvalidTensorError, BufferError, thing)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom\nException raised from here\nframe #0: c10::Error"),
        TypeError("not like this"),
        ValueError(""),
        KeyError("k"),
        NotImplementedError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_dlpack_that_raises(error):
    refused_everywhere(ferry.FrameworkError, RuntimeError, speaks(__dlpack__=raiser(error)))


def test_an_error_inside_dlpack_is_the_cause_and_is_not_tried_again():
    calls = []

    def failing(self, **keywords):
        calls.append(keywords)
        raise TypeError("not like this")

    thing = speaks(__dlpack__=failing, __dlpack_device__=lambda self: (1, 0))
    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(thing, "numpy"))
    assert len(calls) == 1
    assert str(error.__cause__) == "not like this"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", ["__dlpack__", "__array__", "__dlpack_device__"])
def test_a_request_to_stop_is_passed_on(error, name):
    good = {"__dlpack__": lambda self, **_: None, "__dlpack_device__": lambda self: (1, 0)}
    members = {name: raiser(error())} if name == "__array__" else {**good, name: raiser(error())}
    thing = speaks(**members)
    with pytest.raises(error):
        ferry.to(thing, "numpy")


@pytest.mark.parametrize("said", [(2, 0), (99, 0)])
def test_devices_out_of_reach(said):
    producer = Producer(device_said=said)
    refused(ferry.UnsupportedError, ValueError, lambda: ferry.to(producer, "numpy"))
    assert producer.deleted == 0


@pytest.mark.parametrize("said", [None, 1, "cpu", (), ("cpu", 0), (1, None), (2**70, 0)], ids=str)
def test_devices_said_oddly(said):
    """The capsule says where the memory is; who cannot say it beforehand is not turned away."""
    got = ferry.to(Producer(device_said=said), "numpy")
    assert got.tolist() == [[0, 1, 2], [3, 4, 5]]


MEMORY = np.arange(12, dtype=np.float32)
GOOD = {"shape": (3,), "typestr": "<f4", "data": (MEMORY.ctypes.data, False), "version": 3}

INTERFACES = {
    "a number": 5,
    "None": None,
    "empty": {},
    "no type": {key: GOOD[key] for key in ("shape", "data", "version")},
    "no shape": {key: GOOD[key] for key in ("typestr", "data", "version")},
    "unknown type": {**GOOD, "typestr": "<q9"},
    "type of no text": {**GOOD, "typestr": 7},
    "objects": {**GOOD, "typestr": "|O8"},
    "text": {**GOOD, "typestr": "<U4"},
    "negative shape": {**GOOD, "shape": (-3,)},
    "huge shape": {**GOOD, "shape": (2**62, 2)},
    "overflowing shape": {**GOOD, "shape": (2**40, 2**40)},
    "shape of text": {**GOOD, "shape": ("a",)},
    "null pointer": {**GOOD, "data": (0, False)},
    "pointer of text": {**GOOD, "data": ("x", False)},
    "data of no kind": {**GOOD, "data": 3.5},
    "strides of another rank": {**GOOD, "strides": (4, 4)},
    "65 dimensions": {**GOOD, "shape": (1,) * 65},
    "a mask": {**GOOD, "mask": np.zeros(3, bool)},
}


@pytest.mark.parametrize("name", INTERFACES)
def test_array_interfaces_that_lie(name):
    thing = speaks(__array_interface__=INTERFACES[name])
    refused_everywhere(ferry.FerryError, Exception, thing)


def test_an_array_interface_that_is_right():
    address = GOOD["data"][0]
    changes = ({}, {"data": (address, 0)}, {"typestr": b"<f4"}, {"data": (np.uint64(address), 0)})
    for change in changes:
        thing = speaks(__array_interface__=GOOD | change)
        assert ferry.to(thing, "torch").tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__"])
def test_an_interface_that_is_none_is_not_read(name):
    thing = speaks(**{name: None, "__array__": lambda *_, **__: np.arange(3)})
    assert ferry.to(thing, "torch").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (4,)},
        {"shape": (2**40,)},
        {"offset": 4},
        {"offset": -1},
        {"offset": "a"},
        {"offset": 2**63 - 1},
        {"strides": (8,)},
        {"strides": (-4,)},
        {"data": memoryview(bytes(24))[::2]},
        {"data": b""},
    ],
)
def test_array_interfaces_beyond_their_buffer(change):
    thing = speaks(__array_interface__=GOOD | {"data": bytes(12)} | change)
    refused_everywhere(ferry.InvalidTensorError, BufferError, thing)


def test_array_interfaces_over_a_buffer():
    """The elements are in the buffer, which cannot be resized while a tensor has its memory."""
    memory = bytearray(np.arange(6, dtype=np.float32).tobytes())
    whole = GOOD | {"data": memory}
    for change, values in (
        ({"shape": (6,)}, [0, 1, 2, 3, 4, 5]),
        ({"offset": 12}, [3, 4, 5]),
        ({"strides": (8,)}, [0, 2, 4]),
        ({"strides": (-4,), "offset": 20}, [5, 4, 3]),
        ({"shape": (0,), "offset": 999}, []),
    ):
        got = ferry.to(speaks(__array_interface__=whole | change), "numpy")
        assert got.tolist() == values
    held = ferry.to(speaks(__array_interface__=whole), "numpy")
    assert np.shares_memory(held, np.frombuffer(memory, np.uint8))
    with pytest.raises(BufferError):
        memory.clear()
    read_only = ferry.to(speaks(__array_interface__=GOOD | {"data": bytes(memory)}), "numpy")
    assert not read_only.flags.writeable


def test_attributes_that_raise():
    for name in ("__array_interface__", "__array__", "__dlpack__"):
        thing = speaks(**{name: property(raiser(RuntimeError("no\nsuch\nthing")))})
        refused(ferry.FerryError, Exception, lambda thing=thing: ferry.to(thing, "numpy"))


@pytest.mark.parametrize(
    "method",
    [
        lambda self, *_, **__: None,
        lambda self, *_, **__: [1, 2],
        lambda self, *_, **__: np.array([None]),
    ],
    ids=["None", "list", "objects"],
)
def test_array_methods_that_break(method):
    refused_everywhere(ferry.FerryError, Exception, speaks(__array__=method))


def test_an_array_method_that_raises():
    thing = speaks(__array__=raiser(RuntimeError("boom\nmore")))
    # It may be that only copy=False is an error.
    refused_everywhere(ferry.FerryError, Exception, thing, in_plans=False)


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int32), ("b", ctypes.c_double))


# Python 3.13 renamed the type code.
UNICODE = "w" if sys.version_info >= (3, 13) else "u"
BUFFERS = {
    "structs": lambda: (Pair * 3)(),
    "unicode": lambda: array.array(UNICODE, "abc"),
    "objects": lambda: (ctypes.py_object * 2)(),
    "memoryview of objects": lambda: memoryview(np.array([1, None], dtype=object)),
    "pointers": lambda: (ctypes.c_void_p * 2)(),
    "function pointers": lambda: (ctypes.CFUNCTYPE(None) * 2)(),
    "strings": lambda: memoryview(np.array([b"abc", b"de"])),
    "long doubles": lambda: memoryview(np.zeros(3, np.longdouble)),
    "wide characters": lambda: (ctypes.c_wchar * 3)(),
    "two fields": lambda: _testbuffer.ndarray([(1, 2)], shape=[1], format="ii"),
    "repeated": lambda: _testbuffer.ndarray([(1, 2)], shape=[1], format="2i"),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_without_numbers(name):
    error = refused_everywhere(ferry.UnsupportedDTypeError, TypeError, BUFFERS[name]())
    assert "format" in str(error)


def test_buffers_behind_pointers():
    indirect = _testbuffer.ndarray(
        list(range(6)), shape=[2, 3], format="i", flags=_testbuffer.ND_PIL
    )
    assert memoryview(indirect).suboffsets
    refused_everywhere(ferry.UnsupportedError, ValueError, indirect)


def test_buffers_that_are_closed():
    view = memoryview(bytearray(8))
    view.release()
    closed = mmap.mmap(-1, 4096)
    closed.close()
    for thing in (view, closed):
        refused_everywhere(ferry.FerryError, Exception, thing)
