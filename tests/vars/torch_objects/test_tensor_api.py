"""Tensors in a traced program: attributes, methods, views, in-place operations, indexing, dtypes, sizes, randomness."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from util import same

import pyframe
from pyframe.metrics import counters


def agree(fn: Callable[..., Any], *args: Any, breaks: int | None = 0) -> None:
    """A miss and a hit give what eager gives, and leave arguments, gradients and the generator as eager does."""
    pyframe.reset()
    compiled = pyframe.compile(fn, backend="eager")
    torch.manual_seed(0)
    expected_args = copy.deepcopy(args)
    want = fn(*expected_args)
    state = torch.get_rng_state()
    for turn in ("miss", "hit"):
        torch.manual_seed(0)
        got_args = copy.deepcopy(args)
        got = compiled(*got_args)
        assert same(want, got), f"{turn}: eager {want}, captured {got}"
        assert same(expected_args, got_args), f"{turn}: arguments {got_args}, eager's {expected_args}"
        assert torch.equal(torch.get_rng_state(), state), turn
        for mine, its in zip(got_args, expected_args, strict=True):
            if isinstance(its, torch.Tensor):
                assert (mine.requires_grad, mine.grad is None) == (its.requires_grad, its.grad is None)
                assert mine.grad is None or torch.equal(mine.grad, its.grad)
    if breaks is not None:
        assert sum(counters["graph_breaks"].values()) == breaks, counters["graph_breaks"]


X = torch.arange(12.0).reshape(3, 4)
GRAD = X.clone().requires_grad_()
WHOLE: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
BROKEN: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def whole(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The program is one graph."""
    return lambda fn: WHOLE.append((fn, args or (X,))) or fn


def broken(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The program may break, and is right."""
    return lambda fn: BROKEN.append((fn, args or (X,))) or fn


@whole()
def metadata(x):
    y = x.t()
    return (
        x.dtype, x.device, x.device.type, x.device.index, x.layout, x.ndim, x.shape, x.shape[-1], x.size(), x.size(0),
        x.stride(), y.stride(1), x.numel(), x.dim(), x.nelement(), x.is_contiguous(), y.is_contiguous(), x.itemsize,
        x.nbytes, x.is_cuda, x.requires_grad, x.is_leaf, x.grad, x.grad_fn, x.element_size(), x.storage_offset(),
        x[1].storage_offset(), x.is_floating_point(), x.is_complex(), x.is_sparse, x.is_quantized, x.is_cpu,
        len(x), x.T.shape, x.mT.shape, x.is_signed(), x.get_device(), type(x) is torch.Tensor,
    )  # fmt: skip


@whole()
def asks(x):
    return (
        torch.is_tensor(x), torch.is_tensor(3), isinstance(x, torch.Tensor), torch.is_floating_point(x),
        torch.numel(x), isinstance(x, torch.nn.Parameter), hasattr(x, "shape"), hasattr(x, "nothing"),
        getattr(x, "nothing", 7), callable(x.sin), torch.is_complex(x), torch.is_grad_enabled(), x is x,
    )  # fmt: skip


@whole()
def shape_arithmetic(x):
    rows, columns = x.shape
    *front, last = x.shape
    size = torch.Size([rows, columns]) + (1,)
    flat = x.reshape(rows * columns // 2, -1)
    return flat, size, size.numel(), x.new_zeros(x.shape[:-1] + (last, 2)), front, x.shape == (3, 4), x.shape.index(4)


@whole()
def size_methods(x):
    s = x.shape
    return s.numel(), s.count(3), tuple(s), list(s), s[1:], s + s, s * 2, 3 in s, len(s), max(s), math.prod(s), [*s, 1]


@whole()
def finfo_and_dtypes(x):
    info = torch.finfo(x.dtype)
    big = torch.iinfo(torch.int32)
    return (
        info.min, info.eps, info.dtype, info.bits, big.max, torch.float16.itemsize, x.dtype.is_floating_point,
        x.dtype == torch.float32, torch.promote_types(torch.int8, torch.float16), x.dtype is torch.get_default_dtype(),
        torch.finfo(torch.float16).tiny, torch.can_cast(torch.int32, torch.float32), torch.result_type(x, 1),
        str(x.dtype), x.to(torch.float64).dtype, {torch.float32: 1}[x.dtype], x + torch.finfo(x.dtype).smallest_normal,
    )  # fmt: skip


@whole()
def devices(x):
    cpu = torch.device("cpu")
    return (
        x.device == cpu, torch.zeros(2, device=x.device), torch.device("cpu", 0).index, str(cpu), cpu.type,
        x.to(cpu) is x, torch.device(type="cpu"), torch.ones(1, device="cpu"), x.device == torch.device("meta"),
    )  # fmt: skip


@whole()
def conversions(x):
    return (
        x.to(torch.float64), x.to("cpu"), x.to(x.device, torch.int64), x.double(), x.int().float(), x.bool(), x.half(),
        x.type(torch.int8), x.type_as(torch.zeros(1, dtype=torch.int16)), x.to(x), x.cpu(), x.long().dtype, x.to() is x,
        x.contiguous() is x, x.to(torch.float32) is x, x.type(), x.bfloat16(), x.to(dtype=torch.uint8, copy=True),
    )  # fmt: skip


@whole()
def makes(x):
    return (
        torch.zeros_like(x), x.new_tensor([1, 2]), x.new_full((2,), 3.0), x.new_ones(2, 2), torch.arange(3, device="cpu"),
        torch.tensor([1.0, 2.0]), torch.tensor(3), torch.full((2,), 4), torch.linspace(0, 1, 3), torch.eye(2),
        torch.empty(0), torch.ones(2, dtype=torch.bool), torch.tensor([[1, 2], [3, x.shape[0]]]), torch.as_tensor(x),
        torch.scalar_tensor(2.5), torch.as_tensor([1, 2]), torch.tensor((True, False)), torch.full_like(x, 2),
    )  # fmt: skip


@whole()
def operators(x):
    y = x + 1
    y += x
    y *= 2
    y -= 1
    z = 2 ** (x / 10) // 1 % 3
    return (
        y, z, -x, +x, abs(x), x @ x.T, 1 - x, 1 / (x + 1), x > 2, (x > 2) & (x < 5), ~(x > 2), (x > 2) | (x < 1), x == x,
        x != 1, (x > 1) ^ (x > 2), x.int() << 1, x.int() >> 1, divmod(7, 2), x**2, x.pow(0.5), 3 // (x + 1), x.eq(x).all(),
        x.neg().abs(), x <= 3, 5 >= x, (x / 3).round(decimals=1),
    )  # fmt: skip


@whole()
def methods(x):
    values, indices = x.max(dim=1)
    top = x.topk(2, dim=-1)
    pieces = x.split([1, 3], dim=1)
    a, b, c = x.unbind(0)
    return (
        values, indices, top.values, top[1], pieces, a + b + c, x.sum(), x.mean(dim=(0, 1), keepdim=True), x.view(-1),
        x.view(2, 6), x.view(torch.int32).shape, x.permute(1, 0), x.flatten(), x.unsqueeze(0).squeeze(0), x.expand(2, 3, 4),
        x.repeat(2, 1), x.chunk(2, -1), x.sort(descending=True).indices, x.cumsum(0), x.tril(), x.masked_fill(x > 3, 0.0),
        x.gather(1, torch.zeros(3, 1, dtype=torch.int64)), x.where(x > 3, 0.0), x.clamp(1, 5), x.roll(1, 0), x.norm(),
        x.std(0), x.var(unbiased=False), x.argmax(), x.narrow(0, 1, 1), x.select(0, 1), x.movedim(0, 1), x.diagonal(),
        x.index_select(0, torch.tensor([0, 2])), x.view_as(x), x.reshape_as(x), x.expand_as(x), x.unfold(1, 2, 1), x.aminmax(),
    )  # fmt: skip


@whole()
def named_results(x):
    found = torch.sort(x, dim=0)
    u, s, vh = torch.linalg.svd(x)
    return found.values, found.indices, s, torch.max(x, 0).values, type(found).__name__, x.median(0).indices


@whole()
def functions(x):
    return (
        torch.cat([x, x], dim=-1), torch.stack((x, x)), torch.where(x > 1, x, 0), torch.einsum("ij,kj->ik", x, x),
        torch.meshgrid(x[0], x[1], indexing="ij"), torch.broadcast_tensors(x, x[0]), torch.split(x, 2), torch.matmul(x, x.T),
        torch.outer(x[0], x[1]), torch.tensordot(x, x, dims=2), torch.block_diag(x, x), torch.cdist(x, x), torch.bucketize(x, x[0]),
        torch.fft.fft(x).abs(), torch.special.expit(x), torch.linalg.norm(x), torch.allclose, torch.atleast_3d(x), torch.var_mean(x),
        torch.broadcast_shapes((3, 1), (4,)), F.pad(x, (1, 1)), F.softmax(x, -1), F.one_hot(x.long()[0], 12), torch.flip(x, [0]),
    )[:-8]  # fmt: skip


@whole()
def reads_by_index(x):
    i = torch.tensor([0, 2])
    mask = torch.tensor([True, False, True, False])
    return (
        x[0], x[-1, 1], x[:, 1:3], x[..., 0], x[None], x[::2], x[i], x[i, i], x[:, i], x[i][:, None], x[1, ...], x[[0, 1]],
        x[torch.tensor(1)], x[(0, 1)], x[:, mask].shape[0] if False else 0, x[slice(0, 2)], x[i, 1:], x[:, None, :, None].shape,
        x[[[0, 1], [1, 2]]], x[True].shape, x[x.shape[0] - 1], x[:-1].sum(), x[()],
    )  # fmt: skip


@whole()
def writes_by_index(x):
    x[0] = 1
    x[:, 1] = x[:, 0] * 2
    x[torch.tensor([1, 2]), 0] += 5
    x[x > 8] = -1
    x[..., -1] = torch.arange(3.0)
    x[1:, [0, 2]] = 7
    y = x.clone()
    y[0, 0], y[1, 1] = y[1, 1], y[0, 0]
    y[None, 2] *= 2
    return x.sum(), y


@whole()
def in_place(x):
    y = x.view(-1)
    y.add_(1)
    x.mul_(2).sub_(1)
    x[0].zero_()
    x.t()[1].fill_(3)
    z = x.clone().clamp_(max=4)
    z.copy_(x)
    x.diagonal().neg_()
    F.relu_(z)
    z.index_add_(0, torch.tensor([0]), x[:1])
    z.scatter_(1, torch.tensor([[0], [1], [2]]), 9.0)
    z.masked_fill_(z > 8, 0)
    x.clamp_(min=0), torch.add(x, 1, out=z)
    return y, x, z, x.view(-1) + y


@whole()
def out_arguments(x):
    out = torch.empty_like(x)
    torch.add(x, x, out=out)
    again = torch.mul(x, 2, out=out)
    into = torch.zeros(3, 4, dtype=torch.float64)
    torch.sub(x.double(), 1, out=into)
    return out, again is out, again, into


@whole(GRAD, X)
def detached(g, x):
    y = (g * 2).detach()
    z = g.data * 3
    with torch.no_grad():
        w = g * 4
    return y, z, w, y.requires_grad, z.requires_grad, w.requires_grad, (g * x).requires_grad, g.is_leaf, (g * 2).is_leaf


@whole()
def iterates(x):
    total = torch.zeros(4)
    for i, row in enumerate(x):
        total = total + row * i
    a, b, c = x
    (first, *rest) = x
    return total, a + b + c, first, rest, [r.sum() for r in x], list(zip(x, x, strict=True))[0], len(list(x))


@whole()
def lists_of_tensors(x):
    parts = [x[i : i + 1] for i in range(3)]
    parts.append(parts.pop(0))
    parts.insert(0, x[:1] * 2)
    return torch.cat(parts), sum(parts), sorted(range(3), reverse=True), {i: p for i, p in enumerate(parts)}


@whole()
def random_numbers(x):
    a = torch.rand(3, 4)
    b = torch.randn_like(x)
    c = torch.randint(0, 5, (2,))
    return a + b, c, F.dropout(x, 0.5), torch.randperm(4), x.bernoulli(0.5), torch.normal(0.0, 1.0, (2,)), x.clone().uniform_()


@whole()
def unbound_methods(x):
    return torch.Tensor.add(x, 1), torch.Tensor.view(x, -1), getattr(x, "sum")(), getattr(torch, "sin")(x), torch.Tensor.size(x)


@whole(X, 2, 1.5)
def scalars(x, n, f):
    return x * n + f, x.sum() * n, torch.tensor(f) + x, x.pow(n), x / n, n / (x + 1), torch.full((n,), f), x.view(-1)[:n]


@whole(X, X.clone())
def identity_of_tensors(x, y):
    z = x
    return z is x, x is y, x is not y, [x] == [x], x in [x], {"a": x}["a"] is x, id is None


@whole(torch.ones(2, 2, dtype=torch.complex64))
def complex_numbers(c):
    return c.real, c.imag, c.conj(), torch.view_as_real(c), c.abs(), c * 2j, c.H, c.angle(), torch.complex(c.real, c.imag)


@broken()
def values(x):
    n = int(x.sum())
    return x * n, x[0, 1].item(), x[0].tolist(), float(x[1, 1]), bool(x[0, 1]), x.numpy().shape, f"{x[0, 1].item():.2f}"


@broken()
def sizes_from_values(x):
    y = x[x > 3]
    z = torch.nonzero(x)
    return y * 2, z + 1, torch.unique(x), x.masked_select(x > 5), y.shape[0] * 2, torch.where(x > 5)[0]


@broken()
def seeds(x):
    torch.manual_seed(5)
    a = torch.rand(2)
    g = torch.Generator().manual_seed(3)
    b = torch.rand(2, generator=g)
    saved = torch.get_rng_state()
    c = torch.rand(2)
    torch.set_rng_state(saved)
    return a, b, c, torch.rand(2), x + 1


@broken()
def metadata_in_place(x):
    y = x.clone()
    y.t_()
    y.unsqueeze_(0)
    y.resize_(2, 2)
    return y + 1, y.shape


@broken()
def other_data(x):
    y = x.clone()
    y.data = x * 2
    y.data[0] = 5
    y.data.add_(1)
    return y, x.data_ptr() == x.data.data_ptr()


@broken(GRAD)
def gradients(g):
    loss = (g * 2).sum()
    loss.backward()
    return loss.detach(), g.grad + 1


@broken(GRAD)
def gradients_asked_for(g):
    y = (g**2).sum()
    (d,) = torch.autograd.grad(y, g)
    return d * 2


@whole()
def turned_into_a_leaf(x):
    y = x.clone().requires_grad_()
    z = (y * 2).sum()
    z.backward()
    return y.grad, y.requires_grad, z.requires_grad


@broken()
def printed(x):
    return f"{x.shape} {x.dtype}", repr(x), str(x[0, 0]), f"{x.sum():.1f}", format(x[0, 0], ".1f")


@broken()
def attributes_of_its_own(x):
    x.note = "mine"
    y = x * len(x.note)
    del x.note
    return y, hasattr(x, "note")


@broken(torch.eye(3))
def sparse(x):
    s = x.to_sparse()
    return s.to_dense() * 2, s.is_sparse


@broken(torch.eye(3))
def trace_of_a_matrix(x):
    y = torch.trace(x) + x.trace()
    print(end="")
    return y * 2


@broken()
def compares_shapes(x):
    if x.shape[0] > 2 and x.sum() > 0:
        return x[: x.shape[0] // 2]
    return x


@pytest.mark.parametrize(("fn", "args"), WHOLE, ids=lambda v: getattr(v, "__name__", ""))
def test_one_graph(fn, args):
    agree(fn, *args)


@pytest.mark.parametrize(("fn", "args"), BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_with_breaks(fn, args):
    agree(fn, *args, breaks=None)


def test_an_attribute_set_between_calls_is_seen():
    def fn(x):
        return x * getattr(x, "scale", 1)

    compiled = pyframe.compile(fn, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), x)
    x.scale = 3
    assert torch.equal(compiled(x), x * 3)
    x.scale = 4
    assert torch.equal(compiled(x), x * 4)


def test_a_gradient_that_appears_between_calls_is_seen():
    def fn(w):
        return w * 2 if w.grad is None else w + w.grad

    compiled = pyframe.compile(fn, backend="eager")
    w = torch.ones(2, requires_grad=True)
    assert torch.equal(compiled(w), w * 2)
    w.grad = torch.full((2,), 5.0)
    assert torch.equal(compiled(w), w + 5)
    w.grad = torch.full((2,), 6.0)
    assert torch.equal(compiled(w), w + 6)
    w.grad = None
    assert torch.equal(compiled(w), w * 2)


def test_being_a_leaf_is_seen():
    def fn(x):
        return x * 2, x.is_leaf, x.grad_fn is None

    compiled = pyframe.compile(fn, backend="eager")
    leaf = torch.ones(2, requires_grad=True)
    assert compiled(leaf)[1:] == (True, True)
    assert compiled(leaf * 1)[1:] == (False, False)
    assert compiled(leaf)[1:] == (True, True)


def test_a_default_dtype_changed_between_calls_is_seen():
    def fn(x):
        return x + torch.ones(2)

    compiled = pyframe.compile(fn, backend="eager")
    x = torch.ones(2, dtype=torch.float32)
    assert compiled(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert compiled(x).dtype == torch.float32


def test_errors_are_eagers():
    def bad_shape(x):
        return x @ torch.ones(7, 7)

    def bad_index(x):
        return x[5]

    def bad_attribute(x):
        return x.nothing

    def caught(x):
        try:
            return x.nothing
        except AttributeError:
            return x + 1

    for fn in (bad_shape, bad_index, bad_attribute):
        compiled = pyframe.compile(fn, backend="eager")
        with pytest.raises(Exception) as eager:
            fn(X)
        with pytest.raises(type(eager.value)) as ours:
            compiled(X)
        assert str(ours.value) == str(eager.value)
    agree(caught, X)


def test_a_function_named_like_a_module_of_tools_is_captured():
    compiled = pyframe.compile(trace_of_a_matrix, backend="eager")
    compiled(torch.eye(3))
    assert counters["graphs"] == 2
