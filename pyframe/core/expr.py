"""Expression trees over numbers that are known when a frame is entered: sizes, strides, arguments.

A tree is a `Source`, a `Number`, or an `Expr` (an operator applied to trees).  It can be evaluated (`evaluate`),
printed (`text`), compiled to the postfix program of a RELATION guard (`program`), or emitted as bytecode or graph nodes
(in `emit`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from inductor.dtypes import to_float32

from .source import Source


@dataclass(frozen=True, slots=True)
class Number:
    """A constant.  `text` (its repr) takes part in comparisons, so that 1, 1.0 and True differ, as do 0.0 and
    -0.0."""

    value: Any
    text: str

    @staticmethod
    def of(value: Any) -> Number:
        return Number(value, repr(value))


@dataclass(frozen=True, slots=True, repr=False)
class Expr:
    """An operator applied to expression trees.  `depth`: the most operators on a path through the tree."""

    op: str
    args: tuple[Source | Number | Expr, ...]
    depth: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        depth = 1 + max((arg.depth for arg in self.args if isinstance(arg, Expr)), default=0)
        object.__setattr__(self, "depth", depth)

    def __repr__(self) -> str:
        return text(self)


Tree = Source | Number | Expr


def _and(a: Any, b: Any) -> bool:
    return bool(a and b)


def _or(a: Any, b: Any) -> bool:
    return bool(a or b)


OPS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "and": _and, "or": _or, "min": min, "max": max,
    "neg": operator.neg, "pos": operator.pos, "not": operator.not_, "abs": abs,
    "int": int, "float": float, "bool": bool, "round": round, "floor": math.floor, "ceil": math.ceil, "sqrt": math.sqrt,
    "exp": math.exp, "log": math.log, "log2": math.log2, "log10": math.log10, "sin": math.sin, "cos": math.cos,
    "tan": math.tan, "tanh": math.tanh, "atan": math.atan, "erf": math.erf, "float32": to_float32,
}  # fmt: skip
# Operators of RELATION programs; on integers their results are integers.
_IN_PROGRAM = frozenset("+ - * // % min max == != < <= > >= and or neg not abs".split())
_COMPARISONS = frozenset("== != < <= > >= and or".split())
_PREFIX = {"neg": "-", "pos": "+", "not": "not "}


def leaves(tree: Tree) -> Iterator[Source]:
    """The sources in `tree`, repeated as often as they occur."""
    if isinstance(tree, Source):
        yield tree
    elif isinstance(tree, Expr):
        for arg in tree.args:
            yield from leaves(arg)


def sources(tree: Tree) -> tuple[Source, ...]:
    """The distinct sources in `tree`, in order of first occurrence."""
    return tuple(dict.fromkeys(leaves(tree)))


def evaluate(tree: Tree, values: Mapping[Source, Any]) -> Any:
    """The value of `tree` for these values of its sources; exceptions of the operators propagate."""
    if isinstance(tree, Source):
        return values[tree]
    if isinstance(tree, Number):
        return tree.value
    return OPS[tree.op](*(evaluate(arg, values) for arg in tree.args))


def text(tree: Tree) -> str:
    """`tree` as Python source: ``x.size(0) % 8 == 0``."""
    return _text(tree, outer=True)


def _text(tree: Tree, outer: bool = False) -> str:
    if isinstance(tree, Source):
        return tree.name
    if isinstance(tree, Number):
        return tree.text
    args = tree.args
    if tree.op in _PREFIX:
        return f"{_PREFIX[tree.op]}{_text(args[0])}"
    if tree.op.isalnum() and tree.op not in ("and", "or"):
        return f"{tree.op}({', '.join(map(text, args))})"
    compared = tree.op in _COMPARISONS
    written = f" {tree.op} ".join(
        _text(arg, outer=compared and isinstance(arg, Expr) and arg.op not in _COMPARISONS) for arg in args
    )
    return written if outer else f"({written})"


def program(tree: Tree, order: Mapping[Source, int]) -> tuple[Any, ...] | None:
    """The postfix program of a RELATION check; `order` maps sources to registers.  None if `tree` has an operator or a
    constant outside of the integer operations that the program supports."""
    if isinstance(tree, Source):
        return ((order[tree],),)
    if isinstance(tree, Number):
        value = tree.value
        return (int(value),) if isinstance(value, int) and abs(value) < 1 << 62 else None
    if tree.op not in _IN_PROGRAM:
        return None
    parts = [program(arg, order) for arg in tree.args]
    if any(part is None for part in parts):
        return None
    return (*(step for part in parts if part is not None for step in part), tree.op)


def run_program(steps: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    """Python version of the RELATION check in C; false for non-ints, division by zero and 64-bit overflow."""
    stack: list[int] = []
    for step in steps:
        if isinstance(step, tuple):
            if type(values[step[0]]) is not int:
                return False
            stack.append(values[step[0]])
        elif isinstance(step, int):
            stack.append(step)
        else:
            count = 1 if step in ("neg", "not", "abs") else 2
            args = stack[-count:]
            if step in ("//", "%") and args[1] == 0:
                return False
            stack[-count:] = [int(OPS[step](*args))]
        if not -(1 << 63) <= stack[-1] < 1 << 63:
            return False
    return bool(stack[-1])


@dataclass(frozen=True, slots=True, repr=False)
class Holds:
    """A predicate that evaluates `tree` in Python, for relations between numbers that need not be integers.  It is
    called with the values of the sources, in the order of `sources(tree)`."""

    tree: Tree

    def __call__(self, *values: Any) -> bool:
        return bool(evaluate(self.tree, dict(zip(sources(self.tree), values, strict=True))))

    def __repr__(self) -> str:
        return text(self.tree)
