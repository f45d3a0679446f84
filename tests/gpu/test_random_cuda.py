"""Random numbers made in kernels on a GPU: reproducible, of the right distribution, the same in forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import inductor
import pyframe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def compiled(fn, *args):
    gm = fx.symbolic_trace(fn)
    call = inductor.compile_fx(gm, list(args), options={"strict": True})
    return call, gm.meta["compile_report"]


def inference(fn, *args):
    with torch.no_grad():
        return compiled(fn, *args)


def cuda(*size, **options):
    return torch.randn(size, device="cuda", **options)


def test_dropout_residual_layer_norm_is_one_kernel():
    x, y = cuda(512, 1024, dtype=torch.bfloat16), cuda(512, 1024, dtype=torch.bfloat16)
    call, report = inference(lambda x, y: F.layer_norm(F.dropout(x, 0.1, True) + y, (1024,)), x, y)
    assert (report.kernels, report.externs) == (1, 1)  # the other call draws the seed
    with torch.no_grad():
        out = call(x, y)
    assert out.dtype == torch.bfloat16 and out.isfinite().all()


def test_a_seed_brings_the_numbers_back_and_each_call_draws_others():
    x = cuda(300, 700)
    call, _ = inference(lambda x: (F.dropout(x, 0.3, True), torch.rand_like(x), torch.rand_like(x)), x)
    with torch.no_grad():
        torch.manual_seed(5)
        state = torch.cuda.get_rng_state()
        first = call(x)
        assert not torch.equal(state, torch.cuda.get_rng_state())
        second = call(x)
        torch.manual_seed(5)
        again = call(x)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not any(torch.equal(a, b) for a, b in zip(first, second)) and not torch.equal(first[1], first[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_mean_of_the_mask(p, dtype):
    x = torch.ones(1000, 1000, device="cuda", dtype=dtype)
    call, _ = inference(lambda x: torch.native_dropout(x, p, True), x)
    with torch.no_grad():
        out, mask = call(x)
    assert mask.dtype == torch.bool and abs(mask.double().mean().item() - (1 - p)) < 5 * (p * (1 - p)) ** 0.5 / 1000
    torch.testing.assert_close(out, mask * x / (1 - p))


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("train", [True, False])
def test_extremes_are_eager(p, train):
    x = cuda(50, 60)
    call, _ = inference(lambda x: F.dropout(x, p, train), x)
    with torch.no_grad():
        assert torch.equal(call(x), F.dropout(x, p, train))


def test_bits_are_those_of_the_reference():
    from inductor.aot.random import RANDOM_BITS

    seeds, size = torch.tensor([3, 2**61 + 17], device="cuda"), [513, 129]
    call, _ = inference(lambda s: (RANDOM_BITS(s, 0, size), RANDOM_BITS(s, 1, size)), seeds)
    with torch.no_grad():
        for k, got in enumerate(call(seeds)):
            assert torch.equal(got, RANDOM_BITS(seeds, k, size))
            assert torch.equal(got.cpu(), RANDOM_BITS(seeds.cpu(), k, size))


DRAWS = {
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 1 / 12),
    "randn_like": (lambda x: torch.randn_like(x), 0, 1),
    "bernoulli": (lambda x: torch.bernoulli(x * 0 + 0.3), 0.3, 0.21),
    "uniform": (lambda x: (x * 1).uniform_(-1, 3), 1, 16 / 12),
    "exponential": (lambda x: (x * 1).exponential_(2.0), 0.5, 0.25),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name):
    fn, mean, variance = DRAWS[name]
    x = cuda(1000, 1000)
    call, report = inference(fn, x)
    assert report.kernels == report.externs == 1  # the other call draws the seed
    with torch.no_grad():
        made = call(x).double()
    assert abs(made.mean().item() - mean) < 5 * variance**0.5 / 1000
    assert abs(made.var().item() - variance) < 15 * variance / 1000


def test_a_generator_of_its_own_draws_what_eager_draws():
    x = torch.full((64, 64), 0.5, device="cuda")
    generator = torch.Generator("cuda")
    fast = pyframe.compile(lambda x: torch.bernoulli(x, generator=generator))
    with torch.no_grad():
        generator.manual_seed(3)
        got = fast(x)
        generator.manual_seed(3)
        assert torch.equal(got, torch.bernoulli(x, generator=generator))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_is_the_mask_of_the_forward(dtype):
    x = (torch.rand(500, 600, device="cuda") + 1).to(dtype).requires_grad_()
    call, _ = compiled(lambda x: F.dropout(x, 0.25, True), x)
    torch.manual_seed(7)
    masks = []
    for _ in range(2):
        out = call(x)
        torch.rand(9, device="cuda")  # the generator moves on before the backward
        (grad,) = torch.autograd.grad(out.sum(), x)
        masks.append(out != 0)
        assert torch.equal(grad, masks[-1] * torch.tensor(1 / 0.75, dtype=dtype, device="cuda"))
    assert not torch.equal(*masks)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(64, 256), nn.Linear(256, 64), nn.LayerNorm(64)

    def forward(self, x):
        return self.norm(x + F.dropout(self.down(F.dropout(F.gelu(self.up(x)), 0.2)), 0.1))


def test_training_in_autocast():
    torch.manual_seed(0)
    block, x = Block().cuda(), cuda(128, 64)
    with torch.autocast("cuda", torch.bfloat16):
        call, _ = compiled(block, x)
    losses = []
    for _ in range(2):
        torch.manual_seed(11)
        with torch.autocast("cuda", torch.bfloat16):
            out = call(x)
        grads = torch.autograd.grad(out.float().square().sum(), list(block.parameters()))
        assert all(g.isfinite().all() for g in grads)
        losses.append([out, *grads])
    for a, b in zip(*losses):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
