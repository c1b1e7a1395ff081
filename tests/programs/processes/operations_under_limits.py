"""Tries operations under limits of the address space; the arguments are those of `limits.main`."""

from __future__ import annotations

import sys

from support import limits

limits.main(*sys.argv[1:])
