"""What `tensorferry bench` shows on a terminal."""

from collections import Counter
from typing import Any

import tensorferry as ferry
from tensorferry._tools.bench import compare, results
from tensorferry._tools.bench.results import Result, Row
from tensorferry._tools.cli import notation
from tensorferry._tools.cli.terminal import Terminal, clean, table

COLOURS = {"ahead": ("green",), "behind": ("red",)}


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else notation.duration(seconds)


def _size(size: int | None) -> str:
    return "-" if size is None else notation.size(size)


def _ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _job(row: Row) -> str:
    ends = [
        name if place == "cpu" else f"{name}:{place}"
        for name, place in (
            (row["source"], row["source_device"]),
            (row["target"], row["target_device"]),
        )
    ]
    return " to ".join(ends)


def _extras(rows: list[Row]) -> list[str]:
    """The columns that are not the same in all rows."""
    return [key for key in ("dtype", "layout") if len({row[key] for row in rows}) > 1]


def measured(result: Result, terminal: Terminal) -> None:
    """A line for each cell: ours against the best native method."""
    more = _extras(result["rows"])
    heads = ["job", *more, "size", "ours", "best native", "ratio", "ours is", "extra", "native"]
    lines, failures = [heads], []
    colours: list[tuple[str, ...]] = [("bold",)]
    tally: Counter[str] = Counter()
    found = results.cells(result)
    for rows in found.values():
        mine, best = results.ours(rows), results.best_native(rows)
        if mine is None:
            continue
        ratio, verdict = None, ""
        if mine["error"] is None and best is not None:
            ratio = mine["seconds"] / best["seconds"]
            verdict = results.verdict((mine["low"], mine["high"]), (best["low"], best["high"]))
            tally[verdict] += 1
        colours.append(COLOURS.get(verdict, ()))
        lines.append(
            [
                _job(mine),
                *(mine[key] for key in more),
                _size(mine["bytes"]),
                "fails" if mine["error"] else _duration(mine["seconds"]),
                _duration(best["seconds"] if best else None),
                _ratio_text(ratio),
                {True: "shared", False: "copied", None: "-"}[mine["shares"]],
                _size(mine["extra_bytes"]),
                best["method"] if best else "-",
            ]
        )
        failures += [f"{_job(row)}: {row['method']}: {row['error']}" for row in rows if _tells(row)]
    right = {len(more) + place for place in (1, 2, 3, 4, 6)}
    for line, styles in zip(table(lines, right=right), colours, strict=True):
        terminal.print(terminal.style(line, *styles))
    terminal.print()
    terminal.print(
        f"of {len(found)} jobs, ours is ahead of the best native method in {tally['ahead']}, level "
        f"in {tally['level']}, behind in {tally['behind']} (ratio: ours to that method; level: the "
        "middle halves of the rounds overlap; extra: the most memory that one call of ours takes)"
    )
    for failure in dict.fromkeys(failures):
        terminal.print(terminal.style(clean(failure), "yellow"))


def _tells(row: Row) -> bool:
    """Whether an error is worth a line: ours, and results that are not what they seem to be."""
    error = row["error"] or ""
    return bool(error) and (row["ours"] or error == "gives wrong values")


def compared(old: Result, new: Result, terminal: Terminal) -> int:
    """What changed, and the exit code that says whether it got worse."""
    found = compare.compare(old, new)
    code = compare.exit_code(found)
    if terminal.json:
        terminal.answer(found)
        return code
    for difference in found["machine"]:
        terminal.print(terminal.style(f"measured elsewhere: {clean(difference)}", "yellow"))
    rows = found["rows"]
    if not rows:
        raise ferry.InvalidArgumentError(
            "the two results have no job in common\nhint: compare those of the same pairs"
        )
    changed = [row for row in rows if row["change"] != compare.SAME or _other_memory(row)]
    if changed:
        _changes(changed, terminal)
    counts = {
        word: sum(row["change"] == word for row in rows)
        for word in (compare.SLOWER, compare.QUICKER, compare.BROKEN, compare.MENDED)
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    terminal.print(f"{told or 'nothing changed'}, of {len(rows)} jobs that both have")
    for count, which in ((found["only_old"], "old"), (found["only_new"], "new")):
        if count:
            jobs = "1 job is" if count == 1 else f"{count} jobs are"
            terminal.print(f"{jobs} in the {which} result only")
    return code


def _other_memory(row: dict[str, Any]) -> bool:
    return None not in (row["old_shares"], row["new_shares"]) and (
        row["old_shares"] != row["new_shares"]
    )


def _changes(rows: list[dict[str, Any]], terminal: Terminal) -> None:
    more = _extras(rows)
    heads = ["job", *more, "size", "then", "now", "ratio", "to native then", "now", "change"]
    lines = [heads]
    for row in rows:
        words = [row["change"]] if row["change"] != compare.SAME else []
        if _other_memory(row):
            words.append("now shares" if row["new_shares"] else "now copies")
        if row["change"] == compare.BROKEN:
            words.append(row["error"])
        lines.append(
            [
                _job(row),
                *(row[key] for key in more),
                _size(row["bytes"]),
                _duration(row["old_seconds"]),
                _duration(row["new_seconds"]),
                _ratio_text(row["ratio"]),
                _ratio_text(row["old_to_native"]),
                _ratio_text(row["new_to_native"]),
                ", ".join(words),
            ]
        )
    shown = table(lines, right={len(more) + place for place in range(1, 7)})
    terminal.print(terminal.style(shown[0], "bold"))
    for line, row in zip(shown[1:], rows, strict=True):
        styles = {compare.SLOWER: ("red",), compare.BROKEN: ("red",), compare.QUICKER: ("green",)}
        terminal.print(terminal.style(line, *styles.get(row["change"], ())))
    terminal.print()
