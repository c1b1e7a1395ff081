"""The warning about a tensor that requires a gradient and is converted without it."""

from __future__ import annotations

import re

import pytest
from support import subprocesses

PROGRAM = "front/gradient_warning.py"
CASES = re.findall(r"^def ((?:warns|is)_\w+)\(", subprocesses.read_program(PROGRAM), re.MULTILINE)


@pytest.mark.parametrize("case", CASES)
def test_the_warning(case):
    """Each in a process of its own: the warning appears once in a process."""
    subprocesses.run_program(PROGRAM, case)
