"""A worker process that runs code: `Worker("torch").run("answer = 1 + 1")` gives 2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

PRELUDE = """
import ctypes, os, time
import numpy as np
import tensorferry as ferry
"""
# The order is the one in which the frameworks live together.
IMPORTS = {
    "numpy": "",
    "torch": "import torch",
    "cupy": "import cupy",
    "jax": "import jax, jax.numpy as jnp",
    "tensorflow": "import torch; import tensorflow as tf",
}
# How each makes a tensor on the GPU of a host array `a`, and a host array of a tensor `x`.
MAKE = {
    "torch": "torch.from_numpy(a).cuda()",
    "cupy": "cupy.asarray(a)",
    "jax": "jax.device_put(a, jax.devices('gpu')[0])",
    "tensorflow": "tf.constant(a) + tf.constant(0, a.dtype)",
}
HOST = {
    "numpy": "x",
    "torch": "x.cpu().numpy()",
    "cupy": "cupy.asnumpy(x)",
    "jax": "np.asarray(x)",
    "tensorflow": "x.numpy()",
}


class Worker:
    """A child with a framework, and a pipe to it."""

    def __init__(self, framework: str = "numpy", **environment: str) -> None:
        self.framework = framework
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.run(PRELUDE + IMPORTS[framework])

    def run(self, code: str) -> Any:
        """What the code leaves as `answer`; its error, if it raises one."""
        self.tell(code)
        return self.hear()

    def tell(self, code: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the other process ended with {self.process.wait()}")
        told = json.loads(line)
        if "error" in told:
            raise AssertionError(told["error"])
        return told["answer"]

    def publish(self, values: str, options: str = "") -> str:
        """Publishes an array that is given as code, from the GPU; the ticket stays as `ticket`."""
        self.run(f"a = {values}; x = {MAKE[self.framework]}")
        return str(self.run(f"ticket = ferry.publish(x, {options}); answer = str(ticket)"))

    def attach(self, ticket: str, options: str = "") -> list[Any]:
        """Attaches it as `x`; what its own framework says the values are."""
        code = f"x = ferry.attach({ticket!r}, {self.framework!r}, {options})\n"
        found = self.run(code + f"answer = np.asarray({HOST[self.framework]}).tolist()")
        assert isinstance(found, list)
        return found

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._close()

    def end(self) -> None:
        assert self._close() == 0

    def _close(self) -> int:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        # The child runs this file too, without the other files of the tests.
        from support.subprocesses import HANG_SECONDS

        return self.process.wait(timeout=HANG_SECONDS)


def serve() -> None:
    """What the child does."""
    replies = os.fdopen(os.dup(1), "w")
    # Frameworks that talk shall not be taken for answers.
    os.dup2(2, 1)
    names: dict[str, Any] = {}
    for line in sys.stdin:
        names["answer"] = None
        try:
            exec(json.loads(line), names)
            told = {"answer": names["answer"]}
        except BaseException as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(told) + "\n")
        replies.flush()


if __name__ == "__main__":
    serve()
