"""Imports an extension where tensorferry is missing, or has a table of another version."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

case, path = sys.argv[1:]

Table = ctypes.c_uint32 * 32
# Major, minor and size, then functions that nobody calls.
numbers = {"too_old": (1, 0, 16), "another_major": (2, 5, 64)}.get(case)
if case == "error_inside":
    folder = Path(tempfile.mkdtemp())
    (folder / "tensorferry.py").write_text("raise RuntimeError('the cause')")
    sys.path.insert(0, str(folder))
elif numbers is None:
    sys.modules["tensorferry"] = None  # type: ignore[assignment]
else:
    table = Table(*numbers)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    module = ModuleType("tensorferry")
    module._C_API = new(ctypes.addressof(table), b"tensorferry._C_API", None)  # type: ignore[attr-defined]
    sys.modules["tensorferry"] = module

spec = importlib.util.spec_from_file_location("vectors", path)
assert spec is not None
try:
    importlib.util.module_from_spec(spec)
except RuntimeError as error:
    assert (case, str(error)) == ("error_inside", "the cause"), error
    sys.exit()
except ImportError as error:
    said = str(error)
    assert (error.__cause__ is not None) == (case == "missing"), error.__cause__
else:
    raise AssertionError("no error")
expected = {
    "missing": "needs tensorferry with a C table",
    "too_old": "needs version 1.0 of tensorferry's C table, and the installed one is 1.0",
    "another_major": "needs version 1.0 of tensorferry's C table, and the installed one is 2.5",
}
assert expected[case] in said, said
assert "\nhint: pip install -U tensorferry" in said, said
