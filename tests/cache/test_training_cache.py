"""Training graphs on disk: what a second process finds, what tells one entry from another, and inputs refused."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import inductor
from inductor.cache.graph_key import graph_key

PROGRAM = """
import sys, torch
import torch.nn.functional as F
from torch import fx, nn
import inductor, inductor.generate as pipeline
if sys.argv[1] == "hit":
    def never(*args):
        raise AssertionError("the second process traces, partitions or lowers")
    pipeline.to_joint = pipeline.partition = pipeline.lower_graph = pipeline.schedule = pipeline.codegen = never

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(6, 6)) for _ in range(2))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, x):
        y = F.batch_norm(x @ self.a, self.mean, self.var, training=True)
        y = F.dropout(F.gelu(y), 0.3) @ self.b
        return y, y[0], x

results = []
for compiled in (True, False):
    torch.manual_seed(0)
    net = Net()
    torch.manual_seed(1)
    call = gm = fx.symbolic_trace(net)
    x = torch.randn(5, 6, requires_grad=True)
    if compiled:
        call = inductor.compile_fx(gm, [x], options={"strict": True})
        report = gm.meta["compile_report"]
        print(report.cache, sorted(report.seconds))
    for _ in range(2):
        y, first, same = call(x)
        assert same is x and first._base is not None
        (y.square().sum() + first.sum()).backward()
    (g,) = torch.autograd.grad(call(x)[0].tanh().sum(), x, create_graph=True)
    g.square().sum().backward()
    results.append((y.detach(), x.grad, *(p.grad for p in net.parameters()), *net.buffers()))
torch.testing.assert_close(*results)
"""


def process(mode, folder):
    command = [sys.executable, "-W", "error::FutureWarning", "-c", PROGRAM, mode]
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(folder)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_second_process_only_loads(tmp_path):
    assert process("miss", tmp_path).startswith("miss ['build', 'cache', 'codegen', 'joint', 'lower', 'partition'")
    assert process("hit", tmp_path) == "hit ['build', 'cache']"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))


def test_functions_that_another_made_have_a_name():
    def key(fn):
        return graph_key(fx.symbolic_trace(fn), [torch.empty(1, 1, 4, 4)], [])

    assert key(lambda x: F.max_pool2d(x, 2)) == key(lambda x: F.max_pool2d(x, 2)) is not None
    assert key(lambda x: F.max_pool2d(x, 2)) != key(lambda x: F.adaptive_max_pool2d(x, 2))
    gm = fx.symbolic_trace(lambda x: x + 1)
    next(node for node in gm.graph.nodes if node.op == "call_function").target = lambda x: x
    assert graph_key(gm, [torch.empty(1)], []) is None


def found(fn, *inputs, module=None):
    gm = fx.GraphModule(module, fx.Tracer().trace(module)) if module is not None else fx.symbolic_trace(fn)
    call = inductor.compile_fx(gm, inputs, options={"strict": True})
    call(*inputs)
    return gm.meta["compile_report"].cache


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def body(x, w):
    return (x * w).sin() + w


def test_what_autograd_sees_of_inputs_tells_entries_apart():
    x, w = leaf(4, 4), leaf(4, 4)
    assert found(body, x, w) == "miss"
    assert found(body, leaf(4, 4), leaf(4, 4)) == "hit"
    assert found(body, x, w.detach()) == "miss"
    assert found(body, x.detach(), w) == "miss"
    assert found(body, x * 1, w) == "miss"
    assert found(body, x, x) == "miss"
    assert found(body, x, x.detach()) == "miss"
    whole = torch.randn(8, 4)
    assert found(body, whole[:4].requires_grad_(), leaf(4, 4)) == "hit"
    assert found(body, whole[4:].requires_grad_(), leaf(4, 4)) == "miss"
    with torch.no_grad():
        assert found(body, x, w) == "miss"


def product(x, w):
    return F.gelu(x @ w) @ w


def test_modes_tell_entries_apart():
    x, w = leaf(4, 4), leaf(4, 4)
    assert found(product, x, w) == "miss"
    with torch.autocast("cpu", torch.bfloat16):
        assert found(product, x, w) == "miss"
        assert found(product, x, w) == "hit"
    with torch.autocast("cpu", torch.float16):
        assert found(product, x, w) == "miss"
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        assert found(product, x, w) == "miss"
    assert found(product, x, w) == "hit"
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        assert found(product, x, w) == "miss"
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


class Tied(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.a = nn.Parameter(torch.randn(4, 4))
        self.b = self.a if tied else nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x @ self.a @ self.b


def test_tied_parameters_tell_entries_apart():
    x = torch.randn(4, 4)
    assert found(None, x, module=Tied(True)) == "miss"
    assert found(None, x, module=Tied(False)) == "miss"
    assert found(None, x, module=Tied(True)) == "hit"
    frozen = Tied(False)
    frozen.b.requires_grad_(False)
    assert found(None, x, module=frozen) == "miss"


def test_a_hit_gives_the_gradients_of_this_process_s_parameters():
    x, models = torch.randn(4, 4), [Tied(True), Tied(True)]
    for model in models:
        gm = fx.GraphModule(model, fx.Tracer().trace(model))
        inductor.compile_fx(gm, [x], options={"strict": True})(x).sum().backward()
        got, model.a.grad = model.a.grad, None
        model(x).sum().backward()
        torch.testing.assert_close(got, model.a.grad)
    assert gm.meta["compile_report"].cache == "hit"


def test_the_option_cache_off():
    gm = fx.symbolic_trace(body)
    for _ in range(2):
        inductor.compile_fx(gm, [leaf(4, 4), leaf(4, 4)], options={"cache": False})
        assert gm.meta["compile_report"].cache == "off"


def writes(x, y, w):
    x.mul_(2)
    return (x + y) * w


def test_a_written_input_that_overlaps_another_is_eagers():
    w, call = leaf(4), None
    for start in (4, 2, 0):  # compiled for memory of their own
        seen = []
        for compiled in (True, False):
            memory = torch.arange(12.0)
            x, y = memory[:4], memory[start : start + 4]
            if call is None:
                call = inductor.compile_fx(
                    fx.symbolic_trace(writes), [x.clone(), y.clone(), w], options={"strict": True}
                )
            out = (call if compiled else writes)(x, y, w)
            seen.append((out.detach(), memory, *torch.autograd.grad(out.sum(), w)))
        torch.testing.assert_close(*seen)
