"""Code generation: turns scheduled groups into C++ or Triton source and a PlanSpec that calls the kernels."""

from ..errors import Unsupported
from .cpp.source import Source
from .plan import codegen

__all__ = ["Source", "Unsupported", "codegen"]
