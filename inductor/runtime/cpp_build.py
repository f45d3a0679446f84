"""C++ source to a loaded shared library: the compiler, its flags, and the cache of what it built."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from .cache import Cache, content_key, shared_cache

_COMMON_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-w")
_NATIVE = {"x86_64": ("-march=native",), "aarch64": ("-mcpu=native",), "arm64": ("-mcpu=native",)}
_TIMEOUT_SECONDS = 600
_MESSAGE_LINES = 30
INCLUDE = Path(__file__).resolve().parent.parent / "codegen" / "cpp"


class BuildError(RuntimeError):
    """There is no C++ compiler, or it refused a source that we generated."""


@functools.cache
def find_compiler(chosen: str | None) -> tuple[str, ...]:
    """The command of a C++ compiler: `chosen` ($CXX) first, then g++, then clang++. BuildError if there is none."""
    for candidate in filter(None, (chosen, "g++", "clang++", "c++")):
        words = shlex.split(candidate)
        path = shutil.which(words[0])
        if path is not None:
            return (path, *words[1:])
        if candidate == chosen:
            raise BuildError(f"the C++ compiler $CXX={chosen!r} does not exist")
    raise BuildError("no C++ compiler found: install g++ or clang++, or set $CXX")


@functools.cache
def compiler_identity(command: tuple[str, ...]) -> str:
    """What tells one compiler from another: its version text and the CPU that "native" means."""
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    return f"{command} {version} {torch.backends.cpu.get_cpu_capability()} {_cpu_flags()}"


@functools.cache
def _cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@functools.cache
def build_flags() -> tuple[str, ...]:
    """Flags for kernels of this machine. OpenMP is torch's own copy: a second one would bring its own threads."""
    library = Path(torch.__file__).resolve().parent / "lib"
    flags = [*_COMMON_FLAGS, *_NATIVE.get(platform.machine(), ()), f"-I{INCLUDE}", "-fopenmp"]
    # -fopenmp would also link the system's libgomp; naming torch's file first satisfies every symbol.
    gomp = sorted(library.glob("libgomp*.so*"))
    flags += [f"-L{library}", f"-Wl,-rpath,{library}", "-Wl,--as-needed"]
    flags += [str(path) for path in gomp[:1]]
    flags += [str(library / "libtorch_cpu.so")]
    return tuple(flags)


def build(source: str, cache: Cache | None = None) -> Path:
    """The shared library of a C++ source, from the cache or built now. BuildError if that fails."""
    return (cache or shared_cache()).get_or_make_file(build_key(source), ".so", lambda: _compile(source))


def build_all(sources: Sequence[str], cache: Cache | None = None) -> list[Path]:
    """Like `build` for several independent sources, as many at a time as there are processors."""
    if len(sources) == 1:
        return [build(sources[0], cache)]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(lambda source: build(source, cache), sources))


def build_key(source: str) -> str:
    """The cache key of a source: everything that the library's bytes depend on."""
    command = find_compiler(os.environ.get("CXX"))
    return content_key(
        source, compiler_identity(command), " ".join(build_flags()), platform.platform(), torch.__version__, _headers()
    )


@functools.cache
def _headers() -> str:
    return content_key(*[path.read_bytes() for path in sorted(INCLUDE.glob("*.h"))])


def _compile(source: str) -> bytes:
    command = find_compiler(os.environ.get("CXX"))
    with tempfile.TemporaryDirectory(prefix="pyframe-build-") as folder:
        unit, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        unit.write_text(source)
        line = [*command, str(unit), *build_flags(), "-o", str(library)]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"the C++ compiler did not run: {error}") from error
        if done.returncode != 0:
            message = "\n".join(done.stderr.splitlines()[:_MESSAGE_LINES])
            raise BuildError(f"the C++ compiler failed: {shlex.join(line)}\n{message}")
        return library.read_bytes()


_loaded: dict[Path, ctypes.CDLL] = {}


def load(path: Path) -> ctypes.CDLL:
    """The library, loaded once a process and never unloaded: plans hold addresses into it. BuildError on failure."""
    if path not in _loaded:
        try:
            _loaded[path] = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise BuildError(f"cannot load {path}: {error}") from error
    return _loaded[path]


def kernel_addresses(libraries: Sequence[Path], names: Sequence[str]) -> list[int]:
    """The address of each kernel, in whichever of the libraries has it. BuildError if none does."""
    return [_address([load(path) for path in libraries], name) for name in names]


def _address(libraries: Sequence[ctypes.CDLL], name: str) -> int:
    for library in libraries:
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise BuildError(f"no library defines the kernel {name}")
