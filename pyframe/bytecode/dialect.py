"""Translates the instructions of a CPython version to the canonical instruction set of `isa`, and back.

A `Dialect` is the table of one version's differences from the canonical set; `py311` to `py314` define one each.
`Decoder` translates to canonical form. It looks up each real instruction in the dialect: a function in
`Dialect.decoders` emits its canonical form, or, if it is in `Dialect.plain`, it keeps its name and its argument is
resolved by kind (`isa.ArgKind`). `Encoder` translates back; a function in `Dialect.encoders` may look ahead and consume
several canonical instructions.
"""

from __future__ import annotations

import opcode
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .codec import Raw, RawAssembler, jump_target, read
from .flow import definitely_bound, max_stack_depth
from .isa import (
    BINARY_OPERATORS,
    COMPARE_OPERATORS,
    OPS,
    ArgKind,
    CanonicalCode,
    Instr,
    Label,
    Position,
    TryRegion,
)

DecodeFn = Callable[["Decoder", Raw], None]
# The instruction and its index -> how many canonical items were consumed.
EncodeFn = Callable[["Encoder", Instr, int], int]

_INTRINSICS = {
    ArgKind.INTRINSIC_1: list(getattr(opcode, "_intrinsic_1_descs", ())),
    ArgKind.INTRINSIC_2: list(getattr(opcode, "_intrinsic_2_descs", ())),
}


@dataclass(frozen=True, slots=True)
class DecodeRule:
    """`run` emits the canonical form of a real instruction; `produces` lists every op that it can emit."""

    run: DecodeFn
    produces: frozenset[str]


@dataclass(slots=True)
class Dialect:
    """What one CPython version does differently from the canonical form."""

    version: tuple[int, int]
    plain: frozenset[str]
    decoders: dict[str, DecodeRule]
    encoders: dict[str, EncodeFn]
    dropped: frozenset[str]  # real instructions without canonical form
    checks_unbound: bool  # LOAD_FAST itself raises UnboundLocalError
    # From 3.13, when an inlined Python call fails, the interpreter looks for the handler of the code unit *before*
    # the calling instruction. The compiler never starts a region at such an instruction; resume functions do.
    pads_region_edges: bool = False
    # Instructions that only the jump of a FOR_ITER or SEND may reach, see separate_landings.
    landings: frozenset[str] = frozenset(("END_FOR",))
    finish_decode: Callable[[Decoder], None] | None = None
    internal: frozenset[str] = field(default=frozenset())  # instructions that compiled code never contains

    def __post_init__(self) -> None:
        for op in self.plain:
            if op not in OPS:
                raise ImportError(f"{self.version}: plain op {op} has no canonical row")
        for name, rule in self.decoders.items():
            missing = rule.produces - OPS.keys()
            if missing:
                raise ImportError(f"{self.version}: {name} produces unknown {sorted(missing)}")
        for name in self.encoders:
            if name not in OPS:
                raise ImportError(f"{self.version}: encoder for unknown {name}")
        clash = self.plain & self.decoders.keys() | self.plain & self.dropped
        if clash:
            raise ImportError(f"{self.version}: {sorted(clash)} declared twice")

    def canonical_ops(self) -> frozenset[str]:
        """Every op that decoding can produce."""
        produced = set(self.plain)
        for rule in self.decoders.values():
            produced |= rule.produces
        return frozenset(produced)

    def undeclared(self) -> set[str]:
        """Real instructions of the running version that this table does not mention (must be empty)."""
        known = self.plain | self.decoders.keys() | self.dropped | self.internal
        return {
            name
            for name, number in opcode.opmap.items()
            if number < 256 and name not in known and not name.startswith(("INSTRUMENTED_", "<"))
        }


def opset(names: str) -> frozenset[str]:
    """The set of the op names in a text."""
    return frozenset(names.split())


def rule(run: DecodeFn, *produces: str) -> DecodeRule:
    """A `DecodeRule` of a function and the ops that it emits."""
    return DecodeRule(run, frozenset(produces))


def renamed(to: str) -> DecodeRule:
    """A real instruction that has another name in canonical form, with the same argument."""
    return DecodeRule(lambda decoder, raw: decoder.plain(raw, to), frozenset((to,)))


def split(first: str, second: str) -> DecodeRule:
    """A super-instruction on two locals, four bits of argument each."""

    def run(decoder: Decoder, raw: Raw) -> None:
        decoder.local(first, raw.arg >> 4, raw.pos)
        decoder.local(second, raw.arg & 15, raw.pos)

    return DecodeRule(run, frozenset((first, second)))


# Suffix of the cell of a name that is a cell and a free variable of one code object (`class C: __class__ = 1` in a
# method): canonical names are unique.
OWN_CELL = "@cell"


def _distinct_names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`co_varnames` and `co_cellvars`, renamed where a cell would share its name with a free variable."""
    both = set(code.co_cellvars).intersection(code.co_freevars)
    if not both:
        return code.co_varnames, code.co_cellvars
    varnames, cellvars = (
        tuple(name + OWN_CELL if name in both else name for name in names)
        for names in (code.co_varnames, code.co_cellvars)
    )
    return varnames, cellvars


def slot_names(varnames: Iterable[str], cellvars: Iterable[str], freevars: Iterable[str]) -> list[str]:
    """Names of the frame's slots: locals, then cells that are not locals, then free variables."""
    names = list(varnames)
    known = set(names)
    names += [name for name in cellvars if name not in known]
    names += freevars
    return names


class Decoder:
    """Translates one code object to canonical form."""

    def __init__(self, code: types.CodeType, dialect: Dialect) -> None:
        self.code = code
        self.dialect = dialect
        self.raws, self.table = read(code)
        self.index = 0
        self.out: list[Instr | Label] = []
        self.varnames, cellvars = _distinct_names(code)
        self.slots = slot_names(self.varnames, cellvars, code.co_freevars)
        self.cellvars = cellvars
        self.labels: dict[int, Label] = {}
        self.closure_loads: set[tuple[int, int]] | None = None  # filled on demand from 3.13

    def label_at(self, offset: int) -> Label:
        label = self.labels.get(offset)
        if label is None:
            label = self.labels[offset] = Label(f"L{offset}")
        return label

    def emit(self, op: str, arg: Any, pos: Position) -> None:
        self.out.append(Instr(op, arg, pos))

    def local(self, op: str, slot: int, pos: Position) -> None:
        self.out.append(Instr(op, self.slots[slot], pos))

    def plain(self, raw: Raw, op: str) -> None:
        """Emit `op` with the argument resolved by the kind of its row."""
        kind = OPS[op].kind
        arg: Any = raw.arg
        if kind is ArgKind.NONE:
            arg = None
        elif kind is ArgKind.CONST:
            arg = self.code.co_consts[arg]
        elif kind is ArgKind.NAME:
            arg = self.code.co_names[arg]
        elif kind is ArgKind.LOCAL or kind is ArgKind.CELL:
            arg = self.slots[arg]
        elif kind is ArgKind.LABEL:
            arg = self.label_at(jump_target(raw))
        elif kind is ArgKind.BINARY:
            arg = BINARY_OPERATORS[arg]
        elif kind is ArgKind.INTRINSIC_1 or kind is ArgKind.INTRINSIC_2:
            arg = _INTRINSICS[kind][arg]
        elif kind is not ArgKind.INT:
            raise AssertionError(f"{op} needs its own decoder")
        self.out.append(Instr(op, arg, raw.pos))

    def next_raw(self, ahead: int = 1) -> Raw | None:
        index = self.index + ahead
        return self.raws[index] if index < len(self.raws) else None

    def run(self) -> CanonicalCode:
        """Decode everything."""
        for raw in self.raws:
            if raw.op in _REAL_JUMPS:
                self.label_at(jump_target(raw))
        for entry in self.table:
            for offset in (entry.start, entry.end, entry.target):
                self.label_at(offset)
        labels, raws, out = self.labels, self.raws, self.out
        dialect = self.dialect
        plain, decoders, dropped = dialect.plain, dialect.decoders, dialect.dropped
        while self.index < len(raws):
            raw = raws[self.index]
            if raw.offset in labels:
                out.append(labels[raw.offset])
            op = raw.op
            if op in plain:
                self.plain(raw, op)
            elif op in decoders:
                decoders[op].run(self, raw)
            elif op not in dropped:
                raise ValueError(f"unknown instruction {op} in {self.code.co_qualname}")
            self.index += 1
        end = raws[-1].end if raws else 0
        if end in labels:
            out.append(labels[end])
        return self._result()

    def _result(self) -> CanonicalCode:
        code = self.code
        regions = [
            TryRegion(self.labels[e.start], self.labels[e.end], self.labels[e.target], e.depth, e.lasti)
            for e in self.table
        ]
        consts = code.co_consts
        cc = CanonicalCode(
            instrs=self.out,
            regions=regions,
            argcount=code.co_argcount,
            posonlyargcount=code.co_posonlyargcount,
            kwonlyargcount=code.co_kwonlyargcount,
            varnames=self.varnames,
            cellvars=self.cellvars,
            freevars=code.co_freevars,
            flags=code.co_flags,
            name=code.co_name,
            qualname=code.co_qualname,
            filename=code.co_filename,
            firstlineno=code.co_firstlineno,
            docstring=consts[0] if consts and isinstance(consts[0], str) else None,
        )
        if self.dialect.finish_decode is not None:
            self.dialect.finish_decode(self)
        return cc


_REAL_JUMPS = frozenset(opcode.opname[number] for number in opcode.hasjrel if number < 256)


# A landing is where the jump of a FOR_ITER or SEND leads: landing -> the op that jumps to it, and instructions with the
# effect that the landing has in canonical form.
_LANDINGS: dict[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    "END_FOR": ("FOR_ITER", (("POP_TOP", None),)),
    "END_SEND": ("SEND", (("SWAP", 2), ("POP_TOP", None))),
}


def separate_landings(items: list[Instr | Label], landings: frozenset[str]) -> list[Instr | Label]:
    """Give paths that reach a landing without the jump of its FOR_ITER or SEND instructions of their own.

    The real FOR_ITER and SEND do part of the landing's work when they jump.  A path that gets there in another way (a
    resume function can start there) does that work with ordinary instructions and goes around the landing.  Returns
    `items` itself if there is nothing to do.
    """
    if not any(isinstance(item, Instr) and item.op in landings for item in items):
        return items
    users: dict[Label, set[str]] = {}
    for item in items:
        if isinstance(item, Instr) and OPS[item.op].jump:
            users.setdefault(item.arg, set()).add(item.op)
    result: list[Instr | Label] = []
    falls_through = True
    for item in items:
        result.append(item)
        if isinstance(item, Label):
            continue
        if item.op in landings:
            origin, equivalent = _LANDINGS[item.op]
            at = len(result) - 1
            while at and isinstance(result[at - 1], Label):
                at -= 1
            labels = [label for label in result[at:-1] if isinstance(label, Label)]
            direct = [label for label in labels if origin in users.get(label, ())]
            others = [label for label in labels if users.get(label, set()) - {origin}]
            if falls_through or others:
                after = Label("landed")
                del result[at:]
                result += [label for label in labels if label not in direct]
                result += [Instr(op, arg, item.pos) for op, arg in equivalent]
                if direct:
                    result += [Instr("JUMP", after, item.pos), *direct, item]
                result.append(after)
        falls_through = not OPS[item.op].terminator
    return result


class Encoder:
    """Translates canonical code to a code object of the running version."""

    def __init__(self, cc: CanonicalCode, dialect: Dialect) -> None:
        items = separate_landings(cc.instrs, dialect.landings)
        if items is not cc.instrs:
            cc = replace(cc, instrs=items)
        self.cc = cc
        self.dialect = dialect
        self.items = items
        self.asm = RawAssembler()
        self.consts: list[Any] = [cc.docstring]
        self._const_index: dict[Any, int] = {} if cc.docstring is None else {id(cc.docstring): 0}
        self._names: dict[str, int] = {}
        slots = slot_names(cc.varnames, cc.cellvars, cc.freevars)
        first_free = len(slots) - len(cc.freevars)
        self._local_slot: dict[str, int] = {}
        for index, name in enumerate(slots):
            self._local_slot.setdefault(name, index)
        self._cell_slot = {name: self._local_slot[name] for name in cc.cellvars}
        self._cell_slot.update((name, first_free + index) for index, name in enumerate(cc.freevars))
        self.place = {item: index for index, item in enumerate(self.items) if isinstance(item, Label)}
        self.targets = {item.arg for item in self.items if isinstance(item, Instr) and OPS[item.op].jump}
        self.targets.update(region.handler for region in cc.regions)
        self.bound = set() if dialect.checks_unbound else definitely_bound(cc)
        self.edges: set[Label] = set()
        if dialect.pads_region_edges:
            self.edges = {label for region in cc.regions for label in (region.start, region.end)}

    def put(self, op: str, arg: int | Label, pos: Position) -> None:
        """Write a real instruction."""
        self.asm.put(op, arg, pos)

    def const(self, value: Any) -> int:
        """The index of `value` among the constants; equal constants that are different objects stay apart."""
        index = self._const_index.get(id(value))
        if index is None:
            index = self._const_index[id(value)] = len(self.consts)
            self.consts.append(value)
        return index

    def name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def local_slot(self, name: str) -> int:
        return self._local_slot[name]

    def cell_slot(self, name: str) -> int:
        return self._cell_slot[name]

    def at(self, index: int, op: str, arg: Any = ...) -> Instr | None:
        """The item at `index` if it is instruction `op` (with argument `arg`), else None."""
        if not 0 <= index < len(self.items):
            return None
        item = self.items[index]
        if isinstance(item, Instr) and item.op == op and (arg is ... or item.arg == arg):
            return item
        return None

    def before(self, index: int) -> int | None:
        """Index of the instruction that always runs directly before the one at `index`, or None."""
        index -= 1
        while index >= 0:
            item = self.items[index]
            if isinstance(item, Instr):
                return None if OPS[item.op].terminator else index
            if item in self.targets:
                return None
            index -= 1
        return None

    def is_backward(self, index: int, target: Label) -> bool:
        return self.place[target] <= index

    def plain(self, instr: Instr) -> None:
        """Write `instr` as the real instruction of the same name."""
        kind = OPS[instr.op].kind
        arg: Any = instr.arg
        if kind is ArgKind.NONE:
            arg = 0
        elif kind is ArgKind.CONST:
            arg = self.const(arg)
        elif kind is ArgKind.NAME:
            arg = self.name(arg)
        elif kind is ArgKind.LOCAL:
            arg = self._local_slot[arg]
        elif kind is ArgKind.CELL:
            arg = self._cell_slot[arg]
        elif kind is ArgKind.BINARY:
            arg = BINARY_OPERATORS.index(arg)
        elif kind is ArgKind.COMPARE:
            arg = COMPARE_OPERATORS.index(arg)
        elif kind is ArgKind.INTRINSIC_1 or kind is ArgKind.INTRINSIC_2:
            arg = _INTRINSICS[kind].index(arg)
        self.asm.put(instr.op, arg, instr.pos)

    def run(self) -> types.CodeType:
        """Write everything; ValueError for an op that this version cannot express."""
        items, encoders, asm = self.items, self.dialect.encoders, self.asm
        index = 0
        at_edge = False
        while index < len(items):
            item = items[index]
            if isinstance(item, Label):
                asm.label(item)
                index += 1
                at_edge = at_edge or item in self.edges
                continue
            if at_edge and OPS[item.op].may_raise and item.op not in _LANDINGS:
                self.put("NOP", 0, item.pos)
            at_edge = False
            encode = encoders.get(item.op)
            if encode is not None:
                index += encode(self, item, index)
            elif item.op in opcode.opmap:
                self.plain(item)
                index += 1
            else:
                raise ValueError(f"{item.op} cannot be written on {self.dialect.version}")
        # The real FOR_ITER and SEND can need one slot more than the canonical ones.
        stacksize = max_stack_depth(self.cc) + 1
        return asm.finish(self.cc, tuple(self.consts), tuple(self._names), stacksize)


# Encoders used by several versions.


def encode_load_fast_checked(encoder: Encoder, instr: Instr, index: int) -> int:
    """From 3.12 on LOAD_FAST does not check for an unbound local; LOAD_FAST_CHECK does."""
    op = "LOAD_FAST" if instr in encoder.bound else "LOAD_FAST_CHECK"
    encoder.put(op, encoder.local_slot(instr.arg), instr.pos)
    return 1


def encode_jump(encoder: Encoder, instr: Instr, index: int) -> int:
    op = "JUMP_BACKWARD" if encoder.is_backward(index, instr.arg) else "JUMP_FORWARD"
    encoder.put(op, instr.arg, instr.pos)
    return 1


def encode_jump_no_interrupt(encoder: Encoder, instr: Instr, index: int) -> int:
    backward = encoder.is_backward(index, instr.arg)
    encoder.put("JUMP_BACKWARD_NO_INTERRUPT" if backward else "JUMP_FORWARD", instr.arg, instr.pos)
    return 1


OPPOSITE = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}


def put_forward_only(encoder: Encoder, instr: Instr, index: int) -> None:
    """From 3.12 on conditional jumps go forward only: a backward one becomes the opposite test around a JUMP."""
    if not encoder.is_backward(index, instr.arg):
        encoder.put(instr.op, instr.arg, instr.pos)
        return
    over = Label("over")
    encoder.put(OPPOSITE[instr.op], over, instr.pos)
    encoder.put("JUMP_BACKWARD", instr.arg, instr.pos)
    encoder.asm.label(over)


def decode_nop(decoder: Decoder, raw: Raw) -> None:
    """Drop a NOP that has the position of the next instruction, such as those that `pads_region_edges` adds."""
    following = decoder.next_raw()
    if following is None or following.pos != raw.pos:
        decoder.emit("NOP", None, raw.pos)


def encode_super_attr(encoder: Encoder, instr: Instr, index: int) -> int:
    name, is_method, is_two_arg = instr.arg
    encoder.put(instr.op, encoder.name(name) << 2 | is_two_arg << 1 | is_method, instr.pos)
    return 1


def decode_super_attr(decoder: Decoder, raw: Raw) -> None:
    arg = (decoder.code.co_names[raw.arg >> 2], bool(raw.arg & 1), bool(raw.arg & 2))
    decoder.emit("LOAD_SUPER_ATTR", arg, raw.pos)
