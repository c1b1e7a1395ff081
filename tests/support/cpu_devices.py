"""Cases for a process with several CPU devices of JAX and TensorFlow; `test_devices.py` runs them.

Where a result is, its framework says, and not the library.
"""

from __future__ import annotations

import gc
import tempfile
from functools import partial

import jax
import ml_dtypes
import numpy as np
import paddle  # noqa: F401 (before TensorFlow)
import pytest
import scipy.sparse
import tensorflow as tf
import torch
from support.dtypes import NAMED
from support.introspect import has_dtype, x64
from support.memory import aligned, bytes_to_boundary

import tensorferry as ferry
from tensorferry._tools import introspect

physical = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(physical, [tf.config.LogicalDeviceConfiguration()] * 3)
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")
CPUS = {"jax": 4, "tensorflow": 3}
TORCH = torch.arange(24, dtype=torch.float32).reshape(4, 6)
EXPECTED = TORCH.numpy().tobytes()


def name(index):
    return f"cpu:{index}" if index else "cpu"


def refused(function):
    """The fact in the error that a function raises, which has one line and a hint."""
    with pytest.raises(ferry.UnsupportedError) as caught:
        function()
    fact, hint = str(caught.value).split("\nhint: ")
    assert hint == caught.value.hint
    return fact


def check(x, source, target, place, **options):
    """Carries a tensor, and holds plan, trip and result against each other."""
    plan = ferry.plan(x, target, **options)
    with ferry.trace() as trips:
        y = ferry.to(x, target, **options)
    (trip,) = trips
    assert (plan.device, plan.action) == (trip.plan.device, trip.plan.action), (plan, trip)
    assert plan.source_device == introspect.device(source, x), plan
    assert plan.device == place == introspect.device(target, y), (
        plan,
        place,
        introspect.device(target, y),
    )
    assert introspect.values(target, y) == introspect.values(source, x) == EXPECTED
    same = introspect.address(source, x) == introspect.address(target, y)
    assert same == plan.shares, plan
    assert (y is x) == (plan.action == "itself"), plan
    return plan, y


def made(framework, index):
    """A framework's own tensor on its CPU device of this index."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    if framework == "jax":
        return jax.device_put(array, jax.devices("cpu")[index])
    if framework == "tensorflow":
        with tf.device(f"/device:CPU:{index}"):
            return tf.identity(tf.constant(array) + 0)
    assert index == 0
    if framework == "numpy":
        return array
    return ferry.to(array, framework, copy=True)


def spread():
    """The first dimension over all four CPU devices of JAX."""
    mesh = jax.make_mesh((4,), ("a",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))


def case_every_cpu_device_of_jax_and_tensorflow():
    """Each source on each of its devices, to each target on each of its devices, by name."""
    for source in FRAMEWORKS:
        for origin in range(CPUS.get(source, 1)):
            x = made(source, origin)
            for target in FRAMEWORKS:
                count = CPUS.get(target, 1)
                # Host memory goes to the first device by itself; a framework's own tensor stays.
                plan, _ = check(x, source, target, name(origin if source == target else 0))
                if source == target:
                    assert plan.action == "itself"
                check(x, source, target, "cpu", device="default")
                for index in range(count):
                    plan, _ = check(x, source, target, name(index), device=f"cpu:{index}")
                    assert (plan.action == "itself") == (source == target and index == origin)
                    check(x, source, target, name(index), device=f"cpu:{index}", copy=True)
                    tree = ferry.to({"a": [x, 3]}, target, device=f"cpu:{index}")
                    assert introspect.device(target, tree["a"][0]) == name(index)
                    later = ferry.to_async(x, target, device=f"cpu:{index}", copy=True).result()
                    assert introspect.device(target, later) == name(index)
                    assert introspect.values(target, later) == EXPECTED
                for verb in (ferry.to, ferry.plan):
                    fact = refused(partial(verb, x, target, device=f"cpu:{count}"))
                    said = f"{count} CPU devices, cpu:0 to cpu:{count - 1}"
                    said = "one CPU device, cpu" if count == 1 else said
                    assert f"has {said}, and cpu:{count} was requested" in fact, fact
    assert ferry.plan(TORCH, "jax", device="cpu:1", copy=False).shares
    assert ferry.plan(TORCH, "tensorflow", device="cpu:1", copy=False).shares
    assert ferry.plan(made("jax", 0), "jax", device="cpu:1", copy=False).action == "share"


def case_every_cpu_device_by_its_object():
    for index, device in enumerate(jax.devices("cpu")):
        check(TORCH, "torch", "jax", name(index), device=device)
        check(made("jax", 2), "jax", "jax", name(index), device=device)
        if index:
            fact = refused(partial(ferry.to, TORCH, "torch", device=device))
            assert "PyTorch has one CPU device" in fact
    for index, device in enumerate(tf.config.list_logical_devices("CPU")):
        spec = tf.DeviceSpec(device_type="CPU", device_index=index)
        full = made("tensorflow", index).device
        for given in (device, spec, full, f"/CPU:{index}", f"/device:CPU:{index}", f"CPU:{index}"):
            check(TORCH, "torch", "tensorflow", name(index), device=given)
            check(made("tensorflow", 2), "tensorflow", "tensorflow", name(index), device=given)
    assert "TensorFlow has 3 CPU devices" in refused(
        lambda: ferry.to(TORCH, "tensorflow", device=jax.devices("cpu")[3])
    )
    y = ferry.to(TORCH, "jax", device=spread())
    assert y.sharding == spread()
    assert introspect.values("jax", y) == EXPECTED


def case_every_type_reaches_every_cpu_device():
    """Types that go through other functions of a framework, and shapes that are special."""
    types = [getattr(ml_dtypes, one) for one in ("bfloat16", "float8_e5m2", "int4")]
    for kind in [np.float32, np.int64, np.bool_, np.complex64, *types]:
        for shape in [(), (0, 3), (5,), (3, 4)]:
            x = np.ones(shape, kind)
            with x64(True):
                for target, count in CPUS.items():
                    if not has_dtype(target, NAMED[x.dtype.name]):
                        continue
                    for index in range(count):
                        y = ferry.to(x, target, device=f"cpu:{index}")
                        assert introspect.device(target, y) == name(index), (
                            kind,
                            shape,
                            target,
                            index,
                        )
                        assert tuple(y.shape) == shape
                        back = ferry.to(y, "numpy")
                        assert back.dtype == x.dtype
                        assert (back == x).all()
                        assert ferry.plan(y, "numpy").source_device == name(index)
                        assert ferry.plan(y, target).action == "itself"


def case_a_share_on_another_cpu_device_works_and_lives():
    base = aligned((4, 6), np.float32)
    base[...] = TORCH.numpy()
    for target, device in (("jax", jax.devices("cpu")[2]), ("tensorflow", "/CPU:2")):
        y = ferry.to(base, target, device=device, copy=False)
        base[0, 0] = 7
        seen = introspect.values(target, y)
        base[0, 0] = 0
        assert np.frombuffer(seen, np.float32)[0] == 7, "not the same memory"
    y = ferry.to(base, "jax", device="cpu:3", copy=False)
    z = jax.jit(lambda v: v * 2)(y)
    assert z.devices() == {jax.devices("cpu")[3]} == y.devices()
    assert y.committed
    np.testing.assert_array_equal(np.asarray(z), base * 2)
    t = ferry.to(base, "tensorflow", device="cpu:2", copy=False)
    with tf.device("/CPU:2"):
        s = tf.function(lambda v: v * 2, autograph=False)(t)
    assert introspect.device("tensorflow", s) == "cpu:2"
    np.testing.assert_array_equal(s.numpy(), base * 2)

    # The owner lives as long as the result, and no longer.
    for target in CPUS:
        source = bytearray(64 * 64)
        start = bytes_to_boundary(source)
        view = memoryview(source)[start : start + 32]
        y = ferry.to(view, target, device="cpu:1", copy=False)
        del view
        gc.collect()
        with pytest.raises(BufferError):
            source.append(1)
        del y
        gc.collect()
        ferry.to(np.arange(2.0), "numpy")
        source.append(1)

    # JAX to JAX on another device: the same memory, which outlives the first array.
    x = made("jax", 0)
    y = ferry.to(x, "jax", device="cpu:1")
    assert y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    x.delete()
    assert introspect.values("jax", y) == EXPECTED
    x = made("jax", 0)
    y = ferry.to(x, "jax", device="cpu:1")
    double = jax.jit(lambda v: v * 2, donate_argnums=0)
    double(x).block_until_ready()
    assert introspect.values("jax", y) == EXPECTED, "a donation wrote into the share"


def case_the_default_device_takes_host_memory():
    with jax.default_device(jax.devices("cpu")[2]):
        check(TORCH, "torch", "jax", "cpu:2")
        check(TORCH, "torch", "jax", "cpu:2", device="default")
        check(TORCH, "torch", "jax", "cpu", device="cpu")
        check(TORCH, "torch", "jax", "cpu:1", device="cpu:1")
        check(made("jax", 1), "jax", "jax", "cpu:1")
        check(made("jax", 1), "jax", "jax", "cpu:2", device="default")
        assert introspect.device("jax", ferry.to([TORCH], "jax")[0]) == "cpu:2"
    with jax.default_device("cpu"):
        check(TORCH, "torch", "jax", "cpu")
    check(TORCH, "torch", "jax", "cpu")
    with tf.device("/CPU:1"):
        check(TORCH, "torch", "tensorflow", "cpu:1")
        check(TORCH, "torch", "tensorflow", "cpu", device="cpu")
        check(made("tensorflow", 2), "tensorflow", "tensorflow", "cpu:2")
    check(TORCH, "torch", "tensorflow", "cpu")


def case_arrays_on_several_devices():
    x = jax.device_put(np.arange(24, dtype=np.float32).reshape(4, 6), spread())
    assert ferry.to(x, "jax") is x
    for index in range(4):
        plan = ferry.plan(x, "jax", device=f"cpu:{index}")
        assert (plan.action, plan.device) == ("copy", name(index)), plan
        y = ferry.to(x, "jax", device=f"cpu:{index}")
        assert introspect.device("jax", y) == name(index)
        assert len(y.devices()) == 1
        assert introspect.values("jax", y) == EXPECTED
    assert introspect.values("torch", ferry.to(x, "torch")) == EXPECTED
    # What came from several devices is not gathered on its way home.
    same = ferry.agnostic(lambda xp, a: a * 1)
    assert same(x).devices() == x.devices()
    back = ferry.via("jax")(lambda a: a * 1)
    assert back(x).devices() == x.devices()


def case_functions_keep_the_device_of_their_arguments():
    @ferry.via("torch")
    def double(t):
        assert isinstance(t, torch.Tensor)
        return t * 2

    @ferry.agnostic
    def add(xp, a, b):
        return a + b

    for framework in CPUS:
        for index in range(CPUS[framework]):
            x = made(framework, index)
            y = double(x)
            assert introspect.device(framework, y) == name(index), (framework, index)
            assert introspect.values("numpy", ferry.to(y, "numpy")) == (TORCH * 2).numpy().tobytes()
    for index in range(4):
        x = made("jax", index)
        z = add(x, TORCH.numpy())
        assert introspect.device("jax", z) == name(index)
        z = add(x, x)
        assert introspect.device("jax", z) == name(index)
        with jax.default_device(jax.devices("cpu")[3]):
            assert introspect.device("jax", add(x, TORCH)) == name(index)
            assert introspect.device("jax", double(x)) == name(index)
    with pytest.raises(ferry.FerryError, match="a jax tensor on cpu and a jax tensor on cpu:1"):
        add(made("jax", 0), made("jax", 1))
    there = ferry.via("jax", device="cpu:2", returns="keep")(lambda a: a + 1)(TORCH)
    assert introspect.device("jax", there) == "cpu:2"
    seen = []
    ferry.agnostic(device="cpu:2")(lambda xp, a: seen.append(a) or a)(made("jax", 1))
    assert introspect.device("jax", seen[0]) == "cpu:2"


def case_files_tickets_and_sparse_tensors():
    folder = tempfile.mkdtemp()
    ferry.save(f"{folder}/x.npy", made("jax", 1))
    ticket = ferry.publish(made("jax", 2))
    for target, count in CPUS.items():
        for index in range(count):
            y = ferry.load(f"{folder}/x.npy", target, device=f"cpu:{index}")
            assert introspect.device(target, y) == name(index)
            assert introspect.values(target, y) == EXPECTED
            y = ferry.attach(ticket, target, device=f"cpu:{index}")
            assert introspect.device(target, y) == name(index)
            assert introspect.values(target, y) == EXPECTED
    assert "JAX has 4 CPU devices" in refused(lambda: ferry.attach(ticket, "jax", device="cpu:4"))
    matrix = scipy.sparse.random(8, 8, 0.3, "coo", dtype=np.float32, random_state=1)
    for index in range(4):
        s = ferry.to(matrix, "jax", device=f"cpu:{index}")
        assert (
            introspect.device("jax", s.data) == introspect.device("jax", s.indices) == name(index)
        )
        assert (ferry.to(s, "scipy").toarray() == matrix.toarray()).all()
        d = ferry.sparse.to_dense(matrix, "jax", device=f"cpu:{index}")
        assert introspect.device("jax", d) == name(index)
        assert (np.asarray(d) == matrix.toarray()).all()


def case_a_registered_framework_has_one_cpu():
    class Mine:
        def __init__(self, x):
            self.x = x

    def write(parcel):
        return Mine(torch.from_dlpack(parcel))

    ferry.register_framework("mine", types=[Mine], read=lambda m: m.x, write=write)
    x = Mine(made("jax", 2))
    assert ferry.plan(x, "torch").source_device == "cpu"
    assert introspect.values("torch", ferry.to(x, "torch")) == EXPECTED
    y = ferry.to(made("jax", 2), "mine")
    assert introspect.values("torch", y.x) == EXPECTED
    assert "mine has one CPU device" in refused(lambda: ferry.to(TORCH, "mine", device="cpu:1"))
