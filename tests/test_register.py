"""A framework that somebody else brings: registered by hand, or by an entry point."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil

import ml_dtypes
import numpy as np
import pytest
from support import subprocesses
from support.refusals import TARGETS, refused

import tensorferry as ferry

numbers = itertools.count()


class Toy:
    """A tensor of a framework that nobody has heard of."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def bring(**facts):
    """Registers a fresh framework; gives its name and its tensor type."""
    name = f"toy{next(numbers)}"
    kind = type(name.title(), (Toy,), {})
    ferry.register_framework(
        name,
        types=facts.pop("types", [kind]),
        read=facts.pop("read", lambda toy: toy.array),
        write=facts.pop("write", lambda parcel: kind(np.from_dlpack(parcel))),
        **facts,
    )
    return name, kind


def source() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("framework", TARGETS)
def test_there_and_back(framework):
    name, kind = bring(alignment=1)
    tensor = ferry.to(source(), framework, copy=True)
    toy = ferry.to(tensor, name)
    assert type(toy) is kind
    assert toy.array.tolist() == source().tolist()
    back = ferry.to(toy, framework)
    assert type(back) is type(tensor)
    assert ferry.to(back, "numpy").tolist() == source().tolist()
    assert ferry.plan(toy, framework).source == name
    assert ferry.plan(tensor, name).target == name


def test_memory_is_shared():
    name, kind = bring(alignment=1)
    x = source()
    toy = ferry.to(x, name)
    assert toy.array.ctypes.data == x.ctypes.data
    x[0, 0] = 9
    assert toy.array[0, 0] == 9
    tensor = ferry.to(kind(x), "torch")
    assert tensor.data_ptr() == x.ctypes.data
    assert ferry.plan(kind(x), "torch").action == "share"


def test_the_same_framework_gives_the_source_itself():
    name, kind = bring()
    toy = kind(source())
    assert ferry.to(toy, name) is toy
    assert ferry.to([toy], name)[0] is toy


def test_facts_are_kept():
    seen = []

    def write(parcel):
        array = np.from_dlpack(parcel)
        seen.append(array)
        return array.copy()

    dense, _ = bring(write=write)
    ferry.to(source().T, dense)
    assert seen[-1].flags.c_contiguous
    assert seen[-1].ctypes.data % 64 == 0
    permuted, _ = bring(write=write, strides="permuted", alignment=1)
    ferry.to(source().T, permuted)
    assert seen[-1].strides == (4, 12)
    ferry.to(source()[:, ::2], permuted)
    assert seen[-1].flags.c_contiguous
    forward, _ = bring(write=write, strides="forward", alignment=1)
    ferry.to(source()[:, ::2], forward)
    assert seen[-1].strides == (12, 8)
    ferry.to(source()[::-1], forward)
    assert seen[-1].flags.c_contiguous
    anything, _ = bring(write=write, strides="any", alignment=1)
    ferry.to(source()[::-1], anything)
    assert seen[-1].strides == (-12, 4)
    assert [array.tolist() for array in seen[:1]] == [source().T.tolist()]


def test_dtypes_are_kept():
    name, _ = bring(dtypes=["float32", "int8"])
    assert ferry.to(source(), name).array.dtype == np.float32
    refused(ferry.UnsupportedDTypeError, TypeError, lambda: ferry.to(np.ones(3), name))
    refused(
        ferry.UnsupportedDTypeError, TypeError, lambda: ferry.to(source(), name, dtype="float16")
    )
    assert ferry.to(np.ones(3), name, dtype="float32").array.tolist() == [1, 1, 1]
    assert ferry.to(np.ones(3, ml_dtypes.bfloat16), name, dtype="int8").array.dtype == np.int8


def test_ranks_are_kept():
    name, _ = bring(max_rank=2)
    assert ferry.to(source(), name).array.ndim == 2
    refused(ferry.UnsupportedError, ValueError, lambda: ferry.to(np.ones((1, 1, 1)), name))


def test_immutable_frameworks():
    name, kind = bring(immutable=True, alignment=1)
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(source(), name, writable=True))
    assert "do not write the source" in str(ferry.plan(source(), name))
    frozen = source()
    frozen.flags.writeable = False
    assert ferry.to(frozen, name).array.ctypes.data == frozen.ctypes.data, "shared as it is"
    result = ferry.to(kind(source()), "numpy")
    assert not result.flags.writeable
    assert "immutable" in str(ferry.plan(kind(source()), "torch"))


def test_writable_frameworks_get_no_frozen_memory():
    name, _ = bring(alignment=1)
    frozen = source()
    frozen.flags.writeable = False
    toy = ferry.to(frozen, name)
    assert toy.array.ctypes.data != frozen.ctypes.data
    assert toy.array.tolist() == frozen.tolist()


def test_the_reader_may_give_anything_readable():
    import torch

    for make in (lambda t: torch.from_numpy(t.array), lambda t: memoryview(t.array)):
        _, kind = bring(read=make)
        assert ferry.to(kind(source()), "jax").tolist() == source().tolist()

    class Speaks(Toy):
        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return (1, 0)

    bring(types=[Speaks], read=lambda toy: toy)
    assert ferry.to(Speaks(source()), "torch").tolist() == source().tolist()
    assert ferry.plan(Speaks(source()), "torch").source.startswith("toy")


def test_readers_and_writers_that_break():
    _, kind = bring(read=lambda toy: 3)
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(kind(None), "numpy"))

    def fail(_):
        raise KeyError("mine")

    name, kind = bring(read=fail, write=fail)
    for call in (lambda: ferry.to(kind(None), "numpy"), lambda: ferry.to(source(), name)):
        error = refused(ferry.FrameworkError, RuntimeError, call)
        assert name in str(error)
        assert "mine" in str(error)
        assert type(error.__cause__) is KeyError, "the traceback into the function is kept"
    loops, looping = bring(read=lambda toy: looping(toy.array))
    with pytest.raises((ferry.FerryError, RecursionError)):
        ferry.to(looping(source()), "numpy")
    assert ferry.to(source(), loops).array.tolist() == source().tolist()


def test_a_parcel_is_taken_once():
    kept = []
    name, _ = bring(write=lambda parcel: kept.append(parcel) or np.from_dlpack(parcel))
    x = ferry.to(source(), name)
    (parcel,) = kept
    assert parcel.__dlpack_device__() == (1, 0)
    refused(ferry.InvalidTensorError, BufferError, lambda: np.from_dlpack(parcel))
    assert x.tolist() == source().tolist()
    ferry.to(source(), bring(write=kept.append)[0])
    for words in ({"copy": True}, {"dl_device": (2, 0)}):
        refused(ferry.InvalidArgumentError, ValueError, lambda w=words: kept[-1].__dlpack__(**w))
    assert np.from_dlpack(kept[-1]).tolist() == source().tolist(), "refusing takes nothing"


def test_parcels_that_nobody_takes_are_freed():
    import gc
    import sys

    name, _ = bring(write=lambda parcel: None, alignment=1)
    x = source()
    before = sys.getrefcount(x)
    for _ in range(10):
        assert ferry.to(x, name) is None
    gc.collect()
    assert sys.getrefcount(x) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "torch"},
        {"name": "np"},
        {"alignment": 3},
        {"alignment": 128},
        {"alignment": 0},
        {"strides": "odd"},
        {"dtypes": ["float33"]},
        {"types": ["no colon"]},
        {"types": [3]},
        {"types": [list]},
        {"types": ["builtins:dict"]},
        {"types": [np.ndarray]},
        {"types": ["torch:Tensor"]},
        {"read": 2},
        {"write": "no"},
    ],
    ids=str,
)
def test_registrations_that_mean_nothing(wrong):
    facts = {"name": f"toy{next(numbers)}", "types": [Toy], "read": None, "write": None, **wrong}
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.register_framework(**facts))
    names = {info.name for info in ferry.frameworks()}
    assert facts["name"] not in names - set(TARGETS)


def test_a_name_is_taken_once():
    name, _ = bring()
    refused(
        ferry.InvalidArgumentError,
        ValueError,
        lambda: ferry.register_framework(name, types=[Toy], read=None, write=None),
    )


def test_a_type_is_claimed_once():
    _, kind = bring()
    error = refused(ferry.InvalidArgumentError, ValueError, lambda: bring(types=[kind]))
    assert kind.__qualname__ in str(error)
    assert ferry.to(kind(source()), "torch").tolist() == source().tolist()


def test_one_way_frameworks():
    name, kind = bring(read=None)
    assert type(ferry.to(source(), name)) is kind
    assert (
        "read="
        in refused(ferry.NotATensorError, TypeError, lambda: ferry.to(kind(0), "torch")).hint
    )
    name, kind = bring(write=None)
    assert ferry.to(kind(source()), "torch").tolist() == source().tolist()
    assert (
        "write="
        in refused(ferry.FrameworkNotFoundError, ImportError, lambda: ferry.to(source(), name)).hint
    )


def test_a_registration_is_seen_at_once():
    """What was concluded about the type before, and the names that errors list, change with it."""

    @dataclasses.dataclass
    class Late:
        array: np.ndarray

    result = ferry.to(Late(source()), "torch")
    assert type(result) is Late, "a dataclass is a tree"
    name, _ = bring(types=[Late], write=lambda parcel: Late(np.from_dlpack(parcel)))
    assert ferry.to(Late(source()), "torch").tolist() == source().tolist()
    assert name in {info.name for info in ferry.frameworks()}
    error = refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(source(), "nobody"))
    assert name in error.hint


def test_types_by_name_and_subclasses():
    class Late(Toy):
        pass

    class DelayedTensor(Late):
        pass

    bring(types=[f"{Late.__module__}:{Late.__qualname__}"])
    assert ferry.to(DelayedTensor(source()), "torch").tolist() == source().tolist()


def use_plugged(folder, package: str, case: str) -> None:
    """Runs a case with a package and its entry point in a folder on the path."""
    shutil.copy(subprocesses.program_path(package), folder / "plugged.py")
    info = folder / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tensorferry.frameworks]\nplugged = plugged:bring\n")
    path = os.pathsep.join((str(folder), subprocesses.program_environment()["PYTHONPATH"]))
    subprocesses.run_program("front/use_plugged.py", case, PYTHONPATH=path)


def test_an_entry_point(tmp_path):
    use_plugged(tmp_path, "front/plugged_package.py", "by_name")


def test_reading_a_tensor_of_an_entry_point(tmp_path):
    """A caller who has the tensor need not name its framework first."""
    use_plugged(tmp_path, "front/plugged_package.py", "by_tensor")


def test_an_entry_point_that_breaks_names_itself(tmp_path):
    use_plugged(tmp_path, "front/plugged_package_that_fails.py", "that_fails")
