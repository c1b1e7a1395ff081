"""Reads and writes files without the permission to: load, inspect or save, in a given folder.

The folder has a file `x.npy` without permissions, and a folder `closed` without write permission.
A privileged process gives up its privileges first.
"""

from __future__ import annotations

import os
import sys

import numpy as np
from support.errors import raised

import tensorferry as ferry

NOBODY = 65534

folder, call = sys.argv[1:]
os.chdir(folder)
ferry.save("warm.npy", np.ones(3))  # imports what a process without privileges may not read
ferry.load("warm.npy")
if os.geteuid() == 0:
    os.chmod(".", 0o755)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
paths = ["closed/y.npy", "x.npy"] if call == "save" else ["x.npy"]
for path in paths:
    arguments = [np.ones(3)] if call == "save" else []
    error = raised(PermissionError, getattr(ferry, call), path, *arguments)
    assert isinstance(error, ferry.FerryError), repr(error)
    assert path in str(error), error
    assert "permissions" in (error.hint or ""), error
