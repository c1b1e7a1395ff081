"""Conversion of a result of `tensorferry bench` into the groups of the report."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import tensorferry as ferry
from tensorferry._tools.bench.results import FORMAT, Interval
from tensorferry._tools.report.groups import Conversion, Group, Limit, Row, Series

KEYS = ("source", "target", "source_device", "target_device", "dtype", "layout")
# The limit of a conversion, by whether the source and the target are in host memory: its key in a
# result, its name in a plot, and in a sentence.
LIMITS = {
    (True, True): ("memcpy", "memcpy", "memcpy"),
    (True, False): ("upload", "link, upload", "the link"),
    (False, True): ("download", "link, download", "the link"),
}
Endpoints = tuple[str, str, str, str]


def group(result: Mapping[str, Any]) -> list[Group]:
    """The groups of a result, in the order of measurement."""
    if result.get("format") != FORMAT:
        raise ferry.InvalidArgumentError(
            f"the format of the result is {result.get('format')!r}, not {FORMAT!r}\n"
            "hint: make it with this version of `tensorferry bench`"
        )
    conversions: dict[Conversion, list[Row]] = {}
    for number, raw in enumerate(result.get("rows") or ()):
        conversion, row = _row(number, raw)
        conversions.setdefault(conversion, []).append(row)
    numbers = _number_methods(conversions)
    limits = result.get("limits") or {}
    groups = []
    for index, (conversion, rows) in enumerate(conversions.items()):
        drawn = sorted((row for row in rows if row.is_drawn), key=lambda row: row.bytes)
        groups.append(
            Group(
                index,
                conversion,
                _series(drawn, numbers[conversion.endpoints]),
                [row for row in rows if not row.is_drawn],
                _limit(limits, conversion, [row.bytes for row in drawn]),
            )
        )
    return groups


def _row(number: int, raw: Mapping[str, Any]) -> tuple[Conversion, Row]:
    for name in (*KEYS, "method", "bytes"):
        if name not in raw:
            raise ferry.InvalidArgumentError(
                f"row {number} of the result lacks {name!r}\n"
                "hint: make the result with `tensorferry bench`"
            )
    error = raw.get("error")
    shares = raw.get("shares")
    row = Row(
        method=str(raw["method"]),
        ours=bool(raw.get("ours")),
        bytes=int(raw["bytes"]),
        shares=None if shares is None else bool(shares),
        seconds=_positive(raw.get("seconds")),
        low=_positive(raw.get("low")),
        high=_positive(raw.get("high")),
        calls=raw.get("calls"),
        rounds=raw.get("rounds"),
        extra_bytes=raw.get("extra_bytes"),
        checked=bool(raw.get("checked", True)),
        error=None if error is None else str(error),
        interval=_interval(raw),
    )
    return Conversion(*(str(raw[key]) for key in KEYS)), row


def _positive(value: Any) -> float | None:
    number = float(value) if isinstance(value, int | float) else math.nan
    return number if math.isfinite(number) and number > 0 else None


def _interval(raw: Mapping[str, Any]) -> Interval | None:
    """The interval of a ratio, if it was measured."""
    low, ratio, high = (_positive(raw.get(key)) for key in ("ratio_low", "ratio", "ratio_high"))
    return None if low is None or ratio is None or high is None else (low, ratio, high)


def _number_methods(
    conversions: Mapping[Conversion, Iterable[Row]],
) -> dict[Endpoints, dict[str, int]]:
    """Numbers of the native methods, which determine their style.

    A native method has the same number in all groups of the same pair. The methods of `ferry.to`
    have the first numbers in each group, whatever their text, and the same style in all groups.
    """
    ours: dict[Endpoints, int] = {}
    native: dict[Endpoints, dict[str, None]] = {}
    for conversion, rows in conversions.items():
        drawn = [row for row in rows if row.is_drawn]
        methods = {row.method for row in drawn if row.ours}
        ours[conversion.endpoints] = max(ours.get(conversion.endpoints, 1), len(methods))
        known = native.setdefault(conversion.endpoints, {})
        known.update(dict.fromkeys(row.method for row in drawn if not row.ours))
    return {
        endpoints: {method: ours[endpoints] + number for number, method in enumerate(known)}
        for endpoints, known in native.items()
    }


def _series(drawn: list[Row], native: dict[str, int]) -> list[Series]:
    methods = dict.fromkeys(row.method for row in drawn if row.ours)
    ours = {method: number for number, method in enumerate(methods)}
    series: dict[tuple[str, bool], Series] = {}
    for row in drawn:
        number = (ours if row.ours else native)[row.method]
        new = Series(number, row.method, row.ours)
        series.setdefault((row.method, row.ours), new).rows.append(row)
    return sorted(series.values(), key=lambda one: one.number)


def _limit(limits: Mapping[str, Any], conversion: Conversion, sizes: list[int]) -> Limit | None:
    source, target = (
        device.split(":")[0] == "cpu"
        for device in (conversion.source_device, conversion.target_device)
    )
    key, name, phrase = LIMITS.get((source, target), ("", "", ""))
    points = [
        (int(point["bytes"]), seconds)
        for point in limits.get(key) or ()
        if (seconds := _positive(point.get("seconds")))
        and sizes
        and sizes[0] <= int(point["bytes"]) <= sizes[-1]
    ]
    return Limit(name, phrase, tuple(sorted(points))) if points else None
