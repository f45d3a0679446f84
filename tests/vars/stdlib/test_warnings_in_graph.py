"""`warnings.warn` in traced code: a call that only prints is deferred to the end of the graph, any other breaks it."""
# ruff: noqa: B028, E501

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from language_support import Table, X, same

import pyframe
from pyframe.metrics import counters

whole = Table()
broken = Table()
SHOWN: list[Any] = []


class Odd(UserWarning):
    pass


def old_name(x):
    warnings.warn("use another", DeprecationWarning, stacklevel=2)
    return x


def _show(msg: Any) -> None:
    SHOWN.append((str(msg.message), msg.category, msg.filename, msg.lineno))


@pytest.fixture(autouse=True)
def stock(monkeypatch) -> Iterator[None]:
    """Warnings are shown by the module's own function, not kept by pytest; SHOWN has what it gets."""
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "showwarning", warnings._showwarning_orig)  # type: ignore[attr-defined]
        monkeypatch.setattr(warnings, "_showwarnmsg_impl", _show)
        warnings.resetwarnings()
        yield


@whole()
def several(x):
    y = x + 1
    warnings.warn(f"{x.shape[0]} rows")
    old_name(y)
    warnings.warn("odd", Odd)
    return y * 2


@whole()
def not_caught(x):
    try:
        warnings.warn("odd", category=Odd)
    except Odd:
        return x
    return x + 1


@broken()
def of_the_caller(x):
    warnings.warn("who", stacklevel=2)
    return x + 1


@whole()
def made_an_error(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error", Odd)
        try:
            warnings.warn("odd", Odd)
        except Odd as error:
            return x + 1, str(error)
    return x


@(broken if hasattr(warnings, "_get_context") else whole)()
def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("kept")
        y = x + len(seen)
    return y * 2, str(seen[0].message)


@whole()
def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("never")
        y = x + 1
    warnings.warn("after")
    return y * 2


def _calls(fn: Any) -> list[Any]:
    globals().pop("__warningregistry__", None)
    SHOWN.clear()
    results = []
    for turn, action in enumerate(("default", "default", "always", "ignore", "once")):
        warnings.simplefilter(action)
        results.append(fn(X + turn))
    return [*results, list(SHOWN)]


@pytest.mark.parametrize("row", whole, ids=Table.name)
def test_one_graph(row: Any) -> None:
    pyframe.reset()
    assert same(_calls(row[0]), _calls(pyframe.compile(row[0], backend="eager", fullgraph=True)))
    assert counters["graphs"] == 1


@pytest.mark.parametrize("row", broken, ids=Table.name)
def test_breaks(row: Any) -> None:
    pyframe.reset()
    assert same(_calls(row[0]), _calls(pyframe.compile(row[0], backend="eager")))
    assert counters["graph_breaks"]


def test_a_filter_that_makes_it_an_error_is_a_capture_of_its_own() -> None:
    pyframe.reset()
    call = pyframe.compile(not_caught, backend="eager")
    assert torch.equal(call(X), X + 1)
    warnings.simplefilter("error", Odd)
    assert torch.equal(call(X), X)
    warnings.resetwarnings()
    assert torch.equal(call(X), X + 1)
