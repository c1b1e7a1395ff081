"""The tables that `tensorferry bench` prints."""

import statistics
import textwrap
from collections import Counter
from typing import Any

import tensorferry as ferry
from tensorferry._tools.bench import compare, load, results
from tensorferry._tools.bench.results import Result, Row
from tensorferry._tools.cli import notation
from tensorferry._tools.cli.terminal import Terminal, clean, table

VERDICT_STYLES = {"ahead": ("green",), "behind": ("red",)}


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else notation.duration(seconds)


def _size(size: int | None) -> str:
    return "-" if size is None else notation.size(size)


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _conversion(row: Row) -> str:
    ends = [
        name if device == "cpu" else f"{name}:{device}"
        for name, device in (
            (row["source"], row["source_device"]),
            (row["target"], row["target_device"]),
        )
    ]
    return " to ".join(ends)


def _varying_columns(rows: list[Row]) -> list[str]:
    """The columns whose values differ between rows."""
    return [key for key in ("dtype", "layout") if len({row[key] for row in rows}) > 1]


def print_result(result: Result, terminal: Terminal) -> None:
    """Prints a line for each conversion: ferry.to against the best native method."""
    if warning := load.warning(result):
        terminal.print(terminal.style(f"warning: {warning}", "yellow"))
        terminal.print()
    varying = _varying_columns(result["rows"])
    heads = ["conversion", *varying, "size", "ferry.to", "best native", "ratio", "verdict"]
    heads += ["memory", "extra", "native method"]
    lines, failures = [heads], []
    colours: list[tuple[str, ...]] = [("bold",)]
    tally: Counter[str] = Counter()
    ratios: list[float] = []
    has_intervals = True
    found = results.cells(result)
    for rows in found.values():
        mine, best = results.ours(rows), results.best_native(rows)
        if mine is None:
            continue
        ratio, verdict = None, ""
        if mine["error"] is None and best is not None:
            interval = results.ratio_interval(mine, best)
            ratio, verdict = interval[1], results.verdict(interval)
            ratios.append(ratio)
            has_intervals &= best.get("ratio") is not None
            tally[verdict] += 1
        colours.append(VERDICT_STYLES.get(verdict, ()))
        lines.append(
            [
                _conversion(mine),
                *(mine[key] for key in varying),
                _size(mine["bytes"]),
                "fails" if mine["error"] else _duration(mine["seconds"]),
                _duration(best["seconds"] if best else None),
                _ratio(ratio),
                verdict or "-",
                {True: "shared", False: "copied", None: "-"}[mine["shares"]],
                _size(mine["extra_bytes"]),
                best["method"] if best else "-",
            ]
        )
        failures += [
            f"{_conversion(row)}: {row['method']}: {row['error']}"
            for row in rows
            if _is_notable(row)
        ]
    right = {len(varying) + column for column in (1, 2, 3, 4, 7)}
    for line, styles in zip(table(lines, right=right), colours, strict=True):
        terminal.print(terminal.style(line, *styles))
    terminal.print()
    for line in _summary(tally, ratios, has_intervals=has_intervals):
        terminal.print(line)
    for failure in dict.fromkeys(failures):
        terminal.print(terminal.style(clean(failure), "yellow"))


def _summary(tally: Counter[str], ratios: list[float], *, has_intervals: bool) -> list[str]:
    """The median, how often `ferry.to` is ahead, level and behind, and what the columns mean."""
    meaning = "extra: peak memory of one call of ferry.to"
    if not ratios:
        return ["no native method was measured", meaning]
    counts = ", ".join(f"{verdict} in {tally[verdict]}" for verdict in results.VERDICTS)
    span = f"from {_ratio(min(ratios))} to {_ratio(max(ratios))}"
    comparisons = notation.count(len(ratios), "comparison")
    return [
        f"median ratio {_ratio(statistics.median(ratios))}, {span}; in {comparisons}, ferry.to is "
        f"{counts}",
        "ratio: time of ferry.to to that of the best native method in the same round (median)",
        *textwrap.wrap(results.rule(has_intervals=has_intervals), 100),
        meaning,
    ]


def _is_notable(row: Row) -> bool:
    """Whether to print an error: those of ferry.to, and wrong values of native methods."""
    error = row["error"] or ""
    return bool(error) and (row["ours"] or error == "gives wrong values")


def print_comparison(old: Result, new: Result, terminal: Terminal) -> int:
    """Prints what changed; returns 1 if ferry.to got slower or fails, else 0."""
    found = compare.compare(old, new)
    code = compare.exit_code(found)
    if terminal.json:
        terminal.print_json(found)
        return code
    for difference in found["machine"]:
        terminal.print(terminal.style(f"different machine: {clean(difference)}", "yellow"))
    rows = found["rows"]
    if not rows:
        raise ferry.InvalidArgumentError(
            "the two results have no conversion in common\nhint: compare results of the same pairs"
        )
    changed = [row for row in rows if row["change"] != compare.SAME or _memory_changed(row)]
    if changed:
        _print_changes(changed, terminal)
    counts = {
        change: sum(row["change"] == change for row in rows)
        for change in (compare.SLOWER, compare.QUICKER, compare.INVALID_RESULT, compare.MENDED)
    }
    summary = ", ".join(f"{count} {change}" for change, count in counts.items() if count)
    conversions = notation.count(len(rows), "common conversion")
    terminal.print(f"{summary or 'no changes'}, of {conversions}")
    for count, which in ((found["only_old"], "old"), (found["only_new"], "new")):
        if count:
            conversions = notation.count(count, "conversion")
            terminal.print(f"{conversions} only in the {which} result")
    return code


def _memory_changed(row: dict[str, Any]) -> bool:
    return None not in (row["old_shares"], row["new_shares"]) and (
        row["old_shares"] != row["new_shares"]
    )


def _print_changes(rows: list[dict[str, Any]], terminal: Terminal) -> None:
    varying = _varying_columns(rows)
    heads = [
        "conversion",
        *varying,
        "size",
        "old",
        "new",
        "ratio",
        "old to native",
        "new to native",
    ]
    heads.append("change")
    lines = [heads]
    for row in rows:
        changes = [row["change"]] if row["change"] != compare.SAME else []
        if _memory_changed(row):
            changes.append("now shares" if row["new_shares"] else "now copies")
        if row["change"] == compare.INVALID_RESULT:
            changes.append(row["error"])
        lines.append(
            [
                _conversion(row),
                *(row[key] for key in varying),
                _size(row["bytes"]),
                _duration(row["old_seconds"]),
                _duration(row["new_seconds"]),
                _ratio(row["ratio"]),
                _ratio(row["old_to_native"]),
                _ratio(row["new_to_native"]),
                ", ".join(changes),
            ]
        )
    shown = table(lines, right={len(varying) + column for column in range(1, 7)})
    terminal.print(terminal.style(shown[0], "bold"))
    for line, row in zip(shown[1:], rows, strict=True):
        styles = {
            compare.SLOWER: ("red",),
            compare.INVALID_RESULT: ("red",),
            compare.QUICKER: ("green",),
        }
        terminal.print(terminal.style(line, *styles.get(row["change"], ())))
    terminal.print()
