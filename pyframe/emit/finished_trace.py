"""What the code that replaces a frame is generated from: the trace, its root frame, and how the trace ended.

`FinishedTrace` and `RootFrame` are protocols, implemented by `interp.trace.Trace` and `interp.frame.Frame`, so that
`emit` does not import `interp`.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import fx

from ..bytecode import CanonicalCode
from ..bytecode.flow import FlowGraph
from ..core.effects import EffectLog
from ..core.guard import GuardSet
from ..core.source import Source
from ..errors import GraphBreak
from ..options import Options
from ..vars.objects.functions import CellVar
from ..vars.protocol.base import Var

if TYPE_CHECKING:
    from ..vars.stdlib.random_generators import Draw
    from ..vars.stdlib.rng_guards import RngBranchGuard
    from .graph import GraphBuilder


@dataclass
class End:
    """How the trace of the root frame ended: it returned `value`, or it broke with `brk` at instruction `at`. With
    `loop`, the break is inside the loop with that head, and `at` is its GET_ITER or the head. `plain`: the loop runs
    eagerly."""

    value: Var | None = None
    brk: GraphBreak | None = None
    at: int = 0
    stack: list[Var] = field(default_factory=list)
    loop: int | None = None
    plain: bool = False


class RootFrame(Protocol):
    """The captured frame, at the instruction where its trace ended."""

    code: types.CodeType
    cc: CanonicalCode
    flow: FlowGraph
    locals: dict[str, Var]
    cells: dict[str, CellVar]

    def handled_for_real(self) -> Sequence[Var]:
        """The exceptions that the thread was already handling when the frame began, and whose handling has not
        ended."""
        ...


class FinishedTrace(Protocol):
    """What a trace collected. `func` is the function of the root frame, `entry_locals` its arguments."""

    func: types.FunctionType
    entry_locals: tuple[Any, ...]
    graph: GraphBuilder
    options: Options
    guards: GuardSet
    effects: EffectLog
    draws: list[Draw]  # draws of random numbers, in program order
    rng_branches: list[RngBranchGuard]  # branches on random draws, with the outcome assumed
    rewritten: dict[Source, None]  # sources that the graph writes to
    error_on_break: bool  # whether a graph break is an error at the end of the trace

    def traced(self, value: Any, /) -> Var | None:
        """The Var of an object that existed before the frame, if the trace has one."""

    def existing(self, var: Var, /) -> Any:
        """The object of a Var that existed before the frame."""

    def compile_graph(self, gm: fx.GraphModule, /) -> Any:
        """A function that runs the finished graph and returns a tuple: what the backend compiled, in most cases."""
