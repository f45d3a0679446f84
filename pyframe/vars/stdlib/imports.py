"""Models `__import__` and `importlib.import_module`. The import statement is an instruction (`interp.ops_call`)."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys

from ...core.source import ConstSource, DictItemSource
from ..protocol.base import Var
from ..protocol.slots import constant_or
from ..registry import Args, Kwargs, register
from ..tracer import Tracer

_MODULES = sys.modules  # the import system uses this dict even if `sys.modules` is replaced
_LOADED = ConstSource.of(_MODULES, "sys.modules")


@register(builtins.__import__)
def _import(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    given = dict(zip(("name", "globals", "locals", "fromlist", "level"), args)) | kwargs
    name = given["name"].constant()
    if "level" in given and constant_or(given["level"], None) != 0:
        return tx.graph_break("builtin-side-effect", f"a relative import of {name}")
    _loaded(tx, name)
    whole = "fromlist" in given and given["fromlist"].truth(tx)
    if whole and hasattr(_MODULES[name], "__path__"):  # it would import modules of the package
        return tx.graph_break("builtin-side-effect", f"an import from {name}")
    return _loaded(tx, name if whole else name.partition(".")[0])


@register(importlib.import_module)
def _import_module(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    given = dict(zip(("name", "package"), args)) | kwargs
    name, package = given["name"].constant(), given["package"].constant() if "package" in given else None
    try:
        found = importlib.util.resolve_name(name, package)
    except ImportError as error:
        tx.raise_(TypeError if package is None else ImportError, *error.args)
    return _loaded(tx, found)


def _loaded(tx: Tracer, name: str) -> Var:
    """A module that is loaded, as `sys.modules` has it; breaks the graph to load any other."""
    module = _MODULES.get(name)
    if module is None:
        return tx.graph_break("builtin-side-effect", f"import of {name}, which is not loaded yet")
    tx.guard(DictItemSource(_LOADED, name), "ID", module)
    return tx.wrap(module, ConstSource.of(module, name))
