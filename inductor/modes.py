"""Lets graphs switch torch's modes while they run: grad mode, autocast, inference mode and settings of the process.

It provides functions that graph nodes call to enter and leave a mode, and `graph_module`, whose GraphModule restores
the modes if an operator raises in between, as the program's `with` statement would do. Which modes are switched is
decided during capture, in pyframe's `vars/torch_objects`; its `emit/graph_modes` adds the nodes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import fx
from torch.autograd import forward_ad

from .autocast import AutocastState

ENTER_AUTOCAST, EXIT_AUTOCAST = torch.amp._enter_autocast, torch.amp._exit_autocast
SET_GRAD = torch._C._set_grad_enabled
Enter = TypeVar("Enter", bound=Callable[..., Any])


class _Entered(threading.local):
    """The modes that this thread entered with `recorded` functions, outermost first, and how to leave each."""

    def __init__(self) -> None:
        self.modes: list[tuple[Any, Callable[[Any], None]]] = []


_entered = _Entered()


def recorded(enter: Enter, leave: Callable[[Any], None]) -> tuple[Enter, Callable[[Any], None]]:
    """Versions of `enter(*args) -> mode` and `leave(mode)` for use as graph nodes, which `left_as_found` can undo.
    Backends that compile graphs in parts run them between the parts."""

    def recording(*args: Any) -> Any:
        mode = enter(*args)
        _entered.modes.append((mode, leave))
        return mode

    def leaving(mode: Any) -> None:
        _entered.modes.remove((mode, leave))
        leave(mode)

    function: Any
    for function, does in ((recording, enter), (leaving, leave)):
        function.__name__ = function.__qualname__ = does.__name__  # for printed graphs
        function.in_order = function.switches_mode = True
    return recording, leaving  # type: ignore[return-value]


ENTER_INFERENCE, EXIT_INFERENCE = recorded(
    torch.autograd.grad_mode._enter_inference_mode, torch.autograd.grad_mode._exit_inference_mode
)


def _enter_dual() -> Any:
    return forward_ad.enter_dual_level()


def _exit_dual(level: Any) -> None:
    forward_ad.exit_dual_level(level=level)


# A level of forward-mode AD. The tensors in between may have tangents, which compiled code would lose.
ENTER_DUAL, EXIT_DUAL = recorded(_enter_dual, _exit_dual)
# The functions that graphs captured elsewhere call instead, and the recorded versions that replace them.
AS_RECORDED = {
    torch.autograd.grad_mode._enter_inference_mode: ENTER_INFERENCE,
    torch.autograd.grad_mode._exit_inference_mode: EXIT_INFERENCE,
}


# A setting of the process: a function that reads it, and one that sets it to a value read earlier.
Setting = tuple[Callable[[], Any], Callable[[Any], Any]]


def left_as_found(
    run: Callable[..., Any], autocast_devices: frozenset[str], settings: Sequence[Setting]
) -> Callable[..., Any]:
    """`run`, except that modes and settings are restored if it raises: what it entered and did not leave is left."""

    @functools.wraps(run)
    def call(*args: Any, **kwargs: Any) -> Any:
        depth, grad = len(_entered.modes), torch.is_grad_enabled()
        casts = AutocastState(autocast_devices) if autocast_devices else None
        found = [(write, read()) for read, write in settings]
        try:
            return run(*args, **kwargs)
        except BaseException:
            while len(_entered.modes) > depth:
                mode, leave = _entered.modes.pop()
                leave(mode)
            SET_GRAD(grad)
            if casts is not None:
                casts.restore()
            for write, value in reversed(found):
                write(value)
            raise

    return call


class ModeModule(fx.GraphModule):
    """A graph that switches modes; if it raises, the modes and `settings` are restored."""

    settings: Sequence[Setting] = ()

    def recompile(self) -> Any:
        code = super().recompile()
        cls: Any = type(self)
        devices = frozenset(node.args[0] for node in self.graph.nodes if node.target is ENTER_AUTOCAST)
        cls.forward = left_as_found(cls.forward, devices, self.settings)
        return code


def graph_module(root: torch.nn.Module, graph: fx.Graph, settings: Sequence[Setting] = ()) -> fx.GraphModule:
    """A GraphModule for a graph; a ModeModule if the graph switches modes or writes settings.

    `settings`: settings that the graph writes and that have their initial values again when it ends.
    """
    if not settings and not any(_switches_mode(node.target) for node in graph.nodes):
        return fx.GraphModule(root, graph)
    return type("ModeModule", (ModeModule,), {"settings": settings})(root, graph)


def _switches_mode(target: Any) -> bool:
    return target in (SET_GRAD, ENTER_AUTOCAST) or getattr(target, "switches_mode", False)
