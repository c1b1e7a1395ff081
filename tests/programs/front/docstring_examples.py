"""Runs the examples of the docstrings that the arguments name, and prints the failures as JSON.

Some examples register frameworks, which lasts as long as the process.
"""

from __future__ import annotations

import doctest
import inspect
import io
import json
import sys
import tempfile
from typing import Any

# The order is one in which the frameworks live together.
import jax  # noqa: F401
import numpy as np
import tensorflow  # noqa: F401

import tensorferry as ferry

failures: dict[str, tuple[int, str]] = {}
with tempfile.TemporaryDirectory() as folder:
    for name in sys.argv[1:]:
        thing: Any = ferry
        for part in name.split("."):
            thing = getattr(thing, part)
        scope = {"ferry": ferry, "np": np, "folder": folder, "__name__": "__main__"}
        text = inspect.getdoc(thing) or ""
        test = doctest.DocTestParser().get_doctest(text, scope, name, None, 0)
        shown = io.StringIO()
        result = doctest.DocTestRunner().run(test, out=shown.write)
        failures[name] = result.attempted, shown.getvalue()
print(json.dumps(failures))
