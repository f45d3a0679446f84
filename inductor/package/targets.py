"""The machines for which a package has kernels: their names, the compiler's flags, and what this machine is."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .errors import PackageError

# What torch calls the vector units of a CPU; each includes those before it.
LEVELS = ("DEFAULT", "AVX2", "AVX512")
_X86 = ("x86_64", "AMD64")
_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt", "-mmovbe", "-mpopcnt")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512cd")
_FLAGS = {"generic": (), "avx2": _AVX2, "avx512": (*_AVX2, *_AVX512)}
_LEVEL = {"generic": "DEFAULT", "avx2": "AVX2", "avx512": "AVX512"}
_FIRST_EXACT = 90  # cubins from this architecture on run on no other


@dataclass(frozen=True)
class Target:
    """A kind of machine. `machine` is its architecture and `level` the vector units that its kernels on the CPU need,
    by torch's name. `arch`: the compute capability of its GPU, times ten; 0 for a CPU alone."""

    name: str
    machine: str
    level: str
    arch: int = 0

    @property
    def device(self) -> str:
        return "cuda" if self.arch else "cpu"

    @property
    def flags(self) -> tuple[str, ...]:
        """The C++ compiler's flags for its CPU."""
        return next(_FLAGS[name] for name, level in _LEVEL.items() if level == self.level)


def target_of(name: str) -> Target:
    """The target with a name such as "avx512" or "sm_90". PackageError for an unknown one, or one of another
    architecture than this machine's."""
    machine = platform.machine()
    kind, _, number = name.partition("_")
    if kind == "sm" and number.isdecimal():
        return Target(name, machine, "AVX2" if machine in _X86 else "DEFAULT", int(number))
    if name not in _FLAGS:
        raise PackageError(f"{name!r} is no target; known: {', '.join(_FLAGS)}, and GPUs as sm_80, sm_90")
    if name != "generic" and machine not in _X86:
        raise PackageError(f"the target {name} is of x86-64, and the C++ compiler of this machine is for {machine}")
    return Target(name, machine, _LEVEL[name])


def default_targets(devices: set[str]) -> list[str]:
    """The targets for a function whose tensors are on these types of devices."""
    if "cuda" in devices:
        major, minor = torch.cuda.get_device_capability()
        return [f"sm_{10 * major + minor}"]
    return ["avx2", "avx512"] if platform.machine() in _X86 else ["generic"]


@dataclass(frozen=True)
class Machine:
    """What runs a package: an architecture, the vector units of its CPU, and the compute capability of a GPU, times
    ten; 0 without one."""

    machine: str
    level: str
    arch: int

    @staticmethod
    def here(device: torch.device | None) -> Machine:
        """This machine, with `device` if that is a GPU; with the current GPU, if there is one, for None."""
        known = torch.backends.cpu.get_cpu_capability()
        arch = 0
        if (device is None or device.type == "cuda") and torch.cuda.is_available():
            major, minor = torch.cuda.get_device_capability(device)
            arch = 10 * major + minor
        return Machine(platform.machine(), known if known in LEVELS else "DEFAULT", arch)

    def runs(self, target: Target) -> bool:
        """Whether kernels for `target` run here."""
        if target.machine != self.machine or LEVELS.index(target.level) > LEVELS.index(self.level):
            return False
        if not target.arch or target.arch == self.arch:
            return True
        older = target.arch // 10 == self.arch // 10 and target.arch < self.arch
        return older and target.arch < _FIRST_EXACT

    def __str__(self) -> str:
        gpu = f", a GPU of compute capability {self.arch / 10}" if self.arch else ", no GPU"
        return f"{self.machine} with {self.level}{gpu}"


def chosen(targets: Sequence[Target], machine: Machine, device: torch.device | None) -> int:
    """The place of the best of `targets` that runs on `machine`: one with a GPU before one without, unless `device`
    says which. PackageError, which says what this machine is, if there is none."""
    wanted = [k for k, each in enumerate(targets) if device is None or each.device == device.type]
    found = [k for k in wanted if machine.runs(targets[k])]
    if not found:
        names = ", ".join(targets[k].name + f" ({targets[k].machine})" for k in wanted) or "none"
        of = "" if device is None else f" for {device.type}"
        raise PackageError(f"it has no kernels for this machine ({machine}); its targets{of}: {names}")
    return max(found, key=lambda k: (targets[k].arch, LEVELS.index(targets[k].level)))
