"""Makes the reference with a public name that has no topic. The argument is the docs folder."""

from __future__ import annotations

import importlib
import sys

sys.path.insert(0, sys.argv[1])
reference = importlib.import_module("reference")
reference.ferry.__all__.append("stranger")
reference.ferry.stranger = print
reference.pages()
