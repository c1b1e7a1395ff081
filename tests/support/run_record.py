"""`--record`: a pytest option that writes a record of the run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parent.parent.parent / "benches"
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="the folder that gets a record of the run")


def write(
    reporter: pytest.TerminalReporter, config: pytest.Config, name: list[str], **more: Any
) -> None:
    """Writes how many tests of each file ended how, with machine, versions and commit. The file is
    named after the date, the machine and `name`; `more` is added to the record."""
    folder = config.getoption("record")
    if folder is None:
        return
    sys.path.insert(0, str(BENCHES))
    import machine

    facts = machine.description()
    files: dict[str, Counter[str]] = {}
    for outcome in OUTCOMES:
        for report in reporter.stats.get(outcome, []):
            files.setdefault(Path(report.nodeid.split("::")[0]).name, Counter())[outcome] += 1
    folder.mkdir(parents=True, exist_ok=True)
    # A run of some files does not replace one of all.
    chosen = [Path(path).stem.removeprefix("test_") for path in config.args if path.endswith(".py")]
    stem = "-".join((facts["date"][:10], machine.name(), "tests", *name, *sorted(chosen)))
    record = {
        "machine": facts,
        **more,
        "outcomes": {file: dict(files[file]) for file in sorted(files)},
    }
    (folder / f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
