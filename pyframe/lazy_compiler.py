"""`LazyCompiler`: what a compiled function calls on a cache miss. It looks for a capture that an earlier process kept,
and imports the compiler only if there is none."""

from __future__ import annotations

import functools
import importlib
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from inductor.log.stages import compiling_is_shown, is_shown
from inductor.process.compile_lock import compile_lock, importing, make_once

from . import _C, config, originals, stance
from .core import weak_codes
from .core.weak_codes import WeakCodes
from .errors import Unsupported
from .frame_cache.context import is_plain_context
from .metrics import counters
from .options import Options, kept_settings
from .skipped_frames import is_importing, is_skipped

if TYPE_CHECKING:
    from .driver import FrameCompiler
    from .sibling_captures import Siblings

_Values = tuple[Any, ...]
_COMPILER = f"{__package__}.driver"


def import_part(name: str) -> Any:
    """A module of this package that imports the compiler, which a process that loads its captures from disk does not
    need. The program's torch modes do not see what modules do where they are imported."""

    def load() -> Any:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return importlib.import_module(f"{__package__}.{name}")

    return importing(load)


class LazyCompiler:
    """Stands for a FrameCompiler of the backend "inductor", which it creates when it is needed; both have one owner."""

    captures = None  # `explain` creates FrameCompilers

    def __init__(self, options: Options, settings: dict[str, Any]) -> None:
        """`settings`: the keyword arguments of `backends.find_backend`."""
        self.options, self.settings = options, settings
        self.owner = object()
        self.always: set[types.CodeType] = set()
        self._loaded: WeakCodes = {}  # code objects for which an entry was loaded
        # for each entry its function's code, its own, and the arguments and what varies, as in FrameRecord
        self._entries: list[tuple[weakref.ref[types.CodeType], weakref.ref[types.CodeType], _Values, _Values]] = []
        self._calls: Any = None  # see `store.Calls`
        self._compiler: FrameCompiler | None = None
        self._kept = kept_settings(options, "inductor")
        self.siblings: Siblings | None = None
        weakref.finalize(self, _release, self.owner, self._loaded).atexit = False

    def __call__(
        self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState,
        caller: types.FrameType | None = None,
    ) -> Any:
        caller = caller or sys._getframe().f_back
        if self._compiler is None:
            if _COMPILER not in sys.modules and not originals.as_at_import():
                return self._run_uncaptured(func)
            if self._may_load(func, state):
                if func.__code__ not in self.always:
                    if self.options.fullgraph:
                        return None
                    if is_skipped(func, self._is_resume(func.__code__)):
                        return _C.SKIP
                    if is_importing(caller, self.always, self._is_generated):
                        return None
                found = make_once(
                    (id(self), id(func.__code__)),
                    lambda: self._find_entry(func, locals_, state),
                    lambda: self._load(func, locals_, state),
                )
                if found is not None:
                    return found
                weak_codes.add(self.compiler().looked_up, func.__code__)
        return self.compiler()(func, locals_, state, caller)

    def _is_resume(self, code: types.CodeType) -> bool:
        """Whether this is a resume function. They are made by a module that is not imported before there is one."""
        resume = sys.modules.get(f"{__package__}.emit.resume")
        return resume is not None and resume.continuation(code) is not None

    def _is_generated(self, code: types.CodeType) -> bool:
        return any(generated() is code for _, generated, *_ in self._entries)

    def compiler(self) -> FrameCompiler:
        """The compiler itself."""
        if self._compiler is None:
            driver = import_part("driver")
            with compile_lock:
                if self._compiler is None:
                    self._compiler = self._create(driver)
        return self._compiler

    def _backend(self) -> Any:
        """What compiles graphs."""
        return import_part("backends").find_backend("inductor", **self.settings)

    def _create(self, driver: Any) -> FrameCompiler:
        backend = self._backend()
        compiler: FrameCompiler = driver.FrameCompiler(backend, self.options, "inductor", self.owner, self.always)
        for ref, generated, arguments, varied in self._entries:
            if (code := ref()) is not None:
                compiler.note_loaded(code, generated(), arguments, varied)
        self._entries.clear()
        compiler.calls = self._calls or compiler.calls
        compiler.siblings = self.siblings
        return compiler

    def _run_uncaptured(self, func: types.FunctionType) -> None:
        """Run a frame eagerly because the compiler cannot be imported now."""
        if self.options.fullgraph and func.__code__ in self.always:
            raise Unsupported(
                f"{func.__qualname__} runs eagerly, and fullgraph=True does not allow that: the process has replaced a "
                "function or method that captures depend on"
            )

    def _find_entry(self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState) -> _C.Entry | None:
        """An entry that another thread has loaded meanwhile."""
        mine = (entry for entry in state.entries if entry.owner is self.owner)
        return next((entry for entry in mine if entry.guards.check(func, locals_)[0] < 0), None)

    def _may_load(self, func: types.FunctionType, state: _C.CodeState) -> bool:
        """Whether a kept capture may serve this call. What is unusual is left to the compiler, which looks again."""
        if self._kept is None or config.frame_cache != "on" or _COMPILER in sys.modules or compiling_is_shown():
            return False
        entries = sum(entry.owner is self.owner for entry in state.entries)
        if entries and (config.error_on_recompile or entries >= self.options.recompile_limit or is_shown("recompiles")):
            return False
        return stance.current() == "default" and is_plain_context()

    def _load(self, func: types.FunctionType, locals_: tuple[Any, ...], state: _C.CodeState) -> Any:
        from .frame_cache import store  # deferred: `import pyframe` does not need it

        assert self._kept is not None
        self._calls = self._calls or store.Calls()
        again = any(entry.owner is self.owner for entry in state.entries)
        if self.siblings is not None:
            note = functools.partial(self._note_shared, func.__code__)
            if (shared := self.siblings.take_over(self, func, locals_, note)) is not None:
                return shared
        found = store.find(func, locals_, self._kept, self.owner, self._backend, self._calls)
        if found is None:
            return None
        entry, record = found
        if record.eager:
            return _C.SKIP
        counters["recompiles"] += again
        self._note_loaded(func.__code__, entry, record.arguments, record.varied)
        if self.siblings is None:
            _C.install(func.__code__, entry)
        else:
            self.siblings.install(self, func.__code__, entry)
        return entry

    def _note_loaded(self, code: types.CodeType, entry: _C.Entry, arguments: _Values, varied: _Values) -> None:
        weak_codes.add(self._loaded, code)
        assert entry.code is not None
        self._entries.append((weakref.ref(code), weakref.ref(entry.code), arguments, varied))

    def _note_shared(self, code: types.CodeType, entry: _C.Entry, other: Any, its_code: types.CodeType) -> None:
        assert isinstance(other, LazyCompiler)  # there is no other one before the compiler is imported
        self._note_loaded(code, entry, *other.loaded(its_code, entry.code))

    def loaded(self, code: types.CodeType, generated: types.CodeType | None) -> tuple[_Values, _Values]:
        """The arguments of an entry that was loaded, and what varies in it."""
        return next(
            (arguments, varied) for of, made, arguments, varied in self._entries
            if of() is code and made() is generated
        )  # fmt: skip


def _release(owner: object, codes: WeakCodes) -> None:
    """Remove the entries of a compiler that was garbage-collected from code objects that still exist."""
    for code in [ref() for ref in list(codes.values())]:
        if code is None:
            continue
        for entry in _C.entries(code):
            if entry.owner is owner:
                _C.evict(code, entry)
