"""`verify(cc)` raises VerifyError unless canonical code is well formed; emitted code passes it before `materialize`."""

from __future__ import annotations

from .flow import FlowGraph, StackConflict, build_flow, stack_depths
from .isa import (
    BINARY_OPERATORS,
    COMPARE_OPERATORS,
    LANDING_OF,
    OPS,
    ArgKind,
    CanonicalCode,
    Instr,
    Label,
)

_NEIGHBOURS = 6


class VerifyError(ValueError):
    """Malformed canonical code; the message shows the neighbourhood."""


def format_instrs(
    cc: CanonicalCode, around: int | None = None, depths: list[int | None] | None = None
) -> str:
    """A listing: ordinal, depth if given, op, argument; `around` marks an ordinal and shows only its neighbours."""
    lines = []
    index = -1
    for item in cc.instrs:
        if isinstance(item, Label):
            if around is None or abs(index + 1 - around) <= _NEIGHBOURS:
                lines.append(f"        {item!r}:")
            continue
        index += 1
        if around is not None and abs(index - around) > _NEIGHBOURS:
            continue
        mark = "-->" if index == around else "   "
        depth = "" if depths is None else f"[{depths[index]}] "
        arg = "" if item.arg is None and item.op != "LOAD_CONST" else repr(item.arg)[:60]
        lines.append(f"{mark} {index:4} {depth}{item.op} {arg}".rstrip())
    return "\n".join(lines)


def _fail(cc: CanonicalCode, message: str, index: int | None = None) -> None:
    where = f" at {index}" if index is not None else ""
    raise VerifyError(f"{cc.qualname}{where}: {message}\n{format_instrs(cc, index)}")


def _argument_error(cc: CanonicalCode, instr: Instr, names: dict[ArgKind, frozenset[str]]) -> str | None:
    kind, arg = OPS[instr.op].kind, instr.arg
    if kind is ArgKind.NONE:
        return None if arg is None else f"{instr.op} takes no argument, has {arg!r}"
    if kind is ArgKind.INT:
        ok = isinstance(arg, int) and arg >= 0
    elif kind is ArgKind.NAME:
        ok = isinstance(arg, str)
    elif kind in names:
        ok = arg in names[kind]
    elif kind is ArgKind.COMPARE:
        ok = arg in COMPARE_OPERATORS
    elif kind is ArgKind.BINARY:
        ok = arg in BINARY_OPERATORS
    elif kind is ArgKind.SUPER:
        ok = isinstance(arg, tuple) and len(arg) == 3
    elif kind is ArgKind.LABEL:
        ok = isinstance(arg, Label)
    else:
        ok = True
    return None if ok else f"bad argument {arg!r} of {instr.op}"


def _check_instrs(cc: CanonicalCode) -> None:
    cells = frozenset(cc.cellvars) | frozenset(cc.freevars)
    names = {ArgKind.LOCAL: cells | frozenset(cc.varnames), ArgKind.CELL: cells}
    labels = [item for item in cc.instrs if isinstance(item, Label)]
    defined = set(labels)
    if len(defined) != len(labels):
        _fail(cc, "a label occurs twice")
    seen: set[Instr] = set()
    for index, instr in enumerate(cc.real_instrs()):
        if instr.op not in OPS:
            _fail(cc, f"unknown op {instr.op}", index)
        if instr in seen:
            _fail(cc, "the same Instr object occurs twice", index)
        seen.add(instr)
        problem = _argument_error(cc, instr, names)
        if problem is None and OPS[instr.op].jump and instr.arg not in defined:
            problem = f"undefined {instr.arg!r}"
        if problem is not None:
            _fail(cc, problem, index)
    for region in cc.regions:
        for label in (region.start, region.end, region.handler):
            if label not in defined:
                _fail(cc, f"region uses undefined {label!r}")


def _check_regions(cc: CanonicalCode, flow: FlowGraph) -> None:
    spans = []
    for region in cc.regions:
        start, end = flow.place[region.start], flow.place[region.end]
        if start > end:
            _fail(cc, f"region ends ({end}) before it starts ({start})", end)
        if region.depth < 0:
            _fail(cc, f"region has depth {region.depth}", start)
        spans.append((start, end))
    for inner, (start, end) in enumerate(spans):
        for other_start, other_end in spans[inner + 1 :]:
            apart = end <= other_start or other_end <= start
            inside = other_start <= start and end <= other_end
            if not apart and not inside:
                _fail(
                    cc,
                    f"region {start}..{end} is neither inside nor apart from {other_start}..{other_end}",
                    start,
                )


def _check_landings(cc: CanonicalCode, flow: FlowGraph) -> None:
    """A FOR_ITER must jump to an END_FOR, a SEND to an END_SEND: the real instructions do both in one."""
    for index, instr in enumerate(flow.instrs):
        landing = LANDING_OF.get(instr.op)
        if landing is None:
            continue
        target = flow.place[instr.arg]
        if target >= len(flow.instrs) or flow.instrs[target].op != landing:
            _fail(cc, f"{instr.op} must lead to {landing}", index)


def _check_keyword_names(cc: CanonicalCode) -> None:
    """Up to 3.12 the names of a CALL_KW are part of the real call, so nothing may come between."""
    index = -1
    before: Instr | Label | None = None
    for item in cc.instrs:
        if isinstance(item, Instr):
            index += 1
            if item.op == "CALL_KW" and not (
                isinstance(before, Instr) and before.op == "LOAD_CONST" and isinstance(before.arg, tuple)
            ):
                _fail(cc, "CALL_KW must directly follow the LOAD_CONST of its names", index)
        before = item


def verify(cc: CanonicalCode) -> None:
    """Raise VerifyError unless labels, names, regions and stack depths of `cc` are consistent."""
    nargs = cc.argcount + cc.kwonlyargcount + bool(cc.flags & 0x04) + bool(cc.flags & 0x08)
    if nargs > len(cc.varnames) or cc.posonlyargcount > cc.argcount:
        _fail(cc, f"{nargs} arguments, {len(cc.varnames)} local names")
    if len(set(cc.varnames)) != len(cc.varnames):
        _fail(cc, "a local name is listed twice")
    _check_instrs(cc)
    flow = build_flow(cc)
    if not flow.instrs:
        _fail(cc, "no instructions")
    _check_regions(cc, flow)
    _check_landings(cc, flow)
    _check_keyword_names(cc)
    try:
        stack_depths(cc, flow)
    except StackConflict as conflict:
        _fail(cc, str(conflict), conflict.index)
