"""Prints what the module of the sizes for Dask imports beside the standard library."""

from __future__ import annotations

import sys

before = set(sys.modules)

import tensorferry_dask_sizeof  # noqa: E402

imported = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(imported - set(sys.stdlib_module_names) - {tensorferry_dask_sizeof.__name__}))
