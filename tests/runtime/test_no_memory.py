"""Allocations of CPython that fail while compiled code runs are exceptions: nothing of C++ passes through C."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch, pyframe, _testcapi
from tools.fault_injection.code_objects import keep_code_objects
net = torch.nn.Linear(3, 3)
x = torch.ones(2, 3)
compiled = pyframe.compile(lambda x: net(x).sin())

def step():
    net.zero_grad()
    compiled(x).sum().backward()

with torch.no_grad():
    want = compiled(x)
step()
keep_code_objects()
raised = set()
# torch 2.11 has no class of its own for a tensor object that cannot be created
no_memory = MemoryError, RuntimeError if torch.__version__.startswith("2.11") else torch.OutOfMemoryError
for at in range(100):
    with torch.no_grad():
        _testcapi.set_nomemory(at, at + 1)
        try:
            y = compiled(x)
        except no_memory as error:
            raised.add(type(error))
        finally:
            _testcapi.remove_mem_hooks()
    assert torch.equal(compiled(x), want)
for at in range(150):
    loss = compiled(x).sum()
    _testcapi.set_nomemory(at, at + 1)
    try:
        loss.backward()
    except no_memory as error:
        raised.add(type(error))
    finally:
        _testcapi.remove_mem_hooks()
    del loss
    step()
assert raised, raised
print("right to the end")
"""


def test_failed_allocations_are_exceptions():
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout == "right to the end\n", (done.returncode, done.stderr[-2000:])
