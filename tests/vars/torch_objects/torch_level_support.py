"""Programs over torch's own Python: run eagerly and captured, each on objects of its own, and compared in all they do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import pyframe
from pyframe.metrics import counters


def rand(*shape: int, grad: bool = True, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def difference(a: Any, b: Any, where: str = "result") -> str | None:
    """What differs between two values: types, tensors with their metadata and gradients, the state of modules."""
    if type(a).__qualname__ != type(b).__qualname__:
        return f"{where}: {type(a)} and {type(b)}"
    if isinstance(a, torch.Tensor):
        meta = [(t.shape, t.dtype, t.layout, t.requires_grad, t.is_leaf, t.is_inference()) for t in (a, b)]
        if meta[0] != meta[1] or a.layout is torch.strided and a.numel() and a.stride() != b.stride():
            return f"{where}: {meta[0]} {a.stride()} and {meta[1]} {b.stride()}"
        if not torch.allclose(a.detach().to_dense(), b.detach().to_dense(), atol=1e-5, equal_nan=True):
            return f"{where}: {a} and {b}"
        return difference(a.grad, b.grad, f"{where}.grad") if a.is_leaf and not a.is_inference() else None
    if isinstance(a, nn.Module):
        return difference({**a.__dict__}, {**b.__dict__}, where)
    if isinstance(a, dict):
        if list(map(str, a)) != list(map(str, b)):
            return f"{where}: {list(a)} and {list(b)}"
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list | tuple):
        found = (difference(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)))
        return f"{where}: {a} and {b}" if len(a) != len(b) else next((each for each in found if each), None)
    plain = isinstance(a, int | float | str | bool | torch.dtype | torch.device | None)
    return f"{where}: {a} and {b}" if plain and a != b else None


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    torch.manual_seed(0)
    try:
        result = fn(*args)
        losses = [t.abs().double().sum() for t in tensors(result) if t.requires_grad and not t.is_leaf]
        if losses:
            sum(losses[1:], losses[0]).backward()
    except Exception as error:  # noqa: BLE001  compared, not hidden
        return type(error).__name__, str(error)
    return result


def agree(build: Callable[[], tuple[Any, list[Any]]], backend: str = "eager", breaks: int | None = 0) -> None:
    """`build` gives a function or module and what happens to it: tuples of arguments of calls, and functions that change
    it between calls."""
    pyframe.reset()
    torch.manual_seed(0)
    eager, script = build()
    torch.manual_seed(0)
    captured, again = build()
    compiled = pyframe.compile(captured, backend=backend)
    for number, (step, same_step) in enumerate(zip(script, again, strict=True)):
        if callable(step):
            for act, target in ((step, eager), (same_step, captured)):
                torch.manual_seed(0)
                act(target)
            continue
        want, got = outcome(eager, step), outcome(compiled, same_step)
        state = (getattr(eager, "state", None), getattr(captured, "state", None))
        states = (eager, captured) if isinstance(eager, nn.Module) else state
        differs = difference(want, got) or difference(step, same_step, "arguments") or difference(*states, "state")
        assert differs is None, f"call {number}: {differs}"
    if breaks is not None:
        assert sum(counters["graph_breaks"].values()) == breaks, counters["graph_breaks"]


class Table:
    """Programs by name: `@table()` on what builds one, `@table(shape, ...)` on a function of tensors of these shapes."""

    def __init__(self) -> None:
        self.cases: dict[str, Callable[[], tuple[Any, list[Any]]]] = {}

    def __call__(self, *shapes: tuple[int, ...], grad: bool = True) -> Callable[[Callable[..., Any]], Any]:
        def add(fn: Callable[..., Any]) -> Callable[..., Any]:
            def build() -> tuple[Any, list[Any]]:
                args = tuple(rand(*shape, grad=grad, seed=i) for i, shape in enumerate(shapes))
                return fn, [args, copy.deepcopy(args)]

            self.cases[fn.__name__] = build if shapes else fn
            return fn

        return add
