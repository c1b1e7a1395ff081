"""What columns and tables of Arrow cost on their way to tensors, against the native methods.

The jobs are `JOBS`; a new one is a new entry. `sources` makes what they convert, of random values.
Every candidate gives the values of our result, bit by bit, before any of them is measured.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import quickest, ratio, spread

# The most that we may take, as a share of the peer's seconds: "no slower" has the margin of the
# other sections.
NO_SLOWER = 1.05
# By `--quick` or not.
TABLE_ROWS = {True: 2_000_000, False: 10_000_000}
SERIES_ROWS = {True: 10_000_000, False: 100_000_000}
COLUMNS, BATCHES, BATCH_ROWS = 10, 64, 256


@dataclass(frozen=True)
class Job:
    """One trip: our call, those that it is compared with, and the target of the ratio."""

    name: str
    ours: str
    peers: tuple[str, ...]
    target: float
    # How results are compared: of all candidates, or of their valid values.
    compared: Callable[[Any], list[np.ndarray]]
    # The number of batches that each candidate makes.
    batches: int = 1
    # A view of the memory that our result shares.
    shares: str = ""


def tensors(result: Any) -> list[np.ndarray]:
    """A tensor, or the tensors of a dict, as NumPy arrays."""
    if isinstance(result, dict):
        return [array for name in sorted(result) for array in tensors(result[name])]
    if isinstance(result, list):
        return [array for part in result for array in tensors(part)]
    return [np.asarray(result)]


def drain(batches: Iterator[Any]) -> None:
    """Waits for each batch, and drops it, as a training loop does."""
    import jax

    for batch in batches:
        jax.block_until_ready(batch)


def valid_values(result: Any) -> list[np.ndarray]:
    """A mask and the values where it is True: a null has no defined value."""
    values, mask = (np.asarray(part) for part in result)
    return [mask, values[mask]]


STACK = 'ferry.arrow.to(table, "numpy", stack=True)'
# JAX copies in the background, unless it is waited for.
WAIT = "jax.block_until_ready({})"
# The datasets, and the option that their type needs.
DATASETS = (("embeddings", ""), ("images", ', ragged="dense"'))
JOBS = (
    *(
        Job(
            f"{name} column -> {target}",
            f'ferry.to({column}, "{target}")',
            (f"ferry.to({column}_values, {peer})",),
            3.0,
            tensors,
            shares=f"{column}_memory" if target == "numpy" else "",
        )
        for name, column in (("pyarrow", "small"), ("polars", "small_series"))
        # The reference of NumPy is a share with PyTorch: `ferry.to` returns a NumPy array as it is.
        # Memory of Arrow is read-only, so that PyTorch gets a copy.
        for target, peer in (
            ("numpy", '"torch"'),
            ("torch", '"torch", copy=True'),
            ("jax", '"jax"'),
        )
    ),
    Job("pyarrow table -> matrix", STACK, ("np.asarray(table)",), 1 / 8, tensors),
    Job("polars frame -> matrix", STACK, ('frame.to_numpy(order="c")',), NO_SLOWER, tensors),
    Job(
        "polars series -> torch",
        'ferry.to(series, "torch")',
        ("series.to_torch()",),
        1 / 5,
        tensors,
    ),
    Job(
        "polars series -> jax",
        WAIT.format('ferry.to(series, "jax")'),
        (WAIT.format("series.to_jax()"),),
        1 / 5,
        tensors,
    ),
    *(
        Job(
            f"datasets, {name} -> jax, batches",
            f'drain(ferry.arrow.batches({name}, {BATCH_ROWS}, "jax"{option}))',
            (f"drain({name}_jax.iter({BATCH_ROWS}))",),
            1 / 10,
            tensors,
            batches=BATCHES,
        )
        for name, option in DATASETS
    ),
    *(
        Job(
            f"datasets, {name} -> jax, one batch",
            WAIT.format(f'ferry.arrow.to({name}_arrow[:{BATCH_ROWS}], "jax"{option})'),
            (WAIT.format(f"{name}_jax[:{BATCH_ROWS}]"),),
            1 / 10,
            tensors,
        )
        for name, option in DATASETS
    ),
    Job(
        "booleans -> numpy",
        'ferry.to(flags, "numpy")',
        (
            "flags.to_numpy(zero_copy_only=False)",
            "pc.cast(flags, pa.uint8()).to_numpy().view(bool)",
        ),
        NO_SLOWER,
        tensors,
    ),
    Job(
        "values and mask -> numpy",
        'ferry.arrow.to(nulls, "numpy", nulls="mask")',
        (
            "(pc.fill_null(nulls, 0).to_numpy(), nulls.is_valid().to_numpy(zero_copy_only=False))",
            "(nulls_values, pc.is_valid(nulls).to_numpy(zero_copy_only=False))",
            "(nulls_values, pc.cast(pc.is_valid(nulls), pa.uint8()).to_numpy().view(bool))",
        ),
        NO_SLOWER,
        valid_values,
    ),
    Job(
        "nulls filled -> numpy",
        'ferry.arrow.to(nulls, "numpy", nulls=0)',
        ("pc.fill_null(nulls, 0).to_numpy()",),
        NO_SLOWER,
        tensors,
    ),
)


def sources(quick: bool) -> dict[str, Any]:
    """What the jobs convert, by the names that they use."""
    import datasets
    import jax
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    import tensorferry as ferry

    random = np.random.default_rng()
    rows = TABLE_ROWS[quick]

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    def dataset(name: str, values: np.ndarray, feature: Any) -> Any:
        features = datasets.Features({name: feature})
        return datasets.Dataset.from_dict({name: list(values)}, features=features)

    names: dict[str, Any] = {
        "ferry": ferry,
        "jax": jax,
        "np": np,
        "pa": pa,
        "pc": pc,
        "drain": drain,
    }
    names["small_values"], names["small_series_values"] = floats(1000), floats(1000)
    names["small"] = pa.array(names["small_values"])
    names["small_memory"] = names["small"].to_numpy()
    names["small_series"] = pl.Series(names["small_series_values"])
    names["small_series_memory"] = names["small_series"].to_numpy(allow_copy=False)
    names["table"] = pa.table({f"c{i}": floats(rows) for i in range(COLUMNS)})
    names["frame"] = pl.from_arrow(names["table"])
    names["series"] = pl.Series(floats(SERIES_ROWS[quick]))
    count = BATCHES * BATCH_ROWS
    vectors = datasets.Sequence(datasets.Value("float32"), length=128)
    names["embeddings"] = dataset("embedding", floats(count, 128), vectors)
    pixels = datasets.Array2D((28, 28), "float32")
    names["images"] = dataset("image", floats(count, 28, 28), pixels)
    for name in ("embeddings", "images"):
        for form in ("arrow", "jax"):
            names[f"{name}_{form}"] = names[name].with_format(form)
    names["flags"] = pa.array(random.random(rows) < 0.5)
    names["nulls_values"] = floats(rows)
    names["nulls"] = pa.array(names["nulls_values"], mask=random.random(rows) < 0.1)
    return names


def check(job: Job, names: dict[str, Any]) -> None:
    """Every candidate gives the type, the shape and the bits of ours."""
    # All batches are compared.
    names = {**names, "drain": list}
    ours = job.compared(eval(job.ours, names))
    for peer in job.peers:
        theirs = job.compared(eval(peer, names))
        for one, other in zip(ours, theirs, strict=True):
            bits = f"u{one.itemsize}"
            if one.dtype != other.dtype or not np.array_equal(one.view(bits), other.view(bits)):
                raise AssertionError(f"{job.name}: {peer} gives other values than ours")
    if job.shares and not np.shares_memory(ours[0], names[job.shares]):
        raise AssertionError(f"{job.name}: {job.ours} copies")


def measure(job: Job, names: dict[str, Any], quick: bool) -> dict[str, Any]:
    """Checks and measures one job; gives its row of the table."""
    check(job, names)
    timers = {code: make_timer(code, names) for code in (job.ours, *job.peers)}
    found = interleave(timers, rounds=40 if quick else 100, batch=0.002, budget=6 if quick else 20)
    check(job, names)
    best = quickest({code: found[code] for code in job.peers})
    figure = ratio(found[job.ours], found[best])
    return {
        "job": job.name,
        "ours us": found[job.ours].median / job.batches * 1e6,
        "peer us": found[best].median / job.batches * 1e6,
        "ratio": figure,
        "spread": spread(found[job.ours], found[best]),
        "target": job.target,
        "verdict": verdict(figure <= job.target),
        "ours": f"`{job.ours}`",
        "best peer": f"`{best}`",
        "all us": {code: timing.median / job.batches * 1e6 for code, timing in found.items()},
    }


def run(quick: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    names = sources(quick)
    versions = (f"{name} {metadata.version(name)}" for name in ("pyarrow", "polars", "datasets"))
    section = Section(
        "Columns and tables of Arrow",
        {
            "job": "",
            "ours us": ",.1f",
            "peer us": ",.1f",
            "ratio": ".3f",
            "spread": ".0%",
            "target": ".3f",
            "verdict": "",
            "best peer": "",
        },
        notes=[
            f"A table has {COLUMNS} float32 columns of {TABLE_ROWS[quick]:,} rows, a series "
            f"{SERIES_ROWS[quick]:,}; booleans and nulls are of as many rows as the table. A batch "
            f"of datasets has {BATCH_ROWS} rows, of 128 or 28 x 28 float32; batches are given per "
            "batch. A column has 1,000 rows, and is compared with our own call of a NumPy array.",
            f"Versions: {', '.join(versions)}.",
        ],
    )
    section.rows = [measure(job, names, quick) for job in JOBS]
    return asdict(section)
