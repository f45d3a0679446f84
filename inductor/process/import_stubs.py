"""Stub modules for the few names of torch._dynamo and torch._inductor that torch's tracing reads.

Fake tensors and `make_fx` import both packages (1.2 s) only to read settings whose defaults are known. Inside
`stub_torch_compiler`, these imports find the stubs defined here, unless the real modules are loaded. If any thread
reads another attribute of a stub, the stub imports the real module and reads it from there.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any, ClassVar

from torch import fx

from .symbolic_stub import NAME as SYMBOLIC_SHAPES
from .symbolic_stub import SYMPY, SymbolicShapesStub, SympyStub, load_sympy

_ROOTS = ("torch._dynamo", "torch._inductor")
_MOST_SECONDS = 1.0  # for which an import of the real packages waits for the blocks of other threads


class ModuleStub(ModuleType):
    """A stub module. It has the attributes `known`; those in `absent` do not exist until the real module is used; every
    other attribute is read from the object that `load` returns."""

    def __init__(self, name: str, load: Callable[[], Any], absent: Sequence[str] = (), **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)
        self.__dict__.update(_load=load, _absent=absent)

    def __getattr__(self, name: str) -> Any:
        # code that scans all modules reads __file__ and similar attributes
        if name.startswith("__") or name in self.__dict__["_absent"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.__dict__["_load"](), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_load"](), name, value)


class _Source:
    """Stub of the classes that describe where a tensor comes from; without symbolic shapes they are never read."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    @property
    def name(self) -> str:
        return f"{type(self).__name__}{self.parts}"


class _ConstantSource(_Source):
    pass


class _AttrSource(_Source):
    pass


class _EphemeralSource(_Source):
    pass


class _RandomValueSource(_Source):
    pass


class _CompilerBisector:
    @staticmethod
    def disable_subsystem(*args: Any) -> bool:
        """Whether the bisector has disabled a compiler step; never, while torch's compiler is not loaded."""
        return False


def _disable(fn: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """`fn`, wrapped with torch._dynamo.disable once that is loaded; torch keeps the returned function permanently."""
    resolved: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not resolved:
            disable = getattr(_real_or_none("torch._dynamo"), "disable", None)
            if disable is None:  # not loaded, or being loaded right now
                return fn(*args, **kwargs)
            resolved.append(disable(fn, recursive, **options))
        return resolved[0](*args, **kwargs)

    return call


def _dedupe_symints(graph: fx.Graph) -> None:
    """Does nothing: repeated SymInts become Sizes, which are computed once."""


def _make_all() -> dict[str, ModuleType]:
    modules: dict[str, ModuleType] = {
        SYMBOLIC_SHAPES: SymbolicShapesStub(SYMBOLIC_SHAPES), SYMPY: SympyStub(SYMPY),
    }  # fmt: skip

    def module(name: str, absent: Sequence[str] = (), **known: Any) -> ModuleStub:
        made = modules[name] = ModuleStub(name, lambda: _load(name), absent, **known)
        return made

    trace = ModuleStub("trace", lambda: _load("torch._inductor.config").trace, provenance_tracking_level=0)
    module(
        "torch._dynamo",
        __path__=[],
        disable=_disable,
        config=module(
            "torch._dynamo.config",
            fake_tensor_cache_enabled=os.environ.get("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "1") == "1",
            fake_tensor_cache_crosscheck_enabled=os.environ.get("TORCH_FAKE_TENSOR_DISPATCH_CACHE_CROSSCHECK") == "1",
            _custom_ops_profile=None,
        ),
        source=module(
            "torch._dynamo.source",
            ConstantSource=_ConstantSource,
            AttrSource=_AttrSource,
            EphemeralSource=_EphemeralSource,
            RandomValueSource=_RandomValueSource,
        ),
    )
    # Every ShapeEnv calls it, and its module imports torch._dynamo. It is false unless a setting that needs z3 is on.
    module("torch.fx.experimental.validator", translation_validation_enabled=lambda: False)
    module(
        "torch._inductor",
        absent=("codecache",),  # torch looks for it whenever it prints a C++ traceback
        __path__=[],
        config=module(
            "torch._inductor.config", emulate_precision_casts=False, fallback_random=False, trace=trace,
            effective_provenance_tracking_level=lambda: 0,
        ),
        compiler_bisector=module("torch._inductor.compiler_bisector", CompilerBisector=_CompilerBisector),
        fx_passes=module(
            "torch._inductor.fx_passes",
            __path__=[],
            dedupe_symint_uses=module("torch._inductor.fx_passes.dedupe_symint_uses", dedupe_symints=_dedupe_symints),
        ),
    )
    return modules


def _real_or_none(name: str) -> ModuleType | None:
    found = sys.modules.get(name)
    return None if isinstance(found, ModuleStub) else found


def peers_loaded() -> bool:
    """Whether the real packages are loaded; stubs are then not needed."""
    return all(_real_or_none(root) is not None for root in _ROOTS)


def _load(name: str) -> ModuleType:
    """Import the real module; removes the stubs from `sys.modules`."""
    with stub_torch_compiler.outside():
        with stub_torch_compiler.lock:
            stub_torch_compiler.withdraw_when_unused()
        return importlib.import_module(name)


class _Finder(MetaPathFinder):
    """Observes imports of the real packages: when one begins, the stubs are removed.

    A submodule of a stub that has no stub itself is loaded from the real package.

    It stays in `sys.meta_path` from the import of this module on, not only while the stubs are in place. An import in
    another thread looks for its finders some time before the module's first line runs; if it had done so before the
    finder was added, the stubs would be placed beside a package that is being imported. `remove_finder` removes it.
    """

    @staticmethod
    def find_spec(name: str, path: Iterable[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.startswith(f"{SYMPY}.") and isinstance(sys.modules.get(SYMPY), SympyStub):
            load_sympy()
            return _found(name)
        if not name.startswith(_ROOTS):
            return None
        if name in _ROOTS:
            with stub_torch_compiler.lock:
                stub_torch_compiler.begun[name] = None
                stub_torch_compiler.withdraw_when_unused()
        elif isinstance(sys.modules.get(name.rpartition(".")[0]), ModuleStub):
            _load(name)
            return _found(name)
        return None


def _found(name: str) -> ModuleSpec | None:
    """A spec of the module `name` that does not run its code again if it is loaded."""
    module = importlib.import_module(name)
    # The import system would take the module's own spec where it finds the module, and run its code again. It puts the
    # module back; other threads wait for the lock of this import meanwhile.
    sys.modules.pop(name, None)
    return importlib.util.spec_from_loader(name, _Loaded(module))


class _Loaded(Loader):
    """A loader that returns an already loaded module."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _StubTorchCompiler:
    """Context manager: torch's lazy imports of its compiler find stubs. Reentrant; shared by all threads.

    The real packages import each other in a circle. A thread that imports a part of them while another thread is in
    the middle of that circle may find modules without their names, so an import of the real packages begins when the
    other threads have left their blocks, and a thread enters its first block when such an import is complete.
    """

    lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        self.depth = 0
        self.modules: dict[str, ModuleType] = {}
        self.begun: dict[str, None] = {}  # the real packages whose import has begun, in that order
        self.inside: dict[int, int] = {}  # the active blocks of each thread, by its identifier
        self.waiting = 0  # imports of the real packages that wait for blocks to end
        self.changed = threading.Condition(self.lock)

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self.begun and me not in self.inside:
            self._wait_for_imports()
        with self.lock:
            self.depth += 1
            self.inside[me] = self.inside.get(me, 0) + 1
            if self.depth == 1:
                # if the import of one real package has begun, it soon imports the other, and must not find stubs of it
                self._place([] if self.begun else [root for root in _ROOTS if root not in sys.modules])

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self.lock:
            self._leave(1)

    def _leave(self, blocks: int) -> None:
        """Leave so many blocks of this thread."""
        me = threading.get_ident()
        self.depth -= blocks
        left = self.inside.pop(me, 0) - blocks
        if left > 0:
            self.inside[me] = left
        elif self.waiting:
            self.changed.notify_all()
        if self.depth == 0:
            self.withdraw()

    def leave_to(self, depth: int) -> None:
        """Leave nested blocks down to `depth`, if an exception kept their own exits from running or from completing."""
        with self.lock:
            if self.depth > depth:
                self._leave(self.depth - depth)
            if self.depth == 0:
                self.inside.clear()
                self.withdraw()

    def _place(self, roots: Sequence[str]) -> None:
        if not roots:
            return
        self.modules = self.modules or _make_all()
        for name, module in self.modules.items():
            if name.startswith(tuple(roots)) or not name.startswith(_ROOTS):
                sys.modules.setdefault(name, module)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Within this context, imports of the real packages do not wait for the blocks of this thread."""
        me = threading.get_ident()
        with self.lock:
            blocks = self.inside.pop(me, 0)
            self.changed.notify_all()
        try:
            yield
        finally:
            if blocks:
                with self.lock:
                    self.inside[me] = blocks

    def withdraw_when_unused(self) -> None:
        """If there are stubs, wait until no other thread is in a block, and remove them. Called with the lock, which is
        released meanwhile. The wait ends after `_MOST_SECONDS`, as another thread may wait for this one."""
        if not any(sys.modules.get(name) is module for name, module in self.modules.items()):
            return
        me = threading.get_ident()
        self.waiting += 1
        try:
            self.changed.wait_for(
                lambda: not (self.inside.keys() - {me}) & sys._current_frames().keys(), timeout=_MOST_SECONDS
            )
        finally:
            self.waiting -= 1
            self.changed.notify_all()
        self.withdraw()

    def _wait_for_imports(self) -> None:
        """Wait until imports of the real packages that other threads have begun are complete."""
        with self.lock:
            self.changed.wait_for(lambda: not self.waiting, timeout=_MOST_SECONDS)
        for name in list(self.begun):
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                __import__(name)

    def withdraw(self) -> None:
        """Remove the stubs from `sys.modules`, even inside active blocks; imports then load the real modules."""
        for name, module in self.modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


stub_torch_compiler = _StubTorchCompiler()
_finder = _Finder()
sys.meta_path.insert(0, _finder)


def remove_finder() -> None:
    """Remove this module's finder from `sys.meta_path`; nothing adds it again. No stubs are placed after that: the next
    trace imports the real packages (1.2 s). RuntimeError while a thread traces."""
    with stub_torch_compiler.lock:
        if stub_torch_compiler.depth:
            raise RuntimeError("a trace is in progress, which needs the finder")
        stub_torch_compiler.begun.update(dict.fromkeys(_ROOTS))
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
