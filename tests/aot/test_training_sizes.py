"""Forward and backward for many sizes: traced for one size, run at another, with eager as the oracle."""

import copy

import pytest
import test_training_aliasing as aliasing
import torch
import torch.nn.functional as F
from torch import fx, nn
from training_support import EAGERS_OWN, observe, plain, run_eager

import inductor.compile
import inductor.dynamic.dispatch
import pyframe
from inductor.aot.autograd import Captured, wrap
from inductor.aot.functionalize import NotFunctional
from inductor.aot.joint import VaryingInputs, to_joint
from inductor.aot.partition import partition
from inductor.aot.training_decompositions import training_decompositions
from inductor.aot.training_spec import describe
from inductor.dynamic.symbols import Sized, Symbols
from inductor.dynamic.template import training_spec_at
from inductor.ir.substitute import substitute_sizes
from inductor.process.import_stubs import stub_torch_compiler

HINTS = {"size0": 7, "size1": 9}


def traced_for_other_sizes(fn, inputs):
    """`fn` traced for matrices of 7 x 9, run as it is on `inputs`."""
    symbols = Symbols()
    n, m = (symbols.symbol(name, value, 2) for name, value in HINTS.items())
    with stub_torch_compiler:
        with symbols.mode:
            fakes = [torch.empty_strided((n, m), (m, 1), dtype=x.dtype) for x in inputs]
        sized = Sized(symbols, fakes, HINTS)
        gm = fx.symbolic_trace(fn)
        try:
            joint = to_joint(gm, inputs, training_decompositions(), VaryingInputs(fakes, symbols.mode))
        except NotFunctional:
            return gm.forward
        halves = partition(joint)
        spec = sized.data(describe(joint, halves))
        for half in (halves.forward, halves.backward):
            sized.substitute(half)
    program = symbols.program()
    values = program.values(dict(zip(HINTS, inputs[0].shape)))
    assert program.serves(values), program
    for half in (halves.forward, halves.backward):
        for node in half.graph.nodes:
            node.args, node.kwargs = substitute_sizes((tuple(node.args), dict(node.kwargs)), values)
        half.recompile()
    return wrap(Captured.of(gm, inputs), training_spec_at(spec, values), plain(halves.forward), plain(halves.backward))


def same(want, got):
    if any(part in want.get("error", ("", ""))[1] for part in EAGERS_OWN) and "error" not in got:
        return
    assert want.get("error") == got.get("error")
    for key in want:
        if key in ("values", "inputs", "grads"):
            torch.testing.assert_close(got[key], want[key], msg=lambda m: f"{key}: {m}")
        else:
            assert got[key] == want[key], key


FUNCTIONS = """integer input_out slice_of_input expand_of_input detached_input nograd_view shared_out shared_detached
view_only slice_only write_return_view write_through_t write_nograd write_detached write_copy write_fresh_view
write_old_view relu_chain""".split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name):
    kinds = ("mid", "leaf")
    fn = getattr(aliasing, name)
    same(observe(run_eager, fn, kinds), observe(traced_for_other_sizes, fn, kinds))


def numbers(x, y):
    """What is computed of sizes: ints, floats, results that are numbers."""
    n, m = x.shape
    return F.mse_loss(x, y), x.var() / n, (x * y).sum() / (n * m) ** 0.5, n * m


def test_numbers_of_sizes_are_no_values_between_forward_and_backward():
    kinds = ("mid", "leaf")
    same(observe(run_eager, numbers, kinds), observe(traced_for_other_sizes, numbers, kinds))


def test_second_derivatives():
    found = []
    for runner in (run_eager, traced_for_other_sizes):
        torch.manual_seed(0)
        x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
        grads = torch.autograd.grad(runner(numbers, (x, y))(x, y)[0], (x, y), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in grads), (x, y)))
    torch.testing.assert_close(*found)


# ---- compiled


@pytest.fixture
def templates(monkeypatch):
    """The compilations for many sizes that are made, and the DynamicShapeDispatcher graphs."""
    made, graphs = [], []
    init, sizes = inductor.dynamic.dispatch.DynamicShapeDispatcher.__init__, inductor.compile._compile_sizes
    monkeypatch.setattr(inductor.compile, "_compile_sizes", lambda *a, **k: made.append(sizes(*a, **k)) or made[-1])
    monkeypatch.setattr(
        inductor.dynamic.dispatch.DynamicShapeDispatcher, "__init__", lambda self, *a, **k: graphs.append(self) or init(self, *a, **k)
    )
    return made, graphs


def train(fast, slow, batches):
    """The same steps, of a model and its compiled copy, with the same random numbers."""
    for batch in batches:
        seen = []
        for run in (fast, slow):
            torch.manual_seed(0)
            run.zero_grad()
            loss = run(*batch)
            loss.backward()
            seen.append((loss, [p.grad for p in run.parameters()], list(run.buffers())))
        torch.testing.assert_close(*seen, rtol=1e-3, atol=1e-5)


class Net(nn.Module):
    """A convolution with batch norm, which writes to buffers; dropout; tied weights."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 4)

    def forward(self, x, y):
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        x = F.dropout(F.linear(self.head(x), self.head.weight), 0.3)
        return F.cross_entropy(x, y)


def test_a_convolutional_network(templates):
    slow = Net()
    fast = pyframe.compile(copy.deepcopy(slow), dynamic=True, options={"strict": True})
    sizes = [(4, 8), (5, 11), (2, 9), (7, 12), (12, 6), (3, 31), (6, 8), (8, 5)]
    train(fast, slow, [(torch.randn(n, 3, h, h + 2), torch.randint(4, (n,))) for n, h in sizes])
    made, graphs = templates
    assert len(made) == 1 and all(graph.compiled == 0 for graph in graphs)


def test_sizes_of_one_and_none_are_compiled_for_themselves(templates):
    slow = nn.Linear(3, 2)
    fast = pyframe.compile(copy.deepcopy(slow), dynamic=True)
    for n in (4, 1, 0, 6, 1):
        x = torch.randn(n, 3)
        results = []
        for run in (fast, slow):
            run.zero_grad()
            out = run(x)
            out.sum().backward()
            results.append((out, [p.grad for p in run.parameters()]))
        torch.testing.assert_close(*results)
    made, graphs = templates
    assert len(made) == 3 and all(graph.compiled == 0 for graph in graphs)


@pytest.mark.filterwarnings("ignore")
def test_what_needs_to_know_a_size_is_compiled_for_each_and_says_so(templates, capfd):
    def fn(x, w):
        return torch.nn.functional.pixel_unshuffle((x * w).expand(1, 4, -1), 2).sum()

    pyframe.reset()
    pyframe.set_logs("sizes")
    try:
        fast = pyframe.compile(fn, dynamic=True)
        for n in (16, 20):
            x, w = torch.randn(n), torch.randn(n, requires_grad=True)
            torch.testing.assert_close(*(torch.autograd.grad(run(x, w), w) for run in (fast, fn)))
    finally:
        pyframe.set_logs()
    made, graphs = templates
    assert not made and pyframe.counters["graphs_per_size"] == len(graphs) > 0
    assert "[sizes] a graph is compiled for each size: " in capfd.readouterr().err
