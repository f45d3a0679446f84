"""The generators, coroutines and asynchronous generators that a trace creates."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ..vars.containers.coroutines import AsyncGeneratorVar, CoroutineVar
from ..vars.containers.iterator import Call, GeneratorVar, NotRebuilt
from ..vars.protocol.base import Var
from ..vars.tracer import Tracer
from .frame import Frame

if TYPE_CHECKING:
    from .trace import Trace

CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200


def makes_generator(code: types.CodeType) -> bool:
    """Whether a call of this code runs nothing but returns a generator of one of the three kinds."""
    return bool(code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))


class Generators:
    """Those of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._all: list[GeneratorVar] = []

    def new(self, frame: Frame, call: Call) -> Var:
        """The Var that a call returns whose frame is `frame`."""

        def resume(_: Tracer, sent: Var, thrown: Var | None) -> Var | None:
            if frame.pc and thrown is None:
                frame.push(sent)
            outcome = frame.run(thrown)
            if not outcome.yielded:
                var.returned = outcome.value
                return None
            return outcome.value

        var: GeneratorVar
        step = self._trace.steps
        if frame.code.co_flags & CO_COROUTINE:
            var = CoroutineVar(resume, frame.in_try, call, step)
        elif frame.code.co_flags & CO_ASYNC_GENERATOR:
            var = AsyncGeneratorVar(resume, frame.in_try, call, step)
        else:
            var = GeneratorVar(resume, frame.in_try, call, step, types.GeneratorType)
        self._all.append(var)
        return var

    @property
    def unfinished(self) -> bool:
        """Whether one of them has not run to its end."""
        return any(not generator.done for generator in self._all)

    @property
    def count_unfinished(self) -> int:
        """How many of them have not run to their end."""
        return sum(not generator.done for generator in self._all)

    def check_suspended(self) -> None:
        """Reject a generator that is suspended inside a `try` at the end of the trace: freeing it closes it, which runs
        code of the program."""
        for generator in self._all:
            if generator.started and not generator.done and generator.in_try():
                raise NotRebuilt("a generator that is suspended inside a try block", generator.created_at)
            if isinstance(generator, AsyncGeneratorVar):
                generator.check_ended(self._trace)

    def check_awaited(self) -> None:
        """Reject a coroutine that was never awaited: CPython warns when it frees one."""
        for generator in self._all:
            if isinstance(generator, CoroutineVar):
                generator.check_awaited()

    def forget(self) -> None:
        """Free what the generators hold."""
        for generator in self._all:
            generator.forget()
