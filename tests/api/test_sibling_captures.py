"""Modules of one class that are compiled one by one, and functions with the same code, share captures. Each program runs
with eager and, for the number of graphs, with torch.compile."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe.metrics import counters
from pyframe.testing import CompileCounter

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Layer(nn.Module):
    def __init__(self, scale: float = 2.0, width: int = 3) -> None:
        super().__init__()
        self.inner, self.scale, self.calls = nn.Linear(width, width), scale, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu() * self.scale


def graphs(compile: Callable[..., Any], make: Callable[[], list[Any]], *inputs: torch.Tensor) -> int:
    """How many graphs `compile` makes of objects that are compiled one by one and called with each input."""
    counter = CompileCounter()
    torch.manual_seed(0)
    compiled = [compile(each, backend=counter) for each in make()]
    torch.manual_seed(0)
    for fn, eager in zip(compiled, make(), strict=True):
        for x in inputs:
            torch.testing.assert_close(fn(x), eager(x))
    return counter.frame_count


def torch_graphs(make: Callable[[], list[Any]], *inputs: torch.Tensor) -> int:
    torch._dynamo.reset()
    return graphs(torch.compile, make, *inputs)


class Broken(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        torch._dynamo.graph_break()
        return (y + 1) * self.scale


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.table = nn.ModuleList([Layer(), Layer()]), {"a": [Layer()]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.table["a"][0](x)


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.randn(3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.offset)


def closures() -> list[Any]:
    def add(n: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x + n

    return [add(1), add(1), add(1)]


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


PROGRAMS: dict[str, tuple[Callable[[], list[Any]], tuple[torch.Tensor, ...]]] = {
    "equal layers": (lambda: [Layer() for _ in range(4)], (X,)),
    "other constants": (lambda: [Layer(2.0), Layer(3.0), Layer(2.0), Layer(3.0)], (X,)),
    "a break": (lambda: [Broken() for _ in range(3)], (X,)),
    "modules in modules": (lambda: [Nested() for _ in range(3)], (X,)),
    "buffers that are written": (lambda: [Buffered() for _ in range(3)], (X,)),
    "sizes that vary": (lambda: [Layer() for _ in range(3)], (torch.ones(2, 3), torch.ones(4, 3), torch.ones(5, 3))),
    "closures": (closures, (X,)),
    "methods": (lambda: [Scaled(2).times, Scaled(2).times, Scaled(2).times], (X,)),
    "modules of torch": (lambda: [nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, bias=False)], (X,)),
    "a training and an evaluated one": (lambda: [Buffered(), Buffered().eval(), Buffered(), Buffered().eval()], (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_many_graphs_as_torch_compile(name):
    make, inputs = PROGRAMS[name]
    assert graphs(pyframe.compile, make, *inputs) <= torch_graphs(make, *inputs)


def test_nothing_is_traced_for_the_second_one():
    compiled = [pyframe.compile(Layer()) for _ in range(3)]
    compiled[0](X)
    counters.clear()
    for each in compiled:
        each(X)
    assert (counters["instructions_traced"], counters["graphs"], counters["captures_shared"]) == (0, 0, 2)


def test_parameters_and_gradients_are_those_of_the_module_at_hand():
    layers = [Layer() for _ in range(3)]
    compiled = [pyframe.compile(each, fullgraph=True) for each in layers]
    counters.clear()
    for each, eager in zip(compiled, layers, strict=True):
        for _ in range(5):
            each(X).sum().backward()
        found = eager.inner.weight.grad
        eager.inner.weight.grad = None
        (5 * eager(X).sum()).backward()
        torch.testing.assert_close(found, eager.inner.weight.grad)
    assert counters["captures_shared"] == 2


class Counting(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = x * self.calls
        return self.last


def test_effects_are_those_of_the_module_at_hand():
    layers = [Counting() for _ in range(3)]
    for n, layer in enumerate(layers, 1):
        compiled = pyframe.compile(layer)
        for _ in range(n):
            result = compiled(X)
        assert layer.calls == n and layer.last is result
        torch.testing.assert_close(result, X * n)


chosen: Any = None


class Chosen(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self is chosen else x - 1


class Named(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + numbers[self]


class Identified(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (id(self) % 1000)


class Tied(Layer):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.other = self.inner if tied else nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.other.weight is self.inner.weight:
            return self.inner(x) * 2
        return self.inner(x) + self.other(x)


class Constant(Layer):
    @torch._dynamo.assume_constant_result
    def factor(self) -> float:
        return self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor()


numbers: dict[Any, int] = {}


def hooked() -> Layer:
    layer = Layer()
    layer.inner.register_forward_hook(lambda module, args, result: result + 10)
    return layer


@pytest.mark.parametrize(
    "make",
    (
        lambda: [Chosen(), Chosen(), Chosen()], lambda: [Named() for _ in range(3)],
        lambda: [Identified() for _ in range(3)], lambda: [Tied(False), Tied(True), Tied(False)],
        lambda: [Constant(2.0), Constant(3.0)], lambda: [Layer(), hooked(), Layer(), hooked()],
        lambda: [nn.Linear(3, 3), nn.Linear(3, 4), nn.Linear(3, 3, dtype=torch.float64)],
        lambda: [nn.Dropout(0.0), nn.Dropout(1.0)],
        lambda: [nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.ReLU()), nn.Sequential(nn.Linear(3, 3), nn.ReLU())],
    ),
)  # fmt: skip
def test_modules_that_differ(make):
    global chosen
    modules = make()
    chosen = modules[1]
    numbers.update({each: n for n, each in enumerate(modules)})
    try:
        for each in modules:
            x = X.to(next((p.dtype for p in each.parameters()), X.dtype))
            compiled = pyframe.compile(each, backend="eager")
            for _ in range(2):
                torch.testing.assert_close(compiled(x), each(x))
    finally:
        chosen = None
        numbers.clear()


def test_what_sizes_varied_is_known_to_both():
    counter = CompileCounter()
    first, second = (pyframe.compile(Layer(), backend=counter) for _ in range(2))
    first(torch.ones(2, 3))
    second(torch.ones(2, 3))
    second(torch.ones(4, 3))
    first(torch.ones(5, 3))
    assert counter.frame_count == 2


def test_captures_stay_while_one_module_needs_them():
    first, second, third = (pyframe.compile(Layer(), backend="eager") for _ in range(3))
    first(X)
    second(X)
    gone = weakref.ref(first._pyframe_original.inner.weight)
    del first
    for _ in range(2):
        gc.collect()
    assert gone() is None
    counters.clear()
    second(X)
    third(X)
    assert (counters["graphs"], counters["captures_shared"]) == (0, 1)


@pytest.mark.parametrize("settings", ({"dynamic": True}, {"isolate_recompiles": True}, {"options": {"freezing": True}}))
def test_other_settings(settings):
    first, second, third = pyframe.compile(Layer()), *(pyframe.compile(Layer(), **settings) for _ in range(2))
    with torch.no_grad():
        first(X)
        counters.clear()
        second(X)
        assert counters["graphs"] == 1
        torch.testing.assert_close(third(X), third._pyframe_original(X))


@pytest.mark.filterwarnings("ignore:.*no kernels for device meta")
@pytest.mark.parametrize(
    "asked, trained, shared", ((None, False, False), (None, True, True), (True, True, False), (False, False, True))
)
def test_graphs_that_may_be_recorded_are_not_shared(asked, trained, shared):
    """Recordings hold addresses of parameters. Tensors on the meta device stand for those on a GPU."""

    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3, device="meta")

        def forward(self, x):
            return self.inner(x)

    options = {} if asked is None else {"cudagraphs": asked}
    first, second = (pyframe.compile(Made(), options=options) for _ in range(2))
    x = torch.ones(2, 3, device="meta")
    with torch.set_grad_enabled(trained):
        first(x)
        counters.clear()
        second(x)
    assert counters["captures_shared"] == shared


def test_settings_of_the_process():
    class Reads(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    compiled = [pyframe.compile(Reads(), backend="eager") for _ in range(2)]
    compiled[0](X)
    counters.clear()
    with pyframe.config.patch(capture_scalar_outputs=False):
        torch.testing.assert_close(compiled[1](X), X * X.sum())
    assert counters["captures_shared"] == 0 and counters["graph_breaks"]


def test_functions_marked_since_then():
    def helper(x):
        return x + 1

    class Calls(nn.Module):
        def forward(self, x):
            return helper(x) * 2

    compiled = [pyframe.compile(Calls(), backend="eager") for _ in range(3)]
    compiled[0](X)
    pyframe.allow_in_graph(helper)
    counters.clear()
    compiled[1](X)
    assert (counters["graphs"], counters["captures_shared"]) == (1, 0)
    torch.testing.assert_close(compiled[2](X), (X + 1) * 2)
    assert (counters["graphs"], counters["captures_shared"]) == (1, 1)


def test_a_shared_capture_is_no_recompilation():
    first, second = (pyframe.compile(Layer(), backend="eager") for _ in range(2))
    first(X)
    with pyframe.set_stance("fail_on_recompile"):
        second(X)
        with pytest.raises(pyframe.RecompileError):
            second(X.double().float()[:1])


def test_explain_captures_again():
    pyframe.compile(Layer())(X)
    assert len(pyframe.explain(Layer())(X).captures) == 1
