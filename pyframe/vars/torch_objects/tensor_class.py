"""Guards on the attributes of `torch.Tensor` and `Parameter` as a whole. Captures depend on these attributes without
reading them: an operator becomes a graph node, `x.dtype` comes from the fake tensor, and torch's Python code that a
graph calls uses tensor methods.

One guard per class covers all of them (`all_reads`). The attributes that the tracer itself relies on must be
unchanged since this module was imported (`NEEDED`); otherwise frames run uncompiled.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch

from ...core.guard import ClassReads
from ...core.tensor_names import CALLED, METADATA, METADATA_METHODS, SPECIAL_NAMES, TENSOR_PROPERTIES
from ..protocol.class_reads import MISSING

# Attributes for printing and storing tensors and for the backward pass, which no graph uses.
_OUTSIDE_OF_GRAPHS = {
    "__repr__", "__str__", "__format__", "__dir__", "__doc__", "__module__", "__reduce__", "__reduce_ex__",
    "__setstate__", "__deepcopy__", "__dict__", "__weakref__", "__annotations__", "__abstractmethods__", "backward",
    "register_hook", "register_post_accumulate_grad_hook", "share_memory_", "storage", "tolist",
}  # fmt: skip

CLASSES: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
_table, _mro = type.__dict__["__dict__"].__get__, type.__dict__["__mro__"].__get__


def _find(cls: type, name: str) -> Any:
    return next((_table(base)[name] for base in _mro(cls) if name in _table(base)), MISSING)


def _reads(cls: type, names: Iterable[str]) -> ClassReads:
    """A guard payload: the class resolves each of the names as it does now."""
    entries: list[Any] = []
    for name in sorted(names):
        found = _find(cls, name)
        entries += (name, 0, None) if found is MISSING else (name, 1, found)
    return ClassReads(type(cls), _mro(cls), tuple(entries))


_PROPERTIES = {
    name for name, raw in _table(torch._C.TensorBase).items() if isinstance(raw, types.GetSetDescriptorType)
}
_NAMES = {
    cls: frozenset({*(name for base in _mro(cls) for name in _table(base)), *SPECIAL_NAMES} - _OUTSIDE_OF_GRAPHS)
    for cls in CLASSES
}
_NEEDED = METADATA | METADATA_METHODS | TENSOR_PROPERTIES | CALLED | _PROPERTIES | set(SPECIAL_NAMES)
NEEDED = {cls: _reads(cls, _NAMES[cls] & _NEEDED) for cls in CLASSES}


class _AllReads:
    """The payload of the guard for a whole class, shared by captures as long as the class is unchanged."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.bases = [base for base in _mro(cls) if base in CLASSES]  # other base classes are immutable
        self.tables = self._tables()
        self.at_import = self.reads = _reads(cls, _NAMES[cls])

    def _tables(self) -> list[dict[str, Any]]:
        return [dict(_table(base)) for base in self.bases]

    def now(self) -> ClassReads:
        if _mro(self.cls) is not self.reads.method_order or not all(map(_same, self.tables, self.bases)):
            reads = _reads(self.cls, _NAMES[self.cls])
            self.tables = self._tables()
            self.reads = self.at_import if _agree(reads, self.at_import) else reads
        return self.reads


def _agree(one: ClassReads, other: ClassReads) -> bool:
    kept = one.metaclass is other.metaclass and one.method_order is other.method_order
    return kept and all(a is b for a, b in zip(one.entries[2::3], other.entries[2::3], strict=True))


def _same(table: dict[str, Any], base: type) -> bool:
    now = _table(base)
    return len(now) == len(table) and all(table.get(name, MISSING) is raw for name, raw in now.items())


_all_reads = {cls: _AllReads(cls) for cls in CLASSES}


def all_reads(cls: type, written: Iterable[str] = ()) -> ClassReads:
    """The payload of a guard on all attributes of a class in CLASSES that a graph may depend on, except those that the
    captured frame itself writes."""
    return _reads(cls, _NAMES[cls].difference(written)) if written else _all_reads[cls].now()


def as_at_import() -> bool:
    """Whether all guarded attributes of `torch.Tensor` are unchanged since this module was imported."""
    whole = _all_reads[torch.Tensor]
    return whole.now() is whole.at_import


def covers(cls: type, name: str) -> bool:
    """Whether the guard for the whole class includes attribute `name` of `cls`."""
    return cls in _NAMES and name in _NAMES[cls]
