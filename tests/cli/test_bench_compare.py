"""Two results of `tensorferry bench` held against each other, and files that are none."""

from __future__ import annotations

import copy
import json

import pytest
from support.bench import settings, tensorferry

import tensorferry as ferry
from tensorferry._tools import cli
from tensorferry._tools.bench import compare, results, run

PAIRS = (("numpy", "mlx"), ("mlx", "numpy"))
SIZES = (4 << 10, 64 << 10)


@pytest.fixture(scope="module")
def measured() -> dict:
    return run.run(settings(*PAIRS, sizes=SIZES))


@pytest.fixture
def steady(measured) -> dict:
    """A real result, as if the machine had been quiet."""
    result = copy.deepcopy(measured)
    for row in result["rows"]:
        row["low"], row["high"] = row["seconds"] * 0.98, row["seconds"] * 1.02
    return result


def doctored(result: dict, *, ours: float = 1, natives: float = 1) -> dict:
    """The same result with other times."""
    other = copy.deepcopy(result)
    for row in other["rows"]:
        for key in ("seconds", "low", "high"):
            row[key] *= ours if row["ours"] else natives
    return other


def test_a_result_compared_with_itself_has_not_changed(steady, tmp_path):
    path = tmp_path / "x.json"
    results.write(steady, path)
    done = tensorferry("bench", "--compare", path, path)
    assert done.returncode == 0
    assert done.stdout.startswith("no changes, of 4 ")
    found = json.loads(tensorferry("bench", "--compare", path, path, "--json").stdout)
    assert {row["change"] for row in found["rows"]} == {"same"}
    assert {row["ratio"] for row in found["rows"]} == {1.0}
    assert {row["to_native_ratio"] for row in found["rows"]} == {1.0}


def test_a_result_with_ours_slower_is_told_and_is_an_exit_code(steady, tmp_path):
    path, slow = tmp_path / "then.json", tmp_path / "slow.json"
    results.write(steady, path)
    results.write(doctored(steady, ours=3), slow)
    done = tensorferry("bench", "--compare", path, slow)
    assert done.returncode == 1
    assert done.stdout.count("slower") == 5
    assert "4 slower, of 4 " in done.stdout
    back = tensorferry("bench", "--compare", slow, path)
    assert back.returncode == 0
    assert "4 quicker, of 4 " in back.stdout


def changes(old: dict, new: dict) -> set[str]:
    return {row["change"] for row in compare.compare(old, new)["rows"]}


def test_a_slow_day_of_the_machine_is_no_change_of_ours(steady):
    assert changes(steady, doctored(steady, ours=3, natives=3)) == {"same"}
    assert changes(steady, doctored(steady, natives=3)) == {"same"}
    assert changes(steady, doctored(steady, ours=1.05)) == {"same"}


def test_a_change_within_the_spread_is_none(steady):
    many_rows, slower = copy.deepcopy(steady), doctored(steady, ours=1.5)
    for row in many_rows["rows"]:
        row["high"] = row["seconds"] * 2
    for row in slower["rows"]:
        row["low"] = row["seconds"] * 0.9
    assert changes(many_rows, slower) == {"same"}
    for row in many_rows["rows"]:
        row["high"] = row["seconds"]
    assert changes(many_rows, slower) == {"slower"}


def test_without_native_methods_the_clock_decides(steady):
    alone = copy.deepcopy(steady)
    alone["rows"] = [row for row in alone["rows"] if row["ours"]]
    assert changes(alone, doctored(alone, ours=3)) == {"slower"}
    assert changes(alone, alone) == {"same"}


def test_what_broke_what_is_new_and_what_is_gone_is_told(steady):
    new = copy.deepcopy(steady)
    broken = results.ours(new["rows"])
    broken.update(error="OutOfMemoryError: no", seconds=None, low=None, high=None, shares=None)
    new["rows"] = [row for row in new["rows"] if row["target"] == "mlx"]
    new["machine"]["cores"] = 96
    found = compare.compare(steady, new)
    assert [row["change"] for row in found["rows"]] == ["broken", "same"]
    assert (found["only_old"], found["only_new"]) == (2, 0)
    assert found["machine"] == [f"cores: {steady['machine']['cores']}, then 96"]
    assert compare.exit_code(found) == 1
    assert compare.exit_code(compare.compare(new, steady)) == 0
    (mended,) = (r for r in compare.compare(new, steady)["rows"] if r["change"] != "same")
    assert mended["change"] == "mended"


def test_compare_measures_again_as_then(tmp_path):
    path, again = tmp_path / "then.json", tmp_path / "now.json"
    asked = ("--from", "numpy", "--to", "mlx", "--sizes", "1M,4K", "--layouts", "strided")
    first = tensorferry("bench", *asked, "--seconds", 0.003, "--output", path)
    assert first.returncode == 0, first.stderr
    done = tensorferry("bench", "--compare", path, "--output", again)
    assert done.returncode in (0, 1), done.stderr
    assert "of 2 " in done.stdout
    old, new = results.read(path), results.read(again)
    assert new["settings"] == old["settings"]
    assert [results.cell_of(row) for row in new["rows"]] == [
        results.cell_of(row) for row in old["rows"]
    ]
    assert new["rows"] != old["rows"]


def test_what_seems_to_have_changed_is_measured_again(steady, tmp_path, monkeypatch, capsys):
    path = tmp_path / "then.json"
    results.write(steady, path)
    seen = []

    def busy(settings: run.Settings, progress: object) -> dict:
        seen.append(settings)
        return doctored(steady, ours=1000)

    monkeypatch.setattr(run, "run", busy)
    code = cli.main(["bench", "--compare", str(path), "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert seen[0].as_dict() == steady["settings"]
    assert len(rows) == 4
    assert all(row["ratio"] < 500 for row in rows)
    assert code == any(row["change"] == "slower" for row in rows)


def test_only_what_is_wanted_is_measured_again(steady):
    wanted = {results.cell_of(steady["rows"][-1])}
    before = copy.deepcopy(steady)
    found = run.repeat(steady, settings(*PAIRS, sizes=SIZES), wanted)
    assert steady == before
    assert [(results.cell_of(row), row["method"]) for row in found["rows"]] == [
        (results.cell_of(row), row["method"]) for row in before["rows"]
    ]
    for old, new in zip(before["rows"], found["rows"], strict=True):
        assert (old == new) is (results.cell_of(new) not in wanted)


def spoil(result: dict, path: tuple, value: object) -> str:
    place = result
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(result)


@pytest.mark.parametrize(
    ("path", "value", "fact"),
    [
        (("format",), "tensorferry-bench/9", "its format is 'tensorferry-bench/9'"),
        (("rows",), {}, "rows is {}, not a list"),
        (("machine",), None, "machine is None, not an object"),
        (("rows", 1), 7, "rows[1] is 7, not an object"),
        (("rows", 0, "seconds"), "1", "rows[0].seconds is '1', not a positive number or null"),
        (("rows", 0, "seconds"), -1.0, "rows[0].seconds is -1.0"),
        (("rows", 0, "seconds"), float("nan"), "NaN"),
        (("rows", 0, "seconds"), None, "rows[0] has neither times nor an error"),
        (("rows", 0, "low"), 1e9, "rows[0] has a median outside of its quartiles"),
        (("rows", 2, "ours"), 1, "rows[2].ours is 1, not true or false"),
        (("rows", 0, "bytes"), True, "rows[0].bytes is True, not a size in bytes"),
        (("rows", 0, "error"), KeyError, "rows[0].error is missing"),
        (("rows", 1, "method"), 'ferry.to(x, "mlx")', "rows[1] repeats"),
        (("settings", "pairs"), [["numpy"]], "settings.pairs is [['numpy']], not a list of pairs"),
        (("settings", "seconds"), 0, "settings.seconds is 0, not a positive number"),
    ],
)
def test_an_invalid_result_is_refused(steady, tmp_path, path, value, fact):
    bad = tmp_path / "bad.json"
    bad.write_text(spoil(steady, path, value))
    with pytest.raises(
        ferry.InvalidArgumentError, match=r"bad\.json is not a result of tensorferry"
    ) as told:
        results.read(bad)
    lines = str(told.value).splitlines()
    assert fact in lines[0]
    assert lines[1].startswith("hint: ")
