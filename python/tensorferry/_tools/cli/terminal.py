"""Output of the commands: colours, one-line errors, tables and a progress bar."""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Collection
from typing import Any, TextIO

from tensorferry._tools.cli import hints

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
PROGRESS_BAR_CHARS = 24


class Terminal:
    """Standard output for results, standard error for errors, notes and progress."""

    def __init__(self, *, json: bool = False, command: hints.Command | None = None) -> None:
        self.json, self.command = json, command or hints.Command()
        self._drawn_at = 0.0
        self._is_drawn = False

    def print(self, text: str = "") -> None:
        """Prints one or more lines of the result."""
        self.clear_line()
        sys.stdout.write(text + "\n")

    def print_json(self, value: Any) -> None:
        """Prints the result as JSON."""
        self.print(json.dumps(value, indent=2))

    def style(self, text: str, *styles: str) -> str:
        """The text in colour, if standard output supports colours."""
        if not styles or not _supports_colours(sys.stdout):
            return text
        codes = ";".join(STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def error(self, error: BaseException | str, *, hint: str | None = None) -> None:
        """Prints an error in one line, and its hint in another."""
        self.clear_line()
        fact = str(error).partition("\nhint: ")[0]
        fact = clean(" ".join(fact.split())) or type(error).__name__
        label = "\x1b[31merror:\x1b[0m" if _supports_colours(sys.stderr) else "error:"
        sys.stderr.write(f"{label} {fact}\n")
        if shown := (hints.advice(error, self.command) or hint or ""):
            sys.stderr.write(f"hint: {clean(shown)}\n")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        """Prints a note to standard error."""
        self.clear_line()
        sys.stderr.write(f"note: {clean(text)}\n")

    @property
    def width(self) -> int:
        """The number of columns of the terminal."""
        return shutil.get_terminal_size().columns

    def progress(self, done: int, total: int, what: str) -> None:
        """Draws a progress bar, if standard error is a terminal."""
        now = time.monotonic()
        if not sys.stderr.isatty() or (now - self._drawn_at < 0.05 and done < total):
            return
        self._drawn_at, self._is_drawn = now, True
        filled = PROGRESS_BAR_CHARS * done // max(total, 1)
        line = f"[{'#' * filled}{'.' * (PROGRESS_BAR_CHARS - filled)}] {done}/{total} {clean(what)}"
        sys.stderr.write("\r\x1b[K" + line[: self.width - 1])
        sys.stderr.flush()

    def status(self, text: str) -> None:
        """Shows a status line, which the next line replaces."""
        if not sys.stderr.isatty():
            return
        self._is_drawn = True
        with contextlib.suppress(OSError):  # the terminal may be closed
            sys.stderr.write("\r\x1b[K" + clean(text)[: self.width - 1])
            sys.stderr.flush()

    def clear_line(self) -> None:
        """Removes the progress bar or status line."""
        if self._is_drawn:
            self._is_drawn = False
            with contextlib.suppress(OSError):  # the terminal may be closed
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()


def clean(text: str) -> str:
    """Text without control characters, so that untrusted names cannot control the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _supports_colours(stream: TextIO) -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(rows: list[list[str]], *, right: Collection[int] = ()) -> list[str]:
    """Rows of text as aligned columns; `right` has the indices of right-aligned columns."""
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if index in right else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
