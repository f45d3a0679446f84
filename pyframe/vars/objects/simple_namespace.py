"""Vars for instances of `types.SimpleNamespace` and its subclasses."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ..codegen import Codegen
from ..containers.mapping import DictVar
from ..protocol.base import Var
from ..protocol.const import ConstVar, fold
from ..protocol.text import TextPlaceholder
from ..tracer import Tracer
from .instances import InstanceVar


class NamespaceVar(InstanceVar):
    """An instance of SimpleNamespace or a subclass; models its constructor, comparison and repr."""

    __slots__ = ()

    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__init__":
            if args:
                self._take_positional(tx, args)
            for key, value in kwargs.items():
                self.store(tx, key, value)
            return ConstVar(None)
        if name in ("__eq__", "__ne__") and isinstance(args[0], NamespaceVar):
            mine, other = DictVar(self.fields(tx)), DictVar(args[0].fields(tx))
            return mine.compare(tx, "==" if name == "__eq__" else "!=", other) or ConstVar(NotImplemented)
        if name == "__repr__":
            placeholders = {key: TextPlaceholder(tx, value) for key, value in self.fields(tx).items()}
            instance: Any = types.SimpleNamespace.__new__(self.cls)
            vars(instance).update(placeholders)
            return fold(tx, repr, instance)
        return super().c_method(tx, name, args, kwargs)

    def _take_positional(self, tx: Tracer, args: Sequence[Var]) -> None:
        """From CPython 3.13 on the constructor accepts one positional argument: a mapping or pairs."""
        if (refused := _refusal(len(args))) is not None:
            tx.raise_(TypeError, refused)
        argument = args[0]
        if not isinstance(argument, DictVar) or not all(isinstance(key, str) for key in argument.items):
            self.unsupported(tx, f"an argument of SimpleNamespace(): {argument.describe()}")
            return
        for key, value in argument.items.items():
            self.store(tx, key, value)

    def rebuild_empty(self, cg: Codegen) -> None:
        cg.load_call(self.cls)


@functools.cache
def _refusal(count: int) -> str | None:
    """The TypeError message of this CPython for `count` positional arguments; None if it accepts them."""
    try:
        types.SimpleNamespace(*[{}] * count)  # type: ignore[call-arg, unused-ignore]
    except TypeError as error:
        return str(error)
    return None
