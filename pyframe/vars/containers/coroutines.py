"""Vars of coroutines and asynchronous generators whose bodies are traced inline.

An `await` sends values to an awaitable as `yield from` does to a generator, so a coroutine is a generator that is not
iterable. An asynchronous generator yields in two ways: an item for its consumer is wrapped (`WrappedItemVar`), and ends
the awaitable that asked for it (`AsyncStepVar`); what an `await` inside of it yields passes through that awaitable.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ...core.source import ConstSource
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import Raised, Var
from ..protocol.const import make
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .iterator import Call, GeneratorVar, IteratorVar, NotRebuilt, ResumableVar, Resume
from .sequence import SequenceVar


async def _nothing() -> None:
    pass


async def _nothing_yielded() -> Any:
    yield


def _type_of_wrapper() -> type:
    coroutine = _nothing()
    wrapper: type = type(coroutine.__await__())
    coroutine.close()
    return wrapper


def _type_of_step(method: str) -> type:
    step = getattr(_nothing_yielded(), method)()
    step.close()
    return type(step)


_WRAPPER = _type_of_wrapper()
_STEPS = {
    **dict.fromkeys(("__anext__", "asend"), _type_of_step("__anext__")),
    **dict.fromkeys(("athrow", "aclose"), _type_of_step("aclose")),
}


class CoroutineVar(GeneratorVar):
    """A coroutine. `rebuilt`: the new bytecode creates it, because the program needs it after the graph."""

    __slots__ = ("rebuilt",)

    what = "coroutine"
    prefix = "cr_"

    def __init__(self, run: Resume, in_try: Callable[[], bool], origin: Call, created_at: int) -> None:
        super().__init__(run, in_try, origin, created_at, types.CoroutineType)
        self.rebuilt = False

    def resume(self, tx: Tracer, sent: Var, thrown: Var | None) -> Var | None:
        if self.done:
            tx.raise_(RuntimeError, "cannot reuse already awaited coroutine")
        return super().resume(tx, sent, thrown)

    def next_(self, tx: Tracer) -> Var | None:
        tx.raise_(TypeError, "'coroutine' object is not an iterator")

    def iterate(self, tx: Tracer) -> Var:
        tx.raise_(TypeError, "'coroutine' object is not iterable")

    def awaited(self, tx: Tracer) -> Var:
        if self.started and not self.done and not self.running:
            tx.raise_(RuntimeError, "coroutine is being awaited already")
        return self

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return CoroutineWrapperVar(self) if name == "__await__" else super().call_method(tx, name, args, kwargs)

    def check_awaited(self) -> None:
        """Reject a coroutine that was never awaited: CPython warns when it frees one."""
        if not (self.started or self.done or self.rebuilt):
            raise NotRebuilt("a coroutine that is not awaited", self.created_at)

    def reconstruct(self, cg: Codegen) -> None:
        super().reconstruct(cg)
        self.rebuilt = True


class CoroutineWrapperVar(ResumableVar):
    """`coroutine.__await__()`."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: CoroutineVar) -> None:
        super().__init__(_WRAPPER)
        self.coroutine = coroutine

    def next_(self, tx: Tracer) -> Var | None:
        return self.advance(tx)  # at the end, the coroutine raises RuntimeError

    def resume(self, tx: Tracer, sent: Var, thrown: Var | None) -> Var | None:
        item = self.coroutine.resume(tx, sent, thrown)
        self.returned = self.coroutine.returned
        return item

    def close(self, tx: Tracer) -> None:
        self.coroutine.close(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.coroutine)
        cg.emit("LOAD_ATTR", "__await__")
        cg.call_top()


class WrappedItemVar(Var):
    """An item that an asynchronous generator yields to its consumer."""

    __slots__ = ("value",)

    def __init__(self, value: Var) -> None:
        super().__init__()
        self.value = value


class AsyncGeneratorVar(GeneratorVar):
    """An asynchronous generator. `stepping`: one of its awaitables has begun and not ended."""

    __slots__ = ("stepping",)

    what = "async generator"
    prefix = "ag_"
    not_raised = (StopIteration, StopAsyncIteration)

    def __init__(self, run: Resume, in_try: Callable[[], bool], origin: Call, created_at: int) -> None:
        super().__init__(run, in_try, origin, created_at, types.AsyncGeneratorType)
        self.stepping = False

    def next_(self, tx: Tracer) -> Var | None:
        tx.raise_(TypeError, "'async_generator' object is not an iterator")

    def iterate(self, tx: Tracer) -> Var:
        tx.raise_(TypeError, "'async_generator' object is not iterable")

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return make(self.stepping) if name == "ag_running" else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__aiter__":
            return self
        if name in _STEPS and not kwargs:
            return AsyncStepVar(self, name, list(args))
        return IteratorVar.call_method(self, tx, name, args, kwargs)

    def check_ended(self, tx: Tracer) -> None:
        """Reject one that is suspended when the trace ends, if that runs code: that of the event loop, which closes it.
        (The caller rejects those whose own code would run.)"""
        if not self.started or self.done:
            return
        if not _no_loop(sys):
            raise NotRebuilt("an asynchronous generator that is suspended", self.created_at)
        tx.guard(ConstSource.of(sys, "sys"), "PREDICATE", (_no_loop, (), "no event loop closes async generators"))


def _no_loop(sys_: Any) -> bool:
    hooks = sys_.get_asyncgen_hooks()
    return hooks.firstiter is None and hooks.finalizer is None


class AsyncStepVar(ResumableVar):
    """An awaitable of an asynchronous generator: the result of its method `method`, called with `args`."""

    __slots__ = ("args", "generator", "method", "started")

    _NAMES: ClassVar[dict[str, str]] = {
        "__anext__": "__anext__()/asend()", "asend": "__anext__()/asend()",
        "athrow": "aclose()/athrow()", "aclose": "aclose()/athrow()",
    }  # fmt: skip

    def __init__(self, generator: AsyncGeneratorVar, method: str, args: list[Var]) -> None:
        super().__init__(_STEPS[method])
        self.generator, self.method, self.args, self.started = generator, method, args, False

    def next_(self, tx: Tracer) -> Var | None:
        return self.advance(tx)

    def awaited(self, tx: Tracer) -> Var:
        return self

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return self if name == "__await__" else super().call_method(tx, name, args, kwargs)

    def resume(self, tx: Tracer, sent: Var, thrown: Var | None) -> Var | None:
        if self.done:
            tx.raise_(RuntimeError, f"cannot reuse already awaited {self._NAMES[self.method]}")
        throws = self.method in ("athrow", "aclose")
        ended = True
        try:
            if not self.started:
                if throws and self.generator.done:
                    return None
                sent, thrown = self._begin(tx, sent, thrown, throws)
            item = self._sent(tx, sent, thrown, throws)
            ended = item is None
            return item
        finally:
            self.done = ended
            if ended and self.started:
                self.generator.stepping = False

    def _begin(self, tx: Tracer, sent: Var, thrown: Var | None, throws: bool) -> tuple[Var, Var | None]:
        """What the first step sends to the body, or throws into it."""
        if self.generator.stepping:
            name = {"__anext__": "anext", "asend": "anext"}.get(self.method, self.method)
            tx.raise_(RuntimeError, f"{name}(): asynchronous generator is already running")
        self.started = self.generator.stepping = True
        if thrown is not None:
            return sent, thrown
        if throws:
            kinds = [make(GeneratorExit)] if self.method == "aclose" else self.args
            return sent, tx.exception(kinds[0], *kinds[1:2])
        if self.args and slots.constant_or(sent, 0) is None:
            sent = self.args[0]
        return sent, None

    def _sent(self, tx: Tracer, sent: Var, thrown: Var | None, throws: bool) -> Var | None:
        try:
            item = self.generator.resume(tx, sent, thrown)
        except Raised as raised:
            if self.method == "aclose" and issubclass(raised.exc.python_type(), GeneratorExit):
                return None
            raise
        if isinstance(item, WrappedItemVar):
            if self.method == "aclose":
                tx.raise_(RuntimeError, "async generator ignored GeneratorExit")
            self.returned = item.value
            return None
        if item is None and self.method != "aclose":
            tx.raise_(StopAsyncIteration)
        return item

    def close(self, tx: Tracer) -> None:
        if not self.started or self.done:
            self.done = True
        else:
            self.unsupported(tx, "close() of an awaitable that has begun")

    def reconstruct(self, cg: Codegen) -> None:
        if self.started or self.done:
            raise NotRebuilt("an awaitable that has begun", self.generator.created_at)
        cg.load(self.generator)
        cg.emit("LOAD_ATTR", self.method)
        cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in self.args))


def awaitable_of(tx: Tracer, value: Var, lacking: str = "object {} can't be used in 'await' expression") -> Var:
    """The iterator that `await value` sends values to. `lacking`: the message of the TypeError if there is none."""
    if isinstance(value, CoroutineVar | AsyncStepVar):
        return value.awaited(tx)
    if isinstance(value, GeneratorVar):
        code = value.origin[0].getattr_(tx, "__code__").constant()
        if code.co_flags & inspect.CO_ITERABLE_COROUTINE:
            return value
    special = getattr(value, "special", None)
    method = None if special is None else special(tx, "__await__")
    if method is None:
        return _lacks(tx, value, lacking)
    iterator = tx.call(method, [], {})
    if isinstance(iterator, CoroutineVar):
        tx.raise_(TypeError, "__await__() returned a coroutine")
    return iterator


def special_method(tx: Tracer, value: Var, name: str, lacking: str) -> Var:
    """The result of calling the special method `name`, without arguments. `lacking`: the message of the TypeError if
    the class of `value` has none."""
    if isinstance(value, AsyncGeneratorVar):
        return value.call_method(tx, name, [], {})
    return tx.call(bound_special(tx, value, name, lacking), [], {})


def bound_special(tx: Tracer, value: Var, name: str, lacking: str) -> Var:
    """The bound special method `name` of an instance of a class of the program."""
    special = getattr(value, "special", None)
    method: Var | None = None if special is None else special(tx, name)
    return _lacks(tx, value, lacking) if method is None else method


def _lacks(tx: Tracer, value: Var, lacking: str) -> Any:
    """Raise the TypeError for a value without a special method. Values that have none here may be objects of which
    little is known."""
    known = hasattr(value, "special") or value.is_constant() or isinstance(value, IteratorVar | SequenceVar)
    if not known:
        tx.graph_break("generator-frame", f"an asynchronous operation on {value.describe()}")
    tx.raise_(TypeError, lacking.format(value.python_type().__name__))


@register(aiter)
def _aiter(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return special_method(tx, args[0], "__aiter__", "'{}' object is not an async iterable")


@register(anext)
def _anext(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    step = special_method(tx, args[0], "__anext__", "'{}' object is not an async iterator")
    return step if len(args) == 1 else tx.inline(_or_default, [step, args[1]], {})


async def _or_default(step: Any, default: Any) -> Any:
    try:
        return await step
    except StopAsyncIteration:
        return default


def _state(target: Any, prefix: str) -> Handler:
    def state(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        if len(args) != 1 or not isinstance(args[0], GeneratorVar):
            return tx.inline(target, args, kwargs)
        return make(args[0].state().replace("GEN_", prefix))

    return state


register(inspect.getgeneratorstate)(_state(inspect.getgeneratorstate, "GEN_"))
register(inspect.getcoroutinestate)(_state(inspect.getcoroutinestate, "CORO_"))
