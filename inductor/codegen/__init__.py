"""Code generation: groups to C++ source and a PlanSpec."""

from .cpp.source import Source
from .plan import codegen
from .values import Unsupported

__all__ = ["Source", "Unsupported", "codegen"]
