"""Reads the state of the process that an exception must not change, so that it can be compared before and after."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import tempfile
import threading
import warnings
from typing import Any

import torch
from torch import nn


def state() -> dict[str, Any]:
    """Names and values, comparable with `==`."""
    from inductor.ir.handler import ops
    from inductor.process import compile_lock
    from inductor.process.import_stubs import ModuleStub, stub_torch_compiler
    from pyframe import _C
    from pyframe.emit.fake_tensor_logs import quiet

    gc.collect()
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    stubs = [name for name, module in list(sys.modules.items()) if type(module) is ModuleStub]
    return {
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._is_multithreading_enabled()),
        "autocast": [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        "autocast cache and nesting": (torch.is_autocast_cache_enabled(), nesting),
        "defaults": (torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "infra modes": [torch._C._get_dispatch_mode(key) is None for key in _mode_keys()],
        "function modes": (torch._C._len_torch_function_stack(), str(torch._C._get_torch_function_state())),
        "functorch": torch._C._functorch.maybe_current_level(),
        "dispatch keys": (repr(torch._C._dispatch_tls_local_include_set()), repr(_excluded())),
        "hook": _C.get_callback() is None,
        "torch's classes": [id(value) for cls in (nn.Module, torch.Tensor) for value in vars(cls).values()],
        "module stubs": (stubs, stub_torch_compiler.depth),
        "meta path": [id(finder) for finder in sys.meta_path],
        "loggers": _loggers(),
        "warnings": len(warnings.filters),
        "random": (random.getstate(), torch.random.get_rng_state().tolist()),
        "temporary files": _temporary_files(),
        "files of the cache that are half written": _unfinished(),
        "file descriptors": _descriptors(),
        "locks": (compile_lock._lock._is_owned(), len(compile_lock._makers)),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "handler": type(ops.current).__name__,
        "log filter": quiet.depth,
    }


def _mode_keys() -> list[Any]:
    return [getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL")]


def _excluded() -> Any:
    return torch._C._dispatch_tls_local_exclude_set()


def _loggers() -> list[Any]:
    known = logging.Logger.manager.loggerDict.items()
    return [(n, [id(f) for f in x.filters], x.level, x.disabled) for n, x in sorted(known, key=lambda item: item[0])
            if isinstance(x, logging.Logger) and (x.filters or x.level or x.disabled)]  # fmt: skip


def _temporary_files() -> list[str]:
    """All but the directory that the process keeps for such files until it ends."""
    folder = tempfile.gettempdir()
    return sorted(
        name for root, folders, files in os.walk(folder) for name in (*folders, *files)
        if not (root == folder and name.startswith("pyframe-")) and name != "alive"
    )  # fmt: skip


def _unfinished() -> list[str]:
    folder = os.environ["PYFRAME_CACHE_DIR"]
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".tmp")]


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            found += [target] if not target.endswith("/alive") else []
        except OSError:  # the one that lists them
            continue
    return sorted(found)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of what changed, with the values where these are short."""
    return [
        f"{name}: {str(before[name])[:80]} -> {str(after[name])[:80]}" for name in before if before[name] != after[name]
    ]
