"""Converts tensors that require a gradient: what warns, and how often. The argument is the case."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
import torch
from support.errors import raised

import tensorferry as ferry


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def warned(call: Callable[[], object]) -> list[str]:
    """The messages that a call warns of, without their categories."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(issubclass(one.category, UserWarning) for one in caught), caught
    return [str(one.message) for one in caught]


def check_warns(call: Callable[[], object], source: str, target: str) -> None:
    """Checks that a call warns, and that it does so once in this process."""
    (message,) = warned(call)
    fact, hint = message.split("\n")
    assert f"a {source} tensor that requires a gradient was converted to {target}" in fact, fact
    assert hint.startswith("hint: "), hint
    assert ".detach()" in hint, hint
    is_crossing = source != target and target in ("torch", "jax", "tensorflow")
    via = f'@ferry.via("{target}", grad=True)'
    assert (via if is_crossing else f"functions of {source}") in hint, hint
    assert warned(call) == []
    assert warned(lambda: ferry.to(leaf(), "numpy")) == []


def warns_for_a_leaf() -> None:
    check_warns(lambda: ferry.to(leaf(), "numpy"), "torch", "numpy")


def warns_for_an_intermediate_result() -> None:
    x = leaf() * 2
    check_warns(lambda: ferry.to(x, "jax"), "torch", "jax")


def warns_with_options() -> None:
    check_warns(lambda: ferry.to(leaf(), "numpy", copy=True), "torch", "numpy")


def warns_for_a_copy_in_torch() -> None:
    check_warns(lambda: ferry.to(leaf(), "torch", dtype="float16"), "torch", "torch")


def warns_for_parameters_in_a_tree() -> None:
    layer = torch.nn.Linear(2, 2)
    check_warns(lambda: ferry.to(dict(layer.named_parameters()), "jax"), "torch", "jax")


def warns_for_a_job() -> None:
    check_warns(lambda: ferry.to_async(leaf(), "numpy").result(), "torch", "numpy")


def warns_for_a_trace() -> None:
    def traced() -> None:
        with ferry.trace():
            ferry.to(leaf(), "numpy")

    check_warns(traced, "torch", "numpy")


def warns_for_a_function() -> None:
    function = ferry.via("jax")(lambda x: x * 2)
    check_warns(lambda: function(leaf()), "torch", "jax")


def warns_for_a_sparse_tensor() -> None:
    x = torch.eye(3).to_sparse().requires_grad_()
    check_warns(lambda: ferry.to(x, "scipy"), "torch", "scipy")


def warns_for_a_sparse_tensor_made_dense() -> None:
    x = torch.eye(3).to_sparse().requires_grad_()
    check_warns(lambda: ferry.sparse.to_dense(x, "numpy"), "torch", "numpy")


def warns_for_paddle() -> None:
    import paddle

    x = paddle.ones([3])
    x.stop_gradient = False
    assert warned(lambda: ferry.to(x.detach(), "numpy")) == []
    with paddle.no_grad():
        assert warned(lambda: ferry.to(x, "numpy")) == []
    (message,) = warned(lambda: ferry.to(x, "numpy"))
    assert "a paddle tensor" in message
    assert warned(lambda: ferry.to(leaf(), "numpy")) == []


def is_silent_without_a_lost_gradient() -> None:
    layer = torch.nn.Linear(2, 2)
    x = leaf()
    differentiated = ferry.via("jax", grad=True)(lambda x: x * 2)
    with tempfile.TemporaryDirectory() as folder:
        for call in (
            lambda: ferry.to(torch.ones(3), "numpy"),
            lambda: ferry.to(x.detach(), "numpy"),
            lambda: ferry.to(x, "torch"),
            lambda: ferry.plan(x, "numpy"),
            lambda: ferry.to(layer.state_dict(), "jax"),
            lambda: differentiated(x).sum().backward(),
            lambda: ferry.save(f"{folder}/x.safetensors", dict(layer.named_parameters())),
            lambda: ferry.publish(dict(layer.named_parameters())).withdraw(),
        ):
            assert warned(call) == []
        with torch.no_grad():
            assert warned(lambda: ferry.to(x, "numpy")) == []
            assert warned(lambda: ferry.via("jax")(lambda x: x)(x)) == []
        with torch.inference_mode():
            assert warned(lambda: ferry.to(x, "numpy")) == []
    # None of these was the first one.
    check_warns(lambda: ferry.to(x, "numpy"), "torch", "numpy")


def is_silent_for_results_of_differentiated_functions() -> None:
    """A function with parameters of its own, which callers of frameworks without torch call."""
    import jax
    import jax.numpy as jnp

    weight = leaf()
    function = ferry.via("torch", grad=True)(lambda x: (x * weight).sum())
    assert warned(lambda: function(np.ones(3, np.float32))) == []
    assert warned(lambda: function(jnp.ones(3))) == []
    assert warned(lambda: jax.grad(function)(jnp.ones(3))) == []
    assert warned(lambda: jax.jit(jax.grad(function))(jnp.ones(3))) == []


def is_an_error_where_warnings_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        raised(UserWarning, ferry.to, leaf(), "numpy")
        # Once, as an error too.
        assert ferry.to(leaf(), "numpy").shape == (3,)


globals()[sys.argv[1]]()
