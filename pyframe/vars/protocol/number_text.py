"""Texts of numbers that vary between calls, such as `f"step {i}"`. A text that the program only passes on is made at
run time. Whatever reads it specializes the capture to the numbers in the current call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen import Codegen
from ..tracer import Tracer
from .base import Var
from .const import ConstVar

_MAX_FIELDS = 32


class NumberTextVar(ConstVar):
    """A text made of known texts and of numbers, each number with its format."""

    __slots__ = ("parts", "tx")

    varies = True

    def __init__(self, tx: Tracer, parts: Sequence[str | tuple[Var, str]]) -> None:
        self.tx, self.parts, self.source = tx, parts, None

    @property
    def value(self) -> Any:
        texts = [part if isinstance(part, str) else format(part[0].constant(), part[1]) for part in self.parts]
        return "".join(texts)

    def is_constant(self) -> bool:
        return True

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "a text of numbers that vary between calls"

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op == "+" and isinstance(other, ConstVar) and other.python_type() is str:
            joined = joined_text(tx, [other, self] if reflected else [self, other])
            if joined is not None:
                return joined
        return super().binary(tx, op, other, reflected)

    def str_(self, tx: Tracer) -> Var | None:
        return self

    def format_(self, tx: Tracer, spec: Var) -> Var | None:
        return self if spec.constant() == "" else None

    def reconstruct(self, cg: Codegen) -> None:
        fields = [part for part in self.parts if not isinstance(part, str)]
        texts = (_literal(part) if isinstance(part, str) else f"{{:{part[1]}}}" for part in self.parts)
        cg.load_const("".join(texts).format)
        cg.call_top(*(lambda number=number: cg.load(number) for number, _ in fields))


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def text_of_number(tx: Tracer, number: Var, example: Any, spec: str) -> Var | None:
    """`format(number, spec)`, made at run time; None if it has to be made now. `example`: the number in this call. A
    format that is right for it is right for all numbers of its type, but for "c", which takes numbers of characters."""
    if type(example) not in (int, float) or spec[-1:] == "c" or "{" in spec or "}" in spec:
        return None
    try:
        format(example, spec)
    except ValueError:
        return None
    return NumberTextVar(tx, [(number, spec)])


def joined_text(tx: Tracer, texts: Sequence[Var]) -> Var | None:
    """The texts as one, if numbers that vary are in it; else None."""
    if not any(isinstance(text, NumberTextVar) for text in texts):
        return None
    parts: list[str | tuple[Var, str]] = []
    for text in texts:
        parts += text.parts if isinstance(text, NumberTextVar) else [text.constant()]
    known = sum(len(part) for part in parts if isinstance(part, str))
    if len(parts) > 2 * _MAX_FIELDS:
        return None
    tx.limit_size(known, "a text")
    return NumberTextVar(tx, parts)
