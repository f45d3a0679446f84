"""Settings of the process that traced code writes: later operators follow them, and they are left as eager leaves them."""
# ruff: noqa: E501, E702

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from language_support import Table, X, same

import pyframe
from pyframe.metrics import counters

backends = torch.backends
whole = Table()  # one graph
broken = Table()  # with breaks


@whole()
def default_dtype(x):
    a = torch.zeros(2)
    torch.set_default_dtype(torch.float64)
    b = torch.ones(2), torch.tensor(1.5), torch.arange(3) / 2, torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    return a, b, torch.ones(1) + x, torch.arange(3) / 2


@whole()
def default_dtype_in_a_function(x):
    def inner():
        torch.set_default_dtype(torch.float64)
        try:
            return torch.ones(2) / 3
        finally:
            torch.set_default_dtype(torch.float32)

    return inner(), torch.ones(2) + x.sum()


@whole()
def values_of_constants(x):
    a = torch.tensor(0.1)
    torch.set_default_dtype(torch.float64)
    return x + a.item(), x.double() + torch.tensor(0.1).item()


@whole()
def in_the_middle_of_gradients(x):
    w = x.clone().requires_grad_()
    y = (w * 2).sum()
    torch.set_default_dtype(torch.float64)
    return torch.autograd.grad(y * torch.full((2,), 1.5).sum(), w)


@whole()
def threads(x):
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    y = x + 1, torch.get_num_threads()
    torch.set_num_threads(n)
    return y, torch.get_num_threads() == n


@whole()
def precision_of_products(x):
    torch.set_float32_matmul_precision("high")
    y = x @ x.T, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return y


@whole()
def flags_of_backends(x):
    with backends.cudnn.flags(enabled=False):
        a = backends.cudnn.enabled
        with backends.cudnn.flags(enabled=True, benchmark=True):
            b = x + 1, backends.cudnn.enabled, backends.cudnn.benchmark
    with backends.mkldnn.flags(enabled=False, deterministic=True):
        c = x @ x.T
    return a, b, c, backends.cudnn.enabled, backends.cudnn.benchmark, backends.mkldnn.deterministic


@whole()
def attributes_of_backends(x):
    backends.cudnn.benchmark = True; backends.cuda.matmul.allow_tf32 = True
    y = x + 1, backends.cudnn.benchmark
    backends.cudnn.benchmark = False; backends.cuda.matmul.allow_tf32 = False
    return y, backends.cudnn.benchmark, backends.cudnn.deterministic


@whole()
def kernels_of_attention(x):
    q = torch.linspace(0, 1, 64).reshape(1, 2, 4, 8)
    backends.cuda.enable_flash_sdp(False)
    y = F.scaled_dot_product_attention(q, q, q), backends.cuda.flash_sdp_enabled()
    backends.cuda.enable_flash_sdp(True)
    return y, F.scaled_dot_product_attention(q, q, q), x + 1


@broken()
def around_a_break(x):
    torch.set_default_dtype(torch.float64)
    a = torch.ones(1)
    pyframe.graph_break()
    b = torch.ones(1)
    torch.set_default_dtype(torch.float32)
    return a, b, torch.ones(1) + x.sum()


@broken()
def refused(x):
    try:
        torch.set_default_dtype(torch.int32)
    except TypeError:
        x = x + 1
    try:
        torch.set_float32_matmul_precision("much")
    except ValueError:
        x = x + 2
    return x


def _now() -> Any:
    """The settings that the functions write."""
    cudnn, mkldnn = backends.cudnn, backends.mkldnn
    return [
        torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(),
        torch.is_deterministic_algorithms_warn_only_enabled(), torch.get_float32_matmul_precision(),
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic, mkldnn.enabled, mkldnn.deterministic,
        backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, mkldnn.allow_tf32, backends.cuda.flash_sdp_enabled(),
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    pyframe.reset()
    before = torch.get_default_dtype()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of settings that mean nothing on this machine
        yield
    torch.set_default_dtype(before)


def _run(fn: Callable[..., Any], args: Any) -> list[Any]:
    """Results and settings of several calls in a row."""
    torch.set_default_dtype(torch.float32)
    return [(fn(*args), _now()) for _ in range(3)]


def _check(row: Any, backend: Any = "eager") -> None:
    fn, args = row
    expected, got = _run(fn, args), _run(pyframe.compile(fn, backend=backend), args)
    for want, have in zip(expected, got, strict=True):
        assert same(want, have), f"{fn.__name__}:\n  eager    {want}\n  captured {have}"


@pytest.mark.parametrize("row", whole, ids=Table.name)
def test_one_graph(row: Any) -> None:
    compiled_under: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        compiled_under.append(_now())
        return gm.forward

    torch.set_default_dtype(torch.float32)
    before = _now()
    _check(row, backend)
    assert compiled_under[0] == before, "a setting was left switched after tracing"
    left = row[0] in (values_of_constants, in_the_middle_of_gradients)  # another default dtype from the second call on
    assert len(compiled_under) == 1 + left and not counters["graph_breaks"]


@pytest.mark.parametrize("row", broken, ids=Table.name)
def test_breaks(row: Any) -> None:
    _check(row)
    assert counters["graphs"] and sum(counters["graph_breaks"].values())


def test_a_trace_that_is_given_up_leaves_no_setting_switched() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(pyframe.Unsupported):
        pyframe.compile(f, backend="eager", fullgraph=True)(X)
    assert torch.get_default_dtype() is torch.float32


def test_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch._inductor", "torch._inductor.config"):  # eager imports them there, for seconds
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    def f(x: torch.Tensor) -> Any:
        torch.use_deterministic_algorithms(True, warn_only=True)
        y = x + 1, torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(False)
        return y, torch.are_deterministic_algorithms_enabled()

    _check((f, (X,)))
    assert counters["graphs"] == 1 and not counters["graph_breaks"]


def test_inductor_follows_them() -> None:
    def f(x: torch.Tensor) -> Any:
        a = torch.ones(2, 3) / 3 + x
        torch.set_default_dtype(torch.float64)
        b = torch.ones(2, 3) / 3 + x
        torch.set_default_dtype(torch.float32)
        return a, b, torch.get_default_dtype()

    expected, got = _run(f, (X,)), _run(pyframe.compile(f, fullgraph=True), (X,))
    for want, have in zip(expected, got, strict=True):
        torch.testing.assert_close(have[0][:2], want[0][:2])
        assert have[0][2] == want[0][2] and have[1] == want[1]
    assert counters["graphs"] == 1
