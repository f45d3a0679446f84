"""The stages of the compiler, in order: a torch-level graph becomes an ATen graph, loop IR, groups of loops, and
finally an artifact, which holds a plan and the source of its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .aot.backward_stages import Staging, split_backward
from .aot.decompositions import decompositions
from .aot.functionalize import AtenGraph, to_aten
from .aot.gradient_buckets import BucketSizes
from .aot.joint import JointGraph, VaryingInputs, to_joint
from .aot.partition import Halves, partition
from .aot.random import seeded
from .aot.training_decompositions import training_decompositions
from .aot.training_spec import TrainingSpec, describe
from .artifact import Artifact, TrainingArtifact, show_code
from .assembly import build_kernels
from .codegen import Source, codegen
from .compile_report import CompileReport
from .fx_utils.arguments import results_of
from .ir.printer import print_graph
from .log.programs import note
from .log.stages import show
from .lower import lower_graph, separate_results
from .options import DEFAULT, CompileOptions
from .passes import run_half_passes, run_joint_passes, run_passes
from .process.compile_lock import without_lock
from .process.import_stubs import stub_torch_compiler
from .runtime.fold import Fold
from .runtime.plan import Form
from .runtime.plan_spec import OutputRef
from .runtime.processes import Processes
from .runtime.triton_build import StoredKernel
from .schedule import print_schedule, schedule
from .schedule.depthwise_gradient import with_depthwise_gradients
from .schedule.flex_attention import with_flex_attention
from .schedule.row_attention import with_row_attention
from .schedule.settled import mark_settled
from .schedule.shared_rows import with_shared_rows
from .transforms import Transform, apply_to_aten

if TYPE_CHECKING:
    from .dynamic.symbols import Sized

BUILDERS = 8  # forward and stages of a backward whose kernels are built at the same time


def generate(
    gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport, options: CompileOptions = DEFAULT,
    prepare: Callable[[fx.GraphModule], Any] = lambda aten: None,
    frozen: Sequence[int] = (),
) -> Artifact:
    """The artifact of a graph without gradients, for the sizes of `inputs`. `prepare` may change the ATen graph before
    anything is done with it. `frozen`: the positions of the inputs, attributes included, that are constants."""
    with report.phase("aot"):
        aten = to_aten(gm, inputs, decompositions())
        prepare(aten.graph)
        aten = _transformed(aten, options)
    with report.phase("passes"):
        seeded(aten.graph)
        graph, fold = _rewritten(aten, frozen, options)
    artifact = generate_aten(
        graph, aten.shared, aten.structure, report, options, aten.views, aten.uncounted, captured=gm.graph
    )
    return replace(artifact, related=aten.related, fold=fold)


def _rewritten(
    aten: AtenGraph, frozen: Sequence[int], options: CompileOptions
) -> tuple[fx.GraphModule, Fold | None]:
    """The graph after all passes, and how its constants are computed. `frozen`: positions of the inputs that are
    constants."""
    if not frozen:
        return run_passes(aten.graph, aten.shared, buckets=options.bucket_collectives), None
    from .passes import freezing  # imported only if it is used
    from .passes.onednn import products_of_onednn

    inputs = list(aten.graph.graph.find_nodes(op="placeholder"))
    constant = [inputs[i] for i in frozen]
    freezing.fold_batch_norms(aten.graph, constant)
    products_of_onednn(aten.graph, freezing.constants_of(aten.graph.graph, constant))
    known = freezing.constants_of(aten.graph.graph, constant)
    graph = run_passes(aten.graph, aten.shared, buckets=options.bucket_collectives, constant=known)
    freezing.pack_weights(graph, constant)
    return graph, freezing.split_constants(graph, constant)


def _transformed(aten: AtenGraph, options: CompileOptions) -> AtenGraph:
    """A graph after the user's transforms."""
    note("aten", aten.graph)
    return replace(aten, graph=apply_to_aten(options.transforms, "aten", aten.graph))


def generate_sizes(
    gm: fx.GraphModule, sized: Sized, report: CompileReport, options: CompileOptions = DEFAULT,
    prepare: Callable[[fx.GraphModule], Any] = lambda aten: None,
    frozen: Sequence[int] = (),
) -> Artifact:
    """Like `generate`, for all sizes that satisfy the assumptions made while compiling."""
    with stub_torch_compiler:
        with report.phase("aot"):
            aten = to_aten(gm, sized.fakes, decompositions(), sized.symbols.mode)
            prepare(aten.graph)
            aten = _transformed(aten, options)
        with report.phase("passes"):
            seeded(aten.graph)
            graph, fold = _rewritten(aten, frozen, options)
            sized.substitute(graph)
    artifact = generate_aten(
        graph, aten.shared, aten.structure, report, options, aten.views, aten.uncounted, captured=gm.graph
    )
    return replace(artifact, program=sized.symbols.program(), related=aten.related, fold=fold)


def generate_training(
    gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport, sized: Sized | None,
    options: CompileOptions = DEFAULT, buckets: BucketSizes | None = None,
) -> TrainingArtifact:
    """The artifact of a graph and its gradients. `sized`: the symbols of its sizes; None for the sizes of `inputs`.
    `buckets`: those in which DDP sends the gradients; the backward then has a stage for each."""
    joint, halves, spec = trace_training(gm, inputs, report, sized, transforms=options.transforms)
    staging, stages = _stages(joint, halves, spec, buckets)
    half = functools.partial(generate_half, report=report, sized=sized, options=options, captured=gm.graph)
    forward = half(halves.forward, uncounted=joint.uncounted)
    if options.background or options.budget_s is not None:
        return _training_artifact(spec, forward, [half(stage, release=True) for stage in stages], sized, staging)
    pool, processes = ThreadPoolExecutor(BUILDERS), Processes()
    try:  # kernels are built while the code of what follows is generated
        building = [pool.submit(build_kernels, forward, processes)]
        backward = []
        for stage in stages:
            backward.append(half(stage, release=True))
            building.append(pool.submit(build_kernels, backward[-1], processes))
        with report.phase("build"):
            without_lock(lambda: [each.result() for each in building])
    except BaseException:  # leave no process running, even after Ctrl-C
        processes.stop()
        raise
    finally:
        without_lock(pool.shutdown)
    return _training_artifact(spec, forward, backward, sized, staging)


def _training_artifact(
    spec: TrainingSpec, forward: Artifact, backward: Sequence[Artifact], sized: Sized | None, staging: Staging | None
) -> TrainingArtifact:
    if sized is None:
        return TrainingArtifact(spec, forward, tuple(backward), staging=staging)
    return TrainingArtifact(sized.data(spec), forward, tuple(backward), sized.symbols.program(), staging)


def _stages(
    joint: JointGraph, halves: Halves, spec: TrainingSpec, buckets: BucketSizes | None
) -> tuple[Staging | None, list[fx.GraphModule]]:
    """The stages of the backward (see `backward_stages`) and their graphs; if it is not divided, None and its graph."""
    # autograd runs nodes of several devices in several threads
    one_device = len({layout.device for layout in spec.tangents}) == 1
    if buckets is not None and one_device and not spec.nested:
        bucketed = [joint.permanent[gradient.place] for gradient in spec.gradients]
        if (split := split_backward(halves.backward, bucketed, buckets)) is not None:
            return split
    return None, [halves.backward]


def trace_training(
    gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport, sized: Sized | None = None,
    tensors: tuple[tuple[torch.Tensor, ...], Mapping[str, int]] | None = None, transforms: Sequence[Transform] = (),
) -> tuple[JointGraph, Halves, TrainingSpec]:
    """The joint graph of a graph, its partition, and their description. `tensors`: as for `to_joint`."""
    with stub_torch_compiler, report.phase("joint"):
        varying = VaryingInputs(sized.fakes, sized.symbols.mode) if sized else None
        joint = to_joint(gm, inputs, training_decompositions(), varying, tensors)
        note("joint", joint.graph)
        joint = replace(joint, graph=apply_to_aten(transforms, "joint", joint.graph))
    with stub_torch_compiler, report.phase("passes"):
        seeded(joint.graph)
        run_joint_passes(joint.graph)
    with stub_torch_compiler, report.phase("partition"):
        halves = partition(joint)
        note("forward", halves.forward)
        note("backward", halves.backward)
        halves = replace(
            halves, forward=apply_to_aten(transforms, "forward", halves.forward),
            backward=apply_to_aten(transforms, "backward", halves.backward),
        )  # fmt: skip
        return joint, halves, describe(joint, halves)


def generate_half(
    half: fx.GraphModule, report: CompileReport, sized: Sized | None, release: bool = False,
    uncounted: tuple[int, ...] = (), options: CompileOptions = DEFAULT, captured: fx.Graph | None = None,
) -> Artifact:
    """The artifact of the forward or the backward, which returns a list. `release`: as in `codegen`, for the backward.
    `uncounted`: as in PlanSpec. `captured`: as in `codegen`."""
    with stub_torch_compiler, report.phase("passes"):
        run_half_passes(half, options.bucket_collectives)
        shared = separate_results(half)
        if sized is not None:
            sized.substitute(half)
    _, structure = pytree.tree_flatten([0] * len(results_of(half.graph)))
    return generate_aten(half, shared, structure, report, options, (), uncounted, release, True, captured)


def generate_aten(
    aten: fx.GraphModule, shared: Sequence[int | None], structure: pytree.TreeSpec, report: CompileReport,
    options: CompileOptions = DEFAULT, views: Sequence[bool] = (), uncounted: tuple[int, ...] = (),
    release: bool = False, training: bool = False, captured: fx.Graph | None = None,
) -> Artifact:
    """Lower, schedule and generate code. `views`: which results autograd has to know as views of inputs; empty: none.
    `uncounted`: as in PlanSpec."""
    show("ir", lambda: aten.print_readable(print_output=False))
    with report.phase("lower"):
        graph = lower_graph(aten, shared, uncounted, row_products=True)
    show("ir", print_graph, graph)
    with report.phase("schedule"):
        groups = with_depthwise_gradients(with_row_attention(with_flex_attention(schedule(graph))))
        groups = with_shared_rows(groups, graph)
    if options.max_autotune:
        from .autotune import tuned  # imported only if it is used

        with report.phase("autotune"):
            groups = tuned(groups, graph, report=report)
    if graph.generated:
        from .autotune.unmeasured import with_generated_products  # imported only if it is used

        groups = with_generated_products(groups, graph)
    show("schedule", print_schedule, groups)
    mark_settled(groups, graph)
    with report.phase("codegen"):
        source, spec = codegen(groups, graph, release, training, captured)
    spec = replace(spec, uncounted=uncounted)
    form = _form(structure)
    stored = () if isinstance(source, Source) else map(StoredKernel.of, source.kernels)
    sources = source.texts() if isinstance(source, Source) else (*stored, *source.host.texts())
    if views:
        spec = replace(spec, outputs=_with_views(spec.outputs, views))
    kept = structure if form is None else None
    artifact = Artifact(spec, tuple(sources), form, kept, not_fused=tuple(graph.not_fused))
    show_code(artifact)
    return artifact


def _with_views(outputs: Sequence[OutputRef], views: Sequence[bool]) -> tuple[OutputRef, ...]:
    """`outputs`, with those marked in `views` changed so that autograd knows them as views of inputs."""
    refs, done = list(outputs), set()
    for k, (ref, is_view) in enumerate(zip(refs, views, strict=True)):
        if is_view and ref.kind == "buf" and ref.value not in done:  # a view that is returned twice is created once
            refs[k] = OutputRef("view", ref.value)
            done.add(ref.value)
    return tuple(refs)


def _form(structure: pytree.TreeSpec) -> Form | None:
    """The container in which the plan itself can return the results; None if it cannot."""
    if structure.is_leaf():
        return "single"
    if all(child.is_leaf() for child in structure.children()):
        if structure.type is tuple:
            return "tuple"
        if structure.type is list:
            return "list"
    return None
