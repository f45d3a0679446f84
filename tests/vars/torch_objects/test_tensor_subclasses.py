"""Tensors whose class is one of the program's own, with and without a `__torch_function__`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyframe
from pyframe.metrics import counters
from pyframe.testing import CompileCounter

LOG: list[Any] = []


def record(func: Any, types: Any, args: Any, kwargs: Any) -> None:
    LOG.append((func.__name__, [kind.__name__ for kind in types], len(args), kwargs and sorted(kwargs)))


class Plain(torch.Tensor):
    """Results are instances of it."""


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        record(func, types, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs or {})


class Derived(Logged):
    def twice(self) -> Any:
        return self * 2

    @property
    def half(self) -> Any:
        return self / 2

    def __neg__(self) -> Any:
        return self + 100


class Unit(torch.Tensor):
    """Keeps an attribute, which results get."""

    unit: str

    def __new__(cls, data: Any, unit: str = "m") -> Any:
        made = torch.Tensor._make_subclass(cls, data)
        made.unit = unit
        return made

    def __init__(self, data: Any, unit: str = "m") -> None:
        self.made = True

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        units = [arg.unit for arg in args if isinstance(arg, Unit)]
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not isinstance(result, Unit):
            result = result.as_subclass(cls)
            result.unit = "*".join(units) if func is torch.Tensor.mul else units[0]
        return result


HANDLED: dict[Any, Callable[..., Any]] = {}


def implements(*functions: Any) -> Any:
    def register(implementation: Any) -> Any:
        HANDLED.update(dict.fromkeys(functions, implementation))
        return implementation

    return register


@implements(torch.sin, torch.Tensor.sin)
def _cosine(x: Any) -> Any:
    return torch.cos(x.as_subclass(torch.Tensor))


@implements(F.softmax)
def _hard(x: Any, dim: Any = None, **kwargs: Any) -> Any:
    return torch.Tensor.add(x.as_subclass(torch.Tensor), dim)


@implements(torch.Tensor.shape.__get__)
def _no_shape(x: Any) -> Any:
    return "shape"


class Table(torch.Tensor):
    """Takes a few functions, and declines all others."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in HANDLED:
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


class Duck:
    """No tensor, but overrides functions of torch."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        record(func, types, args, kwargs)
        return func(*(arg.value if isinstance(arg, Duck) else arg for arg in args), **(kwargs or {}))


class Weight(nn.Parameter):
    """Overrides nothing, as all parameters do."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    pyframe.reset()
    yield
    pyframe.reset()


def seen(value: Any) -> Any:
    """A value with its types, as it compares; nobody sees that it is looked at."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            plain = value.detach().as_subclass(torch.Tensor)
            return type(value).__name__, plain.dtype, plain.tolist(), value.requires_grad, seen(value.__dict__)
    if isinstance(value, tuple | list):
        return type(value).__name__, [seen(item) for item in value]
    if isinstance(value, dict):
        return {name: seen(item) for name, item in value.items()}
    return value


def outcome(fn: Callable[..., Any], args: Any) -> Any:
    LOG.clear()
    try:
        result = fn(*args)
    except Exception as error:  # noqa: BLE001  compared with eager's
        result = (type(error), str(error))
    return seen(result), [seen(arg) for arg in args], list(LOG)


def check(fn: Callable[..., Any], make: Callable[[], Any], graphs: int | None = 1, backend: str = "eager") -> None:
    """Eager, a miss and a hit agree: results, what became of the arguments, what overrides were told in which order."""
    fast = pyframe.compile(fn, backend=backend)
    for turn in ("miss", "hit"):
        assert outcome(fast, make()) == outcome(fn, make()), turn
    broken = dict(counters["graph_breaks"])
    if graphs is not None:
        assert (counters["graphs"], broken) == (graphs, {})
    else:
        assert broken


def X() -> torch.Tensor:
    return torch.arange(1.0, 7.0).reshape(2, 3)


def operators(x: Any) -> Any:
    y = x + 1
    z = 2 - torch.sin(y) * 2 - x / 2 + 1 / x
    return y, z, x**2, 2**x, x // 2, 7 % x, -x, abs(x), x @ x.T, x > 2, 2 <= x, x == x, ~(x != 1), x.int() & 1, 3 | x.int()


def methods(x: Any) -> Any:
    parts = x.split(2, dim=1)
    return (
        x.reshape(-1), x.sum(dim=0), x.max(dim=1), parts, x.size(), x.dim(), len(x), x.shape, x.dtype, x.T, x.numel(),
        x.ndimension(), x.to(torch.float64), x.contiguous() is x, x.norm(), x.is_floating_point(), x.device.type,
    )  # fmt: skip


def functions(x: Any) -> Any:
    weight = torch.ones(4, 3)
    return (
        F.relu(x), F.linear(x, weight), F.dropout(x, 0.5, training=False), torch.cat([x, x + 1]), torch.stack((x, x)),
        torch.where(x > 2, x, torch.zeros(())), torch.einsum("ij,ij->i", x, x), F.softmax(x, dim=-1), torch.is_tensor(x),
        torch.add(input=x, other=1, alpha=2), torch.zeros_like(x), F.max_pool1d(x, 2), torch.topk(x, 2),
        torch.nn.functional.layer_norm(x, (3,)), torch.ops.aten.mul.Tensor(x, x), torch.numel(x), F.mse_loss(x, x + 1),
    )  # fmt: skip


def items(x: Any) -> Any:
    rows = [row for row in x]
    x[0] = 5
    x[:, 1] += 1
    first, second = x
    return x[0], x[:, 1:], x[..., None], x[x > 2].shape if False else x[0, 0], rows, first, second


def in_place(x: Any) -> Any:
    y = x
    x += 1
    x.mul_(2)
    torch.add(x, 1, out=x)
    same = x.relu_()
    return x is y, same is x, x


def mixed(x: Any) -> Any:
    p = torch.ones(3)
    return p + x, x + p, torch.add(p, x), p.mul(x), p == x, p - x, p.add_(1), torch.cat([p[None], x])


def made_inside(x: Any) -> Any:
    y = x.as_subclass(Logged)
    z = (y + 1).sum()
    back = y.as_subclass(torch.Tensor)
    back.add_(1)
    return y, z, back * 2, type(y) is Logged, isinstance(y, torch.Tensor), isinstance(x, Logged), y.__class__


def derived(x: Any) -> Any:
    y = x.as_subclass(Derived)
    return y.twice(), y.half, -y, y + x, torch.add(x, y), y.as_subclass(Logged) + y, hasattr(y, "twice"), y.sum().twice()


def units(x: Any) -> Any:
    x = Unit(x, "s")
    y = (x * x).sum(0)
    y.note = "sum"
    return x.unit, y.unit, y, Unit(y, unit="kg"), x.made, hasattr(y, "made"), getattr(y, "made", None), x.mul(x), vars(x)


def taken(x: Any) -> Any:
    x.seen = getattr(x, "seen", 0) + 1
    x.other = x * 2
    return x


def table(x: Any) -> Any:
    t = x.as_subclass(Table)
    try:
        lost = t.sum()
    except TypeError as error:
        lost = str(error)
    try:
        other = F.relu(t)
    except TypeError as error:
        other = str(error)
    try:
        third = t + 1
    except TypeError as error:
        third = str(error)
    return torch.sin(t), t.sin(), F.softmax(t, 1), t.shape, lost, other, third


def declined(x: Any) -> Any:
    return x.as_subclass(Table) + 1


def disabled(x: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
        seen = torch.overrides.has_torch_function((x,)), torch._C._is_torch_function_enabled()
    z = y + x
    with torch._C.DisableTorchFunction():
        w = x * 2
    return y, z, w, seen, torch.overrides.has_torch_function_unary(x), torch.overrides.has_torch_function((y, 1))


def ducks(x: Any) -> Any:
    duck = Duck(x)
    return torch.add(duck, 1), torch.mul(x, duck), F.relu(duck), torch.cat([duck.value, x]), F.linear(x, Duck(torch.ones(1, 3)))


def gradients(x: Any) -> Any:
    y = (x * x).sum()
    with torch.no_grad():
        z = x + 1
    return y, z, x.requires_grad, y.requires_grad, z.requires_grad


def own_function(x: Any, y: Any) -> Any:
    """A function that others may override, as torch's own are."""
    if torch.overrides.has_torch_function((x, y)):
        return torch.overrides.handle_torch_function(own_function, (x, y), x, y)
    return x * y


def calls_own(x: Any) -> Any:
    return own_function(x, 2), own_function(1, 2)


def branches(x: Any) -> Any:
    if x.dim() == 2 and x.shape[0] == 2 and isinstance(x, torch.Tensor):
        return x.sum(), type(x).__name__, x is x, x in [x], {x: 1}[x]
    return None


SUBCLASSES = [Logged, Plain, Derived]
PROGRAMS = [operators, methods, functions, items, in_place, mixed, disabled, taken, calls_own, branches]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("cls", SUBCLASSES, ids=lambda cls: cls.__name__)
def test_as_inputs(program: Any, cls: Any) -> None:
    check(program, lambda: (X().as_subclass(cls),))


@pytest.mark.parametrize("program", [made_inside, derived, units, table, ducks], ids=lambda p: p.__name__)
def test_made_inside(program: Any) -> None:
    check(program, lambda: (X(),))


def test_all_decline() -> None:
    check(declined, lambda: (X(),), graphs=None)


@pytest.mark.parametrize("leaf", [True, False])
def test_gradients(leaf: bool) -> None:
    def make() -> Any:
        made = torch.Tensor._make_subclass(Logged, X(), True) if leaf else X().requires_grad_().as_subclass(Logged)
        return (made,)

    check(gradients, make)
    (x,) = make()
    pyframe.compile(gradients, backend="inductor")(x)[0].backward()
    if leaf:
        with torch._C.DisableTorchFunction():
            assert x.grad.tolist() == (2 * X()).tolist()


def test_parameters_override_nothing() -> None:
    def fn(x: Any) -> Any:
        return x * 2, x.sum(), x

    check(fn, lambda: (Weight(X()),))


@pytest.mark.parametrize("program", [operators, in_place, mixed, taken], ids=lambda p: p.__name__)
def test_inductor_sees_plain_tensors(program: Any) -> None:
    check(program, lambda: (X().as_subclass(Logged),), backend="inductor")


class Plain(torch.Tensor):
    """A subclass without anything of its own."""


class Labelled(torch.Tensor):
    """A subclass with a constructor of its own."""

    @staticmethod
    def __new__(cls, data, label):
        return super().__new__(cls, data * 2)

    def __init__(self, data, label):
        self.label = label


CONSTRUCTED = {
    "plain": lambda x: Plain(x) * 2,
    "returned": lambda x: Plain(x),
    "of integers": lambda x: Plain(x.long()),
    "of a result": lambda x: Plain(x * 2).sum(),
    "with attributes": lambda x: (Labelled(x, "a").label, Labelled(x, "b") + 1),
    "torch.Tensor": lambda x: torch.Tensor(x) * 2,
    "written": lambda x: (Plain(x * 1).add_(1), x),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CONSTRUCTED)
def test_constructed_from_a_tensor(name, grad, requires_grad):
    def seen(fn):
        x = torch.tensor([0.5, -1.5], requires_grad=requires_grad)
        with torch.set_grad_enabled(grad):
            results = torch.utils._pytree.tree_leaves(fn(x))
        return [
            (type(r), r.as_subclass(torch.Tensor).tolist(), r.dtype, r.requires_grad, r.is_leaf)
            if isinstance(r, torch.Tensor) else r
            for r in results
        ]  # fmt: skip

    counter = CompileCounter()
    assert seen(pyframe.compile(CONSTRUCTED[name], backend=counter)) == seen(CONSTRUCTED[name])
    if grad or not requires_grad:
        assert counter.frame_count == 1


def test_constructed_shares_memory():
    def program(x):
        made = Plain(x)
        made.add_(1)
        return made

    x = torch.zeros(3)
    made = pyframe.compile(program, backend="eager")(x)
    assert x.tolist() == [1, 1, 1]
    assert type(made) is Plain and made._version == x._version
