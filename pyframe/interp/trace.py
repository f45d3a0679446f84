"""`Trace`: interprets the bytecode of one root frame over Vars, inlining the Python functions that it calls, and
collects the guards, side effects, FX graph and new bytecode of the capture."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Mapping, MutableSet, Sequence
from typing import Any, NoReturn, TypeVar

import torch
from torch import fx

from .. import _C
from ..core import break_errors, guard_explain
from ..core.effects import EffectLog
from ..core.expr import Tree
from ..core.files import our_file, skipped_file
from ..core.guard import GuardSet, UserLine
from ..core.guard_reference import CallContext
from ..core.source import (
    AttrSource,
    CellSource,
    ConstSource,
    DictItemSource,
    FuncPartSource,
    SeqItemSource,
    Source,
    is_drawn,
    source_of_cell,
)
from ..core.trace_reliances import Reliances
from ..emit.graph import GraphBuilder
from ..emit.output import OutputBuilder, TraceResult
from ..emit.resume import continuation
from ..errors import GraphBreak, Restart, SkipFrame, Unsupported
from ..options import Options
from ..vars import wrap as wrapping
from ..vars.containers.iterator import GeneratorVar
from ..vars.containers.mapping import ObjectKey, key_of
from ..vars.objects.class_writes import WrittenClassVar
from ..vars.objects.exceptions import ExceptionVar, as_exception
from ..vars.objects.functions import BuiltinVar, CellVar, FunctionVar
from ..vars.objects.instance_dict import FieldsVar
from ..vars.protocol.base import NotConstant, Raised, Var
from ..vars.protocol.const import make
from ..vars.protocol.opaque import OpaqueVar
from ..vars.stdlib import builtins as _builtins
from ..vars.stdlib import deferred_logging as logged
from ..vars.stdlib import rng_guards
from ..vars.stdlib.random_generators import Draw
from ..vars.stdlib.warning_filters import CatchWarningsVar
from ..vars.torch_objects import distributed_tensors, loop_varying
from ..vars.torch_objects.overrides import Overrides
from ..vars.tracer import OutsideReads, Tracer
from . import (
    asserts,
    limits,
    ops_async,
    ops_build,
    ops_call,
    ops_class,
    ops_exc,
    ops_jump,
    ops_match,
    ops_stack,
    positions,
)
from .bind import bind
from .frame import Frame
from .generators import Generators, makes_generator
from .global_names import GlobalNames
from .limits import Budget, LongParts
from .placeholders import inherited_source, is_of_placeholder
from .planned_breaks import BreakPlanner, Planned
from .repeated_calls import RepeatedCalls
from .root import run_root

T = TypeVar("T")
HANDLER_FILES = (ops_async, ops_build, ops_call, ops_class, ops_exc, ops_jump, ops_match, ops_stack, _builtins)
MAX_DEPTH = 60
# Objects of these types may be shared freely: their identity is not tracked.
_PLAIN = frozenset({int, bool, float, complex, str, bytes, type(None)})
_SHARED = (type, types.FunctionType, types.ModuleType)


def has_identity(value: Any) -> bool:
    """Whether the identity of a value matters, so that it must have only one Var. Instances of subclasses of int are
    included."""
    return type(value) not in _PLAIN and not issubclass(type(value), _SHARED)


def _of_known_function(source: Source | None) -> bool:
    """Whether a cell is that of the closure of a known function object, which always has the same cells."""
    closure = source.base if source is not None else None
    return closure is None or isinstance(closure.base, ConstSource)


def _nothing_handled(_: Any) -> bool:
    return sys.exc_info()[1] is None


class Trace:
    """Traces `func`, called with the fast locals `locals_`.

    `make_graph` creates the builder of the FX graph; `compile_graph` takes the finished graph and returns a callable.
    `planned_breaks`: see `BreakPlanner`. `captures`: how many captures this code already has. `long`: loops and calls
    that took too long in earlier traces. `library_forwards` receives code of torch that has to be captured on its own,
    because the trace breaks in it. `output`: what builds the result of the trace.
    """

    def __init__(
        self,
        func: types.FunctionType,
        locals_: tuple[Any, ...],
        options: Options,
        make_graph: Callable[[Tracer], GraphBuilder],
        compile_graph: Callable[[Trace, fx.GraphModule], Any],
        planned_breaks: Planned,
        captures: int = 0,
        opaque: dict[int, Any] | None = None,
        long: LongParts | None = None,
        library_forwards: MutableSet[types.CodeType] | None = None,
        output: type[OutputBuilder] = OutputBuilder,
    ) -> None:
        distributed_tensors.register_models()
        self.func = func
        self.output = output
        self.opaque = {} if opaque is None else opaque  # objects whose contents must not be assumed, by id
        self.entry_locals = locals_
        self.options = options
        self.graph = make_graph(self)
        self.compile_graph = functools.partial(compile_graph, self)
        self.captures = captures
        self.error_on_break = break_errors.is_error()
        self.long = long or LongParts()
        self.library_forwards: MutableSet[types.CodeType] = set() if library_forwards is None else library_forwards
        self.budget = Budget(options.instruction_limit)
        self.size_limit: int = options.size_limit
        self.overrides = Overrides(self)
        self.guards = GuardSet()
        self.effects: EffectLog = EffectLog()
        self.class_writes: dict[type, WrittenClassVar] = {}  # classes that the program changed
        self.class_reads: dict[type, dict[str, Any]] = {}  # class -> name -> raw attribute found
        self.draws: list[Draw] = []  # random numbers drawn at the start of the frame
        self.rng_branches: list[rng_guards.RngBranchGuard] = []  # branches on draws, with the outcome assumed
        self.memo: dict[int, Var] = {}
        self.shared: dict[tuple[int, Source] | None, Var] = {}  # of objects without identity, by id and source
        self.keep_alive: list[Any] = []
        self.masks: list[tuple[Any, int]] = []
        # inner tensors of wrapper subclass instances, by id: their sources, and functions that read them
        self.inner_tensors: dict[int, tuple[Source, Callable[[], Var]]] = {}
        self.logs = bool(options.reorderable_logging_functions or options.ignore_logging_functions)
        self.placeholder_objects: dict[int, tuple[Any, Var]] = {}  # placeholders created while tracing, such as classes
        self.wrapping: set[int] = set()  # ids of objects whose Var is being created
        self.frames: list[Frame] = []
        self.cells: dict[int, CellVar] = {}  # cells that existed before the frame, by id
        self.new_cells: list[CellVar] = []
        self.generators = Generators(self)
        self.fields_of: dict[int, FieldsVar] = {}  # `__dict__` Vars of objects, by the id() of the object's Var
        self.rewritten: dict[Source, None] = {}  # sources that the graph writes to
        self.warning_contexts: list[CatchWarningsVar] = []  # those entered and not left, the innermost first
        self.weak_references: list[weakref.ReferenceType[Any]] = []  # weak references that the program uses
        self.identity_keys: dict[int, Var] = {}  # objects used as keys or set items that compare by identity, by id
        self.deleted_values: list[Var] = []  # values of deleted locals; those objects may have been freed
        self.outside_reads: OutsideReads | None = None
        self.global_names = GlobalNames(self)
        self.known = continuation(func.__code__)
        self.varying = self.known.varying if self.known is not None else {}
        self.breaks = BreakPlanner(self, planned_breaks, self.long)
        self.steps = 0
        self.inner_steps = 0  # instructions of inlined frames in the current step
        self.instructions = 0  # of all frames
        self.raise_step = 0
        self.reliances = Reliances()
        self.own_copies: set[type] = set()
        self.repeated_calls: RepeatedCalls = RepeatedCalls(self)
        self.handled_outside = sys.exc_info()[1] is not None
        self.raised: list[Var] = []  # exceptions that the program raised, in order

    # ---- the Tracer protocol ----
    def user_line(self) -> UserLine:
        return positions.user_line(self.frames) or positions.first_line(self.func, self.entry_locals)

    def user_stack(self) -> tuple[UserLine, ...]:
        frames = [frame for frame in self.frames if not skipped_file(frame.file)]
        return tuple(frame.user_line() for frame in frames) or self.whole_stack()

    def whole_stack(self) -> tuple[UserLine, ...]:
        frames = [frame for frame in self.frames if not our_file(frame.file)]
        return tuple(frame.user_line() for frame in frames) or (positions.first_line(self.func, self.entry_locals),)

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        if source is None and kind not in ("GLOBAL_STATE", "DISTINCT"):
            return
        if self.placeholder_objects and source is not None and is_of_placeholder(source, self.placeholder_objects):
            return
        if self.draws and is_drawn(source):
            self.graph_break(
                "data-dependent-branch", f"the program needs the value of {source}, which is drawn at random"
            )
        if self.overrides.modes_at_entry and isinstance(source, AttrSource) and source.attr != "__dict__":
            if source.parent in self.graph.inputs.originals:
                self.graph_break(
                    "unsupported-object", f"{source}, whose guard a __torch_function__ mode would intercept"
                )
        if isinstance(source, ConstSource) and kind in ("ID", "TYPE", "EQUALS", "NOT_ID"):
            return
        self.guards.assume(source, kind, payload, self._line_of_guard)

    def _line_of_guard(self) -> UserLine | None:
        return self.user_line() if self.frames else None

    def existing(self, var: Var) -> Any:
        """The object of a Var: a constant, or the value read from its source."""
        if var.is_constant():
            return var.constant()
        if var.source is None:
            raise NotConstant(var.describe())
        return guard_explain.read(var.source, CallContext(self.func, self.entry_locals))

    def wrap(self, value: Any, source: Source | None) -> Var:
        """The Var of an object that existed before the frame, one for each object; `value` itself if it is a Var."""
        if issubclass(type(value), Var):  # isinstance() might run the program's `__class__` property
            return value
        if self.placeholder_objects:
            placeholder = self.placeholder_objects.get(id(value))
            if placeholder is not None:
                return placeholder[1]
            if source is not None and is_of_placeholder(source, self.placeholder_objects):
                source = inherited_source(source, self.placeholder_objects)
        identity = has_identity(value)
        known = self.memo.get(id(value)) if identity else None
        if known is None:
            # the Var of a function, class or module is the same for each read from one source
            place = (id(value), source) if not identity and source is not None and type(value) not in _PLAIN else None
            if place in self.shared:
                return self.shared[place]
            self.global_names.before_wrap(value)
            var = None
            types_ = self._varying(source)
            if types_ and source is not None:
                var = loop_varying.wrap(self, value, source, types_)
            if id(value) in self.wrapping:
                raise SkipFrame("a container that contains itself")
            self.wrapping.add(id(value))
            if id(value) in self.opaque:
                var = OpaqueVar(value, source)
            var = var or wrapping.wrap(self, value, source)
            self.wrapping.discard(id(value))
            # The Var of a compiled or scripted function is that of the wrapped function, which has another source.
            wrapped = issubclass(type(value), _C.CompiledFunction | torch.jit.ScriptFunction)
            if identity and not wrapped:
                self.memo[id(value)] = var
                self.keep_alive.append(value)
            elif place is not None and not types_:
                self.shared[place] = var
                self.keep_alive.append(value)
            return var
        if source is not None and known.source is not None and source != known.source:
            if not (isinstance(source, ConstSource) and isinstance(known.source, ConstSource)):
                self.guard(source, "SAME", known.source)
        return known

    def traced(self, value: Any) -> Var | None:
        return self.memo.get(id(value))

    def speculate(self, ask: Callable[[], T]) -> T | None:
        planned, changes = dict(self.breaks.planned), self.effects.changes
        try:
            found = ask()
        except (Raised, GraphBreak, Restart, SkipFrame, Unsupported):
            found = None
        for step in self.breaks.planned.keys() - planned.keys():
            del self.breaks.planned[step]
        return found if self.effects.changes == changes else None

    def existing_key(self, container: Any, var: Var) -> Any:
        """The key for `var` in a dict that existed before the frame. If hashing or comparing it runs code that cannot
        be evaluated now, restart with the dict opaque."""
        key = self.speculate(lambda: (key_of(self, var),))
        if key is None:
            self.opaque[id(container)] = container
            raise Restart()
        if isinstance(key[0], ObjectKey) and key[0].step is not None:
            key[0].step = 0  # no step to break at: if the dict must be rebuilt, the frame runs eagerly
        return key[0]

    def _varying(self, source: Source | None) -> tuple[type, ...]:
        """The types of values from `source` that must not be treated as constants."""
        if source is None:
            return ()
        if isinstance(source, SeqItemSource) and source not in self.varying:
            types_ = self._varying(source.parent)
            return types_ if tuple in types_ else ()
        return self.varying.get(source, ())

    def call(self, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self.logs:
            deferred = logged.defer(self, fn, args, kwargs)
            if deferred is not None:
                return deferred
        return fn.call(self, list(args), dict(kwargs))

    def begin_module_call(self, module: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> tuple[Var | None, Any]:
        return self.repeated_calls.begin(module, args, kwargs)

    def end_module_call(self, begun: Any, result: Var | None) -> None:
        self.repeated_calls.end(begun, result)

    def getattr(self, obj: Var, name: str) -> Var:
        found = obj.getattr_(self, name)
        if self.outside_reads is not None:
            self.outside_reads.attribute(obj, name, found)
        return found

    def inline(self, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Trace a call of a Python function inline; breaks the graph if that is not possible."""
        if isinstance(fn, types.FunctionType):
            fn = FunctionVar(fn, ConstSource.of(fn, fn.__qualname__))
        if len(self.frames) > MAX_DEPTH:
            self.graph_break("inline-depth", fn.describe())
        if fn.fn is not None and not _C.runs_its_code(fn.fn):
            self.graph_break("unknown-c-function", f"{fn.name}(), whose call does not run its own code")
        if fn.source is not None and not our_file(fn.code.co_filename):
            self.guard(FuncPartSource(fn.source, "__code__"), "ID", fn.code)
        if self.long.functions and fn.code in self.long.functions:
            self.graph_break(limits.KIND, f"a long call of {fn.name}()")
        globals_source = fn.globals_source
        if fn.fn is not None:
            globals_source = (
                FuncPartSource(fn.source, "__globals__")
                if fn.source is not None
                else ConstSource.of(fn.globals, "globals()")
            )
        frame = Frame(self, fn.code, fn.globals, globals_source, function=fn)
        frame.locals = bind(self, fn, args, kwargs)
        frame.free = fn.cells(self)
        if makes_generator(fn.code):
            return self.generators.new(frame, (fn, args, kwargs))
        return frame.run().value

    def refuse_arguments(self, fn: types.FunctionType, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Any:
        bind(self, FunctionVar(fn, ConstSource.of(fn, fn.__qualname__)), args, kwargs)
        self.graph_break("exception-in-traced-code", f"{fn.__qualname__}() does not take these arguments")

    def inline_polyfill(self, target: Any, polyfill: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        result = self.inline(polyfill, args, kwargs)
        if isinstance(result, GeneratorVar):
            result.origin = (BuiltinVar(target), args, kwargs)
            if isinstance(target, type):
                result.type = target
        return result

    @property
    def breaks_are_errors(self) -> bool:
        return self.options.fullgraph or self.error_on_break

    @property
    def graph_error_is_equivalent(self) -> bool:
        """Whether an error raised by the graph is equivalent to one raised by the program here: nothing handles the
        exception, no mode must be exited, and no side effects are pending."""
        handled = any(each.flow.region[each.at] is not None for each in self.frames)
        return not (handled or len(self.effects) or self.graph.in_mode)

    @property
    def result_decides_branch(self) -> bool:
        """Whether the next instruction branches on the result of the current one, and is not an assertion."""
        return asserts.decides_branch(self.frames[-1])

    @property
    def error_is_observable(self) -> bool:
        """Whether a handler or context manager of the program would see an exception raised here."""
        return any(map(ops_exc.error_is_observable, self.frames))

    @property
    def program_handles_errors(self) -> bool:
        """As `error_is_observable`, but for the steps of optimizers, which only restore the grad mode."""
        return any(ops_exc.error_is_observable(frame) for frame in self.frames if frame.code is not ops_exc.OF_STEPS)

    @property
    def is_in_block(self) -> bool:
        root = self.frames[0]
        return root.flow.region[root.at] is not None

    def graph_break(self, kind: str, detail: str) -> NoReturn:
        self.library_forwards |= positions.library_forwards(self.frames)
        raise self.breaks.exception_for(GraphBreak(kind, detail + positions.in_library(self.frames), self.user_stack()))

    def raise_(self, exc_type: type[BaseException], *args: Any) -> NoReturn:
        raise Raised(ExceptionVar(exc_type, [make(arg) for arg in args]))

    def break_again(self, kind: str, detail: str, stack: Sequence[UserLine]) -> NoReturn:
        raise self.breaks.exception_for(GraphBreak(kind, detail, stack))

    # ---- services to Vars and handlers ----
    def item_source(self, source: Source, key: Any) -> Source:
        return DictItemSource(source, key)

    def predict(self, tree: Tree, kind: type) -> Any:
        """The value of `kind(tree)` in this call, where `tree` depends on random draws; adds a guard for it. None if it
        cannot be predicted."""
        known = next((each for each in self.rng_branches if each.kind is kind and each.tree == tree), None)
        if known is not None:
            return known.outcome
        history = self.graph.history
        if len(self.rng_branches) == rng_guards.MAX_OUTCOMES and not self.options.fullgraph and history.predicts_draws:
            history.predicts_draws = False
            raise Restart()
        return rng_guards.predict(self, tree, kind)

    def may_guess(self) -> bool:
        """Whether a branch on an unknown number may become a guard on its outcome. Only in resume functions, and while
        there are few captures; otherwise the branch breaks the graph."""
        return self.known is not None and self.captures < self.options.recompile_limit // 2

    def const_source(self, value: Any, label: str) -> Source:
        return ConstSource.of(value, label)

    def cell(self, cell: types.CellType, source: Source | None) -> CellVar:
        """The CellVar of a cell that existed before the frame; one for each cell object."""
        found = self.cells.get(id(cell))
        if found is None:
            read = self.reader(cell, CellSource(source) if source else None)
            found = self.cells[id(cell)] = CellVar(None, source or ConstSource.of(cell, "cell"), read=read)
            self.keep_alive.append(cell)
        elif source is not None and source != found.source:
            known = source_of_cell(found.source)
            if known is not None and not (_of_known_function(source) and _of_known_function(known)):
                self.guard(source, "SAME", known)
        return found

    def reader(self, cell: types.CellType, source: Source | None) -> Callable[[], Var] | None:
        """Returns the Var of what a cell contains; None if it is empty."""
        try:
            value = cell.cell_contents
        except ValueError:
            return None
        return lambda: self.wrap(value, source)

    def known_cell(self, cell: types.CellType) -> CellVar | None:
        return self.cells.get(id(cell))

    def written_global(self, names: dict[str, Any], name: str) -> Var | None:
        return self.global_names.written(names, name)

    def store_global(self, names: dict[str, Any], name: str, value: Var) -> None:
        self.global_names.store(names, name, value)

    def raise_from(self, exc_type: type[BaseException], cause: Var, *args: Any) -> NoReturn:
        exc = ExceptionVar(exc_type, [make(arg) for arg in args])
        exc.set_context(self, cause)
        exc.store(self, "__cause__", cause)
        raise Raised(exc, fresh=False)

    def exception(self, kind: Any, *args: Any) -> Var:
        return as_exception(self, kind, *args)

    def handled(self) -> Var | None:
        """The innermost exception being handled."""
        return next((frame.handled() for frame in reversed(self.frames) if frame.handling), None)

    def guard_nothing_handled(self) -> None:
        """Guard that no caller is handling an exception; break the graph if one is."""
        if self.known is not None and self.known.handled:
            return
        if self.handled_outside:
            self.graph_break(
                "exception-in-traced-code", "the result depends on the exception that a caller is handling"
            )
        self.guard(ConstSource.of(sys, "sys"), "PREDICATE", (_nothing_handled, (), "no exception is being handled"))

    def has_attribute(self, obj: Var, name: str) -> bool:
        try:
            obj.getattr_(self, name)
        except Raised as raised:
            if not issubclass(raised.exc.python_type(), AttributeError):
                raise
            return False
        return True

    def call_next(self, method: Var | None) -> Var | None:
        """Call `__next__`; returns None on StopIteration."""
        if method is None:
            self.raise_(TypeError, "object is not an iterator")
        try:
            return self.call(method, [], {})
        except Raised as raised:
            if issubclass(raised.exc.python_type(), StopIteration):
                return None
            raise

    def spend(self, work: int) -> None:
        self.budget.left -= work
        if self.budget.left < 0:
            limits.too_long(self)

    def limit_size(self, size: int, what: str) -> None:
        if size > self.size_limit:
            self.graph_break("size-limit", f"{what} of {min(size, sys.maxsize):,}")

    def enter_frame(self, frame: Frame) -> None:
        frame.began, frame.around = self.budget.spent, None
        self.frames.append(frame)
        self.breaks.inlined_in_step = True

    def run_eagerly(self, why: str) -> NoReturn:
        if self.options.fullgraph:
            raise Unsupported(f"{why}\n  at {self.user_line()}")
        raise SkipFrame(why)

    def leave_frame(self, frame: Frame) -> None:
        self.frames.pop()

    # ---- breaks ----
    def real_step(self) -> int:
        """The step to break at so that the current instruction can run outside the graph. If an exception traced
        earlier is being handled, that is the step of its raise, because it must be raised at run time first."""
        return next((step for _, step in self.frames[0].handling if step), self.steps)

    # ---- the root frame ----
    def run(self) -> TraceResult:
        """Trace to the end or the first break. Raises Restart, SkipFrame, Unsupported or BackendCompilerFailed."""
        return run_root(self)

    def release(self) -> None:
        """Free everything when the capture is done. Vars, frames and the graph form reference cycles, which would keep
        the program's objects alive until the next garbage collection."""
        self.generators.forget()
        distributed_tensors.release_masks(self)
        for cell in (*self.new_cells, *self.cells.values()):
            cell.content = None
        self.graph.release()
        vars(self).clear()
