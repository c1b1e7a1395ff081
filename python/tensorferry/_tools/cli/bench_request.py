"""What a benchmark measures: the options of `tensorferry bench`, parsed into its settings."""

import argparse
import difflib
import logging
from typing import TYPE_CHECKING

import tensorferry as ferry
from tensorferry._tools import samples
from tensorferry._tools.cli import notation
from tensorferry._tools.cli.terminal import Terminal
from tensorferry.framework_register import TENSOR_FRAMEWORKS, load

if TYPE_CHECKING:
    from tensorferry._tools.bench.results import Result
    from tensorferry._tools.bench.run import Settings

DEFAULT_SIZES = "4K,256K,16M"
QUICK_SIZES = "4K,1M"
QUICK_METHOD_SECONDS = 0.02
# Without --seconds a run takes about RUN_SECONDS, and a method a time between these two.
RUN_SECONDS = 15.0
MIN_METHOD_SECONDS, MAX_METHOD_SECONDS = 0.01, 0.2
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# The largest element, so that every size is a whole number of elements of every type.
SIZE_STEP_BYTES = 16


def parse_names(text: str, kind: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Parses names separated by commas, each of which must be known."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = next((word for word in found if word not in known), None)
    if unknown is not None or not found:
        fact = (
            f"unknown {kind} {notation.quote(unknown)}"
            if unknown
            else f"the list of {kind}s is empty"
        )
        close = difflib.get_close_matches(unknown or "", known, n=1)
        advice = f"did you mean {close[0]}?" if close else f"write one or more of {','.join(known)}"
        raise ferry.InvalidArgumentError(f"{fact}\nhint: {advice}")
    return found


def parse_size(text: str) -> int:
    """Parses a number of bytes: 4096, 4K, 1M."""
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = number[-1:] if number[-1:] in ("k", "m", "g") else ""
    try:
        found = float(number.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        found = 0.0
    if not 0 < found < 1 << 50 or found % SIZE_STEP_BYTES:
        raise ferry.InvalidArgumentError(
            f"{notation.quote(text)} is not a positive multiple of {SIZE_STEP_BYTES} bytes"
            f"\nhint: write multiples of {SIZE_STEP_BYTES} bytes, such as 4096, 4K, 1M or 2G"
        )
    return int(found)


def parse_seconds(text: str) -> float:
    """Parses the time for each method."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise ferry.InvalidArgumentError(
            f"{notation.quote(text)} is not a time"
            "\nhint: write seconds for each method, such as --seconds 0.2"
        )
    return found


class BenchRequest:
    """The options of the command line, before the frameworks are imported."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from tensorferry._tools.bench.sources import LAYOUTS

        sizes = arguments.sizes or (QUICK_SIZES if arguments.quick else DEFAULT_SIZES)
        self.sizes = tuple(sorted({parse_size(word) for word in sizes.split(",") if word.strip()}))
        if not self.sizes:
            raise ferry.InvalidArgumentError(
                f"the list of sizes is empty\nhint: write --sizes {DEFAULT_SIZES}"
            )
        self.dtypes = parse_names(arguments.dtypes or "float32", "type", samples.DTYPES)
        self.layouts = parse_names(arguments.layouts or "dense", "layout", LAYOUTS)
        self.sources = self._parse_frameworks(arguments.sources)
        self.targets = self._parse_frameworks(arguments.targets)
        self.device = arguments.device or "cpu"
        self.methods = arguments.methods or "all"
        self.seconds = parse_seconds(arguments.seconds) if arguments.seconds is not None else None
        if self.seconds is None and arguments.quick:
            self.seconds = QUICK_METHOD_SECONDS
        if self.sources == self.targets and len(self.sources) == 1:
            raise ferry.InvalidArgumentError(
                f"source and target are both {self.sources[0]}\nhint: name another one with --to"
            )

    @staticmethod
    def _parse_frameworks(text: str | None) -> tuple[str, ...]:
        if text is None or text.strip() == "all":
            return TENSOR_FRAMEWORKS
        names = (notation.framework_name(word.strip()) for word in text.split(",") if word.strip())
        return parse_names(",".join(names), "framework", TENSOR_FRAMEWORKS)

    def settings(self, terminal: Terminal) -> "Settings":
        """Imports the frameworks, and notes which are left out."""
        from tensorferry._tools.bench.run import Settings, count_methods

        installed = _import_frameworks({*self.sources, *self.targets}, terminal)
        pairs = tuple(
            (source, target)
            for source in self.sources
            for target in self.targets
            if source != target and {source, target} <= installed
        )
        _check_pairs(pairs, installed, self.device)
        settings = Settings(
            sizes=self.sizes,
            dtypes=self.dtypes,
            layouts=self.layouts,
            pairs=pairs,
            seconds=self.seconds or MAX_METHOD_SECONDS,
            device=self.device,
            methods=self.methods,
        )
        if self.seconds is not None:
            return settings
        share = RUN_SECONDS / max(1, count_methods(settings))
        within = min(max(share, MIN_METHOD_SECONDS), MAX_METHOD_SECONDS)
        return settings.with_seconds(round(within, 4))


def _import_frameworks(frameworks: set[str], terminal: Terminal) -> set[str]:
    """Imports the installed frameworks, in an order that works."""
    installed = set()
    logging.getLogger("jax").setLevel(logging.WARNING)
    for number, name in enumerate(sorted(frameworks, key=TENSOR_FRAMEWORKS.index)):
        terminal.progress(number, len(frameworks), f"importing {name}")
        try:
            load(name)
        except Exception as error:  # a broken installation may raise anything
            reason = " ".join(str(error).partition("\nhint: ")[0].split())
            terminal.note(reason if isinstance(error, ferry.FerryError) else f"{name}: {reason}")
        else:
            installed.add(name)
    return installed


def _check_pairs(pairs: tuple[tuple[str, str], ...], installed: set[str], device: str) -> None:
    from tensorferry._tools.bench import devices

    if not pairs:
        raise ferry.FrameworkNotFoundError(
            "fewer than two of these frameworks can be imported"
            "\nhint: install another, or name others with --from and --to"
        )
    if device == "cuda" and not any(map(devices.has_cuda, installed)):
        raise ferry.UnsupportedError(
            "these frameworks cannot use a CUDA GPU here\nhint: write --device cpu"
        )


def settings_of(old: "Result | None", terminal: Terminal) -> "Settings":
    """The settings of an old result, for the frameworks that can be imported."""
    from tensorferry._tools.bench.run import Settings
    from tensorferry._tools.bench.sources import LAYOUTS

    assert old is not None
    found = old["settings"]
    parse_names(",".join(found["dtypes"]), "type", samples.DTYPES)
    parse_names(",".join(found["layouts"]), "layout", LAYOUTS)
    names = {name for pair in found["pairs"] for name in pair}
    parse_names(",".join(sorted(names)), "framework", TENSOR_FRAMEWORKS)
    installed = _import_frameworks(names, terminal)
    pairs = tuple(
        (source, target) for source, target in found["pairs"] if {source, target} <= installed
    )
    _check_pairs(pairs, installed, found["device"])
    return Settings(
        sizes=tuple(parse_size(str(number)) for number in found["sizes"]),
        dtypes=tuple(found["dtypes"]),
        layouts=tuple(found["layouts"]),
        pairs=pairs,
        seconds=float(found["seconds"]),
        device=found["device"],
        methods=found["methods"],
    )
