"""What needs a tensor's memory is not run on fake tensors; tensors that trade places between calls or in the program."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.dlpack import from_dlpack, to_dlpack

import pyframe
from pyframe.metrics import counters

LIBRARY = torch.library.Library("pyframe_tests_kinds", "DEF")
LIBRARY.define("no_fake(Tensor x) -> Tensor")
LIBRARY.impl("no_fake", lambda x: x.clone() * 3, "CPU")


def _through_dlpack(x: torch.Tensor) -> torch.Tensor:
    return from_dlpack(to_dlpack(x * 2)) + 1


def _through_ctypes(x: torch.Tensor) -> torch.Tensor:
    made = (x * 2).contiguous()
    ctypes.memset(made.data_ptr(), 0, made.numel() * made.element_size())
    return made + 1


def _through_numpy_loop(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.vectorize(lambda a: a * 2)((x + 1).numpy())) + 1


def _without_fake(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.pyframe_tests_kinds.no_fake(x * 2) + 1


def _swapped(x: torch.Tensor) -> Any:
    a, b = x * 2, x + 1
    torch.utils.swap_tensors(a, b)
    return a, b


@pytest.mark.parametrize("fn", [_through_dlpack, _through_ctypes, _through_numpy_loop, _without_fake, _swapped])
def test_what_needs_memory_breaks_the_graph(fn: Any) -> None:
    pyframe.reset()
    counters.clear()
    x = torch.randn(4, 6)
    compiled = pyframe.compile(fn)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), fn(x))
    assert sum(counters["graph_breaks"].values())


def test_a_launch_of_a_kernel_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.jiterator launches its kernel by a function of torch._C, here one that only looks at its arguments."""
    pyframe.reset()
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch._C._to_dlpack(x * 2) is None or x

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in gm.graph.nodes)
        return gm.forward

    fn_compiled = pyframe.compile(fn, backend=backend)
    x = torch.randn(3)
    assert fn_compiled(x) is x and not any("dlpack" in name for name in seen)


def test_swapped_between_calls() -> None:
    pyframe.reset()
    layer, x = nn.Linear(6, 3), torch.randn(4, 6)
    compiled = pyframe.compile(layer)
    torch.testing.assert_close(compiled(x), layer(x))
    for weight in (torch.randn(3, 6), torch.randn(6, 3).t()):
        torch.utils.swap_tensors(layer.weight, nn.Parameter(weight))
        torch.testing.assert_close(compiled(x), layer(x))
    double = pyframe.compile(lambda a: a * 2)
    a, b = torch.randn(3), torch.randn(5, dtype=torch.float64)
    double(a)
    torch.utils.swap_tensors(a, b)
    torch.testing.assert_close((double(a), double(b)), (a * 2, b * 2))


def test_swapped_after_training() -> None:
    pyframe.reset()
    layer, x = nn.Linear(6, 3), torch.randn(4, 6)
    compiled = pyframe.compile(layer)
    compiled(x).sum().backward()
    layer.zero_grad(set_to_none=True)
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    torch.testing.assert_close(compiled(x.double()), layer(x.double()))


def test_storage_offsets_are_guarded() -> None:
    pyframe.reset()
    memory = torch.randn(40)
    for fn in (lambda x: x * x.storage_offset(), lambda x: x.as_strided((3,), (2,), 1) * 2):
        for dynamic in (None, True):
            compiled = pyframe.compile(fn, dynamic=dynamic)
            for start in (0, 3, 5, 3):
                x = memory[start : start + 24].view(4, 6)
                torch.testing.assert_close(compiled(x), fn(x))


def test_frames_of_dispatch_handlers_run_as_they_are() -> None:
    """A subclass whose handler calls a function that a compiled frame could be made of."""

    class Doubled(torch.Tensor):
        inner: torch.Tensor

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)
            made.inner = inner
            return made

        def dense(self) -> torch.Tensor:
            return self.inner.to(torch.float32) * 2

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
            return func(*[x.dense() if isinstance(x, cls) else x for x in args], **(kwargs or {}))

    pyframe.reset()
    given = Doubled(torch.arange(6, dtype=torch.int8).view(2, 3))
    x = torch.randn(2, 3, requires_grad=True)

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w.t()).relu()

    want = fn(x, given)
    got = pyframe.compile(fn)(x, given)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (got, want)))


def test_sparse_gradients_of_embeddings() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.bag = nn.Embedding(10, 4, sparse=True), nn.EmbeddingBag(10, 4, sparse=True, mode="sum")
            self.last = nn.Linear(4, 2)

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.last(self.table(i) + self.bag(i[None])).relu().sum()

    pyframe.reset()
    torch.manual_seed(0)
    model, i = Model(), torch.tensor([1, 2, 1])
    gradients = []
    for run in (model, pyframe.compile(model, options={"strict": True})):
        model.zero_grad()
        run(i).backward()
        assert model.table.weight.grad.is_sparse and model.bag.weight.grad.is_sparse
        gradients.append([p.grad.to_dense() for p in model.parameters()])
    torch.testing.assert_close(*gradients)
