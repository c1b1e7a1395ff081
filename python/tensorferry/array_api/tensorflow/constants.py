"""The standard's constants, which are Python's own."""

import math

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi
