"""Makes one kernel of those that are equal but for sizes; it takes these sizes as arguments.

Networks repeat a few layers at many sizes, and compiling a kernel takes far longer than generating it. A number becomes
an argument only where that costs nothing on the GPU: factors in addresses, the number of rows or of elements, how many
programs share a row, and constants in float32. Numbers that are divisors of indices, or that are added to addresses,
stay in the code. So does the greatest power of 2 that divides a number, up to the elements of an access of 16 bytes:
from it Triton knows how wide an access may be.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...dtypes import dtype_of
from ...ir.size import AnySize
from .ops import POINTER

if TYPE_CHECKING:
    from .kernel import TritonKernel

_ACCESS = 16  # bytes that a thread accesses at once, at most
_DIGITS = 8
_NOT_FLOAT32 = {"*fp16", "*bf16", "*fp64", "fp16", "bf16", "fp64"}
# Functions of tl whose first argument is an address.
_ACCESSES = {"load", "store", "atomic_add", "atomic_max", "atomic_min"}
_BOUNDS = {"xnumel", "rnumel"}  # bounds of masks, on which the width of an access depends
_BYTES = {kind: dtype_of(dtype).itemsize for dtype, kind in POINTER.items()}  # of an element
_INT32 = 1 << 31
_VARYING = re.compile(r"\b\d+(?=\*)|\b\d+\.\d+(?:e[+-]?\d+)?|\b\d+e[+-]?\d+")  # factors and floats


@dataclass(frozen=True)
class Shared:
    """What takes the place of a kernel: the number of another one, the integers that it takes, and the grid."""

    kernel: int
    sizes: tuple[int, ...]
    grid: tuple[AnySize, ...]


@dataclass(frozen=True)
class _Number:
    """A number that may become an argument: what is passed, and the text of its value in terms of the argument. It is
    in the line `line` of the body from `start` to `end`, or the constant `name`."""

    value: int
    text: Callable[[str], str]
    kind: str  # numbers of different kinds are not the same argument
    line: int = -1
    start: int = 0
    end: int = 0
    name: str = ""


def shared(kernels: Sequence[TritonKernel]) -> tuple[list[TritonKernel], list[Shared]]:
    """The kernels that are left, and what takes the place of each of the given ones."""
    roughly = [_rough_key(kernel) if kernel.plain and not kernel.sizes else None for kernel in kernels]
    counts = Counter(roughly)
    alike: dict[object, list[int]] = {}
    forms: dict[int, _Form] = {}
    for place, kernel in enumerate(kernels):
        if roughly[place] is not None and counts[roughly[place]] > 1:  # reading a kernel takes milliseconds
            forms[place] = _Form(kernel)
        alike.setdefault(forms[place].key if place in forms else place, []).append(place)
    left: list[TritonKernel] = []
    places: dict[int, Shared] = {}
    for members in alike.values():
        if len(members) == 1:
            places[members[0]] = Shared(len(left), (), kernels[members[0]].grid)
            left.append(kernels[members[0]])
            continue
        made, sizes = _joined([forms[member] for member in members])
        places |= {m: Shared(len(left), each, kernels[m].grid) for m, each in zip(members, sizes, strict=True)}
        left.append(made)
    return left, [places[place] for place in range(len(kernels))]


def _rough_key(kernel: TritonKernel) -> tuple[object, ...]:
    """What is equal for kernels that are equal but for sizes, found without reading them as Python."""
    body = _VARYING.sub("#", kernel.text.partition("):\n")[2])
    return body, kernel.signature, kernel.aligned, kernel.num_warps, kernel.num_stages, kernel.early


class _Form:
    """A kernel, the numbers in it that may become arguments, and `key`, which is equal for kernels that differ in
    nothing but these."""

    def __init__(self, kernel: TritonKernel) -> None:
        self.kernel = kernel
        self.power = _ACCESS // min((_BYTES[kind] for kind in kernel.signature if kind in _BYTES), default=1)
        tree = ast.parse(kernel.text)
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
        first = function.body[0].lineno - 1
        lines = kernel.text.splitlines()
        self.body = lines[first:]
        self.imports = [line for line in lines[: function.lineno - 1] if not line.startswith(("#", "@"))]
        nodes = list(ast.walk(function))
        self.numbers = [*self._constants(nodes), *self._places(nodes, first)]
        kept = {number.name for number in self.numbers}
        fixed = tuple((name, value) for name, value in kernel.constants.items() if name not in kept)
        self.key = (
            tuple(self.written([f"<{number.kind}>" for number in self.numbers])), tuple(self.imports), fixed,
            tuple(number.name + number.kind for number in self.numbers if number.name), kernel.signature,
            kernel.aligned, kernel.num_warps, kernel.num_stages, kernel.early,
        )  # fmt: skip

    def _constants(self, nodes: Sequence[ast.AST]) -> list[_Number]:
        """The compile-time constants that may be arguments. Without programs that share a row, the number of its
        elements may tell how often a loop runs."""
        lanes = {
            name.id for node in nodes if isinstance(node, ast.Call) and _function(node) == "arange"
            for name in ast.walk(node) if isinstance(name, ast.Name)
        }  # fmt: skip
        names = ["xnumel", *(("rnumel", "xblocks", "SPLIT") if "SPLIT" in self.kernel.constants else ())]
        found = [(name, self.kernel.constants[name]) for name in names if name in self.kernel.constants]
        return [
            replace(_integer(value, self.power if name in _BOUNDS else 1), name=name)
            for name, value in found if name not in lanes and 0 < value < _INT32
        ]  # fmt: skip

    def _places(self, nodes: Sequence[ast.AST], first: int) -> list[_Number]:
        found: dict[tuple[int, int], _Number] = {}
        in_float32 = self._in_float32(nodes)
        for node in nodes:
            if isinstance(node, ast.Call) and _function(node) in _ACCESSES:
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult) and _is(part.left, int):
                        self._add(found, part.left, first)
            elif isinstance(node, ast.Constant) and type(node.value) is float and in_float32:
                self._add(found, node, first)
        return [found[at] for at in sorted(found)]

    def _in_float32(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether the kernel has no floating-point values but those of float32."""
        types = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        return not (_NOT_FLOAT32 & set(self.kernel.signature) or types & {"float16", "bfloat16", "float64"})

    def _add(self, found: dict[tuple[int, int], _Number], node: ast.expr, first: int) -> None:
        assert isinstance(node, ast.Constant) and node.end_col_offset is not None
        value, number = node.value, None
        if isinstance(value, float):
            number = _float(value)
        elif isinstance(value, int) and 1 < value < _INT32:
            number = _integer(value, self.power)
        if number is not None:
            at = node.lineno - 1 - first, node.col_offset
            found[at] = replace(number, line=at[0], start=at[1], end=node.end_col_offset)

    def written(self, texts: Sequence[str]) -> list[str]:
        """The lines of the body with these texts in the places of the numbers that are not constants."""
        lines = list(self.body)
        for number, text in reversed(list(zip(self.numbers, texts, strict=True))):
            if not number.name:
                line = lines[number.line]
                lines[number.line] = line[: number.start] + text + line[number.end :]
        return lines


def _function(call: ast.Call) -> str:
    """The name of the function of `tl` that is called, or ""."""
    function = call.func
    of_tl = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "tl"
    return function.attr if of_tl and isinstance(function, ast.Attribute) else ""


def _is(node: ast.expr, kind: type) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _integer(value: int, most: int) -> _Number:
    power = min(value & -value, most)
    return _Number(value // power, lambda name: name if power == 1 else f"({power} * {name})", f"int{power}")


def _float(value: float) -> _Number | None:
    """A float32, passed as the integer with the same bits; None for 0 and powers of 2, with which compilers do more,
    and for what float32 does not have."""
    if not math.isfinite(value) or math.frexp(value)[0] in (0.0, 0.5, -0.5):
        return None
    try:
        (bits,) = struct.unpack("i", struct.pack("f", value))
    except OverflowError:
        return None
    return _Number(bits, lambda name: f"{name}.to(tl.float32, bitcast=True)", "float")


def _joined(forms: Sequence[_Form]) -> tuple[TritonKernel, list[tuple[int, ...]]]:
    """One kernel that can do what each of these does, and its sizes for each of them."""
    columns = [tuple(form.numbers[i].value for form in forms) for i in range(len(forms[0].numbers))]
    arguments: dict[tuple[tuple[int, ...], str], str] = {}
    first, texts, assigned = forms[0], [], []
    for number, column in zip(first.numbers, columns, strict=True):
        varies = len(set(column)) > 1
        name = arguments.setdefault((column, number.kind), f"size{len(arguments)}") if varies else ""
        if number.name and varies:
            assigned.append(f"    {number.name} = {number.text(name)}")
        source = first.body[number.line][number.start : number.end] if not number.name else ""
        texts.append(number.text(name) if varies else source)
    gone = {number.name for number, column in zip(first.numbers, columns) if len(set(column)) > 1}
    body = [*assigned, *first.written(texts)]
    kernel = first.kernel
    constants = {name: value for name, value in kernel.constants.items() if name not in gone}
    sizes = tuple(arguments.values())
    contents = repr((body, constants, kernel.signature, kernel.aligned, kernel.num_warps, kernel.early))
    name = f"{kernel.name.rpartition('_')[0]}_{hashlib.sha256(contents.encode()).hexdigest()[:_DIGITS]}"
    takes = [f"b{i}" for i in range(len(kernel.signature))] + [*sizes, *(f"{c}: tl.constexpr" for c in constants)]
    comment = [line for line in kernel.text.splitlines() if line.startswith("#")]
    lines = [*first.imports, *comment, "@triton.jit", f"def {name}({', '.join(takes)}):", *body]
    made = replace(kernel, name=name, text="\n".join(lines) + "\n", constants=constants, sizes=sizes)
    return made, [tuple(values) for values in zip(*(column for column, _ in arguments))]
