"""Sets of numbers that are known at run time only, such as the lengths of sequences that a mask gives.

The hashes of such numbers are unknown, but how many there are is known if each two of them are surely equal or surely
different.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core import symbolic
from ...core.python_compat import UNHASHABLE_ELEMENT
from ..codegen import Codegen
from ..containers.iterator import ItemsIteratorVar
from ..containers.mapping import key_of
from ..containers.sequence import ListVar
from ..containers.sets import SetVar
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..tracer import Tracer
from .symint import NumberVar, is_unbacked


class NumberSetVar(Var):
    """A new set or frozenset (`cls`) of the numbers `items`, no two of which are equal."""

    __slots__ = ("cls", "items")

    def __init__(self, items: Sequence[Var], cls: type) -> None:
        super().__init__()
        self.items, self.cls = list(items), cls

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"a {self.cls.__name__} of numbers that are known only at run time"

    def unsupported(self, tx: Tracer, what: str) -> Any:
        return tx.graph_break("data-dependent-branch", f"{what} of {self.describe()}")

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def length(self, tx: Tracer) -> Var:
        return ConstVar(len(self.items))

    def iterate(self, tx: Tracer) -> Var:
        if len(self.items) > 1:
            return self.unsupported(tx, "the order")
        return ItemsIteratorVar(list(self.items))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.cls)
        cg.call_top(lambda: cg.load(ListVar(list(self.items))))


def new_set(tx: Tracer, items: Sequence[Var], cls: type) -> Var:
    """A new set or frozenset of these items."""
    if any(is_unbacked(item) for item in items):
        distinct = _distinct(items)
        if distinct is not None:
            return NumberSetVar(distinct, cls)
    return SetVar([key_of(tx, item, UNHASHABLE_ELEMENT) for item in items], None, cls)


def _distinct(items: Sequence[Var]) -> list[Var] | None:
    """These numbers without repetitions; None if one is no number, or may be equal to another one or not."""
    found: list[tuple[Any, Var]] = []
    for item in items:
        value: Any = item.sym if isinstance(item, NumberVar) and is_unbacked(item) else slots.constant_or(item, None)
        if not isinstance(value, torch.SymInt) and type(value) is not int:
            return None
        if any(symbolic.surely_true(value == other) for other, _ in found):
            continue
        if not all(symbolic.surely_true(value != other) for other, _ in found):
            return None
        found.append((value, item))
    return [item for _, item in found]
