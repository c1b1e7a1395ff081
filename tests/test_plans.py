"""What plans and trips tell: in words, in HTML, and to programs."""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import torch
from support.markup import Checked

import tensorferry as ferry

MIB = 1 << 20


def test_a_plan_names_devices_and_memory():
    plan = ferry.plan(np.ones((8, 8), np.float32).T, "tensorflow")
    assert (plan.source_device, plan.device) == ("cpu", "cpu")
    assert plan.bytes_moved == plan.extra_bytes == 256
    assert "256 bytes for the result, which shares nothing with the source" in str(plan)
    shared = ferry.plan(np.ones(3), "torch")
    assert shared.extra_bytes == 0
    assert "\n  memory:" not in str(shared)


def test_a_destination_takes_no_extra_memory():
    x, out = np.ones((8, 8), np.float32), np.empty((8, 8), np.float32)
    with ferry.trace() as trips:
        ferry.to(x, "numpy", out=out)
    assert (trips[0].plan.bytes_moved, trips[0].plan.extra_bytes) == (256, 0)


def test_the_expected_time_follows_from_the_speed_that_is_stated():
    for x, options in (
        (np.random.default_rng().random(4 * MIB, dtype=np.float32), {"copy": True}),
        (np.random.default_rng().random((2048, 2048), dtype=np.float32).T, {"copy": True}),
        (np.random.default_rng().random(4 * MIB, dtype=np.float32), {"dtype": "float16"}),
    ):
        plan = ferry.plan(x, "torch", **options)
        speeds = [float(speed) for speed in re.findall(r"([\d.]+) GB/s", str(plan))]
        assert speeds, str(plan)
        # The speeds are rounded to a tenth.
        expected = [
            sum(plan.bytes_moved / 1e9 / (speed + off) for speed in speeds) for off in (0.05, -0.05)
        ]
        # A copy has a fixed cost too, which is all that a copy of one element takes.
        fixed = ferry.plan(np.ones(1, np.float32), "torch", copy=True).expected_seconds
        assert expected[0] <= plan.expected_seconds <= expected[1] + fixed, str(plan)


def test_more_takes_longer_and_a_share_takes_nothing():
    small, large = (ferry.plan(np.ones(size), "torch", copy=True) for size in (10, MIB))
    assert small.expected_seconds < large.expected_seconds
    assert re.search(r"time: about [\d.]+ (us|ms|s), at the [\d.]+ GB/s measured here", str(large))
    assert ferry.plan(np.ones(3), "torch").expected_seconds is None


def test_a_plan_for_programs():
    plan = ferry.plan(np.ones((4, 6))[:, ::2], "jax", dtype="float32")
    told = json.loads(json.dumps(plan.as_dict()))
    assert told["shape"] == [4, 3]
    assert [step["kind"] for step in told["steps"]] == [kind for kind, _ in plan.steps]
    for name in (
        *("source", "target", "source_device", "device", "action", "shares", "source_dtype"),
        *("dtype", "bytes_moved", "extra_bytes", "writable", "transfer_path", "notes", "advice"),
    ):
        assert told[name] == getattr(plan, name)
    tree = ferry.plan({"a": np.ones(3), "b": [jnp.ones(2)]}, "torch").as_dict()
    assert [part["name"] for part in json.loads(json.dumps(tree))["parts"]] == [
        "['a']",
        "['b'][0]",
    ]


def test_one_class_for_tensors_trees_and_sparse_tensors():
    tree = {"a": np.ones(3)[::-1], "s": scipy.sparse.eye_array(3).tocsr()}
    plan = ferry.plan(tree, "torch")
    tensor, sparse = plan.parts
    array = sparse.parts[0]
    for one, kind, name, parts in (
        (plan, "tree", None, 2),
        (tensor, "tensor", "['a']", 0),
        (sparse, "sparse", "['s']", 3),
        (array, "array", "values", 0),
        (ferry.plan(np.ones(3), "torch"), "tensor", None, 0),
    ):
        assert type(one) is ferry.Plan
        assert (one.kind, one.name, len(one.parts)) == (kind, name, parts)
        told = json.loads(json.dumps(one.as_dict()))
        assert told["kind"] == kind
        assert [part["name"] for part in told["parts"]] == [part.name for part in one.parts]
        # A dict has what the plan has, and nothing else.
        for attribute in dir(ferry.Plan):
            if not attribute.startswith("_") and attribute != "as_dict":
                assert hasattr(one, attribute) == (attribute in told), attribute
    assert (plan.target, plan.action, plan.bytes_moved) == ("torch", "copy", 24)
    assert (sparse.action, sparse.format, sparse.nnz, sparse.extra_bytes) == ("share", "csr", 3, 0)
    with pytest.raises(AttributeError, match=r"a tree has no dtype\nhint: .* parts"):
        _ = plan.dtype
    text = str(plan)
    assert "['s']: scipy csr -> torch csr: shared" in text
    page = Checked(plan._repr_html_()).text
    assert "values shared, no byte moves float64, (3,)" in page
    assert ferry.to(tree, "torch")["s"].layout == torch.sparse_csr


def test_a_tree_notes_its_numpy_scalars():
    tree = {
        "x": np.ones(2),
        "lr": np.float64(0.1),
        "steps": [np.int64(n) for n in range(5)],
        "n": 3,
    }
    plan = ferry.plan(tree, "torch")
    assert [part.name for part in plan.parts] == ["['x']"]
    (note,) = plan.notes
    assert "['lr'], ['steps'][0] and 4 more" in note
    assert note in str(plan)
    assert note in Checked(plan._repr_html_()).text
    found = ferry.to(tree, "torch")
    assert found["lr"] is tree["lr"]
    assert all(one is other for one, other in zip(found["steps"], tree["steps"], strict=True))
    assert ferry.plan({"x": np.ones(2), "n": 3}, "torch").notes == []
    # Alone it is a tensor, and a tree of scalars alone is refused.
    assert ferry.plan(np.float64(0.1), "torch").shape == ()
    for call in (ferry.plan, ferry.to):
        with pytest.raises(ferry.NotATensorError, match=r"holds no tensor: .* numpy\.float64"):
            call([np.float64(0.1)], "torch")


def test_what_is_not_known_is_not_told():
    assert ferry.plan([np.ones(3)], "torch").expected_seconds is None
    assert ferry.plan([], "torch").expected_seconds is None
    plans = []
    jax.make_jaxpr(lambda x: plans.append(ferry.plan(x, "jax")) or x)(np.ones((2, 3)))
    assert plans[0].action == "itself"
    assert "type and shape are not known" in str(plans[0])
    assert "shape" not in plans[0].as_dict()
    with pytest.raises(AttributeError, match=r"no shape\nhint: read the shape of the source"):
        _ = plans[0].shape
    sparse = ferry.plan(scipy.sparse.eye_array(3).tocsr(), "torch")
    for one in (sparse, sparse.parts[0]):
        with pytest.raises(AttributeError, match=r"no advice\nhint: only the plan of a"):
            _ = one.advice


def test_trees_for_frameworks_that_hold_sparse_tensors_only():
    plan = ferry.plan([torch.eye(3).to_sparse()], "scipy.sparse")
    assert (plan.target, plan.parts[0].format) == ("scipy", "coo")
    with pytest.raises(ferry.InvalidArgumentError, match=r"at \[0\].*scipy.* sparse tensors only"):
        ferry.plan([np.ones(2)], "scipy")


def test_a_plan_in_a_notebook():
    plan = ferry.plan(torch.ones(4, 6).T, "tensorflow", dtype="float16")
    page = Checked(plan._repr_html_())
    for _, reason in plan.steps:
        assert reason in page.text
    assert "torch → tensorflow" in page.text
    assert "copied" in page.text
    assert plan.advice in page.text
    assert {"ol", "dl"} <= page.tags


def test_trees_and_trips_in_a_notebook():
    tree = {"<b>": np.ones((3, 3)).T, "c": torch.ones(2)}
    plan = ferry.plan(tree, "tensorflow")
    page = Checked(plan._repr_html_())
    for part in plan.parts:
        assert all(note in page.text for note in part.notes)
    assert "memory 72 bytes for the result" in page.text
    assert plan.parts[0].advice in page.text
    assert "2 tensors: 1 shared, 1 copied" in page.text
    # What users name their tensors is text and no markup.
    assert "['<b>']" in page.text
    assert page.text.count("['c']") == 1
    with ferry.trace() as trips:
        ferry.to(np.ones((64, 64)).T, "jax", dtype="float32")
    page = Checked(trips[0]._repr_html_())
    assert re.search(r"it took [\d.]+ (us|ms|s)", page.text)
