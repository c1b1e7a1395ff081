"""Imports the modules that the arguments name, in their order."""

from __future__ import annotations

import importlib
import sys

for name in sys.argv[1:]:
    importlib.import_module(name)
