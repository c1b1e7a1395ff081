"""Cases for a process with four CPU devices of JAX: shardings as devices.

`feeding/test_sharding.py` runs them. `jax.device_put` says what each result must be.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import jax
import jax.experimental
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import tensorflow as tf
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from support.memory import aligned
from support.refusals import fact_and_hint

import tensorferry as ferry

P = PartitionSpec
DEVICES = jax.devices("cpu")
MESH = Mesh(np.array(DEVICES).reshape(2, 2), ("a", "b"))
REVERSED = Mesh(np.array(DEVICES[::-1]).reshape(2, 2), ("a", "b"))
LINE = Mesh(np.array(DEVICES), ("a",))
VALUES = np.arange(4 * 64, dtype=np.float32).reshape(4, 64)

# Each with the number of distinct slices of a matrix.
SHARDINGS: dict[str, tuple[Any, int]] = {
    "a": (NamedSharding(MESH, P("a")), 2),
    "None, b": (NamedSharding(MESH, P(None, "b")), 2),
    "(a, b)": (NamedSharding(MESH, P(("a", "b"))), 4),
    "None, (b, a)": (NamedSharding(MESH, P(None, ("b", "a"))), 4),
    "a, b": (NamedSharding(MESH, P("a", "b")), 4),
    "b, a": (NamedSharding(MESH, P("b", "a")), 4),
    "replicated": (NamedSharding(MESH, P()), 1),
    "other order of devices": (NamedSharding(REVERSED, P("b", "a")), 4),
    "line": (NamedSharding(LINE, P(None, "a")), 4),
    "two devices": (NamedSharding(Mesh(np.array(DEVICES[1:3]), ("a",)), P("a")), 2),
    "mesh of one": (NamedSharding(Mesh(np.array(DEVICES[3:]), ("a",)), P("a")), 1),
    "single device": (SingleDeviceSharding(DEVICES[2]), 1),
}


def enable_x64() -> AbstractContextManager[Any]:
    """64-bit types of JAX. `support.introspect` has it too, and imports what takes seconds."""
    holder = jax if hasattr(jax, "enable_x64") else jax.experimental
    return holder.enable_x64(True)


def sources() -> dict[str, Any]:
    """The same matrix in many forms."""
    strided = np.zeros((8, 130), np.float32)
    strided[::2, 1:129:2] = VALUES
    read_only = VALUES.copy()
    read_only.flags.writeable = False
    negative = torch.from_numpy(-VALUES * 1j + 0).conj().imag
    return {
        "NumPy": VALUES.copy(),
        "NumPy, aligned": _fill(aligned((4, 64), np.float32)),
        "NumPy, other order": np.asfortranarray(VALUES),
        "NumPy, strided": strided[::2, 1:129:2],
        "NumPy, backwards": VALUES[::-1, ::-1].copy()[::-1, ::-1],
        "NumPy, other byte order": VALUES.astype(">f4"),
        "NumPy, read-only": read_only,
        "PyTorch": torch.from_numpy(VALUES.copy()),
        "PyTorch, transposed": torch.from_numpy(VALUES.T.copy()).T,
        "PyTorch, negative bit": negative,
        "PyTorch, bfloat16": torch.from_numpy(VALUES.copy()).to(torch.bfloat16),
        "NumPy, bfloat16": VALUES.astype(ml_dtypes.bfloat16),
        "NumPy, int4": VALUES.astype(ml_dtypes.int4),
        "NumPy, bool": VALUES % 3 == 0,
        "TensorFlow": tf.constant(VALUES),
        "buffer": memoryview(VALUES.copy()),
        "JAX": jnp.array(VALUES),
        "JAX on another device": jax.device_put(VALUES, DEVICES[3]),
        "JAX, sharded": jax.device_put(VALUES, SHARDINGS["line"][0]),
        "JAX, sharded otherwise": jax.device_put(VALUES, SHARDINGS["b, a"][0]),
    }


def _fill(array: np.ndarray) -> np.ndarray:
    array[...] = VALUES
    return array


def native_values(x: Any) -> np.ndarray:
    """The values of a source, in an array that JAX accepts."""
    if isinstance(x, torch.Tensor):
        x = x.resolve_neg()
        is_narrow = x.dtype == torch.bfloat16
        return x.float().numpy().astype(ml_dtypes.bfloat16) if is_narrow else x.numpy()
    array = np.array(x)
    return array.astype(array.dtype.newbyteorder("="))


def check(y: jax.Array, values: np.ndarray, sharding: Any) -> None:
    """Compares a result with that of `jax.device_put`, as a whole and on each device."""
    expected = jax.device_put(values, sharding)
    assert isinstance(y, jax.Array)
    assert y.sharding == expected.sharding, (y.sharding, expected.sharding)
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    assert y.committed == expected.committed
    assert np.asarray(y).tobytes() == np.asarray(expected).tobytes()
    assert len(y.addressable_shards) == len(expected.addressable_shards)
    for one, other in zip(y.addressable_shards, expected.addressable_shards, strict=True):
        assert (one.device, one.index, one.replica_id) == (
            other.device,
            other.index,
            other.replica_id,
        )
        assert np.asarray(one.data).tobytes() == np.asarray(other.data).tobytes()


def case_every_source_and_sharding() -> None:
    failed = []
    for name, x in sources().items():
        for kind, (sharding, _count) in SHARDINGS.items():
            try:
                y = ferry.to(x, "jax", device=sharding)
                check(y, native_values(x), sharding)
            except Exception as error:
                failed.append(f"{name} to {kind}: {error!r}")
    assert not failed, "\n".join(failed)


def case_results_work() -> None:
    for sharding, _ in SHARDINGS.values():
        y = ferry.to(VALUES, "jax", device=sharding)
        expected = jax.device_put(VALUES, sharding)
        z = jax.jit(lambda v: v * 2 + 1)(y)
        assert z.sharding.is_equivalent_to(expected.sharding, 2)
        np.testing.assert_array_equal(np.asarray(z), VALUES * 2 + 1)
        jax.jit(lambda v: v * 2, donate_argnums=0)(y).block_until_ready()
        np.testing.assert_array_equal(VALUES, np.arange(256.0).reshape(4, 64))


def case_every_verb() -> None:
    """to, to_async, plan and feed agree; in trees as well."""
    for sharding, count in SHARDINGS.values():
        tree = {"x": VALUES, "n": [3, torch.from_numpy(VALUES.copy())]}
        for y in (
            ferry.to(tree, "jax", device=sharding),
            ferry.to_async(tree, "jax", device=sharding).result(),
            ferry.to_async(tree, "jax", device=sharding, copy=True).result(),
            *ferry.feed([tree, tree], "jax", device=sharding),
            *ferry.feed((tree for _ in range(2)), "jax", device=sharding),
        ):
            check(y["x"], VALUES, sharding)
            check(y["n"][1], VALUES, sharding)
            assert y["n"][0] == 3
        plan = ferry.plan(VALUES, "jax", device=sharding, copy=True)
        with ferry.trace() as trips:
            ferry.to(VALUES, "jax", device=sharding, copy=True)
        assert len(trips) == max(len(plan.parts), 1) == count, (plan, trips)


def case_types() -> None:
    for sharding, _ in SHARDINGS.values():
        for dtype in ("bfloat16", "float16", "int32", "uint8"):
            y = ferry.to(VALUES, "jax", device=sharding, dtype=dtype)
            check(y, VALUES.astype(np.dtype(dtype)), sharding)
            (z,) = ferry.feed([torch.from_numpy(VALUES)], "jax", device=sharding, dtype=dtype)
            check(z, VALUES.astype(np.dtype(dtype)), sharding)
        with enable_x64():
            y = ferry.to(VALUES, "jax", device=sharding, dtype="float64")
            check(y, VALUES.astype(np.float64), sharding)


def case_shapes() -> None:
    """Empty tensors, scalars, and more axes than the sharding names."""
    for sharding, _ in SHARDINGS.values():
        for shape in ((0, 8), (4, 0), (0, 0), (4, 8, 3), (8, 4, 1, 2)):
            x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
            check(ferry.to(x, "jax", device=sharding), x, sharding)
    for name in ("replicated", "single device"):
        sharding, _ = SHARDINGS[name]
        check(ferry.to(np.float32(3), "jax", device=sharding), np.array(3, np.float32), sharding)
    vector = np.arange(8, dtype=np.float32)
    for name in ("a", "(a, b)", "replicated", "two devices"):
        check(ferry.to(vector, "jax", device=SHARDINGS[name][0]), vector, SHARDINGS[name][0])


def addresses(y: jax.Array) -> dict[str, set[int]]:
    """The addresses of each distinct slice."""
    found: dict[str, set[int]] = {}
    for shard in y.addressable_shards:
        found.setdefault(str(shard.index), set()).add(shard.data.unsafe_buffer_pointer())
    return found


def case_each_distinct_slice_is_copied_once() -> None:
    """Whatever the number of devices that get it: CPU devices share the copy."""
    for kind, (sharding, count) in SHARDINGS.items():
        for x in (VALUES, torch.from_numpy(VALUES), tf.constant(VALUES)):
            plan = ferry.plan(x, "jax", device=sharding, copy=True)
            with ferry.trace() as trips:
                y = ferry.to(x, "jax", device=sharding, copy=True)
            copies = [trip for trip in trips if not trip.shares]
            assert len(copies) == count, (kind, trips)
            assert sum(trip.plan.bytes_moved for trip in trips) == VALUES.nbytes
            assert plan.bytes_moved == VALUES.nbytes
            found = addresses(y)
            assert len(found) == count
            assert all(len(of_one) == 1 for of_one in found.values()), (kind, found)
            assert len(set.union(*found.values())) == count


def case_a_trace_says_what_the_plan_said() -> None:
    """One trip for each distinct slice, also where the values are gathered first."""
    for sharding, _ in SHARDINGS.values():
        for name, x in sources().items():
            for options in ({}, {"copy": True}, {"dtype": "float16"}):
                plan = ferry.plan(x, "jax", device=sharding, **options)
                parts = plan.parts if plan.kind == "tree" else [plan]
                for convert in (ferry.to, ferry.to_async):
                    with ferry.trace() as trips:
                        result = convert(x, "jax", device=sharding, **options)
                        if isinstance(result, ferry.Job):
                            result.result()
                    found = [(trip.plan.action, trip.bytes_moved) for trip in trips]
                    assert found == [(part.action, part.bytes_moved) for part in parts], name
    # A feed copies what the loader may write again.
    for sharding, count in SHARDINGS.values():
        with ferry.trace() as trips:
            list(ferry.feed(iter([_fill(aligned((4, 64), np.float32))]), "jax", device=sharding))
        assert [trip.shares for trip in trips] == [False] * count


def case_sharing() -> None:
    """copy=False shares slices that are contiguous and aligned, and raises for others."""
    source = _fill(aligned((4, 64), np.float32))
    start, stop = source.ctypes.data, source.ctypes.data + source.nbytes
    for name in ("a", "(a, b)", "replicated", "two devices", "mesh of one", "single device"):
        sharding, _ = SHARDINGS[name]
        y = ferry.to(source, "jax", device=sharding, copy=False)
        check(y, VALUES, sharding)
        inside = [start <= one < stop for of_one in addresses(y).values() for one in of_one]
        assert all(inside), name
        assert ferry.plan(source, "jax", device=sharding, copy=False).bytes_moved == 0
        z = ferry.to(source, "jax", device=sharding, copy=True)
        inside = [start <= one < stop for of_one in addresses(z).values() for one in of_one]
        assert not any(inside), name
    for name in ("None, b", "a, b", "line"):
        with pytest.raises(ferry.CopyRequiredError) as caught:
            ferry.to(source, "jax", device=SHARDINGS[name][0], copy=False)
        fact_and_hint(caught.value)
    with pytest.raises(ferry.CopyRequiredError) as caught:
        ferry.to(jnp.array(VALUES), "jax", device=SHARDINGS["a"][0], copy=False)
    fact_and_hint(caught.value)


def case_a_share_keeps_its_source_alive() -> None:
    for name in ("a", "replicated"):
        y = ferry.to(
            _fill(aligned((4, 64), np.float32)), "jax", device=SHARDINGS[name][0], copy=False
        )
        noise = [np.full(2048, 0xA5, np.uint8) for _ in range(64)]
        assert np.asarray(y).tobytes() == VALUES.tobytes()
        del noise


def case_an_array_with_this_sharding_is_itself() -> None:
    for sharding, _ in SHARDINGS.values():
        x = jax.device_put(VALUES, sharding)
        assert ferry.to(x, "jax", device=sharding) is x
        assert ferry.to({"x": x}, "jax", device=sharding)["x"] is x
        assert ferry.to_async(x, "jax", device=sharding).result() is x
        (batch,) = ferry.feed((x for _ in range(1)), "jax", device=sharding)
        assert batch is x
        assert ferry.plan(x, "jax", device=sharding).action == "itself"
        y = ferry.to(x, "jax", device=sharding, copy=True)
        assert y is not x
        check(y, VALUES, sharding)
        kept = set.union(*addresses(x).values())
        assert not kept & set.union(*addresses(y).values())
        check(ferry.to(x, "jax", device=sharding, dtype="int32"), VALUES.astype(np.int32), sharding)


def case_an_array_with_this_sharding_is_itself_whatever_else_is_so() -> None:
    for sharding, _ in SHARDINGS.values():
        x = jax.device_put(VALUES, sharding)
        assert ferry.to(x, "jax", device=sharding, dtype="float32") is x
        assert ferry.to(x, "jax", device=sharding, copy=False) is x


def case_copy_false_never_copies() -> None:
    """Also where the values must be gathered, negated or swapped first."""
    copied = []
    for name in ("JAX, sharded", "PyTorch, negative bit", "NumPy, other byte order"):
        for kind, (sharding, _) in SHARDINGS.items():
            x = sources()[name]
            if isinstance(x, jax.Array) and x.sharding == sharding:
                continue
            try:
                ferry.to(x, "jax", device=sharding, copy=False)
            except ferry.CopyRequiredError as error:
                fact_and_hint(error)
            else:
                copied.append(f"{name} to {kind}")
    assert not copied, copied


def case_feeds() -> None:
    """A loader with one buffer, and devices by a prefix tree."""
    sharding, other = SHARDINGS["a"][0], SHARDINGS["replicated"][0]
    buffer = aligned((4, 64), np.float32)

    def loader():
        for number in range(6):
            buffer[:] = number
            yield buffer

    for device in (sharding, other):
        for number, batch in enumerate(list(ferry.feed(loader(), "jax", device=device))):
            check(batch, np.full((4, 64), number, np.float32), device)
    tree = {"x": VALUES, "y": VALUES[0], "z": VALUES}
    device = {"x": sharding, "y": "cpu:3", "z": None}
    for batch in ferry.feed(
        [tree] * 3, "jax", device=device, dtype={"x": "int32", "y": None, "z": None}
    ):
        check(batch["x"], VALUES.astype(np.int32), sharding)
        assert batch["y"].devices() == {DEVICES[3]}
        assert batch["z"].devices() == {DEVICES[0]}
    feed = ferry.feed([VALUES] * 5, "jax", device=other, copy=True)
    assert len(list(feed)) == 5
    assert feed.stats().bytes == 5 * VALUES.nbytes


VERBS = {
    "to": ferry.to,
    "to_async": lambda x, framework, **options: ferry.to_async(x, framework, **options).result(),
    "plan": ferry.plan,
    "feed": lambda x, framework, **options: list(ferry.feed([x], framework, **options)),
}


def refused(x: Any, sharding: Any, framework: str = "jax", **options: Any) -> str:
    """The fact of the error that every verb raises."""
    facts = set()
    for verb in VERBS.values():
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            verb(x, framework, device=sharding, **options)
        fact, _ = fact_and_hint(caught.value)
        facts.add(fact)
    (fact,) = facts
    return fact


def case_shapes_that_do_not_fit() -> None:
    for shape, name in (
        ((5, 8), "a"),
        ((4, 7), "None, b"),
        ((6, 8), "(a, b)"),
        ((3, 2), "a, b"),
        ((4,), "None, b"),
        ((4,), "a, b"),
        ((), "a"),
    ):
        sharding, _ = SHARDINGS[name]
        with pytest.raises(ValueError):
            jax.device_put(np.zeros(shape, np.float32), sharding)
        for x in (np.zeros(shape, np.float32), torch.zeros(shape), jnp.zeros(shape)):
            assert str(shape) in refused(x, sharding), (shape, name)
    fact = refused({"a": [np.zeros(5, np.float32)]}, SHARDINGS["a"][0])
    assert fact.startswith("at ['a'][0]: "), fact


def case_other_frameworks_are_refused() -> None:
    for sharding, _ in SHARDINGS.values():
        for framework in ("torch", "numpy", "tensorflow"):
            refused(VALUES, sharding, framework)
            refused(jax.device_put(VALUES, sharding), sharding, framework)


def case_other_memory_is_refused() -> None:
    kinds = {memory.kind for memory in DEVICES[0].addressable_memories()}
    default = DEVICES[0].default_memory().kind
    sharding = NamedSharding(MESH, P("a"), memory_kind=default)
    check(ferry.to(VALUES, "jax", device=sharding), VALUES, sharding)
    for kind in kinds - {default}:
        fact = refused(VALUES, NamedSharding(MESH, P("a"), memory_kind=kind))
        assert kind in fact


def case_devices_of_other_processes_are_refused() -> None:
    sharding = NamedSharding(MESH, P("a"))
    is_addressable = mock.PropertyMock(return_value=False)
    with mock.patch.object(NamedSharding, "is_fully_addressable", is_addressable):
        assert "process" in refused(VALUES, sharding)


def case_an_abstract_mesh_is_refused() -> None:
    sharding = NamedSharding(MESH.abstract_mesh, P("a"))
    for verb in VERBS.values():
        with pytest.raises(ferry.FerryError) as caught:
            verb(VALUES, "jax", device=sharding)
        fact_and_hint(caught.value)


def case_other_functions_refuse_a_sharding_or_use_it() -> None:
    sharding, folder = SHARDINGS["a"][0], tempfile.mkdtemp()
    ferry.save(f"{folder}/x.npy", VALUES)
    ticket = ferry.publish(VALUES)
    seen: list[Any] = []
    calls = {
        "load": lambda: ferry.load(f"{folder}/x.npy", "jax", device=sharding),
        "attach": lambda: ferry.attach(ticket, "jax", device=sharding),
        "via": lambda: ferry.via("jax", device=sharding)(seen.append)(VALUES),
        "agnostic": lambda: ferry.agnostic(device=sharding)(lambda xp, a: seen.append(a))(VALUES),
        "out": lambda: ferry.to(VALUES, "jax", device=sharding, out=np.empty_like(VALUES)),
        "empty_shared": lambda: ferry.empty_shared(
            (4, 8), "float32", framework="jax", device=sharding
        ),
        "to_dense": lambda: ferry.sparse.to_dense(
            scipy.sparse.eye_array(4), "jax", device=sharding
        ),
        "a sparse tensor": lambda: ferry.to(scipy.sparse.eye_array(4), "jax", device=sharding),
        "arrow": lambda: list(
            ferry.arrow.batches(pa.table({"x": [1, 2]}), 2, "jax", device=sharding)
        ),
    }
    for name, call in calls.items():
        seen.clear()
        try:
            y = call()
        except ferry.FerryError as error:
            fact_and_hint(error)
        else:
            y = seen[0] if seen else y
            assert getattr(y, "sharding", None) == sharding, (name, y)


def case_progress() -> None:
    x = np.zeros((4, 1 << 20), np.float32)
    seen: list[tuple[int, int]] = []
    y = ferry.to(
        x,
        "jax",
        device=SHARDINGS["a"][0],
        copy=True,
        progress=lambda moved, total: seen.append((moved, total)),
    )
    check(y, x, SHARDINGS["a"][0])
    assert {total for _, total in seen} <= {x.nbytes}


def case_the_default_device_of_the_consumer() -> None:
    """It is for one thread, as x64 is; the epoch has that of its start."""
    batches = [VALUES, torch.from_numpy(VALUES)]
    for device in DEVICES[::-1]:
        for is_stable in (True, False):
            with jax.default_device(device):
                epoch = iter(ferry.feed(batches if is_stable else iter(batches), "jax", prefetch=1))
            found = list(epoch)
            assert [batch.devices() for batch in found] == [{device}] * 2, device

    def loader():
        yield jnp.zeros(3)

    with jax.default_device(DEVICES[2]):
        (batch,) = ferry.feed(loader(), "jax")
    assert batch.devices() == {DEVICES[2]}


def leave_epochs_open() -> list[Any]:
    """Starts epochs that run when the interpreter exits, with threads of tf.data and JAX."""
    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((100_000, 64), np.float32))
    dataset = dataset.map(lambda x: x * 2, num_parallel_calls=2).batch(8).prefetch(4)
    sharding, _ = SHARDINGS["a"]
    feeds = [
        ferry.feed(dataset, "tensorflow"),
        ferry.feed(dataset, "jax", device=sharding),
        ferry.feed((np.zeros((4, 1 << 16)) for _ in range(1000)), "jax", dtype="float32"),
    ]
    epochs = [iter(feed) for feed in feeds]
    for epoch in epochs:
        next(epoch)
        next(epoch)
    return epochs
