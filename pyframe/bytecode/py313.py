"""Defines the `Dialect` of CPython 3.13, the version nearest to the canonical instructions of `isa`.

Two differences need work: super-instructions such as LOAD_FAST_LOAD_FAST are split, and 3.13 writes LOAD_FAST also
where canonical code has LOAD_CLOSURE (a load of the cell itself), so decoding has to tell the two apart.
"""

from __future__ import annotations

import types

from .codec import Raw
from .dialect import (
    OPPOSITE,
    OWN_CELL,
    Decoder,
    DecodeRule,
    Dialect,
    EncodeFn,
    Encoder,
    decode_nop,
    decode_super_attr,
    encode_jump,
    encode_jump_no_interrupt,
    encode_load_fast_checked,
    encode_super_attr,
    opset,
    put_forward_only,
    renamed,
    rule,
    split,
)
from .isa import COMPARE_OPERATORS, FLAG_CLOSURE, Instr
from .py312 import (
    COMPARE_MASKS,
    decode_load_attr,
    decode_return_const,
    encode_load_attr,
)

PLAIN = opset(
    """
    BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP
    BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL CALL_FUNCTION_EX CALL_INTRINSIC_1 CALL_INTRINSIC_2 CALL_KW
    CHECK_EG_MATCH CHECK_EXC_MATCH CLEANUP_THROW CONVERT_VALUE COPY COPY_FREE_VARS DELETE_ATTR DELETE_DEREF
    DELETE_FAST DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR DICT_MERGE DICT_UPDATE END_ASYNC_FOR END_SEND FOR_ITER
    FORMAT_SIMPLE FORMAT_WITH_SPEC GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER
    IMPORT_FROM IMPORT_NAME IS_OP JUMP_BACKWARD_NO_INTERRUPT LIST_APPEND LIST_EXTEND LOAD_ASSERTION_ERROR
    LOAD_BUILD_CLASS LOAD_CONST LOAD_DEREF LOAD_FAST_AND_CLEAR LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS
    LOAD_LOCALS LOAD_NAME MAKE_CELL MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE POP_EXCEPT
    POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PUSH_EXC_INFO PUSH_NULL
    RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE SEND SETUP_ANNOTATIONS SET_ADD
    SET_FUNCTION_ATTRIBUTE SET_UPDATE STORE_ATTR STORE_DEREF STORE_FAST STORE_GLOBAL STORE_NAME STORE_SLICE
    STORE_SUBSCR SWAP TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START
    YIELD_VALUE CONTAINS_OP
    """
)

_COMPARE_TO_BOOL = 16
_SETS_CLOSURE = 8  # SET_FUNCTION_ATTRIBUTE
_CLASS_CELLS = ("__class__", "__classdict__")
_LOAD_LOCAL = frozenset(("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_CLOSURE"))
_LOAD_LOCAL_PAIR = frozenset(("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"))


def _cell_slots(decoder: Decoder) -> set[int]:
    first_free = len(decoder.slots) - len(decoder.code.co_freevars)
    own = frozenset(decoder.cellvars)
    return {slot for slot, name in enumerate(decoder.slots) if slot >= first_free or name in own}


def _find_closure_loads(decoder: Decoder) -> set[tuple[int, int]]:
    """(instruction index, which half) of every load that the compiler wrote as LOAD_CLOSURE.

    3.13 writes both as LOAD_FAST.  A load of a cell's slot is a closure load, except in an inlined comprehension
    whose variable borrows the slot (it was cleared by LOAD_FAST_AND_CLEAR): there it is one only when it ends up
    in the closure tuple of a function (the run of loads before `BUILD_TUPLE n; LOAD_CONST <code>; MAKE_FUNCTION;
    SET_FUNCTION_ATTRIBUTE 8`; a tuple of defaults is followed by another number) or in a class namespace
    (`__class__`, `__classdict__`).
    """
    cells = _cell_slots(decoder)
    borrowed = {raw.arg for raw in decoder.raws if raw.op == "LOAD_FAST_AND_CLEAR"}
    found: set[tuple[int, int]] = set()
    run: list[tuple[int, int]] = []  # the loads right before the current instruction, and their slots
    slots: list[int] = []
    for index, raw in enumerate(decoder.raws):
        loaded = _loaded_slots(raw)
        if loaded is None:
            if run and raw.op == "BUILD_TUPLE" and raw.arg <= len(run) and _makes_closure(decoder, index + 1):
                if cells.issuperset(slots[-raw.arg :]):
                    found.update(run[-raw.arg :])
            elif (
                run and decoder.slots[slots[-1]].removesuffix(OWN_CELL) in _CLASS_CELLS and slots[-1] in cells
            ):
                found.add(run[-1])
            run, slots = [], []
            continue
        if raw.op == "STORE_FAST_LOAD_FAST":
            run, slots = [], []
        for half, slot in loaded:
            run.append((index, half))
            slots.append(slot)
            if slot in cells and slot not in borrowed:
                found.add((index, half))
    return found


def _loaded_slots(raw: Raw) -> tuple[tuple[int, int], ...] | None:
    """(0 for the first or 1 for the second local of the instruction, slot) if it ends in loads of locals."""
    if raw.op in _LOAD_LOCAL:
        return ((0, raw.arg),)
    if raw.op in _LOAD_LOCAL_PAIR:
        return ((0, raw.arg >> 4), (1, raw.arg & 15))
    if raw.op == "STORE_FAST_LOAD_FAST":
        return ((1, raw.arg & 15),)
    return None


def _makes_closure(decoder: Decoder, index: int) -> bool:
    """Whether the instructions at `index` make a function of code and of the closure on top of the stack."""
    after = decoder.raws[index : index + 3]
    if [raw.op for raw in after] != ["LOAD_CONST", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"]:
        return False
    is_code = isinstance(decoder.code.co_consts[after[0].arg], types.CodeType)
    return is_code and after[2].arg == _SETS_CLOSURE


def _emit_load(decoder: Decoder, raw: Raw, slot: int, half: int) -> None:
    if decoder.closure_loads is None:
        has_cells = decoder.cellvars or decoder.code.co_freevars
        decoder.closure_loads = _find_closure_loads(decoder) if has_cells else set()
    is_closure = (decoder.index, half) in decoder.closure_loads
    decoder.local("LOAD_CLOSURE" if is_closure else "LOAD_FAST", slot, raw.pos)


def decode_load_fast(decoder: Decoder, raw: Raw) -> None:
    _emit_load(decoder, raw, raw.arg, 0)


def decode_load_fast_pair(decoder: Decoder, raw: Raw) -> None:
    _emit_load(decoder, raw, raw.arg >> 4, 0)
    _emit_load(decoder, raw, raw.arg & 15, 1)


def _decode_store_load(decoder: Decoder, raw: Raw) -> None:
    decoder.local("STORE_FAST", raw.arg >> 4, raw.pos)
    _emit_load(decoder, raw, raw.arg & 15, 1)


def _decode_compare(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("COMPARE_OP", COMPARE_OPERATORS[raw.arg >> 5], raw.pos)
    if raw.arg & _COMPARE_TO_BOOL:
        decoder.emit("TO_BOOL", None, raw.pos)


def _decode_load_global(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("LOAD_GLOBAL", decoder.code.co_names[raw.arg >> 1], raw.pos)
    if raw.arg & 1:
        decoder.emit("PUSH_NULL", None, raw.pos)


def _decode_end_for(decoder: Decoder, raw: Raw) -> None:
    """END_FOR and the POP_TOP that drops the iterator are one canonical END_FOR."""
    after = decoder.next_raw()
    if after is None or after.op != "POP_TOP" or after.offset in decoder.labels:
        raise ValueError(f"END_FOR without its POP_TOP in {decoder.code.co_qualname}")
    decoder.emit("END_FOR", None, raw.pos)
    decoder.index += 1


def _decode_make_function(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("MAKE_FUNCTION", 0, raw.pos)


_PUSHES_BOOL = frozenset(
    ("TO_BOOL", "UNARY_NOT", "IS_OP", "CONTAINS_OP", "CHECK_EXC_MATCH", "MATCH_MAPPING", "MATCH_SEQUENCE")
)


def pushes_bool(encoder: Encoder, index: int) -> bool:
    """Whether the top of the stack is known to be a bool when the instruction at `index` runs."""
    at = encoder.before(index)
    if at is None:
        return False
    before = encoder.items[at]
    assert isinstance(before, Instr)
    if before.op == "LOAD_CONST":
        return isinstance(before.arg, bool)
    if before.op == "COMPARE_OP":  # `case [a, b]` compares the length with a constant: two ints
        number = encoder.at(at - 1, "LOAD_CONST")
        return (
            number is not None and isinstance(number.arg, int) and encoder.at(at - 2, "GET_LEN") is not None
        )
    return before.op in _PUSHES_BOOL


def encode_conditional(encoder: Encoder, instr: Instr, index: int) -> int:
    if instr.op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE") and not pushes_bool(encoder, index):
        encoder.put("TO_BOOL", 0, instr.pos)
    put_forward_only(encoder, instr, index)
    return 1


def encode_unary_not(encoder: Encoder, instr: Instr, index: int) -> int:
    if not pushes_bool(encoder, index):
        encoder.put("TO_BOOL", 0, instr.pos)
    encoder.put("UNARY_NOT", 0, instr.pos)
    return 1


def encode_compare(encoder: Encoder, instr: Instr, index: int) -> int:
    number = COMPARE_OPERATORS.index(instr.arg)
    to_bool = encoder.at(index + 1, "TO_BOOL")
    fold = to_bool is not None and to_bool.pos == instr.pos
    encoder.put("COMPARE_OP", number << 5 | COMPARE_MASKS[number] | _COMPARE_TO_BOOL * fold, instr.pos)
    return 2 if fold else 1


def encode_load_global(encoder: Encoder, instr: Instr, index: int) -> int:
    null = encoder.at(index + 1, "PUSH_NULL")
    fold = null is not None and null.pos == instr.pos
    encoder.put("LOAD_GLOBAL", encoder.name(instr.arg) << 1 | fold, instr.pos)
    return 2 if fold else 1


def encode_load_closure(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("LOAD_FAST", encoder.cell_slot(instr.arg), instr.pos)
    return 1


def encode_make_function(encoder: Encoder, instr: Instr, index: int) -> int:
    """The flags of 3.11 become one SET_FUNCTION_ATTRIBUTE each, the largest first: its value is on top."""
    encoder.put("MAKE_FUNCTION", 0, instr.pos)
    flag = FLAG_CLOSURE
    while flag:
        if instr.arg & flag:
            encoder.put("SET_FUNCTION_ATTRIBUTE", flag, instr.pos)
        flag >>= 1
    return 1


def _encode_end_for(encoder: Encoder, instr: Instr, index: int) -> int:
    pos = instr.pos
    encoder.put("END_FOR", 0, pos)
    encoder.put("POP_TOP", 0, pos)
    return 1


DECODERS: dict[str, DecodeRule] = {
    "COMPARE_OP": rule(_decode_compare, "COMPARE_OP", "TO_BOOL"),
    "JUMP_BACKWARD": renamed("JUMP"),
    "JUMP_FORWARD": renamed("JUMP"),
    "LOAD_ATTR": rule(decode_load_attr, "LOAD_ATTR", "LOAD_METHOD"),
    "LOAD_FAST": rule(decode_load_fast, "LOAD_FAST", "LOAD_CLOSURE"),
    "LOAD_FAST_CHECK": renamed("LOAD_FAST"),
    "LOAD_FAST_LOAD_FAST": rule(decode_load_fast_pair, "LOAD_FAST", "LOAD_CLOSURE"),
    "LOAD_GLOBAL": rule(_decode_load_global, "LOAD_GLOBAL", "PUSH_NULL"),
    "LOAD_SUPER_ATTR": rule(decode_super_attr, "LOAD_SUPER_ATTR"),
    "MAKE_FUNCTION": rule(_decode_make_function, "MAKE_FUNCTION"),
    "NOP": rule(decode_nop, "NOP"),
    "STORE_FAST_LOAD_FAST": rule(_decode_store_load, "STORE_FAST", "LOAD_FAST", "LOAD_CLOSURE"),
    "STORE_FAST_STORE_FAST": split("STORE_FAST", "STORE_FAST"),
}
ENCODERS: dict[str, EncodeFn] = {
    **dict.fromkeys(OPPOSITE, encode_conditional),
    "COMPARE_OP": encode_compare,
    "JUMP": encode_jump,
    "JUMP_BACKWARD_NO_INTERRUPT": encode_jump_no_interrupt,
    "LOAD_ATTR": encode_load_attr,
    "LOAD_CLOSURE": encode_load_closure,
    "LOAD_FAST": encode_load_fast_checked,
    "LOAD_GLOBAL": encode_load_global,
    "LOAD_METHOD": encode_load_attr,
    "LOAD_SUPER_ATTR": encode_super_attr,
    "MAKE_FUNCTION": encode_make_function,
    "UNARY_NOT": encode_unary_not,
}

DIALECT = Dialect(
    version=(3, 13),
    plain=PLAIN,
    decoders={
        **DECODERS,
        "END_FOR": rule(_decode_end_for, "END_FOR"),
        "RETURN_CONST": rule(decode_return_const, "LOAD_CONST", "RETURN_VALUE"),
    },
    encoders={**ENCODERS, "END_FOR": _encode_end_for},
    dropped=frozenset(("CACHE", "EXTENDED_ARG")),
    internal=frozenset(("ENTER_EXECUTOR", "EXIT_INIT_CHECK", "INTERPRETER_EXIT", "RESERVED")),
    checks_unbound=False,
    pads_region_edges=True,
)
