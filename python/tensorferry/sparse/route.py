"""Which way a sparse tensor takes: what is handed on as it is, what is made, and what is refused.

`decide` finds the way and hands nothing on; its `Route` has the plan in words, and `run` goes it.
So a plan and what happens cannot differ. Every array of the result comes out of `ferry.to`, whose
rules on sharing, read-only memory and devices are the rules here. `plain.py` has short ways for
what needs no decision, with the same results.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from tensorferry._native import (
    CopyRequiredError,
    InvalidArgumentError,
    NotATensorError,
    Plan,
    _plan_of_array,
    _plan_of_sparse,
    canonical,
    plan,
    to,
)
from tensorferry.framework_register import title
from tensorferry.sparse import frameworks
from tensorferry.sparse.bundle import Bundle, Rules, facts_of
from tensorferry.sparse.check import Structure, check
from tensorferry.sparse.choose import can_hold, chosen, holds_type
from tensorferry.sparse.entries import Part
from tensorferry.sparse.parts import cast_words, parts_of
from tensorferry.sparse.work import HOST, INT32, INT64, Host, numpy_dtype, worker


@dataclass
class Wishes:
    """What the caller asks for, beside the framework."""

    device: Any = None
    dtype: Any = None
    copy: bool | None = None
    writable: bool | None = None
    stream: Any = None


@dataclass
class Route:
    """A way that was found: what comes in, what is to be made of it, and where."""

    source: Any
    bundle: Bundle
    name: str
    landing: Any
    wishes: Wishes
    target: Any = None
    made: Bundle | None = None
    work: Host = HOST
    instead: str | None = None
    found: Structure | None = None
    parts: list[Part] = field(default_factory=list)

    @cached_property
    def plan(self) -> Plan:
        """The way in words, which are written when somebody asks for them."""
        return _plan(self)

    def arrive(self) -> Bundle:
        """Carries the parts, and gives them as one bundle of the target's."""
        assert self.made is not None
        made, arrays = self.made, {}
        for part in self.parts:
            arrays[part.name] = self._carried(part)
        made.values = arrays.pop("values")
        made.indptr, made.indices = arrays.pop("indptr", None), arrays.pop("indices", None)
        made.coordinates = tuple(arrays.values())
        return made

    def run(self) -> Any:
        """Goes the way."""
        return self.source if self.made is None else self.target.write(self.arrive())

    def _carried(self, part: Part) -> Any:
        asked = _asked(self, part)
        array = part.array if part.make is None else part.make()
        found = to(array, self.target.ARRAYS, **asked)
        if (
            self.bundle.frozen
            and part.make is None
            and isinstance(found, np.ndarray)
            and "copy" not in asked
        ):
            found = found.view()
            found.flags.writeable = False
        return found


def source_of(x: Any) -> Bundle:
    """Takes a sparse tensor of any framework apart."""
    name = frameworks.owner(x)
    if name is None:
        raise NotATensorError(
            f"{type(x).__module__}.{type(x).__qualname__} is not a sparse tensor"
            "\nhint: ferry.to and ferry.plan take dense tensors and trees"
        )
    found: Bundle = frameworks.module_of(name).read(x)
    return found


def decide(
    x: Any,
    framework: str | ModuleType,
    wishes: Wishes,
    *,
    format: str | None = None,
    blocksize: tuple[int, int] | None = None,
    lenient: bool = False,
) -> Route:
    """Finds the way of a sparse tensor to a framework.

    `lenient` lifts what the target asks of order and repeats, for parts that are only on their way
    into a dense tensor.
    """
    bundle = source_of(x)
    if blocksize is not None:
        blocksize = _blocks(blocksize)
    name = frameworks.named(framework)
    if name is None:
        called = canonical(framework)
        other = '"scipy"' if called == "numpy" else f"one of {', '.join(frameworks.NAMES)}"
        raise InvalidArgumentError(
            f"{title(called)} has no sparse tensors"
            f'\nhint: write {other}, or ferry.sparse.to_dense(x, "{called}") for a dense tensor'
        )
    target = frameworks.module_of(name)
    same_blocks = blocksize in (None, bundle.blocksize)
    if not lenient and same_blocks and _is_itself(bundle, name, target, wishes, format):
        return Route(x, bundle, name, facts_of(bundle.values), wishes)
    offered: dict[str, Rules] = target.formats()
    form, full = chosen(bundle, name, target, offered, format)
    rules = offered[form]
    if blocksize is not None and form != "bsr":
        raise InvalidArgumentError(
            f"{form} has no blocks\nhint: leave blocksize out, or pass format='bsr'"
        )
    if lenient:
        rules = Rules(rules.index_dtypes, laid=rules.laid, dense=True)
    can_hold(bundle, target, form, rules)
    # What becomes of the values says where everything goes; it also loads the framework.
    landing = plan(bundle.values, target.ARRAYS, device=wishes.device, dtype=wishes.dtype)
    holds_type(landing.dtype, rules, target, form)
    work, instead = worker(landing.source_device, bundle.framework, name)
    found = check(bundle, work)
    made = Bundle(name, form, bundle.shape, None, laid=rules.laid, name=full)
    made.batch, made.dense, made.frozen = bundle.batch, bundle.dense, bundle.frozen
    made.blocksize = blocksize or bundle.blocksize
    parts = parts_of(bundle, found, work, made, rules, target)
    route = Route(x, bundle, name, landing, wishes, target, made, work, instead, found, parts)
    if wishes.copy is False and not route.plan.shares:
        _copy_required(route.plan)
    return route


def _blocks(given: Any) -> tuple[int, int]:
    """The size of blocks, if it is one."""
    try:
        high, wide = map(index, given)
        if high > 0 and wide > 0:
            return high, wide
    except (TypeError, ValueError):
        pass
    raise InvalidArgumentError(
        f"{given!r} is no size of blocks\nhint: pass blocksize=(rows, columns)"
    )


def _is_itself(bundle: Bundle, name: str, target: Any, wishes: Wishes, format: str | None) -> bool:
    if bundle.framework != name or format not in (None, bundle.name) or wishes.copy:
        return False
    asked = {"device": wishes.device, "writable": wishes.writable}
    told = plan(bundle.values, target.ARRAYS, dtype=wishes.dtype, **asked)
    rest = [plan(array, target.ARRAYS, **asked) for _, array in bundle.index_parts]
    return all(part.action == "itself" for part in (told, *rest))


def _asked(route: Route, part: Part) -> dict[str, Any]:
    """What `ferry.to` is asked for, for one part; nothing that follows by itself."""
    wishes, landing = route.wishes, route.landing
    asked: dict[str, Any] = {}
    if wishes.device is not None or not landing.device == landing.source_device == "cpu":
        asked["device"] = landing.device
    if wishes.writable is not None:
        asked["writable"] = wishes.writable
    if wishes.stream is not None:
        asked["stream"] = wishes.stream
    dtype = wishes.dtype if part.name == "values" else _cast_to(route, part)
    if dtype is not None:
        asked["dtype"] = dtype
    if part.make is None:
        frozen = route.bundle.frozen and not _keeps_frozen(route.target.ARRAYS, wishes)
        if wishes.copy or frozen:
            asked["copy"] = True
    return asked


def _cast_to(route: Route, part: Part) -> str | None:
    """The type of an index array, unless it is known to have it."""
    bits = route.found.bits if route.found is not None else 0
    kept = (part.dtype == "int32" and bits & INT32) or (part.dtype == "int64" and bits & INT64)
    return None if kept and part.make is None else part.dtype


def _placeholder(part: Part, work: Host) -> Any:
    """A single element in place of an array that is still to be made."""
    return work.fresh((1,), part.dtype)


def _part_plan(route: Route, part: Part) -> Plan:
    asked = _asked(route, part)
    target, work = route.target, route.work
    if part.make is None:
        told = plan(part.array, target.ARRAYS, **asked)
        steps = [_index_words(part, step, told, target) for step in told.steps]
        return _plan_of_array(
            name=part.name,
            is_shared=told.shares,
            dtype=told.dtype,
            shape=part.shape,
            bytes_moved=told.bytes_moved,
            extra_bytes=told.extra_bytes,
            steps=steps,
            notes=told.notes,
        )
    told = plan(_placeholder(part, work), target.ARRAYS, **asked)
    count = math.prod(part.shape)
    size = numpy_dtype(part.dtype).itemsize
    moved = count * (size + told.bytes_moved)
    steps = [*part.steps, *told.steps]
    return _plan_of_array(
        name=part.name,
        is_shared=False,
        dtype=told.dtype,
        shape=part.shape,
        bytes_moved=moved,
        extra_bytes=count * numpy_dtype(told.dtype).itemsize,
        steps=steps,
        notes=[],
    )


def _index_words(part: Part, step: tuple[str, str], told: Any, target: Any) -> tuple[str, str]:
    if part.name == "values" or step[0] != "cast":
        return step
    return step[0], cast_words(target, told.dtype, told.source_dtype)


def _keeps_frozen(arrays: str, wishes: Wishes) -> bool:
    return arrays in ("numpy", "jax", "tensorflow") and not wishes.writable


def _plan(route: Route) -> Plan:
    bundle, landing, made = route.bundle, route.landing, route.made
    parts = [_part_plan(route, part) for part in route.parts]
    itself = made is None
    return _plan_of_sparse(
        source=bundle.framework,
        target=route.name,
        source_format=bundle.name,
        format=bundle.name if made is None else made.name,
        is_itself=itself,
        source_dtype=landing.source_dtype,
        dtype=landing.source_dtype if itself else landing.dtype,
        shape=bundle.shape,
        source_device=landing.source_device,
        device=landing.source_device if itself else landing.device,
        nnz=stored_in(bundle, landing),
        parts=parts,
        notes=_notes(route, parts),
    )


def stored_in(bundle: Bundle, whole: Any) -> int:
    """How many elements a bundle keeps, those of blocks and batches one by one."""
    kept = len(whole.shape) - bundle.dense
    return math.prod(whole.shape[:kept])


def _notes(route: Route, parts: list[Plan]) -> list[str]:
    bundle, made, found = route.bundle, route.made, route.found
    notes: list[str] = []
    if made is None or found is None:
        return notes
    if bundle.format != made.format:
        notes.append(f"{bundle.format} becomes {made.format}")
    if found.spare:
        notes.append(f"{found.spare} stored elements beyond the tensor are left behind")
    notes.append(_order_note(made))
    if bundle.detached:
        notes.append("carried detached: no gradient flows back through it")
    if route.instead:
        notes.append(route.instead)
    for part in parts:
        notes += [note for note in part.notes if note not in notes]
    return notes


def _order_note(made: Bundle) -> str:
    if made.in_order and made.unique:
        return "the elements are in order and each place is there once; the result says so"
    if made.in_order:
        return "the elements are in order, with duplicates, which are kept"
    return "the elements keep an order that is not sorted; duplicates are kept if there are any"


def _copy_required(told: Plan) -> None:
    part = next(part for part in told.parts if not part.shares)
    why = part.steps[0][1] if part.steps else "it is new memory"
    raise CopyRequiredError(
        f"{told.source} {told.source_format} to {told.target} {told.format} needs a copy of the "
        f"{part.name}: {why}"
        "\nhint: leave out copy=False to allow the copy, or pass a format that both keep alike"
    )
