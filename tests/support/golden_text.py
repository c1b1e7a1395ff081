"""Golden files: the wording of an area's messages in one JSON file under tests/golden.

Other tests check classes, hints and numbers. To change wording, edit the source, run the test with
`GOLDEN_UPDATE=1`, and review the difference of the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def check(area: str, texts: dict[str, str]) -> None:
    """Compares the texts of an area with its golden file, or writes the file."""
    path = GOLDEN / f"{area}.json"
    lines = {name: text.splitlines() for name, text in texts.items()}
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert lines == json.loads(path.read_text(encoding="utf-8"))
