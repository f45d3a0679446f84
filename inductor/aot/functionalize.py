"""Traces a torch-level graph into an ATen graph without mutation, for inference (autograd records nothing).

Parameters and buffers become inputs. The only writes that remain are `copy_` calls into inputs at the end of the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from ..errors import Unsupported
from ..fx_utils.arguments import node_at, output_of, results_of, tensors_in
from ..fx_utils.dead_code import remove_unused
from ..fx_utils.places import blame, name_of
from ..fx_utils.writes import has_functional_form, may_write
from ..ir.nodes import dense_order
from ..overlap import elements_overlap, spans_overlap
from ..process.import_stubs import stub_torch_compiler
from ..runtime.related_results import Related
from .calls import call, python_kernels
from .eager_checks import TRACED_AS
from .fake import fake_mode, forget_tensors, make_fx
from .functional_tensors import sync_in_backward, unwrapped
from .in_place import WrongInPlace, run_in_place
from .kernel_dtypes import KernelDtypes
from .new_fakes import empty_fake
from .operand_memory import not_to_be_written
from .plain_memory import computed_values, refuse_special
from .regions import repeats_of, trace_repeats_once
from .relations import relations
from .repeated_results import run_repeats_once
from .unused import check_unused


class NotFunctional(Unsupported):
    """The graph cannot be functionalized without changing its results."""


_NUMBER_READ = torch.ops.aten._local_scalar_dense.default


class RunsBetween(NotFunctional):
    """Some nodes have to run in eager, between compiled subgraphs. `nodes`: their names."""

    def __init__(self, nodes: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        self.nodes = frozenset(nodes)


class NumberRead(RunsBetween):
    """A node passes a tensor where its operator takes a number, and torch reads the number from the tensor."""

    def __init__(self, node: str) -> None:
        super().__init__([node], "an operator reads a number from a tensor")


def attributes_of(gm: torch.fx.GraphModule) -> list[tuple[str, torch.Tensor]]:
    """The named parameters and buffers of a graph module, in the order in which they become inputs."""
    return [*gm.named_parameters(), *gm.named_buffers()]


def records_gradients(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether autograd would record a call of `gm` with these inputs."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)] + [value for _, value in attributes_of(gm)]
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


@dataclass(frozen=True)
class _Alias:
    """An output in the storage of input `index`; `size` None: the input object itself. `offset` counts from the input's
    first element. `tracked`: autograd knows it as a view of the input (not so for a detached tensor)."""

    index: int
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    offset: int | torch.SymInt = 0
    tracked: bool = False


@dataclass(frozen=True)
class AtenGraph:
    """`graph(*inputs, *attributes)`, run with gradients disabled, returns the flat results.

    It writes to the inputs in `mutated`, with one final `copy_` each, and to nothing else.
    `uncounted`: the written inputs whose version counters stay the same, because the program writes through `x.data`.
    Results that are inputs or views of inputs are the same in the graph.
    `shared`: for each result a number, equal for results that share memory that belongs to no input.
    `views`: for each result, whether autograd knows it as a view of an input.
    `structure`: the pytree of the results. `related`: how autograd relates results that share memory.
    """

    graph: torch.fx.GraphModule
    attributes: tuple[torch.Tensor, ...]
    mutated: tuple[int, ...]
    shared: tuple[int | None, ...]
    views: tuple[bool, ...]
    structure: pytree.TreeSpec
    uncounted: tuple[int, ...] = ()
    related: tuple[Related, ...] = ()


def to_aten(
    gm: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    mode: FakeTensorMode | None = None,
) -> AtenGraph:
    """Trace `gm` on fake copies of `inputs`. NotFunctional if removing mutation fails or changes results. `mode`: that
    of the inputs among which numbers are, as symbols; some graphs take numbers alone."""
    named = dict(attributes_of(gm))
    attributes = tuple(named.values())
    _refuse(inputs, attributes, numbers=mode is not None)
    mode = mode or next((x.fake_mode for x in inputs if isinstance(x, FakeTensor)), None) or fake_mode()
    with stub_torch_compiler:
        fakes = [_fake(x, mode) for x in (*inputs, *attributes)]
    forget_tensors(mode)
    structures: list[pytree.TreeSpec] = []
    repeats = repeats_of(gm)

    def flat_of(gm: torch.fx.GraphModule, *values: torch.Tensor) -> list[Any]:
        result = GraphRun(gm, dict(zip(named, values[len(inputs) :]))).run(*values[: len(inputs)])
        leaves, structure = pytree.tree_flatten(result)
        structures.append(structure)
        return leaves

    def traced(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return _functional(functools.partial(flat_of, gm), decompositions, fakes)

    # Never in the caller's inference mode: the result is cached and also serves calls outside of it, in which views are
    # views of the inputs and writes count.
    with torch.inference_mode(False), torch.no_grad(), mode, python_kernels(mode), preserve_node_meta():
        fakes = [_without_inference(x) for x in fakes]
        with KernelDtypes():
            aliases, shared, strides, versions, related = run_repeats_once(
                gm, repeats, lambda part: _find_aliases(functools.partial(flat_of, part), fakes)
            )
        graph = trace_repeats_once(gm, traced, _part, decompositions, repeats)
        if _writes_inside(graph):  # from a decomposition
            graph = _functional(torch.fx.Interpreter(graph).run, decompositions, fakes)
        refuse_fixed_offsets(graph)
        graph = computed_values(graph, fakes)
        mutated = _check_writes(graph)
        _check_unused(graph.graph)
        refuse_shared_writes(graph, fakes, mutated)
        _return_aliases(graph, aliases, fakes)
        _lay_out(graph, strides)
    views = tuple(alias is not None and alias.tracked for alias in aliases)
    uncounted = tuple(i for i in mutated if not versions[i])
    return AtenGraph(graph, attributes, mutated, shared, views, structures[0], uncounted, related)


def _fake(x: Any, mode: FakeTensorMode) -> Any:
    real = isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor)
    return mode.from_tensor(x, static_shapes=True) if real else x


def _without_inference(x: Any) -> Any:
    """A fake inference tensor as an ordinary tensor in the same memory, to which writes may be traced."""
    if not isinstance(x, torch.Tensor) or not x.is_inference():
        return x
    empty = torch.empty(0, dtype=x.dtype, device=x.device)
    return empty.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def _functional(
    fn: Callable[..., Any], decompositions: Mapping[Any, Callable[..., Any]] | None, fakes: Sequence[Any]
) -> torch.fx.GraphModule:
    return make_fx(_pure(fn), decomposition_table=dict(decompositions or {}))(*fakes)


def _pure(fn: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A function that runs `fn`, which returns a list, with mutation functionalized except for final copies into its
    arguments. Unlike `torch.func.functionalize`, it keeps symbolic sizes symbolic."""

    def call(*args: Any) -> list[Any]:
        wrapped = [torch._to_functional_tensor(x) if isinstance(x, torch.Tensor) else x for x in args]
        torch._enable_functionalization(reapply_views=True)
        try:
            results = [unwrapped(x) for x in fn(*wrapped)]
        finally:
            torch._disable_functionalization()
        for x, functional in zip(args, wrapped):
            new = unwrapped(functional)
            if new is not x:
                if elements_overlap(x):  # the copy would write all elements, even if only some were written
                    raise NotFunctional("an input whose elements overlap in memory is mutated")
                x.copy_(new)
        return results

    return call


def _left_plain(x: Any) -> bool:
    """Whether functionalization is on and has not wrapped tensor `x`: the result of an operator on numbers only, such
    as `torch.ops.aten.add(4, 3.3)`."""
    return (
        isinstance(x, torch.Tensor)
        and not torch._is_functional_tensor(x)
        and torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize)
    )


def _writes_inside(graph: torch.fx.GraphModule) -> bool:
    """Whether the graph writes to anything other than inputs, or to inputs other than by copies."""
    return any(
        _mutates(n.target) and not (n.target is torch.ops.aten.copy_.default and node_at(n).op == "placeholder")
        for n in graph.graph.nodes
    )


def refuse_fixed_offsets(graph: torch.fx.GraphModule) -> None:
    """NotFunctional for `as_strided` with an offset from the start of an input's storage, because the input's own
    offset is neither known nor guarded."""
    given = [n.meta.get("val") for n in graph.graph.find_nodes(op="placeholder")]
    inputs = {storage_of(value) for value in given if isinstance(value, torch.Tensor)}  # other inputs are ints
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
        if _has_fixed_offset(node) and storage_of(node_at(node).meta["val"]) in inputs:
            raise NotFunctional("as_strided with a storage offset, of an input")


def _has_fixed_offset(node: torch.fx.Node) -> bool:
    """Whether a call of `as_strided` gives an offset from the start of the storage."""
    return len(node.args) > 3 or node.kwargs.get("storage_offset") is not None  # noqa: PLR2004


@dataclass(frozen=True)
class _Layout:
    """The layout of a functional tensor before an operator. An operator that writes to the tensor replaces its value by
    the result of the functional operator, which may have other strides (cumsum); in eager the strides stay."""

    x: torch.Tensor
    version: int
    stride: tuple[int | torch.SymInt, ...]
    storage: Any

    @staticmethod
    def of(x: torch.Tensor) -> _Layout:
        return _Layout(x, x._version, x.stride(), storage_of(torch._from_functional_tensor(x)))

    def restore(self) -> None:
        """Copy a value with other strides to the old layout, unless the operator changed strides in place."""
        x = self.x
        if x._version == self.version or len(self.stride) != x.dim():
            return
        value = torch._from_functional_tensor(x)
        size, stride, given = _hints(x.shape), _hints(self.stride), _hints(value.stride())
        if size is None or stride is None or given is None or 0 in size:
            return
        if storage_of(value) == self.storage or _same_order(size, given, stride):
            return
        order = dense_order(size, stride)
        if order is None:
            return
        back = sorted(range(len(order)), key=order.__getitem__)
        with torch.no_grad():
            restrided = value.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
        torch._functionalize_replace(x, restrided)
        torch._functionalize_commit_update(x)


class GraphRun(torch.fx.Interpreter):
    """Runs a graph with some attributes replaced; every ATen node gets the stack trace of the node it comes from.

    NotFunctional for a write through `unfold`: functionalization would put zeros where the view leaves elements out.
    """

    def __init__(self, gm: torch.fx.GraphModule, state: dict[str, torch.Tensor]) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.state = state
        self.extra_traceback = False  # keeps messages unchanged; `blame` records the node in the exception
        self.unfolded: dict[int, torch.Tensor] = {}  # results of `unfold` and views of them, by id
        self.strided: list[torch.Tensor] = []  # views for which writes may have no functional form

    def run_node(self, n: torch.fx.Node) -> Any:
        given = (self.env.get(arg) for arg in n.all_input_nodes) if n.op.startswith("call") else ()
        tensors = [x for x in given if isinstance(x, torch.Tensor) and not x.is_inference()]  # those have no _version
        fixed = [(x, x._version) for x in tensors if id(x) in self.unfolded or elements_overlap(x)]
        if may_write(n) and tensors:
            fixed += [(x, x._version) for x in not_to_be_written(n.target, *self.fetch_args_kwargs_from_env(n))]
        layouts = [_Layout.of(x) for x in tensors if torch._is_functional_tensor(x)]
        traced = _traced_graph() if any(x.dim() == 0 for x in tensors) else None
        before = set() if traced is None else _numbers_read(traced)
        if layouts and n.target in _AS_STRIDED and _has_fixed_offset(n):
            # `refuse_fixed_offsets` does not see this after a write to the input: the new value has other memory
            if storage_of(tensors[0]) in self._inputs(n.graph):
                raise NotFunctional("as_strided with a storage offset, of an input")
        try:
            result = super().run_node(n)
            if n.op == "output":
                self._sync_strided()
        except Exception as error:
            blame(error, n)
            if isinstance(error, DataDependentOutputException) and error.func is _NUMBER_READ:
                raise NumberRead(n.name) from error
            if isinstance(error, RuntimeError) and not has_functional_form(n.target):
                raise NotFunctional(f"torch cannot functionalize {name_of(n)}: {error}") from error
            if isinstance(error, RuntimeError) and self.strided:
                raise NotFunctional(f"functionalization of a view: {error}") from error
            if isinstance(error, DynamicOutputShapeException):  # the capture did not raise it if its tensor was empty
                raise NotFunctional(f"the size of a result depends on data: {error}") from error
            if getattr(n.target, "checks_numbers", False):  # the check fails for the sizes of the example inputs
                raise NotFunctional(f"eager raises an error here: {error}") from error
            raise
        if traced is not None and not _numbers_read(traced) <= before:
            raise NumberRead(n.name)
        if _left_plain(result) and n.op.startswith("call"):
            result = torch._to_functional_tensor(result)
        if n.target in _NOT_INVERTIBLE and torch._is_functional_tensor(result):
            self.strided.append(result)
        if any(x._version != version for x, version in fixed):
            raise NotFunctional(
                "an operator writes to a tensor whose elements overlap in memory, that overlaps another operand, or "
                "that unfold returned"
            )
        for layout in layouts:
            layout.restore()
        if n.target in _UNFOLDS:
            self.unfolded[id(result)] = result
        elif self.unfolded:
            self._note_views(result, tensors)
        return result

    def _inputs(self, graph: torch.fx.Graph) -> set[Any]:
        """The memory of the inputs and attributes."""
        given = [self.env[node] for node in graph.find_nodes(op="placeholder")]
        return {storage_of(x) for x in (*given, *self.state.values()) if isinstance(x, torch.Tensor)}

    def _sync_strided(self) -> None:
        """Apply pending writes now: functionalization updates views only when read, and may fail then."""
        for x in self.strided:
            torch._sync(x)

    def _note_views(self, result: Any, given: Sequence[torch.Tensor]) -> None:
        """Record which results are views of a result of `unfold`."""
        storages = [storage_of(x) for x in given if id(x) in self.unfolded]
        for x in result if isinstance(result, list | tuple) else (result,):
            if storages and isinstance(x, torch.Tensor) and storage_of(x) in storages:
                self.unfolded[id(x)] = x

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.autograd.grad:
            sync_in_backward(tensors_in(args[0] if args else kwargs["outputs"]))
        return _checked(TRACED_AS.get(target, target), target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        other = TRACED_AS.get(getattr(torch.Tensor, target, None))
        return _checked(other or _method(target), target, args, kwargs)

    def fetch_attr(self, target: str) -> Any:
        return self.state[target] if target in self.state else super().fetch_attr(target)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        prefix = f"{target}."
        own = {k.removeprefix(prefix): v for k, v in self.state.items() if k.startswith(prefix)}
        return torch.func.functional_call(self.fetch_attr(target), own, args, kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        return mutable(super().output(target, args, kwargs))


def _traced_graph() -> torch.fx.Graph | None:
    """The graph that make_fx is building; None outside of it."""
    mode = get_proxy_mode()
    return None if mode is None else mode.tracer.graph


def _numbers_read(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that read a number from a tensor."""
    return set(graph.find_nodes(op="call_function", target=_NUMBER_READ))


def _part(part: torch.fx.GraphModule, inputs: Sequence[Any]) -> GraphRun:
    return GraphRun(part, {})


def _method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def _checked(run: Callable[..., Any], target: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator; NotFunctional for an in-place write that eager refuses."""
    try:
        return run_in_place(run, target, args, kwargs)
    except WrongInPlace as error:
        raise NotFunctional(f"eager raises an error here: {error}") from error


_AS_STRIDED = ("as_strided", torch.as_strided, torch.Tensor.as_strided, torch.ops.aten.as_strided.default)
_NOT_INVERTIBLE = (  # functionalization may have no operator for writes to these views: expand of bool subtracts
    *_AS_STRIDED,
    *("expand", "expand_as", torch.Tensor.expand, torch.Tensor.expand_as, torch.broadcast_to),
)
_UNFOLDS = ("unfold", torch.Tensor.unfold, torch.ops.aten.unfold.default)


def mutable(x: Any) -> Any:
    """`x` with fx's own immutable containers replaced by the containers that a call of the module returns."""
    if isinstance(x, list):
        return [mutable(y) for y in x]
    if isinstance(x, dict):
        return {key: mutable(y) for key, y in x.items()}
    if isinstance(x, tuple):
        parts = [mutable(y) for y in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return x


def _refuse(inputs: Sequence[Any], attributes: Sequence[torch.Tensor], numbers: bool) -> None:
    """NotFunctional for inputs that cannot be traced. `numbers`: they may be symbols or ints, too."""
    if not all(isinstance(x, torch.Tensor) or (numbers and isinstance(x, torch.SymInt | int)) for x in inputs):
        raise NotFunctional("an input is not a tensor")
    if torch.is_grad_enabled() and any(x.requires_grad for x in (*inputs, *attributes) if isinstance(x, torch.Tensor)):
        raise NotFunctional("gradients are recorded")


def version_of(x: Any) -> int:
    """The version counter of a tensor; 0 for values without one."""
    return x._version if isinstance(x, torch.Tensor) and not x.is_inference() else 0


def storage_of(x: Any) -> Any:
    """A key that is equal for tensors that share memory; unique for a number. NotFunctional if not strided."""
    if not isinstance(x, torch.Tensor):
        return object()
    if x.layout != torch.strided:
        raise NotFunctional(f"a tensor of layout {x.layout}")
    return x.untyped_storage()._cdata


def refuse_shared_writes(graph: torch.fx.GraphModule, inputs: Sequence[Any], written: Iterable[int]) -> None:
    """NotFunctional if the memory of a written input overlaps that of another input, or an `as_strided` could reach it
    from there. At run time the plan checks that they do not overlap."""
    memory = [storage_of(x) for x in inputs]
    pairs = [(i, k) for i in written for k in range(len(inputs)) if i != k and memory[i] == memory[k]]
    if not pairs:
        return
    strided = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default)
    if strided or any(spans_overlap(inputs[i], inputs[k]) for i, k in pairs):
        raise NotFunctional("a mutated input shares memory with another input")


def _find_aliases(
    flat: Callable[..., list[Any]], fakes: list[Any]
) -> tuple[
    tuple[_Alias | None, ...], tuple[int | None, ...], tuple[tuple[int, ...] | None, ...], list[int],
    tuple[Related, ...],
]:
    """Run the graph on copies that it may write to, and find where its results lie in memory.

    Returns five sequences: for each result, its alias of an input or None; for each result, the number of the memory
    that it shares; for each result with memory of its own, its strides if these are integers; for each input, its
    version counter; what `relations` returns.
    """
    copies = [_empty_like(x) if isinstance(x, torch.Tensor) else x for x in fakes]
    owner = {storage_of(x): i for i, x in enumerate(copies)}
    before = [(x.shape, x.stride()) for x in copies if isinstance(x, torch.Tensor)]
    with torch.enable_grad():  # views made where the graph disables gradients then differ from the others
        outputs = flat(*copies)
    refuse_special(outputs)
    if before != [(x.shape, x.stride()) for x in copies if isinstance(x, torch.Tensor)]:
        raise NotFunctional("the metadata of an input is changed in place")
    aliases: list[_Alias | None] = []
    shared: list[int | None] = []
    fresh: dict[Any, int] = {}
    for value in outputs:
        alias = group = None
        if isinstance(value, torch.Tensor):
            index = owner.get(storage_of(value))
            if index is None:
                group = fresh.setdefault(storage_of(value), len(fresh))
            elif value is copies[index]:
                alias = _Alias(index)
            elif value.dtype != copies[index].dtype or value.is_conj() or value.is_neg():
                raise NotFunctional(
                    "a result reinterprets the memory of an input (another dtype, conjugate or negative bit)"
                )
            else:
                tracked = value._is_view() and value._base is copies[index]
                alias = _Alias(index, tuple(value.shape), value.stride(), value.storage_offset(), tracked)
        aliases.append(alias)
        shared.append(group)
    fixed = (
        value.stride() if group is not None and shared.count(group) == 1 and _is_static(value) else None
        for value, group in zip(outputs, shared)
    )
    versions = [version_of(x) for x in copies]
    return tuple(aliases), tuple(shared), tuple(fixed), versions, relations(outputs, copies)


def _empty_like(x: torch.Tensor) -> torch.Tensor:
    """A new fake tensor with the sizes, strides, dtype and device of one."""
    if type(x) is FakeTensor and x.layout is torch.strided and not x._has_symbolic_sizes_strides:
        return empty_fake(x.fake_mode, x.shape, x.stride(), x.dtype, x.device)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _is_static(x: torch.Tensor) -> bool:
    return all(isinstance(n, int) for n in (*x.shape, *x.stride()))


def _hints(numbers: Sequence[int | torch.SymInt]) -> list[int] | None:
    """The values for the sizes of the example inputs, without adding guards; None if one depends on data."""
    found = [n if isinstance(n, int) else n.node.hint for n in numbers]
    return None if None in found else found  # type: ignore[return-value, unused-ignore]


def _same_order(size: Sequence[int], stride: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two strides address the same memory for tensors of this size."""
    return all(n == 1 or a == b for n, a, b in zip(size, stride, other))


def _lay_out(graph: torch.fx.GraphModule, strides: Sequence[tuple[int, ...] | None]) -> None:
    """Copy results that decompositions lay out in another order than the operators themselves do."""
    output = next(iter(graph.graph.find_nodes(op="output")))
    results = list(output.args[0])
    for k, (node, stride) in enumerate(zip(results, strides)):
        val = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if stride is None or not isinstance(val, torch.Tensor) or not _is_static(val) or not val.numel():
            continue
        if _same_order(val.shape, val.stride(), stride):
            continue
        order = sorted(range(len(stride)), key=lambda d: (-stride[d], d))
        back = [order.index(d) for d in range(len(order))]
        if not torch.empty_strided(val.shape, stride, device="meta").permute(order).is_contiguous():
            raise NotFunctional("the memory layout of a result has gaps")
        with graph.graph.inserting_before(output):
            turned = call(graph.graph, torch.ops.aten.permute.default, node, order)
            copy = call(graph.graph, torch.ops.aten.clone.default, turned, memory_format=torch.contiguous_format)
            results[k] = call(graph.graph, torch.ops.aten.permute.default, copy, back)
    output.args = (results,)
    remove_unused(graph.graph)
    graph.recompile()


def _check_writes(graph: torch.fx.GraphModule) -> tuple[int, ...]:
    """The numbers of the inputs to which functionalization's final copies write."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    writes: dict[int, None] = {}
    for node in graph.graph.nodes:
        if node.op != "call_function" or not _mutates(node.target):
            continue
        if node.target is not torch.ops.aten.copy_.default or node.args[0] not in placeholders:
            raise NotFunctional(f"{node.target} writes")
        writes[placeholders.index(node.args[0])] = None
    return tuple(writes)


def _check_unused(graph: torch.fx.Graph) -> None:
    """Add checks for unused results, before the first write to an input."""
    end = next((n for n in graph.nodes if _mutates(n.target)), output_of(graph))
    check_unused(graph, [n for n in results_of(graph) if isinstance(n, torch.fx.Node)], end)


def _return_aliases(graph: torch.fx.GraphModule, aliases: Sequence[_Alias | None], fakes: Sequence[Any]) -> None:
    """Replace results that alias an input by that input or by an `as_strided` view of it."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    output = next(iter(graph.graph.find_nodes(op="output")))
    results = list(output.args[0])
    for k, alias in enumerate(aliases):
        if alias is None:
            continue
        node, base = placeholders[alias.index], fakes[alias.index]
        if alias.size is not None:
            args = (alias.size, alias.stride, base.storage_offset() + alias.offset)
            with graph.graph.inserting_before(output):
                view = graph.graph.call_function(torch.ops.aten.as_strided.default, (node,))
            view.args = (node, *args)  # fx warns of SymInts in new nodes
            view.meta["val"] = torch.ops.aten.as_strided.default(base, *args)
            node = view
        results[k] = node
    output.args = (results,)
    remove_unused(graph.graph)
    graph.recompile()


def _mutates(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
