"""The report of `tensorferry bench`: one HTML file that needs nothing but a browser.

It holds no script and loads nothing. Plots are drawn here, as SVG; its controls are radio buttons
that rules of its style act on.
"""

import os
from pathlib import Path
from typing import Any

import tensorferry as ferry
from tensorferry._tools.report import grouping, page


def render(result: dict[str, Any]) -> str:
    """The report of a result of `tensorferry bench`, as HTML."""
    return page.page(result, grouping.read(result))


def write(result: dict[str, Any], path: Path) -> None:
    """Writes the report of a result; the file at `path` is the old one or all of the new one."""
    text = render(result).encode()
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(text)  # a terminal, a pipe: there is nothing to put in its place
        else:
            ferry.save(path, text, format="raw")
    except OSError as error:
        raise ferry.InvalidArgumentError(
            f"the report cannot be written to {path}: {os.strerror(error.errno or 0)}\n"
            "hint: name a file in a folder that is there and can be written"
        ) from error
