"""The compiler's pipeline: turns a torch-level FX graph into a callable that runs compiled kernels.

`compile_fx` is the entry point. The functions below it pick the path for a graph (inference, training, symbolic sizes,
tensor subclasses, a graph that has to be split), run the stages in order, and keep the results in the disk cache.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import fx
from torch._guards import tracing
from torch.utils import _pytree as pytree

from .aot.autograd import Captured, wrap
from .aot.decompositions import decompositions
from .aot.functionalize import attributes_of, to_aten
from .aot.input_fallback import AlignedRetry
from .aot.joint import refuse_shared_writes, to_joint
from .aot.partition import partition
from .aot.plain_memory import refuse_special
from .aot.random import seeded
from .aot.results import RecordedWrites
from .aot.training_decompositions import training_decompositions
from .aot.training_spec import TrainingSpec, describe
from .cache import graph_store
from .cache.file_store import shared_cache
from .cache.graph_key import graph_key, half_key, training_key
from .codegen import Source, codegen
from .dynamic.dispatch import SPECIAL, DynamicShapeDispatcher, is_symbolic, symbolic_examples, without_numbers
from .dynamic.template import Template, spec_at, training_spec_at
from .eager.operator_errors import run_with_aten
from .errors import PASSED
from .fallback import check_expected, fall_back
from .fx_utils.arguments import results_of
from .fx_utils.places import label_of, reason_of
from .graph_split import cut_after, cut_at_writes, needs_split, split_graph
from .ir.printer import print_graph
from .ir.size import Program
from .log.stages import count, show
from .lower import lower_graph, separate_results
from .options import CompileOptions
from .passes import biases_apart, run_joint_passes, run_passes, without_known_masks
from .process.compile_lock import compile_lock, without_lock
from .process.import_stubs import stub_torch_compiler
from .process.thread_state import restored_on_error
from .process.uninterrupted_import import SYMBOLIC_SHAPES, import_whole
from .runtime.cpp_build import Vanished, build_all, kernel_addresses
from .runtime.cuda import load_cubins
from .runtime.plan import Form, make_plan
from .runtime.plan_spec import Extern, OutputRef, PlanSpec, print_plan
from .runtime.processes import Processes
from .schedule import print_schedule, schedule
from .subclasses import compile
from .subclasses.autograd import wrap_inner
from .subclasses.functionalize import forms_of, holds_wrappers, static_fakes
from .subclasses.joint import NoGradients, State, to_inner_joint
from .subclasses.tails import Split, split
from .subclasses.wrapper_tensors import flattening
from .verify_policy import OFF, Policy

if TYPE_CHECKING:
    from .dynamic.symbols import Sized


_LOADS = 3  # attempts to load kernels that other processes may remove meanwhile


@dataclass
class CompileReport:
    """Statistics of one compilation, stored in the graph's `meta["compile_report"]`.

    `seconds`: time by phase. `cache`: hit, miss or off. `fallback`: why the graph runs with ATen operators, None if it
    was compiled. `apart`: why the graph is compiled separately for each combination of sizes, None if it is not.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cache: str = "off"
    kernels: int = 0
    externs: int = 0
    fallback: str | None = None
    apart: str | None = None

    def add(self, piece: CompileReport) -> None:
        """Add the report of a subgraph to this one."""
        for name, seconds in piece.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.cache = piece.cache
        self.kernels += piece.kernels
        self.externs += piece.externs
        self.fallback = self.fallback or piece.fallback
        self.apart = self.apart or piece.apart

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to phase `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class Artifact:
    """A compiled graph, as the cache stores it. The plan returns its results in `form`, or as leaves of `structure`.

    `sources`: C++ translation units, or Triton kernels for a graph on a GPU. `program`: for a graph with symbolic
    sizes, which sizes it is valid for.
    """

    spec: PlanSpec
    sources: tuple[Any, ...]
    form: Form | None
    structure: pytree.TreeSpec | None
    program: Program | None = None


@dataclass(frozen=True)
class TrainingArtifact:
    """A compiled forward and backward, as the cache stores them. `program`: as in `Artifact`."""

    spec: TrainingSpec
    forward: Artifact
    backward: Artifact
    program: Program | None = None


Kept = TypeVar("Kept", Artifact, TrainingArtifact)


def compile_fx(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile `gm` for inputs with the sizes, strides and dtypes of `example_inputs`.

    If the inputs include numbers or symbolic sizes, compilation happens at the first call with each new size. If the
    graph cannot be compiled for any reason, one warning says why and the returned callable runs `gm` with ATen
    operators; with the option `strict`, CompileError is raised instead. MemoryError is always raised.
    ValueError for an unknown option. `mode` is accepted because torch.compile passes it to backends; it has no effect.
    """
    chosen = CompileOptions.of(options)
    with compile_lock, tracing(None):  # torch's tracing context of the capture would make torch load torch._inductor
        return _compile_any(gm, example_inputs, chosen, options)


def _compile_any(
    gm: fx.GraphModule, example_inputs: Sequence[Any], chosen: CompileOptions, options: Mapping[str, Any] | None,
    one_size: bool = False,
) -> Callable[..., Any]:
    """Choose how to compile a graph. one_size: only for the sizes of `example_inputs`, even if sizes vary."""
    policy = Policy.of(chosen.verify)
    report = gm.meta["compile_report"] = CompileReport()
    compile_piece = functools.partial(_compile_piece, report=report, options=options)
    try:
        if needs_split(gm):
            return split_graph(gm, compile_piece)
        if holds_wrappers(gm, example_inputs):
            return _compile_wrappers(gm, symbolic_examples(gm, example_inputs), chosen, options)
        if not one_size and is_symbolic(symbolic_examples(gm, example_inputs)):
            specialized = _specialized(gm, example_inputs, chosen, options, compile_piece)
            return specialized if policy is None else _checked_sizes(gm, specialized, policy)
        refuse_special([*example_inputs, *(value for _, value in attributes_of(gm))])
        training = functools.partial(_compile_training, compile_piece=compile_piece)
        kind = training if _records_gradients(gm, example_inputs) else _compile
        reduced = without_known_masks(gm)  # verification compares with the original graph
        try:
            compiled = restored_on_error(lambda: kind(reduced, example_inputs, chosen, report))
        except RecordedWrites as found:
            return cut_at_writes(reduced, compile_piece, found)
        return compiled if policy is None else _checked(gm, compiled, policy, report)
    except PASSED:
        raise
    except Exception as error:
        report.fallback = reason_of(error)
        return fall_back(gm, error, chosen.strict)


def _compile_wrappers(
    gm: fx.GraphModule, inputs: Sequence[Any], chosen: CompileOptions, options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """Compile a graph on traceable wrapper subclasses as a graph on their inner tensors."""
    report = gm.meta["compile_report"]

    def compile_flat(graph: fx.GraphModule, flat: Sequence[Any]) -> Callable[..., Any]:
        return _compile_piece(graph, flat, report, options)

    def train(graph: fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
        parts = _cut_wrappers(graph, args, report)
        head = graph if parts is None else parts.head
        try:
            compiled = _train_wrappers(head, args, chosen, report)
        except NoGradients:
            compiled = compile.without_gradients(head, args, compile_flat)
        return compiled if parts is None else parts.joined(compiled)

    otherwise = functools.partial(fall_back, gm, strict=chosen.strict)
    if _records_gradients(gm, inputs):
        return restored_on_error(lambda: compile.compile_training(gm, inputs, train, otherwise))
    return restored_on_error(lambda: compile.compile_inference(gm, inputs, compile_flat, otherwise))


def _cut_wrappers(gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport) -> Split | None:
    """Split off the views at the end of the graph; None if no result shares memory with anything."""
    forms = forms_of(inputs)
    fakes, mode = static_fakes(flattening(forms)(inputs))
    with stub_torch_compiler, report.phase("joint"):
        return split(gm, forms, fakes, mode, [State.of(x).requires_grad for x in inputs])


def _train_wrappers(
    gm: fx.GraphModule, inputs: Sequence[Any], options: CompileOptions, report: CompileReport
) -> Callable[..., Any]:
    """Compile a graph on traceable wrapper subclasses with its gradients, for the sizes of these inputs. No result may
    share memory with another result or with an input."""
    forms = forms_of(inputs)
    flat = flattening(forms)(inputs)
    fakes, mode = static_fakes(flat)
    with stub_torch_compiler, report.phase("joint"):
        inner = to_inner_joint(gm, forms, fakes, mode, list(map(State.of, inputs)), training_decompositions())
        refuse_shared_writes(flat, set(inner.joint.writes))
    with stub_torch_compiler, report.phase("passes"):
        seeded(inner.joint.graph)
    with stub_torch_compiler, report.phase("partition"):
        halves = partition(inner.joint)
    forward = _compile_half(halves.forward, options, report)
    backward = _compile_half(halves.backward, options, report, release=True)
    return wrap_inner(gm, inner, halves, forward, backward, inputs)


def _compile_half(
    half: fx.GraphModule, options: CompileOptions, report: CompileReport, release: bool = False
) -> Callable[..., Any]:
    """Compile one half of a partition (forward or backward), with a cache entry of its own."""
    with report.phase("cache"):
        given = [node.meta["val"] for node in half.graph.find_nodes(op="placeholder")]
        key = half_key(half, given, release) if options.cache else None
        artifact = _load(key, Artifact, report)
    if artifact is None:
        artifact = _generate_half(half, report, None, release)
        _store(key, artifact, report)
    else:
        _show_code(artifact)
    return _half_plan(artifact.spec, _build(artifact, report))


def _compile_one_size(
    gm: fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    chosen = CompileOptions.of(options)
    with compile_lock, tracing(None):  # torch's tracing context of the capture would make torch load torch._inductor
        return _compile_any(gm, example_inputs, chosen, options, one_size=True)


def _specialized(
    gm: fx.GraphModule, example_inputs: Sequence[Any], chosen: CompileOptions, options: Mapping[str, Any] | None,
    compile_piece: Callable[..., Any],
) -> DynamicShapeDispatcher:
    """A callable that compiles the graph at the first call with each new size."""
    options = {**(options or {}), "verify": OFF}  # the whole graph is verified, not its parts
    again = functools.partial(_compile_one_size, options=options)
    many = functools.partial(_compile_sizes, options=chosen, compile_piece=compile_piece)
    in_pieces = functools.partial(cut_at_writes, gm, compile_piece)
    return DynamicShapeDispatcher(gm, again, symbolic_examples(gm, example_inputs), many, check_expected, in_pieces)


def _checked(gm: fx.GraphModule, compiled: Callable[..., Any], policy: Policy, report: CompileReport) -> Any:
    """`compiled`, with some of its calls compared with `gm`."""
    from .verify.check import Checked  # imported only if verification is on

    return Checked(gm, compiled, policy, _Parts(), report).call


def _checked_sizes(gm: fx.GraphModule, specialized: DynamicShapeDispatcher, policy: Policy) -> Any:
    """Like `_checked`, for varying sizes: the first call with each new combination of sizes is compared."""
    from .verify.check import Checked

    checked = Checked(gm, specialized, policy, _Parts(), gm.meta["compile_report"])
    if policy.rate is None:
        specialized.first_call, checked.call.countdown = checked.compare, 0
    return checked.call


class _Parts:
    """The `verify.locate.Pipeline` of this compiler: used to find where a compiled graph differs from ATen."""

    @staticmethod
    def aten_graphs(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[tuple[fx.GraphModule, list[Any]]]:
        """See `verify.locate.Pipeline`."""
        from .verify.compare import copies, weights

        gm, inputs = without_numbers(gm, inputs)
        attributes = [value for _, value in attributes_of(gm)]
        if not _records_gradients(gm, inputs):
            aten = to_aten(gm, inputs, decompositions())
            seeded(aten.graph)
            return [(run_passes(aten.graph, aten.shared), [*inputs, *attributes])]
        joint = to_joint(gm, inputs, training_decompositions())
        seeded(joint.graph)
        run_joint_passes(joint.graph)
        halves = partition(joint)
        primals = [x.detach() for x in (*inputs, *joint.attributes)]
        run = fx.Interpreter(halves.forward, garbage_collect_values=False)
        with torch.no_grad():
            run.run(*copies(primals))
        named = {node.name: value for node, value in run.env.items()}
        wanted = halves.backward.graph.find_nodes(op="placeholder")
        given = [named[x.name] if x.name in named else weights(x.meta["val"]) for x in wanted]
        return [(halves.forward, primals), (halves.backward, given)]

    @staticmethod
    def compile_aten(graph: fx.GraphModule) -> tuple[Callable[..., Any], list[str | None]]:
        """See `verify.locate.Pipeline`."""
        from .verify.locate import writers

        report = CompileReport()
        artifact = _generate_half(graph, report, None)
        return _half_plan(artifact.spec, _build(artifact, report)), writers(artifact.spec)


def _compile_piece(
    gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport, options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """Compile a subgraph of a split graph and add its report to that of the whole graph."""
    call = compile_fx(gm, inputs, options=options)
    report.add(gm.meta["compile_report"])
    return call


def _records_gradients(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)] + [value for _, value in attributes_of(gm)]
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _compile(
    gm: fx.GraphModule, inputs: Sequence[Any], options: CompileOptions, report: CompileReport
) -> Callable[..., Any]:
    with report.phase("cache"):
        key = graph_key(gm, inputs, attributes_of(gm)) if options.cache else None
        artifact = _load(key, Artifact, report)
    if artifact is None:
        artifact = _generate(gm, inputs, report)
        _store(key, artifact, report)
    else:
        _show_code(artifact)
    return _plan(gm, artifact, artifact.spec, _build(artifact, report))


def _plan(gm: fx.GraphModule, artifact: Artifact, spec: PlanSpec, addresses: list[Any]) -> Callable[..., Any]:
    attributes = tuple(value for _, value in attributes_of(gm))
    plan = make_plan(
        spec, addresses, attributes, artifact.form or "list", fallback=run_with_aten(gm), label=label_of(gm)
    )
    if artifact.structure is not None:
        plan = _unflattened(plan, artifact.structure)
    return _without_autocast(plan) if _autocast() else plan


def _generate(gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport) -> Artifact:
    with report.phase("aot"):
        aten = to_aten(gm, inputs, decompositions())
    with report.phase("passes"):
        seeded(aten.graph)
        graph = run_passes(aten.graph, aten.shared)
    return _generate_aten(graph, aten.shared, aten.structure, report, aten.views, aten.uncounted)


def _generate_aten(
    aten: fx.GraphModule, shared: Sequence[int | None], structure: pytree.TreeSpec, report: CompileReport,
    views: Sequence[bool] = (), uncounted: tuple[int, ...] = (), release: bool = False, training: bool = False,
) -> Artifact:
    """Lower, schedule and generate code. `views`: which results autograd has to know as views of inputs; empty: none.
    `uncounted`: as in PlanSpec."""
    show("ir", lambda: aten.print_readable(print_output=False))
    with report.phase("lower"):
        graph = lower_graph(aten, shared)
    show("ir", print_graph, graph)
    with report.phase("schedule"):
        groups = schedule(graph)
    show("schedule", print_schedule, groups)
    with report.phase("codegen"):
        source, spec = codegen(groups, graph, release, training)
    spec = replace(spec, uncounted=uncounted)
    form = _form(structure)
    sources = source.texts() if isinstance(source, Source) else source.kernels
    if views:
        spec = replace(spec, outputs=_with_views(spec.outputs, views))
    artifact = Artifact(spec, tuple(sources), form, structure if form is None else None)
    _show_code(artifact)
    return artifact


def _with_views(outputs: Sequence[OutputRef], views: Sequence[bool]) -> tuple[OutputRef, ...]:
    """`outputs`, with those marked in `views` changed so that autograd knows them as views of inputs."""
    refs, done = list(outputs), set()
    for k, (ref, is_view) in enumerate(zip(refs, views, strict=True)):
        if is_view and ref.kind == "buf" and ref.value not in done:  # a view that is returned twice is created once
            refs[k] = OutputRef("view", ref.value)
            done.add(ref.value)
    return tuple(refs)


def _show_code(artifact: Artifact) -> None:
    for source in artifact.sources:
        show("code", source if isinstance(source, str) else source.text)
    show("plan", print_plan, artifact.spec)


def _build(artifact: Artifact, report: CompileReport) -> list[Any]:
    """Build the kernels; returns what `make_plan` takes as kernels."""
    with report.phase("build"):
        addresses = without_lock(lambda: _kernels(artifact))
    report.kernels += len(artifact.spec.kernel_names)
    count("kernels", len(artifact.spec.kernel_names))
    report.externs += sum(isinstance(step, Extern) for step in artifact.spec.steps)
    return addresses


def _kernels(artifact: Artifact, processes: Processes | None = None) -> list[Any]:
    """Build and load the kernels. `processes`: the group of processes in which the C++ compilers run."""
    if not artifact.sources:
        return []
    if artifact.spec.device == "cpu":
        return _addresses(artifact.sources, artifact.spec.kernel_names, processes)
    return load_cubins(artifact.sources, torch.device(artifact.spec.device))


def _addresses(sources: Sequence[str], names: Sequence[str], processes: Processes | None) -> list[Any]:
    for _ in range(_LOADS - 1):
        try:
            return list(kernel_addresses(build_all(sources, processes=processes), names))
        except Vanished:  # another process trimmed the cache between building and loading
            continue
    return list(kernel_addresses(build_all(sources, processes=processes), names))


# ---- graphs of many sizes


def _program(artifact: Artifact | TrainingArtifact) -> Program:
    """The sizes for which an artifact with symbolic sizes is valid."""
    assert artifact.program is not None
    return artifact.program


def _compile_sizes(
    gm: fx.GraphModule, varying: Mapping[Any, str], hints: Mapping[str, int], constants: Mapping[Any, int],
    examples: Sequence[Any], inputs: Sequence[Any], options: CompileOptions, compile_piece: Callable[..., Any],
) -> Template:
    """Compile `gm` once for all sizes that satisfy the assumptions made while compiling.

    `examples` describe `inputs` in terms of symbols. `varying` names these symbols, and `hints` are their current
    values. Unsupported if some part of the compiler needs a concrete size.
    """
    import_whole(SYMBOLIC_SHAPES)
    from .dynamic.symbols import Sized, Symbols, alike, fake_inputs  # imported here because it imports sympy

    report = gm.meta["compile_report"] = CompileReport()
    refuse_special([*inputs, *(value for _, value in attributes_of(gm))])
    gm = without_known_masks(gm)
    symbols, training = Symbols(), _records_gradients(gm, inputs)
    # unified, because autograd expresses one size by others if a loss relies on a * b == c * d
    twins = alike(varying, hints, examples) if training else {}
    given = symbols.all(varying, hints, SPECIAL, twins) | dict(constants)
    sized = Sized(symbols, fake_inputs(symbols, given, examples, inputs), hints)
    if training:
        return _train_sizes(gm, inputs, sized, options, report, compile_piece)
    with report.phase("cache"):
        key = graph_key(gm, sized.known, attributes_of(gm), hints) if options.cache else None
        artifact = _load(key, Artifact, report)
    if artifact is None:
        with stub_torch_compiler:
            with report.phase("aot"):
                aten = to_aten(gm, sized.fakes, decompositions())
            with report.phase("passes"):
                seeded(aten.graph)
                graph = run_passes(aten.graph, aten.shared)
                sized.settle(graph)
        artifact = _generate_aten(graph, aten.shared, aten.structure, report, aten.views, aten.uncounted)
        artifact = replace(artifact, program=symbols.program())
        _store(key, artifact, report)
    else:
        _show_code(artifact)
    addresses = _build(artifact, report)
    return Template(_program(artifact), lambda values: _plan(gm, artifact, spec_at(artifact.spec, values), addresses))


# ---- training


def _compile_training(
    gm: fx.GraphModule, inputs: Sequence[Any], options: CompileOptions, report: CompileReport,
    compile_piece: Callable[..., Any],
) -> Callable[..., Any]:
    captured = Captured.of(gm, inputs)
    artifact = _training_artifact(captured, inputs, options, report)
    halves = artifact.forward, artifact.backward
    built = zip(halves, _half_labels(gm), strict=True)
    forward, backward = (_half_plan(half.spec, _build(half, report), label) for half, label in built)
    return wrap(captured, artifact.spec, forward, backward, functools.partial(cut_after, gm, compile_piece))


def _half_labels(gm: fx.GraphModule) -> list[str]:
    return [label_of(gm, part) for part in ("forward", "backward")]


def _train_sizes(
    gm: fx.GraphModule, inputs: Sequence[Any], sized: Sized, options: CompileOptions, report: CompileReport,
    compile_piece: Callable[..., Any],
) -> Template:
    """Like `_compile_training`, for all sizes that satisfy the assumptions made while compiling."""
    captured = Captured.of(gm, inputs)
    artifact = _training_artifact(captured, inputs, options, report, sized)
    kernels = [_build(half, report) for half in (artifact.forward, artifact.backward)]
    labels = _half_labels(gm)
    in_pieces = functools.partial(cut_after, gm, compile_piece)

    def make(values: Mapping[str, int]) -> Callable[..., Any]:
        specs = (spec_at(half.spec, values) for half in (artifact.forward, artifact.backward))
        forward, backward = map(_half_plan, specs, kernels, labels)
        return wrap(captured, training_spec_at(artifact.spec, values), forward, backward, in_pieces)

    return Template(_program(artifact), make)


def _training_artifact(
    captured: Captured, inputs: Sequence[Any], options: CompileOptions, report: CompileReport,
    sized: Sized | None = None,
) -> TrainingArtifact:
    with report.phase("cache"):
        known, hints = (sized.known, sized.hints) if sized else (inputs, None)
        named = captured.attributes, captured.names
        key = training_key(captured.gm, inputs, *named, known, hints) if options.cache else None
        artifact = _load(key, TrainingArtifact, report)
    if artifact is None:
        artifact = _generate_training(captured.gm, inputs, report, sized)
        _store(key, artifact, report)
    else:
        _show_code(artifact.forward)
        _show_code(artifact.backward)
    return artifact


def _generate_training(
    gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport, sized: Sized | None
) -> TrainingArtifact:
    with stub_torch_compiler, report.phase("joint"):
        joint = to_joint(gm, inputs, training_decompositions(), sized.fakes if sized else None)
    with stub_torch_compiler, report.phase("passes"):
        seeded(joint.graph)
        run_joint_passes(joint.graph)
    with stub_torch_compiler, report.phase("partition"):
        halves = partition(joint)
        spec = describe(joint, halves)
    forward = _generate_half(halves.forward, report, sized, uncounted=joint.uncounted)
    pool, processes = ThreadPoolExecutor(1), Processes()
    try:  # the forward's kernels are built while the backward's code is generated
        building = pool.submit(_kernels, forward, processes)
        backward = _generate_half(halves.backward, report, sized, release=True)
        with report.phase("build"):
            without_lock(lambda: (_kernels(backward), building.result()))
    except BaseException:  # leave no process running, even after Ctrl-C
        processes.stop()
        raise
    finally:
        without_lock(pool.shutdown)
    if sized is None:
        return TrainingArtifact(spec, forward, backward)
    return TrainingArtifact(sized.data(spec), forward, backward, sized.symbols.program())


def _generate_half(
    half: fx.GraphModule, report: CompileReport, sized: Sized | None, release: bool = False,
    uncounted: tuple[int, ...] = (),
) -> Artifact:
    with stub_torch_compiler, report.phase("passes"):
        biases_apart(half)
        shared = separate_results(half)
        if sized is not None:
            sized.settle(half)
    _, structure = pytree.tree_flatten([0] * len(results_of(half.graph)))
    return _generate_aten(half, shared, structure, report, (), uncounted, release=release, training=True)


def _half_plan(spec: PlanSpec, addresses: list[Any], label: str | None = None) -> Callable[..., Any]:
    otherwise = AlignedRetry(spec)
    otherwise.plan = make_plan(spec, addresses, form="list", fallback=otherwise, label=label)
    return otherwise.plan


# ---- the graph cache


def _load(key: str | None, kind: type[Kept], report: CompileReport) -> Kept | None:
    """The cached artifact for `key`; None if there is none or if `key` is None."""
    data = shared_cache().get(key, ".graph") if key else None
    artifact = None if data is None else graph_store.load(data, kind)
    report.cache = "off" if key is None else "miss" if artifact is None else "hit"
    if key is not None:
        count("cache_misses" if artifact is None else "cache_hits")
    show("cache", lambda: f"graph {key}: {report.cache}")
    return artifact


def _store(key: str | None, artifact: Any, report: CompileReport) -> None:
    if key is None:
        return
    with report.phase("cache"):
        data = graph_store.dump(artifact)
        if data is not None:
            shared_cache().put(key, data, ".graph")


# ---- around the plan


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


def _unflattened(plan: Callable[..., Any], structure: pytree.TreeSpec) -> Callable[..., Any]:
    return lambda *args: pytree.tree_unflatten(plan(*args), structure)


def _autocast() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _without_autocast(plan: Callable[..., Any]) -> Callable[..., Any]:
    """The plan without autocast: the casts are in the graph already, and operators must not cast again."""

    def call(*args: Any) -> Any:
        with torch._C._DisableAutocast():
            return plan(*args)

    return call
