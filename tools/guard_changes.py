"""Finds what can be changed between two calls of a program, by walking from the program instead of from its guards.

``Walk`` goes from the globals that the program's code names to every object that it can reach under names that occur in
executed code: instance dicts, classes along the MRO and their metaclasses, functions and their parts, cells,
containers, modules. For each it writes the changes that Python allows there as source text, which runs in the program's
module.
"""

from __future__ import annotations

import builtins
import contextvars
import functools
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from guard_change_texts import (
    ARRAY_CHANGES,
    MODULE_CHANGES,
    MODULE_CLASS_CHANGES,
    OF_METACLASS,
    SETTINGS,
    SPECIAL,
    TENSOR_CHANGES,
)
from torch import nn

MAX_OBJECTS = 600
PLAIN = (bool, int, float, str, bytes, type(None), complex)


@dataclass(frozen=True)
class Change:
    """A change: ``text`` runs in the program's module; ``kind`` names the sort of change."""

    kind: str
    text: str


def identifiers(code: types.CodeType) -> set[str]:
    """Names and identifier-like strings in a code object and those nested in it."""
    found = set(code.co_names) | {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= identifiers(const)
    return found


class Recorder:
    """Records the code objects that run and the C functions that they call, while the unchanged program runs."""

    def __init__(self) -> None:
        self.codes: set[types.CodeType] = set()

    def __call__(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self.codes.add(frame.f_code)

    def run(self, fn: Any, *args: Any) -> None:
        sys.setprofile(self)
        try:
            fn(*args)
        finally:
            sys.setprofile(None)


class Walk:
    """Collects the changes of everything reachable from the program in `module`; ``executed`` are the code objects that
    ran."""

    def __init__(self, module: types.ModuleType, executed: set[types.CodeType]) -> None:
        self.module, self.executed = module, executed
        self.file = module.program.__code__.co_filename
        self.names: set[str] = set()
        for code in executed:
            if code.co_filename == self.file:
                self.names |= identifiers(code)
        self.names -= {"out", "append"}
        self.seen: dict[int, str] = {}
        self.alive: list[Any] = []  # keeps visited objects alive, so that ids stay unique
        self.queue: deque[tuple[str, Any]] = deque()
        self.changes: list[Change] = []

    # ---- walking -----------------------------------------------------------------------------------------

    def run(self) -> list[Change]:
        self.changes += [Change("setting", text) for text in SETTINGS]
        self.visit("program", self.module.program)
        while self.queue and len(self.seen) < MAX_OBJECTS:
            expr, value = self.queue.popleft()
            self.parts(expr, value)
        return list(dict.fromkeys(self.changes))

    def visit(self, expr: str, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self.seen:
            return
        self.seen[id(value)] = expr
        self.alive.append(value)
        self.queue.append((expr, value))

    def add(self, kind: str, *texts: str) -> None:
        self.changes += [Change(kind, text) for text in texts]

    def place(self, kind: str, place: str, value: Any, *, delete: bool = True) -> None:
        """Visits a place that can be assigned to, with its present value."""
        for sort, new in replacements(place, value):
            self.add(f"{kind} {sort}", f"{place} = {new}")
        if delete:
            self.add(f"{kind} deleted", f"del {place}")
        self.visit(place, value)

    def parts(self, expr: str, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            self.function(expr, value)
        elif isinstance(value, type):
            self.class_(expr, value)
        elif isinstance(value, types.ModuleType):
            self.python_module(expr, value)
        elif isinstance(value, types.MethodType):
            self.visit(f"{expr}.__func__", value.__func__)
            self.visit(f"{expr}.__self__", value.__self__)
        elif isinstance(value, torch.Tensor):
            self.add("tensor", *(f"{expr}{text}" for text in TENSOR_CHANGES))
            self.instance(expr, value)
        elif isinstance(value, (property, functools.cached_property, staticmethod, classmethod)):
            for part in ("fget", "fset", "func", "__func__"):
                if getattr(value, part, None) is not None:
                    self.visit(f"{expr}.{part}", getattr(value, part))
            if isinstance(value, functools.cached_property):
                self.place("cached property", f"{expr}.func", value.func, delete=False)
        else:
            self.container(expr, value)
            self.instance(expr, value)

    def global_names(self, code: types.CodeType, scope: dict[str, Any], prefix: str) -> None:
        names = sorted(identifiers(code))
        for name in names:
            if name in scope:
                place = name if scope is vars(self.module) else f"{prefix}.{name}"
                self.place("global", place, scope[name])
            elif hasattr(builtins, name) and scope is vars(self.module):
                self.builtin(name)

    def builtin(self, name: str) -> None:
        value = getattr(builtins, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            return
        if not isinstance(value, type):
            self.add("builtin replaced", f"builtins.{name} = changed_for(builtins.{name}, globals())")
            self.add("builtin shadowed by a global", f"{name} = changed({name})")
        else:
            self.add("builtin shadowed by a global", f"{name} = lambda *args: twist(builtins.{name}(*args))")
        self.add("builtin shadowed by a global", f"{name} = 5", f"{name} = lambda *args: 4")

    def function(self, expr: str, fn: types.FunctionType) -> None:
        if fn.__code__ not in self.executed:
            return
        name = self.named(fn) or expr
        if fn.__globals__ is vars(self.module):
            self.global_names(fn.__code__, fn.__globals__, "")
        elif (holder := fn.__globals__.get("__name__")) in sys.modules and "torch" in str(holder):
            self.global_names(fn.__code__, fn.__globals__, f"sys.modules[{holder!r}]")
        if expr == "program":
            return
        self.add("code", f"{expr}.__code__ = constants_changed({name})", f"{expr}.__code__ = names_changed({name})")
        self.add("code", f"{expr}.__code__ = (lambda *args, **kwargs: 7).__code__")
        for part in ("__defaults__", "__kwdefaults__"):
            held = getattr(fn, part)
            if held:
                self.place("defaults", f"{expr}.{part}", held, delete=False)
        if not fn.__defaults__:
            self.add("defaults", f"{expr}.__defaults__ = (3,)")
        if not fn.__kwdefaults__:
            self.add("defaults", f"{expr}.__kwdefaults__ = {{'scale': 3}}")
        for i, cell in enumerate(fn.__closure__ or ()):
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            if not (isinstance(held, type) and fn.__code__.co_freevars[i] == "__class__"):
                self.place("cell", f"{expr}.__closure__[{i}].cell_contents", held)
        for key, held in vars(fn).items():
            self.place("function attribute", f"{expr}.{key}", held)
        self.add("function dict", f"{expr}.__dict__.clear()", f"{expr}.__wrapped__ = int", f"{expr}.__module__ = 'no'")
        for i, default in enumerate(fn.__defaults__ or ()):
            if isinstance(default, (list, dict)):
                self.add("defaults", f"{expr}.__defaults__[{i}].clear()")
        if fn.__defaults__:
            self.add("defaults", f"{expr}.__defaults__ = tuple(map(twist, {expr}.__defaults__))")
        for key in fn.__kwdefaults__ or ():
            place = f"{expr}.__kwdefaults__[{key!r}]"
            self.add("defaults", f"{place} = twist({place})")
        self.add("function name", f"{expr}.__name__ = 'changed'", f"{expr}.__doc__ = 'changed'")

    def named(self, value: Any) -> str | None:
        """An expression that refers to a class or function by its module and name, if there is one."""
        for key, held in vars(self.module).items():
            if held is value:
                return key
        module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        found: Any = sys.modules.get(module) if isinstance(module, str) else None
        if found is None or found is self.module:
            return None
        for part in qualname.split("."):
            found = getattr(found, part, None)
        return f"sys.modules[{module!r}].{qualname}" if found is value else None

    def ours(self, cls: type) -> bool:
        """Whether the class belongs to the program; classes that the whole process uses are changed only in some
        ways."""
        return cls.__module__ == self.module.__name__

    def class_(self, expr: str, cls: type) -> None:
        expr = self.named(cls) or expr
        for place, base in enumerate(cls.__mro__):
            if place and base.__flags__ & (1 << 9):
                self.visit(self.named(base) or f"{expr}.__mro__[{place}]", base)
        if not cls.__flags__ & (1 << 9):
            return
        for name, held in list(vars(cls).items()):
            function = getattr(held, "__func__", getattr(held, "fget", getattr(held, "func", held)))
            ran = isinstance(function, types.FunctionType) and function.__code__ in self.executed
            if ran or name in self.names or (self.ours(cls) and not name.startswith("__")):
                if not name.startswith("__") or ran:
                    self.class_attribute(expr, cls, name, held)
        if not self.ours(cls):
            return
        for name in sorted(self.names):
            if name not in vars(cls) and not name.startswith("__"):
                absent = not hasattr(cls, name)
                kind = "class attribute added" if absent else "class attribute shadowed in a subclass"
                self.add(kind, f"{expr}.{name} = 21", f"{expr}.{name} = Data(22)")
                self.add(kind, f"{expr}.{name} = property(lambda self: 23)", f"{expr}.{name} = lambda self, *args: 24")
                if not absent:
                    self.add(kind, f"{expr}.{name} = changed({expr}.{name})")
        self.special_methods(expr, cls)

    def special_methods(self, expr: str, cls: type) -> None:
        for name, bodies in SPECIAL.items():
            self.add(f"class {name}", *(f"{expr}.{name} = {body}" for body in bodies))
            if name in vars(cls):
                self.add(f"class {name} deleted", f"del {expr}.{name}")
        if not issubclass(cls, type):
            extra = ", ".join(
                f"{name}=31" for name in sorted(self.names) if name.isidentifier() and not hasattr(cls, name)
            )
            self.add("bases", f"{expr}.__bases__ = (type('Extra', (), dict({extra})), *{expr}.__bases__)")
            if len(cls.__bases__) > 1:
                self.add(
                    "bases", f"{expr}.__bases__ = {expr}.__bases__[::-1]", f"{expr}.__bases__ = {expr}.__bases__[1:]"
                )
            elif cls.__bases__ != (object,):
                self.add("bases", f"{expr}.__bases__ = (type('Empty', (), {{}}),)")
        meta = type(cls)
        if self.ours(meta):
            self.visit(self.named(meta) or f"type({expr})", meta)
            for name, bodies in OF_METACLASS.items():
                self.add(f"metaclass {name}", *(f"type({expr}).{name} = {body}" for body in bodies))
        elif meta is type:
            for name, bodies in OF_METACLASS.items():
                self.add("metaclass changed", *(f"{expr}.__class__ = subclass(type, {name}={b})" for b in bodies))
        if hasattr(cls, "register"):
            names = [key for key, held in vars(self.module).items() if isinstance(held, type) and self.ours(held)]
            self.add("abc registration", *(f"{expr}.register({name})" for name in names))

    def class_attribute(self, expr: str, cls: type, name: str, held: Any) -> None:
        place, raw = f"{expr}.{name}", f"vars({expr})[{name!r}]"
        if isinstance(held, types.MemberDescriptorType):
            self.add("slot", f"{place} = 25", f"del {place}", f"{place} = property(lambda self: 26)")
        elif isinstance(held, property):
            self.add("property", f"{place} = property(changed({raw}.fget))", f"{place} = 27", f"del {place}")
            self.add("property", f"{place} = functools.cached_property({raw}.fget)", f"{place} = {raw}.fget")
        elif isinstance(held, (staticmethod, classmethod)):
            sort = type(held).__name__
            self.add(sort, f"{place} = {sort}(changed({raw}.__func__))", f"{place} = {raw}.__func__", f"del {place}")
            other = "staticmethod" if sort == "classmethod" else "classmethod"
            self.add(sort, f"{place} = {other}(changed({raw}.__func__))")
        else:
            self.place("class attribute", place, held)
            self.add("class attribute as data descriptor", f"{place} = Data({place})", f"{place} = Data(28)")
        self.visit(raw, held)

    def instance(self, expr: str, value: Any) -> None:
        cls = type(value)
        self.visit(self.named(cls) or f"type({expr})", cls)
        self.bases_of_instance(expr, cls)
        fields = getattr(value, "__dict__", None)
        if isinstance(value, nn.Module):
            self.nn_module(expr, value)
        elif isinstance(fields, dict):
            for name, held in list(fields.items()):
                if name.isidentifier():
                    self.place("attribute", f"{expr}.{name}", held)
                    self.add("attribute in the instance dict", f"{expr}.__dict__[{name!r}] = 41")
        if isinstance(fields, dict) and not isinstance(value, (torch.Tensor, type)):
            self.add("instance dict", f"{expr}.__dict__.clear()", f"{expr}.__dict__ = dict({expr}.__dict__)")
            self.add("instance dict", f"{expr}.__dict__ = {{}}")
            self.add("instance dict", f"{expr}.__dict__ = derived_container({expr}.__dict__)")
            self.add("instance dict", f"reordered({expr}.__dict__)", f"{expr}.__dict__['__class__'] = int")
        for name in sorted(self.names):
            if isinstance(fields, dict) and name not in fields and hasattr(cls, name) and not name.startswith("__"):
                self.add("class attribute shadowed by the instance", f"{expr}.__dict__[{name!r}] = 42")
                if callable(getattr(cls, name)):
                    self.add("class attribute shadowed by the instance", f"{expr}.{name} = changed({expr}.{name})")
            elif isinstance(fields, dict) and name not in fields:
                if not isinstance(value, (torch.Tensor, nn.Module)):
                    self.add("attribute added", f"{expr}.{name} = 43")
            if isinstance(vars(cls).get(name), types.MemberDescriptorType):
                self.add("slot of the instance", f"{expr}.{name} = 44", f"del {expr}.{name}")
        if cls.__flags__ & (1 << 9) and not isinstance(value, (torch.Tensor, type)):
            self.add("__class__", f"{expr}.__class__ = subclass(type({expr}))")
            own = [n for n in sorted(self.names) if hasattr(cls, n) and not n.startswith("__")]
            self.add("__class__", *(f"{expr}.__class__ = subclass(type({expr}), {n}=45)" for n in own))
            self.add("__class__", f"{expr}.__class__ = subclass(type({expr}), __bool__=lambda self: False)")

    def bases_of_instance(self, expr: str, cls: type) -> None:
        for base in cls.__mro__[1:]:
            if base.__flags__ & (1 << 9):
                self.visit(self.named(base) or f"type({expr})", base)

    def nn_module(self, expr: str, value: nn.Module) -> None:
        for name, held in value.__dict__.items():
            if not name.startswith("_"):
                self.place("attribute", f"{expr}.{name}", held)
        for name, param in value._parameters.items():
            self.add(
                "parameter", f"{expr}.{name} = nn.Parameter(twist({expr}.{name}.detach()))", f"{expr}.{name} = None"
            )
            self.add("parameter", f"del {expr}.{name}", f"{expr}._parameters[{name!r}] = nn.Parameter(torch.ones(3))")
            self.add("parameter", f"torch.nn.utils.parametrize.register_parametrization({expr}, {name!r}, Doubled())")
            self.add("parameter", f"type({expr}).{name} = 51", f"{expr}.__dict__[{name!r}] = torch.ones(3, 3)")
            if param is not None:
                self.visit(f"{expr}.{name}", param)
        for name, held in value._buffers.items():
            self.add("buffer", f"{expr}.{name} = twist({expr}.{name})", f"{expr}._buffers[{name!r}] = torch.zeros(3)")
            self.add(
                "buffer", f"del {expr}.{name}", f"type({expr}).{name} = 52", f"{expr}.{name} = {expr}.{name}.double()"
            )
            self.visit(f"{expr}.{name}", held)
        for name, held in value._modules.items():
            child = f"{expr}._modules[{name!r}]"
            self.add("submodule", f"{child} = Doubled()", f"{child} = nn.Identity()", f"del {child}")
            if name.isidentifier():
                self.add("submodule", f"type({expr}).{name} = Doubled()", f"{expr}.__dict__[{name!r}] = Doubled()")
                self.add("submodule", f"type({expr}).{name} = property(lambda self: Doubled())")
            self.visit(child, held)
        self.add("module", *(expr + text.replace("MODULE", expr) for text in MODULE_CHANGES))
        self.add("module class", *(text.replace("CLASS", f"type({expr})") for text in MODULE_CLASS_CHANGES))

    def container(self, expr: str, value: Any) -> None:
        if isinstance(value, (list, deque)):
            self.items(expr, enumerate(value))
            self.add("list", f"{expr}.append(61)", f"{expr}.pop()", f"{expr}.reverse()", f"{expr}.insert(0, 62)")
            self.add("list", f"{expr}.clear()", f"{expr}.extend({expr})", f"{expr}[0] = {expr}")
            self.add("list", f"{expr}.sort(reverse=True)", f"del {expr}[0]", f"{expr}[:] = [65]", f"{expr}[-1:] = ()")
            if isinstance(value, deque):
                self.add("deque", f"{expr}.rotate()", f"{expr}.appendleft(66)", f"{expr}.popleft()")
        elif isinstance(value, tuple):
            for i, held in enumerate(value):
                self.visit(f"{expr}[{i}]", held)
        elif isinstance(value, dict):
            self.items(expr, ((k, v) for k, v in value.items() if isinstance(k, PLAIN)))
            if isinstance(value, OrderedDict):
                for key in [key for key in value if isinstance(key, str)][:2]:
                    self.add("ordered dict", f"{expr}.move_to_end({key!r})", f"{expr}.move_to_end({key!r}, last=False)")
            self.add("dict", f"reordered({expr})", f"{expr}.clear()", f"{expr}['new'] = 63", f"{expr}.popitem()")
            for key in [k for k in value if isinstance(k, (str, int))]:
                self.add("dict", f"rename_key({expr}, {key!r})")
            if isinstance(value, defaultdict):
                self.add("dict", f"{expr}.default_factory = None", f"{expr}.default_factory = int")
        elif isinstance(value, set):
            self.add("set", f"{expr}.add(64)", f"{expr}.discard(2)", f"{expr}.clear()", f"{expr}.add('s')")
        elif isinstance(value, functools.partial):
            self.visit(f"{expr}.func", value.func)
            self.add("partial", f"{expr}.__setstate__((changed({expr}.func), {expr}.args, {{}}, {{}}))")
            self.add("partial", f"{expr}.__setstate__(({expr}.func, (70,), {{}}, {{}}))", f"{expr}.keywords['by'] = 9")
            self.add("partial", f"{expr}.__setstate__(({expr}.func, {expr}.args, {{'by': 8}}, {{'mark': 1}}))")
            self.add("partial", f"{expr}.keywords.clear()", f"{expr}.mark = 5")
        elif isinstance(value, contextvars.ContextVar):
            self.add("context variable", f"{expr}.set(71)")
        elif isinstance(value, functools._lru_cache_wrapper):
            self.add("lru_cache", f"{expr}.cache_clear()", f"{expr}(5)")
            self.visit(f"{expr}.__wrapped__", value.__wrapped__)
        elif isinstance(value, weakref.ReferenceType):
            self.visit(f"{expr}()", value())
            self.add("weak reference", f"{expr}().__class__ = subclass(type({expr}()))")
        elif isinstance(value, types.GeneratorType):
            self.add("generator", f"next({expr})", f"{expr}.close()")
        elif type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
            self.add("array", *(f"{expr}{text}" for text in ARRAY_CHANGES))
        for name in ("maps", "registry"):
            held = getattr(value, name, None)
            if isinstance(held, list):
                self.place("attribute", f"{expr}.{name}", held)

    def items(self, expr: str, items: Iterator[tuple[Any, Any]]) -> None:
        for key, held in list(items)[:8]:
            self.place("item", f"{expr}[{key!r}]", held)

    def python_module(self, expr: str, module: types.ModuleType) -> None:
        own = module.__name__.startswith("made_up")
        torch_own = module.__name__.startswith("torch")
        for name in sorted(self.names):
            held = vars(module).get(name)
            if held is None:
                continue
            place = f"{expr}.{name}"
            if own:
                self.place("module attribute", place, held)
                self.add("class of a module", f"{expr}.__class__ = subclass(types.ModuleType, {name}=Data(81))")
            elif isinstance(held, types.ModuleType):
                self.visit(place, held)
                self.add("module replaced", f"{place} = types.SimpleNamespace()")
            elif callable(held):
                new = f"changed({place})" if torch_own else f"changed_for({place}, globals())"
                self.add(f"function of {'torch' if torch_own else 'the library'}", f"{place} = {new}", f"del {place}")
                self.visit(place, held)
        if module is torch:
            for name in sorted(self.names):
                if callable(getattr(torch.Tensor, name, None)) and not name.startswith("__"):
                    self.add("method of Tensor", f"torch.Tensor.{name} = changed(torch.Tensor.{name})")
            for name in (
                "__add__",
                "__mul__",
                "__radd__",
                "__rmul__",
                "__getitem__",
                "__matmul__",
                "__len__",
                "__sub__",
            ):
                self.add("method of Tensor", f"torch.Tensor.{name} = changed(torch.Tensor.{name})")
            for name in ("mark", "tag", "shape", "dtype", "T"):
                self.add("attribute of Tensor", f"torch.Tensor.{name} = 82", f"torch.Tensor.{name} = Data(83)")


def replacements(place: str, value: Any) -> list[tuple[str, str]]:
    """(kind, expression) of values to put in `place`, which holds `value`."""
    found = [("None", "None")] if value is not None else []
    if isinstance(value, bool):
        found += [("flipped", f"not {place}"), ("of another type", f"int({place})")]
    elif isinstance(value, int):
        found += [("other", f"{place} + 3"), ("of another type", f"float({place})"), ("zero", "0")]
        found += [
            ("of another type", f"bool({place})"),
            ("negative", f"-{place}"),
            ("derived", f"derived_container({place})"),
        ]
        found += [("tensor", f"torch.tensor({place})")]
    elif isinstance(value, float):
        found += [
            ("other", f"{place} + 0.5"),
            ("of another type", f"int({place})"),
            ("negative zero", "-0.0"),
            ("nan", "float('nan')"),
        ]
    elif isinstance(value, str):
        found += [("other", f"{place} + 'q'"), ("empty", "''"), ("derived", f"derived_container({place})")]
    elif value is None:
        found += [("a value", "91")]
    elif isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        found += [
            ("other", f"{place}[::-1]"),
            ("of another type", f"{'tuple' if type(value) is list else 'list'}({place})"),
        ]
        found += [
            ("longer", f"{place} + {place}"),
            ("empty", f"{place}[:0]"),
            ("derived", f"derived_container({place})"),
        ]
    elif type(value) is dict:
        found += [
            ("other", f"dict(reversed({place}.items()))"),
            ("of another type", f"collections.OrderedDict({place})"),
        ]
        found += [("empty", "{}"), ("derived", f"derived_container({place})")]
    elif isinstance(value, OrderedDict):
        found += [("of another type", f"dict({place})")]
    elif isinstance(value, (set, frozenset)):
        found += [
            ("other", f"{place} | {{92}}"),
            ("of another type", f"{'frozenset' if type(value) is set else 'set'}({place})"),
        ]
    elif isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        found += [("replaced", f"changed({place})"), ("a callable object", f"Callable({place})")]
        found += [("partial", f"functools.partial(changed({place}))"), ("staticmethod", f"staticmethod({place})")]
        found += [("a class", "int")]
    elif isinstance(value, functools._lru_cache_wrapper):
        found += [("replaced", f"cache_of({place})"), ("unwrapped", f"{place}.__wrapped__")]
    elif isinstance(value, type):
        found += [("a subclass", f"subclass({place})"), ("another class", "dict"), ("a function", f"changed({place})")]
    elif isinstance(value, torch.Tensor):
        found += [("other", f"twist({place})"), ("of another dtype", f"{place}.double()"), ("a number", "2.5")]
        found += [("a parameter", f"nn.Parameter({place}.detach())"), ("of another shape", f"{place}[None]")]
        found += [
            ("array", f"{place}.detach().numpy()"),
            ("of a subclass", f"{place}.detach().as_subclass(subclass(torch.Tensor))"),
        ]
        found += [
            ("transposed", f"{place}.mT" if value.ndim > 1 else f"{place}.flip(0)"),
            ("meta", f"{place}.to('meta')"),
        ]
        if value.is_leaf and value.ndim == 2 and tuple(value.shape) == (2, 3):
            found += [("an input", "given"), ("a view of an input", "given[:]")]
        found += [("sparse", f"{place}.to_sparse()"), ("expanded", f"{place}[:1].expand({place}.shape)")]
        found += [("conjugate", f"({place} + 0j).conj()"), ("swapped", f"swapped({place})")]
    elif isinstance(value, range):
        found += [("other", "range(2, 7)"), ("stepped", "range(1, 4, 2)"), ("a list", f"list({place})")]
    elif isinstance(value, slice):
        found += [("other", "slice(1, 2)"), ("stepped", "slice(0, 2, 2)"), ("open", "slice(None)")]
    elif isinstance(value, types.ModuleType):
        found += [("another module", "math"), ("a namespace", f"types.SimpleNamespace(**vars({place}))")]
    elif hasattr(value, "__dict__") and type(value).__flags__ & (1 << 9):
        found += [("of a subclass", f"as_subclass({place})"), ("a copy", f"copy.copy({place})")]
    return found
