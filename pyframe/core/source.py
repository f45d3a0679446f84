"""Sources: where a value of the traced program came from.

A ``Source`` is an immutable path from the state at frame entry to a value, such as ``self.layers[0].weight``.
``name`` prints the path, ``accessor`` and ``base`` lower it to an operation of the C guard program
(``guard_program``), and ``emit/reconstruct`` turns it into instructions that load the value again.
To add a kind of source, add a class here, a row to ``guard_program.SOURCE_ROWS`` and a case to ``emit/reconstruct``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, dataclass_transform

from .frozen import with_direct_init

_T = TypeVar("_T")


class _KeepsHash:
    """The base of sources: the place of a source's hash, which is computed once. Guards and inputs are found by their
    sources, and the hash of a long path would be computed from all of its steps each time."""

    __slots__ = ("_hash",)


_set_hash = vars(_KeepsHash)["_hash"].__set__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def source_class(cls: type[_T]) -> type[_T]:
    """Makes a frozen dataclass with slots of a class of sources, whose objects keep their hash."""
    made = dataclass(frozen=True, slots=True)(cls)
    computed = made.__hash__

    def __hash__(self: Any) -> int:
        try:
            found: int = self._hash
        except AttributeError:  # of a copy; if a field has no hash, this raises TypeError
            found = computed(self)
            _set_hash(self, found)
        return found

    made.__hash__ = __hash__  # type: ignore[method-assign]
    return with_direct_init(made, _set_hash)


@source_class
class Source(_KeepsHash):
    """Base class.  ``accessor`` names the C guard accessor that computes the value from ``base``'s register
    (or from the frame when ``base`` is None) and ``payload()`` gives that accessor's operand."""

    accessor: ClassVar[str] = ""

    @property
    def base(self) -> Source | None:
        return None

    def payload(self) -> Any:
        return None

    @property
    def name(self) -> str:
        """A readable Python expression, e.g. ``self.layers[0].weight``."""
        raise NotImplementedError(type(self).__name__)

    def __str__(self) -> str:
        return self.name


# ---- roots -----------------------------------------------------------------------------------------------


@source_class
class LocalSource(Source):
    """A fast local of the frame at entry: parameter ``local`` at position ``index`` of ``co_varnames``
    (``*args`` and ``**kwargs`` included)."""

    accessor: ClassVar[str] = "LOCAL"
    local: str
    index: int

    def payload(self) -> Any:
        return self.index

    @property
    def name(self) -> str:
        return "<a value on the stack>" if self.local.lstrip("_").startswith("stack_") else self.local


@source_class
class ClosureSource(Source):
    """The *contents* of closure cell ``index`` (free variable ``var``) of the frame's function."""

    accessor: ClassVar[str] = "CLOSURE"
    var: str
    index: int

    def payload(self) -> Any:
        return self.index

    @property
    def name(self) -> str:
        return self.var


@source_class
class GlobalSource(Source):
    """A global (or builtin) of the *traced root* frame, looked up as LOAD_GLOBAL does."""

    accessor: ClassVar[str] = "GLOBAL"
    var: str

    def payload(self) -> Any:
        return self.var

    @property
    def name(self) -> str:
        return self.var


@source_class
class GlobalsSource(Source):
    """The globals dict of the traced root frame."""

    accessor: ClassVar[str] = "GLOBALS"

    @property
    def name(self) -> str:
        return "globals()"


@source_class
class FuncSource(Source):
    """The function object that the root frame executes."""

    accessor: ClassVar[str] = "FUNC"

    @property
    def name(self) -> str:
        return "<this function>"


@source_class
class ConstSource(Source):
    """A particular object, held strongly by the compiled entry (an imported module, say).  The object itself needs no
    guard, but values read from it do."""

    accessor: ClassVar[str] = "CONST"
    obj: Any = field(hash=False, compare=False)
    label: str
    obj_id: int

    @staticmethod
    def of(obj: Any, label: str) -> ConstSource:
        return ConstSource(obj, label, id(obj))

    def payload(self) -> Any:
        return self.obj

    @property
    def name(self) -> str:
        return self.label


@source_class
class UnbackedSource(Source):
    """The ``index``-th number that the graph itself computes (an unbacked symbol).  It is known only after the guards
    have run, so no guard may depend on it.  ``holder.node`` is the graph node."""

    index: int
    holder: Any = field(hash=False, compare=False)
    label: str = field(hash=False, compare=False)

    @property
    def name(self) -> str:
        return self.label


@source_class
class DrawnSource(Source):
    """The result of the frame's ``index``-th draw of random numbers, which the new bytecode makes before it calls the
    graph.  It is known only after the guards have run, so no guard may depend on it."""

    index: int
    label: str = field(hash=False, compare=False)

    @property
    def name(self) -> str:
        return self.label


def is_drawn(source: Source | None) -> bool:
    """Whether `source` is the result of a random draw, or a part of one."""
    while source is not None and source.base is not None:
        source = source.base
    return isinstance(source, DrawnSource)


# ---- steps -----------------------------------------------------------------------------------------------


@source_class
class StepSource(Source):
    """A source derived from another one."""

    parent: Source

    @property
    def base(self) -> Source | None:
        return self.parent


@source_class
class AttrSource(StepSource):
    """``parent.attr`` by plain ``getattr``."""

    accessor: ClassVar[str] = "ATTR"
    attr: str

    def payload(self) -> Any:
        return self.attr

    @property
    def name(self) -> str:
        return f"{self.parent.name}.{self.attr}"


@source_class
class InstanceDictSource(StepSource):
    """``parent.__dict__`` (read without running ``__getattribute__``)."""

    accessor: ClassVar[str] = "INSTANCE_DICT"

    @property
    def name(self) -> str:
        return f"{self.parent.name}.__dict__"


@source_class
class HiddenDictSource(InstanceDictSource):
    """``parent.__dict__`` of an instance whose class defines ``__getattribute__``, which neither the guards nor the
    compiled code may run."""


@source_class
class DictItemSource(StepSource):
    """``parent[key]`` of a dict, ``key`` a hashable constant held by reference."""

    accessor: ClassVar[str] = "DICT_GET"
    key: Any

    def payload(self) -> Any:
        return self.key

    @property
    def name(self) -> str:
        return f"{self.parent.name}[{self.key!r}]"


@source_class
class ModuleAttrSource(StepSource):
    """``parent.attr`` of an nn.Module, stored in its ``_parameters``, ``_buffers`` or ``_modules`` dict (``where``).
    Printed as an attribute; guards read ``parent.__dict__[where][attr]``."""

    accessor: ClassVar[str] = "MODULE_ITEM"
    where: str
    attr: str

    def payload(self) -> Any:
        return (self.where, self.attr)

    @property
    def name(self) -> str:
        return f"{self.parent.name}.{self.attr}"


@source_class
class SeqItemSource(StepSource):
    """``parent[index]`` of a list or tuple (or subclass stored like one)."""

    accessor: ClassVar[str] = "SEQ_ITEM"
    index: int

    def payload(self) -> Any:
        return self.index

    @property
    def name(self) -> str:
        return f"{self.parent.name}[{self.index}]"


@source_class
class DictKeySource(StepSource):
    """The ``index``-th key of a dict, in insertion order (for keys that are not constants)."""

    accessor: ClassVar[str] = "DICT_KEY_AT"
    index: int

    def payload(self) -> Any:
        return self.index

    @property
    def name(self) -> str:
        return f"list({self.parent.name})[{self.index}]"


@source_class
class TypeSource(StepSource):
    """``type(parent)``."""

    accessor: ClassVar[str] = "TYPE"

    @property
    def name(self) -> str:
        return f"type({self.parent.name})"


@source_class
class FuncPartSource(StepSource):
    """A part of a function object: ``part`` is one of ``__code__ __defaults__ __kwdefaults__ __closure__
    __globals__``."""

    accessor: ClassVar[str] = "FUNC_PART"
    part: str

    def payload(self) -> Any:
        return self.part

    @property
    def name(self) -> str:
        return f"{self.parent.name}.{self.part}"


@source_class
class CellSource(StepSource):
    """Contents of a cell object."""

    accessor: ClassVar[str] = "CELL_CONTENTS"

    @property
    def name(self) -> str:
        return f"{self.parent.name}.cell_contents"


@source_class
class CallSource(StepSource):
    """``fn(parent)``, ``fn`` a side-effect-free callable held by reference (``len``, ``torch.Tensor.size`` ...)."""

    accessor: ClassVar[str] = "CALL"
    fn: Any
    label: str

    def payload(self) -> Any:
        return self.fn

    @property
    def name(self) -> str:
        return f"{self.label}({self.parent.name})"


@source_class
class SizeSource(StepSource):
    """Size of dimension ``dim`` of a tensor."""

    accessor: ClassVar[str] = "TENSOR_SIZE"
    dim: int

    def payload(self) -> Any:
        return self.dim

    @property
    def name(self) -> str:
        return f"{self.parent.name}.size({self.dim})"


@source_class
class StrideSource(StepSource):
    """Stride of dimension ``dim`` of a tensor."""

    accessor: ClassVar[str] = "TENSOR_STRIDE"
    dim: int

    def payload(self) -> Any:
        return self.dim

    @property
    def name(self) -> str:
        return f"{self.parent.name}.stride({self.dim})"


def source_of_cell(source: Source | None) -> Source | None:
    """The source that leads to a closure cell itself, given that of its Var: for a free variable of the root frame that
    leads to the contents. None if the cell has no source."""
    if isinstance(source, ClosureSource):
        return SeqItemSource(FuncPartSource(FuncSource(), "__closure__"), source.index)
    return source if isinstance(source, SeqItemSource | ConstSource) else None
