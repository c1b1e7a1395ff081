"""What the loop over a feed waited for."""

from __future__ import annotations

import threading

__all__ = ["FeedStats", "WaitTimes"]


class FeedStats:
    """What a feed has done so far, in all epochs, and what its loop waited for.

    The time of an epoch is that from its start to its last batch. What the loop does not wait for
    the loader or for a transfer is the time of the consumer, with the work that it queued on a GPU.

    Example:
        >>> ferry.feed([np.ones(2)], "torch").stats().batches
        0
    """

    __slots__ = ("_batches", "_bytes", "_loader_seconds", "_seconds", "_transfer_seconds")

    def __init__(
        self,
        batches: int = 0,
        bytes: int = 0,
        seconds: float = 0.0,
        loader_seconds: float = 0.0,
        transfer_seconds: float = 0.0,
    ) -> None:
        self._batches = batches
        self._bytes = bytes
        self._seconds = seconds
        self._loader_seconds = loader_seconds
        self._transfer_seconds = transfer_seconds

    @property
    def batches(self) -> int:
        """The number of batches that the loop got."""
        return self._batches

    @property
    def bytes(self) -> int:
        """The number of bytes that were moved for them. Shared memory is not moved."""
        return self._bytes

    @property
    def seconds(self) -> float:
        """The time of all epochs."""
        return self._seconds

    @property
    def loader_seconds(self) -> float:
        """For how long the loop waited for the loader."""
        return self._loader_seconds

    @property
    def transfer_seconds(self) -> float:
        """For how long the loop waited while bytes moved."""
        return self._transfer_seconds

    @property
    def verdict(self) -> str:
        """What takes most of the time: the loader, the transfer or the consumer."""
        if not self.batches or self.seconds <= 0:
            return "no batch yet"
        consumer_seconds = self.seconds - self.loader_seconds - self.transfer_seconds
        seconds, name = max(
            (consumer_seconds, "consumer"),
            (self.transfer_seconds, "transfer"),
            (self.loader_seconds, "loader"),
        )
        return f"the {name} is the bottleneck: {seconds / self.seconds:.0%} of the time"

    def __repr__(self) -> str:
        return (
            f"<FeedStats {self.batches} batches, {self.bytes} bytes moved, waited "
            f"{self.loader_seconds:.3f} s for the loader and {self.transfer_seconds:.3f} s for the "
            f"transfer of {self.seconds:.3f} s; {self.verdict}>"
        )


class WaitTimes:
    """Adds up what consumers wait for. Consumers of several epochs may run at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches = 0
        self._bytes = 0
        self._seconds = 0.0
        self._loader_seconds = 0.0
        self._transfer_seconds = 0.0

    def add(
        self, bytes_moved: int, seconds: float, loader_seconds: float, transfer_seconds: float
    ) -> None:
        """Adds one batch; `seconds` is the time since the batch before it."""
        with self._lock:
            self._batches += 1
            self._bytes += bytes_moved
            self._seconds += seconds
            self._loader_seconds += loader_seconds
            self._transfer_seconds += transfer_seconds

    def add_start(self, seconds: float) -> None:
        """Adds the start of an epoch, in which the loader made its iterator."""
        with self._lock:
            self._seconds += seconds
            self._loader_seconds += seconds

    def stats(self) -> FeedStats:
        """The sums so far."""
        with self._lock:
            return FeedStats(
                self._batches,
                self._bytes,
                self._seconds,
                self._loader_seconds,
                self._transfer_seconds,
            )


FeedStats.__module__ = "tensorferry"
