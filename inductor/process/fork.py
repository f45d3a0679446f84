"""Ends OpenMP threads before `fork`, so that kernels do not hang in the child.

GNU's OpenMP keeps its threads between parallel loops. A forked child has none of them, but libgomp waits for them
forever in the child's next parallel loop; this affects eager's operators too. Compiled kernels may be parallel where
eager's operators are not, so the process ends its threads before it forks. Parent and child start new ones when they
need them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_SOFT = 1  # omp_pause_soft keeps settings such as the number of threads


def _pause() -> Callable[[], None] | None:
    """A function that ends the OpenMP threads of the calling thread; None if the OpenMP library is not libgomp."""
    process = ctypes.CDLL(None)
    if hasattr(process, "__kmpc_fork_call") or not hasattr(process, "omp_pause_resource_all"):
        return None  # LLVM's and Intel's libraries start new threads in a child
    pause = process.omp_pause_resource_all

    def end_threads() -> None:
        pause(_SOFT)

    return end_threads


_end_threads = _pause()
if _end_threads is not None and hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_threads)
