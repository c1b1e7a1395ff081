"""Pickles of tensors on a real GPU: every framework, pending work, ties, other readers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry
from tensorferry import pickling


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(12).standard_normal(shape, dtype=np.float32)


def received(buffers: list) -> list[bytes]:
    return [bytes(each.raw()) for each in buffers]


@pytest.mark.parametrize("name", GPU_FRAMEWORKS)
@pytest.mark.parametrize("shape", [(), (0, 3), (7, 5), (1100, 1300), (70, 512, 1024)])
def test_there_and_back(name: str, shape: tuple[int, ...]) -> None:
    host = numbers(shape)
    data, buffers = pickling.dumps([GPU_FRAMEWORKS[name].make(host)])
    assert buffers[0].raw().nbytes == host.nbytes
    back = pickling.loads(data, received(buffers))[0]
    assert GPU_FRAMEWORKS[name].on_gpu(back)
    assert np.array_equal(GPU_FRAMEWORKS[name].host(back), host)
    assert np.array_equal(pickling.loads(data, buffers, "numpy")[0], host)


@pytest.mark.parametrize("target", GPU_FRAMEWORKS)
@pytest.mark.parametrize("source", GPU_FRAMEWORKS)
def test_another_framework_reads_it_on_the_same_device(source: str, target: str) -> None:
    host = numbers((300, 200))
    data, buffers = pickling.dumps(GPU_FRAMEWORKS[source].make(host))
    back = pickling.loads(data, received(buffers), target)
    assert GPU_FRAMEWORKS[target].on_gpu(back)
    assert np.array_equal(GPU_FRAMEWORKS[target].host(back), host)


def test_queued_work_is_waited_for() -> None:
    x = torch.zeros(1 << 22, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x += 1
        _, buffers = pickling.dumps(x)
    assert np.frombuffer(buffers[0].raw(), np.float32).min() == 1


def test_tied_weights_stay_tied_and_gradients_are_kept() -> None:
    linear = torch.nn.Linear(300, 300).cuda()
    data, buffers = pickling.dumps([linear.state_dict(), linear.state_dict(), linear.weight])
    assert len(buffers) == 2
    first, second, weight = pickling.loads(data, received(buffers))
    assert first["weight"].is_cuda
    assert first["weight"].data_ptr() == second["weight"].data_ptr()
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.requires_grad
    assert torch.equal(weight, linear.weight)


def test_strided_tensors_are_packed_before_the_download() -> None:
    x = torch.rand(1000, 1000, device="cuda")
    for view in (x[:, ::3], x.t(), x[5], x.to(torch.bfloat16)[::2]):
        (part,) = pickling.plan(view).parts
        assert part.action == "copy"
        data, buffers = pickling.dumps(view)
        assert buffers[0].raw().nbytes == view.numel() * view.element_size()
        assert torch.equal(pickling.loads(data, received(buffers)), view)


def test_a_tree_of_many_small_tensors() -> None:
    tree = [torch.rand(64, device="cuda") for _ in range(500)]
    data, buffers = pickling.dumps(tree)
    assert all(map(torch.equal, pickling.loads(data, received(buffers)), tree))
    host = pickling.loads(data, received(buffers), device="cpu")
    assert all(map(torch.equal, host, [each.cpu() for each in tree]))


def test_a_missing_device_has_a_hint() -> None:
    data, buffers = pickling.dumps(torch.rand(10, device="cuda"))
    changed = data.replace(b"cuda:0", b"cuda:7")
    with pytest.raises(ferry.FerryError, match='device="cpu"'):
        pickling.loads(changed, received(buffers))
