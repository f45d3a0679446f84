"""The code that replaces a traced frame: call the graph, write effects, return or go on after a break."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

from ..bytecode import OPS, Instr, Label
from ..bytecode.flow import live_locals
from ..core.guard import GuardSet
from ..core.source import Source
from ..errors import GraphBreak, SkipFrame
from ..vars.base import Var
from ..vars.const import ConstVar
from ..vars.sequence import ListVar, TupleVar
from . import replay
from .assemble import Assembler
from .reconstruct import Codegen
from .resume import make_resume

# Their results may hold a NULL that cannot be passed on to a resume function.
_NULL_RESULTS = ("LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_FAST_AND_CLEAR", "SEND")


@dataclass
class TraceResult:
    """A finished capture.  `direct` is the DirectCall output ('single', 'tuple', a template) when the code does
    nothing but call the graph, else None."""

    code: types.CodeType
    guards: GuardSet
    graph_inputs: list[Source]
    compiled: Any
    direct: Any
    breaks: list[GraphBreak]
    gms: list[Any] = field(default_factory=list)

    @property
    def direct_output(self) -> Any:
        return self.direct


@dataclass
class End:
    """How the trace of the root frame ended: `value` returned, or `brk` at instruction `at`."""

    value: Var | None = None
    brk: GraphBreak | None = None
    at: int = 0
    stack: list[Var] = field(default_factory=list)


class OutputBuilder:
    def __init__(self, tx: Any, root: Any, end: End) -> None:
        self.tx, self.root, self.end = tx, root, end
        cc = root.cc
        self.cells = set(cc.freevars) | (set(cc.cellvars) if end.brk is not None else set())
        self.live: list[str] = []
        if end.brk is not None:
            alive = live_locals(cc, end.at)
            self.live = [name for name in root.locals if name in alive and name not in self.cells]

    def assembler(self) -> Assembler:
        asm = Assembler(self.root.cc)
        asm.position = self.root.flow.instrs[self.end.at].pos
        for name in self.root.cc.cellvars if self.end.brk is not None else ():
            asm.make_cell(name)
        return asm

    def build(self) -> TraceResult:
        tx = self.tx
        dry = Codegen(self.assembler(), self.cells, tx.func)
        try:
            self.body(dry)
        except NotImplementedError as error:
            raise SkipFrame(str(error)) from error
        wanted = list(dry.wanted.values())
        gm = tx.graph.finish(wanted)
        inputs = list(tx.graph.inputs)
        compiled = None
        if wanted or any(node.op.startswith("call") for node in gm.graph.nodes):
            compiled = tx.compile_graph(gm)
        asm = self.assembler()
        cg = dry.real(asm)
        if compiled is not None:
            cg.load_const(compiled)
            cg.call_top(*(lambda s=source: cg.load_source(s) for source in inputs))
            cg.outputs = asm.store_fast()
        self.body(cg)
        direct = self.direct(wanted) if compiled is not None else None
        breaks = [self.end.brk] if self.end.brk is not None else []
        gms = [gm] if compiled is not None else []
        return TraceResult(asm.finish(), tx.guards, inputs, compiled, direct, breaks, gms)

    def direct(self, wanted: list[Var]) -> Any:
        """The DirectCall output, or None when the frame does more than return values of the graph."""
        value = self.end.value
        if value is None or len(self.tx.effects):
            return None
        if len(wanted) == 1 and value is wanted[0]:
            return "single"
        return _template(value, wanted)

    def body(self, cg: Codegen) -> None:
        """Everything after the call of the graph."""
        commits = replay.compute(cg, self.tx.effects)
        if self.end.brk is None:
            assert self.end.value is not None
            cg.load(self.end.value)
            if commits:
                result = cg.asm.store_fast()
                for commit in commits:
                    commit()
                cg.asm.load_fast(result)
            cg.asm.return_value()
            return
        self._leave(cg, commits)

    def _leave(self, cg: Codegen, commits: list[replay.Commit]) -> None:
        code = self.root.code
        if "__class__" in code.co_freevars and "super" in code.co_names:
            raise SkipFrame("super() without arguments reads the frame's first argument, which a resume function moves")
        asm, root, end = cg.asm, self.root, self.end
        values = {name: self._temp(cg, root.locals[name]) for name in self.live}
        own = [(name, root.cells[name].content) for name in root.cc.cellvars if name in root.cells]
        contents = {name: None if content is None else self._temp(cg, content) for name, content in own}
        slots = [None if _is_null(var) else self._temp(cg, var) for var in end.stack]
        for commit in commits:
            commit()
        for name, temp in values.items():
            asm.load_fast(temp)
            asm.store_fast(name)
        for name, content in contents.items():
            if content is not None:
                asm.load_fast(content)
                asm.store_deref(name)
        for slot in slots:
            if slot is None:
                asm.emit("PUSH_NULL")
            else:
                asm.load_fast(slot)
        self._break(cg)

    def _temp(self, cg: Codegen, var: Var) -> str:
        cg.load(var)
        return cg.asm.store_fast()

    def _break(self, cg: Codegen) -> None:
        """Run the breaking instruction for real, then call what continues after it."""
        asm, root, end = cg.asm, self.root, self.end
        instr: Instr = root.flow.instrs[end.at]
        if instr.op in _NULL_RESULTS:
            raise SkipFrame(f"break at {instr.op}")
        row = OPS[instr.op]
        tail, taken = Label("tail"), Label("taken") if row.jump else None
        asm.jump(asm.embed_original(end.at, tail, taken))
        rest = [_is_null(var) for var in end.stack[: len(end.stack) - row.pops(instr.arg)]]
        if not row.terminator:
            asm.label(tail)
            self._continue(asm, end.at + 1, rest + [False] * row.pushes(instr.arg))
        if taken is not None:
            assert row.jump_pushes is not None
            asm.label(taken)
            target = root.flow.place[instr.arg]
            if instr.op == "FOR_ITER":
                self._continue(asm, target + 1, rest)
            else:
                self._continue(asm, target, rest + [False] * row.jump_pushes(instr.arg))

    def _continue(self, asm: Assembler, at: int, nulls: list[bool]) -> None:
        live = tuple(name for name in self.live if name in live_locals(self.root.cc, at))
        try:
            code = make_resume(self.root.code, at, len(nulls), tuple(nulls), live)
        except ValueError as error:
            raise SkipFrame(str(error)) from error
        temps = [asm.store_fast() for _ in nulls][::-1]
        loads = [Instr("LOAD_FAST", temp) for temp, null in zip(temps, nulls, strict=True) if not null]
        loads += [Instr("LOAD_FAST", name) for name in live]
        asm.call(asm.function_instrs(code), loads, len(loads))
        asm.return_value()


def _is_null(var: Var) -> bool:
    return type(var).__name__ == "NullVar"


def _template(var: Var, wanted: list[Var]) -> Any:
    for index, output in enumerate(wanted):
        if output is var:
            return ("out", index)
    if isinstance(var, ConstVar):
        return ("const", var.value)
    if type(var) in (TupleVar, ListVar) and var.source is None:
        parts = [_template(item, wanted) for item in var.items]
        if all(part is not None for part in parts):
            return ("tuple" if type(var) is TupleVar else "list", parts)
    return None
