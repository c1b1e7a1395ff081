"""`tensorferry bench`: measures `ferry.to` against the native one-liners."""

import argparse
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorferry as ferry
from tensorferry._tools import samples
from tensorferry._tools.cli.bench_request import (
    DEFAULT_SIZES,
    MAX_METHOD_SECONDS,
    QUICK_METHOD_SECONDS,
    QUICK_SIZES,
    RUN_SECONDS,
    BenchRequest,
    settings_of,
)
from tensorferry._tools.cli.terminal import Terminal
from tensorferry.framework_register import TENSOR_FRAMEWORKS

if TYPE_CHECKING:
    from tensorferry._tools.bench.results import Result
    from tensorferry._tools.bench.run import Settings

JSON_NAME, HTML_NAME = "tensorferry-bench.json", "tensorferry-bench.html"
# How many times a conversion that seems to have changed is measured again.
MAX_CONFIRMATIONS = 2
# The options that select what is measured, by their names in the parsed arguments.
SELECTION_OPTIONS = (
    "sources",
    "targets",
    "sizes",
    "dtypes",
    "layouts",
    "device",
    "seconds",
    "methods",
)

DESCRIPTION = """\
Measures ferry.to and every native one-liner (from_numpy, tensor, from_dlpack, .cpu().numpy(),
explicit copies, a round trip through a file) on the same tensors. Each result is compared bit by
bit.

Methods are timed in alternating rounds, after a warm-up; the table shows medians of calls whose
results are released immediately. Extra memory is the peak of one call, for tensors of 1 MiB and
more. Each tensor starts where its own framework allocates memory; the layout `unaligned` starts
16 bytes later, where JAX and TensorFlow cannot share memory of PyTorch.

The ratio to the best native method decides whether ferry.to is ahead, level or behind; the rule is
printed below the table. A warning precedes the table if the machine was busy.

Files are written only with --output or --html.
"""
EPILOGUE = f"""\
examples:
  tensorferry bench --quick
  tensorferry bench --from numpy,torch --to torch,jax --sizes 4K,1M,64M
  tensorferry bench --dtypes float32,bfloat16 --layouts dense,transposed --output results/
  tensorferry bench --device cuda --output gpu.json --html gpu.html
  tensorferry bench --compare old.json           repeat a measurement, and show what changed
  tensorferry bench --compare old.json new.json  compare two files without measuring

files:
  --output DIR writes DIR/{JSON_NAME} and DIR/{HTML_NAME}

--compare with one file repeats apparent changes up to {MAX_CONFIRMATIONS} times. A change counts if
the time and the ratio to the best native method both changed, because load slows down both methods.

exit codes:
  0 success, 1 ferry.to gave a wrong result or, with --compare, is slower by more than the spread
  and 10%, 2 invalid usage, 3 the command failed, 130 interrupted (no file is written)
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="measure ferry.to against native conversions",
        description=DESCRIPTION,
        epilog=EPILOGUE,
    )
    what = command.add_argument_group("selection")
    names = ", ".join(TENSOR_FRAMEWORKS)
    what.add_argument(
        "--from", dest="sources", metavar="NAMES", help=f"sources, of {names} (all installed)"
    )
    what.add_argument("--to", dest="targets", metavar="NAMES", help="targets (all installed)")
    what.add_argument("--sizes", metavar="SIZES", help=f"bytes, with K, M or G ({DEFAULT_SIZES})")
    what.add_argument("--dtypes", metavar="TYPES", help="element types (float32)")
    what.add_argument(
        "--layouts",
        metavar="LAYOUTS",
        help=f"of {', '.join(samples.LAYOUTS)}, unaligned (dense)",
    )
    what.add_argument(
        "--device",
        choices=("cpu", "cuda", "all"),
        help="on the host, with a GPU as source or target, or all (cpu)",
    )
    what.add_argument(
        "--methods",
        choices=("all", "best", "ours"),
        help="every method, ferry.to and the fastest native one, or only ferry.to (all)",
    )
    what.add_argument(
        "--seconds",
        metavar="SECONDS",
        help=f"time per method (at most {MAX_METHOD_SECONDS:g}, about {RUN_SECONDS:g} s in all)",
    )
    what.add_argument(
        "--quick",
        action="store_true",
        help=f"sizes {QUICK_SIZES}, {QUICK_METHOD_SECONDS:g} s per method",
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
    """Measures, prints, writes and compares as requested."""
    try:
        _refuse_contradictions(arguments)
        json_path, html_path = _paths(arguments)
        request = None if arguments.compare else BenchRequest(arguments)
    except ferry.InvalidArgumentError as error:
        terminal.error(error)
        return 2
    _refuse_unwritable(json_path, html_path)

    from tensorferry._tools.bench import results
    from tensorferry._tools.cli import bench_tables as tables

    old = results.read(Path(arguments.compare[0])) if arguments.compare else None
    if len(arguments.compare or ()) == 2:
        assert old is not None
        return tables.print_comparison(old, results.read(Path(arguments.compare[1])), terminal)
    with warnings.catch_warnings():
        # Hides the warnings of frameworks about themselves.
        warnings.simplefilter("ignore")
        settings = request.settings(terminal) if request else settings_of(old, terminal)
        result = _measure(settings, terminal)
        if old is not None:
            result = _confirm_changes(old, result, settings, terminal)
    for note in result["notes"]:
        terminal.note(note)
    _write(result, json_path, html_path)
    is_wrong = any(
        row["ours"] and (row["error"] or "").startswith("gives ") for row in result["rows"]
    )
    if old is not None:
        return max(tables.print_comparison(old, result, terminal), int(is_wrong))
    if terminal.json:
        terminal.print_json(result)
    else:
        tables.print_result(result, terminal)
        for path in filter(None, (json_path, html_path)):
            terminal.print(f"wrote {path}")
    return int(is_wrong)


def _measure(settings: "Settings", terminal: Terminal) -> "Result":
    from tensorferry._tools.bench import run

    result = run.run(settings, terminal.progress)
    terminal.clear_line()
    if not result["rows"]:
        reason = result["notes"][0] if result["notes"] else "no pair has a common device"
        raise ferry.InvalidArgumentError(
            f"no conversion can be measured: {reason}"
            "\nhint: select other frameworks, types or layouts"
        )
    return result


def _confirm_changes(
    old: "Result", result: "Result", settings: "Settings", terminal: Terminal
) -> "Result":
    """The result, with apparent changes measured again, because load may have caused them."""
    from tensorferry._tools.bench import compare, run

    for _ in range(MAX_CONFIRMATIONS):
        if cells := compare.changed(compare.compare(old, result)):
            result = run.repeat(result, settings, cells, terminal.progress)
    terminal.clear_line()
    return result


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    if not arguments.compare:
        return
    if len(arguments.compare) > 2:
        raise ferry.InvalidArgumentError(
            f"--compare takes one or two files, not {len(arguments.compare)}"
            "\nhint: write --compare OLD.json NEW.json"
        )
    given = [name for name in SELECTION_OPTIONS if getattr(arguments, name) is not None]
    given += ["quick"] if arguments.quick else []
    if given:
        option = {"sources": "from", "targets": "to"}.get(given[0], given[0])
        raise ferry.InvalidArgumentError(
            f"--{option} cannot be combined with --compare, which repeats the old settings"
            f"\nhint: leave out --{option}, or compare two files"
        )
    if len(arguments.compare) == 2 and (arguments.output or arguments.html):
        raise ferry.InvalidArgumentError(
            "--compare with two files has no result to write\nhint: leave out --output and --html"
        )


def _paths(arguments: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """The paths of the JSON and the HTML file."""
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
                f"--html {arguments.html} is not an .html file\nhint: write --html FILE.html"
            )
    return json_path, html_path


def _refuse_unwritable(*paths: Path | None) -> None:
    """Refuses files that cannot be written, before anything is measured."""
    for path in filter(None, paths):
        folder = path.parent
        if path.name in (JSON_NAME, HTML_NAME) and not folder.exists():
            folder = folder.parent  # the folder will be created
        is_taken = path.exists() and (path.is_dir() or not os.access(path, os.W_OK))
        if is_taken or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise ferry.InvalidArgumentError(
                f"{path} cannot be written\nhint: name a file in an existing, writable folder"
            )


def _write(result: "Result", json_path: Path | None, html_path: Path | None) -> None:
    """Writes the files, each atomically; the JSON first."""
    from tensorferry._tools import report
    from tensorferry._tools.bench import results

    for path in filter(None, (json_path, html_path)):
        path.parent.mkdir(exist_ok=True)
    if json_path is not None:
        results.write(result, json_path)
    if html_path is not None:
        report.write(result, html_path)
