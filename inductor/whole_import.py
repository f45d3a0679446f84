"""Imports that Ctrl-C does not cut short.

An exception in the middle of the first import of a large package leaves some of its modules in `sys.modules` and not
others; the next import then runs the missing ones a second time, against the classes and registries of the first.
Python calls signal handlers in the main thread only, so another thread imports to the end whatever the handlers raise.

Where an import fails nevertheless (no memory, a file that cannot be read), `forget_orphans` removes the submodules of
packages that did not load, so that the next import runs the package from its start.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Container, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"  # with sympy and torch's additions to it
SYMPY = "sympy"


def import_whole(name: str) -> None:
    """Import the module `name` and what it imports.  What a signal handler raises meanwhile is raised from here when
    the import has ended; what a second one raises, at once, and a later import waits for this one."""
    loaded = sys.modules.get(name)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return
    if threading.current_thread() is not threading.main_thread():
        importlib.import_module(name)
        return
    raised: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001  raised again in the calling thread
            raised.append(error)
        finally:
            done.set()

    try:
        threading.Thread(target=work, name=f"import {name}").start()
    except RuntimeError:  # no thread can be started, as in an atexit function
        importlib.import_module(name)
        return
    try:
        done.wait()
    finally:  # a signal handler has raised
        done.wait()
    if raised:
        raise raised[0]


class _SympyFirst(MetaPathFinder):
    """Imports sympy whole before the module of torch that needs it, which torch's fake tensors import too."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != SYMBOLIC_SHAPES or SYMPY in sys.modules:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterSympy(spec.loader)
        return spec


class _AfterSympy(Loader):
    """Another loader, before whose work sympy is imported.  (While modules are searched for, CPython holds a lock that
    an import in another thread needs.)"""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self.loader
        import_whole(SYMPY)  # it needs no module of torch, so it waits for none that is being imported here
        self.loader.exec_module(module)


sys.meta_path.insert(0, _SympyFirst())  # for good


def forget_orphans(before: Container[str]) -> None:
    """Remove the modules from `sys.modules` that were loaded since there were those of `before`, and whose package is
    not there, because an exception ended its import.  The submodules that it did load would be taken for loaded by the
    next import of the package, which would not make them attributes of the new package, nor run them."""
    for name in list(sys.modules):
        if name not in before and not _packages_loaded(name):
            sys.modules.pop(name, None)


def _packages_loaded(name: str) -> bool:
    """Whether all packages around the module `name` are there."""
    package = name.rpartition(".")[0]
    while package:
        if package not in sys.modules:
            return False
        package = package.rpartition(".")[0]
    return True


__all__ = ["SYMBOLIC_SHAPES", "forget_orphans", "import_whole"]
