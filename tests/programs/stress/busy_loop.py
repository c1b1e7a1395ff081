"""Keeps a processor busy until its standard input is at its end.

So it ends by itself where the program that started it is killed.
"""

from __future__ import annotations

import select
import sys

while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100_000):
        pass
