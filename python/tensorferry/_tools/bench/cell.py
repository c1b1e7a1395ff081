"""One cell: a job that every method is to do, on the same tensor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tensorferry._tools import introspect
from tensorferry._tools.bench import check, devices, measure, memory, methods, sources
from tensorferry._tools.bench.cuda import Driver
from tensorferry._tools.bench.methods import Method
from tensorferry._tools.bench.results import Row

# MLX does nothing until it is asked to, and JAX copies behind the caller's back: they are waited
# for. What JAX copies within a host up to this size, it copies at once.
SMALL = 64 << 10
WAITS = {"jax": "({}).block_until_ready()", "mlx": "mx.eval({})"}
# Frameworks that keep what they brought home from a GPU, and how to get a tensor that was never
# home: else the second call would be free.
FRESH = {"jax": "x = kept.copy()", "tensorflow": "x = tf.identity(kept)"}
LONGEST_ERROR = 160


class Cell(NamedTuple):
    """One job that every method is to do."""

    source: str
    target: str
    places: tuple[str, str]
    dtype: str
    layout: str
    size: int

    @property
    def key(self) -> tuple[Any, ...]:
        """As `results.cell_of` has it."""
        return (self.source, self.target, *self.places, self.dtype, self.layout, self.size)

    @property
    def methods(self) -> list[Method]:
        """Ours first, then what there is without us."""
        mine = methods.ours(self.target, self.places)
        return [mine, *methods.natives(self.source, self.target, self.places)]

    def row(self, method: Method, *, mine: bool) -> Row:
        """The row of a method that has not run."""
        return {
            "source": self.source,
            "target": self.target,
            "source_device": self.places[0],
            "target_device": self.places[1],
            "dtype": self.dtype,
            "layout": self.layout,
            "bytes": self.size,
            "method": method.text,
            "ours": mine,
            "shares": None,
            "seconds": None,
            "low": None,
            "high": None,
            "calls": 0,
            "rounds": 0,
            "extra_bytes": None,
            "checked": False,
            "error": None,
        }


class Bench:
    """One cell at work."""

    def __init__(
        self,
        cell: Cell,
        names: dict[str, Any],
        folder: Path,
        *,
        seconds: float,
        wanted: str,
        driver: Driver | None,
    ) -> None:
        self.cell, self.folder, self.seconds, self.wanted = cell, folder, seconds, wanted
        self.driver = driver if "cuda" in cell.places else None
        shape = sources.shape_of(cell.size, cell.dtype)
        came_from, _ = cell.places
        self.x = sources.make(
            cell.source, shape, dtype=cell.dtype, layout=cell.layout, device=came_from
        )
        self.names = {**names, "x": self.x, "kept": self.x}
        self.expected = introspect.values(cell.source, self.x)

    def rows(self, tell: Callable[[float], None]) -> list[Row]:
        """Tries, checks and times every method; those that fail have an error in their row."""
        mine, *others = self.cell.methods
        if self.wanted == "ours":
            others = []
        rows = {method: self.cell.row(method, mine=method is mine) for method in (mine, *others)}
        with devices.default(self.cell.target, self.cell.places[1]):
            for method, row in rows.items():
                self._try(method, row)
            if self.wanted == "best":
                rows = self._ours_and_best(rows)
            right = {method: row for method, row in rows.items() if row["error"] is None}
            if self.cell.size >= memory.LEAST:
                for method, row in right.items():
                    row["extra_bytes"] = self._extra(method)
            times = self._times(right, self.seconds, tell)
            for method, row in right.items():
                low, median, high = times[method.text].quartiles
                row.update(seconds=median, low=low, high=high)
                row.update(calls=times[method.text].calls, rounds=len(times[method.text].rounds))
                # Once more: what went wrong only after many calls is wrong too.
                self._try(method, row)
        memory.give_back((self.cell.source, self.cell.target))
        return list(rows.values())

    def _ours_and_best(self, rows: dict[Method, Row]) -> dict[Method, Row]:
        others = [m for m, row in rows.items() if not row["ours"] and row["error"] is None]
        kept = {method for method, row in rows.items() if row["ours"]}
        if others:
            times = self._times(others, self.seconds / 10)
            kept.add(min(others, key=lambda method: times[method.text].quartiles[1]))
        return {method: row for method, row in rows.items() if method in kept}

    def _times(
        self,
        wanted: dict[Method, Row] | list[Method],
        seconds: float,
        tell: Callable[[float], None] = lambda share: None,
    ) -> dict[str, measure.Timing]:
        jobs = {method.text: self._job(method) for method in wanted}
        return measure.take_turns(jobs, seconds, progress=tell)

    def _try(self, method: Method, row: Row) -> None:
        """Calls a method once, and writes into its row whether it did its job."""
        target, goes_to = self.cell.target, self.cell.places[1]
        try:
            found = self._call(method)
            row["error"] = (
                check.fault(found, target, goes_to, self.x, self.cell.source, self.expected) or None
            )
        except Exception as error:
            row["error"] = _in_one_line(error)
            row["error"] = row["error"].replace(str(self.folder), "")
        if row["error"] is None:
            row["checked"] = True
            row["shares"] = check.shares(self.x, self.cell.source, found, target)
        else:
            row.update(seconds=None, low=None, high=None, calls=0, rounds=0, extra_bytes=None)
            row.update(checked=False, shares=None)

    def _call(self, method: Method) -> Any:
        names = dict(self.names)
        exec(self._fresh(method), names)
        exec(self._here(method.before), names)
        return eval(self._here(method.code), names)

    def _extra(self, method: Method) -> int | None:
        before = compile(self._here(method.before), "<before>", "exec")
        code = compile(self._waited(method), "<method>", "eval")

        def prepare() -> Callable[[], Any]:
            names = dict(self.names)
            exec(self._fresh(method), names)
            self._synchronise()

            def call() -> Any:
                exec(before, names)
                result = eval(code, names)
                self._synchronise()
                return result

            return call

        frameworks = (self.cell.source, self.cell.target)
        return memory.extra(prepare, frameworks, on_gpu="cuda" in self.cell.places)

    def _synchronise(self) -> None:
        if self.driver is not None:
            self.driver.synchronise()

    def _job(self, method: Method) -> measure.Job:
        code = self._waited(method)
        if method.before:
            code = f"{self._here(method.before)}; {code}"
        synchronise = None if self.driver is None else self.driver.synchronise
        return measure.job(code, self.names, fresh=self._fresh(method), synchronise=synchronise)

    def _waited(self, method: Method) -> str:
        """The expression of a method, until its result is really there."""
        code = self._here(method.code)
        came_from, goes_to = self.cell.places
        if self.cell.target == "jax" and self.cell.size <= SMALL and came_from == goes_to:
            return code
        return WAITS.get(self.cell.target, "{}").replace("{}", code)

    def _fresh(self, method: Method) -> str:
        came_from, goes_to = self.cell.places
        if came_from == "cuda" and (goes_to == "cpu" or method.lands):
            return FRESH.get(self.cell.source, "")
        return ""

    def _here(self, code: str) -> str:
        """The text with files that are in our folder."""
        for name in methods.FILES:
            code = code.replace(name, repr(str(self.folder / name.strip('"'))))
        return code


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).partition("\n")[0].split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= LONGEST_ERROR else line[: LONGEST_ERROR - 3] + "..."
