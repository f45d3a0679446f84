"""`python -m pyframe doctor`: checks an installation, part by part, and says what to do about what is wrong.

Each part is imported by a call, so that one that cannot be imported is reported like anything else that is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from pathlib import Path

from ..version import __version__
from .finding import Finding

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
OLDEST_TORCH = (2, 11)
BUILD = "install the package again, or run `python setup.py build_ext --inplace` in its source tree"


def python() -> Finding:
    """The version of Python, and whether it is supported."""
    found = f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    supported = OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON and sys.implementation.name == "cpython"
    low, high = (".".join(map(str, version)) for version in (OLDEST_PYTHON, NEWEST_PYTHON))
    return Finding("python", found, None if supported else f"use CPython {low} to {high}")


def own_version() -> Finding:
    """The version of pyframe and the place that it is imported from."""
    installed = any(importlib.metadata.distributions(name="pyframe"))
    place = Path(__file__).resolve().parents[1]
    return Finding("pyframe", f"{__version__}, {place}" + ("" if installed else " (not installed: a source tree)"))


def extension(name: str) -> Finding:
    """Whether one of the extension modules can be imported."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return Finding(name, f"cannot be imported: {error}", BUILD)
    return Finding(name, str(module.__file__))


def torch_version() -> Finding:
    """The version of torch, and whether it is supported."""
    oldest = ".".join(map(str, OLDEST_TORCH))
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return Finding("torch", f"cannot be imported: {error}", f"install torch {oldest} or newer")
    cuda = torch.version.cuda
    found = f"{torch.__version__} ({'CPU only' if cuda is None else f'CUDA {cuda}'})"
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return Finding("torch", found, None if version >= OLDEST_TORCH else f"install torch {oldest} or newer")


def run(_: argparse.Namespace) -> int:
    """The command. Exit status 1 if something is wrong."""
    findings = [python(), own_version(), torch_version(), extension("pyframe._C"), extension("inductor._C")]
    print(*findings, sep="\n", flush=True)
    if all(each.remedy is None for each in findings):
        for finding in importlib.import_module("pyframe.cli.compiler_checks").checks():
            print(finding, flush=True)
            findings.append(finding)
    wrong = [finding.what for finding in findings if finding.remedy is not None]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all is well")
    return int(bool(wrong))
