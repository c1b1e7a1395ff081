"""Framework x type x layout: from the client to a worker, to the other one, and to the client."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from matrix.cells import CASES, Cell
from matrix.constructors import dtypes_of, make
from support import dask_tasks
from support.dask_tasks import FRAMEWORKS, random_values

import tensorferry as ferry

PAIRS = [
    (framework, case) for framework in FRAMEWORKS for case in CASES if dtypes_of(framework, case)
]
# Variables are no tensors, and distributed pickles them as it did.
PAIRS.remove(("tensorflow", "variable"))

# More than three frames of the cluster of these tests, and not a whole number of them.
SEVERAL_FRAMES_BYTES = (7 << 19) + 64


def cells_of(framework: str, case: str) -> dict[str, Cell]:
    """A cell of each type that the framework makes in this case."""
    made = {dtype.name: make(framework, case, dtype) for dtype in dtypes_of(framework, case)}
    return {name: cell for name, cell in made.items() if cell is not None}


@pytest.mark.parametrize(("framework", "case"), PAIRS)
def test_tensors_travel_bit_by_bit(cluster: Any, framework: str, case: str) -> None:
    cells = cells_of(framework, case)
    assert cells
    expected = {
        name: (framework, name, cell.facts.shape, cell.values) for name, cell in cells.items()
    }
    there = cluster.put({name: cell.object for name, cell in cells.items()})
    seen, back, process = cluster.call(dask_tasks.see_and_return, there).result()
    assert process != os.getpid()
    assert seen == expected
    assert dask_tasks.see_all(back) == expected


@pytest.mark.parametrize("direct", [False, True], ids=["by the scheduler", "directly"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tensors_of_several_frames_travel(cluster: Any, framework: str, direct: bool) -> None:
    x = ferry.to(random_values(SEVERAL_FRAMES_BYTES), framework, copy=True)
    expected = dask_tasks.see(x)
    there = cluster.put(x, direct=direct)
    moved = cluster.call(dask_tasks.same, there)
    assert cluster.call(dask_tasks.see, there, worker=cluster.first).result() == expected
    assert cluster.call(dask_tasks.see, moved).result() == expected
    assert dask_tasks.see(cluster.client.gather(moved, direct=direct)) == expected


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tensors_travel_as_arguments_of_tasks(cluster: Any, framework: str) -> None:
    """Inside the graph, which the scheduler reads and writes again."""
    x = ferry.to(np.arange(6, dtype=np.float32).reshape(2, 3), framework)
    assert cluster.call(dask_tasks.see, x).result() == dask_tasks.see(x)
