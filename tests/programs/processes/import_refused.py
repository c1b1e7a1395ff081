"""Imports tensorferry, which must raise an error about the interpreter."""

from __future__ import annotations

try:
    import tensorferry  # noqa: F401
except ImportError as error:
    text = str(error)
    assert "interpreter" in text, text
else:
    raise AssertionError("it was imported")
