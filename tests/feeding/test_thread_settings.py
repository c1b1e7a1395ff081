"""The feeder runs under the settings of the thread that starts the epoch."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import subprocesses
from support.feeding import Steps
from support.introspect import x64

import tensorferry as ferry
from tensorferry.feeding import epoch as epoch_module
from tensorferry.feeding.thread_settings import ThreadSettings

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="not set")


def run_on_another_thread(function: Callable[[], None]) -> None:
    """Calls a function on a new thread; raises what it raises."""
    errors = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(subprocesses.HANG_SECONDS)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_context_variables() -> None:
    def loader() -> Iterator[Any]:
        yield np.ones(1), variable.get()
        variable.set("set by the loader")
        yield np.ones(1), variable.get()

    token = variable.set("set by the consumer")
    try:
        found = [text for _, text in ferry.feed(loader(), "numpy")]
        assert found == ["set by the consumer", "set by the loader"]
        # The feeder has a copy of the context.
        assert variable.get() == "set by the consumer"
    finally:
        variable.reset(token)
    assert next(iter(ferry.feed(loader(), "numpy")))[1] == "not set"


def test_settings_are_taken_when_an_epoch_starts() -> None:
    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return ((np.ones(1), variable.get()) for _ in range(1))

    feed = ferry.feed(Loader(), "numpy")
    token = variable.set("later")
    try:
        epoch = iter(feed)
    finally:
        variable.reset(token)
    assert [text for _, text in epoch] == ["later"]
    assert [text for _, text in feed] == ["not set"]


@pytest.mark.parametrize("is_stable", [True, False], ids=["list", "generator"])
def test_64_bit_types_of_jax(is_stable: bool) -> None:
    """`jax.enable_x64` is for one thread: the consumer's holds for the feeder."""
    batches = [np.arange(3.0), np.arange(3)]

    def loader() -> Any:
        return batches if is_stable else (batch for batch in batches)

    for is_on in (True, False, True):
        with x64(is_on):
            expected = [outcome(lambda batch=batch: ferry.to(batch, "jax")) for batch in batches]
            assert ("float64" in expected) == is_on
            for batch, dtype in zip(batches, expected, strict=True):
                assert outcome(lambda batch=batch: next(iter(ferry.feed([batch], "jax")))) == dtype
            if is_on:
                assert [str(batch.dtype) for batch in ferry.feed(loader(), "jax")] == expected


def outcome(convert: Callable[[], Any]) -> str:
    """The type of a result, or the class of the error."""
    try:
        return str(convert().dtype)
    except ferry.FerryError as error:
        return type(error).__name__


def test_64_bit_types_of_two_epochs() -> None:
    """Each epoch has the settings under which it began, whatever holds at each batch."""
    steps = Steps([np.arange(3.0), np.arange(4.0)])
    with x64(True):
        wide = iter(ferry.feed(steps, "jax"))
    with x64(False):
        narrow = iter(ferry.feed([np.arange(3.0)] * 2, "jax", dtype="float32"))
        steps.allow(3)
        assert [str(batch.dtype) for batch in wide] == ["float64", "float64"]
        assert [str(batch.dtype) for batch in narrow] == ["float32", "float32"]


def test_a_loader_that_uses_jax_sees_the_settings() -> None:
    import jax.numpy as jnp

    def loader() -> Iterator[Any]:
        yield jnp.arange(3.0)

    with x64(True):
        (batch,) = ferry.feed(loader(), "jax")
    assert str(batch.dtype) == "float64"


def test_a_trace_of_the_consumer_records_the_trips() -> None:
    batches = [{"x": np.full(100, number), "y": np.zeros(3)} for number in range(3)]
    for is_stable in (True, False):
        loader = batches if is_stable else (batch for batch in batches)
        with ferry.trace() as trips:
            found = list(ferry.feed(loader, "torch"))
        assert len(found) == 3
        assert [trip.plan.shape for trip in trips] == [(100,), (3,)] * 3
        assert [trip.shares for trip in trips] == [is_stable] * 6
    assert len(list(ferry.feed(batches, "torch"))) == 3
    assert len(trips) == 6


def test_a_trace_of_another_thread_records_nothing() -> None:
    feed = ferry.feed([np.zeros(3)] * 3, "torch")
    recorded = []

    def run() -> None:
        assert len(list(feed)) == 3
        recorded.append(len(trips))

    with ferry.trace() as trips:
        run_on_another_thread(run)
        assert len(trips) == recorded[0]


class FakeCuda:
    """The functions of `torch.cuda` and `cupy.cuda` for the current device, which each thread
    has for itself."""

    def __init__(self, is_ready: bool = True) -> None:
        self._local = threading.local()
        self.is_ready = is_ready
        self.runtime = types.SimpleNamespace(getDevice=self.current_device)

    def is_initialized(self) -> bool:
        return self.is_ready

    is_available = is_initialized

    def current_device(self) -> int:
        assert self.is_ready, "asking would start CUDA"
        return getattr(self._local, "index", 0)

    @contextlib.contextmanager
    def device(self, index: int) -> Iterator[None]:
        before = self.current_device()
        self._local.index = index
        try:
            yield
        finally:
            self._local.index = before

    Device = device


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_the_current_cuda_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, idle = FakeCuda(), FakeCuda(is_ready=False)
    for module in ("torch", "cupy"):
        fake = types.SimpleNamespace(cuda=cuda if module == name else idle)
        monkeypatch.setitem(sys.modules, module, fake)
    seen = []

    def run() -> None:
        assert cuda.current_device() == 0
        settings.run(lambda: seen.append(cuda.current_device()))
        assert cuda.current_device() == 0

    with cuda.device(3):
        settings = ThreadSettings()
        run_on_another_thread(run)
    assert seen == [3]


def test_cuda_is_not_started_for_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "cupy"):
        fake = types.SimpleNamespace(cuda=FakeCuda(is_ready=False))
        monkeypatch.setitem(sys.modules, module, fake)
    seen = []
    ThreadSettings().run(lambda: seen.append("called"))
    assert seen == ["called"]


@pytest.mark.parametrize("names", [["jax"], ["torch"], ["cupy"], ["jax", "torch", "cupy"]], ids=str)
def test_frameworks_that_another_thread_is_importing(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules are in `sys.modules` before they have their names."""
    for name in ("jax", "torch", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    seen = []
    ThreadSettings().run(lambda: seen.append("called"))
    assert seen == ["called"]


def test_an_error_of_the_settings_reaches_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(ThreadSettings):
        def run(self, function: Callable[[], None]) -> None:
            raise OSError("the device was lost")

    monkeypatch.setattr(epoch_module, "ThreadSettings", Failing)
    epoch = iter(ferry.feed([np.zeros(3)], "numpy"))
    with pytest.raises(OSError, match="the device was lost"):
        next(epoch)
    assert list(epoch) == []
