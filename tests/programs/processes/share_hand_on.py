"""Attaches the ticket of stdin, publishes that for one, and ends when somebody has come.

The argument says whether it is published as writable.
"""

from __future__ import annotations

import sys

from support.share_counts import soon

import tensorferry as ferry

got = ferry.attach(sys.stdin.readline())
again = ferry.publish(got, once=True, writable=sys.argv[1] == "True")
del got
print(again, flush=True)
assert soon(lambda: again.consumers)
