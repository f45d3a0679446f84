"""pyframe: captures PyTorch programs from CPython bytecode and compiles them.

The public names load on first use, so that `pyframe.bytecode` and `pyframe._C` can be imported without torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from .version import __version__ as __version__

_PUBLIC = {
    "compile": "api", "explain": "api", "disable": "api", "graph_break": "api", "reset": "api", "is_compiling": "api",
    "allow_in_graph": "api", "disallow_in_graph": "api", "assume_constant_result": "api", "substitute_in_graph": "api",
    "compiled_autograd": "api",
    "mark_dynamic": "dynamic", "maybe_mark_dynamic": "dynamic", "mark_static": "dynamic", "mark_unbacked": "dynamic",
    "set_stance": "stance", "error_on_graph_break": "vars.torch_objects.error_on_graph_break",
    "register_backend": "backends", "list_backends": "backends", "counters": "metrics", "set_logs": "report.logs",
    "Exported": "export.exported", "stages": "stage_programs", "transform": "stage_programs",
    "wait_for_kernels": "backends", "save_cache_artifacts": "cache_artifacts",
    "load_cache_artifacts": "cache_artifacts",
    "package": "packaging.make", "load": "packaging.load", "PackageError": "packaging.errors",
    "UserError": "errors", "Unsupported": "errors", "BackendCompilerFailed": "errors", "PyframeError": "errors",
    "RecompileError": "errors", "RecompileLimitExceeded": "errors", "InternalError": "errors",
}  # fmt: skip
_MODULES = ("config", "exc", "export", "testing")
__all__ = sorted((*_PUBLIC, *_MODULES))  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'pyframe' has no attribute {name!r}")
    from inductor.process.compile_lock import importing  # deferred: `pyframe.bytecode` does not need it

    value = importing(lambda: getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name))
    globals()[name] = value
    return value
