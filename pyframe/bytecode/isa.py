"""The canonical instruction set: the one bytecode that the rest of pyframe reads and writes.

It is CPython 3.13's instruction set without super-instructions, caches and version quirks.  Arguments are
resolved: `LOAD_FAST 'x'`, `LOAD_CONST obj`, `COMPARE_OP '<'`, `BINARY_OP '+='`, jumps to a `Label`.  Where the
versions disagree on the order of the two slots of a callable, the running version's own order is kept, and a
reader accepts both (see "Calls").

Calls
-----
`CALL n` consumes `[a, b, arg1 .. argn]`, last pushed on the right:

* `a` is NULL: call `b(arg1 .. argn)`  (3.11 and 3.12 plain call; 3.11 `LOAD_METHOD` of a non-method);
* `b` is NULL: call `a(arg1 .. argn)`  (3.13 and later plain call);
* neither:     call `a(b, arg1 .. argn)` (a method and its self).

`CALL_KW n` is the same with a tuple of keyword names on top; `n` counts positional and keyword arguments.  It
directly follows the `LOAD_CONST` of the names: up to 3.12 the names are part of the real call.
`CALL_FUNCTION_EX f` consumes `[a, b, args_tuple]` and, if `f & 1`, a mapping on top; `a`, `b` as above, except
that no self is ever passed: one of the two is NULL.  `LOAD_METHOD 'm'` replaces the object by such a pair.
A plain callable is loaded as `PUSH_NULL; <load>` up to 3.12 and as `<load>; PUSH_NULL` from 3.13:
`call_sequence` gives the right order.

Loops and generators
--------------------
`FOR_ITER L` pushes the next value, or jumps to L with the iterator still on the stack; `L: END_FOR` pops it.
`SEND L` replaces `[receiver, value]` by `[receiver, yielded]`, or jumps to L with `[receiver, returned]`;
`L: END_SEND` drops the receiver.

Truth
-----
`POP_JUMP_IF_TRUE/FALSE` and `UNARY_NOT` take any object: up to 3.12 they test truth themselves.  `TO_BOOL`
appears where 3.13 has it; `materialize` adds or drops it as the running version needs.

Functions
---------
`MAKE_FUNCTION flags` pops the code and, below it, one value for each set flag (8 closure on top, 4 annotations,
2 keyword defaults, 1 positional defaults).  3.13 and later use flags 0 followed by `SET_FUNCTION_ATTRIBUTE flag`
(pops function and value, pushes the function); both forms may appear, and flags work on every version.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Position(NamedTuple):
    """Source range of an instruction; lines count from 1, columns are UTF-8 byte offsets from 0."""

    lineno: int | None = None
    end_lineno: int | None = None
    col: int | None = None
    end_col: int | None = None


NO_POSITION = Position()


class ArgKind(enum.Enum):
    """What `Instr.arg` holds."""

    NONE = "none"  # always None
    INT = "int"  # an operand count, a flag set, a stack distance
    CONST = "const"  # any object
    NAME = "name"  # str: attribute, global or module name
    LOCAL = "local"  # str: a slot of the frame, read and written raw
    CELL = "cell"  # str: a cell or free variable
    LABEL = "label"  # a Label
    COMPARE = "compare"  # one of COMPARE_OPERATORS
    BINARY = "binary"  # one of BINARY_OPERATORS
    INTRINSIC_1 = "intrinsic_1"  # str, as in the dis documentation
    INTRINSIC_2 = "intrinsic_2"
    SUPER = "super"  # tuple (name, is_method, is_two_arg)


COMPARE_OPERATORS = ("<", "<=", "==", "!=", ">", ">=")
_PLAIN_BINARY = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
# Position in this tuple is CPython's NB_* number on every supported version.
BINARY_OPERATORS = _PLAIN_BINARY + tuple(f"{symbol}=" for symbol in _PLAIN_BINARY)

FLAG_DEFAULTS, FLAG_KWDEFAULTS, FLAG_ANNOTATIONS, FLAG_CLOSURE, FLAG_ANNOTATE = 1, 2, 4, 8, 16

Count = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Op:
    """One row: `pops(arg)` slots are read and removed, then `pushes(arg)` are added (`jump_pushes` if it jumps)."""

    name: str
    kind: ArgKind
    pops: Count
    pushes: Count
    jump_pushes: Count | None
    jump: bool  # may transfer control to its label
    conditional: bool  # ... or fall through
    terminator: bool  # never falls through
    may_raise: bool


OPS: dict[str, Op] = {}


def _count(value: int | Count) -> Count:
    if callable(value):
        return value
    constant = value
    return lambda arg: constant


def _row(
    name: str,
    kind: ArgKind,
    pops: int | Count,
    pushes: int | Count,
    *flags: str,
    jump_pushes: int | Count | None = None,
) -> None:
    unknown = set(flags) - {"jump", "cond", "end", "pure"}
    if unknown or name in OPS or not isinstance(kind, ArgKind):
        raise ImportError(f"isa: bad row {name}: {sorted(unknown) or 'duplicate or bad kind'}")
    jump = "jump" in flags
    if jump != (kind is ArgKind.LABEL) or ("cond" in flags and not jump) or jump != (jump_pushes is not None):
        raise ImportError(f"isa: row {name}: label argument, jump flag and jump_pushes go together")
    OPS[name] = Op(
        name,
        kind,
        _count(pops),
        _count(pushes),
        None if jump_pushes is None else _count(jump_pushes),
        jump,
        "cond" in flags,
        "end" in flags,
        "pure" not in flags,
    )


def _same(arg: int) -> int:
    return arg


def _popcount(arg: int) -> int:
    return arg.bit_count()


def _fill_table() -> None:
    """Fill OPS; alphabetical.  `pure` marks what cannot raise (MemoryError apart)."""
    k = ArgKind
    row = _row
    row("BEFORE_ASYNC_WITH", k.NONE, 1, 2)
    row("BEFORE_WITH", k.NONE, 1, 2)
    row("BINARY_OP", k.BINARY, 2, 1)
    row("BINARY_SLICE", k.NONE, 3, 1)
    row("BINARY_SUBSCR", k.NONE, 2, 1)
    row("BUILD_CONST_KEY_MAP", k.INT, lambda n: n + 1, 1)
    row("BUILD_INTERPOLATION", k.INT, lambda f: 2 + (f & 1), 1)
    row("BUILD_LIST", k.INT, _same, 1, "pure")
    row("BUILD_MAP", k.INT, lambda n: 2 * n, 1)
    row("BUILD_SET", k.INT, _same, 1)
    row("BUILD_SLICE", k.INT, _same, 1, "pure")
    row("BUILD_STRING", k.INT, _same, 1, "pure")
    row("BUILD_TEMPLATE", k.NONE, 2, 1)
    row("BUILD_TUPLE", k.INT, _same, 1, "pure")
    row("CALL", k.INT, lambda n: n + 2, 1)
    row("CALL_FUNCTION_EX", k.INT, lambda f: 3 + (f & 1), 1)
    row("CALL_INTRINSIC_1", k.INTRINSIC_1, 1, 1)
    row("CALL_INTRINSIC_2", k.INTRINSIC_2, 2, 1)
    row("CALL_KW", k.INT, lambda n: n + 3, 1)
    row("CHECK_EG_MATCH", k.NONE, 2, 2)
    row("CHECK_EXC_MATCH", k.NONE, 2, 2)
    row("CLEANUP_THROW", k.NONE, 3, 2)
    row("COMPARE_OP", k.COMPARE, 2, 1)
    row("CONTAINS_OP", k.INT, 2, 1)
    row("CONVERT_VALUE", k.INT, 1, 1)  # 1 str, 2 repr, 3 ascii
    row("COPY", k.INT, _same, lambda n: n + 1, "pure")
    row("COPY_FREE_VARS", k.INT, 0, 0, "pure")
    row("DELETE_ATTR", k.NAME, 1, 0)
    row("DELETE_DEREF", k.CELL, 0, 0)
    row("DELETE_FAST", k.LOCAL, 0, 0)
    row("DELETE_GLOBAL", k.NAME, 0, 0)
    row("DELETE_NAME", k.NAME, 0, 0)
    row("DELETE_SUBSCR", k.NONE, 2, 0)
    row("DICT_MERGE", k.INT, 1, 0)
    row("DICT_UPDATE", k.INT, 1, 0)
    row("END_ASYNC_FOR", k.NONE, 2, 0)
    row("END_FOR", k.NONE, 1, 0, "pure")
    row("END_SEND", k.NONE, 2, 1, "pure")
    row("FORMAT_SIMPLE", k.NONE, 1, 1)
    row("FORMAT_WITH_SPEC", k.NONE, 2, 1)
    row("FOR_ITER", k.LABEL, 1, 2, "jump", "cond", jump_pushes=1)
    row("GET_AITER", k.NONE, 1, 1)
    row("GET_ANEXT", k.NONE, 1, 2)
    row("GET_AWAITABLE", k.INT, 1, 1)
    row("GET_ITER", k.NONE, 1, 1)
    row("GET_LEN", k.NONE, 1, 2)
    row("GET_YIELD_FROM_ITER", k.NONE, 1, 1)
    row("IMPORT_FROM", k.NAME, 1, 2)
    row("IMPORT_NAME", k.NAME, 2, 1)
    row("IS_OP", k.INT, 2, 1, "pure")
    row("JUMP", k.LABEL, 0, 0, "jump", "end", jump_pushes=0)
    row("JUMP_BACKWARD_NO_INTERRUPT", k.LABEL, 0, 0, "jump", "end", "pure", jump_pushes=0)
    row("LIST_APPEND", k.INT, 1, 0, "pure")
    row("LIST_EXTEND", k.INT, 1, 0)
    row("LOAD_ASSERTION_ERROR", k.NONE, 0, 1, "pure")
    row("LOAD_ATTR", k.NAME, 1, 1)
    row("LOAD_BUILD_CLASS", k.NONE, 0, 1)
    row("LOAD_CLOSURE", k.CELL, 0, 1, "pure")  # the cell itself
    row("LOAD_CONST", k.CONST, 0, 1, "pure")
    row("LOAD_DEREF", k.CELL, 0, 1)
    row("LOAD_FAST", k.LOCAL, 0, 1)  # raises UnboundLocalError
    row("LOAD_FAST_AND_CLEAR", k.LOCAL, 0, 1, "pure")  # pushes NULL if unbound
    row("LOAD_FROM_DICT_OR_DEREF", k.CELL, 1, 1)
    row("LOAD_FROM_DICT_OR_GLOBALS", k.NAME, 1, 1)
    row("LOAD_GLOBAL", k.NAME, 0, 1)
    row("LOAD_LOCALS", k.NONE, 0, 1)
    row("LOAD_METHOD", k.NAME, 1, 2)
    row("LOAD_NAME", k.NAME, 0, 1)
    row("LOAD_SPECIAL", k.INT, 1, 2)  # 0 __enter__, 1 __exit__, 2 __aenter__, 3 __aexit__
    row("LOAD_SUPER_ATTR", k.SUPER, 3, lambda arg: 2 if arg[1] else 1)
    row("MAKE_CELL", k.CELL, 0, 0, "pure")
    row("MAKE_FUNCTION", k.INT, lambda f: 1 + _popcount(f), 1)
    row("MAP_ADD", k.INT, 2, 0)
    row("MATCH_CLASS", k.INT, 3, 1)
    row("MATCH_KEYS", k.NONE, 2, 3)
    row("MATCH_MAPPING", k.NONE, 1, 2, "pure")
    row("MATCH_SEQUENCE", k.NONE, 1, 2, "pure")
    row("NOP", k.NONE, 0, 0, "pure")  # where a line has no code of its own
    row("POP_EXCEPT", k.NONE, 1, 0, "pure")
    row("POP_JUMP_IF_FALSE", k.LABEL, 1, 0, "jump", "cond", jump_pushes=0)
    row("POP_JUMP_IF_NONE", k.LABEL, 1, 0, "jump", "cond", "pure", jump_pushes=0)
    row("POP_JUMP_IF_NOT_NONE", k.LABEL, 1, 0, "jump", "cond", "pure", jump_pushes=0)
    row("POP_JUMP_IF_TRUE", k.LABEL, 1, 0, "jump", "cond", jump_pushes=0)
    row("POP_TOP", k.NONE, 1, 0, "pure")
    row("PUSH_EXC_INFO", k.NONE, 1, 2, "pure")
    row("PUSH_NULL", k.NONE, 0, 1, "pure")
    row("RAISE_VARARGS", k.INT, _same, 0, "end")
    row("RERAISE", k.INT, 1, 0, "end")  # arg > 0: lasti is arg slots below the exception, and stays
    row("RESUME", k.INT, 0, 0)
    row("RETURN_GENERATOR", k.NONE, 0, 1, "pure")
    row("RETURN_VALUE", k.NONE, 1, 0, "end", "pure")
    row("SEND", k.LABEL, 2, 2, "jump", "cond", jump_pushes=2)
    row("SETUP_ANNOTATIONS", k.NONE, 0, 0)
    row("SET_ADD", k.INT, 1, 0)
    row("SET_FUNCTION_ATTRIBUTE", k.INT, 2, 1, "pure")
    row("SET_UPDATE", k.INT, 1, 0)
    row("STORE_ATTR", k.NAME, 2, 0)
    row("STORE_DEREF", k.CELL, 1, 0, "pure")
    row("STORE_FAST", k.LOCAL, 1, 0, "pure")
    row("STORE_GLOBAL", k.NAME, 1, 0)
    row("STORE_NAME", k.NAME, 1, 0)
    row("STORE_SLICE", k.NONE, 4, 0)
    row("STORE_SUBSCR", k.NONE, 3, 0)
    row("SWAP", k.INT, _same, _same, "pure")
    row("TO_BOOL", k.NONE, 1, 1)
    row("UNARY_INVERT", k.NONE, 1, 1)
    row("UNARY_NEGATIVE", k.NONE, 1, 1)
    row("UNARY_NOT", k.NONE, 1, 1)
    row("UNPACK_EX", k.INT, 1, lambda n: (n & 0xFF) + (n >> 8) + 1)
    row("UNPACK_SEQUENCE", k.INT, 1, _same)
    row("WITH_EXCEPT_START", k.NONE, 4, 5)
    row("YIELD_VALUE", k.INT, 1, 1)


_fill_table()
# A `with` block keeps its exit function and that function's self (or NULL) on the stack, not a bound method.
EXIT_IS_A_PAIR = sys.version_info >= (3, 14)
if EXIT_IS_A_PAIR:
    del OPS["WITH_EXCEPT_START"]
    _row("WITH_EXCEPT_START", ArgKind.NONE, 5, 6)


# What the jump of FOR_ITER or SEND must lead to: the real instructions do part of its work when they jump.
LANDING_OF = {"FOR_ITER": "END_FOR", "SEND": "END_SEND"}


class Label:
    """A place between instructions; compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<Label {self.name or hex(id(self))}>"


@dataclass(slots=True, eq=False)
class Instr:
    """One canonical instruction; compared by identity, so that it can be named and moved."""

    op: str
    arg: Any = None
    pos: Position = NO_POSITION

    def copy(self) -> Instr:
        return Instr(self.op, self.arg, self.pos)


@dataclass(slots=True, eq=False)
class TryRegion:
    """Instructions from `start` up to `end` whose exceptions go to `handler`.

    On entry to the handler the stack is cut to `depth` slots, then the offset of the instruction is pushed if
    `lasti`, then the exception.
    """

    start: Label
    end: Label
    handler: Label
    depth: int
    lasti: bool


@dataclass(slots=True, eq=False)
class CanonicalCode:
    """A code object in canonical form.

    `regions` are searched in order and the first that covers an instruction wins (innermost first).
    `docstring` is kept apart because CPython finds it by its place among the constants.
    """

    instrs: list[Instr | Label]
    regions: list[TryRegion] = field(default_factory=list)
    argcount: int = 0  # as co_argcount: positional, including positional-only
    posonlyargcount: int = 0
    kwonlyargcount: int = 0
    varnames: tuple[str, ...] = ()  # arguments first
    cellvars: tuple[str, ...] = ()
    freevars: tuple[str, ...] = ()
    flags: int = 0
    name: str = "<code>"
    qualname: str = "<code>"
    filename: str = "<pyframe>"
    firstlineno: int = 1
    docstring: str | None = None

    def real_instrs(self) -> list[Instr]:
        """The instructions without labels; an instruction's index here is its stable key."""
        return [item for item in self.instrs if isinstance(item, Instr)]


def index_of(cc: CanonicalCode, instr: Instr) -> int:
    """The ordinal of `instr` among the real instructions; ValueError if it is not part of `cc`."""
    for index, item in enumerate(cc.real_instrs()):
        if item is instr:
            return index
    raise ValueError(f"{instr} is not an instruction of {cc.qualname}")


def instr_at(cc: CanonicalCode, index: int) -> Instr:
    """The inverse of `index_of`; IndexError outside the code."""
    if index < 0:
        raise IndexError(index)
    return cc.real_instrs()[index]


NULL_BEFORE_CALLABLE = sys.version_info < (3, 13)


def call_sequence(
    load_callable: list[Instr], load_args: list[Instr], n: int, kwnames: tuple[str, ...] = ()
) -> list[Instr]:
    """Instructions that call with `n` arguments, the last `len(kwnames)` of them by keyword."""
    if len(kwnames) > n:
        raise ValueError(f"{len(kwnames)} keyword names for {n} arguments")
    null = [Instr("PUSH_NULL")]
    callee = null + load_callable if NULL_BEFORE_CALLABLE else load_callable + null
    if not kwnames:
        return [*callee, *load_args, Instr("CALL", n)]
    return [*callee, *load_args, Instr("LOAD_CONST", tuple(kwnames)), Instr("CALL_KW", n)]
