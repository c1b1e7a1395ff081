"""A framework whose module cannot be imported. Tests install it as the module `plugged`."""

from __future__ import annotations

import importlib

importlib.import_module("tensorferry_has_no_such_module")
