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
from .const import make
from .function import FunctionVar
from .instance import MISSING, InstanceVar, lookup
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
        if name in self.attrs:
            return self.attrs[name]
        if self.value is MISSING:
            return None
        fields = self.value.__dict__
        if name in fields:
            source = DictItemSource(InstanceDictSource(self.source), name) if self.source else None
            found = tx.wrap(fields[name], source)
            self.attrs[name] = found
            return found
        for store in _STORES:
            overlay = self.attrs.get(store)
            if isinstance(overlay, DictVar) and name in overlay.items:  # the program may have changed the table
                return overlay.items[name]
            if name in fields.get(store, ()) and overlay is None:
                found = tx.wrap(fields[store][name], self._item_source(store, name))
                self.attrs[name] = found
                return found
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
        if lookup(self.cls, name) is MISSING and lookup(self.cls, "__getattr__") is nn.Module.__dict__["__getattr__"]:
            if self.source is not None:
                dicts = InstanceDictSource(self.source)
                tx.guard(dicts, "DICT_LACKS", name)
                for store in _STORES:
                    tx.guard(DictItemSource(dicts, store), "DICT_LACKS", name)
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return super().getattr_(tx, name)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        plain = lookup(self.cls, "__setattr__") is nn.Module.__dict__["__setattr__"]
        if not plain or value is None or self.value is MISSING or self._registers(name, value):
            tx.graph_break("unsupported-object", f"assignment of {self.describe()}.{name}")
        if name in self.value.__dict__["_buffers"]:
            table = self._instance_attr(tx, "_buffers")
            assert isinstance(table, DictVar)
            table.items[name] = value  # no effect of its own: the assignment replayed writes the table
        self.store(tx, name, value)

    def _registers(self, name: str, value: Var) -> bool:
        """Whether an assignment changes the tables of parameters and submodules."""
        fields = self.value.__dict__
        if name in fields["_parameters"] or name in fields["_modules"] or name in _STORES:
            return True
        if name in fields["_buffers"] and not (isinstance(value, TensorVar) or slots.constant_or(value, 0) is None):
            return True
        parameter = isinstance(value, TensorVar) and value.python_type() is not torch.Tensor
        return parameter or isinstance(value, NNModuleVar)

    def _dict(self, tx: Tracer) -> Var:
        fields = self.value.__dict__ if self.value is not MISSING else {}
        if self.source is not None:
            tx.guard(InstanceDictSource(self.source), "DICT_KEYS", tuple(fields))
        written = {e.detail for e in tx.effects if e.kind == "ATTR" and e.target is self}
        names = dict.fromkeys([*fields, *sorted(written - set(fields.get("_buffers", ())))])
        return make({name: self._instance_attr(tx, name) for name in names})

    def truth(self, tx: Tracer) -> bool:
        return True if lookup(self.cls, "__len__") is MISSING else super().truth(tx)

    # ---- calling ----
    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        call_method = lookup(self.cls, "__call__")
        if call_method is not nn.Module.__dict__["__call__"]:
            return super().call(tx, args, kwargs)
        if self.value is not MISSING and self._hooked(tx):
            impl = FunctionVar(nn.Module._call_impl, None)
            return tx.call(impl, [self, *args], kwargs)
        return tx.call(self.getattr_(tx, "forward"), args, kwargs)

    def _hooked(self, tx: Tracer) -> bool:
        """Whether any hook would run; guards the answer."""
        found = False
        for name in _HOOKS:
            hooks = self.value.__dict__.get(name)
            found = found or bool(hooks)
            if self.source is not None and not hooks:
                tx.guard(DictItemSource(InstanceDictSource(self.source), name), "LEN", 0)
        module = torch.nn.modules.module
        for name in _GLOBAL_HOOKS:
            hooks = getattr(module, name)
            found = found or bool(hooks)
            if not hooks:
                tx.guard(ConstSource.of(hooks, f"torch.nn.modules.module.{name}"), "LEN", 0)
        return found

    def reconstruct(self, cg: Any) -> None:
        if self.value is MISSING:
            super().reconstruct(cg)
        else:
            cg.load_const(self.value)

