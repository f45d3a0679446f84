"""inductor: compiles torch.fx graphs to fused, vectorised kernels."""

from __future__ import annotations

from .compile import CompileReport, compile_fx
from .errors import CompileError, Unsupported

__all__ = ["CompileError", "CompileReport", "Unsupported", "compile_fx"]
