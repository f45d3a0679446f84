"""Traces a function into a graph of its own, for operators that take functions.

One node of the outer graph applies the operator to that graph; values that the function reads from outside are passed
as further arguments.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from ..containers.mapping import DictVar
from ..containers.sequence import ListVar, SequenceVar, TupleVar
from ..numbers.symint import NumberVar
from ..protocol.base import Raised, Var
from ..protocol.const import ConstVar
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer

Restored = Callable[[Sequence[Var]], Var]


def leaves_of(tx: Tracer, value: Var, what: str) -> tuple[list[Var], Restored, Any]:
    """Flatten a value: its tensors, numbers and constants, a function that rebuilds it from others, and its structure,
    for comparison. Breaks the graph if it contains anything else."""
    if isinstance(value, TensorVar | NumberVar | ConstVar):
        return [value], lambda found: found[0], None
    if isinstance(value, ListVar) or type(value) is TupleVar:
        parts = [leaves_of(tx, item, what) for item in value.items]
        build = value.like
        kind: Any = type(value)
    elif isinstance(value, DictVar) and value.cls is dict:
        parts = [leaves_of(tx, item, what) for item in value.items.values()]
        keys = list(value.items)
        build = lambda items: DictVar(dict(zip(keys, items, strict=True)))  # noqa: E731
        kind = tuple(keys)
    else:
        return tx.graph_break("unsupported-object", f"{value.describe()} in the {what} of a transformed function")
    ends = [0]
    for found, _, _ in parts:
        ends.append(ends[-1] + len(found))

    def restore(found: Sequence[Var]) -> Var:
        return build([part[1](found[ends[i] : ends[i + 1]]) for i, part in enumerate(parts)])

    return [leaf for found, _, _ in parts for leaf in found], restore, (kind, [part[2] for part in parts])


def tensors_of(tx: Tracer, value: Var, what: str) -> tuple[list[TensorVar], Restored]:
    """The tensors in a value, and a function that rebuilds it with other tensors."""
    leaves, restore, _ = leaves_of(tx, value, what)

    def rebuild(found: Sequence[Var]) -> Var:
        each = iter(found)
        return restore([next(each) if isinstance(leaf, TensorVar) else leaf for leaf in leaves])

    return [leaf for leaf in leaves if isinstance(leaf, TensorVar)], rebuild


def check_auxiliary(tx: Tracer, aux: Var) -> None:
    """Break the graph unless an auxiliary output consists of tensors: torch.func raises an error for anything else."""
    if not all(isinstance(leaf, TensorVar) for leaf in leaves_of(tx, aux, "result")[0]):
        tx.graph_break("exception-in-traced-code", "has_aux=True with an output that contains more than tensors")


def code_of(function: Callable[..., Any], name: str) -> types.CodeType:
    """The code of the inner function `name` of `function`."""
    constants = function.__code__.co_consts
    return next(code for code in constants if isinstance(code, types.CodeType) and code.co_name == name)


class Body:
    """A function traced into a graph: `gm(*arguments, *lifted)` returns the tensors of its result as a tuple."""

    def __init__(self, tx: Tracer, fn: Var, args: Sequence[Var], kwargs: dict[str, Var], fakes: Sequence[Any]) -> None:
        """`fakes`: what `fn` gets for each tensor of `args`."""
        self.inputs, restore = tensors_of(tx, TupleVar(args), "arguments")
        nested = tx.graph.stack.enter()
        inside = [tx.graph.stack.tensor_argument(fake) for fake in fakes]
        try:
            self.result = tx.call(fn, restore(inside).items, kwargs)  # type: ignore[attr-defined]
        except Raised as raised:
            tx.graph_break("exception-in-traced-code", f"{raised.exc.describe()} in a transformed function")
        self.outputs, self.restore = tensors_of(tx, self.result, "result")
        self.gm, self.lifted = tx.graph.end_nested(nested, self.outputs)

    def node(
        self, tx: Tracer, apply: Callable[..., Any], name: str, output: Restored, more: Sequence[Var] = ()
    ) -> Var:
        """Add a node that calls `apply(*arguments, *lifted, *more)`, which returns a tuple of tensors; `output` builds
        the result from them."""
        apply.__name__ = apply.__qualname__ = name
        apply.__module__ = __name__
        result = tx.graph.call(apply, [*self.inputs, *self.lifted, *more], {})
        assert isinstance(result, SequenceVar)
        return output(result.items)
