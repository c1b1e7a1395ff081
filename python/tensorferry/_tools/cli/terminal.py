"""What the commands write to: colours where they are wanted, errors in one line, a bar on top."""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Collection
from typing import Any, TextIO

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
BAR = 24


class Terminal:
    """Standard output and standard error, as the command line's conventions have them."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self._drawn = 0.0
        self._is_drawn = False

    def print(self, text: str = "") -> None:
        """One or more lines of the answer."""
        self.clear_line()
        sys.stdout.write(text + "\n")

    def answer(self, value: Any) -> None:
        """The answer for a program."""
        self.print(json.dumps(value, indent=2))

    def style(self, text: str, *styles: str) -> str:
        """The text in colour, where standard output shows colours."""
        if not styles or not _shows_colours(sys.stdout):
            return text
        codes = ";".join(STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def error(self, error: BaseException | str, *, hint: str | None = None) -> None:
        """Says in one line what is wrong, and on another what to do."""
        self.clear_line()
        fact, _, told = str(error).partition("\nhint: ")
        fact = clean(" ".join(fact.split())) or type(error).__name__
        label = "\x1b[31merror:\x1b[0m" if _shows_colours(sys.stderr) else "error:"
        sys.stderr.write(f"{label} {fact}\n")
        if told := (told or hint or ""):
            sys.stderr.write(f"hint: {clean(told)}\n")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        """Says something beside the answer."""
        self.clear_line()
        sys.stderr.write(f"note: {clean(text)}\n")

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size().columns

    def progress(self, done: int, total: int, what: str) -> None:
        """Draws how far something is, if somebody looks at it."""
        now = time.monotonic()
        if not sys.stderr.isatty() or (now - self._drawn < 0.05 and done < total):
            return
        self._drawn, self._is_drawn = now, True
        filled = BAR * done // max(total, 1)
        line = f"[{'#' * filled}{'.' * (BAR - filled)}] {done}/{total} {clean(what)}"
        sys.stderr.write("\r\x1b[K" + line[: self.width - 1])
        sys.stderr.flush()

    def status(self, text: str) -> None:
        """Shows how things stand, in a line that the next one takes the place of."""
        if not sys.stderr.isatty():
            return
        self._is_drawn = True
        with contextlib.suppress(OSError):  # the terminal may be gone
            sys.stderr.write("\r\x1b[K" + clean(text)[: self.width - 1])
            sys.stderr.flush()

    def clear_line(self) -> None:
        """Takes the bar away."""
        if self._is_drawn:
            self._is_drawn = False
            with contextlib.suppress(OSError):  # the terminal may be gone
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()


def clean(text: str) -> str:
    """Text of somebody else's on one line, in which nothing tells the terminal what to do."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _shows_colours(stream: TextIO) -> bool:
    """Whether colours are wanted there: only on a terminal, and never with NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(rows: list[list[str]], *, right: Collection[int] = ()) -> list[str]:
    """Rows of text in columns, those of the given numbers flush right."""
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if number in right else text.ljust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
