"""Graphs compiled once for many sizes: every operator sample, and what is particular to sizes that are not known."""


import pytest
import torch
import torch.nn.functional as F
from op_samples import CASES
from torch.fx.experimental.symbolic_shapes import sym_or

import inductor.dynamic.dispatch
import pyframe
from inductor.dynamic.symbols import Symbols
from inductor.process.import_stubs import stub_torch_compiler
from pyframe.metrics import counters


def compilations(monkeypatch):
    """The DynamicShapeDispatcher graphs that are made from now on."""
    made = []
    init = inductor.dynamic.dispatch.DynamicShapeDispatcher.__init__

    def spy(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(inductor.dynamic.dispatch.DynamicShapeDispatcher, "__init__", spy)
    return made


def compare(got, want):
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.stride() == b.stride()
            rough = b.dtype in (torch.bfloat16, torch.float16)
            torch.testing.assert_close(a, b, rtol=1e-2 if rough else 1e-4, atol=1e-2 if rough else 1e-5, equal_nan=True)
        else:
            assert a == b


@pytest.mark.parametrize("name", CASES)
def test_operator_samples(name, monkeypatch):
    made = compilations(monkeypatch)
    torch.manual_seed(0)
    fn, *args = CASES[name]
    fast = pyframe.compile(lambda *xs: fn(*xs), dynamic=True, options={"strict": True})
    compare(fast(*args), fn(*args))
    print(name, [(x.compiled, sum(map(len, x.templates.values()))) for x in made])


def attention(x, y):
    n, t, d = x.shape
    heads = (x @ y).view(n, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
    q, k, v = heads[0], heads[1], heads[2]
    mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
    scores = (q @ k.transpose(-1, -2) / d**0.5).masked_fill(~mask, float("-inf")).softmax(-1)
    out = (scores @ v).transpose(1, 2).reshape(n, t, d)
    return torch.nn.functional.layer_norm(out + x, (d,)), out.mean((0, 1)), x.shape[0] * t


def rearranged(x, y):
    flat = x.flatten(0, 1)
    return flat.sum(0), torch.cat([flat[1:], flat[:1] * 2]), flat.t().contiguous() + 1, x[:, ::2] + 1, x[:, -1].exp()


def counted(x, y):
    n, t, d = x.shape
    positions = torch.arange(t, device=x.device)
    return x + positions[:, None], x.sum(1) / t, x.new_full((n, t), n), torch.nn.functional.pad(x, (0, 0, 1, t))


@pytest.mark.parametrize("fn", [attention, rearranged, counted], ids=lambda fn: fn.__name__)
def test_one_compilation_for_many_sizes(fn, monkeypatch):
    made = compilations(monkeypatch)
    fast = pyframe.compile(fn, dynamic=None, fullgraph=True, options={"strict": True})
    y = torch.randn(16, 48)
    sizes = [(2, 8), (3, 9), (5, 64), (31, 17), (4, 100), (2, 2), (16, 33)]
    for n, t in sizes:
        x = torch.randn(n, t, 16)
        compare(fast(x, y), fn(x, y))
    assert all(graph.compiled == 0 for graph in made)
    assert sum(len(known) for graph in made for known in graph.templates.values()) <= 3
    assert sum(len(graph.ready) for graph in made) >= len(sizes) - 2  # the first capture is of one size


def test_what_was_assumed_is_checked(monkeypatch):
    """A choice that depends on a size is made again where it would be another."""
    made = compilations(monkeypatch)

    def fn(x):
        return x.reshape(-1, 4).sum(0) if x.shape[0] % 4 == 0 else x * 2

    fast = pyframe.compile(fn, dynamic=True)
    for n in (8, 12, 9, 11, 400, 13):
        x = torch.randn(n)
        compare(fast(x), fn(x))
    assert all(graph.compiled == 0 for graph in made)


def test_of_alternatives_one_that_holds_is_assumed():
    """Operators that broadcast ask whether a size is another one or 1, as one condition."""
    symbols = Symbols()
    n, m, few = (symbols.symbol(name, value, 2) for name, value in {"size0": 7, "size1": 7, "size2": 3}.items())
    with stub_torch_compiler:
        assert sym_or(few == n + 1, few + n == few + m, n == 1)
    program = symbols.program()
    assert program.serves({"size0": 5, "size1": 5, "size2": 4})
    assert not program.serves({"size0": 5, "size1": 6, "size2": 4})


def test_graphs_between_cuts_that_take_numbers_alone(monkeypatch):
    made = compilations(monkeypatch)

    def fn(x):
        return torch.arange((x > 0).nonzero().shape[0]) * 2

    fast = pyframe.compile(fn)
    for n in (5, 8, 12, 20):
        x = torch.arange(float(n)) - 2
        compare(fast(x), fn(x))
    assert made and all(graph.compiled == 0 for graph in made)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_inputs_whose_size_is_the_smaller_of_two(requires_grad, monkeypatch):
    """What is known of such a size beside the other input, whose size it depends on, is its value in each call."""
    made = compilations(monkeypatch)

    def fn(x):
        places = (x > 0).nonzero()[:, 0]
        few = places[:4]
        return (x[few] * 2).sum() + (x[places] * 3).sum() + torch.nonzero(few + 1).sum() + few.shape[0]

    fast = pyframe.compile(fn, dynamic=True)
    for n in (5, 8, 12, 4, 3):
        x = (torch.arange(float(n)) - 1).requires_grad_(requires_grad)
        y = x.detach().clone().requires_grad_(requires_grad)
        got, want = fast(x), fn(y)
        compare(got, want)
        if requires_grad:
            got.backward()
            want.backward()
            compare(x.grad, y.grad)
    assert made and all(graph.compiled == 0 for graph in made)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("scale", [0.25, 0.375, 0.5, 1.0, 1.5, 2])
def test_sizes_that_are_a_multiple_rounded_down(scale, mode, monkeypatch):
    made = compilations(monkeypatch)

    def fn(x):
        return torch.nn.functional.interpolate(x, scale_factor=scale, mode=mode) * 2

    fast = pyframe.compile(fn, dynamic=True)
    for n in (9, 12, 13, 20, 17):
        x = torch.randn(1, 2, n, n + 4)
        compare(fast(x), fn(x))
    assert made and all(graph.compiled == 0 for graph in made)


WINDOWS = {
    "halves": lambda x, w: F.max_pool2d(x, 2),
    "positions": lambda x, w: F.max_pool2d(x, 2, return_indices=True)[0],
    "padded": lambda x, w: F.max_pool2d(x, 3, 2, 1),
    "rounded up": lambda x, w: F.max_pool2d(x, 2, ceil_mode=True),
    "dilated": lambda x, w: F.max_pool2d(x, 3, 3, 1, 2),
    "mean": lambda x, w: F.avg_pool2d(x, 3, 2, 1),
    "mean without padding": lambda x, w: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "mean, rounded up": lambda x, w: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "convolution": lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    "depthwise": lambda x, w: F.conv2d(x, w[:, :1], stride=2, padding=1, groups=3),
    "transposed": lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
    "pooled convolution": lambda x, w: F.max_pool2d(F.conv2d(x, w, stride=2, padding=1).relu(), 3, 2, 1),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_even_and_odd_sizes(name, requires_grad, monkeypatch):
    """Windows that move by more than one element need one compilation: what is beyond the border is tested."""
    made = compilations(monkeypatch)
    fn, w = WINDOWS[name], torch.randn(3, 3, 3, 3)
    fast = pyframe.compile(fn, options={"strict": True})
    for n in (12, 18, 19, 20, 21, 22, 23):
        x = torch.randn(2, 3, n, n + 9).requires_grad_(requires_grad)
        y = x.detach().clone().requires_grad_(requires_grad)
        got, want = fast(x, w), fn(y, w)
        compare(got, want)
        if requires_grad:
            gradient = torch.randn_like(want)
            got.backward(gradient)
            want.backward(gradient)
            compare(x.grad, y.grad)
    assert len(made) == 1 and made[0].compiled == 0 and sum(map(len, made[0].templates.values())) == 1


def test_small_sizes_are_compiled_for_themselves():
    def fn(x, y):
        return (x + y).sum(0), x * y

    fast = pyframe.compile(fn, dynamic=True)
    for n in (5, 1, 0, 7, 1):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        compare(fast(x, y), fn(x, y))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
@pytest.mark.parametrize("op", ["floor_divide", "remainder", "lt", "clamp_max", "masked_fill"])
def test_an_int_that_varies_next_to_a_narrow_tensor(dtype, op):
    """Numbers beyond the limits of the dtype are wrapped or refused, as eager does with each operator."""

    def f(x, n):
        return x.masked_fill(x > 1, n) if op == "masked_fill" else getattr(torch, op)(x, n)

    compiled, x = pyframe.compile(f, dynamic=True), torch.arange(21).to(dtype)
    for n in (5, 7, 200, 300, 2**33 + 5, 9):
        try:
            expected = f(x, n)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                compiled(x, n)
        else:
            got = compiled(x, n)
            assert got.dtype == expected.dtype and torch.equal(got, expected), n


def test_a_size_times_a_float_that_is_rounded():
    """One graph for all sizes, which are those of eager: 0.3 * 10 is 3 in floating point, and less for real numbers."""
    program = lambda x: F.interpolate(x, scale_factor=0.3) + F.interpolate(x, scale_factor=0.3, mode="bilinear")  # noqa: E731
    fast = pyframe.compile(program)
    for n in (20, 9, 10, 23, 59, 60):
        x = torch.randn(1, 2, n, n + 3, requires_grad=True)
        got, want = fast(x), program(x)
        compare(got, want)
        compare(*(torch.autograd.grad(each.square().sum(), x)[0] for each in (got, want)))
    assert counters["graphs"] == 2 and counters["graphs_per_size"] == 0
