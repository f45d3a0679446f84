"""The interface through which Vars use the bytecode interpreter.

It is a ``typing.Protocol``, implemented by ``interp.trace.Trace``, so that ``vars`` does not import ``interp``.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from ..core.effects import EffectLog
from ..core.expr import Tree
from ..core.guard import UserLine
from ..core.source import Source
from ..options import Options
from .traced_graph import TracedGraph

if TYPE_CHECKING:
    from .objects.class_writes import WrittenClassVar
    from .objects.functions import CellVar
    from .objects.instance_dict import FieldsVar
    from .protocol.base import Var
    from .stdlib.random_generators import Draw
    from .stdlib.rng_guards import RngBranchGuard
    from .stdlib.warning_filters import CatchWarningsVar
    from .torch_objects.overrides import Overrides


T = TypeVar("T")


class ResumePoint(Protocol):
    """The facts of ``emit.resume.Continuation``, of a resume function, that Vars ask for."""

    @property
    def loops(self) -> bool:
        """Whether it runs once per iteration of a loop."""

    def specialize(self, sources: Sequence[Source], texts: int = 0) -> bool:
        """Make values that varied between captures constants of each capture again; False if they must not be. At most
        `texts` captures do so for values that are texts."""
        ...

    def is_symbol(self, source: Source) -> bool:
        """Whether a number is a symbol although values of loops are not, because an operator takes it."""
        ...

    def make_symbolic(self, sources: Sequence[Source]) -> bool:
        """Make numbers symbols from the next capture on; False if they must not be."""
        ...


class TracedFrame(Protocol):
    """A frame that is being traced (``interp.frame.Frame``)."""

    code: types.CodeType
    globals: dict[str, Any]
    locals: dict[str, Var]
    cells: dict[str, CellVar]
    stack: list[Var]
    at: int  # ordinal of the current instruction
    given_variables: Var | None  # the dict that `locals()` returned
    around: Any  # what the graph keeps about the frames around it while it runs; None at first

    def variables(self) -> dict[str, Var | None] | None:
        """The variables of a function in the order of `locals()`, None for those that are unbound; None in other
        code."""
        ...

    @property
    def file(self) -> str: ...

    def user_line(self) -> UserLine:
        """The line of the current instruction."""
        ...


class OutsideReads(Protocol):
    """Notes what a part of the program reads of the state outside of its own variables."""

    def variable(self, found: Var, file: str) -> None:
        """A global variable, or one of a function around it, that code in `file` read."""

    def attribute(self, owner: Var, name: str, found: Var) -> None:
        """The attribute `name` of `owner`."""


class Tracer(Protocol):
    """The running trace of one root frame (inlined calls included)."""

    effects: EffectLog
    captures: int  # how many captures the code of the root frame has
    entry_locals: tuple[Any, ...]  # the values of the fast locals at the start of the root frame
    opaque: dict[int, Any]  # by id, objects whose contents must not be assumed
    size_limit: int  # config.size_limit
    error_on_break: bool  # whether the program has made breaks errors here
    rng_branches: list[RngBranchGuard]  # branches on random draws, with the outcome assumed
    steps: int  # instructions of the root frame traced so far
    placeholder_objects: dict[int, tuple[Any, Var]]  # by id: placeholders created while tracing, such as classes
    weak_references: list[weakref.ReferenceType[Any]]  # weak references that the traced program holds
    deleted_values: list[Var]  # values of locals that the program deleted
    identity_keys: dict[int, Var]  # by id(): Vars of objects used as keys or set items that compare by identity
    class_writes: dict[type, WrittenClassVar]  # classes that the traced program changed
    draws: list[Draw]  # draws of random numbers, in program order
    fields_of: dict[int, FieldsVar]  # the Var of an object's `__dict__`, by the id() of the object's Var
    # inner tensors of wrapper subclass instances, by id: their sources, and functions that read them
    inner_tensors: dict[int, tuple[Source, Callable[[], Var]]]
    rewritten: dict[Source, None]  # sources that the graph overwrites: read before the graph runs
    warning_contexts: list[CatchWarningsVar]  # `catch_warnings` entered and not left, the innermost first
    outside_reads: OutsideReads | None  # notes what is read now
    masks: list[tuple[Any, int]]  # buffers of masks of DTensors that the graph makes, with the step
    own_copies: set[type]  # types of values that are their own deep copies
    keep_alive: list[Any]  # objects that the trace knows by their id(), which must not be reused

    @property
    def known(self) -> ResumePoint | None:
        """What is known of the root frame if it is a resume function."""

    @property
    def overrides(self) -> Overrides:
        """The state of `__torch_function__` overrides in this trace."""
        ...

    @property
    def graph(self) -> TracedGraph:
        """The FX graph of this trace."""
        ...

    @property
    def options(self) -> Options:
        """The options in force."""
        ...

    @property
    def frames(self) -> Sequence[TracedFrame]:
        """The frames being traced, outermost first."""
        ...

    @property
    def func(self) -> Any:  # mypy takes a FunctionType here for a method
        """The function of the root frame."""

    @property
    def graph_error_is_equivalent(self) -> bool:
        """Whether an error raised by the graph is equivalent to one raised here: no handler would catch it, no side
        effects are pending, and no mode of torch is entered in the graph."""

    @property
    def result_decides_branch(self) -> bool:
        """Whether the next instruction branches on the result of the current one, and is not an assertion."""

    @property
    def error_is_observable(self) -> bool:
        """Whether a handler or context manager of the program would see an exception raised at this point."""

    @property
    def program_handles_errors(self) -> bool:
        """As `error_is_observable`, but for the steps of optimizers, which only restore the grad mode."""

    @property
    def is_in_block(self) -> bool:
        """Whether the instruction of the outermost frame is in a block with a handler: `try`, `with`, and others."""

    def user_line(self) -> UserLine:
        """The line being traced in the innermost frame that does not belong to a library."""

    def user_stack(self) -> tuple[UserLine, ...]:
        """The lines of the user's frames being traced, outermost first; of library frames if there are no others."""
        ...

    def whole_stack(self) -> tuple[UserLine, ...]:
        """The lines of all frames being traced, outermost first: also of libraries, but not of this project."""
        ...

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        """Add a guard with the current user line.  No-op if ``source`` is None and the kind needs one."""

    def wrap(self, value: Any, source: Source | None) -> Var:
        """The Var of a Python object; the same object always gives the same Var within a trace."""

    def traced(self, value: Any) -> Var | None:
        """The Var of an object that the trace has already wrapped; else None."""

    def written_global(self, names: dict[str, Any], name: str) -> Var | None:
        """What the traced program has assigned to a variable of a globals dict so far; None if nothing."""

    def store_global(self, names: dict[str, Any], name: str, value: Var) -> None:
        """Assign to a variable of a globals dict."""

    def cell(self, cell: types.CellType, source: Source | None) -> CellVar:
        """The Var of a closure cell; the same cell always gives the same Var within a trace."""
        ...

    def known_cell(self, cell: types.CellType) -> CellVar | None:
        """The Var of a closure cell that the trace has already read; else None."""

    def item_source(self, source: Source, key: Any) -> Source:
        """The source of the item ``key`` of the dict at ``source``."""
        ...

    def const_source(self, value: Any, label: str) -> Source:
        """A source that holds the object itself (see ``ConstSource``)."""
        ...

    def getattr(self, obj: Var, name: str) -> Var:
        """`obj.name` by CPython's rules."""
        ...

    def has_attribute(self, obj: Var, name: str) -> bool:
        """`hasattr(obj, name)`."""
        ...

    def handled(self) -> Var | None:
        """The exception being handled; None outside of all exception handlers of the trace."""
        ...

    def guard_nothing_handled(self) -> None:
        """Guard that no caller of the root frame is handling an exception."""
        ...

    def call_next(self, method: Var | None) -> Var | None:
        """Call an iterator's `__next__`; None if it raises StopIteration."""
        ...

    def existing(self, var: Var) -> Any:
        """The Python object that a Var represents: its constant, or the value read from its source.  Raises NotConstant
        if it has neither."""
        ...

    def speculate(self, ask: Callable[[], T]) -> T | None:
        """The result of `ask`; None if it raises, breaks the graph or has a side effect."""

    def call(self, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Call ``fn`` by CPython's rules."""

    def begin_module_call(self, module: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> tuple[Var | None, Any]:
        """Called before the call of an nn.Module is traced. If the call of an equal module was, this adds its operators
        on the tensors of `module`, and returns their result. Otherwise returns None and what `end_module_call` takes,
        None if that need not be called."""
        ...

    def end_module_call(self, begun: Any, result: Var | None) -> None:
        """Called after the call of an nn.Module was traced. `result`: None if it raised."""
        ...

    def inline(self, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Trace the body of a user function (a ``FunctionVar`` or a plain Python function, e.g. a polyfill)."""

    def refuse_arguments(self, fn: types.FunctionType, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Any:
        """Raise the TypeError of a call of `fn` with arguments that it does not accept."""

    def inline_polyfill(self, target: Any, polyfill: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Trace the body of the function `polyfill` in place of `target`, a function or class written in C.  If the
        result is a lazy iterator, a call of `target` rebuilds it after the graph."""
        ...

    def existing_key(self, container: Any, var: Var) -> Any:
        """The key that ``var`` is in a dict that existed before the frame."""
        ...

    def predict(self, tree: Tree, kind: type) -> Any:
        """The value of ``kind(tree)`` in this call, where ``tree`` depends on random draws; adds a guard for it.  None
        if it cannot be predicted."""
        ...

    def may_guess(self) -> bool:
        """Whether a branch on an unknown number may become a guard on its outcome."""
        ...

    def spend(self, work: int) -> None:
        """Count work that no bytecode instruction accounts for (comparing the items of a sequence, say) as ``work``
        instructions toward config.instruction_limit."""
        ...

    def limit_size(self, size: int, what: str) -> None:
        """Break the graph if the size of a constant, or the number of items of a container, would exceed
        config.size_limit."""
        ...

    def graph_break(self, kind: str, detail: str) -> NoReturn:
        """Break the graph here; ``kind`` is an id of the break catalogue."""

    def break_again(self, kind: str, detail: str, stack: Sequence[UserLine]) -> NoReturn:
        """Break the graph here because of a break that was reported before, with the stack `stack`."""
        ...

    def run_eagerly(self, why: str) -> NoReturn:
        """Do not capture this frame: CPython runs it eagerly.  An error under ``fullgraph``."""
        ...

    def raise_(self, exc_type: type[BaseException], *args: Any) -> NoReturn:
        """Raise an exception *inside the traced program* (its handlers see it)."""
        ...

    def raise_from(self, exc_type: type[BaseException], cause: Var, *args: Any) -> NoReturn:
        """`raise_`, with ``cause`` as the exception's `__cause__`."""
        ...

    def exception(self, kind: Any, *args: Any) -> Var:
        """The exception that `raise kind` (a class, or a Var of a class or instance) raises."""
        ...
