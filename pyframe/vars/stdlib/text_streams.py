"""Models `io.StringIO()` and what `print` writes to one: the text is known while tracing, so that redirected output
does not break the graph."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence

from ..codegen import Codegen
from ..protocol import slots, text
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar
from ..registry import Args, Kwargs, register
from ..tracer import Tracer


class StringIOVar(Var):
    """A new `io.StringIO`, of which nothing but the end was written and nothing but the whole was read."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def python_type(self) -> type:
        return io.StringIO

    def describe(self) -> str:
        return "a new io.StringIO"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name) if name in ("write", "getvalue", "flush") else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "getvalue":
            return ConstVar(self.text)
        if name == "flush":
            return ConstVar(None)
        written = slots.constant_or(args[0], None) if name == "write" else None
        if type(written) is not str:
            return self.unsupported(tx, f"method {name!r}")
        self.write(tx, written)
        return ConstVar(len(written))

    def write(self, tx: Tracer, written: str) -> None:
        tx.limit_size(len(self.text) + len(written), "a text")
        self.text += written
        tx.effects.change("ATTR", self, "text", tx.user_line)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(_containing, self.text)


def _containing(written: str) -> io.StringIO:
    stream = io.StringIO()
    stream.write(written)
    return stream


@register(io.StringIO)
def _string_io(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args or kwargs:
        return tx.graph_break("unsupported-object", "an instance of StringIO, which has a finalizer,")
    return StringIOVar()


@register(print)
def _print(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    stream = kwargs.get("file")
    if stream is None or slots.constant_or(stream, stream) is None:
        stream = tx.written_global(vars(sys), "stdout")
    ends = [slots.constant_or(kwargs.get(name, ConstVar(None)), 0) for name in ("sep", "end")]
    if not isinstance(stream, StringIOVar) or not all(each is None or type(each) is str for each in ends):
        return tx.graph_break("builtin-side-effect", "print() was called")
    separator, end = (default if each is None else each for each, default in zip(ends, (" ", "\n"), strict=True))
    words = [slots.constant_or(text.str_of(tx, arg), None) for arg in args]
    if not set(kwargs) <= {"file", "sep", "end", "flush"} or not all(type(word) is str for word in words):
        return tx.graph_break("builtin-side-effect", "print() was called")
    stream.write(tx, separator.join(words) + end)
    return ConstVar(None)
