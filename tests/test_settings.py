"""What the environment asks for, and what it is told when that means nothing."""

from __future__ import annotations

import pytest
from support import children

LOOK = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tensorferry as ferry
for one in caught:
    print(one.category.__name__, one.message)
import numpy as np
x = np.arange(5000, dtype=np.float32)
assert (ferry.to(x, "numpy", copy=True) == x).all()
print(ferry.memory_stats().limit_bytes > 0)
"""


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("TENSORFERRY_THREADS", "abc", "write 4"),
        ("TENSORFERRY_THREADS", "0", "write 4"),
        ("TENSORFERRY_THREADS", "-2", "write 4"),
        ("TENSORFERRY_POOL", "1.5G", "write 512M or 2GiB"),
        ("TENSORFERRY_POOL", "-1", "write 512M or 2GiB"),
        ("TENSORFERRY_DISABLE", "1", "write all, or leave it out"),
    ],
)
def test_a_value_that_means_nothing_is_warned_of(name, text, hint):
    first, second, rest = children.run(LOOK, **{name: text}).split("\n", 2)
    assert first.startswith(f'RuntimeWarning {name} is "{text}", which is not ')
    assert second == f"hint: {hint}"
    assert rest == "True\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TENSORFERRY_THREADS", "1"),
        ("TENSORFERRY_THREADS", ""),
        ("TENSORFERRY_POOL", " 512 MiB "),
        ("TENSORFERRY_POOL", "2gb"),
        ("TENSORFERRY_DISABLE", "all"),
        ("TENSORFERRY_DISABLE", ""),
    ],
)
def test_a_value_that_means_something_is_taken_in_silence(name, text):
    assert children.run(LOOK, **{name: text}) == "True\n"
