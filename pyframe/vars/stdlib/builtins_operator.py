"""Models of the functions of the `operator` module, in terms of the operations of Vars."""

from __future__ import annotations

import operator

from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import BINARY, COMPARE, ConstVar, bool_var
from ..registry import Handler, register
from ..tracer import Tracer


def _binary_model(symbol: str) -> Handler:
    return lambda tx, args, kwargs: slots.binary(tx, symbol, args[0], args[1])


def _compare_model(symbol: str) -> Handler:
    return lambda tx, args, kwargs: slots.compare(tx, symbol, args[0], args[1])


@register(operator.setitem)
def _set_item(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    args[0].setitem(tx, args[1], args[2])
    return ConstVar(None)


@register(operator.delitem)
def _delete_item(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    args[0].setitem(tx, args[1], None)
    return ConstVar(None)


for _symbol, _fn in BINARY.items():
    register(_fn)(_binary_model(_symbol))
    _in_place = getattr(operator, f"i{_fn.__name__.strip('_')}", None)
    if _in_place is not None:
        register(_in_place)(_binary_model(f"{_symbol}="))
for _symbol, _fn in COMPARE.items():
    register(_fn)(_compare_model(_symbol))
register(operator.index)(lambda tx, args, kwargs: ConstVar(slots.index(tx, args[0])))
register(operator.neg)(lambda tx, args, kwargs: args[0].unary(tx, "-"))
register(operator.pos)(lambda tx, args, kwargs: args[0].unary(tx, "+"))
register(operator.invert)(lambda tx, args, kwargs: args[0].unary(tx, "~"))
register(operator.getitem)(lambda tx, args, kwargs: args[0].getitem(tx, args[1]))
register(operator.concat)(_binary_model("+"))
register(operator.iconcat)(_binary_model("+="))
register(operator.not_)(lambda tx, args, kwargs: bool_var(not args[0].truth(tx)))
register(operator.truth)(lambda tx, args, kwargs: bool_var(args[0].truth(tx)))
register(operator.contains)(lambda tx, args, kwargs: bool_var(args[0].contains(tx, args[1])))
register(operator.is_)(lambda tx, args, kwargs: bool_var(slots.identical(tx, args[0], args[1])))
register(operator.is_not)(lambda tx, args, kwargs: bool_var(not slots.identical(tx, args[0], args[1])))
