"""Formatting and parsing of sizes, times, shapes and framework names on the command line."""

import argparse
import math

from tensorferry import InvalidArgumentError
from tensorferry._tools.cli import hints
from tensorferry.framework_register import TENSOR_FRAMEWORKS, tensor_framework


def size(bytes: int) -> str:
    """Formats bytes: 4 KiB, 1.5 MiB."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= scale:
            return f"{bytes / scale:.4g} {unit}"
    return f"{bytes} B"


def duration(seconds: float) -> str:
    """Formats a time: 5.03 us, 12 ms."""
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def shape(text: str) -> tuple[int, ...]:
    """Parses a shape: 1024,1024."""
    try:
        lengths = tuple(int(word) for word in text.replace("x", ",").split(",") if word.strip())
    except ValueError:
        lengths = (-1,)
    if any(not 0 <= length < 1 << 63 for length in lengths):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape\nhint: write lengths, such as 1024,1024"
        )
    return lengths


def seconds(text: str) -> float:
    """Parses a time in seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time\nhint: write seconds, such as 0.5"
        )
    return number


def framework(text: str) -> str:
    """Parses the name of a framework."""
    try:
        return tensor_framework(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(hints.error_text(error)) from error


def frameworks(text: str) -> tuple[str, ...]:
    """Parses names separated by commas; returns them in an order in which they can be imported."""
    names = {framework(word.strip()) for word in text.split(",") if word.strip()}
    if not names:
        raise argparse.ArgumentTypeError("the list of frameworks is empty\nhint: write numpy,torch")
    return tuple(name for name in TENSOR_FRAMEWORKS if name in names)


def count(number: int, noun: str) -> str:
    """Formats a count: 1 tensor, 2 tensors."""
    return f"{number} {noun}{'s' * (number != 1)}"
