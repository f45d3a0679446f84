"""Models `addcmul` and `addcdiv` with a 0-d tensor as their `value`, which optimizers pass while they are being
compiled. Eager mode reads the number from the tensor; in a graph it stays a tensor."""

from __future__ import annotations

import torch

from ..protocol.base import Var
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar, tensor_and_args


def _scaled(name: str, combine: str, add: str) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        tensor, args = tensor_and_args(args)
        value = kwargs.get("value")
        known = isinstance(value, TensorVar) and value.fake.dim() == 0 and value.fake.is_floating_point()
        if not known or len(args) != 2 or not tensor.fake.is_floating_point():
            return tx.graph.call_method(name, [tensor, *args], kwargs)
        combined = tx.graph.call_method(combine, args, {})
        change = tx.graph.call_method("mul", [combined, value], {})
        return tx.graph.call_method(add, [tensor, change], {})

    return run


for _operator, _combine in (("addcmul", "mul"), ("addcdiv", "div")):
    register(torch.Tensor, method=_operator)(_scaled(_operator, _combine, "add"))
    register(torch.Tensor, method=f"{_operator}_")(_scaled(f"{_operator}_", _combine, "add_"))
