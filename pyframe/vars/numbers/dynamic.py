"""Dynamic shapes: decides for each tensor and number that the frame reads whether its sizes, strides or value become
symbols or guarded constants, and creates the Var with its fake tensor and guards.

A size becomes symbolic if it varied between captures of the same code, if the user marked it, or if the `dynamic`
option asks for it. `emit.graph_inputs` adds the placeholders; `pyframe.dynamic` has the functions by which users mark
dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from inductor.overlap import elements_overlap
from inductor.subclasses.wrapper_tensors import is_jagged, is_wrapper, parts_of, rebuilt

from ...core.expr import Expr, Number
from ...core.guard import TensorMeta
from ...core.source import (
    AttrSource,
    ConstSource,
    DictItemSource,
    LocalSource,
    ModuleAttrSource,
    SeqItemSource,
    SizeSource,
    Source,
    StrideSource,
)
from ...core.symbolic import hint
from ...errors import UserError
from ..tracer import Tracer
from .symint import SYMBOLIC, NumberVar, assume, from_symbolic, tree_of

if TYPE_CHECKING:
    from ..torch_objects.tensor import TensorVar

MARKS = "_pyframe_marks"  # the attribute of a marked tensor: dimension -> Mark
_LARGEST = 1 << 62
_PERMITS = (
    "makes_in_loops", "predicts_draws", "checks_branches", "checks_sizes", "traces_hooks", "calls_hooks",
    "repeats_calls",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """A user's mark on a dimension. `kind`: dynamic, maybe, static or unbacked; `least` and `most` bound the size."""

    kind: str
    least: int | None = None
    most: int | None = None


@dataclass(slots=True)
class CaptureHistory:
    """Sizes and numbers seen by the captures of one code object, by source, and which of them varied.  `concrete`: the
    current capture uses no symbols.  `makes_in_loops`: functions that are called in a loop may read numbers and sizes
    from tensors as unbacked symbols.  `predicts_draws`: guards may predict the results of random draws.  `begun`: it
    holds what a first call had, which the stance made run without a capture that stays.  `checks_branches`: a branch on
    data may become a check of the graph, see `interp.asserts`. `checks_sizes`: so may what an operator assumes about
    sizes that depend on data.  `traces_hooks`: hooks of tensors are traced when
    they are registered.  `calls_hooks`: otherwise the graph registers the program's own functions.
    `repeats_calls`: calls of equal modules are traced once."""

    numbers: dict[Source, Any] = field(default_factory=dict)
    sizes: dict[Source, tuple[int, ...]] = field(default_factory=dict)
    varied: set[tuple[Source, int | None]] = field(default_factory=set)
    concrete: bool = False
    makes_in_loops: bool = True
    predicts_draws: bool = True
    begun: bool = False
    checks_branches: bool = True
    checks_sizes: bool = True
    traces_hooks: bool = True
    calls_hooks: bool = True
    repeats_calls: bool = True

    def number_varies(self, source: Source, value: Any) -> bool:
        if self.numbers.setdefault(source, value) != value:
            self.varied.add((source, None))
        return (source, None) in self.varied

    def varying_dims(self, source: Source, sizes: tuple[int, ...]) -> set[int]:
        before = self.sizes.setdefault(source, sizes)
        if len(before) != len(sizes):
            self.sizes[source] = before = sizes
        self.varied.update((source, dim) for dim, size in enumerate(sizes) if size != before[dim])
        return {dim for dim in range(len(sizes)) if (source, dim) in self.varied}

    def note(self, names: Sequence[str], arguments: Sequence[Any], varied: Sequence[Any] = ()) -> None:
        """Note what a capture of another process had: the sizes of tensors among the arguments, and the numbers.
        `varied`: those that vary in it, as pairs of a path and a dimension (see FrameRecord)."""
        self.begun = True
        for index, (name, value) in enumerate(zip(names, arguments, strict=False)):
            self._note(LocalSource(name, index), value)
        for (index, *steps), dim in varied:
            source: Source = LocalSource(names[index], index)
            for step in steps:
                source = (SeqItemSource if type(step) is int else DictItemSource)(source, step)
            self.varied.add((source, dim))

    def _note(self, source: Source, value: Any) -> None:
        match value:
            case None:
                pass
            case tuple():
                self.varying_dims(source, value)
            case list():
                for index, item in enumerate(value):
                    self._note(SeqItemSource(source, index), item)
            case dict():
                for key, item in value.items():
                    self._note(DictItemSource(source, key), item)
            case _:
                self.number_varies(source, value)

    def join(self, other: CaptureHistory) -> None:
        """Note what the captures of equal code had."""
        for source, number in other.numbers.items():
            self.number_varies(source, number)
        for source, sizes in other.sizes.items():
            self.varying_dims(source, sizes)
        self.varied |= other.varied
        for name in _PERMITS:
            setattr(self, name, getattr(self, name) and getattr(other, name))

    def begin(self, names: Sequence[str], arguments: Sequence[Any]) -> None:
        """Note the sizes of tensors and the numbers among the arguments of a call that runs eagerly."""
        self.begun = True
        for index, (name, value) in enumerate(zip(names, arguments, strict=False)):
            if isinstance(value, torch.Tensor) and not is_wrapper(value):
                self.varying_dims(LocalSource(name, index), tuple(value.shape))
            elif type(value) in (int, float):
                self.number_varies(LocalSource(name, index), value)


def marks_of(tensor: torch.Tensor) -> dict[int, Mark]:
    """The marks of a tensor by dimension, including those set by torch._dynamo's functions (`mark_dynamic` etc.)."""
    marks: dict[int, Mark] = {}
    for attribute, kind in (
        ("_dynamo_weak_dynamic_indices", "maybe"), ("_dynamo_static_indices", "static"),
        ("_dynamo_unbacked_indices", "unbacked"), ("_dynamo_dynamic_indices", "dynamic"),
    ):  # fmt: skip
        marks.update(dict.fromkeys(getattr(tensor, attribute, ()), Mark(kind)))
    for limits in getattr(tensor, "_dynamo_dynamic_range", ()):
        marks[limits.dim] = Mark("dynamic", limits.min, limits.max)
    marks.update(getattr(tensor, MARKS, {}))
    return marks


# ---- numbers ----------------------------------------------------------------------------------------------


def wrap_number(
    tx: Tracer, value: int | float, source: Source | None, holder: Source | None = None
) -> NumberVar | None:
    """The Var of an int or float that is taken as a variable; None if it is taken as a constant. `holder`: the source
    of the object that it is read from, such as a numpy scalar."""
    if source is None or tx.options.dynamic is False:
        return None
    in_loop = tx.known is not None and tx.known.loops
    if in_loop and not (tx.known is not None and tx.known.is_symbol(source)):
        return None
    varies = tx.graph.history.number_varies(source, value) or in_loop
    if type(value) is int:
        chosen = varies or (tx.options.dynamic and _is_argument(holder or source))
        if not chosen or tx.graph.history.concrete or value in (0, 1) or abs(value) >= _LARGEST:
            return None
        tx.guard(source, "TYPE", int)
        sym = tx.graph.numbers.shapes.integer(source, value)
        tx.graph.numbers.values[source] = sym
        return NumberVar(tx, source, sym, source=source)
    chosen = varies or (tx.options.float_inputs and _is_argument(holder or source))
    if not chosen or not math.isfinite(value):
        return None
    tx.guard(source, "TYPE", float)
    tx.graph.numbers.values[source] = value
    return NumberVar(tx, source, None, value, source)


def _is_argument(source: Source) -> bool:
    """Whether a value is an argument of the frame, or an item in a container that is one."""
    while isinstance(source, SeqItemSource | DictItemSource):
        source = source.parent
    return isinstance(source, LocalSource)


# ---- tensors ----------------------------------------------------------------------------------------------


def wrap_tensor(tx: Tracer, value: torch.Tensor, source: Source) -> TensorVar | None:
    """The Var of a tensor as a guarded graph input; None for a wrapper subclass that cannot wrap fake tensors."""
    if is_jagged(value):
        return _jagged(tx, value, source)
    dims = _dynamic_dims(tx, value, source)
    if dims and is_wrapper(value) and (symbolic_fake := _symbolic_wrapper(tx, value, source, dims)) is not None:
        guard_metadata(tx, value, source, symbolic_fake)
        return tx.graph.input(source, value, fake=symbolic_fake)
    fake = None
    if is_wrapper(value):
        dims = {}
        try:
            fake = tx.graph.fake_of_input(value)
        except (RuntimeError, TypeError, ValueError, AssertionError, AttributeError):  # raised by the subclass
            return None
    sizes: Sequence[Any] = tuple(value.shape)
    strides: Sequence[Any] = tuple(value.stride())
    if dims:
        sizes = [_size(tx, SizeSource(source, dim), size, dims.get(dim)) for dim, size in enumerate(sizes)]
    if dims or fake is None and _may_have_symbols(tx, value, source):
        strides = _symbolic_strides(tx, source, sizes, value)
    tx.guard(source, "TENSOR", _meta(value, sizes, strides))
    if not any(isinstance(number, SYMBOLIC) for number in (*sizes, *strides)):
        return tx.graph.input(source, value, fake=fake)
    for dim, mark in dims.items():
        _limit(tx, SizeSource(source, dim), value.size(dim), mark)
    for dim, stride in enumerate(strides):
        there = StrideSource(source, dim)
        if isinstance(stride, SYMBOLIC) and there not in tx.graph.numbers.values:
            assume(tx, Expr("==", (there, tree_of(from_symbolic(stride)))))
    return tx.graph.input(source, value, (sizes, strides))


def _meta(value: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> TensorMeta:
    return TensorMeta(
        type(value), value.dtype, value.device, _known(sizes), _known(strides), value.requires_grad,
        torch._C._dispatch_keys(value).raw_repr(),
    )  # fmt: skip


def guard_metadata(tx: Tracer, value: torch.Tensor, source: Source, fake: torch.Tensor) -> None:
    """Guard the metadata of `value` by that of `fake`: sizes and strides that are ints in `fake` are checked as
    constants, symbolic ones as relations between the symbols."""
    tx.guard(source, "TENSOR", _meta(value, tuple(fake.shape), fake.stride()))
    for place, numbers in ((SizeSource, fake.shape), (StrideSource, fake.stride())):
        for dim, number in enumerate(numbers):
            there = place(source, dim)
            if isinstance(number, SYMBOLIC) and number is not tx.graph.numbers.values.get(there):
                tree = tree_of(from_symbolic(number))
                if tree != there:
                    assume(tx, Expr("==", (there, tree)))


# ---- wrapper subclasses -----------------------------------------------------------------------------------


def _symbolic_wrapper(tx: Tracer, value: torch.Tensor, source: Source, dims: dict[int, Mark]) -> torch.Tensor | None:
    """A fake wrapper subclass with symbolic sizes; None if the class cannot wrap inner tensors with symbolic sizes."""
    sizes: list[Any] = [_size(tx, SizeSource(source, dim), n, dims.get(dim)) for dim, n in enumerate(value.shape)]
    for dim, mark in dims.items():
        _limit(tx, SizeSource(source, dim), value.size(dim), mark)
    outer = {dim: (value.size(dim), sizes[dim]) for dim in dims}
    fake = _symbolic_instance(tx, value, source, sizes, outer)
    return fake.requires_grad_() if fake is not None and value.requires_grad else fake


def _jagged(tx: Tracer, value: torch.Tensor, source: Source) -> TensorVar:
    """A jagged tensor as a graph input. Its sizes follow from those of its inner tensors. The nested int that stands
    for the ragged one belongs to the offsets; the fake tensor has the one of this call."""
    names, context = parts_of(value)
    parts = {name: _symbolic_part(tx, getattr(value, name), AttrSource(source, name), {}) for name in names}

    def build() -> torch.Tensor:
        with torch.inference_mode(value.is_inference()), tx.graph.fake_mode, torch.no_grad():
            return rebuilt(type(value), parts, context, value.shape, value.stride())

    try:
        fake = build()
    except ValueError:  # a nested int has no product with a symbolic stride: use constant sizes
        parts = {name: tx.graph.fake_mode.from_tensor(getattr(value, name), static_shapes=True) for name in names}
        fake = build()
    tx.guard(source, "TYPE", type(value))
    return tx.graph.input(source, value, fake=fake)


Outer = dict[int, tuple[int, Any]]  # dimension of the outer tensor -> its size, and the symbol for the size


def _symbolic_instance(
    tx: Tracer, value: torch.Tensor, source: Source, sizes: list[Any], outer: Outer
) -> torch.Tensor | None:
    """A fake instance of the wrapper subclass with these sizes; None if its class cannot build one."""
    strides = _symbolic_strides(tx, source, sizes, value)
    names, context = parts_of(value)
    parts = {name: _symbolic_part(tx, getattr(value, name), AttrSource(source, name), outer) for name in names}
    if any(part is None for part in parts.values()):
        return None
    try:
        with torch.inference_mode(value.is_inference()), tx.graph.fake_mode, torch.no_grad():
            fake = rebuilt(type(value), parts, context, torch.Size(sizes), tuple(strides))
            same = [int(n) == m for n, m in zip(map(hint, (*fake.shape, *fake.stride())), _layout(value))]
    except (RuntimeError, TypeError, ValueError, AssertionError):  # raised by the subclass: use constant sizes
        return None
    return fake if all(same) and fake.dim() == value.dim() else None


def _layout(value: torch.Tensor) -> tuple[int, ...]:
    return (*value.shape, *value.stride())


def _symbolic_part(tx: Tracer, part: torch.Tensor, source: Source, outer: Outer) -> torch.Tensor | None:
    """A fake inner tensor. A dimension whose size equals a symbolic one of the outer tensor gets the same symbol. None
    for a nested wrapper subclass that cannot be built with symbolic sizes."""
    wraps = is_wrapper(part)
    dims = {} if wraps else _dynamic_dims(tx, part, source)
    sizes: list[Any] = list(part.shape)
    for dim, size in enumerate(sizes):
        equal = [sym for at, (n, sym) in sorted(outer.items(), key=lambda each: each[0] != dim) if n == size]
        if equal and size > 1 and (wraps or _can_vary(part)):
            sizes[dim] = equal[0]
        elif dim in dims:
            sizes[dim] = _size(tx, SizeSource(source, dim), size, dims[dim])
            _limit(tx, SizeSource(source, dim), size, dims[dim])
    if not any(isinstance(size, SYMBOLIC) for size in sizes):
        return tx.graph.fake_mode.from_tensor(part, static_shapes=True)
    if wraps:
        return _symbolic_instance(tx, part, source, sizes, outer)
    strides = _symbolic_strides(tx, source, sizes, part)
    return tx.graph.fake_of_input(part, (sizes, strides))


def _known(values: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(None if isinstance(value, SYMBOLIC) else value for value in values)


def _dynamic_dims(tx: Tracer, value: torch.Tensor, source: Source) -> dict[int, Mark]:
    if isinstance(source, ConstSource) or not (value.is_leaf if is_wrapper(value) else _is_dense(value)):
        return {}
    sizes = tuple(value.shape)
    dims: set[int] = set()
    if tx.options.dynamic is None:
        dims = tx.graph.history.varying_dims(source, sizes)
    elif tx.options.dynamic and not isinstance(source, ModuleAttrSource):
        dims = set(range(len(sizes)))
    chosen = {dim: Mark("maybe") for dim in dims}
    for dim, mark in marks_of(value).items():
        if mark.kind == "static":
            chosen.pop(dim, None)
        elif 0 <= dim < len(sizes):
            chosen[dim] = mark
    if tx.graph.history.concrete:
        return {}
    return {dim: mark for dim, mark in chosen.items() if sizes[dim] > 1 or mark.kind == "unbacked"}


def _may_have_symbols(tx: Tracer, value: torch.Tensor, source: Source) -> bool:
    """Whether strides of a tensor that varied between captures become symbols although its sizes are constants."""
    allowed = tx.options.dynamic is not False and not tx.graph.history.concrete
    return allowed and not isinstance(source, ConstSource) and _is_dense(value)


def _is_dense(value: torch.Tensor) -> bool:
    return type(value) is torch.Tensor and _can_vary(value)


def _can_vary(value: torch.Tensor) -> bool:
    """Whether sizes and strides are enough to build a fake tensor like `value` with other sizes."""
    if value.is_conj() or value.is_neg() or elements_overlap(value):
        return False
    return value.is_leaf or bool(torch.ops.aten.is_non_overlapping_and_dense(value))


def _size(tx: Tracer, source: Source, value: int, mark: Mark | None) -> Any:
    if mark is None:
        return value
    shapes = tx.graph.numbers.shapes
    sym = shapes.unbacked(source) if mark.kind == "unbacked" else shapes.size(source, value)
    tx.graph.numbers.values[source] = sym
    if mark.kind == "dynamic":
        tx.graph.numbers.promised.add(source)
    return sym


def _limit(tx: Tracer, source: Source, size: int, mark: Mark) -> None:
    if not (mark.least or 0) <= size <= (size if mark.most is None else mark.most):
        raise UserError(f"{source} is {size}, but was marked to lie between {mark.least} and {mark.most}")
    least = max(2, mark.least or 0) if mark.kind != "unbacked" else mark.least
    shapes = tx.graph.numbers.shapes
    if least is not None:
        assume(tx, Expr(">=", (source, Number.of(least))))
    if mark.most is not None:
        assume(tx, Expr("<=", (source, Number.of(mark.most))))
    shapes.narrow(source, least, mark.most)


def _symbolic_strides(tx: Tracer, source: Source, sizes: Sequence[Any], value: torch.Tensor) -> list[Any]:
    """The strides of `value`.  A stride that is the product of sizes of inner dimensions becomes that product of
    symbols; another stride becomes a symbol of its own if it varied between captures."""
    strides = value.stride()
    found: list[Any] = list(strides)
    spans: dict[int, Any] = {1: 1}  # elements that inner dimensions span -> the same as an expression
    for dim in sorted(range(len(sizes)), key=lambda dim: (strides[dim], -dim)):
        stride = strides[dim]
        varies = tx.options.dynamic is not False and tx.graph.history.number_varies(StrideSource(source, dim), stride)
        if stride in spans:
            found[dim] = spans[stride]
        elif stride > 1 and varies:
            found[dim] = tx.graph.numbers.shapes.size(StrideSource(source, dim), stride)
            tx.graph.numbers.values[StrideSource(source, dim)] = found[dim]
            assume(tx, Expr(">=", (StrideSource(source, dim), Number.of(2))))
        spans[stride * value.size(dim)] = found[dim] * sizes[dim]
    return found


def fake_of(value: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> torch.Tensor:
    """A fake tensor like `value` with these sizes and strides; must be called under the fake mode."""
    fake = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    if not value.requires_grad:
        return fake
    fake.requires_grad_()
    if value.is_leaf:
        return fake
    with torch.enable_grad():
        return fake.clone()
