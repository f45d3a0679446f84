"""Models of the functions of the `operator` module, in terms of the operations of Vars."""

from __future__ import annotations

import operator

from ...core.tracer import Tracer
from ..objects.functions import BUILTINS, Handler
from ..objects.registry import known, model
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import BINARY, COMPARE, ConstVar


def _binary_model(symbol: str) -> Handler:
    return lambda tx, args, kwargs: slots.binary(tx, symbol, args[0], args[1])


def _compare_model(symbol: str) -> Handler:
    return lambda tx, args, kwargs: slots.compare(tx, symbol, args[0], args[1])


def _set_item(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    args[0].setitem(tx, args[1], args[2])
    return ConstVar(None)


def _delete_item(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    args[0].setitem(tx, args[1], None)
    return ConstVar(None)


for _symbol, _fn in BINARY.items():
    model(_fn)(_binary_model(_symbol))
    _in_place = getattr(operator, f"i{_fn.__name__.strip('_')}", None)
    if _in_place is not None:
        model(_in_place)(_binary_model(f"{_symbol}="))
for _symbol, _fn in COMPARE.items():
    model(_fn)(_compare_model(_symbol))
model(operator.abs)(lambda tx, args, kwargs: BUILTINS[abs](tx, args, kwargs))
model(operator.index)(lambda tx, args, kwargs: ConstVar(slots.index(tx, args[0])))
model(operator.neg)(lambda tx, args, kwargs: args[0].unary(tx, "-"))
model(operator.pos)(lambda tx, args, kwargs: args[0].unary(tx, "+"))
model(operator.invert)(lambda tx, args, kwargs: args[0].unary(tx, "~"))
model(operator.getitem)(lambda tx, args, kwargs: args[0].getitem(tx, args[1]))
model(operator.setitem)(_set_item)
model(operator.delitem)(_delete_item)
model(operator.concat)(_binary_model("+"))
model(operator.iconcat)(_binary_model("+="))
model(operator.not_)(lambda tx, args, kwargs: known(not args[0].truth(tx)))
model(operator.truth)(lambda tx, args, kwargs: known(args[0].truth(tx)))
model(operator.contains)(lambda tx, args, kwargs: known(args[0].contains(tx, args[1])))
model(operator.is_)(lambda tx, args, kwargs: known(slots.identical(tx, args[0], args[1])))
model(operator.is_not)(lambda tx, args, kwargs: known(not slots.identical(tx, args[0], args[1])))
