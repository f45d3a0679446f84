"""Handlers of the instructions of `await`, `async for` and `async with`."""

from __future__ import annotations

from ..vars.containers.coroutines import awaitable_of, bound_special, special_method
from ..vars.protocol.base import Raised
from ..vars.protocol.const import ConstVar
from ..vars.protocol.null import NULL
from .frame import Frame, op
from .ops_exc import load_exit_or_enter

_LACKING = {
    0: "object {} can't be used in 'await' expression",
    1: "'async with' received an object from __aenter__ that does not implement __await__: {}",
    2: "'async with' received an object from __aexit__ that does not implement __await__: {}",
}
NO_CONTEXT = "'{}' object does not support the asynchronous context manager protocol"
MISSED_EXIT = " (missed __aexit__ method)"
_SPECIAL = {2: ("__aenter__", NO_CONTEXT), 3: ("__aexit__", NO_CONTEXT + MISSED_EXIT)}  # by arguments of LOAD_SPECIAL


@op("GET_AWAITABLE")
def get_awaitable(frame: Frame, where: int) -> None:
    frame.push(awaitable_of(frame.tx, frame.pop(), _LACKING[where]))


@op("GET_AITER")
def get_aiter(frame: Frame, arg: None) -> None:
    lacking = "'async for' requires an object with __aiter__ method, got {}"
    frame.push(special_method(frame.tx, frame.pop(), "__aiter__", lacking))


@op("GET_ANEXT")
def get_anext(frame: Frame, arg: None) -> None:
    lacking = "'async for' requires an iterator with __anext__ method, got {}"
    item = special_method(frame.tx, frame.stack[-1], "__anext__", lacking)
    frame.push(awaitable_of(frame.tx, item, "'async for' received an invalid object from __anext__: {}"))


@op("END_ASYNC_FOR")
def end_async_for(frame: Frame, arg: None) -> None:
    _, exc = frame.popn(2)
    if not issubclass(exc.python_type(), StopAsyncIteration):
        raise Raised(exc, fresh=False)


@op("CLEANUP_THROW")
def cleanup_throw(frame: Frame, arg: None) -> None:
    _, _, exc = frame.popn(3)
    if not issubclass(exc.python_type(), StopIteration):
        raise Raised(exc, fresh=False)
    frame.push(ConstVar(None))
    frame.push(frame.tx.getattr(exc, "value"))


@op("BEFORE_ASYNC_WITH")
def before_async_with(frame: Frame, arg: None) -> None:
    context = frame.pop()
    enter = bound_special(frame.tx, context, "__aenter__", NO_CONTEXT)
    frame.push(bound_special(frame.tx, context, "__aexit__", NO_CONTEXT + MISSED_EXIT))
    frame.push(frame.tx.call(enter, [], {}))


@op("LOAD_SPECIAL")
def load_special(frame: Frame, which: int) -> None:
    """CPython 3.14 loads `__aexit__`, then `__aenter__`, in this way; the special methods of `with` as well."""
    if which not in _SPECIAL:
        return load_exit_or_enter(frame, which)
    name, lacking = _SPECIAL[which]
    frame.push(bound_special(frame.tx, frame.pop(), name, lacking))
    frame.push(NULL)
