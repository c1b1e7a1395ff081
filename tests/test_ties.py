"""Tensors of a tree over one memory, of which each gets a copy: plans and traces note them."""

from __future__ import annotations

import numpy as np
import torch

import tensorferry as ferry


def tied_state() -> dict[str, torch.Tensor]:
    module = torch.nn.ModuleDict(
        {"embed": torch.nn.Embedding(4, 8), "head": torch.nn.Linear(8, 4, bias=False)}
    )
    module["head"].weight = module["embed"].weight
    return module.state_dict()


def test_plan_and_trace_name_tied_weights():
    state = tied_state()
    plan = ferry.plan(state, "jax", copy=True)
    (note,) = plan.notes
    assert "['embed.weight'] = ['head.weight']" in note
    assert "128 bytes" in note
    assert f"note: {note}" in str(plan)
    for convert in (
        lambda: ferry.to(state, "jax", copy=True),
        lambda: ferry.to_async(state, "jax", copy=True).result(),
        lambda: ferry.via("jax", returns="keep", copy=True)(lambda tree: tree)(state),
    ):
        with ferry.trace() as trips:
            result = convert()
        assert result["embed.weight"] is not result["head.weight"]
        (told,) = trips.notes
        assert "['embed.weight'] = " in told
        assert "128 bytes" in told
        assert str(trips).endswith(f"\nnote: {told}")


def test_only_copies_of_the_same_memory_are_noted():
    x = torch.arange(8.0)
    assert ferry.plan(tied_state(), "torch").notes == []
    assert ferry.plan(tied_state(), "jax").notes == [], "a share needs no note"
    once = {"a": x, "b": x}
    assert ferry.plan(once, "jax", copy=True).notes == [], "one object is converted once"
    parts = {"a": x[:4], "b": x[4:], "c": x[:6], "empty": x[:0], "none": x[:0]}
    assert ferry.plan(parts, "jax", copy=True).notes == []
    with ferry.trace() as trips:
        ferry.to(parts, "jax", copy=True)
        ferry.to({"a": x[:4]}, "jax", copy=True)
    assert trips.notes == []


def test_bytes_that_are_there_more_than_once():
    x, y = np.arange(8.0), np.arange(4.0)
    tree = {"a": x, "b": [x[:], x.reshape(2, 4)], "c": y, "d": y[:]}
    (note,) = ferry.plan(tree, "torch", dtype="float32").notes
    assert "80 bytes" in note
    assert "['a'] = ['b'][0] = ['b'][1], ['c'] = ['d']" in note
