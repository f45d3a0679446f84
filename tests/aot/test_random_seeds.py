"""Random operators as functions of seeds: the rewriting of graphs, its numbers, and training with it.

GPU graphs are what is rewritten; here the rewriting is asked to take the CPU too.
"""

import math

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from training_support import plain

from inductor.aot.autograd import Captured, wrap
from inductor.aot.decompositions import decompositions
from inductor.aot.joint import to_joint
from inductor.aot.memory import is_random
from inductor.aot.partition import partition
from inductor.aot.random import RANDOM_BITS, seeded
from inductor.aot.training_spec import describe
from inductor.ir import philox

aten = torch.ops.aten
N = 400


def int32(*values):
    return torch.tensor(values, dtype=torch.int64).to(torch.int32)


def rewritten(fn, *inputs, devices=("cpu",)):
    gm = make_fx(fn, tracing_mode="fake")(*inputs)
    seeded(gm, devices)
    return gm


def targets(gm):
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


def seeds_of(gm):
    (node,) = gm.graph.find_nodes(op="call_function", target=aten.randint.default)
    return node


def words(key, stream, block):
    """Philox 2x32-10 as its authors define it, with Python's integers."""
    left, right = block, stream
    for _ in range(10):
        product = left * 0xD256D193
        left, right = (product >> 32) ^ key ^ right, product & 0xFFFFFFFF
        key = (key + 0x9E3779B9) & 0xFFFFFFFF
    return left, right


def test_bits_are_philox():
    cases = [(0, 0, 0), (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0x13198A2E, 0x85A308D3, 0x243F6A88), (1, 2, 1 << 31)]
    for key, stream, counter in [*cases, (1, 2, 3)]:
        bits = philox.random_bits(int32(key), int32(stream), int32(counter)).item() & 0xFFFFFFFF
        assert bits == words(key, stream, counter // 2)[counter % 2]
    # the known answer of the authors' own test for zeros
    assert words(0, 0, 0) == (0xFF1DAE59, 0x6CD10DF2)


def unit(bits):
    return bits.double() / 2**32 + 0.5


@pytest.mark.parametrize("others", [1, 1 << 32, (1 << 32) + 1], ids=["low", "high", "both"])
def test_rows_and_neighbouring_seeds_are_independent(others):
    seeds = torch.tensor([12345, 12345 + others])
    a, b = (unit(RANDOM_BITS(seeds, k, [N, N])) for k in range(2))
    bound = 5 / N  # five standard deviations of the correlation of N * N pairs
    for x, y in ((a, b), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1]), (a[1:], b[:-1])):
        assert abs(torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1]) < bound
        together = ((x < 0.1) & (y < 0.1)).double().mean()
        assert abs(together - 0.01) < 5 * math.sqrt(0.01 * 0.99) / N
    for x in (a, b):
        counts = torch.histc(x, 256, 0, 1)
        chi = ((counts - N * N / 256) ** 2 / (N * N / 256)).sum()
        assert abs(chi - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_dropout(p, dtype):
    x = torch.randn(N, N).to(dtype)
    gm = rewritten(lambda x: torch.native_dropout(x, p, True), x)
    assert targets(gm).count(RANDOM_BITS) == 1
    out, mask = gm(x)
    assert mask.dtype == torch.bool and out.dtype == dtype and out.stride() == x.stride()
    assert torch.equal(out, (x * mask) * (1 / (1 - p)))
    assert abs(mask.double().mean() - (1 - p)) <= 5 * math.sqrt(p * (1 - p)) / N


@pytest.mark.parametrize("args", [(1.0, True), (0.3, False)])
def test_dropout_that_draws_nothing_is_aten(args):
    x = torch.randn(4, 4)
    gm = rewritten(lambda x: torch.native_dropout(x, *args), x)
    assert RANDOM_BITS not in targets(gm) and aten.randint.default not in targets(gm)
    assert [a.tolist() for a in gm(x)] == [a.tolist() for a in torch.native_dropout(x, *args)]


DRAWS = {  # (mean, variance) of each
    "rand": (lambda x: torch.rand(N, N), 0.5, 1 / 12),
    "rand_bfloat16": (lambda x: torch.rand(N, N, dtype=torch.bfloat16), 0.5 - 2**-9, 1 / 12),
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 1 / 12),
    "randn": (lambda x: torch.randn(N, N), 0, 1),
    "randn_like": (lambda x: torch.randn_like(x), 0, 1),
    "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.3)), 0.3, 0.21),
    "bernoulli_p": (lambda x: aten.bernoulli.p(x, 0.3), 0.3, 0.21),
    "uniform": (lambda x: aten.uniform(x, -1.0, 3.0), 1, 16 / 12),
    "exponential": (lambda x: aten.exponential(x, 2.0), 0.5, 0.25),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name):
    fn, mean, variance = DRAWS[name]
    x = torch.zeros(N, N)
    gm = rewritten(fn, x)
    assert RANDOM_BITS in targets(gm) and sum(map(is_random, targets(gm))) == 1
    made, like = gm(x), fn(x)
    assert (made.dtype, made.shape, made.stride()) == (like.dtype, like.shape, like.stride())
    made = made.double()
    assert abs(made.mean() - mean) < 5 * math.sqrt(variance) / N
    assert abs(made.var() - variance) < 15 * variance / N
    if "rand" in name and "randn" not in name:
        assert made.min() >= 0 and made.max() < 1
    if name == "exponential":
        assert made.min() > 0


@pytest.mark.parametrize("size", [(4, 1, 1, 1), (1, 4, 1, 1), (1, 1), (2, 1, 3, 1)])
def test_dimensions_of_one_element(size):
    """As the masks of paths that are dropped for whole images."""
    gm = rewritten(lambda x: aten.bernoulli.p(x.new_empty(size), 0.5), torch.zeros(3))
    assert RANDOM_BITS in targets(gm) and gm(torch.zeros(3)).stride() == torch.empty(size).stride()


def test_each_call_draws_its_own_numbers_and_a_seed_brings_them_back():
    gm = rewritten(lambda x: (torch.rand_like(x), torch.rand_like(x), torch.randn_like(x)), torch.zeros(8, 8))
    assert seeds_of(gm).args[1] == [4]
    torch.manual_seed(1)
    first, second = gm(torch.zeros(8, 8)), gm(torch.zeros(8, 8))
    assert not any(torch.equal(a, b) for a, b in zip([*first[:2], *second[:2]], [first[1], second[0], second[1], first[0]]))
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip(first, gm(torch.zeros(8, 8))))


def test_other_devices_and_generators_of_their_own_stay_aten():
    x = torch.zeros(4, 4)
    assert RANDOM_BITS not in targets(rewritten(lambda x: torch.rand_like(x), x, devices=("cuda",)))
    try:
        torch.fx.symbolic_trace(lambda x: aten.bernoulli.p(x, 0.5, generator=torch.default_generator))
    except NotImplementedError:
        pytest.skip("the nodes of this torch.fx take no generators as arguments")
    gm = rewritten(lambda x: aten.bernoulli.p(x, 0.5, generator=torch.default_generator), x)
    assert RANDOM_BITS not in targets(gm)


def test_transposed_and_channels_last():
    x = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
    for y in (x, x.transpose(0, 1)):
        gm = rewritten(lambda y: torch.native_dropout(y, 0.5, True), y)
        assert RANDOM_BITS in targets(gm)
        out, mask = gm(y)
        assert out.stride() == y.stride() == mask.stride() and torch.equal(out, y * mask * 2)


# ---- training


def trained(fn, *inputs):
    gm = fx.symbolic_trace(fn)
    joint = to_joint(gm, inputs, decompositions())
    seeded(joint.graph, ("cpu",))
    halves = partition(joint)
    spec = describe(joint, halves)
    return halves, wrap(Captured.of(gm, inputs), spec, plain(halves.forward), plain(halves.backward))


def block(x, y):
    dropped = torch.native_dropout(x, 0.25, True)[0]
    return F.layer_norm(torch.native_dropout(dropped + y, 0.5, True)[0], (64,)), dropped


def test_seeds_are_saved_and_bits_computed_again():
    inputs = [torch.randn(32, 64, requires_grad=True) for _ in range(2)]
    halves, _ = trained(block, *inputs)
    drawn = [node for node in halves.backward.graph.nodes if is_random(node.target)]
    assert not drawn and targets(halves.backward).count(RANDOM_BITS) == 2
    saved = [node.meta["val"] for node in halves.backward.graph.find_nodes(op="placeholder")]
    assert not any(val.dtype in (torch.bool, torch.int32) for val in saved)
    assert [tuple(val.shape) for val in saved if val.dtype == torch.int64] == [(2,)]


def test_gradient_is_the_mask_of_the_forward():
    x = torch.rand(64, 64).add_(1).requires_grad_()
    _, call = trained(lambda x: (torch.native_dropout(x, 0.25, True)[0],), x)
    torch.manual_seed(7)
    for _ in range(2):
        (out,) = call(x)
        torch.rand(3)  # the generator moves on before the backward
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(grad, (out != 0) * torch.tensor(1 / 0.75))
        assert 0.7 < (out != 0).double().mean() < 0.8


def test_a_second_derivative_is_refused():
    x = torch.randn(8, 64, requires_grad=True)
    _, call = trained(lambda x: (torch.native_dropout(x, 0.25, True)[0] ** 2,), x)
    with pytest.raises(RuntimeError, match="its kernels draw other random numbers"):
        torch.autograd.grad(call(x)[0].sum(), x, create_graph=True)
