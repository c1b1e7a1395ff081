"""Comparison of two results.

`ferry.to` counts as slower or quicker if its time changed by more than the spread of both results
and by more than 10%, and so did its ratio to the best native method of the same run, because load
slows down both. If a result has no native method, the time alone decides.
"""

from typing import Any

from tensorferry._tools.bench.results import CELL_KEYS, Cell, Result, Row, best_native, cells, ours

FORMAT = "tensorferry-bench-comparison/1"
MIN_CHANGE_RATIO = 1.10
# The facts that identify a machine; load and date do not.
MACHINE_KEYS = ("cpu", "cores", "gpu", "huge pages", "python")
SLOWER, QUICKER, SAME = "slower", "quicker", "same"
INVALID_RESULT, MENDED = "broken", "mended"


def compare(old: Result, new: Result) -> dict[str, Any]:
    """How the time of `ferry.to`, and its ratio to the best native method, changed in each cell."""
    before, after = cells(old), cells(new)
    rows = []
    for cell, old_rows in before.items():
        found = _row(cell, old_rows, after.get(cell, []))
        if found is not None:
            rows.append(found)
    common = {tuple(row[key] for key in CELL_KEYS) for row in rows}
    return {
        "format": FORMAT,
        "rows": rows,
        "only_old": sum(cell not in common for cell in before),
        "only_new": sum(cell not in common for cell in after),
        "machine": _differences(old["machine"], new["machine"]),
    }


def changed(comparison: dict[str, Any]) -> set[Cell]:
    """The cells in which `ferry.to` seems slower or quicker."""
    return {
        tuple(row[key] for key in CELL_KEYS)
        for row in comparison["rows"]
        if row["change"] in (SLOWER, QUICKER)
    }


def exit_code(comparison: dict[str, Any]) -> int:
    """1 if `ferry.to` got slower or fails now, else 0."""
    return int(any(row["change"] in (SLOWER, INVALID_RESULT) for row in comparison["rows"]))


def _row(cell: Cell, old_rows: list[Row], new_rows: list[Row]) -> dict[str, Any] | None:
    old, new = ours(old_rows), ours(new_rows)
    if old is None or new is None:
        return None
    old_native, new_native = _to_native(old, old_rows), _to_native(new, new_rows)
    return {
        **dict(zip(CELL_KEYS, cell, strict=True)),
        "old_seconds": old["seconds"],
        "new_seconds": new["seconds"],
        "ratio": _ratio(new["seconds"], old["seconds"]),
        "old_to_native": old_native,
        "new_to_native": new_native,
        "to_native_ratio": _ratio(new_native, old_native),
        "old_shares": old["shares"],
        "new_shares": new["shares"],
        "old_extra_bytes": old["extra_bytes"],
        "new_extra_bytes": new["extra_bytes"],
        "change": _change(old, new, _ratio(new_native, old_native)),
        "error": new["error"],
    }


def _ratio(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new / old


def _to_native(our_row: Row, rows: list[Row]) -> float | None:
    """The ratio of `ferry.to` to the best native method."""
    best = best_native(rows)
    return _ratio(our_row["seconds"], best["seconds"]) if best is not None else None


def _change(old: Row, new: Row, to_native: float | None) -> str:
    if old["error"] is not None or new["error"] is not None:
        if old["error"] is not None and new["error"] is not None:
            return SAME
        return INVALID_RESULT if new["error"] is not None else MENDED
    ratio = new["seconds"] / old["seconds"]
    against = ratio if to_native is None else to_native
    if new["low"] > old["high"] and min(ratio, against) > MIN_CHANGE_RATIO:
        return SLOWER
    if new["high"] < old["low"] and max(ratio, against) < 1 / MIN_CHANGE_RATIO:
        return QUICKER
    return SAME


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The differences between the two machines, as text."""
    packages = sorted((old.keys() & new.keys()) - {"date", "load", "memory GiB", "kernel"})
    keys = [*MACHINE_KEYS, *(key for key in packages if key not in MACHINE_KEYS)]
    return [
        f"{key}: {old.get(key)}, then {new.get(key)}"
        for key in keys
        if old.get(key) != new.get(key)
    ]
