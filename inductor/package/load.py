"""Runs packages: picks the kernels for this machine, loads them, and calls the plan. It neither compiles nor traces."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..aot.input_fallback import AlignedRetry, Refused
from ..autocast import is_autocast_enabled
from ..cache.private import private_folders, replace_file
from ..dtypes import dtype_of
from ..ir.size import Program
from ..overlap import extent
from ..runtime.aten import overload
from ..runtime.cpp_build import BuildError, addresses_in
from ..runtime.cuda import CudaKernel
from ..runtime.plan import make_plan
from ..runtime.plan_spec import ANY_DEVICE, Alloc, BufRef, Extern, InputSpec, PlanSpec, Step
from ..runtime.related_results import Related, related
from ..runtime.spec_at import spec_at
from .container import Container
from .errors import PackageError
from .plan_data import packing_of, plan_of, program_of
from .targets import Machine, Target, chosen

MAX_READY = 256  # plans for given sizes that are kept
Run = Callable[..., Any]
_libraries: dict[bytes, ctypes.CDLL] = {}  # by content; never unloaded, since plans hold addresses in them


class Loaded:
    """A package that can be called with the arguments of its graph: tensors, and ints that vary."""

    def __init__(self, path: str | os.PathLike[str], key: bytes | None, device: torch.device | None) -> None:
        self.file = Container(path, key)
        self.description = self.file.description
        try:
            self._load(device)
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            # only an edited file gets here: its checksum is right
            raise self.file.error(f"its description is not one that this release can read: {error!r}") from error

    def _load(self, device: torch.device | None) -> None:
        about = self.description
        targets = [Target(t["name"], t["machine"], t["level"], t["arch"]) for t in about["targets"]]
        try:
            place = chosen(targets, Machine.here(device), device)
        except PackageError as error:
            raise self.file.error(str(error)) from error
        self.target, entry = targets[place], about["targets"][place]
        self.device = _numbered(device, self.target)
        plan = about["plans"][entry["plan"]]
        self._check_operators(plan)
        self.constants, self.own = self._constants(plan)
        self.spec = _on(plan_of(plan, self.own), self.device)
        self.kernels = self._kernels(entry, plan)
        self.related = tuple(Related(*each) for each in plan["related"])
        self.program = None if plan["program"] is None else program_of(plan["program"])
        self.symbols = [tuple(each) for each in about["symbols"]]
        self.calls_aten = any(isinstance(step, Extern) for step in self.spec.steps)

    def copied(self) -> Loaded:
        """The same file with constants of its own, which have the values of these now."""
        other = copy.copy(self)
        memo = {id(x): x for x in self.constants if x.layout is not torch.strided}  # only operators read these
        other.constants, other.own = copy.deepcopy((self.constants, self.own), memo)
        other.spec = replace(self.spec, constants=tuple(other.own))
        return other

    def written(self) -> list[int]:
        """The constants that the plan writes."""
        first = len(self.spec.inputs) - len(self.constants)
        return [i - first for i in self.spec.mutated if i >= first]

    # ---- parts

    def _check_operators(self, plan: Mapping[str, Any]) -> None:
        """PackageError unless this torch has the operators that the plan calls, with the same parameters."""
        steps = [*plan["steps"], *(step for _, step in plan["packed"])]
        for target in dict.fromkeys(step[1] for step in steps if step[0] == "extern"):
            expected = self.description["operators"][target]
            try:
                found = str(overload(target)._schema)
            except (AttributeError, RuntimeError):
                found = "nothing"
            if found != expected:
                raise self.file.error(
                    f"it was made with torch {self.description['torch']}, where {target} is {expected}; in torch "
                    f"{torch.__version__} it is {found}"
                )

    def _constants(self, plan: Mapping[str, Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The constants that are the plan's last inputs, and those that it has itself."""
        memory: dict[tuple[int, torch.device], torch.Tensor] = {}
        made = [
            self._constant(number, self._place(place), memory)
            for number, place in zip(plan["fixed"], plan["places"], strict=True)
        ]
        with torch.no_grad(), torch.inference_mode(False):
            for place, step in packing_of(plan["packed"]):
                given = made[place]
                made[place] = overload(step.target)(*[given if isinstance(x, BufRef) else x for x in step.args])
        self.names = [self.description["constants"][number]["name"] for number in plan["fixed"]]
        return made[: plan["bound"]], made[plan["bound"] :]

    def _place(self, name: str) -> torch.device:
        """The device of a constant by its name; "" is that of the plan."""
        try:
            return torch.device(name) if name else self.device
        except RuntimeError as error:
            raise self.file.error(f"its description is not one that this release can read: {error}") from error

    def _constant(
        self, number: int, device: torch.device, memory: dict[tuple[int, torch.device], torch.Tensor]
    ) -> torch.Tensor:
        about = self.description["constants"][number]
        section, dtype = about["section"], dtype_of(about["dtype"])
        size, stride, offset = about["size"], about["stride"], about["offset"]
        if (section, device) not in memory:
            data = self.file.section(section)
            flat = torch.frombuffer(data, dtype=torch.uint8) if data.nbytes else torch.empty(0, dtype=torch.uint8)
            memory[section, device] = flat.to(device)
        flat = memory[section, device]
        if len(size) != len(stride):
            raise self.file.error(f"the constant {about['name']} has not a stride for each size")
        if min(offset, *size, *stride, 0) < 0 or (offset + extent(size, stride)) * dtype.itemsize > flat.nbytes:
            raise self.file.error(f"the constant {about['name']} is larger than its section")
        whole = flat[: flat.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole.as_strided(size, stride, offset)

    def _kernels(self, entry: Mapping[str, Any], plan: Mapping[str, Any]) -> list[int | CudaKernel]:
        cubins = [
            CudaKernel(bytes(self.file.section(section)), name, warps, shared, waits)
            for section, name, warps, shared, waits in entry["cubins"]
        ]
        libraries = [_opened(bytes(self.file.section(number))) for number in entry["libraries"]]
        try:
            return [*cubins, *addresses_in(libraries, plan["kernels"][len(cubins) :])]
        except BuildError as error:
            raise self.file.error(str(error)) from error

    # ---- calls

    def plan(self, spec: PlanSpec, form: str) -> Run:
        """The callable of a plan for given sizes, which returns its results in `form`: "tuple", "list", "single"."""
        fallback = _Aligned(spec) if self.target.arch else None
        run: Run = make_plan(spec, self.kernels, self.constants, form, fallback=fallback)  # type: ignore[arg-type]
        if fallback is not None:
            fallback.plan = run
        if self.related:
            run = related(run, form, self.related, self.constants)
        return _without_autocast(run) if self.calls_aten else run

    def run(self, form: str) -> Run:
        """The callable of the package; see `plan`."""
        if self.program is None:
            return self.plan(self.spec, form)
        return _Sized(self, self.program, form)


def _numbered(device: torch.device | None, target: Target) -> torch.device:
    if not target.arch:
        return torch.device("cpu")
    if device is None or device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _on(spec: PlanSpec, device: torch.device) -> PlanSpec:
    """A plan that was made for the first GPU, for another one."""
    if device.type == "cpu" or spec.device == str(device):
        return spec
    name = str(device)

    def step_on(step: Step) -> Step:
        if isinstance(step, Alloc) and step.device.startswith("cuda"):
            return replace(step, device=name)
        return _extern_on(step, device) if isinstance(step, Extern) else step

    def input_on(x: InputSpec) -> InputSpec:
        return replace(x, device=name) if x.device.startswith("cuda") and x.device != ANY_DEVICE else x

    steps = tuple(map(step_on, spec.steps))
    return replace(spec, device=name, inputs=tuple(map(input_on, spec.inputs)), steps=steps)


def _extern_on(step: Extern, device: torch.device) -> Extern:
    def moved(x: Any) -> Any:
        return device if isinstance(x, torch.device) and x.type == "cuda" else x

    return replace(step, args=tuple(map(moved, step.args)), kwargs=tuple((k, moved(v)) for k, v in step.kwargs))


class _Aligned(AlignedRetry):
    """The fallback of a plan for a GPU."""

    def __call__(self, *args: torch.Tensor) -> Any:
        try:
            return super().__call__(*args)
        except Refused:
            raise PackageError("a tensor that the call writes overlaps another one, or is not aligned") from None


def _without_autocast(run: Run) -> Run:
    """`run`, whose operators must not be cast again: casts are a part of the plan."""

    def call(*args: Any) -> Any:
        if not is_autocast_enabled():
            return run(*args)
        with torch._C._DisableAutocast():
            return run(*args)

    return call


class _Sized:
    """A package of many sizes: has a plan for each combination of sizes that has occurred."""

    def __init__(self, loaded: Loaded, program: Program, form: str) -> None:
        self.loaded, self.program, self.form = loaded, program, form
        self.places = [(name, i, kind, d) for name, i, kind, d in loaded.symbols]
        self.tensors = [i for i, x in enumerate(loaded.spec.inputs) if x.kind == "tensor"]
        self.tensors = [i for i in self.tensors if i < len(loaded.spec.inputs) - len(loaded.constants)]
        self.ready: dict[Any, Run] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple([_value(args, i, kind, d) for _, i, kind, d in self.places])
        run = self.ready.get(key)
        if run is None:
            run = self._made(args, key)
        return run(*args)

    def _made(self, args: Sequence[Any], key: tuple[int, ...]) -> Run:
        values = {name: value for (name, *_), value in zip(self.places, key)}
        every = self.program.values(values)
        small = [f"{kind} {d} of input {i} is {values[name]}" for name, i, kind, d in self.places if values[name] < 2]
        if small or not self.program.serves(every):
            why = "; ".join(small) or " or ".join(f"not {a} {op} {b}" for a, op, b in self.program.assumed)
            raise PackageError(f"{self.loaded.file.path}: it was not made for these sizes: {why}")
        run = self.loaded.plan(spec_at(self.loaded.spec, every), self.form)
        while len(self.ready) >= MAX_READY:
            self.ready.pop(next(iter(self.ready)), None)
        self.ready[key] = run
        return run


def _value(args: Sequence[Any], i: int, kind: str, d: int) -> int:
    x = args[i]
    try:
        value: int = x if kind == "value" else x.shape[d] if kind == "shape" else x.stride(d)
    except IndexError:
        raise ValueError(f"input {i} of the package has {x.dim()} dimensions; it was made for more") from None
    return value


def _opened(data: bytes) -> ctypes.CDLL:
    """A library of kernels from its bytes. PackageError if this system cannot load it."""
    if data not in _libraries:
        try:
            _libraries[data] = _in_folder(data)
        except OSError as refused:
            try:
                _libraries[data] = _in_memory(data)
            except (OSError, AttributeError):
                raise PackageError(f"its kernels cannot be loaded: {refused}") from refused
    return _libraries[data]


def _in_folder(data: bytes) -> ctypes.CDLL:
    """A library loaded from a file in a private folder, which is removed again."""
    name = f"{hashlib.sha256(data).hexdigest()}.so"
    failed = OSError("there is no folder for it")
    for folder in private_folders():
        path = folder / name
        try:
            replace_file(path, data)
            return ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            failed = error
        finally:
            path.unlink(missing_ok=True)
    raise failed


def _in_memory(data: bytes) -> ctypes.CDLL:
    """A library loaded from memory, where no folder allows it. Its number stays open: the loader knows a library by the
    path that it was loaded from."""
    number = os.memfd_create("pyframe-kernels", os.MFD_CLOEXEC)
    with open(number, "wb", closefd=False) as file:
        file.write(data)
    return ctypes.CDLL(f"/proc/self/fd/{number}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
