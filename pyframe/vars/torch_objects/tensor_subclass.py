"""Tensors whose class is defined by the program: each is a plain tensor of the graph plus the attributes of a Python
instance. Their `__torch_function__` is traced like other Python code."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from inductor.subclasses.wrapper_tensors import is_wrapper_class

from ...core.source import Source
from ..codegen import Codegen
from ..objects.instances import InstanceVar
from ..objects.originals import as_first_seen, in_torch
from ..protocol import dunder
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..tracer import Tracer
from .tensor import TensorVar

_ALIAS = torch.ops.aten.alias.default
# State of the real object. Reading it at each call would go through its class's overrides.
_OF_OBJECT = ("grad", "grad_fn", "is_leaf", "_version", "_base", "_backward_hooks", "retains_grad", "output_nr")
_AS_TENSOR = ("__getattribute__", "__torch_dispatch__", "__del__", "__getattr__", "__setattr__", "__delattr__")


class TensorSubclassVar(InstanceVar):
    """An instance of a tensor subclass. Methods written in Python are traced; C methods act on `base`, the plain
    tensor, unless they are overridden. If the object existed before the frame, its base has the object's source."""

    __slots__ = ("base",)

    def __init__(self, base: TensorVar, cls: type, value: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(value, source, cls)
        self.base = base

    def plain(self) -> Any:
        raise NotConstant(self.cls.__name__)

    # ---- attributes ----
    def read_computed(self, tx: Tracer, name: str, raw: Any) -> Var:
        if getattr(raw, "__objclass__", None) is not torch._C.TensorBase:
            return super().read_computed(tx, name, raw)
        if name in _OF_OBJECT and self.base.source is not None and (self.base.fake.requires_grad or name != "is_leaf"):
            return self.unsupported(tx, f"attribute {name!r}")
        return tx.overrides.get_attribute(self, name)

    def _set_through(self, tx: Tracer, name: str, value: Var | None) -> None:
        raw = lookup(self.cls, name)
        if getattr(raw, "__objclass__", None) is torch._C.TensorBase:
            tx.overrides.set_attribute(self, name, value)
        else:
            super()._set_through(tx, name, value)

    # ---- methods ----
    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        raw = lookup(torch.Tensor, name)
        if raw is MISSING or raw is lookup(object, name):
            return super().c_method(tx, name, args, kwargs)
        return tx.overrides.method(name, [self, *args], kwargs)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        return self._operator(tx, dunder.name_of(op, reflected), other)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self._operator(tx, dunder.comparison(op), other)

    def _operator(self, tx: Tracer, name: str, other: Var) -> Var | None:
        raw = lookup(self.cls, name)
        if raw is lookup(torch.Tensor, name) and not isinstance(raw, types.FunctionType):
            return None if raw is MISSING else tx.overrides.operator(name, [self, other])
        return self._result(tx, self.special(tx, name), other)

    # ---- leaving the graph ----
    def rebuild_empty(self, cg: Codegen) -> None:
        cg.load_const(_as_subclass)
        cg.call_top(lambda: cg.load(self.base), lambda: cg.load_const(self.cls))


def _as_subclass(tensor: torch.Tensor, cls: type) -> torch.Tensor:
    """At run time: a new tensor object with the same data that is an instance of `cls`."""
    with torch._C.DisableTorchFunction():
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(True)  # record gradients if `tensor` requires them
        try:
            return tensor.as_subclass(cls)
        finally:
            torch._C._set_grad_enabled(before)


def as_instance(tx: Tracer, tensor: TensorVar, cls: type) -> Var:
    """`tensor.as_subclass(cls)`."""
    instance = tx.graph.call(_ALIAS, [tensor], {})
    assert isinstance(instance, TensorVar)
    if cls is torch.Tensor:
        return instance
    if is_wrapper_class(cls) or not is_traced(cls):
        return tensor.unsupported(tx, f"as_subclass({cls.__qualname__})")
    return _owner(instance, cls)


def of_input(tensor: TensorVar, value: torch.Tensor, source: Source) -> Var:
    """The Var of a subclass instance that existed before the frame; `tensor` is the graph's input for it."""
    return _owner(tensor, type(value), value, source)


def _owner(base: TensorVar, cls: type, value: Any = MISSING, source: Source | None = None) -> Var:
    base.owner = TensorSubclassVar(base, cls, value, source)
    return base.owner


def is_traced(cls: type) -> bool:
    """Whether all behavior of a torch.Tensor subclass is in `__torch_function__` and Python methods, so that it can be
    traced."""
    lazy = nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]  # not in torch's stubs
    if issubclass(cls, lazy) or not issubclass(cls, torch.Tensor):
        return False
    runs_inside = is_wrapper_class(cls)
    for name in _AS_TENSOR:
        if lookup(cls, name) is not lookup(torch.Tensor, name) and not (runs_inside and name == "__torch_dispatch__"):
            return False
    own = lookup(cls, "__torch_function__")
    if isinstance(own, classmethod):
        fn = own.__func__
        return isinstance(fn, types.FunctionType) and (not in_torch(fn.__code__) or as_first_seen(fn))
    return own is torch._C._disabled_torch_function_impl
