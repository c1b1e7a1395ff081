"""Formatting and parsing of sizes, times, shapes and framework names on the command line."""

import argparse
import math
import re
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry import InvalidArgumentError
from tensorferry.framework_register import TENSOR_FRAMEWORKS, is_sparse_only, tensor_framework


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


def quote(text: str) -> str:
    """Text in quotes. `repr` would double its backslashes."""
    return f'"{text}"'


def shape(text: str) -> tuple[int, ...]:
    """Parses a shape: 3,4 or 3x4 or (3, 4); () or nothing for a scalar."""
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("()", "[]"):
        inner = inner[1:-1].strip()
    words = (
        re.split(r"\s*[,x\N{MULTIPLICATION SIGN}]\s*|\s+", re.sub(r"\s*,$", "", inner))
        if inner
        else []
    )
    if not all(re.fullmatch("[0-9]+", word) for word in words):
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is not a shape\nhint: write lengths, such as 1024,1024"
        )
    lengths = tuple(map(int, words))
    if any(length >= 1 << 63 for length in lengths):
        raise argparse.ArgumentTypeError(
            f"{quote(text)} has a length over {(1 << 63) - 1}\nhint: write a smaller shape"
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
            f"{quote(text)} is not a time\nhint: write seconds, such as 0.5"
        )
    return number


def positive_seconds(text: str) -> float:
    """Parses a time in seconds that is longer than zero."""
    if (number := seconds(text)) == 0:
        raise argparse.ArgumentTypeError("the time is zero\nhint: write seconds, such as 0.5")
    return number


def compression(text: str) -> int:
    """Parses a level of compression."""
    if not re.fullmatch("[1-9]", text):
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is not a level\nhint: write a level from 1 to 9"
        )
    return int(text)


def dtype(text: str) -> str:
    """Parses the name of an element type."""
    refusal = _refusal("python.name_dtype", "python.suggest_dtype", dtype=text)
    if text == "default" or refusal is not None:
        meant = re.search('did you mean "(.*)"[?]', str(refusal))
        advice = f"did you mean {meant[1]}?" if meant else "write a name such as float32 or int64"
        raise argparse.ArgumentTypeError(f"{quote(text)} is not an element type\nhint: {advice}")
    return text


def dtype_or_default(text: str) -> str:
    """Parses the name of an element type, or `default`."""
    return text if text == "default" else dtype(text)


def device(text: str) -> str:
    """Parses the name of a device."""
    if _refusal("python.name_device", device=text) is not None:
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is not a device\nhint: write cpu, cuda, cuda:1 or default"
        )
    return text


def source_device(text: str) -> str:
    """Parses the name of a device on which a tensor is made."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", text):
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is not a device\nhint: write cpu, cuda or cuda:1"
        )
    return text


def _refusal(*hints: str, **option: Any) -> ferry.FerryError | None:
    """The library's error for a name that it does not know; None if only NumPy lacks it."""
    try:
        ferry.plan(np.empty(0), "numpy", **option)
    except ferry.FerryError as error:
        return error if getattr(error, "_hint_key", None) in hints else None
    return None


def framework_name(text: str) -> str:
    """The canonical name of a framework that has dense tensors."""
    try:
        return tensor_framework(text)
    except InvalidArgumentError as error:
        fact, _, hint = str(error).partition("\nhint: ")
        suggested = re.fullmatch('did you mean "(.*)"[?]', hint)
        is_sparse = suggested is not None and is_sparse_only(suggested[1])
        if is_sparse or getattr(error, "_hint_key", None) == "python.name_framework":
            # The library also names frameworks without dense tensors, which no command accepts.
            hint = f"write one of {', '.join(TENSOR_FRAMEWORKS)}"
        raise InvalidArgumentError(f"{fact}\nhint: {hint}") from error


def framework(text: str) -> str:
    """Parses the name of a framework."""
    try:
        return framework_name(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def frameworks(text: str) -> tuple[str, ...]:
    """Parses names separated by commas; returns them in an order in which they can be imported."""
    names = {framework(word.strip()) for word in text.split(",") if word.strip()}
    if not names:
        raise argparse.ArgumentTypeError("the list of frameworks is empty\nhint: write numpy,torch")
    return tuple(name for name in TENSOR_FRAMEWORKS if name in names)


def count(number: int, noun: str) -> str:
    """Formats a count: 1 tensor, 2 tensors."""
    return f"{number} {noun}{'s' * (number != 1)}"
