"""Decides which tensors of a captured graph have a value that is known while tracing, so that the program can branch on
them or use them as sizes without a graph break.

These are tensors computed from constants alone, or also from 0-d integer buffers of modules. This module keeps track of
the buffers and guards the value of each one that was used; `constant_eval` does the computation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import fx

from ..core.source import ModuleAttrSource, Source
from ..vars.containers.sequence import ListVar, TupleVar
from ..vars.numbers.dynamic import CaptureHistory
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.torch_objects.tensor import TensorVar
from ..vars.tracer import Tracer
from .constant_eval import value_at_end
from .graph_inputs import GraphInputs
from .graph_modes import GraphModes

_INTEGER = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class KnownTensors:
    """Computes values of tensors of the graph, if they are known while tracing."""

    def __init__(self, tx: Tracer, inputs: GraphInputs, modes: GraphModes, history: CaptureHistory) -> None:
        self._tx, self._inputs, self._modes, self._history = tx, inputs, modes, history
        self._buffers: dict[fx.Node, Source] = {}  # inputs that are 0-d integer buffers of modules

    @property
    def has_buffers(self) -> bool:
        """Whether an input is a 0-d integer buffer of a module."""
        return bool(self._buffers)

    def add_input(self, node: fx.Node, source: Source, tensor: torch.Tensor) -> None:
        """Note that an input's value is known, if it is a 0-d integer buffer of a module on the CPU whose value was the
        same in all captures."""
        if not (isinstance(source, ModuleAttrSource) and source.where == "_buffers" and tensor.dim() == 0):
            return
        if tensor.device.type != "cpu" or tensor.dtype not in _INTEGER or type(tensor) is not torch.Tensor:
            return
        if not self._history.number_varies(source, tensor.item()):
            self._buffers[node] = source

    def value_of(self, var: TensorVar, reads: bool = False) -> torch.Tensor | None:
        """The value of a tensor that depends only on constants, or None. `reads`: it may also depend on 0-d integer
        buffers of modules, which are then guarded."""
        found, read = self._value_and_sources(var, reads)
        for source in read if found is not None else ():
            value = self._inputs.originals[source].item()
            holds = functools.partial(_holds, value)
            self._tx.guard(source, "PREDICATE", (holds, (), f"its value is {value}"))
        return found

    def is_known(self, var: TensorVar) -> bool:
        """Whether `value_of(var, reads=True)` gives a value; without a guard."""
        return self._value_and_sources(var, True)[0] is not None

    def _value_and_sources(self, var: TensorVar, reads: bool) -> tuple[torch.Tensor | None, list[Source]]:
        """The value of a tensor, or None, and the buffers that it depends on."""
        constant: torch.Tensor | None = getattr(var.fake, "constant", None)  # set for one-element constants
        if constant is not None:
            return constant, []
        if self._modes.written:  # operators would run under the current settings
            return None, []
        given = {node: self._inputs.originals[source] for node, source in self._buffers.items() if reads}
        found, read = value_at_end(var.node, given)
        return found, [self._buffers[node] for node in read]

    def with_ints(self, args: Sequence[Var], accepts: Callable[[Sequence[Var]], bool]) -> Sequence[Var]:
        """The arguments of an operator, with lists of sizes that contain tensors of known value (`pad(x, (module.left,
        module.right))`) converted to ints. `accepts`: whether the operator takes arguments converted like this."""
        lists = [arg for arg in args if isinstance(arg, ListVar | TupleVar) and any(map(_is_integer, arg.items))]
        ints = [self._ints_in(items) for items in lists]
        if not lists or None in ints:
            return args
        known = {id(items): each for items, each in zip(lists, ints, strict=True) if each is not None}
        converted = [known.get(id(arg), arg) for arg in args]
        return converted if accepts(converted) else args

    def _ints_in(self, items: ListVar | TupleVar) -> TupleVar | None:
        """A list of sizes with tensors of known value converted to ints; None if a value is unknown."""
        found: list[Var] = []
        for item in items.items:
            value = self.value_of(item, reads=True) if isinstance(item, TensorVar) and _is_integer(item) else None
            if value is None and not (isinstance(item, ConstVar) and type(item.value) is int):
                return None
            found.append(item if value is None else ConstVar(value.item()))
        return TupleVar(found)


def _is_integer(var: Var) -> bool:
    return isinstance(var, TensorVar) and var.fake.dim() == 0 and var.fake.dtype in _INTEGER


def _holds(value: float, tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.item() == value
