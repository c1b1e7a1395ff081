"""Work in another process, for what can only be measured in a fresh one.

`call` starts a new interpreter, and `middle` several in turn; `forked` forks this one, which keeps
what is imported and nothing else warm. Arguments and answers are JSON.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Host memory only: no framework shall look for a GPU, nor talk about it. NumPy's linear algebra is
# not measured, and its threads would only stand in the way.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


class ChildError(Exception):
    """A child process ended without an answer."""


def call(
    target: str,
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    interpreter: str = sys.executable,
) -> Any:
    """Calls `module:function` in a new interpreter, which `prefix` may wrap (valgrind)."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [interpreter, __file__, target, json.dumps(arguments), str(answer)]
        done = subprocess.run(
            [*prefix, *command],
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            check=False,
        )
        if done.returncode != 0 or not answer.exists():
            raise ChildError(f"{target} ended with code {done.returncode}")
        return json.loads(answer.read_text())


def middle(
    target: str,
    *arguments: Any,
    by: Callable[[Any], float],
    times: int,
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The rows that `module:function` gives: of each the middle one of `times` fresh interpreters.

    Where a process happens to lie in memory moves some figures by more than the rounds within it
    differ. All figures by which a row was chosen go with it.
    """
    runs = [call(target, *arguments, environment=environment) for _ in range(times)]
    rows = []
    for same in zip(*runs, strict=True):
        ranked = sorted(same, key=by)
        rows.append({**ranked[len(ranked) // 2], "of processes": [by(row) for row in ranked]})
    return rows


def forked(work: Callable[[], Any]) -> Any:
    """Calls `work` in a fork of this process."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        # Whatever happens, the fork must not return into its parent's code.
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(work(), pipe)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(process, 0)
    if status != 0:
        raise ChildError(f"a fork ended with status {status}")
    return json.loads(answer)


def main() -> None:
    target, arguments, answer = sys.argv[1:]
    module, function = target.split(":")
    result = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    Path(answer).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
