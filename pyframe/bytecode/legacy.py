"""Rules that CPython 3.11 and 3.12 share: NULL below the callable, KW_NAMES, FORMAT_VALUE, no TO_BOOL."""

from __future__ import annotations

from .codec import Raw
from .dialect import Decoder, DecodeRule, EncodeFn, Encoder, decode_nop, rule
from .isa import Instr

_HAS_SPEC = 4


def _decode_load_global(decoder: Decoder, raw: Raw) -> None:
    if raw.arg & 1:
        decoder.emit("PUSH_NULL", None, raw.pos)
    decoder.emit("LOAD_GLOBAL", decoder.code.co_names[raw.arg >> 1], raw.pos)


def _decode_kw_names(decoder: Decoder, raw: Raw) -> None:
    decoder.emit("LOAD_CONST", decoder.code.co_consts[raw.arg], raw.pos)


def _decode_call(decoder: Decoder, raw: Raw) -> None:
    before = decoder.next_raw(-1)
    if before is not None and before.op == "PRECALL":
        before = decoder.next_raw(-2)
    has_names = before is not None and before.op == "KW_NAMES"
    decoder.emit("CALL_KW" if has_names else "CALL", raw.arg, raw.pos)


def _decode_format_value(decoder: Decoder, raw: Raw) -> None:
    conversion, has_spec = raw.arg & 3, raw.arg & _HAS_SPEC
    if conversion and has_spec:
        decoder.emit("SWAP", 2, raw.pos)
    if conversion:
        decoder.emit("CONVERT_VALUE", conversion, raw.pos)
    if conversion and has_spec:
        decoder.emit("SWAP", 2, raw.pos)
    decoder.emit("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE", None, raw.pos)


LEGACY_RULES: dict[str, DecodeRule] = {
    "CALL": rule(_decode_call, "CALL", "CALL_KW"),
    "FORMAT_VALUE": rule(_decode_format_value, "SWAP", "CONVERT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"),
    "KW_NAMES": rule(_decode_kw_names, "LOAD_CONST"),
    "LOAD_GLOBAL": rule(_decode_load_global, "PUSH_NULL", "LOAD_GLOBAL"),
    "NOP": rule(decode_nop, "NOP"),
}


def _encode_push_null(encoder: Encoder, instr: Instr, index: int) -> int:
    load = encoder.at(index + 1, "LOAD_GLOBAL")
    if load is None:
        encoder.put("PUSH_NULL", 0, instr.pos)
        return 1
    encoder.put("LOAD_GLOBAL", encoder.name(load.arg) << 1 | 1, load.pos)
    return 2


def _encode_load_global(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("LOAD_GLOBAL", encoder.name(instr.arg) << 1, instr.pos)
    return 1


def _encode_load_const(encoder: Encoder, instr: Instr, index: int) -> int:
    call = encoder.at(index + 1, "CALL_KW")
    if call is None:
        encoder.put("LOAD_CONST", encoder.const(instr.arg), instr.pos)
        return 1
    encoder.put("KW_NAMES", encoder.const(instr.arg), instr.pos)
    if encoder.dialect.version == (3, 11):
        encoder.put("PRECALL", call.arg, call.pos)
    encoder.put("CALL", call.arg, call.pos)
    return 2


def _encode_call_kw(encoder: Encoder, instr: Instr, index: int) -> int:
    raise ValueError("CALL_KW needs its names from a LOAD_CONST right before it")


def _encode_to_bool(encoder: Encoder, instr: Instr, index: int) -> int:
    if any(encoder.at(index + 1, op) for op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT")):
        return 1  # these test truth themselves
    encoder.put("UNARY_NOT", 0, instr.pos)
    encoder.put("UNARY_NOT", 0, instr.pos)
    return 1


def _encode_swap(encoder: Encoder, instr: Instr, index: int) -> int:
    """`SWAP 2; CONVERT_VALUE c; SWAP 2; FORMAT_WITH_SPEC` is one FORMAT_VALUE."""
    convert = encoder.at(index + 1, "CONVERT_VALUE")
    back, last = encoder.at(index + 2, "SWAP", 2), encoder.at(index + 3, "FORMAT_WITH_SPEC")
    if instr.arg == 2 and convert is not None and back is not None and last is not None:
        encoder.put("FORMAT_VALUE", convert.arg | _HAS_SPEC, last.pos)
        return 4
    encoder.put("SWAP", instr.arg, instr.pos)
    return 1


def _encode_convert_value(encoder: Encoder, instr: Instr, index: int) -> int:
    last = encoder.at(index + 1, "FORMAT_SIMPLE")
    encoder.put("FORMAT_VALUE", instr.arg, (last or instr).pos)
    return 1 if last is None else 2


def _encode_format_simple(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("FORMAT_VALUE", 0, instr.pos)
    return 1


def _encode_format_with_spec(encoder: Encoder, instr: Instr, index: int) -> int:
    encoder.put("FORMAT_VALUE", _HAS_SPEC, instr.pos)
    return 1


ENCODERS: dict[str, EncodeFn] = {
    "CALL_KW": _encode_call_kw,
    "CONVERT_VALUE": _encode_convert_value,
    "FORMAT_SIMPLE": _encode_format_simple,
    "FORMAT_WITH_SPEC": _encode_format_with_spec,
    "LOAD_CONST": _encode_load_const,
    "LOAD_GLOBAL": _encode_load_global,
    "PUSH_NULL": _encode_push_null,
    "SWAP": _encode_swap,
    "TO_BOOL": _encode_to_bool,
}
