"""Traces equal ranges of a captured graph once: `fx_utils/repeats.py` finds them, such as the layers of a network.

One range is traced by itself, with its gradients if autograd records the graph. In the trace of the whole graph, each
range is one call, which copies the nodes of that trace: those of the forward when it runs, those of the backward when
autograd gets to it. The resulting graph is the same.

A range is copied only where that is certain: graphs that write to tensors, values that share memory in ways that cannot
be copied, and ranges that take or get other metadata than expected are traced as usual.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import _ProxyTensor, set_proxy_slot
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes

from ..autocast import DEVICES, is_autocast_enabled
from ..fx_utils.arguments import output_of
from ..fx_utils.keys import NoKey
from ..fx_utils.nodes import set_arguments
from ..fx_utils.repeats import Range, Repeats, find_repeats
from .fake import make_fx
from .functional_tensors import unwrapped
from .kernel_dtypes import KernelDtypes
from .levels import saves_nothing
from .trace_memo import Key, NotCopyable, Slot, Step, add_values, fakes_of, made_of, metadata, node_of, step_of

T = TypeVar("T")
Runner = Callable[[torch.fx.GraphModule, Sequence[Any]], torch.fx.Interpreter]
_FUNCTIONALIZE = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
enabled = True  # for tests and for debugging
copied_ranges = 0  # in this process


class RangeDiffers(Exception):
    """A range gets other values than the one that was traced."""


@dataclass(frozen=True)
class _Given:
    """What a range must get: the metadata of its values, of those that autograd sees, and the state of the thread."""

    values: tuple[Key, ...]
    seen: tuple[tuple[bool, bool], ...]  # (requires_grad, is_leaf)
    state: Key


@dataclass(frozen=True)
class _Recording:
    """The trace of a range. Slots number its inputs, the tangent of its result (if autograd records it), and then the
    nodes of `steps`, of which the first `forward` belong to the forward.

    `results`, `gradients`: slots; the gradient of an input that needs none is None. `metas`: the `meta` of each node
    without its value. `tangent`: the metadata of the gradient of the result. `saves`: whether autograd saves tensors.
    `edges`: in how many places autograd uses each input.
    """

    given: _Given
    tangent: Key | None
    steps: tuple[Step, ...]
    metas: tuple[dict[str, Any], ...]
    forward: int
    results: tuple[int, ...]
    gradients: tuple[int | None, ...]
    saves: bool
    edges: tuple[int, ...]

    @property
    def first(self) -> int:
        """The slot of the first step."""
        return len(self.given.values) + (self.tangent is not None)


def trace_repeats_once(
    gm: torch.fx.GraphModule,
    trace: Callable[[torch.fx.GraphModule], T],
    runner: Runner,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    repeats: Repeats | None,
    non_leaf: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> T:
    """`trace(gm)`, which traces forward, and backward if `non_leaf` is given, by `make_fx` in the current fake mode.
    `runner` makes what runs a part of the graph. `repeats` are those of the graph. `non_leaf` turns an input that
    autograd has computed into one."""
    if repeats is not None:
        shorter = _shortened(gm, repeats, runner, decompositions, non_leaf)
        if shorter is not None:
            marks = torch.fx.traceback.current_meta.copy()
            try:
                return trace(shorter)
            except RangeDiffers:
                torch.fx.traceback.current_meta = marks
    return trace(gm)


def repeats_of(gm: torch.fx.GraphModule) -> Repeats | None:
    """The ranges of a captured graph of which one is to be traced."""
    return find_repeats(gm.graph) if enabled else None


def is_copied_range(node: torch.fx.Node) -> bool:
    """Whether a node takes the place of a range."""
    return isinstance(node.target, _Call)


def _shortened(
    gm: torch.fx.GraphModule, repeats: Repeats, runner: Runner, decompositions: Any, non_leaf: Any
) -> torch.fx.GraphModule | None:
    """The graph with one node in the place of each range that is to be copied; None if there are none."""
    sample, outputs = repeats.ranges[0], repeats.outputs
    part = _part(gm, sample, outputs)
    try:
        with torch.fx.traceback.preserve_node_meta():  # restores what the next nodes are marked with
            if non_leaf is None:
                recording = _Recorder(part, sample, outputs, runner, None).record(decompositions, None)
            else:
                recording = _record_training(part, repeats, runner, decompositions, non_leaf)
    except (NotCopyable, NoKey):
        return None
    # the last range stays: what follows may give it a gradient in another layout than a range gives the one before
    ranges = repeats.ranges if non_leaf is None else repeats.ranges[:-1]
    ranges = tuple(each for each in ranges if _sums_alike(each, recording))
    return replaced(gm, ranges, outputs, lambda each: _Call(recording, sample, each)) if ranges else None


def _sums_alike(each: Range, recording: _Recording) -> bool:
    """Whether gradients are added in the same order if the range adds those of its own nodes first."""
    own = set(each.nodes)
    return all(
        edges <= 1 or all(user in own for user in x.users)
        for x, edges in zip(each.inputs, recording.edges)
    )  # fmt: skip


def _part(gm: torch.fx.GraphModule, each: Range, outputs: Sequence[int]) -> torch.fx.GraphModule:
    """The nodes of a range as a module that returns a tuple."""
    graph = torch.fx.Graph()
    copies = {x: graph.placeholder(x.name) for x in each.inputs}
    for node in each.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[each.nodes[k]] for k in outputs))
    with _use_lazy_graph_module(True):
        return _make_graph_module(gm, graph)


def replaced(
    gm: torch.fx.GraphModule, ranges: Sequence[Range], outputs: Sequence[int], call_of: Callable[[Range], Any],
    after: Mapping[torch.fx.Node, tuple[Any, Sequence[torch.fx.Node]]] | None = None,
) -> torch.fx.GraphModule:
    """The graph with calls in the place of these ranges: `call_of(range)` takes the inputs of the range, and returns
    the tuple of its outputs. `after`: functions to call after nodes, with the nodes whose values they take."""
    graph = torch.fx.Graph()
    begins = {each.nodes[0]: each for each in ranges}
    inside = {node for each in ranges for node in each.nodes}
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        each = begins.get(node)
        if each is not None:
            call = graph.call_function(call_of(each), tuple(copies[x] for x in each.inputs))
            for number, k in enumerate(outputs):
                copies[each.nodes[k]] = graph.call_function(operator.getitem, (call, number))
        elif node not in inside:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        if after is not None and node in after:
            function, values = after[node]
            graph.call_function(function, tuple(copies[x] for x in values))
    graph._codegen = gm.graph._codegen
    with _use_lazy_graph_module(True):
        return _make_graph_module(gm, graph)


# ---- recording


def _record_training(
    part: torch.fx.GraphModule, repeats: Repeats, runner: Runner, decompositions: Any, non_leaf: Any
) -> _Recording:
    """The recording of a range with its gradients. The gradient of its result is expected to have the layout in which a
    range gives it to the one before."""
    if len(repeats.outputs) != 1:
        raise NotCopyable
    sample, after = repeats.ranges[:2]
    result = sample.nodes[repeats.outputs[0]]
    recorder = _Recorder(part, sample, repeats.outputs, runner, non_leaf)
    recording = recorder.record(decompositions, _like(result.meta["val"]).detach())
    carried = [k for k, x in enumerate(after.inputs) if x is result]
    slot = recording.gradients[carried[0]] if carried else None
    if slot is not None and slot >= recording.first:
        made = recording.steps[slot - recording.first].value
        tangent = torch.empty_strided(made.size, made.stride, dtype=made.dtype, device=made.device)
        if metadata(tangent) != recording.tangent:  # type: ignore[arg-type]
            return recorder.record(decompositions, tangent)
    return recording


class _Recorder:
    """Traces a range. `recorded` is what `make_fx` traces: inputs and tangent -> results and gradients."""

    def __init__(
        self, part: torch.fx.GraphModule, sample: Range, outputs: Sequence[int], runner: Runner, non_leaf: Any
    ) -> None:
        self.part, self.runner, self.non_leaf = part, runner, non_leaf
        self.values = [x.meta["val"] for x in sample.inputs]
        self.seen = tuple((x.requires_grad, x.is_leaf) for x in self.values)
        self.count = len(outputs)
        self.forward: set[torch.fx.Node] = set()
        self.edges = [0] * len(self.values)
        self.saves = False
        self.state: Key = ()

    def record(self, decompositions: Any, tangent: torch.Tensor | None) -> _Recording:
        """NotCopyable if the range cannot be copied."""
        inputs = [_like(x).detach() for x in self.values]
        tangents = [] if tangent is None else [tangent]
        given = tuple(metadata(x) for x in inputs)  # type: ignore[arg-type]
        graph = make_fx(self.recorded, decomposition_table=dict(decompositions or {}))(*inputs, *tangents).graph
        slots: dict[torch.fx.Node, int] = {}
        memory: dict[Any, tuple[int, int | None] | None] = {}
        steps, metas, forward = [], [], 0
        for node in graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                memory[node.meta["val"].untyped_storage()._cdata] = len(slots), None
            else:
                if node in self.forward:
                    forward += 1
                make = _constant if node.op == "get_attr" else step_of
                steps.append(make(node, slots, memory))
                metas.append({name: x for name, x in node.meta.items() if name not in ("val", "tensor_meta")})
            slots[node] = len(slots)
        found: list[Any] = [slots.get(x) for x in output_of(graph).args[0]]  # type: ignore[union-attr, arg-type]
        first = len(inputs) + len(tangents)
        results = found[: self.count]
        each = iter(found[self.count :])
        gradients = [next(each) if self.non_leaf and needed else None for needed, _ in self.seen]
        if any(slot is None or slot < first for slot in results):
            raise NotCopyable
        if any(needed and (slot is None or slot < len(inputs)) for (needed, _), slot in zip(self.seen, gradients)):
            if self.non_leaf is not None:
                raise NotCopyable
        return _Recording(
            _Given(given, self.seen, self.state), metadata(tangent) if tangent is not None else None,  # type: ignore[arg-type]
            tuple(steps), tuple(metas), forward, tuple(results), tuple(gradients), self.saves, tuple(self.edges),
        )  # fmt: skip

    def recorded(self, *args: torch.Tensor) -> list[Any]:
        functional = list(map(torch._to_functional_tensor, args))
        torch._enable_functionalization(reapply_views=True)
        try:
            return self._traced(functional)
        finally:
            torch._disable_functionalization()

    def _traced(self, args: list[torch.Tensor]) -> list[Any]:
        leaves = args[: len(self.values)]
        inputs = []
        for x, (requires_grad, is_leaf) in zip(leaves, self.seen):
            if requires_grad and self.non_leaf is not None:
                x.requires_grad_()
            inputs.append(x if is_leaf or self.non_leaf is None else self.non_leaf(x))
        self.state = thread_state()
        mode = proxy_tensor.get_proxy_mode()
        assert mode is not None
        if self.non_leaf is None:
            return [unwrapped(x) for x in self.runner(self.part, inputs).run(*inputs)]
        with KernelDtypes():
            (result,) = self.runner(self.part, inputs).run(*inputs)
        self.forward = set(mode.tracer.graph.nodes)
        if not result.requires_grad or result._is_view() or any(result is x for x in inputs):
            raise NotCopyable
        self._follow_edges(result, inputs)
        wanted = [x for x, (needed, _) in zip(leaves, self.seen) if needed]
        with torch._C._DisableAutocast(), KernelDtypes():
            found = torch.autograd.grad([result], wanted, args[len(leaves) :], allow_unused=True)
        return [unwrapped(result), *(None if x is None else unwrapped(x) for x in found)]

    def _follow_edges(self, result: torch.Tensor, inputs: Sequence[torch.Tensor]) -> None:
        """Set `edges` and `saves`. NotCopyable if the range has an `autograd.Function` of the program."""
        ends = {x.grad_fn: k for k, x in enumerate(inputs) if x.grad_fn is not None}
        leaves = {id(x): k for k, x in enumerate(inputs) if x.grad_fn is None}
        self.edges = [0] * len(inputs)
        self.saves = not saves_nothing(result, set(ends))
        seen, stack = {result.grad_fn}, [result.grad_fn]
        while stack:
            node: Any = stack.pop()
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                raise NotCopyable
            for source, _ in node.next_functions:
                k = ends.get(source) if source in ends else leaves.get(id(getattr(source, "variable", None)))
                if k is not None:
                    # autocast casts a leaf once for all of its uses
                    self.edges[k] += 2 if is_autocast_enabled() else 1
                elif source is not None and source not in seen:
                    seen.add(source)
                    stack.append(source)


def _like(x: torch.Tensor) -> torch.Tensor:
    """A new tensor with the metadata of `x`, in the current fake mode."""
    memory = torch.empty(x.untyped_storage().nbytes(), dtype=torch.uint8, device=x.device)
    empty = torch.empty(0, dtype=x.dtype, device=x.device)
    return empty.set_(memory.untyped_storage(), x.storage_offset(), x.shape, x.stride())


@dataclass(frozen=True)
class _Empty:
    """In the place of the operator of a `Step`: the node reads an empty tensor that the trace creates."""

    size: tuple[int, ...]
    dtype: torch.dtype


def _constant(
    node: torch.fx.Node, slots: Mapping[torch.fx.Node, int], memory: dict[Any, tuple[int, int | None] | None]
) -> Step:
    """The step of a node that reads a tensor which the program creates from numbers, such as an empty cache."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value.numel() or value.device.type != "cpu":
        raise NotCopyable
    made = made_of(value, (len(slots), None), memory)
    return Step(_Empty(tuple(value.shape), value.dtype), (), {}, "", made, node.meta.get("tensor_meta"))


def thread_state() -> Key:
    """What the trace of a range depends on besides its inputs."""
    casts = tuple([(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in DEVICES])
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    cached = torch.is_autocast_cache_enabled()
    keys = included.raw_repr(), excluded.raw_repr()
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), casts, cached, keys


# ---- copying


class _Call:
    """Takes the place of a range in the graph: returns the tuple of its results."""

    def __init__(self, recording: _Recording, sample: Range, each: Range) -> None:
        self.recording = recording
        self.__name__ = "range"
        # for the modules that the nodes of the sample come from, those of this range
        self.modules: dict[Any, Any] = {}
        for node, own in zip(sample.nodes, each.nodes):
            if "nn_module_stack" in node.meta:
                self.modules[_modules_key(node.meta)] = own.meta.get("nn_module_stack")

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """RangeDiffers if the range cannot be copied here."""
        global copied_ranges  # noqa: PLW0603
        given, recording = self.recording.given, self.recording
        training = recording.tangent is not None
        if thread_state() != given.state:
            raise RangeDiffers
        if training and tuple((x.requires_grad, x.is_leaf) for x in inputs) != given.seen:
            raise RangeDiffers
        copied_ranges += 1
        if training:
            found: torch.Tensor = _Copied.apply(self, *inputs)
            return (found,)
        copy = _Copy(self, [unwrapped(x) for x in inputs])
        copy.add(0, len(recording.steps))
        return tuple(copy.result(slot) for slot in recording.results)


class _Copied(torch.autograd.Function):
    """The autograd node of a range."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        if call.recording.saves:  # so that the node is known to have saved tensors
            ctx.save_for_backward(*inputs)
        copy = ctx.copy = _Copy(call, [unwrapped(x) for x in inputs])
        copy.add(0, call.recording.forward)
        return copy.result(call.recording.results[0])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if grad is None:
            raise RangeDiffers
        copy: _Copy = ctx.copy
        recording = copy.recording
        copy.set_tangent(unwrapped(grad))
        copy.add(recording.forward, len(recording.steps))
        last = copy.nodes[-1].meta
        if "stack_trace" in last:
            set_origin(last["stack_trace"], last.get("nn_module_stack"))
        tangent = recording.first - 1
        return None, *(
            None if slot is None else grad if slot == tangent else copy.result(slot) for slot in recording.gradients
        )


class _Copy:
    """A copy of a recording, in the graph that is being traced. `nodes`, `values`: of each slot."""

    def __init__(self, call: _Call, tensors: Sequence[Any]) -> None:
        mode = proxy_tensor.get_proxy_mode()
        assert mode is not None
        self.call, self.recording, self.tracer = call, call.recording, mode.tracer
        self.fake_mode = tensors[0].fake_mode
        self.nodes: list[torch.fx.Node] = []
        self.values: list[Any] = []
        for x, key in zip(tensors, self.recording.given.values, strict=True):
            self._give(x, key)

    def _give(self, x: Any, key: Key) -> None:
        with torch._C.DisableTorchFunction():
            try:
                if type(x) is not FakeTensor or metadata(x) != key:
                    raise RangeDiffers
                self.nodes.append(node_of(self.tracer, x))
            except NoKey:
                raise RangeDiffers from None
        self.values.append(x)

    def set_tangent(self, x: Any) -> None:
        """Insert the tangent, whose slot comes before those of the forward, which has been copied."""
        assert self.recording.tangent is not None
        self._give(x, self.recording.tangent)
        place = self.recording.first - 1
        self.nodes[place], self.values[place] = self.nodes.pop(), self.values.pop()

    def add(self, begin: int, end: int) -> None:
        """Copy the steps from number `begin` to `end`."""
        steps, metas = self.recording.steps[begin:end], self.recording.metas[begin:end]
        nodes, values = self.nodes, self.values
        if begin == 0 and self.recording.tangent is not None:  # the place of the tangent
            nodes.append(nodes[0])
            values.append(values[0])

        def filled(arg: Any) -> Any:
            return nodes[arg.index] if type(arg) is Slot else arg

        with (
            torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_FUNCTIONALIZE),
            in_kernel_invocation_manager(self.fake_mode), torch._C._DisablePythonDispatcher(),
        ):  # fmt: skip
            add_values(steps, values)
        graph = self.tracer.graph
        for step, meta, value in zip(steps, metas, values[self.recording.first + begin :]):
            if isinstance(step.target, _Empty):
                node = self._read_empty(step.target)
            else:
                args, kwargs = map_aggregate(step.args, filled), map_aggregate(step.kwargs, filled)
                node = graph.create_node("call_function", step.target, name=step.name)
                set_arguments(node, args, kwargs)
            node.meta.clear()
            node.meta.update(meta)
            if "nn_module_stack" in meta:
                node.meta["nn_module_stack"] = self.call.modules.get(_modules_key(meta), meta["nn_module_stack"])
            node.meta["val"] = fakes_of(step.value, value, self.fake_mode)
            if step.tensor_meta is not None:
                node.meta["tensor_meta"] = step.tensor_meta
            nodes.append(node)

    def _read_empty(self, empty: _Empty) -> torch.fx.Node:
        with _disable_current_modes(), torch._C._ExcludeDispatchKeyGuard(_FUNCTIONALIZE):
            node = self.tracer.create_arg(torch.empty(empty.size, dtype=empty.dtype))
        assert isinstance(node, torch.fx.Node)
        return node

    def result(self, slot: int) -> torch.Tensor:
        """The functional tensor of a step."""
        x = fakes_of(self.recording.steps[slot - self.recording.first].value, self.values[slot], self.fake_mode)
        set_proxy_slot(x, self.tracer, _ProxyTensor(self.tracer.proxy(self.nodes[slot]), None))
        return torch._to_functional_tensor(x)


def set_origin(line: str, modules: dict[str, Any] | None) -> None:
    """Nodes that are added from now on come from this line of the program and these modules."""
    torch.fx.traceback.set_stack_trace([line])
    meta = torch.fx.traceback.current_meta
    meta.pop("nn_module_stack", None)
    if modules is not None:
        meta["nn_module_stack"] = modules


def _modules_key(meta: Mapping[str, Any]) -> Any:
    return tuple(meta["nn_module_stack"])
