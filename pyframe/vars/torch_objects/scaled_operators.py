"""Models `addcmul` and `addcdiv` with a 0-d tensor as their `value`, which optimizers pass while they are being
compiled. Eager mode reads the number from the tensor; in a graph it stays a tensor."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from ...core.tracer import Tracer
from ..protocol.base import Var
from .tensor import TensorVar


def _scaled(
    name: str, combine: str, tx: Tracer, tensor: TensorVar, args: Sequence[Var], kwargs: Mapping[str, Var]
) -> Var:
    value = kwargs.get("value")
    known = isinstance(value, TensorVar) and value.fake.dim() == 0 and value.fake.is_floating_point()
    if not known or len(args) != 2 or not tensor.fake.is_floating_point():
        return tx.graph.call_method(name, [tensor, *args], kwargs)  # type: ignore[no-any-return]
    combined = tx.graph.call_method(combine, list(args), {})
    change = tx.graph.call_method("mul", [combined, value], {})
    return tx.graph.call_method("add_" if name.endswith("_") else "add", [tensor, change], {})  # type: ignore[no-any-return]


SCALED = {
    name: functools.partial(_scaled, name, combine)
    for operator, combine in (("addcmul", "mul"), ("addcdiv", "div"))
    for name in (operator, f"{operator}_")
}
