"""Vars for callables: Python functions, closure cells, bound methods, `functools.partial` and functions written in C.

A call of a Python function is traced inline.  A call of a C function runs its model (see `registry`); without a model
the call is constant-folded if the function is pure, and breaks the graph otherwise.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import operator
import reprlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.python_compat import LAZY_ANNOTATIONS
from ...core.source import AttrSource, ConstSource, DictItemSource, FuncPartSource, SeqItemSource, Source
from ...core.trace_reliances import note_call
from ..codegen import Codegen
from ..containers.sequence import TupleVar
from ..protocol import arity, dunder, result_size_bounds, slots
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.class_reads import MISSING, lookup, wins_over_fields
from ..protocol.const import ConstVar, attribute_of_type, fold, make
from ..registry import Handler, call_model, is_overridable
from ..tracer import Tracer
from .deferred_annotations import evaluated
from .instance_dict import FieldsVar

if TYPE_CHECKING:
    from ..containers.mapping import DictVar


class CellVar(Var):
    """A closure cell.  `content` is None for an empty cell; `name` is set only for cells of the root frame.

    The content of a cell that existed before the trace is wrapped when it is first read, so that a cell which is not
    read needs no guards: `read` returns its Var."""

    __slots__ = ("_content", "_read", "name")

    def __init__(
        self,
        content: Var | None,
        source: Source | None = None,
        name: str | None = None,
        read: Callable[[], Var] | None = None,
    ) -> None:
        super().__init__(source)
        self._content, self._read = content, read
        self.name = name

    @property
    def is_read(self) -> bool:
        """Whether the content has a Var."""
        return self._read is None

    @property
    def content(self) -> Var | None:
        if self._read is not None:
            content = self._read()
            self._content, self._read = content, None
        return self._content

    @content.setter
    def content(self, value: Var | None) -> None:
        self._content, self._read = value, None

    def python_type(self) -> type:
        return types.CellType

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self.unsupported(tx, f"the comparison {op}")

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "cell_contents":
            return self.content or tx.raise_(ValueError, "Cell is empty")
        return super().getattr_(tx, name)

    def value(self) -> Var:
        """The content of a cell that is known not to be empty."""
        assert self.content is not None
        return self.content

    def store(self, tx: Tracer, value: Var | None) -> None:
        self.content = value
        tx.effects.change("CELL", self, None, tx.user_line)

    def reconstruct(self, cg: Codegen) -> None:
        if self.name is not None and cg.has_cell(self.name):
            cg.asm.load_closure(self.name)
            return
        cg.load_call(types.CellType)
        cg.remember(self)
        if self.content is not None:
            cg.set_attr_of_top("cell_contents", self.content)


# Once torch.compile has run, torch wraps these methods of nn.Module to record each module that is created.  The trace
# calls the wrapped method directly.
_TAGGING = ("patched_init", "patched_setstate")
_DISPATCH = functools.singledispatch(repr).dispatch.__code__
# Wrappers around `__repr__` that only prevent infinite recursion.
_GUARDS_RECURSION = {reprlib.recursive_repr()(repr).__code__}
if hasattr(dataclasses, "_recursive_repr"):
    _GUARDS_RECURSION.add(dataclasses._recursive_repr(repr).__code__)


class FunctionVar(Var):
    """A function written in Python: `fn` if it existed before the trace; None if the traced program created it."""

    __slots__ = (
        "annotate", "annotations", "attrs", "closure", "code", "defaults", "fn", "globals", "globals_source", "hidden",
        "kwdefaults", "name",
    )  # fmt: skip

    def __init__(self, fn: types.FunctionType | None, source: Source | None = None) -> None:
        # an existing function needs a source even if none is given: guards read its parts, which may change
        super().__init__(ConstSource.of(fn, fn.__qualname__) if source is None and fn is not None else source)
        self.fn = fn
        self.attrs: dict[str, Var] = {}
        self.hidden: dict[str, Var] = {}  # `__dict__` entries whose names are also descriptors of the class
        self.closure: list[CellVar] | None = None
        # only if the program created the function: its annotations, or (LAZY_ANNOTATIONS) the function evaluating them
        self.annotations: DictVar | None = None
        self.annotate: Var | None = None
        self.defaults: Var | None = None
        self.kwdefaults: DictVar | None = None
        self.globals_source: Source | None = None
        if fn is not None:
            self.code = fn.__code__
            self.globals = fn.__globals__
            self.name = fn.__name__

    @classmethod
    def create(cls, code: types.CodeType, globals_: dict[str, Any], globals_source: Source | None) -> FunctionVar:
        """A function that the traced program creates; the caller fills in defaults and closure."""
        self = cls(None)
        self.code, self.globals, self.name = code, globals_, code.co_name
        self.globals_source = globals_source
        self.closure = []
        return self

    def python_type(self) -> type:
        return types.FunctionType

    @property
    def qualname(self) -> str:
        return self.code.co_qualname if self.fn is None else self.fn.__qualname__

    def constant(self) -> Any:
        if self.fn is None:
            raise NotConstant(self.name)
        return self.fn

    def describe(self) -> str:
        return f"function {self.name}"

    def cells(self, tx: Tracer) -> list[CellVar]:
        """The cells of the closure; each call returns the same Vars."""
        if self.closure is None:
            self.closure = []
            for index, cell in enumerate((self.fn and self.fn.__closure__) or ()):
                source = SeqItemSource(FuncPartSource(self.source, "__closure__"), index) if self.source else None
                self.closure.append(tx.cell(cell, source))
        return self.closure

    def default_values(self, tx: Tracer) -> tuple[list[Var], dict[str, Var]]:
        """Positional and keyword-only defaults."""
        if self.fn is None:
            positional = self.defaults.unpack(tx) if self.defaults is not None else []
            keyword = dict(self.kwdefaults.items) if self.kwdefaults is not None else {}
            return positional, keyword
        part = functools.partial(FuncPartSource, self.source) if self.source else None
        positional = [
            tx.wrap(value, SeqItemSource(part("__defaults__"), index) if part else None)
            for index, value in enumerate(self.fn.__defaults__ or ())
        ]
        keyword = {
            name: tx.wrap(value, tx.item_source(part("__kwdefaults__"), name) if part else None)
            for name, value in (self.fn.__kwdefaults__ or {}).items()
        }
        return positional, keyword

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in self.attrs:
            return self.attrs[name]
        if name in ("__name__", "__qualname__") and (self.source is None or self.fn is None):
            return ConstVar(self.name if name == "__name__" else self.qualname)
        if name == "__code__":
            return ConstVar(self.code)
        if self.fn is None and name in _PARTS:
            return self._part(tx, name)
        if name == "__dict__" and self.fn is None:
            return FieldsVar.of(self, tx)
        if name == "__call__":
            return self
        if name == "__get__":
            return BindVar(self)
        if self.fn is None:
            return tx.raise_(AttributeError, f"'function' object has no attribute {name!r}")
        try:
            value = getattr(self.fn, name)
        except (AttributeError, NameError) as error:  # NameError: lazy annotations are evaluated by this read
            if isinstance(error, AttributeError) and self.source is not None:
                tx.guard(self.source, "NO_ATTR", name)
            return tx.raise_(type(error), *error.args)
        return tx.wrap(value, AttrSource(self.source, name) if self.source else None)

    def _part(self, tx: Tracer, name: str) -> Var:
        """One of the attributes `_PARTS` of a function that the program created."""
        none: Var = ConstVar(None)
        match name:
            case "__module__":
                return ConstVar(self.globals.get("__name__"))
            case "__doc__":
                consts = self.code.co_consts
                return ConstVar(consts[0] if consts and isinstance(consts[0], str) else None)
            case "__defaults__":
                return self.defaults or none
            case "__kwdefaults__":
                return self.kwdefaults or none
            case "__closure__":
                return TupleVar(self.closure) if self.closure else none
            case "__annotate__":
                return self.annotate or none
            case _:
                if self.annotations is None:
                    self.annotations = evaluated(tx, self.annotate)
                return self.annotations

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if self.fn is not None or value is None or name in ("__code__", "__closure__", "__globals__"):
            self.unsupported(tx, f"setting attribute {name!r}")
        elif name in ("__defaults__", "__kwdefaults__"):
            cleared = value.is_constant() and value.constant() is None
            setattr(self, name.strip("_"), None if cleared else value)
        elif name == "__name__":
            self.name = value.constant()
        elif name == "__annotate__" and LAZY_ANNOTATIONS:
            self._set_annotate(tx, value)
        else:
            if name == "__annotations__":
                self.annotate = None
            self.attrs[name] = value

    def _set_annotate(self, tx: Tracer, value: Var) -> None:
        """`__annotate__ = value`: a function discards the current annotations, None keeps them."""
        if value.is_constant() and value.constant() is None:
            self.annotate = None
            return
        self.annotate, self.annotations = value, None
        self.attrs.pop("__annotations__", None)

    def field(self, tx: Tracer, name: str) -> Var | None:
        return self.fields(tx).get(name)

    def fields(self, tx: Tracer) -> dict[str, Var]:
        """The current `__dict__` of a function that the program created."""
        return {name: value for name, value in self.attrs.items() if name not in _NOT_FIELDS} | self.hidden

    def set_field(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`__dict__[name] = value` (None deletes)."""
        if name in _NOT_FIELDS and value is not None:
            self.hidden[name] = value
        elif name in _NOT_FIELDS or hasattr(types.FunctionType, name):
            self.unsupported(tx, f"writing {name!r}, a descriptor of the class, into __dict__")
        elif value is None:
            del self.attrs[name]
        else:
            self.attrs[name] = value

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self.code is _DISPATCH and self.fn is not None and len(args) == 1 and not kwargs:
            return self._dispatched(tx, args[0])
        if self.code in _GUARDS_RECURSION:
            cells = dict(zip(self.code.co_freevars, self.cells(tx)))
            if cells["repr_running"].value().python_type() is not set:
                return tx.inline(self, args, kwargs)
            return tx.call(cells["user_function"].value(), args, kwargs)
        if self.code.co_name in _TAGGING and self.globals.get("__name__") == "torch._dynamo.mutation_guard":
            return tx.call(self.cells(tx)[0].value(), args, kwargs)
        if (model := call_model(self.code)) is not None:
            return model(tx, [self, *args], dict(kwargs))
        return tx.inline(self, args, kwargs)

    def _dispatched(self, tx: Tracer, cls: Var) -> Var:
        """The implementation that `functools.singledispatch` selects for a class, guarded to stay the same."""
        kind = cls.constant()
        assert self.fn is not None
        kept = [cell.content for cell in self.cells(tx)]
        if any(effect.target is each for effect in tx.effects for each in kept):
            self.unsupported(tx, "a call after the program registered an implementation")
        found = self.fn(kind)
        tx.guard(self.source, "PREDICATE", (_Dispatches(kind, found), (), f"dispatches {kind.__name__} as before"))
        return tx.wrap(found, tx.const_source(found, f"dispatch({kind.__name__})"))

    def reconstruct(self, cg: Codegen) -> None:
        if self.fn is not None:
            cg.load_const(self.fn)
            return
        cg.load_const(types.FunctionType)
        cg.call_top(
            lambda: cg.load_const(self.code),
            lambda: cg.load_globals(self.globals),
            lambda: cg.load_const(self.name),
            lambda: cg.load(self.defaults or ConstVar(None)),
            lambda: cg.load(TupleVar(self.closure or []) if self.code.co_freevars else ConstVar(None)),
        )
        if self.kwdefaults is not None:
            cg.set_attr_of_top("__kwdefaults__", self.kwdefaults)
        if self.annotate is not None:
            cg.emit("COPY", 1)
            stored = cg.asm.store_fast()
            cg.load_const(_set_annotate)
            parts: tuple[Var, ...] = (self.annotate, self.annotations or ConstVar(None))
            cg.call_top(lambda: cg.asm.load_fast(stored), *(lambda part=part: cg.load(part) for part in parts))
            cg.emit("POP_TOP")
        elif self.annotations is not None and self.annotations.items:
            cg.set_attr_of_top("__annotations__", self.annotations)
        qualname = self.code.co_qualname
        attrs = self.attrs if qualname == self.name else {"__qualname__": ConstVar(qualname), **self.attrs}
        for name, value in attrs.items():
            cg.set_attr_of_top(name, value)
        if self.hidden:
            held: dict[Any, Var] = {name: value for name, value in self.attrs.items() if name not in _NOT_FIELDS}
            cg.set_attr_of_top("__dict__", DictVar(held | self.hidden))


class _Dispatches:
    """Guard predicate: `dispatch(cls)` is still `found`.  Instances with the same class and function compare equal."""

    def __init__(self, cls: type, found: Any) -> None:
        self.asked = (cls, found)

    def __call__(self, dispatch: Callable[[type], Any]) -> bool:
        return dispatch(self.asked[0]) is self.asked[1]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.asked)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dispatches) and all(map(operator.is_, self.asked, other.asked))


def _set_annotate(fn: Any, annotate: Any, annotations: dict[str, Any] | None) -> None:
    """Set `__annotate__` at run time.

    `annotations` is what the traced program evaluated and perhaps modified, or None if it did not read them.
    """
    fn.__annotate__ = annotate
    if annotations is not None:
        kept = fn.__annotations__
        kept.clear()
        kept.update(annotations)


# Attributes of a function that `_part` models, and all attributes that are no entries of its `__dict__`.
_PARTS: tuple[str, ...]
_PARTS = ("__module__", "__doc__", "__defaults__", "__kwdefaults__", "__closure__", "__annotations__")
if LAZY_ANNOTATIONS:
    _PARTS += ("__annotate__",)
_NOT_FIELDS = (*_PARTS, "__name__", "__qualname__", "__type_params__")


class BindVar(Var):
    """`function.__get__`."""

    __slots__ = ("fn",)

    def __init__(self, fn: Var) -> None:
        super().__init__()
        self.fn = fn

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        obj = args[0]
        return self.fn if obj.is_constant() and obj.constant() is None else BoundMethodVar(self.fn, obj)


class BoundMethodVar(Var):
    """A bound method: a function and the object that it is bound to."""

    __slots__ = ("fn", "obj")

    def __init__(self, fn: Var, obj: Var, source: Source | None = None) -> None:
        super().__init__(source)
        self.fn, self.obj = fn, obj

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.fn.describe()}"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__self__", "__func__"):
            return self.obj if name == "__self__" else self.fn
        if name == "__class__":
            return make(types.MethodType)
        return self.fn.getattr_(tx, name)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, BoundMethodVar) or op not in ("==", "!="):
            return None
        same = slots.identical(tx, self.obj, other.obj) and slots.identical(tx, self.fn, other.fn)
        return ConstVar(same == (op == "=="))

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.call(self.fn, [self.obj, *args], kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(types.MethodType)
        cg.call_top(lambda: cg.load(self.fn), lambda: cg.load(self.obj))


class PartialVar(Var):
    """`functools.partial`."""

    __slots__ = ("args", "attrs", "fn", "kwargs")

    def __init__(self, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var], source: Source | None = None) -> None:
        super().__init__(source)
        self.fn, self.args, self.kwargs = fn, list(args), dict(kwargs)
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return functools.partial

    def getattr_(self, tx: Tracer, name: str) -> Var:
        parts = {"func": self.fn, "args": TupleVar(self.args), "keywords": make(dict(self.kwargs))}
        found = self.attrs.get(name) or parts.get(name)
        if found is None and not wins_over_fields(type(raw := lookup(functools.partial, name))):
            found = self._own(tx, name)
            if found is None and raw is MISSING:
                tx.raise_(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        if found is None and name.startswith("__") and lookup(functools.partial, name) is not MISSING:
            return make(functools.partial) if name == "__class__" else attribute_of_type(tx, self, name)
        return super().getattr_(tx, name) if found is None else found

    def _own(self, tx: Tracer, name: str) -> Var | None:
        """An attribute that was set on the object itself before the frame."""
        if self.source is None:
            return None
        held, place = tx.existing(self).__dict__, AttrSource(self.source, "__dict__")
        if name in held:
            return tx.wrap(held[name], DictItemSource(place, name))
        tx.guard(place, "DICT_LACKS", name)
        return None

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__setstate__" and self.source is None:
            self.fn, positional, named, attrs = args[0].unpack(tx)
            self.args, self.kwargs = positional.unpack(tx), dict(named.items)  # type: ignore[attr-defined]
            self.attrs = dict(getattr(attrs, "items", {}))
            return ConstVar(None)
        if name in ("func", "args", "keywords") or name in self.attrs:
            return tx.call(self.getattr_(tx, name), args, kwargs)
        found = dunder.call(tx, self, name, args) if not kwargs else None
        return super().call_method(tx, name, args, kwargs) if found is None else found

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if self.source is not None or value is None or lookup(functools.partial, name) is not MISSING:
            self.unsupported(tx, f"setting attribute {name!r}")
        else:
            self.attrs[name] = value

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.call(self.fn, [*self.args, *args], {**self.kwargs, **kwargs})

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(functools.partial)
        loads = [lambda arg=arg: cg.load(arg) for arg in (self.fn, *self.args, *self.kwargs.values())]
        cg.call_top(*loads, names=tuple(self.kwargs))
        for name, value in self.attrs.items():
            cg.set_attr_of_top(name, value)


# Modules whose C functions are pure; a call is constant-folded when all arguments are known. The modules are named, so
# that none is imported for this; a function written in C has no other record of who defines it.
PURE_MODULES = {"math", "cmath", "operator", "_operator", "builtins", "_struct", "unicodedata", "_bisect"}
_KEEP_NOTHING = {"math", "cmath", "builtins", "_struct", "unicodedata"}  # neither keep nor change arguments
_SEARCHES = {bisect.bisect_left, bisect.bisect_right}
# Builtins with side effects, or that read the frame: a call without a model breaks the graph.
_IMPURE = {print, input, open, exec, eval, compile, breakpoint, globals, locals, vars, dir}
# Types whose class methods (`int.from_bytes`, `str.maketrans`) are pure.
_PURE_CLASSES = {bool, int, float, str, bytes}
_PURE = {str.maketrans, bytes.maketrans}


def _of_torch(function: Any) -> bool:
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    return package == "torch" and is_overridable(function)


def _class_method_model(value: Any) -> Handler | None:
    """The model of the C class method behind the bound method `value`."""
    owner = getattr(value, "__self__", None)
    if not isinstance(value, types.BuiltinMethodType) or not isinstance(owner, type):
        return None
    found = next((base.__dict__[value.__name__] for base in owner.__mro__ if value.__name__ in base.__dict__), None)
    return call_model(found) if isinstance(found, types.ClassMethodDescriptorType) else None


class BuiltinVar(HeldVar):
    """A function written in C.  A call runs its model, else is folded if pure, else breaks the graph."""

    __slots__ = ()

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return getattr(self.value, "__qualname__", repr(self.value))

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            try:
                return ConstVar(getattr(self.value, name))
            except AttributeError as error:  # for example, method descriptors have no __module__
                tx.raise_(AttributeError, *error.args)
        return super().getattr_(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Run the registered model, or fold a pure function of constants; else break the graph."""
        note_call(self.value)
        handler = call_model(self.value)
        arity.check(tx, self.value, args, kwargs)
        if handler is None and (of_class := _class_method_model(self.value)) is not None:
            return of_class(tx, [make(self.value.__self__), *args], dict(kwargs))
        if handler is not None and _of_torch(self.value) and tx.overrides.may_override(args, kwargs):
            return tx.graph_break("unsupported-object", f"{self.describe()}, which may be overridden here")
        if handler is not None:
            return handler(tx, list(args), dict(kwargs))
        name = getattr(self.value, "__name__", "?")
        if isinstance(self.value, types.BuiltinFunctionType) and self.value in _IMPURE:
            return tx.graph_break("builtin-side-effect", f"{name}() was called")
        if isinstance(self.value, types.MethodDescriptorType | types.WrapperDescriptorType) and args:
            past_overrides = getattr(args[0], "c_method", None)
            if past_overrides is not None:
                return past_overrides(tx, name, args[1:], kwargs)
            if type(args[0]).call_method is not Var.call_method:
                return args[0].call_method(tx, name, args[1:], kwargs)
            return tx.graph_break("unknown-c-function", f"{self.describe()} of {args[0].describe()}")
        owner = getattr(self.value, "__self__", None)
        pure = self.value in _PURE if owner is None else isinstance(owner, type) and owner in _PURE_CLASSES
        module = "builtins" if pure else getattr(self.value, "__module__", "")
        if module in PURE_MODULES:
            copies = module in _KEEP_NOTHING or self.value in _SEARCHES
            value_of = operator.methodcaller("plain" if copies else "constant")
            try:
                values, named = [value_of(arg) for arg in args], {key: value_of(arg) for key, arg in kwargs.items()}
            except NotConstant:
                return tx.graph_break("unknown-c-function", f"{self.describe()} of values known only at run time")
            tx.limit_size(result_size_bounds.of_function(self.value, values), f"the result of {name}()")
            return fold(tx, self.value, *values, **named)
        return tx.graph_break("unknown-c-function", self.describe())

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)
