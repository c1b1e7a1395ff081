"""Makes its first calls while Python is taken apart: with keywords, with a tree, with a mistake."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tensorferry as ferry


class Late:
    """A call that is made when the object dies."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.call, self.arguments, self.options = ferry.to, arguments, options

    def __del__(self) -> None:
        # `contextlib` may be gone.
        try:  # noqa: SIM105
            self.call(*self.arguments, **self.options)
        except Exception:
            pass


# The last thing that Python takes apart.
sys.late = [  # type: ignore[attr-defined]
    Late(np.ones(3), "numpy", copy=True),
    Late([np.ones(3)], "numpy"),
    Late(3, "numpy"),
    Late(np.ones(3), "numpy"),
]
print("out", flush=True)
