"""A training loop on a GPU with batches in ordinary host memory: `ferry.feed` beside other methods.

A step reads the batch and multiplies matrices. It is calibrated on a batch that is on the GPU
already. Loops are measured in two kinds: each step is waited for, as in a loop that reads its loss,
or the last one alone. The methods take turns, so that the clock of the GPU affects all of them. A
step returns the sum of the batch's bits, which is exact and is compared with NumPy's. Each
framework has a process of its own.

The last rows are 2,000 batches in one epoch: what the process and the GPU hold at the end, beyond
what they held after a tenth of them.

Not part of a full run: see `gpu.py`.
"""

import itertools
import os
import queue
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import child
import numpy as np
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools import machine
from tensorferry._tools.bench.measure import collector_off, round_order

MIB = 1 << 20
# float32: 154 MB.
SHAPE, BATCHES = (256, 3, 224, 224), 8
STEP_SECONDS = 10e-3
# Of a calibrated step from these seconds.
MAX_DEVIATION = 0.02
# Per method: the number of rounds, of measured steps per round, and of steps before them.
ROUNDS, STEPS, WARM_UP = 5, 40, 10
SIDE = 4096
ALONE, FEED = "compute alone", "ferry.feed(..., prefetch=2)"
EACH, LAST = "each step", "the last step"
LIMIT = 1.02
GROWTH_SHAPE, GROWTH_BATCHES = (4, MIB), 2000
# One batch. A leak of one object of 10 KB per batch would be more.
GROWTH_LIMIT = 16 * MIB
GPU_ENVIRONMENT = {"JAX_PLATFORMS": "", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

Arrays = list[np.ndarray]
# Yields this number of batches on the device.
Method = Callable[[int], Iterator[Any]]
# Queues the work of a step, and returns the sum of the bits of the batch.
Step = Callable[[Any], Any]


class Loop(Protocol):
    """What differs between the frameworks."""

    def upload(self, array: np.ndarray) -> Any: ...
    def make_step(self, products: int) -> Step: ...
    def wait(self, result: Any) -> None: ...
    def methods(self, arrays: Arrays) -> dict[str, Method]: ...


def cycled(arrays: list[Any], count: int) -> list[Any]:
    """A list of `count` batches that repeats a few arrays."""
    return list(itertools.islice(itertools.cycle(arrays), count))


def our_methods(arrays: Arrays, framework: str, device: str) -> dict[str, Method]:
    def in_loop(count: int) -> Iterator[Any]:
        for array in cycled(arrays, count):
            yield ferry.to(array, framework, device=device)

    def feed(count: int) -> Iterator[Any]:
        yield from ferry.feed(cycled(arrays, count), framework, device=device, prefetch=2)

    return {"ferry.to in the loop": in_loop, FEED: feed}


class TorchLoop:
    """Steps on the current stream."""

    def __init__(self, device: str, side: int) -> None:
        import torch

        self.torch, self.device = torch, device
        generator = torch.Generator().manual_seed(27)
        # The products keep their size.
        weights = torch.randn(side, side, generator=generator) / side**0.5
        self.weights = weights.to(device, torch.bfloat16)

    def upload(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).to(self.device)

    def make_step(self, products: int) -> Step:
        torch, weights = self.torch, self.weights

        def step(batch: Any) -> Any:
            total = batch.view(torch.int32).sum(dtype=torch.int64)
            product = weights
            for _ in range(products):
                product = product @ weights
            return total

        return step

    def wait(self, result: Any) -> None:
        # Not for the device, on which other streams copy.
        self.torch.cuda.current_stream().synchronize()

    def methods(self, arrays: Arrays) -> dict[str, Method]:
        def in_loop(count: int) -> Iterator[Any]:
            for array in cycled(arrays, count):
                yield self.upload(array)

        return {
            '.to("cuda") in the loop': in_loop,
            "pin_memory on a thread, side stream one ahead": lambda count: self.pinned(
                cycled(arrays, count)
            ),
            **our_methods(arrays, "torch", self.device),
            "ferry.feed of pinned memory": self.feed_pinned(arrays),
        }

    def feed_pinned(self, arrays: Arrays) -> Method:
        tensors = [self.torch.from_numpy(array).pin_memory() for array in arrays]
        return lambda count: iter(ferry.feed(cycled(tensors, count), "torch", device=self.device))

    def pinned(self, arrays: Arrays) -> Iterator[Any]:
        """The thread is that of a DataLoader with pin_memory, the stream that of its users."""
        torch = self.torch
        pinned: queue.Queue[Any] = queue.Queue(2)

        def pin() -> None:
            torch.set_num_threads(1)  # as a DataLoader does
            for array in arrays:
                pinned.put(torch.from_numpy(array).pin_memory())
            pinned.put(None)

        threading.Thread(target=pin, daemon=True).start()
        side = torch.cuda.Stream()

        def copy_next() -> Any:
            host = pinned.get()
            if host is None:
                return None
            with torch.cuda.stream(side):
                return host.to(self.device, non_blocking=True)

        following = copy_next()
        while following is not None:
            current = following
            torch.cuda.current_stream().wait_stream(side)
            current.record_stream(torch.cuda.current_stream())
            following = copy_next()
            yield current


class JaxLoop:
    """Steps that JAX compiles."""

    def __init__(self, device: str, side: int) -> None:
        import jax

        self.jax, self.device = jax, device
        self.jax_device = jax.devices("gpu" if device == "cuda" else device)[0]
        weights = np.random.default_rng(27).standard_normal((side, side), np.float32) / side**0.5
        self.weights = jax.device_put(
            jax.numpy.asarray(weights, jax.numpy.bfloat16), self.jax_device
        )

    def upload(self, array: np.ndarray) -> Any:
        return self.jax.device_put(array, self.jax_device)

    def make_step(self, products: int) -> Step:
        jax, weights = self.jax, self.weights
        int32 = jax.numpy.int32

        def compute(batch: Any, weights: Any) -> Any:
            total = jax.lax.bitcast_convert_type(batch, int32).sum(dtype=int32)
            product = jax.lax.fori_loop(0, products, lambda _, last: last @ weights, weights)
            return total, product[0, 0]

        compiled = jax.jit(compute)
        return lambda batch: compiled(batch, weights)

    def wait(self, result: Any) -> None:
        self.jax.block_until_ready(result)

    def methods(self, arrays: Arrays) -> dict[str, Method]:
        def in_loop(count: int) -> Iterator[Any]:
            for array in cycled(arrays, count):
                yield self.upload(array)

        def prefetched(count: int) -> Iterator[Any]:
            """As flax.jax_utils.prefetch_to_device."""
            source = iter(cycled(arrays, count))
            uploaded: deque[Any] = deque()

            def enqueue(number: int) -> None:
                uploaded.extend(self.upload(array) for array in itertools.islice(source, number))

            enqueue(2)
            while uploaded:
                yield uploaded.popleft()
                enqueue(1)

        return {
            "jax.device_put in the loop": in_loop,
            "jax.device_put, deque two ahead": prefetched,
            **our_methods(arrays, "jax", self.device),
        }


LOOPS: dict[str, Callable[[str, int], Loop]] = {"jax": JaxLoop, "torch": TorchLoop}


class Timed(NamedTuple):
    """Seconds per step after the warm-up, and the sums that all steps returned."""

    seconds: list[float]
    sums: list[int]


def time_steps(loop: Loop, step: Step, batches: Iterator[Any], warm_up: int = WARM_UP) -> Timed:
    """Waits for each step."""
    seconds, results = [], []
    begin = perf_counter()
    for batch in batches:
        result = step(batch)
        # Its memory is for the next batch.
        del batch
        loop.wait(result)
        end = perf_counter()
        seconds.append(end - begin)
        begin = end
        results.append(result)
    return Timed(seconds[warm_up:], read(results))


def time_loop(loop: Loop, step: Step, batches: Iterator[Any], warm_up: int = WARM_UP) -> Timed:
    """Waits for the last step of the warm-up and for the last of all. One figure, of all steps."""
    results: list[Any] = []
    begin = perf_counter()
    for batch in batches:
        if len(results) == warm_up:
            loop.wait(results[-1])
            begin = perf_counter()
        results.append(step(batch))
        del batch
    loop.wait(results[-1])
    seconds = (perf_counter() - begin) / (len(results) - warm_up)
    return Timed([seconds], read(results))


def read(results: list[Any]) -> list[int]:
    return [int(result[0] if isinstance(result, tuple) else result) for result in results]


KINDS: dict[str, Callable[..., Timed]] = {EACH: time_steps, LAST: time_loop}


def calibrated(loop: Loop, resident: Any, goal: float) -> tuple[Step, int]:
    """A step that takes `goal` seconds on a batch that is on the device."""

    def seconds(products: int) -> float:
        timed = time_steps(loop, loop.make_step(products), itertools.repeat(resident, 20))
        return statistics.median(timed.seconds)

    products = 32
    # The clock of the GPU depends on the load, so one measurement is not enough.
    for _ in range(8):
        took = seconds(products)
        if abs(took / goal - 1) < MAX_DEVIATION:
            break
        products = max(1, round(products * goal / took))
    return loop.make_step(products), products


def overlap(
    framework: str,
    quick: bool,
    shape: tuple[int, ...] = SHAPE,
    device: str = "cuda",
    side: int = SIDE,
    goal: float = STEP_SECONDS,
) -> dict[str, Any]:
    """The rows of one framework, in a process of its own."""
    generator = np.random.default_rng(27)
    arrays = [generator.random(shape, np.float32) for _ in range(BATCHES)]
    sums = [int(array.view(np.int32).sum(dtype=np.int64)) for array in arrays]
    loop = LOOPS[framework](device, side)
    resident = loop.upload(arrays[0])
    step, products = calibrated(loop, resident, goal)
    methods: dict[str, Method] = {
        ALONE: lambda count: itertools.repeat(resident, count),
        **loop.methods(arrays),
    }
    steps = 10 if quick else STEPS
    rows = []
    for kind, measure in KINDS.items():
        found: dict[str, list[list[float]]] = {name: [] for name in methods}
        with collector_off():
            for number in range(ROUNDS):
                for name in round_order(methods, number):
                    timed = measure(loop, step, methods[name](WARM_UP + steps))
                    check(name, timed.sums, sums[:1] if name == ALONE else sums)
                    found[name].append(timed.seconds)
        rows += [row(framework, name, kind, found[name], found[ALONE]) for name in methods]
    return {"rows": rows, "products": products}


def check(name: str, sums: list[int], expected: list[int]) -> None:
    """JAX's sums are of 32 bits and wrap around."""
    for number, found in enumerate(sums):
        if (found - expected[number % len(expected)]) % (1 << 32):
            raise AssertionError(f"{name}: batch {number} has other values")


def row(
    framework: str, name: str, kind: str, rounds: list[list[float]], alone: list[list[float]]
) -> dict[str, Any]:
    def middle(rounds: list[list[float]]) -> float:
        return statistics.median(itertools.chain.from_iterable(rounds))

    ratio = middle(rounds) / middle(alone)
    of_rounds = [middle([a]) / middle([b]) for a, b in zip(rounds, alone, strict=True)]
    has_target = (name, kind) == (FEED, EACH)
    return {
        "framework": framework,
        "batches": name,
        "waits for": kind,
        "ms": middle(rounds) * 1e3,
        "ratio": ratio,
        "lowest": min(of_rounds),
        "highest": max(of_rounds),
        "target": LIMIT if has_target else None,
        "verdict": verdict(ratio <= LIMIT) if has_target else None,
    }


def reader(framework: str) -> Callable[[Any], Any]:
    """The sum of a batch, queued on the device."""
    if framework == "jax":
        import jax

        return jax.jit(lambda batch: batch.sum())
    return lambda batch: batch.sum()


def growth(framework: str, count: int) -> dict[str, Any]:
    """2,000 batches in one epoch; called in a process of its own."""
    import torch

    generator = np.random.default_rng(27)
    arrays = [generator.random(GROWTH_SHAPE, np.float32) for _ in range(BATCHES)]
    expected = [array.sum(dtype=np.float64) for array in arrays]
    total = reader(framework)

    def used() -> dict[str, int]:
        torch.cuda.synchronize()
        free, whole = torch.cuda.mem_get_info()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        held = ferry.memory_stats()
        return {
            "host": pages * os.sysconf("SC_PAGE_SIZE"),
            "device": whole - free,
            "pool": held.used_bytes + held.idle_bytes,
        }

    feed = ferry.feed(cycled(arrays, count), framework, device="cuda")
    early: dict[str, int] = {}
    for number, batch in enumerate(feed):
        result = total(batch)
        if number % 20 == 0 and not np.isclose(
            float(result), expected[number % BATCHES], rtol=1e-4
        ):
            raise AssertionError(f"{framework}: batch {number} has other values")
        del batch
        if number == count // 10:
            early = used()
    late = used()
    grown = {name: late[name] - early[name] for name in early}
    return {
        "framework": framework,
        "batches": f"{count:,} batches of 16 MiB: growth in MiB",
        "host MiB": grown["host"] / MIB,
        "device MiB": grown["device"] / MIB,
        "pool MiB": grown["pool"] / MIB,
        "target": GROWTH_LIMIT / MIB,
        "verdict": verdict(max(grown.values()) <= GROWTH_LIMIT),
    }


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "A training loop on a GPU, batches of 154 MB in ordinary memory",
        {
            "framework": "",
            "batches": "",
            "waits for": "",
            "ms": ".2f",
            "ratio": ".3f",
            "lowest": ".3f",
            "highest": ".3f",
            "host MiB": ".1f",
            "device MiB": ".1f",
            "pool MiB": ".1f",
            "target": "g",
            "verdict": "",
        },
        notes=[
            "The ratio is to compute alone; lowest and highest are those of single rounds. "
            f"{ROUNDS} rounds of {10 if quick else STEPS} steps.",
        ],
    )
    if machine.gpu() is None:
        section.notes = ["Not measured: this machine has no CUDA GPU."]
        return asdict(section)
    shown = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    environment = {**GPU_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": shown}
    for framework in LOOPS:
        found = child.call("gpu_feeding:overlap", framework, quick, environment=environment)
        section.rows += found["rows"]
        products = found["products"]
        section.notes.append(f"{framework}: a step has {products} products of {SIDE} x {SIDE}.")
    count = GROWTH_BATCHES // 10 if quick else GROWTH_BATCHES
    for framework in ("torch", "cupy", "jax"):
        section.rows.append(
            child.call("gpu_feeding:growth", framework, count, environment=environment)
        )
    return asdict(section)
