"""Trees: ties, what frameworks know about their tensors, and what is left to their own reducers."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import gc
import io
import pickle
import threading
import weakref
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import paddle
import pytest
import scipy.sparse
import torch
from support import subprocesses
from support.introspect import x64

import tensorferry as ferry
from tensorferry import pickling

import jax  # isort: skip
import tensorflow as tf  # isort: skip


def there_and_back(x: Any, **options: Any) -> Any:
    """What a reader in another process would get: the buffers are read-only copies."""
    data, buffers = pickling.dumps(x)
    return pickling.loads(data, [bytes(buffer.raw()) for buffer in buffers], **options)


def test_tied_weights_stay_tied() -> None:
    one, two = torch.nn.Linear(30, 40), torch.nn.Linear(30, 40)
    two.weight = one.weight
    states = [one.state_dict(), two.state_dict()]
    assert states[0]["weight"] is not states[1]["weight"]
    data, buffers = pickling.dumps(states)
    assert len(buffers) == 3  # one weight, two biases
    for each in (buffers, [bytes(buffer.raw()) for buffer in buffers]):
        first, second = pickling.loads(data, each)
        assert first["weight"] is not second["weight"]
        assert first["weight"].data_ptr() == second["weight"].data_ptr()
        first["weight"].add_(1)
        assert torch.equal(first["weight"], second["weight"])
        assert first["bias"].data_ptr() != second["bias"].data_ptr()


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow", "paddle"])
def test_views_of_one_memory_in_several_frameworks_are_one_payload(framework: str) -> None:
    t = torch.rand(5, 6)
    tree = {"torch": t, "numpy": t.numpy(), "again": t.view(5, 6)}
    _data, buffers = pickling.dumps(tree)
    assert len(buffers) == 1
    back = there_and_back(tree)
    assert isinstance(back["numpy"], np.ndarray)
    assert back["torch"].data_ptr() == back["again"].data_ptr()
    back = there_and_back(tree, framework=framework)
    for name in tree:
        assert np.array_equal(ferry.to(back[name], "numpy"), t.numpy())


def test_other_overlaps_become_separate_tensors() -> None:
    t = torch.rand(8, 8)
    _data, buffers = pickling.dumps([t, t[:4], t[4:], t.t()])
    assert [buffer.raw().nbytes for buffer in buffers] == [256, 128, 128, 256]
    whole, top, bottom, turned = there_and_back([t, t[:4], t[4:], t.t()])
    assert torch.equal(whole, t)
    assert torch.equal(torch.cat([top, bottom]), t)
    assert torch.equal(turned, t.t())
    top.zero_()
    assert torch.equal(whole, t)


def test_the_same_object_is_the_same_object_afterwards() -> None:
    t = torch.rand(3)
    first, second = there_and_back([t, t])
    assert first is second


def test_the_logical_tensor_travels_and_not_its_storage() -> None:
    rows = torch.rand(1000, 1000)
    data, buffers = pickling.dumps(rows[3])
    assert len(data) + buffers[0].raw().nbytes < 5000


def test_a_pickler_never_writes_what_another_one_copied() -> None:
    """The payload of a strided tensor lives as long as the pickler. The copy of its values must
    not."""
    t = torch.zeros(4, 4)
    column = t[:, 0]
    kept = pickling.Pickler(io.BytesIO())
    kept.dump(column)
    t.fill_(7)
    assert there_and_back(column).tolist() == [7, 7, 7, 7]
    del kept


def test_payloads_of_freed_memory_are_forgotten() -> None:
    for value in range(50):
        t = torch.full((1000,), float(value))
        assert there_and_back([t, t.view(1000)])[1][0] == value
        del t
        gc.collect()


def test_the_buffers_keep_the_memory_alive() -> None:
    a = np.random.default_rng(0).random(1 << 16)
    expected, died = a.tobytes(), threading.Event()
    weakref.finalize(a, died.set)
    data, buffers = pickling.dumps(a)
    del a
    gc.collect()
    assert not died.is_set()
    result = pickling.loads(data, buffers)
    del buffers
    gc.collect()
    assert result.tobytes() == expected
    del result
    gc.collect()
    assert died.is_set()


def test_gradients_and_parameters_are_kept() -> None:
    parameter = torch.nn.Parameter(torch.rand(3))
    fixed = torch.nn.Parameter(torch.rand(3), requires_grad=False)
    leaf = torch.rand(3, requires_grad=True)
    result = leaf * 2
    back = there_and_back([parameter, fixed, leaf, result])
    assert [type(each) for each in back] == [torch.nn.Parameter] * 2 + [torch.Tensor] * 2
    assert [each.requires_grad for each in back] == [True, False, True, True]
    assert all(map(torch.equal, back, [parameter, fixed, leaf, result]))
    assert all(each.is_leaf for each in back)
    mine = paddle.rand([3])
    mine.stop_gradient = False
    assert not there_and_back(mine).stop_gradient
    assert there_and_back(paddle.rand([3])).stop_gradient


def test_parameters_become_plain_tensors_of_other_frameworks() -> None:
    parameter = torch.nn.Parameter(torch.rand(3))
    assert np.array_equal(there_and_back(parameter, framework="numpy"), parameter.detach().numpy())


def test_attributes_of_torch_tensors_are_kept() -> None:
    t = torch.rand(3)
    t.names_of_rows = ["a", "b", "c"]
    t.mask = torch.tensor([True, False, True])
    back = there_and_back(t)
    assert back.names_of_rows == ["a", "b", "c"]
    assert torch.equal(back.mask, t.mask)


def test_hooks_are_reported_as_by_torch() -> None:
    t = torch.rand(3, requires_grad=True)
    t.register_hook(lambda gradient: gradient)
    with pytest.warns(UserWarning, match="backward hook"):
        back = there_and_back(t)
    assert torch.equal(back, t)


def test_weak_types_of_jax_are_kept() -> None:
    weak, strong = jnp.asarray(2.0), jnp.asarray(np.float32(2))
    assert weak.weak_type
    assert not strong.weak_type
    back = there_and_back([weak, strong, weak * 3])
    assert [each.weak_type for each in back] == [True, False, True]
    half = jax.lax.convert_element_type_p.bind(
        jnp.ones(3, jnp.float16), new_dtype=np.dtype("float16"), weak_type=True, sharding=None
    )
    for x in (jnp.asarray(3), jnp.asarray(2j), jnp.broadcast_to(weak, (3, 2)), half):
        data, buffers = pickling.dumps(x)
        for is_wide in (False, True):
            with x64(is_wide):
                again = pickling.loads(data, buffers)
            assert again.weak_type
            assert again.dtype == x.dtype
            assert np.array_equal(again, x)
    assert np.array_equal([float(each) for each in back], [2, 2, 6])
    assert (back[0] + jnp.ones(1, jnp.bfloat16)).dtype == jnp.bfloat16
    assert (back[1] + jnp.ones(1, jnp.bfloat16)).dtype == jnp.float32


def test_int64_for_jax_without_x64_is_an_error_with_a_hint() -> None:
    data, buffers = pickling.dumps(np.arange(3))
    with pytest.raises(ferry.UnsupportedDTypeError, match=r"hint: .*jax_enable_x64"):
        pickling.loads(data, buffers, "jax")
    with x64(True):
        assert pickling.loads(data, buffers, "jax").dtype == np.int64


@dataclasses.dataclass
class Batch:
    x: Any
    label: str


Pair = collections.namedtuple("Pair", "a b")


def test_tensors_inside_of_any_object_travel_out_of_band() -> None:
    t = torch.rand(1000)
    objects = [
        Batch(t.clone(), "one"),
        Pair(t.clone(), 2),
        {("k",): {1, 2}},
        collections.deque([t.clone()]),
    ]
    data, buffers = pickling.dumps(objects)
    assert len(buffers) == 3
    assert len(data) < 1000
    batch, pair, other, queue = pickling.loads(data, buffers, "numpy")
    assert isinstance(batch, Batch)
    assert isinstance(pair, Pair)
    assert other == objects[2]
    for each in (batch.x, pair.a, queue[0]):
        assert isinstance(each, np.ndarray)
        assert np.array_equal(each, t.numpy())


def test_modules_travel_out_of_band() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.BatchNorm1d(50)).eval()
    data, buffers = pickling.dumps(model)
    assert len(buffers) == 7
    x = torch.rand(2, 50)
    assert torch.equal(pickling.loads(data, [bytes(each.raw()) for each in buffers])(x), model(x))


class Subclass(torch.Tensor):
    pass


class Marked(np.ndarray):
    pass


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_subclasses_and_special_tensors_keep_their_own_reducers() -> None:
    with x64(True):
        key = jax.random.key(3)
    objects = [
        torch.rand(3).as_subclass(Subclass),
        np.random.rand(3).view(Marked),
        np.ma.masked_array([1, 2, 3], [False, True, False]),
        torch.empty(3, device="meta"),
        torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.quint8),
        tf.constant(["a", "b"]),
        tf.Variable([1.0, 2.0]),
        key,
        np.array([{"a": 1}, None]),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["a", "bc"]),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.float32(2.5),
    ]
    for x in objects:
        back = there_and_back([x])[0]
        assert type(back) is type(x)
        assert str(back) == str(x)


def test_an_array_that_contains_itself() -> None:
    a = np.empty(2, object)
    a[0], a[1] = a, torch.ones(3)
    back = there_and_back(a)
    assert back[0] is back
    assert torch.equal(back[1], a[1])


def test_arrays_that_numpy_pickles_itself_stay_out_of_band() -> None:
    words = np.arange(1000).astype("U20")
    data, buffers = pickling.dumps(words)
    assert len(buffers) == 1
    assert len(data) < 500
    for protocol in (2, 4, 5):
        file = io.BytesIO()
        pickling.Pickler(file, protocol).dump(words)
        assert np.array_equal(pickle.loads(file.getvalue()), words)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_torch_tensors_travel_out_of_band(layout: str) -> None:
    t = torch.rand(40, 40)
    t[t < 0.5] = 0
    convert = {"coo": t.to_sparse, "csr": t.to_sparse_csr, "csc": t.to_sparse_csc}
    sparse = convert[layout]() if layout in convert else getattr(t, f"to_sparse_{layout}")((4, 4))
    data, buffers = pickling.dumps(sparse)
    assert len(buffers) == (2 if layout == "coo" else 3)
    back = pickling.loads(data, [bytes(each.raw()) for each in buffers])
    assert back.layout == sparse.layout
    assert torch.equal(back.to_dense(), t)


def test_sparse_tensors_of_others_travel_out_of_band() -> None:
    dense = np.zeros((30, 30), np.float32)
    dense[::3, ::4] = 1.5
    from jax.experimental import sparse as jax_sparse

    for x in (
        scipy.sparse.csr_array(dense),
        jax_sparse.BCOO.fromdense(dense),
        tf.sparse.from_dense(dense),
    ):
        data, buffers = pickling.dumps(x)
        assert len(buffers) >= 2
        back = pickling.loads(data, [bytes(each.raw()) for each in buffers])
        assert type(back) is type(x)
        assert np.array_equal(ferry.sparse.to_dense(back, "numpy"), dense)


def test_sparse_tensors_become_those_of_the_framework_that_is_asked_for() -> None:
    from jax.experimental import sparse as jax_sparse

    dense = np.zeros((30, 30), np.float32)
    dense[::3, ::4] = 1.5
    sources = [
        torch.from_numpy(dense).to_sparse_csr(),
        scipy.sparse.csr_array(dense),
        jax_sparse.BCOO.fromdense(dense),
        tf.sparse.from_dense(dense),
    ]
    tree = [*sources, torch.ones(3)]
    back = there_and_back(tree, framework="jax")
    assert all(isinstance(each, jax_sparse.JAXSparse) for each in back[:4])
    assert isinstance(back[4], jax.Array)
    for each in back[:4]:
        assert np.array_equal(each.todense(), dense)
    assert all(each.layout != torch.strided for each in there_and_back(tree, framework="torch")[:4])
    # NumPy has no sparse tensors: they stay what they were, arrays included.
    back = there_and_back(tree, framework="numpy")
    assert [type(each) for each in back[:4]] == [type(each) for each in sources]
    for each in back[:4]:
        assert np.array_equal(ferry.sparse.to_dense(each, "numpy"), dense)
    assert isinstance(back[4], np.ndarray)


def test_an_error_within_a_sparse_tensor_leaves_nothing_behind() -> None:
    data, buffers = pickling.dumps([scipy.sparse.csr_array(np.eye(3)), np.ones(3)])
    with pytest.raises(pickle.UnpicklingError):
        pickling.loads(data, buffers[:1], "torch")
    assert isinstance(pickling.loads(data, buffers, "torch")[1], torch.Tensor)


def test_registered_frameworks_are_carried() -> None:
    """In a process of its own: a registration is for good."""
    subprocesses.run_program("pickling/registered_frameworks.py")


def test_read_only_memory_stays_read_only_through_later_hops() -> None:
    values = np.arange(64, dtype=np.float32)
    raw = values.tobytes()
    data, _ = pickling.dumps(values)
    block = ferry.empty_aligned((64,), "float32")
    block[:] = values
    block.flags.writeable = False
    for framework in ("numpy", "jax", "tensorflow"):
        # Larger than what is copied because a copy is cheaper.
        many = np.tile(block, 64)
        shared = ferry.empty_aligned(many.shape, "float32")
        shared[:] = many
        received = memoryview(shared).toreadonly()
        data, _ = pickling.dumps(many)
        first = pickling.loads(data, [received], framework)
        again = ferry.to(first, "numpy")
        assert again.__array_interface__["data"][0] == shared.__array_interface__["data"][0]
        assert not again.flags.writeable
        written = ferry.to(again, "torch")
        written.zero_()
        assert shared.tobytes() == raw * 64


def test_writable_options() -> None:
    t = torch.rand(2000)
    data, buffers = pickling.dumps(t)
    raw = bytes(buffers[0].raw())
    start = np.frombuffer(raw, np.uint8).__array_interface__["data"][0]
    assert pickling.loads(data, [raw]).data_ptr() != start
    assert pickling.loads(data, [raw], writable=False).data_ptr() == start
    array = pickling.loads(data, [raw], "numpy", writable=True)
    assert array.flags.writeable
    assert array.__array_interface__["data"][0] != start
    # True is a promise about the buffers too, those that may be written included.
    for framework in ("numpy", "torch", "paddle"):
        own = pickling.loads(data, buffers, framework, writable=True)
        own[0] = 7
        assert t[0] != 7


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_what_must_not_be_written_stays_read_only_through_later_hops(framework: str) -> None:
    data, buffers = pickling.dumps(torch.zeros(1000))
    raw = bytes(buffers[0].raw())
    lent = pickling.loads(data, [raw], framework, writable=False)
    for again in (ferry.to(lent, "numpy"), ferry.to(ferry.to(lent, "jax"), "numpy")):
        assert not again.flags.writeable
    again, buffers = pickling.dumps(lent)
    assert buffers[0].raw().readonly
    copied = pickling.loads(again, buffers)
    copied[0] = 5
    copied = ferry.to(lent, "torch" if framework == "paddle" else "paddle")
    copied[0] = 6
    assert raw == bytes(4000)
    view = ferry.to(lent[10:20], "numpy")
    assert not view.flags.writeable


def test_small_copies_of_a_tree_share_blocks_of_the_pool() -> None:
    tree = [torch.full((4096,), float(number)) for number in range(1000)]
    before = ferry.memory_stats().used_bytes
    back = there_and_back(tree)
    assert all(map(torch.equal, back, tree))
    used = ferry.memory_stats().used_bytes - before
    assert 14 << 20 <= used <= 20 << 20
    kept = back[-1]
    del back
    gc.collect()
    assert ferry.memory_stats().used_bytes - before < used
    assert torch.equal(kept, tree[-1])


def test_one_small_copy_takes_no_memory_for_what_is_shared() -> None:
    arrays = [np.zeros(1 << 20, np.uint8) for _ in range(50)]
    data, buffers = pickling.dumps((arrays, torch.zeros(100)))
    before = ferry.memory_stats().used_bytes
    kept = pickling.loads(data, [memoryview(each).toreadonly() for each in buffers])
    assert ferry.memory_stats().used_bytes - before < 1 << 20
    assert len(kept) == 2


def test_a_framework_that_is_missing_is_named_with_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fleeting:
        pass

    data = b"".join(
        [
            pickle.PROTO + bytes([4]),
            b"ctensorferry.pickling\n_rebuild\n",
            b"(K\x01C\x04\0\0\0\0\x8c\x07float32K\x01\x85t",
            b"R(\x8c\x0cno_frameworkt",
            b"R.",
        ]
    )
    with pytest.raises(ferry.InvalidArgumentError, match="no_framework"):
        pickle.loads(data)


def test_copyreg_is_left_alone() -> None:
    before = dict(copyreg.dispatch_table)
    pickling.dumps([torch.rand(2), np.arange(2), jnp.ones(2)])
    pickling.enable()
    pickling.disable()
    assert copyreg.dispatch_table == before


def test_types_of_ml_dtypes_have_buffers() -> None:
    a = np.arange(1000).astype(ml_dtypes.bfloat16)
    data, buffers = pickling.dumps(a)
    assert len(data) < 300
    back = pickling.loads(data, buffers)
    assert back.dtype == a.dtype
    assert np.shares_memory(back, a)
