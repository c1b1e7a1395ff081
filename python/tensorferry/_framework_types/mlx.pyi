# ruff: noqa: F401, F403, F811, I001, N813
# The order of the imports matters: see __init__.pyi.
from mlx.core import array as array  # type: ignore[import-not-found, unused-ignore]
from typing import Any as array  # type: ignore[assignment, no-redef, unused-ignore]
from mlx.core import *  # type: ignore[assignment, import-not-found, no-redef, unused-ignore]
