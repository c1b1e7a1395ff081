"""Measurement of one cell: one conversion by every method, on the same tensor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tensorferry._tools import introspect
from tensorferry._tools.bench import check, devices, measure, memory, methods, sources
from tensorferry._tools.bench.cuda import Driver
from tensorferry._tools.bench.methods import Method
from tensorferry._tools.bench.results import Row
from tensorferry._tools.bench.timings import Timing, interval, quickest

# MLX computes lazily and JAX copies asynchronously, so their results are waited for. JAX copies
# within the host synchronously up to this size.
MAX_JAX_SYNC_COPY_BYTES = 64 << 10
WAIT_CODE = {"jax": "({}).block_until_ready()", "mlx": "mx.eval({})"}
# Frameworks that cache the host copy of a GPU tensor, and code that makes a tensor without a cached
# copy: otherwise the second call would measure the cache.
FRESH_TENSOR_CODE = {"jax": "x = original.copy()", "tensorflow": "x = tf.identity(original)"}
MAX_ERROR_CHARS = 160


class Cell(NamedTuple):
    """One conversion."""

    source: str
    target: str
    devices: tuple[str, str]
    dtype: str
    layout: str
    size: int

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of the cell in a result, as of `results.cell_of`."""
        return (self.source, self.target, *self.devices, self.dtype, self.layout, self.size)

    @property
    def methods(self) -> list[Method]:
        """`ferry.to`, then the native methods."""
        ours = methods.ours(self.target, self.devices)
        return [ours, *methods.natives(self.source, self.target, self.devices)]

    def row(self, method: Method, *, is_ours: bool) -> Row:
        """The row of a method before its measurement."""
        return {
            "source": self.source,
            "target": self.target,
            "source_device": self.devices[0],
            "target_device": self.devices[1],
            "dtype": self.dtype,
            "layout": self.layout,
            "bytes": self.size,
            "method": method.text,
            "ours": is_ours,
            "shares": None,
            "seconds": None,
            "low": None,
            "high": None,
            "calls": 0,
            "rounds": 0,
            "ratio": None,
            "ratio_low": None,
            "ratio_high": None,
            "extra_bytes": None,
            "checked": False,
            "error": None,
        }


class CellBenchmark:
    """The measurement of one cell."""

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
        self.driver = driver if "cuda" in cell.devices else None
        shape = sources.shape_of(cell.size, cell.dtype)
        source_device, _ = cell.devices
        self.x = sources.make(
            cell.source, shape, dtype=cell.dtype, layout=cell.layout, device=source_device
        )
        self.names = {**names, "x": self.x, "original": self.x}
        self.expected = introspect.values(cell.source, self.x)

    def rows(self, progress: Callable[[float], None]) -> list[Row]:
        """Checks and times every method; the row of a method that fails has an error."""
        ours, *others = self.cell.methods
        if self.wanted == "ours":
            others = []
        rows = {method: self.cell.row(method, is_ours=method is ours) for method in (ours, *others)}
        with devices.default_device(self.cell.target, self.cell.devices[1]):
            for method, row in rows.items():
                self._check(method, row)
            if self.wanted == "best":
                rows = self._select_best(rows)
            passed = {method: row for method, row in rows.items() if row["error"] is None}
            if self.cell.size >= memory.MIN_MEASURED_BYTES:
                for method, row in passed.items():
                    row["extra_bytes"] = self._extra_bytes(method)
            times = self._time(passed, self.seconds, progress)
            for method, row in passed.items():
                low, median, high = times[method.text].quartiles
                row.update(seconds=median, low=low, high=high)
                row.update(calls=times[method.text].calls, rounds=len(times[method.text].rounds))
                if ours in passed and method is not ours:
                    ratios = interval(times[ours.text], times[method.text])
                    row.update(zip(("ratio_low", "ratio", "ratio_high"), ratios, strict=True))
                # Checked again: a method may fail only after many calls.
                self._check(method, row)
        memory.release_caches((self.cell.source, self.cell.target))
        return list(rows.values())

    def _select_best(self, rows: dict[Method, Row]) -> dict[Method, Row]:
        others = [m for m, row in rows.items() if not row["ours"] and row["error"] is None]
        kept = {method for method, row in rows.items() if row["ours"]}
        if others:
            best = quickest(self._time(others, self.seconds / 10))
            kept |= {method for method in others if method.text == best}
        return {method: row for method, row in rows.items() if method in kept}

    def _time(
        self,
        wanted: dict[Method, Row] | list[Method],
        seconds: float,
        progress: Callable[[float], None] = lambda share: None,
    ) -> dict[str, Timing]:
        timers = {method.text: self._timer(method) for method in wanted}
        return measure.time_alternating(timers, seconds, progress=progress)

    def _check(self, method: Method, row: Row) -> None:
        """Calls a method once, and stores in its row whether the result is right."""
        target, target_device = self.cell.target, self.cell.devices[1]
        try:
            found = self._call(method)
            row["error"] = (
                check.describe_error(
                    found, target, target_device, self.x, self.cell.source, self.expected
                )
                or None
            )
        except Exception as error:
            row["error"] = _one_line(error)
            row["error"] = row["error"].replace(str(self.folder), "")
        if row["error"] is None:
            row["checked"] = True
            row["shares"] = check.shares(self.x, self.cell.source, found, target)
        else:
            row.update(seconds=None, low=None, high=None, calls=0, rounds=0, extra_bytes=None)
            row.update(checked=False, shares=None, ratio=None, ratio_low=None, ratio_high=None)

    def _call(self, method: Method) -> Any:
        names = dict(self.names)
        exec(self._fresh_tensor_code(method), names)
        exec(self._with_paths(method.before), names)
        return eval(self._with_paths(method.code), names)

    def _extra_bytes(self, method: Method) -> int | None:
        before = compile(self._with_paths(method.before), "<before>", "exec")
        code = compile(self._waiting_code(method), "<method>", "eval")

        def prepare() -> Callable[[], Any]:
            names = dict(self.names)
            exec(self._fresh_tensor_code(method), names)
            self._synchronise()

            def call() -> Any:
                exec(before, names)
                result = eval(code, names)
                self._synchronise()
                return result

            return call

        frameworks = (self.cell.source, self.cell.target)
        return memory.extra_bytes(prepare, frameworks, on_gpu="cuda" in self.cell.devices)

    def _synchronise(self) -> None:
        if self.driver is not None:
            self.driver.synchronise()

    def _timer(self, method: Method) -> measure.Timer:
        code = self._waiting_code(method)
        if method.before:
            code = f"{self._with_paths(method.before)}; {code}"
        synchronise = None if self.driver is None else self.driver.synchronise
        return measure.make_timer(
            code, self.names, fresh=self._fresh_tensor_code(method), synchronise=synchronise
        )

    def _waiting_code(self, method: Method) -> str:
        """The expression of a method, which waits for its result."""
        code = self._with_paths(method.code)
        source_device, target_device = self.cell.devices
        is_sync = self.cell.size <= MAX_JAX_SYNC_COPY_BYTES and source_device == target_device
        if self.cell.target == "jax" and is_sync:
            return code
        return WAIT_CODE.get(self.cell.target, "{}").replace("{}", code)

    def _fresh_tensor_code(self, method: Method) -> str:
        source_device, target_device = self.cell.devices
        if source_device == "cuda" and (target_device == "cpu" or method.uses_host):
            return FRESH_TENSOR_CODE.get(self.cell.source, "")
        return ""

    def _with_paths(self, code: str) -> str:
        """The code with its files in the temporary folder."""
        for name in methods.FILES:
            code = code.replace(name, repr(str(self.folder / name.strip('"'))))
        return code


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).partition("\n")[0].split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= MAX_ERROR_CHARS else line[: MAX_ERROR_CHARS - 3] + "..."
