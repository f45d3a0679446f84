"""Which sizes and ints of the inputs vary: the argument `dynamic` of `export`, as marks on the leaves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..errors import UserError
from ..signature.structure import Constant, Leaf, Node, Structure
from ..vars.numbers.dynamic import MARKS, Mark

MAYBE = Mark("maybe")
Marks = dict[int, Mark]  # dimension -> mark
_ACCEPTED = (
    "None (fixed), True or torch.export.Dim.DYNAMIC (varies), 'auto' or Dim.AUTO (varies unless the program fixes it), "
    "a tuple (least, most), or a torch.export.Dim"
)


def marks_of_inputs(dynamic: Any, given: Mapping[str, Structure], inputs: Sequence[Any]) -> dict[int, Marks | Mark]:
    """What varies, by the index of the input: for a tensor the marks of its dimensions, for an int its mark.

    dynamic: None or False: nothing; True: all sizes that the program does not fix, and all ints; otherwise the
    specification of each argument, by the name of the parameter or in their order.
    """
    if dynamic is None or dynamic is False:
        return {}
    reader = _Reader(inputs)
    if dynamic is True:
        for name, structure in given.items():
            reader.read(True, structure, name, named=False)
    elif isinstance(dynamic, Mapping):
        unknown = [name for name in dynamic if name not in given]
        if unknown:
            raise UserError(f"dynamic names {unknown[0]!r}, which is no argument of the call; it has {list(given)}")
        for name, spec in dynamic.items():
            reader.read(spec, given[name], name)
    elif isinstance(dynamic, Sequence) and not isinstance(dynamic, str):
        if len(dynamic) > len(given):
            raise UserError(f"dynamic has {len(dynamic)} entries for {len(given)} arguments")
        for spec, (name, structure) in zip(dynamic, given.items(), strict=False):
            reader.read(spec, structure, name)
    else:
        raise UserError(f"dynamic must be None, a bool, or a dict or sequence with an entry per argument: {dynamic!r}")
    return reader.marks


class _Reader:
    """Reads specifications into `marks`."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.inputs = inputs
        self.marks: dict[int, Marks | Mark] = {}

    def read(self, spec: Any, structure: Structure, name: str, named: bool = True) -> None:
        """Read what the user wrote for a part of an argument; `name` is the part in messages. `named`: it is for this
        part, not for all that varies in a whole of which what cannot vary stays fixed."""
        if spec is None or spec is False or isinstance(structure, Constant):
            return
        if isinstance(structure, Leaf):
            self._leaf(spec, structure.index, name, named)
        elif spec is True:
            for child in structure.children:
                self.read(True, child, name, named=False)
        else:
            self._node(spec, structure, name)

    def _node(self, spec: Any, node: Node, name: str) -> None:
        if isinstance(spec, Mapping) and node.keys:
            children = dict(zip(node.keys, node.children, strict=True))
            for key, each in spec.items():
                if key not in children:
                    raise UserError(f"dynamic: {name} has no {key!r}")
                self.read(each, children[key], f"{name}[{key!r}]")
        elif isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) == len(node.children):
            for index, (each, child) in enumerate(zip(spec, node.children, strict=True)):
                self.read(each, child, f"{name}[{index}]")
        else:
            raise UserError(f"dynamic: {spec!r} does not fit {name}, a {node.kind} of {len(node.children)}")

    def _leaf(self, spec: Any, index: int, name: str, named: bool) -> None:
        value = self.inputs[index]
        if type(value) is int:
            mark = _mark(spec, name)
            if mark is not None:
                self.marks[index] = mark
            return
        if not isinstance(value, torch.Tensor):
            if spec is not True or named:
                kind = type(value).__name__
                hint = "; pass it as a 0-d tensor" if isinstance(value, float | complex | bool) else ""
                raise UserError(f"dynamic: {name} is a {kind}, which cannot vary{hint}")
            return
        if spec is True:
            self.marks[index] = {dim: MAYBE for dim in range(value.dim())}
            return
        self.marks[index] = marks = {}
        for dim, each in _dims(spec, value, name):
            mark = _mark(each, f"{name}.size({dim})")
            if mark is not None:
                if value.size(dim) < 2 and mark.kind == "dynamic":
                    raise UserError(
                        f"dynamic: {name}.size({dim}) is {value.size(dim)} in the example; give an example of 2 or "
                        "more, because sizes 0 and 1 take other paths through a program"
                    )
                marks[dim] = mark


def _dims(spec: Any, value: torch.Tensor, name: str) -> Iterator[tuple[int, Any]]:
    if isinstance(spec, Mapping):
        for dim, each in spec.items():
            if type(dim) is not int or not -value.dim() <= dim < value.dim():
                raise UserError(f"dynamic: {name} has {value.dim()} dimensions; there is no {dim!r}")
            yield dim % value.dim(), each
    elif isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) == value.dim():
        yield from enumerate(spec)
    else:
        raise UserError(f"dynamic: {spec!r} does not fit {name}, a tensor of {value.dim()} dimensions")


def _mark(spec: Any, name: str) -> Mark | None:
    """The mark of one dimension or int."""
    if spec is None or spec is False:
        return None
    if spec is True:
        return Mark("dynamic")
    if isinstance(spec, str) and spec == "auto":
        return MAYBE
    if isinstance(spec, tuple) and len(spec) == 2 and all(each is None or type(each) is int for each in spec):
        return Mark("dynamic", *spec)
    torchs = sys.modules.get("torch.export.dynamic_shapes")  # not imported: a user who passes a Dim has done so
    if torchs is not None:
        if isinstance(spec, torchs._DimHint):
            hints = ((torchs.Dim.AUTO, MAYBE), (torchs.Dim.DYNAMIC, Mark("dynamic")), (torchs.Dim.STATIC, None))
            return next(mark for hint, mark in hints if hint == spec)
        if isinstance(spec, torchs.Dim):
            return Mark("dynamic", *(each if type(each) is int else None for each in _limits(spec)))
    if type(spec) is int:
        return None  # a fixed size, as in torch.export
    raise UserError(f"dynamic: {name} is {spec!r}; accepted: {_ACCEPTED}")


def _limits(dim: Any) -> tuple[Any, Any]:
    return getattr(dim, "min", None), getattr(dim, "max", None)


@contextlib.contextmanager
def marked(inputs: Sequence[Any], marks: Mapping[int, Marks | Mark]) -> Iterator[None]:
    """Marks the tensors among the inputs within the block."""
    before = [(inputs[index], getattr(inputs[index], MARKS, None)) for index in marks if _is_tensor(inputs[index])]
    try:
        for index, added in marks.items():
            if isinstance(added, dict):
                setattr(inputs[index], MARKS, {**getattr(inputs[index], MARKS, {}), **added})
        yield
    finally:
        for tensor, known in before:
            if known is None:
                vars(tensor).pop(MARKS, None)
            else:
                setattr(tensor, MARKS, known)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
