"""Tracing leaves torch's own compiler unloaded, and does not get in its way when a program loads it."""

import threading

import forked_python
import pytest
import torch

from inductor.aot.fake import fake_mode, make_fx

PEERS = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd")
HEAD = f"""
import sys, threading, torch, pyframe
from torch import nn
from inductor.aot.fake import fake_mode, make_fx
from inductor.process import import_stubs
from inductor.process.import_stubs import stub_torch_compiler
PEERS = {PEERS!r}
def loaded():
    return [name for name in sys.modules if name.startswith(PEERS)]
"""


def fresh(code):
    """Runs code in a new process, as what this one has loaded would hide what is asked."""
    done = forked_python.run(HEAD + code, imports=["torch", "pyframe", "inductor.aot.fake"])
    assert done.returncode == 0, done.stderr[-3000:]


MODEL = """
model = nn.Sequential(
    nn.Embedding(10, 16), nn.TransformerEncoderLayer(16, 4, batch_first=True), nn.Conv1d(5, 5, 3), nn.ReLU(),
    nn.LayerNorm(14), nn.Linear(14, 4), nn.GELU(), nn.Softmax(-1)).eval()
x = torch.randint(0, 10, (2, 5))
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiling_loads_no_peer(backend):
    fresh(MODEL + f"""
before = list(sys.meta_path)
with torch.no_grad():
    torch.testing.assert_close(pyframe.compile(model, backend={backend!r})(x), model(x))
assert not loaded(), loaded()
assert sys.meta_path == before and not {{'_dynamo', '_inductor'}} & vars(torch).keys()
""")


def test_an_mlp_in_aot_eager_loads_no_peer():
    fresh("""
mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).requires_grad_(False)
x = torch.randn(3, 4)
torch.testing.assert_close(pyframe.compile(mlp, backend="aot_eager")(x), mlp(x))
assert not loaded(), loaded()
""")


def test_a_traceback_of_cpp_while_tracing_loads_no_peer():
    fresh("""
from torch.utils._traceback import CapturedTraceback
with stub_torch_compiler:
    assert CapturedTraceback.extract(cpp=False).summary()
assert not loaded(), loaded()
""")


def test_torch_compile_works_after_us():
    fresh(MODEL + """
with torch.no_grad():
    want = pyframe.compile(model, backend="aot_eager")(x)
    torch.testing.assert_close(torch.compile(model, backend="aot_eager")(x), want)
    torch.testing.assert_close(pyframe.compile(nn.Sequential(model), backend="aot_eager")(x), want)
import torch._dynamo.config, torch._inductor.config
assert torch._dynamo.config.__spec__ and torch._inductor.config.__spec__
""")


def test_the_real_modules_are_used_once_loaded():
    fresh("""
import torch._dynamo.config
config = torch._dynamo.config
with stub_torch_compiler:
    assert sys.modules["torch._dynamo.config"] is config
    import torch._inductor.config as other
    assert sys.modules["torch._inductor.config"] is other
from torch.fx.experimental.symbolic_shapes import ShapeEnv
with config.patch(fake_tensor_cache_enabled=False):
    assert not fake_mode(shape_env=ShapeEnv()).cache_enabled
assert fake_mode(shape_env=ShapeEnv()).cache_enabled and "from_tensor" not in vars(fake_mode())
""")


@pytest.mark.parametrize("use", [
    "import torch._dynamo.utils as m; assert m.counters is not None",
    "from torch._dynamo import optimize as m",
    "from torch._inductor.utils import IndentedBuffer as m",
    "import torch._dynamo; torch._dynamo.config.recompile_limit = 7",
    "import torch._inductor.config as m; m.trace.enabled = False; assert not m.trace.graph_diagram",
    "import torch._inductor.fx_passes.pad_mm",
])
def test_what_has_no_stub_comes_from_the_real_module(use):
    fresh(f"""
def other():
    {use}
    done.append(True)
done = []
with stub_torch_compiler:
    import torch._dynamo.config
    thread = threading.Thread(target=other)
    thread.start(), thread.join()
    assert done
    fake_mode().from_tensor(torch.randn(3)).relu()
{use}
assert torch._dynamo.config.recompile_limit in (7, 8)
import importlib, types
for name in loaded():
    module = sys.modules[name]
    assert module.__spec__.name == module.__name__ or "polyfills" in name, name
    for key, value in [("", module), *vars(module).items()]:
        assert type(value).__module__ != "inductor.process.import_stubs", (name, key)
""")


def test_threads_share_the_stubs():
    fresh("""
def work():
    for _ in range(30):
        mode = fake_mode()
        y = mode.from_tensor(torch.randn(3, 4))
        with mode:
            assert (y @ y.t()).shape == (3, 3)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
assert not loaded(), loaded()
""")


def test_the_thread_that_makes_the_first_mode_may_end():
    """What torch keeps of the first mode that is entered must not go with that thread."""
    fresh("""
def work():
    with fake_mode() as mode:
        assert mode.from_tensor(torch.ones(3)).shape == (3,)
for _ in range(5):
    thread = threading.Thread(target=work)
    thread.start(), thread.join()
work()
""")


@pytest.mark.parametrize("delay", [0, 0.001, 0.01, 0.2])
def test_a_thread_may_load_the_real_modules_meanwhile(delay):
    fresh(f"""
import time
def work():
    for _ in range(40):
        mode = fake_mode()
        with mode:
            y = mode.from_tensor(torch.randn(3, 4)[1:])
            assert (y @ y.t()).shape == (2, 2)
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
time.sleep({delay})
import torch._dynamo.config, torch._inductor.config
[t.join() for t in threads]
for name in loaded():
    for key, value in vars(sys.modules[name]).items():
        assert type(value).__module__ != "inductor.process.import_stubs", (name, key)
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2
""")


def test_an_import_of_the_real_modules_waits_for_the_blocks_of_other_threads():
    fresh("""
inside, leave, seen = threading.Event(), threading.Event(), []
def work():
    with stub_torch_compiler:
        inside.set()
        leave.wait()
        from torch._dynamo.source import ConstantSource
        seen.append(ConstantSource.__module__)
import_stubs._MOST_SECONDS = 1e6
thread = threading.Thread(target=work)
thread.start()
inside.wait()
threading.Timer(0.2, leave.set).start()
sys.modules["torch._dynamo"].optimize
assert seen == ["inductor.process.import_stubs"], seen
thread.join()
""")


def test_a_block_begins_when_an_import_of_the_real_modules_is_complete():
    fresh("""
import time
class Trigger:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._dynamo.convert_frame":
            thread.start()
            time.sleep(0.2)
def work():
    with stub_torch_compiler:
        seen.append(sys.modules["torch._dynamo"].__spec__._initializing)
thread, seen = threading.Thread(target=work), []
sys.meta_path.insert(0, Trigger())
import torch._dynamo
thread.join()
assert seen == [False], seen
""")


def test_an_import_in_a_block_does_not_wait_for_itself():
    fresh("""
both = threading.Barrier(2)
def work():
    with stub_torch_compiler:
        both.wait()
        assert torch._dynamo.optimize
        with stub_torch_compiler:
            assert torch._inductor.config.cpp
import_stubs._MOST_SECONDS = 1e6
thread = threading.Thread(target=work)
thread.start(), work(), thread.join()
assert stub_torch_compiler.depth == 0 and not stub_torch_compiler.inside
""")


def test_what_torch_keeps_is_disabled_once_dynamo_is_there():
    fresh("""
from inductor.process.import_stubs import _disable
seen = []
def fn():
    seen.append(torch.compiler.is_compiling())
    return 1
kept = _disable(fn, True, wrapping=False)
assert kept() == 1 and not loaded()
def user(x):
    return kept() + x
assert torch.compile(user, backend="eager")(torch.ones(1)) == 2
assert seen == [False, False]
""")


def test_a_fake_mode_is_torchs_own():
    mode = fake_mode(allow_non_fake_inputs=True)
    assert type(mode) is torch._subclasses.fake_tensor.FakeTensorMode and mode.allow_non_fake_inputs
    y = mode.from_tensor(torch.randn(2, 3)[1:])
    assert (y + 1).shape == (1, 3) and y.fake_mode is mode


def test_make_fx_takes_options_and_runs_in_threads():
    out = []
    table = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}
    thread = threading.Thread(
        target=lambda: out.append(make_fx(lambda x: torch.nn.functional.silu(x), decomposition_table=table)(torch.randn(3))))
    thread.start(), thread.join()
    assert [n.target for n in out[0].graph.find_nodes(op="call_function", target=torch.ops.aten.silu.default)] == []


def test_a_module_whose_package_is_a_stub_runs_once():
    fresh("""
runs = []
sys.addaudithook(lambda event, args: event == "exec" and args[0].co_filename.endswith("_dynamo/eval_frame.py")
                 and args[0].co_name == "<module>" and runs.append(1))
with stub_torch_compiler:
    import torch._dynamo.eval_frame
assert len(runs) == 1
module = sys.modules["torch._dynamo.eval_frame"]
assert torch._dynamo.eval_frame is module and torch._dynamo.optimize.__globals__ is vars(module)
assert module.__spec__.origin == module.__file__
""")


def test_the_finder_can_be_removed():
    fresh("""
from inductor.process.import_stubs import remove_finder
before = len(sys.meta_path)
with stub_torch_compiler:
    try:
        remove_finder()
    except RuntimeError:
        pass
    else:
        raise AssertionError("removed during a trace")
assert len(sys.meta_path) == before
remove_finder(), remove_finder()
assert len(sys.meta_path) == before - 1
assert all(type(finder).__module__ != "inductor.process.import_stubs" for finder in sys.meta_path)
x = torch.randn(3)
torch.testing.assert_close(pyframe.compile(lambda x: x.sin() + 1)(x), x.sin() + 1)
import torch._dynamo.config, torch._inductor.config
assert torch._dynamo.config.__spec__ and torch._inductor.config.__spec__
""")
