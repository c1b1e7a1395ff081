"""The file that a run leaves behind: what is in it, reading it with care, writing it whole or not.

A row is one method in one cell, and a cell is one job: source, target, places, type, layout, size.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorferry as ferry

FORMAT = "tensorferry-bench/1"
CELL = ("source", "target", "source_device", "target_device", "dtype", "layout", "bytes")

Result = dict[str, Any]
Row = dict[str, Any]
Cell = tuple[Any, ...]


def cell_of(row: Row) -> Cell:
    """What job a row is about."""
    return tuple(row[key] for key in CELL)


def cells(result: Result) -> dict[Cell, list[Row]]:
    """The rows of each cell, in their order."""
    found: dict[Cell, list[Row]] = {}
    for row in result["rows"]:
        found.setdefault(cell_of(row), []).append(row)
    return found


def ours(rows: list[Row]) -> Row | None:
    """Our row of a cell."""
    return next((row for row in rows if row["ours"]), None)


def best_native(rows: list[Row]) -> Row | None:
    """The quickest row of a cell that is right and not ours."""
    there = [row for row in rows if not row["ours"] and row["error"] is None]
    return min(there, key=lambda row: float(row["seconds"]), default=None)


Quartiles = tuple[float, float]


def verdict(ours: Quartiles, native: Quartiles) -> str:
    """ahead, behind, or level: the middle halves of the rounds of both overlap."""
    if ours[0] <= native[1] and native[0] <= ours[1]:
        return "level"
    return "ahead" if ours[1] < native[0] else "behind"


def read(path: Path) -> Result:
    """A result from a file, of which every part that is used later is what it has to be."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise ferry.InvalidArgumentError(
            f"{path} cannot be read: {error.strerror}\nhint: give a file that --output has written"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"it holds no JSON ({error})") from error
    if fault := _fault(result):
        raise _invalid(path, fault)
    checked: Result = result
    return checked


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _invalid(path: Path, fault: str) -> ferry.InvalidArgumentError:
    return ferry.InvalidArgumentError(
        f"{path} is no result of tensorferry bench: {fault}"
        "\nhint: give a file that `tensorferry bench --output FILE.json` has written"
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
    **{key: (_is_text, "text") for key in CELL if key != "bytes"},
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


def _fault(result: Any) -> str:
    """What is wrong with a result, in words; empty where nothing is."""
    if not isinstance(result, dict):
        return "it holds no JSON object"
    if result.get("format") != FORMAT:
        return f"its format is {result.get('format')!r}, not {FORMAT!r}"
    for key, kind in (("machine", dict), ("settings", dict), ("limits", dict), ("rows", list)):
        if not isinstance(result.get(key), kind):
            return f"{key} is {_shown(result.get(key))}, not {_a(kind)}"
    if fault := _table_fault(result["settings"], SETTINGS, "settings"):
        return fault
    seen = set()
    for number, row in enumerate(result["rows"]):
        place = f"rows[{number}]"
        if not isinstance(row, dict):
            return f"{place} is {_shown(row)}, not an object"
        if fault := _table_fault(row, ROW, place) or _row_fault(row, place):
            return fault
        name = (cell_of(row), row["method"])
        if name in seen:
            return f"{place} is the second one for {row['method']!r} in its cell"
        seen.add(name)
    return ""


def _table_fault(table: dict[str, Any], tests: dict[str, tuple[Test, str]], place: str) -> str:
    for key, (test, wanted) in tests.items():
        if key not in table:
            return f"{place}.{key} is missing"
        if not test(table[key]):
            return f"{place}.{key} is {_shown(table[key])}, not {wanted}"
    return ""


def _row_fault(row: Row, place: str) -> str:
    times = (row["low"], row["seconds"], row["high"])
    if row["error"] is None and None in times:
        return f"{place} has neither times nor an error"
    if row["error"] is None and list(times) != sorted(times):
        return f"{place} has a median outside of its quartiles"
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _a(kind: type) -> str:
    return "an object" if kind is dict else "a list"


def write(result: Result, path: Path) -> None:
    """Writes a result, whole or not at all."""
    ferry.save(path, (json.dumps(result, indent=1) + "\n").encode(), format="raw")
