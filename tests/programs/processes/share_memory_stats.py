"""Takes and drops shared memory, and reads its size from `memory_stats`."""

from __future__ import annotations

import tensorferry as ferry

assert ferry.memory_stats().shared_bytes == 0
x = ferry.empty_shared(1000, "float32")
y = ferry.empty_shared(32 << 20, "uint8")
assert ferry.memory_stats().shared_bytes >= 32 << 20
ferry.empty_cache()
x[:] = 1
del x, y
ferry.empty_cache()
assert ferry.memory_stats().shared_bytes == 0
