"""Errors of loaders and conversions arrive at the batch where they belong; Ctrl-C, exit, fork."""

from __future__ import annotations

import signal
import threading
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import subprocesses
from support.feeding import Steps, feeders, wait_for_death
from support.introspect import check_tensor
from support.share_counts import soon

import tensorferry as ferry


class OwnError(BaseException):
    """Not an Exception."""


def values(number: int) -> np.ndarray:
    return np.full(100, number, np.float32)


def read_file_that_is_not_there() -> None:
    raise FileNotFoundError("shard 3")


def failing_loader(after: int) -> Iterator[np.ndarray]:
    for number in range(after):
        yield values(number)
    read_file_that_is_not_there()


def test_a_dict_is_a_batch_and_no_loader():
    batch = {"x": values(1)}
    with pytest.raises(ferry.InvalidArgumentError, match=r"dict.*keys\nhint: .*\[x\]"):
        ferry.feed(batch, "torch")
    assert [list(fed) for fed in ferry.feed([batch], "torch")] == [["x"]]
    assert len(list(ferry.feed({"train": [batch]}["train"], "torch"))) == 1


@pytest.mark.parametrize("prefetch", [1, 2, 8])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_error_of_the_loader_arrives_at_its_batch(after: int, prefetch: int) -> None:
    epoch = iter(ferry.feed(failing_loader(after), "torch", prefetch=prefetch))
    for number in range(after):
        check_tensor("torch", next(epoch), values(number))
    with pytest.raises(FileNotFoundError, match="shard 3") as caught:
        next(epoch)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["failing_loader", "read_file_that_is_not_there"]
    assert frames[0] == "test_an_error_of_the_loader_arrives_at_its_batch"
    # The epoch is over.
    for _ in range(2):
        assert next(epoch, "the end") == "the end"


ERRORS = [ValueError("one"), OwnError("two"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_class_of_errors(error: BaseException) -> None:
    steps = Steps([values(0), error])
    steps.allow(2)
    epoch = iter(ferry.feed(steps, "torch"))
    check_tensor("torch", next(epoch), values(0))
    with pytest.raises(type(error)) as caught:
        next(epoch)
    assert caught.value is error
    assert list(epoch) == []


def test_another_epoch_starts_after_an_error() -> None:
    class Loader:
        def __init__(self) -> None:
            self.count = 0

        def __iter__(self) -> Iterator[np.ndarray]:
            self.count += 1
            return failing_loader(self.count)

    feed = ferry.feed(Loader(), "torch")
    for count in (1, 2, 3):
        epoch = iter(feed)
        assert [int(next(epoch)[0]) for _ in range(count)] == list(range(count))
        with pytest.raises(FileNotFoundError):
            next(epoch)


def test_an_error_of_iter_is_raised_at_once() -> None:
    class Loader:
        def __iter__(self) -> Iterator[Any]:
            raise PermissionError("no access")

    feed = ferry.feed(Loader(), "torch")
    with pytest.raises(PermissionError, match="no access"):
        iter(feed)
    assert not feeders()


def test_an_iter_that_returns_no_iterator() -> None:
    class Loader:
        def __iter__(self) -> Any:
            return 3

    with pytest.raises(TypeError, match="iter"):
        iter(ferry.feed(Loader(), "torch"))


class Iterations:
    """An iterator that ends with a value, and would go on after its end."""

    def __init__(self) -> None:
        self.calls = 0

    def __iter__(self) -> Iterations:
        return self

    def __next__(self) -> np.ndarray:
        self.calls += 1
        if self.calls == 3:
            raise StopIteration("a value")
        return values(self.calls)


def test_stop_iteration_is_the_end() -> None:
    loader = Iterations()
    epoch = iter(ferry.feed(loader, "torch", prefetch=5))
    assert len(list(epoch)) == 2
    assert list(epoch) == []
    assert loader.calls == 3


def test_stop_iteration_inside_a_generator_is_an_error() -> None:
    def loader() -> Iterator[np.ndarray]:
        yield values(0)
        next(iter([]))

    epoch = iter(ferry.feed(loader(), "torch"))
    next(epoch)
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        next(epoch)


class RaisesStopIteration:
    """A batch whose conversion raises what would end a loop."""

    def __dlpack__(self, **options: Any) -> Any:
        raise StopIteration

    def __dlpack_device__(self) -> tuple[int, int]:
        raise StopIteration


def test_stop_iteration_of_a_conversion_does_not_end_the_epoch_in_silence() -> None:
    epoch = iter(ferry.feed([values(0), RaisesStopIteration(), values(1)], "torch"))
    next(epoch)
    with pytest.raises((RuntimeError, ferry.FerryError)):
        next(epoch)


@pytest.mark.parametrize("is_stable", [True, False], ids=["list", "generator"])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_an_error_of_a_conversion_arrives_at_its_batch(prefetch: int, is_stable: bool) -> None:
    """As `to` raises it, and after the batches before it."""
    wrong = {"x": [np.zeros(1, [("a", "int32")])]}
    with pytest.raises(ferry.FerryError) as expected:
        ferry.to(wrong, "torch")
    batches = [values(0), values(1), wrong, values(3)]
    loader = batches if is_stable else (batch for batch in batches)
    epoch = iter(ferry.feed(loader, "torch", prefetch=prefetch))
    for number in range(2):
        check_tensor("torch", next(epoch), values(number))
    with pytest.raises(type(expected.value)) as caught:
        next(epoch)
    assert str(caught.value) == str(expected.value)
    assert next(epoch, "the end") == "the end"


def test_no_batch_is_pulled_after_an_error() -> None:
    steps = Steps([values(0), {"x": np.zeros(1, [("a", "int32")])}, values(2)])
    steps.allow(3)
    epoch = iter(ferry.feed(steps, "torch", prefetch=3))
    next(epoch)
    with pytest.raises(ferry.FerryError):
        next(epoch)
    assert soon(lambda: not feeders()), "the feeder runs"
    assert steps.requests == 2


def test_an_error_keeps_no_batch_alive() -> None:
    """Neither those before it nor the one that could not be converted."""
    references: list[weakref.ref[Any]] = []

    def make(number: int) -> Any:
        batch = values(number) if number < 3 else np.zeros(1, [("a", "int32")])
        references.append(weakref.ref(batch))
        return [batch]

    for prefetch in (1, 5):
        epoch = iter(ferry.feed(map(make, range(5)), "torch", prefetch=prefetch, copy=False))
        with pytest.raises(ferry.FerryError) as caught:
            list(epoch)
        assert "at [0]" in str(caught.value)
        wait_for_death(references[:3])
        del caught
        wait_for_death(references)


def test_an_error_after_the_end_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it, and a thread must not print it either."""
    printed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    steps = Steps([ValueError("too late")])
    feed = ferry.feed(steps, "torch")
    epoch = iter(feed)
    steps.wait_for_requests(1)
    feed.close()
    steps.allow()
    assert soon(lambda: not feeders()), "the feeder runs"
    assert printed == []
    assert list(epoch) == []


def test_an_interrupt_ends_the_wait_at_once() -> None:
    assert subprocesses.run_program("feeding/interrupts.py", "interrupt") == (
        "interrupted while the loader is blocked\nbatches 0 1 2\n"
    )


def test_an_interrupt_ends_the_process() -> None:
    done = subprocesses.attempt_program("feeding/interrupts.py", "not_caught")
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


EXITS = [
    "blocked_for_ever",
    "blocked_in_a_call",
    "consumer_waits",
    "middle_of_an_epoch",
    "many_epochs",
]


@pytest.mark.parametrize("case", EXITS)
def test_the_exit_of_the_interpreter(case: str) -> None:
    """Workers of a DataLoader are in `test_loaders.py`, tf.data and JAX in `test_sharding.py`."""
    assert subprocesses.run_program("feeding/exits.py", case) == "at the end\n"


def test_the_child_of_a_fork() -> None:
    assert subprocesses.run_program("feeding/forks_of_epochs.py") == (
        "the epoch belongs to the process that forked this one"
        "\nhint: iterate over the feed in the process that uses it\n"
        "child has a new epoch 0 1 2\n"
        "parent goes on 1 2\n"
        "children while the feeder runs 6\n"
    )
