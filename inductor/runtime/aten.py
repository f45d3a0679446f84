"""ATen overloads by name, and calls of them with some arguments filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .plan_spec import BufRef, Extern


def overload(target: str) -> Any:
    """The overload of a name like "aten.addmm.default"."""
    namespace, name, variant = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), variant)


def map_refs(value: Any, convert: Callable[[BufRef], Any]) -> Any:
    """`value` with `convert` applied to every BufRef inside lists and tuples."""
    if isinstance(value, BufRef):
        return convert(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_refs(item, convert) for item in value)
    return value


def bind_extern(step: Extern) -> tuple[Callable[..., Any], tuple[int, ...]]:
    """The step as a function of tensors alone, and the buffers to pass."""
    op = overload(step.target)
    bufs: list[int] = []

    def note(ref: BufRef) -> BufRef:
        if ref.buf not in bufs:
            bufs.append(ref.buf)
        return ref

    map_refs(step.args, note)
    map_refs(tuple(value for _, value in step.kwargs), note)
    if step.out:
        for buf in step.outs:
            note(BufRef(buf))
    if not step.kwargs and not step.out and step.args == tuple(BufRef(buf) for buf in bufs):
        return op, tuple(bufs)
    position = {buf: i for i, buf in enumerate(bufs)}
    args, kwargs = step.args, step.kwargs + tuple((name, BufRef(buf)) for name, buf in zip(step.out, step.outs))

    def call(*tensors: torch.Tensor) -> Any:
        def get(ref: BufRef) -> torch.Tensor:
            return tensors[position[ref.buf]]

        return op(*[map_refs(arg, get) for arg in args], **{name: map_refs(arg, get) for name, arg in kwargs})

    return call, tuple(bufs)
