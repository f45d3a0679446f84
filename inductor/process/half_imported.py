"""Removes modules of packages whose import an exception has ended.

If an import fails (no memory, an unreadable file), only some of a package's modules are in `sys.modules`. Without their
package, they are removed, so that the next import runs the package from its start. A signal handler that raises
(Ctrl-C) is no such case: `interrupts` delays handlers until imports have ended.
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
