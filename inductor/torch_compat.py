"""Differences between torch releases, collected in one module; torch 2.11 and later are supported.

Each check looks for the feature itself (does an attribute exist, what type has it), never at a version number, so it
also gives the right answer for releases between two known ones.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode


def present(owner: Any, *names: str) -> tuple[Any, ...]:
    """Those attributes of `owner` among `names` that this torch has."""
    return tuple(getattr(owner, name) for name in names if hasattr(owner, name))


def _autograd_apply() -> Any:
    apply = torch.autograd.Function.__dict__["apply"]
    return apply.__func__ if isinstance(apply, classmethod) else apply


# What `torch.autograd.Function.apply` binds to a class: a function written in Python, or, since 2.14, the descriptor of
# a class method written in C.
AUTOGRAD_APPLY = _autograd_apply()
# The default `__torch_function__` of subclasses that ask for no second call; since 2.13.
SKIP_ONE_HOP = present(torch._C, "_skip_one_hop_torch_function")
# Breaks that a program asks for by a function of torch's own.
GRAPH_BREAKS = present(torch.compiler, "graph_break")


def _checks_have_effects() -> None:
    """Operators whose only effect is an error: torch.fx has to know that they are impure, or removes them as dead
    code. It knows all of them since 2.13 only."""
    for name in ("_linalg_check_errors", "_assert_async", "_assert_scalar", "_assert_tensor_metadata"):
        packet = getattr(torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            torch.fx.node.has_side_effect(getattr(packet, overload))


_checks_have_effects()


_guards_lock = threading.Lock()
_guards_set = threading.Event()


def set_device_guards(mode: FakeTensorMode) -> None:
    """Before `mode` is entered for the first time in a process without the GPU that this torch was built for.

    Entering it replaces the guard of that device by one that does nothing.  In torch 2.11 that guard is a variable of
    the thread that enters first, and other threads still read it when that thread has ended: a segmentation fault.  So
    the thread that enters first is one that does not end.
    """
    if _guards_set.is_set():
        return
    with _guards_lock:
        if not _guards_set.is_set() and mode.avoid_device_init:
            if threading.current_thread() is threading.main_thread():
                torch._C._ensureCUDADeviceGuardSet()
            else:
                done = threading.Event()
                threading.Thread(target=_set_guards_and_stay, args=(done,), daemon=True, name="device guards").start()
                done.wait()
        _guards_set.set()


def _set_guards_and_stay(done: threading.Event) -> None:
    torch._C._ensureCUDADeviceGuardSet()
    done.set()
    threading.Event().wait()
