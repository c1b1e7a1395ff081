"""What the report of `tensorferry bench` says: numbers and findings in words, rows in groups."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from support import results
from support.results import KEY, timed

import tensorferry as ferry
from tensorferry._tools import report
from tensorferry._tools.report import bundles, findings, grouping, groups, scale


def only(*rows: dict) -> list[groups.Group]:
    return grouping.group(results.result(list(rows), []))


# Numbers in words


@pytest.mark.parametrize(
    ("write", "value", "words"),
    [
        (scale.size, 1, "1 byte"),
        (scale.size, 1000, "1,000 bytes"),
        (scale.size, 4096, "4 KiB"),
        (scale.size, 1536 << 10, "1.5 MiB"),
        (scale.size, 1 << 30, "1 GiB"),
        (scale.duration, 3e-10, "0.300 ns"),
        (scale.duration, 542e-9, "542 ns"),
        (scale.duration, 999.7e-9, "1.00 µs"),
        (scale.duration, 0.0120, "12.0 ms"),
        (scale.duration, 1234, "1,230 s"),
        (scale.duration_tick, 1e-6, "1 µs"),
        (scale.duration_tick, 2e-2, "20 ms"),
        (scale.rate, 20.71e9, "20.7 GB/s"),
        (scale.rate_tick, 1e12, "1 TB/s"),
        (scale.ratio, 0.00004, "1/25,000"),
        (scale.ratio, 0.012, "0.012"),
        (scale.ratio, 0.9, "0.90"),
        (scale.ratio, 0.994, "0.99"),
        (scale.ratio, 0.996, "1.0"),
        (scale.ratio, 9.94, "9.9"),
        (scale.ratio, 9.96, "10"),
        (scale.ratio, 33.4, "33"),
        (scale.ratio, 512_345, "510,000"),
    ],
)
def test_numbers_are_written_for_people(write, value, words):
    assert write(value).replace(scale.NO_BREAK_SPACE, " ") == words


def test_a_range_names_its_unit_once_and_one_value_once():
    gap = scale.NO_BREAK_SPACE
    assert scale.between(f"530{gap}ns", f"560{gap}ns") == f"530 to 560{gap}ns"
    assert scale.between(f"530{gap}ns", f"1.1{gap}µs") == f"530{gap}ns to 1.1{gap}µs"
    assert scale.between("1.0", "1.0") == "1.0"


# Scales


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (3e-7, 2e-1, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        (1.5, 60, [2, 5, 10, 20, 50]),
        (1e-9, 1e3, [1e-8, 1e-6, 1e-4, 1e-2, 1, 1e2]),
    ],
)
def test_ticks_are_round_and_few(low, high, expected):
    assert scale.ticks(scale.LogScale(low, high)) == pytest.approx(expected)


def test_a_scale_has_room_around_its_values_and_is_never_too_fine():
    around = scale.around([100.0, 101.0], min_factor=10, margin=0.06)
    assert around.high / around.low == pytest.approx(10**1.12)
    assert 0.4 < around.position(100.0) < around.position(101.0) < 0.6
    many_rows = scale.around([1.0, 1e6])
    assert 0 < many_rows.position(1.0) < 0.06
    assert 0.94 < many_rows.position(1e6) < 1


def test_labels_keep_their_distance_and_the_last_is_there():
    assert scale.spaced([0.0, 0.3, 0.6, 0.7], 0.2) == {0, 1, 3}
    assert scale.spaced([0.5], 0.2) == {0}


# Groups


def test_rows_become_groups_in_order_with_ours_first():
    found = grouping.group(results.sample())
    assert [group.conversion.name for group in found] == [
        "NumPy to PyTorch",
        "PyTorch to TensorFlow",
        "NumPy to PyTorch",
    ]
    assert [group.conversion.devices for group in found] == ["cpu", "cpu", "cpu to cuda"]
    assert all([series.number for series in group.series] == [0, 1, 2, 3, 4] for group in found)
    assert all(group.series[0].ours for group in found)
    assert found[0].sizes == list(results.SIZES)


def test_a_native_method_has_the_same_style_in_all_groups_of_its_pair():
    other = (*KEY[:5], "strided")
    found = only(
        timed(1e-6, ours=True),
        timed(1e-6, method="a(x)"),
        timed(1e-6, method="b(x)"),
        results.row(other, "b(x)", False, False, 4096, 1e-6),
        results.row(other, "ferry.to(x, copy=True)", True, False, 4096, 1e-6),
    )
    numbers = [{one.method: one.number for one in group.series} for group in found]
    assert numbers == [
        {"ferry.to(x)": 0, "a(x)": 1, "b(x)": 2},
        {"ferry.to(x, copy=True)": 0, "b(x)": 2},
    ]


def test_limits_belong_to_their_devices():
    found = grouping.group(results.sample())
    assert [group.limit and group.limit.name for group in found] == [
        "memcpy",
        "memcpy",
        "link, upload",
    ]
    on_gpu = results.row((*KEY[:2], "cuda:0", "cuda:0", *KEY[4:]), "x", True, True, 4096, 1e-6)
    down = results.row((*KEY[:2], "cuda:0", "cpu", *KEY[4:]), "x", True, True, 4096, 1e-6)
    made = results.result([on_gpu, down], [4096])
    assert [group.limit and group.limit.name for group in grouping.group(made)] == [
        None,
        "link, download",
    ]
    del made["limits"]
    assert [group.limit for group in grouping.group(made)] == [None, None]


def test_what_all_groups_have_in_common_is_said_once():
    found = grouping.group(results.sample())
    assert bundles.common(found) == ["float32"]
    assert [bundle.details for bundle in bundles.bundles(found)] == [
        ("cpu", "dense"),
        ("cpu", "transposed"),
        ("cpu to cuda", "dense"),
    ]
    assert bundles.common(found[:1]) == ["cpu", "float32", "dense"]
    assert bundles.common([]) == bundles.bundles([]) == []


def test_very_many_groups_are_taken_together_by_their_ends():
    found = bundles.bundles(grouping.group(results.bundled()))
    assert [len(bundle.groups) for bundle in found] == [5] * 12
    assert found[1].conversion.name == "NumPy to JAX"
    assert found[1].details == ("cpu", "5 conversions")
    assert (found[1].link, len(found[1].comparisons)) == ("#g5", 10)


@pytest.mark.parametrize(
    ("ours", "native", "verdict"),
    [
        ((0.9, 1.0, 1.1), (1.9, 2.0, 2.1), "ahead"),
        ((1.9, 2.0, 2.1), (0.9, 1.0, 1.1), "behind"),
        ((0.9, 1.0, 1.1), (1.05, 1.2, 1.3), "level"),
        ((None, 1.0, None), (None, 1.0, None), "level"),
    ],
)
def test_without_intervals_a_verdict_needs_ranges_that_do_not_overlap(ours, native, verdict):
    rows = [
        timed(median, ours=is_ours, low=low, high=high)
        for is_ours, (low, median, high) in ((True, ours), (False, native))
    ]
    [comparison] = only(*rows)[0].comparisons
    assert comparison.verdict == verdict
    assert comparison.ratio == native[1] / ours[1]


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.45, 0.5, 0.55), "ahead"),
        ((1.02, 1.04, 1.06), "behind"),
        ((1.001, 1.02, 1.05), "behind"),
        ((0.99, 1.04, 1.10), "level"),
        ((0.90, 0.97, 1.0), "level"),
        ((0.990, 0.991, 0.992), "level"),  # always faster, by less than 1%
        ((1.005, 1.009, 1.02), "level"),
    ],
)
def test_the_interval_of_the_ratio_decides(interval, verdict):
    low, ratio, high = interval
    # The quartiles overlap: they do not count.
    native = timed(1e-6, low=0.5e-6, high=2e-6)
    native |= {"ratio_low": low, "ratio": ratio, "ratio_high": high}
    [comparison] = only(timed(1e-6, ours=True, low=0.5e-6, high=2e-6), native)[0].comparisons
    assert comparison.verdict == verdict
    assert comparison.ratio == pytest.approx(1 / ratio)


def test_the_fastest_of_each_side_are_compared():
    [group] = only(
        timed(4e-6, ours=True, method="slow"),
        timed(2e-6, ours=True),
        timed(9e-6, method="slow native"),
        timed(3e-6),
    )
    [comparison] = group.comparisons
    assert (comparison.ours.method, comparison.native.method) == ("ferry.to(x)", "native(x)")
    assert comparison.ratio == pytest.approx(1.5)


@pytest.mark.parametrize("seconds", [None, 0, -1, float("nan"), float("inf"), "fast"])
def test_rows_that_axes_cannot_show_are_listed_and_not_drawn(seconds):
    [group] = only(timed(1e-6, ours=True), timed(1e-6) | {"seconds": seconds})
    assert [row.method for row in group.drawn] == ["ferry.to(x)"]
    assert groups.failures(group) == [("native(x)", "no time was measured", [4096])]


def test_a_result_of_another_format_is_refused():
    with pytest.raises(ferry.InvalidArgumentError, match="tensorferry-bench/1'\nhint: "):
        report.render({"format": "tensorferry-bench/2"})


def test_a_row_without_a_method_is_refused():
    broken = results.sample()
    del broken["rows"][3]["method"]
    with pytest.raises(ferry.InvalidArgumentError, match=r"row 3 .*'method'\nhint: "):
        report.render(broken)


# Findings


def headline(*rows: dict) -> str:
    return findings.headline(only(*rows)).replace(scale.NO_BREAK_SPACE, " ")


def test_the_headline_says_the_finding():
    found = grouping.group(results.many())
    many = findings.headline(found).replace(scale.NO_BREAK_SPACE, " ")
    assert re.fullmatch(
        r"In the median, ferry\.to is \d\.\d times as fast as the best native method; "
        r"12 of 14 conversions share memory\.",
        many,
    )
    assert re.fullmatch(r"The ratios range from 1\.8 to 3\d\.", findings.span(found))


def test_the_headline_counts_one_as_one():
    sample = findings.headline(grouping.group(results.sample())).replace(scale.NO_BREAK_SPACE, " ")
    assert sample.endswith("; 1 of 3 conversions shares memory.")


def test_the_headline_fits_what_there_is():
    ours = timed(1e-6, ours=True)
    end = "the best native method; the conversion shares memory."
    assert headline(ours, timed(33e-6)) == f"ferry.to is 33 times as fast as {end}"
    assert headline(ours, timed(1.001e-6)) == f"ferry.to is as fast as {end}"
    assert headline(ours, timed(0.5e-6)) == f"ferry.to takes 2.0 times as long as {end}"
    assert headline(ours) == ("No native method was measured; the conversion shares memory.")
    assert headline(timed(1e-6)) == headline() == "ferry.to was not measured."
    slower = [timed(2e-6, ours=True, size=8192, shares=False), timed(1e-6, size=8192)]
    assert headline(ours, timed(3e-6), *slower) == (
        "In the median, ferry.to is 1.8 times as fast as the best native method; "
        "the conversion shares memory at some sizes."
    )
    assert headline(ours, timed(0.5e-6), *slower).startswith(
        "In the median, ferry.to takes 2.0 times as long as the best native method; "
    )


def test_the_tally_hides_nothing():
    rows = [timed(1e-6, ours=True, size=size) for size in (1024, 2048, 4096)]
    rows += [
        timed(seconds, size=size) for seconds, size in ((2e-6, 1024), (1e-6, 2048), (5e-7, 4096))
    ]
    assert findings.tally(only(*rows)) == (
        "Of 3 comparisons, ferry.to is ahead in 1, level in 1 and behind in 1."
    )
    assert findings.tally(only(*rows[:2], *rows[3:5])) == (
        "Of 2 comparisons, ferry.to is ahead in 1, level in 1 and behind in none."
    )
    two = [rows[0], rows[3], timed(1e-6, ours=True, size=9), timed(2e-6, size=9)]
    assert findings.tally(only(*two)) == "In all 2 comparisons, ferry.to is ahead."
    assert findings.tally(only(rows[0], rows[3])) == "In the only comparison, ferry.to is ahead."
    assert findings.tally(only(rows[0])) == ""


def test_a_group_says_what_it_found():
    shared, copied, uploaded = (
        "".join(ElementTree.fromstring(f"<p>{findings.summary(group)}</p>").itertext())
        for group in grouping.group(results.sample())
    )
    assert re.match(
        r"Shares memory in 5\d\d to 5\d\d.ns, independent of the size\. That is ", shared
    )
    assert "the best native method, torch.from_numpy(x)." in shared
    assert re.search(r"^Copies in .* at 1.GiB, which is \d\d% of the speed of memcpy\.", copied)
    assert re.search(r"of the speed of the link\. .* It is behind at 4.KiB\.$", uploaded)
