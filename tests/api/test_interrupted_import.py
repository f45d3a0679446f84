"""Ctrl-C in the first import of sympy, which the first capture makes, does not leave it half imported; what is half
imported after another exception is imported anew."""

import builtins
import importlib
import subprocess
import sys

import pytest

from inductor.thread_state import restored_on_error

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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
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
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "right\n", done.stderr[-3000:]


BY_TORCH = """
import signal, sys, threading
import torch, pyframe
from torch import nn

class Trigger:
    sent = False
    def find_spec(self, name, path=None, target=None):
        if name == "sympy.logic.boolalg" and not Trigger.sent:
            Trigger.sent = True
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

net = nn.Linear(2, 2)
compiled = pyframe.compile(net, backend="eager")
import inductor.whole_import  # as the first capture does
sys.meta_path.insert(0, Trigger())
try:
    from torch.fx.experimental import symbolic_shapes
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("no Ctrl-C")
assert "sympy" in sys.modules and "torch.fx.experimental.symbolic_shapes" not in sys.modules
from torch.fx.experimental import symbolic_shapes
assert symbolic_shapes.__spec__.loader is symbolic_shapes.__loader__
assert type(symbolic_shapes.__loader__).__name__ == "SourceFileLoader"
compiled(torch.ones(3, 2)).sum().backward()
assert net.weight.grad.tolist() == [[3, 3], [3, 3]]
print("right")
"""


def test_first_import_of_sympy_by_torch():
    """Where torch's own fake tensors are the first to need it."""
    done = subprocess.run([sys.executable, "-c", BY_TORCH], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "right\n", done.stderr[-3000:]


def test_a_package_that_did_not_load_is_imported_anew(tmp_path, monkeypatch):
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
    done = subprocess.run([sys.executable, "-c", BACKEND], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr[-3000:]
