"""Compiles C++ source to a shared library and loads it: finds the compiler, chooses flags, and caches results."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch

from ..cache.file_store import Cache, content_key, shared_cache
from ..cache.private import private_folders, replace_file, temporary_folder
from ..log.progress import advance, enter_phase
from ..process import fork  # noqa: F401  makes it safe to fork after a kernel ran
from ..process.processor import description
from .processes import Processes, Stopped

_COMMON_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-w")
_NATIVE = {"x86_64": ("-march=native",), "aarch64": ("-mcpu=native",), "arm64": ("-mcpu=native",)}
# Used if compiling fails: g++ 13 has an internal error on some sources when it contracts products and sums.
_CAUTIOUS_FLAGS = ("-O1", "-ffp-contract=off")
_TIMEOUT_SECONDS = 600
_VERSION_SECONDS = 60
_MAX_LOGS = 10
_logs: list[str] = []  # files with the output of a compiler that failed
INCLUDE = Path(__file__).resolve().parent.parent / "codegen" / "cpp"
USE_SLEEF = "#define USE_SLEEF 1\n"  # before including vec.h: lets its functions call SLEEF
# Matches the definition of a function by one of SLEEF in vec.h; the group is the name of SLEEF's function.
_SLEEF_USE = re.compile(r"(?<!define )\bSLEEF[12]\((?!name)\w+, (\w+)\)")


class BuildError(RuntimeError):
    """A kernel cannot be built: no compiler is installed, it failed, or its output cannot be stored or loaded."""


class RefusedSource(BuildError):
    """The C++ compiler ran and failed, usually because the source is wrong."""


@functools.cache
def find_compiler(chosen: str | None) -> tuple[str, ...]:
    """The command of a C++ compiler: `chosen` ($CXX) if set, else g++, clang++ or c++. BuildError if there is none."""
    if chosen and not chosen.isspace():
        try:
            words = shlex.split(chosen)
        except ValueError as error:
            raise BuildError(f"$CXX={chosen!r} is not a command: {error}") from error
        path = shutil.which(words[0])
        if path is None:
            raise BuildError(f"the C++ compiler $CXX={chosen!r} does not exist")
        return (path, *words[1:])
    for candidate in ("g++", "clang++", "c++"):
        path = shutil.which(candidate)
        if path is not None:
            return (path,)
    raise BuildError("no C++ compiler found: install g++ or clang++, or set $CXX")


def compiler_identity(command: tuple[str, ...], cache: Cache | None = None) -> str:
    """A text that identifies the compiler and the target: command, version, and the CPU that "native" selects.

    The version is cached under the program's path, size and modification time. Raises BuildError if the program is
    missing or does not run.
    """
    try:
        program = Path(command[0]).resolve()
        status = program.stat()
    except OSError as error:
        raise BuildError(f"the C++ compiler cannot be used: {error}") from error
    key = content_key("compiler", repr(command), str(program), f"{status.st_mtime_ns} {status.st_size}")
    return _identity(command, key, cache or shared_cache())


@functools.cache
def _identity(command: tuple[str, ...], key: str, cache: Cache) -> str:
    version = cache.get(key, ".version")
    if version is None:
        done = _run([*command, "--version"], _VERSION_SECONDS, Processes())
        version = done.stdout.encode()
        if done.returncode == 0:
            cache.put(key, version, ".version")
    return f"{command} {version.decode()} {torch.backends.cpu.get_cpu_capability()} {description('flags', 'Features')}"


@functools.cache
def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return platform.platform()


def _torch_library() -> Path:
    """The torch library that provides SLEEF's vectorized functions to kernels."""
    return Path(torch.__file__).resolve().parent / "lib" / "libtorch_cpu.so"


@functools.cache
def build_flags() -> tuple[str, ...]:
    """Flags for kernels on this machine. They link torch's copy of OpenMP, since a second copy would start its own
    threads."""
    library = _torch_library().parent
    flags = [*_COMMON_FLAGS, *_NATIVE.get(platform.machine(), ()), f"-I{INCLUDE}", "-fopenmp"]
    # -fopenmp also links the system's libgomp. Torch's file is named first and resolves all symbols.
    gomp = sorted(library.glob("libgomp*.so*"))
    flags += [f"-L{library}", f"-Wl,-rpath,{library}", "-Wl,--as-needed"]
    flags += [str(path) for path in gomp[:1]]
    flags += [str(_torch_library())]
    return tuple(flags)


def _sleef_symbols() -> list[str]:
    """The SLEEF symbols that vec.h may reference."""
    functions = sorted(set(_SLEEF_USE.findall((INCLUDE / "vec.h").read_text())))
    return [f"Sleef_{function}f{lanes}_u10" for function in functions for lanes in (8, 16)]


def _flags_for(sources: Iterable[str], store: Cache, processes: Processes) -> tuple[str, ...]:
    """`build_flags` without torch's library, whose symbols take longer to read than compiling a small kernel does.

    Sources that use SLEEF are linked with a stub library that has the soname of torch's library but defines only
    SLEEF's symbols. Since a kernel records only the soname, torch's library is used when it is loaded. If the stub
    cannot be built, torch's library itself is linked. Sources that do not use SLEEF are linked with neither.
    """
    real = str(_torch_library())
    if not any(USE_SLEEF in source for source in sources):
        return tuple(flag for flag in build_flags() if flag != real)
    try:
        placeholder = _stand_in(store, processes)
    except (RefusedSource, OSError):
        return build_flags()
    return tuple(str(placeholder) if flag == real else flag for flag in build_flags())


def _stand_in(store: Cache, processes: Processes) -> Path:
    """A library with the soname of torch's that defines SLEEF's symbols."""
    text = "".join(f'extern "C" void {symbol}() {{}}\n' for symbol in _sleef_symbols())
    line = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{_torch_library().name}"]
    key = build_key(text + " ".join(line), store)
    return store.get_or_make_file(key, ".so", lambda: _built("stand_in.cpp", text, line, (), processes))


def build_for(
    sources: Sequence[str], target: Sequence[str], cache: Cache | None = None, processes: Processes | None = None
) -> list[Path]:
    """Like `build_all` for another machine, which the compiler's flags in `target` choose. The libraries name only
    torch's library, by its soname, and the C library: what they need of OpenMP they find in what torch's library has
    loaded, whatever its file is called. Raises BuildError if that fails."""
    store, started = cache or shared_cache(), processes or Processes()
    flags = (
        *_COMMON_FLAGS, *target, f"-I{INCLUDE}", "-fopenmp", "-nodefaultlibs", "-Wl,--no-as-needed",
        str(_stand_in(store, started)), "-Wl,--as-needed", "-lm", "-lc",
    )  # fmt: skip
    keys = [_key(source, flags, store) for source in sources]
    found = [store.get_file(key, ".so") for key in keys]
    missing = {key: source for key, source, path in zip(keys, sources, found) if path is None}
    built = _build_missing(missing, store, started, flags, (*flags, *_CAUTIOUS_FLAGS))
    return [path or built[key] for key, path in zip(keys, found)]


def build(source: str, cache: Cache | None = None) -> Path:
    """The shared library of a C++ source, from the cache or newly built. Raises BuildError if that fails."""
    return build_all([source], cache)[0]


def build_all(
    sources: Sequence[str], cache: Cache | None = None, processes: Processes | None = None
) -> list[Path]:
    """Like `build` for several independent sources, compiled in parallel on all processors.

    The compilers are started through `processes`. Raises BuildError if those are stopped.
    """
    store = cache or shared_cache()
    keys = [build_key(source, store) for source in sources]
    found = [store.get_file(key, ".so") for key in keys]
    missing = {key: source for key, source, path in zip(keys, sources, found) if path is None}
    started = processes or Processes()
    flags = _flags_for(missing.values(), store, started) if missing else ()
    built = _build_missing(missing, store, started, flags, (*build_flags(), *_CAUTIOUS_FLAGS))
    return [path or built[key] for key, path in zip(keys, found)]


def _build_missing(
    missing: dict[str, str], store: Cache, processes: Processes, flags: Sequence[str], otherwise: Sequence[str]
) -> dict[str, Path]:
    def make(key: str) -> Path:
        def compiled() -> bytes:
            return _built("kernels.cpp", missing[key], flags, otherwise, processes)

        try:
            return store.get_or_make_file(key, ".so", compiled)
        except OSError as error:
            raise BuildError(f"a compiled kernel cannot be stored: {error}") from error

    if not missing:
        return {}
    # Uses a thread even for one source: only the main thread receives a KeyboardInterrupt, so the interrupt cannot
    # arrive halfway through starting a process.
    with ThreadPoolExecutor(max_workers=min(len(missing), _processors())) as pool:
        try:
            building = {pool.submit(make, key): key for key in missing}
            enter_phase("build C++ kernels", len(building), "kernels")
            ready = {}
            for done in as_completed(building):
                ready[building[done]] = done.result()
                advance()
            return ready
        except BaseException:  # the first failure, or a KeyboardInterrupt
            processes.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def build_key(source: str, cache: Cache | None = None) -> str:
    """The cache key of a source: a hash of everything on which the library depends. BuildError without a compiler."""
    return _key(source, build_flags(), cache)


def _key(source: str, flags: Sequence[str], cache: Cache | None) -> str:
    command = find_compiler(os.environ.get("CXX"))
    identity = compiler_identity(command, cache)
    machine = f"{platform.machine()} {_libc()}"
    return content_key(source, identity, " ".join(flags), machine, torch.__version__, _headers())


@functools.cache
def _headers() -> str:
    return content_key(*[path.read_bytes() for path in sorted(INCLUDE.glob("*.h"))])


def _built(
    name: str, source: str, flags: Sequence[str], otherwise: Sequence[str], processes: Processes
) -> bytes:
    """The bytes of the library compiled from `source` in a file named `name`. If the compiler fails and `otherwise` is
    not empty, it is run again with those flags."""
    command = find_compiler(os.environ.get("CXX"))
    try:
        with temporary_folder("build-") as folder:
            unit, library = folder / name, folder / "kernels.so"
            unit.write_text(source)
            line = [*command, str(unit), *flags, "-o", str(library)]
            done = _run(line, _TIMEOUT_SECONDS, processes, folder)
            ended = done
            if done.returncode > 0 and otherwise:  # it was not killed: the source is wrong, or the compiler has a bug
                cautious = [*command, str(unit), *otherwise, "-o", str(library)]
                ended = _run(cautious, _TIMEOUT_SECONDS, processes, folder)
            if ended.returncode == 0 and library.exists():
                return library.read_bytes()
            log = _log_of(line, done.stderr, source) if otherwise else None  # others are trials that may fail
            where = f" (the whole log: {log})" if log is not None else ""
            raise RefusedSource(f"the C++ compiler {_ending(done.returncode)}: {_first_error(done.stderr)}{where}")
    except OSError as error:
        raise BuildError(f"the C++ compiler's files cannot be written: {error}") from error


def _first_error(text: str) -> str:
    """The first error in a compiler's output; its first line if no line looks like an error."""
    lines = text.strip().splitlines() or ["it printed nothing"]
    return next((line for line in lines if "error: " in line), lines[0]).strip()


def _log_of(line: Sequence[str], text: str, source: str) -> str | None:
    """The file with the command, the compiler's output and the source; None if there is no place for it, or if this
    process has written enough of them."""
    if len(_logs) >= _MAX_LOGS:
        return None
    try:
        number, path = tempfile.mkstemp(prefix="pyframe-compiler-", suffix=".log")
        with open(number, "w") as file:
            file.write(f"{shlex.join(line)}\n\n{text}\n\n{source}")
    except OSError:
        return None
    _logs.append(path)
    return path


def _ending(code: int) -> str:
    if code >= 0:
        return f"failed (exit status {code})" if code else "made no library"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + (", as happens where memory runs out" if -code == signal.SIGKILL else "")


def _run(
    line: Sequence[str], seconds: float, processes: Processes, temporary: Path | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return processes.run(line, seconds, temporary)
    except OSError as error:
        raise BuildError(f"the C++ compiler did not run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the C++ compiler did not finish in {seconds} seconds: {shlex.join(line)}") from error
    except Stopped as error:
        raise BuildError("the C++ compiler was stopped, as another source failed") from error


class Vanished(BuildError):
    """The library was removed after it was found or built."""


_loaded: dict[Path, ctypes.CDLL] = {}


def load(path: Path) -> ctypes.CDLL:
    """Loads a library, once per process. It is never unloaded, since plans hold addresses in it. BuildError on failure.
    """
    if path not in _loaded:
        try:
            _loaded[path] = _open(path)
        except OSError as error:
            if not path.exists():
                raise Vanished(f"{path} was removed") from error
            copy = _open_copy(path)  # the file system may be mounted noexec, or a security module may forbid the file
            if copy is None:
                raise BuildError(f"cannot load {path}: {error}") from error
            _loaded[path] = copy
    return _loaded[path]


def _open(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)


def _open_copy(path: Path) -> ctypes.CDLL | None:
    """The library, loaded from a copy in a private folder; None if that fails in each of them."""
    for folder in private_folders():
        try:
            copy = folder / path.name
            replace_file(copy, path.read_bytes())
            return _open(copy)
        except OSError:
            continue
    return None


def kernel_addresses(libraries: Sequence[Path], names: Sequence[str]) -> list[int]:
    """The address of each kernel, from the first library that defines it. BuildError if none does."""
    return addresses_in([load(path) for path in libraries], names)


def addresses_in(libraries: Sequence[ctypes.CDLL], names: Sequence[str]) -> list[int]:
    """Like `kernel_addresses`, for libraries that are loaded."""
    return [_address(libraries, name) for name in names]


def _address(libraries: Sequence[ctypes.CDLL], name: str) -> int:
    for library in libraries:
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise BuildError(f"no library defines the kernel {name}")
