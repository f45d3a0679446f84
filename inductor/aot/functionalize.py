"""A torch-level graph as a pure ATen graph: no mutation, no views, parameters as inputs.

What purity loses is recorded beside the graph and put back around each call by `restore_effects`: writes into inputs,
and outputs that are inputs or views of them. Inference only: nothing here records autograd history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


class NotFunctional(Exception):
    """The graph has to run as it is; the message says why."""


@dataclass(frozen=True)
class InputAlias:
    """An output in the storage of input `index`; the object itself if size is None. Offset from its first element."""

    index: int
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class AtenGraph:
    """`graph(*inputs, *attributes)` returns the new values of the inputs `mutated`, then the graph's flat results.

    `aliases` has one entry for each flat result: None, or where in an input it lies.
    """

    graph: torch.fx.GraphModule
    attributes: tuple[torch.Tensor, ...]
    mutated: tuple[int, ...]
    aliases: tuple[InputAlias | None, ...]
    structure: pytree.TreeSpec


def to_aten(
    gm: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    decompositions: dict[Any, Callable[..., Any]] | None = None,
) -> AtenGraph:
    """Traces `gm` on fake copies of `inputs`. NotFunctional where purity cannot be had or would change results."""
    named = {**dict(gm.named_parameters()), **dict(gm.named_buffers())}
    attributes = tuple(named.values())
    _refuse(inputs, attributes)
    mode = next((x.fake_mode for x in inputs if isinstance(x, FakeTensor)), None) or FakeTensorMode()
    fakes = [x if isinstance(x, FakeTensor) else mode.from_tensor(x) for x in (*inputs, *attributes)]
    count = len(inputs)
    structures: list[pytree.TreeSpec] = []

    def flat(*values: torch.Tensor) -> list[Any]:
        state = dict(zip(named, values[count:]))
        result = torch.func.functional_call(gm, state, tuple(values[:count]))
        leaves, structure = pytree.tree_flatten(result)
        structures.append(structure)
        return leaves

    with torch.no_grad(), mode:
        aliases = _find_aliases(flat, fakes, count)
        pure = torch.func.functionalize(flat, remove="mutations_and_views")
        graph = make_fx(pure, decomposition_table=decompositions or {})(*fakes)
    mutated = _lift_writes(graph, count)
    return AtenGraph(graph, attributes, mutated, aliases, structures[0])


def restore_effects(run: Callable[..., Sequence[Any]], aten: AtenGraph) -> Callable[..., Any]:
    """`run`, a compiled `aten.graph`, as a function of the original inputs with the original effects and results."""
    writes = len(aten.mutated)

    def call(*inputs: torch.Tensor) -> Any:
        results = run(*inputs, *aten.attributes)
        with torch.no_grad():
            for index, value in zip(aten.mutated, results):
                inputs[index].copy_(value)
            outputs = [
                value if alias is None else _alias(inputs[alias.index], alias)
                for value, alias in zip(results[writes:], aten.aliases)
            ]
        return pytree.tree_unflatten(outputs, aten.structure)

    return call


def _refuse(inputs: Sequence[Any], attributes: Sequence[torch.Tensor]) -> None:
    if not all(isinstance(x, torch.Tensor) for x in inputs):
        raise NotFunctional("an input is not a tensor")
    if torch.is_grad_enabled() and any(x.requires_grad for x in (*inputs, *attributes)):
        raise NotFunctional("gradients are recorded")
    storages = [x.untyped_storage()._cdata for x in (*inputs, *attributes)]
    if len(set(storages)) != len(storages):
        raise NotFunctional("two inputs share memory")


def _find_aliases(flat: Callable[..., list[Any]], fakes: list[Any], count: int) -> tuple[InputAlias | None, ...]:
    """Runs the graph on copies that it may write to, and looks where its results lie."""
    copies = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in fakes]
    owner = {x.untyped_storage()._cdata: i for i, x in enumerate(copies)}
    before = [(x.shape, x.stride()) for x in copies]
    outputs = flat(*copies)
    if before != [(x.shape, x.stride()) for x in copies]:
        raise NotFunctional("the metadata of an input is changed in place")
    aliases: list[InputAlias | None] = []
    fresh: set[int] = set()
    for value in outputs:
        if not isinstance(value, torch.Tensor):
            aliases.append(None)
            continue
        storage = value.untyped_storage()._cdata
        index = owner.get(storage)
        if index is None:
            if storage in fresh:
                raise NotFunctional("two results share memory")
            fresh.add(storage)
            aliases.append(None)
        elif index >= count or value.dtype != copies[index].dtype:
            raise NotFunctional("a result lies in the memory of an attribute, or of an input of another dtype")
        elif value is copies[index]:
            aliases.append(InputAlias(index))
        else:
            aliases.append(InputAlias(index, tuple(value.shape), value.stride(), value.storage_offset()))
    return tuple(aliases)


def _lift_writes(graph: torch.fx.GraphModule, count: int) -> tuple[int, ...]:
    """Turns functionalization's closing copies into inputs into leading results; returns which inputs they were."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    copy = torch.ops.aten.copy_.default
    writes: dict[int, torch.fx.Node] = {}
    for node in graph.graph.find_nodes(op="call_function", target=copy):
        if node.args[0] not in placeholders:
            raise NotFunctional("a write that is not into an input is left")
        writes[placeholders.index(node.args[0])] = node
    if any(index >= count for index in writes):
        raise NotFunctional("a buffer of the module is written")
    output = next(iter(graph.graph.find_nodes(op="output")))
    values = [node.args[1] for node in writes.values()]
    for node in writes.values():
        node.replace_all_uses_with(node.args[1])
        graph.graph.erase_node(node)
    if any(node.op == "call_function" and _mutates(node.target) for node in graph.graph.nodes):
        raise NotFunctional("an operator that writes is left")
    output.args = ([*values, *output.args[0]],)
    graph.recompile()
    return tuple(writes)


def _mutates(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _alias(base: torch.Tensor, alias: InputAlias) -> torch.Tensor:
    if alias.size is None:
        return base
    return base.as_strided(alias.size, alias.stride, base.storage_offset() + alias.offset)
