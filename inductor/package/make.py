"""Makes a package: compiles a captured graph for several targets and writes plans, kernels and constants to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._guards import tracing

from ..aot.flex_attention import with_flex_attention
from ..aot.plain_memory import refuse_special
from ..aot.vmap_regions import with_vmap_regions
from ..artifact import Artifact, program_of
from ..codegen.triton.gpu import compiling_for
from ..compile_report import CompileReport
from ..dtypes import dtype_name
from ..dynamic.dispatch import SPECIAL, Sizes
from ..errors import Unsupported
from ..fx_utils.places import user_place
from ..generate import generate, generate_sizes
from ..graph_split import first_cut, needs_split
from ..overlap import extent
from ..passes import without_known_masks
from ..process.compile_lock import compile_lock
from ..process.garbage import without_full_collections
from ..process.thread_state import restored_on_error
from ..runtime import cpp_build, triton_build
from ..runtime.aten import overload
from ..runtime.plan_spec import ANY_DEVICE, Extern
from . import container
from .errors import PackageError
from .folding import folded
from .on_gpu import for_gpu
from .plan_data import packing_data, plan_data, program_data
from .targets import Target

_OWN = "pyframe"  # the namespace of operators that are written in Python


@dataclass
class Input:
    """A graph to package. Its inputs are `examples` (fake tensors, which may have symbolic sizes, and symbolic ints),
    `real` with their values. The last `constants` of them are kept in the file under `names`. `freezing`: what depends
    on constants alone is computed now, for a CPU. `returned`: the constants that are results."""

    graph: fx.GraphModule
    examples: list[Any]
    real: list[Any]
    constants: list[torch.Tensor]
    names: list[str]
    freezing: bool = False
    returned: frozenset[int] = frozenset()

    @property
    def arguments(self) -> int:
        """How many of the inputs are no constants."""
        return len(self.examples) - len(self.constants)


@dataclass
class _File:
    """The parts of the file so far."""

    sections: list[bytes | memoryview] = field(default_factory=list)
    constants: list[dict[str, Any]] = field(default_factory=list)
    operators: dict[str, str] = field(default_factory=dict)
    _storages: dict[int, tuple[int, torch.Tensor]] = field(default_factory=dict)
    _known: dict[bytes, int] = field(default_factory=dict)
    _named: dict[tuple[str, int], int] = field(default_factory=dict)
    _kept: list[torch.Tensor] = field(default_factory=list)

    def section(self, data: bytes | memoryview) -> int:
        self.sections.append(data)
        return len(self.sections) - 1

    def code(self, data: bytes) -> int:
        """The section of a library or cubin; equal ones have one."""
        if data not in self._known:
            self._known[data] = self.section(data)
        return self._known[data]

    def named(self, name: str, x: torch.Tensor) -> int:
        """The number of a constant; the same tensor under the same name has one."""
        known = self._named.get((name, id(x)))
        if known is None:
            self._named[name, id(x)] = known = self.constant(name, x)
            self._kept.append(x)
        return known

    def constant(self, name: str, x: torch.Tensor) -> int:
        """The number of a new constant. Tensors that share memory share a section."""
        key = x.untyped_storage().data_ptr()
        if key == 0 or key not in self._storages:
            whole = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage()).cpu()
            self._storages[key] = self.section(whole.numpy().data), x  # `x` keeps its memory
        self.constants.append({
            "name": name, "dtype": dtype_name(x.dtype), "size": list(x.shape), "stride": list(x.stride()),
            "offset": x.storage_offset(), "section": self._storages[key][0],
        })  # fmt: skip
        return len(self.constants) - 1


def make(
    path: str | os.PathLike[str], given: Input, about: Mapping[str, Any], targets: Sequence[Target],
    key: bytes | None,
) -> None:
    """Write a package of a graph with kernels for `targets`. `about`: what else its description says. `key`: signs it.

    PackageError if the graph cannot be one plan; BuildError if a compiler fails; OSError as for writing the file.
    """
    with compile_lock, tracing(None), torch.no_grad():
        without_full_collections(lambda: restored_on_error(lambda: _make(path, given, about, targets, key)))


def _make(
    path: str | os.PathLike[str], given: Input, about: Mapping[str, Any], targets: Sequence[Target],
    key: bytes | None,
) -> None:
    gm = with_vmap_regions(with_flex_attention(given.graph))
    if needs_split(gm):
        raise PackageError(_not_one_plan(gm))
    try:
        refuse_special(given.real)
        gm, sizes = without_known_masks(gm), _sizes(given.examples)
        file = _File()
        fixed = list(zip(given.names, _plain(given.constants), strict=True))
        programs, entries = [], []
        for where, same in _by_plan(targets):
            artifact, moved = _compiled(gm, given, sizes, where)
            programs.append(_program(artifact, given, fixed, file, moved))
            entries += [_target(each, artifact, len(programs) - 1, file) for each in same]
    except Unsupported as error:
        raise PackageError(f"the graph cannot be compiled as a whole: {error}") from error
    inputs = given.examples[: given.arguments]
    container.write(path, {
        **about, "torch": torch.__version__, "symbols": _symbols(sizes), "plans": programs, "targets": entries,
        "arguments": [_argument(x) for x in inputs], "constants": file.constants, "operators": file.operators,
    }, file.sections, key)  # fmt: skip


def _not_one_plan(gm: fx.GraphModule) -> str:
    """Why a graph is not one plan."""
    node = first_cut(gm)
    if node is None:
        return "the function enables gradients, which a package does not record"
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    place = user_place(node)
    at = f"\n  at {place}" if place is not None else ""
    return (
        f"the function calls {name}, which no plan can hold: before a call begins, a plan has all sizes and one path, "
        f"so control flow on tensors, numbers read from tensors and sizes that depend on data are not packaged{at}"
    )


def _plain(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors without gradients; those whose elements are much less than their memory are copied."""
    found = []
    memory: dict[int, int] = {}
    for x in tensors:
        needed = extent(x.shape, x.stride()) * x.element_size()
        memory[x.untyped_storage().data_ptr()] = memory.get(x.untyped_storage().data_ptr(), 0) + needed
    for x in tensors:
        x, needed = x.detach(), memory[x.untyped_storage().data_ptr()]
        if 2 * needed < x.untyped_storage().nbytes():
            length = extent(x.shape, x.stride())
            x = x.as_strided((length,), (1,)).clone().as_strided(x.shape, x.stride())
        found.append(x)
    return found


def _sizes(examples: Sequence[Any]) -> Sizes | None:
    """Where the symbols of the graph are found in its inputs; None if it has none."""
    numbers = [n for x in examples for n in ((*x.shape, *x.stride()) if isinstance(x, torch.Tensor) else (x,))]
    if all(type(n) is int for n in numbers) and all(isinstance(x, torch.Tensor) for x in examples):
        return None
    return Sizes(examples)


def _symbols(sizes: Sizes | None) -> list[list[Any]]:
    """For each symbol its name, and where its value is: the argument, "shape", "stride" or "value", the dimension."""
    return [] if sizes is None else [[name, *sizes.places[key]] for key, name in sizes.names.items()]


def _argument(x: Any) -> dict[str, Any]:
    return {"kind": "tensor", "dtype": dtype_name(x.dtype)} if isinstance(x, torch.Tensor) else {"kind": "int"}


def _by_plan(targets: Sequence[Target]) -> list[tuple[Target, list[Target]]]:
    """The targets grouped by the plan that they share: CPUs have one, and each GPU its own."""
    groups = [[each] for each in targets if each.arch]
    hosts = [each for each in targets if not each.arch]
    return [(group[0], group) for group in ([hosts] if hosts else []) + groups]


def _compiled(gm: fx.GraphModule, given: Input, sizes: Sizes | None, target: Target) -> tuple[Artifact, bool]:
    """The graph compiled for the device of a target, and whether it was moved there from the CPU."""
    on_device = any(isinstance(x, torch.Tensor) and x.is_cuda for x in given.examples)
    if on_device and not target.arch:
        raise PackageError(f"the target {target.name} is a CPU, and the function has tensors on a GPU")
    if not target.arch:
        return _generated(gm, given, sizes, False), False
    if target.arch and not on_device:
        refuse_generators(gm)
    with compiling_for(target.arch):
        return _generated(gm, given, sizes, not on_device), not on_device


def refuse_generators(gm: fx.GraphModule) -> None:
    """PackageError for a graph that names a generator, which belongs to one device."""
    for node in gm.graph.nodes:
        if any(isinstance(x, torch.Generator) for x in node.kwargs.values()):
            raise PackageError("a graph with a generator of its own is not moved to a GPU")


def _generated(gm: fx.GraphModule, given: Input, sizes: Sizes | None, moved: bool) -> Artifact:
    report, prepare = CompileReport(), for_gpu if moved else (lambda aten: None)
    on_host = not moved and all(x.device.type == "cpu" for x in given.examples if isinstance(x, torch.Tensor))
    frozen = range(given.arguments, len(given.examples)) if given.freezing and on_host else ()
    if sizes is None:
        return generate(gm, given.examples, report, prepare=prepare, frozen=frozen)
    from ..dynamic.symbols import Sized, Symbols, fake_inputs  # imported here because it imports sympy

    values = sizes.values(given.real)
    special = [name for name, value in values.items() if value < SPECIAL]
    if special:
        places = {name: sizes.places[key] for key, name in sizes.names.items()}
        where = ", ".join(f"{places[name][1]} {places[name][2]} of input {places[name][0]}" for name in special)
        raise PackageError(f"a size that varies is {SPECIAL - 1} or less in the example call: {where}")
    symbols = Symbols()
    known = symbols.all(sizes.names, values, SPECIAL, {})
    sized = Sized(symbols, fake_inputs(symbols, known, given.examples, given.real), values)
    return generate_sizes(gm, sized, report, prepare=prepare, frozen=frozen)


def _program(
    artifact: Artifact, given: Input, constants: Sequence[tuple[str, torch.Tensor]], file: _File, moved: bool
) -> dict[str, Any]:
    """The plan of an artifact as data, with what of it depends on no target. `constants`: those of the graph, by
    name."""
    spec, bound_constants, packed = folded(artifact, given.arguments, constants, given.returned)
    if artifact.form != "tuple":
        raise PackageError("the graph returns no plain tuple")
    for step in spec.steps:
        if isinstance(step, Extern):
            _note_operator(step.target, file)
    for _, step in packed:
        _note_operator(step.target, file)
    fixed = [file.named(name, x) for name, x in bound_constants]
    own = [file.constant(f"constant {k}", x) for k, x in enumerate(spec.constants)]
    places = ["cpu" if i.device == ANY_DEVICE else i.device for i in spec.inputs[given.arguments :]]
    places += ["" if moved or str(x.device) == spec.device else str(x.device) for x in spec.constants]
    return {
        **plan_data(spec, [*fixed, *own]),
        "places": places,
        "bound": len(fixed),
        "packed": packing_data(packed),
        "program": None if artifact.program is None else program_data(program_of(artifact)),
        "related": [[r.place, r.source, r.how] for r in artifact.related],
    }


def _note_operator(target: str, file: _File) -> None:
    namespace, name, variant = target.split(".")
    if namespace == _OWN:
        raise PackageError(f"the operator {target} is written in Python")
    file.operators[target] = str(overload(target)._schema)


def _target(target: Target, artifact: Artifact, plan: int, file: _File) -> dict[str, Any]:
    """The kernels of an artifact for one target."""
    texts = [source for source in artifact.sources if isinstance(source, str)]
    kernels = [source for source in artifact.sources if not isinstance(source, str)]
    libraries = cpp_build.build_for(texts, target.flags) if texts else []
    cubins = triton_build.build_all(kernels, target.arch) if kernels else []
    return {
        "name": target.name, "machine": target.machine, "level": target.level, "arch": target.arch, "plan": plan,
        "libraries": [file.code(path.read_bytes()) for path in libraries],
        "cubins": [[file.code(c.data), c.name, c.num_warps, c.shared, c.waits] for c in cubins],
    }  # fmt: skip
