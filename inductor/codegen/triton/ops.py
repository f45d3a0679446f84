"""Tables with the Triton text of each loop-IR op. `{0}` is the first argument.

Arguments have the compute type of the op; `KIND` in codegen/values.py lists the compute types.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...ir.ops import require_texts

COMPUTE = {"f": "tl.float32", "d": "tl.float64", "i": "tl.int32", "l": "tl.int64", "m": "tl.int1"}
# The type of a pointer in a signature, and the type of an element in a kernel's text.
POINTER = {
    "float32": "*fp32", "float64": "*fp64", "bfloat16": "*bf16", "float16": "*fp16", "bool": "*i1", "int64": "*i64",
    "int32": "*i32", "int16": "*i16", "int8": "*i8", "uint8": "*u8",
}
ELEMENT = {name: f"tl.{'int1' if name == 'bool' else name}" for name in POINTER}
NATIVE = {"float32", "float64", "bool", "int64", "int32"}  # dtypes that are a compute type themselves
RANK = "milfd"

ARITHMETIC = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "tl.div_rn({0}, {1})",
    "neg": "{0} * -1.0", "abs": "tl.abs({0})", "maximum": "nan_max({0}, {1})", "minimum": "nan_min({0}, {1})",
    "square": "{0} * {0}", "sqrt": "tl.sqrt_rn({0})", "rsqrt": "tl.rsqrt({0})", "reciprocal": "tl.div_rn(1.0, {0})",
    "exp": "tl.exp({0})", "exp2": "tl.exp2({0})", "expm1": "libdevice.expm1({0})", "log": "tl.log({0})",
    "log2": "tl.log2({0})", "log10": "libdevice.log10({0})", "log1p": "libdevice.log1p({0})",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})", "tan": "libdevice.tan({0})",
    "asin": "libdevice.asin({0})", "acos": "libdevice.acos({0})", "atan": "libdevice.atan({0})",
    "sinh": "libdevice.sinh({0})", "cosh": "libdevice.cosh({0})", "tanh": "tanh({0})",
    "asinh": "libdevice.asinh({0})", "acosh": "libdevice.acosh({0})", "atanh": "libdevice.atanh({0})",
    "erf": "tl.erf({0})", "erfc": "libdevice.erfc({0})", "ndtr": "ndtr({0})", "lgamma": "libdevice.lgamma({0})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))", "relu": "nan_max({0}, 0)", "sign": "sign({0})",
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})", "trunc": "libdevice.trunc({0})", "round": "libdevice.rint({0})",
    "pow": "libdevice.pow({0}, {1})", "atan2": "libdevice.atan2({0}, {1})", "fmod": "libdevice.fmod({0}, {1})",
    "remainder": "remainder({0}, {1})", "floordiv": "floordiv({0}, {1})",
    "truncdiv": "libdevice.trunc(tl.div_rn({0}, {1}))",
    "bitwise_not": "~{0}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
    "bitwise_left_shift": "{0} << {1}", "bitwise_right_shift": "{0} >> {1}",
    "random_bits": "random_bits({0}, {1}, {2})",
}
# Rows that differ for integers, for float64, and if the result is rounded to half precision.
INTEGER = {
    "fmod": "{0} % {1}", "remainder": "int_remainder({0}, {1})", "floordiv": "int_floordiv({0}, {1})",
    "truncdiv": "{0} // {1}", "floor": "{0}", "ceil": "{0}", "trunc": "{0}", "round": "{0}",
    "neg": "-{0}",  # for floats, Triton's unary minus subtracts from 0.0 and so gives 0.0 in place of -0.0
}
DOUBLE = {
    "sqrt": "tl.sqrt({0})", "reciprocal": "1.0 / {0}", "div": "{0} / {1}", "ndtr": "ndtr_double({0})",
    "tanh": "libdevice.tanh({0})", "truncdiv": "libdevice.trunc({0} / {1})",
}
ROUGH = {
    "div": "{0} / {1}", "reciprocal": "1.0 / {0}", "sqrt": "tl.sqrt({0})", "exp": "tl.exp2({0} * 1.4426950408889634)",
    "sigmoid": "1.0 / (1.0 + tl.exp2({0} * -1.4426950408889634))", "ndtr": "ndtr_rough({0})",
}
COMPARISON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
PREDICATE = {"isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")'}
LOGIC = {
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}", "logical_not": "~{0}",
}
require_texts("Triton", ARITHMETIC, COMPARISON, PREDICATE, LOGIC)

PRELUDE = (
    "nan_max nan_min arg_max arg_min later_max later_min first_max first_min product online_step online_groups "
    "online_fold online_close sign int_to_float int_floordiv int_remainder remainder divide floordiv tanh ndtr "
    "ndtr_rough ndtr_double random_bits wrap_index"
).split()
_CALLED = re.compile(rf"(?<![\w.])({'|'.join(PRELUDE)})\b")


def arithmetic(op: str, kind: str, rough: bool) -> str:
    """The text of an arithmetic op in a compute type. `rough` allows errors of a few units in the last place."""
    if kind in "ilm" and op in INTEGER:
        return INTEGER[op]
    if kind == "d" and op in DOUBLE:
        return DOUBLE[op]
    if rough and op in ROUGH:
        return ROUGH[op]
    return ARITHMETIC[op]


def imports(text: str) -> str:
    """The import lines that a kernel's text needs."""
    lines = ["import triton", "import triton.language as tl"]
    names = sorted(set(_CALLED.findall(text)))
    if names:
        lines.append(f"from inductor.codegen.triton.prelude import {', '.join(names)}")
    if "libdevice." in text:
        lines.append("from triton.language.extra import libdevice")
    return "\n".join(lines) + "\n"


def literal(value: Any, kind: str) -> str:
    """A constant of a compute type, as Python text."""
    if kind == "m":
        return "True" if value else "False"
    if kind in "il":
        return repr(int(value))
    value = float(value)
    if value == 0 and math.copysign(1.0, value) < 0:  # Triton turns the constant -0.0 into 0.0
        bits, whole = (-(1 << 31), "tl.int32") if kind == "f" else (-(1 << 63), "tl.int64")
        return f"tl.cast({bits}, {whole}).to({COMPUTE[kind]}, bitcast=True)"
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def convert(text: str, source: str, target: str) -> str:
    """`text` converted from one compute type to another."""
    if source == target:
        return text
    if source in "il" and target == "f":
        return f"int_to_float({text})"
    return f"({text} != 0)" if target == "m" else f"{text}.to({COMPUTE[target]})"
