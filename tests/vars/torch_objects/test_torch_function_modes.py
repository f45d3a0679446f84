"""Modes of `__torch_function__` that the program enters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import pyframe
from pyframe.metrics import counters

LOG: list[Any] = []
X = torch.arange(1.0, 7.0).reshape(2, 3)
LINEAR = nn.Linear(3, 3)


class Logs(TorchFunctionMode):
    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name, self.count = name, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        LOG.append((self.name, func.__name__, [kind.__name__ for kind in types], len(args), kwargs and sorted(kwargs)))
        return func(*args, **(kwargs or {}))


class Cosine(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.cos(*args) if func in (torch.sin, torch.Tensor.sin) else func(*args, **(kwargs or {}))


class OnlySin(TorchFunctionMode):
    """Declines what it does not know."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] * 10 if func is torch.sin else NotImplemented


class Reenters(Logs):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(func.__name__)
        if func is torch.sin:
            with self:
                return torch.cos(*args) + 1
        return func(*args, **(kwargs or {}))


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(("Sub", func.__name__, [kind.__name__ for kind in types]))
        return super().__torch_function__(func, types, args, kwargs)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    pyframe.reset()
    yield
    pyframe.reset()
    assert torch._C._len_torch_function_stack() == 0


def outcome(fn: Callable[..., Any], args: Any) -> Any:
    LOG.clear()
    try:
        result = fn(*args)
    except Exception as error:  # noqa: BLE001  compared with eager's
        result = (type(error), str(error))
    shown = torch._C._len_torch_function_stack(), list(LOG)
    with torch._C.DisableTorchFunction():
        return repr(result), *shown


def check(fn: Callable[..., Any], *args: Any, graphs: int | None = 1, backend: str = "eager") -> None:
    fast = pyframe.compile(fn, backend=backend)
    for turn in ("miss", "hit"):
        assert outcome(fast, [arg.clone() for arg in args]) == outcome(fn, [arg.clone() for arg in args]), turn
    if graphs is not None:
        assert (counters["graphs"], dict(counters["graph_breaks"])) == (graphs, {})


def operators(x: Any) -> Any:
    with Logs("a") as mode:
        y = x + 1
        z = 2 - torch.sin(y) * 2 - x / 2 + 1 / x
        w = -x, abs(x), x**2, x // 2, x @ x.T, x > 2, 2 <= x, x == x, ~(x != 1)
    return y, z, w, x + 1, mode.count, mode.name


def methods(x: Any) -> Any:
    with Logs():
        found = (
            x.shape, x.dtype, x.T, x.size(), x.size(0), x.dim(), len(x), x.sum(0), x.max(dim=1), x.split(1), x.norm(),
            x.numel(), x.device.type, x.reshape(-1), x.view(3, 2), x.is_contiguous(), x.requires_grad, x.new_zeros(2),
            [row for row in x], x.float(), x.clone().mul_(2), x[0], x[:, 1:],
        )  # fmt: skip
        y = x.clone()
        y[0] = 1
        y += 1
        a, b = x
    return found, y, a, b


def functions(x: Any) -> Any:
    with Logs():
        return (
            torch.zeros(2), torch.ones_like(x), torch.tensor([1.0, 2.0]), torch.arange(3), torch.cat([x, x]),
            F.relu(x), F.linear(x, torch.ones(1, 3)), F.softmax(x, dim=1), F.dropout(x, 0.5, False), torch.is_tensor(x),
            torch.einsum("ij,ij->i", x, x), torch.get_default_dtype(), torch.finfo(torch.float32).eps,
            torch.promote_types(torch.float32, torch.int8), torch.ops.aten.mul.Tensor(x, x), F.mse_loss(x, x + 1),
        )  # fmt: skip


def nested(x: Any) -> Any:
    with Logs("outer"), Logs("inner"):
        y = torch.sin(x)
        with Cosine():
            z = torch.sin(x) + x.sin()
    return y, z, torch.sin(x)


def declines(x: Any) -> Any:
    with OnlySin():
        y = torch.sin(x)
        with BaseTorchFunctionMode():
            return y, torch.sin(x)


def declines_for_subclass(x: Any) -> Any:
    with OnlySin():
        return (x.as_subclass(Sub) + 1).as_subclass(torch.Tensor)


def reenters(x: Any) -> Any:
    with Reenters():
        return torch.sin(x) * 2


def beside_subclass(x: Any) -> Any:
    y = x.as_subclass(Sub)
    with Logs("m"):
        z = (y + x).sum()
    return torch.Tensor.as_subclass(z, torch.Tensor), y.shape


def disabled(x: Any) -> Any:
    with Logs():
        with torch._C.DisableTorchFunctionSubclass():
            y = x + 1
        with torch._C.DisableTorchFunction():
            z = x * 2
        known = torch.overrides.has_torch_function((x,)), torch.overrides._get_current_function_mode_stack()
    return y, z, known[0], len(known[1]), torch.overrides.has_torch_function((x,))


def no_grad(x: Any) -> Any:
    with Logs():
        with torch.no_grad():
            y = x * 2
        with torch.device("cpu") if False else torch.enable_grad():
            z = x * 3
    return y, z


def raises(x: Any) -> Any:
    try:
        with Logs():
            y = x + 1
            raise ValueError("out")
    except ValueError as error:
        return y, str(error), x * 2


def in_callee(x: Any) -> Any:
    def inner(y: Any) -> Any:
        with Cosine():
            return torch.sin(y)

    return inner(x) + torch.sin(x)


def module(x: Any) -> Any:
    with Logs():
        return LINEAR(x)


def by_name(x: Any) -> Any:
    mode = Logs("n")
    mode.__enter__()
    y = x + 1
    mode.__exit__(None, None, None)
    return y, x * 2


ONE_GRAPH = [
    operators, methods, functions, nested, declines, reenters, beside_subclass, disabled, no_grad, raises, in_callee,
    module, by_name,
]  # fmt: skip


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda p: p.__name__)
def test_inside(program: Any) -> None:
    check(program, X)


def behind_break(x: Any) -> Any:
    with Logs("b") as mode:
        y = torch.sin(x)
        print(end="")
        z = torch.cos(y)
    return z + 1, mode.count


def left_entered(x: Any) -> Any:
    Logs("left").__enter__()
    y = x + 1
    print(end="")
    torch._C._pop_torch_function_stack()
    return y * 2


def beside_device(x: Any) -> Any:
    with torch.device("cpu"), Logs():
        y = torch.zeros(2)
    with Logs(), torch.device("meta"):
        z = torch.ones(2)
    return y, z.device, torch.zeros(1) + x.sum()


def uncaught(x: Any) -> Any:
    with Logs():
        y = x + 1
        raise ValueError(y.shape)


@pytest.mark.parametrize(
    "program", [behind_break, left_entered, beside_device, uncaught, declines_for_subclass], ids=lambda p: p.__name__
)
def test_broken(program: Any) -> None:
    check(program, X, graphs=None)


def plain(x: Any) -> Any:
    y = torch.sin(x * 0.5) + torch.ones(3)
    return y, y.shape, LINEAR(x), (x > 0).sum()


def inner_mode(x: Any) -> Any:
    with Logs("in"):
        return torch.sin(x), x + 1


def behind_break_around(x: Any) -> Any:
    y = torch.sin(x)
    with torch.no_grad():
        print(end="")
        z = torch.cos(y)
    return z


class Stateful(TorchFunctionMode):
    """What it does depends on what it holds, which changes."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.seen = factor, []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.sin else result


def within(modes: Callable[[], list[Any]], fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, called inside new modes."""

    def call(x: Any) -> Any:
        entered = modes()
        for mode in entered:
            mode.__enter__()
        try:
            result = fn(x)
        finally:
            for mode in reversed(entered):
                mode.__exit__(None, None, None)
        return result, [vars(mode) for mode in entered]

    return call


MODES = {
    "one": lambda: [Logs("m")],
    "two": lambda: [Cosine(), Logs("m")],
    "stateful": lambda: [Stateful(3.0), Stateful(2.0)],
}


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
@pytest.mark.parametrize(("program", "graphs"), [(plain, 1), (inner_mode, 1), (behind_break_around, 2)])
def test_around(program: Any, graphs: int, modes: Any) -> None:
    fast = pyframe.compile(program, backend="eager")
    for _ in range(3):  # each time with new modes of the same classes
        assert outcome(within(modes, fast), [X]) == outcome(within(modes, program), [X])
    assert counters["graphs"] == graphs
    assert outcome(fast, [X]) == outcome(program, [X])  # and without any


def test_what_modes_around_hold_is_guarded() -> None:
    fast = pyframe.compile(plain, backend="eager")
    for factor in (2.0, 2.0, 5.0):
        modes = lambda factor=factor: [Stateful(factor)]  # noqa: E731
        assert outcome(within(modes, fast), [X]) == outcome(within(modes, plain), [X])


def test_modes_beside_a_default_device_run_as_they_are() -> None:
    def program(x: Any) -> Any:
        return torch.zeros(2).device.type, x + 1

    fast = pyframe.compile(program, backend="eager")
    with torch.device("meta"), Logs("m"):
        assert repr(fast(X)) == repr(program(X))
    assert counters["graphs"] == 0


def test_inductor_around() -> None:
    fast = pyframe.compile(plain, backend="inductor")
    for _ in range(2):
        assert outcome(within(MODES["two"], fast), [X])[2] == outcome(within(MODES["two"], plain), [X])[2]


def test_inductor() -> None:
    check(nested, X, backend="inductor")
