"""The dated record of a run: all figures as JSON, and the tables as Markdown beside it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import machine
from table import VOID, Section, render

# What each control found, by when it was made.
Controls = Mapping[str, Mapping[str, Any]]


def write(
    folder: Path,
    facts: Mapping[str, Any],
    sections: Mapping[str, Section],
    controls: Controls,
    part: str = "",
) -> Path:
    """Writes both files; a void run or one of some sections never replaces the whole of that day.

    `part` says which sections, if not all.
    """
    void = bool(failures(controls))
    stem = "-".join(filter(None, (facts["date"][:10], machine.name(), part, "void" * void)))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.json"
    everything = {
        "void": void,
        "machine": facts,
        "controls": controls,
        "sections": {name: asdict(section) for name, section in sections.items()},
    }
    path.write_text(json.dumps(everything, indent=1) + "\n")
    parts = [f"# Benchmarks of {facts['date'][:10]}", machine_line(facts)]
    if void:
        parts.append(f"```text{VOID}```\n\n**VOID: the control failed, so no figure here counts.**")
    parts += [render(section).rstrip() for section in sections.values()]
    if controls:
        parts.append(control_text(controls))
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n")
    return path


def failures(controls: Controls) -> list[str]:
    """What the controls found wrong, but for those after which a section was measured again."""
    standing = (control for control in controls.values() if not control.get("repeated"))
    return [failure for control in standing for failure in control["failures"]]


def machine_line(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {fact}" for key, fact in facts.items())


def control_text(controls: Controls) -> str:
    """The controls as a table, and what they found."""
    columns = {
        "when": "",
        "GB/s, one thread": ".1f",
        "GB/s, two threads": ".1f",
        "scaling": ".2f",
        "variation": ".0%",
        "verdict": "",
    }
    section = Section("Control: a plain memcpy of 256 MiB", columns)
    for when, control in controls.items():
        bad = "repeated" if control.get("repeated") else "VOID"
        section.rows.append(
            {**control, "when": when, "verdict": bad if control["failures"] else "pass"}
        )
        section.notes += [f"{bad} {when}: {failure}." for failure in control["failures"]]
    return render(section).rstrip()
