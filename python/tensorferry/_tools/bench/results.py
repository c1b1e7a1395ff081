"""Result files of `tensorferry bench`: validating, reading and writing them.

A row is one method in one cell, and a cell is one conversion: source, target, devices, type, layout
and size.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorferry as ferry

FORMAT = "tensorferry-bench/1"
CELL_KEYS = ("source", "target", "source_device", "target_device", "dtype", "layout", "bytes")

Result = dict[str, Any]
Row = dict[str, Any]
Cell = tuple[Any, ...]


def cell_of(row: Row) -> Cell:
    """The cell of a row."""
    return tuple(row[key] for key in CELL_KEYS)


def cells(result: Result) -> dict[Cell, list[Row]]:
    """The rows of each cell, in their order."""
    found: dict[Cell, list[Row]] = {}
    for row in result["rows"]:
        found.setdefault(cell_of(row), []).append(row)
    return found


def ours(rows: list[Row]) -> Row | None:
    """The row of `ferry.to` in a cell."""
    return next((row for row in rows if row["ours"]), None)


def best_native(rows: list[Row]) -> Row | None:
    """The fastest native method of a cell whose result is right."""
    passed = [row for row in rows if not row["ours"] and row["error"] is None]
    return min(passed, key=lambda row: float(row["seconds"]), default=None)


# Smaller differences count as none.
MIN_DIFFERENCE = 0.01
VERDICTS = ("ahead", "level", "behind")
RULE = (
    "Each round times both methods and gives a ratio. ferry.to is level if the 95% confidence "
    "interval of the median ratio includes 1, or if that ratio differs from 1 by less than 1%. "
    "Otherwise it is ahead or behind."
)
OLD_RULE = (
    "This result of an older version has no such intervals: ferry.to is level if the interquartile "
    "ranges of both times overlap."
)

Interval = tuple[float, float, float]


def ratio_interval(ours: Row, native: Row) -> Interval:
    """The ratio of the times, ours to native, between the ends of its interval.

    A native row has the interval of its rounds. The rows of older results have only quartiles.
    """
    stored = tuple(native.get(key) for key in ("ratio_low", "ratio", "ratio_high"))
    if None not in stored:
        return stored  # type: ignore[return-value]
    ratio = ours["seconds"] / native["seconds"]
    low = (ours["low"] or ours["seconds"]) / (native["high"] or native["seconds"])
    high = (ours["high"] or ours["seconds"]) / (native["low"] or native["seconds"])
    return min(low, ratio), ratio, max(high, ratio)


def verdict(interval: Interval) -> str:
    """The verdict about a ratio of times: see RULE."""
    low, ratio, high = interval
    if low <= 1 <= high or abs(ratio - 1) < MIN_DIFFERENCE:
        return "level"
    return "ahead" if ratio < 1 else "behind"


def rule(*, has_intervals: bool) -> str:
    """The rule of the verdicts, in words."""
    return RULE if has_intervals else f"{RULE} {OLD_RULE}"


def read(path: Path) -> Result:
    """Reads and validates a result."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise ferry.InvalidArgumentError(
            f"{path} cannot be read: {error.strerror}\nhint: name a file that --output has written"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"invalid JSON ({error})") from error
    if reason := _validate(result):
        raise _invalid(path, reason)
    checked: Result = result
    return checked


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _invalid(path: Path, reason: str) -> ferry.InvalidArgumentError:
    return ferry.InvalidArgumentError(
        f"{path} is not a result of tensorferry bench: {reason}"
        "\nhint: name a file that `tensorferry bench --output FILE.json` has written"
    )


Test = Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # An integer may be larger than any float.
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 1 << 63


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _or_null(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and value != [] and all(map(test, value))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_text, value))


SETTINGS: dict[str, tuple[Test, str]] = {
    "sizes": (_list_of(_is_count), "a list of sizes in bytes"),
    "dtypes": (_list_of(_is_text), "a list of names"),
    "layouts": (_list_of(_is_text), "a list of names"),
    "pairs": (_list_of(_is_pair), "a list of pairs of frameworks"),
    "seconds": (_is_positive, "a positive number"),
    "device": (lambda value: value in ("cpu", "cuda", "all"), "cpu, cuda or all"),
    "methods": (lambda value: value in ("all", "best", "ours"), "all, best or ours"),
}
ROW: dict[str, tuple[Test, str]] = {
    **{key: (_is_text, "text") for key in CELL_KEYS if key != "bytes"},
    "bytes": (_is_count, "a size in bytes"),
    "method": (_is_text, "text"),
    "ours": (_is_flag, "true or false"),
    "shares": (_or_null(_is_flag), "true, false or null"),
    "seconds": (_or_null(_is_positive), "a positive number or null"),
    "low": (_or_null(_is_positive), "a positive number or null"),
    "high": (_or_null(_is_positive), "a positive number or null"),
    "calls": (_is_count, "a count"),
    "rounds": (_is_count, "a count"),
    "extra_bytes": (_or_null(_is_count), "a size in bytes or null"),
    "checked": (_is_flag, "true or false"),
    "error": (_or_null(_is_text), "text or null"),
}
# Files of older versions lack these.
OPTIONAL_ROW: dict[str, tuple[Test, str]] = {
    key: (_or_null(_is_positive), "a positive number or null")
    for key in ("ratio", "ratio_low", "ratio_high")
}


def _validate(result: Any) -> str:
    """A description of the first error of a result; empty if it is valid."""
    if not isinstance(result, dict):
        return "it is not a JSON object"
    if result.get("format") != FORMAT:
        return f"its format is {result.get('format')!r}, not {FORMAT!r}"
    for key, kind in (("machine", dict), ("settings", dict), ("limits", dict), ("rows", list)):
        if not isinstance(result.get(key), kind):
            return f"{key} is {_abbreviate(result.get(key))}, not {_type_name(kind)}"
    if error := _validate_table(result["settings"], SETTINGS, "settings"):
        return error
    seen = set()
    for number, row in enumerate(result["rows"]):
        where = f"rows[{number}]"
        if not isinstance(row, dict):
            return f"{where} is {_abbreviate(row)}, not an object"
        known = {key: test for key, test in OPTIONAL_ROW.items() if key in row}
        if error := _validate_table(row, ROW | known, where) or _validate_row(row, where):
            return error
        name = (cell_of(row), row["method"])
        if name in seen:
            return f"{where} repeats {row['method']!r} in its cell"
        seen.add(name)
    return ""


def _validate_table(table: dict[str, Any], tests: dict[str, tuple[Test, str]], where: str) -> str:
    for key, (test, expected) in tests.items():
        if key not in table:
            return f"{where}.{key} is missing"
        if not test(table[key]):
            return f"{where}.{key} is {_abbreviate(table[key])}, not {expected}"
    return ""


def _validate_row(row: Row, where: str) -> str:
    times = (row["low"], row["seconds"], row["high"])
    if row["error"] is None and None in times:
        return f"{where} has neither times nor an error"
    if row["error"] is None and list(times) != sorted(times):
        return f"{where} has a median outside of its quartiles"
    return ""


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _type_name(kind: type) -> str:
    return "an object" if kind is dict else "a list"


def write(result: Result, path: Path) -> None:
    """Writes a result atomically."""
    ferry.save(path, (json.dumps(result, indent=1) + "\n").encode(), format="raw")
