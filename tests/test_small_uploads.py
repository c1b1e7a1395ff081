"""Small uploads by way of pinned memory, one by one and in trees, on a CuPy over the fake driver,
which works late and fails on demand."""

from __future__ import annotations

import pytest
from support import fake_driver


def run(case: str, *arguments: str, **environment: str) -> None:
    fake_driver.run_program("front/small_uploads.py", case, *arguments, **environment)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_small_uploads_of_a_tree_are_waited_for_together(threads):
    """Pinned memory is used again when the GPU has fetched what lay there."""
    run("trees", TENSORFERRY_THREADS=threads)


def test_calls_inside_of_a_tree_wait_for_themselves():
    """Code of the user's that a tree comes by gets what is there, on whatever stream it looks."""
    run("calls_inside_a_tree")


def test_a_captured_stream_is_brought_no_tree():
    """A graph would remember the place, and not the values."""
    run("captured_stream")


def test_small_uploads_on_many_threads_and_streams():
    run("many_threads")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("cuMemcpyHtoDAsync_v2", 4 << 10), ("cuMemcpyHtoDAsync_v2", 600 << 10)),
        # Where a block is full, and where one is needed.
        *(("cuEventRecord", 600 << 10), ("cuEventQuery", 600 << 10)),
        # At the end, when all is waited for.
        ("cuStreamSynchronize", 4 << 10),
    ],
)
def test_a_small_upload_that_fails(name, size):
    """It is said, nothing is lost, and the next one goes well."""
    run("failing_upload", name, str(size))
