"""`tensorferry bench`: what every way to convert costs here, against ours."""

import argparse
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorferry as ferry
from tensorferry._tools import samples
from tensorferry._tools.cli.terminal import Terminal
from tensorferry.framework_register import TENSOR_FRAMEWORKS, load, tensor_framework

if TYPE_CHECKING:
    from tensorferry._tools.bench.results import Result
    from tensorferry._tools.bench.run import Settings

SIZES = "4K,256K,16M"
QUICK_SIZES = "4K,1M"
QUICK_SECONDS = 0.02
# Without --seconds a run takes about so long, and a method at most and at least so long.
WHOLE_RUN = 15.0
MOST_SECONDS, LEAST_SECONDS = 0.2, 0.01
JSON_NAME, HTML_NAME = "tensorferry-bench.json", "tensorferry-bench.html"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# How often what seems to have changed since an old result is measured again.
CONFIRMATIONS = 2
# The largest element, so that every size is a whole number of elements of every type.
STEP = 16
# The options that say what is measured, by their names in the parsed arguments.
MEASURED = ("sources", "targets", "sizes", "dtypes", "layouts", "device", "seconds", "methods")

DESCRIPTION = """\
Measures ours and every native one-liner (from_numpy, tensor, from_dlpack, .cpu().numpy(), explicit
copies, the round trip through a file) on the same tensors. Each result is checked bit by bit.

Methods are timed in turns, after a warm-up; shown are medians of calls whose results are dropped at
once. Extra memory is the most that one call takes while idle memory is given back, from 1 MiB on.
NumPy arrays begin at multiples of 64 bytes, where all frameworks can share them; the layout
`unaligned` begins 16 bytes past one, as NumPy's own arrays often do.

Nothing is written unless --output or --html says where.
"""
EPILOGUE = f"""\
examples:
  tensorferry bench --quick
  tensorferry bench --from numpy,torch --to torch,jax --sizes 4K,1M,64M
  tensorferry bench --dtypes float32,bfloat16 --layouts dense,transposed --output results/
  tensorferry bench --device cuda --output gpu.json --html gpu.html
  tensorferry bench --compare old.json           measure again as then, and show what changed
  tensorferry bench --compare old.json new.json  compare two files, and measure nothing

files:
  --output DIR writes DIR/{JSON_NAME} and DIR/{HTML_NAME}

--compare with one file measures what seems to have changed up to {CONFIRMATIONS} times more: what
stays is a change by the clock and against the best native method, which a busy machine slows too.

exit codes:
  0 all is well, 1 ours gave a wrong result or, with --compare, got slower by more than the spread
  and 10%, 2 wrong usage, 3 cannot be done, 130 interrupted (and nothing written)
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Describes the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="measure every way to convert against ours",
        description=DESCRIPTION,
        epilog=EPILOGUE,
    )
    what = command.add_argument_group("what is measured")
    names = ", ".join(TENSOR_FRAMEWORKS)
    what.add_argument(
        "--from", dest="sources", metavar="NAMES", help=f"sources, of {names} (all installed)"
    )
    what.add_argument("--to", dest="targets", metavar="NAMES", help="targets (all installed)")
    what.add_argument("--sizes", metavar="SIZES", help=f"bytes, with K, M or G ({SIZES})")
    what.add_argument("--dtypes", metavar="TYPES", help="element types (float32)")
    what.add_argument(
        "--layouts",
        metavar="LAYOUTS",
        help=f"of {', '.join(samples.LAYOUTS)}, unaligned (dense)",
    )
    what.add_argument(
        "--device",
        choices=("cpu", "cuda", "all"),
        help="on the host, with a GPU at one end or both, or all (cpu)",
    )
    what.add_argument(
        "--methods",
        choices=("all", "best", "ours"),
        help="every method, ours and the quickest native one, or ours alone (all)",
    )
    what.add_argument(
        "--seconds",
        metavar="SECONDS",
        help=f"time for each method (what makes {WHOLE_RUN:g} s in all, at most {MOST_SECONDS:g})",
    )
    what.add_argument(
        "--quick", action="store_true", help=f"sizes {QUICK_SIZES}, {QUICK_SECONDS:g} s a method"
    )
    files = command.add_argument_group("files")
    files.add_argument(
        "--output", metavar="PATH", help="a .json file, or a folder for JSON and HTML"
    )
    files.add_argument("--html", metavar="FILE.html", help="a report in one file")
    files.add_argument(
        "--compare", nargs="+", metavar="FILE.json", help="an old result, or an old and a new one"
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Measures, prints, writes and compares what is asked for."""
    try:
        _refuse_contradictions(arguments)
        json_path, html_path = _paths(arguments)
        wishes = None if arguments.compare else Wishes(arguments)
    except ferry.InvalidArgumentError as error:
        terminal.error(error)
        return 2
    _refuse_unwritable(json_path, html_path)

    from tensorferry._tools.bench import results
    from tensorferry._tools.cli import bench_tables as tables

    old = results.read(Path(arguments.compare[0])) if arguments.compare else None
    if len(arguments.compare or ()) == 2:
        assert old is not None
        return tables.compared(old, results.read(Path(arguments.compare[1])), terminal)
    with warnings.catch_warnings():
        # What frameworks say about themselves while they are imported is no answer.
        warnings.simplefilter("ignore")
        settings = wishes.settings(terminal) if wishes else _settings_of(old, terminal)
        result = _measured(settings, terminal)
        if old is not None:
            result = _confirmed(old, result, settings, terminal)
    for note in result["notes"]:
        _note(terminal, note)
    _write(result, json_path, html_path)
    wrong = any(row["ours"] and (row["error"] or "").startswith("gives ") for row in result["rows"])
    if old is not None:
        return max(tables.compared(old, result, terminal), int(wrong))
    if terminal.json:
        terminal.answer(result)
    else:
        tables.measured(result, terminal)
        for path in filter(None, (json_path, html_path)):
            terminal.print(f"wrote {path}")
    return int(wrong)


def _measured(settings: "Settings", terminal: Terminal) -> "Result":
    from tensorferry._tools.bench import run

    result = run.run(settings, terminal.progress)
    terminal.clear_line()
    if not result["rows"]:
        why = result["notes"][0] if result["notes"] else "no pair has a place in common"
        raise ferry.InvalidArgumentError(
            f"nothing can be measured: {why}\nhint: ask for other frameworks, types or layouts"
        )
    return result


def _confirmed(
    old: "Result", result: "Result", settings: "Settings", terminal: Terminal
) -> "Result":
    """The result, with what seems to have changed measured again: a busy moment passes."""
    from tensorferry._tools.bench import compare, run

    for _ in range(CONFIRMATIONS):
        if cells := compare.changed(compare.compare(old, result)):
            result = run.again(result, settings, cells, terminal.progress)
    terminal.clear_line()
    return result


def _note(terminal: Terminal, text: str) -> None:
    terminal.clear_line()
    sys.stderr.write(f"note: {text}\n")
    sys.stderr.flush()


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    if not arguments.compare:
        return
    if len(arguments.compare) > 2:
        raise ferry.InvalidArgumentError(
            f"--compare takes one file or two, not {len(arguments.compare)}"
            "\nhint: write --compare OLD.json NEW.json"
        )
    given = [name for name in MEASURED if getattr(arguments, name) is not None]
    given += ["quick"] if arguments.quick else []
    if given:
        option = {"sources": "from", "targets": "to"}.get(given[0], given[0])
        raise ferry.InvalidArgumentError(
            f"--compare takes its settings from the old result, and --{option} was given too"
            f"\nhint: leave out --{option}, or compare two files"
        )
    if len(arguments.compare) == 2 and (arguments.output or arguments.html):
        raise ferry.InvalidArgumentError(
            "--compare with two files measures nothing that could be written"
            "\nhint: leave out --output and --html"
        )


def _paths(arguments: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Where the JSON and the HTML go."""
    json_path = html_path = None
    if arguments.output is not None:
        json_path = Path(arguments.output)
        if json_path.is_dir() or json_path.suffix == "":
            html_path = json_path / HTML_NAME
            json_path = json_path / JSON_NAME
        elif json_path.suffix != ".json":
            raise ferry.InvalidArgumentError(
                f"--output {arguments.output} is neither a folder nor a .json file"
                "\nhint: write --output FILE.json, and --html FILE.html for the report"
            )
    if arguments.html is not None:
        html_path = Path(arguments.html)
        if html_path.is_dir() or html_path.suffix not in (".html", ".htm"):
            raise ferry.InvalidArgumentError(
                f"--html {arguments.html} is no .html file\nhint: write --html FILE.html"
            )
    return json_path, html_path


def _refuse_unwritable(*paths: Path | None) -> None:
    """Before anything is measured, rather than when all is done."""
    for path in filter(None, paths):
        folder = path.parent
        if path.name in (JSON_NAME, HTML_NAME) and not folder.exists():
            folder = folder.parent  # it will be made
        taken = path.exists() and (path.is_dir() or not os.access(path, os.W_OK))
        if taken or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise ferry.InvalidArgumentError(
                f"{path} cannot be written\nhint: name a folder that is there and yours"
            )


def _write(result: "Result", json_path: Path | None, html_path: Path | None) -> None:
    """Writes the files, each whole or not at all; the figures first."""
    from tensorferry._tools import report
    from tensorferry._tools.bench import results

    for path in filter(None, (json_path, html_path)):
        path.parent.mkdir(exist_ok=True)
    if json_path is not None:
        results.write(result, json_path)
    if html_path is not None:
        report.write(result, html_path)


def words(text: str, kind: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between, each of which must be known."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = next((word for word in found if word not in known), None)
    if unknown is not None or not found:
        fact = f"no {kind} is called {unknown!r}" if unknown else f"{text!r} names no {kind}"
        raise ferry.InvalidArgumentError(f"{fact}\nhint: write one or more of {','.join(known)}")
    return found


def size(text: str) -> int:
    """Bytes as they are written on the command line."""
    plain = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = plain[-1:] if plain[-1:] in ("k", "m", "g") else ""
    try:
        found = float(plain.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        found = 0.0
    if not 0 < found < 1 << 50 or found % STEP:
        raise ferry.InvalidArgumentError(
            f"{text!r} is no size that can be measured"
            f"\nhint: write multiples of {STEP} bytes, such as 4096, 4K, 1M or 2G"
        )
    return int(found)


def seconds(text: str) -> float:
    """A time as it is written on the command line."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise ferry.InvalidArgumentError(
            f"{text!r} is no time\nhint: write seconds for each method, such as --seconds 0.2"
        )
    return found


class Wishes:
    """What the command line asks for, before it is known which frameworks are here."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from tensorferry._tools.bench.sources import LAYOUTS

        sizes = arguments.sizes or (QUICK_SIZES if arguments.quick else SIZES)
        self.sizes = tuple(sorted({size(word) for word in sizes.split(",") if word.strip()}))
        if not self.sizes:
            raise ferry.InvalidArgumentError(
                f"{sizes!r} names no size\nhint: write --sizes {SIZES}"
            )
        self.dtypes = words(arguments.dtypes or "float32", "type", samples.DTYPES)
        self.layouts = words(arguments.layouts or "dense", "layout", LAYOUTS)
        self.sources = self._frameworks(arguments.sources)
        self.targets = self._frameworks(arguments.targets)
        self.device = arguments.device or "cpu"
        self.methods = arguments.methods or "all"
        self.seconds = seconds(arguments.seconds) if arguments.seconds is not None else None
        if self.seconds is None and arguments.quick:
            self.seconds = QUICK_SECONDS
        if self.sources == self.targets and len(self.sources) == 1:
            raise ferry.InvalidArgumentError(
                f"{self.sources[0]} to itself is no conversion\nhint: name another one with --to"
            )

    @staticmethod
    def _frameworks(text: str | None) -> tuple[str, ...]:
        if text is None or text.strip() == "all":
            return TENSOR_FRAMEWORKS
        names = (tensor_framework(word.strip()) for word in text.split(",") if word.strip())
        return words(",".join(names), "framework", TENSOR_FRAMEWORKS)

    def settings(self, terminal: Terminal) -> "Settings":
        """Loads the frameworks, and says which are left out."""
        from tensorferry._tools.bench.run import Settings, count_methods

        here = _loaded({*self.sources, *self.targets}, terminal)
        pairs = tuple(
            (source, target)
            for source in self.sources
            for target in self.targets
            if source != target and {source, target} <= here
        )
        _refuse_nowhere(pairs, here, self.device)
        settings = Settings(
            sizes=self.sizes,
            dtypes=self.dtypes,
            layouts=self.layouts,
            pairs=pairs,
            seconds=self.seconds or MOST_SECONDS,
            device=self.device,
            methods=self.methods,
        )
        if self.seconds is not None:
            return settings
        share = WHOLE_RUN / max(1, count_methods(settings))
        within = min(max(share, LEAST_SECONDS), MOST_SECONDS)
        return settings.lasting(round(within, 4))


def _loaded(frameworks: set[str], terminal: Terminal) -> set[str]:
    """Imports those that can be, in an order that works."""
    here = set()
    logging.getLogger("jax").setLevel(logging.WARNING)
    for number, name in enumerate(sorted(frameworks, key=TENSOR_FRAMEWORKS.index)):
        terminal.progress(number, len(frameworks), f"importing {name}")
        try:
            load(name)
        except Exception as error:  # an installation that is broken fails in words of its own
            why = " ".join(str(error).partition("\nhint: ")[0].split())
            _note(terminal, why if isinstance(error, ferry.FerryError) else f"{name}: {why}")
        else:
            here.add(name)
    return here


def _refuse_nowhere(pairs: tuple[tuple[str, str], ...], here: set[str], device: str) -> None:
    from tensorferry._tools.bench import devices

    if not pairs:
        raise ferry.FrameworkNotFoundError(
            "no two of these frameworks can be imported here"
            "\nhint: install one more, or name others with --from and --to"
        )
    if device == "cuda" and not any(map(devices.has_cuda, here)):
        raise ferry.UnsupportedError(
            "none of these frameworks can use a CUDA GPU here\nhint: write --device cpu"
        )


def _settings_of(old: "Result | None", terminal: Terminal) -> "Settings":
    """The settings of an old result, as far as its frameworks are here."""
    from tensorferry._tools.bench.run import Settings
    from tensorferry._tools.bench.sources import LAYOUTS

    assert old is not None
    found = old["settings"]
    words(",".join(found["dtypes"]), "type", samples.DTYPES)
    words(",".join(found["layouts"]), "layout", LAYOUTS)
    names = {name for pair in found["pairs"] for name in pair}
    words(",".join(sorted(names)), "framework", TENSOR_FRAMEWORKS)
    here = _loaded(names, terminal)
    pairs = tuple((source, target) for source, target in found["pairs"] if {source, target} <= here)
    _refuse_nowhere(pairs, here, found["device"])
    return Settings(
        sizes=tuple(size(str(number)) for number in found["sizes"]),
        dtypes=tuple(found["dtypes"]),
        layouts=tuple(found["layouts"]),
        pairs=pairs,
        seconds=float(found["seconds"]),
        device=found["device"],
        methods=found["methods"],
    )
