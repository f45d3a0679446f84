"""Every test starts from the same state of the process, whatever ran before it."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import signal
import sys
from collections.abc import Iterator

import precompiled_header
import pytest

# An exception that the compiler does not raise on purpose is an error here, in the processes that tests start too.
os.environ.setdefault("PYFRAME_STRICT", "internal")
# The tests are about compiled graphs; those of the choice between them and ATen ask for it.
os.environ.setdefault("PYFRAME_MEASURE", "0")
# Tests look at what captures do; one that an earlier run has kept on disk does nothing. `tests/frame_cache` turns it on,
# which is the default.  With PYFRAME_FRAME_CACHE=check in the environment, all tests compare kept captures with new ones.
os.environ.setdefault("PYFRAME_FRAME_CACHE", "off")
# Where a test runs torch.compile, its compiler starts no processes, which would import torch each.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# Kernels of the tests are compiled in less time; those about the compiler choose their own.
if (compiler := precompiled_header.command()) is not None:
    os.environ["CXX"] = compiler
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; processes inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """No captures, counters at 0, default settings, warnings not given yet, the same seeds; modes of torch as they
    were are put back.  What is not imported has no state, and is not imported for it."""
    random.seed(0)
    with contextlib.ExitStack() as undo:
        if "torch" in sys.modules:
            undo.enter_context(_torch_as_it_was())
        if "inductor.log.warnings" in sys.modules:
            sys.modules["inductor.log.warnings"].shown.clear()
        if "pyframe.api" in sys.modules:
            import pyframe

            pyframe.reset()
            defaults = {name: copy.copy(row.default) for name, row in pyframe.config.SETTINGS.items()}
            defaults["frame_cache"] = os.environ["PYFRAME_FRAME_CACHE"]
            undo.enter_context(pyframe.config.patch(defaults))
        yield


@contextlib.contextmanager
def _torch_as_it_was() -> Iterator[None]:
    import torch

    torch.manual_seed(0)
    grad, dtype, threads = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
