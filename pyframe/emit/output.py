"""Builds the code that replaces a traced frame: it calls the compiled graph, replays side effects, and then returns a
value or continues after a graph break."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from inductor.modes import ModeModule

from .. import _C
from ..core.expr import sources
from ..core.guard import Guard, GuardSet
from ..core.source import ConstSource, Source, is_drawn
from ..errors import GraphBreak, Restart, SkipFrame
from ..graph_retry import Undo, as_it_is, none_on_error
from ..vars.containers.iterator import NotRebuilt
from ..vars.containers.sequence import TupleVar, is_plain
from ..vars.higher_order.tensor_hooks import check_escapes, follow_changes
from ..vars.numbers.dynamic import CaptureHistory
from ..vars.protocol.base import NotRebuildable, Var
from ..vars.protocol.const import ConstVar
from . import replay
from .assemble import Assembler
from .eager_retry import CannotUndo, undo_if_cheap, undo_of
from .finished_trace import End, FinishedTrace, RootFrame
from .graph_break import BreakEmitter
from .reconstruct import ValueEmitter
from .resume import continuation


@dataclass
class TraceResult:
    """A finished capture. `output` says how a `DirectCall` of `compiled` forms the frame's result: a template if the
    code only calls the graph, otherwise 'code'."""

    code: types.CodeType
    guards: GuardSet
    graph_inputs: list[Source]
    compiled: Any
    output: Any
    breaks: list[GraphBreak]
    gms: list[Any] = field(default_factory=list)
    undo: Undo | None = None  # what is restored before the frame runs again eagerly; None: it never does


class OutputBuilder:
    """Builds the replacement code of a traced frame that ended at `end`: with a return value or at a graph break."""

    def __init__(self, tx: FinishedTrace, root: RootFrame, end: End) -> None:
        self.tx, self.root, self.end = tx, root, end
        cc = root.cc
        self.cells = set(cc.freevars) | (set(cc.cellvars) if end.brk is not None else set())
        self.break_emitter = BreakEmitter(tx, root, end, self.cells) if end.brk is not None else None

    def assembler(self) -> Assembler:
        asm = Assembler(self.root.cc)
        asm.position = self.root.flow.instrs[self.end.at].pos
        for name in self.root.cc.cellvars if self.end.brk is not None else ():
            asm.make_cell(name)
        return asm

    def build(self) -> TraceResult:
        """Emit the code twice: a dry run finds what the graph has to return, the second run writes the code."""
        tx = self.tx
        follow_changes(tx.graph)
        dry = ValueEmitter(self.assembler(), self.cells, tx.func)
        dry.rewritten = tx.rewritten
        try:
            self.draw(dry)
            self.body(dry)
        except NotRebuilt:
            raise
        except NotRebuildable as error:
            raise SkipFrame(str(error)) from error
        check_escapes(tx.graph, dry.counts)
        wanted = list(dry.wanted.values())
        required = [] if tx.graph.required is None else [tx.graph.required]
        gm = tx.graph.finish([*wanted, *required])
        inputs = list(tx.graph.inputs.sources)
        undo = None if gm is None else self.eager_retries(gm)
        if required and undo is None:
            tx.graph.history.checks_branches = False
            raise Restart()
        if tx.graph.checks_sizes and undo is None and gm is not None:
            tx.graph.history.checks_sizes = False
            raise Restart()
        compiled = None if gm is None else tx.compile_graph(gm)
        if compiled is not None and undo is not None:
            failed = self.guard_guesses() if tx.graph.guesses_sizes and not tx.options.fullgraph else None
            compiled = none_on_error(compiled, tx.func.__qualname__, undo, failed)
        asm = self.assembler()
        cg = dry.real(asm)
        handles, guarded = self.resume_handles_errors(), True
        if handles:
            asm.raise_errors_in(self.root.code, _C.raise_in)
        self.draw(cg)
        cg.read_before_graph()
        cg.rewritten = tx.rewritten
        if compiled is not None:
            guarded = undo is not None or self.errors_are_raised_in_blocks(gm)
            asm.call_graph(*(self.place(cg, source) for source in inputs if is_drawn(source)), guarded=guarded)
            if undo is not None:
                asm.run_instead_of_none(as_it_is(self.root.code))
            cg.outputs = asm.store_fast()
        self.body(cg)
        # Errors of a DirectCall would be raised at the RESUME.
        direct = undo is None and not (handles and not guarded)
        output = (self.template(wanted) if direct else None) or "code"
        breaks = [self.end.brk] if self.end.brk is not None else []
        gms = [gm] if compiled is not None else []
        known = [source for source in inputs if not is_drawn(source)]
        return TraceResult(asm.finish(), tx.guards, known, compiled, output, breaks, gms, undo)

    def eager_retries(self, gm: fx.GraphModule) -> Undo | None:
        """If the frame runs again eagerly when the graph raises or its results are not valid: what must be restored
        before. Otherwise None."""
        graph = self.tx.graph
        checks = graph.required is not None
        if self.tx.draws:
            return None
        if graph.checks_sizes and not checks:
            try:
                return undo_of(gm, graph.fake_mode, checked=False)
            except CannotUndo:
                return None
        if not (graph.errors_are_seen or checks):
            cheap = graph.follows_effects or self.resume_handles_errors()
            return undo_if_cheap(gm, graph.fake_mode) if cheap else None
        try:
            return undo_of(gm, graph.fake_mode, checks, graph.error_may_be_handled)
        except CannotUndo as error:
            if self.tx.options.fullgraph:
                return None
            raise SkipFrame(str(error)) from error

    def guard_guesses(self) -> Callable[[], None]:
        """Guard that no check of sizes of this code has failed; returns what a failed one has to call. Where sizes are
        often not as assumed, a capture with breaks costs less than running the frame a second time."""
        history = self.tx.graph.history
        source = ConstSource.of(history, "the sizes that depend on data")
        self.tx.guards.add(Guard(source, "PREDICATE", (_checks_sizes, (), "were as operators assume"), None))
        return functools.partial(setattr, history, "checks_sizes", False)

    def resume_handles_errors(self) -> bool:
        """Whether the RESUME of a resume function has a handler, which may see an exception of the graph."""
        continued = continuation(self.root.code)
        return continued is not None and continued.handles_errors

    def errors_are_raised_in_blocks(self, gm: fx.GraphModule | None) -> bool:
        """Whether an exception of the graph must leave blocks of the frame: an operator is in one, or the graph leaves
        one that set a mode."""
        if gm is None or self.tx.graph.errors_are_seen or self.tx.graph.is_in_block:
            return True
        return isinstance(gm, ModeModule)

    def draw(self, cg: ValueEmitter) -> None:
        """Draw the random numbers that the traced code draws and check the predicted branches on them. The frame does
        this first."""
        for draw in self.tx.draws:
            draw.load(cg)
            cg.drawn.append(cg.asm.store_fast())
        for branch in self.tx.rng_branches:
            cg.load_const(branch.check)
            cg.call_top(*(lambda source=source: cg.load_source(source) for source in sources(branch.tree)))
            cg.emit("POP_TOP")

    def place(self, cg: ValueEmitter, source: Source) -> str:
        """Store the value of `source` in a local and return its name."""
        cg.load_source(source)
        return cg.asm.store_fast()

    def template(self, wanted: list[Var]) -> Any:
        """The output template of a DirectCall, or None if the frame does more than return values of the graph."""
        value = self.end.value
        if value is None or len(self.tx.effects) or self.tx.draws:
            return None
        if len(wanted) == 1 and value is wanted[0]:
            return "single"
        return _template(value, wanted, set())

    def body(self, cg: ValueEmitter) -> None:
        """Emit everything after the call of the graph."""
        commits = replay.compute(cg, self.tx.effects)
        if self.end.brk is None:
            assert self.end.value is not None
            cg.load(self.end.value)
            if commits:
                result = cg.asm.store_fast()
                cg.asm.raise_errors_here()
                for commit in commits:
                    commit()
                cg.asm.load_fast(result)
            cg.asm.raise_errors_here()
            cg.asm.return_value()
            return
        assert self.break_emitter is not None
        self.break_emitter.emit(cg, commits)


def _checks_sizes(history: CaptureHistory) -> bool:
    return history.checks_sizes


def _template(var: Var, wanted: list[Var], built: set[int]) -> Any:
    """A template creates a new object wherever a list or tuple occurs, so there is none for a value that contains one
    twice. `built`: the ids of their Vars that have occurred."""
    for index, output in enumerate(wanted):
        if output is var:
            return ("out", index)
    if isinstance(var, ConstVar) and not var.varies:
        return ("const", var.value)
    if is_plain(var) and var.source is None and id(var) not in built:
        built.add(id(var))
        parts = [_template(item, wanted, built) for item in var.items]
        if all(part is not None for part in parts):
            return ("tuple" if type(var) is TupleVar else "list", parts)
    return None
