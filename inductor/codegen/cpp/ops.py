"""Tables with the C++ text of each loop-IR op, which calls the overloads of vec.h. `{0}` is the first argument."""

from __future__ import annotations

import math
from typing import Any

from ...ir.ops import require_texts

SCALAR = {"f": "float", "d": "double", "i": "int32_t", "l": "int64_t", "m": "bool"}
VECTOR = {"f": "vf", "d": "vd", "i": "vi", "l": "vl", "m": "vm"}
MEMORY = {
    "float32": "float", "float64": "double", "bfloat16": "bf16", "float16": "f16", "bool": "bool", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t",
}
ROUND = {"bfloat16": "rnd_bf16", "float16": "rnd_f16"}
WRAP = {"uint8": "wrap_u8", "int8": "wrap_i8", "int16": "wrap_i16"}
RANK = "milfd"

ARITHMETIC = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "neg": "-{0}", "abs": "abs_({0})", "maximum": "max_({0}, {1})", "minimum": "min_({0}, {1})",
    "square": "{0} * {0}", "sqrt": "sqrt_({0})", "rsqrt": "rsqrt_({0})", "reciprocal": "recip_({0})",
    "exp": "exp_({0})", "exp2": "exp2_({0})", "expm1": "expm1_({0})", "log": "log_({0})", "log2": "log2_({0})",
    "log10": "log10_({0})", "log1p": "log1p_({0})", "sin": "sin_({0})", "cos": "cos_({0})", "tan": "tan_({0})",
    "asin": "asin_({0})", "acos": "acos_({0})", "atan": "atan_({0})", "sinh": "sinh_({0})", "cosh": "cosh_({0})",
    "tanh": "tanh_({0})", "asinh": "asinh_({0})", "acosh": "acosh_({0})", "atanh": "atanh_({0})",
    "erf": "erf_({0})", "erfc": "erfc_({0})", "ndtr": "ndtr_({0})", "lgamma": "lgamma_({0})",
    "sigmoid": "sigmoid_({0})",
    "relu": "relu_({0})", "sign": "sign_({0})", "floor": "floor_({0})", "ceil": "ceil_({0})",
    "trunc": "trunc_({0})", "round": "round_({0})", "pow": "pow_({0}, {1})", "atan2": "atan2_({0}, {1})",
    "fmod": "truncrem({0}, {1})", "remainder": "pymod({0}, {1})",
    "floordiv": "floordiv({0}, {1})", "truncdiv": "truncdiv({0}, {1})",
    "bitwise_not": "~{0}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
    "bitwise_left_shift": "{0} << {1}", "bitwise_right_shift": "{0} >> {1}",
}
COMPARISON = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
PREDICATE = {"isnan": "isnan_({0})", "isinf": "isinf_({0})"}
LOGIC = {
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}", "logical_not": "not_({0})",
}
REFUSED = {"random_bits"}  # not generated: on the CPU, ATen draws random numbers
require_texts("C++", ARITHMETIC, COMPARISON, PREDICATE, LOGIC, REFUSED)

def literal(value: Any, kind: str) -> str:
    """A constant of a compute type."""
    if kind == "m":
        return "true" if value else "false"
    if kind in "il":
        if int(value) == -(2**63):
            return "INT64_MIN"
        return f"({SCALAR[kind]}){int(value)}{'ll' if kind == 'l' else ''}"
    value = float(value)
    if math.isnan(value):
        return "__builtin_nanf(\"\")" if kind == "f" else "__builtin_nan(\"\")"
    if math.isinf(value):
        return ("-" if value < 0 else "") + ("__builtin_inff()" if kind == "f" else "__builtin_inf()")
    return f"{value!r}{'f' if kind == 'f' else ''}"


def convert(text: str, source: str, target: str) -> str:
    """`text` converted from one compute type to another."""
    return text if source == target else f"to_{target}({text})"
