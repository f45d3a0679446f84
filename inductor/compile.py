"""`compile_fx`, the entry point of the compiler: turns a torch-level FX graph into a callable that runs kernels.

The functions below it pick the path for a graph: inference, training, symbolic sizes, tensor subclasses, a graph that
has to be split. Each path takes the artifact from the disk cache or has it generated, and builds it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._guards import tracing

from .aot.autograd import Captured, taking, wrap
from .aot.backward_stages import StagedBackward
from .aot.fake import fake_mode
from .aot.flex_attention import with_flex_attention
from .aot.functionalize import RunsBetween, attributes_of, records_gradients, refuse_shared_writes
from .aot.gradient_buckets import active_buckets
from .aot.partition import partition
from .aot.plain_memory import refuse_special
from .aot.pruned_backward import PrunedBackwards, without_tangents
from .aot.random import seeded
from .aot.training_decompositions import training_decompositions
from .aot.training_spec import TrainingSpec
from .aot.vmap_regions import with_vmap_regions
from .artifact import Artifact, Kept, TrainingArtifact, is_stored, load_or_make, program_of, show_code
from .autocast import DEVICES
from .background import Building, Built, CompiledElsewhere
from .background import prepare as prepare
from .budget import Budget, spending
from .build import build, make_callable, make_half
from .cache.file_store import content_key
from .cache.graph_key import graph_key, half_key, training_key
from .compile_report import CacheEntry, CompileReport
from .compiler_process import client
from .compiler_process.job import Kind, job_of
from .dynamic.dispatch import SPECIAL, DynamicShapeDispatcher, is_symbolic, symbolic_examples
from .dynamic.template import Template, training_spec_at
from .errors import PASSED
from .fallback import check_expected, fall_back
from .fastest.trial import Contest, Original, is_wanted
from .frozen import described, folded_of, frozen_inputs, with_constants, without_freezing
from .fx_utils.places import label_of, places_in, reason_of
from .generate import generate, generate_half, generate_sizes, generate_training, trace_training
from .graph_split import cut_after, cut_around, needs_split, split_graph
from .log.programs import note
from .log.stages import count, show
from .options import CompileOptions
from .passes import without_known_masks
from .process.compile_lock import compile_lock, without_lock
from .process.garbage import without_full_collections
from .process.import_stubs import stub_torch_compiler
from .process.thread_state import restored_on_error
from .refused import remembered
from .runtime.spec_at import spec_at
from .subclasses import compile
from .subclasses.autograd import wrap_inner
from .subclasses.functionalize import forms_of, holds_wrappers, static_fakes
from .subclasses.joint import NoGradients, State, to_inner_joint
from .subclasses.tails import Split, split
from .subclasses.wrapper_tensors import flattening
from .torch_options import translated
from .transforms import apply, key_of, without
from .verify_policy import OFF, Policy

if TYPE_CHECKING:
    from .dynamic.symbols import Sized


def compile_fx(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile `gm` for inputs with the sizes, strides and dtypes of `example_inputs`.

    If the inputs include numbers or symbolic sizes, compilation happens at the first call with each new size. If the
    graph cannot be compiled for any reason, one warning says why and the returned callable runs `gm` with ATen
    operators; with the option `strict`, CompileError is raised instead. MemoryError is always raised.
    `mode` and `options` may also be torch.compile's (see `torch_options`); ValueError for an unknown one.
    """
    options = translated(options, mode, CompileOptions.names())
    chosen = CompileOptions.of(options)
    if chosen.budget_s is not None:
        options["budget_s"] = chosen.budget_s  # one for all parts of the graph
    # torch's tracing context of the capture would make torch load torch._inductor
    with compile_lock, tracing(None), spending(chosen.budget_s):
        return without_full_collections(lambda: _compile_any(gm, example_inputs, chosen, options))


def _compile_any(
    gm: fx.GraphModule, example_inputs: Sequence[Any], chosen: CompileOptions, options: Mapping[str, Any] | None,
    one_size: bool = False,
) -> Callable[..., Any]:
    """Choose how to compile a graph. one_size: only for the sizes of `example_inputs`, even if sizes vary."""
    policy = Policy.of(chosen.verify)
    report = gm.meta["compile_report"] = CompileReport()
    note("captured", gm)
    if any("captured" in each.at for each in chosen.transforms):
        gm = apply(chosen.transforms, "captured", gm)
        gm.meta["compile_report"] = report
        later = without(chosen.transforms, "captured")
        chosen, options = replace(chosen, transforms=later), {**(options or {}), "transforms": later}
    compile_piece = functools.partial(_compile_piece, report=report, options=options)
    gm = with_vmap_regions(with_flex_attention(gm))
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
        kind = training if records_gradients(gm, example_inputs) else _compile
        reduced = without_known_masks(gm)  # verification compares with the original graph
        try:
            compiled = restored_on_error(lambda: kind(reduced, example_inputs, chosen, report))
        except RunsBetween as found:
            report.entry = None
            return cut_around(reduced, compile_piece, found)
        if policy is None:
            return compiled
        report.entry = None
        return _checked(gm, compiled, policy, report)
    except PASSED:
        raise
    except Exception as error:
        report.fallback, report.entry = reason_of(error), None
        return fall_back(gm, error, chosen.strict, [each.name for each in chosen.transforms])


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
    if records_gradients(gm, inputs):
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
        refuse_shared_writes(inner.joint.graph, flat, inner.joint.writes)
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
        key = _variant(half_key(half, given, release), options) if options.cache else None
    make = functools.partial(generate_half, half, report, None, release, options=options)
    artifact = _loaded_or_made(key, report, make)
    return make_half(artifact.spec, build(artifact, report), report=_recording(options, report))


def _loaded_or_made(key: str | None, report: CompileReport, make: Callable[[], Artifact]) -> Artifact:
    """The artifact for `key` from the disk cache, or one that is made now and stored."""
    artifact, found = load_or_make(key, Artifact, report, make)
    if found:
        show_code(artifact)
    return artifact


def _variant(key: str | None, options: CompileOptions, frozen: Sequence[int] = ()) -> str | None:
    """The key of a graph compiled with these options: kernels that were measured are those for one kind of GPU.
    `frozen`: the positions of inputs that are constants; their values are not part of what is kept."""
    if key is not None and frozen:
        key = content_key("frozen", key, repr(frozen))
    if key is not None and options.transforms:
        described, why = key_of(options.transforms)
        if described is None:
            count("transforms_not_cached")
            show("cache", why)
            return None
        key = content_key("transforms", key, described)
    if key is not None and options.bucket_collectives:
        key = content_key("bucket_collectives", key)
    if key is None or not options.max_autotune:
        return key
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return content_key("max_autotune", key, device)


def _recording(options: CompileOptions, report: CompileReport) -> CompileReport | None:
    """The report if these options ask for CUDA graphs: `make_callable` and `make_half` record calls if they get one."""
    return report if options.cudagraphs else None


def _compile_one_size(
    gm: fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    chosen = CompileOptions.of(options)
    # torch's tracing context of the capture would make torch load torch._inductor
    with compile_lock, tracing(None), spending(chosen.budget_s):
        return without_full_collections(lambda: _compile_any(gm, example_inputs, chosen, options, one_size=True))


def _specialized(
    gm: fx.GraphModule, example_inputs: Sequence[Any], chosen: CompileOptions, options: Mapping[str, Any] | None,
    compile_piece: Callable[..., Any],
) -> DynamicShapeDispatcher:
    """A callable that compiles the graph at the first call with each new size."""
    options = {**(options or {}), "verify": OFF}  # the whole graph is verified, not its parts
    compile_one = functools.partial(_compile_one_size, options=options)
    many = functools.partial(_compile_sizes_within, chosen.budget_s, options=chosen, compile_piece=compile_piece)
    in_pieces = functools.partial(cut_around, gm, compile_piece)
    examples = symbolic_examples(gm, example_inputs)
    return DynamicShapeDispatcher(gm, compile_one, examples, many, check_expected, in_pieces)


def _checked(gm: fx.GraphModule, compiled: Callable[..., Any], policy: Policy, report: CompileReport) -> Any:
    """`compiled`, with some of its calls compared with `gm`."""
    from .verify.check import Checked  # imported only if verification is on

    return Checked(gm, compiled, policy, report).call


def _checked_sizes(gm: fx.GraphModule, specialized: DynamicShapeDispatcher, policy: Policy) -> Any:
    """Like `_checked`, for varying sizes: the first call with each new combination of sizes is compared."""
    from .verify.check import Checked  # imported only if verification is on

    checked = Checked(gm, specialized, policy, gm.meta["compile_report"])
    if policy.rate is None:
        specialized.first_call, checked.call.countdown = checked.compare, 0
    return checked.call


def _compile_piece(
    gm: fx.GraphModule, inputs: Sequence[Any], report: CompileReport, options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """Compile a subgraph of a split graph and add its report to that of the whole graph."""
    call = compile_fx(gm, inputs, options=options)
    report.add(gm.meta["compile_report"])
    return call


def _compile(
    gm: fx.GraphModule, inputs: Sequence[Any], options: CompileOptions, report: CompileReport
) -> Callable[..., Any]:
    frozen = frozen_inputs(gm, inputs, options)
    with report.phase("cache"):
        key = _variant(graph_key(gm, inputs, attributes_of(gm)), options, frozen) if options.cache else None
        contest = _contest(gm, key, options, report)
        if contest is not None and (aten := contest.kept_aten({})) is not None:
            report.entry = _entry_of(key, gm, None, options)
            return aten
    examples = described(inputs) if frozen else ()
    finish = functools.partial(_finish, gm, examples, options, report, contest)
    elsewhere = _compiled_elsewhere("inference", Artifact, gm, inputs, key, frozen, options, report)
    if elsewhere is not None:
        return elsewhere.use_made(gm, finish, options.strict)
    with remembered(key, gm, report):
        artifact = _loaded_or_made(key, report, lambda: generate(gm, inputs, report, options, frozen=frozen))
    report.entry = _entry_of(key, gm, artifact, options)
    return _build([artifact], options, report).use(gm, functools.partial(finish, artifact), options.strict)


def _finish(
    gm: fx.GraphModule, examples: Sequence[Any], options: CompileOptions, report: CompileReport,
    contest: Contest | None, artifact: Artifact, kernels: Sequence[list[Any]],
) -> Callable[..., Any]:
    """The callable of a graph without gradients, of what it was compiled to and its kernels. `examples`: fake tensors
    like the inputs, if some of these are constants."""

    def unfrozen() -> Callable[..., Any]:
        again = functools.partial(_compile, gm, examples, without_freezing(options), CompileReport())
        with compile_lock, tracing(None):
            return restored_on_error(again)

    given = gm, artifact, artifact.spec, kernels[0], _recording(options, report), options.cudagraphs is None
    call = with_constants(folded_of(gm, artifact), functools.partial(make_callable, *given), unfrozen)
    return call if contest is None else contest.between(call, artifact.spec, {})


def _compiled_elsewhere(
    kind: Kind, artifact: type[Kept], gm: fx.GraphModule, inputs: Sequence[Any], key: str | None,
    frozen: Sequence[int], options: CompileOptions, report: CompileReport,
) -> CompiledElsewhere[Kept] | None:
    """The graph, which another process compiles from now on; None if it is in the cache, or if only this process can
    compile it, or if that is not asked for. `artifact`: the class of what it is compiled to."""
    if not options.background or options.transforms or not client.is_available() or is_stored(key):
        return None
    if options.budget_s is not None or active_buckets():
        return None
    with report.phase("cache"):
        job = job_of(kind, gm, inputs, key, frozen, options.bucket_collectives)
    if job is None:
        return None
    report.cache = "off" if key is None else "miss"
    return CompiledElsewhere(job, artifact, functools.partial(_compiled_here, gm, options), report)


def _compiled_here(gm: fx.GraphModule, options: CompileOptions, args: Sequence[Any]) -> Callable[..., Any]:
    """Compile, for the arguments of a call, a graph that the other process could not compile."""
    given = {each.name: getattr(options, each.name) for each in fields(options)} | {"verify": OFF}
    with client.in_this_process(), compile_lock, tracing(None):
        chosen = replace(options, verify=OFF)
        return without_full_collections(lambda: _compile_any(gm, args, chosen, given, one_size=True))


def _entry_of(
    key: str | None, gm: fx.GraphModule, artifact: Artifact | None, options: CompileOptions
) -> CacheEntry | None:
    """What a later process needs to load this graph by its key; None if that would not be the same: constants of frozen
    parameters belong to this process, and the text of a transform may."""
    if key is None or options.freezing or options.transforms:
        return None
    return CacheEntry(key, gm, artifact, options.measure, options.cudagraphs)


def _contest(
    gm: fx.GraphModule, key: str | None, options: CompileOptions, report: CompileReport,
    attributes: Sequence[torch.Tensor] | None = None,
) -> Contest | None:
    """What measures a compiled graph against ATen, if that is wanted. The arguments as of `Contest`."""
    if options.transforms:  # with ATen the graph would run without them
        return None
    return Contest(Original.of(gm), key, report, attributes) if is_wanted(options.measure) else None


def _build(artifacts: Sequence[Artifact], options: CompileOptions, report: CompileReport) -> Built | Building:
    """The kernels of artifacts, built in the background if that is asked for and the graph is not from the cache. With
    a budget, they are waited for while it lasts. Those of a graph that transforms have changed are built at once: with
    ATen it would run without them."""
    budget = options.budget_s
    if report.cache != "hit" and (options.background or budget is not None) and not options.transforms:
        building = Building(artifacts, report)
        if budget is not None and not options.background:
            seconds = budget.left()
            without_lock(lambda: building.wait(seconds))
        return building
    return Built([build(artifact, report) for artifact in artifacts])


# ---- graphs of many sizes


def _compile_sizes_within(budget: Budget | None, *args: Any, **settings: Any) -> Template:
    """`_compile_sizes`, which takes from this budget."""
    with spending(budget):
        return _compile_sizes(*args, **settings)


def _compile_sizes(
    gm: fx.GraphModule, varying: Mapping[Any, str], hints: Mapping[str, int], constants: Mapping[Any, int],
    examples: Sequence[Any], inputs: Sequence[Any], options: CompileOptions, compile_piece: Callable[..., Any],
) -> Template:
    """Compile `gm` once for all sizes that satisfy the assumptions made while compiling.

    `examples` describe `inputs` in terms of symbols. `varying` names these symbols, and `hints` are their current
    values. Unsupported if some part of the compiler needs a concrete size.
    """
    from .dynamic.symbols import Sized, Symbols, alike, fake_inputs  # imported here because it imports sympy

    report = gm.meta["compile_report"] = CompileReport()
    refuse_special([*inputs, *(value for _, value in attributes_of(gm))])
    gm = without_known_masks(gm)
    symbols, training = Symbols(), records_gradients(gm, inputs)
    # unified, because autograd expresses one size by others if a loss relies on a * b == c * d
    twins = alike(varying, hints, examples) if training else {}
    given = symbols.all(varying, hints, SPECIAL, twins) | dict(constants)
    sized = Sized(symbols, fake_inputs(symbols, given, examples, inputs), hints)
    if training:
        return _train_sizes(gm, inputs, sized, options, report, compile_piece)
    frozen = frozen_inputs(gm, inputs, options)
    with report.phase("cache"):
        key = graph_key(gm, sized.known, attributes_of(gm), hints) if options.cache else None
        key = _variant(key, options, frozen)
    contest = _contest(gm, key, options, report)
    with remembered(key, gm, report, varies=True):
        artifact = _loaded_or_made(key, report, lambda: generate_sizes(gm, sized, report, options, frozen=frozen))
    built, recording, folded = _build([artifact], options, report), _recording(options, report), folded_of(gm, artifact)
    described_inputs = described(inputs) if artifact.fold is not None else ()

    @functools.cache
    def unfrozen() -> Template:
        given = gm, varying, hints, constants, examples, described_inputs, without_freezing(options), compile_piece
        with compile_lock, tracing(None):
            return restored_on_error(functools.partial(_compile_sizes, *given))

    def make(values: Mapping[str, int]) -> Callable[..., Any]:
        def finish(kernels: Sequence[list[Any]]) -> Callable[..., Any]:
            given = gm, artifact, spec_at(artifact.spec, values), kernels[0], recording
            call = with_constants(folded, functools.partial(make_callable, *given), lambda: unfrozen().make(values))
            return call if contest is None else contest.between(call, artifact.spec, values)

        return built.use(gm, finish, options.strict)

    return Template(program_of(artifact), make)


# ---- training


def _compile_training(
    gm: fx.GraphModule, inputs: Sequence[Any], options: CompileOptions, report: CompileReport,
    compile_piece: Callable[..., Any],
) -> Callable[..., Any]:
    captured = Captured.of(gm, inputs)
    key = _training_key(captured, inputs, options, report)
    contest = _contest(gm, key, options, report, captured.attributes)
    if contest is not None and (aten := contest.kept_aten({})) is not None:
        return aten
    in_pieces = functools.partial(cut_after, gm, compile_piece)
    in_stages = None if active_buckets() else functools.partial(_in_stages, gm, options, compile_piece)
    recording, places = _recording(options, report), places_in(gm)

    def finish(
        examples: Sequence[Any], artifact: TrainingArtifact, kernels: Sequence[list[Any]]
    ) -> Callable[..., Any]:
        pruned = _pruned(captured, examples, artifact.spec, options)
        parts = artifact.forward, *artifact.backward
        built = zip(parts, kernels, _part_labels(gm, artifact), strict=True)
        forward, *stages = (make_half(part.spec, each, label, recording, places) for part, each, label in built)
        backward = _backward_of(artifact, stages)
        call = wrap(captured, artifact.spec, forward, backward, in_pieces, pruned, in_stages)
        return call if contest is None else contest.between(call, artifact.forward.spec, {})

    elsewhere = _compiled_elsewhere("training", TrainingArtifact, gm, inputs, key, (), options, report)
    if elsewhere is not None:
        return elsewhere.use_made(gm, functools.partial(finish, described(inputs)), options.strict)
    artifact = _training_artifact(captured, inputs, key, options, report)
    built = _build((artifact.forward, *artifact.backward), options, report)
    return built.use(gm, functools.partial(finish, inputs, artifact), options.strict)


def _in_stages(
    gm: fx.GraphModule, options: CompileOptions, compile_piece: Callable[..., Any], *inputs: Any
) -> Callable[..., Any]:
    """Compile a graph once more at its first call from DDP, which wraps a model that has run before. The graph stays as
    it is if the compiler fails."""
    report = gm.meta["compile_report"] = CompileReport()
    with compile_lock, tracing(None):
        try:
            return restored_on_error(lambda: _compile_training(gm, inputs, options, report, compile_piece))
        except PASSED:
            raise
        except Exception as error:
            return fall_back(gm, error, options.strict)


def _pruned(
    captured: Captured, inputs: Sequence[Any], spec: TrainingSpec, options: CompileOptions
) -> PrunedBackwards | None:
    """Backwards for certain undefined gradients, compiled when they are needed; None if they never are. For them, the
    graph is traced again on fake copies of the inputs, so that no input has to stay alive."""
    if not spec.zeros_may_differ:
        return None
    with stub_torch_compiler:
        mode = fake_mode()
        fakes = [mode.from_tensor(x, static_shapes=True) for x in inputs]
    casts = [(kind, torch.get_autocast_dtype(kind)) for kind in DEVICES if torch.is_autocast_enabled(kind)]

    def make(absent: int) -> Callable[..., Any] | None:
        report = CompileReport()
        with compile_lock, tracing(None), contextlib.ExitStack() as modes:
            for kind, dtype in casts:
                modes.enter_context(torch.autocast(kind, dtype))
            try:
                return restored_on_error(lambda: compiled(absent, report))
            except PASSED:
                raise
            except Exception as error:
                check_expected(error)
                reason = reason_of(error)
                show("fallbacks", lambda: f"no backward for some results: {reason}")
                return None

    def compiled(absent: int, report: CompileReport) -> Callable[..., Any] | None:
        tensors = captured.attributes, captured.names
        joint, halves, again = trace_training(
            captured.gm, fakes, report, tensors=tensors, transforms=options.transforms
        )
        if again.fingerprint != spec.fingerprint:  # torch's settings have changed since
            return None
        if not without_tangents(halves.backward, len(joint.tangents), absent, joint.own):
            return None
        return _compile_half(halves.backward, options, report, release=True)

    return PrunedBackwards(make)


def _part_labels(gm: fx.GraphModule, artifact: TrainingArtifact) -> list[str]:
    """The names in profiles of the forward and of the stages of the backward."""
    count = len(artifact.backward)
    backward = [f"backward, stage {k + 1} of {count}" for k in range(count)] if count > 1 else ["backward"]
    return [label_of(gm, part) for part in ("forward", *backward)]


def _backward_of(artifact: TrainingArtifact, stages: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """The backward that consists of these compiled stages."""
    return stages[0] if artifact.staging is None else StagedBackward(artifact.staging, list(map(taking, stages)))


def _train_sizes(
    gm: fx.GraphModule, inputs: Sequence[Any], sized: Sized, options: CompileOptions, report: CompileReport,
    compile_piece: Callable[..., Any],
) -> Template:
    """Like `_compile_training`, for all sizes that satisfy the assumptions made while compiling."""
    captured = Captured.of(gm, inputs)
    key = _training_key(captured, inputs, options, report, sized)
    contest = _contest(gm, key, options, report, captured.attributes)
    artifact = _training_artifact(captured, inputs, key, options, report, sized)
    parts = artifact.forward, *artifact.backward
    built = _build(parts, options, report)
    labels, recording, places = _part_labels(gm, artifact), _recording(options, report), places_in(gm)
    in_pieces = functools.partial(cut_after, gm, compile_piece)

    def make(values: Mapping[str, int]) -> Callable[..., Any]:
        def finish(kernels: Sequence[list[Any]]) -> Callable[..., Any]:
            given = zip(parts, kernels, labels, strict=True)
            forward, *stages = (
                make_half(spec_at(part.spec, values), each, label, recording, places) for part, each, label in given
            )
            backward = _backward_of(artifact, stages)
            call = wrap(captured, training_spec_at(artifact.spec, values), forward, backward, in_pieces)
            return call if contest is None else contest.between(call, artifact.forward.spec, values)

        return built.use(gm, finish, options.strict)

    return Template(program_of(artifact), make)


def _training_key(
    captured: Captured, inputs: Sequence[Any], options: CompileOptions, report: CompileReport,
    sized: Sized | None = None,
) -> str | None:
    """The key in the disk cache; None if the graph is not kept there."""
    if not options.cache:
        return None
    with report.phase("cache"):
        known, hints = (sized.known, sized.hints) if sized else (inputs, None)
        named = captured.attributes, captured.names
        return _variant(training_key(captured.gm, inputs, *named, known, hints, active_buckets()), options)


def _training_artifact(
    captured: Captured, inputs: Sequence[Any], key: str | None, options: CompileOptions, report: CompileReport,
    sized: Sized | None = None,
) -> TrainingArtifact:
    make = functools.partial(generate_training, captured.gm, inputs, report, sized, options, active_buckets())
    with remembered(key, captured.gm, report, varies=sized is not None):
        artifact, found = load_or_make(key, TrainingArtifact, report, make)
    if found:
        for part in (artifact.forward, *artifact.backward):
            show_code(part)
    return artifact
