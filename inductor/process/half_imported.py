"""Cleans up `sys.modules` after the import of a package has failed half way (no memory, an unreadable file).

CPython then removes the package but keeps submodules that were already imported. The next import would consider these
loaded, and would neither run them nor make them attributes of the new package, so this module removes them, too.
`thread_state` calls it when tracing ends in an exception. Imports that a signal handler would interrupt (Ctrl-C) are
not its task: `interrupts` delays the handlers.
"""

from __future__ import annotations

import sys
from collections.abc import Container


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
