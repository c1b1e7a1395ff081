"""A benchmark run: the cells of its settings, and their result."""

import contextlib
import gc
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorferry as ferry
from tensorferry._tools import machine
from tensorferry._tools.bench import devices, limits, methods, results
from tensorferry._tools.bench.cell import Cell, CellBenchmark
from tensorferry._tools.bench.cuda import Driver
from tensorferry._tools.bench.load import LoadMeter
from tensorferry._tools.bench.results import FORMAT, Result, Row

# The memory that a measurement needs: source, compared results, and temporaries of a method.
MEMORY_PER_TENSOR_BYTE = 5


@dataclass(frozen=True)
class Settings:
    """What is measured, and the seconds for each method."""

    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    seconds: float
    device: str = "cpu"
    methods: str = "all"

    def as_dict(self) -> dict[str, Any]:
        """The settings as a result stores them."""
        return {
            "sizes": list(self.sizes),
            "dtypes": list(self.dtypes),
            "layouts": list(self.layouts),
            "pairs": [list(pair) for pair in self.pairs],
            "seconds": self.seconds,
            "device": self.device,
            "methods": self.methods,
        }

    def with_seconds(self, seconds: float) -> "Settings":
        """The same settings with another time for each method."""
        return replace(self, seconds=seconds)


Progress = Callable[[int, int, str], None]


def cells(settings: Settings) -> list[Cell]:
    """The cells, pair by pair."""
    return [
        Cell(source, target, pair, dtype, layout, size)
        for source, target in settings.pairs
        for pair in devices.between(source, target, settings.device)
        for dtype in settings.dtypes
        for layout in settings.layouts
        for size in settings.sizes
    ]


def count_methods(settings: Settings) -> int:
    """The number of measurements of all cells."""
    return sum(len(cell.methods) for cell in cells(settings))


def _no_progress(done: int, total: int, what: str) -> None:
    """Ignores progress."""


def run(settings: Settings, progress: Progress = _no_progress) -> Result:
    """Measures all cells. The `notes` of the result say what was left out."""
    _check_memory(settings)
    selected = cells(settings)
    driver = _driver(selected)
    progress(0, count_methods(settings), "machine limits")
    meter = LoadMeter()
    found = limits.measure(settings.sizes, settings.seconds, driver)
    rows, notes = _measure(selected, settings, driver, progress)
    load = meter.read(limits.control_ratio(found, settings.seconds))
    return {
        "format": FORMAT,
        "machine": machine.description(),
        "settings": settings.as_dict(),
        "load": load,
        "limits": found,
        "rows": rows,
        "notes": notes,
    }


def repeat(
    result: Result,
    settings: Settings,
    wanted: set[results.Cell],
    progress: Progress = _no_progress,
) -> Result:
    """The result with some cells measured again."""
    selected = [cell for cell in cells(settings) if cell.key in wanted]
    rows, _ = _measure(selected, settings, _driver(selected), progress)
    found = {**results.cells(result), **results.cells({"rows": rows})}
    return {**result, "rows": [row for rows in found.values() for row in rows]}


def _driver(selected: list[Cell]) -> Driver | None:
    return Driver() if any("cuda" in cell.devices for cell in selected) else None


def _measure(
    selected: list[Cell], settings: Settings, driver: Driver | None, progress: Progress
) -> tuple[list[Row], list[str]]:
    """The rows of all cells, and what was left out."""
    total = sum(len(cell.methods) for cell in selected)
    rows: list[Row] = []
    left_out: dict[str, None] = {}
    done = 0
    with _environment(settings) as (names, folder):
        for cell in selected:
            count = len(cell.methods)
            what = f"{cell.source} to {cell.target}, {cell.dtype}, {cell.layout}"

            def report(
                share: float, done: int = done, count: int = count, what: str = what
            ) -> None:
                progress(done + int(share * count), total, what)

            report(0)
            try:
                bench = CellBenchmark(
                    cell,
                    names,
                    folder,
                    seconds=settings.seconds,
                    wanted=settings.methods,
                    driver=driver,
                )
            except Exception as error:  # each framework raises its own class for such tensors
                reason = str(error).partition("\n")[0]
                if not isinstance(error, ferry.FerryError):
                    reason = f"{cell.source} does not support {cell.dtype}, {cell.layout}: {reason}"
                left_out[reason] = None
            else:
                rows += bench.rows(report)
            done += count
            progress(done, total, what)
    return rows, list(left_out)


def _check_memory(settings: Settings) -> None:
    need, free = MEMORY_PER_TENSOR_BYTE * max(settings.sizes), machine.free_memory()
    if free and need > free:
        raise ferry.OutOfMemoryError(
            f"a measurement of {max(settings.sizes)} bytes needs about {need >> 20} MiB, and "
            f"{free >> 20} MiB are free\nhint: write smaller --sizes"
        )


@contextlib.contextmanager
def _environment(settings: Settings) -> Iterator[tuple[dict[str, Any], Path]]:
    """The names that the one-liners use, and a folder for their files."""
    with warnings.catch_warnings():
        # One-liners would repeat their warnings at every call.
        warnings.simplefilter("ignore")
        names = methods.namespace(name for pair in settings.pairs for name in pair)
        folder = Path(tempfile.mkdtemp(prefix="tensorferry-bench-"))
        # Excludes the frameworks' own objects from garbage collections.
        gc.freeze()
        try:
            yield names, folder
        finally:
            gc.unfreeze()
            shutil.rmtree(folder, ignore_errors=True)
