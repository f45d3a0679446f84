"""Imports that Ctrl-C cannot interrupt.

An exception during the first import of a large package leaves only some of its modules in `sys.modules`. The next
import then runs the missing ones again, against the classes and registries of the first. Python calls signal handlers
in the main thread only, so another thread does the import and finishes it, whatever the handlers raise.

If an import fails anyway (no memory, an unreadable file), `forget_orphans` removes the submodules of packages that did
not load, so that the next import runs the package from its start.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Container

SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"  # with sympy and torch's additions to it


def import_uninterrupted(name: str) -> None:
    """Import the module `name` and everything that it imports, in another thread. If a signal handler raises meanwhile,
    its exception is raised from here after the import has ended. If a second handler raises, its exception is raised
    immediately; a later import then waits for this one."""
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
    except RuntimeError:  # no thread can be started, for example in an atexit function
        importlib.import_module(name)
        return
    try:
        done.wait()
    finally:  # a signal handler may have raised
        done.wait()
    if raised:
        raise raised[0]


def forget_orphans(before: Container[str]) -> None:
    """Remove modules from `sys.modules` that are not in `before` and whose package is missing because an exception
    ended its import. Otherwise the package's next import would consider these submodules loaded, and would neither run
    them nor make them attributes of the new package."""
    for name in list(sys.modules):
        if name not in before and not _packages_loaded(name):
            sys.modules.pop(name, None)


def _packages_loaded(name: str) -> bool:
    """Whether all parent packages of module `name` are loaded."""
    package = name.rpartition(".")[0]
    while package:
        if package not in sys.modules:
            return False
        package = package.rpartition(".")[0]
    return True
