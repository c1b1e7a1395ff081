"""What cannot be is said in one line; running out of memory leaves everything usable."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry


def test_numpy_holds_no_gpu_memory():
    with pytest.raises(ferry.UnsupportedError, match="NumPy holds host memory only") as caught:
        ferry.to(np.ones(3), "numpy", device="cuda")
    assert caught.value.hint


def test_a_download_is_no_share():
    with pytest.raises(ferry.CopyRequiredError, match="the source is on cuda:0"):
        ferry.to(torch.ones(3, device="cuda"), "numpy", copy=False)


def test_a_gpu_that_is_not_there():
    for wish in ("cuda:7", torch.device("cuda:63")):
        with pytest.raises(ferry.UnsupportedError, match=r"cuda:[0-9]+ does not exist"):
            ferry.to(np.ones(3), "torch", device=wish)


def test_a_stream_on_the_host():
    with pytest.raises(ferry.InvalidArgumentError, match="stays on the host"):
        ferry.to(np.ones(3), "torch", stream=0)


def test_out_that_cannot_be_filled():
    x = torch.ones(3, 4, device="cuda")
    with pytest.raises(ferry.InvalidArgumentError, match="on a GPU and not contiguous"):
        ferry.to(np.ones((4, 3), "f4"), "torch", out=x.T)
    with pytest.raises(ferry.InvalidArgumentError, match="share memory on a GPU"):
        ferry.to(x.flip(0).set_(x), "torch", out=x)
    with pytest.raises(ferry.InvalidArgumentError, match="out has shape"):
        ferry.to(x, "numpy", out=np.empty(3, "f4"))


@pytest.mark.parametrize(
    "target", [name for name in ("jax", "tensorflow") if name in GPU_FRAMEWORKS]
)
def test_a_stream_for_a_framework_that_has_its_own(target):
    x = torch.ones(3, device="cuda")
    for options in ({}, {"copy": True}):
        with pytest.raises(ferry.InvalidArgumentError, match="chooses its streams itself"):
            ferry.to(x, target, stream=torch.cuda.current_stream(), **options)


def test_a_budget_holds():
    x = torch.ones(1 << 20, device="cuda")
    with pytest.raises(ferry.OutOfMemoryError, match="budget"):
        ferry.to(x, "numpy", budget=1 << 20)


@pytest.mark.parametrize("target", ["torch", "cupy"])
def test_out_of_memory_is_ours_and_harmless(target):
    if target not in GPU_FRAMEWORKS:
        pytest.skip(f"{target} is not here")
    free, _ = torch.cuda.mem_get_info()
    count = int(free * 0.6) // 4
    big = torch.empty(count, device="cuda")
    with pytest.raises(MemoryError, match="no memory for") as caught:
        ferry.to(big, target, copy=True)
    assert isinstance(caught.value, ferry.FerryError)
    assert caught.value.__cause__ is not None
    del big, caught
    gc.collect()
    torch.cuda.empty_cache()
    y = ferry.to(torch.arange(5.0, device="cuda"), target, copy=True)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), np.arange(5.0))


HABITS = {
    "tensorflow": ("TF_FORCE_GPU_ALLOW_GROWTH", "true", "TensorFlow is loaded"),
    "jax": ("XLA_PYTHON_CLIENT_PREALLOCATE", "false", "JAX is loaded"),
}


@pytest.mark.parametrize("hoarder", [name for name in HABITS if name in GPU_FRAMEWORKS])
def test_who_takes_all_memory_is_named(hoarder, monkeypatch):
    for variable, modest, _ in HABITS.values():
        monkeypatch.setenv(variable, modest)
    variable, _, words = HABITS[hoarder]
    free, _ = torch.cuda.mem_get_info()
    big = torch.empty(int(free * 0.6) // 4, device="cuda")
    with pytest.raises(ferry.OutOfMemoryError) as caught:
        ferry.to(big, "torch", copy=True)
    assert "is loaded" not in caught.value.hint
    monkeypatch.delenv(variable)
    with pytest.raises(ferry.OutOfMemoryError) as caught:
        ferry.to(big, "torch", copy=True)
    assert words in caught.value.hint
    assert variable in caught.value.hint
    del big, caught
    gc.collect()
    torch.cuda.empty_cache()


def test_a_child_of_a_fork_is_told():
    import os

    x = torch.ones(3, device="cuda")
    ferry.to(x, "numpy")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ferry.to(np.ones(3), "torch", device="cuda")
            text = "it worked"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert "forked child" in text
