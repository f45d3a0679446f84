"""Runs the tests of the C extensions under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/test_asan.py [PYTEST ARGUMENTS]

Builds both extensions with the sanitizers in a copy of the tree (build/asan) and runs the tests of `csrc` there. The
first error ends the run. CPython allocates each object by malloc (PYTHONMALLOC), so that overruns of single objects are
found. Leaks are not detected, because CPython, torch and compiled kernels keep memory until the process ends on
purpose; tests/api/test_threads_and_leaks.py looks for leaks. An allocation that is too large fails as it does without
sanitizers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "asan"
SOURCES = ("csrc", "inductor", "pyframe", "tests", "tools", "setup.py", "pyproject.toml")
TESTS = ("tests/frame", "tests/core", "tests/runtime/test_plan.py", "tests/runtime/test_cuda_plan_simulated.py")
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"


def copy_sources() -> None:
    """A new copy of the tree without build products; object files of an earlier run remain."""
    for name in SOURCES:
        source, target = ROOT / name, COPY / name
        if source.is_file():
            COPY.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            continue
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "__pycache__"))


def library(name: str) -> str:
    """The path of a library of the C compiler."""
    compiler = os.environ.get("CC", "gcc")
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not os.path.isabs(path):
        raise SystemExit(f"{compiler} has no {name}")
    return path


def main() -> int:
    """Builds and runs; the exit status of pytest."""
    copy_sources()
    flags = {"CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=COPY, env={**os.environ, **flags}, check=True)
    environment = {
        **os.environ,
        **flags,  # for tests that build an extension themselves
        "PYTHONPATH": str(COPY),
        # the C++ library has to be there when the sanitizers look for its exceptions
        "LD_PRELOAD": " ".join(map(library, ("libasan.so", "libubsan.so", "libstdc++.so"))),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYFRAME_CACHE_DIR": str(COPY / "cache"),
    }
    arguments = sys.argv[1:] or [*TESTS]
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout=900", *arguments]
    return subprocess.run(line, cwd=COPY, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
