"""Steps of optimizers as on a GPU while step counters and learning rates are on the CPU, in Triton's interpreter: one
launch for many parameters takes each counter's corrections as arguments."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from tools.fuzz_graphs import fake_cuda  # noqa: E402

fake_cuda.install(numbers_on_cpu=True)

import pytest  # noqa: E402
import torch  # noqa: E402

import inductor.build  # noqa: E402
import pyframe  # noqa: E402
from inductor.cudagraphs.refusal import refusal  # noqa: E402
from inductor.runtime.plan_spec import Extern, Launch  # noqa: E402

SPECS = []
make_plan = inductor.build.make_plan


def kept(spec, *args, **kwargs):
    if spec.steps:
        SPECS.append(spec)
    return make_plan(spec, *args, **kwargs)


inductor.build.make_plan = kept


def count(kind):
    return max(sum(isinstance(step, kind) for step in spec.steps) for spec in SPECS)


def check(make, launches, sizes=((4, 16), (5, 8), (3,), (1,), (7, 200)), decay=1.0):
    """Compares the parameters and the state after four steps with eager's. `launches`: the most that a compiled step
    makes for 15 parameters. `decay`: the factor of the learning rate after each step."""
    torch.manual_seed(0)
    SPECS.clear()
    given = [torch.randn(size) for size in sizes * 3]
    mine, theirs = [[torch.nn.Parameter(x.clone()) for x in given] for _ in range(2)]
    a, b = make(mine), make(theirs)
    compiled = pyframe.compile(a.step)
    for k in range(4):
        for x, y in zip(mine, theirs):
            x.grad = torch.randn_like(x)
            y.grad = x.grad.clone()
        (compiled if k else a.step)()
        b.step()
        for group in (*a.param_groups, *b.param_groups):
            group["lr"] *= decay
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close([a.state[x] for x in mine], [b.state[y] for y in theirs], rtol=1e-5, atol=1e-6)
    assert SPECS and count(Launch) <= launches, [count(Launch), launches]
    assert not count(Extern), "a copy to the GPU"
    for spec in SPECS if decay == 1 else SPECS[-1:]:  # the first capture takes the learning rate as a constant
        taken = sum(len(step.by_value) for step in spec.steps if isinstance(step, Launch))
        assert taken > 0, spec
        assert refusal(spec) is not None  # a recording would repeat the numbers of its first call


optim = torch.optim
STEPS = {
    "adam": lambda params, **kwargs: optim.Adam(params, 1e-3, **kwargs),
    "amsgrad": lambda params, **kwargs: optim.AdamW(params, 1e-3, amsgrad=True, **kwargs),
    "nadam": lambda params, **kwargs: optim.NAdam(params, 1e-3, **kwargs),
}


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_steps(name, foreach):
    check(lambda params: STEPS[name](params, foreach=foreach), 8)


def test_a_learning_rate_in_a_tensor():
    check(lambda params: optim.Adam(params, torch.tensor(1e-3), foreach=False), 8)


@pytest.mark.parametrize("make", (optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad))
def test_a_learning_rate_that_varies_in_a_fused_step(make):
    check(lambda params: make(params, 1e-3, fused=True), 8, decay=0.9)


def scaled(x, s, n):
    s += 1
    return x * s, x.sum() * (2.0**s), x + n, s * 2, (x + n).sum(-1) / s


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_arithmetic_with_numbers(dtype):
    """Results, and a number that the program changes between calls; float64 numbers reach kernels as they are."""
    compiled, mine, theirs = pyframe.compile(scaled), *(torch.tensor(3, dtype=dtype) for _ in range(2))
    for k in range(3):
        x, n = torch.randn(9, 33, dtype=torch.float64), torch.tensor(1 / 3 + k, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, mine, n), scaled(x, theirs, n))
        torch.testing.assert_close(mine, theirs)
