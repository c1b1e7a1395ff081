"""The report of `tensorferry doctor` as text, in 80 columns."""

import textwrap
from collections.abc import Iterator
from typing import Any

from tensorferry._tools.cli import notation
from tensorferry._tools.cli.terminal import Terminal, table
from tensorferry._tools.doctor.findings import (
    Cell,
    Driver,
    Framework,
    Gpu,
    Pinned,
    Problem,
    Result,
)
from tensorferry._tools.doctor.report import Report

WIDTH_CHARS = 80
OUTCOME_LABELS = {
    "impossible": "no",
    "failed": "FAILED",
    "wrong": "WRONG",
    "crashed": "CRASHED",
    "hung": "HUNG",
}
STATE_LABELS = {"fails": "see below", "crashes": "it crashes", "hangs": "it hangs"}
ORDER_LABELS = {"works": "works", "fails": "fails", "crashes": "crashes", "hangs": "hangs"}
# The label of a fast path's state, and its styles.
FAST_PATH_LABELS = {
    "active": ("active",),
    "unused": ("not used here", "dim"),
    "disabled": ("off", "dim"),
    "missing": ("not available", "dim"),
    "failed": ("FAILED", "yellow"),
}
OUTCOMES = ("shared", "copied", "itself", "impossible", "failed", "wrong", "crashed", "hung")
OUTCOME_STYLES = {
    "itself": ("dim",),
    "shared": ("green",),
    "copied": ("yellow",),
    "impossible": ("dim",),
}


def lines(report: Report, terminal: Terminal) -> Iterator[str]:
    """The lines of the report."""
    yield from _machine(report, terminal)
    yield ""
    yield terminal.style("frameworks", "bold")
    yield from _frameworks(report.frameworks, terminal)
    yield from _import_orders(report, terminal)
    reasons: dict[str, int] = {}
    for title, cells in _matrices(report):
        yield ""
        yield (terminal.style(title, "bold") + f", {report.dtype}; from row to column")
        yield from _matrix(cells, reasons, terminal)
    yield from _fast_paths(report, terminal)
    sections = {
        "reasons": _reasons(report, reasons),
        "notices": report.notices,
        "warnings": report.warnings,
        "problems": report.problems,
    }
    for title, problems in sections.items():
        if problems:
            yield ""
            yield terminal.style(title, "bold")
        for problem in problems:
            yield from _item(f"{reasons.get(problem.fact, '-'):>3}", problem)
    yield ""
    yield _verdict(report, terminal)


def _machine(report: Report, terminal: Terminal) -> Iterator[str]:
    machine = report.machine
    yield (
        terminal.style(f"tensorferry {machine.tensorferry}", "bold") + f", Python {machine.python}"
    )
    limit = machine.locked_memory_bytes
    cores, memory = notation.count(machine.cores, "core"), notation.size(machine.memory_bytes)
    rows = [
        ["processor", machine.cpu],
        ["", f"{cores}, {memory}, Linux {machine.kernel}"],
        ["huge pages", machine.huge_pages],
        ["pool", f"at most {notation.size(machine.pool_limit_bytes)}"],
        ["locked memory", "no limit" if limit is None else f"at most {notation.size(limit)}"],
        ["CUDA driver", _driver(report.driver)],
        *([f"cuda:{gpu.index}", _gpu(gpu)] for gpu in report.driver.gpus),
    ]
    if report.driver.gpus or report.pinned.state != "absent":
        rows.append(["pinned memory", _pinned(report.pinned)])
    yield from _indented(table(rows))


def _driver(driver: Driver) -> str:
    if driver.state == "absent":
        return "none"
    known = [f"CUDA {driver.cuda}"] if driver.cuda else []
    known += [f"release {driver.release}"] if driver.release else []
    if driver.state != "works":
        known.append(f"FAILED: {STATE_LABELS[driver.state]}")
    elif not driver.gpus:
        known.append("no GPU")
    return ", ".join(known)


def _gpu(gpu: Gpu) -> str:
    known = [gpu.name or "unnamed GPU"]
    known += [notation.size(gpu.memory_bytes)] if gpu.memory_bytes else []
    known += [f"compute capability {gpu.capability}"] if gpu.capability else []
    return ", ".join(known)


def _pinned(pinned: Pinned) -> str:
    if pinned.state == "absent":
        return "not tested: no framework here supports the GPU"
    if pinned.state != "works":
        return "FAILED"
    if not pinned.pinned_bytes:
        return f"none after downloads from {pinned.framework}"
    return f"works, {notation.size(pinned.pinned_bytes)} after downloads from {pinned.framework}"


def _frameworks(found: list[Framework], terminal: Terminal) -> Iterator[str]:
    rows = []
    for one in found:
        took = "" if one.seconds is None else f"{one.seconds:.1f} s"
        if one.state == "absent":
            rows.append([one.name, "-", "", "not installed"])
            continue
        said = ", ".join(device.name for device in one.devices) or "no device"
        if one.state != "works":
            said = f"FAILED: {STATE_LABELS[one.state]}"
        rows.append([one.name, one.version or "?", took, said])
    for one, line in zip(found, _indented(table(rows, right={2})), strict=True):
        style = {"works": (), "absent": ("dim",)}.get(one.state, ("red",))
        yield terminal.style(line, *style)


def _import_orders(report: Report, terminal: Terminal) -> Iterator[str]:
    orders = [order for order in report.import_orders if len(order.modules) > 1]
    if not orders:
        return
    yield ""
    yield terminal.style("import order", "bold")
    rows = [[ORDER_LABELS[order.state], ", ".join(order.modules)] for order in orders]
    for order, line in zip(orders, _indented(table(rows)), strict=True):
        yield line if order.state == "works" else terminal.style(line, "yellow")


def _fast_paths(report: Report, terminal: Terminal) -> Iterator[str]:
    works = {framework.name for framework in report.frameworks if framework.state == "works"}
    shown = [
        path for path in report.fast_paths if path.framework in works or path.state != "unused"
    ]
    if not shown:
        return
    yield ""
    yield terminal.style("fast paths", "bold") + ": private APIs, each with a public fallback"
    width = max(len(path.name) for path in shown)
    for path in shown:
        label, *style = FAST_PATH_LABELS[path.state]
        text = f"  {path.name:<{width}}  {label}" + (f": {path.reason}" if path.reason else "")
        for line in textwrap.wrap(text, WIDTH_CHARS, subsequent_indent=" " * (width + 4)):
            yield terminal.style(line, *style)


def _matrices(report: Report) -> list[tuple[str, dict[Cell, Result]]]:
    """The cells by their devices; GPUs with the same outcomes are shown as one."""
    routes: dict[tuple[str, str], dict[Cell, Result]] = {}
    for cell, result in report.cells.items():
        routes.setdefault((cell.origin, cell.destination), {})[cell] = result
    same_outcomes: dict[Any, list[tuple[str, str]]] = {}
    for (origin, destination), cells in routes.items():
        content = tuple((cell.source, cell.target, one.outcome) for cell, one in cells.items())
        kinds = origin.partition(":")[0], destination.partition(":")[0]
        same_outcomes.setdefault((kinds, content), []).append((origin, destination))
    shown = []
    for same in same_outcomes.values():
        title = " to ".join(same[0])
        others = [next(device for device in route if device != "cpu") for route in same[1:]]
        if others:
            which = ", ".join(others) if len(others) < 4 else f"{len(others)} more GPUs"
            title += f" (same on {which})"
        shown.append((title, routes[same[0]]))
    return shown


def _matrix(
    cells: dict[Cell, Result], reasons: dict[str, int], terminal: Terminal
) -> Iterator[str]:
    sources = list(dict.fromkeys(cell.source for cell in cells))
    targets = list(dict.fromkeys(cell.target for cell in cells))
    labels = {(cell.source, cell.target): _label(one, reasons) for cell, one in cells.items()}
    results = {(cell.source, cell.target): one for cell, one in cells.items()}
    rows = [["", *targets]]
    rows += [[source, *(labels[source, target] for target in targets)] for source in sources]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [f"{text:<{width}}" for text, width in zip(row, widths, strict=True)]
        for column, target in enumerate(targets, 1):
            if one := results.get((row[0], target)):
                padded[column] = terminal.style(
                    padded[column], *OUTCOME_STYLES.get(one.outcome, ("red",))
                )
        yield "  " + "  ".join(padded).rstrip()


def _label(result: Result, reasons: dict[str, int]) -> str:
    """The label of a cell: its outcome, and the number of its reason."""
    label = OUTCOME_LABELS.get(result.outcome, result.outcome)
    fact = _fact(result)
    return f"{label} {reasons.setdefault(fact, len(reasons) + 1)}" if fact else label


def _fact(result: Result) -> str | None:
    if result.fact is None and result.memory not in (None, "seen"):
        return f"as planned; the memory was {result.memory}"
    return result.fact


def _reasons(report: Report, reasons: dict[str, int]) -> list[Problem]:
    """Each reason once, by number; reasons of failures are reported as problems."""
    hints: dict[str, str | None] = {}
    for cell, result in report.cells.items():
        fact = _fact(result)
        if fact and not result.is_failure:
            # The doctor asks for copies between devices: a hint to avoid them would mislead.
            is_requested = result.outcome == "copied" and cell.origin != cell.destination
            hints.setdefault(fact, None if is_requested else result.hint)
    return [Problem(fact, hints[fact]) for fact in reasons if fact in hints]


def _item(label: str, problem: Problem) -> Iterator[str]:
    where = ", ".join(problem.where[:3])
    if len(problem.where) > 3:
        where += f" and {len(problem.where) - 3} more"
    indent = " " * (len(label) + 1)
    texts = [f"{label} {where}: {problem.fact}" if where else f"{label} {problem.fact}"]
    if problem.hint:
        texts.append(f"{indent}hint: {problem.hint}")
    for text in texts:
        yield from textwrap.wrap(text, WIDTH_CHARS, subsequent_indent=indent)


def _verdict(report: Report, terminal: Terminal) -> str:
    outcomes = [result.outcome for result in report.cells.values()]
    tally = ", ".join(f"{outcomes.count(one)} {one}" for one in OUTCOMES if one in outcomes)
    cells = notation.count(len(outcomes), "cell")
    rest = f"{tally or 'no conversions'}; {cells} in {report.seconds:.0f} s"
    warned = len(report.warnings)
    warnings = f", {notation.count(warned, 'warning')}" if warned else ""
    if report.healthy:
        return terminal.style(f"no problems{warnings}", "bold", "green") + f": {rest}"
    found = notation.count(len(report.problems), "problem") + warnings
    return terminal.style(found, "bold", "red") + f": {rest}"


def _indented(rows: list[str]) -> list[str]:
    return ["  " + row for row in rows]
