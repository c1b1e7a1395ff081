# ruff: noqa: F401, F403, F811, I001
# The order of the imports matters: see __init__.pyi.
from paddle import Tensor as Tensor  # type: ignore[import-not-found, unused-ignore]
from typing import Any as Tensor  # type: ignore[assignment, no-redef, unused-ignore]
from paddle import *  # type: ignore[assignment, import-not-found, no-redef, unused-ignore]
