"""Kernels for many sizes: each graph is lowered once and run at several sizes by Triton's interpreter.

    python worker_sizes.py [NAME ...]      prints a line for each graph; exit status 1 where one is wrong
"""

import sys

import torch
import torch.nn.functional as F
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from triton_support import Runner

from inductor.aot import batch_norm, training_decompositions
from inductor.aot.autograd import Captured, wrap
from inductor.aot.fake import make_fx
from inductor.aot.joint import VaryingInputs, to_joint
from inductor.aot.partition import partition
from inductor.aot.random import seeded
from inductor.aot.training_spec import describe
from inductor.dynamic.symbols import Sized, Symbols, with_sizes
from inductor.dynamic.template import training_spec_at
from inductor.lower import lower_graph, separate_results
from inductor.process.import_stubs import stub_torch_compiler
from inductor.runtime.triton_build import build_all

# What is computed of tensors of sizes (n, m) and (m,).
GRAPHS = {
    "pointwise": lambda x, w: [x * w + 1],
    "softmax": lambda x, w: [torch.softmax(x * w, -1)],
    "layer_norm": lambda x, w: [F.layer_norm(x + 1, (x.shape[1],), w)],
    "rows": lambda x, w: [x.sum(-1), (x * x).mean(-1), x.amax(-1)],
    "columns": lambda x, w: [x.sum(0), x.amax(0)],
    "whole": lambda x, w: [x.sum()],
    "argmax": lambda x, w: [x.argmax(-1), x.argmin(0)],
    "transposed": lambda x, w: [(x.t().contiguous() + 1), x.t() * 2],
    "flattened": lambda x, w: [(x.reshape(-1) * 2).reshape(x.shape[1], x.shape[0]) + 1],
    "shifted": lambda x, w: [torch.cat([x[:, 1:], x[:, :1] * 2], 1)],
    "padded": lambda x, w: [F.pad(x, (1, 2)) + 1],
    "repeated": lambda x, w: [x.repeat(2, 3) + 1],
    "counted": lambda x, w: [torch.arange(x.shape[1]) + x.long(), x / x.shape[0]],
    "gathered": lambda x, w: [w[(x.abs() * 100).long() % x.shape[1]]],
}
SIZES = ((37, 40), (3, 33), (130, 61), (64, 64), (5, 2))
FEW = ((6, 5000), (5, 7001), (3, 20000))
LONG = ("softmax", "rows", "whole")
FEWER = {"whole": 3, "shifted": 4, "repeated": 3, "softmax of long rows": 2, "rows of long rows": 2}


def lowered_once(fn, n, m):
    symbols = Symbols()
    rows, columns = symbols.symbol("size0", n, 2), symbols.symbol("size1", m, 2)
    with stub_torch_compiler, torch.no_grad(), symbols.mode, enable_python_dispatcher():
        graph = make_fx(fn)(torch.empty(rows, columns), torch.empty(columns))
        with_sizes(graph, symbols)
    return lower_graph(graph), symbols


def check(name, sizes):
    """How many sizes the first compilation serves, after comparing them, what it assumes, and its kernels."""
    torch.manual_seed(0)
    fn, (n, m) = GRAPHS[name], sizes[0]
    graph, symbols = lowered_once(fn, n, m)
    runner = Runner(None, graph=graph)
    program = symbols.program()
    served = 0
    for n, m in sizes:
        runner.values = program.values({"size0": n, "size1": m})
        if not program.serves(runner.values):
            continue
        served += 1
        x, w = torch.randn(n, m), torch.randn(m)
        for got, want in zip(runner.run(x, w), fn(x, w), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return served, program.assumed, runner.source.kernels


# What is trained: functions of the same that give one result.
TRAINED = {
    "losses": lambda x, w: F.mse_loss(torch.softmax(x * w, -1), x.detach()) + (x / w).var(),
    "batch_norm": lambda x, w: F.gelu(F.batch_norm(x, None, None, w, None, True)),
    "dropout": lambda x, w: F.dropout(x * w, 0.4),
}


def check_training(name, sizes):
    """The same for forward and backward."""
    n, m = sizes[0]
    hints, fn = {"size0": n, "size1": m}, TRAINED[name]
    symbols = Symbols()
    rows, columns = (symbols.symbol(key, value, 2) for key, value in hints.items())
    with stub_torch_compiler, symbols.mode:
        sized = Sized(symbols, [torch.empty(rows, columns), torch.empty(columns)], hints)
    gm, real = fx.symbolic_trace(fn), [torch.randn(n, m, requires_grad=True), torch.ones(m, requires_grad=True)]
    varying = VaryingInputs(sized.fakes, symbols.mode)
    joint = to_joint(gm, real, training_decompositions.training_decompositions(), varying)
    seeded(joint.graph, ("cpu",))
    halves = partition(joint)
    spec = sized.data(describe(joint, halves))
    runners = []
    for half in (halves.forward, halves.backward):
        shared = separate_results(half)
        sized.substitute(half)
        runners.append(Runner(None, graph=lower_graph(half, shared)))
    program = symbols.program()
    for n, m in sizes:
        values = program.values({"size0": n, "size1": m})
        assert program.serves(values), (name, program)
        for runner in runners:
            runner.values = values
        call = wrap(Captured.of(gm, real), training_spec_at(spec, values), *(runner.run for runner in runners))
        x, w = torch.randn(n, m, requires_grad=True), torch.randn(m, requires_grad=True)
        got = call(x, w)
        if name == "dropout":  # other numbers than eager's, and in the backward the same as in the forward
            assert 0 < (got == 0).sum() < got.numel()
            want = (x * w) * ((got != 0) / 0.6)
        else:
            want = fn(x, w)
        weight = torch.randn(got.shape)
        for a, b in zip((got, *gradients(got, weight, x, w)), (want, *gradients(want, weight, x, w)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    return program.assumed, [kernel for runner in runners for kernel in runner.source.kernels]


def gradients(result, weight, *inputs):
    return torch.autograd.grad((result * weight).sum(), inputs)


def main():
    names = sys.argv[1:] or list(GRAPHS)
    kernels = {}
    for name in names:
        for sizes in (SIZES, FEW) if name in LONG else (SIZES,):
            served, assumed, made = check(name, sizes)
            which = name if sizes is SIZES else f"{name} of long rows"
            print(f"{which} {served}/{len(sizes)} {assumed}", flush=True)
            assert served >= FEWER.get(which, len(sizes))
            kernels |= {kernel.name: kernel for kernel in made}
    batch_norm._rewritten = lambda x: True  # batch norm as on a GPU
    for name in [] if sys.argv[1:] else TRAINED:
        assumed, made = check_training(name, ((37, 40), (3, 33), (50, 61)))
        print(f"training: {name} {assumed}", flush=True)
        kernels |= {kernel.name: kernel for kernel in made}
    for arch in (80, 90):
        build_all(list(kernels.values()), arch)
    print(f"{len(kernels)} kernels compiled")


if __name__ == "__main__":
    main()
