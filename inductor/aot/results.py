"""Describes how each output of a traced graph is obtained: computed, an input, a view, or a constant.

`classify` derives this, and the list of tensors that the forward has to return, from storages and autograd metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..overlap import elements_overlap
from ..runtime.related_results import Related
from .functionalize import NotFunctional, RunsBetween, storage_of
from .plain_memory import refuse_special
from .relations import relations_of_detached, share_counter

_creation_of = torch._C._autograd._get_creation_meta
_MULTIPLE = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
_DEFAULT = torch._C._autograd.CreationMeta.DEFAULT
_NO_GRAD = torch._C._autograd.CreationMeta.NO_GRAD_MODE


@dataclass(frozen=True)
class Constant:
    """A result that is not a tensor."""

    value: Any


@dataclass(frozen=True)
class Computed:
    """A result that is the returned tensor number `index`."""

    index: int


@dataclass(frozen=True)
class Input:
    """A result that is the input number `index` itself."""

    index: int


@dataclass(frozen=True)
class View:
    """A result that is a view of a computed tensor or an input, `offset` elements after the base's first element.

    `grad`: gradients flow through the view. `tracked`: autograd knows that it is a view (true for a view made under
    no_grad, false for a detached tensor or a view of one). `one_of_many`: an operator returned it with other views;
    autograd refuses writes to these. `recordable`: autograd may record writes to it; not to a view made under no_grad.
    `counted`: writes to it count as writes to the base (not so for `x.data`).
    """

    base: Computed | Input
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int | torch.SymInt
    grad: bool
    tracked: bool
    one_of_many: bool = False
    recordable: bool = True
    counted: bool = True


Result = Constant | Computed | Input | View


class RecordedWrites(RunsBetween):
    """Some nodes write to an input in a way that autograd records, or change its sizes, strides or `requires_grad`."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(nodes, "it writes to inputs where autograd records the write, or changes their metadata")


@dataclass(frozen=True)
class InputState:
    """Properties of an input that only a write may change while the graph runs."""

    grad_fn: Any
    requires_grad: bool
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def of(x: torch.Tensor) -> InputState:
        return InputState(x.grad_fn, x.requires_grad, tuple(x.shape), x.stride())


@dataclass
class ForwardOutputs:
    """Functional tensors after the forward. `returned`: computed tensors, of which the first `differentiable` have a
    gradient. `written`: (number of the input, its new value). `origins[k]`: (n, is_base): flat result n is returned[k],
    or a view whose base is returned[k]; None if there is none."""

    results: tuple[Result, ...]
    structure: pytree.TreeSpec
    returned: list[torch.Tensor]
    differentiable: int
    origins: tuple[tuple[int, bool] | None, ...]
    written: list[tuple[int, torch.Tensor]]
    tangents: list[torch.Tensor] = field(default_factory=list)
    uncounted: tuple[int, ...] = ()  # the written inputs whose version counters stay the same
    related: tuple[Related, ...] = ()  # steps for `related_results` after all results are made


def classify(
    values: Sequence[Any], structure: pytree.TreeSpec, primals: Sequence[Any], before: Sequence[InputState | None]
) -> ForwardOutputs:
    """Classify the results `values` of a run on functional `primals`. NotFunctional if no class fits."""
    refuse_special(values)
    written = _writes(primals, before)
    owner = {storage_of(x): i for i, x in enumerate(primals)}
    bases = _bases(values, owner)
    unique = _unique(base for base in bases if base is not None)
    returned = sorted(unique, key=lambda x: x.grad_fn is None)  # a stable sort
    index = {id(x): k for k, x in enumerate(returned)}
    results: list[Result] = []
    for value, base in zip(values, bases):
        if not isinstance(value, torch.Tensor):
            results.append(Constant(value))
        elif base is not None:
            results.append(_result(value, base, Computed(index[id(base)])))
        else:
            i = owner[storage_of(value)]
            if value is not primals[i]:
                _sync(value, primals[i], before[i])
            results.append(_result(value, primals[i], Input(i)))
    views = {
        k: primals[owner[storage_of(value)]] if base is None else base
        for k, (value, base) in enumerate(zip(values, bases))
        if isinstance(results[k], View)
    }
    origin = {id(base): (n, True) for n, base in enumerate(bases) if base is not None and values[n]._base is base}
    origin |= {id(base): (n, False) for n, base in enumerate(bases) if base is values[n]}
    return ForwardOutputs(
        tuple(results),
        structure,
        returned,
        sum(x.grad_fn is not None for x in returned),
        tuple(origin.get(id(x)) for x in returned),
        [(i, primals[i]) for i in written],
        related=relations_of_detached(values, views),
    )


def _writes(primals: Sequence[Any], before: Sequence[InputState | None]) -> list[int]:
    """The inputs written unseen by autograd. NotFunctional if anything else about an input has changed."""
    written = []
    for i, (x, old) in enumerate(zip(primals, before)):
        if old is None:  # a number
            continue
        if InputState.of(x) != old or torch._functionalize_was_storage_changed(x):
            raise NotFunctional("the metadata of an input is changed in place")
        if torch._functionalize_has_data_mutation(x):  # type: ignore[attr-defined]  # not in torch's stubs
            if elements_overlap(x):  # the final copy would write all elements, even if only some were written
                raise NotFunctional("an input whose elements overlap in memory is mutated")
            written.append(i)
    return written


def _bases(values: Sequence[Any], owner: dict[Any, int]) -> list[torch.Tensor | None]:
    """For each result, the tensor to compute for it; None if it is not a tensor or lies in an input's memory."""
    groups: dict[Any, list[torch.Tensor]] = {}
    for value in values:
        if isinstance(value, torch.Tensor) and storage_of(value) not in owner:
            if value.requires_grad and value.is_leaf and not value._is_view():  # a view under no_grad looks like a leaf
                raise NotFunctional("a leaf tensor that requires grad is created")
            groups.setdefault(storage_of(value), []).append(value)
    chosen = {key: _base(_unique(members)) for key, members in groups.items()}
    return [chosen.get(storage_of(x)) if isinstance(x, torch.Tensor) else None for x in values]


def _base(members: list[torch.Tensor]) -> torch.Tensor:
    """One tensor that all of these results, which share memory, can be views of."""
    if len(members) == 1:
        if members[0].requires_grad and members[0].grad_fn is None:
            raise NotFunctional("a differentiable value is returned only as a view created under no_grad")
        return members[0]
    bases = _unique(x._base if x._is_view() and x._base is not None else x for x in members)
    graded = [x for x in bases if x.grad_fn is not None]
    base = graded[0] if graded else max(bases, key=torch.Tensor.numel)
    if len(graded) > 1 or not dense(base.shape, base.stride()):
        raise NotFunctional("results share memory without one base tensor that contains them")
    for x in members:
        first, last = _span(x)
        if first < _span(base)[0] or last > _span(base)[1]:
            raise NotFunctional("results overlap in memory and none contains the others")
    return base


def _sync(value: torch.Tensor, primal: torch.Tensor, before: InputState | None) -> None:
    """Sync an input and a view of it, so that their strides and offsets are current. After a write they describe the
    input's new value. NotFunctional if that has another layout than the input, because the view's strides in the input
    are then unknown."""
    torch._sync(primal)
    torch._sync(value)
    if before is not None and (tuple(primal.shape), primal.stride()) != (before.size, before.stride):
        raise NotFunctional("a view is returned of a mutated input whose memory layout has gaps")


def _result(value: torch.Tensor, base: torch.Tensor, source: Computed | Input) -> Result:
    if value is base:
        refused = _creation_of(value) if value._is_view() and isinstance(source, Computed) else _DEFAULT
        if refused in (_MULTIPLE, _NO_GRAD):  # a view of the computed tensor, as autograd refuses to record writes
            graded = value.grad_fn is not None
            return View(source, tuple(value.shape), value.stride(), 0, graded, True, refused == _MULTIPLE, False)
        return source
    if value.dtype != base.dtype or value.is_conj() or value.is_neg():
        raise NotFunctional("a result is a view of a tensor of another dtype")
    tracked = value.grad_fn is not None
    if tracked and value._base is not base:
        raise NotFunctional("a result shares memory with a tensor of which it is no view for autograd")
    if tracked and not _reaches(value, base):
        raise NotFunctional("a differentiable value is returned only as a view of one created under no_grad")
    if tracked and isinstance(source, Input) and elements_overlap(base):
        # View.grad uses as_strided, whose derivative averages the gradients of elements that share memory
        raise NotFunctional("a differentiable view is returned of an input whose elements overlap in memory")
    offset = value.storage_offset() - base.storage_offset()
    # a view of a detached tensor is not a view of `base`: its requires_grad differs from that of a view of `base`
    is_view = value._is_view() and value.requires_grad == base.requires_grad
    creation = _creation_of(value) if value._is_view() else None
    return View(
        source, tuple(value.shape), value.stride(), offset, tracked, is_view, creation == _MULTIPLE,
        creation == _DEFAULT, share_counter(base, value),
    )  # fmt: skip


def _reaches(value: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether gradients of `value` flow to `base`, of which it is a view: not through a view created under no_grad."""
    end = torch.autograd.graph.get_gradient_edge(base).node
    seen, ahead = set(), [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is end:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [source for source, _ in node.next_functions]
    return False


def _span(x: torch.Tensor) -> tuple[int | torch.SymInt, int | torch.SymInt]:
    """The positions of the first and last element, counted from the start of the storage."""
    first = x.storage_offset()
    return first, first + sum((n - 1) * s for n, s in zip(x.shape, x.stride()))


def _unique(values: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(x): x for x in values}.values())


def dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a tensor of this layout has no gaps and no overlaps: it is a permuted contiguous tensor."""
    expected = 1
    for step, length in sorted((s, n) for n, s in zip(size, stride) if n != 1):
        if step != expected:
            return 0 in size
        expected *= length
    return True
