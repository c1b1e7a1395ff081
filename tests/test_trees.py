"""Containers keep their shape; tensors in them are carried; everything else passes through."""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from support.refusals import TARGETS, refused

import tensorferry as ferry


def leaf(start: float = 0.0) -> np.ndarray:
    return np.arange(start, start + 3, dtype=np.float32)


def is_leaf(tensor, start: float = 0.0) -> bool:
    return type(tensor) is torch.Tensor and tensor.tolist() == [start, start + 1, start + 2]


class Point(typing.NamedTuple):
    x: object
    y: object = 7


OldPoint = collections.namedtuple("OldPoint", "x y")


@dataclasses.dataclass
class Ordinary:
    a: object
    b: object = None
    hidden: object = dataclasses.field(default=5, init=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Immutable:
    a: object
    b: int = 3


@dataclasses.dataclass(slots=True)
class Slots:
    a: object
    b: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class ImmutableSlots:
    a: object
    b: str = "text"


@dataclasses.dataclass
class Checked:
    """Its constructor must not run again: it counts, and takes other arguments than its fields."""

    a: object = dataclasses.field(init=False)
    scale: dataclasses.InitVar[float] = 1.0
    made: typing.ClassVar[int] = 0

    def __post_init__(self, scale):
        type(self).made += 1
        self.a = leaf() * np.float32(scale)


class MyList(list):
    note = None


class MyDict(dict):
    pass


class MyTuple(tuple):
    __slots__ = ()


class Colour(enum.Enum):
    RED = 1


def test_a_dict():
    source = {"w": leaf(), 3: leaf(1), None: "text", ("a", 1): 2.5}
    result = ferry.to(source, "torch")
    assert type(result) is dict
    assert list(result) == list(source), "the order stays"
    assert is_leaf(result["w"])
    assert is_leaf(result[3], 1)
    assert (result[None], result["a", 1]) == ("text", 2.5)
    assert type(source["w"]) is np.ndarray, "the source tree stays as it was"


def test_an_ordered_dict():
    source = collections.OrderedDict([("z", leaf()), ("a", leaf(1))])
    source.move_to_end("z")
    result = ferry.to(source, "torch")
    assert type(result) is collections.OrderedDict
    assert list(result) == ["a", "z"]
    assert is_leaf(result["z"])


def test_a_default_dict_keeps_its_factory():
    source = collections.defaultdict(list, {"a": leaf()})
    result = ferry.to(source, "torch")
    assert type(result) is collections.defaultdict
    assert result.default_factory is list
    assert is_leaf(result["a"])
    assert result["new"] == []
    assert "new" not in source


def test_other_dicts():
    counter = collections.Counter("aab")
    assert ferry.to([counter, leaf()], "torch")[0] == counter
    result = ferry.to(MyDict(a=leaf()), "torch")
    assert type(result) is MyDict
    assert is_leaf(result["a"])


class Encoding(collections.UserDict):
    """As the batches of tokenisers are: a wrapped dict, and attributes beside it."""

    def __init__(self, data, note):
        super().__init__(data)
        self.note = note


def test_wrapped_dicts_and_lists():
    source = Encoding({"ids": leaf(), "n": 3}, "kept")
    result = ferry.to(source, "torch")
    assert type(result) is Encoding
    assert is_leaf(result["ids"])
    assert (result["n"], result.note) == (3, "kept")
    assert type(source["ids"]) is np.ndarray
    result = ferry.to({"a": collections.UserList([leaf(), 1])}, "torch")["a"]
    assert type(result) is collections.UserList
    assert is_leaf(result[0])
    plan = ferry.plan(source, "torch")
    assert [part.name for part in plan.parts] == ["['ids']"]


def test_wrappers_that_hold_themselves():
    for kind in (collections.UserList, collections.UserDict):
        one = kind()
        one.data = one
        assert ferry.to(one, "torch") is one
        other = kind()
        other.data = [other, leaf()] if kind is collections.UserList else {"a": other}
        refused(ferry.InvalidArgumentError, ValueError, lambda t=other: ferry.to(t, "torch"))


class Closed(collections.UserDict):
    def __copy__(self):
        raise OSError("no copies here")


class Bare(collections.UserDict):
    def __init__(self):
        pass


def test_wrappers_with_ideas_of_their_own():
    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(Closed(a=leaf()), "torch"))
    assert "no copies here" in str(error)
    assert isinstance(error.__cause__, OSError)
    bare = Bare()
    assert ferry.to([bare], "torch")[0] is bare


class Batch(collections.UserDict):
    """A wrapped dict of which JAX is told to see one entry."""


def test_a_wrapped_dict_that_jax_takes_apart():
    import jax

    jax.tree_util.register_pytree_node(
        Batch, lambda b: ((b["x"],), b["note"]), lambda note, parts: Batch(x=parts[0], note=note)
    )
    note = leaf()
    result = ferry.to(Batch(x=leaf(), note=note), "torch")
    assert type(result) is Batch
    assert is_leaf(result["x"])
    assert result["note"] is note


def test_deques():
    source = collections.deque([leaf(), 2, leaf(1)], maxlen=3)
    result = ferry.to([source], "torch")[0]
    assert (type(result), result.maxlen) == (collections.deque, 3)
    assert is_leaf(result[0])
    assert is_leaf(result[2], 1)
    assert result[1] == 2
    assert type(source[0]) is np.ndarray


def test_objects_that_cannot_be_asked():
    class Mute:
        def __getattr__(self, name):
            raise RuntimeError(f"no {name}")

    for tree in (Mute(), {"a": Mute()}):
        error = refused(ferry.FrameworkError, RuntimeError, lambda t=tree: ferry.to(t, "torch"))
        assert type(error.__cause__) is RuntimeError


def test_lists():
    result = ferry.to([leaf(), [leaf(1), []], 3], "torch")
    assert type(result) is list
    assert is_leaf(result[0])
    assert is_leaf(result[1][0], 1)
    assert (result[1][1], result[2]) == ([], 3)
    assert ferry.to([], "torch") == []
    source = MyList([leaf()])
    source.note = "kept"
    result = ferry.to(source, "torch")
    assert (type(result), result.note) == (MyList, "kept")
    assert is_leaf(result[0])
    assert type(source[0]) is np.ndarray


def test_tuples():
    result = ferry.to((leaf(), (3, leaf(1)), ()), "torch")
    assert type(result) is tuple
    assert is_leaf(result[1][1], 1)
    assert result[2] == ()
    result = ferry.to(MyTuple((leaf(), 4)), "torch")
    assert type(result) is MyTuple
    assert is_leaf(result[0])
    size = torch.Size([2, 3])
    assert ferry.to({"shape": size, "x": leaf()}, "torch")["shape"] is size
    assert type(ferry.to([size, leaf()], "numpy")[0]) is torch.Size


def test_named_tuples():
    for kind in (Point, OldPoint):
        result = ferry.to(kind(leaf(), {"deep": leaf(1)}), "torch")
        assert type(result) is kind
        assert is_leaf(result.x)
        assert is_leaf(result.y["deep"], 1)
    assert ferry.to(Point(leaf()), "torch").y == 7
    values, indices = ferry.to(torch.max(torch.eye(3), dim=0), "numpy")
    assert (values.tolist(), indices.tolist()) == ([1, 1, 1], [0, 1, 2]), (
        "what torch returns is one"
    )


@pytest.mark.parametrize("kind", [Ordinary, Immutable, Slots, ImmutableSlots])
def test_dataclasses(kind):
    source = kind(leaf(), b=[leaf(1)] if kind in (Ordinary, Slots) else kind(leaf()).b)
    result = ferry.to(source, "torch")
    assert type(result) is kind
    assert result is not source
    assert is_leaf(result.a)
    if kind in (Ordinary, Slots):
        assert is_leaf(result.b[0], 1)
    else:
        assert result.b == source.b
    assert type(source.a) is np.ndarray
    if kind is Ordinary:
        assert result.hidden == 5


def test_a_dataclass_is_not_constructed_again():
    source = Checked(scale=2.0)
    source.extra = "kept"
    made = Checked.made
    result = ferry.to(source, "torch")
    assert Checked.made == made
    assert result.a.tolist() == [0, 2, 4]
    assert result.extra == "kept"


@pytest.mark.parametrize("kind", [Slots, ImmutableSlots])
def test_a_dataclass_whose_field_is_not_set(kind):
    source = kind(leaf())
    object.__delattr__(source, "b")
    result = ferry.to(source, "torch")
    assert is_leaf(result.a)
    assert not hasattr(result, "b")


def test_a_dataclass_type_is_a_leaf():
    assert ferry.to([Ordinary, leaf()], "torch")[0] is Ordinary


def test_leaves_pass_through():
    leaves = [0, 1.5, 2j, True, "s", b"raw", None, ..., Colour.RED, {1}, frozenset(), range(2)]
    leaves += [np.float32(3), np.int64(4), torch.float32, len, object(), torch.nn.ReLU()]
    result = ferry.to([*leaves, leaf()], "jax")[:-1]
    assert all(one is other for one, other in zip(result, leaves, strict=True))


def test_bytes_alone_are_a_tensor_and_in_a_tree_a_leaf():
    assert ferry.to(b"ab", "numpy").tolist() == [97, 98]
    assert ferry.to({"name": b"ab", "x": leaf()}, "torch")["name"] == b"ab"


def test_every_framework_in_one_tree():
    import mlx.core as mx
    import paddle

    want = [0.0, 1.0, 2.0]
    source = {
        "numpy": leaf(),
        "torch": torch.arange(3.0),
        "jax": jnp.arange(3.0),
        "tensorflow": tf.range(3.0),
        "paddle": paddle.to_tensor(want),
        "mlx": mx.array(want),
        "variable": tf.Variable(want),
        "parameter": torch.nn.Parameter(torch.arange(3.0)),
        "buffer": memoryview(leaf()),
    }
    for target in TARGETS:
        result = ferry.to(source, target)
        assert list(result) == list(source)
        kinds = {type(value) for value in result.values()} - {torch.nn.Parameter}
        assert len(kinds) == 1, kinds
        for value in result.values():
            assert ferry.to(value, "numpy").tolist() == want


def test_one_source_gives_one_result():
    x, shared = leaf(), [leaf(1)]
    result = ferry.to([x, {"again": x}, shared, shared], "torch", copy=True)
    assert result[0] is result[1]["again"]
    assert result[2] is result[3]
    assert result[2][0] is result[3][0]
    equal = ferry.to([leaf(), leaf()], "torch")
    assert equal[0] is not equal[1], "equal is not the same"


def test_temporaries_do_not_stand_in_for_one_another():
    """A node may make its children anew: an address that is used again is another object."""

    class Maker:
        def __init__(self, start):
            self.start = start

    ferry.register_container(
        Maker, lambda m: ([leaf(m.start)], None), lambda _, children: children[0]
    )
    result = ferry.to([Maker(float(i)) for i in range(200)], "torch", copy=True)
    assert all(is_leaf(tensor, float(i)) for i, tensor in enumerate(result))


def test_trees_that_hold_themselves():
    loop = [leaf()]
    loop.append(loop)
    pair = {"a": {}}
    pair["a"]["b"] = pair
    box = Ordinary(None)
    box.a = [box]
    for tree in (loop, pair, box):
        error = refused(
            ferry.InvalidArgumentError, ValueError, lambda tree=tree: ferry.to(tree, "jax")
        )
        assert "100" in str(error).partition("\n")[0]
        refused(ferry.InvalidArgumentError, ValueError, lambda tree=tree: ferry.plan(tree, "jax"))


def test_deep_trees_that_do_not():
    tree = leaf()
    for _ in range(90):
        tree = [tree]
    result = ferry.to(tree, "torch")
    for _ in range(90):
        (result,) = result
    assert is_leaf(result)


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"w": [0, "BAD"]}, "['w'][1]"),
        ([[[{"k": "BAD"}]]], "[0][0][0]['k']"),
        ((1, Point("BAD", 2)), "[1].x"),
        (Ordinary(Immutable({3: "BAD"})), ".a.a[3]"),
        (collections.OrderedDict(a=("BAD",)), "['a'][0]"),
    ],
    ids=["list", "deep", "named tuple", "dataclass", "ordered"],
)
def test_errors_name_the_path(tree, place):
    def plant(node):
        if node == "BAD":
            return np.zeros(2, "datetime64[s]")
        if isinstance(node, dict):
            return type(node)((key, plant(value)) for key, value in node.items())
        if isinstance(node, Point):
            return Point(*map(plant, node))
        if isinstance(node, list | tuple):
            return type(node)(map(plant, node))
        if dataclasses.is_dataclass(node):
            return dataclasses.replace(node, a=plant(node.a))
        return node

    tree = plant(tree)
    for call in (ferry.to, ferry.plan):
        error = refused(ferry.UnsupportedDTypeError, TypeError, lambda call=call: call(tree, "jax"))
        assert str(error).startswith(f"at {place}: "), str(error)


def test_a_key_whose_repr_breaks_does_no_harm():
    class Key:
        def __repr__(self):
            raise RuntimeError("no name")

    error = refused(ferry.FerryError, Exception, lambda: ferry.to({Key(): np.array(["a"])}, "jax"))
    assert str(error).startswith("at ")


def test_options_hold_for_every_leaf():
    tree = {"a": leaf(), "b": [leaf(1).astype(np.float64)]}
    result = ferry.to(tree, "torch", dtype="float16", copy=True)
    assert result["a"].dtype == result["b"][0].dtype == torch.float16
    error = refused(
        ferry.CopyRequiredError,
        BufferError,
        lambda: ferry.to([leaf(), leaf()[::-1]], "torch", copy=False),
    )
    assert str(error).startswith("at [1]: ")


class Box:
    def __init__(self, content, label):
        self.content, self.label = content, label


def test_nodes_registered_here():
    class Mine(Box):
        pass

    source = Mine([leaf()], "name")
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(source, "torch"))
    ferry.register_container(
        Mine, lambda b: ((b.content,), b.label), lambda rest, kids: Mine(*kids, rest)
    )
    result = ferry.to(source, "torch")
    assert (type(result), result.label) == (Mine, "name")
    assert is_leaf(result.content[0])
    assert is_leaf(ferry.to({"m": source}, "torch")["m"].content[0])
    bad = Mine(np.array(["a"]), "")
    error = refused(ferry.UnsupportedDTypeError, TypeError, lambda: ferry.to([bad], "torch"))
    assert str(error).startswith("at [0][0]: ")


def test_nodes_registered_with_jax():
    class Mine(Box):
        pass

    jax.tree_util.register_pytree_node(
        Mine, lambda b: ((b.content,), b.label), lambda label, kids: Mine(*kids, label)
    )
    result = ferry.to(Mine({"k": leaf()}, "name"), "torch")
    assert (type(result), result.label) == (Mine, "name")
    assert is_leaf(result.content["k"])
    assert is_leaf(ferry.to([Mine(leaf(), "")], "torch")[0].content)


def test_nodes_registered_with_torch():
    class Mine(Box):
        pass

    torch.utils._pytree.register_pytree_node(
        Mine, lambda b: ([b.content], b.label), lambda kids, label: Mine(*kids, label)
    )
    result = ferry.to((Mine({"k": leaf()}, "name"),), "torch")[0]
    assert (type(result), result.label) == (Mine, "name")
    assert is_leaf(result.content["k"])


def test_nodes_whose_functions_break():
    class Mine(Box):
        pass

    ferry.register_container(Mine, lambda _: 3, lambda *_: None)
    with pytest.raises((TypeError, ValueError)):
        ferry.to(Mine(1, 2), "torch")

    class Other(Box):
        pass

    def fail(*_):
        raise KeyError("mine")

    ferry.register_container(Other, fail, fail)
    with pytest.raises(KeyError, match="mine"):
        ferry.to([Other(1, 2)], "torch")


def test_the_plan_of_a_tree():
    x = leaf()
    tree = {"a": x, "b": [np.arange(3.0)[::-1], 7], "c": Point(x, "text")}
    plan = ferry.plan(tree, "torch")
    assert (type(plan), plan.kind, plan.target) == (ferry.Plan, "tree", "torch")
    assert [part.name for part in plan.parts] == ["['a']", "['b'][0]"], "one line for one tensor"
    assert [part.action for part in plan.parts] == ["share", "copy"]
    assert (plan.shares, plan.bytes_moved, plan.extra_bytes) == (False, 24, 24)
    assert 0 < plan.expected_seconds < 1
    told = plan.as_dict()
    assert (told["extra_bytes"], told["expected_seconds"]) == (24, plan.expected_seconds)
    text = str(plan)
    assert text.startswith(
        "2 tensors: 1 shared, 1 copied (24 bytes), 24 bytes of new memory, about"
    )
    assert "['b'][0]: " in text
    assert re.search(r"\['b'\]\[0\]: numpy -> torch.*\b24\b", text), text
    assert "2 tensors" in repr(plan)
    assert ferry.plan([x], "torch").shares
    empty = ferry.plan([], "torch")
    assert (len(empty.parts), empty.shares, empty.bytes_moved) == (0, True, 0)
    assert (empty.extra_bytes, empty.expected_seconds) == (0, None)


def test_trips_of_a_tree():
    with ferry.trace() as trips:
        ferry.to({"a": leaf(), "b": (leaf(), 3)}, "torch")
    assert len(trips) == 2


def test_out_takes_no_tree():
    refused(
        ferry.FerryError,
        Exception,
        lambda: ferry.to([leaf()], "numpy", out=np.zeros(3, np.float32)),
    )


def test_nodes_of_others_that_hold_themselves():
    class Endless:
        pass

    class Mirror:
        pass

    jax.tree_util.register_pytree_node(Endless, lambda n: ((n,), None), lambda rest, children: None)
    torch.utils._pytree.register_pytree_node(
        Mirror, lambda n: ([n], None), lambda items, rest: None
    )
    for node in (Endless(), Mirror()):
        with pytest.raises(ferry.InvalidArgumentError, match=r"\b100\b.*\nhint: "):
            ferry.to(node, "numpy")


def test_a_plan_rebuilds_nothing():
    class Node:
        pass

    def unflatten(rest, children):
        raise AssertionError("a plan must not rebuild")

    ferry.register_container(Node, lambda node: ([np.ones(3)], None), unflatten)
    assert ferry.plan({"k": Node()}, "torch").shares
