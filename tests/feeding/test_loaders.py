"""Loaders of other libraries: what each returns arrives, in as many epochs as the loader has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import grain
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import torch
import torch.utils.data
from support import subprocesses
from support.introspect import check_tensor
from support.refusals import fact_and_hint

import tensorferry as ferry
from tensorferry import arrow

ROWS, SIZE = 10, 4
LENGTHS = [4, 4, 2]


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(3, index, np.float32), "y": index * index}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (Squares()[index] for index in range(ROWS))


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """As the default function does, but with arrays of NumPy."""
    x = np.stack([sample["x"] for sample in samples])
    return {"x": x, "y": np.array([sample["y"] for sample in samples])}


def expected(start: int, stop: int) -> dict[str, np.ndarray]:
    return collate([Squares()[index] for index in range(start, stop)])


def batch_list() -> list[dict[str, np.ndarray]]:
    return [expected(start, min(start + SIZE, ROWS)) for start in range(0, ROWS, SIZE)]


class OnlyGetItem:
    """The old protocol of sequences: numbers from 0 until IndexError."""

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return batch_list()[index]


class MapStyle:
    """A dataset with a length, which returns something for every index."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return batch_list()[index % len(LENGTHS)]


class Restartable:
    """Has an `__iter__` and no length."""

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return iter(batch_list())


def table() -> pa.Table:
    whole = expected(0, ROWS)
    x = pa.FixedSizeListArray.from_arrays(pa.array(whole["x"].reshape(-1)), 3)
    return pa.table({"x": x, "y": whole["y"]})


def tf_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(expected(0, ROWS)).batch(SIZE)


def grain_dataset() -> grain.MapDataset:
    return grain.MapDataset.source(Squares()).batch(SIZE)


def torch_loader(dataset: Any = None, **options: Any) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(dataset or Squares(), SIZE, **options)


LOADERS: dict[str, Callable[[], Any]] = {
    "list": batch_list,
    "tuple": lambda: tuple(batch_list()),
    "only __getitem__": OnlyGetItem,
    "map style without IndexError": MapStyle,
    "only __iter__": Restartable,
    "generator": lambda: (batch for batch in batch_list()),
    "iterator": lambda: iter(batch_list()),
    "map": lambda: map(dict, batch_list()),
    "DataLoader": torch_loader,
    "DataLoader with a collate function": lambda: torch_loader(collate_fn=collate),
    "DataLoader of an iterable dataset": lambda: torch_loader(Stream()),
    "tf.data": tf_dataset,
    "tf.data with prefetch": lambda: tf_dataset().prefetch(2),
    "tf.data as NumPy": lambda: tf_dataset().as_numpy_iterator(),
    "Grain": grain_dataset,
    "Grain with threads": lambda: grain_dataset().to_iter_dataset(),
    "Grain with prefetch": lambda: grain_dataset().to_iter_dataset(
        grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)
    ),
    "batches of a table": lambda: arrow.batches(table(), SIZE, "numpy"),
    "Hugging Face": lambda: arrow.batches(datasets.Dataset(table()), SIZE, "numpy"),
}
ONCE = {
    "generator",
    "iterator",
    "map",
    "tf.data as NumPy",
    "batches of a table",
    "Hugging Face",
}
WITHOUT_LENGTH = ONCE | {
    "only __getitem__",
    "only __iter__",
    "DataLoader of an iterable dataset",
    "Grain with threads",
    "Grain with prefetch",
}


def check_epoch(found: list[Any], target: str) -> None:
    assert [len(batch["y"]) for batch in found] == LENGTHS
    for number, batch in enumerate(found):
        start = number * SIZE
        wanted = expected(start, min(start + SIZE, ROWS))
        assert set(batch) == {"x", "y"}
        for name, values in wanted.items():
            check_tensor(target, batch[name], values)


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
@pytest.mark.parametrize("name", LOADERS)
def test_every_batch_arrives_in_every_epoch(name: str, target: str) -> None:
    feed = ferry.feed(LOADERS[name](), target)
    check_epoch(list(feed), target)
    if name not in ONCE:
        check_epoch(list(feed), target)
        assert feed.stats().batches == 2 * len(LENGTHS)
        return
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        list(feed)
    fact, hint = fact_and_hint(caught.value)
    assert "once" in fact
    assert "new feed" in hint


@pytest.mark.parametrize("name", LOADERS)
def test_the_length_is_that_of_the_loader(name: str) -> None:
    feed = ferry.feed(LOADERS[name](), "torch")
    if name in WITHOUT_LENGTH:
        with pytest.raises(TypeError):
            len(feed)
    else:
        assert len(feed) == len(LENGTHS)


@pytest.mark.parametrize("name", sorted(set(LOADERS) - ONCE))
def test_two_epochs_at_the_same_time(name: str) -> None:
    feed = ferry.feed(LOADERS[name](), "torch", prefetch=1)
    first, second = [], []
    for one, other in zip(feed, feed, strict=True):
        first.append(one)
        second.append(other)
    check_epoch(first, "torch")
    check_epoch(second, "torch")


def test_epochs_on_two_threads() -> None:
    feed = ferry.feed(batch_list(), "torch")
    found: dict[int, list[Any]] = {}

    def run(number: int) -> None:
        found[number] = list(feed)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(subprocesses.HANG_SECONDS)
    for number in range(4):
        check_epoch(found[number], "torch")


def test_one_epoch_for_two_threads() -> None:
    """Each batch goes to one of the threads that take from one iterator."""
    count = 200
    epoch = iter(ferry.feed((np.full(3, number) for number in range(count)), "torch", prefetch=3))
    found: list[int] = []

    def run() -> None:
        found.extend(int(batch[0]) for batch in epoch)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(subprocesses.HANG_SECONDS)
    assert sorted(found) == list(range(count))


def test_a_generator_that_was_begun_gives_the_rest() -> None:
    loader = (batch for batch in batch_list())
    next(loader)
    found = list(ferry.feed(loader, "torch"))
    assert [len(batch["y"]) for batch in found] == LENGTHS[1:]


def test_a_feed_of_a_feed() -> None:
    """A feed is iterable, and therefore a loader."""
    inner = ferry.feed(batch_list(), "numpy")
    outer = ferry.feed(inner, "torch", dtype={"x": "float64", "y": None})
    assert len(outer) == len(LENGTHS)
    for batch, wanted in zip(outer, batch_list(), strict=True):
        check_tensor("torch", batch["x"], wanted["x"].astype(np.float64))


@pytest.mark.parametrize("make", [lambda rows: rows, lambda rows: rows.to_iterable_dataset()])
def test_a_dataset_without_a_format_is_fed_through_arrow(make: Any) -> None:
    """Its rows are Python objects. The hint says what to feed."""
    dataset = make(datasets.Dataset(pa.table({"y": [1, 2, 3], "x": [0.5, 1.5, 2.5]})))
    with pytest.raises(ferry.NotATensorError) as caught:
        list(ferry.feed(dataset, "torch"))
    fact, hint = fact_and_hint(caught.value)
    assert fact == "batch 0: the dict holds no tensor: its first leaf is an object of type int"
    assert 'feed ferry.arrow.batches(dataset, rows, "numpy")' in hint
    # Its splits are a dict, and its columns no datasets.
    with pytest.raises(ferry.InvalidArgumentError, match="the loader among its values"):
        ferry.feed(datasets.DatasetDict({"train": dataset}), "torch")
    with pytest.raises(ferry.NotATensorError) as caught:
        list(ferry.feed(dataset["y"], "torch"))
    assert "ferry.arrow" not in caught.value.hint
    rows = 2
    found = list(ferry.feed(ferry.arrow.batches(dataset, rows, "numpy"), "torch"))
    assert [batch["x"].tolist() for batch in found] == [[0.5, 1.5], [2.5]]
    assert [row["x"].item() for row in ferry.feed(dataset.with_format("torch"), "torch")] == [
        0.5,
        1.5,
        2.5,
    ]


def test_workers() -> None:
    """DataLoader with two workers, in a process without JAX, whose threads a fork would lose. The
    process exits in the middle of epochs."""
    told = subprocesses.run_program("feeding/loader_workers.py")
    assert told == "new workers 12 12\npersistent workers 12 12\nearly exit 3\nat the end\n"


class Restarting:
    """An iterator whose `__iter__` begins again."""

    def __iter__(self) -> Restarting:
        self.left = 3
        return self

    def __next__(self) -> Any:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return np.ones(2)


class UsedUp(Restarting):
    """An iterator that ends once."""

    left = 3

    def __iter__(self) -> UsedUp:
        return self


def test_an_iterator_that_begins_again_has_epochs() -> None:
    feed = ferry.feed(Restarting(), "torch")
    assert [len(list(feed)) for _ in range(3)] == [3, 3, 3]
    assert feed


def test_an_iterator_of_a_class_that_is_used_up_raises() -> None:
    feed = ferry.feed(UsedUp(), "torch")
    assert len(list(feed)) == 3
    with pytest.raises(ferry.InvalidArgumentError, match="an earlier epoch has used it"):
        list(feed)


def test_an_epoch_waits_for_the_feeder_of_one_that_was_left() -> None:
    """Some loaders have one iterator for all epochs."""
    entered, release = threading.Event(), threading.Event()
    inside: list[int] = []

    class Loader:
        def __iter__(self) -> Any:
            assert not inside, "the feeder of the last epoch is in the loader"
            yield np.zeros(1)
            inside.append(1)
            entered.set()
            assert release.wait(60)
            inside.pop()
            yield np.ones(1)

    feed = ferry.feed(Loader(), "torch")
    epoch = iter(feed)
    next(epoch)
    assert entered.wait(60)
    del epoch
    threading.Timer(0, release.set).start()
    assert len(list(feed)) == 2
