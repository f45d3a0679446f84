"""Defines the `Dialect` of CPython 3.14, by its differences from that of 3.13.

New in 3.14: loads that borrow the reference (LOAD_FAST_BORROW), LOAD_SMALL_INT, `BINARY_OP []` in place of
BINARY_SUBSCR, and LOAD_SPECIAL in place of BEFORE_WITH.
"""

from __future__ import annotations

from .codec import Raw
from .dialect import OPPOSITE, Decoder, Dialect, Encoder, renamed, rule
from .isa import BINARY_OPERATORS, Instr
from .py313 import DECODERS, ENCODERS, PLAIN, decode_load_fast, decode_load_fast_pair, encode_conditional

_SUBSCRIPT = len(BINARY_OPERATORS)  # NB_SUBSCR follows the in-place operators
_COMMON_CONSTANTS: tuple[object, ...] = (AssertionError, NotImplementedError, tuple, all, any)


def _decode_binary_op(decoder: Decoder, raw: Raw) -> None:
    if raw.arg == _SUBSCRIPT:
        decoder.emit("BINARY_SUBSCR", None, raw.pos)
    else:
        decoder.plain(raw, "BINARY_OP")


def _encode_binary_subscr(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("BINARY_OP", _SUBSCRIPT, instr.pos)
    return 1


def _decode_small_int(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("LOAD_CONST", raw.arg, raw.pos)


def _decode_common_constant(decoder: Decoder, raw: Raw) -> None:
    if raw.arg == 0:
        decoder.emit("LOAD_ASSERTION_ERROR", None, raw.pos)
    else:
        decoder.emit("LOAD_CONST", _COMMON_CONSTANTS[raw.arg], raw.pos)


def _encode_assertion_error(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("LOAD_COMMON_CONSTANT", 0, instr.pos)
    return 1


def _decode_call_function_ex(decoder: Decoder, raw: Raw) -> None:
    """Always takes a mapping or NULL here; the NULL form is canonical flags 0."""
    last = decoder.out[-1]
    if isinstance(last, Instr) and last.op == "PUSH_NULL":
        decoder.out.pop()
        decoder.emit("CALL_FUNCTION_EX", 0, raw.pos)
    else:
        decoder.emit("CALL_FUNCTION_EX", 1, raw.pos)


def _encode_call_function_ex(encoder: Encoder, instr: Instr, index: int) -> int:
    if not instr.arg & 1:
        encoder.put("PUSH_NULL", 0, instr.pos)
    encoder.put("CALL_FUNCTION_EX", 0, instr.pos)
    return 1


def _decode_end_for(decoder: Decoder, raw: Raw) -> None:
    after = decoder.next_raw()
    if after is None or after.op != "POP_ITER" or after.offset in decoder.labels:
        raise ValueError(f"END_FOR without its POP_ITER in {decoder.code.co_qualname}")
    decoder.emit("END_FOR", None, raw.pos)
    decoder.index += 1


def _encode_end_for(encoder: Encoder, instr: Instr, index: int) -> int:
    pos = instr.pos
    encoder.put("END_FOR", 0, pos)
    encoder.put("POP_ITER", 0, pos)
    return 1


def _decode_end_async_for(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("END_ASYNC_FOR", None, raw.pos)  # its jump distance is for monitoring only


def _encode_conditional(encoder: Encoder, instr: Instr, index: int) -> int:
    consumed = encode_conditional(encoder, instr, index)
    encoder.put("NOT_TAKEN", 0, instr.pos)  # where monitoring hooks the other branch
    return consumed


_REPLACED = {
    "BEFORE_ASYNC_WITH",
    "BEFORE_WITH",
    "BINARY_OP",
    "BINARY_SUBSCR",
    "BUILD_CONST_KEY_MAP",
    "CALL_FUNCTION_EX",
    "END_ASYNC_FOR",
    "LOAD_ASSERTION_ERROR",
}

DIALECT = Dialect(
    version=(3, 14),
    plain=(PLAIN - _REPLACED) | {"BUILD_INTERPOLATION", "BUILD_TEMPLATE", "LOAD_SPECIAL"},
    decoders={
        **DECODERS,
        "BINARY_OP": rule(_decode_binary_op, "BINARY_OP", "BINARY_SUBSCR"),
        "CALL_FUNCTION_EX": rule(_decode_call_function_ex, "CALL_FUNCTION_EX"),
        "END_ASYNC_FOR": rule(_decode_end_async_for, "END_ASYNC_FOR"),
        "END_FOR": rule(_decode_end_for, "END_FOR"),
        "LOAD_COMMON_CONSTANT": rule(_decode_common_constant, "LOAD_ASSERTION_ERROR", "LOAD_CONST"),
        "LOAD_FAST_BORROW": rule(decode_load_fast, "LOAD_FAST", "LOAD_CLOSURE"),
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW": rule(decode_load_fast_pair, "LOAD_FAST", "LOAD_CLOSURE"),
        "LOAD_SMALL_INT": rule(_decode_small_int, "LOAD_CONST"),
        "POP_ITER": renamed("POP_TOP"),
    },
    encoders={
        **ENCODERS,
        **dict.fromkeys(OPPOSITE, _encode_conditional),
        "BINARY_SUBSCR": _encode_binary_subscr,
        "CALL_FUNCTION_EX": _encode_call_function_ex,
        "END_FOR": _encode_end_for,
        "LOAD_ASSERTION_ERROR": _encode_assertion_error,
    },
    dropped=frozenset(("CACHE", "EXTENDED_ARG", "NOT_TAKEN", "ANNOTATIONS_PLACEHOLDER")),
    internal=frozenset(("ENTER_EXECUTOR", "EXIT_INIT_CHECK", "INTERPRETER_EXIT", "RESERVED")),
    checks_unbound=False,
    pads_region_edges=True,
)
