"""Finds the function of a hook before the graph runs, so that the graph can register it as it is.

The trace of a hook is a graph of what the hook read when it was registered. A hook that changes objects, or reads what
may change before the backward pass, has to be called instead. Its function is made of objects that existed before the
frame, of constants, and of tensors of the graph.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from ...core import guard_explain
from ...core.guard_reference import CallContext
from ...core.source import Source, source_of_cell
from ..containers.sequence import TupleVar
from ..objects.functions import BoundMethodVar, CellVar, FunctionVar, PartialVar
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer

# Makes an object of the values of the tensors that the graph passes.
Make = Callable[[Sequence[Any]], Any]


class NotKnown(Exception):
    """A hook uses an object that is not there before the graph runs."""


class Ingredients:
    """What the function of a hook is made of; `tensors` is filled with those of the graph. `pinned`: sources and
    the objects that they have to be, which `guard` turns into guards. `new_cells`: cells that the frame creates, with
    what they contained."""

    def __init__(self, tx: Tracer) -> None:
        self.tx = tx
        self.tensors: list[TensorVar] = []
        # half of the captures of one function may depend on the identity of what its hooks use
        self.pins = tx.captures < tx.options.recompile_limit // 2
        self.pinned: dict[Source, Any] = {}
        self.new_cells: list[tuple[CellVar, Var]] = []

    def guard(self) -> None:
        for source, value in self.pinned.items():
            self.tx.guard(source, "ID", value)

    def unchanged(self) -> bool:
        """Whether the frame has not assigned to the variables of the hook since."""
        return all(cell.content is content for cell, content in self.new_cells)

    def make(self, var: Var) -> Make:
        """A function that makes the object of `var`. Raises NotKnown."""
        if isinstance(var, TensorVar):
            return self._tensor(var)
        if isinstance(var, FunctionVar) and var.fn is None:
            return self._function(var)
        if isinstance(var, BoundMethodVar) and var.source is None:
            fn, obj = self.make(var.fn), self.make(var.obj)
            return lambda tensors: types.MethodType(fn(tensors), obj(tensors))
        if isinstance(var, PartialVar) and var.source is None and not var.attrs:
            return self._partial(var)
        if isinstance(var, TupleVar) and var.source is None and var.python_type() is tuple:
            items = [self.make(each) for each in var.items]
            return lambda tensors: tuple(item(tensors) for item in items)
        if isinstance(var, ConstVar) or var.source is None and var.is_constant():
            constant = var.constant()
            return lambda tensors: constant
        return self._existing(var)

    def _existing(self, var: Var) -> Make:
        if var.source is None or not self.pins:
            raise NotKnown()
        try:
            value = self.tx.existing(var)
        except NotConstant as unknown:
            raise NotKnown() from unknown
        self.pinned[var.source] = value
        return lambda tensors: value

    def _tensor(self, var: TensorVar) -> Make:
        place = len(self.tensors)
        self.tensors.append(var)
        return lambda tensors: tensors[place]

    def _partial(self, var: PartialVar) -> Make:
        fn, args = self.make(var.fn), [self.make(each) for each in var.args]
        kwargs = {name: self.make(each) for name, each in var.kwargs.items()}

        def partial(tensors: Sequence[Any]) -> Any:
            given = {name: each(tensors) for name, each in kwargs.items()}
            return functools.partial(fn(tensors), *(each(tensors) for each in args), **given)

        return partial

    def _function(self, var: FunctionVar) -> Make:
        """A function that the program creates in the frame."""
        positional, keyword = var.default_values(self.tx)
        if var.attrs or var.hidden or var.annotations is not None:
            raise NotKnown()
        assigned, closure = _assigned_in(var.code), var.closure or ()
        if any(
            cell.source is None and name in assigned for name, cell in zip(var.code.co_freevars, closure, strict=True)
        ):
            raise NotKnown()  # other functions of the frame would have another cell
        defaults = [self.make(each) for each in positional]
        by_name = {name: self.make(each) for name, each in keyword.items()}
        cells = [self._cell(each) for each in closure]

        def function(tensors: Sequence[Any]) -> Any:
            given = tuple(each(tensors) for each in defaults)
            made = types.FunctionType(var.code, var.globals, var.name, given, tuple(each(tensors) for each in cells))
            made.__kwdefaults__ = {name: each(tensors) for name, each in by_name.items()} or None
            return made

        return function

    def _cell(self, cell: CellVar) -> Make:
        """A cell that existed before, or a new one with what a variable of the frame contains."""
        if cell.source is None:
            if cell.content is None:
                raise NotKnown()
            self.new_cells.append((cell, cell.content))
            content = self.make(cell.content)
            return lambda tensors: types.CellType(content(tensors))
        source = source_of_cell(cell.source)
        if source is None or not self.pins:
            raise NotKnown()
        found = guard_explain.read(source, CallContext(self.tx.func, self.tx.entry_locals))
        self.pinned[source] = found
        return lambda tensors: found


def _assigned_in(code: types.CodeType) -> set[str]:
    """The variables of functions around it that a function, or one inside it, assigns to."""
    writes = ("STORE_DEREF", "DELETE_DEREF")
    own = {each.argval for each in dis.get_instructions(code) if each.opname in writes}
    inner = (_assigned_in(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return own.union(*inner).intersection(code.co_freevars)
