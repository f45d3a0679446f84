"""Choices between tensors that depend on their values: `min`, `max` and `sorted` of tensors, and items of a list at an
index that was read from a tensor.

The graph makes the choice when it runs: a node calls Python's own function on the tensors and returns one of them, the
object itself. So ties, NaN, gradients (the other tensors get none) and identity are those of eager. What the trace must
know of the result is the same for every outcome: only tensors with equal metadata are chosen from, and a write to the
result, which would be a write to one of several tensors, breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ...core import symbolic
from ...core.in_order import in_order
from ..containers.sequence import SequenceVar
from ..numbers.symint import NumberVar, apply, is_number, is_unbacked
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..tracer import Tracer
from .tensor import TensorVar

_INT64 = range(-(2**63), 2**63)


class _Any(torch.autograd.Function):
    """Makes a fake tensor with the metadata of the fake tensors that it takes, which depends on each of them."""

    @staticmethod
    def forward(ctx: Any, *candidates: torch.Tensor) -> torch.Tensor:
        first = candidates[0]
        ctx.count = len(candidates)
        return torch.empty_strided(first.shape, first.stride(), dtype=first.dtype, device=first.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gradients * ctx.count


class ChosenVar(TensorVar):
    """One of several tensors; which one is known when the graph runs."""

    __slots__ = ("candidates",)
    is_ambiguous = True

    def __init__(self, node: fx.Node, fake: torch.Tensor, candidates: Sequence[Var]) -> None:
        super().__init__(node, fake)
        self.candidates = candidates

    def may_be(self, other: Var) -> bool:
        return any(each is other or each.may_be(other) for each in self.candidates) or isinstance(other, ChosenVar)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("grad_fn", "grad", "is_leaf", "_base", "_is_view"):
            return self.unsupported(tx, f"attribute {name!r}")
        if not hasattr(torch.Tensor, name):  # the program may have set it on a candidate
            return self.unsupported(tx, f"attribute {name!r}")
        return super().getattr_(tx, name)

    def hash_(self, tx: Tracer) -> Var | None:
        return self.unsupported(tx, "hash()")

    def method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "storage_offset":
            return self.unsupported(tx, f"method {name!r}")
        return super().method(tx, name, args, kwargs)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        self.unsupported(tx, f"setting attribute {name!r}")


def _arranged(reverse: bool) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The node's function for `sorted`: of n items and their n keys, the items in order."""

    @in_order
    def sort(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = len(values) // 2
        places = sorted(range(count), key=values[count:].__getitem__, reverse=reverse)
        return tuple(values[at] for at in places)

    sort.__qualname__, sort.__module__ = "sort", __name__
    return sort


@in_order
def smallest(*values: torch.Tensor) -> tuple[torch.Tensor]:
    """Of n tensors and their n keys, what `min` returns."""
    count = len(values) // 2
    return (values[min(range(count), key=values[count:].__getitem__)],)


@in_order
def largest(*values: torch.Tensor) -> tuple[torch.Tensor]:
    """Of n tensors and their n keys, what `max` returns."""
    count = len(values) // 2
    return (values[max(range(count), key=values[count:].__getitem__)],)


@in_order
def smallest_number(first: float, second: float) -> tuple[torch.Tensor]:
    return (torch.tensor(min(first, second), dtype=torch.float64, device="cpu"),)


@in_order
def largest_number(first: float, second: float) -> tuple[torch.Tensor]:
    return (torch.tensor(max(first, second), dtype=torch.float64, device="cpu"),)


@in_order
def item_at(index: int, *items: torch.Tensor) -> tuple[torch.Tensor]:
    """The tensor at an index; raises IndexError as a list does."""
    return (list(items)[index],)


@in_order
def number_at(index: int, *items: float) -> tuple[torch.Tensor]:
    """The number at an index, as a 0-d tensor; raises IndexError as a list does."""
    return (torch.tensor(list(items)[index], dtype=_dtype_of(items), device="cpu"),)


def _dtype_of(items: Sequence[Any]) -> torch.dtype:
    return torch.int64 if type(items[0]) is int else torch.float64


def extreme(tx: Tracer, name: str, items: Sequence[Var], keys: Sequence[Var]) -> Var | None:
    """`min` or `max` of tensors by their keys, as a node; None if the trace has to compare the keys."""
    if not _can_order(tx, items, keys):
        return None
    return _chosen(tx, smallest if name == "min" else largest, [*items, *keys], items)[0]


def extreme_number(tx: Tracer, name: str, first: Var, second: Var) -> Var | None:
    """`min` or `max` of two numbers as a number, if no guard decides which one it is: of two ints or two floats, one of
    which is read from a tensor, and of two ints that both vary and are not always in the same order. None for any
    others. Equal numbers are the same to the program.

    Of floats one may be NaN, so the order matters. Symbolic expressions have constants first; for another order, a node
    calls Python's function.
    """
    if not is_number(first) or not is_number(second):
        return None
    if not (is_unbacked(first) or is_unbacked(second)):
        return apply(tx, name, first, second) if _order_varies(first, second) else None
    kinds = first.python_type(), second.python_type()
    if kinds == (int, int) or kinds == (float, float) and first.is_constant():
        return apply(tx, name, first, second)
    if kinds != (float, float) or not _can_choose(tx) or not tx.graph.numbers.makes_numbers:
        return None
    with tx.graph.fake_mode:
        number = torch.empty((), dtype=torch.float64, device="cpu")
    choose = smallest_number if name == "min" else largest_number
    return tx.graph.record(choose, [first, second], [number])[0].call_method(tx, "item", [], {})


def _order_varies(first: Var, second: Var) -> bool:
    """Whether two numbers are symbolic ints, neither of which is always the larger one. (A constant is compared with
    a symbol by a guard: the two outcomes have simpler sizes than one graph for both.)"""
    if not isinstance(first, NumberVar) or not isinstance(second, NumberVar):
        return False
    if first.is_constant() or second.is_constant():
        return False
    a, b = first.sym, second.sym
    if not isinstance(a, torch.SymInt) or not isinstance(b, torch.SymInt):
        return False
    return not symbolic.surely_true(a <= b) and not symbolic.surely_true(a >= b)


def in_sorted_order(tx: Tracer, items: Sequence[Var], keys: Sequence[Var], reverse: bool) -> list[Var] | None:
    """The items sorted by their keys, as a node; None if the trace has to compare the keys."""
    if len(items) < 2 or not _can_order(tx, items, keys):
        return None
    return _chosen(tx, _arranged(reverse), [*items, *keys], items, len(items))


def item_of(tx: Tracer, container: Var, key: Var) -> Var | None:
    """`container[key]` of a list or tuple, as a node, if the key is an int that is read from a tensor and the items
    are tensors with equal metadata or numbers of one type."""
    if not isinstance(container, SequenceVar) or container.family not in (list, tuple) or not container.items:
        return None
    if isinstance(key, TensorVar) and _has_one_element(key) and _can_choose(tx) and tx.graph.numbers.makes_numbers:
        key = key.call_method(tx, "__index__", [], {})
    is_read = isinstance(key, NumberVar) and key.python_type() in (int, bool) and is_unbacked(key)
    if not is_read or not _can_choose(tx):
        return None
    items = list(container.items)
    numbers = [item.value for item in items if isinstance(item, ConstVar)]
    kinds = {type(number) for number in numbers}
    is_list = len(numbers) == len(items) and (kinds == {float} or kinds == {int} and all(n in _INT64 for n in numbers))
    if not tx.graph_error_is_equivalent or not (is_list or _are_alike(tx, items)):
        return None  # a handler must see the IndexError where it is raised
    if not is_list:
        return _chosen(tx, item_at, [key, *items], items)[0]
    with tx.graph.fake_mode:
        number = torch.empty((), dtype=_dtype_of(numbers), device="cpu")
    return tx.graph.record(number_at, [key, *items], [number])[0].call_method(tx, "item", [], {})


def _chosen(
    tx: Tracer, choose: Callable[..., Any], args: Sequence[Var], items: Sequence[Var], count: int = 1
) -> list[Var]:
    """Add the node `choose(*args)`, which returns `count` of `items`."""
    candidates = [item.fake for item in items if isinstance(item, TensorVar)]
    with tx.graph.fake_mode, torch.enable_grad():
        fakes = [_Any.apply(*candidates) for _ in range(count)]
    found: list[Var] = []
    for each in tx.graph.record(choose, args, fakes):
        assert isinstance(each, TensorVar)
        found.append(ChosenVar(each.node, each.fake, items))
        tx.graph.note_choice(each.fake, candidates)
    return found


def _can_choose(tx: Tracer) -> bool:
    return not tx.graph.stack.is_nested and not tx.overrides.in_mode and not torch.is_inference_mode_enabled()


def _can_order(tx: Tracer, items: Sequence[Var], keys: Sequence[Var]) -> bool:
    """Whether a node may compare the keys: their values are unknown, and comparing them cannot raise."""
    if not _can_choose(tx):
        return False
    for key in keys:
        fits = isinstance(key, TensorVar) and _is_plain(tx, key) and not key.fake.is_complex()
        if not fits or not _has_one_element(key):  # type: ignore[arg-type]
            return False
    if all(tx.graph.known.is_known(key) for key in keys):  # type: ignore[arg-type]
        return False
    return len({key.fake.device for key in keys}) == 1 and _are_alike(tx, items)  # type: ignore[attr-defined]


def _has_one_element(tensor: TensorVar) -> bool:
    return isinstance(count := tensor.fake.numel(), int) and count == 1


def _is_plain(tx: Tracer, item: TensorVar) -> bool:
    return item.cls is torch.Tensor and item.owner is None and not item.own_attributes(tx) and not (
        tx.overrides.may_override([item])
    )


def _are_alike(tx: Tracer, items: Sequence[Var]) -> bool:
    """Whether the trace cannot tell the items apart by anything but identity: tensors of equal metadata."""
    if not all(isinstance(item, TensorVar) and _is_plain(tx, item) for item in items):
        return False
    fakes = [item.fake for item in items]  # type: ignore[attr-defined]
    if any(fake.layout is not torch.strided or _is_symbolic(fake) for fake in fakes):
        return False
    return len({_metadata(fake) for fake in fakes}) == 1


def _is_symbolic(fake: torch.Tensor) -> bool:
    sizes: Sequence[Any] = (*fake.shape, *fake.stride())
    return not all(type(size) is int for size in sizes)


def _metadata(fake: torch.Tensor) -> tuple[Any, ...]:
    bits = fake.is_conj(), fake.is_neg(), fake.requires_grad, fake.is_inference()
    return fake.dtype, fake.device, tuple(fake.shape), fake.stride(), *bits
