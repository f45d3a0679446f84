"""Calls of print, warnings and loggers: graph breaks, unless a setting defers or drops them."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch

import pyframe
from pyframe.errors import Unsupported
from pyframe.metrics import counters

LOG = logging.getLogger("pyframe.tests.logging_calls")


def compiled(function, **options):
    pyframe.reset()
    return pyframe.compile(function, backend="eager", **options)


def chatty(x):
    y = x + 1
    print("first", y, sep="|")
    print("second", y.shape)
    return y * 2


def test_print_breaks_the_graph(capsys) -> None:
    with pytest.raises(Unsupported, match="print"):
        compiled(chatty, fullgraph=True)(torch.ones(2))
    assert compiled(chatty)(torch.ones(2)).tolist() == [4.0, 4.0]
    assert capsys.readouterr().out == "first|tensor([2., 2.])\nsecond torch.Size([2])\n"
    assert counters["graphs"] == 2


def test_print_can_be_deferred(capsys) -> None:
    with pyframe.config.patch(reorderable_logging_functions={print}):
        call = compiled(chatty, fullgraph=True)
        for _ in range(2):
            assert call(torch.ones(2)).tolist() == [4.0, 4.0]
            assert capsys.readouterr().out == "first|tensor([2., 2.])\nsecond torch.Size([2])\n"
    assert counters["graphs"] == 1


def warns(x):
    warnings.warn("careful", UserWarning, stacklevel=2)
    return x + 1


@pytest.mark.parametrize("deferred", [False, True])
def test_warnings(deferred) -> None:
    with pyframe.config.patch(reorderable_logging_functions={warnings.warn} if deferred else set()):
        call = compiled(warns, fullgraph=deferred)
        for _ in range(2):
            with pytest.warns(UserWarning, match="careful"):
                assert call(torch.ones(2)).tolist() == [2.0, 2.0]


def logs(x):
    y = x + 1
    LOG.warning("sum of %d items", y.numel())
    LOG.info("done")
    return y


@pytest.mark.parametrize("named", [LOG.warning, logging.Logger.warning])
def test_loggers_can_be_deferred_or_left_out(named, caplog) -> None:
    with caplog.at_level(logging.WARNING, LOG.name):
        with pyframe.config.patch(reorderable_logging_functions={named}):
            assert compiled(logs, fullgraph=True)(torch.ones(2)).tolist() == [2.0, 2.0]
        assert [record.getMessage() for record in caplog.records] == ["sum of 2 items"]
        caplog.clear()
        with pyframe.config.patch(ignore_logging_functions={named}):
            assert compiled(logs, fullgraph=True)(torch.ones(2)).tolist() == [2.0, 2.0]
        assert not caplog.records


def test_a_logger_that_is_not_named_logs(caplog) -> None:
    other = logging.getLogger("pyframe.tests.other")
    with caplog.at_level(logging.WARNING), pyframe.config.patch(ignore_logging_functions={other.warning}):
        assert compiled(logs)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert [record.getMessage() for record in caplog.records] == ["sum of 2 items"]


def test_what_may_change_meanwhile_is_not_deferred(capsys) -> None:
    def program(x):
        items = [1]
        print(items)
        items.append(2)
        return x + len(items)

    with pyframe.config.patch(reorderable_logging_functions={print}):
        assert compiled(program)(torch.ones(2)).tolist() == [3.0, 3.0]
    assert capsys.readouterr().out == "[1]\n"


def test_the_level_of_a_logger_is_guarded(caplog) -> None:
    call = compiled(logs, fullgraph=True)
    with caplog.at_level(logging.ERROR, LOG.name):
        for _ in range(2):
            assert call(torch.ones(2)).tolist() == [2.0, 2.0]
    assert counters["graphs"] == 1 and not caplog.records
    with caplog.at_level(logging.WARNING, LOG.name), pytest.raises(Unsupported):
        call(torch.ones(2))
