"""What the environment asks for, and what it is told when that means nothing."""

from __future__ import annotations

import pytest
from support import subprocesses

PROGRAM = "front/settings.py"


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("TENSORFERRY_THREADS", "abc", "write 4"),
        ("TENSORFERRY_THREADS", "0", "write 4"),
        ("TENSORFERRY_THREADS", "-2", "write 4"),
        ("TENSORFERRY_POOL", "1.5G", "write 512M or 2GiB"),
        ("TENSORFERRY_POOL", "-1", "write 512M or 2GiB"),
    ],
)
def test_a_value_that_means_nothing_is_warned_of(name, text, hint):
    first, second, rest = subprocesses.run_program(PROGRAM, **{name: text}).split("\n", 2)
    assert first.startswith(f'RuntimeWarning {name}: "{text}" is not ')
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
        ("TENSORFERRY_DISABLE", "torch.lazy_bits, jax.shards,"),
        ("TENSORFERRY_DISABLE", "tensorflow"),
    ],
)
def test_a_value_that_means_something_is_taken_in_silence(name, text):
    assert subprocesses.run_program(PROGRAM, **{name: text}) == "True\n"


ANY_NAME = "write all, or a comma-separated list of names from tensorferry doctor"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("1", ANY_NAME),
        ("torch.lazybits", 'did you mean "torch.lazy_bits"?'),
        ("torhc", 'did you mean "torch"?'),
        ("al", 'did you mean "all"?'),
    ],
)
def test_a_fast_path_that_is_not_known_is_warned_of_and_the_others_count(name, hint):
    shown = subprocesses.run_program(
        PROGRAM, "jax.shards", "torch.lazy_bits", TENSORFERRY_DISABLE=f"jax.shards,{name}"
    )
    first, second, rest = shown.split("\n", 2)
    fact = f'TENSORFERRY_DISABLE: "{name}" is not a fast path and is ignored'
    assert first == f"RuntimeWarning {fact}"
    assert second == f"hint: {hint}"
    assert rest == "True\nFalse True\n"
