"""Ctrl-C in the first import of sympy, which the first capture makes, does not leave it half imported; what is half
imported after another exception is imported from its start."""

import builtins
import importlib
import sys

import forked_python
import pytest

from inductor.process.thread_state import restored_on_error

PROGRAM = """
import signal, sys, threading
import torch, pyframe

class Trigger:
    sent = False
    def find_spec(self, name, path=None, target=None):
        if name == "sympy.logic.boolalg" and not Trigger.sent:
            Trigger.sent = True
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

fn = pyframe.compile(lambda x: x.sin() + x.shape[0], backend="eager", dynamic=True)
assert "sympy" not in sys.modules
sys.meta_path.insert(0, Trigger())
try:
    fn(torch.ones(3))
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("no Ctrl-C")
for size in (4, 5):
    torch.testing.assert_close(fn(torch.ones(size)), torch.ones(size).sin() + size)
import sympy
from torch.fx.experimental import symbolic_shapes
assert symbolic_shapes.sympy is sympy and sympy.core.numbers.Integer is sympy.Integer
print("right")
"""


def test_first_import_of_sympy():
    done = forked_python.run(PROGRAM)
    assert done.stdout == "right\n", done.stderr[-3000:]


AT_EXIT = """
import atexit
import torch, pyframe
fn = pyframe.compile(lambda x: x.sin() + x.shape[0], backend="eager", dynamic=True)

@atexit.register
def call():
    torch.testing.assert_close(fn(torch.ones(3)), torch.ones(3).sin() + 3)
    print("right")
"""


def test_first_import_at_exit():
    """No thread can be started there, from CPython 3.12 on."""
    done = forked_python.run(AT_EXIT)
    assert done.stdout == "right\n", done.stderr[-3000:]


BY_TORCH = """
import signal, sys, threading
import torch, pyframe
from torch import nn

class Trigger:
    sent = False
    def find_spec(self, name, path=None, target=None):
        if name == NAME and not Trigger.sent:
            Trigger.sent = True
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def step():
    net.zero_grad()
    compiled(torch.linspace(0, 1, 8).reshape(2, 4)).square().sum().backward()
    return net[0].weight.grad

net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
handler = signal.getsignal(signal.SIGINT)
compiled = net
expected = step().clone()
compiled = pyframe.compile(net)
sys.meta_path.insert(0, Trigger())
try:
    step()
except KeyboardInterrupt:
    pass
else:
    assert not Trigger.sent, "no Ctrl-C"  # a release of torch that does not import it
assert signal.getsignal(signal.SIGINT) is handler
torch.testing.assert_close(step(), expected)
print("right")
"""


@pytest.mark.parametrize("name", ["sympy.logic.boolalg", "torch.distributed.tensor._ops"])
def test_first_import_by_torch(name):
    """Of packages that torch's own fake tensors import; the second registers operators, which it can do only once."""
    program = BY_TORCH.replace("NAME", repr(name))
    done = forked_python.run(program)
    assert done.stdout == "right\n", done.stderr[-3000:]


def test_a_package_that_did_not_load_is_imported_from_its_start(tmp_path, monkeypatch):
    """Its submodules that did load are run again, and are attributes of the new package."""
    package = tmp_path / "broken_package"
    package.mkdir()
    (package / "__init__.py").write_text("from . import part, last\n")
    (package / "part.py").write_text("from .inner import value\n")
    (package / "inner.py").write_text("value = object()\n")
    (package / "last.py").write_text("import builtins\nif builtins.broken: raise MemoryError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "broken", True, raising=False)
    with pytest.raises(MemoryError):
        restored_on_error(lambda: importlib.import_module("broken_package"))
    assert not [name for name in sys.modules if name.startswith("broken_package")]
    monkeypatch.setattr(builtins, "broken", False)
    whole = importlib.import_module("broken_package")
    assert whole.part.value is whole.inner.value and whole.last
    for name in [name for name in sys.modules if name.startswith("broken_package")]:
        del sys.modules[name]


BACKEND = """
import sys
import torch, inductor, pyframe

def backend(gm, inputs):
    return inductor.compile_fx(gm, inputs, options={"cache": False})

def program(x):
    return (x @ x).relu().softmax(-1)

x = torch.linspace(0, 1, 9).reshape(3, 3)
torch.testing.assert_close(pyframe.compile(program, backend=backend)(x), program(x))
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_a_backend_of_the_program_that_calls_inductor_loads_no_other_compiler():
    done = forked_python.run(BACKEND)
    assert done.stdout == "[]\n", done.stdout + done.stderr[-3000:]
