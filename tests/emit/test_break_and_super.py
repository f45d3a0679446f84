"""`super()` without arguments in frames that break, and breaks in handlers, `finally` and `with`."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn
from util import check

import pyframe
from pyframe.metrics import counters

X = torch.arange(6.0).reshape(2, 3)


class Base:
    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale

    def run(self, x: Any, times: int = 1) -> Any:
        return x * self.scale * times

    @property
    def name(self) -> str:
        return "base"


class After(Base):
    def run(self, x: Any, times: int = 1) -> Any:
        x = x + 1
        print("before super")
        return super().run(x, times) - 1


class Before(Base):
    def run(self, x: Any, times: int = 1) -> Any:
        x = super().run(x, times) - 1
        print("after super")
        return x * 2


class Twice(Base):
    def run(self, x: Any, times: int = 1) -> Any:
        print("one")
        x = super().run(x)
        print("two", super().name)
        return super().run(x, times) + 1


class InLoop(Base):
    def run(self, x: Any, times: int = 1) -> Any:
        for i in range(4):
            x = super().run(x, times) * 0.25
            print(i)
        return super().run(x)


class Captured(Base):
    """`self` is a cell."""

    def run(self, x: Any, times: int = 1) -> Any:
        def scaled(v: Any) -> Any:
            return v * self.scale

        print("before super")
        return super().run(scaled(x), times)


class Deep(Twice):
    """More than one level, with a break in each."""

    def run(self, x: Any, times: int = 1) -> Any:
        x = super().run(x)
        print("deep")
        return super().run(x, times=times) - self.scale


class Many(Base):
    def run(self, x: Any, *rest: Any, **named: Any) -> Any:
        print(len(rest), sorted(named))
        return super().run(x + sum(rest), **named)


@pytest.mark.parametrize("cls", [After, Before, Twice, InLoop, Captured, Deep], ids=lambda cls: cls.__name__)
def test_super(cls: Any) -> None:
    check(cls().run, X, 3)


def test_super_is_captured() -> None:
    assert pyframe.explain(After().run)(X).graph_count == 2


def test_super_with_star_arguments() -> None:
    check(lambda x: Many().run(x, 1, 2, times=2), X)


class Inner(nn.Linear):
    def forward(self, x: Any) -> Any:
        x = torch.relu(x)
        pyframe.graph_break()
        return super().forward(x)


def test_super_in_a_module() -> None:
    torch.manual_seed(0)
    model = Inner(3, 3)
    check(lambda x: model(x), X)
    check(model, X)


# ---- handlers and finally ----


def in_handler(x: Any) -> Any:
    try:
        y = x + 1
        raise ValueError("v")
    except ValueError as error:
        print("handling", error)
        y = y * 2
    return y + 1


def in_handler_that_raises(x: Any) -> Any:
    try:
        try:
            x = x + 1
            raise ValueError("v")
        except ValueError as error:
            print("handling", error)
            raise KeyError("k") from error
    except KeyError as error:
        print(repr(error.__cause__))
        x = x * 3
    return x


def reraises(x: Any) -> Any:
    try:
        x = x + 1
        raise ValueError("v")
    except ValueError:
        print("handling")
        raise


def in_finally(x: Any) -> Any:
    try:
        y = x + 1
    finally:
        print("finally")
        y = y * 2
    return y + 1


def in_finally_after_error(x: Any) -> Any:
    try:
        x = x + 1
        raise ValueError("v")
    finally:
        print("finally")
        x = x * 2


def in_finally_then_handler(x: Any) -> Any:
    try:
        try:
            x = x + 1
            raise ValueError("v")
        finally:
            print("finally")
            x = x * 2
    except ValueError:
        x = x - 1
    return x


def in_finally_with_return(x: Any) -> Any:
    try:
        return x + 1
    finally:
        print("finally")


def real_error(x: Any) -> Any:
    try:
        y = x + 1
        int("not a number")
    except ValueError as error:
        print("caught", error)
        y = y * 2
    return y


def handler_in_loop(x: Any) -> Any:
    for i in range(5):
        try:
            x = x + 1
            if i % 2:
                raise ValueError(i)
        except ValueError as error:
            print("caught", error)
            x = x * 0.5
        finally:
            print("finally", i)
            x = x - 0.5
    return x


def loop_in_handler(x: Any) -> Any:
    try:
        x = x + 1
        raise ValueError("v")
    except ValueError as error:
        for i in range(4):
            print(error, i, sys.exc_info()[0])
            x = x * 0.5
    return x, sys.exc_info()[0]


def loop_in_finally(x: Any) -> Any:
    try:
        x = x + 1
    finally:
        for i in range(4):
            print(i)
            x = x * 0.5
    return x


def else_of_try(x: Any) -> Any:
    try:
        x = x + 1
    except ValueError:
        return x
    else:
        print("else")
        x = x * 2
    return x


def return_in_loop_in_try(x: Any) -> Any:
    try:
        for i in range(5):
            x = x + 1
            print(i)
            if i == 2:
                return x
    finally:
        print("finally", i)


@pytest.mark.parametrize(
    "fn",
    [
        in_handler, in_handler_that_raises, reraises, in_finally, in_finally_after_error, in_finally_then_handler,
        in_finally_with_return, real_error, handler_in_loop, loop_in_handler, loop_in_finally, else_of_try,
        return_in_loop_in_try,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_handlers(fn: Any) -> None:
    check(fn, X)
    assert sys.exc_info()[0] is None


# ---- inference mode ----


def inference(x: Any) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y + 1, y.is_inference(), torch.is_inference_mode_enabled()


def inference_and_break(x: Any) -> Any:
    with torch.inference_mode():
        y = x * 2
        print(torch.is_inference_mode_enabled(), y.is_inference())
        y = y + 1
    return y.clone()


def inference_off(x: Any) -> Any:
    with torch.inference_mode():
        with torch.inference_mode(mode=False):
            y = x * 2
            seen = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        z = y + 1
    return z, seen, y.requires_grad


def inference_loop(x: Any) -> Any:
    with torch.inference_mode():
        for i in range(5):
            x = x + 1
            print(i)
    return x.clone()


WEIGHT = torch.randn(3, requires_grad=True)
with torch.inference_mode():
    INFERRED = torch.randn(3)


def inference_of_parameters(x: Any) -> Any:
    with torch.inference_mode():
        y = x * WEIGHT
        flat = WEIGHT.view(-1)
    z = x * WEIGHT
    return y.is_inference(), z.is_inference(), z.requires_grad, flat.is_inference(), z.detach(), y.clone()


def inference_tensor_given(x: Any) -> Any:
    y = INFERRED * x.detach()
    return INFERRED.is_inference(), y.is_inference(), y


def inference_in_try(x: Any) -> Any:
    try:
        with torch.inference_mode():
            y = x + 1
            raise ValueError(str(y.is_inference()))
    except ValueError as error:
        return x * 2, str(error), torch.is_inference_mode_enabled()


def inference_saved(x: Any) -> Any:
    with torch.inference_mode():
        y = x + 1
    return (y * WEIGHT).sum()


@torch.inference_mode()
def inference_decorated(x: Any) -> Any:
    return x * WEIGHT


def inference_inlined(x: Any) -> Any:
    y = inference_decorated(x)
    return y, y.is_inference(), (x * WEIGHT).requires_grad


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "fn", [inference, inference_and_break, inference_off, inference_loop, inference_of_parameters,
           inference_tensor_given, inference_in_try, inference_saved, inference_inlined], ids=lambda fn: fn.__name__
)  # fmt: skip
def test_inference_mode(fn: Any, grad: bool) -> None:
    check(fn, X.clone().requires_grad_(grad))


def test_inference_mode_is_in_the_graph() -> None:
    explained = pyframe.explain(inference)(X)
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)


# ---- counting ----


def innermost(x: Any) -> Any:
    y = x + 1
    print("innermost")
    return y * 2


def middle(x: Any) -> Any:
    return innermost(x * 2) - 1


def outermost(x: Any) -> Any:
    return middle(x + 3) + 1


def in_a_loop(x: Any) -> Any:
    for i in range(3):
        x = x + 1
        print(i)
    return x


def call_in_a_loop(x: Any) -> Any:
    for _ in range(3):
        x = outermost(x) * 0.25
    return x


@pytest.mark.parametrize(
    "fn", [innermost, middle, outermost, in_a_loop, call_in_a_loop], ids=lambda fn: fn.__name__
)
def test_a_break_is_counted_once(fn: Any) -> None:
    check(fn, X, breaks=1)
    assert pyframe.explain(fn)(X).graph_break_count == 1


def test_each_call_that_breaks_is_counted() -> None:
    def two(x: Any) -> Any:
        x = innermost(x)
        x = innermost(x + 1)
        print("own")
        return x

    before = sum(counters["graph_breaks"].values())
    check(two, X)
    assert sum(counters["graph_breaks"].values()) - before == 3
