"""Framework x type x layout: put by the driver, read by a task, and returned, bit by bit."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from matrix.cells import CASES, Cell
from matrix.constructors import dtypes_of, make
from support import ray_tasks
from support.dtypes import significant
from support.introspect import INSPECTORS, TYPES, x64
from support.ray_tasks import FRAMEWORKS, environment_of

import tensorferry as ferry

pytestmark = pytest.mark.usefixtures("cluster")

# Variables of TensorFlow have a reducer of their own, which keeps them variables.
LAYOUTS = [case for case in CASES if case != "variable"]
PAIRS = [(source, case) for source in FRAMEWORKS for case in LAYOUTS if dtypes_of(source, case)]
# In the order of the targets, so that the workers of a framework start once.
TARGETS = [(source, target) for target in FRAMEWORKS for source in FRAMEWORKS if source != target]

see_and_return = ray.remote(num_returns=2)(ray_tasks.see_and_return)
get_as = ray.remote(ray_tasks.get_as)


def cells_of(framework: str, case: str) -> dict[str, Cell]:
    """A cell of each type that the framework makes in this case."""
    cells = {dtype.name: make(framework, case, dtype) for dtype in dtypes_of(framework, case)}
    assert cells
    return cells


def check(framework: str, name: str, x: Any, cell: Cell) -> None:
    look = INSPECTORS[framework]
    assert isinstance(x, TYPES[framework]), name
    assert (look.dtype(x), look.shape(x)) == (name, cell.facts.shape)
    assert significant(cell.facts.dtype, look.values(x)) == cell.values, name


@pytest.mark.parametrize(("framework", "case"), PAIRS)
def test_tensors_reach_a_task_and_come_back(framework: str, case: str) -> None:
    cells = cells_of(framework, case)
    tensors = {name: cell.object for name, cell in cells.items()}
    task = see_and_return.options(runtime_env=environment_of(framework))
    # 64-bit arrays of JAX are an error where it cannot have them.
    with x64(True):
        seen, back = ray.get(task.remote(ray.put(tensors)))
    for name, cell in cells.items():
        assert seen[name] == (framework, name, cell.facts.shape, cell.values)
        check(framework, name, back[name], cell)


@pytest.mark.one_case
@pytest.mark.parametrize(("source", "target"), TARGETS)
def test_get_reads_as_another_framework(source: str, target: str) -> None:
    """In the driver, and in a task whose process never imports the source's framework."""
    common = [dtype for dtype in dtypes_of(source, "dense") if dtype in dtypes_of(target, "dense")]
    task = get_as.options(runtime_env=environment_of(target))
    refs, cells = [], []
    for dtype in common:
        cells.append(make(source, "dense", dtype))
        refs.append(ray.put(cells[-1].object))
    with x64(True):
        there = ray.get([task.remote([ref], target) for ref in refs])
        here = ferry.ray.get(refs, target)
    for dtype, cell, seen, x in zip(common, cells, there, here, strict=True):
        assert seen == (target, dtype.name, cell.facts.shape, cell.values)
        check(target, dtype.name, x, cell)
