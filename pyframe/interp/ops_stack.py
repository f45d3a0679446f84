"""Handlers of the instructions that move stack slots, load constants, access names, cells and attributes, and apply
operators."""

from __future__ import annotations

import io
from typing import Any, NoReturn

from ..core.source import CallSource, ClosureSource, LocalSource
from ..vars.objects.classes import ClassVar
from ..vars.objects.functions import CellVar
from ..vars.objects.superclasses import SuperVar
from ..vars.objects.weak_references import follow
from ..vars.protocol import slots
from ..vars.protocol.base import Var
from ..vars.protocol.class_reads import MISSING, lookup
from ..vars.protocol.const import ConstVar, make
from ..vars.protocol.null import NULL
from ..vars.torch_objects.choices import item_of
from ..vars.torch_objects.loop_varying import with_tensor
from .frame import Frame, UntouchedVar, op

UNBOUND_LOCAL = "cannot access local variable {!r} where it is not associated with a value"
UNBOUND_FREE = "cannot access free variable {!r} where it is not associated with a value in enclosing scope"


@op("NOP", "RESUME", "COPY_FREE_VARS")
def nothing(frame: Frame, arg: Any) -> None:
    if frame.instr.op == "COPY_FREE_VARS":
        frame.cells.update(zip(frame.cc.freevars, frame.free, strict=True))


@op("POP_TOP", "POP_ITER", "END_FOR")
def pop_top(frame: Frame, arg: None) -> None:
    _finalize(frame, frame.stack[-1])
    frame.pop()


@op("PUSH_NULL")
def push_null(frame: Frame, arg: None) -> None:
    frame.push(NULL)


@op("COPY")
def copy(frame: Frame, depth: int) -> None:
    frame.push(frame.stack[-depth])


@op("SWAP")
def swap(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@op("LOAD_CONST")
def load_const(frame: Frame, value: Any) -> None:
    frame.push(make(value))


@op("LOAD_FAST")
def load_fast(frame: Frame, name: str) -> None:
    found = frame.local(name)
    if found is None:
        frame.tx.raise_(UnboundLocalError, UNBOUND_LOCAL.format(name))
    frame.push(found)


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, name: str) -> None:
    """Save a local for the duration of a comprehension; if it is a cell, save the cell."""
    kept = frame.cells.pop(name, None) if name in frame.cc.cellvars else frame.local(name)
    frame.push(kept or NULL)
    frame.locals.pop(name, None)


@op("STORE_FAST")
def store_fast(frame: Frame, name: str) -> None:
    if name in frame.locals and frame.locals[name] is not frame.stack[-1]:
        _finalize(frame, frame.locals[name])
    value = frame.pop()
    if isinstance(value, CellVar) and name in frame.cc.cellvars:  # restored after `load_fast_and_clear`
        frame.cells[name] = value
        return
    if frame.tx.weak_references and name in frame.locals and frame.locals[name] is not value:
        _release(frame, frame.locals[name])
    if value is NULL:
        frame.locals.pop(name, None)
    else:
        frame.locals[name] = value


def _release(frame: Frame, dropped: Var) -> None:
    """A local releases `dropped`; if that was the last reference, the object dies now."""
    source = dropped.source
    # A value that was first reached through a weak reference has that reference as its source, even if a local holds
    # it.
    if not isinstance(source, LocalSource) and not (isinstance(source, CallSource) and source.fn is follow):
        return
    frame.tx.deleted_values.append(dropped)
    if frame.tx.weak_references:
        value = frame.tx.existing(dropped)
        if any(reference() is value for reference in frame.tx.weak_references):
            frame.tx.graph_break(
                "unsupported-object", "a local variable that drops an object which a weak reference refers to"
            )


# Classes whose finalizers only free memory.
_SILENT = (io.StringIO, io.BytesIO)


def _finalize(frame: Frame, dropped: Var | None) -> None:
    """Break the graph before a resume function drops an object whose class has a finalizer: that of a suspended
    generator runs its `finally` blocks. The arguments of other functions are also held by the caller."""
    tx, source = frame.tx, dropped.source if dropped is not None else None
    if tx.known is None or not frame.is_root or dropped is None or not isinstance(source, LocalSource | ClosureSource):
        return
    if sum(held.source == source for held in (*frame.stack, *frame.locals.values())) > 1:
        return  # the frame still holds it
    cls = type(dropped.value if isinstance(dropped, UntouchedVar) else tx.existing(dropped))
    if isinstance(dropped, UntouchedVar):
        tx.guard(source, "TYPE", cls)
    if lookup(cls, "__del__") is not MISSING and cls not in _SILENT:
        tx.graph_break("unsupported-object", f"an instance of {cls.__qualname__}, which has a finalizer, is dropped")


@op("DELETE_FAST")
def delete_fast(frame: Frame, name: str) -> None:
    dropped = frame.locals.get(name)
    if dropped is None:
        frame.tx.raise_(UnboundLocalError, UNBOUND_LOCAL.format(name))
    else:
        _finalize(frame, dropped)
        _release(frame, dropped)
        del frame.locals[name]


@op("MAKE_CELL")
def make_cell(frame: Frame, name: str) -> None:
    content = frame.local(name)
    frame.locals.pop(name, None)
    frame.cells[name] = CellVar(content, None, name if frame.is_root else None)
    frame.tx.new_cells.append(frame.cells[name])


@op("LOAD_CLOSURE")
def load_closure(frame: Frame, name: str) -> None:
    frame.push(frame.cell(name))


@op("LOAD_DEREF")
def load_deref(frame: Frame, name: str) -> None:
    cell = frame.cell(name)
    content = cell.content
    if content is None:
        _raise_empty(frame, name)
    if frame.tx.outside_reads is not None and cell.source is not None:
        frame.tx.outside_reads.variable(content, frame.file)
    frame.push(content)


def _raise_empty(frame: Frame, name: str) -> NoReturn:
    """Raise what CPython raises for a variable in an empty cell, of the frame's function or of one around it."""
    if name in frame.cc.cellvars:
        frame.tx.raise_(UnboundLocalError, UNBOUND_LOCAL.format(name))
    frame.tx.raise_(NameError, UNBOUND_FREE.format(name))


@op("STORE_DEREF")
def store_deref(frame: Frame, name: str) -> None:
    _finalize(frame, frame.cell(name).content)
    frame.cell(name).store(frame.tx, frame.pop())


@op("DELETE_DEREF")
def delete_deref(frame: Frame, name: str) -> None:
    content = frame.cell(name).content
    if content is None:
        _raise_empty(frame, name)
    _finalize(frame, content)
    frame.cell(name).store(frame.tx, None)


@op("LOAD_GLOBAL")
def load_global(frame: Frame, name: str) -> None:
    found = frame.load_global(name)
    if frame.tx.outside_reads is not None:
        frame.tx.outside_reads.variable(found, frame.file)
    frame.push(found)


@op("STORE_GLOBAL")
def store_global(frame: Frame, name: str) -> None:
    frame.tx.global_names.store(frame.globals, name, frame.pop())


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, arg: None) -> None:
    frame.push(ClassVar(AssertionError))


@op("LOAD_ATTR")
def load_attr(frame: Frame, name: str) -> None:
    frame.push(frame.tx.getattr(frame.pop(), name))


@op("STORE_ATTR")
def store_attr(frame: Frame, name: str) -> None:
    value, obj = frame.popn(2)
    obj.setattr_(frame.tx, name, value)


@op("DELETE_ATTR")
def delete_attr(frame: Frame, name: str) -> None:
    frame.pop().setattr_(frame.tx, name, None)


@op("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, arg: tuple[str, bool, bool]) -> None:
    name, is_method, with_arguments = arg
    function, cls, obj = frame.popn(3)
    if isinstance(function, ClassVar) and function.value is super:
        value = SuperVar(cls.constant(), obj).getattr_(frame.tx, name)
    else:  # the program has replaced `super`
        super_object = frame.tx.call(function, [cls, obj] if with_arguments else [], {})
        value = frame.tx.getattr(super_object, name)
    if is_method:
        frame.push_callable(value)
    else:
        frame.push(value)


@op("UNARY_NOT")
def unary_not(frame: Frame, arg: None) -> None:
    frame.push(ConstVar(not frame.pop().truth(frame.tx)))


@op("UNARY_NEGATIVE")
def unary_negative(frame: Frame, arg: None) -> None:
    frame.push(frame.pop().unary(frame.tx, "-"))


@op("UNARY_INVERT")
def unary_invert(frame: Frame, arg: None) -> None:
    frame.push(frame.pop().unary(frame.tx, "~"))


@op("BINARY_OP")
def binary_op(frame: Frame, symbol: str) -> None:
    left, right = with_tensor(frame.tx, symbol, *frame.popn(2))
    frame.push(slots.binary(frame.tx, symbol, left, right))


@op("COMPARE_OP")
def compare_op(frame: Frame, symbol: str) -> None:
    left, right = with_tensor(frame.tx, symbol, *frame.popn(2))
    frame.push(slots.compare(frame.tx, symbol, left, right))


@op("IS_OP")
def is_op(frame: Frame, invert: int) -> None:
    left, right = frame.popn(2)
    frame.push(ConstVar(slots.identical(frame.tx, left, right) != bool(invert)))


@op("CONTAINS_OP")
def contains_op(frame: Frame, invert: int) -> None:
    item, container = frame.popn(2)
    frame.push(ConstVar(container.contains(frame.tx, item) != bool(invert)))


@op("BINARY_SUBSCR")
def binary_subscr(frame: Frame, arg: None) -> None:
    container, key = frame.popn(2)
    found = item_of(frame.tx, container, key)
    frame.push(container.getitem(frame.tx, key) if found is None else found)


@op("STORE_SUBSCR")
def store_subscr(frame: Frame, arg: None) -> None:
    value, container, key = frame.popn(3)
    container.setitem(frame.tx, key, value)


@op("DELETE_SUBSCR")
def delete_subscr(frame: Frame, arg: None) -> None:
    container, key = frame.popn(2)
    container.setitem(frame.tx, key, None)
