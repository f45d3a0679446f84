"""Defines the `Dialect` of CPython 3.11: how its instructions map to the canonical ones of `isa` and back.

Its main differences: jump names contain their direction (POP_JUMP_FORWARD_IF_TRUE), PRECALL precedes each CALL, and
FOR_ITER and SEND pop the exhausted iterator themselves instead of leaving that to END_FOR and END_SEND. `legacy` has
what 3.11 and 3.12 share.
"""

from __future__ import annotations

from .codec import Raw
from .dialect import (
    Decoder,
    Dialect,
    Encoder,
    encode_jump,
    encode_jump_no_interrupt,
    opset,
    renamed,
    rule,
)
from .isa import COMPARE_OPERATORS, LANDING_OF, OPS, Instr, Label
from .legacy import ENCODERS as LEGACY_ENCODERS
from .legacy import LEGACY_RULES

PLAIN = opset(
    """
    BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SET
    BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL_FUNCTION_EX CHECK_EG_MATCH CHECK_EXC_MATCH CONTAINS_OP COPY
    COPY_FREE_VARS DELETE_ATTR DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR DICT_MERGE
    DICT_UPDATE END_ASYNC_FOR GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER
    IMPORT_FROM IMPORT_NAME IS_OP JUMP_BACKWARD_NO_INTERRUPT LIST_APPEND LIST_EXTEND LOAD_ASSERTION_ERROR
    LOAD_ATTR LOAD_BUILD_CLASS LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_METHOD LOAD_NAME MAKE_CELL
    MAKE_FUNCTION MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE POP_EXCEPT POP_TOP PUSH_EXC_INFO
    PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE SETUP_ANNOTATIONS SET_ADD
    SET_UPDATE STORE_ATTR STORE_DEREF STORE_FAST STORE_GLOBAL STORE_NAME STORE_SUBSCR SWAP UNARY_INVERT
    UNARY_NEGATIVE UNARY_NOT UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START YIELD_VALUE
    """
)

_STATEMENT_INTRINSICS = {"IMPORT_STAR": "INTRINSIC_IMPORT_STAR", "PRINT_EXPR": "INTRINSIC_PRINT"}
_VALUE_INTRINSICS = {
    "ASYNC_GEN_WRAP": "INTRINSIC_ASYNC_GEN_WRAP",
    "LIST_TO_TUPLE": "INTRINSIC_LIST_TO_TUPLE",
    "UNARY_POSITIVE": "INTRINSIC_UNARY_POSITIVE",
}
_OP_OF_INTRINSIC = {intrinsic: op for op, intrinsic in _VALUE_INTRINSICS.items()}
_STATEMENT_OF_INTRINSIC = {intrinsic: op for op, intrinsic in _STATEMENT_INTRINSICS.items()}


def _decode_compare(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("COMPARE_OP", COMPARE_OPERATORS[raw.arg], raw.pos)


def _decode_jump_or_pop(test: str):
    def run(decoder: Decoder, raw: Raw) -> None:
        decoder.emit("COPY", 1, raw.pos)
        decoder.plain(raw, test)
        decoder.emit("POP_TOP", None, raw.pos)

    return rule(run, "COPY", test, "POP_TOP")


def _decode_classderef(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("LOAD_LOCALS", None, raw.pos)
    decoder.plain(raw, "LOAD_FROM_DICT_OR_DEREF")


def _decode_statement_intrinsic(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("CALL_INTRINSIC_1", _STATEMENT_INTRINSICS[raw.op], raw.pos)
    decoder.emit("POP_TOP", None, raw.pos)


def _decode_value_intrinsic(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("CALL_INTRINSIC_1", _VALUE_INTRINSICS[raw.op], raw.pos)


def _decode_prep_reraise_star(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("CALL_INTRINSIC_2", "INTRINSIC_PREP_RERAISE_STAR", raw.pos)


def _decode_with_landing(decoder: Decoder, raw: Raw) -> None:
    decoder.plain(raw, raw.op)  # _insert_landings adds the rest


def _insert_landings(decoder: Decoder) -> None:
    """Insert an END_FOR or END_SEND for each FOR_ITER and SEND, directly before the target of its jump.

    Code that falls through to that target, or jumps to it from elsewhere, must not run the inserted instruction: the
    label of other jumps stays behind it, and the fall-through jumps over it.
    """
    out = decoder.out
    landings: dict[Label, list[Instr]] = {}
    for item in out:
        if isinstance(item, Instr) and item.op in LANDING_OF:
            landings.setdefault(item.arg, []).append(item)
    if not landings:
        return
    result: list[Instr | Label] = []
    falls_through = True
    for item in out:
        if isinstance(item, Label) and item in landings:
            users = landings[item]
            if falls_through:
                result.append(Instr("JUMP", item, users[0].pos))
            for number, user in enumerate(users):
                landing = Label(f"{item.name}.end{number}")
                user.arg = landing
                result += (landing, Instr(LANDING_OF[user.op], None, user.pos))
                if number + 1 < len(users):
                    result.append(Instr("JUMP", item, user.pos))
            result.append(item)
            continue
        result.append(item)
        if isinstance(item, Instr):
            falls_through = not OPS[item.op].terminator
    out[:] = result


def _encode_landing(encoder: Encoder, instr: Instr, index: int) -> int:
    return 1  # the real FOR_ITER or SEND has popped already


def _encode_conditional(encoder: Encoder, instr: Instr, index: int) -> int:
    direction = "BACKWARD" if encoder.is_backward(index, instr.arg) else "FORWARD"
    encoder.put(instr.op.replace("POP_JUMP_", f"POP_JUMP_{direction}_"), instr.arg, instr.pos)
    return 1


def _encode_compare(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("COMPARE_OP", COMPARE_OPERATORS.index(instr.arg), instr.pos)
    return 1


def _encode_call(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("PRECALL", instr.arg, instr.pos)
    encoder.put("CALL", instr.arg, instr.pos)
    return 1


def _encode_load_locals(encoder: Encoder, instr: Instr, index: int) -> int:
    deref = encoder.at(index + 1, "LOAD_FROM_DICT_OR_DEREF")
    if deref is None:
        raise ValueError("3.11 has LOAD_LOCALS only before LOAD_FROM_DICT_OR_DEREF")
    encoder.put("LOAD_CLASSDEREF", encoder.cell_slot(deref.arg), deref.pos)
    return 2


def _encode_intrinsic_1(encoder: Encoder, instr: Instr, index: int) -> int:
    if instr.arg in _STATEMENT_OF_INTRINSIC:
        if encoder.at(index + 1, "POP_TOP") is None:
            raise ValueError(f"3.11 has {instr.arg} only before POP_TOP")
        encoder.put(_STATEMENT_OF_INTRINSIC[instr.arg], 0, instr.pos)
        return 2
    if instr.arg not in _OP_OF_INTRINSIC:
        raise ValueError(f"{instr.arg} cannot be written on 3.11")
    encoder.put(_OP_OF_INTRINSIC[instr.arg], 0, instr.pos)
    return 1


def _encode_intrinsic_2(encoder: Encoder, instr: Instr, index: int) -> int:
    if instr.arg != "INTRINSIC_PREP_RERAISE_STAR":
        raise ValueError(f"{instr.arg} cannot be written on 3.11")
    encoder.put("PREP_RERAISE_STAR", 0, instr.pos)
    return 1


_TESTS = ("TRUE", "FALSE", "NONE", "NOT_NONE")

DIALECT = Dialect(
    version=(3, 11),
    plain=PLAIN,
    decoders={
        **LEGACY_RULES,
        **{
            f"POP_JUMP_{way}_IF_{test}": renamed(f"POP_JUMP_IF_{test}")
            for way in ("FORWARD", "BACKWARD")
            for test in _TESTS
        },
        **{
            op: rule(_decode_statement_intrinsic, "CALL_INTRINSIC_1", "POP_TOP")
            for op in _STATEMENT_INTRINSICS
        },
        **{op: rule(_decode_value_intrinsic, "CALL_INTRINSIC_1") for op in _VALUE_INTRINSICS},
        "COMPARE_OP": rule(_decode_compare, "COMPARE_OP"),
        "FOR_ITER": rule(_decode_with_landing, "FOR_ITER", "END_FOR", "JUMP"),
        "JUMP_BACKWARD": renamed("JUMP"),
        "JUMP_FORWARD": renamed("JUMP"),
        "JUMP_IF_FALSE_OR_POP": _decode_jump_or_pop("POP_JUMP_IF_FALSE"),
        "JUMP_IF_TRUE_OR_POP": _decode_jump_or_pop("POP_JUMP_IF_TRUE"),
        "LOAD_CLASSDEREF": rule(_decode_classderef, "LOAD_LOCALS", "LOAD_FROM_DICT_OR_DEREF"),
        "PREP_RERAISE_STAR": rule(_decode_prep_reraise_star, "CALL_INTRINSIC_2"),
        "SEND": rule(_decode_with_landing, "SEND", "END_SEND", "JUMP"),
    },
    encoders={
        **LEGACY_ENCODERS,
        **{f"POP_JUMP_IF_{test}": _encode_conditional for test in _TESTS},
        "CALL": _encode_call,
        "CALL_INTRINSIC_1": _encode_intrinsic_1,
        "CALL_INTRINSIC_2": _encode_intrinsic_2,
        "COMPARE_OP": _encode_compare,
        "END_FOR": _encode_landing,
        "END_SEND": _encode_landing,
        "JUMP": encode_jump,
        "JUMP_BACKWARD_NO_INTERRUPT": encode_jump_no_interrupt,
        "LOAD_LOCALS": _encode_load_locals,
    },
    dropped=frozenset(("CACHE", "EXTENDED_ARG", "PRECALL")),
    checks_unbound=True,
    landings=frozenset(LANDING_OF.values()),
    finish_decode=_insert_landings,
)
