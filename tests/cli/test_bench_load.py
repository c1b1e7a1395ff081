"""Whether a benchmark tells that the machine was busy."""

from __future__ import annotations

import pytest
from support import results
from support.results import timed

from tensorferry._tools.bench import limits, load
from tensorferry._tools.cli.bench_tables import print_result
from tensorferry._tools.cli.terminal import Terminal

IDLE = {"others": 0.05, "steal": 0.0, "control": 1.1}


@pytest.mark.parametrize(
    ("changes", "signs"),
    [
        ({}, []),
        ({"others": None, "steal": None, "control": None}, []),
        ({"others": 0.43}, ["other processes used 43% of the time of its cores"]),
        ({"steal": 0.03}, ["the hypervisor took 3% of it"]),
        (
            {"control": 1.6},
            ["a memcpy was 1.6 times slower after the measurements than before"],
        ),
        (
            {"control": 0.5},
            ["a memcpy was 2.0 times faster after the measurements than before"],
        ),
    ],
)
def test_each_sign_of_load_is_named(changes, signs):
    assert load.signs({"load": IDLE | changes}) == signs


def test_an_old_result_has_its_load():
    assert load.signs({"machine": {"load": 1.9, "cores": 2}}) == []
    assert load.signs({"machine": {"load": 4.25, "cores": 2}}) == ["the load was 4.2 on 2 cores"]
    assert load.signs({"machine": {"load": "high", "cores": None}}) == []
    assert load.signs({}) == []


def test_the_meter_counts_other_processes_and_not_this_one(monkeypatch):
    cpu = iter([(10.0, 1.0, 100.0), (40.0, 3.0, 140.0)])
    own = iter([5.0, 15.0])
    monkeypatch.setattr(load, "_cpu_seconds", lambda: next(cpu))
    monkeypatch.setattr(load, "_own_seconds", lambda: next(own))
    # Of 40 seconds, 30 were busy, 10 of them by this process.
    assert load.LoadMeter().read(1.5) == {"others": 0.5, "steal": 0.05, "control": 1.5}


def test_the_cores_are_those_of_this_process(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 800 30 5 5 10 0 0\n"
        "cpu1 900 0 0 0 0 0 0 100 0 0\nintr 5\n"
    )
    monkeypatch.setattr(load, "Path", lambda _path: stat)
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda _pid: {0})
    monkeypatch.setattr(load.os, "sysconf", lambda _name: 100)
    assert load._cpu_seconds() == (1.6, 0.1, 10.0)
    stat.unlink()
    assert load._cpu_seconds() == (0.0, 0.0, 0.0)


def test_a_machine_that_tells_nothing_has_no_figures(monkeypatch):
    monkeypatch.setattr(load, "_cpu_seconds", lambda: (0.0, 0.0, 0.0))
    assert load.LoadMeter().read() == {"others": None, "steal": None, "control": None}


def test_the_control_is_the_largest_copy_again(monkeypatch):
    found = {"memcpy": [{"bytes": 10, "seconds": 1.0}, {"bytes": 1000, "seconds": 4.0}]}

    def measure(sizes: list[int], seconds: float, driver: None) -> dict:
        assert (sizes, seconds, driver) == ([1000], 0.5, None)
        return {"memcpy": [{"bytes": 1000, "seconds": 6.0}]}

    monkeypatch.setattr(limits, "measure", measure)
    assert limits.control_ratio(found, 0.5) == 1.5


def test_the_table_begins_with_the_warning(capsys):
    rows = [timed(1e-6, ours=True), timed(2e-6)]
    for row in rows:
        row.setdefault("extra_bytes", None)
    result = results.result(rows, []) | {"load": IDLE | {"others": 0.43}}
    print_result(result, Terminal())
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == (
        "warning: the machine was busy, so the ratios are doubtful: "
        "other processes used 43% of the time of its cores"
    )
    assert "; in 1 comparison, ferry.to is ahead in 1, level in 0, behind in 0" in "\n".join(rest)
    print_result(result | {"load": IDLE}, Terminal())
    assert "busy" not in capsys.readouterr().out
