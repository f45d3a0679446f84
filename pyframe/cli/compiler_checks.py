"""The checks of `python -m pyframe doctor` that need torch: compilers, GPUs, the cache, and a small compilation."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from inductor.cache.file_store import Cache, default_directory
from inductor.runtime.cpp_build import BuildError, find_compiler

from ..api import explain
from ..errors import PyframeError
from ..report.counts import counted
from .cache import health, summary
from .finding import Finding

_SECONDS = 60  # for a compiler to print its version
_DRIVER = Path("/proc/driver/nvidia/version")
_REPORT = "read the message; PYFRAME_LOGS=fallbacks,code prints what was compiled"


def checks() -> Iterator[Finding]:
    """What is found on this machine, one after the other."""
    compiler = cpp_compiler()
    yield compiler
    yield from gpus()
    state = health(default_directory())
    yield state if state.remedy else Finding(state.what, ", ".join([state.found, *summary(Cache())]))
    if compiler.remedy is None:
        yield small_compilation("cpu")
    else:
        yield Finding("compilation for cpu", "not tried, as no C++ compiler works", compiler.remedy)
    if torch.cuda.is_available():
        yield small_compilation("cuda")


def cpp_compiler() -> Finding:
    """The C++ compiler and the first line of what it says about its version."""
    what, remedy = "C++ compiler", "install g++ or clang++, or set CXX to the command of one"
    try:
        command = find_compiler(os.environ.get("CXX"))
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=_SECONDS)
    except (BuildError, OSError, subprocess.TimeoutExpired) as error:
        return Finding(what, str(error), remedy)
    if done.returncode:
        return Finding(what, f"{' '.join(command)} --version ended with status {done.returncode}", remedy)
    return Finding(what, f"{' '.join(command)}, {next(iter(done.stdout.splitlines()), 'no version')}")


def gpus() -> list[Finding]:
    """The GPUs that torch can use, the driver, and the triton that compiles kernels for them."""
    driver = driver_version()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    if usable:
        names = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        listed = ", ".join(f"{gpu.name} (compute capability {gpu.major}.{gpu.minor})" for gpu in names)
        return [Finding("GPU", listed), Finding("GPU driver", driver or "of unknown version"), triton()]
    if driver is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return [Finding("GPU", "none" if driver is None else "hidden by CUDA_VISIBLE_DEVICES")]
    why = "; ".join(str(each.message) for each in said) or "torch.cuda.is_available() is False"
    if torch.version.cuda is None:
        why = "this torch is for the CPU only"
    return [Finding("GPU", f"driver {driver}, but {why}", "install a torch for CUDA that this driver supports")]


def driver_version() -> str | None:
    """The version of the NVIDIA driver; None if none is loaded."""
    try:
        text = _DRIVER.read_text()
    except OSError:
        return None
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else "of unknown version"


def triton() -> Finding:
    """The version of triton, which a GPU needs."""
    try:
        return Finding("triton", importlib.metadata.version("triton"))
    except importlib.metadata.PackageNotFoundError:
        return Finding("triton", "not installed", "install the release of triton that this torch asks for")


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What is compiled to see whether compilation works: elementwise operators and a reduction of each row."""
    return torch.nn.functional.gelu(x * y + 1).softmax(-1)


def small_compilation(device: str) -> Finding:
    """Compile `program` for a device with an empty cache, and compare its result with that of eager."""
    what = f"compilation for {device}"
    compiled = explain(program, options={"strict": True})
    try:
        x, y = torch.randn(8, 64, device=device), torch.randn(8, 64, device=device)
        with empty_cache():
            start = time.perf_counter()
            explained = compiled(x, y)
            seconds = time.perf_counter() - start
        torch.testing.assert_close(explained.result, program(x, y))
    except AssertionError as error:
        return Finding(what, f"the result differs from that of eager: {error}", "report this output as a bug")
    except (PyframeError, OSError, RuntimeError) as error:  # the errors of a backend are a PyframeError
        return Finding(what, f"{type(error).__name__}: {error}", _REPORT)
    kernels = sum(gm.meta["compile_report"].kernels for gm in explained.graphs if "compile_report" in gm.meta)
    if not kernels:
        remedy = "run this without a debugger, profiler or coverage tool; PYFRAME_LOGS=breaks,graph says more"
        return Finding(what, "nothing was compiled; the function ran in eager", remedy)
    return Finding(what, f"{counted(kernels, 'kernel')} in {seconds:.1f} s, the result is that of eager")


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Compile into a temporary cache meanwhile, so that the compilers do run."""
    before = os.environ.get("PYFRAME_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="pyframe-doctor-", ignore_cleanup_errors=True) as folder:
        os.environ["PYFRAME_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYFRAME_CACHE_DIR"]
            else:
                os.environ["PYFRAME_CACHE_DIR"] = before
