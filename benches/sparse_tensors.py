"""What sparse tensors cost on their way, against the native one-liner: small ones and large ones.

The jobs are `JOBS`; a new one is a new entry. The file is not called as its section is, because a
package that is measured here is.
"""

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import ratio, spread

LIMIT = 1.05
# A side and a number of elements: a tenth is stored of what becomes dense, little of the others.
SMALL_SIZE, BIG_SIZE, DENSE_SIZE = (100, 500), (10_000, 1_000_000), (3_000, 900_000)


@dataclass(frozen=True)
class Job:
    """One trip: a source by its name in `sources`, the native way and ours."""

    name: str
    native: str
    ours: str
    sizes: tuple[tuple[int, int], ...] = (SMALL_SIZE, BIG_SIZE)
    # A native way that looks at no index, and so has nothing to do, is shown without a target.
    looks: bool = True


JOBS = (
    Job(
        "scipy csr -> torch csr",
        "torch.sparse_csr_tensor(torch.from_numpy(csr.indptr), torch.from_numpy(csr.indices), "
        "torch.from_numpy(csr.data), csr.shape, check_invariants=True)",
        "ferry.to(csr, 'torch')",
    ),
    Job(
        "scipy csr -> torch csr, unseen",
        "torch.sparse_csr_tensor(torch.from_numpy(csr.indptr), torch.from_numpy(csr.indices), "
        "torch.from_numpy(csr.data), csr.shape)",
        "ferry.to(csr, 'torch')",
        looks=False,
    ),
    Job(
        "torch csr -> scipy csr",
        "checked(scipy.sparse.csr_array((torch_csr.values().numpy(), "
        "torch_csr.col_indices().numpy(), torch_csr.crow_indices().numpy()), "
        "shape=torch_csr.shape))",
        "ferry.to(torch_csr, 'scipy')",
    ),
    Job(
        "torch csr -> scipy csr, unseen",
        "scipy.sparse.csr_array((torch_csr.values().numpy(), torch_csr.col_indices().numpy(), "
        "torch_csr.crow_indices().numpy()), shape=torch_csr.shape)",
        "ferry.to(torch_csr, 'scipy')",
        looks=False,
    ),
    Job(
        "scipy coo -> torch coo",
        "torch.sparse_coo_tensor(torch.from_numpy(np.stack(coo.coords)), "
        "torch.from_numpy(coo.data), coo.shape)",
        "ferry.to(coo, 'torch')",
    ),
    Job(
        "torch coo -> scipy coo",
        "scipy.sparse.coo_array((torch_coo.values().numpy(), torch_coo.indices().numpy()), "
        "shape=torch_coo.shape)",
        "ferry.to(torch_coo, 'scipy')",
    ),
    Job(
        "scipy csr -> jax BCOO",
        "jax_sparse.BCOO.from_scipy_sparse(csr)",
        "ferry.sparse.to(csr, 'jax', format='coo')",
    ),
    Job(
        "scipy csr -> jax BCSR",
        "jax_sparse.BCSR.from_scipy_sparse(csr)",
        "ferry.to(csr, 'jax')",
    ),
    Job(
        "jax BCOO -> scipy coo",
        "scipy.sparse.coo_array((np.asarray(bcoo.data), np.asarray(bcoo.indices).T), "
        "shape=bcoo.shape)",
        "ferry.to(bcoo, 'scipy')",
    ),
    Job(
        "jax BCSR -> torch csr",
        "torch.sparse_csr_tensor(torch.from_dlpack(bcsr.indptr), torch.from_dlpack(bcsr.indices), "
        "torch.from_dlpack(bcsr.data), bcsr.shape, check_invariants=True)",
        "ferry.to(bcsr, 'torch')",
    ),
    Job(
        "scipy coo -> tensorflow",
        "tf.sparse.SparseTensor(np.stack(coo.coords, axis=1), coo.data, coo.shape)",
        "ferry.to(coo, 'tensorflow')",
    ),
    Job(
        "tensorflow -> scipy coo",
        "scipy.sparse.coo_array((tf_coo.values.numpy(), tf_coo.indices.numpy().T), "
        "shape=tuple(tf_coo.shape))",
        "ferry.to(tf_coo, 'scipy')",
    ),
    Job(
        "torch coo -> tensorflow",
        "tf.sparse.SparseTensor(torch_coo.indices().numpy().T, torch_coo.values().numpy(), "
        "torch_coo.shape)",
        "ferry.to(torch_coo, 'tensorflow')",
    ),
    Job(
        "scipy csr -> sparse.COO",
        "pydata.COO.from_scipy_sparse(csr)",
        "ferry.to(csr, 'sparse')",
    ),
    Job(
        "scipy coo -> sparse.COO, unseen",
        "pydata.COO.from_scipy_sparse(coo)",
        "ferry.to(coo, 'sparse')",
        looks=False,
    ),
    Job(
        "sparse.COO -> scipy coo",
        "coo_pydata.to_scipy_sparse()",
        "ferry.to(coo_pydata, 'scipy')",
    ),
    Job("csr -> csc", "csr.tocsc()", "ferry.sparse.to(csr, 'scipy', format='csc')"),
    Job("csc -> csr", "csc.tocsr()", "ferry.sparse.to(csc, 'scipy', format='csr')"),
    Job("csr -> coo", "csr.tocoo()", "ferry.sparse.to(csr, 'scipy', format='coo')"),
    Job("coo -> csr, in order", "coo.tocsr()", "ferry.sparse.to(coo, 'scipy', format='csr')"),
    Job(
        "coo -> csr, in no order", "mixed.tocsr()", "ferry.sparse.to(mixed, 'scipy', format='csr')"
    ),
    Job(
        "repeats -> torch csr",
        "torch.sparse_coo_tensor(torch.from_numpy(np.stack(repeats.coords)), "
        "torch.from_numpy(repeats.data), repeats.shape).coalesce().to_sparse_csr()",
        "ferry.sparse.to(repeats, 'torch', format='csr')",
    ),
    Job(
        "repeats -> sparse.COO",
        "pydata.COO(np.stack(repeats.coords), repeats.data, repeats.shape)",
        "ferry.to(repeats, 'sparse')",
    ),
    Job(
        "csr -> numpy, dense",
        "csr.toarray()",
        "ferry.sparse.to_dense(csr, 'numpy')",
        (SMALL_SIZE, DENSE_SIZE),
    ),
    Job(
        "csc -> torch, dense",
        "torch.from_numpy(csc.toarray(order='C'))",
        "ferry.sparse.to_dense(csc, 'torch')",
        (SMALL_SIZE, DENSE_SIZE),
    ),
    Job(
        "repeats -> numpy, dense",
        "repeats.toarray()",
        "ferry.sparse.to_dense(repeats, 'numpy')",
        (SMALL_SIZE, DENSE_SIZE),
    ),
)


def sources(side: int, count: int) -> dict[str, Any]:
    """The same elements in every format, and some of them in no order or several times."""
    import jax.numpy as jnp
    import scipy.sparse
    import sparse as pydata
    import tensorflow as tf
    import torch
    from jax.experimental import sparse as jax_sparse

    import tensorferry as ferry

    random = np.random.default_rng(count)
    places = random.choice(side * side, count, replace=False)
    values = random.standard_normal(count).astype(np.float32)
    shape = (side, side)
    apart = tuple(axis.astype(np.int32) for axis in np.divmod(places, side))
    mixed = scipy.sparse.coo_array((values, apart), shape=shape)
    again = random.integers(0, count, count)
    repeats = scipy.sparse.coo_array((values, tuple(axis[again] for axis in apart)), shape=shape)
    csr = mixed.tocsr()
    coo = csr.tocoo()
    coo.has_canonical_format = True
    wide = np.stack(coo.coords).astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_csr = torch.sparse_csr_tensor(
            *map(torch.from_numpy, (csr.indptr, csr.indices, csr.data)), csr.shape
        )
    torch_coo = torch.sparse_coo_tensor(wide, coo.data, coo.shape, is_coalesced=True)
    points = jnp.asarray(wide.T.astype(np.int32))
    flags = {"indices_sorted": True, "unique_indices": True}
    parts = tuple(map(jnp.asarray, (csr.data, csr.indices, csr.indptr)))
    return {
        "np": np,
        "scipy": scipy,
        "torch": torch,
        "tf": tf,
        "pydata": pydata,
        "jax_sparse": jax_sparse,
        "ferry": ferry,
        "checked": checked,
        "csr": csr,
        "csc": csr.tocsc(),
        "coo": coo,
        "mixed": mixed,
        "repeats": repeats,
        "torch_csr": torch_csr,
        "torch_coo": torch_coo,
        "bcoo": jax_sparse.BCOO((parts[0], points), shape=shape, **flags),
        "bcsr": jax_sparse.BCSR(parts, shape=shape, **flags),
        "tf_coo": tf.sparse.SparseTensor(np.ascontiguousarray(wide.T), coo.data, shape),
        "coo_pydata": pydata.COO(wide, coo.data, shape, has_duplicates=False, sorted=True),
    }


def checked(x: Any) -> Any:
    """A SciPy array that SciPy itself has looked through."""
    x.check_format(full_check=True)
    return x


def elements(x: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Places and values of any result, in order and each place once, read without us."""
    import scipy.sparse
    import torch

    kind = type(x).__module__.split(".")[0]
    if isinstance(x, np.ndarray) or (kind == "torch" and x.layout == torch.strided):
        dense = np.asarray(x)
        places = np.flatnonzero(dense)
        return places, dense.reshape(-1)[places]
    if kind == "torch":
        whole = x.to_sparse_coo()
        at, values = whole._indices().numpy(), whole._values().numpy()
    elif kind == "jax":
        whole = x.to_bcoo() if hasattr(x, "to_bcoo") else x
        at, values = np.asarray(whole.indices).T, np.asarray(whole.data)
    elif kind == "tensorflow":
        at, values = x.indices.numpy().T, x.values.numpy()
    elif kind == "sparse":
        at, values = x.coords, x.data
    else:
        whole = x.tocoo()
        at, values = np.stack(whole.coords), whole.data
    summed = scipy.sparse.coo_array((values, tuple(at)), shape=tuple(x.shape)).tocsr().tocoo()
    return summed.coords[0].astype(np.int64) * x.shape[1] + summed.coords[1], summed.data


def check(job: Job, names: dict[str, Any]) -> None:
    """Both ways give the same elements, in the same format of the same framework."""
    native, ours = eval(job.native, names), eval(job.ours, names)
    if type(native) is not type(ours) and type(native).__name__ != f"{ours.format}_matrix":
        raise AssertionError(f"{job.name}: {type(ours)} and not {type(native)}")
    for found, expected in zip(elements(ours), elements(native), strict=True):
        # Repeats are summed in another order, perhaps.
        if not np.allclose(found, expected, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{job.name}: ours gives other elements")


def run(quick: bool) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    section = Section(
        "Sparse tensors: seconds of ours for each second of the native one-liner",
        {
            "job": "",
            "elements": ",d",
            "us": ",.1f",
            "native us": ",.1f",
            "ratio": ".2f",
            "spread": ".2f",
            "target": ".2f",
            "verdict": "",
        },
        notes=[
            "float32 values at random places, with int32 indices in SciPy and JAX. Ours looks "
            "every index through before a framework gets it. Natively that is asked for where "
            "it can be; rows that say unseen are of ways that look at none. SciPy's tocsr() sorts "
            "rows and sums repeats; ours keeps both where the target may have them."
        ],
    )
    for size in (SMALL_SIZE,) if quick else (SMALL_SIZE, BIG_SIZE, DENSE_SIZE):
        names = sources(*size)
        for job in JOBS:
            if size in job.sizes:
                section.rows.append(measure(job, size, names, quick))
    order = [job.name for job in JOBS]
    section.rows.sort(key=lambda row: (row["elements"] > SMALL_SIZE[1], order.index(row["job"])))
    return asdict(section)


def measure(job: Job, size: tuple[int, int], names: dict[str, Any], quick: bool) -> dict[str, Any]:
    check(job, names)
    jobs = {"ours": make_timer(job.ours, names), "native": make_timer(job.native, names)}
    samples = interleave(jobs, rounds=20 if quick else 60, batch=0.004, budget=1 if quick else 4)
    found = ratio(samples["ours"], samples["native"])
    return {
        "job": job.name,
        "elements": size[1],
        "us": samples["ours"].median * 1e6,
        "native us": samples["native"].median * 1e6,
        "ratio": found,
        "spread": spread(samples["ours"], samples["native"]),
        "target": LIMIT if job.looks else None,
        "verdict": verdict(found <= LIMIT) if job.looks else "-",
    }
