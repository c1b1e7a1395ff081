"""Long reports fold equal rows; plans, traces, memory statistics and files have cards."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from support.markup import Checked

import tensorferry as ferry

LAYERS = 50


def model(framework: str = "torch") -> dict[str, object]:
    """300 tensors of six shapes in two types, as a state dict has them."""
    ones = torch.ones if framework == "torch" else lambda *shape, **_: np.ones(shape, np.float32)
    state = {}
    for layer in range(LAYERS):
        for name, shape in (
            *(("q.weight", (8, 8)), ("q.bias", (8,)), ("mlp.weight", (16, 8))),
            *(("mlp.bias", (16,)), ("norm", (1, 8))),
        ):
            state[f"layers.{layer}.{name}"] = ones(*shape)
        state[f"layers.{layer}.count"] = torch.tensor(layer)
    return state


def test_a_large_tree_is_a_few_lines():
    plan = ferry.plan(model(), "numpy")
    assert len(plan.parts) == 6 * LAYERS
    lines = str(plan).splitlines()
    assert len(lines) <= 10, str(plan)
    assert lines[0] == "300 tensors: 300 shared, 0 copied (0 bytes)"
    names = "['layers.0.q.weight'], ['layers.0.q.bias'] and 248 more"
    assert lines[1] == f"{names}: torch -> numpy: shared, no byte moves"
    assert lines[2] == "  float32 of 5 shapes"
    assert any("['layers.0.count'], ['layers.1.count'] and 48 more" in line for line in lines)
    assert any(line == "  int64 of shape ()" for line in lines)


def test_a_few_equal_tensors_are_all_named():
    text = str(ferry.plan({"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(2)}, "numpy"))
    assert "\n['a'], ['b'], ['c']: torch -> numpy: shared" in text


def test_a_folded_row_sums_up_its_copies():
    tree = {f"x{n}": np.ones((n + 1, 4), np.float32) for n in range(20)}
    plan = ferry.plan(tree, "torch", copy=True)
    total = sum(part.bytes_moved for part in plan.parts)
    text = str(plan)
    assert f"copied, {total / 1024:.1f} KiB" in text
    assert f"memory: {total / 1024:.1f} KiB for the result" in text
    assert text.count("1. copy: a copy was requested") == 1


def test_what_differs_has_a_row_of_its_own():
    """The one tensor that is copied is not hidden among those that are shared."""
    tree = model()
    tree["layers.7.norm"] = torch.ones(8, 2)[:, 0]
    tree["layers.9.norm"] = torch.ones(1, 8).requires_grad_()
    rows = str(ferry.plan(tree, "tensorflow")).split("\n[")
    assert sum("layers.7.norm" in row for row in rows) == 1
    (strided,) = (row for row in rows if "layers.7.norm" in row)
    assert strided.startswith("'layers.7.norm']: torch -> tensorflow: copied, 32 bytes")
    (detached,) = (row for row in rows if "detached" in row)
    assert detached.startswith("'layers.9.norm']: torch -> tensorflow: ")


def test_rows_of_a_tree_are_in_the_order_of_the_tree():
    tree = {"s": scipy.sparse.eye_array(3).tocsr(), "a": np.ones(3), "b": np.ones(3)[::-1]}
    text = str(ferry.plan(tree, "torch"))
    assert text.index("['s']") < text.index("['a']") < text.index("['b']")


def test_the_card_of_a_large_tree():
    page = Checked(ferry.plan(model(), "numpy")._repr_html_())
    # Every tensor is behind one of two summaries.
    assert page.counts["details"] == 2
    assert page.counts["code"] == 2 + 300
    assert "250 tensors" in page.text
    assert "['layers.49.mlp.bias']" in page.text


def test_the_card_of_a_sparse_plan():
    plan = ferry.plan(scipy.sparse.eye_array(3, dtype=np.float32).tocsc(), "torch")
    page = Checked(plan._repr_html_())
    assert "scipy csc → torch csc" in page.text
    for part in plan.parts:
        assert part.name in page.text
        assert all(reason in page.text for _, reason in part.steps)
    assert all(note in page.text for note in plan.notes)


def test_a_trace_is_a_list_with_a_text_and_a_card():
    with ferry.trace() as trips:
        for n in range(40):
            ferry.to(np.ones(n + 1), "torch")
        ferry.to(np.ones((4, 4)).T, "tensorflow", dtype="float16")
    assert isinstance(trips, list)
    assert trips[0] in trips
    assert repr(trips).startswith("[<Trip ")
    lines = str(trips).splitlines()
    assert lines[0].startswith("41 conversions: 40 shared, 1 copied (32 bytes), ")
    assert len(lines) <= 12, str(trips)
    assert any(line.startswith("40 conversions, ") for line in lines)
    page = Checked(trips._repr_html_())
    assert "numpy → torch" in page.text
    assert "numpy → tensorflow" in page.text
    assert page.counts["details"] == 1
    assert "the values are converted from float64 to float16" in page.text


def test_a_trace_counts_what_is_returned_unchanged():
    x = np.ones(2)
    with ferry.trace() as trips:
        ferry.to(x, "numpy")
        ferry.to(x, "torch")
    first = "2 conversions: 1 shared, 0 copied (0 bytes), 1 returned unchanged, "
    assert str(trips).startswith(first)


def test_an_empty_trace():
    with ferry.trace() as trips:
        pass
    assert str(trips) == "0 conversions: 0 shared, 0 copied (0 bytes), 0.0 us"
    Checked(trips._repr_html_())


def test_memory_statistics():
    ferry.empty_cache()
    kept = ferry.to(np.ones(4 << 20, np.float32), "numpy", copy=True)
    stats = ferry.memory_stats()
    page = Checked(stats._repr_html_())
    blocks = f"{stats.used_blocks} block{'s' * (stats.used_blocks != 1)}"
    for text in (str(stats), repr(stats), page.text):
        assert blocks in text
    results = stats.hits + stats.misses
    assert f"{stats.hits} of {results} large result" in page.text
    assert f"{stats.hits} of {results} large result" in str(stats)
    assert kept.nbytes <= stats.used_bytes


# Files.


def test_the_listing_of_a_file(tmp_path):
    path = tmp_path / "model.safetensors"
    ferry.save(path, {**model(), "<b>": np.ones(2)}, metadata={"by": "<i>us</i>"})
    file = ferry.inspect(path)
    assert repr(file) == f"<File {path} (safetensors, 301 tensors)>"
    lines = str(file).splitlines()
    total = sum(tensor.bytes for tensor in file.tensors)
    assert lines[0] == f"{path}: safetensors, 301 tensors, {total / 1024:.1f} KiB"
    assert len(lines) == 1 + 7 + 2, str(file)
    assert any(
        line.split() == ["layers.*.q.weight", "(50)", "float32", "(8,", "8),", "12.5", "KiB"]
        for line in lines
    )
    page = Checked(file._repr_html_())
    assert page.counts["details"] == 6
    assert page.counts["tr"] == 1 + 7
    assert "layers.49.mlp.bias" in page.text
    # What a file names its tensors is text and no markup.
    assert "<b>" in page.text
    assert "<i>us</i>" in page.text
    assert not {"b", "i"} & (page.tags - {"b"})
    assert "nested=True" in page.text


def test_tensors_of_different_shapes_are_not_folded(tmp_path):
    ferry.save(tmp_path / "x.npz", {f"a{n}": np.ones(3 if n == 1 else 2) for n in range(21)})
    lines = str(ferry.inspect(tmp_path / "x.npz")).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["a*", "(20)"], ["a1", "float64"]]


def test_a_short_listing_has_a_row_for_each_tensor(tmp_path):
    names = [f"a{n}" for n in range(20)]
    ferry.save(tmp_path / "x.npz", {name: np.ones(2) for name in names})
    lines = str(ferry.inspect(tmp_path / "x.npz")).splitlines()
    assert [line.split()[0] for line in lines[1:]] == names


def test_the_listing_of_one_tensor_and_of_none(tmp_path):
    ferry.save(tmp_path / "x.npy", np.ones((2, 3)))
    file = ferry.inspect(tmp_path / "x.npy")
    assert str(file).splitlines()[1].split() == [
        *("(without", "a", "name)", "float64", "(2,", "3),", "48", "bytes")
    ]
    Checked(file._repr_html_())
    ferry.save(tmp_path / "x.safetensors", {})
    assert "0 tensors" in Checked(ferry.inspect(tmp_path / "x.safetensors")._repr_html_()).text


def test_entries_that_cannot_be_loaded_are_listed(tmp_path):
    np.savez(tmp_path / "x.npz", good=np.ones(2), text=np.array(["a"]))
    file = ferry.inspect(tmp_path / "x.npz")
    assert "cannot be loaded: text: " in str(file)
    assert "cannot be loaded" in Checked(file._repr_html_()).text


def test_names_cannot_add_lines(tmp_path):
    name = "a\nb\x1b[31m\u202e"
    ferry.save(tmp_path / "x.safetensors", {name: np.ones(2)}, metadata={"k\n": "v\n" * 200})
    text = str(ferry.inspect(tmp_path / "x.safetensors"))
    assert len(text.splitlines()) == 3, text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 300


@pytest.mark.parametrize("kind", ["tree", "trace"])
def test_a_million_bytes_of_names(kind):
    """Cards of long lists stay proportional to the list."""
    tree = {f"{n}{'x' * 1000}": torch.ones(1) for n in range(1000)}
    if kind == "tree":
        html = ferry.plan(tree, "numpy")._repr_html_()
    else:
        with ferry.trace() as trips:
            ferry.to(tree, "numpy")
        html = trips._repr_html_()
    assert len(html) < 2_000_000
