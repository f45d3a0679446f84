"""`with warnings.catch_warnings()` is captured: warnings that its filters ignore are not issued, others are, in order,
and the process has the same filters afterwards."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pyframe


def ignores(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("inside", stacklevel=1)
        y = x.sin()
    warnings.warn("after", stacklevel=1)
    return y + 1


def by_message(x: torch.Tensor) -> Any:
    warnings.warn("before", stacklevel=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="in.*", category=UserWarning)
        warnings.warn("inside", stacklevel=1)
        warnings.warn("other", RuntimeWarning, stacklevel=1)
        warnings.warn("another", stacklevel=1)
        return x.sin()


def nested(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.warn("shown", RuntimeWarning, stacklevel=1)
            warnings.warn("hidden", stacklevel=1)
            y = x.sin()
        warnings.warn("hidden", RuntimeWarning, stacklevel=1)
    return y


def raises_inside(x: torch.Tensor) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raise ValueError
    except ValueError:
        warnings.warn("handled", stacklevel=1)
    return x.sin()


def operator_warns(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.nn.functional.mse_loss(x[:1], x)
    return y + 1


def operator_warns_with_an_error(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return torch.nn.functional.mse_loss(x[:1], x)
        except UserWarning:
            return "handled"


class Layer(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=UserWarning)
            warnings.warn("hidden", stacklevel=1)
            return x.sin()


def called_twice(x: torch.Tensor) -> Any:
    return Layer()(Layer()(x))


def entered_by_name(x: torch.Tensor) -> Any:
    context = warnings.catch_warnings()
    context.__enter__()
    warnings.simplefilter("ignore")
    warnings.warn("hidden", stacklevel=1)
    y = x.sin()
    context.__exit__(None, None, None)
    return y


ONE_GRAPH = [ignores, by_message, nested, raises_inside, called_twice, entered_by_name]


def breaks_inside(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x.sin()
        print("here")
        warnings.warn("inside", stacklevel=1)
        y = y + 1
    warnings.warn("after", stacklevel=1)
    return y * 2


def breaks_after_a_warning(x: torch.Tensor) -> Any:
    warnings.warn("before", stacklevel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x.sin()
        print("here")
    return y * 2


def breaks_in_a_call(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = says(x.sin())
        warnings.warn("hidden", stacklevel=1)
    return y * 2


def says(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        print("here")
        warnings.warn("shown", RuntimeWarning, stacklevel=1)
        return x + 1


def becomes_an_error(x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("raised", stacklevel=1)
        except UserWarning as error:
            return x + len(str(error))
    return x


def records(x: torch.Tensor) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("recorded", stacklevel=1)
        y = x.sin()
    return y, [str(each.message) for each in found]


def left_open(x: torch.Tensor) -> Any:
    warnings.catch_warnings().__enter__()
    warnings.simplefilter("ignore")
    y = x.sin()
    warnings.warn("hidden", stacklevel=1)
    return y


def seen(fn: Callable[..., Any]) -> list[Any]:
    """Results of two calls, what is printed, and the filters after them."""
    before = list(warnings.filters)
    printed = io.StringIO()
    found: list[Any] = []
    try:
        with contextlib.redirect_stdout(printed):
            for _ in range(2):
                found.append(fn(torch.ones(3)))
        return [found, printed.getvalue().splitlines(), [each[0] for each in warnings.filters]]
    finally:
        warnings.filters[:] = before


def _show(message: Any) -> None:
    print(message.category.__name__, message.message, message.lineno)


@pytest.fixture(autouse=True)
def _stock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Warnings are shown, not kept by pytest."""
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "showwarning", warnings._showwarning_orig)  # type: ignore[attr-defined]
        monkeypatch.setattr(warnings, "_showwarnmsg_impl", _show)
        warnings.resetwarnings()
        warnings.simplefilter("always")
        yield


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_one_graph(program: Callable[..., Any]) -> None:
    want = seen(program)
    got = seen(pyframe.compile(program, backend="eager", fullgraph=True))
    torch.testing.assert_close(got[0], want[0])
    assert got[1:] == want[1:]


@pytest.mark.parametrize(
    "program",
    [
        breaks_inside, breaks_after_a_warning, breaks_in_a_call, becomes_an_error, records, left_open, operator_warns,
        operator_warns_with_an_error,
    ],
    ids=lambda program: program.__name__,
)  # fmt: skip
def test_breaks(program: Callable[..., Any]) -> None:
    want, got = seen(program), seen(pyframe.compile(program, backend="eager"))
    assert str(got[0]) == str(want[0])
    assert got[1:] == want[1:]


def test_warnings_printed_once_are_printed_again() -> None:
    def f(x: torch.Tensor) -> Any:
        warnings.warn("again", stacklevel=1)
        with warnings.catch_warnings():
            return x.sin()

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        want, got = seen(f)[1], seen(pyframe.compile(f, backend="eager", fullgraph=True))[1]
    assert got == want
