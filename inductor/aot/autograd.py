"""Wraps a compiled forward and backward in one `torch.autograd.Function`.

The function saves tensors for the backward, increments version counters after writes, puts the results together, and
falls back to eager for what the compiled backward does not support, such as second derivatives.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from ..autocast import is_autocast_enabled, without_autocast
from ..eager.operator_errors import run_with_aten
from ..extension import _C
from ..runtime.plan_py import refuse_inference
from ..runtime.related_results import Related, relating
from .absent_tangents import absent, any_nan
from .backward_stages import StagedBackward, StagedRun
from .calls_in_c import backward_in_c, call_in_c, taking
from .functionalize import version_of
from .gradient_buckets import DDP
from .input_fallback import Refused
from .joint import module_tensors, to_joint
from .nested import Maker, Nested
from .partition import partition
from .pruned_backward import PrunedBackwards
from .rerun import Rerun, added
from .result_groups import GradientsOf, function_apply, groups_of, per_group
from .results import Computed, Constant, Input, Result, View
from .stage_nodes import Found, StageNodes
from .tensor_hooks import watch_hooks
from .training_spec import Layout, TrainingSpec, describe

Compiled = Callable[..., list[torch.Tensor]]
InPieces = Callable[[Sequence[int], int], Callable[..., Any] | None]


def compile_training(
    gm: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    compile_graph: Callable[[torch.fx.GraphModule], Compiled],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """A callable that does what `gm` does on tensors like `inputs`, with autograd support.

    Forward and backward are ATen graphs. `compile_graph(graph)` compiles each of them to a callable that takes tensors
    and returns a list of tensors; it is called with gradients disabled. NotFunctional if `gm` cannot be compiled. Calls
    must happen under the same modes as now, autocast included; under a function transform, `gm` itself runs. Compiled
    random operators must draw the same numbers as eager, because a second derivative runs `gm` again.
    """
    joint = to_joint(gm, inputs, decompositions)
    halves = partition(joint)
    spec = describe(joint, halves)
    return wrap(Captured.of(gm, inputs), spec, compile_graph(halves.forward), compile_graph(halves.backward))


@dataclass(frozen=True)
class Captured:
    """A graph with `count` inputs, and the tensors of its module as returned by `module_tensors`.

    `tracked`: the numbers of those inputs and tensors that require gradients.
    """

    gm: torch.fx.GraphModule
    count: int
    attributes: tuple[torch.Tensor, ...]
    names: Mapping[str, int]
    tracked: frozenset[int]

    @staticmethod
    def of(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Captured:
        attributes, names = module_tensors(gm, inputs)
        given = enumerate((*inputs, *attributes))
        tracked = frozenset(i for i, x in given if isinstance(x, torch.Tensor) and x.requires_grad)
        return Captured(gm, len(inputs), attributes, names, tracked)


def wrap(
    captured: Captured, spec: TrainingSpec, forward: Compiled, backward: Compiled,
    in_pieces: InPieces | None = None, pruned: PrunedBackwards | None = None,
    in_stages: Callable[..., Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """Build the run-time part of `compile_training`: what happens at each call around the two compiled graphs.

    `forward` may raise Refused. `in_pieces(results, count)` compiles the graph, which has `count` flat results, in
    pieces that end at the results with these numbers; it returns None if it cannot. `pruned`: backwards for passes that
    reach only some results, where the graph cannot run again; None: there are none. `in_stages`: called with the inputs
    of the first call from DDP, for the callable that takes the place of this one in such calls; None: there is none.
    """
    gm, attributes = captured.gm, captured.attributes
    if is_autocast_enabled():
        forward = without_autocast(forward)
    if spec.tangents:
        rerun = Rerun(gm, captured.names, spec, captured.count)
        forward_of, gradients_of = _forward_of(spec, forward, rerun), _gradients_of(spec, backward, rerun, pruned)
        if isinstance(backward, StagedBackward) and not spec.nested:
            staged = _gradients_of(spec, backward, rerun, pruned, in_stages=True)
            apply: Callable[..., Any] = StageNodes(forward_of, staged, spec, backward.staging)
        else:
            apply = _one_node(forward_of, gradients_of, spec, backward)
        # results require a gradient even if every gradient is undefined, such as that of count_nonzero
        places = {gradient.place for gradient in spec.gradients} or captured.tracked
        unreached = captured.tracked - places
        apply = linked(apply, unreached)
        if (groups := groups_of(spec)) is not None:
            apply = per_group(apply, forward_of, gradients_of, spec, groups, unreached)
    else:
        apply = _no_gradient(spec, forward)
    eager = run_with_aten(gm)
    transformed = torch._C._are_functorch_transforms_active
    if spec.tangents and spec.nested:
        return _calls_nested(captured, spec, apply, rerun, in_pieces)
    finish = _finish(spec.results, spec.structure, spec.related)
    under_ddp = _Later(in_stages) if in_stages is not None else None

    def straight(*inputs: torch.Tensor) -> Any:
        if transformed():
            return gm(*inputs)
        if DDP._active_ddp_module is not None and under_ddp is not None:
            return under_ddp(*inputs)
        try:
            outputs = apply(*inputs, *attributes)
        except Refused:
            pass  # an error of `eager` must not have it as its context
        else:
            return finish((), outputs)
        return eager(*inputs)

    def call(*inputs: torch.Tensor) -> Any:
        if transformed():
            return gm(*inputs)
        if DDP._active_ddp_module is not None and under_ddp is not None:
            return under_ddp(*inputs)
        primals = (*inputs, *attributes)
        try:
            outputs = apply(*primals)
        except Refused:
            pass
        else:
            return finish(primals, outputs)
        return eager(*inputs)

    otherwise = call if any(isinstance(x, Input | View) for x in spec.results) else straight
    return call_in_c(apply, attributes, spec, finish, eager, otherwise)


class _Later:
    """A function that `make` creates from the arguments of the first call."""

    def __init__(self, make: Callable[..., Callable[..., Any]]) -> None:
        self.make = make
        self.made: Callable[..., Any] | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        if self.made is None:
            self.made = self.make(*inputs)
        return self.made(*inputs)


def _calls_nested(
    captured: Captured, spec: TrainingSpec, apply: Callable[..., Any], rerun: Rerun,
    in_pieces: InPieces | None,
) -> Callable[..., Any]:
    """The callable for a graph that computes results from other results (see `nested`)."""
    gm, attributes = captured.gm, captured.attributes
    eager, transformed = run_with_aten(gm), torch._C._are_functorch_transforms_active
    ends = sorted({i for level in spec.nested for i in level.sources})
    make = functools.partial(in_pieces, ends, len(spec.results)) if in_pieces is not None else None
    views = [isinstance(result, View) for result in spec.results]
    nested = Nested(spec.nested, list(map(_maker, spec.results)), views, rerun, make)
    relate = relating(spec.related)

    def call(*inputs: torch.Tensor) -> Any:
        if transformed():
            return gm(*inputs)
        if nested.asked and (pieces := nested.compiled()) is not None:
            return pieces(*inputs)
        primals = (*inputs, *attributes)
        try:
            outputs = apply(*primals)
        except Refused:
            pass
        else:
            return pytree.tree_unflatten(relate(nested(primals, outputs), primals), spec.structure)
        return eager(*inputs)

    return call


_STRIDED = torch.strided
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_NONE: frozenset[int] = frozenset()
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # gradients under `is_grads_batched`
_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}  # the types of gradients that a compiled backward accepts



def _finish(results: Sequence[Result], structure: pytree.TreeSpec, related: Sequence[Related]) -> Maker:
    """A function that assembles the results of a call from the inputs and the tensors that the forward computed."""
    makers = [_maker(result) for result in results]
    if related:
        relate = relating(related)
        return lambda primals, outputs: pytree.tree_unflatten(
            relate([make(primals, outputs) for make in makers], primals), structure
        )
    if structure.is_leaf():
        return makers[0]
    if structure.type is tuple and all(child.is_leaf() for child in structure.children()):
        if results == tuple(map(Computed, range(len(results)))):
            return lambda primals, outputs: outputs[: len(makers)]
        return lambda primals, outputs: tuple([make(primals, outputs) for make in makers])
    return lambda primals, outputs: pytree.tree_unflatten([make(primals, outputs) for make in makers], structure)


def _maker(result: Result) -> Maker:
    match result:
        case Constant(value):
            return lambda primals, outputs: value
        case Computed(index):
            return lambda primals, outputs: outputs[index]
        case Input(index):
            return lambda primals, outputs: primals[index]
        case View():
            return lambda primals, outputs: _view(result, primals, outputs)


def _view(view: View, primals: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    base = (outputs if isinstance(view.base, Computed) else primals)[view.base.index]
    offset = base.storage_offset() + view.offset
    if view.grad:
        new = base.as_strided(view.size, view.stride, offset)
        if view.one_of_many and new._is_view():
            _set_creation(new, _MULTIPLE)
        return new
    with torch.no_grad():
        new = base.as_strided(view.size, view.stride, offset)
    if not view.tracked:
        return new.detach() if view.counted else new.data
    if view.recordable and new._is_view():
        _set_creation(new, _DEFAULT)
    return new


_set_creation = torch._C._autograd._set_creation_meta
_MULTIPLE = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
_DEFAULT = torch._C._autograd.CreationMeta.DEFAULT


def bump(x: torch.Tensor, version: int) -> None:
    """Increment the version counter of `x` if it is still `version`, as kernels write unseen by autograd. RuntimeError
    for an inference tensor, as in eager."""
    if x.is_inference():
        refuse_inference([x])
    elif x._version == version:
        torch.autograd.graph.increment_version(x)


def _writing(spec: TrainingSpec, forward: Compiled) -> Compiled:
    """`forward`, which also increments the version counters of the inputs that it writes."""
    writes = [i for i in spec.writes if i not in spec.uncounted]
    if not writes:
        return forward

    def run(*primals: torch.Tensor) -> list[torch.Tensor]:
        before = [version_of(primals[i]) for i in writes]
        outputs = forward(*primals)
        for i, version in zip(writes, before):
            bump(primals[i], version)
        return outputs

    return run


def _no_gradient(spec: TrainingSpec, forward: Compiled) -> Callable[..., Any]:
    run = _writing(spec, forward)

    def apply(*primals: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return tuple(run(*primals))

    return apply


def linked(apply: Callable[..., Any], unreached: frozenset[int]) -> Callable[..., Any]:
    """`apply`, with the inputs in `unreached` detached: no result depends on them. In eager they are not part of the
    autograd graph; here a backward pass would also run their history, perhaps a second time."""
    if not unreached:
        return apply

    def call(*primals: torch.Tensor) -> Any:
        return apply(*[x.detach() if i in unreached else x for i, x in enumerate(primals)])

    return call


def _pick(indices: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return operator.itemgetter(*indices) if indices else lambda values: ()


def _forward_of(spec: TrainingSpec, forward: Compiled, rerun: Rerun) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The forward of the graph's autograd node: (ctx, *primals) -> the returned tensors."""
    run, hold, views, nested = _writing(spec, forward), rerun.hold, spec.views, bool(spec.nested)
    counts_freed = bool(spec.conflicts)
    inputs, returned = _pick(spec.saved.inputs), _pick(spec.saved.returned)
    count, differentiable, separable = len(spec.origins), len(spec.tangents), rerun.separable
    if _C is not None and not nested and not views:
        return _C.NodeForward(
            run, hold, rerun.holds_versions, separable, counts_freed, tuple(rerun.watched), tuple(rerun.loose),
            tuple(spec.saved.inputs), tuple(spec.saved.returned), count, differentiable,
        )

    def save(ctx: Any, *primals: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.held = hold(primals)
        if nested:
            ctx.direct = None
        if counts_freed:
            ctx.freed = _NONE
        outputs = run(*primals)
        for k in views:  # autograd refuses writes to a view that a custom function returns
            outputs[k] = outputs[k].detach()
        if separable:
            ctx.versions = [x._version for x in returned(outputs)]
        ctx.save_for_backward(*inputs(primals), *returned(outputs), *outputs[count:])
        returned_ones = tuple(outputs[:count])
        ctx.mark_non_differentiable(*returned_ones[differentiable:])
        ctx.set_materialize_grads(False)
        return returned_ones

    return save


def _gradients_of(
    spec: TrainingSpec, backward: Compiled, rerun: Rerun, pruned: PrunedBackwards | None, in_stages: bool = False
) -> Any:
    """The backward of the graph's autograd node, see GradientsOf; with `in_stages`, see StagedGradientsOf."""
    gradients, conflicts = _Gradients(spec, backward), spec.conflicts
    begin = gradients.begin if in_stages else gradients  # under `is_grads_batched`, a call raises where vmap fails
    saves = bool(spec.saved.inputs or spec.saved.returned or spec.saved.kept)

    def freed_but_unneeded(ctx: Any, tangents: Sequence[torch.Tensor | None], last: bool) -> bool:
        """Whether earlier backward passes have freed the saved tensors, but in eager nothing that this one needs.
        Records what this one frees."""
        given = [k for k, x in enumerate(tangents) if x is not None]
        earlier = ctx.freed
        if last and not _keeps_graph():
            ctx.freed = earlier.union(given)
        return bool(earlier) and all(earlier.isdisjoint(conflicts[k]) for k in given)

    def without_absent(ctx: Any, tangents: Sequence[torch.Tensor | None]) -> _Gradients | None:
        """A backward that does not compute with zeros in the place of undefined gradients; None if zeros do no harm, if
        the graph can run again instead, or if there is no such backward."""
        if pruned is None or not absent((*spec.not_zero, *spec.products), tangents) or rerun.can_run(ctx):
            return None
        compiled = pruned(tangents)
        return None if compiled is None else _Gradients(spec, compiled)

    def found(
        ctx: Any, tangents: Sequence[torch.Tensor | None], last: bool, error: RuntimeError | None = None
    ) -> Found:
        unneeded = bool(conflicts) and freed_but_unneeded(ctx, tangents, last)
        if torch.is_grad_enabled() or not _PLAIN.issuperset(map(type, tangents)):
            return rerun(ctx, tangents, check=not unneeded)
        if any(x is not None and x.layout is not _STRIDED for x in tangents) and rerun.can_run(ctx):
            return rerun(ctx, tangents)  # the gradients of inputs may be sparse, too
        partial = rerun.partial and any(x is None for x in tangents)
        exact = without_absent(ctx, tangents) if partial else None
        if exact is None and partial and absent(spec.not_zero, tangents):
            what = "a backward of some results, where an autograd.Function belongs to the others,"
            return rerun(ctx, tangents, what=what)
        try:
            if error is not None:
                raise error
            given = list(ctx.saved_tensors)
        except RuntimeError:  # freed, or written since; eager raises an error too if it needs the tensor
            if rerun.spared(ctx, tangents):
                return rerun(ctx, tangents, check=False)
            if not unneeded or saves and not rerun.can_run(ctx):
                raise
            if saves:
                return rerun(ctx, tangents, check=False)
            given = []
        if last:
            ctx.maybe_clear_saved_tensors()  # frees each saved tensor after its last use, unless the graph is retained
        try:
            whole = partial or in_stages and any(x is not None and _is_batched(x) for x in tangents)
            computed: Any = (exact or (gradients if whole else begin))(given, tangents)
        except RuntimeError:
            if any(x is not None and _is_batched(x) for x in tangents):  # the compiled backward cannot take these
                return rerun(ctx, tangents, check=False)
            raise
        if exact is None and partial and absent(spec.products, tangents) and any_nan(computed):
            return rerun.without_zeros(ctx, tangents, computed)
        return computed

    def found_and_direct(
        ctx: Any, tangents: Sequence[torch.Tensor | None], last: bool
    ) -> Found:
        if ctx.direct is None:
            return found(ctx, tangents, last)
        task, direct = ctx.direct
        if last:
            ctx.direct = None
        computed: Any = found(ctx, tangents, last)
        return added(computed, direct) if task == torch._C._current_graph_task_id() else computed

    return found_and_direct if spec.nested else found


def _one_node(
    forward_of: Callable[..., Any], gradients_of: GradientsOf, spec: TrainingSpec, backward: Compiled
) -> Callable[..., Any]:
    """A function that runs the graph and makes one autograd node for all of its results and inputs."""
    differentiable = len(spec.tangents)

    class CompiledGraph(torch.autograd.Function):
        forward = staticmethod(forward_of)

        @staticmethod
        def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            return gradients_of(ctx, tangents[:differentiable], True)

    if len(spec.origins) > 1:
        watch_hooks(CompiledGraph, record=bool(spec.nested))
    backward_in_c(CompiledGraph, gradients_of, spec, backward)
    return function_apply(CompiledGraph)


class _Gradients:
    """Calls the compiled backward with the saved tensors, whose list it consumes. Converts the tangents to the layouts
    that it expects, and puts each gradient at the position of its input."""

    def __init__(self, spec: TrainingSpec, backward: Compiled) -> None:
        self.backward, self.whole = taking(backward), backward
        self.layouts, self.gradients, self.count = spec.tangents, spec.gradients, spec.primals

    def __call__(
        self, given: list[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor | None, ...]:
        self._complete(given, tangents)
        found: list[torch.Tensor | None] = [None] * self.count
        for gradient, value in zip(self.gradients, self.backward(given)):
            found[gradient.place] = value.conj() if gradient.conjugated else value
        if any(x is None for x in tangents):  # an input that affects only results without a tangent has no gradient
            for gradient in self.gradients:
                if all(tangents[k] is None for k in gradient.tangents):
                    found[gradient.place] = None
        return tuple(found)

    def begin(self, given: list[torch.Tensor], tangents: Sequence[torch.Tensor | None]) -> StagedRun:
        """Like a call, for a backward in stages: none of them has run when this returns."""
        self._complete(given, tangents)
        assert isinstance(self.whole, StagedBackward)
        return self.whole.begin(given)

    def _complete(self, given: list[torch.Tensor], tangents: Sequence[torch.Tensor | None]) -> None:
        """Add the tangents to the saved tensors."""
        given += [placed(x, layout) for x, layout in zip(tangents, self.layouts)]


def placed(x: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """A gradient as a strided tensor of this layout, whatever kind of tensor autograd passes; None means zeros."""
    if x is not None and x.layout is not torch.strided:
        x = x.to_dense()
    if x is not None and x.stride() == layout.stride and not (x.is_conj() or x.is_neg() or torch._is_zerotensor(x)):
        return x
    buffer = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=layout.device)
    return buffer.zero_() if x is None else buffer.copy_(x)
