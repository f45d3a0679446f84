"""Differences between torch releases, collected in one module; torch 2.11 and later are supported.

Each check looks for the feature itself (does an attribute exist, what type has it), never at a version number, so it
also gives the right answer for releases between two known ones.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor


def present(owner: Any, *names: str) -> tuple[Any, ...]:
    """The attributes of `owner` among `names` that this torch release has."""
    return tuple(getattr(owner, name) for name in names if hasattr(owner, name))


def _autograd_apply() -> Any:
    apply = torch.autograd.Function.__dict__["apply"]
    return apply.__func__ if isinstance(apply, classmethod) else apply


# What `torch.autograd.Function.apply` binds to a class: a Python function or, since 2.14, the descriptor of a class
# method written in C.
AUTOGRAD_APPLY = _autograd_apply()
# The default `__torch_function__` of subclasses that ask for no second call; since 2.13.
SKIP_ONE_HOP = present(torch._C, "_skip_one_hop_torch_function")
# torch's own functions by which a program asks for a graph break.
GRAPH_BREAKS = present(torch.compiler, "graph_break")


def _checks_have_effects() -> None:
    """Mark operators whose only effect is an error as impure, so that torch.fx does not remove them as dead code. torch
    itself marks all of them only since 2.13."""
    for name in ("_linalg_check_errors", "_assert_async", "_assert_scalar", "_assert_tensor_metadata"):
        packet = getattr(torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            torch.fx.node.has_side_effect(getattr(packet, overload))


_checks_have_effects()


def decompositions_in_use(mode: proxy_tensor.ProxyTorchDispatchMode) -> Mapping[Any, Any]:
    """The decompositions that a trace under `mode` uses now. In torch 2.11 they are a variable of its module."""
    if hasattr(mode, "decomposition_table"):
        return mode.decomposition_table
    table: Mapping[Any, Any] = proxy_tensor.CURRENT_DECOMPOSITION_TABLE  # type: ignore[attr-defined]
    return table


_guards_lock = threading.Lock()
_guards_set = threading.Event()


def set_device_guards(mode: FakeTensorMode) -> None:
    """Set device guards safely; call it before `mode` is entered for the first time.

    If the process lacks the GPU that this torch was built for, entering the mode replaces that device's guard by one
    that does nothing. In torch 2.11 the guard is a variable of the thread that enters first, and other threads still
    read it after that thread has ended, which is a segmentation fault. So it is set by a thread that never ends.
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
