"""A share of tools/fault_injection, and exceptions that the program itself expects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pyframe
from inductor.process.import_stubs import ModuleStub, stub_torch_compiler
from inductor.process.thread_state import restored_on_error
from pyframe.emit.fake_tensor_logs import quiet, with_filter

ROOT = Path(__file__).resolve().parents[2]
from tools.fault_injection.worker import _without_memory  # noqa: E402


def test_a_sample_of_faults(tmp_path):
    """One program, found in the cache: everything is as before, and the next call is right."""
    line = [sys.executable, "-m", "tools.fault_injection", "--program", "inference", "--stage", "cached",
            "--samples", "5", "--seconds", "60", "--out", str(tmp_path)]  # fmt: skip
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 after which something was wrong" in done.stdout


def test_modes_that_an_exception_in_an_exit_leaves_entered_are_left():
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def fail():
        torch._C._set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        Mode().__enter__()
        stub_torch_compiler.__enter__()
        torch.autograd.set_multithreading_enabled(False)
        torch.overrides.TorchFunctionMode().__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restored_on_error(fail)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and stub_torch_compiler.depth == 0
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0
    assert "torch._dynamo" not in sys.modules or not isinstance(sys.modules["torch._dynamo"], ModuleStub)
    assert torch._C._is_multithreading_enabled()


def test_a_memory_error_of_the_backend_reaches_the_program():
    def backend(gm, inputs):
        raise MemoryError("no room")

    compiled = pyframe.compile(lambda x: x + 1, backend=backend)
    for _ in range(2):
        try:
            compiled(torch.ones(2))
        except MemoryError as error:
            assert "no room" in str(error)
        else:
            raise AssertionError("nothing was raised")


def test_ctrl_c_at_the_first_compile(tmp_path):
    """A real signal while the C++ compiler runs: no compiler and no file stays, and the next call is right."""
    program = """
import os, signal, sys, tempfile, threading, time, torch, pyframe
def program(x):
    return x.sin() * 2 + x.cos()
compiled, x = pyframe.compile(program), torch.randn(5)
def interrupt():
    while not any(name.startswith("build-") for root, folders, _ in os.walk(tempfile.gettempdir()) for name in folders):
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=interrupt)
thread.start()
try:
    compiled(x)
except KeyboardInterrupt:
    print("interrupted")
thread.join()
left = [name for root, folders, _ in os.walk(tempfile.gettempdir()) for name in folders if name.startswith("build-")]
assert left == [], left
torch.testing.assert_close(compiled(x), program(x))
print("right")
"""
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    line = [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + program]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0 and done.stdout.split() == ["interrupted", "right"], done.stdout + done.stderr


def test_no_memory_for_an_attribute_of_a_class():
    """CPython from 3.13 on turns that MemoryError into an AttributeError, which the tool takes for what it is."""
    pytest.importorskip("_testcapi")

    class Class:
        pass

    ended = set()
    for i in range(120):
        names = {"Class": Class}
        exec(f"def store(): Class.attribute{i} = 1", names)
        _, error = _without_memory(0, names["store"])
        ended.add(type(error))
    assert MemoryError in ended and ended <= {MemoryError, type(None)}


def test_an_exception_that_leaves_the_log_filter_entered():
    """The exit of `quiet` may itself be interrupted; the end of the capture leaves it."""

    def capture():
        quiet.__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_filter(capture)
    assert quiet.depth == 0
