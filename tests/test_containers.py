"""Containers of the standard library beside dicts, lists and tuples."""

from __future__ import annotations

import collections
import functools
import types

import numpy as np
import torch
from support.refusals import refused
from test_trees import is_leaf, leaf

import tensorferry as ferry


def test_mappings_of_the_standard_library():
    source = collections.ChainMap({"a": leaf()}, {"a": 1, "b": leaf(1)})
    result = ferry.to(source, "torch")
    assert type(result) is collections.ChainMap
    assert is_leaf(result["a"])
    assert is_leaf(result["b"], 1)
    assert (len(result.maps), result.maps[1]["a"]) == (2, 1)
    assert type(source["a"]) is np.ndarray
    assert next(part.name for part in ferry.plan([source], "torch").parts) == "[0].maps[0]['a']"

    class Own(collections.ChainMap):
        def __init__(self, *maps, extra=1):
            super().__init__(*maps)
            self.extra = extra

    source = Own({"a": leaf()}, extra=7)
    source.later = 8
    result = ferry.to(source, "torch")
    assert (type(result), result.extra, result.later) == (Own, 7, 8)
    assert is_leaf(result["a"])
    for inner in (dict, collections.OrderedDict, functools.partial(collections.defaultdict, list)):
        proxy = types.MappingProxyType(inner({"a": leaf(), "b": [leaf(1)]}))
        result = ferry.to({"p": proxy}, "torch")["p"]
        assert type(result) is types.MappingProxyType
        assert is_leaf(result["a"])
        assert is_leaf(result["b"][0], 1)
        assert type(result.copy()) is type(proxy.copy())
        assert type(proxy["a"]) is np.ndarray
    assert [part.name for part in ferry.plan(proxy, "torch").parts] == ["['a']", "['b'][0]"]
    for _ in range(100_000):
        proxy = types.MappingProxyType(proxy)
    assert is_leaf(ferry.to(proxy, "torch")["a"])
    loop = {"x": leaf()}
    loop["loop"] = types.MappingProxyType(loop)
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(loop, "torch"))


def test_namespaces():
    class Settings(types.SimpleNamespace):
        pass

    for kind in (types.SimpleNamespace, Settings):
        source = kind(weights=[leaf()], step=3)
        result = ferry.to(source, "torch")
        assert (type(result), result.step) == (kind, 3)
        assert is_leaf(result.weights[0])
        assert type(source.weights[0]) is np.ndarray
        assert ferry.plan(source, "torch").parts[0].name == ".weights[0]"


def test_the_same_containers_with_gradients():
    """`via(..., grad=True)` has a traversal of its own."""

    @ferry.via("jax", grad=True)
    def total(tree):
        return tree["chain"]["x"].sum() * tree["proxy"]["x"].sum() + (tree["names"].n ** 2).sum()

    x = torch.ones(2, requires_grad=True)
    tree = {
        "chain": collections.ChainMap({}, {"x": x}),
        "proxy": types.MappingProxyType({"x": x}),
        "names": types.SimpleNamespace(n=x),
    }
    total(tree).backward()
    assert x.grad.tolist() == [6, 6]
