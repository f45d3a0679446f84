"""Half of the time in which g++ compiles a small kernel goes into reading vec.h, which is the same for all of them.

Here it is read once, for the flags of kernels: g++ takes a `vec.h.gch` that comes before vec.h in its search path, if
it was made by the same compiler with the same flags and macros, and reads vec.h otherwise. The machine code is the same.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODEGEN = ROOT / "inductor" / "codegen" / "cpp"
# Without the arguments of the linker. In a process of its own, as it imports torch.
FLAGS = """
from inductor.runtime.cpp_build import build_flags
print(*[flag for flag in build_flags() if flag[0] == "-" and flag[:2] not in ("-L", "-W")], sep="\\n")
"""


def command() -> str | None:
    """What $CXX is to be: a program that calls g++ so that kernels find the precompiled header. None where $CXX is chosen,
    there is no g++ or it fails. One word, as torch.compile takes it for the name of a file."""
    compiler = shutil.which("g++")
    if compiler is None or "CXX" in os.environ:
        return None
    folder = ROOT / "build" / f"precompiled-{_key(compiler)}"
    if " " in str(folder):
        return None
    if not (folder / "g++").exists():
        try:
            _write(compiler, folder)
        except (OSError, subprocess.CalledProcessError):
            return None
    return str(folder / "g++")


def _key(compiler: str) -> str:
    status = os.stat(compiler)
    found = hashlib.sha256(f"{ROOT} {compiler} {status.st_mtime_ns} {status.st_size}".encode())
    for path in (*sorted(CODEGEN.glob("*.h")), CODEGEN / "source.py", ROOT / "inductor" / "runtime" / "cpp_build.py"):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _write(compiler: str, folder: Path) -> None:
    flags = subprocess.run([sys.executable, "-c", FLAGS], cwd=ROOT, check=True, capture_output=True, text=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        result = Path(made, "result")
        # Kernels define the macro before they include the header, which is refused if it was made with another one.
        line = [compiler, "-DUSE_SLEEF=1", "-x", "c++-header", str(CODEGEN / "vec.h"), *flags.stdout.split(), "-o", str(result)]
        subprocess.run(line, check=True, capture_output=True)
        os.replace(result, folder / "vec.h.gch")
        script = Path(made, "g++")
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(compiler)} -I{folder} "$@"\n')
        script.chmod(0o755)
        os.replace(script, folder / "g++")
