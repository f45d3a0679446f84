"""The callback of a cache miss: captures the frame (traces its bytecode, has the backend compile the graph and installs
the result as a cache entry) or decides that it runs eagerly. `recompile.py` decides whether a function that has entries
is captured again; `entries.py` assembles the entry of a finished trace."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from inductor.aot.fake import fake_mode
from inductor.budget import Budget, spending
from inductor.log import stages
from inductor.log.progress import compiling, enter_phase
from inductor.log.stages import show
from inductor.log.warnings import warn
from inductor.process.compile_lock import make_once
from inductor.process.thread_state import restored_on_error

from . import _C, config, markers, requirements, stance
from .backends import Backend, find_backend
from .core import weak_codes
from .core.guard import Guard, UserLine
from .core.guard_program import LoweredGuards
from .core.trace_reliances import recorded_reliances
from .core.weak_codes import WeakCodes
from .emit.fake_tensor_logs import with_filter
from .emit.function_names import place
from .emit.graph import GraphBuilder
from .emit.output import OutputBuilder, TraceResult
from .emit.resume import continuation
from .entries import make_entry
from .errors import (
    BackendCompilerFailed,
    GraphBreak,
    InternalError,
    Restart,
    SkipFrame,
    Unsupported,
)
from .frame_cache import captures as kept_captures
from .frame_cache import store
from .graph_compilation import as_called, compiled_by, too_small
from .interp.limits import LongParts
from .interp.trace import Trace
from .metrics import counters
from .options import Options, kept_settings, why_not_kept
from .recompile import RecompilePolicy
from .sibling_captures import Compiler, Siblings
from .skipped_frames import is_importing, is_skipped
from .torch_resets import follow_resets
from .vars.numbers.dynamic import CaptureHistory
from .vars.protocol.class_reads import reads_of_classes
from .vars.torch_objects import torch_functions, user_directives
from .vars.torch_objects.overrides import are_traced, modes_around

MAX_RESTARTS = 200
_SHARING_STANCES = ("default", "fail_on_recompile", "eager_on_recompile")  # those under which all entries are used


@dataclass(slots=True)
class Capture:
    """What `explain` shows of one captured frame."""

    function: str
    guards: list[Guard]
    graphs: list[torch.fx.GraphModule]
    breaks: list[Any]
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: str | None = None  # why the frame runs eagerly
    on_disk: str | None = None  # whether the capture is kept on disk for other processes, or why not
    guard_seconds: float = 0.0  # of one evaluation of all guards
    resumed_after: UserLine | None = None  # of a resume function: the line of the break


_recorded: list[Capture] | None = None  # where compilers created from now on list their captures, if anywhere


@contextlib.contextmanager
def recorded_captures() -> Iterator[list[Capture]]:
    """A list that receives all captures, in all threads, of functions that are compiled within the block."""
    global _recorded
    before, _recorded = _recorded, []
    try:
        yield _recorded
    finally:
        _recorded = before


def observed() -> str | None:
    """If frames must run eagerly because something around the call has to see every operator: what it is."""
    if torch._C._functorch.maybe_current_level() is not None:
        return "a torch.func transform (vmap, grad, ...) around the call"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation around the call"
    if not are_traced():
        return "a __torch_function__ mode of torch around the call"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a __torch_dispatch__ mode around the call"
    return "torch.jit.trace around the call" if torch._C._is_tracing() else None


def _in_operator() -> bool:
    """Whether `__torch_dispatch__` or a kernel of an operator made the call. Frames then run eagerly, because autograd
    records nothing and functionalization does not work."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    return excluded("Functionalize") or (excluded("AutogradCPU") and not torch.is_inference_mode_enabled())


class FrameCompiler:
    """The callback of the frame evaluation hook for one `compile()`: captures frames with one backend and one set of
    options."""

    output: type[OutputBuilder] = OutputBuilder  # what builds the result of a finished trace

    def __init__(
        self, backend: Backend, options: Options, backend_name: str, owner: object = None,
        always: set[types.CodeType] | None = None,
    ) -> None:
        self.backend, self.options, self.backend_name = backend, options, backend_name
        # that of the backend, if it has one: both spend it
        shared = getattr(backend, "keywords", {}).get("budget_s")
        self.budget: Budget | None = shared or (None if options.budget_s is None else Budget(options.budget_s))
        self.owner = object() if owner is None else owner
        self.codes_with_entries: WeakCodes = {}  # code objects that may have entries of this compiler
        weakref.finalize(self, _release, self.owner, self.codes_with_entries).atexit = False
        self.always: set[types.CodeType] = set() if always is None else always
        self.generated: WeakCodes = {}  # code objects that this compiler generated
        self.captures = _recorded  # `explain` sets a list of its own
        self.for_first_calls: FrameCompiler | None = None  # under the stance "aot_eager_then_compile"
        self.keeps_empty = False  # also replace frames without a graph and side effects
        self.warned: weakref.WeakSet[types.CodeType] = weakref.WeakSet()  # see `_warn_of_eager_run`
        self.recompiles = RecompilePolicy(self.owner, options, self.always)
        self.history: weakref.WeakKeyDictionary[types.CodeType, CaptureHistory] = weakref.WeakKeyDictionary()
        self.long = LongParts()
        self.library_forwards: weakref.WeakSet[types.CodeType] = weakref.WeakSet()  # code of torch that is captured
        self.announced: set[tuple[str, str, int] | None] = set()
        self.kept_settings = kept_settings(options, backend_name)
        self.looked_up: WeakCodes = {}  # code objects of which no kept capture fits, as `LazyCompiler` has found
        self.calls = store.Calls()
        self.keys: Any = None  # those of the call that is captured now, before it is traced
        self.kept_before: Any = None  # under config.frame_cache = "check": the record of an earlier process
        self.on_disk: str | None = None  # what `Capture` has of that name, of the last capture
        self.siblings: Siblings | None = None
        self.backend_seconds = threading.local()  # `spent`: seconds in the backend during this thread's current capture

    def __call__(
        self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState,
        caller: types.FrameType | None = None,
    ) -> Any:
        """What the hook expects for a call that no entry fits; `caller`: the frame that makes it."""
        if self.skips(func):
            return _C.SKIP
        caller = caller or sys._getframe().f_back
        if caller is not None and id(caller.f_code) in user_directives.EAGER_CALLERS:
            return None
        if self.recompiles.runs_eagerly(func.__code__, state):
            return None
        if not requirements.are_unchanged(func, locals_):
            return self._run_uncaptured(func, "the process has replaced a function or method that captures depend on")
        if (observer := observed()) is not None:
            return self._run_uncaptured(func, f"{observer} has to see every operator")
        if _in_operator():
            self._warn_of_eager_run(func, "it is called by __torch_dispatch__ or by a kernel of an operator")
            return None
        if self._importing(func):
            return None
        return make_once(
            (id(self), id(func.__code__)),
            lambda: self._find_entry(func, locals_, state),
            lambda: self._handle_miss(func, locals_, state),
        )

    def compiler(self) -> FrameCompiler:
        """This compiler: that of a LazyCompiler is what it creates."""
        return self

    def _run_uncaptured(self, func: types.FunctionType, why: str) -> None:
        """Run this frame eagerly. Unsupported for the compiled function itself under `fullgraph`."""
        if self.options.fullgraph and func.__code__ in self.always:
            raise Unsupported(f"{place(func)} runs eagerly, and fullgraph=True does not allow that: {why}")

    def _warn_of_eager_run(self, func: types.FunctionType, why: str) -> None:
        """Warn, once per function, that a function compiled with `fullgraph` runs eagerly. Not an error, because the
        caller of the function, part of torch, decides about it."""
        code = func.__code__
        if self.options.fullgraph and code in self.always and code not in self.warned:
            self.warned.add(code)
            warn(f"pyframe: {place(func)} runs eagerly despite fullgraph=True: {why}")

    def _find_entry(self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState) -> _C.Entry | None:
        """An entry that fits this call and that another thread installed after this call's guards were evaluated."""
        mine = [e for e in state.entries if e.owner is self.owner]
        if len(mine) >= self.options.recompile_limit:  # at the limit each miss comes here: skip the search
            return None
        return next((e for e in mine if e.guards.check(func, locals_)[0] < 0), None)

    def _handle_miss(self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState) -> Any:
        """Capture a call that no entry fits. Returns what the hook expects: an entry, SKIP, or None to run the frame
        eagerly."""
        code = func.__code__
        if id(code) not in self.codes_with_entries:
            weak_codes.add(self.codes_with_entries, code)
        entries = [e for e in state.entries if e.owner is self.owner]
        history = self.history.get(code)
        if history is not None and history.begun:
            history.begun = False
        elif not entries:
            self.history.pop(code, None)
        if (shared := self._shared_entry(func, locals_, entries)) is not None:
            return shared
        if not self.recompiles.allows(func, locals_, entries):
            return None
        if not entries and self.recompiles.is_first_call(code):
            return self._first_call(func, locals_, state)
        if entries and not self.recompiles.may_recompile(func, locals_, entries):
            return None
        return self._captured_or_eager(func, locals_, entries)

    def _shared_entry(
        self, func: types.FunctionType, locals_: tuple[Any, ...], entries: list[_C.Entry]
    ) -> _C.Entry | None:
        """An entry for this call, which fits none of `entries`, that a compiler with equal settings has."""
        code = func.__code__
        if self.siblings is None or self.captures is not None or len(entries) >= self.options.recompile_limit:
            return None
        if self.options.fullgraph and code not in self.always:
            return None
        if stance.current() not in _SHARING_STANCES:
            return None
        entry = self.siblings.take_over(self, func, locals_, functools.partial(self._learn_from, code))
        if entry is not None:
            show("cache", f"frame {func.__qualname__}: the capture of another compiled function or module serves it")
        return entry

    def _learn_from(self, code: types.CodeType, entry: _C.Entry, sibling: Compiler, its_code: types.CodeType) -> None:
        """Take over from the compiler whose capture of `its_code` becomes an entry of `code` what it found out."""
        other = sibling.compiler()
        seen = other.history.get(its_code)
        if seen is not None:
            self.history.setdefault(code, CaptureHistory()).join(seen)
        self.library_forwards.update(other.library_forwards)
        if entry.code is not None:
            weak_codes.add(self.generated, entry.code)

    def _first_call(self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState) -> Any:
        """What `_handle_miss` returns for a first call under a stance that runs it eagerly or with "aot_eager"."""
        history = self.history.setdefault(func.__code__, CaptureHistory())
        if stance.current() == "eager_then_compile":
            history.begin(func.__code__.co_varnames, locals_)
            return None
        if self.for_first_calls is None:
            self.for_first_calls = first = FrameCompiler(find_backend("aot_eager"), self.options, "aot_eager")
            first.always, first.history, first.captures = self.always, self.history, self.captures
            first.budget = self.budget
            self.recompiles.first_codes = first.generated
        first = self.for_first_calls
        found = first._find_entry(func, locals_, state)
        if found is None:
            found = first._captured_or_eager(func, locals_, [])
            weak_codes.add(first.codes_with_entries, func.__code__)
        history.begun = True
        return found

    def _captured_or_eager(self, func: types.FunctionType, locals_: tuple[Any, ...], entries: list[_C.Entry]) -> Any:
        """What `_handle_miss` returns for a call that may be captured; `entries` are those that do not fit."""
        code = func.__code__
        if self.budget is not None and not self.budget.left():
            counters["over_budget"] += 1
            return self._runs_eagerly(func, str(self.budget), entries)
        try:
            with spending(self.budget):
                follow_resets()
                user_directives.follow_substitutes()
                if (kept := self._kept_entry(func, locals_)) is not None:
                    return kept
                entry = self._capture(func, locals_, len(entries))
                start = time.perf_counter()
                failed = entry.guards.check(func, locals_, False)[0]
                if self.captures:
                    self.captures[-1].guard_seconds = time.perf_counter() - start
                if failed >= 0:  # a finalizer, for example, changed what was read
                    entry = self._capture(func, locals_, len(entries))
            _C.install(code, entry)  # before threads that wait for this capture continue: they look for it
            return entry
        except SkipFrame as skip:
            if self.keys is not None and not skip.nothing:
                counters["frames_not_kept"][f"it runs eagerly: {skip}"] += 1
            if self.options.fullgraph and not skip.nothing:
                raise Unsupported(f"{place(func)} cannot be captured: {skip}") from skip
            return self._runs_eagerly(func, str(skip), entries, skip.nothing)
        except RecursionError:  # the stack is nearly full, or a traced object is nested too deep
            if self.options.fullgraph:
                raise
            show("graph", f"{code.co_qualname} runs eagerly: the recursion limit was reached")
            return None
        except (BackendCompilerFailed, InternalError) as error:
            if not config.suppress_errors:
                raise
            warn(f"pyframe: {place(func)} runs eagerly: {error}")
            return _C.SKIP

    def _runs_eagerly(
        self, func: types.FunctionType, why: str, entries: list[_C.Entry], nothing: bool = False
    ) -> Any:
        """What `_handle_miss` returns for a call that is not captured. `nothing`: there is nothing to capture, which is
        not reported."""
        code = func.__code__
        show("graph", f"{code.co_qualname} runs eagerly: {why}")
        if self.captures is not None and not nothing:
            self.captures.append(Capture(func.__qualname__, [], [], [], skipped=why))
        if not entries:
            return _C.SKIP
        self.recompiles.skipped[code] = self.recompiles.skipped.get(code, 0) + 1
        return None

    def _kept_entry(self, func: types.FunctionType, locals_: tuple[Any, ...]) -> Any:
        """The entry that an earlier process has kept for a call, or SKIP if it found that there is nothing to compile;
        None if there is neither."""
        self.kept_before = self.keys = None
        if self._not_kept() is not None:
            return None
        assert self.kept_settings is not None
        self.keys = store.keys_of(func, locals_, self.kept_settings)
        if self.looked_up.pop(id(func.__code__), None) is not None:
            return None
        shown = stages.compiling_is_shown() or self.captures is not None
        if shown or self.keys is None:
            return None
        found = store.find(func, locals_, self.kept_settings, self.owner, lambda: self.backend, self.calls, self.keys)
        if found is None:
            return None
        entry, record = found
        if config.frame_cache == "check":
            self.kept_before = record
            return None
        if record.eager:
            return self._runs_eagerly(func, "nothing to compile", [], nothing=True)
        self.note_loaded(func.__code__, entry.code, record.arguments, record.varied)
        _C.install(func.__code__, entry)
        if self.siblings is not None:
            self.siblings.offer(self, func.__code__, entry)
        return entry

    def note_loaded(
        self, code: types.CodeType, generated: types.CodeType | None, arguments: tuple[Any, ...],
        varied: tuple[Any, ...],
    ) -> None:
        """Note that an entry was loaded from disk, the sizes and numbers that its capture had as arguments, and which
        of them vary in it (see FrameRecord)."""
        self.history.setdefault(code, CaptureHistory()).note(code.co_varnames, arguments, varied)
        if generated is not None:
            weak_codes.add(self.generated, generated)
        if id(code) not in self.codes_with_entries:
            weak_codes.add(self.codes_with_entries, code)

    def _not_kept(self) -> str | None:
        """Why no capture is kept on disk now; None if captures may be. "" if that is not wanted."""
        if config.frame_cache == "off":
            return ""
        if self.kept_settings is None:
            return why_not_kept(self.options, self.backend_name)
        if self.keeps_empty:
            return "a capture of pyframe.testing"
        if user_directives.any_given():
            return "the program has marked a function with a directive"
        return None if stance.current() == "default" else f"the stance {stance.current()!r}"

    def _keep(
        self, func: types.FunctionType, result: TraceResult, trace: Trace, lowered: LoweredGuards,
        counted: list[bool], eager: bool,
    ) -> None:
        """Keep a capture on disk, if that is possible. `counted`, `eager`: as for `record_of`."""
        why = self._not_kept()
        self.on_disk = f"not kept on disk: {why}" if why else None
        if why is not None:
            return
        make = functools.partial(
            kept_captures.record_of, func, trace.entry_locals, result, trace, lowered, counted, eager
        )
        before, self.kept_before = self.kept_before, None
        if before is not None and not trace.captures and not (trace.known is not None and trace.known.varying):
            kept_captures.compare(before, make())  # others depend on what has varied so far
        assert self.kept_settings is not None
        call = func, trace.entry_locals, self.kept_settings
        reason = store.keep(*call, make, self.calls, bool(trace.captures), self.keys)
        self.on_disk = "kept on disk" if reason is None else f"not kept on disk: {reason}"

    def _importing(self, func: types.FunctionType) -> bool:
        """Whether this frame runs for an import that the program triggered; such module code is not captured."""
        if func.__code__ in self.always:
            return False
        return is_importing(sys._getframe(1), self.always, lambda code: id(code) in self.generated)

    def skips(self, func: types.FunctionType) -> bool:
        """Whether frames of this function are never captured on their own: functions in skipped files, except for
        `library_forwards` and their resume functions, and `__torch_function__` overrides, which receive a different
        function in each call."""
        code = func.__code__
        if code in self.always or code in self.library_forwards:
            return False
        return is_skipped(func, continuation(code) is not None)

    # ---- capturing ----
    def _capture(self, func: types.FunctionType, locals_: tuple[Any, ...], captures: int) -> _C.Entry:
        """A new entry for this call. `captures` is how many the function already has. The state of the thread and the
        filters of torch's logger are then as before, also if the capture raises."""
        with compiling(func.__qualname__):
            enter_phase("capture", unit="operators")
            start = time.perf_counter()
            entry = with_filter(lambda: restored_on_error(lambda: self._traced_entry(func, locals_, captures)))
            if config.verbose:
                print(f"pyframe: captured {place(func)} in {time.perf_counter() - start:.2f} s", file=sys.stderr)
            return entry

    def _traced_entry(self, func: types.FunctionType, locals_: tuple[Any, ...], captures: int) -> Any:
        start = time.perf_counter()
        state = _C.GlobalState.capture()
        self.backend_seconds.spent = 0.0
        overrides = torch._C._get_torch_function_state()  # type: ignore[attr-defined, unused-ignore]  # not in torch's stubs
        modes = modes_around()
        with torch._C.DisableTorchFunction() if modes else torch._C.DisableTorchFunctionSubclass():
            result, trace = self._trace(func, locals_, captures, (overrides, modes))
            try:
                entry = self._finish(func, result, trace, state, captures)
            finally:
                trace.release()
        if self.captures is not None:
            total = time.perf_counter() - start
            backend = self.backend_seconds.spent
            seconds = {"capture": total - backend, "backend": backend}
            known = continuation(func.__code__)
            after = known.after if known is not None else None
            guards = list(result.guards)
            self.captures.append(
                Capture(func.__qualname__, guards, result.gms, result.breaks, seconds, resumed_after=after,
                        on_disk=self.on_disk)  # fmt: skip
            )
        return entry

    def _finish(
        self, func: types.FunctionType, result: TraceResult, trace: Trace, state: _C.GlobalState, captures: int
    ) -> Any:
        """The entry of a finished trace; `captures` is how many captures the frame already has."""
        counted = [self._is_first_report(brk) for brk in result.breaks]
        for brk, count in zip(result.breaks, counted, strict=True):
            counters["graph_breaks"][brk.kind] += count
            where = brk.stack[-1] if brk.stack else func.__qualname__
            show("breaks", f"{brk.kind} at {where}: {brk.detail}")
            if config.verbose:
                print(f"pyframe: graph break in {place(func)}: {brk.detail}, at {where}", file=sys.stderr)
        nothing = result.compiled is None and not result.breaks and not len(trace.effects)
        # next to other captures an empty one is installed, so that calls like this one are not traced again
        kept = self.keeps_empty or 0 < captures < self.options.recompile_limit // 2
        if nothing and trace.generators.unfinished:
            if self.options.fullgraph or self.captures is not None:
                raise SkipFrame("its operators are in a generator that it creates and does not use up")
        eager = nothing and not trace.rng_branches and not kept
        if not eager:
            weak_codes.add(self.generated, result.code)
        if not eager or (not captures and self._not_kept() is None and not self.options.fullgraph):
            entry, lowered = make_entry(result, trace, state, self.owner)
            self._keep(func, result, trace, lowered, counted, eager)
        if eager:
            raise SkipFrame("nothing to compile", nothing=True)
        if self.siblings is not None and not trace.reliances.facts:  # such as the id() of what this call has
            self.siblings.offer(self, func.__code__, entry)
        return entry

    def _is_first_report(self, brk: GraphBreak) -> bool:
        """Whether to report this break. A frame that stops before a call or loop because of a break inside it reports
        that break, and the capture of the callee or loop body would report it a second time."""
        where = (brk.kind, brk.stack[-1].filename, brk.stack[-1].lineno) if brk.stack else None
        ahead = len(brk.stack) > 1 or bool(brk.context.get("ahead"))
        if where is None or where not in self.announced:
            if ahead:
                self.announced.add(where)
            return True
        if not ahead:
            self.announced.discard(where)
        return False

    def _trace(
        self, func: types.FunctionType, locals_: tuple[Any, ...], captures: int, overrides: tuple[Any, list[Any]]
    ) -> tuple[TraceResult, Trace]:
        planned_breaks: dict[int, Any] = {}
        opaque: dict[int, Any] = {}
        history = self.history.setdefault(func.__code__, CaptureHistory())
        history.concrete = bool(overrides[1])  # modes would see reads of symbolic sizes
        known = continuation(func.__code__)
        history.varied |= known.sizes if known is not None else set()
        forwards: set[types.CodeType] = set()
        for _ in range(MAX_RESTARTS):
            build = functools.partial(GraphBuilder, fake_mode, history)
            trace = Trace(
                func, locals_, self.options, build, self._compile_graph, planned_breaks, captures, opaque, self.long,
                forwards, self.output,
            )
            result = None
            try:
                with reads_of_classes(trace.class_reads), recorded_reliances() as trace.reliances:
                    trace.overrides.begin(*overrides)
                    result = trace.run()
                return result, trace
            except Restart:
                continue
            finally:
                counters["instructions_traced"] += trace.instructions
                self.library_forwards.update(forwards)
                trace.graph.modes.unwind()
                if result is None:
                    trace.release()
        raise InternalError(f"{func.__qualname__} could not be traced in {MAX_RESTARTS} restarts")

    def _compile_graph(self, trace: Trace, gm: torch.fx.GraphModule) -> Any:
        if trace.func.__code__ not in self.always and too_small(gm.graph, trace.known):
            return as_called(gm.forward, trace.graph)
        counters["graphs"] += 1
        show("graph", gm.print_readable, False)
        start = time.perf_counter()
        try:
            return compiled_by(self.backend, self.backend_name, trace, gm)
        finally:
            self.backend_seconds.spent += time.perf_counter() - start


torch_functions.BREAKS[markers.graph_break] = "explicit-break"
torch_functions.BREAKS[stance.set_stance] = torch_functions.BREAKS[markers.reset] = "compiler-switch"
torch_functions.COMPILING.add(markers.is_compiling)


def _release(owner: object, codes_with_entries: WeakCodes) -> None:
    """Remove the entries of a compiler that was garbage-collected from code objects that still exist."""
    for code in [ref() for ref in list(codes_with_entries.values())]:
        if code is None:
            continue
        for entry in _C.entries(code):
            if entry.owner is owner:
                _C.evict(code, entry)
