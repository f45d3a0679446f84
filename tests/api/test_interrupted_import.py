"""Ctrl-C in the first import of sympy, which the first symbolic size makes, does not leave it half imported."""

import subprocess
import sys

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
