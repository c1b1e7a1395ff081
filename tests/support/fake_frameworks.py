"""Modules in place of frameworks, for processes that a test starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from support import subprocesses


def install(folder: Path, **frameworks: list[str]) -> dict[str, str]:
    """Puts modules with these names into a folder; gives the variables that they need.

    The list has a function of tests/programs/cli/fake_framework.py, which runs when the module is
    imported, and its arguments.
    """
    code = subprocesses.program_path("cli/fake_framework.py")
    for name in frameworks:
        (folder / name).mkdir()
        shutil.copy(code, folder / name / "__init__.py")
    return {"FAKE_FRAMEWORKS": json.dumps(frameworks)}
