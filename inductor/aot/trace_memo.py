"""Traces each distinct operator call once per graph: later calls on tensors with the same metadata copy its nodes.

`make_fx` runs every ATen operator through torch's decompositions and fake implementations, about a millisecond each in
Python. A network repeats few distinct calls, and what such a call adds to the graph is a function of the operator, the
metadata of its tensors, its other arguments, and the dispatch state of the thread. `remember_calls` records, for the
first call with such a key, the nodes that it added and how its results share memory (`_Recipe`); for later calls, it
creates the same nodes and results without running the operator.

Calls that are not a function of the key, or whose nodes cannot be copied, are traced as usual: operators that write or
whose result depends on data, operators outside of ATen, symbolic sizes, tensors that torch knows as constants (except
empty ones among others, as where a cache is still empty), and results that share memory in ways that a recipe cannot
express.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, _ProxyTensor, get_proxy_slot, set_proxy_slot
from torch.fx.immutable_collections import immutable_list
from torch.fx.node import map_aggregate
from torch.fx.proxy import TracerBase

from ..fx_utils.keys import PLAIN, NoKey
from ..fx_utils.nodes import set_arguments
from ..torch_compat import decompositions_in_use
from .new_fakes import new_fake

_NAMESPACES = ("aten", "prims")
_OWN_NAMESPACE = "pyframe"  # of operators of this project, which write nothing and read nothing but metadata
_DATA_DEPENDENT = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
Key = tuple[Any, ...]
# The attribute of a fake tensor mode that holds recipes. They are not in a dict of ours, because their keys refer to
# the mode, which then would never be freed.
_RECIPES = "_recipes_of_calls"


class NotCopyable(Exception):
    """The nodes of a call cannot be copied."""


def remember_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, to be traced by `make_fx`, such that each distinct operator call is traced once per run."""

    def call(*args: Any) -> Any:
        mode = proxy_tensor.get_proxy_mode()
        assert mode is not None
        memo = _Memo(mode)
        mode.__torch_dispatch__ = types.MethodType(memo.dispatch, mode)  # type: ignore[method-assign]
        try:
            return function(*args)
        finally:
            del mode.__torch_dispatch__

    return call


@dataclass(frozen=True)
class Slot:
    """Stands for a node in the arguments of a `Step`: tensor argument k of the call, or a node that it added."""

    index: int


@dataclass(frozen=True)
class Made:
    """How to create a tensor. `memory`: the number of the argument or node whose memory it shares (with `part`, an item
    of a node that has several values); None if it has memory of its own."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    memory: tuple[int, int | None] | None


@dataclass(frozen=True)
class Step:
    """A node to create. `value`: its `meta["val"]`, a tensor or a sequence of tensors and Nones; an item may also be
    the number of a part of an earlier node, whose tensor it is."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    value: Any
    tensor_meta: Any


@dataclass(frozen=True)
class _Recipe:
    """What a call adds to the graph and returns. `result`: a number of a slot, None, or a sequence of these."""

    steps: tuple[Step, ...]
    result: Any


class _Memo:
    """The recipes of one trace, and of earlier ones in its fake mode."""

    def __init__(self, mode: ProxyTorchDispatchMode) -> None:
        self.traced, self.tracer = mode.__torch_dispatch__, mode.tracer
        self.decompositions = decompositions_in_use(mode)
        self.recipes = _recipes_for(self.decompositions)
        self.suitable: dict[Any, bool] = {}

    def dispatch(
        self, mode: ProxyTorchDispatchMode, op: Any, kinds: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Traces a call: takes the place of `mode.__torch_dispatch__`."""
        suitable = self.suitable.get(op)
        if suitable is None:
            suitable = self.suitable[op] = is_suitable(op)
        if not suitable or decompositions_in_use(mode) is not self.decompositions:
            return self.traced(op, kinds, args, kwargs)
        tensors: list[FakeTensor] = []
        with torch._C.DisableTorchFunction():  # a mode would run Python code at each read of an attribute
            try:
                key = _key_of(op, args, kwargs or {}, tensors)
                fake_mode = tensors[0].fake_mode if tensors else _active_fake_mode()
                nodes = [node_of(self.tracer, x) for x in tensors]
            except NoKey:
                key = None
            recipe = self.recipes.get(key) if key is not None else None
            if recipe is not None:
                return _follow(recipe, self.tracer, op, tensors, nodes, fake_mode)
        if key is None or key in self.recipes:  # its nodes cannot be copied
            return self.traced(op, kinds, args, kwargs)
        last = self.tracer.graph._root._prev
        result = self.traced(op, kinds, args, kwargs)
        with torch._C.DisableTorchFunction():
            try:
                self.recipes[key] = _recipe(self.tracer, last, tensors, nodes, result)
            except (NotCopyable, NoKey):  # NoKey: the result is known as a constant
                self.recipes[key] = None
        return result


def _recipes_for(decompositions: Mapping[Any, Any]) -> dict[Key, _Recipe | None]:
    """The recipes of the traces so far that had the same decompositions, in the active fake mode. The trace of a whole
    graph continues with those of the range of it that was traced before (`regions.py`)."""
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if not isinstance(mode, FakeTensorMode):
        return {}
    found: list[tuple[Mapping[Any, Any], dict[Key, _Recipe | None]]] = vars(mode).setdefault(_RECIPES, [])
    for table, recipes in found:
        if table == decompositions:
            return recipes
    found.append((decompositions, {}))
    return found[-1][1]


def is_suitable(op: Any) -> bool:
    """Whether the nodes of a call of `op` depend on nothing but its key."""
    return (
        isinstance(op, torch._ops.OpOverload)
        and op.namespace in _NAMESPACES
        and not op._schema.is_mutable
        and not any(tag in op.tags for tag in _DATA_DEPENDENT)
    )


# ---- keys


def _key_of(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[FakeTensor]) -> Key:
    """Everything that may influence how the call is traced; its tensors are appended to `tensors`, each once. NoKey if
    no key describes an argument."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    state = torch.is_grad_enabled(), torch.get_default_dtype(), included.raw_repr(), excluded.raw_repr()
    described = tuple([_described(x, tensors) for x in args])
    named = tuple([(name, _described(x, tensors)) for name, x in kwargs.items()])
    if tensors and not any(x.constant is None for x in tensors):  # torch would compute a constant result
        raise NoKey
    places = list(map(_memory, tensors)) if len(tensors) > 1 else []
    return op, state, described, named, tuple(map(places.index, places))


def _active_fake_mode() -> FakeTensorMode:
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if not isinstance(mode, FakeTensorMode):
        raise NoKey
    return mode


def _described(x: Any, tensors: list[FakeTensor]) -> Any:
    kind = type(x)
    if kind is FakeTensor:
        for k, other in enumerate(tensors):
            if other is x:
                return k
        tensors.append(x)
        return metadata(x)
    if kind in PLAIN:
        return kind, x
    if kind is float:  # 0.0 == -0.0, and nan != nan
        return kind, x.hex()
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind is list or kind is tuple or kind is torch.Size or kind is immutable_list:
        return kind, tuple([_described(y, tensors) for y in x])
    raise NoKey


def metadata(x: FakeTensor) -> Key:
    """NoKey if the tensor has a symbolic size, is more than strided memory, or has elements that torch knows."""
    special = x.is_conj() or x.is_neg() or torch._is_zerotensor(x)
    if x._has_symbolic_sizes_strides or x.layout is not torch.strided or special or _known_elements(x.constant):
        raise NoKey
    offset, bytes_ = x.storage_offset(), x.untyped_storage().nbytes()
    if type(offset) is not int or type(bytes_) is not int:
        raise NoKey
    shape = tuple(x.shape)
    flags = x.requires_grad, x.is_inference(), x.constant is None
    return shape, x.stride(), offset, bytes_, x.dtype, x.fake_device, flags, x.fake_mode


def _known_elements(constant: torch.Tensor | None) -> bool:
    """Whether torch knows elements of a tensor, whose value it keeps as `constant`."""
    return constant is not None and constant.numel() > 0


def node_of(tracer: Any, x: FakeTensor) -> torch.fx.Node:
    """The node of a tensor that was traced. NoKey for one that was not, or whose elements torch knows."""
    slot = get_proxy_slot(x, tracer, None)
    if slot is None or _known_elements(slot.constant):
        raise NoKey
    node: torch.fx.Node = slot.proxy.node
    return node


def call_key(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Key | None, list[FakeTensor]]:
    """The key of a call on fake tensors outside of a trace, None if its results may depend on more, and its tensors,
    each once."""
    own = isinstance(op, torch._ops.OpOverload) and op.namespace == _OWN_NAMESPACE
    return key_if_suitable(op, args, kwargs) if own or is_suitable(op) else (None, [])


def key_if_suitable(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Key | None, list[FakeTensor]]:
    """As `call_key`, of an operator that `is_suitable`."""
    tensors: list[FakeTensor] = []
    try:
        return _key_of(op, args, kwargs, tensors), tensors
    except NoKey:
        return None, tensors


def arguments_key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
    """What describes the arguments of a call on fake tensors; None if no key describes one of them."""
    tensors: list[FakeTensor] = []
    try:
        described = tuple([_described(x, tensors) for x in args])
        return described, tuple([(name, _described(x, tensors)) for name, x in kwargs.items()])
    except NoKey:
        return None


# ---- recording


def _recipe(
    tracer: Any, last: torch.fx.Node, tensors: Sequence[FakeTensor], nodes: Sequence[torch.fx.Node], result: Any
) -> _Recipe:
    """The recipe of a call that was traced; the nodes after `last` are new. NotCopyable if there is none."""
    slots = {node: k for k, node in enumerate(nodes)}
    if len(slots) < len(nodes):  # two tensors have one node; at another call they may have two
        raise NotCopyable
    memory: dict[Any, tuple[int, int | None] | None] = {}
    for k, x in enumerate(tensors):
        place = _memory(x)
        memory[place] = None if place in memory else (k, None)  # None: any of several arguments
    steps = []
    node = last._next
    while node is not tracer.graph._root:
        steps.append(step_of(node, slots, memory))
        slots[node] = len(slots)
        node = node._next
    arguments = {id(x): k for k, x in enumerate(tensors)}
    return _Recipe(tuple(steps), _result(tracer, result, slots, arguments, {}))


def step_of(
    node: torch.fx.Node, slots: Mapping[torch.fx.Node, int], memory: dict[Any, tuple[int, int | None] | None]
) -> Step:
    """How to create a node again. `slots`: the numbers of the arguments and nodes before; `memory`: which of these have
    each memory, to which that of the node is added. NotCopyable if there is no way."""
    target: Any = node.target
    getitem = target is operator.getitem
    if node.op != "call_function" or not (getitem or is_suitable(target)):
        raise NotCopyable

    def replaced(arg: torch.fx.Node) -> Any:
        if arg not in slots:
            raise NotCopyable
        return Slot(slots[arg])

    args = torch.fx.map_arg(node.args, replaced)
    kwargs = torch.fx.map_arg(node.kwargs, replaced)
    named = target if getitem else target.overloadpacket.__name__
    name = node.graph._target_to_str(named)
    number, value = len(slots), node.meta.get("val")
    if isinstance(value, list | tuple):
        if type(value) not in (list, tuple):
            raise NotCopyable
        made = type(value)([made_of(x, (number, k), memory) for k, x in enumerate(value)])
        return Step(target, args, kwargs, name, made, node.meta.get("tensor_meta"))
    return Step(target, args, kwargs, name, made_of(value, (number, None), memory), node.meta.get("tensor_meta"))


def made_of(x: Any, place: tuple[int, int | None], memory: dict[Any, tuple[int, int | None] | None]) -> Made | None:
    """How to create the value `x`, which is at `place`."""
    if x is None:
        return None
    if type(x) is not FakeTensor or x.requires_grad or _known_elements(x.constant):
        raise NotCopyable
    try:
        size, stride, offset, bytes_, dtype, device, *_ = metadata(x)
    except NoKey:
        raise NotCopyable from None
    where = _memory(x)
    if where in memory:
        shared = memory[where]
        if shared is None:
            raise NotCopyable
        return Made(size, stride, offset, dtype, device, shared)
    last = sum((n - 1) * step for n, step in zip(size, stride)) + 1 if 0 not in size else 0
    if offset or bytes_ != last * dtype.itemsize:
        raise NotCopyable
    memory[where] = place
    return Made(size, stride, offset, dtype, device, None)


def _memory(x: FakeTensor) -> Any:
    return x.untyped_storage()._cdata


def _result(
    tracer: Any, result: Any, slots: Mapping[torch.fx.Node, int], arguments: Mapping[int, int], returned: dict[int, int]
) -> Any:
    """`_Recipe.result`. `arguments`: the number of each argument, by id. `returned`: filled with the ids of results."""
    if result is None:
        return None
    if type(result) in (list, tuple):
        return type(result)([_result(tracer, x, slots, arguments, returned) for x in result])
    if type(result) is not FakeTensor:
        raise NotCopyable
    if id(result) in arguments:
        return Slot(arguments[id(result)])
    traced = get_proxy_slot(result, tracer, None)
    if traced is None or traced.constant is not None or result.requires_grad:
        raise NotCopyable
    slot, value = slots.get(traced.proxy.node, -1), traced.proxy.node.meta.get("val")
    if slot < len(arguments) or type(value) is not FakeTensor or returned.setdefault(slot, id(result)) != id(result):
        raise NotCopyable
    if _memory(value) != _memory(result) or metadata(value) != metadata(result):
        raise NotCopyable
    return slot


# ---- copying


def _follow(
    recipe: _Recipe, tracer: Any, op: Any, tensors: Sequence[FakeTensor], nodes: Sequence[torch.fx.Node],
    mode: FakeTensorMode,
) -> Any:
    """Add the nodes of a recipe for a call of `op` on `tensors`, whose nodes are `nodes`, and return its results."""
    added = list(nodes)

    def filled(arg: Any) -> Any:
        return added[arg.index] if type(arg) is Slot else arg

    with proxy_tensor.set_original_aten_op(op):
        for step in recipe.steps:
            args, kwargs = map_aggregate(step.args, filled), map_aggregate(step.kwargs, filled)
            # not the method of torch's subclass, which would ask of each operator whether it needs exact strides
            added.append(TracerBase.create_node(tracer, "call_function", step.target, (), {}, step.name))
            set_arguments(added[-1], args, kwargs)
    values: list[Any] = list(tensors)
    with in_kernel_invocation_manager(mode), torch._C._DisablePythonDispatcher():
        add_values(recipe.steps, values)
    for step, node, value in zip(recipe.steps, added[len(nodes) :], values[len(nodes) :]):
        node.meta["val"] = fakes_of(step.value, value, mode)
        if step.tensor_meta is not None:
            node.meta["tensor_meta"] = step.tensor_meta
    returned: dict[int, FakeTensor] = {}

    def result(of: Any) -> Any:
        if isinstance(of, list | tuple):
            return type(of)([result(x) for x in of])
        if of is None or type(of) is Slot:
            return None if of is None else tensors[of.index]
        if of not in returned:
            x = returned[of] = fakes_of(recipe.steps[of - len(nodes)].value, values[of], mode)
            set_proxy_slot(x, tracer, _ProxyTensor(tracer.proxy(added[of]), None))
        return returned[of]

    return result(recipe.result)


def add_values(steps: Sequence[Step], values: list[Any]) -> None:
    """Append what `meta_tensor` makes for each step; a list of these for a step with several values."""
    for step in steps:
        if isinstance(step.value, list | tuple):
            values.append([])
            for made in step.value:
                values[-1].append(meta_tensor(made, values))
        else:
            values.append(meta_tensor(step.value, values))


def meta_tensor(made: Made | None, values: Sequence[Any]) -> torch.Tensor | None:
    """The tensor without elements that a fake tensor needs. `values`: the arguments, and such tensors made before."""
    if made is None:
        return None
    if made.memory is None:
        return torch.empty_strided(made.size, made.stride, dtype=made.dtype, device="meta")
    slot, part = made.memory
    owner = values[slot] if part is None else values[slot][part]
    x = torch.empty(0, dtype=made.dtype, device="meta")
    return x.set_(owner.untyped_storage(), made.offset, made.size, made.stride)


def fakes_of(made: Any, value: Any, mode: FakeTensorMode) -> Any:
    """The fake tensors for `Step.value`. Each has metadata of its own, and the memory of the tensor in `value`."""
    if isinstance(made, list | tuple):
        return type(made)([fakes_of(x, y, mode) for x, y in zip(made, value)])
    return None if made is None else new_fake(mode, value, made.device)


# ---- results without nodes

Results = Any  # how to make the results of a call: a `Made`, None, or a sequence of these


def results_to_make(value: Any, tensors: Sequence[FakeTensor]) -> Results | None:
    """How to make the results of a call on `tensors` again; None if one shares memory with another result alone or with
    several of the tensors, has gaps at its end, or is no fake tensor."""
    memory: dict[Any, tuple[int, int | None] | None] = {}
    for k, x in enumerate(tensors):
        place = _memory(x)
        memory[place] = None if place in memory else (k, None)
    values = value if type(value) in (list, tuple) else [value]
    try:
        made = [made_of(x, (len(tensors), k), memory) for k, x in enumerate(values)]
    except NotCopyable:
        return None
    if any(each is not None and each.memory is not None and each.memory[0] == len(tensors) for each in made):
        return None
    return type(value)(made) if type(value) in (list, tuple) else made[0]


def new_results(results: Results, tensors: Sequence[FakeTensor], mode: FakeTensorMode) -> Any:
    """New fake tensors for a call on `tensors`, as `results` describes them."""
    with in_kernel_invocation_manager(mode), torch._C._DisablePythonDispatcher():
        if isinstance(results, list | tuple):
            metas: Any = [meta_tensor(made, tensors) for made in results]
        else:
            metas = meta_tensor(results, tensors)
    return fakes_of(results, metas, mode)
