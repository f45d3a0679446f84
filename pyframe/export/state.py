"""The tensors of an exported program that are no arguments: parameters, buffers and others, by qualified name."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from ..callables import python_function
from ..core.source import (
    AttrSource,
    CellSource,
    ClosureSource,
    ConstSource,
    DictItemSource,
    ModuleAttrSource,
    SeqItemSource,
    Source,
    StepSource,
)

_PLAIN_MODULE = fx.GraphModule(nn.Module(), fx.Graph())
_REGISTRIES = ("_modules", "_parameters", "_buffers", "__dict__")


class State:
    """`named`: the tensors by name, those of the module first. `kinds`: parameter, buffer (one that is in the
    state_dict) or constant, by name."""

    def __init__(self, target: Any) -> None:
        self.named: dict[str, torch.Tensor] = {}
        self.kinds: dict[str, str] = {}
        self._target = target
        self._names: dict[int, str] = {}  # by id of the tensor
        owner = target.__self__ if isinstance(target, types.MethodType) else target
        if isinstance(owner, nn.Module):
            for name, parameter in owner.named_parameters(remove_duplicate=False):
                self._add(name, parameter, "parameter")
            for name, buffer in owner.named_buffers(remove_duplicate=False):
                path, _, last = name.rpartition(".")
                kept = last not in owner.get_submodule(path)._non_persistent_buffers_set
                self._add(name, buffer, "buffer" if kept else "constant")

    def tensors(self) -> Iterator[torch.Tensor]:
        """All tensors."""
        yield from self.named.values()

    def name_of(self, tensor: torch.Tensor, source: Source | None) -> tuple[str, str]:
        """The kind and the name of a tensor; one that is not known gets a name after its source."""
        known = self._names.get(id(tensor))
        if known is None:
            wanted = self._named_after(source) or "constant"
            known, count = wanted, 0
            while _is_taken(known) or any(_clash(known, other) for other in self.named):
                count += 1
                known = f"{wanted}_{count}"
            self._add(known, tensor, _kind(tensor, source))
        return self.kinds[known], known

    def _named_after(self, source: Source | None) -> str:
        """A dotted name made of the attributes, keys and variables along a source."""
        parts: list[str] = []
        while isinstance(source, StepSource):
            if isinstance(source, AttrSource | ModuleAttrSource):
                parts.append(source.attr)
            elif isinstance(source, DictItemSource) and source.key not in _REGISTRIES:
                parts.append(str(source.key))
            elif isinstance(source, SeqItemSource):
                parts.append(str(source.index))
            elif isinstance(source, CellSource) and (name := self._variable(source.parent)) is not None:
                parts.append(name)
                break
            source = source.parent
        found = [re.sub(r"\W", "_", part) for part in reversed(parts) if part not in _REGISTRIES]
        return ".".join(found) or ("" if source is None else re.sub(r"\W", "_", source.name))

    def _variable(self, cell: Source) -> str | None:
        """The name of the variable in a cell, an item of the closure of a known function."""
        closure = cell.base
        owner = closure.base if closure is not None else None
        function = owner.obj if isinstance(owner, ConstSource) else python_function(self._target)
        known = isinstance(cell, SeqItemSource) and isinstance(owner, ConstSource | ClosureSource)
        if function is None or not known:
            return None
        names = function.__code__.co_freevars
        index: int = cell.payload()
        return names[index] if index < len(names) else None

    def _add(self, name: str, tensor: torch.Tensor, kind: str) -> None:
        self.named[name] = tensor
        self.kinds[name] = kind
        self._names.setdefault(id(tensor), name)


def _clash(name: str, other: str) -> bool:
    """Whether two names cannot be attributes of one module."""
    return name == other or other.startswith(f"{name}.") or name.startswith(f"{other}.")


def _is_taken(name: str) -> bool:
    """Whether every module has an attribute of a part of the name."""
    return any(hasattr(_PLAIN_MODULE, part) for part in name.split("."))


def _kind(tensor: torch.Tensor, source: Source | None) -> str:
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "buffer" if isinstance(source, ModuleAttrSource) and source.where == "_buffers" else "constant"
