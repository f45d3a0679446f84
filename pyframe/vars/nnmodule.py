"""nn.Module: attributes by `nn.Module.__getattr__`'s rules, calls by `_call_impl`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..core.source import ConstSource, DictItemSource, InstanceDictSource, ModuleAttrSource, Source
from ..core.tracer import Tracer
from . import slots
from .base import Var
from .function import FunctionVar
from .instance import MISSING, InstanceVar, lookup
from .lookup import written_in_class
from .mapping import DictVar
from .tensor import TensorVar

_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
_STORES = ("_parameters", "_buffers", "_modules")


class NNModuleVar(InstanceVar):
    """A module.  What was read of its parameter, buffer and module dicts is guarded item by item."""

    __slots__ = ()

    def _instance_attr(self, tx: Tracer, name: str) -> Var | None:
        fields = {} if self.value is MISSING else self.value.__dict__
        if name not in self.attrs and name in fields:
            source = DictItemSource(InstanceDictSource(self.source), name) if self.source else None
            self.attrs[name] = tx.wrap(fields[name], source)
        if name in self.attrs and self.attrs[name] is not None:
            return self.attrs[name]
        for store in _STORES:
            table = self.attrs.get(store)
            if isinstance(table, DictVar):
                if name in table.items:
                    return table.items[name]
            elif name in fields.get(store, ()):
                return tx.wrap(fields[store][name], self._item_source(store, name))
        if name in self.attrs:
            return None
        if self.source is not None and lookup(self.cls, name) is not MISSING:
            tx.guard(InstanceDictSource(self.source), "DICT_LACKS", name)  # the class's own, until an instance has one
        return None

    def _item_source(self, store: str, name: str) -> Source | None:
        return ModuleAttrSource(self.source, store, name) if self.source else None

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__class__", "__dict__"):
            return super().getattr_(tx, name)
        own = self._instance_attr(tx, name) if not isinstance(lookup(self.cls, name), property) else None
        if own is not None:
            return own
        written = written_in_class(tx, self.cls, name)
        lacking = lookup(self.cls, name) is MISSING and (written is MISSING or written is None)
        if lacking and lookup(self.cls, "__getattr__") is nn.Module.__dict__["__getattr__"]:
            if self.source is not None:
                dicts = InstanceDictSource(self.source)
                if name not in self.attrs:  # else the program itself deleted it
                    tx.guard(dicts, "DICT_LACKS", name)
                for store in _STORES:
                    if not isinstance(self.attrs.get(store), DictVar):  # its keys are guarded already
                        tx.guard(DictItemSource(dicts, store), "DICT_LACKS", name)
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return super().getattr_(tx, name)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        special = "__setattr__" if value is not None else "__delattr__"
        if lookup(self.cls, special) is nn.Module.__dict__[special]:
            self.assign(tx, name, value)
        else:
            super().setattr_(tx, name, value)

    def assign(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`nn.Module.__setattr__` (or `__delattr__` for None): the tables kept here, the assignment itself replayed."""
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
        """The names in the instance's own `__dict__`."""
        names = {*getattr(self.value, "__dict__", ()), *self.attrs}
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
        """The table that an assignment of `value` to `name` writes; None: a plain attribute."""
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
        """What an assignment in the log has left; None: deleted."""
        for store in _STORES:
            table = self.attrs.get(store)
            if isinstance(table, DictVar) and name in table.items:
                return table.items[name]
        return self.attrs.get(name)

    def setter(self, special: str) -> Any:
        own = nn.Module.__dict__[special]
        return None if lookup(self.cls, special) is own else own

    def fields(self, tx: Tracer) -> dict[str, Var]:
        if self.value is not MISSING and self.source is not None:
            tx.guard(InstanceDictSource(self.source), "DICT_KEYS", tuple(self.value.__dict__))
        names = dict.fromkeys([*getattr(self.value, "__dict__", ()), *self.attrs])
        tables = {name for store in _STORES for name in getattr(self.attrs.get(store), "items", ())}
        found = {name: self._instance_attr(tx, name) for name in names if self.attrs.get(name) or name not in tables}
        return {name: var for name, var in found.items() if var is not None}

    def truth(self, tx: Tracer) -> bool:
        return True if lookup(self.cls, "__len__") is MISSING else super().truth(tx)

    # ---- calling ----
    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        call_method = lookup(self.cls, "__call__")
        if call_method is not nn.Module.__dict__["__call__"]:
            return super().call(tx, args, kwargs)
        if self._hooked(tx):
            impl = FunctionVar(nn.Module.__dict__["_call_impl"], None)
            return tx.call(impl, [self, *args], kwargs)
        return tx.call(self.getattr_(tx, "forward"), args, kwargs)

    def _hooked(self, tx: Tracer) -> bool:
        """Whether any hook would run; guards the answer."""
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
                tx.guard(ConstSource.of(hooks, f"torch.nn.modules.module.{name}"), "LEN", 0)
        return found

    def reconstruct(self, cg: Any) -> None:
        if self.value is MISSING:
            super().reconstruct(cg)
        else:
            cg.load_const(self.value)

