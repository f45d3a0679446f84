"""Models the functions that write process-wide settings: the default dtype, deterministic algorithms, backend flags.

A write is a node of the graph, in program order. A setting that fake tensors may depend on is also applied while
tracing, from the write to the end of the trace; `emit.graph_modes` keeps what must be restored. `contexts` models the
modes that `with` statements switch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.in_order import in_order
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar, make
from ..protocol.graph_object import GraphObjectVar
from ..tracer import Tracer

_NATIVE: Any = torch._C
_PRECISION = "the precision of float32"  # the group of settings that change each other


@dataclass(frozen=True, slots=True)
class Setting:
    """`node` and `node_of_read` are the functions that the graph calls to write and read the setting.

    `apply(state())` restores it; None if the setting is not changed while tracing. In that case `accepts` lists the
    values that no write rejects, and with `exact` a read returns the value last written. `group` names the settings
    whose writes affect a read.
    """

    node: Callable[..., Any]
    read: Callable[..., Any]
    group: str
    node_of_read: Callable[..., Any]
    apply: Callable[..., Any] | None = None
    state: Callable[[], Any] | None = None
    accepts: tuple[Any, ...] = ()
    exact: bool = False


WRITES: dict[Any, Setting] = {}
_READS: dict[Any, Setting] = {}


def _add(write: Callable[..., Any], read: Callable[..., Any], group: str = "", **more: Any) -> None:
    WRITES[write] = _READS[read] = Setting(
        _node(write), read, group or write.__name__, node_of_read=_node(read), **more
    )


def _node(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as the target of graph nodes, marked to run in program order."""

    @in_order
    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return run


def write(tx: Tracer, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """Model of a call that writes a setting."""
    setting, label = WRITES[fn], f"torch.{fn.__name__}()"
    graph = tx.graph
    if graph.stack.is_nested:
        tx.graph_break("unsupported-context-manager", f"{label} in a function that is the argument of an operator")
    if setting.apply is None and args and isinstance(args[-1], ReadVar) and args[-1].setting is setting:
        graph.modes.written[setting.group] = (setting, ())
        graph.modes.switched.setdefault((setting, tuple(arg.constant() for arg in args[:-1])), None)
        graph.call_for_effect(setting.node, args, kwargs)
        return ConstVar(None)
    try:
        values, named = [arg.constant() for arg in args], {name: arg.constant() for name, arg in kwargs.items()}
    except NotConstant as unknown:
        return tx.graph_break("unsupported-context-manager", f"{label} of {unknown}")
    if setting.apply is None:
        arguments = (*values, *named.values())
        last = arguments[-1] if arguments else None
        if not arguments or not any(type(last) is type(each) and last == each for each in setting.accepts):
            tx.graph_break("unsupported-context-manager", f"{label} of something that it may refuse")
        graph.modes.switched.setdefault((setting, tuple(values[:-1])), None)
    else:
        state = (setting.state or setting.read)()
        try:
            _APPLIED.get(fn, fn)(*values, **named)
        except (RuntimeError, TypeError, ValueError) as error:
            tx.graph_break("exception-in-traced-code", f"{label}: {type(error).__name__}: {error}")
        graph.modes.restores.append(functools.partial(setting.apply, state))
        graph.modes.switched.setdefault((setting, ()), state)
    graph.modes.written[setting.group] = (setting, values)
    graph.call_for_effect(setting.node, args, kwargs)
    return ConstVar(None)


def as_found(modes: Any) -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """For each setting that the program wrote and then restored: the functions that read and write it."""
    found: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = []
    for (setting, of), state in modes.switched.items():
        current = functools.partial(setting.state or setting.read, *of)
        write = functools.partial(setting.apply or setting.node, *of)
        last = modes.written[setting.group][1]
        if last == () if setting.apply is None else current() == state:
            found.append((current, write))
    return found


def read(tx: Tracer, fn: Any, args: Sequence[Var]) -> Var | None:
    """Model of a call that reads a setting which the program wrote; None for any other call."""
    setting = _READS.get(fn)
    if setting is None or setting.group not in tx.graph.modes.written:
        return None
    try:
        now = fn(*(arg.constant() for arg in args))
    except (NotConstant, RuntimeError, TypeError, ValueError) as error:
        return tx.graph_break("exception-in-traced-code", f"torch.{fn.__name__}(): {error}")
    last, values = tx.graph.modes.written[setting.group]
    if setting.exact and last is setting and values:
        return make(values[-1])
    if setting.apply is None and now is not None:  # None: not available in this build
        return ReadVar(tx, setting, fn, args)
    return make(now)


class ReadVar(GraphObjectVar):
    """The value of a setting that is not changed while tracing. The graph reads it, and it may be written back."""

    __slots__ = ("setting",)

    def __init__(self, tx: Tracer, setting: Setting, fn: Any, args: Sequence[Var]) -> None:
        super().__init__(type(setting.accepts[0]), tx.graph.call_for_effect(setting.node_of_read, args, {}))
        self.setting = setting


def _set_deterministic(state: tuple[bool, bool]) -> None:
    _NATIVE._set_deterministic_algorithms(state[0], warn_only=state[1])


def _is_deterministic() -> tuple[bool, bool]:
    return _NATIVE._get_deterministic_algorithms(), _NATIVE._get_deterministic_algorithms_warn_only()


# Called while tracing instead of a function that does more than write the setting.
_APPLIED: dict[Any, Callable[..., Any]] = {
    torch.use_deterministic_algorithms: _NATIVE._set_deterministic_algorithms,
}

_add(torch.set_default_dtype, torch.get_default_dtype, apply=torch.set_default_dtype)
_add(torch.set_num_threads, torch.get_num_threads, apply=torch.set_num_threads)
_add(
    torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled,
    apply=_set_deterministic, state=_is_deterministic,
)  # fmt: skip
for _write, _read in (
    ("_set_cudnn_enabled", "_get_cudnn_enabled"),
    ("_set_cudnn_benchmark", "_get_cudnn_benchmark"),
    ("_cuda_set_cudnn_benchmark_limit", "_cuda_get_cudnn_benchmark_limit"),
    ("_set_cudnn_deterministic", "_get_cudnn_deterministic"),
    ("_set_cudnn_depthwise_kernel", "_get_cudnn_depthwise_kernel"),
    ("_set_mkldnn_enabled", "_get_mkldnn_enabled"),
    ("_set_mkldnn_deterministic", "_get_mkldnn_deterministic"),
    ("_set_nnpack_enabled", "_get_nnpack_enabled"),
    ("_set_sdp_use_flash", "_get_flash_sdp_enabled"),
    ("_set_sdp_use_mem_efficient", "_get_mem_efficient_sdp_enabled"),
    ("_set_sdp_use_math", "_get_math_sdp_enabled"),
    ("_set_sdp_use_cudnn", "_get_cudnn_sdp_enabled"),
):
    if hasattr(_NATIVE, _write) and hasattr(_NATIVE, _read):
        _add(getattr(_NATIVE, _write), getattr(_NATIVE, _read), apply=getattr(_NATIVE, _write))
_add(
    torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, _PRECISION,
    accepts=("highest", "high", "medium"), exact=True,
)  # fmt: skip
for _write, _read in (
    ("_set_cudnn_allow_tf32", "_get_cudnn_allow_tf32"),
    ("_set_cublas_allow_tf32", "_get_cublas_allow_tf32"),
    ("_set_onednn_allow_tf32", "_get_onednn_allow_tf32"),
):
    _add(getattr(_NATIVE, _write), getattr(_NATIVE, _read), _PRECISION, accepts=(True, False))
if hasattr(_NATIVE, "_set_fp32_precision_setter"):
    _add(
        _NATIVE._set_fp32_precision_setter, _NATIVE._get_fp32_precision_getter, _PRECISION, accepts=("none", "ieee"),
    )  # fmt: skip
