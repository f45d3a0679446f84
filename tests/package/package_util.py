"""Builds the C++ runner once for all tests, and passes tensors to and from it."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from torch.utils import _pytree as pytree

from inductor.overlap import extent
from inductor.runtime.plan import _DTYPE_CODES

ROOT = Path(__file__).resolve().parent.parent.parent
TORCH = Path(torch.__file__).resolve().parent
_DTYPES = {code: getattr(torch, name) for name, code in _DTYPE_CODES.items()}

CMAKE = f"""
cmake_minimum_required(VERSION 3.18)
project(run_package C CXX)
add_subdirectory({ROOT}/examples/serve_cpp serve)
add_executable(run_package {ROOT}/tests/package/run_package.cpp)
target_link_libraries(run_package PRIVATE pyframe_serve)
add_executable(call_package {ROOT}/tests/package/call_package.c)
target_link_libraries(call_package PRIVATE pyframe_serve)
"""


def build(folder: Path) -> Path:
    """The folder with the programs `run_package` and `serve`: built by cmake, or by the compiler alone without it."""
    with FileLock(str(folder) + ".lock"):
        if not (folder / "run_package").exists():
            folder.mkdir(exist_ok=True)
            (_by_cmake if shutil.which("cmake") else _by_compiler)(folder)
    return folder


def build_once(factory: pytest.TempPathFactory) -> Path:
    """The same, in a folder that all processes of a test run share."""
    root = factory.getbasetemp()
    if root.name.startswith("popen-"):  # of a process of pytest-xdist
        root = root.parent
    return build(root / "serve_cpp")


def _by_cmake(folder: Path) -> None:
    (folder / "CMakeLists.txt").write_text(CMAKE)
    options = [f"-DPYFRAME_LIBTORCH={TORCH}", "-DCMAKE_BUILD_TYPE=", "-DCMAKE_CXX_FLAGS=-O1 -Wall -Wextra",
               "-DCMAKE_C_FLAGS=-O1 -Wall -Wextra"]
    _run(["cmake", "-S", str(folder), "-B", str(folder), *options])
    _run(["cmake", "--build", str(folder), "-j", "2"])
    shutil.copy(folder / "serve" / "serve", folder / "serve_program")


def _by_compiler(folder: Path) -> None:
    sources = sorted((ROOT / "csrc" / "serve").glob("*.cpp"))
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", f"-I{ROOT}/csrc/serve", "-isystem", f"{TORCH}/include"]
    libraries = ["torch_cpu", "c10", *["torch_cuda", "c10_cuda"] * (TORCH / "lib" / "libtorch_cuda.so").exists()]
    link = [f"-L{TORCH}/lib", "-Wl,--no-as-needed", *[f"-l{name}" for name in libraries], "-Wl,--as-needed", "-ldl"]
    link.append(f"-Wl,-rpath,{TORCH}/lib")
    _run(["gcc", "-O1", "-Wall", "-Wextra", f"-I{ROOT}/csrc/serve", "-isystem", f"{TORCH}/include", "-c",
          str(ROOT / "tests/package/call_package.c"), "-o", str(folder / "call_package.o")])  # fmt: skip
    mains = {"run_package": ROOT / "tests/package/run_package.cpp", "serve_program": ROOT / "examples/serve_cpp/main.cpp"}
    for source, made in [(source, folder / f"{source.stem}.o") for source in sources] + [
        (main, folder / f"{program}.o") for program, main in mains.items()
    ]:
        _run(["g++", *flags, "-c", str(source), "-o", str(made)])
    library = [str(folder / f"{source.stem}.o") for source in sources]
    for program in (*mains, "call_package"):
        _run(["g++", str(folder / f"{program}.o"), *library, *link, "-o", str(folder / program)])


def _run(line: list[str]) -> None:
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning: " not in done.stderr, done.stderr


def write_call(path: Path, leaves: Sequence[Any], writes: bool) -> None:
    """Tensors, ints, and whether the function writes its arguments, for `run_package`."""
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    ints = [x for x in leaves if type(x) is int]
    parts = [struct.pack("<q", len(tensors))]
    for x in tensors:
        length = extent(x.shape, x.stride())
        data = x.detach().as_strided((length,), (1,)).contiguous().view(torch.uint8).numpy().tobytes() if length else b""
        code = _DTYPE_CODES[str(x.dtype).removeprefix("torch.")]
        parts.append(struct.pack(f"<{3 + 2 * x.dim()}q", code, x.dim(), *x.shape, *x.stride(), len(data)))
        parts.append(data)
    parts.append(struct.pack(f"<{2 + len(ints)}q", len(ints), *ints, int(writes)))
    path.write_bytes(b"".join(parts))


def read_results(path: Path) -> tuple[int, list[torch.Tensor]]:
    """How many results there are, and they followed by the tensors that were given."""
    data = path.read_bytes()
    at = 8
    found = []
    (count,) = struct.unpack_from("<q", data)
    while at < len(data):
        code, ndim = struct.unpack_from("<qq", data, at)
        numbers = struct.unpack_from(f"<{2 * ndim + 1}q", data, at + 16)
        sizes, strides, nbytes = numbers[:ndim], numbers[ndim:-1], numbers[-1]
        at += 24 + 16 * ndim
        flat = torch.empty(0, dtype=_DTYPES[code])
        if nbytes:
            flat = torch.frombuffer(bytearray(data[at : at + nbytes]), dtype=_DTYPES[code])
        x = flat.view(sizes)
        x.expected_stride = strides  # type: ignore[attr-defined]
        found.append(x)
        at += nbytes
    return count, found


def run_cpp(
    programs: Path, folder: Path, package: Path, args: Sequence[Any], kwargs: dict[str, Any] | None = None,
    varying_ints: bool = False, writes: bool = False, **settings: str,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results of a package from C++, and its arguments after the call. AssertionError with what the program wrote
    if it failed."""
    leaves = [x for x in pytree.tree_leaves((list(args), kwargs or {})) if isinstance(x, torch.Tensor) or varying_ints]
    write_call(folder / "in.bin", leaves, writes)
    line = [str(programs / "run_package"), str(package), str(folder / "in.bin"), str(folder / "out.bin")]
    environment = {**os.environ, **with_as_many_threads(), **settings}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr or f"exit status {done.returncode}"
    count, found = read_results(folder / "out.bin")
    return found[:count], found[count:]


def with_as_many_threads() -> dict[str, str]:
    """The environment of a process that computes the same bits: how sums are divided depends on the threads."""
    return {"OMP_NUM_THREADS": str(torch.get_num_threads())}


def is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")
