"""Exceptions while an operator runs on fake tensors: the operator's break the graph, our own bugs are not hidden."""

import inspect
import warnings

import pytest
import torch

import pyframe
from inductor.aot import in_place
from inductor.log.warnings import shown
from pyframe.errors import InternalError, Unsupported

X = torch.arange(6.0).reshape(2, 3)


def add_in_place(x):
    y = x.clone()
    y.add_(1)
    return y


@pytest.fixture
def bug(monkeypatch):
    def was_resized(x, size):
        return x.no_such_attribute

    was_resized.__code__ = was_resized.__code__.replace(co_filename=inspect.getfile(in_place))
    monkeypatch.setattr(in_place, "_was_resized", was_resized)


def test_a_bug_of_ours_is_an_internal_error(bug):
    with pytest.raises(InternalError, match="no_such_attribute"):
        pyframe.compile(add_in_place, backend="eager")(X)


def test_users_get_one_warning_and_the_right_result(bug, monkeypatch):
    monkeypatch.setenv("PYFRAME_STRICT", "")
    monkeypatch.setattr("inductor.log.warnings.shown", shown - {"tracing add_"})
    with pytest.warns(UserWarning, match="no_such_attribute"):
        torch.testing.assert_close(pyframe.compile(add_in_place, backend="eager")(X), X + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(pyframe.compile(add_in_place, backend="eager")(X), X + 1)


@pytest.mark.parametrize("fn", [
    lambda x: x.sin(1, 2, 3),
    lambda x: torch.sum(x, dim="a"),
    lambda x: x.add_("text"),
    lambda x: torch.add(x, x, out=3),
    lambda x: x.reshape(7),
])  # fmt: skip
def test_wrong_arguments_of_operators_are_the_programs_errors(fn):
    def kind(call):
        with pytest.raises(Exception) as raised:  # noqa: PT011  whatever eager raises
            call(X.clone())
        return raised.type

    assert kind(pyframe.compile(fn, backend="eager")) is kind(fn)


def test_a_custom_operator_without_a_fake_implementation():
    @torch.library.custom_op("pyframe_tracing_errors::without_fake", mutates_args=())
    def without_fake(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    for target in (without_fake, torch.ops.pyframe_tracing_errors.without_fake):
        with pytest.raises(Unsupported, match=r"unsupported-torch-op.*has no fake implementation"):
            pyframe.compile(lambda x, target=target: target(x) + 1, backend="eager", fullgraph=True)(X)
