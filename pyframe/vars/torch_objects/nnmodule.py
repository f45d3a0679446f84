"""Models nn.Module: attribute access as in `nn.Module.__getattr__` and `__setattr__`, calls as in
`nn.Module._call_impl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...core.source import (
    AttrSource,
    ConstSource,
    DictItemSource,
    FuncPartSource,
    InstanceDictSource,
    ModuleAttrSource,
    Source,
)
from ..codegen import Codegen
from ..containers.mapping import DictVar
from ..objects.functions import FunctionVar
from ..objects.instance_dict import fields_of, is_hidden
from ..objects.instances import InstanceVar
from ..objects.lookup import written_in_class
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.class_reads import MISSING, lookup
from ..tracer import Tracer
from .tensor import TensorVar

_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
_STORES = ("_parameters", "_buffers", "_modules")
# torch's own methods of nn.Module. A replacement by the program is traced instead.
_NAMES = ("__getattr__", "__setattr__", "__delattr__", "__call__", "_call_impl")
_OWN = {name: nn.Module.__dict__[name] for name in _NAMES}
_CODES = {id(fn): fn.__code__ for fn in _OWN.values()}
_MODULE = vars(torch.nn.modules.module)
_TORCH = ConstSource.of(_MODULE, "torch.nn.modules.module.__dict__")
_GETATTR, _CALL, _CALL_IMPL = _OWN["__getattr__"], _OWN["__call__"], _OWN["_call_impl"]
_SETTERS = {name: _OWN[name] for name in ("__setattr__", "__delattr__")}


def is_own(tx: Tracer, found: Any, own: Any) -> bool:
    """Whether `found` is torch's own function `own` with its original code; guards the code."""
    if found is not own:
        return False
    tx.guard(FuncPartSource(ConstSource.of(own, own.__qualname__), "__code__"), "ID", own.__code__)
    if _MODULE.get("torch") is not torch:  # the only global that these functions read
        return False
    tx.guard(DictItemSource(_TORCH, "torch"), "ID", torch)
    return own.__code__ is _CODES[id(own)]


class NNModuleVar(InstanceVar):
    """An nn.Module. Reads from its dicts of parameters, buffers and modules are guarded item by item."""

    __slots__ = ()

    def _instance_attr(self, tx: Tracer, name: str) -> Var | None:
        """An attribute of the instance: in its `__dict__`, or in one of the three dicts that `nn.Module.__getattr__`
        searches if the class has no such attribute."""
        fields = {} if self.value is MISSING else self.value.__dict__
        if name not in self.attrs and name in fields:
            source = DictItemSource(InstanceDictSource(self.source), name) if self.source else None
            self.attrs[name] = tx.wrap(fields[name], source)
        if name in self.attrs and self.attrs[name] is not None:
            return self.attrs[name]
        if name not in self.attrs and self.source is not None:
            tx.guard(InstanceDictSource(self.source), "DICT_LACKS", name)
        return self._in_tables(tx, name, fields) if self._reads_tables(tx, name) else None

    def _reads_tables(self, tx: Tracer, name: str) -> bool:
        """Whether reading attribute `name` calls `nn.Module.__getattr__`."""
        written = written_in_class(tx, self.cls, name)
        if lookup(self.cls, name) is not MISSING and written is not None or written not in (MISSING, None):
            return False
        return is_own(tx, lookup(self.cls, "__getattr__"), _GETATTR)

    def _in_tables(self, tx: Tracer, name: str, fields: dict[str, Any]) -> Var | None:
        for store in _STORES:
            table = self.attrs.get(store)
            if isinstance(table, DictVar):
                if name in table.items:
                    return table.items[name]
            elif name in fields.get(store, ()):
                return tx.wrap(fields[store][name], self._item_source(store, name))
            elif self.source is not None and store in fields:
                tx.guard(DictItemSource(InstanceDictSource(self.source), store), "DICT_LACKS", name)
        return None

    def _item_source(self, store: str, name: str) -> Source | None:
        return ModuleAttrSource(self.source, store, name) if self.source else None

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if self._reads_tables(tx, name) and lookup(self.cls, "__getattribute__") is object.__getattribute__:
            if name not in ("__class__", "__dict__"):
                own = self._instance_attr(tx, name)
                return own or tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return super().getattr_(tx, name)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        special = "__setattr__" if value is not None else "__delattr__"
        if is_own(tx, lookup(self.cls, special), _SETTERS[special]):
            self.assign(tx, name, value)
        else:
            super().setattr_(tx, name, value)

    def assign(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`nn.Module.__setattr__`, or `__delattr__` if `value` is None. Updates the traced dicts; the assignment itself
        is replayed."""
        if isinstance(lookup(self.cls, name), property):
            self.store(tx, name, value)
            return
        if name in _STORES and self.value is not MISSING and not isinstance(value, DictVar):
            self.unsupported(tx, f"assignment of {name!r}")
        store = self._store_for(tx, name, value)
        if store is None:
            self.store(tx, name, value)
            return
        tables = {each: self._table(tx, each) for each in _STORES}
        if value is not None and name in self._plain_names():
            self.attrs[name] = None
        if value is None:
            del tables[store].items[name]
        else:
            for each, table in tables.items():
                if each != store:
                    table.items.pop(name, None)
            tables[store].items[name] = value
        tx.effects.change("ATTR", self, name, tx.user_line)

    def _plain_names(self) -> set[str]:
        """The names in the instance's `__dict__`."""
        names = {*(fields_of(self.value) or ()), *self.attrs}
        return {name for name in names if self.attrs.get(name, self) is not None}

    def _table(self, tx: Tracer, store: str) -> DictVar:
        table = self._instance_attr(tx, store)
        if not isinstance(table, DictVar):
            return self.unsupported(tx, f"assignment before {store} exists")
        return table

    def _holds(self, store: str, name: str) -> bool:
        table = self.attrs.get(store)
        if isinstance(table, DictVar):
            return name in table.items
        return self.value is not MISSING and name in self.value.__dict__.get(store, ())

    def _store_for(self, tx: Tracer, name: str, value: Var | None) -> str | None:
        """The dict that assigning `value` to `name` changes; None for a plain attribute."""
        held = next((store for store in _STORES if self._holds(store, name)), None)
        if value is None:
            return held
        kind = value.python_type() if isinstance(value, TensorVar) else None
        if kind is not None and issubclass(kind, nn.Parameter):
            return "_parameters"
        if isinstance(value, InstanceVar) and issubclass(value.cls, nn.Module):
            return "_modules"
        empty = slots.constant_or(value, 0) is None
        if held is None or empty or held == "_buffers" and kind is not None:
            return held
        return self.unsupported(tx, f"assignment of {value.describe()} to the parameter or module {name!r}")

    def written(self, name: str) -> Var | None:
        """The value that a logged assignment to `name` left; None if it was deleted."""
        for store in _STORES:
            table = self.attrs.get(store)
            if isinstance(table, DictVar) and name in table.items:
                return table.items[name]
        return self.attrs.get(name)

    def setter(self, special: str, name: str) -> Any:
        if is_hidden(self.cls, name) and not any(self._holds(store, name) for store in _STORES):
            return super().setter(special, name)
        own = _SETTERS[special]
        return None if lookup(self.cls, special) is own else own

    def field(self, tx: Tracer, name: str) -> Var | None:
        return self.fields(tx).get(name)

    def fields(self, tx: Tracer) -> dict[str, Var]:
        if self.value is not MISSING and self.source is not None:
            tx.guard(InstanceDictSource(self.source), "DICT_KEYS", tuple(self.value.__dict__))
        names = dict.fromkeys([*(fields_of(self.value) or ()), *self.attrs])
        tables = {name for store in _STORES for name in getattr(self.attrs.get(store), "items", ())}
        found = {name: self._instance_attr(tx, name) for name in names if self.attrs.get(name) or name not in tables}
        return {name: var for name, var in found.items() if var is not None}

    # ---- calling ----
    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        repeated, begun = tx.begin_module_call(self, args, kwargs)
        if repeated is not None:
            return repeated
        result = None
        try:
            result = self._call(tx, args, kwargs)
        finally:
            if begun is not None:
                tx.end_module_call(begun, result)
        return result

    def _call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        own = is_own(tx, lookup(self.cls, "__call__"), _CALL) and is_own(tx, lookup(self.cls, "_call_impl"), _CALL_IMPL)
        own = own and lookup(self.cls, "__getattribute__") is object.__getattribute__
        own = own and all(name in vars(torch.nn.modules.module) for name in _GLOBAL_HOOKS)
        if not own or self._in_dict("_call_impl") or self._in_dict("_compiled_call_impl"):
            return super().call(tx, args, kwargs)
        if self.source is not None:
            for name in ("_call_impl", "_compiled_call_impl"):
                tx.guard(InstanceDictSource(self.source), "DICT_LACKS", name)
        if self._hooked(tx):
            impl = FunctionVar(nn.Module.__dict__["_call_impl"], None)
            return tx.call(impl, [self, *args], kwargs)
        return tx.call(self.getattr_(tx, "forward"), args, kwargs)

    def _in_dict(self, name: str) -> bool:
        held = {} if self.value is MISSING else self.value.__dict__
        return self.attrs.get(name, held.get(name)) is not None

    def _hooked(self, tx: Tracer) -> bool:
        """Whether a hook would run; guards the answer."""
        found = False
        fields = {} if self.value is MISSING else self.value.__dict__
        for name in _HOOKS:
            traced = self.attrs.get(name)
            hooks = traced.items if isinstance(traced, DictVar) else fields.get(name)
            found = found or bool(hooks)
            if self.source is not None and not hooks and not isinstance(traced, DictVar):
                tx.guard(DictItemSource(InstanceDictSource(self.source), name), "LEN", 0)
        module = torch.nn.modules.module
        for name in _GLOBAL_HOOKS:
            hooks = getattr(module, name)
            traced = tx.traced(hooks)
            found = found or bool(traced.items if isinstance(traced, DictVar) else hooks)
            if not hooks and traced is None:
                tx.guard(AttrSource(ConstSource.of(module, "torch.nn.modules.module"), name), "LEN", 0)
        return found

    def reconstruct(self, cg: Codegen) -> None:
        if self.value is MISSING:
            super().reconstruct(cg)
        else:
            cg.load_const(self.value)
