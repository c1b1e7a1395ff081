"""Checks that the modules of a wheel load on the oldest C library that the wheel's name promises.

Auditors of wheels compare the versions of symbols. A function that is younger than the C library of
the link has no version at all, and passes them: the import fails where the function is missing. So
every symbol that a module needs must have a version, or be part of Python's C API.

The functions that unwind the stack must come from libgcc. glibc ends a thread through libgcc, and
crashes in a module that brings another unwinder.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

Version = tuple[int, ...]
PLATFORM = re.compile(r"manylinux_(\d+)_(\d+)_")


def version_of(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def problems_of(module: ELFFile, oldest: Version) -> Iterator[str]:
    """What keeps a module from loading on a C library, or from unwinding there."""
    needed = module.get_section_by_name(".gnu.version_r")
    indices = module.get_section_by_name(".gnu.version")
    symbols = module.get_section_by_name(".dynsym")
    assert isinstance(needed, GNUVerNeedSection)
    assert isinstance(indices, GNUVerSymSection)
    assert isinstance(symbols, SymbolTableSection)
    names = {
        auxiliary["vna_other"]: auxiliary.name
        for _, auxiliaries in needed.iter_versions()
        for auxiliary in auxiliaries
    }
    unwinder = False
    for number, symbol in enumerate(symbols.iter_symbols()):
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name:
            continue
        version = names.get(indices.get_symbol(number)["ndx"])
        unwinder |= symbol.name.startswith("_Unwind_") and version is not None
        if version is None:
            # A weak symbol is null where the C library lacks it.
            weak = symbol["st_info"]["bind"] == "STB_WEAK"
            if not weak and not symbol.name.startswith(("Py", "_Py")):
                yield f"{symbol.name} has no version: the C library of the link lacks it"
        elif version.startswith("GLIBC_") and version_of(version[len("GLIBC_") :]) > oldest:
            yield f"{symbol.name} is of {version}"
    if not unwinder:
        yield "the unwinder is part of the module: link libgcc_s before any other"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel
    platform = PLATFORM.search(wheel.name)
    if not platform:
        print(f"{wheel.name}: the name promises no manylinux version")
        return 1
    oldest = version_of(f"{platform[1]}.{platform[2]}")
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        problems = [
            f"{name}: {problem}"
            for name in modules
            for problem in problems_of(ELFFile(io.BytesIO(archive.read(name))), oldest)
        ]
    if not modules:
        problems = [f"{wheel.name}: no module inside"]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
