"""What cannot be carried: the fact, and what to do instead. Nothing broken reaches a framework."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse as pydata
import tensorflow as tf
import torch
from jax.experimental import sparse as jax_sparse
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import sparse


def refused(kind, fact, x, framework="torch", **options):
    for verb in (sparse.to, sparse.plan):
        with pytest.raises(kind, match=fact) as caught:
            verb(x, framework, **options)
        assert caught.value.hint


def csr(**changes):
    x = scipy.sparse.csr_array(np.eye(3, 4, dtype="float32"))
    for name, value in changes.items():
        setattr(x, name, np.array(value, getattr(x, name).dtype))
    return x


@pytest.mark.parametrize(
    ("fact", "changes"),
    [
        (r"csr.*\b4\b.*\b4\b", {"indices": [0, 1, 4]}),
        (r"csr.*-1\b.*\b4\b", {"indices": [0, -1, 2]}),
        (r"csr.*indptr", {"indptr": [0, 2, 1, 3]}),
        (r"indptr.*\b1\b", {"indptr": [1, 1, 2, 3]}),
        (r"indptr.*\b9\b.*\b3\b", {"indptr": [0, 1, 2, 9]}),
        (r"indptr.*\(3,\).*indices.*\(3,\).*values.*\(3,\)", {"indptr": [0, 1, 3]}),
        (r"indptr.*\(4,\).*indices.*\(2,\).*values.*\(3,\)", {"indices": [0, 1]}),
        (r"indptr.*\(4,\).*indices.*\(3,\).*values.*\(2,\)", {"data": [1, 2]}),
    ],
)
def test_broken_compressed_formats(fact, changes):
    for framework in ("torch", "jax", "tensorflow", "sparse"):
        refused(ferry.InvalidTensorError, fact, csr(**changes), framework)
    if "values" not in fact:
        refused(ferry.InvalidTensorError, fact, csr(**changes), "scipy", format="coo")
        with pytest.raises(ferry.InvalidTensorError, match=fact):
            sparse.to_dense(csr(**changes), "numpy")


def test_broken_coordinates():
    for place, fact in (
        ((0, 4), r"coo.*\b4\b.*\b4\b"),
        ((-1, 0), r"coo.*-1\b.*\b3\b"),
    ):
        t = torch.sparse_coo_tensor(
            torch.tensor([place]).T, torch.ones(1), (3, 4), check_invariants=False
        )
        for framework in ("scipy", "jax", "tensorflow", "sparse"):
            refused(ferry.InvalidTensorError, fact, t, framework)
    f = tf.sparse.SparseTensor(np.array([[0, 9]]), [1.0], (3, 4))
    refused(ferry.InvalidTensorError, r"coo.*\b9\b.*\b4\b", f)
    x = cases.make("scipy coo", "plain")
    x.coords = (x.coords[0], x.coords[1][:2])
    refused(ferry.InvalidTensorError, r"coo.*\(4,\), \(2,\).*\(4,\)", x)
    x.coords = (x.coords[0].astype("float32"), x.coords[0].astype("float32"))
    refused(ferry.InvalidTensorError, "coo.*float32", x)


def test_broken_blocks():
    x = cases.make("scipy bsr", "plain")
    x.indices[0] = 2
    refused(ferry.InvalidTensorError, r"bsr.*\b2\b.*\b2\b", x)


def test_padding_of_jax_stays_in_jax():
    dense = np.array([[0, 1.0, 0], [2, 0, 0]], "float32")
    values = jnp.asarray(np.array([1, 2, 0, 0, 0], "float32"))
    places = jnp.asarray(np.array([[0, 1], [1, 0], [2, 3], [2, 3], [2, 3]], "int32"))
    j = jax_sparse.BCOO((values, places), shape=(2, 3))
    for framework in ("scipy", "torch", "tensorflow", "sparse"):
        made = sparse.to(j, framework)
        assert cases.stored(made) == [((0, 1), 1.0), ((1, 0), 2.0)]
        told = sparse.plan(j, framework)
        assert told.parts[0].steps[0] == ("drop", "3 elements of padding, which only JAX has")
    refused(ferry.CopyRequiredError, r"values.*\b3\b.*padding", j, "torch", copy=False)
    columns, indptr = (np.array(part, "int32") for part in ([1, 0, 3, 3, 3], [0, 1, 2]))
    rows = jax_sparse.BCSR((values, jnp.asarray(columns), jnp.asarray(indptr)), shape=(2, 3))
    for framework in ("scipy", "torch"):
        assert cases.stored(sparse.to(rows, framework)) == [((0, 1), 1.0), ((1, 0), 2.0)]
    assert sparse.to_dense(j, "numpy").tolist() == dense.tolist()


def test_spare_capacity_of_scipy_is_dropped():
    x = csr()
    x.data, x.indices = np.arange(1, 6, dtype="float32"), np.array([0, 1, 2, 77, 77], "int32")
    t = sparse.to(x, "torch", copy=False)
    assert cases.stored(t) == [((0, 0), 1.0), ((1, 1), 2.0), ((2, 2), 3.0)]
    assert any("2 stored elements outside" in note for note in sparse.plan(x, "torch").notes)


def test_hybrids_are_carried_where_they_can_be():
    values = torch.arange(6.0).reshape(3, 2)
    t = torch.sparse_coo_tensor([[0, 2, 0]], values, (3, 2), check_invariants=True)
    for framework in ("scipy", "tensorflow", "sparse"):
        refused(ferry.UnsupportedError, r"coo.*hybrid.*\b1\b", t, framework)
    j = sparse.to(t, "jax")
    assert j.n_dense == 1
    assert j.todense().tolist() == t.to_dense().tolist()
    assert sparse.to(j, "torch").to_dense().tolist() == t.to_dense().tolist()
    rows = torch.sparse_csr_tensor(
        [0, 1, 2], [1, 0], torch.ones(2, 3), (2, 2, 3), check_invariants=True
    )
    back = sparse.to(sparse.to(rows, "jax"), "torch")
    assert back.dense_dim() == 1
    assert back.values().tolist() == rows.values().tolist()


def test_batches_are_carried_where_they_can_be():
    b = torch.stack([torch.eye(3), 2 * torch.eye(3).flip(0)]).to_sparse_csr()
    j = sparse.to(b, "jax")
    assert j.n_batch == 1
    assert j.todense().tolist() == b.to_dense().tolist()
    assert sparse.to(j, "torch").to_dense().tolist() == b.to_dense().tolist()
    for framework in ("scipy", "tensorflow", "sparse"):
        refused(ferry.UnsupportedError, r"csr.*batch.*\b1\b", b, framework)
    refused(ferry.UnsupportedError, r"csr.*batch.*\b1\b.*PyTorch", b, "torch", format="coo")
    many = jax_sparse.BCOO.fromdense(jnp.ones((2, 2, 2)), n_batch=1)
    refused(ferry.UnsupportedError, r"coo.*batch.*\b1\b.*PyTorch", many, "torch")
    cast = sparse.to(many, "jax", dtype="float16")
    assert cast.n_batch == 1
    assert cast.todense().tolist() == many.todense().tolist()
    parts = (jnp.ones((2, 2)), jnp.array([[1, 0], [0, 1]]), jnp.array([[0, 2], [0, 2]]))
    unsorted = jax_sparse.BCSR(parts, shape=(2, 1, 2))
    refused(ferry.UnsupportedError, "batch", unsorted)
    parts = (jnp.ones((2, 2)), jnp.array([[0, 1], [0, 1]]), jnp.array([[0, 2], [0, 1]]))
    uneven = jax_sparse.BCSR(parts, shape=(2, 1, 2))
    refused(ferry.UnsupportedError, r"\b1\b.*\b2\b", uneven)
    b.col_indices()[1, 0] = 9
    refused(ferry.InvalidTensorError, r"csr.*\b9\b.*\b3\b", b, "jax")


def test_batches_that_become_dense_are_validated():
    """PyTorch would read beyond the arrays."""
    parts = (torch.tensor([[0, 1], [0, 10**8]]), torch.tensor([[0], [0]]), torch.ones(2, 1))
    for layout, fact in ((parts, rf"indptr.*\b{10**8}\b"), (None, rf"\b{10**9}\b.*\b3\b")):
        if layout is None:
            parts = (torch.tensor([[0, 1], [0, 1]]), torch.tensor([[0], [10**9]]), parts[2])
        kind = {"layout": torch.sparse_csr, "check_invariants": False}
        x = torch.sparse_compressed_tensor(*parts, (2, 1, 3), **kind)
        with pytest.raises(ferry.InvalidTensorError, match=fact):
            sparse.to_dense(x, "numpy")


def test_spare_capacity_of_one_axis_is_dropped():
    x = scipy.sparse.csr_array(np.array([0, 1.0, 2.0, 3.0]))
    x.indptr[-1] = 1
    assert sparse.to_dense(x, "numpy").tolist() == x.toarray().tolist() == [0, 1, 0, 0]
    assert cases.stored(sparse.to(x, "torch")) == [((1,), 1.0)]


def test_more_axes_than_a_format_has():
    t = torch.zeros(2, 3, 4).index_fill_(0, torch.tensor([1]), 5).to_sparse()
    for framework in ("scipy", "jax", "tensorflow", "sparse"):
        made = sparse.to(t, framework)
        assert cases.stored(made) == cases.stored(t)
    for form in ("csr", "csc", "bsr"):
        refused(ferry.UnsupportedError, rf"\b3\b.*SciPy.*{form}", t, "scipy", format=form)
        refused(ferry.UnsupportedError, rf"\b3\b.*PyTorch.*{form}", t, "torch", format=form)
    one = torch.tensor([0, 3.0, 0]).to_sparse()
    assert cases.stored(sparse.to(one, "scipy")) == [((2 - 1,), 3.0)]
    refused(ferry.UnsupportedError, r"\b1\b.*SciPy.*csr", one, "scipy", format="csr")
    flat = scipy.sparse.csr_array(np.array([0, 3.0, 0]))
    assert cases.stored(sparse.to(flat, "torch")) == [((1,), 3.0)]
    assert sparse.to(flat, "scipy") is flat


def test_formats_that_nobody_else_has():
    refused(ferry.UnsupportedError, "SciPy dia", scipy.sparse.eye_array(3, format="dia"))
    refused(ferry.UnsupportedError, "SciPy lil", scipy.sparse.eye_array(3, format="lil"))
    refused(ferry.UnsupportedError, "sparse_bsc", torch.eye(2).to_sparse_bsc((1, 1)), "scipy")
    refused(ferry.UnsupportedError, "sparse.DOK", pydata.DOK((2, 2)), "scipy")
    full = pydata.COO(
        np.array([[0], [1]]),
        np.ones(1),
        shape=(2, 2),
        sorted=True,
        has_duplicates=False,
        fill_value=7.0,
    )
    refused(ferry.UnsupportedError, "7.0", full, "scipy")
    rows = jax_sparse.CSR((jnp.ones(1), jnp.array([0]), jnp.array([0, 1])), shape=(1, 1))
    refused(ferry.UnsupportedError, "JAX's CSR", rows)


def test_types_that_cannot_be_carried():
    x = scipy.sparse.csr_array(np.eye(2))
    x.data = np.array([None, 3], object)
    refused(ferry.UnsupportedDTypeError, "holds objects of type NoneType", x)
    wide = cases.make("scipy csr", "plain", "float64")
    refused(ferry.UnsupportedDTypeError, "JAX.*float64", wide, "jax")
    assert sparse.to(wide, "jax", dtype="default").data.dtype == "float32"
    half = cases.make("torch coo", "plain", "bfloat16")
    refused(ferry.UnsupportedDTypeError, "SciPy.*coo.*bfloat16", half, "scipy")
    assert sparse.to(half, "scipy", dtype="float32").data.dtype == "float32"


def test_shapes_beyond_the_indices_of_the_target():
    shape, elements = (2**40, 3), [((2**35, 2), 5.0)]
    x = cases.make("scipy coo", (shape, elements), "float32", "int64")
    for framework in ("torch", "tensorflow", "sparse"):
        assert cases.stored(sparse.to(x, framework)) == elements
    refused(ferry.UnsupportedDTypeError, "int32.*JAX", x, "jax")
    edge = cases.make("scipy coo", ((2**31 - 1, 3), [((2**31 - 2, 2), 5.0)]), "float32", "int64")
    assert cases.stored(sparse.to(edge, "jax")) == [((2**31 - 2, 2), 5.0)]
    broad = cases.make("scipy csr", ((3, 2**40), [((1, 2**39), 5.0)]), "float32", "int64")
    assert cases.stored(sparse.to(broad, "torch")) == [((1, 2**39), 5.0)]
    assert cases.stored(sparse.to(broad, "tensorflow")) == [((1, 2**39), 5.0)]


def test_wrong_arguments():
    x = cases.make("scipy csr", "plain")
    refused(ferry.InvalidArgumentError, "JAX.*'csc'", x, "jax", format="csc")
    refused(ferry.InvalidArgumentError, "PyTorch.*'csr_matrix'", x, "torch", format="csr_matrix")
    refused(ferry.InvalidArgumentError, "bsr.*block", x, "scipy", format="bsr")
    wrong = {"format": "bsr", "blocksize": (2, 2)}
    refused(ferry.InvalidArgumentError, r"\(2, 2\).*\(3, 4\)", x, "scipy", **wrong)
    refused(ferry.InvalidArgumentError, "block.*csr", x, "torch", blocksize=(1, 2))
    refused(ferry.InvalidArgumentError, "MLX", x, "mlx")
    refused(ferry.InvalidArgumentError, "framework.*int", x, 3)
    refused(ferry.NotATensorError, r"numpy\.ndarray", np.eye(3))
    refused(ferry.InvalidArgumentError, 'device.*"nope"', x, "torch", device="nope")
    refused(ferry.FrameworkNotFoundError, "CuPy", x, "cupy")


@pytest.mark.parametrize(
    ("source", "target", "fact"),
    [
        ("tensorflow coo", "torch", "tensorflow coo.*torch coo.*coordinates"),
        ("scipy coo", "torch", "scipy coo.*torch coo.*coordinates"),
        ("scipy csr", "sparse", "scipy csr.*sparse.*coordinates"),
        ("sparse coo", "torch", "sparse coo.*torch coo.*PyTorch.*int64"),
    ],
)
def test_share_or_raise(source, target, fact):
    x = cases.make(source, "plain")
    with pytest.raises(ferry.CopyRequiredError, match=fact) as caught:
        sparse.to(x, target, copy=False)
    assert "copy=False" in caught.value.hint


@pytest.mark.parametrize("verb", [ferry.to, ferry.plan], ids=["to", "plan"])
def test_keywords_of_the_wrong_kind(verb):
    x = scipy.sparse.csr_array(np.eye(3))
    with pytest.raises(ferry.InvalidArgumentError, match=r"budget.*sparse"):
        verb(x, "torch", budget=1)
    for wrong in ({"dense": True}, {"format": "csr"}, {"blocksize": (2, 2)}):
        for source in (x, np.eye(3)):
            with pytest.raises(TypeError, match=f"'{next(iter(wrong))}'") as caught:
                verb(source, "torch", **wrong)
            assert "ferry.sparse.to" in str(caught.value)


def test_options_of_sparse_tensors():
    x = scipy.sparse.csr_array(np.eye(3))
    refused(ferry.InvalidArgumentError, r"PyTorch.*\b3\b", x, format=3)
    for blocks in (5, (1,), (1, 1, 1), (0, 3), (-1, 3), (1.5, 3), "ab"):
        refused(
            ferry.InvalidArgumentError,
            "blocksize.*" + re.escape(repr(blocks)),
            x,
            format="bsr",
            blocksize=blocks,
        )
    with pytest.raises(ferry.InvalidArgumentError, match=r"dense.*format"):
        sparse.plan(x, "torch", dense=True, format="csr")


@pytest.mark.parametrize("verb", [ferry.to, ferry.plan, sparse.to, sparse.plan])
def test_frameworks_without_sparse_tensors(verb):
    x = scipy.sparse.csr_array(np.eye(3))
    with pytest.raises(ferry.InvalidArgumentError, match="NumPy") as caught:
        verb(x, "numpy")
    assert '"scipy"' in caught.value.hint
    assert 'ferry.sparse.to_dense(x, "numpy")' in caught.value.hint
    for framework in ("paddle", "mlx"):
        with pytest.raises(ferry.InvalidArgumentError, match=f"(?i){framework}") as caught:
            verb(x, framework)
        assert f'ferry.sparse.to_dense(x, "{framework}")' in caught.value.hint


def test_dense_tensors_are_not_for_sparse_functions():
    for verb in (sparse.to, sparse.to_dense, sparse.plan):
        for x in (np.eye(3), [np.eye(3)], 3, {"a": None}):
            with pytest.raises(ferry.NotATensorError, match=type(x).__name__) as caught:
                verb(x, "torch")
            assert "ferry.to" in caught.value.hint
    for framework, name in (("scipy", "SciPy"), ("sparse", "sparse")):
        with pytest.raises(ferry.InvalidArgumentError, match=rf'{name}.*\nhint: .*"numpy"'):
            sparse.to_dense(scipy.sparse.csr_array(np.eye(3)), framework)


def test_trees_of_sparse_and_dense_tensors():
    x = scipy.sparse.csr_array(np.eye(3))
    tree = ferry.to({"a": x, "b": [np.ones(2), x]}, "torch")
    assert tree["a"].layout == torch.sparse_csr
    assert tree["b"][1] is tree["a"]
    assert tree["b"][0].tolist() == [1, 1]
    rows = ferry.sparse.to({"a": x, "b": [np.ones(2), x]}, "torch", format="coo", dtype="float32")
    assert rows["a"].layout == torch.sparse_coo
    assert rows["b"][1] is rows["a"]
    assert rows["b"][0].dtype == rows["a"].dtype == torch.float32

    class Box:
        def __init__(self, *parts):
            self.parts = parts

    ferry.register_container(Box, lambda box: (box.parts, None), lambda _, parts: Box(*parts))
    boxed = ferry.sparse.to([Box(x, 3)], "scipy", format="coo")
    assert boxed[0].parts[0].format == "coo"
    assert ferry.sparse.to(Box(x), "scipy", format="coo").parts[0].format == "coo"
    with pytest.raises(ferry.InvalidArgumentError, match=r"^at \['a'\]\[0\]: JAX.*'csc'") as caught:
        ferry.sparse.to({"a": [x]}, "jax", format="csc", dtype="float32")
    assert caught.value.hint
    with pytest.raises(ferry.InvalidArgumentError, match="torhc"):
        ferry.sparse.to({}, "torhc")
    with pytest.raises(TypeError, match="bogus"):
        ferry.to({}, "scipy", bogus=1)
    dense = ferry.sparse.to_dense({"a": x, "b": np.ones(2)}, "torch", dtype="float32")
    assert dense["a"].tolist() == np.eye(3).tolist()
    assert dense["a"].dtype == dense["b"].dtype == torch.float32
    back = ferry.to([tree["a"]], "scipy")
    assert (back[0] != x).nnz == 0
    with pytest.raises(ferry.InvalidArgumentError, match=r'at \[1\]: "scipy".*numpy\.ndarray'):
        ferry.to([x, np.ones(2)], "scipy")
    with pytest.raises(ferry.InvalidArgumentError, match="tourch"):
        ferry.to([x], "tourch")
    assert ferry.plan({"a": x}, "torch").parts[0].kind == "sparse"
    with pytest.raises(ferry.NotATensorError, match=r"sparse.*\nhint: .*ferry\.sparse\.to_dense"):
        ferry.save("x.npy", x)


def test_traced_sparse_tensors_stay_with_their_framework():
    seen = []

    def body(m):
        seen.append((ferry.to(m, "jax") is m, ferry.sparse.to(m, "jax") is m))
        with pytest.raises(ferry.NotATensorError, match="tracer"):
            ferry.to(m, "torch")
        with pytest.raises(ferry.NotATensorError, match="tracer"):
            ferry.sparse.to(m, "jax", dtype="float16")
        return m

    jax.jit(body)(jax_sparse.BCOO.fromdense(jnp.eye(3)))
    assert seen == [(True, True)]
