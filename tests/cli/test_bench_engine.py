"""The engine of `tensorferry bench` and of the suites in `benches/`: rounds, timers, statistics."""

from __future__ import annotations

import json
import math
import runpy
import statistics
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensorferry._tools.bench import measure
from tensorferry._tools.bench.limits import ThreadedCopy, warm_buffers
from tensorferry._tools.bench.timings import (
    Timing,
    difference,
    interval,
    join,
    quickest,
    ratio,
    spread,
)

BENCHES = Path(__file__).parent.parent.parent / "benches"
RECORDS = [
    path
    for path in sorted((BENCHES / "records").glob("*.json"))
    if "sections" in json.loads(path.read_text())
]


class Clock:
    """A clock that only the measured work moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.order: list[tuple[str, int]] = []

    def perf_counter(self) -> float:
        return self.seconds

    def work(self, seconds: float) -> None:
        self.seconds += seconds

    def timer(self, name: str, seconds: float) -> measure.Timer:
        def timed(calls: int) -> float:
            self.order.append((name, calls))
            self.work(calls * seconds)
            return calls * seconds

        return timed


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(measure, "time", made)
    return made


def test_interleaved_methods_are_all_in_every_round(clock):
    timers = {"slow": clock.timer("slow", 2.0), "quick": clock.timer("quick", 0.25)}
    found = measure.interleave(timers, rounds=4, batch=1.0)
    warm_up, calibration = clock.order[:2], clock.order[2:4]
    assert warm_up == calibration == [("slow", 1), ("quick", 1)]
    rounds = [("slow", 1), ("quick", 4)]
    assert clock.order[4:] == [*rounds, *reversed(rounds), *rounds, *reversed(rounds)]
    assert found == {"slow": Timing([2.0] * 4, 4), "quick": Timing([0.25] * 4, 16)}


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 3), (7.5, 4), (math.inf, 20)])
def test_interleaved_rounds_end_with_the_budget_but_not_before_the_third(clock, budget, rounds):
    timers = {"one": clock.timer("one", 1.0), "other": clock.timer("other", 1.0)}
    found = measure.interleave(timers, rounds=20, batch=1.0, budget=budget)
    assert [len(timing.rounds) for timing in found.values()] == [rounds, rounds]


def test_a_batch_of_no_seconds_is_one_call(clock):
    found = measure.interleave({"job": clock.timer("job", 1e-9)}, rounds=5, batch=0)
    assert found["job"].calls == 5
    assert {calls for _, calls in clock.order} == {1}


def test_cold_methods_have_no_warm_up(clock):
    timers = {"one": clock.timer("one", 1.0), "other": clock.timer("other", 1e-9)}
    found = measure.interleave_cold(timers, rounds=2)
    assert clock.order == [("one", 1), ("other", 1), ("other", 1), ("one", 1)]
    assert found["other"] == Timing([1e-9, 1e-9], 2)


def test_a_call_is_timed_from_idle_to_idle_and_its_release_is_not(clock):
    done: list[str] = []

    def step(name: str, seconds: float) -> Callable[[], None]:
        return lambda: (done.append(name), clock.work(seconds))

    class Result:
        def __del__(self) -> None:
            step("release", 100.0)()

    def work() -> Result:
        step("work", 2.0)()
        return Result()

    job = measure.make_call_timer(work, step("wait", 0.5))
    assert job(2) == 5.0
    assert done == ["wait", "work", "wait", "release"] * 2


def test_methods_are_compared_within_each_round():
    ours, theirs = Timing([1.0, 20.0, 3.0], 3), Timing([2.0, 10.0, 1.0], 3)
    assert ours.median == 3.0
    assert theirs.median == 2.0
    assert ratio(ours, theirs) == 2.0
    assert difference(ours, theirs) == 2.0
    assert spread(ours, theirs) == (2.5 - 1.25) / 2.0
    assert spread(Timing([1.0], 1), Timing([2.0], 1)) == 0.0
    assert quickest({"ours": ours, "theirs": theirs}) == "theirs"
    assert join([ours, theirs]) == Timing([1.0, 20.0, 3.0, 2.0, 10.0, 1.0], 6)
    with pytest.raises(ValueError, match="zip"):
        ratio(ours, Timing([1.0], 1))


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (3, 0, 2), (5, 0, 4), (6, 0, 5), (9, 1, 7), (15, 3, 11)]
)
def test_the_interval_of_a_ratio_is_that_of_the_sign_test(count, low, high):
    """Of 15 rounds the 4th and the 12th ratio: the median is outside with a chance of 3.5%."""
    rounds = [1.0 + number for number in range(count)]
    ours, theirs = Timing(rounds[::-1], count), Timing([1.0] * (count + 2), count + 2)
    median = statistics.median(rounds)
    assert interval(ours, theirs) == (rounds[low], median, rounds[high])


def test_one_bad_round_does_not_decide():
    ours, theirs = Timing([2.0] * 14 + [200.0], 15), Timing([1.0] * 15, 15)
    assert interval(ours, theirs) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 64, 1000, (1 << 20) + 7])
def test_the_threads_of_a_memcpy_copy_every_byte_and_end(count, size):
    before = set(threading.enumerate())
    source, target = warm_buffers(size)
    assert source.nbytes == target.nbytes == size
    assert np.array_equal(source, target)
    copier = ThreadedCopy(count, source, target)
    workers = set(threading.enumerate()) - before
    for timer in (copier.time_single, copier.time_threaded):
        target[:] = ~source
        assert timer(3) > 0
        assert np.array_equal(source, target)
    copier.stop()
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_table_of_every_record_can_be_made_again(path):
    table = runpy.run_path(str(BENCHES / "table.py"))
    text = path.with_suffix(".md").read_text()
    sections = json.loads(path.read_text())["sections"].values()
    assert sections
    for section in sections:
        assert table["render"](table["Section"](**section)).rstrip() in text


def test_small_calls_are_measured_against_the_one_liners_of_the_command():
    pairs = runpy.run_path(str(BENCHES / "pairs.py"))
    found = {pair: pairs["candidates"](pair) for pair in pairs["PAIRS"]}
    assert set(pairs["MORE"]) <= set(found)
    assert set(pairs["COPIED"]) <= set(found)
    for codes in found.values():
        assert len(codes) == len(set(codes)) >= 1
        for code in codes:
            compile(code, code, "eval")
            assert ".dlpack." not in code  # SHORT_NAMES has every function that is deep in a module
    assert "tf_from_dlpack(torch_to_dlpack(x))" in found["torch", "tensorflow"]
    assert "torch.from_numpy(x)" in found["numpy", "torch"]
