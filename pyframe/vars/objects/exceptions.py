"""Vars for exceptions and tracebacks of the traced program.

Covers construction, the attributes that C code keeps (`args`, `__cause__`, `__context__`, ...), text, implicit
chaining when an exception is raised, and rebuilding an exception after the graph.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import AttrSource, Source
from ..codegen import Codegen
from ..containers.iterator import NotRebuilt
from ..containers.mapping import DictVar, pairs_of
from ..containers.sequence import ListVar, TupleVar
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, fold, make
from ..protocol.text import TextPlaceholder, repr_of, str_of
from ..tracer import Tracer
from .instances import InstanceVar

_LINKS = ("__cause__", "__context__")
_WITHOUT_KEYWORDS = (BaseException.__init__, BaseExceptionGroup.__init__)


class ExceptionVar(InstanceVar):
    """An exception: its class, arguments and attributes.

    `links` holds further attributes that CPython keeps in C, such as `__cause__`.  `step` is the step of the root frame
    at which the exception was first raised, or 0.  `part_of`: the exception group that it was split from, until it is
    raised by itself.
    """

    __slots__ = ("args", "links", "origin", "part_of", "step")

    def __init__(
        self,
        cls: type[BaseException],
        args: Sequence[Var] = (),
        source: Source | None = None,
        value: Any = MISSING,
    ) -> None:
        super().__init__(value, source, cls)
        self.args = list(args)
        self.step = 0
        self.links: dict[str, Var] = {}
        self.part_of: ExceptionVar | None = None
        self.origin: tuple[type, list[Var], dict[str, Var]] | None = None  # the call that creates it, see `keep`

    def keep(self, original: BaseException, origin: tuple[type, list[Var], dict[str, Var]]) -> None:
        """Copy the C attributes of `original`, a real exception like this one.  The call `origin` creates it again."""
        self.origin = origin
        for base in self.cls.__mro__:
            for name, member in base.__dict__.items():
                is_field = isinstance(member, types.MemberDescriptorType) and not name.startswith("__")
                if is_field and hasattr(original, name):
                    self.links.setdefault(name, make(getattr(original, name)))

    def describe(self) -> str:
        return f"{self.cls.__name__}({', '.join(arg.describe() for arg in self.args)})"

    def constant(self) -> Any:
        raise NotConstant(self.cls.__name__)

    # ---- attributes that C code keeps ----
    def getattr_c(self, tx: Tracer, name: str) -> Var | None:
        """The value of a C descriptor of the class; None for other names."""
        if name == "args":
            return TupleVar(self.args)
        real = self.value is not MISSING and name not in self.links
        if real and name in (*_LINKS, "__suppress_context__", "value", "code"):
            if hasattr(self.value, name):
                return tx.wrap(getattr(self.value, name), AttrSource(self.source, name) if self.source else None)
        if name == "__suppress_context__":
            return self.links.get(name, ConstVar(False))
        if name == "__traceback__":
            return self._traceback(tx)
        if name in _LINKS:
            if name == "__context__" and name not in self.links:
                tx.guard_nothing_handled()  # a caller may have been handling another exception when this one was raised
            return self.links.get(name, ConstVar(None))
        kept = {"value": StopIteration, "code": SystemExit}.get(name)
        if kept is not None and issubclass(self.cls, kept):
            return self.links.get(name) or (self.args[0] if self.args else ConstVar(None))
        if issubclass(self.cls, BaseExceptionGroup) and name in ("message", "exceptions"):
            if name in self.links:
                return self.links[name]
            return self.args[0] if name == "message" else TupleVar(self.args[1].unpack(tx))
        if isinstance(lookup(self.cls, name), types.MemberDescriptorType | types.GetSetDescriptorType):
            if name != "__dict__":
                return self.links.get(name) or self.unsupported(tx, f"attribute {name!r}")
        return None

    def _traceback(self, tx: Tracer) -> Var:
        if "__traceback__" in self.links or self.step:
            return self.links.get("__traceback__") or TracebackVar(self)
        if self.value is MISSING or self.value.__traceback__ is None:
            return tx.wrap(None, AttrSource(self.source, "__traceback__") if self.source is not None else None)
        return TracebackVar(self, self.source and AttrSource(self.source, "__traceback__"))

    def _found(self, tx: Tracer, name: str) -> Var:
        in_c = isinstance(lookup(self.cls, name), types.MemberDescriptorType | types.GetSetDescriptorType)
        return in_c and self.getattr_c(tx, name) or super()._found(tx, name)

    def store(self, tx: Tracer, name: str, value: Var | None) -> None:
        if self.value is not MISSING and hasattr(BaseException, name):
            self.unsupported(tx, f"setting attribute {name!r}")
        if name == "args" and value is not None:
            self.args = value.unpack(tx)
        elif name in ("__cause__", "__context__", "__suppress_context__", "__traceback__") and value is not None:
            self.links[name] = value
            if name == "__cause__":
                self.links["__suppress_context__"] = ConstVar(True)
        elif isinstance(lookup(self.cls, name), types.MemberDescriptorType | types.GetSetDescriptorType):
            self.unsupported(tx, f"setting attribute {name!r}")
        else:
            super().store(tx, name, value)

    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        match name:
            case "__init__":
                if kwargs and lookup(_base(self.cls), name) in _WITHOUT_KEYWORDS:
                    tx.raise_(TypeError, f"{self.cls.__name__}() takes no keyword arguments")
                if self.origin is None:  # else the C constructor has processed them
                    self.args = list(args)
                if self.source is not None:
                    initialize = lookup(_base(self.cls), "__init__")
                    tx.effects.add("CALL", None, (initialize, [self, *args], {}), tx.user_line())
            case "with_traceback":
                self.store(tx, "__traceback__", args[0])
                return self
            case "add_note":
                return self._add_note(tx, args[0])
            case "__str__":
                return self._own_str(tx)
            case "__repr__":
                return self._own_repr(tx)
            case "__reduce__" | "__reduce_ex__":
                return self._reduced(tx)
            case "__setstate__":
                for key, value in pairs_of(tx, args[0]) if slots.constant_or(args[0], 0) is not None else ():
                    self.setattr_(tx, key, value)
            case _:
                return super().c_method(tx, name, args, kwargs)
        return ConstVar(None)

    def _add_note(self, tx: Tracer, note: Var) -> Var:
        if not slots.has_type(note, str):
            tx.raise_(TypeError, f"note must be a str, not {slots.type_name(note)!r}")
        if tx.has_attribute(self, "__notes__"):
            notes = self.getattr_(tx, "__notes__")
        else:
            notes = ListVar([])
            self.setattr_(tx, "__notes__", notes)
        if not slots.has_type(notes, list):
            tx.raise_(TypeError, "Cannot add note: __notes__ is not a list")
        return notes.call_method(tx, "append", [note], {})

    def _reduced(self, tx: Tracer) -> Var:
        if isinstance(lookup(self.cls, "__reduce__"), types.FunctionType):
            return self.call_method(tx, "__reduce__", [], {})
        if lookup(self.cls, "__reduce__") is not BaseException.__reduce__:
            return self.unsupported(tx, "a copy")
        fields = self.fields(tx)
        return TupleVar([make(self.cls), TupleVar(self.args), *([DictVar(fields)] if fields else [])])

    # ---- text ----
    def _own_str(self, tx: Tracer) -> Var:
        kind = lookup(self.cls, "__str__")
        if kind is not BaseException.__str__ and kind is not KeyError.__str__:
            if issubclass(self.cls, BaseExceptionGroup):
                plural = "s" if self.args[1].length(tx).constant() > 1 else ""
                count = self.args[1].length(tx).constant()
                return ConstVar(f"{str_of(tx, self.args[0]).constant()} ({count} sub-exception{plural})")
            cls, args, kwargs = self.origin or (_base(self.cls), self.args, {})
            try:
                named = {name: arg.constant() for name, arg in kwargs.items()}
                return fold(tx, str, cls(*(arg.constant() for arg in args), **named))
            except NotConstant:
                return self.unsupported(tx, "str()")
        if not self.args:
            return ConstVar("")
        if len(self.args) > 1:
            return repr_of(tx, TupleVar(self.args))
        return (repr_of if kind is KeyError.__str__ else str_of)(tx, self.args[0])

    def _own_repr(self, tx: Tracer) -> Var:
        if lookup(self.cls, "__repr__") is not BaseException.__repr__:
            return self.unsupported(tx, "repr()")
        placeholders = [TextPlaceholder(tx, arg) for arg in self.args]
        text = f"({placeholders[0]!r})" if len(placeholders) == 1 else repr(tuple(placeholders))
        return ConstVar(self.cls.__name__ + text)

    def repr_(self, tx: Tracer) -> Var | None:
        method = self.special(tx, "__repr__")
        return self._own_repr(tx) if method is None else tx.call(method, [], {})

    def str_(self, tx: Tracer) -> Var | None:
        method = self.special(tx, "__str__")
        return self._own_str(tx) if method is None else tx.call(method, [], {})

    # ---- raising ----
    def raised_at(self, step: int) -> None:
        self.step = self.step or step
        self.part_of = None
        self.links.pop("__traceback__", None)

    def set_context(self, tx: Tracer, handled: Var | None) -> None:
        """Set `__context__`: this exception is raised while `handled` is being handled."""
        if handled is None or handled is self:
            return
        if self.value is not MISSING:
            tx.effects.add("CALL", None, (raised_while, [self, handled], {}), tx.user_line())
        link: Var | None = handled
        seen: set[int] = set()  # the program may have created a cycle
        while isinstance(link, ExceptionVar) and id(link) not in seen:
            seen.add(id(link))
            after = link.links.get("__context__")
            if after is self:
                del link.links["__context__"]
                break
            link = after
        self.links["__context__"] = handled

    def _rebuild(self, cg: Codegen) -> None:
        """Push a new exception of this class with these arguments."""
        if self.origin is not None:
            cls, args, kwargs = self.origin
            cg.load_const(cls)
            cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in (*args, *kwargs.values())), names=tuple(kwargs))
            cg.remember(self)
            return
        plain = self.cls.__new__ is BaseException.__new__ or not isinstance(self.cls.__new__, types.FunctionType)
        cg.load_const(self.cls.__new__ if plain else BaseException.__new__)
        cg.call_top(lambda: cg.load_const(self.cls), *(lambda arg=arg: cg.load(arg) for arg in self.args))
        cg.remember(self)
        if not isinstance(lookup(self.cls, "__init__"), types.FunctionType):
            temp = cg.temps[id(self)]
            cg.load_const(lookup(self.cls, "__init__"))
            loads = [lambda arg=arg: cg.load(arg) for arg in self.args]
            cg.call_top(lambda: cg.asm.load_fast(temp), *loads)
            cg.emit("POP_TOP")

    def needs_traceback(self) -> None:
        """Raise NotRebuilt if it was raised while tracing: only an exception raised for real has a traceback."""
        if self.step and "__traceback__" not in self.links:
            raise NotRebuilt("an exception that was raised, and is kept", self.step, "exception-in-traced-code")

    def reconstruct(self, cg: Codegen) -> None:
        self.needs_traceback()
        self._rebuild(cg)
        for name in (*_LINKS, "__suppress_context__", "__traceback__"):
            if name in self.links:
                cg.set_attr_of_top(name, self.links[name])
        for name, value in self.attrs.items():
            if value is not None:
                cg.set_attr_of_top(name, value, object.__setattr__)


class TracebackVar(Var):
    """The traceback of `owner`: not None, but of unknown content."""

    __slots__ = ("owner",)

    def __init__(self, owner: Var, source: Source | None = None) -> None:
        super().__init__(source)
        self.owner = owner

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        if isinstance(self.owner, ExceptionVar) and self.owner.step:
            raise NotRebuilt("the traceback of an exception", self.owner.step, "exception-in-traced-code")
        cg.load(self.owner)
        cg.emit("LOAD_ATTR", "__traceback__")


def raised_while(error: BaseException, handled: BaseException) -> None:
    """Chain `error` as CPython does when it is raised while `handled` is being handled."""
    link, seen = handled, {id(handled)}
    while (after := link.__context__) is not None and id(after) not in seen:
        if after is error:
            link.__context__ = None
            break
        seen.add(id(after))
        link = after
    if error is not handled:
        error.__context__ = handled


def _base(cls: type) -> type:
    """The first builtin exception class along the MRO of `cls`."""
    return next(base for base in cls.__mro__ if vars(builtins).get(base.__name__) is base)


def as_exception(tx: Tracer, kind: Any, *args: Any) -> Var:
    """The exception that `raise kind` raises; `kind` is a class, or the Var of a class or of an instance."""
    if isinstance(kind, type):
        return ExceptionVar(kind, [make(arg) for arg in args])
    value = slots.constant_or(kind, None)
    if isinstance(value, type) and issubclass(value, BaseException):
        if args and slots.has_type(args[0], value):
            return args[0]
        exc = tx.call(kind, [make(arg) for arg in args], {})
        if not slots.has_type(exc, BaseException):
            tx.raise_(
                TypeError,
                f"calling {value} should have returned an instance of BaseException, not {exc.python_type()}",
            )
        return exc
    if not slots.has_type(kind, BaseException):
        tx.raise_(TypeError, "exceptions must derive from BaseException")
    return kind
