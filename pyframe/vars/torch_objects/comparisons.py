"""Models `torch.equal` and `torch.allclose`, whose result is a bool of Python: the graph calls them and reads it.

So an `assert` on one is a check in the graph, and one that is returned or computed with does not break it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.in_order import in_order
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar


@in_order
def are_equal(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.tensor(torch.equal(left, right), device="cpu"),)


@in_order
def are_close(
    left: torch.Tensor, right: torch.Tensor, rtol: float, atol: float, equal_nan: bool
) -> tuple[torch.Tensor]:
    return (torch.tensor(torch.allclose(left, right, rtol, atol, equal_nan), device="cpu"),)


_OPTIONS = {"rtol": 1e-05, "atol": 1e-08, "equal_nan": False}
_COMPARISONS: dict[Any, tuple[Callable[..., Any], dict[str, Any]]] = {
    torch.equal: (are_equal, {}), torch.allclose: (are_close, _OPTIONS),
}  # fmt: skip


def compare(tx: Tracer, function: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """A call of `torch.equal` or `torch.allclose` that nothing overrides; None for any other call."""
    if function not in _COMPARISONS:
        return None
    run, options = _COMPARISONS[function]
    given = dict(zip(("input", "other", *options), args), **kwargs)
    pair = [given.pop(name, ConstVar(None)) for name in ("input", "other")]
    values = [slots.constant_or(given.pop(name, ConstVar(value)), None) for name, value in options.items()]
    fits = not given and all(map(_is_number, values)) and all(map(_is_plain, pair))
    if not fits or tx.graph.stack.is_nested or tx.error_is_observable:
        return None
    if not tx.graph.numbers.makes_numbers or tx.result_decides_branch:
        return tx.graph_break("tensor-to-python", f"torch.{function.__name__}() reads values of tensors")
    with tx.graph.fake_mode:
        truth = torch.empty((), dtype=torch.bool, device="cpu")
    found = tx.graph.record(run, [*pair, *map(ConstVar, values)], [truth])[0]
    return found.call_method(tx, "item", [], {})


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, bool)


def _is_plain(value: Var) -> bool:
    return isinstance(value, TensorVar) and value.fake.layout is torch.strided


def _method(function: Callable[..., bool]) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        found = compare(tx, function, args, kwargs)
        return tx.graph.call(function, args, kwargs) if found is None else found

    return run


for _function in _COMPARISONS:
    register(torch.Tensor, method=_function.__name__)(_method(_function))
