"""Code generation: turns scheduled groups into C++ or Triton source and a PlanSpec that calls the kernels."""

from .cpp.source import Source
from .plan import codegen
from .values import Unsupported

__all__ = ["Source", "Unsupported", "codegen"]
