"""Producers of DLPack: which keywords they know, where their memory is, and what deleters do."""

from __future__ import annotations

import functools
import gc
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import c_table
from support.invalid_capsules import Producer
from support.refusals import refused
from support.share_counts import soon

import tensorferry as ferry

TARGETS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class Host:
    """A producer over the memory of NumPy, on the host, which counts the calls."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def export(self, **keywords: Any) -> Any:
        self.calls.append(keywords)
        return VALUES.__dlpack__(**keywords)


# Keywords.


class Old(Host):
    def __dlpack__(self, stream: Any = None) -> Any:
        return self.export()


class Wrapped(Host):
    """Passes its keywords on, so that the error has a frame of its own."""

    def old(self, stream: Any = None) -> Any:
        return self.export()

    def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.old(*arguments, **keywords)


class Decorated(Host):
    @staticmethod
    def log(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return function(*arguments, **keywords)

        return call


Decorated.__dlpack__ = Decorated.log(Old.__dlpack__)  # type: ignore[attr-defined]


class Native(Host):
    """A function in C, whose TypeError has neither a frame nor the usual words."""

    @property
    def __dlpack__(self) -> Any:
        return functools.partial(operator.methodcaller("export"), self)


@pytest.mark.parametrize("kind", [Old, Wrapped, Decorated, Native])
def test_producers_older_than_versions_are_called_again(kind: type[Host]) -> None:
    for target in TARGETS:
        producer = kind()
        np.testing.assert_array_equal(ferry.to(ferry.to(producer, target), "numpy"), VALUES)
        assert producer.calls == [{}]


class Failing(Host):
    """Raises an error at every call."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def __dlpack__(self, **keywords: Any) -> Any:
        self.calls.append(keywords)
        raise self.error


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("argument must be an integer", 1),
        ("got an unexpected keyword argument 'stream'", 1),
        ("wrong argument max_version", 1),
        ("f() got an unexpected keyword argument 'max_version'", 2),
    ],
)
def test_a_producer_is_called_again_at_most_once_and_only_for_the_keyword(
    text: str, calls: int
) -> None:
    # One exception at both calls, which cannot be its own cause.
    producer = Failing(TypeError(text))
    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(producer, "numpy"))
    assert [sorted(keywords) for keywords in producer.calls] == [["max_version"], []][:calls]
    assert isinstance(error.__cause__, TypeError)
    assert error.__cause__.__cause__ is None


def test_the_first_error_stays_as_the_cause() -> None:
    class Failed(Host):
        def __dlpack__(self, stream: Any = None) -> Any:
            raise ValueError("no memory for this")

    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(Failed(), "numpy"))
    assert "no memory for this" in str(error)
    second = error.__cause__
    assert isinstance(second, ValueError)
    assert "max_version" in str(second.__cause__)

    class Explained(Host):
        def __dlpack__(self, stream: Any = None) -> Any:
            raise ValueError("no memory for this") from OSError("full")

    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(Explained(), "numpy"))
    assert str(error.__cause__.__cause__) == "full"  # type: ignore[union-attr]


@pytest.mark.parametrize("target", TARGETS)
def test_a_buffer_error_stays_one(target: str) -> None:
    producer = Failing(BufferError("this dtype cannot be exported"))
    error = refused(ferry.InvalidTensorError, BufferError, lambda: ferry.to(producer, target))
    assert "this dtype cannot be exported" in str(error)
    assert error.__cause__ is producer.error


# Memory that the capsule does not hold.


class Careless(Host):
    """A producer that alone knows what keeps its memory: its capsule does not hold it."""

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.export(**keywords)


SHARES: dict[str, Callable[[Any], Any]] = {
    "to": lambda x: ferry.to(x, "torch"),
    "tree": lambda x: ferry.to({"x": [x]}, "numpy"),
    "to_async": lambda x: ferry.to_async(x, "numpy").result(),
    "the C table": c_table.take,
    "a view": lambda x: ferry.to(x, "numpy")[1:].T,
    "through another": lambda x: ferry.to(ferry.to(x, "numpy"), "torch"),
}


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
def test_the_producer_lives_as_long_as_its_memory_is_used(share: Callable[[Any], Any]) -> None:
    producer = Careless()
    seen = weakref.ref(producer)
    result = share(producer)
    del producer
    gc.collect()
    assert seen() is not None
    del result
    assert soon(lambda: gc.collect() >= 0 and seen() is None)


def test_a_producer_is_released_on_a_thread_without_the_interpreter() -> None:
    producer = Careless()
    seen = weakref.ref(producer)
    taken = c_table.take(producer)
    del producer
    taken.release(with_gil=False)
    assert soon(lambda: gc.collect() >= 0 and seen() is None)


# Devices that only the producer reads.

ONEAPI, METAL, ROCM = 14, 8, 10


class Accelerator:
    """A tensor on a device whose memory nobody else reads. It counts what it copies to the host."""

    def __init__(self, kind: int = ONEAPI, index: int = 1, shares: bool = False) -> None:
        self.device = (kind, index)
        self.downloads = 0
        self.host = VALUES.copy()
        self.shares = shares

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        assert stream is None
        if dl_device is None:
            return Producer(device=self.device, null=False).capsule
        assert (dl_device, copy) == ((1, 0), None)
        self.downloads += 1
        memory = self.host if self.shares else self.host.copy()
        return memory.__dlpack__(max_version=max_version)


@pytest.mark.parametrize("kind", [ONEAPI, METAL, ROCM])
@pytest.mark.parametrize("target", TARGETS)
def test_a_device_that_only_the_producer_reads_is_downloaded_by_it(target: str, kind: int) -> None:
    source = Accelerator(kind)
    plan = ferry.plan(source, target)
    assert (plan.action, plan.bytes_moved, source.downloads) == ("copy", VALUES.nbytes, 0)
    assert "downloaded by its own framework" in str(plan)
    assert plan.source_device in str(plan)
    with ferry.trace() as trips:
        found = ferry.to(source, target)
    np.testing.assert_array_equal(ferry.to(found, "numpy"), VALUES)
    assert source.downloads == 1
    assert [trip.plan.action for trip in trips][:1] == ["copy"]


def test_every_door_downloads(tmp_path: Any) -> None:
    def check(found: Any) -> None:
        np.testing.assert_array_equal(ferry.to(found, "numpy"), VALUES)

    check(ferry.to({"x": [Accelerator()]}, "torch")["x"][0])
    check(ferry.to_async(Accelerator(), "torch").result())
    check(ferry.attach(ferry.publish(Accelerator()), "numpy"))
    ferry.save(tmp_path / "x.npy", Accelerator())
    check(ferry.load(tmp_path / "x.npy", "numpy"))
    check(ferry.to(Accelerator(), "numpy", out=np.empty_like(VALUES)))
    check(ferry.to(Accelerator(), "numpy", dtype="float64"))
    (batch,) = ferry.feed([[Accelerator()]], "torch")
    check(batch[0])


@pytest.mark.parametrize(
    "answer",
    [VALUES.astype("c8"), VALUES.astype("f8"), VALUES[:1], VALUES.T],
    ids=["0", "1", "2", "3"],
)
def test_a_download_that_is_not_what_was_stated(answer: np.ndarray, tmp_path: Any) -> None:
    def source() -> Accelerator:
        made = Accelerator()
        made.host = answer
        return made

    calls: list[Callable[[], Any]] = [
        lambda: ferry.to(source(), "torch"),
        lambda: ferry.to([source()], "numpy"),
        lambda: ferry.to_async(source(), "torch").result(),
        lambda: ferry.to(source(), "numpy", out=np.zeros_like(VALUES)),
        lambda: ferry.save(tmp_path / "x.npy", source()),
        lambda: ferry.publish(source()),
    ]
    for call in calls:
        assert "(2, 3)" in str(refused(ferry.InvalidTensorError, BufferError, call)).replace(
            "[", "("
        ).replace("]", ")")


def test_memory_that_device_and_host_share_is_copied() -> None:
    source = Accelerator(shares=True)
    found = ferry.to(source, "numpy")
    assert not np.shares_memory(found, source.host)
    found[:] = 0
    np.testing.assert_array_equal(source.host, VALUES)
    column = pa.array(ferry.arrow.export(source))
    source.host[:] = 99
    assert column.to_pylist() == VALUES.tolist()


def test_a_download_is_a_copy() -> None:
    source = Accelerator()
    error = refused(
        ferry.CopyRequiredError, BufferError, lambda: ferry.to(source, "numpy", copy=False)
    )
    assert "oneapi:1" in str(error)
    assert source.downloads == 0


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (BufferError("no copy to the host"), ferry.InvalidTensorError),
        (TypeError("unexpected keyword argument 'dl_device'"), ferry.FrameworkError),
        (Producer(device=(ONEAPI, 1)), ferry.UnsupportedError),
    ],
    ids=["refuses", "older", "returns another device"],
)
def test_a_producer_that_does_not_download(answer: Any, kind: type[Exception]) -> None:
    class Refusing(Accelerator):
        def __dlpack__(self, **keywords: Any) -> Any:
            if "dl_device" not in keywords:
                return super().__dlpack__(**keywords)
            if isinstance(answer, Exception):
                raise answer
            return answer.capsule

    error = refused(kind, Exception, lambda: ferry.to(Refusing(), "numpy"))
    assert "oneapi:1" in str(error)
    assert "CPU" in error.hint


def test_a_producer_older_than_the_download() -> None:
    class Older(Accelerator):
        def __dlpack__(self, *, stream: Any = None) -> Any:
            return super().__dlpack__(stream=stream)

    for x in (Older(), {"a": Older()}):
        for call in (ferry.plan, ferry.to, ferry.to_async):
            error = refused(ferry.UnsupportedError, Exception, lambda x=x, c=call: c(x, "numpy"))
            assert "oneapi:1" in str(error)
            assert "CPU" in error.hint


def test_a_producer_that_refuses_its_own_device() -> None:
    class Refusing(Accelerator):
        def __dlpack__(self, **keywords: Any) -> Any:
            raise BufferError("only for this library")

    for call in (ferry.to, ferry.plan):
        error = refused(
            ferry.InvalidTensorError, BufferError, lambda c=call: c(Refusing(METAL, 0), "numpy")
        )
        assert "metal:0" in str(error)


# Deleters.


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("target", TARGETS)
def test_a_deleter_that_runs_python_keeps_the_pending_exception(
    target: str, version: tuple[int, int] | None
) -> None:
    """Python destroys the first argument while the exception of the second one is pending."""
    producer = Producer(version=version)
    with pytest.raises(ZeroDivisionError):
        print(ferry.to(producer, target), 1 // 0)
