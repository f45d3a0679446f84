"""Templates of the Triton text of each loop-IR op. `{0}` is the first argument.

Arguments have the compute type of the op; `KIND` in codegen/values.py lists the compute types.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...ir.ops import require_texts

COMPUTE = {"f": "tl.float32", "d": "tl.float64", "i": "tl.int32", "l": "tl.int64", "m": "tl.int1"}
# The type of a pointer in a signature, and the type of an element in a kernel's text.
POINTER = {
    "float32": "*fp32", "float64": "*fp64", "bfloat16": "*bf16", "float16": "*fp16", "bool": "*i1", "int64": "*i64",
    "int32": "*i32", "int16": "*i16", "int8": "*i8", "uint8": "*u8",
}
# The type of a number that a kernel takes by value.
NUMBER = {"float32": "fp32", "float64": "fp64", "int64": "i64", "int32": "i32"}
ELEMENT = {name: f"tl.{'int1' if name == 'bool' else name}" for name in POINTER}
NATIVE = {"float32", "float64", "bool", "int64", "int32"}  # dtypes that are a compute type themselves
RANK = "milfd"



@dataclass(frozen=True)
class Template:
    """Text with places for operands that uses a name which a kernel's module must import: a function of `prelude.py`,
    or `libdevice`."""

    text: str
    uses: str

    @property
    def takes_numbers(self) -> bool:
        """Whether operands may be Python numbers. Most functions of the prelude need tensors."""
        return self.uses in ("libdevice", "nan_max", "nan_min")


AnyTemplate: TypeAlias = str | Template
SORTS = frozenset(("sort_rows", "first_in_order"))  # the functions of `prelude_sort.py` that kernels call


def prelude(name: str, operands: int = 1) -> Template:
    """A call of a function of `prelude.py`."""
    return Template(f"{name}({_places(operands)})", name)


def libdevice(name: str, operands: int = 1) -> Template:
    """A call of a function of libdevice."""
    return Template(f"libdevice.{name}({_places(operands)})", "libdevice")


def _places(operands: int) -> str:
    return ", ".join(f"{{{i}}}" for i in range(operands))


ARITHMETIC: dict[str, AnyTemplate] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "tl.div_rn({0}, {1})",
    "neg": "{0} * -1.0", "abs": "tl.abs({0})", "maximum": prelude("nan_max", 2), "minimum": prelude("nan_min", 2),
    "square": "{0} * {0}", "sqrt": "tl.sqrt_rn({0})", "rsqrt": "tl.rsqrt({0})", "reciprocal": "tl.div_rn(1.0, {0})",
    "exp": "tl.exp({0})", "exp2": "tl.exp2({0})", "expm1": libdevice("expm1"), "log": "tl.log({0})",
    "log2": "tl.log2({0})", "log10": libdevice("log10"), "log1p": libdevice("log1p"),
    "sin": "tl.sin({0})", "cos": "tl.cos({0})", "tan": libdevice("tan"),
    "asin": libdevice("asin"), "acos": libdevice("acos"), "atan": libdevice("atan"),
    "sinh": libdevice("sinh"), "cosh": libdevice("cosh"), "tanh": prelude("tanh"),
    "asinh": libdevice("asinh"), "acosh": libdevice("acosh"), "atanh": libdevice("atanh"),
    "erf": "tl.erf({0})", "erfc": libdevice("erfc"), "ndtr": prelude("ndtr"), "lgamma": libdevice("lgamma"),
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))", "relu": Template("nan_max({0}, 0)", "nan_max"), "sign": prelude("sign"),
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})", "trunc": libdevice("trunc"), "round": libdevice("rint"),
    "pow": libdevice("pow", 2), "atan2": libdevice("atan2", 2), "fmod": libdevice("fmod", 2),
    "remainder": prelude("remainder", 2), "floordiv": prelude("floordiv", 2),
    "truncdiv": Template("libdevice.trunc(tl.div_rn({0}, {1}))", "libdevice"),
    "bitwise_not": "~{0}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
    "bitwise_left_shift": "{0} << {1}", "bitwise_right_shift": "{0} >> {1}",
    "random_bits": prelude("random_bits", 3),
}
# Rows that differ for integers, for float64, and if the result is rounded to half precision.
INTEGER: dict[str, AnyTemplate] = {
    "fmod": "{0} % {1}", "remainder": prelude("int_remainder", 2), "floordiv": prelude("int_floordiv", 2),
    "truncdiv": "{0} // {1}", "floor": "{0}", "ceil": "{0}", "trunc": "{0}", "round": "{0}",
    "neg": "-{0}",  # for floats, Triton's unary minus subtracts from 0.0 and so gives 0.0 in place of -0.0
}
DOUBLE: dict[str, AnyTemplate] = {
    "sqrt": "tl.sqrt({0})", "reciprocal": "1.0 / {0}", "div": "{0} / {1}", "ndtr": prelude("ndtr_double"),
    "tanh": libdevice("tanh"), "truncdiv": Template("libdevice.trunc({0} / {1})", "libdevice"),
}
ROUGH: dict[str, AnyTemplate] = {
    "div": "{0} / {1}", "reciprocal": "1.0 / {0}", "sqrt": "tl.sqrt({0})", "exp": "tl.exp2({0} * 1.4426950408889634)",
    "sigmoid": "1.0 / (1.0 + tl.exp2({0} * -1.4426950408889634))", "ndtr": prelude("ndtr_rough"),
}
COMPARISON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
PREDICATE = {"isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")'}
LOGIC = {
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}", "logical_not": "~{0}",
}
require_texts("Triton", ARITHMETIC, COMPARISON, PREDICATE, LOGIC)

def arithmetic(op: str, kind: str, rough: bool) -> AnyTemplate:
    """The template of an arithmetic op in a compute type. `rough` allows errors of a few units in the last place."""
    if kind in "ilm" and op in INTEGER:
        return INTEGER[op]
    if kind == "d" and op in DOUBLE:
        return DOUBLE[op]
    if rough and op in ROUGH:
        return ROUGH[op]
    return ARITHMETIC[op]


def imports(used: Collection[str]) -> str:
    """The import lines of a kernel that uses these functions of the prelude and of SORTS, or `libdevice`."""
    lines = ["import triton", "import triton.language as tl"]
    for file, names in (("prelude", set(used) - SORTS - {"libdevice"}), ("prelude_sort", SORTS & set(used))):
        if names:
            lines.append(f"from inductor.codegen.triton.{file} import {', '.join(sorted(names))}")
    if "libdevice" in used:
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


def conversion(source: str, target: str) -> AnyTemplate:
    """The template of a conversion from one compute type to another."""
    if source == target:
        return "{0}"
    if source in "il" and target == "f":
        return prelude("int_to_float")
    return "({0} != 0)" if target == "m" else f"{{0}}.to({COMPUTE[target]})"
