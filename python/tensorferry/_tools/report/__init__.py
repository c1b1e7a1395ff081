"""The report of `tensorferry bench`: one self-contained HTML file.

It has no scripts and loads nothing. The plots are SVG; the controls are radio buttons that CSS
rules evaluate.
"""

import os
from pathlib import Path
from typing import Any

import tensorferry as ferry
from tensorferry._tools.report import grouping, page


def render(result: dict[str, Any]) -> str:
    """The report of a result, as HTML."""
    return page.page(result, grouping.group(result))


def write(result: dict[str, Any], path: Path) -> None:
    """Writes the report of a result atomically."""
    text = render(result).encode()
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(text)  # a terminal or a pipe cannot be replaced
        else:
            ferry.save(path, text, format="raw")
    except OSError as error:
        raise ferry.InvalidArgumentError(
            f"the report cannot be written to {path}: {os.strerror(error.errno or 0)}\n"
            "hint: name a file in an existing, writable folder"
        ) from error
