"""The ways to hand a tensor to another process: what the producer sends, and what comes of it."""

import io
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing import shared_memory
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

import tensorferry as ferry


def values(size: int) -> Any:
    """Random numbers, the same for the same size in every process; large tensors repeat them."""
    return np.random.default_rng(size).random(min(size, 64 << 20) // 4, "float32")


def filled(array: Any, size: int) -> Any:
    """The array, with values in it."""
    block = values(size)
    array.reshape(-1, len(block))[:] = block
    return array


class Method(ABC):
    """One of them. A count of zero is one tensor, any other a dict with that number of tensors."""

    @abstractmethod
    def make(self, size: int, count: int) -> Any:
        """The source, in memory that this method can share."""

    @abstractmethod
    def send(self, source: Any) -> tuple[Any, Any]:
        """The message, and what the producer keeps until the consumer is done."""

    @abstractmethod
    def take(self, message: Any) -> Any:
        """The tensors in the consumer."""

    def array(self, taken: Any) -> Any:
        """A part of a tensor as a NumPy array."""
        return np.asarray(taken)

    def first(self, taken: Any) -> float:
        """The first element."""
        found = next(iter(taken.values())) if isinstance(taken, dict) else taken
        return float(found[0])

    def check(self, taken: Any, expected: Any, whole: bool) -> None:
        """Compares the results, all of them or some places."""
        for one in taken.values() if isinstance(taken, dict) else [taken]:
            step = 1 if whole else max(1, len(expected) // 7)
            blocks = one.reshape(-1, len(expected))
            for block in blocks if whole else (blocks[0], blocks[-1]):
                if not np.array_equal(self.array(block[::step]), expected[::step]):
                    raise AssertionError("other values")

    def drop(self, taken: Any) -> None:  # noqa: B027 (most have nothing to do)
        """Releases what the consumer has."""

    def forget(self) -> None:  # noqa: B027 (as above)
        """Gives back memory that is kept for the next tensor."""


class Ours(Method):
    framework = "numpy"

    def make(self, size: int, count: int) -> Any:
        self.framework = "torch" if count else "numpy"

        def one() -> Any:
            made = ferry.empty_shared(size // 4, "float32", framework=self.framework)
            filled(ferry.to(made, "numpy"), size)
            return made

        return {str(number): one() for number in range(count)} if count else one()

    def send(self, source: Any) -> tuple[Any, Any]:
        ticket = ferry.publish(source, copy=False)
        return bytes(ticket), ticket

    def take(self, message: Any) -> Any:
        return ferry.attach(message, self.framework, copy=False)


class SharedMemory(Method):
    def make(self, size: int, count: int) -> Any:
        memory = shared_memory.SharedMemory(create=True, size=size)
        filled(np.ndarray(size // 4, "float32", memory.buf), size)
        return memory

    def send(self, source: Any) -> tuple[Any, Any]:
        return (source.name, source.size // 4), None

    def take(self, message: Any) -> Any:
        memory = shared_memory.SharedMemory(name=message[0])
        return [memory, np.ndarray(message[1], "float32", memory.buf)]

    def first(self, taken: Any) -> float:
        return float(taken[1][0])

    def check(self, taken: Any, expected: Any, whole: bool) -> None:
        super().check(taken[1], expected, whole)

    def drop(self, taken: Any) -> None:
        taken.pop()
        taken.pop().close()


class TorchQueue(Method):
    def make(self, size: int, count: int) -> Any:
        import torch.multiprocessing

        if count:
            # By descriptors there would be one for each, which is more than a process may have.
            torch.multiprocessing.set_sharing_strategy("file_system")

        def one() -> Any:
            made = torch.empty(size // 4).share_memory_()
            filled(made.numpy(), size)
            return made

        return {str(number): one() for number in range(count)} if count else one()

    def send(self, source: Any) -> tuple[Any, Any]:
        buffer = io.BytesIO()
        ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(source)
        return buffer.getvalue(), source

    def take(self, message: Any) -> Any:
        import torch.multiprocessing  # noqa: F401

        return pickle.loads(message)


class OursOnGpu(Ours):
    framework = "torch"

    def forget(self) -> None:
        import torch

        torch.cuda.empty_cache()

    def make(self, size: int, count: int) -> Any:
        import torch

        block = torch.from_numpy(values(size)).cuda()
        one = lambda: block.repeat(size // 4 // len(block))  # noqa: E731
        made = {str(number): one() for number in range(count)} if count else one()
        torch.cuda.synchronize()
        return made

    def array(self, taken: Any) -> Any:
        return taken.cpu().numpy()


class TorchQueueOnGpu(TorchQueue):
    def forget(self) -> None:
        import torch

        # PyTorch notices here what consumers have released.
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()

    def make(self, size: int, count: int) -> Any:
        return OursOnGpu().make(size, count)

    def array(self, taken: Any) -> Any:
        return taken.cpu().numpy()


class Pickle(Method):
    def make(self, size: int, count: int) -> Any:
        one = lambda: filled(np.empty(size // 4, "float32"), size)  # noqa: E731
        return {str(number): one() for number in range(count)} if count else one()

    def send(self, source: Any) -> tuple[Any, Any]:
        return pickle.dumps(source, pickle.HIGHEST_PROTOCOL), None

    def take(self, message: Any) -> Any:
        return pickle.loads(message)


METHODS: dict[str, Callable[[], Method]] = {
    "ours": Ours,
    "shared_memory": SharedMemory,
    "torch queue": TorchQueue,
    "pickle": Pickle,
    "ours, gpu": OursOnGpu,
    "torch queue, gpu": TorchQueueOnGpu,
}
