"""Traces forward and backward of a torch-level graph into one joint ATen graph without mutation.

The trace runs autograd itself on functional fake tensors, so autograd's own rules define the backward, which inputs
have no gradient, and what is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from ..autocast import is_autocast_enabled
from ..fx_utils.arguments import joint_results, output_of, tensors_in
from ..fx_utils.dead_code import remove_unused
from ..runtime.related_results import Related
from .absent_tangents import not_zero_at_zero, products_with_data, reached_by
from .fake import fake_mode, forget_tensors, make_fx
from .functional_tensors import sync_gradients, unwrapped
from .functionalize import (
    GraphRun,
    NotFunctional,
    attributes_of,
    refuse_fixed_offsets,
    refuse_shared_writes,
    version_of,
)
from .kernel_dtypes import KernelDtypes
from .levels import AutogradGraph, Level, conflicts, levels, reaching, saves_nothing
from .memory import is_random, separate_memory
from .plain_memory import computed_values
from .regions import is_copied_range, repeats_of, set_origin, trace_repeats_once
from .results import Computed, ForwardOutputs, InputState, RecordedWrites, Result, View, classify, dense
from .unused import check_unused


@dataclass(frozen=True)
class JointGraph:
    """`graph(*inputs, *attributes, *tangents)` returns three lists: `[returned, written, gradients]`.

    `returned`: the tensors that the forward computes, each with memory of its own. The first len(tangents) are
    differentiable; the tangents are their gradients, in the same order, with the strides in `tangents`.
    `written[k]`: the final value of input `writes[k]`, to be copied into it unseen by autograd.
    `gradients[i]`: the gradient of input i, None if it has none.
    `uncounted`: those of `writes` whose version counters stay the same, because the program writes through `x.data`.
    `results`: how each flat result of the graph is obtained; `structure`: their pytree.
    `origins[k]`: (n, is_base): flat result n is returned[k], or a view whose base is returned[k]; None if there is
    none.
    `nested`: the returned tensors that are computed from results. `conflicts`: per tangent, see
    `levels.conflicts`.
    `reaching[i]`: the numbers of the tangents whose results autograd connects to input i, even where its gradient is
    zero whatever they are, as that of `sgn`; empty if there is only one tangent.
    `products`, `not_zero`: sets of tangents, see `products_with_data` and `not_zero_at_zero` of `absent_tangents`.
    `own`: for each `autograd.Function` of the program in the graph, the set of tangents that its backward depends on.
    `related`: steps for `related_results` after all results are made.
    `conjugated`: inputs for which the graph returns the conjugate of the gradient; in eager its conj bit is set.
    `permanent`: which inputs and attributes stay alive anyway: parameters and tensors of the module.
    `names`: maps each name of a module tensor to its position in (*inputs, *attributes).
    """

    graph: torch.fx.GraphModule
    attributes: tuple[torch.Tensor, ...]
    names: Mapping[str, int]
    permanent: tuple[bool, ...]
    tangents: tuple[torch.Tensor, ...]
    writes: tuple[int, ...]
    results: tuple[Result, ...]
    origins: tuple[tuple[int, bool] | None, ...]
    structure: pytree.TreeSpec
    conjugated: frozenset[int] = frozenset()
    nested: tuple[Level, ...] = ()
    uncounted: tuple[int, ...] = ()
    conflicts: tuple[tuple[int, ...], ...] = ()
    reaching: tuple[tuple[int, ...], ...] = ()
    products: tuple[int, ...] = ()
    not_zero: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    related: tuple[Related, ...] = ()


@dataclass(frozen=True)
class VaryingInputs:
    """Fake copies of the inputs of a graph, with symbols for varying sizes and for ints, and their mode."""

    fakes: Sequence[Any]
    mode: FakeTensorMode


def to_joint(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    varying: VaryingInputs | None = None,
    tensors: tuple[tuple[torch.Tensor, ...], Mapping[str, int]] | None = None,
) -> JointGraph:
    """Trace `gm` and its gradients on fake copies of `inputs`, which stay unchanged.

    `varying`: what to trace instead where sizes or ints vary. Numbers are then not graph nodes but symbols in arguments
    and results, which forward and backward both know. Random operators are not decomposed, so that they draw eager's
    numbers. `tensors`: what `module_tensors` returned for the original inputs, if `inputs` are
    fake copies of them. NotFunctional if the graph cannot be compiled, for example because eager raises an error;
    RecordedWrites says where the graph has to be split.
    """
    if varying is None and not all(isinstance(x, torch.Tensor) for x in inputs):
        raise NotFunctional("an input is not a tensor")
    attributes, names = tensors or module_tensors(gm, inputs)
    given = (*(inputs if varying is None else varying.fakes), *attributes)
    if varying is not None:
        mode = varying.mode
    else:
        mode = next((x.fake_mode for x in given if isinstance(x, FakeTensor)), None) or fake_mode()
    primals = (*inputs, *attributes)
    fakes = [mode.from_tensor(x, static_shapes=True) if _is_real(x) else x for x in given]
    forget_tensors(mode)
    table = {op: fn for op, fn in (decompositions or {}).items() if not is_random(op)}
    grads = list(map(_grad_state, primals))

    def traced(gm: torch.fx.GraphModule) -> tuple[_Trace, torch.fx.GraphModule]:
        trace = _Trace(gm, len(inputs), names, grads)
        return trace, make_fx(trace, decomposition_table=table)(*given_inputs)

    with _tracing(), mode:
        given_inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in fakes]
        try:
            trace, graph = trace_repeats_once(gm, traced, _part_of_training, table, repeats_of(gm), _NonLeaf.apply)
            refuse_fixed_offsets(graph)
            _refuse_sparse(graph)
            graph = computed_values(graph, given_inputs)
            _check_unused(graph.graph)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise NotFunctional(f"the backward pass depends on data: {error}") from error
        except RuntimeError as error:
            raise NotFunctional(f"eager raises an error here: {error}") from error
    if graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mkldnn_rnn_layer.default):
        # traced as inference: its backward needs a workspace whose size only the operator knows
        raise NotFunctional("gradients of an LSTM on the CPU are oneDNN's own")
    if varying is not None:
        _numbers_inline(graph)
    finals = trace.finals
    writes = tuple(i for i, _ in finals.written)
    refuse_shared_writes(graph, primals, writes)
    separate_memory(graph, trace.returned, writes)
    tangents = graph.graph.find_nodes(op="placeholder")[len(primals) :]
    permanent = tuple(
        i >= len(inputs) or not isinstance(x, torch.Tensor) or (x.requires_grad and x.is_leaf)
        for i, x in enumerate(primals)
    )
    return JointGraph(
        graph,
        attributes,
        names,
        permanent,
        tuple(node.meta["val"] for node in tangents),
        writes,
        finals.results,
        finals.origins,
        finals.structure,
        trace.conjugated,
        trace.nested,
        finals.uncounted,
        trace.conflicts,
        trace.reaching,
        *_where_absent(graph, tangents, trace.own),
        trace.own,
        finals.related,
    )


def _where_absent(
    graph: torch.fx.GraphModule, tangents: Sequence[torch.fx.Node], own: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`products` and `not_zero` of JointGraph."""
    if len(tangents) <= 1:
        return (), ()
    reached = reached_by(graph.graph, tangents)
    return products_with_data(reached), not_zero_at_zero(reached, own)


def _refuse_sparse(gm: torch.fx.GraphModule) -> None:
    """NotFunctional if a value of the joint graph is not strided; some gradients are sparse."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            raise NotFunctional(f"a tensor of layout {value.layout} in the backward pass")


def _is_real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor)


def _grad_state(x: Any) -> tuple[bool, bool]:
    return (x.requires_grad, x.is_leaf) if isinstance(x, torch.Tensor) else (False, True)


def _check_unused(graph: torch.fx.Graph) -> None:
    """Add the checks for unused results of the forward, before the nodes that represent the tangents."""
    returned, written, _, tangents = joint_results(graph)
    given = set(tangents)
    end = next((n for n in graph.nodes if n in given), output_of(graph))
    check_unused(graph, (*returned, *written), end)


def _numbers_inline(gm: torch.fx.GraphModule) -> None:
    """Replace nodes whose values are symbolic numbers by these numbers."""

    def number(node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        return value if isinstance(value, torch.SymInt | torch.SymFloat) else node

    for node in gm.graph.nodes:
        if any(number(x) is not x for x in node.all_input_nodes):
            node.args, node.kwargs = torch.fx.map_arg((node.args, node.kwargs), number)
    remove_unused(gm.graph)


def module_tensors(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> tuple[tuple[torch.Tensor, ...], dict[str, int]]:
    """The tensors of the module, each once, and the position of each name's tensor among the primals."""
    index = {id(x): i for i, x in enumerate(inputs)}
    values: list[torch.Tensor] = []
    names: dict[str, int] = {}
    tied = [*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False)]
    for name, value in (*attributes_of(gm), *tied, *_constants(gm)):
        if id(value) not in index:
            index[id(value)] = len(inputs) + len(values)
            values.append(value)
        names[name] = index[id(value)]
    return tuple(values), names


def _constants(gm: torch.fx.GraphModule) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that the graph reads from the module with `get_attr`; they need not be parameters or buffers."""
    for node in gm.graph.find_nodes(op="get_attr"):
        value: Any = gm
        for part in node.target.split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            yield node.target, value


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    ambient = is_autocast_enabled()
    try:
        with (
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(False),
            torch.fx.traceback.preserve_node_meta(),
            enable_python_dispatcher(),
        ):
            yield
    finally:
        if ambient:  # casts of the trace's parameters would stay in autocast's cache until the region ends
            torch.clear_autocast_cache()


class _NonLeaf(torch.autograd.Function):
    """Returns the same value as the result of an operator, because autograd refuses in-place writes to leaves."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # an undefined gradient, such as that of norm(p=0), must not become zeros
        return torch._to_functional_tensor(torch._from_functional_tensor(leaf))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> torch.Tensor | None:
        return grad


class _TrainingRun(GraphRun):
    """Runs the graph, and marks what autograd nodes compute in the backward with the user's line of the forward.
    `recorded`: names of nodes that change more about an input than its elements."""

    def __init__(self, gm: torch.fx.GraphModule, state: dict[str, torch.Tensor], primals: Sequence[Any]) -> None:
        super().__init__(gm, state)
        self.primals = [x for x in primals if isinstance(x, torch.Tensor)]
        self.states = list(map(InputState.of, self.primals))
        self.marks = list(map(_mark, self.primals))
        self.recorded: list[str] = []
        self.seen: set[Any] = {x.grad_fn for x in self.primals}
        self.copied: set[Any] = set()  # autograd nodes of ranges whose nodes are copied, with their lines

    def run_node(self, n: torch.fx.Node) -> Any:
        given = [x for x in map(self.env.get, n.all_input_nodes) if isinstance(x, torch.Tensor)]
        versions = [x._version for x in given if not x.is_inference()]
        result = super().run_node(n)
        if versions != [x._version for x in given if not x.is_inference()]:
            changed = self._update_states(given)
            if changed or any(map(torch._functionalize_was_storage_changed, self.primals)):
                self.recorded.append(n.name)
        line: str | None = n.meta.get("stack_trace")
        modules: dict[str, Any] | None = n.meta.get("nn_module_stack")
        if is_copied_range(n):
            self.copied.update(x.grad_fn for x in tensors_in(result))
            self.seen |= self.copied
        stack = [x.grad_fn for x in tensors_in(result)]
        while stack:
            step = stack.pop()
            if step is not None and step not in self.seen:
                self.seen.add(step)
                step.register_prehook(sync_gradients)
                if line is not None:
                    step.register_prehook(lambda _, line=line: set_origin(line, modules))
                stack.extend(source for source, _ in step.next_functions)
        return result

    def _update_states(self, written: Sequence[torch.Tensor]) -> bool:
        """Update `states` after a node that writes to some of the tensors `written`; whether any state changed. The
        state of an input is read again only if the node takes it or its mark changed, since there may be many."""
        marks, ids = list(map(_mark, self.primals)), set(map(id, written))
        changed = False
        for k, (x, old, new) in enumerate(zip(self.primals, self.marks, marks)):
            if old != new or id(x) in ids:
                state = InputState.of(x)
                changed, self.states[k] = changed or state != self.states[k], state
        self.marks = marks
        return changed


def _mark(x: torch.Tensor) -> tuple[int, bool]:
    """Differs before and after any write to a functional tensor or to a view of it."""
    return version_of(x), x.requires_grad


def _part_of_training(part: torch.fx.GraphModule, inputs: Sequence[Any]) -> _TrainingRun:
    return _TrainingRun(part, {}, inputs)


class _Trace:
    """The function that make_fx traces: primals -> [returned, written, gradients, tangents]. Sets `finals` and the
    other attributes declared below."""

    finals: ForwardOutputs
    conjugated: frozenset[int]
    nested: tuple[Level, ...]
    conflicts: tuple[tuple[int, ...], ...] = ()
    reaching: tuple[tuple[int, ...], ...] = ()
    own: tuple[int, ...] = ()
    returned: list[InputState]

    def __init__(
        self, gm: torch.fx.GraphModule, count: int, names: Mapping[str, int], grads: list[tuple[bool, bool]]
    ) -> None:
        self.gm, self.count, self.names, self.grads = gm, count, names, grads

    def __call__(self, *inputs: Any) -> list[Any]:
        leaves = [torch._to_functional_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        torch._enable_functionalization(reapply_views=True)
        try:
            return self._joint(leaves)
        finally:
            torch._disable_functionalization()

    def _joint(self, leaves: list[Any]) -> list[Any]:
        primals = []
        for x, (requires_grad, is_leaf) in zip(leaves, self.grads):
            if requires_grad:
                x.requires_grad_()
            primals.append(x if is_leaf else _NonLeaf.apply(x))
        state = {name: primals[i] for name, i in self.names.items()}
        before = [InputState.of(x) if isinstance(x, torch.Tensor) else None for x in primals]
        versions = list(map(version_of, primals))
        run = _TrainingRun(self.gm, state, primals)
        with KernelDtypes():
            result = run.run(*primals[: self.count])
        if run.recorded:
            raise RecordedWrites(run.recorded)
        values, structure = pytree.tree_flatten(result)
        finals = self.finals = classify(values, structure, primals, before)
        finals.uncounted = tuple(i for i, x in finals.written if version_of(x) == versions[i])
        history = self._relations(finals, values, primals, run.copied)
        # taken before functionalization applies pending writes, which may change the strides
        self.returned = [InputState.of(x) for x in finals.returned]
        with torch._C._DisableAutocast():  # as in eager, where backward() is called outside of the region
            tangents = [_tangent(x) for x in finals.returned[: finals.differentiable]]
            seen = [x for x in (*primals, *finals.returned, *tangents) if isinstance(x, torch.Tensor)]
            values_before = list(map(unwrapped, seen))
            wanted = [x for x, (requires_grad, _) in zip(leaves, self.grads) if requires_grad]
            found: Sequence[Any] = [None] * len(wanted)
            if tangents and wanted:
                outputs = finals.returned[: len(tangents)]
                try:
                    with KernelDtypes():
                        found = torch.autograd.grad(outputs, wanted, tangents, allow_unused=True)
                except IndexError as error:  # of an operator; see `to_joint` for RuntimeError
                    raise NotFunctional(f"eager raises an error here: {error}") from error
            if any(unwrapped(x) is not value for x, value in zip(seen, values_before)):
                raise NotFunctional("the backward pass writes to an input, a result or the gradient of a result")
            if len(tangents) > 1:
                self.reaching = reaching(history, leaves)
        finals.tangents = tangents
        each = iter(found)
        placed = [next(each) if requires_grad else None for requires_grad, _ in self.grads]
        self.conjugated = frozenset(i for i, x in enumerate(placed) if x is not None and x.is_conj())
        gradients = [unwrapped(x.conj() if x is not None and x.is_conj() else x) for x in placed]
        returned = [unwrapped(x) for x in finals.returned]
        return [returned, [unwrapped(x) for _, x in finals.written], gradients, [unwrapped(x) for x in tangents]]

    def _relations(
        self, finals: ForwardOutputs, values: Sequence[Any], primals: Sequence[Any], copied: set[Any]
    ) -> AutogradGraph:
        """The autograd graph of the differentiable results; sets `nested`, `conflicts` and `own`. Empty if
        there is nothing to find: no two results. `copied`: autograd nodes that are none of the program."""
        self.nested = ()
        given = {x.grad_fn for x in primals if isinstance(x, torch.Tensor)}
        if finals.differentiable == 1 and saves_nothing(finals.returned[0], given):
            self.conflicts = ((),)
        if len(values) <= 1 or not finals.differentiable:
            return AutogradGraph.of(())
        history = AutogradGraph.of(finals.returned[: finals.differentiable])
        self.nested = tuple(levels(history, _sources(finals, values)))
        if finals.differentiable > 1:
            self.conflicts = conflicts(history, given)
            self.own = history.mark_own(given | copied)
            history.watch_undefined()
        return history


def _sources(finals: ForwardOutputs, values: Sequence[Any]) -> list[tuple[torch.Tensor | None, int | None]]:
    """The flat results as `levels` wants them."""
    sources: list[tuple[torch.Tensor | None, int | None]] = []
    for value, result in zip(values, finals.results):
        match result:
            case Computed(index) | View(Computed(index), grad=True):
                sources.append((value, index))
            case View(grad=True):
                sources.append((value, None))
            case _:
                sources.append((None, None))
    return sources


def _tangent(x: torch.Tensor) -> torch.Tensor:
    """A placeholder for the gradient of x, with the strides of x if x has no gaps."""
    size, stride = x.shape, x.stride()
    if dense(x.shape, x.stride()):
        return torch.empty_strided(size, stride, dtype=x.dtype, device=x.device)
    return torch.empty(size, dtype=x.dtype, device=x.device)
