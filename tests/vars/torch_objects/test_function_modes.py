"""Default devices and modes of `__torch_function__`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from util import check

import pyframe
from pyframe.metrics import counters

X = torch.arange(6.0).reshape(2, 3)
META = torch.device("meta")


class Cosine(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.cos(*args) if func is torch.sin else func(*args, **(kwargs or {}))


class Nothing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def made_on(x: Any) -> Any:
    with META:
        y, z = torch.zeros(3), torch.ones(2, device="cpu")
        with torch.device("cpu"):
            z = z + torch.arange(2)
    return x * 2, y.device.type, z, torch.zeros(1).device.type, torch.empty_like(y).device.type


def makes(x: Any) -> Any:
    return torch.zeros(4) + torch.tensor(1.0)


def made_in_callee(x: Any) -> Any:
    with torch.device("meta"):
        y = makes(x)
    return y.device, makes(x)


def made_on_meta(x: Any) -> Any:
    return (torch.tensor(1.0, device="meta") + torch.zeros(4, device="meta")).shape, x + 1


def made_in_try(x: Any) -> Any:
    try:
        with torch.device("meta"):
            raise ValueError(torch.zeros(2).device.type)
    except ValueError as error:
        return str(error), torch.zeros(2) + x.sum()


def made_behind_break(x: Any) -> Any:
    with torch.device("meta"):
        y = torch.zeros(2)
        print(torch.zeros(1).device)
        z = torch.ones(3)
    return y.device, z.device, torch.zeros(1).device, x + 1


def entered_by_name(x: Any) -> Any:
    META.__enter__()
    y = torch.zeros(2)
    META.__exit__(None, None, None)
    return y.device, torch.zeros(1) + x


def mode_inside(x: Any) -> Any:
    with Cosine():
        y = torch.sin(x)
    return y + torch.sin(x)


@pytest.mark.parametrize(
    ("fn", "graphs"), [(made_on, 1), (made_on_meta, 1), (made_in_callee, 1), (made_in_try, 1), (made_behind_break, None),
                       (entered_by_name, None), (mode_inside, None)], ids=lambda p: getattr(p, "__name__", ""),
)  # fmt: skip
def test_inside(fn: Any, graphs: int | None) -> None:
    check(fn, X, graphs=graphs)
    assert torch._C._len_torch_function_stack() == 0 and torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_around(backend: str) -> None:
    """What a mode does to operators is seen whether or not they are captured, and never by calls without the mode."""

    def fn(x: Any) -> Any:
        return torch.sin(x * 0.125) + torch.zeros(3)

    pyframe.reset()
    fast = pyframe.compile(fn, backend=backend)
    for mode in (Cosine(), Nothing(), torch.device("cpu"), Cosine()):
        with mode:
            torch.testing.assert_close(fast(X), fn(X))
        torch.testing.assert_close(fast(X), fn(X))
    assert counters["graphs"] >= 2  # with and without a default device, and what runs inside the modes


def attention(x: Any) -> Any:
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel(SDPBackend.MATH):
        y = scaled_dot_product_attention(q, q, q)
        seen = torch.backends.cuda.flash_sdp_enabled()
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        y = y + scaled_dot_product_attention(q, q, q)
    return y, seen, torch.backends.cuda.flash_sdp_enabled(), {SDPBackend.MATH: 1}[SDPBackend(0)]


def attention_and_break(x: Any) -> Any:
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel(SDPBackend.MATH) as given:
        y = scaled_dot_product_attention(q, q, q)
        print(torch.backends.cuda.flash_sdp_enabled(), given)
        return scaled_dot_product_attention(y, q, q)


class Special(torch.Tensor):
    pass


SPECIAL = torch.ones(3).as_subclass(Special)


def mixed_in_loop(x: Any) -> Any:
    plain = [a.as_subclass(torch.Tensor) if isinstance(a, Special) else a for a in (SPECIAL, 1, x, SPECIAL)]
    found = []
    for a in (SPECIAL, 1, x):
        if isinstance(a, Special):
            a = a.as_subclass(torch.Tensor)
        found.append(a)
    return plain, found


def test_tensors_of_other_classes_are_distinguished() -> None:
    check(mixed_in_loop, X)


@pytest.mark.parametrize(("fn", "graphs"), [(attention, 1), (attention_and_break, 2)])
def test_kernels_of_attention(fn: Any, graphs: int) -> None:
    check(fn, X, graphs=graphs)
    assert torch.backends.cuda.flash_sdp_enabled()
    torch.testing.assert_close(pyframe.compile(fn)(X), fn(X))
