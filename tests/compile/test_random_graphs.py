"""Random programs of pointwise operators, reductions, views and effects, compiled and compared with eager."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import inductor

UNARY = [
    torch.sin, torch.tanh, torch.sigmoid, torch.relu, torch.neg, torch.abs, F.gelu, F.silu, torch.square,
    lambda x: x * 2 + 1, lambda x: x.clamp(-1, 1), lambda x: torch.exp(-x.abs()), lambda x: x.softmax(-1),
    lambda x: x - x.mean(-1, keepdim=True), lambda x: x / (x.abs().amax(-1, keepdim=True) + 1), lambda x: x.cumsum(0),
    lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: torch.where(x > 0, x, x * 0.1), lambda x: x.softmax(0),
    lambda x: x + x.sum(), lambda x: x.contiguous(), lambda x: x.clone(), lambda x: x.flip(0), lambda x: x - x.amin(0),
    lambda x: x.double().float(), lambda x: x.half().float() * 0 + x,
    lambda x: F.pad(x, (1, 0))[..., :-1] + x, lambda x: torch.roll(x, 1, -1) * 0.5,
]  # fmt: skip
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, lambda a, b: torch.cat([a, b], -1)[..., ::2]]
SHAPE = [
    lambda x: x.t(), lambda x: x.reshape(-1, x.shape[0]), lambda x: x[:, :-1] if x.shape[1] > 3 else x,
    lambda x: x[1:] if x.shape[0] > 3 else x, lambda x: x.t().contiguous(), lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: torch.stack([x, x * 2]).sum(0), lambda x: x.unfold(0, 1, 1).squeeze(-1), lambda x: x.flatten().view(x.shape),
    lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)], lambda x: x.repeat(2, 1)[: x.shape[0]], lambda x: x @ x.t() @ x * 0.01,
]  # fmt: skip


def program(seed):
    """A function of (x, y, index), and whether it writes x."""
    choose = random.Random(seed)
    steps = [(choose.random(), choose.randrange(10**6), choose.randrange(10**6)) for _ in range(choose.randrange(4, 14))]
    writes = choose.random() < 0.4
    at = choose.randrange(len(steps))

    def fn(x, y):
        values = [x, y, x * 0.5]
        for k, (kind, first, second) in enumerate(steps):
            a, b = values[first % len(values)], values[second % len(values)]
            if kind < 0.4 or (kind < 0.7 and a.shape != b.shape):
                values.append(UNARY[second % len(UNARY)](a))
            elif kind < 0.7:
                values.append(BINARY[first % len(BINARY)](a, b))
            else:
                values.append(SHAPE[second % len(SHAPE)](a))
            if writes and k == at:
                x.mul_(0.5)
                x[0].add_(1)
        return tuple(values[-4:]) + (values[-1].sum(), values[len(values) // 2])

    return fn


def sharing(tensors):
    """Which of them share memory."""
    places = [x.untyped_storage().data_ptr() for x in tensors]
    return [[a == b for b in places] for a in places]


@pytest.mark.parametrize("seed", range(40))
def test_random_program(seed):
    fn = program(seed)
    generator = torch.Generator().manual_seed(seed)
    sizes = random.Random(seed).choice([(5, 7), (8, 16), (33, 19), (4, 64)])
    x, y = torch.randn(sizes, generator=generator), torch.randn(sizes, generator=generator)
    gm = make_fx(fn)(x.clone(), y.clone())
    mine, theirs = [x.clone(), y.clone()], [x.clone(), y.clone()]
    with torch.no_grad():
        call = inductor.compile_fx(gm, mine, options={"strict": True})
        got, want = call(*mine), fn(*theirs)
        exact = fn(x.double(), y.double())
    for ours, eager, wide in zip(got, want, exact, strict=True):  # sums whose terms cancel have no digits in common
        error, of_eager = ((each.double() - wide).abs() for each in (ours, eager))
        assert bool((error <= (1e-5 + 1e-4 * wide.abs()).maximum(3 * of_eager)).all()), (ours, eager, wide)
        assert ours.dtype == eager.dtype
    torch.testing.assert_close(mine, theirs)
    for a, b in zip(got, want):
        assert a.shape == b.shape and all(n <= 1 or p == q for n, p, q in zip(a.shape, a.stride(), b.stride()))
    assert sharing([*got, *mine]) == sharing([*want, *theirs])
