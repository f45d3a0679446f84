"""Defines the `Dialect` of CPython 3.12: how its instructions map to the canonical ones of `isa` and back.

New compared with 3.11: comprehensions are inlined (LOAD_FAST_AND_CLEAR), conditional jumps go forward only, and END_FOR
and END_SEND end loops. `legacy` has what 3.11 and 3.12 share.
"""

from __future__ import annotations

from .codec import Raw
from .dialect import (
    OPPOSITE,
    Decoder,
    Dialect,
    Encoder,
    decode_super_attr,
    encode_jump,
    encode_jump_no_interrupt,
    encode_load_fast_checked,
    encode_super_attr,
    opset,
    put_forward_only,
    renamed,
    rule,
)
from .isa import COMPARE_OPERATORS, Instr
from .legacy import ENCODERS as LEGACY_ENCODERS
from .legacy import LEGACY_RULES

PLAIN = opset(
    """
    BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP
    BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL_FUNCTION_EX CALL_INTRINSIC_1 CALL_INTRINSIC_2
    CHECK_EG_MATCH CHECK_EXC_MATCH CLEANUP_THROW CONTAINS_OP COPY COPY_FREE_VARS DELETE_ATTR DELETE_DEREF
    DELETE_FAST DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR DICT_MERGE DICT_UPDATE END_ASYNC_FOR END_FOR END_SEND
    FOR_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER IMPORT_FROM IMPORT_NAME IS_OP
    JUMP_BACKWARD_NO_INTERRUPT LIST_APPEND LIST_EXTEND LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_CLOSURE
    LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS
    LOAD_LOCALS LOAD_NAME MAKE_CELL MAKE_FUNCTION MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING
    MATCH_SEQUENCE POP_EXCEPT POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP
    PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE SEND SETUP_ANNOTATIONS
    SET_ADD SET_UPDATE STORE_ATTR STORE_DEREF STORE_FAST STORE_GLOBAL STORE_NAME STORE_SLICE STORE_SUBSCR SWAP
    UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START YIELD_VALUE
    """
)


def _decode_compare(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("COMPARE_OP", COMPARE_OPERATORS[raw.arg >> 4], raw.pos)


def decode_load_attr(decoder: Decoder, raw: Raw) -> None:
    """The low bit asks for a method and its self."""
    op = "LOAD_METHOD" if raw.arg & 1 else "LOAD_ATTR"
    decoder.emit(op, decoder.code.co_names[raw.arg >> 1], raw.pos)


def decode_return_const(decoder: Decoder, raw: Raw) -> None:
    decoder.plain(raw, "LOAD_CONST")
    decoder.emit("RETURN_VALUE", None, raw.pos)


# The low four bits of COMPARE_OP, by operator: which results of a three-way comparison are true (for the specializer).
COMPARE_MASKS = (2, 2 | 8, 8, 1 | 2 | 4, 4, 4 | 8)


def _encode_compare(encoder: Encoder, instr: Instr, index: int) -> int:
    number = COMPARE_OPERATORS.index(instr.arg)
    encoder.put("COMPARE_OP", number << 4 | COMPARE_MASKS[number], instr.pos)
    return 1


def encode_load_attr(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("LOAD_ATTR", encoder.name(instr.arg) << 1 | (instr.op == "LOAD_METHOD"), instr.pos)
    return 1


def _encode_conditional(encoder: Encoder, instr: Instr, index: int) -> int:
    put_forward_only(encoder, instr, index)
    return 1


DIALECT = Dialect(
    version=(3, 12),
    plain=PLAIN,
    decoders={
        **LEGACY_RULES,
        "COMPARE_OP": rule(_decode_compare, "COMPARE_OP"),
        "JUMP_BACKWARD": renamed("JUMP"),
        "JUMP_FORWARD": renamed("JUMP"),
        "LOAD_ATTR": rule(decode_load_attr, "LOAD_ATTR", "LOAD_METHOD"),
        "LOAD_FAST_CHECK": renamed("LOAD_FAST"),
        "LOAD_SUPER_ATTR": rule(decode_super_attr, "LOAD_SUPER_ATTR"),
        "RETURN_CONST": rule(decode_return_const, "LOAD_CONST", "RETURN_VALUE"),
    },
    encoders={
        **LEGACY_ENCODERS,
        **dict.fromkeys(OPPOSITE, _encode_conditional),
        "COMPARE_OP": _encode_compare,
        "JUMP": encode_jump,
        "JUMP_BACKWARD_NO_INTERRUPT": encode_jump_no_interrupt,
        "LOAD_ATTR": encode_load_attr,
        "LOAD_FAST": encode_load_fast_checked,
        "LOAD_METHOD": encode_load_attr,
        "LOAD_SUPER_ATTR": encode_super_attr,
    },
    dropped=frozenset(("CACHE", "EXTENDED_ARG")),
    internal=frozenset(("INTERPRETER_EXIT", "RESERVED")),
    checks_unbound=False,
)
