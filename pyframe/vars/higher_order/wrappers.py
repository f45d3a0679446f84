"""Models operators that call a function under a setting, or as it is: `wrap` and its kind, and `invoke_quant`.

torch makes each a node with a subgraph, for its own compiler. Here the function is traced inline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch._higher_order_ops._invoke_quant import invoke_quant, invoke_quant_packed
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode, strict_mode_op
from torch._higher_order_ops.wrap import (
    wrap,
    wrap_activation_checkpoint,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)

from ..protocol.base import Var
from ..registry import register
from ..tracer import Tracer


@register(wrap)
def _wrap(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return tx.call(args[0], args[1:], kwargs)


def _on_operands(function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return function(*operands)


def _hinted(body_fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], hints: Any) -> Any:
    return body_fn(*args, **kwargs)


def _quantized(function: Callable[..., Any], *operands: Any, scheme: Any = None, quant_options: Any = None) -> Any:
    return function(*operands)


def _checkpointed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(function, *args, **kwargs)


def _with_gradients(enable_grad: bool, wrapped_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with torch.set_grad_enabled(enable_grad):
        return wrapped_func(*args, **kwargs)


def _with_autocast(
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    wrapped_func: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)


def _model(polyfill: Callable[..., Any]) -> Callable[[Tracer, list[Var], dict[str, Var]], Var]:
    return lambda tx, args, kwargs: tx.inline(polyfill, args, kwargs)


_POLYFILLS: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (wrap_activation_checkpoint, _checkpointed),
    (wrap_with_set_grad_enabled, _with_gradients),
    (wrap_with_autocast, _with_autocast),
    (strict_mode, _on_operands),
    (strict_mode_op, _on_operands),
    (hints_wrapper, _hinted),
    (invoke_quant, _quantized),
    (invoke_quant_packed, _quantized),
)
for _operator, _polyfill in _POLYFILLS:
    register(_operator)(_model(_polyfill))
