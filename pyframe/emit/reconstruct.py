"""`ValueEmitter`: emits the instructions that rebuild the values of Vars at run time, each object once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core import source as src
from ..errors import InternalError
from ..vars.codegen import Load
from ..vars.containers.mapping import ObjectKey
from ..vars.objects.class_construction import new_class_of
from ..vars.objects.functions import CellVar
from ..vars.protocol.base import Var
from .assemble import Assembler


def _table(source: src.ModuleAttrSource) -> src.Source:
    return src.DictItemSource(src.InstanceDictSource(source.parent), source.where)


class ValueEmitter:
    """Emits into `asm`. With `outputs` None, this is the dry run that finds out which graph values are needed
    (`wanted`) and how often each Var is loaded (`counts`)."""

    def __init__(self, asm: Assembler, cells: set[str], function: Any) -> None:
        self.asm = asm
        self.cells = cells
        self.function = function
        self.temps: dict[int, str] = {}
        self.wanted: dict[int, Var] = {}
        self.counts: dict[int, int] = {}
        self.keep: list[Var] = []
        self.outputs: str | None = None
        self.drawn: list[str] = []  # locals with the random numbers drawn
        self.entered: str | None = None  # local with the `Entered` that tracks modes entered at run time
        self.rewritten: dict[src.Source, None] = {}  # sources that the graph writes to
        self.read_first: dict[src.Source, str | None] = {}  # those also read -> local with the value before the graph
        self.dry = True

    def real(self, asm: Assembler) -> ValueEmitter:
        """The emitter of the real run, based on this dry run."""
        other = ValueEmitter(asm, self.cells, self.function)
        other.wanted, other.counts, other.dry, other.keep = self.wanted, self.counts, False, self.keep
        other.read_first = self.read_first
        return other

    # ---- pieces that reconstruct methods use ----
    def emit(self, op: str, arg: Any = None) -> None:
        self.asm.emit(op, arg)

    def load_const(self, value: Any) -> None:
        if isinstance(value, type) and (new_class := new_class_of(value)) is not None:
            self.load(new_class)  # not the placeholder class used while tracing
            return
        self.asm.load_const(value)

    def has_cell(self, name: str) -> bool:
        return name in self.cells

    def load_globals(self, globals_: dict[str, Any]) -> None:
        if globals_ is self.function.__globals__:
            self.load_call(globals)
        else:
            self.load_const(globals_)

    def call_top(self, *loads: Load, names: tuple[str, ...] = ()) -> None:
        """Call the object on top of the stack with arguments; the last `len(names)` by keyword."""
        self.asm.push_null_for_call()
        for load in loads:
            load()
        if names:
            self.load_const(names)
            self.emit("CALL_KW", len(loads))
        else:
            self.emit("CALL", len(loads))

    def load_call(self, fn: Any, *args: Any) -> None:
        """Push the result of calling a Python object with constants: `fn(*args)`."""
        self.load_const(fn)
        self.call_top(*(lambda arg=arg: self.load_const(arg) for arg in args))

    def sequence(self, build: str, items: Sequence[Var]) -> None:
        for item in items:
            self.load(item)
        self.emit(build, len(items))

    def load_key(self, key: Any) -> None:
        if isinstance(key, ObjectKey):
            self.load(key.var)
        else:
            self.load_const(key)

    def remember(self, var: Var) -> None:
        """Store the object on top of the stack in a local, as the value of `var`."""
        self.emit("COPY", 1)
        self.temps[id(var)] = self.asm.store_fast()

    def set_attr_of_top(self, name: str, value: Var, setter: Any = None) -> None:
        """`top.name = value`, keeping `top`; by `setter(top, name, value)` if there is one."""
        if setter is None:
            self.load(value)
            self.emit("COPY", 2)
            self.emit("STORE_ATTR", name)
            return
        self.emit("COPY", 1)
        temp = self.asm.store_fast()
        self.load_const(setter)
        self.call_top(lambda: self.asm.load_fast(temp), lambda: self.load_const(name), lambda: self.load(value))
        self.emit("POP_TOP")

    def read_before_graph(self) -> None:
        """Before the graph runs, save the values that are read from sources that it writes to."""
        for source in self.read_first:
            self.load_source(source)
            self.read_first[source] = self.asm.store_fast()

    # ---- values ----
    def load(self, var: Var) -> None:
        """Push the value of `var`."""
        self.counts[id(var)] = self.counts.get(id(var), 0) + self.dry
        if id(var) in self.temps:
            self.asm.load_fast(self.temps[id(var)])
        elif isinstance(var, CellVar) and var.name is not None and var.name in self.cells:
            self.asm.load_closure(var.name)
        elif var.source is not None:
            self.load_source(var.source)
        elif getattr(var, "node", None) is not None:
            self._load_output(var)
        else:
            self.keep.append(var)
            var.reconstruct(self)
            if id(var) not in self.temps and self.counts[id(var)] > 1:
                self.remember(var)

    def load_to_local(self, var: Var) -> str:
        """Store the value of `var` in a new local; returns its name."""
        self.load(var)
        return self.asm.store_fast()

    def _load_output(self, var: Var) -> None:
        if self.dry:
            self.wanted.setdefault(id(var), var)
            self.load_const(None)
            return
        assert self.outputs is not None
        self.asm.load_fast(self.outputs)
        self.asm.load_item(list(self.wanted).index(id(var)))

    def load_source(self, source: src.Source) -> None:
        """Push the value that `source` refers to."""
        asm = self.asm
        if self.rewritten and source in self.rewritten:
            kept = self.read_first.setdefault(source, None)
            if kept is not None:
                asm.load_fast(kept)
                return
        match source:
            case src.LocalSource():
                (asm.load_deref if source.local in self.cells else asm.load_fast)(source.local)
            case src.ClosureSource():
                asm.load_deref(source.var)
            case src.GlobalSource():
                asm.load_global(source.var)
            case src.GlobalsSource():
                self.load_globals(self.function.__globals__)
            case src.FuncSource():
                self.load_const(self.function)
            case src.ConstSource():
                self.load_const(source.obj)
            case src.TypeSource():
                self.load_const(type)
                self.call_top(lambda: self.load_source(source.parent))
            case src.CallSource():
                self.load_const(source.fn)
                self.call_top(lambda: self.load_source(source.parent))
            case src.SizeSource() | src.StrideSource():
                self.load_const(torch.Tensor.size if isinstance(source, src.SizeSource) else torch.Tensor.stride)
                self.call_top(lambda: self.load_source(source.parent), lambda: self.load_const(source.dim))
            case src.UnbackedSource():
                self._load_output(source.holder)
            case src.DrawnSource():
                asm.load_fast(self.drawn[source.index])
            case src.DictKeySource():
                self.load_const(list)
                self.call_top(lambda: self.load_source(source.parent))
                asm.load_item(source.index)
            case src.ModuleAttrSource():  # not LOAD_ATTR: Module.__getattr__ is slow
                self.load_source(_table(source))
                asm.load_item(source.attr)
            case src.HiddenDictSource():
                self.load_const(object.__getattribute__)
                self.call_top(lambda: self.load_source(source.parent), lambda: self.load_const("__dict__"))
            case src.StepSource():
                self.load_source(source.parent)
                self._step(source)
            case _:
                raise InternalError(f"no way to load {type(source).__name__}")

    def _step(self, source: src.StepSource) -> None:
        match source:
            case src.AttrSource():
                self.asm.load_attr(source.attr)
            case src.InstanceDictSource():
                self.asm.load_attr("__dict__")
            case src.DictItemSource():
                self.asm.load_item(source.key)
            case src.SeqItemSource():
                self.asm.load_item(source.index)
            case src.FuncPartSource():
                self.asm.load_attr(source.part)
            case src.CellSource():
                self.asm.load_attr("cell_contents")
            case _:
                raise InternalError(f"no way to load {type(source).__name__}")
