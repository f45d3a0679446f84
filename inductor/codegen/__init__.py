"""Code generation: groups to C++ source and a PlanSpec."""

from .plan import codegen
from .values import Unsupported

__all__ = ["Unsupported", "codegen"]
