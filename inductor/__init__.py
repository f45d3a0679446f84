"""inductor: compiles torch.fx graphs to fused, vectorised kernels, in C++ for the CPU and in Triton for GPUs.

Public names are imported on first use, so parts of the package can be imported without the compiler.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "compile_fx": "compile", "CompileReport": "compile_report", "CompileError": "errors", "Unsupported": "errors",
}  # fmt: skip
__all__ = sorted(_PUBLIC)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'inductor' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value
