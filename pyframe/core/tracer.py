"""What Vars may see of the interpreter: a Protocol, so that ``vars`` never imports ``interp``."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from .effects import EffectLog
from .guard import UserLine
from .source import Source

if TYPE_CHECKING:
    from ..vars.objects.functions import CellVar
    from ..vars.protocol.base import Var
    from ..vars.stdlib.random_generators import Draw


T = TypeVar("T")


class Tracer(Protocol):
    """The running trace of one root frame (inlined calls included)."""

    effects: EffectLog
    steps: int  # of the root frame so far
    placeholder_objects: dict[int, tuple[Any, Var]]
    referred: list[weakref.ReferenceType[Any]]  # weak references that the program knows
    let_go: list[Var]  # what deleted locals had
    class_writes: dict[type, Any]
    draws: list[Draw]  # what the frame draws at random, in order
    fields_of: dict[int, Any]  # the FieldsVar of an object, by the id() of its Var
    rewritten: dict[Source, None]  # places that the graph writes to: what was read of them is read before it runs
    keep_alive: list[Any]  # objects that guards of this trace know by identity

    @property
    def overrides(self) -> Any:
        """The `vars.overrides.Overrides` of this trace."""

    @property
    def graph(self) -> Any:
        """The ``emit.graph.GraphBuilder`` of this trace."""

    @property
    def options(self) -> Any:
        """The frozen ``options.Options`` in force."""

    @property
    def frames(self) -> Sequence[Any]:
        """The ``interp.frame.Frame`` objects being traced, outermost first."""
        ...

    @property
    def func(self) -> Any:
        """The function of the root frame."""

    @property
    def graph_error_is_equivalent(self) -> bool:
        """Whether the graph can fail in place of the program, here."""

    @property
    def error_is_observable(self) -> bool:
        """Whether the program would see an exception raised here, in a handler or a context manager."""

    def user_line(self) -> UserLine:
        """The user's line being traced: of the innermost frame that is not of a library."""

    def user_stack(self) -> tuple[UserLine, ...]:
        """The places of the user's frames being traced, outermost first: libraries only where there are no others."""
        ...

    def whole_stack(self) -> tuple[UserLine, ...]:
        """The places of all frames being traced, those of libraries too (but not our own), outermost first."""
        ...

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        """Record an assumption, with the current user line.  No-op when source is None and the kind needs one."""

    def wrap(self, value: Any, source: Source | None) -> Var:
        """The Var of a Python object; the same object always gives the same Var within a trace."""

    def traced(self, value: Any) -> Var | None:
        """The Var of an object that the trace has met; else None."""

    inner_tensors: dict[int, tuple[Source, Callable[[], Var]]]

    def cell(self, cell: types.CellType, source: Source | None) -> CellVar:
        """The Var of a closure cell; the same cell always gives the same Var within a trace."""
        ...

    def item_source(self, source: Source, key: Any) -> Source:
        """Where the item of a dict lies."""
        ...

    def const_source(self, value: Any, label: str) -> Source:
        """A source that holds the object itself."""
        ...

    def getattr(self, obj: Var, name: str) -> Var:
        """`obj.name` by CPython's rules."""
        ...

    def has_attribute(self, obj: Var, name: str) -> bool:
        """What `hasattr` answers."""
        ...

    def handled(self) -> Var | None:
        """The exception being handled; None outside of all handlers of the trace."""
        ...

    def none_outside(self) -> None:
        """Guard that no caller of the root frame is handling an exception."""
        ...

    def until_stop(self, method: Var | None) -> Var | None:
        """What a call of an iterator's method gives; None where it raises StopIteration."""
        ...

    def existing(self, var: Var) -> Any:
        """The object of a Var: a constant, or what is read from its source; else NotConstant."""
        ...

    def speculate(self, ask: Callable[[], T]) -> T | None:
        """What `ask` gives; None where that raises, breaks or changes something."""

    def call(self, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Call ``fn`` by CPython's rules."""

    def inline(self, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Trace the body of a user function (a ``FunctionVar`` or a plain Python function, e.g. a polyfill)."""

    def spend(self, work: int) -> None:
        """Count work for the program that no instruction does, such as looking at items of a sequence, as so many
        instructions: a trace may take config.instruction_limit of them."""
        ...

    def limit_size(self, size: int, what: str) -> None:
        """Break where something known while tracing, or the number of its items, would be larger than
        config.size_limit."""
        ...

    def graph_break(self, kind: str, detail: str) -> NoReturn:
        """Stop the graph here, for the reason ``kind`` of the break catalogue."""

    def run_as_it_is(self, why: str) -> NoReturn:
        """Give the whole frame up: CPython runs it; an error under ``fullgraph``."""
        ...

    def raise_(self, exc_type: type[BaseException], *args: Any) -> NoReturn:
        """Raise an exception *inside the traced program* (its handlers see it)."""
        ...

    def raise_from(self, exc_type: type[BaseException], cause: Var, *args: Any) -> NoReturn:
        """The same with a cause."""
        ...

    def exception(self, kind: Any, *args: Any) -> Var:
        """The exception that `raise kind` (a class, or a Var of a class or instance) raises."""
        ...
