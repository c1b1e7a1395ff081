"""Whether the oldest supported frameworks are here, and with them none of today's tools."""

from pathlib import Path

import numpy as np

_PINS = Path(__file__).parent.parent.parent / "requirements" / "oldest.in"
OLDEST = f"numpy=={np.__version__}\n" in _PINS.read_text()
