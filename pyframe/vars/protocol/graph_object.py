"""`GraphObjectVar`: base class of Vars for objects that graph nodes take or return but that are neither tensors nor
numbers, such as a `torch.Generator` or a process setting read at run time.

Only the type of such an object is known while tracing.
"""

from __future__ import annotations

from typing import Any

from ...core.source import Source
from ..tracer import Tracer
from .base import Var


class GraphObjectVar(Var):
    """An object of which only the type is known.  `node` is the FX node that computes it (None: a graph input that no
    node has used yet); `example` is the object with which nodes are evaluated while tracing."""

    __slots__ = ("example", "node", "type_")

    def __init__(self, type_: type, node: Any, example: Any = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.type_, self.node, self.example = type_, node, example

    def python_type(self) -> type:
        return self.type_

    def describe(self) -> str:
        return f"{self.source or 'an object created in the graph'} of type {self.type_.__name__}"

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self.unsupported(tx, op)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        return self.unsupported(tx, op)

    def hash_(self, tx: Tracer) -> Var | None:
        return self.unsupported(tx, "hash()")
