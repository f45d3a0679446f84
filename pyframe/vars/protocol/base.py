"""`Var`, the tracer's representation of one Python value, and its default operations.

While bytecode is traced, the stack and the locals of a frame hold Vars.  Each kind of value (tensor, list, constant,
instance ...) has a subclass that overrides the operations it supports; all others break the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.source import Source
from ...errors import TraceSignal
from ..codegen import Codegen

if TYPE_CHECKING:
    from ..tracer import Tracer


# Types whose instances have no `__dict__`, so that setting an unknown attribute is an AttributeError.
_WITHOUT_FIELDS: tuple[Callable[[], Any], ...] = (
    bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset,
)  # fmt: skip


class NotConstant(Exception):
    """Raised if the value (or the type) of a Var is not known while tracing. `var`: that Var, if it has a value in this
    call of which a capture can be made."""

    def __init__(self, text: str, var: Var | None = None) -> None:
        super().__init__(text)
        self.var = var


class NotRebuildable(Exception):
    """Raised by `Var.reconstruct` if no bytecode creates the value; the frame then runs eagerly."""


class Raised(TraceSignal):
    """An exception that is unwinding the traced program.  `fresh` is true until the frame that raised it has set its
    `__context__`."""

    def __init__(self, exc: Var, fresh: bool = True) -> None:
        super().__init__(exc.describe())
        self.exc, self.fresh = exc, fresh


class Var:
    """Base class.  Methods named after CPython's slots are called by the algorithms in ``slots``, never by an
    opcode handler directly.  The defaults break the graph with ``unsupported-object``.

    A Var with a ``source`` represents an object that existed before the frame; a Var without one represents an object
    that the traced program created.  Vars of mutable objects are changed in place, and the change is logged in
    ``tx.effects``.
    """

    __slots__ = ("source",)
    is_tensor = False  # whether the value is a tensor computed by a node of the graph
    is_ambiguous = False  # whether the object is one of several others, known when the graph runs (see `may_be`)

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # ---- properties known while tracing ----
    def python_type(self) -> type:
        """The exact type of the value (raises NotConstant when unknown)."""
        raise NotConstant(type(self).__name__)

    def constant(self) -> Any:
        """The value itself if it is known while tracing (also immutable containers of constants); else raises
        NotConstant."""
        raise NotConstant(type(self).__name__)

    def same_object(self, tx: Tracer, other: Var) -> bool | None:
        """Whether this and another Var represent one object, which CPython shares; None if that says nothing."""
        return None

    def is_constant(self) -> bool:
        try:
            self.constant()
        except NotConstant:
            return False
        return True

    def plain(self) -> Any:
        """Like `constant`, but mutable containers are copied: for functions that neither keep nor change them."""
        return self.constant()

    def describe(self) -> str:
        """A short description of the value for error messages."""
        return f"{type(self).__name__}({self.source})" if self.source else type(self).__name__

    def may_be(self, other: Var) -> bool:
        """Whether this and another Var may represent the same object, depending on what the graph computes."""
        return False

    def unsupported(self, tx: Tracer, what: str) -> Any:
        return tx.graph_break("unsupported-object", f"{what} on {self.describe()}")

    def as_index(self, tx: Tracer) -> Var:
        """What nodes take in place of this value in the index of a tensor."""
        return self

    # ---- slots ----
    def getattr_(self, tx: Tracer, name: str) -> Var:
        return self.unsupported(tx, f"attribute {name!r}")

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        """Set the attribute, or delete it if ``value`` is None."""
        try:
            kind = self.python_type()
        except NotConstant:
            kind = object
        if kind in _WITHOUT_FIELDS and not hasattr(kind, name):
            try:
                setattr(kind(), name, None) if value is not None else delattr(kind(), name)
            except AttributeError as error:
                tx.raise_(AttributeError, *error.args)
        self.unsupported(tx, f"setting attribute {name!r}")

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return self.unsupported(tx, "a call")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.call(self.getattr_(tx, name), args, kwargs)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        return self.unsupported(tx, "indexing")

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        """``self[key] = value``, or ``del self[key]`` if ``value`` is None."""
        self.unsupported(tx, "item assignment")

    def unary(self, tx: Tracer, op: str) -> Var:
        """``op``: one of ``- + ~``."""
        return self.unsupported(tx, f"unary {op}")

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        """``op`` as in BINARY_OP (``+``, ``+=`` ...); None means NotImplemented."""
        return None

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        """``op``: one of ``< <= == != > >=``; None means NotImplemented."""
        return None

    def truth(self, tx: Tracer) -> bool:
        """The truth value, known while tracing; breaks with data-dependent-branch when it is not."""
        return bool(self.unsupported(tx, "truth value"))

    def length(self, tx: Tracer) -> Var:
        return self.unsupported(tx, "len()")

    def contains(self, tx: Tracer, item: Var) -> bool:
        return bool(self.unsupported(tx, "`in`"))

    def iterate(self, tx: Tracer) -> Var:
        """``iter(self)``: an IteratorVar."""
        return self.unsupported(tx, "iter()")

    def next_(self, tx: Tracer) -> Var | None:
        """``next(self)``; None at exhaustion."""
        return self.unsupported(tx, "next()")

    def unpack(self, tx: Tracer) -> list[Var]:
        """All items, for unpacking and star-arguments."""
        items: list[Var] = []
        it = self.iterate(tx)
        while (item := it.next_(tx)) is not None:
            items.append(item)
        tx.limit_size(len(items), "a list")
        return items

    def hash_(self, tx: Tracer) -> Var | None:
        """`hash(self)`; None: the hash of the constant.  The next three methods follow the same rule (see ``text``)."""
        return None

    def repr_(self, tx: Tracer) -> Var | None:
        return None

    def str_(self, tx: Tracer) -> Var | None:
        return None

    def format_(self, tx: Tracer, spec: Var) -> Var | None:
        return None

    # ---- bytecode that rebuilds the value ----
    def reconstruct(self, cg: Codegen) -> None:
        """Emit instructions that leave this value on the stack.  ``cg`` has already
        tried ``source`` and its cache of values built before.  Raises NotRebuildable."""
        raise NotRebuildable(f"{self.describe()} cannot be rebuilt")


class HeldVar(Var):
    """Base class of Vars that hold the Python object itself; the subclass decides which operations are supported."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)
