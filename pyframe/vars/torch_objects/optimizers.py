"""Models of optimizers' steps that branch on their number of steps, a tensor (RAdam and ASGD), and of `zero_grad`.

Both steps have a variant without branches (`capturable`), which eager accepts only on GPUs. ASGD's is traced instead,
if its state is on one device with the parameters; RAdam has a version of its own (`polyfills.optimizers`).
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.optim import asgd, radam

from ..containers.sequence import ListVar
from ..polyfills import optimizers
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar


def _branches(kwargs: Kwargs) -> bool:
    """Whether torch's implementation branches on tensors, and records no gradients."""
    flags = [kwargs[name] for name in ("capturable", "differentiable") if name in kwargs]
    return len(flags) == 2 and all(slots.constant_or(flag, None) is False for flag in flags)


def _tensors(args: Args) -> list[TensorVar] | None:
    """The tensors in lists of tensors; None if something else is among the arguments."""
    found: list[Var] = [item for arg in args if isinstance(arg, ListVar) for item in arg.items]
    only = all(isinstance(arg, ListVar) for arg in args) and all(isinstance(item, TensorVar) for item in found)
    return found if only else None  # type: ignore[return-value]  # `only` has looked at each


def _radam(function: Any) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        taken = _branches(kwargs) and _tensors(args) is not None
        return tx.inline(optimizers.radam if taken else function, args, kwargs)

    return run


def _asgd(function: Any) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        tensors = _tensors(args) if _branches(kwargs) else None
        if tensors is not None and len({tensor.fake.device for tensor in tensors}) == 1:
            kwargs = {**kwargs, "capturable": ConstVar(True)}
        return tx.inline(function, args, kwargs)

    return run


_RADAM: tuple[Any, ...] = (radam._single_tensor_radam, radam._multi_tensor_radam)
_ASGD: tuple[Any, ...] = (asgd._single_tensor_asgd, asgd._multi_tensor_asgd)
for _model, _functions in ((_radam, _RADAM), (_asgd, _ASGD)):
    for _function in _functions:
        register(_function)(_model(_function))

# torch's own tracer must not trace `zero_grad`, which is therefore wrapped; in a graph it only sets gradients.
_ZERO_GRAD = vars(torch.optim.Optimizer)["zero_grad"]
if isinstance(_WRAPPED := getattr(_ZERO_GRAD, "__wrapped__", None), types.FunctionType):

    @register(_ZERO_GRAD)
    def _zero_grad(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        return tx.inline(_WRAPPED, args, kwargs)
