"""Numbers on the CPU in graphs on a GPU, such as the step counters of optimizers: kernels take them as arguments."""

import pytest
import torch

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

optim = torch.optim
STEPS = {
    "adam": lambda params: optim.Adam(params, 1e-3),
    "adam, one by one": lambda params: optim.Adam(params, 1e-3, foreach=False),
    "adamw": lambda params: optim.AdamW(params, 1e-3, amsgrad=True),
    "nadam": lambda params: optim.NAdam(params, 1e-3),
    "rate in a tensor": lambda params: optim.Adam(params, torch.tensor(1e-3), foreach=False),
    "sgd": lambda params: optim.SGD(params, torch.tensor(1e-3), momentum=0.9),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    torch.manual_seed(0)
    sizes = [(64, 256), (256,), (1,), (33, 7), (1 << 16,)] * 30
    given = [torch.randn(size, device="cuda") for size in sizes]
    mine, theirs = [[torch.nn.Parameter(x.clone()) for x in given] for _ in range(2)]
    a, b = STEPS[name](mine), STEPS[name](theirs)
    compiled = pyframe.compile(a.step)
    for k in range(12):  # more calls than are measured to decide on CUDA graphs
        for x, y in zip(mine, theirs):
            x.grad = torch.randn_like(x)
            y.grad = x.grad.clone()
        (compiled if k else a.step)()
        b.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close([a.state[x] for x in mine], [b.state[y] for y in theirs], rtol=1e-5, atol=1e-6)


def scaled(x, s, n):
    s += 1
    return x * s, x.sum() * (2.0**s), x + n, s * 2, (x + n).sum(-1) / s


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_arithmetic_with_numbers(dtype, mode):
    compiled, mine, theirs = pyframe.compile(scaled, mode=mode), *(torch.tensor(3, dtype=dtype) for _ in range(2))
    for k in range(12):
        x, n = torch.randn(9, 33, device="cuda", dtype=torch.float64), torch.tensor(1 / 3 + k, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, mine, n), scaled(x, theirs, n))
        torch.testing.assert_close(mine, theirs)


def test_the_number_is_that_of_the_time_of_the_call():
    """A call does not wait for its kernels; a later write to the number must not change what they compute."""
    x, s = torch.ones(1 << 24, device="cuda"), torch.zeros(())
    compiled = pyframe.compile(lambda x, s: x * s)
    results = []
    for k in range(50):
        s.fill_(k)
        results.append(compiled(x, s)[:2])
    assert [r.tolist() for r in results] == [[k, k] for k in range(50)]
