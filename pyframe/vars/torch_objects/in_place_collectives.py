"""Collectives of `torch.distributed` that write to a tensor of the caller (`dist.all_reduce(x)`).

In a graph each is the functional collective followed by a copy into that tensor, which the compiler can schedule as any
other operator. Asynchronous ones, and those of tensors for which autograd records operators, run eagerly: functional
collectives have derivatives, and these have none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...core.source import ConstSource
from ..containers.sequence import ListVar
from ..objects.instances import InstanceVar
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING
from ..protocol.const import ConstVar, make
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .process_groups import ProcessGroupVar
from .tensor import TensorVar

Write = Callable[[Tracer, "_Call"], None]


class _NotCaptured(Exception):
    """The call runs eagerly; the text says why."""


class _Call:
    """The arguments of a call by name."""

    def __init__(self, tx: Tracer, bound: Mapping[str, Var]) -> None:
        self.tx, self.bound = tx, bound

    def tensor(self, name: str) -> TensorVar:
        return _plain(self.bound.get(name))

    def tensors(self, name: str) -> list[TensorVar]:
        given = self.bound.get(name)
        if not isinstance(given, ListVar):
            raise _NotCaptured(f"{name} is no list")
        return [_plain(each) for each in given.items]

    def group(self) -> ProcessGroupVar:
        given = self.bound.get("group")
        if given is None or given.is_constant() and given.constant() is None:
            world = dist.group.WORLD
            given = self.tx.wrap(world, ConstSource.of(world, "group.WORLD"))
        if not isinstance(given, ProcessGroupVar):
            raise _NotCaptured("this process is not in the group")
        return given

    def operation(self) -> str:
        """The name that functional collectives have for the reduction."""
        given = self.bound.get("op")
        if given is None:
            return "sum"
        value = given.value if isinstance(given, InstanceVar) and given.value is not MISSING else _constant(given)
        for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            if value == getattr(dist.ReduceOp, name):
                if given.source is not None:
                    self.tx.guard(given.source, "ID", value)
                return name.lower()
        raise _NotCaptured("the reduction")

    def constant(self, name: str) -> Var:
        """An argument that has a constant value; None by default."""
        given = self.bound.get(name, ConstVar(None))
        _constant(given)
        return given


def _plain(var: Var | None) -> TensorVar:
    if not isinstance(var, TensorVar) or var.owner is not None:
        raise _NotCaptured("an argument is no plain tensor")
    if torch.is_grad_enabled() and var.fake.requires_grad:
        raise _NotCaptured("autograd records operators of a tensor")
    return var


def _constant(var: Var) -> Any:
    try:
        return var.constant()
    except NotConstant:
        raise _NotCaptured("an argument is known only at run time") from None


def _model(function: Callable[..., Any], write: Write) -> Handler:
    signature = inspect.signature(function)

    def handle(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            tx.raise_(TypeError, *error.args)
        try:
            if "async_op" in bound and _constant(bound["async_op"]):
                raise _NotCaptured("it is asynchronous")
            write(tx, _Call(tx, bound))
        except _NotCaptured as why:
            tx.graph_break("unsupported-object", f"torch.distributed.{function.__name__}: {why}")
        return ConstVar(None)

    return handle


def _copy(tx: Tracer, to: TensorVar, result: Var) -> None:
    """Write a result into a tensor of as many elements."""
    shaped = result.call_method(tx, "view", to.sizes().items, {})
    to.call_method(tx, "copy_", [shaped], {})


def _all_reduce(tx: Tracer, call: _Call) -> None:
    tensor = call.tensor("tensor")
    _copy(tx, tensor, tx.inline(functional.all_reduce, [tensor, make(call.operation()), call.group()], {}))


def _all_gather_into_tensor(tx: Tracer, call: _Call) -> None:
    output, tensor = call.tensor("output_tensor"), call.tensor("input_tensor")
    _copy(tx, output, tx.inline(functional.all_gather_tensor, [tensor, make(0), call.group()], {}))


def _all_gather(tx: Tracer, call: _Call) -> None:
    outputs, tensor = call.tensors("tensor_list"), call.tensor("tensor")
    flat = tensor.call_method(tx, "reshape", [make(1), make(-1)], {})
    whole = tx.inline(functional.all_gather_tensor, [flat, make(0), call.group()], {})
    for number, output in enumerate(outputs):
        _copy(tx, output, whole.getitem(tx, make(number)))


def _reduce_scatter_tensor(tx: Tracer, call: _Call) -> None:
    output, tensor = call.tensor("output"), call.tensor("input")
    flat = tensor.call_method(tx, "reshape", [make(-1)], {})
    _copy(
        tx, output,
        tx.inline(functional.reduce_scatter_tensor, [flat, make(call.operation()), make(0), call.group()], {}),
    )  # fmt: skip


def _all_to_all_single(tx: Tracer, call: _Call) -> None:
    output, tensor = call.tensor("output"), call.tensor("input")
    sizes: Sequence[Var] = (call.constant("output_split_sizes"), call.constant("input_split_sizes"))
    _copy(tx, output, tx.inline(functional.all_to_all_single, [tensor, *sizes, call.group()], {}))


def _broadcast(tx: Tracer, call: _Call) -> None:
    tensor, group = call.tensor("tensor"), call.group()
    source, in_group = _constant(call.constant("src")), _constant(call.constant("group_src"))
    if (source is None) is (in_group is None):
        raise _NotCaptured("the rank that sends")
    rank = in_group if source is None else dist.get_group_rank(group.value, source)
    _copy(tx, tensor, tx.inline(functional.broadcast, [tensor, make(rank), group], {}))


if dist.is_available():
    from torch.distributed import _functional_collectives as functional

    _WRITES: dict[str, Write] = {
        "all_reduce": _all_reduce, "all_gather": _all_gather, "broadcast": _broadcast,
        "all_gather_into_tensor": _all_gather_into_tensor, "all_gather_single": _all_gather_into_tensor,
        "reduce_scatter_tensor": _reduce_scatter_tensor, "reduce_scatter_single": _reduce_scatter_tensor,
        "all_to_all_single": _all_to_all_single,
    }  # fmt: skip
    for _name, _write in _WRITES.items():
        if _function := getattr(dist, _name, None):  # two of the names are new in torch 2.13
            register(_function)(_model(_function, _write))
