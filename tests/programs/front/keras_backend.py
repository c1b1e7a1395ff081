"""Uses Keras with the backend that KERAS_BACKEND names: its variables, and the recipe of a page.

The first argument is the page, whose section "Keras from Grain" is executed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tensorferry as ferry

BACKEND = os.environ["KERAS_BACKEND"]
# PyTorch goes before the others, and Keras may import all three.
importlib.import_module("torch")
keras: Any = importlib.import_module("keras")


def variables() -> None:
    """Functions take a variable as the tensor of the backend that it holds."""
    values = np.arange(6, dtype="float32").reshape(2, 3)
    variable = keras.Variable(values)
    kind = type(keras.ops.convert_to_tensor(values))
    plan = ferry.plan(variable, BACKEND)
    assert (plan.source, plan.bytes_moved) == (BACKEND, 0)
    assert ferry.plan([variable], "numpy").parts[0].source == BACKEND
    assert ferry.to(variable, BACKEND) is variable.value or BACKEND == "tensorflow"
    with tempfile.TemporaryDirectory() as folder:
        ferry.save(Path(folder, "x.safetensors"), {"x": variable})
        saved = ferry.load(Path(folder, "x.safetensors"), "numpy")["x"]
        assert saved.tolist() == values.tolist()
    in_tree, later = ferry.to({"k": variable}, "numpy")["k"], ferry.to_async(variable, "numpy")
    for found in (in_tree, later.result()):
        assert found.tolist() == values.tolist()
    with ferry.publish(variable) as ticket:
        assert ferry.attach(ticket, "numpy").tolist() == values.tolist()
    space = ferry.array_namespace(variable)
    assert space is ferry.array_namespace(keras.ops.convert_to_tensor(values))
    assert ferry.array_namespace(variable, keras.ops.ones(2)) is space

    @ferry.via("numpy")
    def double(x: Any, **more: Any) -> Any:
        assert all(type(part) is np.ndarray for part in (x, *more.values()))
        return 2 * values

    @ferry.agnostic
    def total(xp: Any, x: Any, *more: Any) -> Any:
        assert xp is space
        assert not isinstance(x, keras.Variable)
        return xp.sum(x * x)

    for result in (double(variable), double(values=variable, x=variable)):
        assert isinstance(result, kind)
        assert ferry.to(result, "numpy").tolist() == (2 * values).tolist()
    for arguments in ((variable,), (variable, values), (variable, [variable])):
        result = total(*arguments)
        assert isinstance(result, kind)
        assert keras.ops.convert_to_numpy(result) == 55
    if BACKEND == "torch":
        total(variable).backward()
        assert variable.value.grad.tolist() == (2 * values).tolist()
    elif BACKEND == "tensorflow":
        tensorflow = sys.modules["tensorflow"]
        with tensorflow.GradientTape() as tape:
            result = total(variable)
        assert tape.gradient(result, variable.value).numpy().tolist() == (2 * values).tolist()
        assert float(tensorflow.function(lambda: total(variable), autograph=False)()) == 55


def recipe(page: Path) -> None:
    """The section of the page, which must have trained for the epochs that it names."""
    section = page.read_text().partition("\n## Keras from Grain\n")[2].partition("\n## ")[0]
    blocks = [block.partition("\n```")[0] for block in section.split("```python\n")[1:]]
    assert blocks
    names = {"np": np, "ferry": ferry}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile("\n".join(blocks), str(page), "exec"), names)
    assert keras.backend.backend() == BACKEND


variables()
recipe(Path(sys.argv[1]))
