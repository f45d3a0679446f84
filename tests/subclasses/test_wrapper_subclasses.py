"""Tensor subclasses that hold other tensors and run operators on them in `__torch_dispatch__`: captured whole, compiled
by their inner tensors, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import pyframe

aten = torch.ops.aten


class Int8Tensor(torch.Tensor):
    """A matrix as int8 with a scale for each row; differentiable in the other operand of a product."""

    @staticmethod
    def __new__(cls, data, scale, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, strides=data.stride(), dtype=scale.dtype, device=data.device, requires_grad=requires_grad
        )

    def __init__(self, data, scale, requires_grad=False):
        self.data_int, self.scale = data, scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def of(cls, x):
        scale = x.detach().abs().amax(1, keepdim=True) / 127
        return cls((x.detach() / scale).round().to(torch.int8), scale)

    def __tensor_flatten__(self):
        return ["data_int", "scale"], (self.requires_grad,)

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["data_int"], inner["scale"], *context)

    def dequantize(self):
        return self.data_int.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        kwargs = kwargs or {}
        if func in (aten.detach.default, aten.clone.default, aten.alias.default):
            return cls(func(args[0].data_int), func(args[0].scale))
        if func is aten._to_copy.default:
            return cls(args[0].data_int, func(args[0].scale, **kwargs))
        if func is aten.copy_.default:
            args[0].data_int.copy_(args[1].data_int)
            args[0].scale.copy_(args[1].scale)
            return args[0]
        plain = [x.dequantize() if isinstance(x, cls) else x for x in args]
        return func(*plain, **kwargs)


def parts(x: Any) -> list[Any]:
    if isinstance(x, list | tuple):
        return [part for each in x for part in parts(each)]
    if isinstance(x, torch.Tensor) and hasattr(x, "__tensor_flatten__"):
        return [type(x), x.requires_grad, x.shape, *parts([getattr(x, name) for name in x.__tensor_flatten__()[0]])]
    return [x]


def assert_same(got: Any, want: Any) -> None:
    got, want = parts(got), parts(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.requires_grad == b.requires_grad and a.stride() == b.stride()
        else:
            assert a == b


def pair(*size: int) -> TwoTensor:
    return TwoTensor(torch.randn(*size), torch.randn(*size))


def check(
    fn: Callable[..., Any], *makes: Callable[[], list[Any]], train: bool = False, graphs: int | None = 1,
    breaks: int | None = 0, fallbacks: int | None = 0, **options: Any,
) -> None:
    """`fn` on what each of `makes` gives, twice, against eager: results, arguments afterwards and gradients."""
    compiled = pyframe.compile(fn, **options)
    for make in (*makes, *makes):
        found = []
        for run in (fn, compiled):
            torch.manual_seed(0)
            args = make()
            result = run(*args)
            if train:
                leaves = [x for x in torch.utils._pytree.tree_leaves(result) if x.requires_grad]
                sum((x * 2).sum() for x in leaves).backward()
            found.append([result, args, [x.grad for x in args if isinstance(x, torch.Tensor)] if train else []])
        assert_same(found[1], found[0])
    if graphs is not None:
        assert pyframe.counters["graphs"] == graphs
    assert breaks is None or sum(pyframe.counters["graph_breaks"].values()) == breaks
    assert fallbacks is None or pyframe.counters["fallbacks"] == fallbacks


def quantized(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16, bias=bias), nn.GELU(), nn.Linear(16, 4, bias=bias))
    for layer in (model[0], model[2]):
        layer.weight = nn.Parameter(Int8Tensor.of(layer.weight), requires_grad=False)
    return model


# ---- inference


def test_quantized_weights_are_one_compiled_graph():
    model = quantized()
    with torch.no_grad():
        check(model, lambda: [torch.randn(3, 8)], fullgraph=True)


@pytest.mark.parametrize(
    "fn",
    [
        lambda t, x: (t @ x.t()).relu(),
        lambda t, x: (t, x + 1, t.a * 2, t.b),
        lambda t, x: t.t()[1:] + 1,
        lambda t, x: (t.shape, t.dtype, t.dim(), isinstance(t, TwoTensor), t * t.shape[0]),
        lambda t, x: [(t + x).a, {"k": (t - x).sum(1)}["k"]],
        lambda t, x: (t.mul_(2), x.add_(1)),
        lambda t, x: t.clone().add_(x),
        lambda t, x: t.chunk(2)[1] * 3,
        lambda t, x: torch.cat([t, t * 2], 1),
        lambda t, x: t.a.add_(x) + t.b,
        lambda t, x: (t.a is t.a, t + 1),
    ],
)
def test_pairs(fn):
    with torch.no_grad():
        check(fn, lambda: [pair(4, 6), torch.randn(4, 6)], fullgraph=True)


def test_pairs_of_pairs():
    def make():
        return [TwoTensor(pair(4, 6), pair(4, 6)), torch.randn(4, 6)]

    check(lambda t, x: (t * x, t.a + 1, t.b.a), make, fullgraph=True)


def test_autocast_does_not_reach_into_the_class():
    model = quantized()

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    with torch.no_grad():
        x = torch.randn(3, 8)
        got, want = pyframe.compile(fn)(x), fn(x)
    assert got.dtype is want.dtype is torch.bfloat16
    torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)


# ---- training


def test_gradients_of_plain_tensors_through_quantized_weights():
    model = quantized()

    def fn(x, bias):
        return model[2](F.gelu(model[0](x)) + bias)

    check(fn, lambda: [torch.randn(3, 8, requires_grad=True), torch.randn(16, requires_grad=True)], train=True)


def test_gradients_of_pairs_are_pairs():
    def make():
        return [torch.randn(4, 6), pair(3, 6).requires_grad_(), pair(3).requires_grad_()]

    check(lambda x, w, b: F.linear(x, w, b).relu().sin().sum(0), make, train=True)


def test_a_result_without_gradient_and_one_that_is_an_argument():
    def make():
        return [pair(4, 6).requires_grad_(), torch.randn(4, 6)]

    check(lambda t, x: (t * x, x + 1, t.detach() * 3, t), make, train=True)


def test_second_derivative():
    fn = lambda t: (t**3).sum()  # noqa: E731
    compiled = pyframe.compile(fn)
    found = []
    for run in (fn, compiled):
        torch.manual_seed(0)
        t = pair(3).requires_grad_()
        (first,) = torch.autograd.grad(run(t), t, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), t)
        found.append([first.detach(), second])
    assert_same(found[1], found[0])


def test_an_optimizer_steps_on_pairs():
    losses = []
    for wrap in (lambda fn: fn, pyframe.compile):
        torch.manual_seed(0)
        layer = nn.Linear(6, 3)
        layer.weight = nn.Parameter(TwoTensor(layer.weight.detach().clone(), layer.weight.detach().clone()))
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        step = wrap(lambda x, layer=layer: layer(x).square().sum())
        for _ in range(3):
            loss = step(torch.ones(2, 6))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    assert_same(losses[3:], losses[:3])


def test_no_result_requires_a_gradient():
    def make():
        return [pair(4, 6).requires_grad_(), torch.randn(4, 6, requires_grad=True)]

    check(lambda t, x: (t.detach() * 2, x.detach() + 1), make, graphs=1)


class _Straight(torch.autograd.Function):
    """A product with a quantized weight, whose gradient is that of the product with the weight itself."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.data_int.to(x.dtype).t() * weight.scale.flatten()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.dequantize(), grad.t() @ x


class TrainedInt8(Int8Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            return _Straight.apply(*args[:2])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_a_function_of_autograd_behind_torch_function():
    def make():
        return [torch.randn(2, 6, requires_grad=True), TrainedInt8.of(torch.randn(3, 6)).requires_grad_()]

    check(lambda x, w: F.linear(x, w).sin(), make, train=True)
    with torch.no_grad():
        check(lambda x, w: F.linear(x, w).sin(), lambda: [each.detach() for each in make()], graphs=2)


def test_instances_that_the_program_makes():
    fn = lambda x: (F.linear(x, Int8Tensor.of(x)), Int8Tensor.of(x * 2), TwoTensor(x, x + 1).a is x)  # noqa: E731
    check(fn, lambda: [torch.randn(4, 6)])


# ---- what must not be assumed


def test_another_context_is_another_capture():
    class Scaled(torch.Tensor):
        @staticmethod
        def __new__(cls, inner, factor):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner, factor):
            self.inner, self.factor = inner, factor

        __torch_function__ = torch._C._disabled_torch_function_impl

        def __tensor_flatten__(self):
            return ["inner"], self.factor

        @staticmethod
        def __tensor_unflatten__(inner, context, size, stride):
            return Scaled(inner["inner"], context)

        @classmethod
        def __torch_dispatch__(cls, func, types, args, kwargs=None):
            return func(*(x.inner * x.factor if isinstance(x, cls) else x for x in args), **(kwargs or {}))

    fn = pyframe.compile(lambda t: t + 1)
    for factor in (2, 3, 2):
        assert_same(fn(Scaled(torch.ones(3), factor)), torch.ones(3) * factor + 1)

    dispatch = Scaled.__dict__["__torch_dispatch__"]

    def other(cls, func, types, args, kwargs=None):
        return dispatch.__func__(cls, func, types, args, kwargs) * 10

    Scaled.__torch_dispatch__ = classmethod(other)
    assert_same(fn(Scaled(torch.ones(3), 2)), torch.ones(3) * 30)


def test_inner_tensors_of_another_dtype_are_another_capture():
    fn = pyframe.compile(lambda x, w: F.linear(x, w))
    with torch.no_grad():
        for scale in (torch.float32, torch.float64):
            w, x = Int8Tensor.of(torch.randn(3, 6, dtype=scale)), torch.randn(2, 6, dtype=scale)
            assert_same(fn(x, w), F.linear(x, w))


def test_swapped_parameters():
    layer = nn.Linear(6, 3)
    compiled, x = pyframe.compile(layer), torch.randn(2, 6)
    with torch.no_grad():
        assert_same(compiled(x), layer(x))
        torch.utils.swap_tensors(layer.weight, nn.Parameter(Int8Tensor.of(layer.weight), requires_grad=False))
        assert type(layer.weight) is Int8Tensor
        assert_same(compiled(x), layer(x))
        torch.utils.swap_tensors(layer.weight, nn.Parameter(Int8Tensor.of(torch.randn(3, 6)), requires_grad=False))
        assert_same(compiled(x), layer(x))


def test_an_inner_tensor_that_is_an_input_too():
    def make():
        t = pair(3)
        return [t, t.a]

    check(lambda t, a: t * a, make)
    pyframe.reset()
    pyframe.counters.clear()
    check(lambda t, a: (t.mul_(2), a + t.a, a is t.a), make)


@pytest.mark.filterwarnings("ignore:inductor")
def test_an_input_that_is_an_inner_tensor_of_what_is_read_later():
    def make():
        t = pair(3)
        return [t.a, t]

    check(lambda a, t: (a.add_(1), t * 2, a is t.a), make, fallbacks=1)


def test_weights_that_share_a_scale():
    def make():
        w = Int8Tensor.of(torch.randn(3, 6))
        return [torch.randn(2, 6), w, Int8Tensor(w.data_int + 1, w.scale)]

    with torch.no_grad():
        check(lambda x, v, w: F.linear(x, v) + F.linear(x, w), make)


def test_a_class_that_counts_its_calls_runs_eagerly():
    check(lambda t: t + 1, lambda: [Counted(torch.ones(3))], graphs=None, breaks=1)
    assert calls == 4


calls = 0


class Counted(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Counted(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        global calls
        calls += 1
        return func(*(x.inner if isinstance(x, cls) else x for x in args), **(kwargs or {}))


# ---- sizes that vary


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_of_instances_and_of_plain_inputs_vary(train, dynamic):
    def make(n):
        return lambda: [pair(n, 6).requires_grad_(train), torch.randn(n + 1, 6)]

    fn = lambda t, x: ((t @ x.t()).relu() * t.shape[0], t + 1)  # noqa: E731
    check(fn, *map(make, (4, 5, 7, 1)), train=train, graphs=3 - bool(dynamic), dynamic=dynamic)


def test_batches_of_any_size_through_quantized_weights():
    model = quantized()
    with torch.no_grad():
        check(model, *(lambda n=n: [torch.randn(n, 8)] for n in (3, 5, 8)), graphs=2)
