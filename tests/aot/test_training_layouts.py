"""Layouts, dtypes, containers and inputs that share memory."""

import pytest
import torch
from torch import fx, nn
from training_support import make, plain

from inductor.aot.autograd import compile_training
from inductor.aot.functionalize import NotFunctional

LAYOUTS = {
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[1:, ::2],
    "offset": lambda x: x.flatten()[5:29].view(4, 6),
    "expanded": lambda x: x[:1].expand(6, 6),
    "single": lambda x: x[:, :1],
    "empty": lambda x: x[:0],
}


def views_out(x):
    return x.t(), x.sin(), x[1:2], x.unsqueeze(0).expand(2, -1, -1)


def write_then_view(x):
    x.mul_(2)
    return x.t(), x * 2, x.sum()


def write_part(x):
    x[:, :1].add_(1)
    return x.exp(), x[:, :1]


def reduced(x):
    return x.sum(0), x.amax(1), (x * x.mean()).reshape(-1)


def run(call, layout, requires_grad):
    base = make("leaf" if requires_grad else "data", 1, (6, 6))[1]
    x = LAYOUTS[layout](base * 1.0)
    try:
        out = call(x)
        everything = [x, *out]
        layouts = [(y.stride(), y.storage_offset() - x.storage_offset(), y.shape) for y in everything]
        values = [y.detach().clone() for y in everything]
        goals = [y for y in everything if y.requires_grad]
        if goals:
            sum((y * y).sum() for y in goals).backward()
        return layouts, values, base.grad
    except RuntimeError:
        return "error"


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fn", [views_out, write_then_view, write_part, reduced], ids=lambda fn: fn.__name__)
def test_results_lie_in_memory_as_eagers(fn, layout, requires_grad):
    example = LAYOUTS[layout](make("leaf" if requires_grad else "data", 1, (6, 6))[1] * 1.0)
    want = run(fn, layout, requires_grad)
    gm = fx.symbolic_trace(fn)
    try:
        call = compile_training(gm, [example], plain)
    except NotFunctional:
        call = gm.forward
    got = run(call, layout, requires_grad)
    if want == "error" or got == "error":
        assert want == got
        return
    assert got[0] == want[0]
    torch.testing.assert_close(got[1:], want[1:])


def test_inputs_may_share_memory_if_they_are_read():
    def fn(x, y):
        return (x * y).sin(), y.t()

    base = torch.randn(4, 4, requires_grad=True)
    inputs = lambda: ((base * 1)[1:, 1:], base[:3, :3])
    call = compile_training(fx.symbolic_trace(fn), inputs(), plain)
    for given in (inputs(), (base[:3, :3], base[:3, :3]), (base[:3, 1:],) * 2):
        got = torch.autograd.grad(sum(y.sum() for y in call(*given)), base, retain_graph=True)
        torch.testing.assert_close(got, torch.autograd.grad(sum(y.sum() for y in fn(*given)), base))


@pytest.mark.parametrize("pair", [lambda x: (x[:2], x[1:3]), lambda x: (x, x), lambda x: (x, x.detach())])
def test_a_written_input_that_shares_memory_is_left_to_eager(pair):
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(NotFunctional, match="shares memory"):
        written = fx.symbolic_trace(lambda x, y, w: (x.mul_(2), y + w))
        compile_training(written, (*pair(torch.randn(3, 3)), weight), plain)


def test_an_offset_may_differ_from_that_of_the_example():
    fn = lambda x: (x[1:], x.sin())
    call = compile_training(fx.symbolic_trace(fn), [torch.randn(3, 4, requires_grad=True)], plain)
    x = torch.randn(20, requires_grad=True)
    given = x[7:19].view(3, 4)
    torch.testing.assert_close(call(given), fn(given))
    assert call(given)[0].data_ptr() == given[1:].data_ptr()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_dtypes(dtype):
    fn = lambda x, w: ((x @ w).tanh().abs().sum(), x.real * 2 if dtype.is_complex else x.float())
    x, w = (torch.randn(3, 3, dtype=dtype).requires_grad_() for _ in range(2))
    gm = fx.symbolic_trace(fn)
    call = compile_training(gm, [x, w], plain)
    got = call(x, w)
    torch.testing.assert_close(got, fn(x, w))
    torch.testing.assert_close(torch.autograd.grad(got[0], [x, w]), torch.autograd.grad(fn(x, w)[0], [x, w]))


CONTAINERS = {
    "single": lambda x: x.sin(),
    "list": lambda x: [x.sin(), 3],
    "dict": lambda x: {"a": x.sin(), "b": (x, [x.cos(), None])},
    "none": lambda x: None,
    "empty": lambda x: (),
    "one": lambda x: (x.sin(),),
    "swapped": lambda x: ((y := x.sin()).detach(), x.cos(), y),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("requires_grad", [True, False])
def test_containers(name, requires_grad):
    fn = CONTAINERS[name]
    x = torch.randn(3).requires_grad_(requires_grad)
    call = compile_training(fx.symbolic_trace(fn), [x], plain)
    got, want = call(x), fn(x)
    assert type(got) is type(want)
    torch.testing.assert_close(got, want) if want is not None else None


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(3))
        self.plain = torch.full((3,), 2.0)

    def forward(self, x):
        y = x * self.scale * self.plain
        self.total.add_(y.detach().sum(0))
        return y, self.scale, self.total


def test_state_of_the_module():
    mine, theirs = Stateful(), Stateful()
    x = torch.randn(4, 3)
    call = compile_training(fx.symbolic_trace(mine), [x], plain)
    for _ in range(2):
        got, want = call(x), theirs(x)
        torch.testing.assert_close(got, want)
        assert got[1] is mine.scale and got[2] is mine.total
        got[0].sum().backward()
        want[0].sum().backward()
    torch.testing.assert_close((mine.total, mine.scale.grad), (theirs.total, theirs.scale.grad))


def test_kernels_that_write_unseen_still_count():
    def blind(gm):
        def run(*args):
            versions = [x._version for x in args]
            out = gm.forward(*args)
            for x, version in zip(args, versions):
                torch._C._autograd._unsafe_set_version_counter((x,), (version,))
            return out

        return run

    x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
    fn = lambda x, w: (x.add_(1), w.sin())
    call = compile_training(fx.symbolic_trace(fn), [x, w], blind)
    before = x._version
    call(x, w)
    assert x._version > before
