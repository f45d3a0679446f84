"""Resume functions: code objects that continue a frame in the middle, generated from the original code object.

After a graph break the rest of a frame runs as a call of a resume function. Its parameters are the stack slots and the
live locals at the break, its free variables are the original's cells and free variables, and its body is the original
body, entered by a jump. Exception regions, loops and line positions are the original's: tracebacks, `try` and `with`
keep working, and a later break in the same body can resume from the resume function in the same way.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyframe.bytecode import (
    CanonicalCode,
    Instr,
    Label,
    TryRegion,
    canonicalize,
    materialize,
    verify,
)
from pyframe.bytecode.flow import build_flow, displaced_cells, exit_copies, reachable, stack_depths

from ..core.guard import UserLine
from ..core.per_code import per_code
from ..core.source import LocalSource, Source
from .loops import UNBOUND, LoopBodySpec, extract_loop_body

CO_OPTIMIZED, CO_NEWLOCALS, CO_VARARGS, CO_VARKEYWORDS, CO_NESTED = 0x01, 0x02, 0x04, 0x08, 0x10
CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
CO_HAS_DOCSTRING = 0x4000000  # from 3.13
_SUSPENDING = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_NOT_INHERITED = CO_VARARGS | CO_VARKEYWORDS | CO_HAS_DOCSTRING
_SUFFIX = re.compile(r"__(resume|body)_\d+$")
RAISED = "__raised"  # local for an exception raised before the first instruction
FIRST = "__self"  # parameter for the first argument if that is a cell


@dataclass(frozen=True, slots=True)
class ResumeKey:
    """All that a resume function depends on; breaks with equal keys share one.

    `at`: ordinal of the next instruction to run, among the real instructions of `canonicalize(code)`. `stack_nulls`:
    which stack slots hold NULL, bottom first. `live`: the locals that are passed; those in `maybe` are passed as
    UNBOUND if unbound. `first`: a local (or FIRST) that is passed before everything else, because `super()` reads the
    frame's first argument. `cut`: the code is the body of that loop. `handled`: the number of exceptions being handled;
    they are passed too, because otherwise they exist only as the thread's current exceptions. `raised_at`: the
    instruction whose handler handles an exception that occurs before the first instruction (default: `at`), so that
    `with` blocks are exited and handlers run.
    """

    code: types.CodeType
    at: int
    stack_nulls: tuple[bool, ...]
    live: tuple[str, ...]
    first: str | None = None
    maybe: tuple[str, ...] = ()
    cut: LoopBodySpec | None = None
    handled: int = 0
    raised_at: int | None = None


class Continuation:
    """What is known about a resume function beyond its code.

    `varying`: sources whose values of the given types are not constants. `sizes`: dimensions of tensors that vary.
    `loops`: it runs once per iteration of a loop. `handled`: the number of exceptions being handled when it is called.
    `handles_errors`: its RESUME has an exception handler. `after`: the line of the first break that it was made for.
    `original`: the code that it continues, held weakly, and for each of its instructions the ordinal of the same one
    there, -1 if there is none. `owners`: for sources that captures found to vary, the object that they were read from
    then, None if its value is known to change. `constants`: those that are constants again. `texts`: how many captures
    made a text that varies a constant. `symbols`: numbers that are symbols, because an operator takes them as a size or
    an index, and how many captures did not fit another number. `key`: what it was made for, with the code held weakly:
    `parts_of` a ResumeKey.
    """

    def __init__(self) -> None:
        self.varying: dict[Source, tuple[type, ...]] = {}
        self.sizes: set[tuple[Source, int]] = set()
        self.loops = False
        self.handled = 0
        self.handles_errors = False
        self.after: UserLine | None = None
        self.original: tuple[weakref.ref[types.CodeType], tuple[int, ...]] | None = None
        self.owners: dict[Source, weakref.ref[Any] | None] = {}
        self.constants: set[Source] = set()
        self.texts = 0
        self.symbols: dict[Source, int] = {}
        self.key: tuple[weakref.ref[types.CodeType], tuple[Any, ...]] | None = None

    def generalize(self, source: Source, types: tuple[type, ...], owner: weakref.ref[Any] | None, limit: int) -> None:
        """A capture found another value at `source` than the one before it, read from `owner`. It varies from now on,
        unless a capture needed its value and it is read from another object now, or it is a symbol and fewer than
        `limit` captures did not fit."""
        if source in self.symbols:
            self.symbols[source] += 1
            if self.symbols[source] < limit:
                return
            self.constants.discard(source)
        elif source in self.constants:
            before = self.owners.get(source)
            if before is not None and owner is not None and before() is not owner():
                self.owners[source] = owner
                return
            self.constants.discard(source)
            self.owners[source] = None  # a value that changes, such as that of a counter
        self.varying[source] = types
        self.owners.setdefault(source, owner)

    def specialize(self, sources: Sequence[Source], texts: int = 0) -> bool:
        """Make values at `sources` constants again, because the capture can only go on if it knows them: the number of
        a layer that is a key, for example. `texts`: how many captures may do so where the value is a text, such as a
        name, that each iteration of the loop gets or computes. False if that would not help, as one of them is not
        such a value."""
        if not sources or not self.constants.isdisjoint(sources):
            return False
        if any(self.owners.get(source) is None for source in sources):
            if not self.loops or self.texts >= texts:
                return False
            self.texts += 1
        for source in sources:
            self.varying[source] = ()  # an item of a tuple would vary with the tuple
        self.constants.update(sources)
        return True

    def is_symbol(self, source: Source) -> bool:
        """Whether a number is a symbol although values of loops are not, because an operator takes it."""
        return source in self.symbols and not self.varying.get(source)

    def make_symbolic(self, sources: Sequence[Source]) -> bool:
        """Make numbers at `sources` symbols from the next capture on. False if they are, or cannot be any more."""
        if not self.loops or any(source in self.symbols for source in sources):
            return False
        for source in sources:
            self.varying[source] = ()
            self.symbols[source] = 0
        return True


_CONTINUATIONS: dict[int, Continuation] = {}


def continuation(code: types.CodeType) -> Continuation | None:
    """The Continuation of a resume function's code, None for other code."""
    return _CONTINUATIONS.get(id(code))


@per_code
def _resumes(code: types.CodeType) -> dict[tuple[Any, ...], types.CodeType]:
    """The resume functions made from `code`, by key."""
    return {}


@per_code
def _exit_copies(code: types.CodeType) -> dict[int, int]:
    return exit_copies(canonicalize(code))


def shared_resume(key: ResumeKey) -> types.CodeType:
    """`make_resume_for(key)`, with one code object for equal keys, whose captures are shared and counted together. If
    the frame to continue runs a resume function itself, the result is made from the code that this one continues:
    branches that join again after breaks have the same resume functions from there on, also where the compiler of
    CPython has copied the block in which they join."""
    key = _in_original(key)
    if key.cut is None:
        key = dataclasses.replace(key, at=_exit_copies(key.code).get(key.at, key.at))
    mine = _resumes(key.code)
    parts = parts_of(key)
    code = mine.get(parts)
    if code is None:
        code, handles_errors, places = _make(key)
        known = _CONTINUATIONS[id(code)] = Continuation()
        weakref.finalize(code, _CONTINUATIONS.pop, id(code), None)
        known.handles_errors = handles_errors
        known.key = weakref.ref(key.code), parts
        if key.cut is None:
            known.original = (weakref.ref(key.code), places)  # which holds this code
        mine[parts] = code
    return code


def parts_of(key: ResumeKey) -> tuple[Any, ...]:
    """All of a key but the code, in the order of its fields."""
    return key.at, key.stack_nulls, key.live, key.first, key.maybe, key.cut, key.handled, key.raised_at


def _in_original(key: ResumeKey) -> ResumeKey:
    """The key for the same place in the code that the resume function `key.code` continues; `key` itself for other
    code, and for places that are only in the resume function."""
    known = continuation(key.code)
    if known is None or known.original is None or key.cut is not None:
        return key
    original, places = known.original
    code = original()
    if code is None:
        return key
    at, raised_at = places[key.at], None if key.raised_at is None else places[key.raised_at]
    live = key.live if key.first != FIRST else tuple(name for name in key.live if name != FIRST)
    if at < 0 or raised_at == -1 or not {*live} <= {*code.co_varnames} - {*code.co_cellvars}:
        return key
    return dataclasses.replace(key, code=code, at=at, raised_at=raised_at, live=live)


def parameter_source(code: types.CodeType, name: str) -> LocalSource:
    """The source of parameter `name` of a resume function."""
    return LocalSource(name, code.co_varnames.index(name))


def super_argument(cc: CanonicalCode) -> str | None:
    """The local that `super()` without arguments reads; None if the code cannot call it."""
    names = {item.arg for item in cc.real_instrs() if item.op in ("LOAD_GLOBAL", "LOAD_NAME")}
    return cc.varnames[0] if "__class__" in cc.freevars and "super" in names and cc.varnames else None


@functools.lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """The name of the function that a resume function continues."""
    return _SUFFIX.sub("", name)


def stack_parameter(slot: int, live: tuple[str, ...] = ()) -> str:
    """The name of the parameter for stack slot `slot` (0 is the bottom)."""
    name = f"__stack_{slot}"
    while name in live:  # a break in the prologue of a resume function
        name = f"_{name}"
    return name


def handled_parameter(number: int, live: tuple[str, ...] = ()) -> str:
    """The name of the parameter for an exception being handled (0 is the outermost)."""
    name = f"__handled_{number}"
    while name in live:
        name = f"_{name}"
    return name


def copy_body(
    cc: CanonicalCode, kept: set[int] | None = None
) -> tuple[list[Instr | Label], list[TryRegion], dict[int, Label]]:
    """Copy instructions and exception regions with new labels, and put a label before each kept instruction.

    `kept` holds the ordinals of real instructions to keep (default: all). Every path out of a kept instruction must
    lead to kept instructions; regions shrink to what remains.
    """
    fresh: dict[Label, Label] = {item: Label(item.name) for item in cc.instrs if isinstance(item, Label)}
    entries: dict[int, Label] = {}
    body: list[Instr | Label] = []
    index = -1
    for item in cc.instrs:
        if isinstance(item, Label):
            body.append(fresh[item])
            continue
        index += 1
        if kept is not None and index not in kept:
            continue
        entries[index] = Label(f"i{index}")
        arg = fresh.get(item.arg, item.arg) if isinstance(item.arg, Label) else item.arg
        body += (entries[index], Instr(item.op, arg, item.pos))
    regions = [
        TryRegion(fresh[r.start], fresh[r.end], fresh[r.handler], r.depth, r.lasti) for r in cc.regions
    ]
    return body, regions, entries


def drop_empty_regions(cc: CanonicalCode) -> None:
    """Remove regions that cover nothing and labels that nothing uses."""
    place = build_flow(cc).place
    cc.regions = [region for region in cc.regions if place[region.start] < place[region.end]]
    used = {item.arg for item in cc.instrs if isinstance(item, Instr) and isinstance(item.arg, Label)}
    for region in cc.regions:
        used.update((region.start, region.end, region.handler))
    cc.instrs = [item for item in cc.instrs if isinstance(item, Instr) or item in used]


def keyword_names(instrs: list[Instr], index: int) -> tuple[str, ...]:
    """The keyword names of the CALL_KW at ordinal `index`, from the LOAD_CONST before it."""
    load = instrs[index - 1]
    if load.op != "LOAD_CONST":
        raise ValueError(f"CALL_KW at {index} does not follow the LOAD_CONST of its names")
    return load.arg


class CannotResume(ValueError):
    """No function can continue this code at the given instruction; any other ValueError here is a wrong argument."""


def _check(key: ResumeKey, cc: CanonicalCode) -> None:
    where = f"{cc.qualname}, instruction {key.at}"
    if cc.flags & _SUSPENDING:
        raise CannotResume(f"{where}: generators and coroutines cannot be resumed")
    depths = stack_depths(cc)
    if not 0 <= key.at < len(depths) or depths[key.at] is None:
        raise ValueError(f"{where}: no reachable instruction there")
    if depths[key.at] != len(key.stack_nulls):
        raise ValueError(f"{where}: stack depth is {depths[key.at]}, not {len(key.stack_nulls)}")
    hidden = displaced_cells(cc)[key.at]
    if hidden:
        raise CannotResume(f"{where}: a comprehension variable hides a cell: {', '.join(sorted(hidden))}")
    slots = set(cc.varnames)
    shared = slots.intersection(cc.cellvars)
    for name in key.live:
        if name not in slots or name in shared:
            kind = "a cell" if name in shared else "not a local"
            raise ValueError(f"{where}: {name!r} is {kind} and cannot be passed as a live local")
    if len(set(key.live)) != len(key.live):
        raise ValueError(f"{where}: a live local is listed twice")


def make_resume(
    code: types.CodeType,
    at: int,
    stack_depth: int,
    stack_nulls: tuple[bool, ...],
    live: tuple[str, ...],
) -> types.CodeType:
    """Code that continues `code` with instruction `at` (an ordinal, see ResumeKey).

    Positional parameters: one for each stack slot that is not NULL, bottom first, then one for each name in `live`;
    locals not in `live` start unbound. Free variables: `code.co_cellvars + code.co_freevars`, in this order; the caller
    passes the frame's own cells. The stack slots are those right before `at` runs, including results of the breaking
    instruction.

    Inside an `except` or `finally` handler, the exception being handled must still be the thread's current one when the
    resume function is called: the body's own POP_EXCEPT ends it.

    Raises CannotResume for generators and coroutines, and inside an inlined comprehension whose variable hides a cell
    of the same name; ValueError for an unreachable target, a stack of another depth, and a live name that is not a
    plain local.
    """
    if stack_depth != len(stack_nulls):
        raise ValueError(f"{len(stack_nulls)} null flags for {stack_depth} stack slots")
    return make_resume_for(ResumeKey(code, at, tuple(stack_nulls), tuple(live)))


def make_resume_for(key: ResumeKey) -> types.CodeType:
    """`make_resume` for a key."""
    return _make(key)[0]


def _make(key: ResumeKey) -> tuple[types.CodeType, bool, tuple[int, ...]]:
    """The resume function's code, whether its RESUME has an exception handler, and for each of its instructions the
    ordinal of the one in `key.code` of which it is a copy, or -1."""
    cc = canonicalize(key.code)
    _check(key, cc)
    cc, at = (cc, key.at) if key.cut is None else extract_loop_body(cc, key.cut)
    names = [stack_parameter(slot, key.live) for slot in range(len(key.stack_nulls))]
    params = [] if key.first is None else [key.first]
    params += [name for name, null in zip(names, key.stack_nulls, strict=True) if not null]
    handled = [handled_parameter(number, key.live) for number in range(key.handled)]
    params += handled
    params += [name for name in key.live if name != key.first]
    target = cc.real_instrs()[at]
    # Up to 3.12 the names of a CALL_KW belong to the instruction: pop them and enter at their LOAD_CONST.
    has_names = target.op == "CALL_KW"
    entry = at - has_names
    if has_names:
        keyword_names(cc.real_instrs(), at)
    flow = build_flow(cc)
    region = flow.region[at if key.cut is not None or key.raised_at is None else key.raised_at]
    kept = reachable(cc, entry, flow)
    if region is not None:
        kept |= reachable(cc, flow.place[region.handler], flow)
    body, regions, entries = copy_body(cc, kept)
    copies = {id(item): at for item, at in zip((i for i in body if isinstance(i, Instr)), entries, strict=True)}
    prologue = [*_start(cc, target), *_state(key, names)]
    prologue += (Instr("DELETE_FAST", name) for name in handled)
    if has_names:
        prologue.append(Instr("POP_TOP"))
    prologue.append(Instr("JUMP", entries[entry]))
    if region is not None:
        handler = entries[flow.place[region.handler]]
        body += _raise_again(prologue, regions, dataclasses.replace(region, handler=handler), _state(key, names))
    kept_names = {item.arg for item in body if isinstance(item, Instr) and isinstance(item.arg, str)}
    locals_ = [
        name for name in cc.varnames if name not in cc.cellvars and name in kept_names and name not in params
    ]
    locals_ += [RAISED] * (RAISED in kept_names and RAISED not in locals_)
    freevars = cc.cellvars + cc.freevars
    suffix = f"__{'resume' if key.cut is None else 'body'}_{key.at}"
    resumed = CanonicalCode(
        instrs=[*prologue, *body],
        regions=regions,
        argcount=len(params),
        varnames=(*params, *locals_),
        freevars=freevars,
        flags=(cc.flags & ~_NOT_INHERITED) | CO_OPTIMIZED | CO_NEWLOCALS | (CO_NESTED if freevars else 0),
        name=plain_name(cc.name) + suffix,
        qualname=plain_name(cc.qualname) + suffix,
        filename=cc.filename,
        firstlineno=cc.firstlineno,
    )
    drop_empty_regions(resumed)
    verify(resumed)
    code = materialize(resumed)
    return code, region is not None, _places(resumed, code, copies)


def _places(cc: CanonicalCode, code: types.CodeType, copies: Mapping[int, int]) -> tuple[int, ...]:
    """For each instruction of `canonicalize(code)`, which was made from `cc`: the ordinal in `copies` of that of `cc`,
    found by its id, or -1."""
    made, found = cc.real_instrs(), canonicalize(code).real_instrs()
    if [item.op for item in made] != [item.op for item in found]:
        return (-1,) * len(found)
    return tuple(copies.get(id(item), -1) for item in made)


def _start(cc: CanonicalCode, target: Instr) -> list[Instr | Label]:
    """The first instructions of a resume function: COPY_FREE_VARS and RESUME."""
    start: list[Instr | Label] = []
    if cc.cellvars or cc.freevars:
        start.append(Instr("COPY_FREE_VARS", len(cc.cellvars) + len(cc.freevars)))
    # The position is the user's line from the start, so that profilers and tracebacks do not show the resume.
    start.append(Instr("RESUME", 0, target.pos._replace(col=None, end_col=None, end_lineno=None)))
    return start


def _raise_again(
    prologue: list[Instr | Label], regions: list[TryRegion], region: TryRegion, state: list[Instr | Label]
) -> list[Instr | Label]:
    """The handler of the RESUME in `prologue`. `state` sets up stack and locals as at the start of the body; there,
    inside `region` of the body, the exception is raised again. Adds to `regions`."""
    at = next(i for i, item in enumerate(prologue) if isinstance(item, Instr) and item.op == "RESUME")
    resume = prologue[at]
    assert isinstance(resume, Instr)
    start, end, handler, raised, done = map(Label, ("resume", "resumed", "failed", "raised", "raised.end"))
    prologue[at : at + 1] = [start, resume, end]
    regions.append(TryRegion(start, end, handler, 0, False))
    regions.append(TryRegion(raised, done, region.handler, region.depth, region.lasti))
    load = (Instr("LOAD_FAST", RAISED), Instr("DELETE_FAST", RAISED))
    return [handler, Instr("STORE_FAST", RAISED), *state, *load, raised, Instr("RERAISE", 0), done]


def _state(key: ResumeKey, names: list[str]) -> list[Instr | Label]:
    """Instructions that move the arguments to their places in the frame: stack slots, and unbound locals."""
    state: list[Instr | Label] = []
    for name, null in zip(names, key.stack_nulls, strict=True):
        if null:
            state.append(Instr("PUSH_NULL"))
        else:  # moved, not copied: a parameter must not keep a value alive longer than the stack would
            state += (Instr("LOAD_FAST", name), Instr("DELETE_FAST", name))
    for name in key.maybe:
        bound = Label(f"{name}.bound")
        state += (Instr("LOAD_FAST", name), Instr("LOAD_CONST", UNBOUND), Instr("IS_OP", 0))
        state += (Instr("POP_JUMP_IF_FALSE", bound), Instr("DELETE_FAST", name), bound)
    return state
