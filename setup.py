"""Builds the two extension modules, of C17 but for what catches exceptions of C++; everything else is declared in
pyproject.toml.

No torch headers and no link against torch: both build in seconds on any CPython from 3.11 to 3.14, and
neither needs torch to be installed. An extension whose sources are absent is left out.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
SHARED = ("csrc/compat.c", "csrc/tensor_bind.c", "csrc/tensor_view.c", "csrc/caught.cpp")
FLAGS = ["-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]


def extension(name: str, folder: str) -> list[Extension]:
    """One extension from every C file of `folder` plus the shared ones; empty if the folder has none."""
    own = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("*.c"))
    if not own:
        return []
    headers = [path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*.[hd]*")]
    return [
        Extension(
            name,
            sources=[*own, *SHARED],
            depends=headers,
            include_dirs=[str(ROOT / "csrc")],
            libraries=["dl"],
            extra_compile_args=FLAGS,
        )
    ]


setup(ext_modules=extension("pyframe._C", "csrc/frame") + extension("inductor._C", "csrc/runtime"))
