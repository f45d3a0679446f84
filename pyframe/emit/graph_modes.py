"""Keeps track of the modes and settings of torch that a trace has changed, and restores them at its end.

This part of `GraphBuilder` switches a mode both while tracing, because fake tensors depend on it, and by nodes of the
graph. The models of what the program calls are elsewhere: `vars.torch_objects.contexts` has the context managers,
`process_settings` the functions that write settings. `inductor.modes` has the functions that switch modes at run time
and restore them if the graph raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext


class GraphModes:
    """`restores`: functions that restore the settings that the trace changed. `written`: by group, settings that the
    program wrote. `switched`: (setting, leading arguments) -> its value before the frame; see `process_settings`.
    `patched`: settings that a context has changed, by the id of their module and name; see `config_patches`."""

    def __init__(self, add_node: Callable[..., fx.Node]) -> None:
        """`add_node(target, args, kwargs)` adds a node to the current graph."""
        self._add_node = add_node
        self._grad_at_entry = torch.is_grad_enabled()
        self._entered: list[Any] = []  # (token, node or None, function that exits the mode), innermost last
        self.restores: list[Callable[[], Any]] = []
        self.written: dict[str, Any] = {}
        self.switched: dict[Any, Any] = {}
        self.patched: dict[tuple[int, str], Any] = {}

    @property
    def any_changed(self) -> bool:
        """Whether a mode is entered, or grad mode is not what it was before the frame."""
        return bool(self._entered) or torch.is_grad_enabled() != self._grad_at_entry

    @property
    def entered(self) -> tuple[fx.Node | None, ...]:
        """The nodes that enter the modes which are active, the innermost last; None for a default device."""
        return tuple(node for _, node, _ in self._entered)

    def enter(self, enter: Callable[..., Any], leave: Callable[[Any], Any], args: tuple[Any, ...]) -> Any:
        """Enter a mode, while tracing and in the graph; returns the token for `exit`."""
        mode = (enter(*args), self._add_node(enter, args, {}), leave)
        self._entered.append(mode)
        return mode

    def exit(self, mode: Any) -> None:
        """Exit a mode, while tracing and in the graph."""
        self._entered.remove(mode)
        token, node, leave = mode
        leave(token)
        if node is not None:
            self._add_node(leave, (node,), {})

    def is_entered(self, leave: Callable[[Any], Any]) -> bool:
        """Whether a mode that is exited with `leave` is active."""
        return self._innermost(leave) is not None

    def _innermost(self, leave: Callable[[Any], Any]) -> Any:
        return next((mode for mode in reversed(self._entered) if mode[2] is leave), None)

    def enter_device(self, device: torch.device) -> None:
        """Make `device` the default device from here on. In the graph, nodes get it as an argument."""
        context = DeviceContext(device)
        context.__enter__()
        self._entered.append((context, None, _exit_device))

    def exit_device(self) -> None:
        """Restore the previous default device."""
        self.exit(self._innermost(_exit_device))

    @property
    def default_device(self) -> torch.device | None:
        """The default device that the program set; None if it set none."""
        mode = self._innermost(_exit_device)
        return None if mode is None else mode[0].device

    @property
    def has_device(self) -> bool:
        """Whether a default device is set, by the traced program or around it."""
        return self.default_device is not None or any(
            isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack()
        )

    def exit_all(self) -> None:
        """Exit every mode at the end of the graph, while tracing and in the graph."""
        while self._entered:
            self.exit(self._entered[-1])

    def restore_settings(self) -> None:
        """Restore the settings that the trace has changed."""
        while self.restores:
            self.restores.pop()()

    def restore_grad_mode(self) -> None:
        """Set grad mode to what it was before the frame, while tracing and in the graph."""
        if torch.is_grad_enabled() != self._grad_at_entry:
            torch._C._set_grad_enabled(self._grad_at_entry)
            self._add_node(torch._C._set_grad_enabled, (self._grad_at_entry,), {})

    def unwind(self) -> None:
        """Exit every mode that the trace entered, when the trace ends or is abandoned."""
        while self._entered:
            token, _, leave = self._entered.pop()
            leave(token)
        self.restore_settings()
        if torch.is_grad_enabled() != self._grad_at_entry:
            torch._C._set_grad_enabled(self._grad_at_entry)


def _exit_device(context: DeviceContext) -> None:
    context.__exit__(None, None, None)
