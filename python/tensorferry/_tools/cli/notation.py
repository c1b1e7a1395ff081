"""Numbers and names as people read them, and as they write them."""

import argparse
import math

from tensorferry import InvalidArgumentError
from tensorferry.framework_register import TENSOR_FRAMEWORKS, tensor_framework


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def shape(text: str) -> tuple[int, ...]:
    """Lengths as they are written on the command line."""
    try:
        lengths = tuple(int(word) for word in text.replace("x", ",").split(",") if word.strip())
    except ValueError:
        lengths = (-1,)
    if any(not 0 <= length < 1 << 63 for length in lengths):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write 1024,1024")
    return lengths


def seconds(text: str) -> float:
    """A time as it is written on the command line."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write seconds, such as 0.5")
    return number


def framework(text: str) -> str:
    """A framework as it is written on the command line: one of its names."""
    try:
        return tensor_framework(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def frameworks(text: str) -> tuple[str, ...]:
    """Several of them, with commas between, in an order in which they can be imported."""
    names = {framework(word.strip()) for word in text.split(",") if word.strip()}
    if not names:
        raise argparse.ArgumentTypeError("no framework is named\nhint: write numpy,torch")
    return tuple(name for name in TENSOR_FRAMEWORKS if name in names)


def several(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}{'s' * (number != 1)}"
