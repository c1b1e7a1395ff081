"""The run itself: which cells there are, and the result of them all."""

import contextlib
import gc
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry._tools import machine
from tensorferry._tools.bench import devices, limits, results
from tensorferry._tools.bench.cell import Bench, Cell
from tensorferry._tools.bench.cuda import Driver
from tensorferry._tools.bench.results import FORMAT, Result, Row
from tensorferry.framework_register import TENSOR_FRAMEWORKS, load

# Source, results that are compared, and room for what a method needs besides.
TIMES_THE_SIZE = 5


@dataclass(frozen=True)
class Settings:
    """What is measured, and for how long each method."""

    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    seconds: float
    device: str = "cpu"
    methods: str = "all"

    def as_dict(self) -> dict[str, Any]:
        """As it stands in the result."""
        return {
            "sizes": list(self.sizes),
            "dtypes": list(self.dtypes),
            "layouts": list(self.layouts),
            "pairs": [list(pair) for pair in self.pairs],
            "seconds": self.seconds,
            "device": self.device,
            "methods": self.methods,
        }

    def lasting(self, seconds: float) -> "Settings":
        """The same, with another time for each method."""
        return replace(self, seconds=seconds)


Progress = Callable[[int, int, str], None]


def cells(settings: Settings) -> list[Cell]:
    """The jobs, pair by pair."""
    return [
        Cell(source, target, place, dtype, layout, size)
        for source, target in settings.pairs
        for place in devices.between(source, target, settings.device)
        for dtype in settings.dtypes
        for layout in settings.layouts
        for size in settings.sizes
    ]


def count_methods(settings: Settings) -> int:
    """How many methods there are to measure in all cells."""
    return sum(len(cell.methods) for cell in cells(settings))


def _nobody(done: int, total: int, what: str) -> None:
    """Whom nothing needs to be told."""


def run(settings: Settings, progress: Progress = _nobody) -> Result:
    """Measures everything; tells the number of methods that are done, and of those there are.

    The result has the notes on what was left out under `notes`.
    """
    _fits(settings)
    jobs = cells(settings)
    driver = _driver(jobs)
    progress(0, count_methods(settings), "limits of the machine")
    found = limits.measure(settings.sizes, settings.seconds, driver)
    rows, notes = _rows(jobs, settings, driver, progress)
    return {
        "format": FORMAT,
        "machine": machine.facts(),
        "settings": settings.as_dict(),
        "limits": found,
        "rows": rows,
        "notes": notes,
    }


def again(
    result: Result,
    settings: Settings,
    wanted: set[results.Cell],
    progress: Progress = _nobody,
) -> Result:
    """The same result, with some cells measured once more."""
    jobs = [cell for cell in cells(settings) if cell.key in wanted]
    rows, _ = _rows(jobs, settings, _driver(jobs), progress)
    found = {**results.cells(result), **results.cells({"rows": rows})}
    return {**result, "rows": [row for rows in found.values() for row in rows]}


def _driver(jobs: list[Cell]) -> Driver | None:
    return Driver() if any("cuda" in cell.places for cell in jobs) else None


def _rows(
    jobs: list[Cell], settings: Settings, driver: Driver | None, progress: Progress
) -> tuple[list[Row], list[str]]:
    """The rows of all cells, and what was left out."""
    total = sum(len(cell.methods) for cell in jobs)
    rows: list[Row] = []
    left_out: dict[str, None] = {}
    done = 0
    with _surroundings(settings) as (names, folder):
        for cell in jobs:
            count = len(cell.methods)
            what = f"{cell.source} to {cell.target}, {cell.dtype}, {cell.layout}"

            def tell(share: float, done: int = done, count: int = count, what: str = what) -> None:
                progress(done + int(share * count), total, what)

            tell(0)
            try:
                bench = Bench(
                    cell,
                    names,
                    folder,
                    seconds=settings.seconds,
                    wanted=settings.methods,
                    driver=driver,
                )
            except Exception as refusal:  # a framework without such tensors, in words of its own
                why = str(refusal).partition("\n")[0]
                if not isinstance(refusal, ferry.FerryError):
                    why = f"{cell.source} has no {cell.dtype}, {cell.layout}: {why}"
                left_out[why] = None
            else:
                rows += bench.rows(tell)
            done += count
            progress(done, total, what)
    return rows, list(left_out)


def _fits(settings: Settings) -> None:
    need, free = TIMES_THE_SIZE * max(settings.sizes), machine.free_memory()
    if free and need > free:
        raise ferry.OutOfMemoryError(
            f"{max(settings.sizes)} bytes need about {need >> 20} MiB to be measured, and "
            f"{free >> 20} MiB are free\nhint: write smaller --sizes"
        )


@contextlib.contextmanager
def _surroundings(settings: Settings) -> Iterator[tuple[dict[str, Any], Path]]:
    """The names that the one-liners use, and a folder for their files."""
    frameworks = {name for pair in settings.pairs for name in pair}
    names: dict[str, Any] = {"ferry": ferry, "np": np}
    with warnings.catch_warnings():
        # What a one-liner warns of, it warns of at every call.
        warnings.simplefilter("ignore")
        for name in sorted(frameworks, key=TENSOR_FRAMEWORKS.index):
            module = load(name)
            names[{"tensorflow": "tf", "mlx": "mx", "numpy": "np"}.get(name, name)] = module
            if name == "jax":
                names["jnp"] = module.numpy
            if name == "cupy":
                with contextlib.suppress(ImportError):
                    import cupyx  # type: ignore[import-not-found, unused-ignore]

                    names["cupyx"] = cupyx
        folder = Path(tempfile.mkdtemp(prefix="tensorferry-bench-"))
        # What the frameworks have made so far stays: a collection need not look at it every time.
        gc.freeze()
        try:
            yield names, folder
        finally:
            gc.unfreeze()
            shutil.rmtree(folder, ignore_errors=True)
