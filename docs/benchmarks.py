"""Makes the tables of the page "Benchmarks" from the records: of each section the newest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PLACEHOLDER = "<!-- tables -->"
PACKAGES = ("numpy", "torch", "jax", "tensorflow", "cupy", "paddle", "mlx")


def with_tables(page: str, records: Path) -> str:
    """The page with the tables in place of the placeholder."""
    before, found, after = page.partition(PLACEHOLDER)
    if not found:
        raise LookupError(f"docs/benchmarks.md has no {PLACEHOLDER}")
    return before + "\n\n".join(tables(records)) + after


def newest(records: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The newest record that counts, by section."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(records.glob("*.json")):
        record = json.loads(path.read_text())
        if "sections" not in record or record["void"]:
            continue
        for name in record["sections"]:
            if name not in found or date(record) > date(found[name][1]):
                found[name] = (path, record)
    return found


def date(record: dict[str, Any]) -> str:
    return str(record["machine"]["date"])


def tables(records: Path) -> list[str]:
    """Each section under its title, with the machine that it ran on."""
    parts = []
    for name, (path, record) in newest(records).items():
        section = record["sections"][name]
        parts.append(f"## {section['title']}")
        parts.append(provenance(path, record["machine"]))
        if section["rows"]:
            parts += ['<div class="figures" markdown>', table(section["columns"], section["rows"])]
            parts.append("</div>")
        parts += section["notes"]
    return parts


def provenance(path: Path, machine: dict[str, Any]) -> str:
    versions = [f"{name} {machine[name]}" for name in PACKAGES if machine.get(name)]
    facts = [
        f"{machine['date'][:10]}, commit `{machine['commit']}`",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['gpu'] or 'no GPU'}",
        f"Python {machine['python']}, {', '.join(versions)}",
        f"Record: `benches/records/{path.name}`",
    ]
    return '<p class="provenance" markdown>' + ".<br>".join(facts) + ".</p>"


def table(columns: dict[str, str], rows: list[dict[str, Any]]) -> str:
    lines = [list(columns), ["---:" if form else "---" for form in columns.values()]]
    lines += [[cell(row.get(head), form) for head, form in columns.items()] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(figure: Any, form: str) -> str:
    if figure is None:
        return "-"
    text = format(figure, form)
    # Calls are code; those of some records have no backquotes yet.
    if not form and re.search(r"\w\(.*\)", text) and "`" not in text:
        text = f"`{text}`"
    return text.replace("|", "\\|")
