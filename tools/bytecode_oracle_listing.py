"""Two readings of one code object as comparable listings: canonical code, and what the `bytecode` package reads.

A listing is a graph of steps. A step has an operation and an argument in canonical form, a source position, the
exception handler that covers it, and its successors. `canonical_listing` takes them from a `CanonicalCode`;
`package_listing` translates the package's instructions, whose arguments the package has resolved, by the tables below,
which use none of `pyframe.bytecode`'s own. `compare_listings` walks both graphs side by side. What has no
meaning of its own (NOP, unconditional jumps, layout, which way a conditional jump is written) does not take part.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import bytecode
from bytecode.instr import FormatValue, Intrinsic1Op, Intrinsic2Op, SpecialMethod

from pyframe.bytecode import OPS, CanonicalCode, Instr
from pyframe.bytecode.dialect import separate_landings
from pyframe.bytecode.flow import build_flow
from tools.code_objects import same_constant

VERSION = sys.version_info[:2]
FROM_312, FROM_313, FROM_314 = VERSION >= (3, 12), VERSION >= (3, 13), VERSION >= (3, 14)


@dataclass(eq=False)
class Step:
    """One operation; `handler` is (label, depth, lasti), `real` the name of the instruction it was read from."""

    op: str
    arg: Any
    pos: tuple[int | None, ...] | None
    handler: tuple[Hashable, int, bool] | None
    jump: Hashable | None = None  # label
    real: str = ""


@dataclass
class Listing:
    """Steps in code order; a label stands before the step of the index that it is given."""

    steps: list[Step] = field(default_factory=list)
    places: dict[Hashable, int] = field(default_factory=dict)


class Mismatch(AssertionError):
    """Two readings of one code object differ."""


# ---- the package's reading

_COMPARE = {"LT": "<", "LE": "<=", "EQ": "==", "NE": "!=", "GT": ">", "GE": ">="}
_BINARY = {
    "ADD": "+", "AND": "&", "FLOOR_DIVIDE": "//", "LSHIFT": "<<", "MATRIX_MULTIPLY": "@", "MULTIPLY": "*",
    "REMAINDER": "%", "OR": "|", "POWER": "**", "RSHIFT": ">>", "SUBTRACT": "-", "TRUE_DIVIDE": "/", "XOR": "^",
}  # fmt: skip
_COMMON_CONSTANTS = {
    "NOT_IMPLEMENTED_ERROR": NotImplementedError, "BUILTIN_TUPLE": tuple, "BUILTIN_ALL": all, "BUILTIN_ANY": any,
}  # fmt: skip
_RENAMED = {
    "JUMP_FORWARD": "JUMP", "JUMP_BACKWARD": "JUMP", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    "LOAD_FAST_CHECK": "LOAD_FAST", "LOAD_FAST_BORROW": "LOAD_FAST", "POP_ITER": "POP_TOP",
}  # fmt: skip
_INTRINSICS_311 = {
    "ASYNC_GEN_WRAP": ("CALL_INTRINSIC_1", "INTRINSIC_ASYNC_GEN_WRAP"),
    "IMPORT_STAR": ("CALL_INTRINSIC_1", "INTRINSIC_IMPORT_STAR"),
    "LIST_TO_TUPLE": ("CALL_INTRINSIC_1", "INTRINSIC_LIST_TO_TUPLE"),
    "PREP_RERAISE_STAR": ("CALL_INTRINSIC_2", "INTRINSIC_PREP_RERAISE_STAR"),
    "PRINT_EXPR": ("CALL_INTRINSIC_1", "INTRINSIC_PRINT"),
    "UNARY_POSITIVE": ("CALL_INTRINSIC_1", "INTRINSIC_UNARY_POSITIVE"),
}
# Instructions whose argument on the version says nothing to us.
_NO_ARGUMENT = {"END_ASYNC_FOR"}
# Canonical arguments of instructions that have none on some versions.
_DEFAULT = {"MAKE_FUNCTION": 0, "YIELD_VALUE": 0}
_DROPPED = {"NOP", "NOT_TAKEN", "PRECALL", "CACHE"}
Micro = list[tuple[str, Any]]


def _binary(op: Any) -> tuple[str, Any]:
    if op.name == "SUBSCR":
        return "BINARY_SUBSCR", None
    return "BINARY_OP", _BINARY[op.name.removeprefix("INPLACE_")] + "=" * op.name.startswith("INPLACE_")


def _compare(op: Any) -> Micro:
    cast = op.name.endswith("_CAST")
    return [("COMPARE_OP", _COMPARE[op.name.removesuffix("_CAST")]), *[("TO_BOOL", None)] * cast]


def _load_global(arg: tuple[bool, str]) -> Micro:
    load, null = [("LOAD_GLOBAL", arg[1])], [("PUSH_NULL", None)] * arg[0]
    return load + null if FROM_313 else null + load


def _load_attr(arg: Any) -> Micro:
    if isinstance(arg, str):
        return [("LOAD_ATTR", arg)]
    return [("LOAD_METHOD" if arg[0] else "LOAD_ATTR", arg[1])]


def _common_constant(arg: Any) -> Micro:
    if arg.name == "ASSERTION_ERROR":
        return [("LOAD_ASSERTION_ERROR", None)]
    return [("LOAD_CONST", _COMMON_CONSTANTS[arg.name])]


def _format_value(arg: int) -> Micro:
    conversion, with_spec = arg & 3, bool(arg & 4)
    swap: Micro = [("SWAP", 2)] if conversion and with_spec else []
    convert: Micro = [("CONVERT_VALUE", conversion)] if conversion else []
    return [*swap, *convert, *swap, ("FORMAT_WITH_SPEC" if with_spec else "FORMAT_SIMPLE", None)]


# Real instructions with a form of their own: the package's argument -> canonical operations.
_EXPANDED: dict[str, Callable[[Any], Micro]] = {
    "BINARY_OP": lambda arg: [_binary(arg)],
    "COMPARE_OP": _compare,
    "FORMAT_VALUE": _format_value,
    "KW_NAMES": lambda arg: [("LOAD_CONST", arg)],
    "LOAD_ATTR": _load_attr,
    "LOAD_COMMON_CONSTANT": _common_constant,
    "LOAD_CLASSDEREF": lambda arg: [("LOAD_LOCALS", None), ("LOAD_FROM_DICT_OR_DEREF", arg)],
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": lambda arg: [("LOAD_FAST", arg[0]), ("LOAD_FAST", arg[1])],
    "LOAD_FAST_LOAD_FAST": lambda arg: [("LOAD_FAST", arg[0]), ("LOAD_FAST", arg[1])],
    "LOAD_GLOBAL": _load_global,
    "LOAD_SMALL_INT": lambda arg: [("LOAD_CONST", arg)],
    "LOAD_SUPER_ATTR": lambda arg: [("LOAD_SUPER_ATTR", (arg[2], arg[0], arg[1]))],
    "RETURN_CONST": lambda arg: [("LOAD_CONST", arg), ("RETURN_VALUE", None)],
    "STORE_FAST_LOAD_FAST": lambda arg: [("STORE_FAST", arg[0]), ("LOAD_FAST", arg[1])],
    "STORE_FAST_STORE_FAST": lambda arg: [("STORE_FAST", arg[0]), ("STORE_FAST", arg[1])],
}


class _PackageReader:
    """The package's instructions of one code object, translated in code order."""

    def __init__(self, code: types.CodeType) -> None:
        self.listing = Listing()
        self.both = set(code.co_cellvars) & set(code.co_freevars)
        self.handler: tuple[Hashable, int, bool] | None = None
        self.keyword_names = False
        self.instrs = bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True)

    def run(self) -> Listing:
        before = ""
        for item in self.instrs:
            if isinstance(item, bytecode.Label):
                self.listing.places[item] = len(self.listing.steps)
            elif isinstance(item, bytecode.TryBegin):
                self.handler = (item.target, item.stack_depth, item.push_lasti)
            elif isinstance(item, bytecode.TryEnd):
                self.handler = None
            elif item.name in _DROPPED or (FROM_313 and before == "END_FOR"):
                before = ""  # from 3.13 END_FOR and the pop of the iterator after it are one canonical END_FOR
            else:
                self.instr(item)
                before = item.name
        return self.listing

    def argument(self, arg: Any) -> Any:
        """Names for variables; a cell that shares its name with a free variable is marked, as in canonical code."""
        if isinstance(arg, tuple) and any(isinstance(part, bytecode.CellVar | bytecode.FreeVar) for part in arg):
            return tuple(self.argument(part) for part in arg)
        if isinstance(arg, bytecode.CellVar):
            return arg.name + "@cell" * (arg.name in self.both)
        if isinstance(arg, bytecode.FreeVar):
            return arg.name
        if isinstance(arg, Intrinsic1Op | Intrinsic2Op):
            return arg.name
        if isinstance(arg, FormatValue | SpecialMethod):
            return int(arg)
        return None if arg is bytecode.UNSET else arg

    def instr(self, instr: Any) -> None:
        name, arg = instr.name, self.argument(instr.arg)
        jump = arg if isinstance(arg, bytecode.Label) and name not in _NO_ARGUMENT else None
        if name in _INTRINSICS_311:
            micro: Micro = [_INTRINSICS_311[name]]
            if name in ("IMPORT_STAR", "PRINT_EXPR"):
                micro.append(("POP_TOP", None))
        elif name in _EXPANDED:
            micro = _EXPANDED[name](arg)
        elif name == "CALL" and self.keyword_names:
            micro = [("CALL_KW", arg)]
        elif name == "CALL_FUNCTION_EX" and FROM_314:
            micro = [self.call_with_mapping()]
        elif name.startswith("JUMP_IF_"):
            test = "POP_JUMP_IF_TRUE" if "TRUE" in name else "POP_JUMP_IF_FALSE"
            micro = [("COPY", 1), (test, None), ("POP_TOP", None)]
        elif jump is not None:
            micro = [(_RENAMED.get(name, name).replace("_FORWARD", "").replace("_BACKWARD", ""), None)]
        else:
            value = None if name in _NO_ARGUMENT else _DEFAULT.get(name) if arg is None else arg
            micro = [(_RENAMED.get(name, name), value)]
        if name == "KW_NAMES":
            self.keyword_names = True
        elif name == "CALL":
            self.keyword_names = False
        loc = instr.location
        pos = (loc.lineno, loc.end_lineno, loc.col_offset, loc.end_col_offset)
        for op, value in micro:
            to = jump if op.startswith(("JUMP", "POP_JUMP", "FOR_ITER", "SEND")) else None
            self.listing.steps.append(Step(op, value, pos, self.handler, to, name))

    def call_with_mapping(self) -> tuple[str, Any]:
        """From 3.14 the mapping is always there, NULL for none; in canonical form that NULL is not pushed."""
        if self.listing.steps[-1].op == "PUSH_NULL":
            self.listing.steps.pop()
            return "CALL_FUNCTION_EX", 0
        return "CALL_FUNCTION_EX", 1


def package_listing(code: types.CodeType) -> Listing:
    """The package's reading of a code object."""
    return _PackageReader(code).run()


# ---- the canonical reading


def _function_parts(flags: int) -> Micro:
    """From 3.13 on each flag of `MAKE_FUNCTION` is an instruction; the value of the largest flag is on top."""
    return [("MAKE_FUNCTION", 0), *(("SET_FUNCTION_ATTRIBUTE", flag) for flag in (8, 4, 2, 1) if flags & flag)]


def canonical_listing(cc: CanonicalCode) -> Listing:
    """The steps of canonical code, with each landing that real code shares made separate, as `materialize` does."""
    landings = frozenset(("END_FOR",)) if FROM_312 else frozenset(("END_FOR", "END_SEND"))
    items = separate_landings(cc.instrs, landings)
    flow = build_flow(CanonicalCode(items, cc.regions))
    regions = iter(flow.region)
    listing = Listing()
    for item in items:
        if not isinstance(item, Instr):
            listing.places[item] = len(listing.steps)
            continue
        region = next(regions)
        handler = None if region is None else (region.handler, region.depth, region.lasti)
        jumps = OPS[item.op].jump
        op = "JUMP" if item.op == "JUMP_BACKWARD_NO_INTERRUPT" else item.op
        line = item.pos.lineno  # without columns, a line table has no place for the last line
        pos = item.pos if item.pos.col is not None else (line, line, None, None)
        for part, arg in _function_parts(item.arg) if op == "MAKE_FUNCTION" and FROM_313 else [(op, item.arg)]:
            step = Step(part, None if jumps else arg, tuple(pos), handler, arg if jumps else None, item.op)
            listing.steps.append(step)
    return listing


# ---- the comparison

_TRANSPARENT = {"NOP", "JUMP"} if FROM_312 else {"NOP", "JUMP", "END_FOR", "END_SEND"}
_ENDS = {"RETURN_VALUE", "RAISE_VARARGS", "RERAISE"}
_TESTS = {
    "POP_JUMP_IF_TRUE": ("TEST", True), "POP_JUMP_IF_FALSE": ("TEST", False),
    "POP_JUMP_IF_NONE": ("TEST_NONE", True), "POP_JUMP_IF_NOT_NONE": ("TEST_NONE", False),
}  # fmt: skip
ENDLESS = -1  # a loop of jumps that does nothing


def _reach(listing: Listing, index: int) -> int:
    """The first step from `index` on that does something."""
    seen = set()
    while listing.steps[index].op in _TRANSPARENT:
        if index in seen:
            return ENDLESS
        seen.add(index)
        step = listing.steps[index]
        index = listing.places[step.jump] if step.op == "JUMP" else index + 1
    return index


def _successors(listing: Listing, index: int) -> list[int]:
    """The successors of a step. For a test, the first is the target taken if the test is true; otherwise the next step
    comes first, then the jump target."""
    step = listing.steps[index]
    if step.op in _ENDS:
        return []
    if step.jump is None:
        return [index + 1]
    taken = listing.places[step.jump]
    return [taken, index + 1] if _TESTS.get(step.op, ("", False))[1] else [index + 1, taken]


def _same_op(ours: Step, theirs: Step) -> bool:
    left, right = (_TESTS.get(step.op, (step.op, False))[0] for step in (ours, theirs))
    if FROM_313 and left == "LOAD_CLOSURE":  # the cell is loaded as any local
        left = "LOAD_FAST"
    return left == right and same_constant(ours.arg, theirs.arg)


def _same_position(ours: Step, theirs: Step) -> bool:
    return ours.pos == theirs.pos or ours.op in _POSITION_LOST


# Operations that share a real instruction with the one that keeps the position.
_POSITION_LOST = {"PUSH_NULL"} if not FROM_313 else set()


def compare_listings(ours: Listing, theirs: Listing) -> dict[int, str]:
    """Raises Mismatch unless both do the same; returns the real instruction of each of our steps that can run."""
    real: dict[int, str] = {}
    seen: set[tuple[int, int]] = set()
    todo = [(0, 0)]
    while todo:
        left, right = todo.pop()
        left, right = _reach(ours, left), _reach(theirs, right)
        if (left, right) in seen:
            continue
        seen.add((left, right))
        if left == ENDLESS or right == ENDLESS:
            if left != right:
                raise Mismatch(f"an endless loop against a step: {left} {right}")
            continue
        left, right = _skip_tests_of_truth(ours, theirs, left, right)
        mine, their = ours.steps[left], theirs.steps[right]
        if not (_same_op(mine, their) and _same_position(mine, their)):
            raise Mismatch(f"step {left}: {mine}\n  the package: {their}")
        todo += _handlers(mine, their, ours, theirs)
        real[left] = their.real
        todo += zip(_successors(ours, left), _successors(theirs, right), strict=True)
    return real


def _skip_tests_of_truth(ours: Listing, theirs: Listing, left: int, right: int) -> tuple[int, int]:
    """TO_BOOL may stand before a test on one side only: ours up to 3.12, theirs from 3.13 on."""

    def implied(listing: Listing, index: int) -> bool:
        after = _reach(listing, index + 1) if listing.steps[index].op == "TO_BOOL" else ENDLESS
        return after != ENDLESS and listing.steps[after].op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT")

    if FROM_313 and ours.steps[left].op != "TO_BOOL" and implied(theirs, right):
        return left, _reach(theirs, right + 1)
    if not FROM_313 and implied(ours, left):
        return _reach(ours, left + 1), right
    return left, right


def _handlers(mine: Step, their: Step, ours: Listing, theirs: Listing) -> Iterator[tuple[int, int]]:
    """The pair of exception handlers of two equal steps."""
    if not OPS[mine.real].may_raise:
        return
    left, right = mine.handler, their.handler
    if (left is None) != (right is None) or (left and right and left[1:] != right[1:]):
        raise Mismatch(f"handler of {mine}\n  the package: {right}")
    if left is not None and right is not None:
        yield ours.places[left[0]], theirs.places[right[0]]
