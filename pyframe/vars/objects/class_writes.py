"""Setting and deleting attributes of classes that existed before the trace.

The new values are kept in an overlay (`tx.class_writes`).  Reads consult the overlay first; the real classes are
changed after the graph has run.
"""

from __future__ import annotations

from typing import Any

from ..codegen import Codegen
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..tracer import Tracer
from .functions import FunctionVar
from .lookup import guarded_lookup, wins_over_fields, written_in_class

_HEAP_TYPE = 0x200  # Py_TPFLAGS_HEAPTYPE: the class was created by Python code


class WrittenClassVar(HeldVar):
    """A class as the target of effects; `attrs` holds the attributes written (None: deleted)."""

    __slots__ = ("attrs", "dropped")

    value: type

    def __init__(self, value: type) -> None:
        super().__init__(value)
        self.attrs: dict[str, Var | None] = {}
        self.dropped: set[str] = set()

    def written(self, name: str) -> Var | None:
        return self.attrs[name]

    def setter(self, special: str, name: str) -> Any:
        return None

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def write(tx: Tracer, cls_var: Var, name: str, value: Var | None) -> None:
    """`cls.name = value`; None deletes.  Breaks the graph for special names and where a descriptor is involved."""
    cls = cls_var.constant()
    special = "__setattr__" if value is not None else "__delattr__"
    plain = cls.__flags__ & _HEAP_TYPE and lookup(type(cls), special) is getattr(type, special)
    if not plain or name.startswith("__") or lookup(type(cls), name) is not MISSING:
        cls_var.unsupported(tx, f"setting class attribute {name!r}")
    first = written_in_class(tx, cls, name) is MISSING
    hidden = first and wins_over_fields(type(guarded_lookup(tx, cls, name)))
    if hidden or (value is not None and not _is_plain(value)):
        cls_var.unsupported(tx, f"setting class attribute {name!r}")
    target = tx.class_writes.setdefault(cls, WrittenClassVar(cls))
    if value is None:
        if (target.attrs[name] is None) if name in target.attrs else name not in cls.__dict__:
            _no_attribute(tx, cls, name)
        target.dropped.add(name)
    target.attrs.pop(name, None)
    target.attrs[name] = value
    tx.effects.add("ATTR", target, name, tx.user_line())


def _is_plain(value: Var) -> bool:
    """Whether a value stored in a class is a function, or no descriptor, so that reads return the value itself."""
    try:
        return isinstance(value, FunctionVar) or not hasattr(value.python_type(), "__get__")
    except NotConstant:
        return False


def _no_attribute(tx: Tracer, cls: type, name: str) -> None:
    """Raise the AttributeError of `del cls.name` for a missing attribute."""
    try:
        delattr(type(cls.__name__, (), {}), name)
    except AttributeError as error:
        tx.raise_(AttributeError, *error.args)
